//! How bad the conditions of a run are: chances of faults, drawn once from the seed.
//!
//! Some runs are quiet, so that plain work is tried too; some are terrible.

use crate::random::Random;

/// Chances are per mille and per call, or per piece of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Longest way of a request or an answer.
    pub latency_millis_max: u64,
    /// The call never arrives (P-2).
    pub request_lost: u64,
    /// The call is carried out, and nobody hears of it (P-3).
    pub reply_lost: u64,
    /// The caller gives up, and the call arrives later (P-4).
    pub late: u64,
    pub late_millis_max: u64,
    /// The server says no: 409, 429, 500, 503 (P-2, P-5).
    pub refused: u64,
    /// A piece of a watch waits before it is delivered (P-6, P-8).
    pub watch_lag: u64,
    pub watch_lag_millis_max: u64,
    /// A watch breaks off (P-7).
    pub watch_cut: u64,
    /// Longest sync of the disk (P-17).
    pub sync_millis_max: u64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const CALM: Self = Self {
        latency_millis_max: 2,
        request_lost: 0,
        reply_lost: 0,
        late: 0,
        late_millis_max: 0,
        refused: 0,
        watch_lag: 0,
        watch_lag_millis_max: 0,
        watch_cut: 0,
        sync_millis_max: 0,
    };

    pub fn draw(random: &mut Random) -> Self {
        // A quarter quiet, half bad, a quarter terrible.
        let badness = random.pick(&[0, 1, 1, 4]);
        let mut rate = |most: u64| if random.chance(600) { random.below(most * badness + 1) } else { 0 };
        let (request_lost, reply_lost, late, refused) = (rate(30), rate(30), rate(30), rate(40));
        let (watch_lag, watch_cut) = (rate(150), rate(15));
        Self {
            latency_millis_max: random.pick(&[0, 2, 20, 200]),
            request_lost,
            reply_lost,
            late,
            late_millis_max: random.pick(&[50, 2_000, 40_000]),
            refused,
            watch_lag,
            watch_lag_millis_max: random.pick(&[20, 500, 8_000, 40_000]),
            watch_cut,
            sync_millis_max: random.pick(&[0, 0, 3, 40]),
        }
    }

    /// This weather with one kind of fault less, for every kind there is; for finding out which ones matter.
    pub fn milder(&self) -> Vec<Self> {
        let calm = Self::CALM;
        let milder = [
            Self { request_lost: 0, ..*self },
            Self { reply_lost: 0, ..*self },
            Self { late: 0, late_millis_max: 0, ..*self },
            Self { refused: 0, ..*self },
            Self { watch_lag: 0, watch_lag_millis_max: 0, ..*self },
            Self { watch_cut: 0, ..*self },
            Self { sync_millis_max: 0, ..*self },
            Self { latency_millis_max: calm.latency_millis_max, ..*self },
        ];
        milder.into_iter().filter(|other| other != self).collect()
    }
}
