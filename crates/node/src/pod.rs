//! What the node reads of a pod: a slim projection of the API object.
//!
//! A full `Pod` takes some 32 kB of memory; what is needed to run one takes about 1 kB. Rarely used parts keep the
//! API's own types, behind a pointer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, ContainerPort, ContainerStatus, DownwardAPIVolumeSource, EmptyDirVolumeSource,
    EnvFromSource, EnvVar, HostPathVolumeSource, Lifecycle, PodCondition, Probe, ProjectedVolumeSource,
    ResourceRequirements, SecretVolumeSource, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// A pod as the watch of the node decodes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

/// The metadata that a node reads. The rest stays unread; `managedFields` alone is often half of a pod.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    owner_references: Option<Vec<OwnerReference>>,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let read = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        generation: read.generation,
        labels: read.labels,
        annotations: read.annotations,
        deletion_timestamp: read.deletion_timestamp,
        deletion_grace_period_seconds: read.deletion_grace_period_seconds,
        owner_references: read.owner_references,
        ..ObjectMeta::default()
    })
}

impl kube::Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub restart_policy: RestartPolicy,
    pub termination_grace_period_seconds: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub volumes: Vec<Volume>,
    pub hostname: Option<String>,
    pub service_account_name: Option<String>,
    pub security_context: Option<Box<SecurityContext>>,
    pub readiness_gates: Vec<ReadinessGate>,
    /// Of the pod as a whole.
    pub resources: Option<Box<ResourceRequirements>>,
    pub overhead: Option<BTreeMap<String, Quantity>>,
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Box<Affinity>>,
}

impl PodSpec {
    /// A container by its position: init containers in order, then regular ones.
    pub fn container(&self, index: usize) -> &Container {
        self.init_containers.get(index).unwrap_or_else(|| &self.containers[index - self.init_containers.len()])
    }

    /// Why containers wait before they are started for the first time (PL-12).
    pub(crate) fn first_waiting_reason(&self) -> &'static str {
        if self.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" }
    }

    /// Grace in seconds when nothing shorter is asked for (PL-39).
    pub fn grace_seconds(&self) -> i64 {
        self.termination_grace_period_seconds.unwrap_or(30)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub image: Option<String>,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: Option<String>,
    pub ports: Vec<ContainerPort>,
    pub env: Vec<EnvVar>,
    pub env_from: Vec<EnvFromSource>,
    pub resources: Option<Box<ResourceRequirements>>,
    pub volume_mounts: Vec<VolumeMount>,
    pub startup_probe: Option<Box<Probe>>,
    pub liveness_probe: Option<Box<Probe>>,
    pub readiness_probe: Option<Box<Probe>>,
    pub lifecycle: Option<Box<Lifecycle>>,
    pub termination_message_path: Option<String>,
    pub termination_message_policy: Option<String>,
    pub security_context: Option<Box<SecurityContext>>,
    pub restart_policy: Option<RestartPolicy>,
    pub restart_policy_rules: Vec<RestartRule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// A container-level restart rule (PL-31).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RestartRule {
    pub action: String,
    pub exit_codes: Option<ExitCodes>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExitCodes {
    pub operator: String,
    pub values: Vec<i32>,
}

/// The parts of pod and container security contexts that a process can be given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecurityContext {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_non_root: Option<bool>,
    pub fs_group: Option<i64>,
    pub supplemental_groups: Vec<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReadinessGate {
    pub condition_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    pub empty_dir: Option<Box<EmptyDirVolumeSource>>,
    pub config_map: Option<Box<ConfigMapVolumeSource>>,
    pub secret: Option<Box<SecretVolumeSource>>,
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<Box<DownwardAPIVolumeSource>>,
    pub projected: Option<Box<ProjectedVolumeSource>>,
    pub host_path: Option<Box<HostPathVolumeSource>>,
    /// Kinds of volume that this node does not have.
    #[serde(flatten)]
    pub other: BTreeMap<String, IgnoredAny>,
}

/// What the API already says about the pod; read when the node meets the pod for the first time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: Phase,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub start_time: Option<Time>,
    pub conditions: Vec<PodCondition>,
    pub init_container_statuses: Vec<ContainerStatus>,
    pub container_statuses: Vec<ContainerStatus>,
}

impl PodStatus {
    /// Was some container running when this was written?
    pub fn says_running(&self) -> bool {
        let all = self.init_container_statuses.iter().chain(&self.container_statuses);
        all.filter_map(|status| status.state.as_ref()).any(|state| state.running.is_some())
    }
}

/// The phase of a pod (PL-5). `Unknown` is never written (PL-9); read, it counts as Pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Phase {
    #[default]
    #[serde(alias = "Unknown", alias = "")]
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_read_as_far_as_it_is_needed() {
        let metadata = json!({
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
            "labels": {"a": "b"}, "annotations": {"c": "d"},
            "deletionTimestamp": "2026-11-15T10:00:00Z", "deletionGracePeriodSeconds": 3,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v", "controller": true}],
            "creationTimestamp": "2026-11-15T09:00:00Z", "finalizers": ["x/y"],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
        });
        let read = serde_json::from_value::<Pod>(json!({"metadata": metadata})).unwrap().metadata;
        let mut whole: ObjectMeta = serde_json::from_value(metadata).unwrap();
        (whole.creation_timestamp, whole.finalizers, whole.managed_fields) = (None, None, None);
        assert_eq!(read, whole);
        assert_eq!(serde_json::from_value::<Pod>(json!({})).unwrap().metadata, ObjectMeta::default());
    }
}
