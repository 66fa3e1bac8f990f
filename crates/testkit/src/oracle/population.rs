//! How many pods there are and may be (INV-11, INV-17…INV-23).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    Judge,
    history::{Change, Step},
    ledger::{Ending, PodRecord, is_recent},
    views::{Job, Pod, Side},
};

/// The delay after the first failure, and the longest (JC-1104).
const BACKOFF_BASE: i64 = 10;
const BACKOFF_MAX: i64 = 600;

impl Judge<'_> {
    /// The Job controller is about to have made a pod.
    pub(super) fn pod_created(&mut self, change: &Change, step: &Step<Pod>) {
        let (None, Some(pod)) = (&step.before, &step.after) else { return };
        if change.by != "job" {
            return;
        }
        let name = format!("pod {}", pod.metadata.name);
        let Some(uid) = pod.job().map(str::to_owned) else {
            return self.broken("INV-14", change.revision, name, "made without a Job");
        };
        let Some(record) = self.ledger.jobs.get(&uid) else {
            return self.broken("INV-14", change.revision, name, "made for a Job that never was");
        };
        if record.last.is_foreign() {
            return self.broken("INV-15", change.revision, name, "made although another controller manages its Job");
        }
        if !pod.is_tracked() {
            self.broken("INV-1", change.revision, &name, "made without the tracking finalizer");
        }
        self.creation_is_allowed(change, &uid, &name);
        self.number_is_wanted(change, &uid, &name);
        match pod.index() {
            Some(index) => self.index_is_free(change, &uid, index, &name),
            None if self.ledger.jobs[&uid].last.is_indexed() => {
                self.broken("INV-19", change.revision, &name, "made without an index");
            }
            None => {}
        }
        self.delay_is_over(change, &uid, pod.index(), &name);
    }

    /// INV-11, INV-21.
    fn creation_is_allowed(&mut self, change: &Change, uid: &str, name: &str) {
        let job = &self.ledger.jobs[uid];
        let window = self.tolerance.window;
        let known = |since: Option<Timestamp>| since.is_some() && !is_recent(since, change.at, window);
        let late = self.excuses_late(uid);
        let verdict = job.interim_revision.is_some();
        let leaving = known(job.leaving_at);
        let suspended = job.last.spec.suspend && (job.suspended_at.is_none() || known(job.suspended_at));
        if verdict && !late {
            self.broken("INV-11", change.revision, name, "made after the verdict on its Job");
        }
        if leaving && !late {
            self.broken("INV-21", change.revision, name, "made for a Job that is being deleted or gone");
        }
        if suspended && !late {
            self.broken("INV-21", change.revision, name, "made while its Job is suspended");
        }
    }

    /// INV-17, INV-18.
    fn number_is_wanted(&mut self, change: &Change, uid: &str, name: &str) {
        let record = &self.ledger.jobs[uid];
        let believable: Vec<&Job> = record.believable(change.at, self.tolerance.window).map(|job| &**job).collect();
        let parallelism = believable.iter().map(|job| job.parallelism()).max().unwrap_or(0);
        let active = self.ledger.pods_of(uid).filter(|(_, pod)| pod.last.is_active()).count() as u64;
        let live = self.ledger.pods_of(uid).filter(|(_, pod)| pod.is_live()).count() as u64;
        let only_failed = record.last.replaces_only_failed();
        let succeeded = self.succeeded(uid);
        let succeeded = if only_failed { succeeded } else { succeeded - self.succeeded_unseen(change, uid) };
        let left = believable.iter().map(|job| match job.spec.completions {
            Some(completions) => completions.saturating_sub(succeeded),
            None => u64::MAX,
        });
        let wanted = parallelism.min(left.max().unwrap_or(u64::MAX));
        if self.tolerance.late_among_others && self.excuses_late(uid) {
            return;
        }
        if active >= wanted {
            let what = format!("made although {active} were active and {wanted} wanted");
            self.broken("INV-17", change.revision, name, what);
        }
        if only_failed && live >= parallelism {
            let what = format!("made although {live} were live and parallelism is {parallelism}");
            self.broken("INV-18", change.revision, name, what);
        }
    }

    /// Pods that were being deleted, and so could be replaced, and have succeeded all the same a moment ago: of that the
    /// controller may not have been told.
    fn succeeded_unseen(&self, change: &Change, uid: &str) -> u64 {
        let unseen = |(_, pod): &(&String, &PodRecord)| {
            pod.last.ended() == Some(Side::Succeeded)
                && pod.last.is_tracked()
                && pod.listed.is_none()
                && pod.deleting_at.is_some_and(|at| pod.ended_at.is_some_and(|ended| at <= ended))
                && is_recent(pod.ended_at, change.at, self.tolerance.window)
                && pod.last.index().is_none_or(|index| !self.ledger.jobs[uid].last.completed().contains(&index))
        };
        self.ledger.pods_of(uid).filter(unseen).count() as u64
    }

    /// How many pods, or indexes, of a Job have succeeded in truth.
    pub(super) fn succeeded(&self, uid: &str) -> u64 {
        let job = &self.ledger.jobs[uid].last;
        if job.is_indexed() {
            // What is not on record yet is still tracked; what a smaller size took off the record is to run again.
            let waits = |(_, pod): &(&String, &PodRecord)| {
                // One that was deemed failed, because it was being deleted, stays so (INV-2).
                let deemed_failed = pod.listed == Some(Side::Failed);
                pod.last.ended() == Some(Side::Succeeded) && pod.last.is_tracked() && !deemed_failed
            };
            let mut done = job.completed();
            done.extend(self.ledger.pods_of(uid).filter(waits).filter_map(|(_, pod)| pod.last.index()));
            let bound = job.spec.completions.unwrap_or(0);
            return done.iter().filter(|index| u64::from(**index) < bound).count() as u64;
        }
        let counts = |(_, pod): &(&String, &PodRecord)| {
            pod.listed == Some(Side::Succeeded)
                || pod.counted == Some(Side::Succeeded)
                || (pod.ended == Some(Side::Succeeded)
                    && pod.listed.is_none()
                    && !pod.gone
                    // One that was let go before its end, as surplus, does not count, nor one that was taken away.
                    && pod.last.is_tracked()
                    && pod.last.job() == Some(uid))
        };
        self.ledger.pods_ever_of(uid).filter(counts).count() as u64
    }

    /// INV-19.
    fn index_is_free(&mut self, change: &Change, uid: &str, index: u32, name: &str) {
        let record = &self.ledger.jobs[uid];
        let specs = record.believable(change.at, self.tolerance.window);
        let bound = specs.filter_map(|job| job.spec.completions).max().unwrap_or(0);
        let only_failed = record.last.replaces_only_failed();
        let done = record.last.completed().contains(&index);
        let failed = record.last.failed_indexes().contains(&index);
        let same = self.ledger.pods_of(uid).filter(|(_, pod)| pod.last.index() == Some(index));
        let others: Vec<String> = same
            .filter(|(_, pod)| if only_failed { pod.is_live() } else { pod.last.is_active() })
            .map(|(_, pod)| pod.name.clone())
            .collect();
        let same = self.ledger.pods_of(uid).filter(|(_, pod)| pod.last.index() == Some(index));
        let succeeded = same.filter(|(_, pod)| self.succeeds_its_index(change, pod)).count();
        if u64::from(index) >= bound {
            self.broken("INV-19", change.revision, name, format!("made for index {index} of {bound}"));
        }
        if succeeded > 0 {
            let what = format!("made for index {index}, of which a pod has succeeded and waits to be counted");
            self.broken("INV-19", change.revision, name, what);
        }
        if done || failed {
            self.broken("INV-19", change.revision, name, format!("made for index {index}, which is done"));
        }
        let late = self.tolerance.late_among_others && self.excuses_late(uid);
        if !others.is_empty() && !late {
            self.broken("INV-19", change.revision, name, format!("made for index {index}, which {others:?} runs"));
        }
    }

    /// Whether a pod has succeeded and is to be counted, and that can be known.
    fn succeeds_its_index(&self, change: &Change, pod: &PodRecord) -> bool {
        let unknowable = pod.deleted_first && is_recent(pod.ended_at, change.at, self.tolerance.window);
        let waits = pod.last.ended() == Some(Side::Succeeded) && pod.last.is_tracked();
        waits && pod.listed != Some(Side::Failed) && !unknowable
    }

    /// INV-21: while the failed pods that justify a delay are there, it is waited for.
    fn delay_is_over(&mut self, change: &Change, uid: &str, index: Option<u32>, name: &str) {
        let Some(now) = change.at else { return };
        // Where indexes have limits of their own, they have delays of their own as well (JC-1107).
        let per_index = self.ledger.jobs[uid].last.spec.backoff_limit_per_index.is_some();
        let alike = |pod: &PodRecord| !per_index || pod.last.index() == index;
        // A failure that the controller may not have seen, or that a user's own deletion caused, delays nothing.
        let window = self.tolerance.window.max(Duration::from_millis(1));
        let seen = |pod: &PodRecord| !is_recent(pod.ended_at, Some(now), window);
        let pods: Vec<_> = self.ledger.pods_of(uid).filter(|(_, pod)| alike(pod) && !pod.ever_surplus).collect();
        let end = |pod: &PodRecord| pod.last.finished_at();
        // A success that it may have seen can have ended the delay.
        let success =
            pods.iter().filter(|(_, pod)| pod.ended == Some(Side::Succeeded)).filter_map(|(_, pod)| end(pod)).max();
        let failures: Vec<Timestamp> = pods
            .iter()
            .filter(|(_, pod)| pod.ended == Some(Side::Failed) && seen(pod))
            .filter_map(|(_, pod)| end(pod))
            .filter(|failed| success.is_none_or(|success| *failed > success))
            .collect();
        let Some(last) = failures.iter().max() else { return };
        let doubled = BACKOFF_BASE.saturating_mul(1 << (failures.len() - 1).min(20));
        let delay = SignedDuration::from_secs(doubled.min(BACKOFF_MAX));
        // Times in objects have whole seconds.
        if now.duration_since(*last) + SignedDuration::from_secs(1) < delay {
            let what = format!("made {:?} after the last of {} failures", now.duration_since(*last), failures.len());
            self.broken("INV-21", change.revision, name, what);
        }
    }

    /// INV-23: the Job controller removes pods that are too many, and says so first, or pods of a Job that ends.
    pub(super) fn pod_removed_by_us(&mut self, change: &Change, step: &Step<Pod>) {
        let Some(before) = &step.before else { return };
        if change.by != "job" {
            return;
        }
        let uid = before.metadata.uid.clone();
        let deletes =
            !before.metadata.is_deleting() && step.after.as_ref().is_none_or(|after| after.metadata.is_deleting());
        let marked = !before.is_surplus() && step.after.as_ref().is_some_and(|after| after.is_surplus());
        let ended_at = self.ledger.pods.get(&uid).and_then(|pod| pod.ended_at);
        // An eviction writes twice, and the second time may look like the work of whoever writes meanwhile.
        let evicted = before.status.conditions.iter().any(|one| one.kind == "DisruptionTarget");
        let long_ended = before.ended().is_some() && !is_recent(ended_at, change.at, self.tolerance.window);
        if (deletes || marked) && long_ended && !evicted {
            let name = format!("pod {}", before.metadata.name);
            self.broken("INV-23", change.revision, name, "removed although it had ended long before");
        }
        let unannounced = deletes && !before.is_surplus() && before.ended().is_none();
        if unannounced && let Some(pod) = self.ledger.pods.get_mut(&uid) {
            pod.ended_by_us = Some(Ending { revision: change.revision, at: change.at, verdict: "FailureTarget" });
        }
        if marked {
            self.surplus_is_one(change, before);
        }
    }

    fn surplus_is_one(&mut self, change: &Change, pod: &Pod) {
        let Some(job) = pod.job().and_then(|uid| self.ledger.jobs.get(uid).map(|job| (uid, job))) else { return };
        let (uid, job) = job;
        let window = self.tolerance.window;
        let now = change.at;
        let believable: Vec<&Job> = job.believable(now, window).map(|job| &**job).collect();
        let suspended = believable.iter().any(|job| job.spec.suspend);
        // Pods that ended or went a moment ago may still have counted.
        let counts = |pod: &PodRecord| {
            let ended = pod.ended.is_some() && !is_recent(pod.ended_at, now, window);
            let going = pod.deleting_at.is_some() && !is_recent(pod.deleting_at, now, window);
            !ended && !going
        };
        let active = self.ledger.pods_ever_of(uid).filter(|(_, pod)| counts(pod)).count() as u64;
        let succeeded = self.succeeded(uid);
        let wanted = believable
            .iter()
            .map(|job| match job.spec.completions {
                Some(completions) => job.parallelism().min(completions.saturating_sub(succeeded)),
                None => job.parallelism(),
            })
            .min()
            .unwrap_or(0);
        let misplaced = believable.iter().any(|job| !job.is_valid_index(pod.index()));
        let crowded = job.last.is_indexed()
            && self
                .ledger
                .pods_ever_of(uid)
                .filter(|(_, other)| counts(other) && other.last.index() == pod.index())
                .count()
                > 1;
        let completed = pod.index().is_some_and(|index| job.last.completed().contains(&index));
        let succeeded = job.last.status.holds("SuccessCriteriaMet").is_some();
        if suspended || misplaced || crowded || completed || succeeded || active > wanted {
            return;
        }
        if believable.iter().any(|job| job.spec.success_policy.is_some()) {
            // Then the Job has succeeded without it, which its status says in a moment.
            if let Some(pod) = self.ledger.pods.get_mut(&pod.metadata.uid) {
                let verdict = "SuccessCriteriaMet";
                pod.ended_by_us = Some(Ending { revision: change.revision, at: change.at, verdict });
            }
            return;
        }
        let what = format!("called surplus with {active} active and {wanted} wanted");
        self.broken("INV-23", change.revision, format!("pod {}", pod.metadata.name), what);
    }

    /// INV-20.
    pub(super) fn pod_identity(&mut self, change: &Change, step: &Step<Pod>) {
        let (Some(before), Some(after)) = (&step.before, &step.after) else { return };
        if change.by == "job" && before.index() != after.index() {
            let what = format!("its index changed from {:?} to {:?}", before.index(), after.index());
            self.broken("INV-20", change.revision, format!("pod {}", after.metadata.name), what);
        }
    }
}
