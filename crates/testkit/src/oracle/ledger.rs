//! The true state at a revision, and what is remembered of every pod and Job that ever was.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    history::{Change, Step},
    views::{CronJob, Job, Pod, Side},
};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) pods: BTreeMap<String, PodRecord>,
    pub(super) jobs: BTreeMap<String, JobRecord>,
    pub(super) cron_jobs: BTreeMap<String, CronJobRecord>,
    /// Jobs that a call has written to, or to a pod of them, when its sender had given it up.
    pub(super) late: BTreeSet<String>,
}

/// What is known of one pod, by uid.
#[derive(Debug)]
pub(super) struct PodRecord {
    pub(super) name: String,
    /// Its last state.
    pub(super) last: Arc<Pod>,
    pub(super) gone: bool,
    pub(super) by: &'static str,
    pub(super) created_revision: u64,
    pub(super) created_at: Option<Timestamp>,
    /// The Job that controls it, or did last.
    pub(super) job: Option<String>,
    /// Phases are not taken back, so the first end is the end.
    pub(super) ended: Option<Side>,
    pub(super) ended_at: Option<Timestamp>,
    /// Whether its status changed after its end, and when it last did, if that is known.
    pub(super) touched_up: Option<Option<Timestamp>>,
    /// Whether its labels changed, and when they last did, if that is known.
    pub(super) relabelled: Option<Option<Timestamp>>,
    /// Whether it lost the Job that controlled it, and when.
    pub(super) disowned: Option<Option<Timestamp>>,
    /// Whether it was released before it ended, because its Job had succeeded without it.
    pub(super) let_go: bool,
    pub(super) ever_tracked: bool,
    pub(super) ever_surplus: bool,
    /// Whether it was marked as surplus.
    pub(super) marked: Option<Mark>,
    /// Whether it was being deleted, or gone, before it ended.
    pub(super) deleted_first: bool,
    /// Since when it is being deleted, if that is known.
    pub(super) deleting_at: Option<Timestamp>,
    /// The Job controller ended it in expectation of a verdict.
    pub(super) ended_by_us: Option<Ending>,
    pub(super) listed: Option<Side>,
    pub(super) counted: Option<Side>,
    /// Whether it was released because its index was on record; a smaller size may take that off later.
    pub(super) recorded: bool,
    /// Whether it was released without being counted, and rightly so.
    pub(super) excluded: bool,
    /// Whether a user took the finalizer off, and when.
    pub(super) stripped: Option<Option<Timestamp>>,
}

/// How the Job controller ended a pod whose Job had no verdict yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) revision: u64,
    pub(super) at: Option<Timestamp>,
    /// The condition that its Job is to get.
    pub(super) verdict: &'static str,
}

/// How a pod came to be marked as surplus.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) revision: u64,
    pub(super) at: Option<Timestamp>,
    /// Whether somebody had deleted it before.
    pub(super) was_deleting: bool,
}

/// What is known of one Job, by uid.
#[derive(Debug)]
pub(super) struct JobRecord {
    pub(super) name: String,
    pub(super) last: Arc<Job>,
    pub(super) gone: bool,
    /// Values of the spec and until when they held, newest last; the present one is in `last`.
    pub(super) earlier: Vec<(Arc<Job>, Option<Timestamp>)>,
    /// Since when it is being deleted or gone.
    pub(super) leaving_at: Option<Timestamp>,
    /// The CronJob that it belonged to last and does not any more, and since when.
    pub(super) let_go: Option<(String, Option<Timestamp>)>,
    pub(super) suspended_at: Option<Timestamp>,
    pub(super) resumed_at: Option<Timestamp>,
    pub(super) interim_revision: Option<u64>,
    pub(super) finished_revision: Option<u64>,
    pub(super) completions_max: u64,
    /// Indexes that a pod of the Job succeeded with.
    pub(super) succeeded_indexes: BTreeSet<u32>,
    pub(super) restarts: Restarts,
}

/// How often containers of a Job's pods were restarted in place: the sum over the pods of one moment. It falls when a pod
/// ends, and when a report of its node is overtaken by a later one.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    now: u64,
    /// Earlier sums and until when they held, newest last.
    earlier: Vec<(u64, Option<Timestamp>)>,
}

#[derive(Debug)]
pub(super) struct CronJobRecord {
    pub(super) name: String,
    pub(super) last: Arc<CronJob>,
    /// Values of the spec and until when they held, newest last; the present one is in `last`.
    pub(super) earlier: Vec<(Arc<CronJob>, Option<Timestamp>)>,
    pub(super) gone: bool,
    /// Since when it is being deleted or gone.
    pub(super) leaving_at: Option<Timestamp>,
    /// Scheduled times that were served.
    pub(super) served: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn apply_pod(&mut self, change: &Change, step: &Step<Pod>) {
        self.apply_restarts(change, step);
        let Some(state) = step.after.as_ref().or(step.before.as_ref()) else { return };
        let record = self.pods.entry(state.metadata.uid.clone()).or_insert_with(|| PodRecord::new(state, change));
        record.gone = step.after.is_none();
        if record.ended.is_some() && record.last.status != state.status {
            record.touched_up = Some(change.at);
        }
        if record.last.metadata.labels != state.metadata.labels {
            record.relabelled = Some(change.at);
        }
        if record.last.job().is_some() && state.job().is_none() {
            record.disowned = Some(change.at);
        }
        record.last = state.clone();
        record.job = state.job().map(str::to_owned).or(record.job.take());
        record.ever_tracked |= state.is_tracked();
        if state.is_surplus() && !record.ever_surplus {
            let was_deleting = record.deleting_at.is_some();
            record.marked = Some(Mark { revision: change.revision, at: change.at, was_deleting });
        }
        record.ever_surplus |= state.is_surplus();
        if record.ended.is_none() && state.ended().is_some() {
            (record.ended, record.ended_at) = (state.ended(), change.at);
        }
        record.deleted_first |= record.ended.is_none() && (state.metadata.is_deleting() || record.gone);
        if record.deleting_at.is_none() && (state.metadata.is_deleting() || record.gone) {
            record.deleting_at = change.at;
        }
        if let (Some(Side::Succeeded), Some(index), Some(job)) = (state.ended(), state.index(), state.job())
            && let Some(job) = self.jobs.get_mut(job)
        {
            job.succeeded_indexes.insert(index);
        }
    }

    /// What the pod adds to the restarts of its Job. An owner may change, and so may what is left of the old one.
    fn apply_restarts(&mut self, change: &Change, step: &Step<Pod>) {
        let owners = [&step.before, &step.after].map(|pod| pod.as_ref().and_then(|pod| pod.job()));
        let owners: BTreeSet<&str> = owners.into_iter().flatten().collect();
        for uid in owners {
            let Some(job) = self.jobs.get_mut(uid) else { continue };
            let ours = |pod: &&Arc<Pod>| pod.job() == Some(uid) && job.last.selects(pod);
            let share = |pod: &Option<Arc<Pod>>| pod.as_ref().filter(ours).map_or(0, |pod| pod.restarts());
            let (before, after) = (share(&step.before), share(&step.after));
            job.restarts.change(before, after, change.at);
        }
    }

    pub(super) fn apply_job(&mut self, change: &Change, step: &Step<Job>) {
        let Some(state) = step.after.as_ref().or(step.before.as_ref()) else { return };
        let record = self.jobs.entry(state.metadata.uid.clone()).or_insert_with(|| JobRecord::new(state));
        if record.last.spec != state.spec {
            if record.last.spec.suspend != state.spec.suspend {
                let at = if state.spec.suspend { &mut record.suspended_at } else { &mut record.resumed_at };
                *at = change.at;
            }
            record.earlier.push((record.last.clone(), change.at));
        }
        if let Some(owner) = record.last.cron_job().filter(|owner| state.cron_job() != Some(owner)) {
            record.let_go = Some((owner.to_owned(), change.at));
        }
        record.gone = step.after.is_none();
        record.last = state.clone();
        record.completions_max = record.completions_max.max(state.spec.completions.unwrap_or(0));
        if record.leaving_at.is_none() && (record.gone || state.metadata.is_deleting()) {
            record.leaving_at = change.at;
        }
        if record.interim_revision.is_none() && state.status.verdict().is_some() {
            record.interim_revision = Some(change.revision);
        }
        if record.finished_revision.is_none() && state.status.finished().is_some() {
            record.finished_revision = Some(change.revision);
        }
    }

    pub(super) fn apply_cron_job(&mut self, change: &Change, step: &Step<CronJob>) {
        let Some(state) = step.after.as_ref().or(step.before.as_ref()) else { return };
        let record = self.cron_jobs.entry(state.metadata.uid.clone()).or_insert_with(|| CronJobRecord {
            name: state.metadata.name.clone(),
            last: state.clone(),
            earlier: Vec::new(),
            gone: false,
            leaving_at: None,
            served: BTreeSet::new(),
        });
        if record.last.spec != state.spec {
            record.earlier.push((record.last.clone(), change.at));
        }
        record.gone = step.after.is_none();
        if record.leaving_at.is_none() && (record.gone || state.metadata.is_deleting()) {
            record.leaving_at = change.at;
        }
        record.last = state.clone();
    }

    /// The Job of this uid, if it is there.
    pub(super) fn job(&self, uid: &str) -> Option<&JobRecord> {
        self.jobs.get(uid).filter(|job| !job.gone)
    }

    /// The pods that a Job controls, by uid.
    pub(super) fn pods_of<'a>(&'a self, job: &'a str) -> impl Iterator<Item = (&'a String, &'a PodRecord)> {
        self.pods.iter().filter(move |(_, pod)| !pod.gone && pod.last.job() == Some(job))
    }

    /// The pods that a Job ever controlled.
    pub(super) fn pods_ever_of<'a>(&'a self, job: &'a str) -> impl Iterator<Item = (&'a String, &'a PodRecord)> {
        self.pods.iter().filter(move |(_, pod)| pod.job.as_deref() == Some(job))
    }
}

impl PodRecord {
    fn new(pod: &Arc<Pod>, change: &Change) -> Self {
        Self {
            name: pod.metadata.name.clone(),
            last: pod.clone(),
            gone: false,
            by: change.by,
            created_revision: change.revision,
            created_at: change.at,
            job: None,
            ended: None,
            ended_at: None,
            touched_up: None,
            relabelled: None,
            disowned: None,
            let_go: false,
            ever_tracked: false,
            ever_surplus: false,
            marked: None,
            deleted_first: false,
            deleting_at: None,
            ended_by_us: None,
            listed: None,
            counted: None,
            recorded: false,
            excluded: false,
            stripped: None,
        }
    }

    /// Whether it is neither ended nor gone, whatever else.
    pub(super) fn is_live(&self) -> bool {
        !self.gone && self.last.ended().is_none()
    }
}

impl JobRecord {
    fn new(job: &Arc<Job>) -> Self {
        Self {
            name: job.metadata.name.clone(),
            last: job.clone(),
            gone: false,
            earlier: Vec::new(),
            leaving_at: None,
            let_go: None,
            suspended_at: None,
            resumed_at: None,
            interim_revision: None,
            finished_revision: None,
            completions_max: 0,
            succeeded_indexes: BTreeSet::new(),
            restarts: Restarts::default(),
        }
    }

    /// Whether a controller may believe that a CronJob still owns it.
    pub(super) fn was_of(&self, cron_job: &str, now: Option<Timestamp>, window: Duration) -> bool {
        let let_go = self.let_go.as_ref();
        let_go.is_some_and(|(owner, since)| owner == cron_job && is_recent(*since, now, window))
    }

    /// The states of its spec that a controller may believe to be the present one.
    pub(super) fn believable(&self, now: Option<Timestamp>, window: Duration) -> impl Iterator<Item = &Arc<Job>> {
        let recent = move |until: &Option<Timestamp>| is_recent(*until, now, window);
        let earlier = self.earlier.iter().filter(move |(_, until)| recent(until)).map(|(job, _)| job);
        earlier.chain(std::iter::once(&self.last))
    }
}

impl CronJobRecord {
    /// The fewest Jobs that a controller may believe it has to keep.
    pub(super) fn history_limit(&self, end: &str, now: Option<Timestamp>, window: Duration) -> usize {
        let earlier = self.earlier.iter().filter(|(_, until)| is_recent(*until, now, window)).map(|(spec, _)| spec);
        earlier.chain(std::iter::once(&self.last)).map(|one| one.spec.history_limit(end)).min().unwrap_or(usize::MAX)
    }
}

impl Restarts {
    fn change(&mut self, before: u64, after: u64, at: Option<Timestamp>) {
        if before != after {
            self.earlier.push((self.now, at));
            self.now = (self.now + after).saturating_sub(before);
        }
    }

    /// The most that a controller may take for the present sum.
    pub(super) fn believable(&self, now: Option<Timestamp>, window: Duration) -> u64 {
        let earlier = self.earlier.iter().filter(|(_, until)| is_recent(*until, now, window));
        earlier.map(|(sum, _)| *sum).max().unwrap_or(0).max(self.now)
    }
}

/// Whether something happened so shortly before `now` that it may be unknown. What has no time is taken for recent.
pub(super) fn is_recent(then: Option<Timestamp>, now: Option<Timestamp>, window: Duration) -> bool {
    match (then, now) {
        (Some(then), Some(now)) => {
            now.duration_since(then) <= jiff::SignedDuration::try_from(window).unwrap_or_default()
        }
        _ => true,
    }
}
