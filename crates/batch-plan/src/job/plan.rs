//! From a snapshot of a Job and its pods to everything that has to be done about them.
//!
//! One sync is three pure steps with calls between them, because the later ones depend on how the calls went
//! (JC section 13):
//!
//! ```text
//! plan(snapshot) ─► Act     create, remove or delete pods
//!                    │ record(outcomes of those calls)
//!                    ▼
//!                  Record   write the status that names ended pods, then remove their finalizers
//!                    │ close(outcomes of the removals)
//!                    ▼
//!                  Close    write the status that counts them, and perhaps finishes the Job
//! ```
//!
//! A crash between any two calls is safe: the next sync starts over from what is stored (JC-1316). The shell tells the
//! [`Tally`] about outcomes as well, so that the next plan knows what the cache does not show yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use batch_types::constants::value;
use batch_types::job::{is_finished, is_indexed};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::events::Event;
use super::metrics::{CompletionMode, CreationReason, Ended, Metric, SyncAction};
use super::names::PodNames;
use super::pod_view::FailureCounts;
use super::rules::natural;
use super::scale::Demand;
use super::status::{Uncounted, count, set_count, set_present_count, set_text};
use super::tally::Tally;
use super::totals::Totals;
use super::tracking::{Circumstances, Round, collect};
use super::verdict::{Decision, Interim, decide, time_left};
use super::{Settings, Uid, conditions, owns};

/// No timer is set for longer; the Job is simply looked at once more.
const WAKE_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Everything one decision may look at. The shell builds it; nothing here can block or fail.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    pub job: &'a Job,
    /// Every pod the Job controls. [`Tally::observe_job`] must have seen this very Job.
    pub tally: &'a Tally,
    pub now: Timestamp,
    pub settings: &'a Settings,
}

/// What to do about a Job.
#[derive(Debug)]
pub enum Plan {
    /// Nothing at all.
    Skip(Skip),
    /// Adopt or disown pods first. Then show the results to the tally and plan again; if any of it fails, the sync ends
    /// with that error and does nothing else (JC-607).
    Claim(Claims),
    /// The Job is finished, yet pods are still tracked: release them (INV-13). Then plan again.
    Release(Vec<PodRef>),
    Act(Box<Act>),
}

/// Why a Job is left alone (JC-504, JC-505).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// Another controller manages it; by what name, for the log.
    ManagedBy(String),
    Finished,
    /// We finished it, but the cache does not show that yet (JC-410).
    FinishedUnseen,
    /// Say so in this event.
    UnknownCompletionMode(Event),
}

/// Pods that change owners before anything else (JC section 6).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claims {
    /// Send `patches::adopt`, after a fresh read has shown the Job alive and the same (JC-604, INV-16). "Not found"
    /// means that the pod is gone.
    pub adopt: Vec<PodRef>,
    /// Send `patches::disown`; "not found" and 422 count as done (JC-603).
    pub disown: Vec<PodRef>,
}

/// A pod to call the API about. The UID goes along as a precondition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    pub name: Arc<str>,
    pub uid: Uid,
}

/// What to do about pods. Calls of one kind go out in parallel.
#[derive(Debug, Clone, PartialEq)]
pub enum PodAction {
    None,
    /// Create pods with the bodies that [`PodStencil`](super::PodStencil) gives, in batches one after the other. After a
    /// batch with a failure the rest is skipped. "Already exists" is [`CallOutcome::Done`] if the pod is the Job's.
    Create {
        pods: Vec<Creation>,
        batches: Vec<usize>,
    },
    /// Remove surplus pods so that they count as nothing: `patches::mark_surplus`, DELETE, `patches::release_surplus`.
    Remove(Vec<PodRef>),
    /// DELETE pods because the Job ends. They keep their finalizer and are counted afterwards.
    End(Vec<PodRef>),
}

/// A pod to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    pub name: Arc<str>,
    pub index: Option<u32>,
    /// With `backoffLimitPerIndex`: the failures of the index so far.
    pub failure_counts: Option<FailureCounts>,
}

/// How the calls about one pod of a [`PodAction`] went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    Done,
    /// The pod to remove or delete was not there any more.
    Gone,
    /// The pod to create exists and belongs to somebody else.
    NameTaken,
    /// The namespace is being deleted; not worth an error (JC-1009).
    NamespaceTerminating,
    /// Nobody knows whether the pod was created (INV-22).
    Unanswered(String),
    /// The creation or DELETE was refused.
    Failed(String),
    /// A patch before or after the DELETE was refused.
    PatchFailed(String),
    /// Not tried, because an earlier batch had failed.
    Skipped,
}

/// How the removal of finalizers went. "Not found", and a conflict of UIDs, are successes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseOutcome {
    /// The pods that still have their finalizer, and why.
    pub failed: BTreeMap<Uid, String>,
}

/// First step of a sync: the pods.
#[derive(Debug)]
pub struct Act {
    pub action: PodAction,
    /// Label of the sync metrics.
    pub label: SyncAction,
    context: Context,
}

/// Second step: put ended pods on record, then release them.
#[derive(Debug)]
pub struct Record {
    /// Emit at once.
    pub events: Vec<Event>,
    /// PUT this status first. If that fails the sync fails with `adding uncounted pods to status: …`, and no finalizer is
    /// touched.
    pub status: Option<JobStatus>,
    /// Count when the write went through, or at once if there is none.
    pub metrics: Vec<Metric>,
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
    /// Whether that write finishes the Job; if so, call [`Tally::note_finished`] after it.
    pub finished: bool,
}

/// What later steps need of the first.
#[derive(Debug)]
struct Context {
    /// The status as it will be written.
    status: JobStatus,
    totals: Totals,
    active: u64,
    ready: u64,
    terminating: u64,
    /// Which pods of the action are ready.
    ready_pods: BTreeSet<Uid>,
    decision: Option<Decision>,
    /// Whether the cache shows all we did; if not, the Job cannot end now (JC-1002).
    satisfied: bool,
    /// Whether creations, removals and suspension were considered.
    managed: bool,
    /// Uncounted pods that are released already and only have to be counted (JC-1304).
    settled: BTreeSet<Uid>,
    /// Pods to put on record if the Job goes on, and if it ends.
    going_on: Round,
    ending: Option<Round>,
    wake_after: Option<Duration>,
    spec: SpecFacts,
    /// For times in the status, which have whole seconds.
    stamp: Timestamp,
    completion: Decision,
}

/// What later steps need of the spec.
#[derive(Debug, Clone, Copy)]
struct SpecFacts {
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

/// Decides what to do about a Job now.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let Snapshot { job, tally, settings, .. } = *snapshot;
    let empty = (JobSpec::default(), JobStatus::default());
    let spec = job.spec.as_ref().unwrap_or(&empty.0);
    let status = job.status.as_ref().unwrap_or(&empty.1);
    if !owns(job, settings) {
        return Plan::Skip(Skip::ManagedBy(spec.managed_by.clone().unwrap_or_default()));
    }
    if is_finished(job) {
        let left: Vec<PodRef> =
            tally.tracked().take(settings.releases_max).map(|(_, uid)| tally.pod_ref(uid)).collect();
        return if left.is_empty() { Plan::Skip(Skip::Finished) } else { Plan::Release(left) };
    }
    if tally.in_flight.is_finished() {
        return Plan::Skip(Skip::FinishedUnseen);
    }
    if !matches!(spec.completion_mode.as_deref(), None | Some(value::INDEXED | value::NON_INDEXED)) {
        return Plan::Skip(Skip::UnknownCompletionMode(Event::unknown_completion_mode()));
    }
    let claims = claims(job, tally, settings);
    if claims != Claims::default() {
        return Plan::Claim(claims);
    }
    Plan::Act(Box::new(act(snapshot, spec, status)))
}

/// A Job that is being deleted neither adopts nor disowns (JC-603, JC-604).
fn claims(job: &Job, tally: &Tally, settings: &Settings) -> Claims {
    if job.metadata.deletion_timestamp.is_some() {
        return Claims::default();
    }
    let adoptable = tally.adoptable.iter().map(|(uid, name)| PodRef { name: name.clone(), uid: uid.clone() });
    Claims {
        adopt: adoptable.take(settings.create_delete_max).collect(),
        disown: tally.mismatched.iter().take(settings.create_delete_max).map(|uid| tally.pod_ref(uid)).collect(),
    }
}

/// The order of steps is that of JC section 5.
fn act(snapshot: &Snapshot<'_>, spec: &JobSpec, status: &JobStatus) -> Act {
    let Snapshot { job, tally, now, settings } = *snapshot;
    let stamp = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let deleting = job.metadata.deletion_timestamp.is_some();
    let waiting = tally.in_flight.waiting(now, settings.expectations_timeout);
    let totals = Totals::new(status, tally);

    let mut status = status.clone();
    if status.start_time.is_none() && spec.suspend != Some(true) {
        status.start_time = Some(Time(stamp));
    }
    let decision = decide(job, &status, tally, &totals, now, settings);
    let time_left = time_left(spec, &status, now).filter(|_| decision.is_none());

    let managed = decision.is_none() && waiting.is_none() && !deleting;
    let (action, label, delay) = if decision.is_some() {
        let pods = tally.active_pods().map(|(uid, _)| tally.pod_ref(uid)).collect();
        (PodAction::End(pods), SyncAction::Reconciling, None)
    } else if managed {
        let uid = Uid::new(job.metadata.uid.as_deref().unwrap_or(""));
        let names = PodNames::new(job.metadata.name.as_deref().unwrap_or(""), &uid);
        let managed = Demand { spec, tally, totals: &totals, names, now, settings }.manage();
        (managed.action, managed.label, managed.wake_after)
    } else {
        (PodAction::None, SyncAction::Reconciling, None)
    };

    let facts = SpecFacts::new(spec, settings);
    let around = Circumstances { ending: None, deleting, hold_fail_job: decision.is_some() };
    let ending = decision.as_ref().map(|decision| decision.ended);
    let ending = ending.or(facts.completed(totals.succeeded).then_some(Ended::Succeeded));
    let listed = totals.uncounted.succeeded.iter().chain(&totals.uncounted.failed);
    let context = Context {
        active: u64::from(tally.active) + tally.in_flight.unseen_pods(now, settings.expectations_timeout) as u64,
        ready: u64::from(tally.ready),
        terminating: u64::from(tally.terminating),
        ready_pods: action.pods().filter(|uid| tally.pods[*uid].ready).cloned().collect(),
        satisfied: waiting.is_none(),
        managed,
        settled: listed.filter(|uid| !tally.is_tracked(uid)).cloned().collect(),
        going_on: collect(tally, &totals, around, settings),
        ending: ending.map(|ended| {
            let around = Circumstances { ending: Some(ended), deleting, hold_fail_job: false };
            collect(tally, &totals, around, settings)
        }),
        wake_after: [waiting, time_left, delay].into_iter().flatten().min(),
        spec: facts,
        completion: Decision::completions_reached(settings),
        status,
        totals,
        decision,
        stamp,
    };
    Act { action, label, context }
}

impl PodAction {
    /// The pods that an action takes away.
    fn pods(&self) -> impl Iterator<Item = &Uid> {
        let pods = match self {
            Self::Remove(pods) | Self::End(pods) => pods.as_slice(),
            Self::None | Self::Create { .. } => &[],
        };
        pods.iter().map(|pod| &pod.uid)
    }
}

impl SpecFacts {
    fn new(spec: &JobSpec, settings: &Settings) -> Self {
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
    fn completed(self, succeeded: u64) -> bool {
        match self.completions {
            None => succeeded > 0,
            Some(completions) => succeeded >= completions,
        }
    }
}

impl Act {
    /// The calls of the action have been made; `outcomes` are in the order of its pods.
    pub fn record(self, outcomes: &[CallOutcome]) -> Record {
        let Self { action, mut context, .. } = self;
        let mut events = Vec::new();
        let mut metrics = Vec::new();
        context.apply(&action, outcomes, &mut events, &mut metrics);
        context.conclude(&action, outcomes);
        let flush = context.suspend_or_resume(&mut events);
        context.record(flush, events, metrics)
    }
}

impl Context {
    /// Brings the numbers in line with what became of the pods, and tells about it.
    fn apply(
        &mut self,
        action: &PodAction,
        outcomes: &[CallOutcome],
        events: &mut Vec<Event>,
        metrics: &mut Vec<Metric>,
    ) {
        match action {
            PodAction::None => {}
            PodAction::Create { pods, .. } => {
                let reason = self.creation_reason();
                let done = outcomes.iter().filter(|outcome| **outcome == CallOutcome::Done).count() as u64;
                let failed = outcomes.iter().filter(|outcome| outcome.error().is_some()).count() as u64;
                self.active += done;
                metrics.push(Metric::PodsCreated { reason, status: Ended::Succeeded, by: done });
                metrics.push(Metric::PodsCreated { reason, status: Ended::Failed, by: failed });
                events.extend(pods.iter().zip(outcomes).filter_map(|(pod, outcome)| outcome.creation_event(&pod.name)));
            }
            PodAction::Remove(pods) | PodAction::End(pods) => {
                for (pod, outcome) in pods.iter().zip(outcomes) {
                    if outcome.is_gone() {
                        self.active -= 1;
                        self.terminating += 1;
                        self.ready -= u64::from(self.ready_pods.contains(&pod.uid));
                    }
                    events.extend(outcome.deletion_event(&pod.name));
                }
            }
        }
        metrics.retain(|metric| !matches!(metric, Metric::PodsCreated { by: 0, .. }));
    }

    /// Drops a decision that cannot stand yet (JC-1002), or completes the Job by count (JC-1004).
    fn conclude(&mut self, action: &PodAction, outcomes: &[CallOutcome]) {
        if self.decision.is_some() {
            let all_gone = outcomes.len() >= action.pods().count() && outcomes.iter().all(CallOutcome::is_gone);
            if !all_gone || !self.satisfied {
                self.decision = None;
                self.ending = None;
            }
        } else if self.active == 0 && self.spec.completed(self.totals.succeeded) {
            self.decision = Some(self.completion.clone());
        }
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
            self.status.start_time = (!self.spec.suspended).then_some(Time(self.stamp));
            events.push(event);
        }
        changed
    }

    /// JC-1301…1310: the status that names the pods of this round.
    fn record(mut self, conditions_changed: bool, events: Vec<Event>, mut metrics: Vec<Metric>) -> Record {
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
            flush |= conditions::upsert(status, decision.condition(decision.interim_type(), self.stamp));
        }

        metrics.extend(round.handled.iter().map(|(action, by)| Metric::FailuresHandled { action: *action, by: *by }));
        self.finished_metrics(before, &mut metrics);
        let quiet = self.active == 0 && (self.terminating == 0 || !self.spec.delays_terminal_condition);
        Record {
            events,
            metrics,
            wake_after: if round.more { Some(Duration::ZERO) } else { self.wake_after }
                .map(|wait| wait.min(WAKE_AFTER_MAX)),
            status: flush.then(|| self.status.clone()),
            release: round.release.clone(),
            closing: Closing {
                status: self.status,
                uncounted,
                release: round.release,
                may_finish: quiet && !round.more,
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

    /// JC-2209.
    fn creation_reason(&self) -> CreationReason {
        match self.totals.failed {
            1.. if self.spec.only_failed => CreationReason::RecreateFailed,
            0 if self.terminating == 0 => CreationReason::New,
            _ => CreationReason::RecreateTerminatingOrFailed,
        }
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
    match decision.ended {
        Ended::Succeeded => {
            // Not before the start, should the clock have been set back (INV-9).
            let started = status.start_time.as_ref().map_or(stamp, |start| start.0);
            status.completion_time = Some(Time(stamp.max(started)));
            if spec.completions.is_some_and(|completions| count(status.succeeded) > completions) {
                close.events.push(Event::too_many_succeeded());
            }
            close.events.push(Event::completed());
        }
        Ended::Failed => close.events.push(Event::failed(&decision.reason, &decision.message)),
    }
    close.metrics.push(Metric::JobFinished {
        mode: spec.mode,
        result: decision.ended,
        reason: decision.reason.clone(),
    });
    close.finished = true;
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

impl CallOutcome {
    /// Why the call did not do what it should.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Unanswered(error) | Self::Failed(error) | Self::PatchFailed(error) => Some(error),
            Self::NameTaken => Some("the name is taken by a pod that is not the Job's"),
            Self::Done | Self::Gone | Self::NamespaceTerminating | Self::Skipped => None,
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Done | Self::Gone)
    }

    fn creation_event(&self, name: &str) -> Option<Event> {
        match self {
            Self::Done => Some(Event::pod_created(name)),
            Self::Failed(error) | Self::Unanswered(error) => Some(Event::create_failed(error)),
            _ => None,
        }
    }

    fn deletion_event(&self, name: &str) -> Option<Event> {
        match self {
            Self::Done => Some(Event::pod_deleted(name)),
            Self::Failed(error) | Self::Unanswered(error) => Some(Event::delete_failed(error)),
            _ => None,
        }
    }
}
