//! How long to wait between attempts that keep failing.

use std::time::Duration;

use super::environment::Environment;

/// Delays that grow with each failure and start over after a success.
///
/// The default grows by a twelfth or so: the next attempt comes after less than a tenth of the time the outage has lasted so
/// far, so that one of ten seconds is noticed to be over within a second, whatever chance adds (REG-C25), and one of seven
/// minutes and more costs two requests a minute.
#[derive(Debug, Clone)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
    pub factor: f64,
    /// The delay is drawn between itself and itself times one plus this.
    pub jitter: f64,
    failures: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(30), 1.08)
    }
}

impl Backoff {
    pub fn new(initial: Duration, max: Duration, factor: f64) -> Self {
        Self { initial, max, factor, jitter: 0.1, failures: 0 }
    }

    /// The delay before the next attempt; counts one more failure.
    pub fn next(&mut self, environment: &Environment) -> Duration {
        let grown = self.initial.as_secs_f64() * self.factor.powi(i32::try_from(self.failures).unwrap_or(i32::MAX));
        self.failures = self.failures.saturating_add(1);
        let delay = Duration::try_from_secs_f64(grown).map_or(self.max, |delay| delay.min(self.max));
        environment.jittered(delay, self.jitter)
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_maximum_and_start_over() {
        let environment = Environment::new(jiff::Timestamp::now, || 0);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5), 2.0);
        let delays: Vec<u64> = (0..5).map(|_| backoff.next(&environment).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next(&environment).as_secs(), 1);
    }

    /// An attempt fails at the last moment of an outage of up to ten seconds, and chance puts the next one off for as long as
    /// it can. Nobody has made more attempts by then than those whom it never put off.
    #[test]
    fn reg_c25_the_end_of_an_outage_of_ten_seconds_is_noticed_within_a_second() {
        let (never, always) =
            (Environment::new(jiff::Timestamp::now, || 0), Environment::new(jiff::Timestamp::now, || u64::MAX));
        let (mut backoff, mut elapsed) = (Backoff::default(), Duration::ZERO);
        while elapsed <= Duration::from_secs(10) {
            let longest = backoff.clone().next(&always);
            assert!(longest <= Duration::from_secs(1), "{longest:?} after {elapsed:?}");
            elapsed += backoff.next(&never);
        }
        assert!(backoff.failures() <= 30, "{} attempts in ten seconds", backoff.failures());
    }

    #[test]
    fn any_number_of_failures_is_survived() {
        let environment = Environment::system();
        let mut backoff = Backoff { failures: u32::MAX - 1, ..Backoff::default() };
        for _ in 0..3 {
            assert!(backoff.next(&environment) <= Duration::from_secs(33));
        }
    }
}
