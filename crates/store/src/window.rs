//! Decides how far history may be cut: by age and by count. Pure; the writer asks, compaction cuts.

use crate::{History, Revision};
use std::collections::VecDeque;
use std::time::Duration;

/// Ages are known to this fraction of `age_max`, so that a busy store remembers few moments.
const MOMENTS: u32 = 64;
/// By count, cut in steps of this fraction of the window, so that a slow trickle does not pay a sync per change.
const STEPS: usize = 16;
/// The largest step by count.
const STEP_MAX: usize = 1024;

/// A sliding window over revisions.
#[derive(Debug)]
pub(crate) struct Window {
    limits: History,
    /// Everything up to `revision` was there at `time`. Ascending in both.
    moments: VecDeque<Moment>,
    /// The newest revision known to be older than `age_max`.
    aged: Revision,
}

#[derive(Debug)]
struct Moment {
    time: Duration,
    revision: Revision,
}

impl Window {
    /// A window over a store found at `revision`. What was there before counts as written now: records carry no time,
    /// and keeping them longer is safe.
    pub(crate) fn new(limits: History, now: Duration, revision: Revision) -> Self {
        let mut window = Self { limits, moments: VecDeque::new(), aged: 0 };
        window.observe(now, revision);
        window
    }

    /// Notes that the store is at `revision` now.
    pub(crate) fn observe(&mut self, now: Duration, revision: Revision) {
        let due = self.moments.back().is_none_or(|last| now >= last.time + self.granularity());
        if due && revision > self.observed() {
            self.moments.push_back(Moment { time: now, revision });
        }
        while let Some(oldest) = self.moments.front()
            && now >= oldest.time + self.limits.age_max
        {
            self.aged = oldest.revision;
            self.moments.pop_front();
        }
    }

    /// How far to compact a store at `revision` that is compacted up to `compacted`; `None` if not worth it yet.
    pub(crate) fn target(&self, revision: Revision, compacted: Revision) -> Option<Revision> {
        let surplus = revision.saturating_sub(self.limits.events_max as Revision);
        let step = (self.limits.events_max / STEPS).clamp(1, STEP_MAX) as Revision;
        let by_count = if surplus >= compacted.saturating_add(step) { surplus } else { 0 };
        let target = by_count.max(self.aged).min(revision);
        (target > compacted).then_some(target)
    }

    /// How long until time alone may change the answer; `None` if it never will.
    pub(crate) fn due_in(&self, now: Duration, revision: Revision) -> Option<Duration> {
        let expiry = self.moments.front().map(|oldest| oldest.time + self.limits.age_max);
        let moment = (revision > self.observed())
            .then(|| self.moments.back().map_or(now, |last| last.time + self.granularity()));
        expiry.into_iter().chain(moment).min().map(|due| due.saturating_sub(now))
    }

    fn observed(&self) -> Revision {
        self.moments.back().map_or(self.aged, |last| last.revision)
    }

    fn granularity(&self) -> Duration {
        self.limits.age_max / MOMENTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn window(age_secs: u64, events_max: usize) -> Window {
        Window::new(History { age_max: secs(age_secs), events_max }, secs(0), 0)
    }

    #[test]
    fn count_cuts_in_steps() {
        let window = window(1_000_000, 32);
        assert_eq!(window.target(32, 0), None);
        assert_eq!(window.target(33, 0), None);
        assert_eq!(window.target(34, 0), Some(2));
        assert_eq!(window.target(35, 2), None);
        assert_eq!(window.target(36, 2), Some(4));
    }

    #[test]
    fn age_cuts_what_was_there_before_the_limit() {
        let mut window = window(64, 1000);
        window.observe(secs(10), 5);
        window.observe(secs(20), 9);
        window.observe(secs(73), 9);
        assert_eq!(window.target(9, 0), None);
        window.observe(secs(74), 9);
        assert_eq!(window.target(9, 0), Some(5));
        assert_eq!(window.target(9, 5), None);
        window.observe(secs(84), 9);
        assert_eq!(window.target(9, 5), Some(9));
    }

    #[test]
    fn a_busy_store_remembers_few_moments() {
        let mut window = window(64, 1000);
        for tick in 0..10_000 {
            window.observe(Duration::from_millis(tick * 10), tick + 1);
            assert!(window.moments.len() <= MOMENTS as usize + 1);
        }
    }

    #[test]
    fn an_idle_store_is_woken_until_everything_has_aged_and_then_never() {
        let mut window = window(64, 1000);
        let mut now = secs(1);
        window.observe(now, 3);
        window.observe(now, 4);
        let mut wakes = 0;
        while let Some(wait) = window.due_in(now, 4) {
            now += wait;
            window.observe(now, 4);
            wakes += 1;
            assert!(wakes < 10, "wakes without end");
        }
        assert_eq!(window.target(4, 0), Some(4));
        assert!(now >= secs(65));
    }
}
