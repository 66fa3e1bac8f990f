//! TTL, CronJobs and collectors, as far as the log tells (INV-33, INV-35, INV-36, INV-38…INV-41).

use jiff::SignedDuration;

use super::{
    Judge,
    history::{Change, Step},
    ledger::{CronJobRecord, JobRecord, is_recent},
    views::{Condition, CronJob, Job, Metadata, Pod},
};

impl Judge<'_> {
    /// INV-35, INV-36: a CronJob has a new Job.
    pub(super) fn job_scheduled(&mut self, change: &Change, step: &Step<Job>) {
        let (None, Some(job)) = (&step.before, &step.after) else { return };
        let (Some(cron_job), Some(scheduled)) = (job.cron_job(), job.scheduled()) else { return };
        let name = format!("job {}", job.metadata.name);
        let window = self.tolerance.window;
        let Some(record) = self.ledger.cron_jobs.get(cron_job) else { return };
        let policy = record.last.spec.concurrency_policy.clone();
        // One that is being deleted has been replaced; it is active all the same for as long as it is there (CJ-17, CJ-25).
        let unfinished: Vec<String> = self
            .ledger
            .jobs
            .values()
            .filter(|other| !other.gone && other.last.cron_job() == Some(cron_job))
            .filter(|other| other.last.status.finished().is_none())
            .filter(|other| policy != "Replace" || !other.last.metadata.is_deleting())
            .map(|other| other.name.clone())
            .collect();
        let Some(record) = self.ledger.cron_jobs.get_mut(cron_job) else { return };
        // A Job that went with its CronJob is not there when the controller asks, and may never have been.
        let leaves = record.leaving_at.is_some() && is_recent(record.leaving_at, change.at, window);
        if !record.served.insert(scheduled.to_owned()) && !leaves {
            self.broken("INV-35", change.revision, &name, format!("{scheduled} is served a second time"));
        }
        if matches!(&*policy, "Forbid" | "Replace") && !unfinished.is_empty() && change.by == "cronjob" {
            self.broken(
                "INV-36",
                change.revision,
                &name,
                format!("started beside {unfinished:?} with policy {policy}"),
            );
        }
    }

    /// INV-33, INV-39, INV-40: a Job is deleted by whom, and why?
    pub(super) fn job_removed(&mut self, change: &Change, step: &Step<Job>) {
        let Some(before) = &step.before else { return };
        let goes =
            !before.metadata.is_deleting() && step.after.as_ref().is_none_or(|after| after.metadata.is_deleting());
        if !goes {
            return;
        }
        let name = format!("job {}", before.metadata.name);
        match change.by {
            "ttl" => self.expired(change, before, &name),
            "cronjob" => {
                let policy = before.cron_job().and_then(|uid| self.ledger.cron_jobs.get(uid));
                match policy.map(|cron_job| &*cron_job.last.spec.concurrency_policy) {
                    None => self.broken("INV-39", change.revision, name, "deleted although it is no CronJob's"),
                    Some(_) if before.status.finished().is_some() => self.history_is_kept(change, before, &name),
                    Some("Replace") => {}
                    Some(_) => self.broken("INV-39", change.revision, name, "deleted although it is not finished"),
                }
            }
            "gc" => self.collected(change, &before.metadata, &name),
            _ => {}
        }
    }

    /// INV-39: the oldest go first, and as many stay as are to be kept.
    fn history_is_kept(&mut self, change: &Change, job: &Job, name: &str) {
        let (Some(end), Some(uid)) = (job.status.finished().map(|end| &*end.kind), job.cron_job()) else { return };
        let window = self.tolerance.window;
        let limit = self.ledger.cron_jobs[uid].history_limit(end, change.at, window);
        // CJ-13: by the time of the start, those without last, then by name.
        let order = |job: &Job| (job.status.start_time.is_none(), job.status.start_time, job.metadata.name.clone());
        let newer = self.ledger.jobs.values().filter(|other| {
            // One that somebody took away a moment ago may still be taken for there.
            let there = !other.gone || is_recent(other.leaving_at, change.at, window);
            let same = other.last.cron_job() == Some(uid) && other.last.status.holds(end).is_some();
            there && same && order(&other.last) > order(job)
        });
        let newer = newer.count();
        if newer < limit {
            let what = format!("deleted with {newer} newer ones left, and {limit} are to be kept");
            self.broken("INV-39", change.revision, name, what);
        }
    }

    /// INV-39 at rest: what is beyond the limits has gone.
    pub(super) fn history_left(&self, uid: &str, cron_job: &CronJobRecord) -> Option<String> {
        ["Complete", "Failed"].into_iter().find_map(|end| {
            let kept =
                |job: &&JobRecord| !job.gone && !job.last.metadata.is_deleting() && job.last.cron_job() == Some(uid);
            let ended = |job: &&JobRecord| job.last.status.holds(end).is_some();
            let (kept, limit) =
                (self.ledger.jobs.values().filter(kept).filter(ended).count(), cron_job.last.spec.history_limit(end));
            (kept > limit).then(|| format!("keeps {kept} Jobs that are {end}, and {limit} are to be kept"))
        })
    }

    fn expired(&mut self, change: &Change, job: &Job, name: &str) {
        let Some(end) = job.status.finished() else {
            return self.broken("INV-33", change.revision, name, "deleted although it is not finished");
        };
        let Some(ttl) = job.spec.ttl_seconds_after_finished else {
            return self.broken("INV-33", change.revision, name, "deleted although it has no time to live");
        };
        let (Some(end), Some(now)) = (end.last_transition_time, change.at) else { return };
        let now = self.history.latest_clock(now, self.tolerance.window);
        if now.duration_since(end) < SignedDuration::from_secs(ttl) {
            self.broken("INV-33", change.revision, name, format!("deleted before its {ttl} seconds were over"));
        }
    }

    /// INV-38.
    pub(super) fn cron_job_changed(&mut self, change: &Change, step: &Step<CronJob>) {
        let (Some(before), Some(after)) = (&step.before, &step.after) else { return };
        // What users write is theirs to answer for.
        if change.by == "world" {
            return;
        }
        let name = format!("cronjob {}", after.metadata.name);
        let (old, new) = (&before.status, &after.status);
        if new.last_schedule_time < old.last_schedule_time {
            self.broken("INV-38", change.revision, &name, "lastScheduleTime went back");
        }
        if new.last_successful_time != old.last_successful_time {
            let successful = self.ledger.jobs.values().any(|job| {
                job.last.cron_job() == Some(&after.metadata.uid)
                    && job.last.status.holds("Complete").is_some()
                    && job.last.status.completion_time == new.last_successful_time
            });
            if !successful {
                self.broken("INV-38", change.revision, &name, "lastSuccessfulTime is no successful Job's");
            }
        }
        // Whoever leaves the status alone, as a user who edits the spec, says nothing about it.
        if new == old {
            return;
        }
        let (uid, window) = (&*after.metadata.uid, self.tolerance.window);
        let listed = new.active.iter().filter_map(|active| self.ledger.jobs.get(&active.uid));
        let foreign = listed.filter(|job| job.last.cron_job() != Some(uid) && !job.was_of(uid, change.at, window));
        let foreign: Vec<String> = foreign.map(|job| job.name.clone()).collect();
        for job in foreign {
            let what = format!("lists {job} as active, which is not its own");
            self.broken("INV-38", change.revision, &name, what);
        }
    }

    /// INV-40, INV-41: a pod goes by the hand of a collector.
    pub(super) fn pod_collected(&mut self, change: &Change, step: &Step<Pod>) {
        let Some(before) = &step.before else { return };
        let name = format!("pod {}", before.metadata.name);
        let marked =
            !before.metadata.is_deleting() && step.after.as_ref().is_none_or(|after| after.metadata.is_deleting());
        match change.by {
            "gc" if marked => self.collected(change, &before.metadata, &name),
            "podgc" if marked && before.ended().is_none() => {
                self.broken("INV-41", change.revision, name, "deleted before it had failed");
            }
            "podgc" => self.outcome_is_kept(change, before, step.after.as_deref(), name),
            _ => {}
        }
    }

    /// INV-41: what has ended keeps its outcome and conditions, and what has not keeps those that it has.
    fn outcome_is_kept(&mut self, change: &Change, before: &Pod, after: Option<&Pod>, name: String) {
        let Some(after) = after else { return };
        if before.ended().is_some() && after.ended() != before.ended() {
            self.broken("INV-41", change.revision, &name, "its outcome was changed");
        }
        let disruption = |condition: &&Condition| before.ended().is_none() && condition.kind == "DisruptionTarget";
        let rest = |pod: &Pod| -> Vec<Condition> {
            pod.status.conditions.iter().filter(|one| !disruption(one)).cloned().collect()
        };
        if rest(before) != rest(after) {
            self.broken("INV-41", change.revision, name, "its conditions were changed");
        }
    }

    /// INV-40: every owner that the oracle knows is gone or takes its dependents with it.
    fn collected(&mut self, change: &Change, object: &Metadata, name: &str) {
        let holds = |metadata: &Metadata| {
            !(metadata.is_deleting() && metadata.finalizers.iter().any(|one| one == "foregroundDeletion"))
        };
        let solid = object.owner_references.iter().any(|owner| {
            let jobs = self.ledger.jobs.get(&owner.uid).filter(|job| !job.gone).map(|job| &job.last.metadata);
            let crons = self.ledger.cron_jobs.get(&owner.uid).filter(|one| !one.gone).map(|one| &one.last.metadata);
            let pods = self.ledger.pods.get(&owner.uid).filter(|pod| !pod.gone).map(|pod| &pod.last.metadata);
            jobs.or(crons).or(pods).is_some_and(holds)
        });
        if solid || object.owner_references.is_empty() {
            self.broken("INV-40", change.revision, name, "collected although it has an owner or never had one");
        }
    }
}
