//! The time as decisions see it: what the wall clock says, and how much time has really passed.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// One reading of both clocks. Reports use `wall`; waiting and measuring use `elapsed`, which no clock change moves
/// (invariant P-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub wall: Timestamp,
    /// Time since some fixed moment of this process.
    pub elapsed: Duration,
}

impl Moment {
    /// How far `earlier`, a time of the wall clock, lies back; zero if it lies ahead.
    pub fn since_wall(&self, earlier: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(earlier)).unwrap_or(Duration::ZERO)
    }
}

/// Reads the clocks of the system.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub fn now(&self) -> Moment {
        Moment { wall: Timestamp::now(), elapsed: self.start.elapsed() }
    }

    /// Ready at that moment of [`Moment::elapsed`]; without one, never.
    pub(crate) async fn reaches(self, elapsed: Option<Duration>) {
        match elapsed {
            Some(elapsed) => tokio::time::sleep_until((self.start + elapsed).into()).await,
            None => std::future::pending().await,
        }
    }
}
