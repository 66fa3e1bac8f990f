//! What the pods of one completion index mean together (JC sections 14 and 15).
//!
//! An index has few pods, so its part of the sets below is worked out anew whenever one of them changes.

use std::collections::{BTreeMap, BTreeSet};

use batch_types::index_ranges::IndexSet;
use jiff::Timestamp;

use super::Uid;
use super::indexes::LiveIndexes;
use super::tally::{Fate, Key, Standing, Tally};

/// The indexes of a Job by the state of their pods. Only valid indexes (below `completions`) are in here.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexTally {
    /// The pods of each index that are live or still tracked, in order.
    members: BTreeMap<u32, Vec<Uid>>,
    pub(super) active: LiveIndexes,
    pub(super) terminating: LiveIndexes,
    /// Indexes with a succeeded pod that is still tracked (JC-1402).
    pub(super) succeeded: LiveIndexes,
    /// Indexes that a tracked pod has failed for good (JC-1502).
    pub(super) given_up: LiveIndexes,
    /// Indexes with more than one active pod (JC-1012).
    pub(super) crowded: BTreeSet<u32>,
    /// The failed pod that stays tracked until its replacement has taken over its counts (JC-1506).
    retained: BTreeMap<u32, Key>,
}

#[derive(Default)]
struct Summary {
    active: usize,
    terminating: bool,
    succeeded: bool,
    given_up: bool,
    last_failure: Option<LastFailure>,
}

/// Ordered so that the greatest is the pod to retain: most failures, then latest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LastFailure {
    failures: u64,
    finished: Timestamp,
    uid: Uid,
}

impl IndexTally {
    /// The pod that is retained for the index, if there is one.
    pub(super) fn retained(&self, index: u32) -> Option<&Uid> {
        self.retained.get(&index).map(|(_, uid)| uid)
    }

    pub(super) fn retained_keys(&self) -> impl Iterator<Item = &Key> {
        self.retained.values()
    }

    /// The retained pods of indexes that need no replacement any more.
    pub(super) fn retained_in(&self, done: &IndexSet) -> impl Iterator<Item = &Key> {
        done.intervals()
            .iter()
            .flat_map(|interval| self.retained.range(interval.first..=interval.last))
            .map(|(_, key)| key)
    }

    /// Live and still tracked pods of an index.
    pub(super) fn members(&self, index: u32) -> &[Uid] {
        self.members.get(&index).map_or(&[], Vec::as_slice)
    }
}

impl Tally {
    /// Enters a pod with a valid index under it, or takes it out.
    pub(super) fn file_index(&mut self, uid: &Uid, index: u32, standing: Standing, enter: bool) {
        if !standing.active && !standing.terminating && standing.fate.is_none() {
            return;
        }
        let members = self.indexes.members.entry(index).or_default();
        match (enter, members.binary_search(uid)) {
            (true, Err(at)) => members.insert(at, uid.clone()),
            (false, Ok(at)) => drop(members.remove(at)),
            (true, Ok(_)) | (false, Err(_)) => {}
        }
        if members.is_empty() {
            self.indexes.members.remove(&index);
        }
        self.refresh_index(index);
    }

    fn refresh_index(&mut self, index: u32) {
        let summary = self.summarise(index);
        let replaced = summary.active > 0 || summary.succeeded || summary.given_up;
        let last_failure = summary.last_failure.filter(|_| self.rules.index_limit.is_some() && !replaced);
        self.retain(index, last_failure.map(|failure| failure.uid));

        let indexes = &mut self.indexes;
        indexes.active.set(index, summary.active > 0);
        indexes.terminating.set(index, summary.terminating);
        indexes.succeeded.set(index, summary.succeeded);
        indexes.given_up.set(index, summary.given_up);
        match summary.active > 1 {
            true => indexes.crowded.insert(index),
            false => indexes.crowded.remove(&index),
        };
    }

    fn summarise(&self, index: u32) -> Summary {
        let mut summary = Summary::default();
        for uid in self.indexes.members(index) {
            let entry = &self.pods[uid];
            let standing = self.standing(entry);
            summary.active += usize::from(standing.active);
            summary.terminating |= standing.terminating;
            summary.succeeded |= standing.fate == Some(Fate::Succeeded);
            summary.given_up |= standing.fails_index;
            if standing.fate == Some(Fate::Failed) {
                let failures = entry.failure_counts.total();
                let failure = LastFailure { failures, finished: entry.finished, uid: uid.clone() };
                summary.last_failure = summary.last_failure.max(Some(failure));
            }
        }
        summary
    }

    /// Makes `pod` the retained one of the index. Retained pods are not among the failed ones to release.
    fn retain(&mut self, index: u32, pod: Option<Uid>) {
        let before = self.indexes.retained.remove(&index);
        if let Some(key) = before.filter(|(_, uid)| Some(uid) != pod.as_ref()) {
            let is_member = self.indexes.members(index).contains(&key.1);
            if is_member && self.fate(&key.1) == Some(Fate::Failed) {
                self.failed.insert(key);
            }
        }
        if let Some(uid) = pod {
            let key = (Some(index), uid);
            self.failed.remove(&key);
            self.indexes.retained.insert(index, key);
        }
    }
}
