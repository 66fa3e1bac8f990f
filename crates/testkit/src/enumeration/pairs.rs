//! Second faults: every harmful fault, at every call of every run with one harmful fault.
//!
//! Most of these pairs strike where the world already was with another first fault, or with none ([`super::juncture`]).
//! They are not run again, but for a part of them, by which the reasoning is put to the test.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::faults::{Call, Fault, How, Lag, Past, Point, Watched};

use super::{
    juncture::Juncture,
    plan::faults_at,
    run::{Baseline, Outcome},
};

/// What pairs are made of: the faults that do most harm, some of each class.
///
/// They strike no calls that tell of Events. What becomes of those changes nothing else, as each single fault there shows.
///
/// Caches lag in two ways: all of them, and then they list again (P-6, P-7); or one alone, and then everything comes twice
/// (P-6, P-8). After a restart, the list of what a controller goes by most is as old as any (P-9).
const HARMFUL: [Fault; 14] = [
    Fault::CrashAfter,
    Fault::CrashBefore,
    Fault::Refused(409),
    Fault::Refused(500),
    Fault::ReplyLost,
    Fault::Touched,
    Fault::Lag(Lag { what: Watched::All, how: How::Expired, patience_ms: 3_000 }),
    twice(Watched::Pods),
    twice(Watched::Jobs),
    past(Watched::Pods),
    past(Watched::Jobs),
    Fault::Namesake,
    // Last, because more is excused after them: a moment that others lead to as well is tried after one of those.
    Fault::Late(1),
    Fault::LateAfterRestart,
];

/// Those of which another one of the same class does as much.
const FURTHER: [Fault; 3] = [Fault::CrashBefore, Fault::Refused(500), Fault::Late(1)];

const fn twice(what: Watched) -> Fault {
    Fault::Lag(Lag { what, how: How::Twice, patience_ms: 3_000 })
}

const fn past(what: Watched) -> Fault {
    Fault::Past(Past { what, back: 8, patience_ms: 3_000 })
}

/// How many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Forms {
    OneOfEachClass,
    All,
}

impl Forms {
    /// Whether a fault at a call is part of pairs.
    fn include(self, call: &Call, fault: &Fault) -> bool {
        // Of what can be behind alone, that by which the controller goes most.
        let goes_by = |what| Watched::of(call.controller).first() == Some(&what);
        let alone = |what| [twice(what), past(what)].contains(fault);
        let spared = [Watched::Pods, Watched::Jobs].into_iter().any(|what| alone(what) && !goes_by(what));
        let further = self == Self::OneOfEachClass && FURTHER.contains(fault);
        HARMFUL.contains(fault) && !spared && !further && !call.is_event()
    }

    /// Whether pairs begin with a fault.
    pub fn begin(self, baseline: &Baseline, points: &[Point]) -> bool {
        let [(number, fault)] = points else { return false };
        baseline.calls.get(*number).is_some_and(|call| self.include(call, fault))
    }

    /// Where a second fault can strike in a run with one. Other runs have no part in this.
    pub fn moments(self, baseline: &Baseline, points: &[Point], outcome: &Outcome) -> Vec<Moment> {
        let [first] = points else { return Vec::new() };
        if !self.begin(baseline, points) {
            return Vec::new();
        }
        let chronicle = outcome.chronicle();
        let later = outcome.calls.iter().enumerate().skip(first.0 + 1).filter(|(_, call)| !call.is_event());
        let moment = |(call, made): (usize, &Call)| {
            let able = |fault: &Fault| self.include(made, fault) && !(baseline.unknowable)(fault);
            let seconds = faults_at(made).into_iter().filter(able).collect();
            chronicle.juncture(call, points).map(|juncture| Moment { call, juncture, seconds })
        };
        later.filter_map(moment).collect()
    }
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
