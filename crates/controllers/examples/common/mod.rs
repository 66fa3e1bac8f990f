//! What several of the measurements need.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use jiff::{SignedDuration, Timestamp};

/// A clock that runs and can be set.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    ahead: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_nanos(self.ahead.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, now: Timestamp) {
        let ahead = now.duration_since(Timestamp::now()).as_nanos();
        self.ahead.store(i64::try_from(ahead).expect("within 292 years"), Ordering::Relaxed);
    }
}
