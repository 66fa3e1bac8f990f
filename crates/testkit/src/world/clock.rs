//! Time and chance of a world: one virtual clock, one seed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use jiff::Timestamp;
use tokio::time::Instant;

/// When every virtual world begins: a Monday, on a full hour.
const BEGINNING: i64 = 1_767_607_200;

/// The wall clock of a world: it goes as fast as tokio's clock, which the runtime of a virtual world pauses. Cheap to clone.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    beginning: Timestamp,
}

impl Clock {
    /// A clock that starts now, at the same moment every time. Must be made on the world's runtime.
    pub(super) fn start() -> Self {
        Self::starting(Timestamp::from_second(BEGINNING).expect("a date of this century"))
    }

    /// A clock that shows what others do.
    pub(super) fn real() -> Self {
        Self::starting(Timestamp::now())
    }

    fn starting(beginning: Timestamp) -> Self {
        Self { start: Instant::now(), beginning }
    }

    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// What it shows at a moment.
    pub(super) fn at(&self, moment: Instant) -> Timestamp {
        self.beginning + moment.saturating_duration_since(self.start)
    }

    /// Milliseconds since the world began.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Numbers that look random and are the same in every run of a seed (splitmix64). Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    state: Arc<AtomicU64>,
}

impl Chance {
    pub(super) fn seeded(seed: u64) -> Self {
        Self { state: Arc::new(AtomicU64::new(seed)) }
    }

    pub(super) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// The same number means that the same numbers follow.
    pub(super) fn position(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    pub(super) fn wide(&self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}
