//! What is decoded of Jobs and pods: the little that their time to live depends on (design D4).

use batch_plan::ttl::{Finish, Outcome, Seconds, Subject};
use batch_types::constants::condition;
use jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};

use crate::runtime::{Mirrored, Resource, Source};

/// An object that may have to go, whatever its kind.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) resource_version: Box<str>,
    pub(super) subject: Subject,
}

/// A kind of object that can be finished.
pub(super) trait Finishable: Mirrored + Sync {
    const KIND: &'static str;
    const API_VERSION: &'static str;
    const RESOURCE: Resource;
    /// The label `name` of the queue's metrics.
    const QUEUE: &'static str;
    /// What becomes of dependents (TTL-7).
    const PROPAGATION: &'static str;

    /// Which objects to look at.
    fn source() -> Source;
    fn candidate(&self) -> &Candidate;
}

#[derive(Debug, Deserialize)]
#[serde(from = "RawJob")]
pub(super) struct JobView(Candidate);

#[derive(Debug, Deserialize)]
#[serde(from = "RawPod")]
pub(super) struct PodView(Candidate);

impl Finishable for JobView {
    const KIND: &'static str = "Job";
    const API_VERSION: &'static str = "batch/v1";
    const RESOURCE: Resource = Resource::JOBS;
    const QUEUE: &'static str = "ttl_jobs_to_delete";
    const PROPAGATION: &'static str = "Foreground";

    fn source() -> Source {
        Source::all(Resource::JOBS)
    }

    fn candidate(&self) -> &Candidate {
        &self.0
    }
}

impl Finishable for PodView {
    const KIND: &'static str = "Pod";
    const API_VERSION: &'static str = "v1";
    const RESOURCE: Resource = Resource::PODS;
    const QUEUE: &'static str = "ttl_pods_to_delete";
    const PROPAGATION: &'static str = "Background";

    /// The server leaves out what is not finished, and the pods of Jobs, of which there may be very many.
    fn source() -> Source {
        Source {
            label_selector: "!batch.kubernetes.io/job-name".to_owned(),
            field_selector: "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown".to_owned(),
            ..Source::all(Resource::PODS)
        }
    }

    fn candidate(&self) -> &Candidate {
        &self.0
    }
}

macro_rules! mirrored {
    ($($view:ty),*) => {$(
        impl Mirrored for $view {
            fn uid(&self) -> &str {
                &self.0.uid
            }

            fn resource_version(&self) -> &str {
                &self.0.resource_version
            }
        }
    )*};
}

mirrored!(JobView, PodView);

#[derive(Deserialize)]
struct RawJob {
    metadata: RawMetadata,
    spec: Option<RawJobSpec>,
    status: Option<RawStatus>,
}

#[derive(Deserialize)]
struct RawPod {
    metadata: RawMetadata,
    status: Option<RawPodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata {
    #[serde(default)]
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    deletion_timestamp: Option<IgnoredAny>,
    annotations: Option<RawAnnotations>,
    owner_references: Option<Vec<RawOwner>>,
}

/// Unknown annotations are skipped without being copied. The names are those of `batch_plan::ttl`.
#[derive(Deserialize, Default)]
struct RawAnnotations {
    #[serde(rename = "tally.dev/ttl-seconds-after-success")]
    after_success: Option<Box<str>>,
    #[serde(rename = "tally.dev/ttl-seconds-after-failure")]
    after_failure: Option<Box<str>>,
    #[serde(rename = "tally.dev/ttl-seconds-after-finished")]
    after_finished: Option<Box<str>>,
}

#[derive(Deserialize)]
struct RawOwner {
    controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawJobSpec {
    ttl_seconds_after_finished: Option<i64>,
}

#[derive(Deserialize, Default)]
struct RawStatus {
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawPodStatus {
    phase: Option<Box<str>>,
    conditions: Option<Vec<RawCondition>>,
    container_statuses: Option<Vec<RawContainer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition {
    r#type: Box<str>,
    status: Box<str>,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct RawContainer {
    state: Option<RawState>,
}

#[derive(Deserialize)]
struct RawState {
    terminated: Option<RawTerminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTerminated {
    finished_at: Option<Timestamp>,
}

impl From<RawJob> for JobView {
    fn from(raw: RawJob) -> Self {
        let annotations = raw.metadata.annotations.as_ref();
        let annotated =
            |text: fn(&RawAnnotations) -> &Option<Box<str>>| annotations.and_then(|all| text(all).as_deref());
        let conditions = raw.status.and_then(|status| status.conditions).unwrap_or_default();
        let subject = Subject {
            terminating: raw.metadata.deletion_timestamp.is_some(),
            finish: conditions.iter().find_map(finish),
            after_finished: raw.spec.and_then(|spec| spec.ttl_seconds_after_finished).map(Seconds::Number),
            after_success: annotated(|all| &all.after_success).map(Seconds::parse),
            after_failure: annotated(|all| &all.after_failure).map(Seconds::parse),
        };
        Self(candidate(raw.metadata, subject))
    }
}

impl From<RawPod> for PodView {
    fn from(raw: RawPod) -> Self {
        let status = raw.status.unwrap_or_default();
        let owners = raw.metadata.owner_references.as_deref().unwrap_or_default();
        let controlled = owners.iter().any(|owner| owner.controller == Some(true));
        let outcome = match status.phase.as_deref() {
            Some("Succeeded") => Some(Outcome::Succeeded),
            Some("Failed") => Some(Outcome::Failed),
            _ => None,
        };
        let wished = raw.metadata.annotations.as_ref().and_then(|all| all.after_finished.as_deref());
        let subject = Subject {
            terminating: raw.metadata.deletion_timestamp.is_some(),
            finish: outcome.map(|outcome| Finish { outcome, at: pod_finish(&status) }),
            after_finished: wished.filter(|_| !controlled).map(Seconds::parse),
            ..Subject::default()
        };
        Self(candidate(raw.metadata, subject))
    }
}

fn candidate(metadata: RawMetadata, subject: Subject) -> Candidate {
    let RawMetadata { namespace, name, uid, resource_version, .. } = metadata;
    Candidate { namespace, name, uid, resource_version, subject }
}

/// What a condition says about the end of a Job, if it is the finishing one.
fn finish(item: &RawCondition) -> Option<Finish> {
    let outcome = match (&*item.r#type, &*item.status) {
        (condition::COMPLETE, condition::TRUE) => Outcome::Succeeded,
        (condition::FAILED, condition::TRUE) => Outcome::Failed,
        _ => return None,
    };
    Some(Finish { outcome, at: item.last_transition_time })
}

/// When a pod ended: with its last container. A pod that never had one ended, at the latest, when a condition last
/// changed.
fn pod_finish(status: &RawPodStatus) -> Option<Timestamp> {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let ended = containers.iter().filter_map(|one| one.state.as_ref()?.terminated.as_ref()?.finished_at).max();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    ended.or_else(|| conditions.iter().filter_map(|item| item.last_transition_time).max())
}

#[cfg(test)]
mod tests {
    use batch_plan::ttl::{AFTER_FAILURE, AFTER_FINISHED, AFTER_SUCCESS};
    use serde_json::{Value, json};

    use super::*;

    fn subject<V: Finishable>(object: Value) -> Subject {
        let mut object = object;
        for (field, value) in [("name", "a"), ("uid", "u"), ("resourceVersion", "1")] {
            object["metadata"][field] = json!(value);
        }
        serde_json::from_value::<V>(object).unwrap().candidate().subject.clone()
    }

    #[test]
    fn a_job_says_how_and_when_it_finished_and_what_it_wants() {
        assert_eq!(subject::<JobView>(json!({})), Subject::default());
        let job = json!({
            "metadata": {"annotations": {AFTER_SUCCESS: "1", AFTER_FAILURE: "2", AFTER_FINISHED: "3", "other": "4"}},
            "spec": {"ttlSecondsAfterFinished": 5, "parallelism": 2},
            "status": {"conditions": [
                {"type": "FailureTarget", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"},
                {"type": "Complete", "status": "False", "lastTransitionTime": "2024-01-01T00:00:01Z"},
                {"type": "Failed", "status": "True", "lastTransitionTime": "2024-01-01T00:00:02Z"},
            ]},
        });
        let expected = Subject {
            terminating: false,
            finish: Some(Finish { outcome: Outcome::Failed, at: "2024-01-01T00:00:02Z".parse().ok() }),
            after_finished: Some(Seconds::Number(5)),
            after_success: Some(Seconds::Number(1)),
            after_failure: Some(Seconds::Number(2)),
        };
        assert_eq!(subject::<JobView>(job), expected);
    }

    #[test]
    fn a_pod_ends_with_its_last_container() {
        let at = |text: &str| text.parse::<Timestamp>().ok();
        let ended =
            |second: u8| json!({"state": {"terminated": {"finishedAt": format!("2024-01-01T00:00:0{second}Z")}}});
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": "2024-01-01T00:00:09Z"});
        let pod = |statuses: Value| {
            let status = json!({"phase": "Succeeded", "containerStatuses": statuses, "conditions": [condition]});
            subject::<PodView>(json!({"metadata": {"annotations": {AFTER_FINISHED: "7"}}, "status": status}))
        };
        let both = pod(json!([ended(3), ended(5), {"state": {"running": {}}}]));
        assert_eq!(both.finish.unwrap().at, at("2024-01-01T00:00:05Z"));
        assert_eq!(both.after_finished, Some(Seconds::Number(7)));
        assert_eq!(pod(json!(null)).finish.unwrap().at, at("2024-01-01T00:00:09Z"));
    }

    #[test]
    fn pods_that_somebody_controls_are_left_to_their_controller() {
        for (controller, wished) in [(json!(true), None), (json!(null), Some(Seconds::Number(7)))] {
            let metadata =
                json!({"annotations": {AFTER_FINISHED: "7"}, "ownerReferences": [{"controller": controller}]});
            let pod = json!({"metadata": metadata, "status": {"phase": "Failed"}});
            assert_eq!(subject::<PodView>(pod).after_finished, wished);
        }
    }
}
