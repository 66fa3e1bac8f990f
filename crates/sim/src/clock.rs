//! Wall clocks over virtual time: they run with the runtime's paused clock, and can be set (P-11).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A clock on somebody's wall. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    began: Timestamp,
    ahead_millis: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that shows `began` now.
    pub fn starting(began: Timestamp) -> Self {
        Self { start: Instant::now(), began, ahead_millis: Arc::default() }
    }

    /// Another clock that shows the same time now, and is set by itself.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { start: Instant::now(), began: self.now(), ahead_millis: Arc::default() }
    }

    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// What this clock, as it is set now, shows at a moment.
    pub fn at(&self, moment: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(moment.saturating_duration_since(self.start)).unwrap_or_default();
        let ahead = SignedDuration::from_millis(self.ahead_millis.load(Ordering::Relaxed));
        self.began.saturating_add(passed + ahead).unwrap_or(self.began)
    }

    /// Whether nobody else has this clock any more.
    #[cfg(test)]
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.ahead_millis) == 1
    }

    /// Sets the clock forward, or back.
    pub fn jump(&self, millis: i64) {
        self.ahead_millis.fetch_add(millis, Ordering::Relaxed);
    }

    /// How far the clock was set ahead since it was made, all in all.
    pub fn ahead_millis(&self) -> i64 {
        self.ahead_millis.load(Ordering::Relaxed)
    }
}
