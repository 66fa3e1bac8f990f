//! Names that the Job API reserves: labels, annotations, finalizers, condition types and reasons.
//!
//! Clients and other controllers compare these texts byte for byte, so they are written once, here.

/// The four labels every generated pod template carries (JA-C4).
pub mod label {
    pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";
    pub const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
    /// From before labels of the project had a prefix; still written and still required.
    pub const LEGACY_JOB_NAME: &str = "job-name";
    pub const LEGACY_CONTROLLER_UID: &str = "controller-uid";
    /// The completion index of a pod of an Indexed Job, as a label.
    pub const COMPLETION_INDEX: &str = super::annotation::COMPLETION_INDEX;
}

pub mod annotation {
    /// The completion index of a pod of an Indexed Job.
    pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
    /// Failures of the pod's index that count against `backoffLimitPerIndex`.
    pub const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
    /// Failures of the pod's index that a pod failure policy ignored.
    pub const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
    /// The nominal start time of a Job made by a CronJob (CJ-52).
    pub const CRONJOB_SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    /// Set to `manual` by `kubectl create job --from` (JA-K2).
    pub const CRONJOB_INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";
}

pub mod finalizer {
    /// Keeps a pod until its Job has counted it.
    pub const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
    pub const ORPHAN_DEPENDENTS: &str = "orphan";
    pub const FOREGROUND_DELETION: &str = "foregroundDeletion";
    /// The namespace finalizer; the third name that needs no domain (AS-80).
    pub const KUBERNETES: &str = "kubernetes";
}

/// Types of Job conditions.
pub mod condition {
    pub const SUSPENDED: &str = "Suspended";
    pub const COMPLETE: &str = "Complete";
    pub const FAILED: &str = "Failed";
    pub const FAILURE_TARGET: &str = "FailureTarget";
    pub const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

    /// The three values of a condition's `status`.
    pub const TRUE: &str = "True";
    pub const FALSE: &str = "False";
    pub const UNKNOWN: &str = "Unknown";
}

/// Reasons of Job conditions.
pub mod reason {
    pub const POD_FAILURE_POLICY: &str = "PodFailurePolicy";
    pub const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    pub const MAX_FAILED_INDEXES_EXCEEDED: &str = "MaxFailedIndexesExceeded";
    pub const FAILED_INDEXES: &str = "FailedIndexes";
    pub const SUCCESS_POLICY: &str = "SuccessPolicy";
    pub const COMPLETIONS_REACHED: &str = "CompletionsReached";
    pub const JOB_SUSPENDED: &str = "JobSuspended";
    pub const JOB_RESUMED: &str = "JobResumed";
}

/// Values of enumerated Job and CronJob fields.
pub mod value {
    pub const INDEXED: &str = "Indexed";
    pub const NON_INDEXED: &str = "NonIndexed";

    pub const REPLACE_FAILED: &str = "Failed";
    pub const REPLACE_TERMINATING_OR_FAILED: &str = "TerminatingOrFailed";

    pub const ACTION_COUNT: &str = "Count";
    pub const ACTION_FAIL_INDEX: &str = "FailIndex";
    pub const ACTION_FAIL_JOB: &str = "FailJob";
    pub const ACTION_IGNORE: &str = "Ignore";

    pub const OPERATOR_IN: &str = "In";
    pub const OPERATOR_NOT_IN: &str = "NotIn";

    pub const RESTART_ALWAYS: &str = "Always";
    pub const RESTART_ON_FAILURE: &str = "OnFailure";
    pub const RESTART_NEVER: &str = "Never";

    pub const CONCURRENCY_ALLOW: &str = "Allow";
    pub const CONCURRENCY_FORBID: &str = "Forbid";
    pub const CONCURRENCY_REPLACE: &str = "Replace";

    /// `spec.managedBy` of Jobs that the built-in controller runs.
    pub const BUILT_IN_CONTROLLER: &str = "kubernetes.io/job-controller";
}
