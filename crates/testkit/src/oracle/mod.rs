//! The judge: reads the store's log and checks what must hold whatever went wrong (invariants, section 1).
//!
//! It shares no code with the controllers or their plans. What is true it takes from the log alone: for every pod when
//! it was made, ended, listed, counted and released, and at every revision how many pods of each Job were live. A double
//! count that ends in the right number is found all the same.
//!
//! | file | judges |
//! |---|---|
//! | `ledger` | keeps the true state: pods and Jobs at a revision, and what is remembered of them |
//! | `counting` | INV-1…INV-6 |
//! | `verdicts` | INV-7…INV-12 |
//! | `ownership` | INV-14…INV-16 |
//! | `population` | INV-11, INV-17…INV-23 |
//! | `schedules` | INV-33…INV-41 as far as the log tells |
//! | `nodes` | INV-48 as far as the log tells |
//! | `crashes` | nothing: says which situations were met, so that a report can tell what was tried |
//! | `rest` | INV-13, INV-17, INV-23, INV-28, INV-38, INV-39 when nothing happens any more |
//!
//! Some promises are about what a controller *did*, and it can only act on what it was shown: a user's edit that it has
//! not seen yet is no excuse for a double count, but it is for a pod created a moment after `suspend`. So those checks
//! allow for edits that are younger than [`Tolerance::window`].

mod counting;
mod crashes;
mod history;
mod ledger;
mod nodes;
mod ownership;
mod population;
mod rest;
mod schedules;
#[cfg(test)]
mod tests;
mod verdicts;
mod views;

use std::{collections::BTreeMap, fmt, time::Duration};

pub(crate) use self::history::records_by;
pub use self::history::{History, Record, records};
use self::{
    history::{Change, What},
    ledger::Ledger,
};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `INV-4`.
    pub invariant: &'static str,
    pub revision: u64,
    /// Kind and name.
    pub object: String,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at revision {}, {}: {}", self.invariant, self.revision, self.object, self.what)
    }
}

/// How far behind a controller may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// Edits by users that are younger may be unknown to the controllers.
    pub window: Duration,
    /// Whether everything is expected to have come to rest at the end.
    pub settled: bool,
    /// Whether requests were on their way for longer than their sender lived: what they do then nobody can prevent. Where
    /// it was written down which call wrote what, only the Jobs that they wrote to are excused, from then on.
    pub late_landings: bool,
    /// Whether something else went wrong besides. A creation that lands late was named by the pods that were there when it
    /// was sent; if some of them are gone, its sender's successor chooses another name, and makes another pod.
    pub late_among_others: bool,
    /// How many pods one status may list as uncounted (INV-5).
    pub uncounted_max: usize,
    /// Whether pods are replaced only when they have failed wherever a Job says so. Where the gate of that is off at times,
    /// deleted pods of such a Job count as failed at once, as of others.
    pub replacement_policy: bool,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(2),
            settled: true,
            late_landings: false,
            late_among_others: false,
            uncounted_max: 500,
            replacement_policy: true,
        }
    }
}

/// What came of a history.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub violations: Vec<Violation>,
    /// Situations that were met, by name, and how often.
    pub met: BTreeMap<&'static str, u64>,
}

/// Judges a history from its first revision to its last.
pub fn judge(history: &History, tolerance: Tolerance) -> Findings {
    let mut judge =
        Judge { ledger: Ledger::default(), findings: Findings::default(), tolerance, history, calls_seen: 0 };
    for change in &history.changes {
        judge.calls_before(change.revision);
        judge.change(change);
    }
    judge.calls_before(u64::MAX);
    judge.announcements();
    judge.refused_adoptions();
    judge.deferred();
    if tolerance.settled {
        judge.rest();
    }
    judge.findings
}

/// A judge in the middle of a history.
struct Judge<'a> {
    ledger: Ledger,
    findings: Findings,
    tolerance: Tolerance,
    history: &'a History,
    /// Calls that have been looked at.
    calls_seen: usize,
}

impl Judge<'_> {
    /// Checks a change against the state before it, then makes it part of the state.
    fn change(&mut self, change: &Change) {
        self.note_late(change);
        match &change.what {
            What::Pod(step) => {
                self.pod_authored(change, step);
                self.pod_created(change, step);
                self.pod_removed_by_us(change, step);
                self.pod_collected(change, step);
                self.pod_reported(change, step);
                self.pod_ended(step);
                self.ledger.apply_pod(change, step);
                self.pod_released(change, step);
                self.pod_classified(change, step);
                self.pod_identity(change, step);
            }
            What::Job(step) => {
                self.job_authored(change, step);
                self.job_scheduled(change, step);
                self.job_removed(change, step);
                self.job_edited(change, step);
                self.ledger.apply_job(change, step);
                self.job_counted(change, step);
                self.job_judged(change, step);
            }
            What::CronJob(step) => {
                self.cron_job_changed(change, step);
                self.ledger.apply_cron_job(change, step);
            }
        }
    }

    /// A call that has been on its way for too long writes to a Job, or to a pod of it.
    fn note_late(&mut self, change: &Change) {
        if !self.history.is_late(change.revision) {
            return;
        }
        let job = match &change.what {
            What::Pod(step) => {
                step.after.as_ref().or(step.before.as_ref()).and_then(|pod| pod.job().map(str::to_owned))
            }
            What::Job(step) => step.after.as_ref().or(step.before.as_ref()).map(|job| job.metadata.uid.clone()),
            What::CronJob(_) => None,
        };
        self.ledger.late.extend(job);
    }

    /// Whether something may have been done to a Job that nobody could prevent.
    fn excuses_late(&self, job: &str) -> bool {
        let is_written_down = !self.history.calls.is_empty();
        self.tolerance.late_landings && (!is_written_down || self.ledger.late.contains(job))
    }

    fn broken(&mut self, invariant: &'static str, revision: u64, object: impl fmt::Display, what: impl fmt::Display) {
        let (object, what) = (object.to_string(), what.to_string());
        self.findings.violations.push(Violation { invariant, revision, object, what });
    }

    fn met(&mut self, situation: &'static str) {
        *self.findings.met.entry(situation).or_default() += 1;
    }
}
