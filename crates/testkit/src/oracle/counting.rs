//! Every pod counts once (INV-1…INV-6).

use std::collections::BTreeSet;

use super::{
    Judge,
    history::{Change, Step},
    ledger::{JobRecord, Mark, PodRecord, is_recent},
    views::{Job, JobStatus, Pod, Side, indexes},
};

impl Judge<'_> {
    /// A Job's status has changed: what was listed, what was counted?
    pub(super) fn job_counted(&mut self, change: &Change, step: &Step<Job>) {
        let Some(after) = &step.after else { return };
        let none = JobStatus::default();
        let old = step.before.as_ref().map_or(&none, |job| &job.status);
        if *old == after.status && step.before.as_ref().is_some_and(|before| before.spec == after.spec) {
            return;
        }
        self.lists_are_well_formed(change, after);
        if *old != after.status {
            self.counters_grow(change, old, after);
            for side in [Side::Succeeded, Side::Failed] {
                self.newly_listed(change, old, after, side);
                self.newly_counted(change, old, after, side);
            }
            if after.is_indexed() {
                self.newly_completed(change, old, after);
            }
            self.conserved(change, after);
        }
        self.classified(change, &after.metadata.uid);
    }

    /// INV-5.
    fn lists_are_well_formed(&mut self, change: &Change, job: &Job) {
        let lists = &job.status.uncounted_terminated_pods;
        let all: Vec<&String> = lists.succeeded.iter().chain(&lists.failed).collect();
        let distinct: BTreeSet<&&String> = all.iter().collect();
        let name = job_name(job);
        if distinct.len() != all.len() {
            self.broken("INV-5", change.revision, &name, format!("a pod is listed twice: {lists:?}"));
        }
        if all.iter().any(|uid| uid.is_empty()) {
            self.broken("INV-5", change.revision, &name, "an empty entry is listed");
        }
        if lists.len() > self.tolerance.uncounted_max {
            self.broken("INV-5", change.revision, &name, "more pods are listed than the cap allows");
        }
        if job.status.finished().is_some() && !lists.is_empty() {
            self.broken("INV-5", change.revision, &name, format!("finished with pods on its lists: {lists:?}"));
        }
    }

    /// INV-3, INV-19: an index leaves the record only if it is beyond a size that the controller can have believed.
    fn counters_grow(&mut self, change: &Change, old: &JobStatus, job: &Job) {
        let new = &job.status;
        let sizes = self.ledger.jobs[&job.metadata.uid].believable(change.at, self.tolerance.window);
        let smallest = sizes.filter_map(|job| job.spec.completions).min().unwrap_or(0);
        let left = |old: &str, new: &str| -> Vec<u32> {
            let new = indexes(new).unwrap_or_default();
            indexes(old).unwrap_or_default().difference(&new).copied().collect()
        };
        let uncompleted = left(&old.completed_indexes, &new.completed_indexes);
        let failed = |status: &JobStatus| status.failed_indexes.clone().unwrap_or_default();
        let unfailed = left(&failed(old), &failed(new));
        for index in uncompleted.iter().chain(&unfailed).filter(|index| u64::from(**index) < smallest) {
            let what = format!("index {index} is no longer on record, and the Job has at least {smallest}");
            self.broken("INV-19", change.revision, job_name(job), what);
        }
        if new.failed < old.failed {
            let what = format!("`failed` fell from {} to {}", old.failed, new.failed);
            self.broken("INV-3", change.revision, job_name(job), what);
        }
        if new.succeeded + (uncompleted.len() as u64) < old.succeeded {
            let what = format!("`succeeded` fell from {} to {}", old.succeeded, new.succeeded);
            self.broken("INV-3", change.revision, job_name(job), what);
        }
    }

    /// INV-1, INV-2: a pod gets on a list once, and on the right one.
    fn newly_listed(&mut self, change: &Change, old: &JobStatus, job: &Job, side: Side) {
        let window = self.tolerance.window;
        let before = old.uncounted_terminated_pods.of(side);
        let failing = job.status.holds("FailureTarget").is_some() || job.status.holds("Failed").is_some();
        let only_failed = job.replaces_only_failed() && self.tolerance.replacement_policy;
        for uid in job.status.uncounted_terminated_pods.of(side).iter().filter(|uid| !before.contains(uid)) {
            let Some(pod) = self.ledger.pods.get_mut(uid) else {
                self.broken("INV-1", change.revision, job_name(job), format!("lists {uid}, which is no pod"));
                continue;
            };
            let name = pod.name.clone();
            let earlier = pod.listed.or(pod.counted);
            pod.listed = pod.listed.or(Some(side));
            let ours = pod.job.as_deref() == Some(&*job.metadata.uid);
            let right = match side {
                Side::Succeeded => pod.ended == Some(Side::Succeeded),
                Side::Failed => {
                    let going = pod.deleted_first && (pod.gone || !only_failed);
                    match pod.ended {
                        Some(Side::Failed) => true,
                        // It counted as failed before it succeeded, if that is so lately that nobody can know.
                        Some(Side::Succeeded) => (going || failing) && is_recent(pod.ended_at, change.at, window),
                        None => going || failing,
                    }
                }
            };
            // A mark that nobody was told of was given up, and another reason to let the pod go may have come since.
            let given_up = |revision| match &self.history.unheard {
                Some(unheard) => unheard.contains(&revision),
                None => self.tolerance.late_landings,
            };
            let unseen = |mark: Mark| given_up(mark.revision) && is_recent(mark.at, change.at, window);
            // One that a user had deleted before counts as failed as well, if that is seen first.
            let decides = pod.marked.is_none_or(|mark| !mark.was_deleting && !unseen(mark));
            let surplus = pod.last.is_surplus() && pod.last.metadata.is_deleting() && pod.ended.is_none() && decides;
            // What makes a rule ignore it may have come after its end, and so lately that nobody can know.
            let unknowable = pod.touched_up.is_some_and(|at| is_recent(at, change.at, window));
            let ignored = job.policy_action(&pod.last) == Some("Ignore") && side == Side::Failed && !unknowable;
            if let Some(earlier) = earlier {
                let invariant = if earlier == side { "INV-1" } else { "INV-2" };
                let what = format!("lists pod {name} as {side:?}, and listed it before as {earlier:?}");
                self.broken(invariant, change.revision, job_name(job), what);
            }
            if !ours {
                self.broken(
                    "INV-14",
                    change.revision,
                    job_name(job),
                    format!("lists pod {name}, which is not its own"),
                );
            }
            if !right {
                self.broken("INV-1", change.revision, job_name(job), format!("lists pod {name} wrongly as {side:?}"));
            }
            if surplus || ignored {
                self.broken("INV-1", change.revision, job_name(job), format!("lists pod {name}, which does not count"));
            }
        }
    }

    /// INV-1: the counter grows by exactly those that leave the list, and those are free by then.
    fn newly_counted(&mut self, change: &Change, old: &JobStatus, job: &Job, side: Side) {
        let now = job.status.uncounted_terminated_pods.of(side);
        let mut counted = 0;
        for uid in old.uncounted_terminated_pods.of(side).iter().filter(|uid| !now.contains(uid)) {
            counted += 1;
            let Some(pod) = self.ledger.pods.get_mut(uid) else { continue };
            let (name, before) = (pod.name.clone(), pod.counted.replace(side));
            // Whoever lost its owner is none of the Job's tracked pods, and leaves the list as those do that are gone
            // (JC-1303, JC-1304).
            let ours = pod.last.job() == Some(&*job.metadata.uid);
            let tracked = !pod.gone && pod.last.is_tracked() && ours;
            if before.is_some() {
                self.broken("INV-1", change.revision, job_name(job), format!("counts pod {name} again"));
            }
            if tracked {
                self.broken(
                    "INV-1",
                    change.revision,
                    job_name(job),
                    format!("counts pod {name}, which is still tracked"),
                );
            }
        }
        let (was, is) = match side {
            Side::Succeeded => (old.succeeded, job.status.succeeded),
            Side::Failed => (old.failed, job.status.failed),
        };
        // Indexed Jobs count successes by index.
        if !(job.is_indexed() && side == Side::Succeeded) && is >= was && is - was != counted {
            let what = format!("`{side:?}` went from {was} to {is} while {counted} pods left its list");
            self.broken("INV-1", change.revision, job_name(job), what);
        }
    }

    /// INV-1, INV-19: an index completes because a pod of it succeeded; the number of them is the count.
    fn newly_completed(&mut self, change: &Change, old: &JobStatus, job: &Job) {
        let name = job_name(job);
        let Some(completed) = indexes(&job.status.completed_indexes) else {
            let what = format!("completedIndexes `{}` is not canonical", job.status.completed_indexes);
            return self.broken("INV-19", change.revision, name, what);
        };
        let failed = job.status.failed_indexes.as_deref().map(indexes);
        if let Some(None) = failed {
            return self.broken("INV-19", change.revision, name, "failedIndexes is not canonical");
        }
        let failed = failed.flatten().unwrap_or_default();
        if completed.intersection(&failed).next().is_some() {
            self.broken("INV-19", change.revision, &name, "an index both completed and failed");
        }
        // A user may have lowered the completions since.
        let specs = self.ledger.jobs[&job.metadata.uid].believable(change.at, self.tolerance.window);
        let bound = specs.filter_map(|job| job.spec.completions).max().unwrap_or(0);
        if completed.iter().chain(&failed).any(|index| u64::from(*index) >= bound) {
            self.broken("INV-19", change.revision, &name, "an index is out of range");
        }
        if job.status.succeeded != completed.len() as u64 {
            let what = format!("`succeeded` is {} with {} completed indexes", job.status.succeeded, completed.len());
            self.broken("INV-19", change.revision, &name, what);
        }
        let before = indexes(&old.completed_indexes).unwrap_or_default();
        let succeeded = &self.ledger.jobs[&job.metadata.uid].succeeded_indexes;
        let unearned: Vec<u32> =
            completed.difference(&before).filter(|index| !succeeded.contains(index)).copied().collect();
        if !unearned.is_empty() {
            self.broken("INV-1", change.revision, &name, format!("indexes {unearned:?} completed without a success"));
        }
        let before = old.failed_indexes.as_deref().and_then(indexes).unwrap_or_default();
        let unearned: Vec<u32> =
            failed.difference(&before).filter(|index| !self.index_has_failed(job, **index)).copied().collect();
        if !unearned.is_empty() {
            self.broken("INV-19", change.revision, name, format!("indexes {unearned:?} failed before their time"));
        }
    }

    /// Whether enough pods of an index have failed, or one for which a rule says so (JC-1502).
    fn index_has_failed(&self, job: &Job, index: u32) -> bool {
        let pods = self.ledger.pods_ever_of(&job.metadata.uid).map(|(_, pod)| pod);
        let failed: Vec<&PodRecord> = pods
            .filter(|pod| pod.last.index() == Some(index))
            .filter(|pod| pod.ended == Some(Side::Failed) || pod.listed == Some(Side::Failed) || pod.deleted_first)
            .collect();
        let counted = failed.iter().filter(|pod| job.policy_action(&pod.last) != Some("Ignore")).count() as u64;
        counted > job.spec.backoff_limit_per_index.unwrap_or(u64::MAX)
            || failed.iter().any(|pod| job.policy_action(&pod.last) == Some("FailIndex"))
    }

    /// INV-6: what the status says was counted is what the ledger saw being counted.
    fn conserved(&mut self, change: &Change, job: &Job) {
        let mut counted = [0_u64; 2];
        for (_, pod) in self.ledger.pods_ever_of(&job.metadata.uid) {
            if let Some(side) = pod.counted {
                counted[side as usize] += 1;
            }
        }
        let [succeeded, failed] = counted;
        if failed != job.status.failed {
            let what = format!("`failed` is {}, and {failed} pods were counted", job.status.failed);
            self.broken("INV-6", change.revision, job_name(job), what);
        }
        if !job.is_indexed() && succeeded != job.status.succeeded {
            let what = format!("`succeeded` is {}, and {succeeded} pods were counted", job.status.succeeded);
            self.broken("INV-6", change.revision, job_name(job), what);
        }
    }

    /// INV-6 after a change of a pod.
    pub(super) fn pod_classified(&mut self, change: &Change, step: &Step<Pod>) {
        let Some(uid) = step.after.as_ref().or(step.before.as_ref()).map(|pod| pod.metadata.uid.clone()) else {
            return;
        };
        let record = &self.ledger.pods[&uid];
        let Some(job) = record.job.as_ref().and_then(|job| self.ledger.job(job)) else { return };
        if let Err(what) = class(job, &uid, record) {
            let name = format!("pod {}", record.name);
            self.broken("INV-6", change.revision, name, what);
        }
    }

    /// INV-6: every pod that a Job ever had is in one class.
    fn classified(&mut self, change: &Change, job: &str) {
        let Some(record) = self.ledger.job(job) else { return };
        let mut broken = Vec::new();
        for (uid, pod) in self.ledger.pods_ever_of(job) {
            if let Err(what) = class(record, uid, pod) {
                broken.push((pod.name.clone(), what));
            }
        }
        for (pod, what) in broken {
            self.broken("INV-6", change.revision, format!("pod {pod}"), what);
        }
    }

    /// Whether an index is beyond the size of its Job, as far as the controller can know that.
    fn is_outside(&self, change: &Change, uid: &str, index: Option<u32>) -> bool {
        let mut sizes = self.ledger.jobs[uid].believable(change.at, self.tolerance.window);
        sizes.any(|job| !job.is_valid_index(index))
    }

    /// Released, and unless it was on record before, without being counted, and rightly so.
    fn exclude(&mut self, pod: &Pod, situation: &'static str) {
        let Some(record) = self.ledger.pods.get_mut(&pod.metadata.uid) else { return };
        let on_record = record.listed.is_some() || record.counted.is_some();
        record.excluded |= !on_record;
        if !on_record || !situation.starts_with("orphan") {
            self.met(situation);
        }
    }

    /// The Job of a released pod is not there; one of its name may be.
    fn orphan_of_none(&mut self, job: &str) {
        let name = self.ledger.jobs.get(job).map(|job| &job.name);
        let has_namesake = name.is_some_and(|name| self.ledger.jobs.values().any(|job| !job.gone && job.name == *name));
        self.met(if has_namesake { "orphan released: namesake" } else { "orphan released: Job gone" });
    }

    /// INV-4: nobody loses the finalizer before it is on record.
    pub(super) fn pod_released(&mut self, change: &Change, step: &Step<Pod>) {
        let Some(before) = step.before.as_ref().filter(|pod| pod.is_tracked()) else { return };
        if step.after.as_ref().is_some_and(|after| after.is_tracked()) {
            return;
        }
        if change.by != "job" {
            // A user may. Nothing that has the finalizer goes unless it is being deleted and loses it.
            let by_user = matches!(change.by, "world" | "") && (step.after.is_some() || before.metadata.is_deleting());
            if let Some(record) = self.ledger.pods.get_mut(&before.metadata.uid).filter(|_| by_user) {
                record.stripped = Some(change.at);
            }
            return;
        }
        let name = format!("pod {}", before.metadata.name);
        let Some(owner) = before.metadata.controller() else { return self.met("orphan released: no owner") };
        let Some(uid) = before.job().map(str::to_owned) else {
            let what = format!("released although a {} controls it", owner.kind);
            return self.broken("INV-14", change.revision, name, what);
        };
        let Some(job) = self.ledger.job(&uid) else { return self.orphan_of_none(&uid) };
        let job = job.last.clone();
        if job.metadata.is_deleting() {
            return self.exclude(before, "orphan released: Job being deleted");
        }
        // One that is being deleted goes with its owner still on it.
        let disowned = step.after.as_ref().map_or_else(|| !job.selects(before), |after| after.job().is_none());
        if disowned {
            let relabelled = self.ledger.pods.get(&before.metadata.uid).and_then(|pod| pod.relabelled);
            let unknowable = relabelled.is_some_and(|at| is_recent(at, change.at, self.tolerance.window));
            if job.selects(before) && !unknowable {
                self.broken("INV-4", change.revision, name, "let go by its Job, whose labels it has");
            }
            return self.exclude(before, "pod disowned");
        }
        let ended = before.ended();
        // One that succeeds all the same counts.
        if before.is_surplus() && ended != Some(Side::Succeeded) {
            return self.exclude(before, "surplus pod removed");
        }
        if job.status.finished().is_some() {
            return self.exclude(before, "orphan released: Job finished");
        }
        let succeeds = job.status.holds("SuccessCriteriaMet").is_some();
        if let Some(record) = self.ledger.pods.get_mut(&before.metadata.uid) {
            record.let_go |= ended.is_none() && succeeds;
        }
        let record = &self.ledger.pods[&before.metadata.uid];
        let recorded = before.index().is_some_and(|index| job.is_indexed() && job.completed().contains(&index));
        let listed = record.listed.is_some() || record.counted.is_some();
        // When a Job fails, the pods that are left fail with it, and those that a rule ignores count as nothing.
        let fails_with_it = ended.is_none() && job.status.holds("FailureTarget").is_some();
        let excluded = job.policy_action(before) == Some("Ignore")
            || fails_with_it && job.rule_for(before) == Some("Ignore")
            || self.is_outside(change, &uid, before.index())
            || ended.is_none() && succeeds;
        if let Some(record) = self.ledger.pods.get_mut(&before.metadata.uid).filter(|_| !listed) {
            record.recorded |= recorded;
            record.excluded |= excluded && !recorded;
        }
        if !listed && !recorded && !excluded {
            let what = format!("released in phase {} before it was on record", before.status.phase);
            self.broken("INV-4", change.revision, name, what);
        }
    }
}

/// INV-6: counted, listed, excluded, live, or ended and waiting for its turn: exactly one of them.
fn class(job: &JobRecord, uid: &String, pod: &PodRecord) -> Result<(), &'static str> {
    if job.last.is_foreign() {
        return Ok(());
    }
    let lists = &job.last.status.uncounted_terminated_pods;
    let listed = lists.succeeded.contains(uid) || lists.failed.contains(uid);
    let counted = pod.counted.is_some() || pod.recorded;
    // A Job that is being deleted lets go before it writes (INV-4), and may count what it has not heard to be gone.
    let excluded = pod.excluded && !(job.last.metadata.is_deleting() && (counted || listed));
    match (counted, listed, excluded) {
        (true, true, _) => return Err("counted, and on a list again"),
        (_, true, true) | (true, _, true) => return Err("let go without being counted, and counted all the same"),
        (false, false, false) => {}
        _ => return Ok(()),
    }
    // Nobody counts what was never tracked, or belongs to the Job no more.
    let not_ours = !pod.ever_tracked || pod.stripped.is_some() || pod.last.job() != Some(&*job.last.metadata.uid);
    let waits = !pod.gone && pod.last.is_tracked();
    // By its index; whoever took its owner away meanwhile did not take that back.
    let on_record =
        pod.last.index().is_some_and(|index| job.last.is_indexed() && job.last.completed().contains(&index));
    if not_ours || pod.is_live() || waits || on_record { Ok(()) } else { Err("it has ended, and is lost to the count") }
}

pub(super) fn job_name(job: &Job) -> String {
    format!("job {}", job.metadata.name)
}
