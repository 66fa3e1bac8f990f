//! When the status of a pod is sent: changes that come together go together, and only what differs is sent.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde_json::Value;

/// A change waits this long for others to join it. A process that starts and ends within it costs one write instead of
/// two; a kubelet takes longer to notice either (PL-137). The end of a pod does not wait.
const GATHER: Duration = Duration::from_millis(100);
/// While much else is being sent a change waits longer, and often needs no write of its own then. As long as a kubelet
/// may take.
const GATHER_MAX: Duration = Duration::from_secs(1);
const RETRY_INITIAL: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct StatusState {
    /// Something may differ from what was sent, since this moment.
    touched_at: Option<Duration>,
    /// Set back for the sake of others until then.
    postponed_until: Option<Duration>,
    is_sending: bool,
    /// Of the status that was last begun to be sent.
    sent_hash: Option<u64>,
    not_before: Option<Duration>,
    failures: u32,
}

impl StatusState {
    pub(super) fn touch(&mut self, now: Duration) {
        self.touched_at.get_or_insert(now);
    }

    /// Rather not now: much else is being sent.
    pub(super) fn give_way(&mut self, now: Duration) {
        if let Some(touched_at) = self.touched_at.filter(|touched_at| now >= *touched_at + GATHER) {
            self.postponed_until = Some((now + GATHER).min(touched_at + GATHER_MAX));
        }
    }

    /// Not now, however long it has waited.
    pub(super) fn postpone(&mut self, now: Duration) {
        if self.touched_at.is_some_and(|touched_at| now >= touched_at + GATHER) {
            self.postponed_until = Some(now + GATHER);
        }
    }

    pub(super) fn is_due(&self, now: Duration, has_ended: bool) -> bool {
        let Some(touched_at) = self.touched_at else { return false };
        let gathered = has_ended || now >= self.gathered_at(touched_at);
        !self.is_sending && gathered && self.not_before.is_none_or(|at| now >= at)
    }

    fn gathered_at(&self, touched_at: Duration) -> Duration {
        (touched_at + GATHER).max(self.postponed_until.unwrap_or_default())
    }

    /// When [`Self::is_due`] may become true.
    pub(super) fn wake(&self) -> Option<Duration> {
        let touched_at = self.touched_at.filter(|_| !self.is_sending)?;
        Some(self.gathered_at(touched_at).max(self.not_before.unwrap_or_default()))
    }

    /// False: this is what was sent before.
    pub(super) fn begin(&mut self, patch: &Value) -> bool {
        self.touched_at = None;
        self.postponed_until = None;
        let mut hasher = DefaultHasher::new();
        patch.hash(&mut hasher);
        let hash = Some(hasher.finish());
        if self.sent_hash == hash {
            return false;
        }
        self.sent_hash = hash;
        self.is_sending = true;
        true
    }

    pub(super) fn sent(&mut self) {
        self.is_sending = false;
        self.not_before = None;
        self.failures = 0;
    }

    pub(super) fn failed(&mut self, now: Duration) {
        self.is_sending = false;
        self.sent_hash = None;
        self.touch(now);
        self.not_before = Some(now + (RETRY_INITIAL * 2_u32.pow(self.failures.min(6))).min(RETRY_MAX));
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const START: Duration = Duration::from_secs(1);

    #[test]
    fn changes_gather_but_an_end_does_not_wait() {
        let mut state = StatusState::default();
        assert!(!state.is_due(START, true), "nothing happened");
        state.touch(START);
        assert!(!state.is_due(START, false));
        assert!(state.is_due(START, true));
        assert_eq!(state.wake(), Some(START + GATHER));
        assert!(state.is_due(START + GATHER, false));
    }

    #[test]
    fn a_change_that_gives_way_is_sent_after_a_second_at_the_latest() {
        let mut state = StatusState::default();
        state.touch(START);
        state.give_way(START);
        assert_eq!(state.wake(), Some(START + GATHER), "it gathers anyway");
        let mut now = START + GATHER;
        while now < START + GATHER_MAX {
            state.give_way(now);
            assert!(!state.is_due(now, false), "{now:?}");
            assert!(state.is_due(now, true), "an end does not wait");
            now = state.wake().unwrap();
        }
        state.give_way(now);
        assert!(state.is_due(now, false));
        state.postpone(now);
        assert!(!state.is_due(now, false));
    }

    #[test]
    fn the_same_status_is_not_sent_twice() {
        let mut state = StatusState::default();
        state.touch(START);
        assert!(state.begin(&json!({"a": 1})));
        state.touch(START);
        assert!(!state.is_due(START + GATHER, true), "one at a time");
        state.sent();
        assert!(!state.begin(&json!({"a": 1})));
        assert!(state.begin(&json!({"a": 2})));
    }

    #[test]
    fn failures_are_tried_again_more_and_more_slowly() {
        let mut state = StatusState::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(state.begin(&json!(1)), "what failed was not sent");
            state.failed(START);
            waits.push(state.wake().unwrap().saturating_sub(START).as_millis());
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    }
}
