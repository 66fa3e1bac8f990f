//! The TTL-after-finished controller (TTL-1…TTL-13): deletes finished Jobs when their time is up.
//!
//! Decisions are in `batch_plan::ttl`; `projection` says what is decoded of Jobs and pods, `cleaner` watches one kind,
//! waits, and deletes. Jobs are upstream's business; pods that nobody controls are ours, and only those whose annotation
//! asks for it.

mod cleaner;
mod projection;

use std::time::Duration;

use batch_types::gates::Gates;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use self::{
    cleaner::Cleaner,
    projection::{JobView, PodView},
};
use crate::runtime::{ControllerContext, Metrics, Supervisor, alarms::CLOCK_CHECK};

const COMPONENT: &str = "ttl-after-finished-controller";

const POD_WORKERS_MAX: usize = 8;

/// What can be chosen about the TTL controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `TTLAfterFinished` off leaves everything as it is.
    pub gates: Gates,
    /// `--concurrent-ttl-after-finished-syncs`. Many more than upstream's 5, because deletions of a moment share a
    /// commit.
    pub workers: usize,
    /// `--default-ttl-seconds-after-finished`: for Jobs that say nothing themselves.
    pub default_seconds: Option<i64>,
    /// How long a clock that was set may go unnoticed.
    pub clock_check: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { gates: Gates::DEFAULT, workers: 256, default_seconds: None, clock_check: CLOCK_CHECK }
    }
}

/// Runs the TTL controller until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    if !options.gates.ttl_after_finished {
        return context.shutdown.cancelled().await;
    }
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown);
    let late = deletion_duration(&context.metrics);
    // The default is for Jobs, and pods that are nobody's are few.
    let few = Options { default_seconds: None, workers: options.workers.min(POD_WORKERS_MAX), ..options.clone() };
    let pods = Cleaner::<PodView>::start(&mut tasks, &context, &few, None);
    let jobs = Cleaner::<JobView>::start(&mut tasks, &context, &options, Some(late));
    // Either kind goes to work when it is mirrored: who may not read pods can still delete Jobs.
    tasks.spawn("ttl pods", pods);
    tasks.spawn("ttl jobs", jobs);
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "ttl-after-finished controller");
    }
}

fn deletion_duration(metrics: &Metrics) -> Histogram {
    metrics.register(
        "ttl_after_finished_controller_job_deletion_duration_seconds",
        "The time it took to delete the job since it became eligible for deletion",
        Histogram::new(exponential_buckets(0.1, 2.0, 14)),
    )
}

#[cfg(test)]
mod tests;
