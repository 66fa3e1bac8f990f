//! How long a replacement waits after a failure (JC section 11).
//!
//! Upstream keeps a record per Job that a restart forgets. Here the record is a function of the times at which pods ended,
//! so that the pods that are still there after a restart bring the delay back (INV-25), and no order of events matters:
//! only of a success and a failure within the same second, which is all that times in objects tell, the one that a later
//! sync hears of is the later one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Settings;
use teeth::{Mutation, is};

/// Failures whose times are remembered. More cannot change a delay: `2^31` times any base is above any limit.
const REMEMBERED_MAX: usize = 32;

/// The failures of a Job since its last success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FailureHistory {
    last_success: Option<Timestamp>,
    /// Whether a plan has been made since that success became known.
    settled: bool,
    /// The latest failures after the last success, in order of time; the oldest go when there are too many.
    failures: Vec<Timestamp>,
}

impl FailureHistory {
    /// A plan is made with all that is known.
    pub(crate) fn next_sync(&mut self) {
        self.settled = true;
    }

    /// A pod failed at that time. Only failures after the last success count, and strictly after it if one sync hears of
    /// both (JC-1102).
    pub(crate) fn failed(&mut self, at: Timestamp) {
        if self.last_success.is_some_and(|success| at < success || at == success && !self.settled) {
            return;
        }
        let position = self.failures.partition_point(|known| *known <= at);
        self.failures.insert(position, at);
        if self.failures.len() > REMEMBERED_MAX {
            self.failures.remove(0);
        }
    }

    /// A pod succeeded at that time.
    pub(crate) fn succeeded(&mut self, at: Timestamp) {
        if self.last_success.is_none_or(|known| known < at) {
            self.last_success = Some(at);
            self.settled = false;
            self.failures.retain(|failure| *failure > at);
        }
    }

    /// The clock was set back: nothing of this can lie in the future.
    pub(crate) fn set_back(&mut self, now: Timestamp) {
        self.last_success = self.last_success.map(|at| at.min(now));
        self.failures.iter_mut().for_each(|at| *at = (*at).min(now));
    }

    /// What is left of the delay before any pod of the Job may be created.
    pub(crate) fn remaining(&self, now: Timestamp, settings: &Settings) -> Duration {
        let Some(last) = self.failures.last() else { return Duration::ZERO };
        remaining(self.failures.len() as u64, *last, now, settings)
    }
}

/// What is left of the delay after that many failures in a row, the last of them at `last_failure` (JC-1104).
///
/// Never more than the whole delay, however far ahead that is (INV-25). That it does not begin again and again until the
/// clock has caught up is the care of those who note failures.
pub fn remaining(failures: u64, last_failure: Timestamp, now: Timestamp, settings: &Settings) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let doublings = if is(Mutation::D07) { 0 } else { u32::try_from(failures - 1).unwrap_or(u32::MAX) };
    let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
    let delay = settings.pod_failure_backoff.saturating_mul(factor).min(settings.pod_failure_backoff_max);
    let elapsed: SignedDuration = now.duration_since(last_failure);
    let elapsed = Duration::try_from(elapsed).unwrap_or(Duration::ZERO);
    delay.saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_000_000;

    fn at_millis(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(T + millis).unwrap()
    }

    /// V-8: successes and failures in milliseconds from a reference, then failures and the time of the last.
    #[test]
    fn failures_after_the_last_success_count_in_any_order() {
        let cases = [
            (vec![], vec![0], 1, Some(0)),
            (vec![], vec![0, -1], 2, Some(0)),
            (vec![0], vec![-2, -1], 0, None),
            (vec![-2], vec![0, -4, -3, -1], 2, Some(0)),
            (vec![], vec![-20, -10, 0], 3, Some(0)),
            (vec![0], vec![0], 0, None),
            (vec![0], vec![], 0, None),
        ];
        for (successes, failures, count, last) in cases {
            let mut forward = FailureHistory::default();
            successes.iter().for_each(|at| forward.succeeded(at_millis(*at)));
            failures.iter().for_each(|at| forward.failed(at_millis(*at)));
            let mut backward = FailureHistory::default();
            failures.iter().rev().for_each(|at| backward.failed(at_millis(*at)));
            successes.iter().for_each(|at| backward.succeeded(at_millis(*at)));
            assert_eq!(forward, backward);
            assert_eq!((forward.failures.len(), forward.failures.last().copied()), (count, last.map(at_millis)));
        }
    }

    /// JC-1102: a failure is new to a sync that knew of the success already.
    #[test]
    fn of_one_second_the_end_that_a_later_sync_hears_of_is_the_later_one() {
        let mut history = FailureHistory::default();
        history.succeeded(at_millis(0));
        history.next_sync();
        history.failed(at_millis(0));
        assert_eq!(history.failures, [at_millis(0)]);
        history.failed(at_millis(-1));
        assert_eq!(history.failures.len(), 1, "before the success");
        history.succeeded(at_millis(0));
        assert_eq!(history.failures.len(), 1, "another success of that second may have been the earlier one");
        history.succeeded(at_millis(1));
        assert_eq!(history.failures, []);
    }

    fn left(failures: u64, ago_secs: i64, base_secs: u64, max_secs: u64) -> u64 {
        let settings = Settings {
            pod_failure_backoff: Duration::from_secs(base_secs),
            pod_failure_backoff_max: Duration::from_secs(max_secs),
            ..Settings::default()
        };
        remaining(failures, at_millis(-1000 * ago_secs), at_millis(0), &settings).as_secs()
    }

    /// V-8, remaining time.
    #[test]
    fn the_delay_doubles_up_to_a_limit() {
        let just_now = |failures| left(failures, 0, 5, 700);
        assert_eq!([just_now(0), just_now(1), just_now(3), just_now(8), just_now(9)], [0, 5, 20, 640, 700]);
        assert_eq!([left(1, 1, 5, 700), left(1, 5, 5, 700), left(1, 6, 5, 700)], [4, 0, 0]);
        let defaults: Vec<u64> = (1..9).map(|failures| left(failures, 0, 10, 600)).collect();
        assert_eq!(defaults, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(left(u64::MAX, 0, 10, 600), 600);
    }

    /// INV-25.
    #[test]
    fn a_failure_that_is_yet_to_come_delays_like_one_just_now() {
        assert_eq!(left(1, -3600, 10, 600), 10);
        assert_eq!(left(9, -3600, 10, 600), 600);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut history = FailureHistory::default();
        (0..1000).for_each(|millis| history.failed(at_millis(millis)));
        assert_eq!(history.failures.len(), REMEMBERED_MAX);
        assert_eq!(history.remaining(at_millis(999), &Settings::default()), Duration::from_secs(600));
    }
}
