//! Watches: a cursor over one topic's changes that the watcher moves itself.
//!
//! There is no buffer per watcher. A watcher that keeps up reads the topic's recent events, shared with all others; one
//! that lags reads from disk; one that lags beyond the history is told so and never skips silently (D6, INV-44).

use crate::index::Index;
use crate::shared::Shared;
use crate::topic::Topic;
use crate::transaction::topic_of;
use crate::wake::Sleeper;
use crate::{Event, ReadError, Revision};
use std::fmt;
use std::sync::{Arc, Weak};
use teeth::{Mutation, is};

/// Most recent events looked at under one read lock, matching or not.
const SCAN_MAX: usize = 4096;
/// So many events a watcher that keeps up gets at a time, if many are written.
const EXPECTED: usize = 64;
/// Most events read from disk for one batch.
const REPLAY_MAX: usize = 256;
/// Bytes after which a batch ends early. Whoever frames a batch holds its bytes until they are read, which may be never,
/// and there may be thousands of them (BI-85).
const BATCH_BYTES: usize = 64 << 10;

/// The changes under a prefix after a revision, in order, without gaps.
pub struct Watch<A> {
    /// Weak, so that a forgotten watch does not keep the store's directory locked.
    shared: Weak<Shared<A>>,
    prefix: Arc<str>,
    published: Sleeper,
    /// Everything under the prefix up to here was handed out.
    cursor: Revision,
}

/// What the next events of a cursor are.
enum Next<A> {
    Events(Vec<Arc<Event<A>>>),
    /// On disk, under these revisions.
    Stored(Vec<Revision>),
    /// None so far.
    Nothing,
}

impl<A> Watch<A> {
    pub(crate) fn open(shared: &Arc<Shared<A>>, prefix: &str, from: Revision) -> Result<Self, ReadError> {
        let name = topic_of(prefix).ok_or_else(|| ReadError::NoTopic { prefix: prefix.to_owned() })?;
        let subscribe = |topic: &Topic<A>| topic.published.subscribe();
        let index = shared.index.read();
        let oldest = index.compacted;
        let known = index.topic(name).map(subscribe);
        let from = if is(Mutation::S07) { from.min(index.revision) } else { from };
        let from = if is(Mutation::S09) { from.max(oldest) } else { from };
        drop(index);
        if from < oldest {
            return Err(ReadError::Compacted { requested: from, oldest });
        }
        // The first watcher of a topic without keys makes the topic.
        let published = known.unwrap_or_else(|| subscribe(shared.index.write().topic_mut(name)));
        Ok(Self { shared: Arc::downgrade(shared), prefix: prefix.into(), published, cursor: from })
    }

    /// Waits for changes and returns the next of them, at least one and at most `max` (or 1, if `max` is 0), fewer if
    /// they are large.
    ///
    /// Safe to cancel: events are counted as handed out only when they are returned. After `Compacted` the watcher has
    /// to list again; every later call gives the same answer.
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Arc<Event<A>>>, ReadError>
    where
        A: Send + Sync + 'static,
    {
        let published = self.published.clone();
        loop {
            // Noted before looking: a change published after the look wakes the wait below, and so does the end.
            let published = published.woken();
            let shared = self.shared.upgrade().ok_or(ReadError::Closed)?;
            let (next, cursor) = look(&shared.index.read(), &self.prefix, self.cursor, max.max(1))?;
            match next {
                Next::Events(events) => {
                    self.cursor = cursor;
                    return Ok(events);
                }
                Next::Stored(revisions) => {
                    let requested = self.cursor;
                    let wanted = revisions.len();
                    let in_place = shared.reads_in_place;
                    let read = move || replay(&shared, &revisions, requested);
                    let events = match in_place {
                        true => read()?,
                        false => tokio::task::spawn_blocking(read).await.map_err(|_| ReadError::Closed)??,
                    };
                    let cut_at = events.last().filter(|_| events.len() < wanted).map(|event| event.revision());
                    self.cursor = cut_at.unwrap_or(cursor);
                    return Ok(events);
                }
                Next::Nothing if cursor > self.cursor => self.cursor = cursor,
                Next::Nothing => {
                    drop(shared);
                    published.await;
                }
            }
        }
    }

    /// The revision up to which this watcher has seen everything: what a bookmark may carry (AS-106). Moves on with
    /// the store while nothing under the prefix changes.
    pub fn progress(&mut self) -> Revision {
        let Some(shared) = self.shared.upgrade() else { return self.cursor };
        // A look is bounded, so it may take several to get past what does not match.
        while let Ok((Next::Nothing, cursor)) = look(&shared.index.read(), &self.prefix, self.cursor, 1)
            && cursor > self.cursor
        {
            self.cursor = cursor;
        }
        self.cursor
    }
}

/// Finds the next events after `cursor`, and where the cursor is once they are handed out.
fn look<A>(index: &Index<A>, prefix: &str, cursor: Revision, max: usize) -> Result<(Next<A>, Revision), ReadError> {
    let Some(topic) = topic_of(prefix).and_then(|name| index.topic(name)) else {
        return Ok((Next::Nothing, cursor.max(index.revision)));
    };
    let cursor = if is(Mutation::S09) { cursor.max(topic.dropped_through) } else { cursor };
    if cursor < topic.dropped_through {
        return Err(ReadError::Compacted { requested: cursor, oldest: index.compacted });
    }
    if cursor < topic.evicted_through {
        return Ok(look_on_disk(index, topic, prefix, cursor, max));
    }
    let unseen = topic.recent.range(topic.recent.partition_point(|event| event.revision() <= cursor)..);
    let mut events = Vec::with_capacity(unseen.len().min(max).min(EXPECTED));
    let (mut seen, mut bytes) = (cursor, 0);
    for (scanned, event) in unseen.enumerate() {
        if scanned == SCAN_MAX || events.len() == max || bytes >= BATCH_BYTES {
            return Ok((some(events), seen));
        }
        seen = event.revision();
        if event.key().starts_with(prefix) {
            bytes += event.entry.value_len();
            events.push(event.clone());
        }
    }
    Ok((some(events), cursor.max(index.revision)))
}

fn some<A>(events: Vec<Arc<Event<A>>>) -> Next<A> {
    if events.is_empty() { Next::Nothing } else { Next::Events(events) }
}

/// The log knows which revisions are under the prefix, so only those are read.
fn look_on_disk<A>(
    index: &Index<A>,
    topic: &Topic<A>,
    prefix: &str,
    cursor: Revision,
    max: usize,
) -> (Next<A>, Revision) {
    let unseen = topic.revisions.range(topic.revisions.partition_point(|revision| *revision <= cursor)..);
    let mut stored = Vec::new();
    let mut seen = cursor;
    for revision in unseen.take(SCAN_MAX).take_while(|revision| **revision <= topic.evicted_through) {
        if stored.len() == max.min(REPLAY_MAX) {
            break;
        }
        seen = *revision;
        if index.key_of(*revision).is_some_and(|key| key.starts_with(prefix)) {
            stored.push(*revision);
        }
    }
    (if stored.is_empty() { Next::Nothing } else { Next::Stored(stored) }, seen)
}

/// Reads events from disk: all of `revisions`, or as many of the first as are enough bytes.
fn replay<A>(shared: &Shared<A>, revisions: &[Revision], requested: Revision) -> Result<Vec<Arc<Event<A>>>, ReadError> {
    let mut events = Vec::with_capacity(revisions.len());
    let mut bytes = 0;
    for revision in revisions {
        if bytes >= BATCH_BYTES {
            break;
        }
        let event = shared.read_event(*revision, requested)?;
        bytes += event.entry.value_len() + event.previous.as_ref().map_or(0, |previous| previous.value_len());
        events.push(event);
    }
    Ok(events)
}

impl<A> fmt::Debug for Watch<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watch").field("prefix", &self.prefix).field("cursor", &self.cursor).finish()
    }
}
