//! Which faults are tried where.

use crate::faults::{Call, Fault, How, Lag, Past, Point, Watched};

use super::run::Baseline;

/// How long caches may lie: shorter than a retry, longer than a retry, longer than a back-off.
const PATIENCE_MS: [u32; 3] = [300, 3_000, 40_000];

/// Scenarios of up to so many calls are tried with every pair.
pub const PAIRS_CALLS_MAX: usize = 25;

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
}

impl Rotation {
    /// Everything.
    pub const ALL: Self = Self { turn: 0, watches_one_in: 1, pairs_one_in: 1 };

    /// Whether it is the turn of a case, by its number among all of its scenario.
    pub fn includes(&self, number: usize, points: &[Point]) -> bool {
        let one_in = match points {
            [(_, Fault::Lag(_) | Fault::Past(_))] => self.watches_one_in,
            [_] | [] => 1,
            _ => self.pairs_one_in,
        };
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

/// Pairs of faults, in an order that spreads over calls and faults, so that a part of them is a fair sample.
#[derive(Debug, Clone)]
pub struct Pairs {
    faults: Vec<Fault>,
    calls: usize,
    next: usize,
    step: usize,
    count: usize,
}

/// Every pair of the faults that do most harm. Nothing for a long scenario.
///
/// Restarts on an older list are tried alone: a process that crashed before the status told of its pods, and whose
/// successor is shown neither them nor those whose names they avoided, has left nothing to go by.
pub fn pairs(baseline: &Baseline) -> Pairs {
    let calls = baseline.calls.len();
    let calls = if calls <= PAIRS_CALLS_MAX { calls } else { 0 };
    // The second fault may come a few calls later than the last one of an undisturbed run: retries have calls too.
    let reach = calls + 4;
    let mut faults = vec![
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::Refused(409),
        Fault::Refused(500),
        Fault::ReplyLost,
        Fault::Late(2),
        Fault::LateAfterRestart,
        Fault::Touched,
        Fault::Lag(Lag { what: Watched::Pods, how: How::Held(3), patience_ms: 3_000 }),
        Fault::Lag(Lag { what: Watched::All, how: How::Held(2), patience_ms: 3_000 }),
    ];
    faults.retain(|fault| !(baseline.unknowable)(fault));
    let count = if calls == 0 { 0 } else { calls * reach * faults.len() * faults.len() };
    Pairs { faults, calls: reach, next: 0, step: coprime(count), count }
}

impl Pairs {
    /// How many there are, about half of them in the wrong order and left out.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Iterator for Pairs {
    type Item = Vec<Point>;

    fn next(&mut self) -> Option<Vec<Point>> {
        while self.next < self.count {
            let mut number = self.next.wrapping_mul(self.step) % self.count;
            self.next += 1;
            let kinds = self.faults.len();
            let first = self.faults[number % kinds];
            number /= kinds;
            let second = self.faults[number % kinds];
            number /= kinds;
            let (late, early) = (number % self.calls, number / self.calls);
            if early < late {
                return Some(vec![(early, first), (late, second)]);
            }
        }
        None
    }
}

/// A number without a common divisor with `count`, so that its multiples visit everything once.
fn coprime(count: usize) -> usize {
    let divides = |a: usize, b: usize| {
        let (mut a, mut b) = (a, b);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (7919..).find(|step| divides(*step, count.max(1)) == 1).unwrap_or(1)
}

/// The faults that can happen to a call.
fn faults_at(call: &Call) -> Vec<Fault> {
    let mut faults = vec![Fault::CrashBefore, Fault::CrashAfter, Fault::Unsent];
    faults.extend([403, 409, 422, 429, 500].map(Fault::Refused));
    faults.push(Fault::Namesake);
    let writes = !call.kind.starts_with("GET");
    if writes {
        // No server says of an object that is there that it is not; on the way to a write it may get lost.
        faults.push(Fault::Refused(404));
        faults.extend([Fault::ReplyLost, Fault::GatewayTimeout]);
        faults.extend([Fault::Late(1), Fault::Late(3), Fault::LateAfterRestart]);
        if !call.kind.starts_with("POST") {
            faults.push(Fault::Touched);
        }
    }
    let watched = match call.controller {
        "job" | "gc" => &Watched::EACH[..],
        "podgc" => &[Watched::Pods, Watched::All][..],
        _ => &[Watched::Jobs, Watched::All][..],
    };
    for what in watched.iter().copied() {
        let lag = |how, patience_ms| Fault::Lag(Lag { what, how, patience_ms });
        for patience_ms in PATIENCE_MS {
            faults.extend([1, 2, 3, 5].map(|events| lag(How::Held(events), patience_ms)));
        }
        for patience_ms in [3_000, 40_000] {
            faults.extend([lag(How::Merged, patience_ms), lag(How::Expired, patience_ms)]);
        }
        faults.push(lag(How::Twice, 0));
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
        let rotation = |turn| Rotation { turn, watches_one_in: 5, pairs_one_in: 7 };
        let turns = |points: &[Point], number| (40..75).filter(|turn| rotation(*turn).includes(number, points)).count();
        for number in 0..200 {
            assert_eq!(turns(&[(1, Fault::CrashAfter)], number), 35);
            assert_eq!(turns(&[(1, lag)], number), 7);
            assert_eq!(turns(&[(1, lag), (2, lag)], number), 5);
        }
        let chosen = (0..1000).filter(|number| rotation(3).includes(*number, &[(1, lag)])).count();
        assert!((150..250).contains(&chosen), "{chosen}");
    }

    #[test]
    fn pairs_are_all_different_and_in_order() {
        let faults = vec![Fault::CrashBefore, Fault::CrashAfter];
        let count = 5 * 9 * 4;
        let pairs = Pairs { faults, calls: 9, next: 0, step: coprime(count), count };
        let mut all: Vec<_> = pairs.collect();
        assert!(all.iter().all(|pair| pair[0].0 < pair[1].0));
        // Of five calls each with every later one of nine.
        assert_eq!(all.len(), (8 + 7 + 6 + 5 + 4) * 4);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), (8 + 7 + 6 + 5 + 4) * 4);
    }
}
