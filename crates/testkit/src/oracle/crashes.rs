//! Which situations a history contains: without them a clean run proves nothing (invariants, section 4).

use crate::faults::Fault;

use super::{
    Judge,
    history::{Change, Step},
    ledger::JobRecord,
    views::{Job, Pod, Side},
};

impl Judge<'_> {
    /// Looks at the faults that happened before this revision, in the state they happened in.
    pub(super) fn calls_before(&mut self, revision: u64) {
        let history = self.history;
        while let Some(call) = history.calls.get(self.calls_seen).filter(|call| call.revision < revision) {
            self.calls_seen += 1;
            let Some(fault) = call.fault else { continue };
            if fault.is_crash() && call.controller == "job" {
                for situation in self.crash_rows() {
                    self.met(situation);
                }
            }
            if let Some(listed) = call.uncounted {
                self.status_write(&call.path, listed, fault, call.code);
            }
        }
    }

    /// The rows of JC-1316 that a crash now belongs to.
    fn crash_rows(&self) -> Vec<&'static str> {
        let mut rows = Vec::new();
        for (uid, job) in self.ledger.jobs.iter().filter(|(_, job)| !job.gone) {
            rows.extend(self.crash_row(uid, job));
            let status = &job.last.status;
            if status.verdict().is_some() && status.finished().is_none() {
                rows.push("crash after W1 with interim condition");
            }
        }
        rows
    }

    fn crash_row(&self, uid: &str, job: &JobRecord) -> Option<&'static str> {
        let status = &job.last.status;
        if status.finished().is_some() {
            return Some("crash after W2");
        }
        let lists = &status.uncounted_terminated_pods;
        let listed: Vec<&String> = lists.succeeded.iter().chain(&lists.failed).collect();
        let is_tracked =
            |uid: &&&String| self.ledger.pods.get(**uid).is_some_and(|pod| !pod.gone && pod.last.is_tracked());
        let tracked = listed.iter().filter(is_tracked).count();
        if !listed.is_empty() {
            return Some(match tracked {
                0 => "crash after R, before W2",
                all if all == listed.len() => "crash after W1, before R",
                _ => "crash within R",
            });
        }
        let completed = job.last.completed();
        let ended = |pod: &&super::ledger::PodRecord| pod.last.ended().is_some() && pod.last.is_tracked();
        let pods: Vec<_> = self.ledger.pods_of(uid).map(|(_, pod)| pod).filter(ended).collect();
        let recorded = |pod: &&&super::ledger::PodRecord| {
            pod.last.index().is_some_and(|index| job.last.is_indexed() && completed.contains(&index))
        };
        if pods.iter().any(|pod| recorded(&pod)) {
            return Some("crash after W1 of an Indexed Job");
        }
        (!pods.is_empty()).then_some("crash before W1")
    }

    /// A status write that something happened to: the first of a sync lists pods, the second takes them off.
    fn status_write(&mut self, path: &str, listed: usize, fault: Fault, code: u16) {
        let name = path.rsplit('/').nth(1).unwrap_or_default();
        let job = self.ledger.jobs.values().find(|job| !job.gone && job.name == name);
        let stored = job.map_or(0, |job| job.last.status.uncounted_terminated_pods.len());
        let second = listed < stored;
        match (fault, second) {
            (Fault::Touched, false) if code == 409 && listed > stored => self.met("conflict on W1"),
            (Fault::Touched, true) if code == 409 => self.met("conflict on W2"),
            (Fault::ReplyLost | Fault::GatewayTimeout | Fault::Unsent | Fault::Refused(_) | Fault::Late(_), true) => {
                self.met("W2 lost");
            }
            _ => {}
        }
    }

    pub(super) fn pod_ended(&mut self, step: &Step<Pod>) {
        let (Some(before), Some(after)) = (&step.before, &step.after) else { return };
        if before.ended().is_some() || after.ended().is_none() {
            return;
        }
        let action =
            after.job().and_then(|uid| self.ledger.jobs.get(uid)).and_then(|job| job.last.policy_action(after));
        match action {
            Some("Ignore") => self.met("failure policy: Ignore"),
            Some("Count") => self.met("failure policy: Count"),
            Some("FailIndex") => self.met("failure policy: FailIndex"),
            Some("FailJob") => self.met("failure policy: FailJob"),
            _ => {}
        }
    }

    pub(super) fn job_edited(&mut self, change: &Change, step: &Step<Job>) {
        let (Some(before), Some(after)) = (&step.before, &step.after) else { return };
        if !before.spec.suspend && after.spec.suspend {
            let situation = self.phase_of(&after.metadata.uid);
            self.met(situation);
        }
        let (old, new) = (before.spec.completions.unwrap_or(0), after.spec.completions.unwrap_or(0));
        if new < old && before.completed().iter().any(|index| u64::from(*index) >= new) {
            self.met("resized down past completed indexes");
        }
        if new > old && self.ledger.jobs[&after.metadata.uid].completions_max > old {
            self.met("resized up again");
        }
        let verdict = before.status.verdict().is_none() && after.status.verdict().is_some();
        if verdict && self.history.call_of(change.revision).is_some_and(|call| call.unseen_pods > 0) {
            self.met("verdict while pod events are unobserved");
        }
        let uncounted = &after.status.uncounted_terminated_pods;
        if before.status.uncounted_terminated_pods.is_empty() && !uncounted.is_empty() {
            let waiting = |pod: &super::ledger::PodRecord| {
                pod.last.is_tracked() && pod.last.ended() == Some(Side::Succeeded) && pod.listed.is_none()
            };
            let unlisted = |uid: &String| !uncounted.succeeded.contains(uid) && !uncounted.failed.contains(uid);
            let left = self.ledger.pods_of(&after.metadata.uid).any(|(uid, pod)| waiting(pod) && unlisted(uid));
            if left && uncounted.len() == self.tolerance.uncounted_max {
                self.met("cap reached");
            }
        }
    }

    /// What the pods of a Job are doing.
    fn phase_of(&self, uid: &str) -> &'static str {
        let pods: Vec<_> = self.ledger.pods_of(uid).map(|(_, pod)| pod).collect();
        let any = |test: fn(&Pod) -> bool| pods.iter().any(|pod| test(&pod.last));
        if any(|pod| pod.ended().is_none() && pod.metadata.is_deleting()) {
            "suspended with pods terminating"
        } else if any(|pod| pod.ended().is_some() && pod.is_tracked()) {
            "suspended with pods ended and uncounted"
        } else if any(|pod| pod.is_active() && pod.status.phase == "Running") {
            "suspended with pods running"
        } else if any(|pod| pod.is_active()) {
            "suspended with pods pending"
        } else if pods.is_empty() {
            "suspended before the first pod"
        } else {
            "suspended between pods"
        }
    }
}
