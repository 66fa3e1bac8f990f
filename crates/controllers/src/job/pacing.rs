//! How soon a Job is looked at after news about it.
//!
//! Upstream waits a second after every pod event, so that one sync serves many of them (JC-106, `SyncJobBatchPeriod`). Here
//! the first news after a calm moment is acted upon at once; only what follows is gathered, for a moment that grows with
//! the effort a sync takes and never exceeds that period. There is nothing to gather when no pod of the Job is active any
//! more, or when a good share of a full sync's work is waiting already.
//!
//! The first end of a pod is not acted upon at once while others run: pods that end together are to be judged together,
//! because a verdict depends on all of them (a failure comes before a success policy, JC-901), and nothing is to be
//! replaced that a verdict would end. Where one end follows the other anyway, nobody waits for more.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between the end of a sync and the next one: what pods that were started together need to report
/// that they ended together.
const GATHER_MIN: Duration = Duration::from_millis(20);

/// How long the first end of a pod waits for others: what whoever ends several pods of a Job needs to tell of all of them.
const TOGETHER: Duration = Duration::from_millis(200);

/// An end that comes so shortly after others were seen to is one of a stream, and not the first of some.
const STREAM: Duration = Duration::from_secs(1);

/// What there is to wait for, beside the news itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Nothing: no pod is active, or there is enough to do already.
    Nothing,
    /// Pods are active.
    Pods,
    /// Pods are active, and some have ended that no sync has released.
    Ends,
}

/// How urgent news is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum News {
    /// Of our own making: the status that the running sync wrote. After a failure the retry is soon enough (INV-29).
    Own,
    /// About the status alone, as the watch showed it: of our own making if the answer to a write says so later.
    Status,
    /// About pods: may be gathered, as may the ones above.
    Soon,
    /// About the spec: acted upon at once (JC-201, JC-204).
    Now,
}

/// The rhythm of one Job's syncs.
#[derive(Debug, Default)]
pub(super) struct Pace {
    running: bool,
    /// What came in while a sync was running.
    pending: Option<News>,
    /// When the last sync ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// Since when an end is known that no sync has seen, and whether the running one sees some.
    ends_since: Option<Instant>,
    sees_ends: bool,
    /// When the last sync ended that saw some.
    ends_seen: Option<Instant>,
}

impl Pace {
    /// There is news. Says after what delay to queue the Job; `None` if the running sync will see to it at its end.
    pub(super) fn notice(
        &mut self,
        news: News,
        prospect: Prospect,
        batch_period: Duration,
        now: Instant,
    ) -> Option<Duration> {
        if self.running {
            self.pending = self.pending.max(Some(news));
            return None;
        }
        if prospect == Prospect::Ends {
            let since = *self.ends_since.get_or_insert(now);
            let is_first = self.ends_seen.is_none_or(|seen| since.saturating_duration_since(seen) > STREAM);
            if is_first && news <= News::Soon {
                return Some((since + TOGETHER.min(batch_period)).saturating_duration_since(now));
            }
        }
        Some(match (news, self.last) {
            (News::Own | News::Status | News::Soon, Some((ended, took))) if prospect != Prospect::Nothing => {
                let gather = took.max(GATHER_MIN).min(batch_period);
                (ended + gather).saturating_duration_since(now)
            }
            _ => Duration::ZERO,
        })
    }

    pub(super) fn begin(&mut self) {
        self.running = true;
        self.pending = None;
        self.sees_ends = self.ends_since.take().is_some();
    }

    /// The watch was faster than the answer to our write: what it showed is not news to us.
    pub(super) fn wrote_it(&mut self) {
        if self.pending == Some(News::Status) {
            self.pending = Some(News::Own);
        }
    }

    /// Whether another sync will follow the running one.
    pub(super) fn has_news(&self) -> bool {
        self.pending.is_some()
    }

    /// A sync has ended; the answer is the news that came in meanwhile.
    pub(super) fn end(&mut self, took: Duration, now: Instant) -> Option<News> {
        self.running = false;
        self.last = Some((now, took));
        if std::mem::take(&mut self.sees_ends) {
            self.ends_seen = Some(now);
        }
        self.pending.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_news_is_acted_upon_at_once_and_what_follows_is_gathered() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let soon = |pace: &mut Pace, at: Duration| pace.notice(News::Soon, Prospect::Pods, SECOND, start + at);
        assert_eq!(soon(&mut pace, Duration::ZERO), Some(Duration::ZERO));
        pace.begin();
        assert_eq!(pace.end(5 * MS, start), None);
        assert_eq!(soon(&mut pace, 4 * MS), Some(16 * MS), "shortly after a sync");
        assert_eq!(soon(&mut pace, 20 * MS), Some(Duration::ZERO), "after a calm moment");
        assert_eq!(
            pace.notice(News::Soon, Prospect::Nothing, SECOND, start + 4 * MS),
            Some(Duration::ZERO),
            "nothing to gather"
        );
        assert_eq!(pace.notice(News::Now, Prospect::Pods, SECOND, start + 4 * MS), Some(Duration::ZERO), "a new spec");
    }

    /// JC-901: who fails and who succeeds in the same moment is judged in one sync.
    #[test]
    fn the_first_end_waits_for_others() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let end = |pace: &mut Pace, prospect, at: Duration| pace.notice(News::Soon, prospect, SECOND, start + at);
        let sync = |pace: &mut Pace, at: Duration| {
            pace.begin();
            pace.end(MS, start + at);
        };
        assert_eq!(end(&mut pace, Prospect::Ends, Duration::ZERO), Some(200 * MS));
        assert_eq!(end(&mut pace, Prospect::Ends, 150 * MS), Some(50 * MS), "not longer for another one");
        assert_eq!(end(&mut pace, Prospect::Nothing, 160 * MS), Some(Duration::ZERO), "that was the last pod");
        assert_eq!(pace.notice(News::Now, Prospect::Ends, SECOND, start), Some(Duration::ZERO), "a new spec");
        sync(&mut pace, 200 * MS);
        assert_eq!(end(&mut pace, Prospect::Ends, 500 * MS), Some(Duration::ZERO), "one end follows the other");
        sync(&mut pace, 500 * MS);
        assert_eq!(end(&mut pace, Prospect::Pods, 3 * SECOND), Some(Duration::ZERO), "nothing has ended");
        sync(&mut pace, 3 * SECOND);
        assert_eq!(end(&mut pace, Prospect::Ends, 4 * SECOND), Some(200 * MS), "the first one again");
        assert_eq!(pace.notice(News::Soon, Prospect::Ends, 5 * MS, start + 4 * SECOND), Some(5 * MS), "as configured");
    }

    #[test]
    fn gathering_grows_with_the_effort_up_to_the_batch_period() {
        let start = Instant::now();
        for (took, period, expected) in
            [(MS, SECOND, 20 * MS), (200 * MS, SECOND, 200 * MS), (9 * SECOND, SECOND, SECOND)].into_iter().chain([(
                MS,
                Duration::ZERO,
                Duration::ZERO,
            )])
        {
            let mut pace = Pace::default();
            pace.begin();
            pace.end(took, start);
            assert_eq!(pace.notice(News::Soon, Prospect::Pods, period, start), Some(expected));
        }
    }

    #[test]
    fn news_during_a_sync_waits_for_its_end() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.begin();
        assert_eq!(pace.notice(News::Now, Prospect::Pods, SECOND, now), None);
        assert_eq!(pace.notice(News::Soon, Prospect::Pods, SECOND, now), None);
        assert_eq!(pace.end(MS, now), Some(News::Now));
        pace.begin();
        assert_eq!(pace.end(MS, now), None);
    }

    #[test]
    fn a_write_that_the_watch_shows_before_its_answer_is_our_own() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let mut after = |news: &[News]| {
            pace.begin();
            for news in news {
                pace.notice(*news, Prospect::Pods, SECOND, now);
            }
            pace.wrote_it();
            pace.end(MS, now)
        };
        assert_eq!(after(&[News::Status]), Some(News::Own));
        assert_eq!(after(&[News::Status, News::Soon]), Some(News::Soon), "a pod changed as well");
        assert_eq!(after(&[]), None);
    }
}
