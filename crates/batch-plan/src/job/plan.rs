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
//!
//! The first step is here, the other two are in `stages`; the calls and their outcomes are described in `action`.

use std::sync::Arc;

use batch_types::constants::value;
use batch_types::job::is_finished;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{PodAction, PodRef};
use super::events::Event;
use super::metrics::{Ended, SyncAction};
use super::names::PodNames;
use super::scale::Demand;
use super::stages::{Act, Context, SpecFacts};
use super::tally::{Stray, Tally};
use super::totals::Totals;
use super::tracking::{Circumstances, Round, collect};
use super::verdict::{Decision, decide, time_left};
use super::{Settings, Uid, owns};
use teeth::{Mutation, is};

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
    pub adopt: Vec<Adoption>,
    /// Send `patches::reclaim`, after the same read: pods that have ended and are settled, and lost their owner since.
    pub reclaim: Vec<PodRef>,
    /// Send `patches::disown`; "not found" and 422 count as done (JC-603).
    pub disown: Vec<PodRef>,
}

/// A pod to take over, as it was when it was judged. Only that version: one that was the Job's may have been counted and
/// released since, unless the cache shows otherwise, and would count again with a new finalizer (INV-1).
#[derive(Debug, Clone, PartialEq)]
pub struct Adoption {
    pub pod: PodRef,
    pub version: Arc<str>,
}

impl Plan {
    /// Whether it makes pods.
    pub fn creates(&self) -> bool {
        matches!(self, Self::Act(act) if matches!(&act.action, PodAction::Create { pods, .. } if !pods.is_empty()))
    }
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
        let left = tally.tracked().filter(|key| !(is(Mutation::A03) && tally.live.contains(*key)));
        let left = left.map(|(_, uid)| uid).chain(tally.stranded());
        let left: Vec<PodRef> = left.take(settings.releases_max).map(|uid| tally.pod_ref(uid)).collect();
        return if left.is_empty() || is(Mutation::A12) { Plan::Skip(Skip::Finished) } else { Plan::Release(left) };
    }
    if tally.in_flight.is_finished() && !is(Mutation::B07) {
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
    let adoptable = tally.adoptable.iter().take(settings.create_delete_max);
    let (reclaim, adopt): (Vec<_>, Vec<_>) = adoptable.partition(|(_, stray)| stray.settled);
    let named = |(uid, stray): (&Uid, &Stray)| PodRef { name: stray.name.clone(), uid: uid.clone() };
    let adoption = |uid, stray: &Stray| Adoption { pod: named((uid, stray)), version: stray.version.clone() };
    Claims {
        adopt: adopt.into_iter().map(|(uid, stray)| adoption(uid, stray)).collect(),
        reclaim: reclaim.into_iter().map(named).collect(),
        disown: tally.mismatched.iter().take(settings.create_delete_max).map(|uid| tally.pod_ref(uid)).collect(),
    }
}

/// The order of steps is that of JC section 5.
fn act(snapshot: &Snapshot<'_>, spec: &JobSpec, status: &JobStatus) -> Act {
    let Snapshot { job, tally, now, settings } = *snapshot;
    let stamp = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let deleting = job.metadata.deletion_timestamp.is_some();
    let waiting = tally.in_flight.waiting(now, settings.expectations_timeout).filter(|_| !is(Mutation::C08));
    let uncertain = tally.in_flight.uncertain_for(now, settings.expectations_timeout).filter(|_| !is(Mutation::I09));
    let totals = Totals::new(status, tally);

    let mut status = status.clone();
    let starts = status.start_time.is_none() && spec.suspend != Some(true);
    if starts {
        status.start_time = Some(Time(stamp));
    }
    let decision = decide(job, &status, tally, &totals, now, settings);
    let time_left = time_left(spec, &status, now).filter(|_| decision.is_none() && (starts || !is(Mutation::D15)));

    let managed = decision.is_none() && waiting.is_none() && !deleting;
    let (action, label, delay) = if let Some(decision) = &decision {
        let pods: Vec<_> = tally.active_pods().map(|(uid, _)| tally.pod_ref(uid)).collect();
        let action = match decision.ended {
            _ if pods.is_empty() => PodAction::None,
            // They count as nothing any more (JC-1703), so they are let go before anybody reads that the Job has succeeded:
            // one that ended after that and was still tracked would have to count.
            Ended::Succeeded => PodAction::Remove(pods),
            Ended::Failed => PodAction::End(pods),
        };
        (action, SyncAction::Reconciling, None)
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
    let unseen = tally.in_flight.unseen_pods(now, settings.expectations_timeout) as u64;
    let forgets_active = is(Mutation::A18) && delay.is_some();
    let context = Context {
        active: if forgets_active { 0 } else { u64::from(tally.active) + unseen },
        ready: u64::from(tally.ready),
        terminating: u64::from(tally.terminating),
        ready_pods: action.pods().filter(|uid| tally.pods[*uid].ready).cloned().collect(),
        satisfied: waiting.is_none(),
        certain: uncertain.is_none(),
        awaits_replacement: tally.indexes.retained_keys().next().is_some()
            && !tally.in_flight.is_namespace_terminating(),
        managed,
        settled: listed.filter(|uid| !tally.is_tracked(uid)).cloned().collect(),
        going_on: match is(Mutation::D09) && delay.is_some() {
            true => Round::default(),
            false => collect(tally, &totals, around, settings),
        },
        ending: ending.map(|ended| {
            let around = Circumstances { ending: Some(ended), deleting, hold_fail_job: false };
            collect(tally, &totals, around, settings)
        }),
        wake_after: [waiting, uncertain.filter(|_| ending.is_some()), time_left, delay].into_iter().flatten().min(),
        spec: facts,
        completion: Decision::completions_reached(settings),
        status,
        totals,
        decision,
        stamp,
    };
    Act { action, label, context }
}
