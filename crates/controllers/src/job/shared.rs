//! What the watches and the workers share: every Job, the ledger of pods, and the queues.
//!
//! One lock protects all of it. It is held for single events and for planning, never across a call.

use std::{cmp::Ordering, collections::HashMap, sync::Arc, time::Duration};

use batch_plan::job::{
    Act, CallOutcome, Census, Ledger, Plan, PodAction, PodRef, ReleaseOutcome, Settings, Snapshot, Uid, owns, plan,
};
use batch_types::job::is_finished;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use parking_lot::Mutex;
use teeth::{Mutation, is};
use tokio::time::Instant;

use super::{
    calls::Listed,
    metrics::JobMetrics,
    orphans::Orphan,
    pacing::{News, Pace, Prospect},
};
use crate::runtime::{Environment, Metrics, WorkQueue};

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) environment: Environment,
    pub(super) metrics: JobMetrics,
    pub(super) jobs: WorkQueue<Uid>,
    pub(super) orphans: WorkQueue<Orphan>,
    pub(super) state: Mutex<State>,
    /// When this process began.
    started: Timestamp,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ledger: Ledger,
    pub(super) jobs: HashMap<Uid, Entry>,
    /// Whether the first list of Jobs is complete.
    pub(super) listed: bool,
    /// The version of pods at some moment since this process began. A cache that has come as far shows whatever an earlier
    /// process did to them.
    present: Option<u64>,
}

/// What is remembered of a Job besides its pods.
#[derive(Debug)]
pub(super) struct Entry {
    /// The newest state that the watch or the answer to a write has shown.
    pub(super) job: Arc<Job>,
    pace: Pace,
    /// Whether it may be newer than we were shown: an earlier process has worked on it, or an answer got lost.
    unconfirmed: bool,
    /// Whether an earlier process may have worked on it, and nobody has asked since.
    inherited: bool,
    /// Whether an earlier process may have made pods of it that the cache does not show.
    may_miss_pods: bool,
    /// The version that the cache of pods must have reached for the next plan (JC-411).
    pods_needed: u64,
    /// The version of the Job in which somebody else's status was seen. What they did to pods came before it.
    others_wrote: u64,
    /// How many pods were last created without a refusal: the size of the next first batch.
    created: usize,
    /// Whether the last sync left numbers of the status to the next.
    deferred: bool,
    /// Status writes in a row that met another writer.
    pub(super) conflicts: u32,
    /// Whether the log says that the Job is not ours.
    pub(super) told_skip: bool,
}

impl Entry {
    /// `unconfirmed` if an earlier process may have known the Job.
    pub(super) fn new(job: Job, unconfirmed: bool) -> Self {
        Self {
            job: job.into(),
            pace: Pace::default(),
            unconfirmed,
            inherited: unconfirmed,
            may_miss_pods: unconfirmed,
            pods_needed: 0,
            others_wrote: 0,
            created: 0,
            deferred: false,
            conflicts: 0,
            told_skip: false,
        }
    }

    /// A newer state of the Job that is not the answer to a write of ours. If its status is another one, then another
    /// process works on the Job, or a call arrived that we had given up: both may have counted pods that the cache of
    /// pods still shows as they were before (INV-1, P-4, P-12).
    pub(super) fn show(&mut self, job: Job) {
        if job.status != self.job.status {
            self.others_wrote = version_of(&job);
        }
        self.job = job.into();
    }
}

/// How a sync begins.
#[derive(Debug)]
pub(super) enum Beginning {
    /// The Job is gone.
    Gone,
    /// It is not certain that the Job is as it was shown: ask for it, and tell the answer to [`Shared::confirm`].
    Unconfirmed(Arc<Job>),
    /// The plan is to create pods, and an earlier process may have done so: ask for the Job's pods, and tell
    /// [`Shared::inherit`].
    Inherited(Arc<Job>),
    /// The cache does not show our own writes yet (JC-412).
    Stale {
        read: u64,
        written: u64,
    },
    /// The cache may not show yet what somebody else did: ask for the Job's pods, and tell [`Shared::pods_listed`].
    Overtaken {
        job: Arc<Job>,
        read: u64,
        written: u64,
    },
    Planned(Arc<Job>, Plan),
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        environment: Environment,
        metrics: &Metrics,
        jobs: WorkQueue<Uid>,
        orphans: WorkQueue<Orphan>,
    ) -> Self {
        let state = State { ledger: Ledger::new(settings.gates), jobs: HashMap::new(), listed: false, present: None };
        let (state, metrics, started) = (Mutex::new(state), JobMetrics::new(metrics), environment.now());
        Self { settings, environment, metrics, jobs, orphans, state, started }
    }

    /// Plans for a Job. `pods_read` is how far the cache of pods has come.
    pub(super) fn begin(&self, uid: &Uid, pods_read: u64) -> Beginning {
        let mut state = self.state.lock();
        let State { ledger, jobs, present, .. } = &mut *state;
        let (Some(entry), Some(tally)) = (jobs.get_mut(uid), ledger.tally_mut(uid)) else { return Beginning::Gone };
        entry.pace.begin();
        if entry.unconfirmed && !is_finished(&entry.job) && owns(&entry.job, &self.settings) {
            return Beginning::Unconfirmed(entry.job.clone());
        }
        if entry.pods_needed > pods_read {
            return Beginning::Stale { read: pods_read, written: entry.pods_needed };
        }
        if entry.others_wrote > pods_read && !is_finished(&entry.job) && owns(&entry.job, &self.settings) {
            return Beginning::Overtaken { job: entry.job.clone(), read: pods_read, written: entry.others_wrote };
        }
        (entry.pods_needed, entry.others_wrote) = (0, 0);
        // Upstream starts every round of creations with a single pod. Where the last round went through there is no need
        // to find out again whether pods are refused.
        let batch = self.settings.slow_start_batch.max(entry.created);
        let settings = Settings { slow_start_batch: batch, ..self.settings.clone() };
        let now = self.environment.now();
        tally.tell_time(now);
        tally.cache_reached(pods_read);
        let plan = plan(&Snapshot { job: &entry.job, tally, now, settings: &settings });
        entry.may_miss_pods &= present.is_none_or(|present| present > pods_read);
        if entry.may_miss_pods && plan.creates() {
            return Beginning::Inherited(entry.job.clone());
        }
        Beginning::Planned(entry.job.clone(), plan)
    }

    /// The server was asked for a Job that an earlier process may have known, or whose last write had no answer. What
    /// another process did to pods came before the version of the Job that is current now; a cache of pods that has not
    /// come that far would have them done again (REG-H09).
    pub(super) fn confirm(&self, uid: &Uid, mut fresh: Job) {
        fresh.metadata.managed_fields = None;
        let mut state = self.state.lock();
        let Some(entry) = state.jobs.get_mut(uid) else { return };
        let version = version_of(&fresh);
        entry.unconfirmed = false;
        let inherited = std::mem::take(&mut entry.inherited);
        // A Job that no controller has written to has nothing behind it.
        if inherited
            && !is(Mutation::H09)
            && fresh.status.as_ref().is_some_and(|status| *status != JobStatus::default())
        {
            entry.others_wrote = entry.others_wrote.max(version);
        }
        if version > version_of(&entry.job) {
            entry.show(fresh);
            self.observe(&mut state, uid);
        }
    }

    /// The server was asked for the pods of a Job that an earlier process may have known, because some are missing. That
    /// process may have made them and died before it said so; and a first list that is older shows neither them nor those
    /// whose names they avoided (INV-17, P-9). The cache has to show what the server has said; then, and for all other Jobs
    /// as soon as it has come as far, nothing of that process is left to come.
    pub(super) fn inherit(&self, uid: &Uid, listed: Listed) {
        let at = match &listed {
            Listed::All(census) => census.at,
            Listed::TooMany(at) => *at,
        };
        {
            let mut state = self.state.lock();
            state.present.get_or_insert(at);
            let Some(entry) = state.jobs.get_mut(uid) else { return };
            entry.may_miss_pods = false;
            entry.others_wrote = entry.others_wrote.max(at);
        }
        if let Listed::All(census) = listed {
            self.pods_listed(uid, at, census);
        }
    }

    /// The server was asked for the pods of a Job that was overtaken in version `written`. Few changes of pods concern one
    /// Job, so a cache that has seen these pods as they are has seen enough, long before a bookmark says that it has come
    /// further.
    pub(super) fn pods_listed(&self, uid: &Uid, written: u64, census: Census) {
        let mut state = self.state.lock();
        let State { ledger, jobs, .. } = &mut *state;
        let (Some(entry), Some(tally)) = (jobs.get_mut(uid), ledger.tally_mut(uid)) else { return };
        // What was written since then may have come after the list.
        let is_current = entry.others_wrote == written;
        // Nobody knows in which version one went that the cache still shows; the watch is about to tell.
        if is_current && tally.uids().all(|pod| census.pods.contains_key(pod)) {
            entry.others_wrote = census.newest().min(written);
            tally.take_census(census);
        }
    }

    /// Whether an earlier process may have known a Job that is seen for the first time.
    pub(super) fn may_be_known(&self, state: &State, job: &Job) -> bool {
        // A list that is older than the Job leaves it to the watch. Creation times have whole seconds.
        let created = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
        !state.listed || created.is_none_or(|created| created <= self.started)
    }

    /// Nobody knows whether a status write landed. If it did, and said that the Job ends, then a plan that goes by the
    /// older version, but by newer pods, could create pods again (INV-11).
    pub(super) fn doubt(&self, uid: &Uid) {
        if let Some(entry) = self.state.lock().jobs.get_mut(uid) {
            entry.unconfirmed = true;
        }
    }

    /// A sync has ended.
    pub(super) fn end(&self, uid: &Uid, took: Duration, failed: bool) {
        let mut state = self.state.lock();
        let news = state.jobs.get_mut(uid).and_then(|entry| entry.pace.end(took, Instant::now()));
        if let Some(news) = news.filter(|news| !(failed && *news == News::Own)) {
            self.notice(&mut state, uid, news);
        }
    }

    /// There is news about a Job: queue it, soon or at once.
    pub(super) fn notice(&self, state: &mut State, uid: &Uid, news: News) {
        let State { ledger, jobs, .. } = state;
        let (Some(entry), Some(tally)) = (jobs.get_mut(uid), ledger.tally(uid)) else { return };
        let prospect = match tally.ended() {
            _ if tally.is_quiet() => Prospect::Nothing,
            0 => Prospect::Pods,
            ended if ended < self.settings.uncounted_pods_max / 2 => Prospect::Ends,
            _ => Prospect::Nothing,
        };
        let delay = entry.pace.notice(news, prospect, self.settings.sync_batch_period, Instant::now());
        if let Some(delay) = delay {
            self.jobs.add_after(uid.clone(), delay);
        }
    }

    /// Shows the ledger the newest state of a Job.
    pub(super) fn observe(&self, state: &mut State, uid: &Uid) {
        let State { ledger, jobs, .. } = state;
        if let Some(entry) = jobs.get(uid) {
            ledger.observe_job(&entry.job, self.environment.now());
        }
    }

    /// The answer to a status write: the next plan need not wait for the watch to show it.
    pub(super) fn wrote_job(&self, uid: &Uid, job: Job) -> Arc<Job> {
        let mut state = self.state.lock();
        // A Job that is gone must not come back.
        let Some(entry) = state.jobs.get_mut(uid) else { return job.into() };
        entry.conflicts = 0;
        entry.deferred = false;
        // It was written on top of what was planned for, so up to here nobody else wrote: what the watch has shown was
        // this very write.
        if entry.others_wrote <= version_of(&job) {
            entry.others_wrote = 0;
        }
        match version_of(&job).cmp(&version_of(&entry.job)) {
            Ordering::Less => return job.into(),
            Ordering::Equal if !is(Mutation::C24) => {
                entry.pace.wrote_it();
                return job.into();
            }
            Ordering::Equal | Ordering::Greater => {}
        }
        entry.job = job.into();
        let job = entry.job.clone();
        self.observe(&mut state, uid);
        self.notice(&mut state, uid, News::Own);
        job
    }

    /// Whether the write of a status in which only numbers of live pods have changed can wait for the next sync. It can
    /// if that is about to come, and if not even the last one was written.
    pub(super) fn defers(&self, uid: &Uid) -> bool {
        let mut state = self.state.lock();
        let Some(entry) = state.jobs.get_mut(uid) else { return false };
        entry.deferred = !entry.deferred && entry.pace.has_news();
        entry.deferred
    }

    /// A status write met another writer; says how often that happened in a row.
    pub(super) fn met_conflict(&self, uid: &Uid) -> u32 {
        let mut state = self.state.lock();
        let Some(entry) = state.jobs.get_mut(uid) else { return 0 };
        entry.conflicts = entry.conflicts.saturating_add(1);
        entry.conflicts
    }

    /// Pods got another owner; the next plan must have seen that.
    pub(super) fn wrote_pods(&self, uid: &Uid, version: u64) {
        if let Some(entry) = self.state.lock().jobs.get_mut(uid) {
            entry.pods_needed = entry.pods_needed.max(version);
        }
    }

    pub(super) fn note_verdict(&self, uid: &Uid, job: &Job, act: &Act) {
        if let Some(tally) = self.state.lock().ledger.tally_mut(uid) {
            tally.note_verdict(job, act);
        }
    }

    pub(super) fn note_action(&self, uid: &Uid, action: &PodAction, outcomes: &[CallOutcome]) {
        let now = self.environment.now();
        let mut state = self.state.lock();
        if let Some(tally) = state.ledger.tally_mut(uid) {
            tally.note_action(action, outcomes, now);
        }
        if let (PodAction::Create { pods, .. }, Some(entry)) = (action, state.jobs.get_mut(uid)) {
            let all_done = outcomes.iter().all(|outcome| *outcome == CallOutcome::Done);
            entry.created = if all_done { entry.created.max(pods.len()) } else { 0 };
        }
    }

    pub(super) fn note_release(&self, uid: &Uid, pods: &[PodRef], outcome: &ReleaseOutcome) {
        if let Some(tally) = self.state.lock().ledger.tally_mut(uid) {
            tally.note_release(pods, outcome);
        }
    }

    pub(super) fn note_finished(&self, uid: &Uid) {
        if let Some(tally) = self.state.lock().ledger.tally_mut(uid) {
            tally.note_finished();
        }
    }

    /// Whether a Job that is gone counts for one of its name: never, but for an old bug.
    pub(super) fn knows_namesake(&self, job: &Job) -> bool {
        let is_namesake = |other: &Job| other.metadata.name == job.metadata.name && uid_of(other) != uid_of(job);
        is(Mutation::C13) && self.state.lock().jobs.values().any(|entry| is_namesake(&entry.job))
    }

    /// Whether the log has to say that a Job is left alone: once is enough.
    pub(super) fn first_skip(&self, uid: &Uid) -> bool {
        self.state.lock().jobs.get_mut(uid).is_some_and(|entry| !std::mem::replace(&mut entry.told_skip, true))
    }
}

pub(super) fn uid_of(job: &Job) -> Uid {
    Uid::new(job.metadata.uid.as_deref().unwrap_or(""))
}

/// 0 if it is not a number; such versions cannot be compared (JC-412).
pub(super) fn version_of(job: &Job) -> u64 {
    job.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}
