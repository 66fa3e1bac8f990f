//! A pod and its node: none yet, held back, or one that does not report.

use super::{Case, Diagnosis, PATIENCE_SECS};
use crate::answer::{Evidence, State};
use crate::events;
use crate::object::Object;
use crate::snapshot::objects;
use crate::words::{clause, foreign, listed, verb};

/// A pod without a node.
pub(super) fn diagnose(case: Case<'_>) -> Diagnosis {
    let pod = case.pod;
    let gates: Vec<String> = pod
        .list("/spec/schedulingGates")
        .filter_map(|gate| gate.text("/name"))
        .map(|gate| format!("`{}`", foreign(gate)))
        .collect();
    if !gates.is_empty() {
        return Diagnosis::new(
            State::SchedulingGated,
            format!("{} {} set", listed(&gates), verb(gates.len() as u64, "is", "are")),
        )
        .since(pod.created())
        .next("it is scheduled when whoever set its schedulingGates removes them", None);
    }
    let event = events::last(case.events, &["FailedScheduling"]);
    let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
    let message = condition.map(|condition| condition.message).filter(|message| !message.is_empty());
    let message = message.or(event.map(|event| event.message));
    let has_no_nodes = case.snapshot.nodes.as_ref().is_some_and(Vec::is_empty);
    let evidence: Vec<Evidence> = event.iter().map(events::Event::evidence).chain(node_evidence(case)).collect();
    let Some(message) = message else { return unnoticed(case, has_no_nodes).evidence(evidence) };
    let cause = if has_no_nodes { "the cluster has no node".to_owned() } else { clause(message) };
    let found = Diagnosis::new(State::Unschedulable, cause)
        .since(condition.and_then(|condition| condition.since).or(event.and_then(|event| event.at)).or(pod.created()))
        .next("the scheduler tries again whenever nodes or pods change", None)
        .evidence(evidence);
    remedies(message, has_no_nodes).into_iter().fold(found, Diagnosis::action)
}

/// Nobody has tried to find a node.
fn unnoticed(case: Case<'_>, has_no_nodes: bool) -> Diagnosis {
    if has_no_nodes {
        return Diagnosis::new(State::Unschedulable, "the cluster has no node")
            .since(case.pod.created())
            .next("it is scheduled when a node registers", None)
            .action("start something that runs pods: `tally up` without `--node none`, or a node of the cluster");
    }
    if case.age_secs() < PATIENCE_SECS {
        return Diagnosis::new(State::Starting, "the scheduler has not looked at it yet").since(case.pod.created());
    }
    let scheduler = foreign(case.pod.text("/spec/schedulerName").unwrap_or("default-scheduler"));
    Diagnosis::new(State::Unschedulable, format!("scheduler `{scheduler}` has not looked at it"))
        .since(case.pod.created())
        .action(format!("check that scheduler `{scheduler}` runs, or correct `spec.schedulerName` of the pod template"))
}

/// What helps against the usual complaints of a scheduler.
fn remedies(message: &str, has_no_nodes: bool) -> Vec<&'static str> {
    if has_no_nodes {
        return vec!["start something that runs pods: `tally up` without `--node none`, or a node of the cluster"];
    }
    let table = [
        ("Insufficient", "lower `resources.requests` of the pod template, free resources, or add nodes"),
        (
            "taint",
            "add a toleration for the taint to the pod template, or remove the taint: kubectl taint nodes NODE KEY-",
        ),
        ("affinity/selector", "correct `nodeSelector` or `affinity` of the pod template, or label a node"),
        ("node selector", "correct `nodeSelector` or `affinity` of the pod template, or label a node"),
        ("unschedulable", "kubectl uncordon NODE"),
        ("Too many pods", "wait for other pods to end, or add nodes"),
        ("free ports", "two pods with the same host port need two nodes"),
        ("persistentvolumeclaim", "create the PersistentVolumeClaim, or correct its name in the pod template"),
    ];
    table.into_iter().filter(|(sign, _)| message.contains(sign)).map(|(_, remedy)| remedy).collect()
}

/// The taints of nodes, which messages name only in part.
fn node_evidence(case: Case<'_>) -> Vec<Evidence> {
    let nodes = objects(case.snapshot.nodes.as_ref());
    let tainted = nodes.filter_map(|node| {
        let taints: Vec<String> = node
            .list("/spec/taints")
            .filter_map(|taint| {
                let (key, effect) = (taint.text("/key")?, taint.text("/effect")?);
                let value = taint.text("/value").map(|value| format!("={value}")).unwrap_or_default();
                Some(foreign(&format!("{key}{value}:{effect}")))
            })
            .collect();
        let text = format!("has taints {}", listed(&taints));
        (!taints.is_empty()).then(|| Evidence::new(format!("node/{}", foreign(node.name())), text, None))
    });
    tainted.take(3).collect()
}

/// The pod's node has gone, or has fallen silent.
pub(super) fn lost_node(case: Case<'_>) -> Option<Diagnosis> {
    let name = case.node()?;
    // Nothing can be said about nodes that were not seen.
    case.snapshot.nodes.as_ref()?;
    let node = objects(case.snapshot.nodes.as_ref()).find(|node| node.name() == name);
    let shown = foreign(name);
    let Some(node) = node else {
        return Some(
            Diagnosis::new(State::NodeLost, format!("node `{shown}` does not exist any more"))
                .next("the pod is removed and counted as failed by the pod garbage collector", None)
                .action(format!("kubectl delete {} --force", case.argument())),
        );
    };
    silent(node).map(|since| {
        Diagnosis::new(State::NodeLost, format!("node `{shown}` is not ready"))
            .since(since)
            .next("the pod goes on, or is replaced when it is evicted from the node", None)
            .action(format!("kubectl describe node {shown}"))
    })
}

/// Since when a node has not been ready.
fn silent(node: Object<'_>) -> Option<Option<jiff::Timestamp>> {
    let ready = node.condition("Ready")?;
    (ready.status != "True").then_some(ready.since)
}
