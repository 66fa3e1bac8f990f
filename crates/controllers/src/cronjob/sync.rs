//! One look at one CronJob: ask, observe, write down, tidy up, start what is due (CJ-10…CJ-28).
//!
//! The order of the calls is that in which a crash between any two of them does no harm; why, is told in
//! `batch_plan::cronjob`.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use batch_plan::{
    cronjob::{
        ActiveJob, CronJobView, Draft, Event, Existing, JobView, Next, Observation, Snapshot, Start, TemplateError,
        decide, finished, observe, questions, with_status,
    },
    job::Uid,
};
use jiff::Timestamp;
use kube::{Client, Error};
use prometheus_client::metrics::histogram::Histogram;
use teeth::{Mutation, is};

use super::{
    cache::Origin,
    watch::{Mirror, tell},
};
use crate::runtime::{
    Recorder, Resource,
    requests::{self, DeleteOptions, Preconditions},
};

/// How long the status of a CronJob waits for the Jobs of others that are due at the same time, and how often it looks.
const RUSH_MAX: Duration = Duration::from_millis(50);
const RUSH_LOOK: Duration = Duration::from_millis(1);

pub(super) struct Syncer {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) mirror: Arc<Mirror>,
    pub(super) skew: Histogram,
    /// Syncs that may still start a Job.
    pub(super) starting: AtomicUsize,
}

/// A sync that may still start a Job, for as long as it lives.
struct Starting<'a>(&'a AtomicUsize);

impl<'a> Starting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a CronJob could not be brought up to date. It will be tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("read cronjob `{0}`")]
    ReadCronJob(Box<str>, #[source] Error),
    #[error("read job `{0}`")]
    ReadJob(Box<str>, #[source] Error),
    #[error("write the status of cronjob `{0}`")]
    Status(Box<str>, #[source] Error),
    #[error("delete job `{0}`")]
    Delete(Box<str>, #[source] Error),
    #[error("could not replace job `{0}`")]
    Replace(Box<str>, #[source] Error),
    #[error("create job `{0}`")]
    Create(Box<str>, #[source] Error),
    #[error("make a job from the template of cronjob `{0}`")]
    Template(Box<str>, #[source] TemplateError),
}

impl Syncer {
    pub(super) async fn sync(&self, uid: &Uid) -> Result<(), SyncError> {
        let starting = Starting::new(&self.starting);
        self.ask_for_created(uid).await?;
        let (cron_job, jobs) = {
            let seen = self.mirror.jobs_seen.resource_version();
            let mut cache = self.mirror.cache.lock();
            let Some(cron_job) = cache.cron_job(uid) else { return Ok(()) };
            (cron_job, cache.jobs_of(uid, seen))
        };
        let now = self.mirror.environment.now();
        let Some((mut cron_job, gone)) = self.ask(cron_job, &jobs, now).await? else { return Ok(()) };

        let Observation { mut draft, events, deletions, more_deletions } =
            observe(&self.snapshot(&cron_job, &jobs, now), &gone);
        self.tell(&cron_job, &events);
        if !deletions.is_empty() && draft.is_changed() {
            cron_job = self.write(&cron_job, &mut draft).await?;
        }
        let tidied = self.tidy(&cron_job, &deletions).await;

        let decision = decide(&self.snapshot(&cron_job, &jobs, now), &mut draft);
        self.tell(&cron_job, &decision.events);
        let (starts, wake) = match decision.next {
            Next::Rest { wake } => (false, Ok(wake)),
            Next::Start(start) => (true, self.start(&cron_job, &start, &mut draft).await.map(|()| start.wake)),
            Next::Impossible(error) => (false, Err(SyncError::Template(cron_job.name.clone(), error))),
        };
        drop(starting);
        if starts {
            self.let_others_start().await;
        }
        // Also after a failure: what was done before it is true (CJ-12).
        if draft.is_changed() {
            self.write(&cron_job, &mut draft).await?;
        }
        if let Some(wake) = wake? {
            self.mirror.wake(uid, wake);
        }
        if more_deletions {
            self.mirror.queue.add(uid.clone());
        }
        tidied
    }

    /// Many CronJobs are due in the same second. Their Jobs are started before the first status is written: being late is
    /// noticed, a status is not.
    async fn let_others_start(&self) {
        let rush = async {
            while !self.mirror.queue.is_empty() || self.starting.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(RUSH_LOOK).await;
            }
        };
        tokio::time::timeout(RUSH_MAX, rush).await.ok();
    }

    fn snapshot<'a>(&'a self, cron_job: &'a CronJobView, jobs: &'a [Arc<JobView>], now: Timestamp) -> Snapshot<'a> {
        Snapshot { cron_job, jobs, now, local_zone: &self.mirror.local_zone }
    }

    /// A creation whose answer was lost may have made a Job, and the watch may not show it before the next one is due,
    /// which would then be started beside it (INV-36). So it is asked for before anything is decided.
    async fn ask_for_created(&self, uid: &Uid) -> Result<(), SyncError> {
        let unsettled = {
            let cache = self.mirror.cache.lock();
            cache.cron_job(uid).zip(cache.unsettled_creation(uid))
        };
        let Some((cron_job, name)) = unsettled else { return Ok(()) };
        let found = self.job(&cron_job.namespace, &name).await;
        let found = found.map_err(|error| SyncError::ReadJob(name, error))?;
        let mut cache = self.mirror.cache.lock();
        cache.settle_creation(uid);
        if let Some(job) = found.filter(|job| job.owner.as_ref() == Some(uid)) {
            cache.note_job(job, Origin::Answer);
        }
        Ok(())
    }

    /// Asks the server where the caches contradict each other. `None` if there is no such CronJob any more.
    async fn ask(
        &self,
        mut cron_job: Arc<CronJobView>,
        jobs: &[Arc<JobView>],
        now: Timestamp,
    ) -> Result<Option<(Arc<CronJobView>, HashSet<Uid>)>, SyncError> {
        let mut asked = questions(&self.snapshot(&cron_job, jobs, now));
        if asked.cron_job || self.starts_unconfirmed(&self.snapshot(&cron_job, jobs, now)) {
            let path = Resource::CRON_JOBS.object(&cron_job.namespace, &cron_job.name);
            let fresh: CronJobView = match requests::get(&self.client, &path).await {
                Ok(fresh) => fresh,
                Err(error) if requests::is_not_found(&error) => return Ok(None),
                Err(error) => return Err(SyncError::ReadCronJob(cron_job.name.clone(), error)),
            };
            if fresh.uid != cron_job.uid {
                return Ok(None);
            }
            // Not only for this sync: upstream still writes the status from its old copy (CJ-71).
            cron_job = self.note(fresh);
            self.mirror.cache.lock().note_confirmed(&cron_job.uid);
            asked = questions(&self.snapshot(&cron_job, jobs, now));
        }
        let mut gone = HashSet::new();
        for entry in asked.jobs {
            let exists = self.job(&entry.namespace, &entry.name).await;
            let exists = exists.map_err(|error| SyncError::ReadJob(entry.name.clone(), error))?;
            // Upstream lists one that was given away for as long as it exists (INV-38).
            let is_ours = |job: JobView| job.uid == entry.uid && job.owner.as_ref() == Some(&cron_job.uid);
            if !exists.is_some_and(is_ours) {
                gone.insert(entry.uid);
            }
        }
        Ok(Some((cron_job, gone)))
    }

    /// Whether a Job is about to be started by what a list or a watch has shown and the server has not confirmed. After a
    /// restart the first list can be older than what the last process, or a user, did (P-9).
    fn starts_unconfirmed(&self, snapshot: &Snapshot<'_>) -> bool {
        if self.mirror.cache.lock().is_confirmed(&snapshot.cron_job.uid) {
            return false;
        }
        let mut draft = observe(snapshot, &HashSet::new()).draft;
        matches!(decide(snapshot, &mut draft).next, Next::Start(_))
    }

    async fn job(&self, namespace: &str, name: &str) -> Result<Option<JobView>, Error> {
        match requests::get(&self.client, &Resource::JOBS.object(namespace, name)).await {
            Ok(job) => Ok(Some(job)),
            Err(error) if requests::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the status; the answer is the CronJob as it is now. If it was changed in between, a later sync sees that.
    async fn write(&self, cron_job: &CronJobView, draft: &mut Draft) -> Result<Arc<CronJobView>, SyncError> {
        let path = Resource::CRON_JOBS.subresource(&cron_job.namespace, &cron_job.name, "status");
        let object = with_status(cron_job, draft.status());
        let written: CronJobView = match requests::replace(&self.client, &path, &object).await {
            Ok(written) => written,
            Err(error) => return Err(SyncError::Status(cron_job.name.clone(), error)),
        };
        self.tell(cron_job, &draft.recorded());
        Ok(self.note(written))
    }

    fn note(&self, cron_job: CronJobView) -> Arc<CronJobView> {
        let cron_job = Arc::new(cron_job);
        let mut cache = self.mirror.cache.lock();
        // A CronJob that the watch has seen go must not come back.
        if cache.cron_job(&cron_job.uid).is_some() {
            cache.note_cron_job(cron_job.clone());
        }
        cron_job
    }

    /// Deletes Jobs that are history (CJ-14). One that cannot be deleted does not keep the others, nor the schedule
    /// (CJ-15).
    async fn tidy(&self, cron_job: &CronJobView, jobs: &[Arc<JobView>]) -> Result<(), SyncError> {
        let mut outcome = Ok(());
        for job in jobs {
            if let Err(error) = self.delete(cron_job, job).await {
                outcome = Err(SyncError::Delete(job.name.clone(), error));
            }
        }
        outcome
    }

    /// Upstream deletes by name alone; the uid makes sure that it is the Job that was judged, and the version that it is
    /// still the CronJob's (INV-39): with `Orphan` its Jobs are let go while it is still there.
    async fn delete(&self, cron_job: &CronJobView, job: &JobView) -> Result<(), Error> {
        let (name, uid) = (&*job.name, &job.uid);
        let preconditions =
            Preconditions { uid: Some(uid.to_string()), resource_version: Some(job.resource_version.to_string()) };
        let policy = if is(Mutation::F08) { "Orphan" } else { "Background" };
        let options = DeleteOptions { preconditions, propagation_policy: Some(policy), ..DeleteOptions::default() };
        match requests::delete(&self.client, &Resource::JOBS.object(&cron_job.namespace, name), &options).await {
            Ok(()) => self.tell(cron_job, &[Event::deleted(name)]),
            // Gone, or another Job has the name: there is nothing left to delete.
            Err(error) if requests::is_other_uid(&error) => {}
            // What counts as gone is forgotten, so it is worth asking once more.
            Err(error) if requests::is_not_found(&error) && self.is_gone(cron_job, name, uid).await => {}
            // It has changed: it is judged anew, and nobody needs to be told.
            Err(error) if requests::is_conflict(&error) => return Err(error),
            Err(error) => {
                self.tell(cron_job, &[Event::delete_failed(&text_of(&error))]);
                return Err(error);
            }
        }
        self.mirror.cache.lock().note_deletion(uid);
        Ok(())
    }

    async fn is_gone(&self, cron_job: &CronJobView, name: &str, uid: &Uid) -> bool {
        let found = self.job(&cron_job.namespace, name).await;
        found.is_ok_and(|found| found.is_none_or(|job| job.uid != *uid))
    }

    async fn start(&self, cron_job: &CronJobView, start: &Start, draft: &mut Draft) -> Result<(), SyncError> {
        for entry in &start.replace {
            self.replace(cron_job, entry, draft).await?;
        }
        let path = Resource::JOBS.collection(Some(&cron_job.namespace));
        self.mirror.cache.lock().note_creation(&cron_job.uid, &start.name);
        match requests::create::<JobView>(&self.client, &path, &start.object).await {
            Ok(job) => {
                if let Some(created) = job.created {
                    self.skew.observe(created.duration_since(start.scheduled).as_secs_f64());
                }
                tracing::info!(namespace = &*cron_job.namespace, job = start.name, "started by its schedule");
                self.tell(cron_job, &[Event::created(&start.name)]);
                start.created(draft, job.reference());
                let mut cache = self.mirror.cache.lock();
                cache.settle_creation(&cron_job.uid);
                cache.note_job(job, Origin::Answer);
                Ok(())
            }
            Err(error) if requests::is_already_exists(&error) => self.exists(cron_job, start, draft).await,
            Err(error) => {
                if requests::is_refusal(&error) {
                    self.mirror.cache.lock().settle_creation(&cron_job.uid);
                }
                // In a namespace that goes away nothing can be created, and nobody is left to be told.
                if !requests::is_namespace_terminating(&error) {
                    self.tell(cron_job, &[Event::create_failed(&text_of(&error))]);
                }
                Err(SyncError::Create(start.name.as_str().into(), error))
            }
        }
    }

    /// CJ-26.
    async fn replace(&self, cron_job: &CronJobView, entry: &ActiveJob, draft: &mut Draft) -> Result<(), SyncError> {
        let is_ours = |job: &JobView| job.uid == entry.uid && job.owner.as_ref() == Some(&cron_job.uid);
        match self.job(&cron_job.namespace, &entry.name).await {
            Ok(Some(job)) if is_ours(&job) => {
                // The watch has yet to show that it has ended: it makes room by itself, and is history (INV-39).
                if let Some(ending) = job.ending {
                    finished(draft, &job, ending, &cron_job.spec);
                    return Ok(());
                }
                let deleted = self.delete(cron_job, &job).await;
                deleted.map_err(|error| SyncError::Replace(entry.name.clone(), error))?;
            }
            Ok(_) => draft.tell(Event::missing(&entry.name)),
            Err(error) => {
                self.tell(cron_job, &[Event::get_failed(&text_of(&error))]);
                return Err(SyncError::ReadJob(entry.name.clone(), error));
            }
        }
        draft.unlist(&entry.uid);
        Ok(())
    }

    /// CJ-27: there is a Job of that name. Ours, if an answer got lost; then it is written down.
    async fn exists(&self, cron_job: &CronJobView, start: &Start, draft: &mut Draft) -> Result<(), SyncError> {
        let found = self.job(&cron_job.namespace, &start.name).await;
        let found = found.map_err(|error| SyncError::ReadJob(start.name.as_str().into(), error))?;
        self.mirror.cache.lock().settle_creation(&cron_job.uid);
        if let Some(job) = found {
            match start.exists(draft, &job, &cron_job.uid) {
                Existing::Ours => {
                    self.mirror.cache.lock().note_job(job, Origin::Answer);
                }
                Existing::Foreign => {
                    tracing::warn!(
                        namespace = &*cron_job.namespace,
                        job = start.name,
                        "a job of somebody else has the name"
                    );
                }
            }
            return Ok(());
        }
        // It went away between the two requests; the next look finds the name free.
        self.mirror.queue.add(cron_job.uid.clone());
        Ok(())
    }

    fn tell(&self, cron_job: &CronJobView, events: &[Event]) {
        events.iter().for_each(|event| tell(&self.recorder, cron_job, event));
    }
}

/// An API error in the server's own words, as events quote them.
fn text_of(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
