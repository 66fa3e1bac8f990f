//! A Job ends once, for a good reason, and quietly (INV-7…INV-10, INV-12).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Judge,
    counting::job_name,
    history::{Change, Step},
    ledger::{Ending, PodRecord, is_recent},
    views::{Job, JobStatus, Side, indexes},
};

/// Conditions that never go away again once they are true, in pairs that exclude each other.
const FOR_EVER: [&str; 4] = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"];

/// Less than there is between a sync that failed and the next one of the same Job.
const ATTEMPT: Duration = Duration::from_millis(100);

/// Reasons of events that announce the end of a Job.
const FINISHES: [&str; 6] = [
    "Completed",
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
];

impl Judge<'_> {
    pub(super) fn job_judged(&mut self, change: &Change, step: &Step<Job>) {
        let Some(after) = &step.after else { return };
        let none = JobStatus::default();
        let old = step.before.as_ref().map_or(&none, |job| &job.status);
        if *old == after.status {
            return;
        }
        self.conditions_last(change, old, after);
        // One that was there before the history began may be over.
        if step.before.is_some() {
            self.interim_first(change, old, after);
        }
        if after.status.finished().is_some() {
            self.quiet_at_the_end(change, old, after);
        }
        if old.verdict().is_none() && after.status.verdict().is_some() {
            self.verdict_is_right(change, after);
        }
        if after.status.ready.unwrap_or(0) > after.status.active {
            self.broken("INV-28", change.revision, job_name(after), "more pods are ready than active");
        }
    }

    /// INV-7.
    fn conditions_last(&mut self, change: &Change, old: &JobStatus, job: &Job) {
        let kinds: BTreeSet<&str> = job.status.conditions.iter().map(|one| &*one.kind).collect();
        if kinds.len() != job.status.conditions.len() {
            self.broken("INV-7", change.revision, job_name(job), "a condition type occurs twice");
        }
        for kind in FOR_EVER {
            if old.holds(kind).is_some() && job.status.holds(kind).is_none() {
                let invariant = if matches!(kind, "Complete" | "Failed") { "INV-7" } else { "INV-8" };
                self.broken(invariant, change.revision, job_name(job), format!("`{kind}` is no longer true"));
            } else if let (Some(was), Some(is)) = (old.holds(kind), job.status.holds(kind))
                && was != is
            {
                self.broken("INV-8", change.revision, job_name(job), format!("`{kind}` is judged anew: {is:?}"));
            }
        }
        for pair in [["Complete", "Failed"], ["SuccessCriteriaMet", "FailureTarget"]] {
            if pair.iter().all(|kind| job.status.holds(kind).is_some()) {
                self.broken("INV-7", change.revision, job_name(job), format!("{pair:?} are both true"));
            }
        }
    }

    /// INV-8.
    fn interim_first(&mut self, change: &Change, old: &JobStatus, job: &Job) {
        for (terminal, interim) in [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")] {
            let (Some(end), None) = (job.status.holds(terminal), old.holds(terminal)) else { continue };
            match old.holds(interim) {
                None => {
                    let what = format!("`{terminal}` and no `{interim}` before");
                    self.broken("INV-8", change.revision, job_name(job), what);
                }
                Some(announced) if (&announced.reason, &announced.message) != (&end.reason, &end.message) => {
                    let what = format!("announced as {announced:?} and ended as {end:?}");
                    self.broken("INV-8", change.revision, job_name(job), what);
                }
                Some(_) => {}
            }
        }
    }

    /// INV-9.
    fn quiet_at_the_end(&mut self, change: &Change, old: &JobStatus, job: &Job) {
        let status = &job.status;
        let name = job_name(job);
        if (status.active, status.ready.unwrap_or(0), status.terminating.unwrap_or(0)) != (0, 0, 0) {
            self.broken("INV-9", change.revision, &name, "finished with pods in its status");
        }
        if status.completion_time.is_some() != status.holds("Complete").is_some() {
            self.broken("INV-9", change.revision, &name, "`completionTime` and `Complete` do not go together");
        }
        if status.start_time.is_none() && !(job.spec.suspend && job.spec.completions == Some(0)) {
            self.broken("INV-9", change.revision, &name, "finished without `startTime`");
        }
        if status.completion_time.is_some_and(|end| status.start_time.is_some_and(|start| end < start)) {
            self.broken("INV-9", change.revision, &name, "completed before it started");
        }
        if old.finished().is_some() {
            if old.completion_time != status.completion_time || old.start_time != status.start_time {
                self.broken("INV-9", change.revision, &name, "its times changed after the end");
            }
            return;
        }
        // A request that arrives when its sender has long given up cannot be waited for.
        let live: Vec<String> = self
            .ledger
            .pods_of(&job.metadata.uid)
            .filter(|(_, pod)| pod.is_live())
            .map(|(_, pod)| pod.name.clone())
            .collect();
        if !live.is_empty() && !self.excuses_late(&job.metadata.uid) {
            self.broken("INV-9", change.revision, name, format!("finished while {live:?} live"));
        }
    }

    /// INV-10.
    fn verdict_is_right(&mut self, change: &Change, job: &Job) {
        let Some(reason) = job.status.verdict().map(|verdict| verdict.reason.clone()) else { return };
        let pods: Vec<_> = self.ledger.pods_ever_of(&job.metadata.uid).map(|(_, pod)| pod).collect();
        let completed = job.completed();
        let failed_indexes = job.failed_indexes();
        let limit = job.spec.completions.unwrap_or(0);
        // What was made or adopted a moment ago may be unknown.
        let works = |pod: &PodRecord| {
            let old = pod.by == "job" && !is_recent(pod.created_at, change.at, self.tolerance.window);
            !pod.gone && pod.last.is_active() && pod.last.job() == Some(&*job.metadata.uid) && old
        };
        let right = match &*reason {
            "BackoffLimitExceeded" => {
                let backoff = job.spec.backoff_limit.unwrap_or(6);
                // Pods that wait for room on the list count as well.
                let known = |pod: &PodRecord| pod.counted.is_some() || pod.listed.is_some();
                let ignored = |pod: &PodRecord| job.policy_action(&pod.last) == Some("Ignore");
                let waits = |pod: &PodRecord| pod.ended == Some(Side::Failed) && !known(pod) && !ignored(pod);
                // Of those on the list, what lives and falls with the verdict is no reason for it. What an earlier attempt
                // deleted for another verdict, which was not written, cannot be told from other failures (JC-901).
                let by_this = |ending: Ending| is_recent(ending.at, change.at, ATTEMPT);
                let failed = |pod: &PodRecord| {
                    pod.ended == Some(Side::Failed) || pod.deleted_first && !pod.ended_by_us.is_some_and(by_this)
                };
                let on_list = job.status.uncounted_terminated_pods.failed.iter();
                let listed = on_list.filter_map(|uid| self.ledger.pods.get(uid)).filter(|pod| failed(pod)).count();
                let listed = (listed + pods.iter().filter(|pod| waits(pod)).count()) as u64;
                let restarts = &self.ledger.jobs[&job.metadata.uid].restarts;
                // A verdict stands from the moment at which pods were ended for it: they restart no more.
                let endings = pods.iter().filter_map(|pod| pod.ended_by_us).map(|ending| ending.at);
                let moments = endings.chain([change.at]);
                let restarts =
                    moments.map(|at| restarts.believable(at, self.tolerance.window)).max().unwrap_or_default();
                let in_place = job.spec.template.spec.restart_policy == "OnFailure";
                job.status.failed + listed > backoff || (in_place && restarts >= backoff.max(1))
            }
            "DeadlineExceeded" => {
                let deadline = job.spec.active_deadline_seconds.map(jiff::SignedDuration::from_secs);
                match (deadline, job.status.start_time, change.at) {
                    (Some(deadline), Some(start), Some(now)) => {
                        let now = self.history.latest_clock(now, self.tolerance.window);
                        now.duration_since(start) >= deadline
                    }
                    (deadline, ..) => deadline.is_some(),
                }
            }
            "PodFailurePolicy" => pods.iter().any(|pod| job.policy_action(&pod.last) == Some("FailJob")),
            "FailedIndexes" => !failed_indexes.is_empty() && (failed_indexes.len() + completed.len()) as u64 >= limit,
            "MaxFailedIndexesExceeded" => {
                job.spec.max_failed_indexes.is_some_and(|max| failed_indexes.len() as u64 > max)
            }
            "SuccessPolicy" => job.spec.success_policy.as_ref().is_some_and(|policy| {
                policy.rules.iter().any(|rule| {
                    let wanted = rule.succeeded_indexes.as_deref().and_then(indexes);
                    let among: Vec<u32> = match &wanted {
                        Some(wanted) => completed.intersection(wanted).copied().collect(),
                        None => completed.iter().copied().collect(),
                    };
                    let needed = rule.succeeded_count.or(wanted.map(|wanted| wanted.len() as u64)).unwrap_or(limit);
                    among.len() as u64 >= needed
                })
            }),
            "CompletionsReached" => {
                let listed = job.status.uncounted_terminated_pods.succeeded.len() as u64;
                let succeeded = (job.status.succeeded + listed).max(self.succeeded(&job.metadata.uid));
                match job.spec.completions {
                    Some(completions) => succeeded >= completions,
                    None => (succeeded > 0 || job.parallelism() == 0) && !pods.iter().any(|pod| works(pod)),
                }
            }
            _ => false,
        };
        let unfinished = pods.iter().any(|pod| pod.is_live());
        if reason == "SuccessPolicy" && unfinished {
            self.met("success policy met with pods running");
        }
        if !right {
            self.broken("INV-10", change.revision, job_name(job), format!("ends for {reason}, which is not the case"));
        }
    }

    /// INV-12: the end is announced after it is written, and once by each process.
    pub(super) fn announcements(&mut self) {
        let mut told: BTreeMap<(u32, &str, &str), usize> = BTreeMap::new();
        let finishing = |reason: &str| FINISHES.contains(&reason);
        for told_of in self.history.announcements.iter().filter(|one| finishing(&one.reason)) {
            self.met("end announced");
            *told.entry((told_of.life, &*told_of.uid, &*told_of.reason)).or_default() += 1;
            let job = self.ledger.jobs.get(&told_of.uid);
            let finished = job.and_then(|job| job.finished_revision);
            let end = job.and_then(|job| job.last.status.finished());
            let reason = end.map(|end| if end.kind == "Complete" { "Completed" } else { &*end.reason });
            if let Some(reason) = reason.filter(|reason| *reason != told_of.reason) {
                let what = format!("`{}` is announced, and it ended with `{reason}`", told_of.reason);
                self.broken("INV-12", told_of.revision, format!("job {}", told_of.uid), what);
            }
            if finished.is_none_or(|revision| revision > told_of.revision) {
                let what = format!("`{}` is announced before it is written", told_of.reason);
                self.broken("INV-12", told_of.revision, format!("job {}", told_of.uid), what);
            }
        }
        let twice: Vec<_> = told.into_iter().filter(|(_, times)| *times > 1).collect();
        for ((_, uid, reason), times) in twice {
            self.broken("INV-12", 0, format!("job {uid}"), format!("`{reason}` is announced {times} times"));
        }
    }

    /// INV-1, INV-10, INV-23 in hindsight: what was done in expectation of a verdict had one.
    pub(super) fn deferred(&mut self) {
        let mut broken = Vec::new();
        for pod in self.ledger.pods.values() {
            let (Some(Ending { revision, at, verdict }), Some(job)) = (pod.ended_by_us, &pod.job) else { continue };
            let Some(job) = self.ledger.job(job) else { continue };
            // A user who suspends it meanwhile prevents the verdict, and wants the pod to go as well.
            let suspended = job.suspended_at.is_some_and(|suspended| {
                at.is_none_or(|at| at <= suspended) || is_recent(Some(suspended), at, self.tolerance.window)
            });
            // It may have failed meanwhile, if it was to succeed.
            let ended = [verdict, "FailureTarget"].into_iter().any(|kind| job.last.status.holds(kind).is_some());
            if !ended && !job.last.metadata.is_deleting() && !suspended {
                broken.push((revision, pod.name.clone()));
            }
        }
        for (revision, name) in broken {
            self.broken("INV-23", revision, format!("pod {name}"), "deleted without need: its Job goes on");
        }
        self.uncounted_at_the_end();
    }

    /// INV-1: a finished Job has counted every pod that ended, but for those that rules exclude.
    fn uncounted_at_the_end(&mut self) {
        let mut broken = Vec::new();
        for (uid, job) in &self.ledger.jobs {
            let Some(finished) = job.finished_revision else { continue };
            if job.gone || job.last.is_foreign() {
                continue;
            }
            let completed = job.last.completed();
            for (_, pod) in self.ledger.pods_ever_of(uid) {
                let ours = pod.by == "job" && pod.ever_tracked && pod.last.job() == Some(uid);
                let settled = pod.listed.is_some()
                    || pod.counted.is_some()
                    // Its index was; one that a smaller size has taken off since need not be on record again.
                    || pod.recorded
                    || pod.last.index().is_some_and(|index| job.last.is_indexed() && completed.contains(&index));
                let excluded = pod.ever_surplus
                    || job.last.policy_action(&pod.last) == Some("Ignore")
                    || !job.last.is_valid_index(pod.last.index())
                    // Somebody took it away by its labels, and it was let go.
                    || !job.last.selects(&pod.last)
                    // What still runs when a Job succeeds is ended, and counts as nothing.
                    || (pod.ended_by_us.is_some() || pod.let_go) && job.last.status.holds("Complete").is_some();
                // Nobody may have seen its end before somebody else took its finalizer.
                let unseen = pod.stripped.is_some_and(|at| is_recent(pod.ended_at, at, self.tolerance.window));
                // One that was made after the end is a breach of INV-11, and not of this. One that is made by a call from
                // the past comes when nobody expects it.
                let in_time = pod.created_revision < finished && !self.history.is_late(pod.created_revision);
                if ours && in_time && !unseen && !settled && !excluded && pod.ended.is_some() {
                    broken.push((finished, pod.name.clone(), job.name.clone()));
                }
            }
        }
        for (revision, pod, job) in broken {
            self.broken("INV-1", revision, format!("job {job}"), format!("finished without counting pod {pod}"));
        }
    }
}
