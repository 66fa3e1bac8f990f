//! What the handles, the watches and the writer of one store share, and how stored versions are read back.

use crate::index::Index;
use crate::queue::Queue;
use crate::record::{self, Decoded};
use crate::{Backend, BackendError, Clock, Derive, Entry, Event, EventKind, ReadError, Revision};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::Notify;

/// As many replayed events are shared at a time.
const REPLAYED_MAX: usize = 4096;

pub(crate) struct Shared<A> {
    pub(crate) index: RwLock<Index<A>>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) queue: Queue<A>,
    pub(crate) derive: Derive<A>,
    pub(crate) clock: Clock,
    /// Wakes those who wait for a revision.
    pub(crate) published: Notify,
    /// Why the store takes no more writes. Set once, never cleared: after a failed sync nobody knows what is on disk.
    pub(crate) failure: OnceLock<Arc<str>>,
    /// Whether watches read from disk on the watcher's task. Otherwise another thread does: a disk may block.
    pub(crate) reads_in_place: bool,
    /// Events that were read from disk and that somebody still holds. Watchers who are behind come by the same ones, and
    /// those whose clients do not read hold theirs for long (BI-85).
    pub(crate) replayed: Mutex<HashMap<Revision, Weak<Event<A>>>>,
}

impl<A> Shared<A> {
    /// Reads the version that `revision` wrote from disk. It must have been above the compaction point or a survivor
    /// when `requested` was checked; compaction may have overtaken the caller since.
    pub(crate) fn read_entry(&self, revision: Revision, requested: Revision) -> Result<Arc<Entry<A>>, ReadError> {
        self.read(revision, requested, |decoded, value| Arc::new(self.entry(decoded, value)))
    }

    /// Reads the event of `revision` from disk, with the version it replaced, unless somebody has it.
    pub(crate) fn read_event(&self, revision: Revision, requested: Revision) -> Result<Arc<Event<A>>, ReadError> {
        let held = self.replayed.lock().get(&revision).and_then(Weak::upgrade);
        if let Some(event) = held {
            return Ok(event);
        }
        let event = self.read_new_event(revision, requested)?;
        let mut replayed = self.replayed.lock();
        // Another one may have read it meanwhile.
        if let Some(event) = replayed.get(&revision).and_then(Weak::upgrade) {
            return Ok(event);
        }
        if replayed.len() >= REPLAYED_MAX {
            replayed.retain(|_, event| event.strong_count() > 0);
        }
        if replayed.len() < REPLAYED_MAX {
            replayed.insert(revision, Arc::downgrade(&event));
        }
        Ok(event)
    }

    fn read_new_event(&self, revision: Revision, requested: Revision) -> Result<Arc<Event<A>>, ReadError> {
        let (kind, previous_revision, entry) = self.read(revision, requested, |decoded, value| {
            (decoded.header.kind, decoded.header.previous_revision, Arc::new(self.entry(decoded, value)))
        })?;
        let previous = match previous_revision {
            0 => None,
            previous => Some(self.read_entry(previous, requested)?),
        };
        debug_assert!(kind == EventKind::Put || previous.is_some(), "only what exists is deleted");
        Ok(Arc::new(Event::new(kind, entry, previous)))
    }

    fn read<T>(
        &self,
        revision: Revision,
        requested: Revision,
        make: impl FnOnce(&Decoded<'_>, Bytes) -> T,
    ) -> Result<T, ReadError> {
        let stored = self.backend.read(revision).map_err(|source| ReadError::Stored { revision, source })?;
        let Some(bytes) = stored else {
            let oldest = self.index.read().compacted;
            if requested < oldest {
                return Err(ReadError::Compacted { requested, oldest });
            }
            let source = BackendError::new("the record is missing");
            return Err(ReadError::Stored { revision, source });
        };
        let decoded = record::decode(revision, &bytes)
            .map_err(|source| ReadError::Stored { revision, source: BackendError::new(source) })?;
        Ok(make(&decoded, bytes.slice(decoded.value_start..)))
    }

    fn entry(&self, decoded: &Decoded<'_>, value: Bytes) -> Entry<A> {
        let header = &decoded.header;
        Entry::new(decoded.key.into(), value, header.revision, header.create_revision, self.derive.clone())
    }
}
