//! What the Job controller measures: upstream's names, labels and buckets (JC section 22).
//!
//! Upstream: pkg/controller/job/metrics/metrics.go. Increments come as data from `batch_plan::job`; here is where they go.

use std::{fmt, time::Duration};

use batch_plan::job::{Change, Metric, PolicyAction, SyncAction};
use batch_types::job::is_indexed;
use k8s_openapi::api::batch::v1::Job;
use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    histogram::{Histogram, exponential_buckets},
};

use crate::runtime::Metrics;

type Label = (&'static str, &'static str);

/// The counters and histograms under `job_controller_`.
pub(super) struct JobMetrics {
    /// completion_mode (Indexed, NonIndexed), result (success, error), action (reconciling, tracking, pods_created,
    /// pods_deleted).
    sync_duration: Family<[Label; 3], Histogram>,
    syncs: Family<[Label; 3], Counter>,
    /// completion_mode, result (succeeded, failed), reason (the reason of the condition).
    jobs_finished: Family<[(&'static str, String); 3], Counter>,
    /// controller_name (the value of `managedBy`).
    jobs_by_external_controller: Family<[(&'static str, String); 1], Counter>,
    /// completion_mode, result (succeeded, failed).
    pods_finished: Family<[Label; 2], Counter>,
    /// action (FailJob, FailIndex, Ignore, Count).
    failures_handled: Family<[Label; 1], Counter>,
    /// event (add, delete).
    terminated_pods_tracking_finalizer: Family<[Label; 1], Counter>,
    /// status (succeeded, failed), backoffLimit (perIndex, global).
    finished_indexes: Family<[Label; 2], Counter>,
    /// reason (new, recreate_terminating_or_failed, recreate_failed), status (succeeded, failed).
    pods_creation: Family<[Label; 2], Counter>,
    /// group, resource.
    stale_sync_skips: Family<[Label; 2], Counter>,
}

impl JobMetrics {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            sync_duration: metrics.register(
                "job_controller_job_sync_duration_seconds",
                "The time it took to sync a job",
                Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.004, 2.0, 15))),
            ),
            syncs: metrics.register("job_controller_job_syncs", "The number of job syncs", Family::default()),
            jobs_finished: metrics.register(
                "job_controller_jobs_finished",
                "The number of finished jobs",
                Family::default(),
            ),
            jobs_by_external_controller: metrics.register(
                "job_controller_jobs_by_external_controller",
                "The number of Jobs managed by an external controller",
                Family::default(),
            ),
            pods_finished: metrics.register(
                "job_controller_job_pods_finished",
                "The number of finished Pods that are fully tracked",
                Family::default(),
            ),
            failures_handled: metrics.register(
                "job_controller_pod_failures_handled_by_failure_policy",
                "The number of failed Pods handled by failure policy, by the action of the matched rule",
                Family::default(),
            ),
            terminated_pods_tracking_finalizer: metrics.register(
                "job_controller_terminated_pods_tracking_finalizer",
                "The number of terminated pods that got and lost the tracking finalizer",
                Family::default(),
            ),
            finished_indexes: metrics.register(
                "job_controller_job_finished_indexes",
                "The number of finished indexes",
                Family::default(),
            ),
            pods_creation: metrics.register(
                "job_controller_job_pods_creation",
                "The number of Pods created by the Job controller, by the reason of their creation",
                Family::default(),
            ),
            stale_sync_skips: metrics.register(
                "job_controller_stale_sync_skips",
                "The number of Job syncs skipped because a cache was older than our own writes",
                Family::default(),
            ),
        }
    }

    /// JC-2202.
    pub(super) fn synced(&self, job: &Job, action: SyncAction, succeeded: bool, took: Duration) {
        let indexed = job.spec.as_ref().is_some_and(is_indexed);
        let labels = [
            ("completion_mode", if indexed { "Indexed" } else { "NonIndexed" }),
            ("result", if succeeded { "success" } else { "error" }),
            ("action", action.as_str()),
        ];
        self.sync_duration.get_or_create(&labels).observe(took.as_secs_f64());
        self.syncs.get_or_create(&labels).inc();
    }

    pub(super) fn count(&self, increments: &[Metric]) {
        for increment in increments {
            self.count_one(increment);
        }
    }

    fn count_one(&self, increment: &Metric) {
        match increment {
            Metric::JobFinished { mode, result, reason } => {
                let labels = [
                    ("completion_mode", mode.as_str().to_owned()),
                    ("result", result.as_str().to_owned()),
                    ("reason", reason.clone()),
                ];
                self.jobs_finished.get_or_create(&labels).inc();
            }
            Metric::PodsFinished { mode, result, by } => {
                let labels = [("completion_mode", mode.as_str()), ("result", result.as_str())];
                self.pods_finished.get_or_create(&labels).inc_by(*by);
            }
            Metric::IndexesFinished { status, per_index, by } => {
                let limit = if *per_index { "perIndex" } else { "global" };
                let labels = [("status", status.as_str()), ("backoffLimit", limit)];
                self.finished_indexes.get_or_create(&labels).inc_by(*by);
            }
            Metric::FailuresHandled { action, by } => {
                self.failures_handled.get_or_create(&[("action", action_name(*action))]).inc_by(*by);
            }
            Metric::PodsCreated { reason, status, by } => {
                let labels = [("reason", reason.as_str()), ("status", status.as_str())];
                self.pods_creation.get_or_create(&labels).inc_by(*by);
            }
        }
    }

    pub(super) fn external_job(&self, controller: &str) {
        self.jobs_by_external_controller.get_or_create(&[("controller_name", controller.to_owned())]).inc();
    }

    pub(super) fn ended_with_finalizer(&self, change: Change) {
        let event = match change {
            Change::Add => "add",
            Change::Delete => "delete",
        };
        self.terminated_pods_tracking_finalizer.get_or_create(&[("event", event)]).inc();
    }

    pub(super) fn stale_pods(&self) {
        self.stale_sync_skips.get_or_create(&[("group", ""), ("resource", "pods")]).inc();
    }
}

fn action_name(action: PolicyAction) -> &'static str {
    match action {
        PolicyAction::FailJob => "FailJob",
        PolicyAction::FailIndex => "FailIndex",
        PolicyAction::Ignore => "Ignore",
        PolicyAction::Count => "Count",
    }
}

impl fmt::Debug for JobMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobMetrics")
    }
}
