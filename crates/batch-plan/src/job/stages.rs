//! The second and third step of a sync: the status that puts ended pods on record, and the one that counts them.
//!
//! Nothing is looked up any more here: the first step has brought along all that these need, so they describe the same
//! moment (INV-28). Which pods are put on record was chosen in `tracking`.

use std::collections::BTreeSet;
use std::time::Duration;

use batch_types::constants::value;
use batch_types::job::is_indexed;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{CallOutcome, PodAction, PodRef, ReleaseOutcome};
use super::events::Event;
use super::metrics::{CompletionMode, CreationReason, Ended, Metric, SyncAction};
use super::rules::natural;
use super::status::{Uncounted, count, set_count, set_present_count, set_text};
use super::totals::Totals;
use super::tracking::Round;
use super::verdict::{Decision, Interim};
use super::{Settings, Uid, conditions};
use teeth::{Mutation, is};

/// No timer is set for longer; the Job is simply looked at once more.
const WAKE_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// First step of a sync: the pods.
#[derive(Debug)]
pub struct Act {
    pub action: PodAction,
    /// Label of the sync metrics.
    pub label: SyncAction,
    pub(super) context: Context,
}

/// Second step: put ended pods on record, then release them.
#[derive(Debug)]
pub struct Record {
    /// Emit at once.
    pub events: Vec<Event>,
    /// Count at once: what became of creations.
    pub creations: Vec<Metric>,
    /// PUT this status first. If that fails the sync fails with `adding uncounted pods to status: …`, and no finalizer is
    /// touched.
    pub status: Option<JobStatus>,
    /// Count when the write went through, or at once if there is none.
    pub metrics: Vec<Metric>,
    /// Then let these go: send `patches::release`, bound to a version that shows them live. One that has ended by then
    /// fails, and is counted by a later sync.
    pub let_go: Vec<PodRef>,
    /// Then send `patches::release` to these.
    pub release: Vec<PodRef>,
    /// Look at the Job again after this time, whatever else happens.
    pub wake_after: Option<Duration>,
    closing: Closing,
}

/// Third step: count, and finish if that was all.
#[derive(Debug)]
pub struct Close {
    /// PUT this status. If that fails the sync fails with `removing uncounted pods from status: …`.
    pub status: Option<JobStatus>,
    /// Emit when the write went through.
    pub events: Vec<Event>,
    /// Count when the write went through.
    pub metrics: Vec<Metric>,
    /// Whether that write finishes the Job; if so, call [`Tally::note_finished`](super::Tally::note_finished) after it.
    pub finished: bool,
}

/// What later steps need of the first.
#[derive(Debug)]
pub(super) struct Context {
    /// The status as it will be written.
    pub(super) status: JobStatus,
    pub(super) totals: Totals,
    pub(super) active: u64,
    pub(super) ready: u64,
    pub(super) terminating: u64,
    /// Which pods of the action are ready.
    pub(super) ready_pods: BTreeSet<Uid>,
    pub(super) decision: Option<Decision>,
    /// Whether the cache shows all we did; if not, the Job cannot end now (JC-1002).
    pub(super) satisfied: bool,
    /// Whether no pod can turn up that we may have created without knowing; until then the Job cannot finish (INV-9).
    pub(super) certain: bool,
    /// Whether failed pods wait for their replacement, as far as is known (JC-1506).
    pub(super) awaits_replacement: bool,
    /// Whether creations, removals and suspension were considered.
    pub(super) managed: bool,
    /// Uncounted pods that are released already and only have to be counted (JC-1304).
    pub(super) settled: BTreeSet<Uid>,
    /// Pods to put on record if the Job goes on, and if it ends.
    pub(super) going_on: Round,
    pub(super) ending: Option<Round>,
    pub(super) wake_after: Option<Duration>,
    pub(super) spec: SpecFacts,
    /// For times in the status, which have whole seconds.
    pub(super) stamp: Timestamp,
    pub(super) completion: Decision,
}

/// What later steps need of the spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpecFacts {
    mode: CompletionMode,
    completions: Option<u64>,
    suspended: bool,
    /// Whether `completions` may change, because they equal `parallelism` (JC-1407).
    resizable: bool,
    per_index: bool,
    only_failed: bool,
    reports_terminating: bool,
    delays_terminal_condition: bool,
}

#[derive(Debug)]
struct Closing {
    status: JobStatus,
    uncounted: Uncounted,
    release: Vec<PodRef>,
    decision: Option<Decision>,
    /// Whether this sync may finish the Job, if all releases succeed.
    may_finish: bool,
    spec: SpecFacts,
    stamp: Timestamp,
}

impl Act {
    /// The calls of the action have been made; `outcomes` are in the order of its pods.
    pub fn record(self, outcomes: &[CallOutcome]) -> Record {
        let Self { action, mut context, .. } = self;
        let creations = context.creation_metrics(&action, outcomes);
        let mut events = context.apply(&action, outcomes);
        context.conclude(&action, outcomes);
        context.await_ended(&action, outcomes);
        // They need not wait any more: the next plan lets them go.
        if context.awaits_replacement && outcomes.contains(&CallOutcome::NamespaceTerminating) {
            context.wake_after = Some(Duration::ZERO);
        }
        let flush = context.suspend_or_resume(&mut events);
        context.record(flush, events, creations)
    }
}

impl SpecFacts {
    pub(super) fn new(spec: &JobSpec, settings: &Settings) -> Self {
        let indexed = is_indexed(spec);
        let gates = settings.gates;
        Self {
            mode: if indexed { CompletionMode::Indexed } else { CompletionMode::NonIndexed },
            completions: match spec.completions {
                None if indexed => Some(0),
                completions => completions.map(|count| u64::from(natural(count))),
            },
            suspended: spec.suspend == Some(true),
            resizable: indexed && spec.completions == spec.parallelism,
            per_index: indexed && spec.backoff_limit_per_index.is_some(),
            only_failed: gates.job_pod_replacement_policy
                && spec.pod_replacement_policy.as_deref() == Some(value::REPLACE_FAILED),
            reports_terminating: gates.job_pod_replacement_policy,
            delays_terminal_condition: settings.delays_terminal_condition(),
        }
    }

    /// Whether that many successes are enough, once no pod is active (JC-1004).
    pub(super) fn completed(self, succeeded: u64) -> bool {
        match self.completions {
            None => succeeded > 0,
            Some(completions) => succeeded >= completions,
        }
    }
}

impl Context {
    /// Brings the numbers in line with what became of the pods, and tells about it.
    fn apply(&mut self, action: &PodAction, outcomes: &[CallOutcome]) -> Vec<Event> {
        match action {
            PodAction::None => Vec::new(),
            PodAction::Create { pods, .. } => {
                self.active += outcomes.iter().filter(|outcome| **outcome == CallOutcome::Done).count() as u64;
                pods.iter().zip(outcomes).filter_map(|(pod, outcome)| outcome.creation_event(&pod.name)).collect()
            }
            PodAction::Remove(pods) | PodAction::End(pods) => {
                for (pod, outcome) in pods.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_gone()) {
                    self.active -= 1;
                    self.terminating += u64::from(!is(Mutation::C05) && *outcome != CallOutcome::HadEnded);
                    self.ready -= u64::from(self.ready_pods.contains(&pod.uid));
                }
                pods.iter().zip(outcomes).filter_map(|(pod, outcome)| outcome.deletion_event(&pod.name)).collect()
            }
        }
    }

    /// JC-2209, with failed calls counted as such only.
    fn creation_metrics(&self, action: &PodAction, outcomes: &[CallOutcome]) -> Vec<Metric> {
        if !matches!(action, PodAction::Create { .. }) {
            return Vec::new();
        }
        let reason = match self.totals.failed {
            _ if !self.spec.reports_terminating => CreationReason::New,
            1.. if self.spec.only_failed => CreationReason::RecreateFailed,
            0 if self.terminating == 0 => CreationReason::New,
            _ => CreationReason::RecreateTerminatingOrFailed,
        };
        let done = outcomes.iter().filter(|outcome| **outcome == CallOutcome::Done).count() as u64;
        let failed = outcomes.iter().filter(|outcome| outcome.error().is_some()).count() as u64;
        let counts = [(Ended::Succeeded, done), (Ended::Failed, failed)].into_iter().filter(|(_, by)| *by > 0);
        counts.map(|(status, by)| Metric::PodsCreated { reason, status, by }).collect()
    }

    /// Drops a decision that cannot stand yet (JC-1002), or completes the Job by count (JC-1004).
    fn conclude(&mut self, action: &PodAction, outcomes: &[CallOutcome]) {
        if self.decision.is_some() {
            let all_gone = outcomes.len() >= action.pods().count() && outcomes.iter().all(CallOutcome::is_gone);
            if !all_gone || !self.satisfied {
                self.decision = None;
                self.ending = None;
            }
        } else if (self.active == 0 || is(Mutation::B06)) && self.spec.completed(self.totals.succeeded) {
            self.decision = Some(self.completion.clone());
        }
    }

    /// Leaves out pods of which only the server knows yet that they have ended: as live ones they would be released
    /// uncounted when the Job succeeds, and be taken for failed when it fails (JC-1307). Upstream does that. Pods that were
    /// removed are released already.
    fn await_ended(&mut self, action: &PodAction, outcomes: &[CallOutcome]) {
        let Some(ending) = &mut self.ending else { return };
        if let PodAction::Remove(pods) = action {
            let released = |outcome: &CallOutcome| matches!(outcome, CallOutcome::Done | CallOutcome::Gone);
            let removed = pods.iter().zip(outcomes).filter(|(_, outcome)| released(outcome));
            let removed: BTreeSet<&Uid> = removed.map(|(pod, _)| &pod.uid).collect();
            ending.let_go.retain(|pod| !removed.contains(&pod.uid));
        }
        let ended = action.pods().zip(outcomes).filter(|(_, outcome)| **outcome == CallOutcome::HadEnded);
        let ended: BTreeSet<&Uid> = ended.map(|(uid, _)| uid).filter(|_| !is(Mutation::I02)).collect();
        ending.let_go.retain(|pod| !ended.contains(&pod.uid));
        ending.release.retain(|pod| !ended.contains(&pod.uid));
        ending.failed.retain(|uid| !ended.contains(uid));
        // The watch brings the next sync: the end is stored, and so is the deletion.
        self.certain &= ended.is_empty();
    }

    /// JC section 18. Says whether the conditions changed.
    fn suspend_or_resume(&mut self, events: &mut Vec<Event>) -> bool {
        if !self.managed || self.decision.is_some() {
            return false;
        }
        let (condition, event) = match self.spec.suspended {
            true => (conditions::suspended(self.stamp), Event::suspended()),
            false => (conditions::resumed(self.stamp), Event::resumed()),
        };
        let changed = conditions::upsert(&mut self.status, condition);
        if changed {
            if !is(Mutation::B09) {
                self.status.start_time = (!self.spec.suspended).then_some(Time(self.stamp));
            }
            events.push(event);
        }
        changed
    }

    /// JC-1301…1310: the status that names the pods of this round.
    fn record(mut self, conditions_changed: bool, mut events: Vec<Event>, creations: Vec<Metric>) -> Record {
        let round = match (&self.decision, self.ending.take()) {
            (Some(_), Some(ending)) => ending,
            _ => self.going_on.clone(),
        };
        let before = Counters::of(&self.status);
        let status = &mut self.status;
        let mut flush = conditions_changed;
        flush |= set_count(&mut status.active, self.active);
        flush |= set_present_count(&mut status.ready, self.ready);
        match self.spec.reports_terminating {
            true => flush |= set_present_count(&mut status.terminating, self.terminating),
            false => flush |= status.terminating.take().is_some(),
        }

        let mut uncounted = self.totals.uncounted.clone();
        flush |= uncounted.settle(status, |uid| self.settled.contains(uid));
        flush |= !round.succeeded.is_empty() || !round.failed.is_empty();
        uncounted.succeeded.extend(round.succeeded);
        uncounted.failed.extend(round.failed);
        uncounted.write(status);

        if let Some(indexes) = &self.totals.indexes {
            // Indexes that a smaller Job no longer has are forgotten. The API lets the counter follow only while both
            // sizes agree (JA-S28).
            let at_least = if self.spec.resizable { 0 } else { before.succeeded };
            set_count(&mut status.succeeded, at_least.max(indexes.succeeded.len() as u64));
            flush |= set_text(&mut status.completed_indexes, indexes.succeeded.to_string());
            let failed = self.spec.per_index.then(|| indexes.failed.to_string());
            flush |= status.failed_indexes != failed;
            status.failed_indexes = failed;
        }
        flush |= count(status.succeeded) != before.succeeded;
        if let Some(decision) = self.decision.as_ref().filter(|decision| decision.interim == Interim::New) {
            let condition = decision.condition(decision.interim_type(), self.stamp);
            if is(Mutation::B04) {
                status.conditions.get_or_insert_default().push(condition.clone());
            }
            flush |= conditions::upsert(status, condition);
        }

        let handled = round.handled.iter().map(|(action, by)| Metric::FailuresHandled { action: *action, by: *by });
        let mut metrics: Vec<Metric> = handled.collect();
        self.finished_metrics(before, &mut metrics);
        let wake_after = if round.more { Some(Duration::ZERO) } else { self.wake_after };
        let delayed = self.spec.delays_terminal_condition && !is(Mutation::B01);
        let quiet = self.active == 0 && (self.terminating == 0 || !delayed) || is(Mutation::B06);
        let may_finish = quiet && self.certain && !round.more;
        if let Some(decision) = self.decision.as_ref().filter(|_| may_finish && is(Mutation::B12)) {
            let (told, counted) = announcement(decision, self.spec, &self.status);
            events.extend(told);
            metrics.push(counted);
        }
        Record {
            events,
            creations,
            metrics,
            wake_after: wake_after.map(|wait| wait.min(WAKE_AFTER_MAX)),
            status: flush.then(|| self.status.clone()),
            let_go: round.let_go,
            release: round.release.clone(),
            closing: Closing {
                status: self.status,
                uncounted,
                release: round.release,
                may_finish,
                decision: self.decision,
                spec: self.spec,
                stamp: self.stamp,
            },
        }
    }

    /// JC-2205, JC-2206: what the first write adds.
    fn finished_metrics(&self, before: Counters, metrics: &mut Vec<Metric>) {
        let after = Counters::of(&self.status);
        let mode = self.spec.mode;
        let mut succeeded = after.succeeded.saturating_sub(before.succeeded);
        if let Some(indexes) = &self.totals.indexes {
            // Completions that a smaller Job forgot must not count backwards.
            succeeded = (indexes.succeeded.len() - indexes.recorded.len()) as u64;
            let failed = (indexes.failed.len() - indexes.failed_recorded.len()) as u64;
            for (status, by) in [(Ended::Succeeded, succeeded), (Ended::Failed, failed)] {
                metrics.extend((by > 0).then_some(Metric::IndexesFinished {
                    status,
                    per_index: self.spec.per_index,
                    by,
                }));
            }
        }
        pods_finished(mode, succeeded, after.failed - before.failed, metrics);
    }
}

impl Record {
    /// The status is written and the finalizers are removed, except where that failed.
    pub fn close(self, outcome: &ReleaseOutcome) -> Close {
        let Closing { mut status, mut uncounted, release, decision, may_finish, spec, stamp } = self.closing;
        let before = Counters::of(&status);
        let released: BTreeSet<&Uid> =
            release.iter().map(|pod| &pod.uid).filter(|uid| !outcome.failed.contains_key(uid)).collect();
        let mut flush = uncounted.settle(&mut status, |uid| released.contains(uid));
        uncounted.write(&mut status);
        if spec.mode == CompletionMode::Indexed {
            // Successes of Indexed Jobs are counted by index, and were with the first write.
            set_count(&mut status.succeeded, before.succeeded);
        }

        let mut close = Close { status: None, events: Vec::new(), metrics: Vec::new(), finished: false };
        let after = Counters::of(&status);
        let (succeeded, failed) = (after.succeeded - before.succeeded, after.failed - before.failed);
        pods_finished(spec.mode, succeeded, failed, &mut close.metrics);
        if let Some(decision) = decision.filter(|_| may_finish && outcome.failed.is_empty() && uncounted.is_empty()) {
            finish(&mut status, &decision, spec, stamp, &mut close);
            flush = true;
        }
        close.status = flush.then_some(status);
        close
    }
}

/// JC-1313: the terminal condition and what goes with it.
fn finish(status: &mut JobStatus, decision: &Decision, spec: SpecFacts, stamp: Timestamp, close: &mut Close) {
    conditions::upsert(status, decision.condition(decision.terminal_type(), stamp));
    // A Job can end while it is suspended, without a start. The API wants one all the same, except from a Job that had
    // nothing to do in the first place (JA-S14).
    if status.start_time.is_none() && !(spec.suspended && spec.completions == Some(0)) {
        status.start_time = Some(Time(stamp));
    }
    if decision.ended == Ended::Succeeded {
        // Not before the start, should the clock have been set back (INV-9).
        let started = status.start_time.as_ref().map_or(stamp, |start| start.0);
        status.completion_time = Some(Time(stamp.max(started)));
    }
    if !is(Mutation::B12) {
        let (told, counted) = announcement(decision, spec, status);
        close.events.extend(told);
        close.metrics.push(counted);
    }
    close.finished = true;
}

/// What the world hears of the end, once it is written (INV-12).
fn announcement(decision: &Decision, spec: SpecFacts, status: &JobStatus) -> (Vec<Event>, Metric) {
    let too_many = spec.completions.is_some_and(|completions| count(status.succeeded) > completions);
    let events = match decision.ended {
        Ended::Succeeded if too_many => vec![Event::too_many_succeeded(), Event::completed()],
        Ended::Succeeded => vec![Event::completed()],
        Ended::Failed => vec![Event::failed(&decision.reason, &decision.message)],
    };
    (events, Metric::JobFinished { mode: spec.mode, result: decision.ended, reason: decision.reason.clone() })
}

#[derive(Debug, Clone, Copy)]
struct Counters {
    succeeded: u64,
    failed: u64,
}

impl Counters {
    fn of(status: &JobStatus) -> Self {
        Self { succeeded: count(status.succeeded), failed: count(status.failed) }
    }
}

fn pods_finished(mode: CompletionMode, succeeded: u64, failed: u64, metrics: &mut Vec<Metric>) {
    for (result, by) in [(Ended::Succeeded, succeeded), (Ended::Failed, failed)] {
        metrics.extend((by > 0).then_some(Metric::PodsFinished { mode, result, by }));
    }
}
