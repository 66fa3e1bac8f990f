//! How far the Jobs of a run are: a model that events change and lines are made from. No clock, no IO.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::job_view::{JobView, Outcome};
use crate::pod_view::PodObject;
use crate::text::duration_text;

/// The rate is that of the last so many seconds.
const WINDOW: Duration = Duration::from_secs(10);

/// No rate is told before this much time has been seen.
const WINDOW_MIN: Duration = Duration::from_millis(500);

/// All Jobs of a run, in the order of their manifests.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    jobs: Vec<JobProgress>,
    by_uid: HashMap<String, usize>,
    /// Pods that have not started, by uid: whose they are.
    starting: HashMap<Box<str>, usize>,
}

/// One Job.
#[derive(Debug)]
pub(crate) struct JobProgress {
    pub(crate) view: JobView,
    began: Instant,
    ended: Option<Instant>,
    /// How much was done when, oldest first.
    samples: VecDeque<(Instant, u32)>,
    /// Pods that were seen to have ended, by uid.
    ended_pods: HashSet<Box<str>>,
    /// Why pods of it are not running, by the pod's uid.
    waiting: BTreeMap<Box<str>, Waiting>,
    /// Why pods of it failed, where no log says so; the first of each kind.
    failures: Vec<Unlogged>,
}

/// Kinds of failures that are told. Messages may name what no other one does.
const FAILURES_MAX: usize = 10;

/// A failure that no log tells of: a pod that was rejected, a command that could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unlogged {
    pub(crate) pod: String,
    /// The reason and the first line of the message.
    pub(crate) why: String,
}

/// Pods of a Job of which it is known why they wait; one of them is shown.
const WAITING_MAX: usize = 100;

#[derive(Debug)]
struct Waiting {
    why: String,
    /// Told by an event: the pod's own status knows nothing of it.
    by_event: bool,
}

impl Progress {
    /// The Jobs as they were created.
    pub(crate) fn new(jobs: impl IntoIterator<Item = JobView>, now: Instant) -> Self {
        let mut progress = Self::default();
        for view in jobs {
            progress.by_uid.insert(view.uid.clone(), progress.jobs.len());
            progress.jobs.push(JobProgress::new(view, now));
        }
        progress
    }

    pub(crate) fn jobs(&self) -> &[JobProgress] {
        &self.jobs
    }

    /// A Job as it is now. Those of others are not looked at.
    pub(crate) fn job_changed(&mut self, view: JobView, now: Instant) {
        if let Some(&position) = self.by_uid.get(&view.uid) {
            self.jobs[position].change(view, now);
        }
    }

    /// The Job is gone: its time to live is over, or somebody deleted it.
    pub(crate) fn job_deleted(&mut self, uid: &str, now: Instant) {
        if let Some(&position) = self.by_uid.get(uid) {
            self.jobs[position].deleted(now);
        }
    }

    /// These are all the Jobs that there are: others went while nobody looked.
    pub(crate) fn only_jobs(&mut self, uids: &HashSet<String>, now: Instant) {
        for job in self.jobs.iter_mut().filter(|job| !uids.contains(&job.view.uid)) {
            job.deleted(now);
        }
    }

    /// Whether the pod belongs to one of the Jobs.
    pub(crate) fn owns(&self, pod: &PodObject) -> bool {
        pod.job().is_some_and(|(uid, _)| self.by_uid.contains_key(uid))
    }

    pub(crate) fn pod_changed(&mut self, pod: &PodObject) {
        let Some(position) = self.job_of(pod) else { return };
        let (job, uid) = (&mut self.jobs[position], pod.uid());
        let has_started = pod.has_started() || pod.has_ended();
        if has_started {
            self.starting.remove(uid);
        } else {
            self.starting.insert(uid.into(), position);
        }
        match pod.held_up_by().filter(|_| !pod.has_ended()) {
            Some(why) => job.waits(uid, Waiting { why, by_event: false }),
            None if has_started || job.waiting.get(uid).is_some_and(|waiting| !waiting.by_event) => {
                job.waiting.remove(uid);
            }
            None => {}
        }
        if let Some(why) = unlogged_failure(pod) {
            job.failed_unlogged(pod.name(), why);
        }
        if pod.has_ended() {
            job.ended_pods.insert(uid.into());
        }
    }

    pub(crate) fn pod_deleted(&mut self, pod: &PodObject) {
        if let Some(position) = self.job_of(pod) {
            self.starting.remove(pod.uid());
            self.jobs[position].waiting.remove(pod.uid());
            self.jobs[position].ended_pods.insert(pod.uid().into());
        }
    }

    /// What its node says keeps a pod from starting.
    pub(crate) fn pod_held_up(&mut self, uid: &str, why: String) {
        if let Some(&position) = self.starting.get(uid) {
            self.jobs[position].waits(uid, Waiting { why, by_event: true });
        }
    }

    fn job_of(&self, pod: &PodObject) -> Option<usize> {
        let (uid, _) = pod.job()?;
        self.by_uid.get(uid).copied()
    }

    pub(crate) fn has_finished(&self) -> bool {
        self.jobs.iter().all(|job| job.view.outcome.is_some())
    }

    /// How many have not.
    pub(crate) fn unfinished(&self) -> usize {
        self.jobs.iter().filter(|job| job.view.outcome.is_none()).count()
    }

    /// Nothing runs, nor will by itself.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.jobs.iter().all(|job| job.view.is_at_rest())
    }

    /// Every pod that the Jobs have counted has been seen here too: Jobs and pods are watched apart.
    pub(crate) fn has_seen_all_pods(&self) -> bool {
        self.jobs.iter().all(|job| job.ended_pods.len() >= (job.view.succeeded + job.view.failed) as usize)
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = &JobProgress> {
        self.jobs.iter().filter(|job| matches!(job.view.outcome, Some(Outcome::Failed { .. })))
    }
}

impl JobProgress {
    fn new(view: JobView, now: Instant) -> Self {
        let samples = VecDeque::from([(now, 0)]);
        Self {
            view,
            began: now,
            ended: None,
            samples,
            ended_pods: HashSet::new(),
            waiting: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    fn change(&mut self, view: JobView, now: Instant) {
        // The last word stands: a Job that was deleted after its end is still a Job that ended so.
        if self.ended.is_some() {
            return;
        }
        if view.outcome.is_some() {
            self.ended = Some(now);
        }
        self.view = view;
        let done = self.settled();
        if self.samples.back().is_none_or(|(_, before)| *before != done) {
            self.samples.push_back((now, done));
        }
        // The oldest one stays until the next is old enough to take its place; one that is far too old never counts.
        while self.samples.len() > 1
            && self.samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) > WINDOW_MIN)
            && self.samples.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    fn waits(&mut self, pod: &str, waiting: Waiting) {
        if self.waiting.len() < WAITING_MAX || self.waiting.contains_key(pod) {
            self.waiting.insert(pod.into(), waiting);
        }
    }

    fn failed_unlogged(&mut self, pod: &str, why: String) {
        if self.failures.len() < FAILURES_MAX && !self.failures.iter().any(|known| known.why == why) {
            self.failures.push(Unlogged { pod: pod.to_owned(), why });
        }
    }

    /// What made pods fail and is in no log, in the order in which it was seen.
    pub(crate) fn failures(&self) -> &[Unlogged] {
        &self.failures
    }

    /// Why a pod of it is not running.
    pub(crate) fn waiting(&self) -> Option<&str> {
        self.waiting.values().next().map(|waiting| waiting.why.as_str()).filter(|_| self.view.outcome.is_none())
    }

    fn deleted(&mut self, now: Instant) {
        if self.ended.is_none() {
            self.ended = Some(now);
            let message = "the Job was deleted before it finished".to_owned();
            self.view.outcome = Some(Outcome::Failed { reason: "Deleted".to_owned(), message });
        }
    }

    /// Completions that need no more work.
    fn settled(&self) -> u32 {
        self.view.succeeded + u32::try_from(self.view.failed_indexes.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        self.ended.unwrap_or(now).duration_since(self.began)
    }

    /// Completions a second, lately.
    pub(crate) fn rate(&self, now: Instant) -> Option<f64> {
        let (&(since, before), &(_, done)) = (self.samples.front()?, self.samples.back()?);
        let time = now.duration_since(since);
        (time >= WINDOW_MIN && done > before).then(|| f64::from(done - before) / time.as_secs_f64())
    }

    /// How long the rest takes at that rate.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        let left = self.view.completions?.saturating_sub(self.settled());
        Some(Duration::from_secs_f64(f64::from(left) / self.rate(now)?))
    }

    /// Counts for people: `3/10 done, 1 failed, 2 active, 1.5/s, ETA 5s`, and why it does not go on.
    pub(crate) fn counts(&self, now: Instant) -> String {
        let brief = self.brief(now);
        match self.waiting() {
            Some(why) => format!("{brief}: {why}"),
            None => brief,
        }
    }

    /// The same without the reason, which may be long.
    pub(crate) fn brief(&self, now: Instant) -> String {
        let view = &self.view;
        let mut parts = vec![match view.completions {
            Some(total) => format!("{}/{total} done", view.succeeded),
            None => format!("{} done", view.succeeded),
        }];
        let mut add = |count: u32, word: &str| {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        };
        add(view.failed, "failed");
        add(view.active, "active");
        add(view.terminating, "ending");
        if view.outcome.is_none() {
            if let Some(rate) = self.rate(now) {
                parts.push(if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") });
            }
            if let Some(remaining) = self.remaining(now).filter(|_| view.active > 0) {
                parts.push(format!("ETA {}", duration_text(remaining)));
            }
            match self.waiting() {
                Some(_) => parts.push("waiting".to_owned()),
                None if view.is_suspended => parts.push("suspended".to_owned()),
                None => {}
            }
        }
        parts.join(", ")
    }

    /// How it ended, in one line; what it still does, if it has not.
    pub(crate) fn ending(&self, now: Instant) -> String {
        let (view, time) = (&self.view, duration_text(self.elapsed(now)));
        match &view.outcome {
            Some(Outcome::Complete) => format!("job/{} complete in {time}: {}", view.name, self.counts(now)),
            Some(Outcome::Failed { .. }) => format!("job/{} failed after {time}: {}", view.name, self.counts(now)),
            None => format!("job/{} not finished after {time}: {}", view.name, self.counts(now)),
        }
    }

    pub(crate) fn json(&self, now: Instant) -> Value {
        let view = &self.view;
        let outcome = match &view.outcome {
            None => Value::Null,
            Some(Outcome::Complete) => json!("Complete"),
            Some(Outcome::Failed { .. }) => json!("Failed"),
        };
        let mut value = json!({
            "namespace": view.namespace, "job": view.name, "outcome": outcome, "completions": view.completions,
            "succeeded": view.succeeded, "failed": view.failed, "active": view.active,
            "seconds": millis(self.elapsed(now)),
        });
        if let Some(Outcome::Failed { reason, message }) = &view.outcome {
            (value["reason"], value["message"]) = (json!(reason), json!(message));
        } else if view.outcome.is_none() {
            value["perSecond"] = json!(self.rate(now));
            value["remainingSeconds"] = json!(self.remaining(now).map(millis));
            value["waiting"] = json!(self.waiting());
        }
        if !self.failures.is_empty() {
            let failures = self.failures.iter().map(|it| json!({"pod": it.pod, "message": it.why}));
            value["podFailures"] = failures.collect();
        }
        value
    }
}

/// Reasons of containers that were never started, and so have said nothing.
const NOT_STARTED: [&str; 2] = ["StartError", "ContainerCannotRun"];

/// Why a pod failed, or a container of it, if no log says so.
fn unlogged_failure(pod: &PodObject) -> Option<String> {
    let status = &pod.status;
    if pod.has_failed() && !status.reason.is_empty() {
        return Some(reason_text(&status.reason, &status.message));
    }
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
    let mut ends = statuses.flat_map(|it| [&it.last_state, &it.state]).filter_map(|state| state.terminated.as_ref());
    let end = ends.find(|end| NOT_STARTED.contains(&end.reason.as_str()))?;
    Some(reason_text(&end.reason, &end.message))
}

/// The reason, and the first line of the message.
fn reason_text(reason: &str, message: &str) -> String {
    match message.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => format!("{reason}: {line}"),
        None => reason.to_owned(),
    }
}

/// Seconds, with three digits after the point.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use batch_types::index_ranges::IndexSet;

    use super::*;

    fn view(succeeded: u32) -> JobView {
        JobView {
            uid: "u".to_owned(),
            name: "pieces".to_owned(),
            completions: Some(10),
            succeeded,
            ..JobView::default()
        }
    }

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    #[test]
    fn rate_and_remaining_time_follow_from_what_was_done_lately() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        assert_eq!(progress.jobs()[0].counts(begin), "0/10 done");
        progress.job_changed(JobView { active: 2, ..view(4) }, after(begin, 2));
        assert_eq!(progress.jobs()[0].counts(after(begin, 2)), "4/10 done, 2 active, 2.0/s, ETA 3.0s");
        // What was done long ago says nothing about now.
        progress.job_changed(JobView { active: 2, ..view(5) }, after(begin, 102));
        progress.job_changed(JobView { active: 2, ..view(6) }, after(begin, 107));
        assert_eq!(progress.jobs()[0].counts(after(begin, 107)), "6/10 done, 2 active, 0.2/s, ETA 20s");
    }

    #[test]
    fn a_failed_index_needs_no_more_work() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        let failed_indexes = IndexSet::parse("0,1", 10);
        progress.job_changed(JobView { failed_indexes, failed: 2, active: 1, ..view(6) }, after(begin, 8));
        assert_eq!(progress.jobs()[0].counts(after(begin, 8)), "6/10 done, 2 failed, 1 active, 1.0/s, ETA 2.0s");
    }

    #[test]
    fn the_end_of_a_job_is_final() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        assert!(!progress.has_finished());
        let complete = JobView { outcome: Some(Outcome::Complete), ..view(10) };
        progress.job_changed(complete, after(begin, 3));
        progress.job_deleted("u", after(begin, 4));
        assert!(progress.has_finished());
        assert_eq!(progress.jobs()[0].ending(after(begin, 9)), "job/pieces complete in 3.0s: 10/10 done");
        assert_eq!(progress.failed().count(), 0);
    }

    #[test]
    fn a_job_that_is_deleted_has_failed() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        progress.job_deleted("other", begin);
        assert!(!progress.has_finished());
        progress.job_deleted("u", after(begin, 1));
        assert_eq!(progress.jobs()[0].ending(after(begin, 1)), "job/pieces failed after 1.0s: 0/10 done");
        let outcome = progress.jobs()[0].view.outcome.clone().unwrap();
        assert_eq!(outcome.why(), "Deleted: the Job was deleted before it finished");
    }

    #[test]
    fn a_job_that_is_gone_when_they_are_listed_anew_has_failed() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        progress.only_jobs(&HashSet::from(["u".to_owned()]), begin);
        assert!(!progress.has_finished());
        progress.only_jobs(&HashSet::new(), begin);
        assert_eq!(progress.failed().count(), 1);
    }

    /// The reason stays until this very pod has started, whatever happens to the others.
    #[test]
    fn a_pod_that_cannot_start_is_told() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        let pod = |uid: &str, status: Value| -> PodObject {
            serde_json::from_value(json!({
                "metadata": {"uid": uid, "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "pieces", "uid": "u", "controller": true}]},
                "status": status,
            }))
            .unwrap()
        };
        let waits = |reason: &str, message: &str| {
            json!({"phase": "Pending", "containerStatuses": [
                {"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}]})
        };
        let runs = json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        let shown = |progress: &Progress| progress.jobs()[0].counts(begin);

        progress.pod_held_up("a", "of a pod that nobody has seen".to_owned());
        progress.pod_changed(&pod("a", waits("ContainerCreating", "")));
        assert_eq!(shown(&progress), "0/10 done");
        progress.pod_changed(&pod("a", waits("CreateContainerConfigError", "configmap \"x\" not found")));
        progress.pod_changed(&pod("b", runs.clone()));
        let why = "CreateContainerConfigError: configmap \"x\" not found";
        assert_eq!(shown(&progress), format!("0/10 done, waiting: {why}"));
        assert_eq!(progress.jobs()[0].json(begin)["waiting"], why);
        progress.pod_changed(&pod("a", waits("ContainerCreating", "")));
        assert_eq!(shown(&progress), "0/10 done");

        progress.pod_held_up("a", "FailedMount: no such volume".to_owned());
        progress.pod_changed(&pod("a", waits("ContainerCreating", "")));
        assert_eq!(shown(&progress), "0/10 done, waiting: FailedMount: no such volume");
        progress.pod_changed(&pod("a", runs));
        progress.pod_held_up("a", "too late".to_owned());
        assert_eq!(shown(&progress), "0/10 done");
    }

    #[test]
    fn failures_without_a_log_are_told_once_of_each_kind() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        let mut fail = |name: &str, status: Value| {
            let pod = json!({
                "metadata": {"uid": name, "name": name, "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "pieces", "uid": "u", "controller": true}]},
                "status": status,
            });
            progress.pod_changed(&serde_json::from_value(pod).unwrap());
            progress.jobs()[0].failures().iter().map(|it| format!("{} {}", it.pod, it.why)).collect::<Vec<_>>()
        };
        let ended = |reason: &str, message: &str| json!({"terminated": {"exitCode": 128, "reason": reason, "message": message}});
        let logged = json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": ended("Error", "")}]});
        assert_eq!(fail("a", logged), [""; 0], "its log says why");
        let rejected = json!({"phase": "Failed", "reason": "CommandRequired", "message": "no command\nmore"});
        assert_eq!(fail("b", rejected.clone()), ["b CommandRequired: no command"]);
        assert_eq!(fail("c", rejected).len(), 1);
        let again = json!({"phase": "Running", "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended("StartError", "no x")}]});
        assert_eq!(fail("d", again), ["b CommandRequired: no command", "d StartError: no x"]);
        assert_eq!(
            progress.jobs()[0].json(begin)["podFailures"][1],
            json!({"pod": "d", "message": "StartError: no x"})
        );
    }

    #[test]
    fn jobs_and_pods_are_watched_apart() {
        let begin = Instant::now();
        let mut progress = Progress::new([view(0)], begin);
        progress.job_changed(JobView { outcome: Some(Outcome::Complete), failed: 1, ..view(1) }, begin);
        let pod = |uid: &str, phase: &str| -> PodObject {
            serde_json::from_value(json!({
                "metadata": {"uid": uid, "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "pieces", "uid": "u", "controller": true}]},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        for (pod, seen_all) in [(pod("a", "Running"), false), (pod("a", "Failed"), false), (pod("a", "Failed"), false)]
        {
            progress.pod_changed(&pod);
            assert_eq!(progress.has_seen_all_pods(), seen_all);
        }
        progress.pod_deleted(&pod("b", "Running"));
        assert!(progress.has_seen_all_pods());
    }
}
