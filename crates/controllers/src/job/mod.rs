//! The Job controller (JC-…): keeps the pods of Jobs as their specs want them and counts each ended pod exactly once.
//!
//! Every decision is made by `batch_plan::job`. Here is the shell: `watch` turns news into queued Jobs, `pacing` says how
//! soon, `sync` carries out the plan for one Job, `calls` talks to the API about pods, `orphans` releases pods that no
//! sync will ever release, `access` knows which permissions all that takes. What is remembered is in `shared`, keyed by
//! UID, and can be lost at any moment (INV-31, INV-32).

pub mod access;
mod calls;
mod metrics;
mod orphans;
mod pacing;
mod shared;
mod sync;
mod watch;

use std::{sync::Arc, time::Duration};

use batch_plan::job::{COMPONENT, Settings, Uid};
use k8s_openapi::api::batch::v1::Job;
use kube::{Client, Error};

use self::{
    calls::PodCalls,
    orphans::Orphan,
    shared::Shared,
    sync::{SyncError, Syncer},
    watch::WatchedPod,
};
use crate::runtime::{
    ControllerContext, Reflector, Resource, RetryPolicy, Source, Supervisor, WorkQueue, all_synced, requests,
    retry_on_recovery,
};

/// JC-105: one second, doubled by each failure, at most a minute.
const RETRY: RetryPolicy = RetryPolicy::per_key(Duration::from_secs(1), Duration::from_secs(60));

/// What can be chosen about the Job controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// Gates, tunables, and in whose name the controller works.
    pub settings: Settings,
    /// `--concurrent-job-syncs`: so many Jobs, and so many orphans, are worked on at a time (JC-103).
    pub workers: usize,
    /// Calls about the pods of one Job that are on their way at the same time.
    pub calls_at_once: usize,
}

impl Options {
    /// Enough to fill a group commit of the embedded server.
    pub const CALLS_IN_PROCESS: usize = 256;
}

impl Default for Options {
    /// For a cluster: kube's client opens a connection per call, and an API server lets some 200 writes in at a time.
    fn default() -> Self {
        Self { settings: Settings::default(), workers: 5, calls_at_once: 32 }
    }
}

/// Runs the Job controller until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    run_and_tell(context, options, || {}).await;
}

/// The same; `ready` is called when every Job and pod has been seen once and work begins (JC-102).
pub async fn run_and_tell(context: ControllerContext, options: Options, ready: impl FnOnce() + Send) {
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown.clone());
    let shared = Arc::new(Shared::new(
        options.settings,
        context.environment.clone(),
        &context.metrics,
        WorkQueue::new("job", RETRY, &context.metrics),
        WorkQueue::new("job_orphan_pod", RETRY, &context.metrics),
    ));

    let jobs = Reflector::<Job>::new(&context, Source::all(Resource::JOBS));
    let pods = Reflector::<WatchedPod>::new(&context, Source::all(Resource::PODS));
    let (jobs_mirrored, pods_mirrored) = (jobs.progress(), pods.progress());
    let noted = shared.clone();
    tasks.spawn("jobs", jobs.run(shutdown.clone(), move |change| noted.job_changed(change)));
    let noted = shared.clone();
    tasks.spawn("pods", pods.run(shutdown.clone(), move |change| noted.pod_changed(change)));

    if all_synced(&[&jobs_mirrored, &pods_mirrored], &shutdown).await {
        tracing::info!(workers = options.workers, "Starting job controller");
        let recorder = context.recorder.component(COMPONENT);
        let calls = PodCalls { client: context.client.clone(), at_once: options.calls_at_once.max(1) };
        let syncer = Arc::new(Syncer::new(calls, recorder, shared.clone(), pods_mirrored));
        let (jobs, orphans) = (shared.jobs.clone(), shared.orphans.clone());
        tasks.spawn("job recovery", retry_on_recovery(jobs, jobs_mirrored.clone(), shutdown.clone()));
        tasks.spawn("job orphan recovery", retry_on_recovery(orphans, jobs_mirrored, shutdown.clone()));
        for _ in 0..options.workers.max(1) {
            let worker = syncer.clone();
            let act = move |uid| sync(worker.clone(), uid);
            // A sync that has begun is allowed to end (JC-2406).
            tasks.spawn("job worker", shared.jobs.clone().work(shutdown.clone(), act));
            let (client, worker) = (context.client.clone(), shared.clone());
            let act = move |orphan| release_orphan(client.clone(), worker.clone(), orphan);
            tasks.spawn("job orphan worker", shared.orphans.clone().work(shutdown.clone(), act));
        }
        ready();
    }
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "job controller");
    }
    tracing::info!("Shutting down job controller");
}

async fn sync(syncer: Arc<Syncer>, uid: Uid) -> Result<(), SyncError> {
    Box::pin(syncer.sync(&uid)).await
}

async fn release_orphan(client: Client, shared: Arc<Shared>, orphan: Orphan) -> Result<(), Error> {
    let outcome = orphans::release(&client, &shared, &orphan).await;
    if let Err(error) = &outcome {
        let (error, is_conflict) = (calls::text_of(error), requests::is_conflict(error));
        let (namespace, pod) = (&orphan.namespace, &*orphan.name);
        match is_conflict {
            // The pod has changed since it was judged; it is judged again.
            true => tracing::debug!(error, namespace, pod, "Error syncing orphan pod"),
            false => tracing::warn!(error, namespace, pod, "Error syncing orphan pod"),
        }
    }
    outcome
}

#[cfg(test)]
mod tests;
