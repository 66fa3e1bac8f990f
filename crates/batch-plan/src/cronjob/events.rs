//! What the controller tells people about a CronJob (CJ section II.8).
//!
//! `MissSchedule` is missing: a time beyond the starting deadline is never due in the first place (CJ-23).

use batch_types::field::quoted;
use jiff::Timestamp;

use crate::job::EventKind;

use super::Ending;

/// The component that events come from.
pub const COMPONENT: &str = "cronjob-controller";

/// An event on the CronJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub reason: &'static str,
    pub message: String,
}

impl Event {
    fn normal(reason: &'static str, message: String) -> Self {
        Self { kind: EventKind::Normal, reason, message }
    }

    fn warning(reason: &'static str, message: String) -> Self {
        Self { kind: EventKind::Warning, reason, message }
    }

    pub fn created(name: &str) -> Self {
        Self::normal("SuccessfulCreate", format!("Created job {name}"))
    }

    pub fn create_failed(error: &str) -> Self {
        Self::warning("FailedCreate", format!("Error creating job: {error}"))
    }

    pub fn deleted(name: &str) -> Self {
        Self::normal("SuccessfulDelete", format!("Deleted job {name}"))
    }

    /// The words are upstream's.
    pub fn delete_failed(error: &str) -> Self {
        Self::warning("FailedDelete", format!("Deleted job: {error}"))
    }

    pub fn get_failed(error: &str) -> Self {
        Self::warning("FailedGet", format!("Get job: {error}"))
    }

    pub fn saw_completed(name: &str, ending: Ending) -> Self {
        Self::normal("SawCompletedJob", format!("Saw completed job: {name}, condition: {}", ending.as_str()))
    }

    pub fn unexpected(name: &str) -> Self {
        let message = format!("Saw a job that the controller did not create or forgot: {name}");
        Self::warning("UnexpectedJob", message)
    }

    pub fn missing(name: &str) -> Self {
        Self::normal("MissingJob", format!("Active job went missing: {name}"))
    }

    pub fn already_active() -> Self {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        Self::normal("JobAlreadyActive", message.to_owned())
    }

    pub fn too_many_missed() -> Self {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        Self::warning("TooManyMissedTimes", message.to_owned())
    }

    pub fn unknown_time_zone(zone: &str, error: &str) -> Self {
        Self::warning("UnknownTimeZone", format!("invalid timeZone: {}: {error}", quoted(zone)))
    }

    pub fn unsupported_schedule(schedule: &str) -> Self {
        let message = format!(
            "CRON_TZ or TZ used in schedule {} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            quoted(schedule)
        );
        Self::warning("UnsupportedSchedule", message)
    }

    pub fn unparseable_schedule(schedule: &str, error: &str) -> Self {
        Self::warning("UnparseableSchedule", format!("unparseable schedule: {} : {error}", quoted(schedule)))
    }

    /// What the handler of updates says, in a spelling of its own (CJ-4).
    pub fn unparseable_update(schedule: &str) -> Self {
        Self::warning("UnParseableCronJobSchedule", format!("unparseable schedule for cronjob: {schedule}"))
    }

    pub fn invalid_schedule(schedule: &str, error: &str) -> Self {
        Self::warning("InvalidSchedule", format!("invalid schedule: {schedule} : {error}"))
    }
}

/// `metav1.Time`: whole seconds in UTC.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
