//! The CronJob controller (CJ-…): starts Jobs by the clock and keeps the history of those it started.
//!
//! Every decision is made by `batch_plan::cronjob`. Here is the shell: `cache` holds what the watches show, `watch` turns
//! news into wake-ups, `sync` carries out what is decided about one CronJob. Everything remembered is keyed by UID, and
//! can be lost at any moment (INV-31, INV-32).

mod cache;
mod sync;
mod watch;

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use batch_plan::{cronjob::COMPONENT, job::Uid};
use jiff::tz::TimeZone;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use self::{
    sync::{SyncError, Syncer},
    watch::{Mirror, Watched},
};
use crate::runtime::{
    Alarms, ControllerContext, Metrics, Reflector, Resource, RetryPolicy, Source, Supervisor, WorkQueue,
    alarms::CLOCK_CHECK, all_synced, retry_on_recovery,
};

/// Retries of one CronJob. Upstream adds a bucket for all together, which would let a thousand CronJobs wait for minutes
/// after an outage of seconds (INV-37).
const RETRY: RetryPolicy = RetryPolicy::per_key(Duration::from_millis(5), Duration::from_secs(30));

/// What can be chosen about the CronJob controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--concurrent-cron-job-syncs`. Many more than upstream's 5: of CronJobs that are due in the same second all Jobs
    /// are created before the first status is written, and share a commit.
    pub workers: usize,
    /// The zone of schedules that name none (CJ-49).
    pub time_zone: TimeZone,
    /// How long a clock that was set may go unnoticed.
    pub clock_check: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 256, time_zone: TimeZone::UTC, clock_check: CLOCK_CHECK }
    }
}

/// Runs the CronJob controller until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown.clone());
    let recorder = context.recorder.component(COMPONENT);
    let cron_jobs = Reflector::<Watched<_>>::new(&context, Source::all(Resource::CRON_JOBS));
    let jobs = Reflector::<Watched<_>>::new(&context, Source::all(Resource::JOBS));
    let (cron_jobs_mirrored, jobs_mirrored) = (cron_jobs.progress(), jobs.progress());
    let mirror = Arc::new(Mirror {
        cache: parking_lot::Mutex::default(),
        jobs_seen: jobs_mirrored.clone(),
        alarms: Alarms::new(context.environment.clone(), options.clock_check),
        queue: WorkQueue::new("cronjob", RETRY, &context.metrics),
        recorder: recorder.clone(),
        environment: context.environment.clone(),
        local_zone: options.time_zone.clone(),
    });
    let noted = mirror.clone();
    tasks.spawn("cronjobs", cron_jobs.run(shutdown.clone(), move |change| noted.cron_job_changed(change)));
    let noted = mirror.clone();
    tasks.spawn("jobs of cronjobs", jobs.run(shutdown.clone(), move |change| noted.job_changed(change)));

    // CJ-1.
    if all_synced(&[&cron_jobs_mirrored, &jobs_mirrored], &shutdown).await {
        let syncer = Arc::new(Syncer {
            client: context.client.clone(),
            recorder,
            mirror: mirror.clone(),
            skew: creation_skew(&context.metrics),
            starting: AtomicUsize::new(0),
        });
        let queue = mirror.queue.clone();
        tasks.spawn("cronjob alarms", mirror.alarms.clone().run(shutdown.clone(), move |uid| queue.add(uid)));
        let queue = mirror.queue.clone();
        tasks.spawn("cronjob recovery", retry_on_recovery(queue, jobs_mirrored, shutdown.clone()));
        for _ in 0..options.workers.max(1) {
            let syncer = syncer.clone();
            let act = move |uid| sync(syncer.clone(), uid);
            tasks.spawn("cronjob worker", mirror.queue.clone().work(shutdown.clone(), act));
        }
    }
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "cronjob controller");
    }
}

async fn sync(syncer: Arc<Syncer>, uid: Uid) -> Result<(), SyncError> {
    let outcome = Box::pin(syncer.sync(&uid)).await;
    if let Err(error) = &outcome {
        tracing::warn!(error = error as &dyn std::error::Error, %uid, "sync a cronjob");
    }
    outcome
}

fn creation_skew(metrics: &Metrics) -> Histogram {
    metrics.register(
        "cronjob_controller_job_creation_skew_duration_seconds",
        "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
        Histogram::new(exponential_buckets(1.0, 2.0, 10)),
    )
}

#[cfg(test)]
mod tests;
