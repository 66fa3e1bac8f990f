//! What a decision reads of a pod, and nothing else.
//!
//! A full `Pod` takes some 30 kB in memory; a watch event decoded straight into a [`PodView`] takes a few hundred bytes
//! while it is looked at, and what [`super::Tally`] keeps of it fits into less than 200. Unknown fields are skipped and
//! missing ones stand for nothing, so that no stored pod, however odd, is a reason to stop (INV-32).

use std::collections::BTreeMap;

use batch_types::constants::{annotation, condition, finalizer, value};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Deserializer};

use super::Uid;

/// Marks a pod that we are about to remove because there are too many, so that a crash in the middle neither counts it
/// as failed nor leaves it running unnoticed (INV-23). Gone again with the tracking finalizer.
pub const SURPLUS_ANNOTATION: &str = "tally.dev/surplus";

/// A pod as the Job controller sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct PodView {
    pub namespace: String,
    pub name: String,
    pub generate_name: String,
    pub uid: Uid,
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
    pub controller: Option<Controller>,
    /// Whether it has the tracking finalizer.
    pub finalizer: bool,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Whether it is marked as [surplus](SURPLUS_ANNOTATION).
    pub surplus: bool,
    pub created: Option<Timestamp>,
    /// The completion index, if the pod has a valid one (JC-1401).
    pub index: Option<u32>,
    pub failure_counts: FailureCounts,
    /// Whether it has been assigned to a node.
    pub assigned: bool,
    pub phase: Phase,
    /// Whether condition `Ready` is True.
    pub ready: bool,
    /// When condition `Ready` last changed.
    pub ready_since: Option<Timestamp>,
    pub restarts: Restarts,
    /// JC-1106: when its containers ended, or the best guess at that.
    pub finished: Option<Timestamp>,
    /// Containers that have ended with a non-zero exit code, init containers last (JC-1603).
    pub exit_codes: Vec<ExitCode>,
    /// Type and status of every condition.
    pub conditions: Vec<(String, String)>,
}

impl PodView {
    /// The view of a typed pod, for callers that have one anyway.
    pub fn from_pod(pod: &Pod) -> Result<Self, serde_json::Error> {
        serde_json::from_value(serde_json::to_value(pod)?)
    }
}

/// The owner reference with `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: Uid,
}

impl Controller {
    /// Whether the reference names a Job of the batch API, whoever that is (JC-304).
    pub fn is_job(&self) -> bool {
        self.kind == "Job" && self.api_version == "batch/v1"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Also any phase that this program does not know.
    #[default]
    Pending,
    Running,
    Unknown,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Earlier failures of the pod's index, as its annotations say (JC-1501).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailureCounts {
    pub counted: u32,
    pub ignored: u32,
}

impl FailureCounts {
    pub fn total(self) -> u64 {
        u64::from(self.counted) + u64::from(self.ignored)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restarts {
    /// Of all containers, init containers included (JC-903).
    pub sum: u64,
    /// The highest count of a regular container (JC-1013).
    pub container_max: i32,
    /// The highest count of a restartable init container (JC-1013).
    pub sidecar_max: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitCode {
    pub container: String,
    pub code: i32,
}

impl From<wire::Pod> for PodView {
    fn from(pod: wire::Pod) -> Self {
        let wire::Pod { metadata, spec, status } = pod;
        let annotated = |key: &str| metadata.annotations.get(key).map(String::as_str);
        let ready = status.conditions.iter().find(|item| item.r#type == "Ready");
        Self {
            index: annotated(annotation::COMPLETION_INDEX).and_then(parse_index),
            failure_counts: FailureCounts {
                counted: annotated(annotation::INDEX_FAILURE_COUNT).map_or(0, parse_count),
                ignored: annotated(annotation::INDEX_IGNORED_FAILURE_COUNT).map_or(0, parse_count),
            },
            surplus: annotated(SURPLUS_ANNOTATION).is_some(),
            assigned: !spec.node_name.is_empty(),
            phase: phase(&status.phase),
            ready: ready.is_some_and(|item| item.status == condition::TRUE),
            ready_since: ready.and_then(|item| item.last_transition_time),
            restarts: restarts(&spec, &status),
            finished: finish_time(&metadata, &spec, &status),
            exit_codes: exit_codes(&status),
            conditions: status.conditions.into_iter().map(|item| (item.r#type, item.status)).collect(),
            finalizer: metadata.finalizers.iter().any(|name| name == finalizer::JOB_TRACKING),
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp,
            controller: metadata.owner_references.into_iter().find(|owner| owner.controller).map(|owner| Controller {
                api_version: owner.api_version,
                kind: owner.kind,
                name: owner.name,
                uid: Uid::new(&owner.uid),
            }),
            labels: metadata.labels,
            namespace: metadata.namespace,
            uid: Uid::new(&metadata.uid),
            name: metadata.name,
            generate_name: metadata.generate_name,
            resource_version: metadata.resource_version,
        }
    }
}

fn phase(text: &str) -> Phase {
    match text {
        "Running" => Phase::Running,
        "Unknown" => Phase::Unknown,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        _ => Phase::Pending,
    }
}

/// JC-1401. Indexes are Go `int`s that are never negative; more than 2³¹ completions do not exist.
fn parse_index(text: &str) -> Option<u32> {
    text.parse::<i32>().ok().and_then(|index| u32::try_from(index).ok())
}

/// JC-1501: anything that is not a count stands for zero.
fn parse_count(text: &str) -> u32 {
    parse_index(text).unwrap_or(0)
}

fn is_sidecar(spec: &wire::Spec, name: &str) -> bool {
    spec.init_containers.iter().any(|item| item.name == name && item.restart_policy == value::RESTART_ALWAYS)
}

fn restarts(spec: &wire::Spec, status: &wire::Status) -> Restarts {
    let sidecars = status.init_container_statuses.iter().filter(|item| is_sidecar(spec, &item.name));
    let all = status.container_statuses.iter().chain(&status.init_container_statuses);
    Restarts {
        sum: all.map(|item| u64::from(item.restart_count.max(0).unsigned_abs())).sum(),
        container_max: status.container_statuses.iter().map(|item| item.restart_count).max().unwrap_or(0).max(0),
        sidecar_max: sidecars.map(|item| item.restart_count).max().unwrap_or(0).max(0),
    }
}

fn exit_codes(status: &wire::Status) -> Vec<ExitCode> {
    let all = status.container_statuses.iter().chain(&status.init_container_statuses);
    all.filter_map(|item| {
        let code = item.state.terminated.as_ref()?.exit_code;
        (code != 0).then(|| ExitCode { container: item.name.clone(), code })
    })
    .collect()
}

/// JC-1106, as upstream's `getFinishedTime` (pkg/controller/job/backoff_utils.go) has it.
fn finish_time(metadata: &wire::Metadata, spec: &wire::Spec, status: &wire::Status) -> Option<Timestamp> {
    let containers = latest_finish(None, status.container_statuses.iter());
    let sidecars = status.init_container_statuses.iter().filter(|item| is_sidecar(spec, &item.name));
    latest_finish(containers, sidecars)
        .or_else(|| {
            let unready = |item: &&wire::Condition| item.r#type == "Ready" && item.status == condition::FALSE;
            status.conditions.iter().find(unready)?.last_transition_time
        })
        .or_else(|| {
            let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds.unwrap_or(0));
            metadata.deletion_timestamp.map(|at| at.checked_sub(grace).unwrap_or(at))
        })
        .or(metadata.creation_timestamp)
}

/// The latest of `known` and the containers' ends; nothing if one of them has not ended or does not say when.
fn latest_finish<'a>(
    known: Option<Timestamp>,
    containers: impl Iterator<Item = &'a wire::ContainerStatus>,
) -> Option<Timestamp> {
    let mut latest = known;
    for container in containers {
        latest = latest.max(Some(container.state.terminated.as_ref()?.finished_at?));
    }
    latest
}

/// The fields as they travel. `null` means absent everywhere, as for Go's decoder.
mod wire {
    use super::*;

    #[derive(Deserialize)]
    pub(super) struct Pod {
        #[serde(default, deserialize_with = "or_default")]
        pub(super) metadata: Metadata,
        #[serde(default, deserialize_with = "or_default")]
        pub(super) spec: Spec,
        #[serde(default, deserialize_with = "or_default")]
        pub(super) status: Status,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Metadata {
        #[serde(deserialize_with = "or_default")]
        pub(super) namespace: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) name: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) generate_name: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) uid: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) resource_version: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) labels: BTreeMap<String, String>,
        #[serde(deserialize_with = "or_default")]
        pub(super) annotations: BTreeMap<String, String>,
        #[serde(deserialize_with = "or_default")]
        pub(super) finalizers: Vec<String>,
        #[serde(deserialize_with = "or_default")]
        pub(super) owner_references: Vec<Owner>,
        #[serde(deserialize_with = "time")]
        pub(super) creation_timestamp: Option<Timestamp>,
        #[serde(deserialize_with = "time")]
        pub(super) deletion_timestamp: Option<Timestamp>,
        pub(super) deletion_grace_period_seconds: Option<i64>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Owner {
        #[serde(default)]
        pub(super) api_version: String,
        #[serde(default)]
        pub(super) kind: String,
        #[serde(default)]
        pub(super) name: String,
        #[serde(default)]
        pub(super) uid: String,
        #[serde(default, deserialize_with = "or_default")]
        pub(super) controller: bool,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Spec {
        #[serde(deserialize_with = "or_default")]
        pub(super) node_name: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) init_containers: Vec<InitContainer>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct InitContainer {
        #[serde(default)]
        pub(super) name: String,
        #[serde(default, deserialize_with = "or_default")]
        pub(super) restart_policy: String,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Status {
        #[serde(deserialize_with = "or_default")]
        pub(super) phase: String,
        #[serde(deserialize_with = "or_default")]
        pub(super) conditions: Vec<Condition>,
        #[serde(deserialize_with = "or_default")]
        pub(super) container_statuses: Vec<ContainerStatus>,
        #[serde(deserialize_with = "or_default")]
        pub(super) init_container_statuses: Vec<ContainerStatus>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Condition {
        #[serde(default)]
        pub(super) r#type: String,
        #[serde(default)]
        pub(super) status: String,
        #[serde(default, deserialize_with = "time")]
        pub(super) last_transition_time: Option<Timestamp>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct ContainerStatus {
        #[serde(default)]
        pub(super) name: String,
        #[serde(default)]
        pub(super) restart_count: i32,
        #[serde(default, deserialize_with = "or_default")]
        pub(super) state: State,
    }

    #[derive(Default, Deserialize)]
    pub(super) struct State {
        pub(super) terminated: Option<Terminated>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Terminated {
        #[serde(default)]
        pub(super) exit_code: i32,
        #[serde(default, deserialize_with = "time")]
        pub(super) finished_at: Option<Timestamp>,
    }

    fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }

    /// Go's zero time stands for "not set", and so does a text that is no time.
    fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        Ok(text.filter(|text| !text.starts_with("0001-01-01T")).and_then(|text| text.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(pod: Value) -> PodView {
        serde_json::from_value(pod).unwrap()
    }

    fn at(secs: i64) -> String {
        Timestamp::from_second(secs).unwrap().to_string()
    }

    fn finished_secs(pod: Value) -> Option<i64> {
        view(pod).finished.map(Timestamp::as_second)
    }

    fn ended(name: &str, secs: i64) -> Value {
        json!({"name": name, "state": {"terminated": {"exitCode": 1, "finishedAt": at(secs)}}})
    }

    #[test]
    fn everything_may_be_missing_or_null() {
        let empty = view(json!({}));
        assert_eq!((empty.phase, empty.finalizer, empty.finished), (Phase::Pending, false, None));
        let nulls = view(json!({
            "metadata": {"labels": null, "annotations": null, "finalizers": null, "ownerReferences": null,
                         "creationTimestamp": null, "uid": null},
            "spec": null,
            "status": {"phase": null, "conditions": null, "containerStatuses": [{"name": "a", "state": null}]},
        }));
        assert_eq!(nulls, empty);
    }

    #[test]
    fn identity_and_ownership() {
        let pod = view(json!({"metadata": {
            "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7",
            "finalizers": ["x/y", "batch.kubernetes.io/job-tracking"],
            "deletionTimestamp": at(9),
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "plain", "uid": "j0"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true},
            ],
        }}));
        assert!(pod.finalizer && pod.deleting);
        assert_eq!(pod.controller.as_ref().map(|owner| owner.name.as_str()), Some("a"));
        assert!(pod.controller.is_some_and(|owner| owner.is_job()));
    }

    #[test]
    fn indexes_and_counts_are_whole_numbers_or_nothing() {
        let index = |text: &str| {
            view(json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": text}}})).index
        };
        assert_eq!([index("0"), index("17")], [Some(0), Some(17)]);
        assert_eq!([index("-2"), index("x"), index(""), index("2147483648")], [None; 4]);
        let count = |text: &str| {
            let annotations = json!({"batch.kubernetes.io/job-index-failure-count": text});
            view(json!({"metadata": {"annotations": annotations}})).failure_counts.counted
        };
        // V-2, last line.
        assert_eq!([count("xyz"), count("-1"), count("2147483648"), count("2147483647")], [0, 0, 0, 2147483647]);
    }

    /// V-9.
    #[test]
    fn finish_time_prefers_containers_then_readiness_then_deletion_then_creation() {
        let both = json!({"status": {"containerStatuses": [ended("a", 5), ended("b", 9)]}});
        assert_eq!(finished_secs(both), Some(9));
        let running = json!({"name": "b", "state": {"running": {}}});
        let one_runs = json!({"metadata": {"deletionTimestamp": at(40)},
                              "status": {"containerStatuses": [ended("a", 5), running]}});
        assert_eq!(finished_secs(one_runs), Some(40));
        let with_grace = json!({"metadata": {"deletionTimestamp": at(40), "deletionGracePeriodSeconds": 30}});
        assert_eq!(finished_secs(with_grace), Some(10));
        let no_time = json!({"name": "a", "state": {"terminated": {"exitCode": 1}}});
        let unready = |status: &str| {
            json!({"metadata": {"deletionTimestamp": at(40)}, "status": {
                "containerStatuses": [no_time],
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": at(7)}]}})
        };
        assert_eq!(finished_secs(unready("False")), Some(7));
        assert_eq!(finished_secs(unready("True")), Some(40));
        assert_eq!(finished_secs(json!({"metadata": {"creationTimestamp": at(3)}})), Some(3));
        let sidecar = json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]},
                             "status": {"containerStatuses": [ended("a", 5)],
                                        "initContainerStatuses": [ended("i", 99), ended("s", 8)]}});
        assert_eq!(finished_secs(sidecar), Some(8));
        let zero = json!({"metadata": {"creationTimestamp": at(3)}, "status": {"containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 1, "finishedAt": "0001-01-01T00:00:00Z"}}}]}});
        assert_eq!(finished_secs(zero), Some(3));
    }

    #[test]
    fn restarts_are_summed_over_all_and_compared_by_kind() {
        let counted = |name: &str, count: i32| json!({"name": name, "restartCount": count});
        let pod = view(json!({
            "spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]},
            "status": {"containerStatuses": [counted("a", 2), counted("b", 5)],
                       "initContainerStatuses": [counted("s", 1), counted("i", 7)]},
        }));
        assert_eq!(pod.restarts, Restarts { sum: 15, container_max: 5, sidecar_max: 1 });
    }

    #[test]
    fn exit_codes_leave_out_zero_and_put_init_containers_last() {
        let code = |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let pod = view(json!({"status": {
            "initContainerStatuses": [code("i", 5)],
            "containerStatuses": [code("a", 0), code("b", -3), {"name": "c", "state": {"waiting": {}}}],
        }}));
        let codes: Vec<_> = pod.exit_codes.iter().map(|item| (item.container.as_str(), item.code)).collect();
        assert_eq!(codes, [("b", -3), ("i", 5)]);
    }
}
