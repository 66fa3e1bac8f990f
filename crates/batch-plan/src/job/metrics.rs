//! Increments of the controller's counters, as data (JC section 22).
//!
//! Names and labels are upstream's; the shell owns the registry, and measures what has a duration.

use super::failure_policy::PolicyAction;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionMode {
    Indexed,
    NonIndexed,
}

impl CompletionMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Indexed => "Indexed",
            Self::NonIndexed => "NonIndexed",
        }
    }
}

/// What a sync did about pods: label `action` of `job_syncs_total` and `job_sync_duration_seconds` (JC-2202).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncAction {
    Reconciling,
    Tracking,
    PodsCreated,
    PodsDeleted,
}

impl SyncAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::PodsCreated => "pods_created",
            Self::PodsDeleted => "pods_deleted",
        }
    }
}

/// Label `result` of `jobs_finished_total`, `job_pods_finished_total` and `job_pods_creation_total`; label `status` of
/// `job_finished_indexes_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Succeeded,
    Failed,
}

impl Ended {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }
}

/// Why pods were created: label `reason` of `job_pods_creation_total` (JC-2209).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreationReason {
    New,
    RecreateTerminatingOrFailed,
    RecreateFailed,
}

impl CreationReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::RecreateTerminatingOrFailed => "recreate_terminating_or_failed",
            Self::RecreateFailed => "recreate_failed",
        }
    }
}

/// One increment of one counter under `job_controller_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    /// `jobs_finished_total{completion_mode,result,reason}` by one.
    JobFinished { mode: CompletionMode, result: Ended, reason: String },
    /// `job_pods_finished_total{completion_mode,result}`.
    PodsFinished { mode: CompletionMode, result: Ended, by: u64 },
    /// `job_finished_indexes_total{status,backoffLimit}`; the second label is `perIndex` or `global`.
    IndexesFinished { status: Ended, per_index: bool, by: u64 },
    /// `pod_failures_handled_by_failure_policy_total{action}`.
    FailuresHandled { action: PolicyAction, by: u64 },
    /// `job_pods_creation_total{reason,status}`.
    PodsCreated { reason: CreationReason, status: Ended, by: u64 },
}
