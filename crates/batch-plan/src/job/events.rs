//! What the controller tells people about a Job (JC section 21).
//!
//! Interim conditions, adoption, release and skipped Jobs are told to nobody (JC-2102).

use std::borrow::Cow;

/// An event on the Job, from component `job-controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub reason: Cow<'static, str>,
    pub message: Cow<'static, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Normal,
    Warning,
}

impl EventKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The component that events come from.
pub const COMPONENT: &str = "job-controller";

impl Event {
    fn normal(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: EventKind::Normal, reason: reason.into(), message: message.into() }
    }

    fn warning(reason: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: EventKind::Warning, reason: reason.into(), message: message.into() }
    }

    pub fn pod_created(name: &str) -> Self {
        Self::normal("SuccessfulCreate", format!("Created pod: {name}"))
    }

    pub fn create_failed(error: &str) -> Self {
        Self::warning("FailedCreate", format!("Error creating: {error}"))
    }

    pub fn pod_deleted(name: &str) -> Self {
        Self::normal("SuccessfulDelete", format!("Deleted pod: {name}"))
    }

    pub fn delete_failed(error: &str) -> Self {
        Self::warning("FailedDelete", format!("Error deleting: {error}"))
    }

    pub(crate) fn suspended() -> Self {
        Self::normal("Suspended", "Job suspended")
    }

    pub(crate) fn resumed() -> Self {
        Self::normal("Resumed", "Job resumed")
    }

    pub(crate) fn completed() -> Self {
        Self::normal("Completed", "Job completed")
    }

    pub(crate) fn too_many_succeeded() -> Self {
        Self::warning("TooManySucceededPods", "Too many succeeded pods running after completion count reached")
    }

    pub(crate) fn failed(reason: &str, message: &str) -> Self {
        Self::warning(reason.to_owned(), message.to_owned())
    }

    pub(crate) fn unknown_completion_mode() -> Self {
        Self::warning("UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
    }
}
