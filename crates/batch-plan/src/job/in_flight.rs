//! Our own writes that the cache has not shown yet (JC section 4).
//!
//! Upstream counts expected events; here every expectation has a name or a UID, so that an unrelated event cannot lower
//! it, a repeated one does no harm, and a Job re-created under its name waits for nothing of its predecessor (REG-C10).
//! All of it may be lost at any moment: after a restart the cache is filled afresh (INV-32).
//!
//! Finalizers that we removed are noted on the pods themselves, in `tally`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Uid;
use teeth::{Mutation, is};

/// Names that turned out to be taken by pods of others. Forgotten all at once when there are too many: each costs one
/// more refused creation, nothing else.
const BLOCKED_MAX: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InFlight {
    /// Created, not yet seen.
    creations: BTreeMap<Arc<str>, Timestamp>,
    /// Creations without an answer. They may have landed, or may still land, so the next attempt uses the same name
    /// for the same index (INV-22), and the Job does not finish while one of them may yet be seen (INV-9).
    uncertain: BTreeMap<Arc<str>, Unanswered>,
    /// Names that exist already and are not ours.
    blocked: BTreeSet<Arc<str>>,
    /// Deleted, not yet seen to be terminating or gone.
    deletions: BTreeMap<Uid, Timestamp>,
    /// Whether the write that finished the Job went through (JC-410).
    finished: bool,
    /// Whether a creation was refused because the namespace is being deleted. That is for ever.
    namespace_terminating: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Unanswered {
    index: Option<u32>,
    /// The last attempt.
    since: Timestamp,
}

impl InFlight {
    /// A pod of that name has been seen.
    pub(crate) fn pod_seen(&mut self, name: &str) {
        self.creations.remove(name);
        self.uncertain.remove(name);
        self.blocked.remove(name);
    }

    /// The pod is terminating or gone.
    pub(crate) fn deletion_seen(&mut self, uid: &Uid) {
        self.deletions.remove(uid);
    }

    /// The clock was set back: nothing of this can lie in the future.
    pub(crate) fn set_back(&mut self, now: Timestamp) {
        let unanswered = self.uncertain.values_mut().map(|attempt| &mut attempt.since);
        for since in self.creations.values_mut().chain(self.deletions.values_mut()).chain(unanswered) {
            *since = (*since).min(now);
        }
    }

    pub(crate) fn created(&mut self, name: &Arc<str>, now: Timestamp) {
        self.uncertain.remove(name);
        self.creations.insert(name.clone(), now);
    }

    pub(crate) fn creation_unanswered(&mut self, name: &Arc<str>, index: Option<u32>, now: Timestamp) {
        self.uncertain.insert(name.clone(), Unanswered { index, since: now });
    }

    pub(crate) fn name_taken(&mut self, name: &Arc<str>) {
        self.uncertain.remove(name);
        if self.blocked.len() >= BLOCKED_MAX {
            self.blocked.clear();
        }
        self.blocked.insert(name.clone());
    }

    pub(crate) fn deleted(&mut self, uid: &Uid, now: Timestamp) {
        self.deletions.insert(uid.clone(), now);
    }

    pub(crate) fn namespace_terminates(&mut self) {
        self.namespace_terminating = true;
    }

    pub(crate) fn is_namespace_terminating(&self) -> bool {
        self.namespace_terminating
    }

    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(crate) fn is_blocked(&self, name: &str) -> bool {
        self.blocked.contains(name)
    }

    /// Unanswered creations of an index, or of a pod without one.
    pub(crate) fn uncertain(&self, index: Option<u32>) -> impl Iterator<Item = &Arc<str>> {
        let is_meant = move |attempt: &Unanswered| attempt.index == index && !is(Mutation::C09);
        self.uncertain.iter().filter(move |(_, attempt)| is_meant(attempt)).map(|(name, _)| name)
    }

    /// Whether a created pod has not been seen yet.
    pub(crate) fn expects_pods(&self) -> bool {
        !self.creations.is_empty()
    }

    /// Pods that exist although the cache does not show them yet.
    pub(crate) fn unseen_pods(&self, now: Timestamp, timeout: Duration) -> usize {
        self.creations.values().filter(|since| !expired(**since, now, timeout)).count()
    }

    /// Nothing if the cache shows all we did (JC-402), otherwise how long to wait for it at most.
    pub(crate) fn waiting(&self, now: Timestamp, timeout: Duration) -> Option<Duration> {
        longest_wait(self.creations.values().chain(self.deletions.values()), now, timeout)
    }

    /// Nothing if the cache shows every pod that an unanswered creation may have left behind, otherwise how long to wait
    /// for it at most. A refused repetition proves nothing: quota, for one, is asked before the name is looked at.
    pub(crate) fn uncertain_for(&self, now: Timestamp, timeout: Duration) -> Option<Duration> {
        longest_wait(self.uncertain.values().map(|attempt| &attempt.since), now, timeout)
    }
}

fn longest_wait<'a>(since: impl Iterator<Item = &'a Timestamp>, now: Timestamp, timeout: Duration) -> Option<Duration> {
    since
        .filter(|since| !expired(**since, now, timeout))
        .map(|since| timeout.saturating_sub(elapsed(*since, now)))
        .max()
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

fn expired(since: Timestamp, now: Timestamp, timeout: Duration) -> bool {
    elapsed(since, now) >= timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    /// JC-401, JC-402.
    #[test]
    fn expectations_hold_until_seen_or_expired() {
        let mut in_flight = InFlight::default();
        assert_eq!(in_flight.waiting(at(0), TIMEOUT), None);
        in_flight.created(&"a".into(), at(0));
        in_flight.deleted(&Uid::new("b"), at(10));
        assert_eq!(in_flight.waiting(at(10), TIMEOUT), Some(TIMEOUT));
        assert_eq!(in_flight.unseen_pods(at(10), TIMEOUT), 1);
        in_flight.deletion_seen(&Uid::new("b"));
        assert_eq!(in_flight.waiting(at(10), TIMEOUT), Some(Duration::from_secs(290)));
        assert_eq!(in_flight.waiting(at(300), TIMEOUT), None);
        assert_eq!(in_flight.unseen_pods(at(300), TIMEOUT), 0);
        in_flight.pod_seen("a");
        assert_eq!(in_flight.waiting(at(0), TIMEOUT), None);
        assert_eq!(in_flight, InFlight::default());
    }

    #[test]
    fn a_creation_without_answer_is_repeated_not_expected() {
        let mut in_flight = InFlight::default();
        in_flight.creation_unanswered(&"a".into(), Some(3), at(0));
        assert_eq!(in_flight.waiting(at(0), TIMEOUT), None);
        assert_eq!(in_flight.uncertain_for(at(10), TIMEOUT), Some(Duration::from_secs(290)));
        assert_eq!(in_flight.uncertain_for(at(300), TIMEOUT), None);
        assert_eq!(in_flight.uncertain(Some(3)).map(|name| &**name).collect::<Vec<_>>(), ["a"]);
        assert_eq!(in_flight.uncertain(None).count(), 0);
        in_flight.pod_seen("a");
        assert_eq!(in_flight, InFlight::default());
    }

    #[test]
    fn names_taken_by_others_are_bounded() {
        let mut in_flight = InFlight::default();
        for number in 0..=BLOCKED_MAX {
            in_flight.name_taken(&number.to_string().into());
        }
        assert_eq!(in_flight.blocked.len(), 1);
        assert!(in_flight.is_blocked(&BLOCKED_MAX.to_string()));
    }
}
