//! One change as watchers see it.

use crate::{Entry, Revision};
use bytes::Bytes;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What a change did to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Put,
    Delete,
}

/// One change. Shared by all watchers of its topic while it is among the recent ones.
pub struct Event<A> {
    pub kind: EventKind,
    /// What was written: the new version, or for a deletion the last content stamped with the deletion's revision
    /// (AS-99).
    pub entry: Arc<Entry<A>>,
    /// The version this change replaced; `None` if the key did not exist. Selectors judge transitions on it (AS-98).
    pub previous: Option<Arc<Entry<A>>>,
    frame: OnceLock<Bytes>,
}

impl<A> Event<A> {
    pub(crate) fn new(kind: EventKind, entry: Arc<Entry<A>>, previous: Option<Arc<Entry<A>>>) -> Self {
        Self { kind, entry, previous, frame: OnceLock::new() }
    }

    pub fn revision(&self) -> Revision {
        self.entry.revision
    }

    pub fn key(&self) -> &Arc<str> {
        &self.entry.key
    }

    /// The event in the encoding most watchers want, built by the first of them and shared by all (D3).
    ///
    /// There is one slot: every caller must pass a `build` that yields the same bytes.
    pub fn frame(&self, build: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.frame.get_or_init(|| build(self)).clone()
    }
}

impl<A> fmt::Debug for Event<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Event")
            .field("kind", &self.kind)
            .field("entry", &self.entry)
            .field("previous", &self.previous)
            .finish_non_exhaustive()
    }
}
