//! Which faults are tried where.

use crate::faults::{Call, Fault, How, Lag, Outage, OutageKind, Past, Point, Watched};

use super::{pairs::Pair, run::Baseline};

/// How long caches may lie: shorter than a retry, longer than a retry, longer than a back-off.
const PATIENCE_MS: [u32; 3] = [300, 3_000, 40_000];

/// How long lists and watches are not served: for several attempts.
const OUTAGE_MS: u32 = 3_000;

/// Which part of the cases is tried. Faults of a call itself (P-1…P-5, P-13) are tried at every call every time; those of
/// watches and lists (P-6…P-9), of which there are four times as many, and pairs come in turns.
///
/// Every case comes exactly once in as many turns as there are parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    pub turn: u64,
    /// One in so many faults of watches.
    pub watches_one_in: u64,
    /// One in so many pairs.
    pub pairs_one_in: u64,
    /// One in so many of those that strike where the world was before.
    pub known_one_in: u64,
}

impl Rotation {
    /// Whether it is the turn of a single fault, by its number among all of its scenario.
    pub fn includes_single(&self, number: usize, points: &[Point]) -> bool {
        let of_watches = points.iter().any(|(_, fault)| fault.is_of_watches());
        self.is_turn(number, if of_watches { self.watches_one_in } else { 1 })
    }

    /// The same of a pair.
    pub fn includes_pair(&self, number: usize, pair: &Pair) -> bool {
        self.is_turn(number, if pair.like.is_some() { self.known_one_in } else { self.pairs_one_in })
    }

    fn is_turn(&self, number: usize, one_in: u64) -> bool {
        scattered(number as u64) % one_in.max(1) == self.turn % one_in.max(1)
    }
}

/// A number that has nothing to do with its neighbours' (splitmix64), so that a part of the cases is spread over all
/// calls and faults.
fn scattered(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Every fault at every call.
pub fn singles(baseline: &Baseline) -> Vec<Vec<Point>> {
    let mut all = Vec::new();
    for (number, call) in baseline.calls.iter().enumerate() {
        let faults = faults_at(call).into_iter().filter(|fault| !(baseline.unknowable)(fault));
        all.extend(faults.map(|fault| vec![(number, fault)]));
    }
    all
}

/// The faults that can happen to a call.
pub(super) fn faults_at(call: &Call) -> Vec<Fault> {
    let mut faults = vec![Fault::CrashBefore, Fault::CrashAfter, Fault::Unsent, Fault::Silence];
    faults.extend([403, 409, 422, 429, 500].map(Fault::Refused));
    faults.push(Fault::Namesake);
    let writes = !call.kind.starts_with("GET");
    if writes {
        // No server says of an object that is there that it is not; on the way to a write it may get lost.
        faults.push(Fault::Refused(404));
        faults.extend([Fault::ReplyLost, Fault::SilenceAfter, Fault::GatewayTimeout]);
        faults.extend([Fault::Late(1), Fault::Late(3), Fault::LateAfterRestart]);
        // Nobody reads an Event to write it.
        if !call.kind.starts_with("POST") && !call.is_event() {
            faults.push(Fault::Touched);
        }
    }
    for what in Watched::of(call.controller).iter().copied() {
        let lag = |how, patience_ms| Fault::Lag(Lag { what, how, patience_ms });
        for patience_ms in PATIENCE_MS {
            // The most first: where that many never come, fewer are held in the same way.
            faults.extend([5, 3, 2, 1].map(|events| lag(How::Held(events), patience_ms)));
        }
        for patience_ms in [3_000, 40_000] {
            faults.extend([lag(How::Merged, patience_ms), lag(How::Expired, patience_ms)]);
        }
        faults.extend([0, 3_000].map(|patience_ms| lag(How::Twice, patience_ms)));
        let outage = |how| Fault::Outage(Outage { what, how, lasts_ms: OUTAGE_MS });
        faults.extend([OutageKind::Refused, OutageKind::Mute, OutageKind::Deaf].map(outage));
        for back in [1, 3, 8] {
            faults.extend([0, 3_000].map(|patience_ms| Fault::Past(Past { what, back, patience_ms })));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_turn_once() {
        let lag = Fault::Lag(Lag { what: Watched::Pods, how: How::Merged, patience_ms: 1 });
        let rotation = |turn| Rotation { turn, watches_one_in: 5, pairs_one_in: 7, known_one_in: 35 };
        let turns = |due: &dyn Fn(Rotation) -> bool| (40..75).filter(|turn| due(rotation(*turn))).count();
        let new = Pair { points: vec![(1, lag), (2, lag)], like: None };
        let known = Pair { like: Some(vec![(3, lag)]), ..new.clone() };
        for number in 0..200 {
            assert_eq!(turns(&|rotation| rotation.includes_single(number, &[(1, Fault::CrashAfter)])), 35);
            assert_eq!(turns(&|rotation| rotation.includes_single(number, &[(1, lag)])), 7);
            assert_eq!(turns(&|rotation| rotation.includes_pair(number, &new)), 5);
            assert_eq!(turns(&|rotation| rotation.includes_pair(number, &known)), 1);
        }
        let chosen = (0..1000).filter(|number| rotation(3).includes_single(*number, &[(1, lag)])).count();
        assert!((150..250).contains(&chosen), "{chosen}");
    }
}
