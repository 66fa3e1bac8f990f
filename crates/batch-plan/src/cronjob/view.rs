//! What a decision reads of CronJobs and Jobs, and nothing else (design D4).
//!
//! Unknown fields are skipped and missing ones stand for nothing, so that no stored object, however odd, is a reason to
//! stop (INV-32).

use batch_types::constants::{condition, value};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::Uid;
use teeth::{Mutation, is};

/// A CronJob as the controller sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct CronJobView {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
    pub resource_version: Box<str>,
    pub created: Timestamp,
    /// It has a deletionTimestamp.
    pub terminating: bool,
    pub spec: Spec,
    pub status: Status,
    /// The whole object but its status, as compact JSON: a tenth of what it takes as a tree, and read only when a Job is
    /// started or the status written.
    pub(super) document: Box<str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub schedule: Box<str>,
    pub time_zone: Option<Box<str>>,
    pub starting_deadline_seconds: Option<i64>,
    pub concurrency_policy: ConcurrencyPolicy,
    pub suspend: bool,
    pub successful_jobs_history_limit: Option<i32>,
    pub failed_jobs_history_limit: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConcurrencyPolicy {
    /// Also any policy that this program does not know.
    Allow,
    Forbid,
    Replace,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(default, deserialize_with = "wire::null_is_empty")]
    pub active: Vec<ActiveJob>,
    pub last_schedule_time: Option<Timestamp>,
    pub last_successful_time: Option<Timestamp>,
}

impl Status {
    pub fn lists(&self, uid: &Uid) -> bool {
        self.active.iter().any(|entry| entry.uid == *uid)
    }
}

/// An entry of `status.active`: an ObjectReference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActiveJob {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub resource_version: Box<str>,
    pub uid: Uid,
}

impl Default for ActiveJob {
    fn default() -> Self {
        Self {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            name: Box::default(),
            namespace: Box::default(),
            resource_version: Box::default(),
            uid: Uid::new(""),
        }
    }
}

/// A Job as the CronJob controller sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "wire::Job")]
pub struct JobView {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
    pub resource_version: Box<str>,
    /// The CronJob that controls it.
    ///
    /// Upstream goes by the owner's name here and takes in Jobs of a deleted namesake (CJ-11, CJ-73); the uid is the
    /// identity (INV-31).
    pub owner: Option<Uid>,
    pub created: Option<Timestamp>,
    /// It has a deletionTimestamp.
    pub terminating: bool,
    /// `None` while it is not finished.
    pub ending: Option<Ending>,
    pub start_time: Option<Timestamp>,
    pub completion_time: Option<Timestamp>,
    /// The time it was started for, as its annotation says (CJ-52).
    pub scheduled: Option<Timestamp>,
}

impl JobView {
    /// What `status.active` says of it.
    pub fn reference(&self) -> ActiveJob {
        ActiveJob {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            resource_version: self.resource_version.clone(),
            uid: if is(Mutation::F16) { Uid::new("") } else { self.uid.clone() },
            ..ActiveJob::default()
        }
    }
}

/// The finishing condition: the first of `Complete` and `Failed` that is True.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    Failed,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => condition::COMPLETE,
            Self::Failed => condition::FAILED,
        }
    }
}

impl TryFrom<Value> for CronJobView {
    type Error = serde_json::Error;

    fn try_from(mut object: Value) -> Result<Self, serde_json::Error> {
        let wire::CronJob { metadata, spec, status } = Deserialize::deserialize(&object)?;
        if let Some(fields) = object.as_object_mut() {
            fields.shift_remove("status");
        }
        // Half of an object's size, and of no use to anybody but the server, who remembers it.
        if let Some(fields) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            fields.shift_remove("managedFields");
        }
        Ok(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            created: metadata.creation_timestamp.unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
            spec: spec.into(),
            status: status.unwrap_or_default(),
            document: object.to_string().into(),
        })
    }
}

impl From<wire::CronJobSpec> for Spec {
    fn from(spec: wire::CronJobSpec) -> Self {
        Self {
            schedule: spec.schedule,
            time_zone: spec.time_zone,
            starting_deadline_seconds: spec.starting_deadline_seconds,
            concurrency_policy: match spec.concurrency_policy.as_deref() {
                Some(value::CONCURRENCY_FORBID) => ConcurrencyPolicy::Forbid,
                Some(value::CONCURRENCY_REPLACE) => ConcurrencyPolicy::Replace,
                _ => ConcurrencyPolicy::Allow,
            },
            suspend: spec.suspend.unwrap_or(false),
            successful_jobs_history_limit: spec.successful_jobs_history_limit,
            failed_jobs_history_limit: spec.failed_jobs_history_limit,
        }
    }
}

impl From<wire::Job> for JobView {
    fn from(wire: wire::Job) -> Self {
        let wire::Job { metadata, status } = wire;
        let status = status.unwrap_or_default();
        let owners = metadata.owner_references.unwrap_or_default();
        let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
        let annotations = metadata.annotations.unwrap_or_default();
        Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            owner: controller.filter(|owner| &*owner.kind == "CronJob").map(|owner| owner.uid),
            created: metadata.creation_timestamp,
            terminating: metadata.deletion_timestamp.is_some(),
            ending: status.conditions.unwrap_or_default().iter().find_map(ending),
            start_time: status.start_time,
            completion_time: status.completion_time,
            scheduled: annotations.scheduled.and_then(|text| text.parse().ok()),
        }
    }
}

fn ending(item: &wire::Condition) -> Option<Ending> {
    match (&*item.r#type, &*item.status) {
        (condition::COMPLETE, condition::TRUE) => Some(Ending::Complete),
        (condition::FAILED, condition::TRUE) => Some(Ending::Failed),
        _ => None,
    }
}

/// The objects as JSON has them.
mod wire {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, de::IgnoredAny};

    use crate::job::Uid;

    pub(super) fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Option::deserialize(deserializer).map(Option::unwrap_or_default)
    }

    #[derive(Deserialize)]
    pub(super) struct CronJob {
        pub(super) metadata: Metadata,
        pub(super) spec: CronJobSpec,
        pub(super) status: Option<super::Status>,
    }

    #[derive(Deserialize)]
    pub(super) struct Job {
        pub(super) metadata: Metadata,
        pub(super) status: Option<JobStatus>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Metadata {
        #[serde(default)]
        pub(super) namespace: Box<str>,
        pub(super) name: Box<str>,
        pub(super) uid: Uid,
        pub(super) resource_version: Box<str>,
        pub(super) creation_timestamp: Option<Timestamp>,
        pub(super) deletion_timestamp: Option<IgnoredAny>,
        pub(super) owner_references: Option<Vec<OwnerReference>>,
        pub(super) annotations: Option<Annotations>,
    }

    #[derive(Deserialize)]
    pub(super) struct OwnerReference {
        pub(super) kind: Box<str>,
        pub(super) uid: Uid,
        pub(super) controller: Option<bool>,
    }

    #[derive(Deserialize, Default)]
    pub(super) struct Annotations {
        #[serde(rename = "batch.kubernetes.io/cronjob-scheduled-timestamp")]
        pub(super) scheduled: Option<Box<str>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct CronJobSpec {
        #[serde(default)]
        pub(super) schedule: Box<str>,
        pub(super) time_zone: Option<Box<str>>,
        pub(super) starting_deadline_seconds: Option<i64>,
        pub(super) concurrency_policy: Option<Box<str>>,
        pub(super) suspend: Option<bool>,
        pub(super) successful_jobs_history_limit: Option<i32>,
        pub(super) failed_jobs_history_limit: Option<i32>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct JobStatus {
        pub(super) conditions: Option<Vec<Condition>>,
        pub(super) start_time: Option<Timestamp>,
        pub(super) completion_time: Option<Timestamp>,
    }

    #[derive(Deserialize)]
    pub(super) struct Condition {
        pub(super) r#type: Box<str>,
        pub(super) status: Box<str>,
    }
}

#[cfg(test)]
mod tests {
    use batch_types::constants::annotation;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_least_that_can_be_stored_is_understood() {
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": "1"});
        let view: CronJobView = serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap();
        assert_eq!(view.spec.concurrency_policy, ConcurrencyPolicy::Allow);
        let nulls = json!({"active": null, "lastScheduleTime": null});
        let view: CronJobView =
            serde_json::from_value(json!({"metadata": metadata, "spec": {"suspend": null}, "status": nulls})).unwrap();
        assert_eq!(view.status, Status::default());
        let view: JobView = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        assert_eq!((view.owner, view.ending, view.scheduled), (None, None, None));
    }

    #[test]
    fn only_a_controlling_cronjob_is_an_owner() {
        let owner = |kind: &str, controller: Option<bool>| {
            let owners =
                json!([{"apiVersion": "batch/v1", "kind": kind, "name": "c", "uid": "o", "controller": controller}]);
            let metadata = json!({"name": "c", "uid": "u", "resourceVersion": "1", "ownerReferences": owners});
            serde_json::from_value::<JobView>(json!({"metadata": metadata})).unwrap().owner
        };
        assert_eq!(owner("CronJob", Some(true)), Some(Uid::new("o")));
        for (kind, controller) in [("CronJob", Some(false)), ("CronJob", None), ("Workflow", Some(true))] {
            assert_eq!(owner(kind, controller), None, "{kind} {controller:?}");
        }
    }

    #[test]
    fn the_first_finishing_condition_counts() {
        let ending = |conditions: &[(&str, &str)]| {
            let conditions: Vec<_> =
                conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
            let annotations = json!({annotation::CRONJOB_SCHEDULED_TIMESTAMP: "2016-05-19T12:00:00+02:00", "a": "b"});
            let metadata = json!({"name": "j", "uid": "u", "resourceVersion": "1", "annotations": annotations});
            let job = json!({"metadata": metadata, "status": {"conditions": conditions}});
            let view: JobView = serde_json::from_value(job).unwrap();
            assert_eq!(view.scheduled, Some("2016-05-19T10:00:00Z".parse().unwrap()));
            view.ending
        };
        assert_eq!(ending(&[("SuccessCriteriaMet", "True"), ("Complete", "True")]), Some(Ending::Complete));
        assert_eq!(ending(&[("Complete", "False"), ("Failed", "True")]), Some(Ending::Failed));
        assert_eq!(ending(&[("FailureTarget", "True"), ("Failed", "Unknown")]), None);
    }
}
