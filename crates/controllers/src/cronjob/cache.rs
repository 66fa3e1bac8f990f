//! What is known of CronJobs and their Jobs: the newest state that a watch or an answer has shown.
//!
//! Answers to our own writes are put in at once, so that the next decision never knows less than the last one did
//! (INV-36); the watch brings the same later and is recognised as no news. Should it bring a Job's end before the answer
//! to its creation is read, the answer must not bring the Job back to life for good.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use batch_plan::{
    cronjob::{CronJobView, JobView, with_status},
    job::Uid,
};
use teeth::{Mutation, is};

#[derive(Debug, Default)]
pub(super) struct Cache {
    cron_jobs: HashMap<Uid, Arc<CronJobView>>,
    /// CronJobs that this process has asked the server for.
    confirmed: HashSet<Uid>,
    /// The Job whose creation a CronJob has not been told the outcome of, by name.
    in_flight: HashMap<Uid, Box<str>>,
    /// Jobs by the CronJob that controls them.
    jobs: HashMap<Uid, HashMap<Uid, Known>>,
    /// The CronJob of each Job.
    owners: HashMap<Uid, Uid>,
}

#[derive(Debug)]
struct Known {
    job: Arc<JobView>,
    /// Who says so.
    origin: Origin,
}

/// Where the state of a Job is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Watch,
    /// An answer to a request, which the watch has yet to confirm.
    Answer,
}

/// What the cache did not know before.
#[derive(Debug)]
pub(super) enum News {
    Nothing,
    Added,
    Updated { old: Arc<CronJobView> },
}

impl Cache {
    pub(super) fn cron_job(&self, uid: &Uid) -> Option<Arc<CronJobView>> {
        self.cron_jobs.get(uid).cloned()
    }

    /// The Jobs that a CronJob controls, in the order of their names. The watch has shown everything up to `seen`.
    pub(super) fn jobs_of(&mut self, cron_job: &Uid, seen: u64) -> Vec<Arc<JobView>> {
        let known = || self.jobs.get(cron_job).into_iter().flat_map(HashMap::values);
        let passed = |known: &Known| {
            known.origin == Origin::Answer
                && known.job.resource_version.parse().is_ok_and(|version: u64| version <= seen)
        };
        let refuted: Vec<Uid> = known().filter(|known| passed(known)).map(|known| known.job.uid.clone()).collect();
        let mut jobs: Vec<_> = known().filter(|known| !passed(known)).map(|known| known.job.clone()).collect();
        refuted.iter().for_each(|uid| drop(self.forget_job(uid)));
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        jobs
    }

    pub(super) fn note_cron_job(&mut self, new: Arc<CronJobView>) -> News {
        match self.cron_jobs.entry(new.uid.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(new);
                News::Added
            }
            Entry::Occupied(known) if !is_newer(&new.resource_version, &known.get().resource_version) => News::Nothing,
            Entry::Occupied(mut known) => {
                let labels = |view: &CronJobView| {
                    with_status(view, &view.status)["spec"]["jobTemplate"]["metadata"]["labels"].take()
                };
                if is(Mutation::F12) && labels(&new) != labels(known.get()) {
                    self.jobs.remove(&new.uid);
                }
                News::Updated { old: known.insert(new) }
            }
        }
    }

    pub(super) fn forget_cron_job(&mut self, uid: &Uid) {
        self.cron_jobs.remove(uid);
        self.confirmed.remove(uid);
        self.in_flight.remove(uid);
    }

    /// A Job is about to be created. Until the server has told what became of it, it may exist without the watch showing
    /// it, and the next decision must not be made without asking (INV-36).
    pub(super) fn note_creation(&mut self, cron_job: &Uid, name: &str) {
        if self.cron_jobs.contains_key(cron_job) {
            self.in_flight.insert(cron_job.clone(), name.into());
        }
    }

    /// The server has told.
    pub(super) fn settle_creation(&mut self, cron_job: &Uid) {
        self.in_flight.remove(cron_job);
    }

    /// The name of the Job that may have been created.
    pub(super) fn unsettled_creation(&self, cron_job: &Uid) -> Option<Box<str>> {
        self.in_flight.get(cron_job).cloned()
    }

    /// The server itself has shown the CronJob.
    pub(super) fn note_confirmed(&mut self, uid: &Uid) {
        if self.cron_jobs.contains_key(uid) {
            self.confirmed.insert(uid.clone());
        }
    }

    /// Whether what is known of a CronJob is at least as new as this process.
    pub(super) fn is_confirmed(&self, uid: &Uid) -> bool {
        self.confirmed.contains(uid)
    }

    /// Whose Jobs have changed in a way that matters: one CronJob, or two if the Job changed hands (CJ-5).
    pub(super) fn note_job(&mut self, new: JobView, origin: Origin) -> Vec<Uid> {
        let old_owner = self.owners.get(&new.uid).cloned();
        let old = old_owner.as_ref().and_then(|owner| self.jobs.get_mut(owner)?.get_mut(&new.uid));
        let mut matters = true;
        if is(Mutation::F12) && old_owner.is_some() && old.is_none() {
            return Vec::new();
        }
        if let Some(old) = old {
            if !is_newer(&new.resource_version, &old.job.resource_version) {
                if origin == Origin::Watch {
                    old.origin = origin;
                }
                return Vec::new();
            }
            matters = is_news(&new, &old.job);
        }
        let mut touched = Vec::new();
        if old_owner != new.owner {
            touched.extend(self.forget_job(&new.uid));
        }
        if let Some(owner) = new.owner.clone() {
            if matters {
                touched.push(owner.clone());
            }
            self.owners.insert(new.uid.clone(), owner.clone());
            self.jobs.entry(owner).or_default().insert(new.uid.clone(), Known { job: Arc::new(new), origin });
        }
        touched
    }

    /// The CronJob whose Job it was.
    pub(super) fn forget_job(&mut self, uid: &Uid) -> Option<Uid> {
        let owner = self.owners.remove(uid)?;
        if let Entry::Occupied(mut jobs) = self.jobs.entry(owner.clone()) {
            jobs.get_mut().remove(uid);
            if jobs.get().is_empty() {
                jobs.remove();
            }
        }
        Some(owner)
    }

    /// The server has accepted the deletion of a Job. Whether it is gone or lingers the watch will tell.
    pub(super) fn note_deletion(&mut self, uid: &Uid) {
        let owner = self.owners.get(uid);
        if let Some(known) = owner.and_then(|owner| self.jobs.get_mut(owner)?.get_mut(uid)) {
            known.job = Arc::new(JobView { terminating: true, ..JobView::clone(&known.job) });
        }
    }

    /// Every cached object as text, by its version.
    ///
    /// A Job whose deletion the server has accepted is known to be on its way out before a version of it says so.
    #[cfg(test)]
    pub(super) fn shown(&self) -> Vec<(String, String)> {
        let jobs = self.jobs.values().flat_map(HashMap::values).map(|known| {
            let job = JobView { terminating: false, ..JobView::clone(&known.job) };
            (job.resource_version.to_string(), format!("{job:?}"))
        });
        let cron_jobs = self.cron_jobs.values().map(|view| (view.resource_version.to_string(), format!("{view:?}")));
        jobs.chain(cron_jobs).collect()
    }

    /// Nothing is known of anybody.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let jobs = self.jobs.is_empty() && self.owners.is_empty() && self.in_flight.is_empty();
        self.cron_jobs.is_empty() && self.confirmed.is_empty() && jobs
    }
}

/// Versions that are no numbers cannot be compared; they count as news.
fn is_newer(new: &str, old: &str) -> bool {
    match (new.parse::<u64>(), old.parse::<u64>()) {
        (Ok(new), Ok(old)) => new > old,
        _ => new != old,
    }
}

/// A Job changes with every pod of it; almost none of that concerns its CronJob.
fn is_news(new: &JobView, old: &JobView) -> bool {
    let facts = |job: &JobView| {
        (job.owner.clone(), job.ending, job.terminating, job.start_time, job.completion_time, job.scheduled)
    };
    facts(new) != facts(old)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(version: u32, owner: Option<&str>, status: Value) -> JobView {
        let owners = owner.map(|uid| json!([{"kind": "CronJob", "uid": uid, "controller": true}]));
        let metadata =
            json!({"name": "j", "uid": "j", "resourceVersion": version.to_string(), "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn cron_job(version: &str) -> Arc<CronJobView> {
        let metadata = json!({"name": "c", "uid": "a", "resourceVersion": version});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap())
    }

    /// CJ-5.
    #[test]
    fn those_concerned_hear_of_a_job_that_changed() {
        let (a, b) = (Uid::new("a"), Uid::new("b"));
        let mut cache = Cache::default();
        assert_eq!(cache.note_job(job(1, Some("a"), json!({})), Origin::Watch), std::slice::from_ref(&a));
        assert!(
            cache.note_job(job(1, Some("a"), json!({"startTime": "2024-01-01T00:00:00Z"})), Origin::Watch).is_empty(),
            "old"
        );
        assert!(cache.note_job(job(2, Some("a"), json!({"active": 1})), Origin::Watch).is_empty(), "of no concern");
        let finished = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        assert_eq!(cache.note_job(job(3, Some("a"), finished.clone()), Origin::Watch), std::slice::from_ref(&a));
        assert_eq!(
            cache.note_job(job(4, Some("b"), finished.clone()), Origin::Watch),
            [a.clone(), b.clone()],
            "changed hands"
        );
        assert_eq!((cache.jobs_of(&a, 9).len(), cache.jobs_of(&b, 9).len()), (0, 1));
        assert_eq!(cache.note_job(job(5, None, finished), Origin::Watch), std::slice::from_ref(&b), "released");
        assert!(cache.is_empty());
        cache.note_job(job(6, Some("b"), json!({})), Origin::Watch);
        assert_eq!(cache.forget_job(&Uid::new("j")), Some(b));
        assert!(cache.is_empty());
    }

    #[test]
    fn echoes_of_what_is_known_are_no_news() {
        let mut cache = Cache::default();
        assert!(matches!(cache.note_cron_job(cron_job("7")), News::Added));
        assert!(matches!(cache.note_cron_job(cron_job("7")), News::Nothing));
        assert!(matches!(cache.note_cron_job(cron_job("6")), News::Nothing));
        assert!(matches!(cache.note_cron_job(cron_job("10")), News::Updated { .. }));
        assert!(matches!(cache.note_cron_job(cron_job("x")), News::Updated { .. }));
    }

    #[test]
    fn a_creation_is_remembered_until_it_is_settled_or_its_cronjob_gone() {
        let a = Uid::new("a");
        let mut cache = Cache::default();
        cache.note_creation(&a, "j");
        assert_eq!(cache.unsettled_creation(&a), None, "of a CronJob that is gone");
        cache.note_cron_job(cron_job("1"));
        cache.note_creation(&a, "j");
        assert_eq!(cache.unsettled_creation(&a).as_deref(), Some("j"));
        cache.settle_creation(&a);
        assert_eq!(cache.unsettled_creation(&a), None);
        cache.note_creation(&a, "j");
        cache.forget_cron_job(&a);
        assert!(cache.is_empty());
    }

    #[test]
    fn a_job_that_was_deleted_is_on_its_way_out() {
        let mut cache = Cache::default();
        cache.note_job(job(1, Some("a"), json!({})), Origin::Watch);
        cache.note_deletion(&Uid::new("j"));
        cache.note_deletion(&Uid::new("unknown"));
        assert!(cache.jobs_of(&Uid::new("a"), 9)[0].terminating);
    }

    /// INV-37: a Job that ended before the answer to its creation was read must not block its CronJob for ever.
    #[test]
    fn an_answer_that_the_watch_does_not_confirm_is_forgotten() {
        let a = Uid::new("a");
        let mut cache = Cache::default();
        cache.note_job(job(5, Some("a"), json!({})), Origin::Answer);
        assert_eq!(cache.jobs_of(&a, 4).len(), 1, "the watch has not come so far");
        assert!(cache.note_job(job(5, Some("a"), json!({})), Origin::Watch).is_empty(), "no news");
        assert_eq!(cache.jobs_of(&a, 9).len(), 1, "confirmed");
        cache.forget_job(&Uid::new("j"));
        cache.note_job(job(5, Some("a"), json!({})), Origin::Answer);
        assert!(cache.jobs_of(&a, 9).is_empty(), "the watch has shown its end");
        assert!(cache.is_empty());
    }
}
