//! One node as the scheduler sees it: what it has, what is taken, whom it lets in.

use std::collections::BTreeMap;
use std::fmt;

use super::class::{Amounts, Class, Taint};

/// What a Node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) allocatable: Amounts,
    pub(crate) pods_max: i64,
}

/// What the pods of a node have taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) requests: Amounts,
    pub(crate) pods: i64,
}

impl Usage {
    pub(crate) fn add(&mut self, class: &Class) {
        self.requests.add(&class.requests);
        self.pods += 1;
    }

    pub(crate) fn remove(&mut self, class: &Class) {
        self.requests.subtract(&class.requests);
        self.pods -= 1;
    }
}

/// Why a pod cannot go to a node, in kube-scheduler's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obstacle {
    Insufficient(String),
    TooManyPods,
    Mismatch,
    Taints,
    Unschedulable,
}

impl Obstacle {
    /// Would it be gone if other pods were?
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        matches!(self, Self::Insufficient(_) | Self::TooManyPods)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Mismatch => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Taints => f.write_str("node(s) had untolerated taint(s)"),
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
        }
    }
}

/// All that stands between a pod and a node; nothing if it fits. Upstream's filters stop at the first that refuses, and
/// the one about resources names all that are short.
pub(crate) fn obstacles(offer: &Offer, usage: &Usage, class: &Class) -> Vec<Obstacle> {
    if offer.is_unschedulable {
        return vec![Obstacle::Unschedulable];
    }
    let is_tolerated = |taint: &Taint| class.tolerations.iter().any(|toleration| toleration.tolerates(taint));
    if offer.taints.iter().any(|taint| taint.repels() && !is_tolerated(taint)) {
        return vec![Obstacle::Taints];
    }
    if !matches(offer, class) {
        return vec![Obstacle::Mismatch];
    }
    shortages(offer, usage, class)
}

fn matches(offer: &Offer, class: &Class) -> bool {
    let label = |key: &str| offer.labels.get(key).map(String::as_str);
    let selected = class.node_selector.iter().all(|(key, value)| label(key) == Some(value));
    selected
        && class.node_affinity.as_ref().is_none_or(|terms| {
            terms.iter().any(|term| {
                let is_empty = term.labels.is_empty() && term.names.is_empty();
                !is_empty
                    && term.labels.iter().all(|requirement| requirement.matches(label(&requirement.key)))
                    && term.names.iter().all(|requirement| requirement.matches(Some(&offer.name)))
            })
        })
}

fn shortages(offer: &Offer, usage: &Usage, class: &Class) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if usage.pods + 1 > offer.pods_max {
        found.push(Obstacle::TooManyPods);
    }
    let mut check = |name: &str, wanted: i64, used: i64, has: i64| {
        // Asking for nothing is always granted, also where more is taken than there is.
        if wanted > 0 && wanted > has.saturating_sub(used) {
            found.push(Obstacle::Insufficient(name.to_owned()));
        }
    };
    let (wanted, used, has) = (&class.requests, &usage.requests, &offer.allocatable);
    check("cpu", wanted.cpu_millis, used.cpu_millis, has.cpu_millis);
    check("memory", wanted.memory_bytes, used.memory_bytes, has.memory_bytes);
    for (name, amount) in &wanted.others {
        let of = |amounts: &Amounts| amounts.others.get(name).copied().unwrap_or(0);
        check(name, *amount, of(used), of(has));
    }
    found
}

/// How full the node would be with the pod on it: the fullest resource counts. Emptier nodes are taken first.
pub(crate) fn fullness(offer: &Offer, usage: &Usage, class: &Class) -> f64 {
    let share = |wanted: i64, used: i64, has: i64| match has {
        1.. => (used.saturating_add(wanted)) as f64 / has as f64,
        _ => 0.0,
    };
    let (wanted, used, has) = (&class.requests, &usage.requests, &offer.allocatable);
    share(wanted.cpu_millis, used.cpu_millis, has.cpu_millis)
        .max(share(wanted.memory_bytes, used.memory_bytes, has.memory_bytes))
        .max(share(1, usage.pods, offer.pods_max))
}

#[cfg(test)]
mod tests {
    use super::super::class::{Operator, Requirement, Term, Toleration};
    use super::*;

    fn offer() -> Offer {
        Offer {
            name: "n".to_owned(),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            allocatable: Amounts { cpu_millis: 2000, memory_bytes: 1000, others: [("gpu".to_owned(), 1)].into() },
            pods_max: 2,
            ..Offer::default()
        }
    }

    fn asking(cpu_millis: i64, memory_bytes: i64) -> Class {
        Class { requests: Amounts { cpu_millis, memory_bytes, ..Amounts::default() }, ..Class::default() }
    }

    fn texts(offer: &Offer, usage: &Usage, class: &Class) -> Vec<String> {
        obstacles(offer, usage, class).iter().map(Obstacle::to_string).collect()
    }

    #[test]
    fn resources_must_fit_what_is_left() {
        let mut usage = Usage::default();
        assert!(texts(&offer(), &usage, &asking(2000, 1000)).is_empty());
        usage.add(&asking(500, 900));
        assert_eq!(texts(&offer(), &usage, &asking(1501, 101)), ["Insufficient cpu", "Insufficient memory"]);
        assert!(texts(&offer(), &usage, &asking(1500, 100)).is_empty());
        usage.add(&asking(9000, 0));
        assert_eq!(texts(&offer(), &usage, &asking(0, 0)), ["Too many pods"]);
        usage.remove(&asking(500, 900));
        assert!(texts(&offer(), &usage, &asking(0, 0)).is_empty(), "nothing fits into an overfull node too");
        let mut device = asking(0, 0);
        device.requests.others = [("gpu".to_owned(), 2)].into();
        assert_eq!(texts(&offer(), &usage, &device), ["Insufficient gpu"]);
    }

    #[test]
    fn selectors_affinity_taints_and_cordons_keep_pods_away() {
        let usage = Usage::default();
        let selecting =
            |zone: &str| Class { node_selector: [("zone".to_owned(), zone.to_owned())].into(), ..Class::default() };
        assert!(texts(&offer(), &usage, &selecting("a")).is_empty());
        let mismatch = ["node(s) didn't match Pod's node affinity/selector"];
        assert_eq!(texts(&offer(), &usage, &selecting("b")), mismatch);
        let named = |name: &str| Requirement {
            key: "metadata.name".to_owned(),
            operator: Operator::In,
            values: [name.to_owned()].into(),
        };
        let term = |name: &str| Term { names: vec![named(name)], ..Term::default() };
        let affine = |terms| Class { node_affinity: Some(terms), ..Class::default() };
        assert!(texts(&offer(), &usage, &affine(vec![term("x"), term("n")])).is_empty());
        assert_eq!(texts(&offer(), &usage, &affine(vec![term("x")])), mismatch);
        assert_eq!(texts(&offer(), &usage, &affine(vec![Term::default()])), mismatch);
        let tainted = Offer {
            taints: vec![Taint { key: "k".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }],
            ..offer()
        };
        assert_eq!(texts(&tainted, &usage, &Class::default()), ["node(s) had untolerated taint(s)"]);
        let everything = Toleration { exists: true, ..Toleration::default() };
        let tolerant = Class { tolerations: vec![everything], ..Class::default() };
        assert!(texts(&tainted, &usage, &tolerant).is_empty());
        let cordoned = Offer { is_unschedulable: true, ..offer() };
        assert_eq!(texts(&cordoned, &usage, &tolerant), ["node(s) were unschedulable"]);
    }
}
