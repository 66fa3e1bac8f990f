//! Whether the Job ends, how and why (JC section 9).
//!
//! What happens then is elsewhere: active pods go in `plan`, conditions are written in `tracking`. Completion by count is
//! decided last, in `plan`, because it depends on what became of the pods in the same sync.

use std::time::Duration;

use batch_types::constants::{condition, reason, value};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};

use super::metrics::Ended;
use super::rules::natural;
use super::tally::Tally;
use super::totals::Totals;
use super::{Settings, conditions, success_policy};
use teeth::{Mutation, is};

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) ended: Ended,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) interim: Interim,
}

/// The condition that announces the end before it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interim {
    /// It is in the status already.
    Recorded,
    /// It has to be written before any pod is released (JC-1310).
    New,
    /// With both gates off there is none (JC-1904).
    Absent,
}

impl Decision {
    pub(crate) fn interim_type(&self) -> &'static str {
        match self.ended {
            Ended::Succeeded => condition::SUCCESS_CRITERIA_MET,
            Ended::Failed => condition::FAILURE_TARGET,
        }
    }

    pub(crate) fn terminal_type(&self) -> &'static str {
        match self.ended {
            Ended::Succeeded => condition::COMPLETE,
            Ended::Failed => condition::FAILED,
        }
    }

    /// A condition of the given type with this decision's words.
    pub(crate) fn condition(&self, kind: &str, now: Timestamp) -> JobCondition {
        conditions::fresh(kind, condition::TRUE, &self.reason, &self.message, now)
    }

    /// JC-901 #9.
    pub(crate) fn completions_reached(settings: &Settings) -> Self {
        let interim = delayed(settings);
        Self::new(Ended::Succeeded, reason::COMPLETIONS_REACHED, "Reached expected number of succeeded pods", interim)
    }

    fn new(ended: Ended, reason: &str, message: impl Into<String>, interim: Interim) -> Self {
        Self { ended, reason: reason.to_owned(), message: message.into(), interim }
    }

    /// An earlier verdict is never reversed, whoever wrote it.
    fn recorded(status: &JobStatus, ended: Ended, kind: &str) -> Option<Self> {
        let found = conditions::find(status, kind).filter(|found| found.status == condition::TRUE)?;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Some(Self { ended, reason: text(&found.reason), message: text(&found.message), interim: Interim::Recorded })
    }
}

/// Everything but completion by count, in the order of JC-901: the first hit wins.
pub(crate) fn decide(
    job: &Job,
    status: &JobStatus,
    tally: &Tally,
    totals: &Totals,
    now: Timestamp,
    settings: &Settings,
) -> Option<Decision> {
    let empty = JobSpec::default();
    let spec = job.spec.as_ref().unwrap_or(&empty);
    let failure = |reason, message| Decision::new(Ended::Failed, reason, message, delayed(settings));

    if let Some(met) = Decision::recorded(status, Ended::Succeeded, condition::SUCCESS_CRITERIA_MET) {
        return Some(met);
    }
    if let Some(target) = Decision::recorded(status, Ended::Failed, condition::FAILURE_TARGET) {
        return Some(target);
    }
    if let Some(verdict) = tally.verdict(job) {
        return Some(verdict.clone());
    }
    if let Some(message) = fail_job_message(job, tally) {
        return Some(Decision::new(Ended::Failed, reason::POD_FAILURE_POLICY, message, Interim::New));
    }
    let failed = match is(Mutation::D01) {
        true => u64::from(tally.failed_counted),
        false => totals.failed + u64::from(is(Mutation::D03)),
    };
    if failed > u64::from(backoff_limit(spec)) || restarts_exceeded(spec, tally) {
        return Some(failure(reason::BACKOFF_LIMIT_EXCEEDED, "Job has reached the specified backoff limit"));
    }
    if time_left(spec, status, now) == Some(Duration::ZERO) {
        return Some(failure(reason::DEADLINE_EXCEEDED, "Job was active longer than specified deadline"));
    }
    let indexes = totals.indexes.as_ref()?;
    let (succeeded, failed) = (indexes.succeeded.len(), indexes.failed.len());
    if spec.max_failed_indexes.is_some_and(|max| failed > natural(max) as usize) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(failure(reason::MAX_FAILED_INDEXES_EXCEEDED, message));
    }
    if failed > 0 && failed + succeeded >= tally.rules.index_bound as usize {
        return Some(failure(reason::FAILED_INDEXES, "Job has failed indexes"));
    }
    let policy = spec.success_policy.as_ref()?;
    let rule = success_policy::met(policy, &indexes.succeeded, spec.completions.unwrap_or(0))?;
    let message = format!("Matched rules at index {rule}");
    Some(Decision::new(Ended::Succeeded, reason::SUCCESS_POLICY, message, Interim::New))
}

/// What is left of `activeDeadlineSeconds`; nothing if there is no deadline or it does not run (JC-904).
pub(crate) fn time_left(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    if spec.suspend == Some(true) {
        return None;
    }
    let deadline = SignedDuration::from_secs(spec.active_deadline_seconds?);
    let active_for = now.duration_since(status.start_time.as_ref()?.0);
    let left = deadline.checked_sub(active_for).unwrap_or(SignedDuration::MAX);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn delayed(settings: &Settings) -> Interim {
    if settings.delays_terminal_condition() { Interim::New } else { Interim::Absent }
}

fn fail_job_message(job: &Job, tally: &Tally) -> Option<String> {
    let entry = &tally.pods[tally.fail_job.first()?];
    let namespace = job.metadata.namespace.as_deref().unwrap_or("");
    entry.matched.as_ref().map(|found| found.message(namespace, &entry.name))
}

/// The API fills it in; a stored Job that lacks it behaves as if it had (JA-D3).
fn backoff_limit(spec: &JobSpec) -> u32 {
    match (spec.backoff_limit, spec.backoff_limit_per_index) {
        (Some(limit), _) => natural(limit),
        (None, Some(_)) => i32::MAX.unsigned_abs(),
        (None, None) => 6,
    }
}

/// JC-903: restarts in place count as failures. Note `≥` here and `>` for pods.
fn restarts_exceeded(spec: &JobSpec, tally: &Tally) -> bool {
    let template = spec.template.spec.as_ref();
    if template.and_then(|pod| pod.restart_policy.as_deref()) != Some(value::RESTART_ON_FAILURE) {
        return false;
    }
    match u64::from(backoff_limit(spec)) {
        0 => tally.restarts > 0,
        limit => tally.restarts >= limit,
    }
}
