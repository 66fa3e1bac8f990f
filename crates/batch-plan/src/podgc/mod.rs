//! Pod garbage collection: pods that nobody will ever finish, and finished ones that nobody will ever read
//! (PL-85…PL-90).
//!
//! One round has two halves, because a node's absence must be confirmed by the server: [`suspects`] says which nodes to
//! ask about, [`collect`] what to do with the answers. Watching and acting are in `controllers`.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use teeth::{Mutation, is};

/// How long a node must be missing before its pods are looked at, in case the node comes later than its pods.
pub const QUARANTINE: Duration = Duration::from_secs(40);
/// `--terminated-pod-gc-threshold`.
pub const TERMINATED_THRESHOLD: i64 = 12500;

/// What is looked at of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    /// Empty until the pod is bound.
    pub node: Arc<str>,
    pub phase: Phase,
    /// `status.reason` is `Evicted`.
    pub evicted: bool,
    /// It has a deletionTimestamp.
    pub terminating: bool,
    pub created: Timestamp,
}

/// `status.phase`, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Pending, Running or Unknown.
    Active,
    /// Succeeded or Failed.
    Ended,
    /// Anything else: not active, and not known to have ended either.
    Other,
}

impl Phase {
    pub fn of(phase: &str) -> Self {
        match phase {
            "Pending" | "Running" | "Unknown" => Self::Active,
            "Succeeded" | "Failed" => Self::Ended,
            _ => Self::Other,
        }
    }
}

/// What is looked at of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    pub ready: bool,
    /// It has the taint `node.kubernetes.io/out-of-service`.
    pub out_of_service: bool,
}

/// Why a pod goes. The texts are the label values of `pod_gc_collector_force_delete_pods_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }
}

/// A pod to collect: to be marked as failed unless it has ended, and deleted without grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection {
    /// Which of the pods that were given.
    pub index: usize,
    pub reason: Reason,
    /// Its phase becomes Failed first (INV-41).
    pub mark_failed: bool,
}

/// Since when nodes that pods name have been missing; the time is any clock that never goes back.
pub type Missing = HashMap<Arc<str>, Duration>;

/// Updates `missing` and says which nodes have been missing for long enough to ask the server about them (PL-88).
pub fn suspects(
    pods: &[&Pod],
    nodes: &HashMap<Arc<str>, Node>,
    missing: &mut Missing,
    now: Duration,
    quarantine: Duration,
) -> Vec<Arc<str>> {
    let absent: HashSet<&Arc<str>> =
        pods.iter().map(|pod| &pod.node).filter(|node| !node.is_empty() && !nodes.contains_key(*node)).collect();
    missing.retain(|node, _| absent.contains(node));
    for node in absent {
        missing.entry(node.clone()).or_insert(now);
    }
    let mut suspects: Vec<Arc<str>> = missing
        .iter()
        .filter(|(_, since)| now.saturating_sub(**since) >= quarantine)
        .map(|(node, _)| node.clone())
        .collect();
    suspects.sort();
    suspects
}

/// The pods to collect, in the order of PL-85. `gone` are the nodes that the server says do not exist. A `threshold` of
/// zero or less keeps ended pods for ever (PL-86).
pub fn collect(
    pods: &[&Pod],
    nodes: &HashMap<Arc<str>, Node>,
    gone: &HashSet<Arc<str>>,
    threshold: i64,
) -> Vec<Collection> {
    let mut plan = Vec::new();
    let mut planned = vec![false; pods.len()];
    let mut add = |index: usize, reason| {
        // A pod can be due for several reasons; the first one counts.
        if !std::mem::replace(&mut planned[index], true) {
            plan.push(Collection {
                index,
                reason,
                mark_failed: pods[index].phase != Phase::Ended && !is(Mutation::H07),
            });
        }
    };
    let all = || 0..pods.len();
    let out_of_service =
        |pod: &Pod| pod.terminating && nodes.get(&pod.node).is_some_and(|node| !node.ready && node.out_of_service);
    let orphaned = |pod: &Pod| gone.contains(&pod.node) && !nodes.contains_key(&pod.node);
    let unscheduled = |pod: &Pod| pod.terminating && pod.node.is_empty();
    excess(pods, threshold).for_each(|index| add(index, Reason::Terminated));
    all().filter(|index| out_of_service(pods[*index])).for_each(|index| add(index, Reason::OutOfService));
    all().filter(|index| orphaned(pods[*index])).for_each(|index| add(index, Reason::Orphaned));
    all().filter(|index| unscheduled(pods[*index])).for_each(|index| add(index, Reason::Unscheduled));
    plan
}

/// Ended pods beyond the threshold: evicted ones first, then the oldest, then by name.
fn excess(pods: &[&Pod], threshold: i64) -> impl Iterator<Item = usize> + use<> {
    let mut ended: Vec<usize> = Vec::new();
    if threshold > 0 {
        ended.extend((0..pods.len()).filter(|index| pods[*index].phase != Phase::Active));
    }
    let excess = ended.len().saturating_sub(usize::try_from(threshold).unwrap_or(0));
    if excess > 0 {
        let order = |index: usize| (Reverse(pods[index].evicted), pods[index].created, &pods[index].name);
        ended.sort_by(|a, b| order(*a).cmp(&order(*b)));
    }
    ended.into_iter().take(excess)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name phase node flags…`, with `-` for no node; flags are `terminating`, `evicted` and `t=<seconds>`.
    fn pod(text: &str) -> Pod {
        let mut words = text.split(' ');
        let mut next = || words.next().expect("name, phase, node");
        let (name, phase, node) = (next(), next(), next());
        let mut pod = Pod {
            namespace: "ns".into(),
            name: name.into(),
            node: node.trim_start_matches('-').into(),
            phase: Phase::of(phase),
            evicted: false,
            terminating: false,
            created: Timestamp::UNIX_EPOCH,
        };
        for flag in words {
            match flag {
                "terminating" => pod.terminating = true,
                "evicted" => pod.evicted = true,
                time => pod.created = Timestamp::from_second(time[2..].parse().unwrap()).unwrap(),
            }
        }
        pod
    }

    fn nodes() -> HashMap<Arc<str>, Node> {
        let node = |ready, out_of_service| Node { ready, out_of_service };
        HashMap::from([
            ("well".into(), node(true, false)),
            ("sick".into(), node(false, false)),
            ("out".into(), node(false, true)),
            ("back".into(), node(true, true)),
        ])
    }

    fn collected(pods: &[&str], gone: &[&str], threshold: i64) -> Vec<String> {
        let pods: Vec<Pod> = pods.iter().map(|text| pod(text)).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let gone = gone.iter().map(|node| Arc::from(*node)).collect();
        collect(&pods, &nodes(), &gone, threshold)
            .into_iter()
            .map(|one| {
                let mark = if one.mark_failed { " failed" } else { "" };
                format!("{} {}{mark}", pods[one.index].name, one.reason.as_str())
            })
            .collect()
    }

    #[test]
    fn ended_pods_beyond_the_threshold_go_evicted_and_oldest_first() {
        let pods = [
            "d Succeeded well t=4",
            "b Failed well t=2",
            "a Failed well t=2",
            "e Failed well evicted t=9",
            "r Running well t=1",
            "x Strange well t=5",
        ];
        assert_eq!(collected(&pods, &[], 5), [""; 0]);
        assert_eq!(collected(&pods, &[], 4), ["e terminated"]);
        assert_eq!(collected(&pods, &[], 2), ["e terminated", "a terminated", "b terminated"]);
        assert_eq!(collected(&pods, &[], 0), [""; 0], "zero disables");
        assert_eq!(collected(&pods, &[], -1), [""; 0]);
    }

    /// INV-41.
    #[test]
    fn reg_h07_pods_that_nobody_runs_end_failed() {
        let pods = [
            "a Pending - terminating",
            "b Pending -",
            "c Failed - terminating",
            "d Running well terminating",
            "e Running out terminating",
            "f Running out",
            "g Running sick terminating",
            "h Running back terminating",
            "i Running lost",
            "j Succeeded lost",
            "k Running other",
        ];
        let expected =
            ["e out-of-service failed", "i orphaned failed", "j orphaned", "a unscheduled failed", "c unscheduled"];
        assert_eq!(collected(&pods, &["lost"], TERMINATED_THRESHOLD), expected);
    }

    #[test]
    fn a_node_that_came_back_keeps_its_pods() {
        assert_eq!(collected(&["a Running well"], &["well"], 0), [""; 0]);
    }

    #[test]
    fn nodes_are_suspect_after_the_quarantine_and_forgiven_when_seen() {
        let second = Duration::from_secs;
        let pods = [pod("a Running lost"), pod("b Running well"), pod("c Pending -")];
        let pods: Vec<&Pod> = pods.iter().collect();
        let mut nodes = nodes();
        let mut missing = Missing::new();
        assert_eq!(suspects(&pods, &nodes, &mut missing, second(100), QUARANTINE).len(), 0);
        assert_eq!(suspects(&pods, &nodes, &mut missing, second(139), QUARANTINE).len(), 0);
        assert_eq!(suspects(&pods, &nodes, &mut missing, second(140), QUARANTINE), ["lost".into()]);
        // Seen again: the quarantine starts over.
        nodes.insert("lost".into(), Node { ready: true, out_of_service: false });
        assert_eq!(suspects(&pods, &nodes, &mut missing, second(150), QUARANTINE).len(), 0);
        assert!(missing.is_empty());
        nodes.remove("lost");
        assert_eq!(suspects(&pods, &nodes, &mut missing, second(200), QUARANTINE).len(), 0);
        // Nobody names it any more.
        assert_eq!(suspects(&[], &nodes, &mut missing, second(300), QUARANTINE).len(), 0);
        assert!(missing.is_empty());
    }
}
