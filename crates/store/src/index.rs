//! What the store knows in memory: every topic, the log of revisions inside the history, and the two ends of it.
//!
//! Changed by the writer only, after the change is durable. Values of older versions are not here; see
//! `shared.rs` for how they are found.

use crate::options::Recent;
use crate::record::{Checkpoint, Survivors};
use crate::topic::{Latest, Topic};
use crate::transaction::topic_of;
use crate::wake::Wake;
use crate::{Entry, Event, EventKind, Revision};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub(crate) struct Index<A> {
    /// The newest durable revision.
    pub(crate) revision: Revision,
    /// Superseded versions and deletions up to here are gone. Reads at it and watches from it still work.
    pub(crate) compacted: Revision,
    pub(crate) survivors: Survivors,
    /// The key that each revision above the compaction point changed, in order and without gaps.
    log: VecDeque<Arc<str>>,
    /// Few: one per resource that is served.
    topics: BTreeMap<Arc<str>, Topic<A>>,
    recent: Recent,
    recent_bytes: usize,
    recent_events: usize,
}

/// The topics that a publication changed. Wake their watchers once the index is unlocked.
pub(crate) type Wakes = Vec<Arc<Wake>>;

impl<A> Index<A> {
    pub(crate) fn new(checkpoint: Checkpoint, recent: Recent) -> Self {
        Self {
            revision: checkpoint.compacted,
            compacted: checkpoint.compacted,
            survivors: checkpoint.survivors,
            log: VecDeque::new(),
            topics: BTreeMap::new(),
            recent,
            recent_bytes: 0,
            recent_events: 0,
        }
    }

    pub(crate) fn topic(&self, topic: &str) -> Option<&Topic<A>> {
        self.topics.get(topic)
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &Topic<A>> {
        self.topics.values()
    }

    pub(crate) fn topic_mut(&mut self, name: &str) -> &mut Topic<A> {
        if !self.topics.contains_key(name) {
            self.topics.insert(name.into(), Topic::default());
        }
        self.topics.get_mut(name).expect("inserted above")
    }

    pub(crate) fn live(&self, key: &str) -> Option<&Arc<Entry<A>>> {
        self.topic(topic_of(key)?)?.live(key)
    }

    /// The key that `revision` changed; `None` at or below the compaction point.
    pub(crate) fn key_of(&self, revision: Revision) -> Option<&Arc<str>> {
        let position = revision.checked_sub(self.compacted + 1)?;
        self.log.get(usize::try_from(position).ok()?)
    }

    pub(crate) fn recent_size(&self) -> (usize, usize) {
        (self.recent_events, self.recent_bytes)
    }

    /// Makes durable events visible, in order.
    pub(crate) fn publish(&mut self, events: impl IntoIterator<Item = Arc<Event<A>>>) -> Wakes {
        let mut touched: Vec<Arc<str>> = Vec::new();
        for event in events {
            let key = event.key().clone();
            let name = topic_of(&key).expect("transactions with other keys are refused");
            let latest = match event.kind {
                EventKind::Put => Latest::Live(event.entry.clone()),
                EventKind::Delete => Latest::Deleted(event.revision()),
            };
            self.extend_log(&key, event.revision());
            self.recent_bytes += crate::topic::cost(&event);
            self.recent_events += 1;
            let revision = event.revision();
            let topic = self.topic_mut(name);
            topic.install(&key, latest);
            topic.revisions.push_back(revision);
            topic.remember(event);
            if !touched.iter().any(|other| **other == *name) {
                touched.push(name.into());
            }
        }
        self.evict();
        touched.iter().map(|name| self.topic_mut(name).published.clone()).collect()
    }

    /// Takes a record found at start-up as the newest version of its key. Its event is not recent: it is on disk.
    pub(crate) fn recover(&mut self, key: &Arc<str>, revision: Revision, latest: Latest<A>) {
        let above_compaction = revision > self.compacted;
        if above_compaction {
            self.extend_log(key, revision);
        }
        let name = topic_of(key).expect("recovery refuses other keys");
        let topic = self.topic_mut(name);
        topic.install(key, latest);
        if above_compaction {
            topic.revisions.push_back(revision);
            topic.evicted_through = revision;
        }
    }

    fn extend_log(&mut self, key: &Arc<str>, revision: Revision) {
        assert_eq!(revision, self.revision + 1, "revisions are published one after the other");
        self.revision = revision;
        self.log.push_back(key.clone());
    }

    /// Keeps the recent events inside their budget. The topic that takes most gives first, so that a busy topic does
    /// not push a quiet one's events out.
    fn evict(&mut self) {
        while self.recent_bytes > self.recent.bytes_max || self.recent_events > self.recent.events_max {
            let Some(topic) = self.topics.values_mut().max_by_key(|topic| topic.recent_bytes) else { return };
            self.recent_bytes -= topic.evict();
            self.recent_events -= 1;
        }
    }

    /// Forgets what compaction up to `through` takes away, once that is durable.
    pub(crate) fn compact(&mut self, through: Revision, survivors: Survivors) {
        for revision in self.compacted + 1..=through {
            let key = self.log.pop_front().expect("the log reaches from the compaction point to the revision");
            let topic = self.topic_mut(topic_of(&key).expect("published keys have a topic"));
            topic.forget(&key, revision);
            let (mut events, mut bytes) = (0, 0);
            while topic.recent.front().is_some_and(|event| event.revision() <= revision) {
                bytes += topic.evict();
                events += 1;
            }
            self.recent_events -= events;
            self.recent_bytes -= bytes;
        }
        self.compacted = through;
        self.survivors = survivors;
    }
}
