//! What is decoded of pods and nodes: the little that pod garbage collection looks at (design D4).

use std::sync::Arc;

use batch_plan::podgc::{Node, Phase, Pod};
use jiff::Timestamp;
use serde::Deserialize;

use crate::runtime::{Mirrored, intern::Interner};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Debug, Deserialize)]
#[serde(from = "RawPod")]
pub(super) struct PodView {
    pub(super) pod: Pod,
    pub(super) uid: Box<str>,
    pub(super) resource_version: Box<str>,
    pub(super) generation: i64,
    /// It has the condition DisruptionTarget already.
    pub(super) disrupted: bool,
}

#[derive(Debug, Deserialize)]
#[serde(from = "RawNode")]
pub(super) struct NodeView {
    pub(super) name: Arc<str>,
    pub(super) node: Node,
    uid: Box<str>,
    resource_version: Box<str>,
}

impl PodView {
    /// Shares the texts that many pods have in common.
    pub(super) fn share(&mut self, interner: &mut Interner) {
        self.pod.namespace = interner.text(&self.pod.namespace);
        self.pod.node = interner.text(&self.pod.node);
    }
}

impl Mirrored for PodView {
    fn uid(&self) -> &str {
        &self.uid
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

#[derive(Deserialize)]
struct RawPod {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawPodSpec,
    #[serde(default)]
    status: RawPodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    name: Box<str>,
    #[serde(default)]
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    #[serde(default)]
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodSpec {
    node_name: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPodStatus {
    phase: Box<str>,
    reason: Box<str>,
    conditions: Vec<RawCondition>,
}

#[derive(Deserialize)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
}

#[derive(Deserialize)]
struct RawNode {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawNodeSpec,
    #[serde(default)]
    status: RawNodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeSpec {
    taints: Vec<RawTaint>,
}

#[derive(Deserialize)]
struct RawTaint {
    key: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeStatus {
    conditions: Vec<RawCondition>,
}

impl From<RawPod> for PodView {
    fn from(raw: RawPod) -> Self {
        let pod = Pod {
            namespace: raw.metadata.namespace.into(),
            name: raw.metadata.name,
            node: raw.spec.node_name.into(),
            phase: Phase::of(&raw.status.phase),
            evicted: &*raw.status.reason == "Evicted",
            terminating: raw.metadata.deletion_timestamp.is_some(),
            created: raw.metadata.creation_timestamp.unwrap_or_default(),
        };
        Self {
            pod,
            uid: raw.metadata.uid,
            resource_version: raw.metadata.resource_version,
            generation: raw.metadata.generation,
            disrupted: is_true(&raw.status.conditions, "DisruptionTarget"),
        }
    }
}

impl From<RawNode> for NodeView {
    fn from(raw: RawNode) -> Self {
        let node = Node {
            ready: is_true(&raw.status.conditions, "Ready"),
            out_of_service: raw.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE),
        };
        Self {
            name: raw.metadata.name.into(),
            node,
            uid: raw.metadata.uid,
            resource_version: raw.metadata.resource_version,
        }
    }
}

fn is_true(conditions: &[RawCondition], kind: &str) -> bool {
    conditions.iter().any(|condition| &*condition.kind == kind && &*condition.status == "True")
}
