//! What the commands read of a Job, and how they name one.

use batch_types::constants::{annotation, condition, value};
use batch_types::index_ranges::IndexSet;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;

/// A Job as a command looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobView {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Absent for a work queue, which ends when one pod has succeeded and the rest have ended.
    pub(crate) completions: Option<u32>,
    pub(crate) is_indexed: bool,
    pub(crate) is_suspended: bool,
    /// Made from a CronJob out of turn.
    pub(crate) is_manual: bool,
    pub(crate) succeeded: u32,
    /// Pods, not indexes.
    pub(crate) failed: u32,
    pub(crate) active: u32,
    pub(crate) terminating: u32,
    pub(crate) completed_indexes: IndexSet,
    pub(crate) failed_indexes: IndexSet,
    /// The controller has seen that the Job is suspended.
    pub(crate) suspension_seen: bool,
    pub(crate) outcome: Option<Outcome>,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    Failed { reason: String, message: String },
}

impl JobView {
    pub(crate) fn of(job: &Job) -> Self {
        let (spec, status) = (job.spec.clone().unwrap_or_default(), job.status.clone().unwrap_or_default());
        let completions = spec.completions.unwrap_or(i32::MAX);
        let indexes = |text: &Option<String>| IndexSet::parse(text.as_deref().unwrap_or_default(), completions);
        let count = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let is_true = |kind: &str| conditions.iter().find(|it| it.type_ == kind && it.status == condition::TRUE);
        let outcome = match (is_true(condition::COMPLETE), is_true(condition::FAILED)) {
            (Some(_), _) => Some(Outcome::Complete),
            (None, Some(failed)) => Some(Outcome::Failed {
                reason: failed.reason.clone().unwrap_or_default(),
                message: failed.message.clone().unwrap_or_default(),
            }),
            (None, None) => None,
        };
        Self {
            uid: job.metadata.uid.clone().unwrap_or_default(),
            namespace: job.metadata.namespace.clone().unwrap_or_default(),
            name: job.metadata.name.clone().unwrap_or_default(),
            completions: spec.completions.and_then(|number| u32::try_from(number).ok()),
            is_indexed: spec.completion_mode.as_deref() == Some(value::INDEXED),
            is_suspended: spec.suspend == Some(true),
            is_manual: job.annotations().contains_key(annotation::CRONJOB_INSTANTIATE),
            succeeded: count(status.succeeded),
            failed: count(status.failed),
            active: count(status.active),
            terminating: count(status.terminating),
            completed_indexes: indexes(&status.completed_indexes),
            failed_indexes: indexes(&status.failed_indexes),
            suspension_seen: is_true(condition::SUSPENDED).is_some(),
            outcome,
        }
    }

    /// Nothing of it runs, nor will before somebody resumes it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.outcome.is_some() || (self.suspension_seen && self.active == 0 && self.terminating == 0)
    }
}

impl Outcome {
    /// Why it failed, in one line.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Complete => "complete".to_owned(),
            Self::Failed { reason, message } if message.is_empty() => reason.clone(),
            Self::Failed { reason, message } => format!("{reason}: {message}"),
        }
    }
}

/// A Job on the command line: `job/NAME`, `jobs/NAME`, `job.batch/NAME` or just `NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobName(pub(crate) String);

impl std::str::FromStr for JobName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = match text.split_once('/') {
            None => text,
            Some(("job" | "jobs" | "job.batch" | "jobs.batch" | "job.v1.batch" | "jobs.v1.batch", name)) => name,
            Some((kind, _)) => return Err(format!("`{kind}` is not `job`; say `job/NAME`")),
        };
        match batch_types::names::dns_subdomain(name).first() {
            None => Ok(Self(name.to_owned())),
            Some(why) => Err(format!("`{name}` cannot be the name of a Job: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(status: Value) -> JobView {
        let job = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u"},
            "spec": {"completions": 10, "completionMode": "Indexed", "suspend": true,
                     "template": {"spec": {"containers": []}}},
            "status": status,
        });
        JobView::of(&serde_json::from_value(job).unwrap())
    }

    #[test]
    fn a_job_ends_with_a_condition_that_is_true() {
        assert_eq!(view(json!({})).outcome, None);
        let condition = |kind: &str, status: &str| {
            view(json!({"conditions": [{"type": kind, "status": status, "reason": "R", "message": "m"}]})).outcome
        };
        assert_eq!(condition("Complete", "True"), Some(Outcome::Complete));
        assert_eq!(condition("Complete", "False"), None);
        assert_eq!(condition("FailureTarget", "True"), None, "pods may still be ending");
        assert_eq!(condition("Failed", "True").map(|it| it.why()), Some("R: m".to_owned()));
    }

    #[test]
    fn a_suspended_job_rests_when_its_pods_are_gone() {
        let suspended = |active| {
            view(json!({"active": active, "conditions": [{"type": "Suspended", "status": "True"}]})).is_at_rest()
        };
        assert_eq!((suspended(0), suspended(1)), (true, false));
        assert!(!view(json!({})).is_at_rest(), "the controller has not seen it yet");
    }

    #[test]
    fn jobs_are_named_as_in_kubectl() {
        for text in ["pi", "job/pi", "jobs/pi", "job.batch/pi", "jobs.v1.batch/pi"] {
            assert_eq!(text.parse(), Ok(JobName("pi".to_owned())), "{text}");
        }
        for text in ["pod/pi", "", "job/", "job/a/b", "Pi"] {
            assert!(text.parse::<JobName>().is_err(), "{text}");
        }
    }
}
