//! What the store knows in memory: every topic, the log of revisions inside the history, and the two ends of it.
//!
//! Changed by the writer only, after the change is durable. Values of older versions are not here; see
//! `shared.rs` for how they are found.

use crate::options::Recent;
use crate::record::{Checkpoint, Survivors};
use crate::rest::Model;
use crate::topic::{Latest, Slot, Topic};
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

/// Versions that are not recent any more. Lay them to rest with [`Index::models_for`] and [`Index::settle`].
pub(crate) type Tired<A> = Vec<Arc<Entry<A>>>;

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
    pub(crate) fn publish(&mut self, events: impl IntoIterator<Item = Arc<Event<A>>>) -> (Wakes, Tired<A>) {
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
        let tired = self.evict();
        (touched.iter().map(|name| self.topic_mut(name).published.clone()).collect(), tired)
    }

    /// By what a version might be described, the likeliest first; `None` if it is not current any more.
    pub(crate) fn models_for(&self, entry: &Arc<Entry<A>>) -> Option<Vec<Model>> {
        self.topic(topic_of(&entry.key)?)?.models_for(entry)
    }

    /// Puts `rested`, the same version, in the place of `entry`, if that is still current.
    pub(crate) fn settle(&mut self, entry: &Arc<Entry<A>>, rested: Entry<A>) {
        let name = topic_of(&entry.key).expect("published keys have a topic");
        self.topic_mut(name).settle(entry, rested);
    }

    /// Nothing that was found at start-up is recent. If it is little, it might as well be.
    pub(crate) fn tired_at_start(&self) -> Tired<A> {
        let entries = || self.topics().flat_map(|topic| topic.keys.values()).filter_map(Slot::live);
        let bytes: usize = entries().map(|entry| entry.value_len()).sum();
        match bytes > self.recent.bytes_max {
            true => entries().filter(|entry| entry.can_rest()).cloned().collect(),
            false => Tired::new(),
        }
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
    fn evict(&mut self) -> Tired<A> {
        let mut tired = Tired::new();
        while self.recent_bytes > self.recent.bytes_max || self.recent_events > self.recent.events_max {
            let busiest = self.topics.values_mut().max_by_key(|topic| topic.recent_bytes);
            let Some(event) = busiest.and_then(Topic::evict) else { break };
            self.recent_bytes -= crate::topic::cost(&event);
            self.recent_events -= 1;
            if event.kind == EventKind::Put && event.entry.can_rest() {
                tired.push(event.entry.clone());
            }
        }
        tired
    }

    /// Forgets what compaction up to `through` takes away, once that is durable.
    pub(crate) fn compact(&mut self, through: Revision, survivors: Survivors) {
        for revision in self.compacted + 1..=through {
            let key = self.log.pop_front().expect("the log reaches from the compaction point to the revision");
            let topic = self.topic_mut(topic_of(&key).expect("published keys have a topic"));
            topic.forget(&key, revision);
            let (mut events, mut bytes) = (0, 0);
            while topic.recent.front().is_some_and(|event| event.revision() <= revision)
                && let Some(event) = topic.evict()
            {
                bytes += crate::topic::cost(&event);
                events += 1;
            }
            self.recent_events -= events;
            self.recent_bytes -= bytes;
        }
        self.compacted = through;
        self.survivors = survivors;
    }
}
