//! One sync of a Job: plan, act on pods, put ended ones on record, release them, count them (JC sections 5 and 13).
//!
//! The plan says what and in which order; a crash between any two calls is safe (JC-1316). A sync does a bounded slice of
//! work; if more is left, the Job goes to the end of the queue so that others get their turn (INV-29): before each of its syncs
//! a Job waits, where there is one worker, for one slice of every other Job that is due, which is at most 500 pods.

use std::{sync::Arc, time::Duration};

use batch_plan::job::{
    Act, Broken, CallOutcome, Claims, Event, EventKind, Plan, PodRef, Skip, SyncAction, Uid, broken_by,
};
use k8s_openapi::{
    api::batch::v1::{Job, JobSpec, JobStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Error;
use serde::{Deserialize, Serialize};
use teeth::{Mutation, is};
use tokio::time::Instant;

use super::{
    calls::{ClaimError, Listed, PodCalls, name_of, namespace_of, text_of},
    shared::{Beginning, Shared, uid_of},
};
use crate::runtime::{EventType, ObjectRef, Progress, Recorder, Resource, alarms::CLOCK_CHECK, requests};

/// So many status writes in a row that meet another writer are no accident.
const CONFLICTS_SUSPICIOUS: u32 = 4;

/// No Job has more pods than this many pages that are worth to be asked for; beyond, the watch is waited for.
const INHERITED_PAGES_MAX: usize = 1_000;

/// Syncs Jobs, whichever worker asks.
pub(super) struct Syncer {
    pods: PodCalls,
    recorder: Recorder,
    shared: Arc<Shared>,
    /// How far the cache of pods has come.
    pods_seen: Progress,
}

/// Why a sync has to be repeated. The texts are upstream's (JC section 23).
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("read version: {read} is not as new as written version: {written} for group resource pods")]
    Stale { read: u64, written: u64 },
    #[error("read the job anew: {}", text_of(.0))]
    Confirm(Error),
    #[error("list the pods of the job anew: {}", text_of(.0))]
    Inherit(Error),
    #[error("the job is gone, or the server says so")]
    Gone,
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error("{0}")]
    Create(String),
    #[error("unable to delete pods: {0}")]
    Delete(String),
    #[error("tracking status: adding uncounted pods to status: {}", text_of(.0))]
    AddUncounted(Error),
    #[error("tracking status: removing tracking finalizer: {0}")]
    RemoveFinalizer(String),
    #[error("tracking status: removing uncounted pods from status: {}", text_of(.0))]
    RemoveUncounted(Error),
    /// A fault of ours; better no status than a wrong one.
    #[error("the status to write breaks {0}")]
    Invariant(Broken),
}

impl SyncError {
    /// Another writer was faster; the next sync sees what it wrote.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::AddUncounted(error) | Self::RemoveUncounted(error) if requests::is_conflict(error))
    }
}

impl Syncer {
    pub(super) fn new(pods: PodCalls, recorder: Recorder, shared: Arc<Shared>, pods_seen: Progress) -> Self {
        Self { pods, recorder, shared, pods_seen }
    }

    /// Brings one Job further.
    pub(super) async fn sync(&self, uid: &Uid) -> Result<(), SyncError> {
        let started = Instant::now();
        let mut beginning = self.begin(uid);
        if let Beginning::Unconfirmed(job) = &beginning {
            match self.confirm(uid, job).await {
                Ok(()) => beginning = self.begin(uid),
                Err(error) => return self.give_up(uid, job, started, error),
            }
        }
        if let Beginning::Overtaken { job, written, .. } = &beginning
            && let Ok(Listed::All(census)) = self.pods.list(job, 1).await
        {
            self.shared.pods_listed(uid, *written, census);
            beginning = self.begin(uid);
        }
        if let Beginning::Inherited(job) = &beginning {
            match self.pods.list(job, INHERITED_PAGES_MAX).await {
                Ok(listed) => self.shared.inherit(uid, listed),
                Err(error) => return self.give_up(uid, job, started, SyncError::Inherit(error)),
            }
            beginning = self.begin(uid);
        }
        let outcome = match beginning {
            Beginning::Gone => return Ok(()),
            Beginning::Unconfirmed(_) | Beginning::Inherited(_) => Err(SyncError::Gone),
            Beginning::Stale { read, written } | Beginning::Overtaken { read, written, .. } => {
                self.shared.metrics.stale_pods();
                Err(SyncError::Stale { read, written })
            }
            Beginning::Planned(job, plan) => {
                let outcome = self.carry_out(uid, &job, plan, started).await;
                if let Err(error) = &outcome {
                    self.report(uid, &job, error);
                }
                outcome
            }
        };
        self.shared.end(uid, started.elapsed(), outcome.is_err());
        outcome
    }

    /// Not even the question could be asked that comes before a plan.
    fn give_up(&self, uid: &Uid, job: &Job, started: Instant, error: SyncError) -> Result<(), SyncError> {
        self.report(uid, job, &error);
        self.shared.end(uid, started.elapsed(), true);
        Err(error)
    }

    fn begin(&self, uid: &Uid) -> Beginning {
        self.shared.begin(uid, self.pods_seen.resource_version())
    }

    /// Asks the server for a Job that an earlier process may have known: after a restart the first list can be older
    /// than what that process did (INV-11, INV-17; P-9).
    async fn confirm(&self, uid: &Uid, job: &Job) -> Result<(), SyncError> {
        let path = Resource::JOBS.object(namespace_of(job), name_of(job));
        let fresh: Job = requests::get(&self.pods.client, &path).await.map_err(SyncError::Confirm)?;
        if uid_of(&fresh) != *uid {
            return Err(SyncError::Gone);
        }
        self.shared.confirm(uid, fresh);
        Ok(())
    }

    async fn carry_out(&self, uid: &Uid, job: &Arc<Job>, plan: Plan, started: Instant) -> Result<(), SyncError> {
        let (label, outcome) = match plan {
            Plan::Skip(skip) => {
                self.skip(uid, job, skip);
                return Ok(());
            }
            Plan::Release(pods) => return self.release_leftovers(uid, job, &pods).await,
            Plan::Claim(claims) => (SyncAction::Reconciling, self.claim(uid, job, &claims).await),
            Plan::Act(act) => (act.label, self.act(uid, job, act).await),
        };
        let elapsed = started.elapsed();
        self.shared.metrics.synced(job, label, outcome.is_ok(), elapsed);
        tracing::debug!(namespace = namespace_of(job), job = name_of(job), ?elapsed, "Finished syncing job");
        outcome.map(|wake_after| {
            if let Some(wake_after) = wake_after.filter(|_| !self.shared.knows_namesake(job)) {
                // Deadlines and delays end by the wall clock, which may be set, or go on while the machine sleeps; timers
                // know nothing of that (INV-26, P-11). To look once too often costs no call (INV-29).
                self.shared.jobs.add_after(uid.clone(), wake_after.min(CLOCK_CHECK));
            }
        })
    }

    /// JC-504, JC-505.
    fn skip(&self, uid: &Uid, job: &Job, skip: Skip) {
        let (namespace, name) = (namespace_of(job), name_of(job));
        match skip {
            Skip::ManagedBy(controller) if controller.is_empty() => {}
            Skip::ManagedBy(controller) => {
                if self.shared.first_skip(uid) {
                    let message = "Skip syncing the job as it is managed by an external controller";
                    tracing::info!(namespace, job = name, %uid, controller_name = controller, "{message}");
                }
            }
            Skip::Finished => {}
            Skip::FinishedUnseen => {
                let message = "Skip syncing the job as its marked finished but the corresponding update event is not yet received";
                tracing::debug!(namespace, job = name, %uid, "{message}");
            }
            Skip::UnknownCompletionMode(event) => self.emit(job, &[event]),
        }
    }

    /// Pods that were still tracked when their Job finished (INV-13).
    async fn release_leftovers(&self, uid: &Uid, job: &Job, pods: &[PodRef]) -> Result<(), SyncError> {
        let outcome = self.pods.release(namespace_of(job), pods).await;
        self.shared.note_release(uid, pods, &outcome);
        match outcome.failed.into_values().next() {
            Some(error) => Err(SyncError::RemoveFinalizer(error)),
            None => {
                self.shared.jobs.add(uid.clone());
                Ok(())
            }
        }
    }

    /// The watch shows the pods with their new owner and brings the next sync.
    async fn claim(&self, uid: &Uid, job: &Job, claims: &Claims) -> Result<Option<Duration>, SyncError> {
        let version = self.pods.claim(job, claims).await?;
        self.shared.wrote_pods(uid, version);
        Ok(None)
    }

    /// The three steps of a sync. The answer is when to look again, whatever happens until then.
    async fn act(&self, uid: &Uid, job: &Arc<Job>, act: Box<Act>) -> Result<Option<Duration>, SyncError> {
        let creates = act.label == SyncAction::PodsCreated;
        self.shared.note_verdict(uid, job, &act);
        let outcomes = self.pods.perform(job, &act.action).await;
        self.shared.note_action(uid, &act.action, &outcomes);
        let name_taken = outcomes.contains(&CallOutcome::NameTaken);
        let refused = outcomes.iter().filter(|outcome| **outcome != CallOutcome::NameTaken);
        let refused = refused.map(CallOutcome::error).find_map(|error| error.map(str::to_owned));
        let record = act.record(&outcomes);
        self.emit(job, &record.events);
        self.shared.metrics.count(&record.creations);

        let mut job = job.clone();
        // Pods that end soon after their creation would cost a write for the short time that they were active.
        let releases = !record.let_go.is_empty() || !record.release.is_empty();
        let can_wait = |status: &&JobStatus| !releases && only_live_pods_differ(&job, status);
        let put_off = record.status.as_ref().filter(can_wait).is_some() && self.shared.defers(uid);
        if let Some(status) = record.status.as_ref().filter(|_| !put_off) {
            sound(&job, status)?;
            match self.write_status(uid, &job, status).await.map_err(SyncError::AddUncounted)? {
                Some(written) => job = written,
                None => return Err(SyncError::Gone),
            }
        }
        self.shared.metrics.count(&record.metrics);
        let wake_after = record.wake_after;
        let mut outcome = self.pods.let_go(namespace_of(&job), &record.let_go).await;
        self.shared.note_release(uid, &record.let_go, &outcome);
        let released = self.pods.release(namespace_of(&job), &record.release).await;
        self.shared.note_release(uid, &record.release, &released);
        outcome.failed.extend(released.failed);

        let close = record.close(&outcome);
        if let Some(status) = &close.status {
            sound(&job, status)?;
            if self.write_status(uid, &job, status).await.map_err(SyncError::RemoveUncounted)?.is_none() {
                return Err(SyncError::Gone);
            }
            if close.finished {
                self.shared.note_finished(uid);
            }
            self.emit(&job, &close.events);
            self.shared.metrics.count(&close.metrics);
        }
        if let Some(error) = outcome.failed.into_values().next() {
            return Err(SyncError::RemoveFinalizer(error));
        }
        match refused {
            Some(error) if creates => Err(SyncError::Create(error)),
            Some(error) => Err(SyncError::Delete(error)),
            // The next plan knows that the name is taken and uses another.
            None if name_taken => Ok(Some(Duration::ZERO)),
            None => Ok(wake_after),
        }
    }

    /// PUT of a Job's status; the version makes a stale copy fail (JC-110). `None` if the Job is gone.
    async fn write_status(&self, uid: &Uid, job: &Job, status: &JobStatus) -> Result<Option<Arc<Job>>, Error> {
        let path = Resource::JOBS.subresource(namespace_of(job), name_of(job), "status");
        let body = StatusUpdate {
            api_version: "batch/v1",
            kind: "Job",
            metadata: &job.metadata,
            spec: job.spec.as_ref(),
            status,
        };
        if is(Mutation::C24) {
            self.shared.wrote_job(uid, Job { status: Some(status.clone()), ..job.clone() });
        }
        let written: Written = match requests::replace(&self.pods.client, &path, &body).await {
            Ok(written) => written,
            Err(error) if requests::is_not_found(&error) => return Ok(None),
            Err(error) => {
                // Only an answer that the server gave on purpose says that nothing was written.
                if !matches!(&error, Error::Api(status) if status.code < 500) {
                    self.shared.doubt(uid);
                }
                return Err(error);
            }
        };
        // The version proves that nothing else has changed.
        let resource_version = Some(written.metadata.resource_version);
        let job = Job {
            metadata: ObjectMeta { resource_version, ..job.metadata.clone() },
            spec: job.spec.clone(),
            status: Some(written.status),
        };
        Ok(Some(self.shared.wrote_job(uid, job)))
    }

    fn emit(&self, job: &Job, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let object = ObjectRef {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            namespace: text(&job.metadata.namespace),
            name: text(&job.metadata.name),
            uid: text(&job.metadata.uid),
            resource_version: text(&job.metadata.resource_version),
        };
        for Event { kind, reason, message } in events {
            let kind = match kind {
                EventKind::Normal => EventType::Normal,
                EventKind::Warning => EventType::Warning,
            };
            self.recorder.event(&object, kind, reason, message.as_ref());
        }
    }

    fn report(&self, uid: &Uid, job: &Job, error: &SyncError) {
        let (namespace, name) = (namespace_of(job), name_of(job));
        if matches!(error, SyncError::Gone) {
            // The watch will show that too; until then it is looked at again and again (INV-30).
            tracing::debug!(namespace, job = name, %error, "syncing job");
            return;
        }
        if !error.is_conflict() {
            tracing::warn!(namespace, job = name, %error, "syncing job");
            return;
        }
        if self.shared.met_conflict(uid) < CONFLICTS_SUSPICIOUS {
            tracing::debug!(namespace, job = name, %error, "syncing job");
        } else {
            let message = "syncing job: another writer keeps changing it; is a second Job controller running?";
            tracing::warn!(namespace, job = name, %error, "{message}");
        }
    }
}

/// Whether a status may be sent in the place of the Job's.
fn sound(job: &Job, status: &JobStatus) -> Result<(), SyncError> {
    let none = JobStatus::default();
    let broken = broken_by(job.status.as_ref().unwrap_or(&none), status);
    broken.map_or(Ok(()), |broken| Err(SyncError::Invariant(broken)))
}

/// Whether a new status differs from the Job's only in how many pods are live.
fn only_live_pods_differ(job: &Job, new: &JobStatus) -> bool {
    let empty = JobStatus::default();
    let old = job.status.as_ref().unwrap_or(&empty);
    let uncounted = |status: &JobStatus| status.uncounted_terminated_pods.clone().unwrap_or_default();
    uncounted(old) == uncounted(new)
        && old.conditions.as_deref().unwrap_or_default() == new.conditions.as_deref().unwrap_or_default()
        && (old.succeeded, old.failed) == (new.succeeded, new.failed)
        && (&old.completed_indexes, &old.failed_indexes) == (&new.completed_indexes, &new.failed_indexes)
}

/// The body of a status write: the whole object, because `/status` takes labels and annotations from it too.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a ObjectMeta,
    spec: Option<&'a JobSpec>,
    status: &'a JobStatus,
}

/// What a status write changes.
#[derive(Deserialize)]
struct Written {
    metadata: WrittenMetadata,
    #[serde(default)]
    status: JobStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: String,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

    use batch_plan::job::Settings;
    use jiff::{SignedDuration, Timestamp};
    use kube::{Client, client::Body};
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        job::{RETRY, WatchedPod},
        runtime::{Change, ControllerContext, Environment, Metrics, Reflector, Shutdown, Source, WorkQueue},
    };

    const START: Timestamp = Timestamp::constant(1_767_607_200, 0);

    /// A Job whose pod runs, by a clock that stands still and can be set. Every call is counted and refused.
    struct Scene {
        syncer: Syncer,
        clock: Arc<AtomicI64>,
        calls: Arc<AtomicUsize>,
    }

    impl Scene {
        fn new(spec: &Value) -> Self {
            let (clock, calls) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicUsize::new(0)));
            let (shown, counted) = (clock.clone(), calls.clone());
            let now = move || START + SignedDuration::from_secs(shown.load(Ordering::Relaxed));
            let service = tower::service_fn(move |_: http::Request<Body>| {
                counted.fetch_add(1, Ordering::Relaxed);
                async { Err::<http::Response<Body>, _>("refused") }
            });
            let (client, metrics) = (Client::new(service, "default"), Metrics::new());
            let environment = Environment::new(now, || 0);
            let (context, _) =
                ControllerContext::new(client.clone(), metrics.clone(), environment.clone(), Shutdown::new());
            let queues = (WorkQueue::new("job", RETRY, &metrics), WorkQueue::new("job_orphan_pod", RETRY, &metrics));
            let shared = Shared::new(Settings::default(), environment, &metrics, queues.0, queues.1);
            shared.job_changed(Change::Synced);
            shared.job_changed(Change::Applied(job(spec)));
            shared.pod_changed(Change::Applied(pod()));
            let pods_seen = Reflector::<WatchedPod>::new(&context, Source::all(Resource::PODS)).progress();
            let pods = PodCalls { client, at_once: 1 };
            Self { syncer: Syncer::new(pods, context.recorder, shared.into(), pods_seen), clock, calls }
        }

        /// Syncs the Job as a worker does when it is queued within this time; the answer is whether it was.
        async fn syncs_within(&self, time: Duration) -> bool {
            let jobs = &self.syncer.shared.jobs;
            let Ok(work) = tokio::time::timeout(time, jobs.next()).await else { return false };
            let work = work.unwrap();
            let outcome = self.syncer.sync(work.key()).await;
            work.finish(&outcome);
            true
        }

        fn calls(&self) -> usize {
            self.calls.load(Ordering::Relaxed)
        }
    }

    fn job(spec: &Value) -> Job {
        let mut job = json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "j", "generation": 1, "resourceVersion": "10",
                         "creationTimestamp": "2026-01-05T10:00:01Z"},
            "spec": {"parallelism": 1, "completions": 1, "selector": {"matchLabels": {"job": "a"}}, "template": {}},
            "status": {"startTime": "2026-01-05T10:00:01Z", "active": 1, "ready": 0, "terminating": 0,
                       "uncountedTerminatedPods": {}},
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    fn pod() -> WatchedPod {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true});
        let pod = json!({
            "metadata": {"name": "a-x", "namespace": "default", "uid": "p", "resourceVersion": "11",
                         "labels": {"job": "a"}, "ownerReferences": [owner],
                         "finalizers": ["batch.kubernetes.io/job-tracking"]},
            "status": {"phase": "Running"},
        });
        serde_json::from_value(pod).unwrap()
    }

    /// INV-26, P-11: the machine slept through the deadline, or its clock was set. INV-29: until then nothing is called.
    #[tokio::test(start_paused = true)]
    async fn a_deadline_follows_a_clock_that_is_set() {
        let scene = Scene::new(&json!({"activeDeadlineSeconds": 3600}));
        assert!(scene.syncs_within(Duration::ZERO).await, "it is new");
        for seconds in [30, 60, 90] {
            scene.clock.store(seconds, Ordering::Relaxed);
            assert!(scene.syncs_within(CLOCK_CHECK).await, "{seconds}");
            assert_eq!(scene.calls(), 0, "{seconds}");
        }
        scene.clock.store(3601, Ordering::Relaxed);
        assert!(scene.syncs_within(CLOCK_CHECK).await);
        assert_ne!(scene.calls(), 0, "the Job is over");
    }

    /// INV-29: a Job without anything to wait for is left in peace.
    #[tokio::test(start_paused = true)]
    async fn a_job_without_a_deadline_is_not_looked_at_for_nothing() {
        let scene = Scene::new(&json!({}));
        assert!(scene.syncs_within(Duration::ZERO).await, "it is new");
        assert!(!scene.syncs_within(Duration::from_secs(24 * 60 * 60)).await);
        assert_eq!(scene.calls(), 0);
    }
}
