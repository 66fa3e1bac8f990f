//! Second faults: every harmful fault, at every call of every run with one harmful fault.
//!
//! Most of these pairs strike where the world already was with another first fault, or with none ([`super::juncture`]).
//! They are not run again, but for a part of them, by which the reasoning is put to the test.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::faults::{Call, Fault, How, Lag, Point, Watched};

use super::{
    juncture::Juncture,
    plan::faults_at,
    run::{Baseline, Outcome},
};

/// Scenarios of up to so many calls are tried with every pair. Events do not count, and meet single faults only: what
/// becomes of them changes nothing else, as each of those runs must show.
const CALLS_MAX: usize = 25;

/// The faults that do most harm, one or two of each class; pairs are made of these.
///
/// Restarts on an older list (P-9) are tried alone. They are two faults in one, a crash and a list that lags; with a third, a
/// process that crashed before the status told of its pods, and whose successor is shown neither them nor those whose
/// names they avoided, has left nothing to go by.
///
/// Namesakes (P-13) come second only. After one, a scenario begins anew with it, and so would all single faults.
const HARMFUL: [Fault; 11] = [
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::Refused(409),
    Fault::Refused(500),
    Fault::ReplyLost,
    Fault::Touched,
    Fault::Lag(Lag { what: Watched::Pods, how: How::Held(3), patience_ms: 3_000 }),
    Fault::Lag(Lag { what: Watched::All, how: How::Expired, patience_ms: 3_000 }),
    Fault::Lag(Lag { what: Watched::All, how: How::Twice, patience_ms: 3_000 }),
    // Last, because more is excused after them: a moment that others lead to as well is tried after one of those.
    Fault::Late(1),
    Fault::LateAfterRestart,
];

/// Whether pairs begin with a fault.
pub fn is_harmful(fault: &Fault) -> bool {
    HARMFUL.contains(fault)
}

/// Whether pairs end with it.
fn comes_second(fault: &Fault) -> bool {
    is_harmful(fault) || *fault == Fault::Namesake
}

/// Gathers the pairs of one scenario from its runs with one fault.
#[derive(Debug, Default)]
pub struct PairPlanner {
    /// By the place of the first fault in the order in which they are gone through.
    moments: BTreeMap<(usize, usize), (Point, Vec<Moment>)>,
}

/// Where a second fault can strike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    call: usize,
    juncture: Juncture,
    seconds: Vec<Fault>,
}

/// Two faults of one scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub points: Vec<Point>,
    /// Another pair with the same second fault in the same juncture, or that fault alone.
    pub like: Option<Vec<Point>>,
}

impl PairPlanner {
    /// Whether a scenario is short enough.
    pub fn takes(baseline: &Baseline) -> bool {
        baseline.calls.iter().filter(|call| !call.is_event()).count() <= CALLS_MAX
    }

    /// Where a second fault can strike in a run with one. Other runs have no part in this.
    pub fn moments(baseline: &Baseline, points: &[Point], outcome: &Outcome) -> Vec<Moment> {
        let [first] = points else { return Vec::new() };
        let strikes_event = outcome.calls.get(first.0).is_some_and(Call::is_event);
        if !Self::takes(baseline) || !is_harmful(&first.1) || strikes_event {
            return Vec::new();
        }
        let chronicle = outcome.chronicle();
        let able = |fault: &Fault| comes_second(fault) && !(baseline.unknowable)(fault);
        let later = outcome.calls.iter().enumerate().skip(first.0 + 1).filter(|(_, call)| !call.is_event());
        let moment = |(call, made)| {
            let seconds = faults_at(made).into_iter().filter(able).collect();
            chronicle.juncture(call, points).map(|juncture| Moment { call, juncture, seconds })
        };
        later.filter_map(moment).collect()
    }

    /// Notes the moments of a run with one fault.
    pub fn add(&mut self, points: &[Point], moments: Vec<Moment>) {
        let [first] = points else { return };
        let Some(rank) = HARMFUL.iter().position(|fault| *fault == first.1) else { return };
        self.moments.insert((rank, first.0), (*first, moments));
    }

    /// All pairs, always in the same order.
    pub fn pairs(self, baseline: &Baseline) -> impl Iterator<Item = Pair> + use<> {
        let mut known: HashMap<Juncture, (Option<Point>, usize)> = HashMap::new();
        for (call, juncture) in baseline.junctures.iter().enumerate() {
            known.entry(*juncture).or_insert((None, call));
        }
        let moments = self.moments.into_values();
        let moments = moments.flat_map(|(first, moments)| moments.into_iter().map(move |moment| (first, moment)));
        moments.flat_map(move |(first, Moment { call, juncture, seconds })| {
            let like = known.get(&juncture).copied();
            known.entry(juncture).or_insert((Some(first), call));
            seconds.into_iter().map(move |second| Pair {
                points: vec![first, (call, second)],
                like: like.map(|(first, call)| first.into_iter().chain([(call, second)]).collect()),
            })
        })
    }
}
