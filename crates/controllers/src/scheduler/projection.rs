//! What is decoded of pods and nodes (design D4), and the class that follows from a pod's spec (PL-103).

use std::collections::BTreeMap;

use api_schema::Quantity;
use jiff::Timestamp;
use serde::Deserialize;

use super::class::{Amounts, Class, Operator, Requirement, Taint, Term, Toleration};
use super::node::Offer;
use super::placement::PodFacts;
use crate::runtime::{Mirrored, intern::Interner};

/// A pod that has not ended.
#[derive(Debug, Deserialize)]
#[serde(from = "RawPod")]
pub(super) struct PodView {
    pub(super) facts: PodFacts,
    pub(super) scheduler_name: String,
    resource_version: Box<str>,
}

#[derive(Debug, Deserialize)]
#[serde(from = "RawNode")]
pub(super) struct NodeView {
    pub(super) offer: Offer,
    uid: Box<str>,
    resource_version: Box<str>,
}

impl PodView {
    /// Shares the texts that many pods have in common.
    pub(super) fn share(&mut self, interner: &mut Interner) {
        self.facts.namespace = interner.text(&self.facts.namespace);
        self.facts.node = interner.text(&self.facts.node);
    }
}

impl Mirrored for PodView {
    fn uid(&self) -> &str {
        &self.facts.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Mirrored for NodeView {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawNodeMeta {
    name: String,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPod {
    metadata: RawPodMeta,
    spec: RawSpec,
}

/// Without labels: pods have many, and none matters here.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawPodMeta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    node_name: Box<str>,
    scheduler_name: String,
    priority: Option<i32>,
    scheduling_gates: Vec<serde::de::IgnoredAny>,
    init_containers: Vec<RawContainer>,
    containers: Vec<RawContainer>,
    overhead: BTreeMap<String, String>,
    resources: Option<RawResources>,
    node_selector: BTreeMap<String, String>,
    affinity: Option<RawAffinity>,
    tolerations: Vec<RawToleration>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawContainer {
    restart_policy: Option<String>,
    resources: RawResources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawResources {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawAffinity {
    node_affinity: Option<RawNodeAffinity>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawNodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<RawNodeSelector>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawNodeSelector {
    node_selector_terms: Vec<RawTerm>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawTerm {
    match_expressions: Vec<RawRequirement>,
    match_fields: Vec<RawRequirement>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawRequirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawToleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNode {
    metadata: RawNodeMeta,
    spec: RawNodeSpec,
    status: RawNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNodeSpec {
    unschedulable: bool,
    taints: Vec<RawTaint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawTaint {
    key: String,
    value: String,
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNodeStatus {
    allocatable: BTreeMap<String, String>,
}

impl From<RawPod> for PodView {
    fn from(raw: RawPod) -> Self {
        let RawPod { metadata, mut spec } = raw;
        let is_ours = spec.scheduling_gates.is_empty() && metadata.deletion_timestamp.is_none();
        let node = std::mem::take(&mut spec.node_name);
        let scheduler_name = std::mem::take(&mut spec.scheduler_name);
        let facts = PodFacts {
            uid: metadata.uid.into(),
            namespace: metadata.namespace.into(),
            name: metadata.name.into(),
            created: metadata.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            class: class(spec),
            node: node.into(),
            is_ours,
        };
        Self { facts, scheduler_name, resource_version: metadata.resource_version }
    }
}

impl From<RawNode> for NodeView {
    fn from(raw: RawNode) -> Self {
        let RawNode { metadata, spec, status } = raw;
        let taint = |RawTaint { key, value, effect }| Taint { key, value, effect };
        let pods_max = status.allocatable.get("pods").and_then(|text| Quantity::parse(text).ok());
        Self {
            offer: Offer {
                name: metadata.name,
                labels: metadata.labels,
                taints: spec.taints.into_iter().map(taint).collect(),
                is_unschedulable: spec.unschedulable,
                allocatable: amounts(&status.allocatable),
                pods_max: pods_max.map_or(0, |pods| pods.value()),
            },
            uid: metadata.uid,
            resource_version: metadata.resource_version,
        }
    }
}

fn class(spec: RawSpec) -> Class {
    let requests = requests(&spec);
    let affinity = spec.affinity.and_then(|affinity| affinity.node_affinity);
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
    let requirements = |raw: Vec<RawRequirement>| raw.into_iter().map(requirement).collect();
    let term =
        |raw: RawTerm| Term { labels: requirements(raw.match_expressions), names: requirements(raw.match_fields) };
    let toleration = |RawToleration { key, operator, value, effect }: RawToleration| Toleration {
        key,
        exists: operator == "Exists",
        value,
        effect,
    };
    Class {
        priority: spec.priority.unwrap_or(0),
        requests,
        node_selector: spec.node_selector,
        node_affinity: required.map(|selector| selector.node_selector_terms.into_iter().map(term).collect()),
        tolerations: spec.tolerations.into_iter().map(toleration).collect(),
    }
}

fn requirement(raw: RawRequirement) -> Requirement {
    let operator = match raw.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => Operator::Unknown,
    };
    Requirement { key: raw.key, operator, values: raw.values.into_iter().collect() }
}

/// The sum of containers and sidecars, or what init containers need at their busiest, and the overhead. Requests of the
/// pod as a whole take the place of those of its containers.
fn requests(spec: &RawSpec) -> Amounts {
    let mut running = Amounts::default();
    let mut starting = Amounts::default();
    for container in &spec.init_containers {
        let own = of_container(&container.resources);
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&own);
            starting.raise_to(&running);
        } else {
            let mut with_sidecars = running.clone();
            with_sidecars.add(&own);
            starting.raise_to(&with_sidecars);
        }
    }
    for container in &spec.containers {
        running.add(&of_container(&container.resources));
    }
    running.raise_to(&starting);
    if let Some(resources) = &spec.resources {
        let whole = of_container(resources);
        running.cpu_millis = if whole.cpu_millis > 0 { whole.cpu_millis } else { running.cpu_millis };
        running.memory_bytes = if whole.memory_bytes > 0 { whole.memory_bytes } else { running.memory_bytes };
    }
    running.add(&amounts(&spec.overhead));
    running
}

/// Limits stand in for requests that are missing (PL-106).
fn of_container(resources: &RawResources) -> Amounts {
    let mut asked = resources.limits.clone();
    asked.extend(resources.requests.iter().map(|(name, amount)| (name.clone(), amount.clone())));
    amounts(&asked)
}

fn amounts(list: &BTreeMap<String, String>) -> Amounts {
    let mut amounts = Amounts::default();
    for (name, text) in list {
        let Ok(quantity) = Quantity::parse(text) else { continue };
        match name.as_str() {
            "cpu" => amounts.cpu_millis = quantity.milli_value(),
            "memory" => amounts.memory_bytes = quantity.value(),
            "pods" => {}
            other => drop(amounts.others.insert(other.to_owned(), quantity.value())),
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requested(spec: Value) -> (i64, i64) {
        let view: PodView = serde_json::from_value(json!({"spec": spec})).unwrap();
        let requests = view.facts.class.requests;
        (requests.cpu_millis, requests.memory_bytes)
    }

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": "1Ki"}}})
    }

    #[test]
    fn requests_are_what_a_pod_needs_at_its_busiest() {
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        for (spec, cpu_millis) in [
            (json!({"containers": [{}]}), 0),
            (json!({"containers": [container("1"), container("500m")]}), 1500),
            (json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]}), 3000),
            (json!({"containers": [container("1")], "initContainers": [sidecar]}), 1100),
            (json!({"containers": [container("1")], "initContainers": [sidecar, container("2")]}), 2100),
            (json!({"containers": [container("1")], "initContainers": [container("2"), sidecar]}), 2000),
            (json!({"containers": [container("1")], "overhead": {"cpu": "50m"}}), 1050),
            (json!({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}), 2000),
            (json!({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}), 4000),
        ] {
            assert_eq!(requested(spec.clone()).0, cpu_millis, "{spec}");
        }
        assert_eq!(requested(json!({"containers": [container("1")]})).1, 1024);
    }

    #[test]
    fn gates_and_deletion_take_a_pod_out_of_our_hands() {
        let is_ours = |value: Value| serde_json::from_value::<PodView>(value).unwrap().facts.is_ours;
        assert!(is_ours(json!({"metadata": {}, "spec": {}})));
        assert!(!is_ours(json!({"spec": {"schedulingGates": [{"name": "g"}]}})));
        assert!(!is_ours(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    }

    #[test]
    fn nodes_say_what_they_have() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"a": "b"}},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110", "gpu": "1"}},
        });
        let NodeView { offer, .. } = serde_json::from_value(node).unwrap();
        assert_eq!(
            (offer.allocatable.cpu_millis, offer.allocatable.memory_bytes, offer.pods_max),
            (2000, 1 << 30, 110)
        );
        assert_eq!(offer.allocatable.others, [("gpu".to_owned(), 1)].into());
        assert!(offer.is_unschedulable && offer.taints[0].repels());
    }
}
