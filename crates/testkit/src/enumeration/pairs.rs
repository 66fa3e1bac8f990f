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

/// What pairs are made of: the faults that do most harm, at least one of each class but P-9 and P-13 (see below).
///
/// They strike no calls that tell of Events. What becomes of those changes nothing else, as each single fault there shows.
///
/// A process that ends after a call stands for one that ends before the next. Caches lag in two ways: all of them, and
/// then they list again (P-6, P-7); or one alone, and then everything comes twice (P-6, P-8).
///
/// Restarts on an older list (P-9) are tried alone. They are two faults in one, a crash and a list that lags; with a third, a
/// process that crashed before the status told of its pods, and whose successor is shown neither them nor those whose
/// names they avoided, has left nothing to go by.
const HARMFUL: [Fault; 10] = [
    Fault::CrashAfter,
    Fault::Refused(409),
    Fault::Refused(500),
    Fault::ReplyLost,
    Fault::Touched,
    Fault::Lag(Lag { what: Watched::All, how: How::Expired, patience_ms: 3_000 }),
    twice(Watched::Pods),
    twice(Watched::Jobs),
    // Last, because more is excused after them: a moment that others lead to as well is tried after one of those.
    Fault::Late(1),
    Fault::LateAfterRestart,
];

const fn twice(what: Watched) -> Fault {
    Fault::Lag(Lag { what, how: How::Twice, patience_ms: 3_000 })
}

/// Whether pairs begin with this at a call.
fn comes_first(call: &Call, fault: &Fault) -> bool {
    // Of the caches that lag alone, the one that says most.
    let says_most = |what| Watched::of(call.controller).first() == Some(&what);
    let spared = *fault == twice(Watched::Jobs) && !says_most(Watched::Jobs);
    HARMFUL.contains(fault) && !spared && !call.is_event()
}

/// Whether pairs end with this at a call. After a namesake (P-13) a scenario begins anew with it, and so would all single
/// faults; so namesakes come second only.
fn comes_second(call: &Call, fault: &Fault) -> bool {
    comes_first(call, fault) || *fault == Fault::Namesake && !call.is_event()
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
    /// Whether pairs begin with a fault.
    pub fn begins(baseline: &Baseline, points: &[Point]) -> bool {
        let [(number, fault)] = points else { return false };
        baseline.calls.get(*number).is_some_and(|call| comes_first(call, fault))
    }

    /// Where a second fault can strike in a run with one. Other runs have no part in this.
    pub fn moments(baseline: &Baseline, points: &[Point], outcome: &Outcome) -> Vec<Moment> {
        let [first] = points else { return Vec::new() };
        if !Self::begins(baseline, points) {
            return Vec::new();
        }
        let chronicle = outcome.chronicle();
        let later = outcome.calls.iter().enumerate().skip(first.0 + 1).filter(|(_, call)| !call.is_event());
        let moment = |(call, made): (usize, &Call)| {
            let able = |fault: &Fault| comes_second(made, fault) && !(baseline.unknowable)(fault);
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
