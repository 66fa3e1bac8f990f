//! Time and chance, injected so that tests and simulations are repeatable.
//!
//! Timers are not here: waiting is tokio's, whose time a test can pause. This is the wall clock that ends up in objects
//! and the randomness that spreads retries.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;

/// Where controllers take their clock and their randomness from.
#[derive(Clone)]
pub struct Environment {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Environment {
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), random: Arc::new(random) }
    }

    /// The system's clock and random numbers.
    pub fn system() -> Self {
        // The low 62 bits of a version 4 UUID are random.
        Self::new(Timestamp::now, || (uuid::Uuid::new_v4().as_u128() as u64) << 2)
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub fn random(&self) -> u64 {
        (self.random)()
    }

    /// A duration between `base` and `base * (1 + share)`, so that clients that failed together do not return together.
    pub fn jittered(&self, base: Duration, share: f64) -> Duration {
        let fraction = (self.random() >> 11) as f64 / (1_u64 << 53) as f64;
        base.mul_f64(share.mul_add(fraction, 1.0))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_share() {
        for (random, expected) in [(0, 1000), (u64::MAX / 2, 1050), (u64::MAX, 1100)] {
            let environment = Environment::new(Timestamp::now, move || random);
            let jittered = environment.jittered(Duration::from_secs(1), 0.1);
            assert!(jittered.as_millis().abs_diff(expected) <= 1, "{random}: {jittered:?}");
        }
    }
}
