//! Rebuilds the index from what the backend holds, and refuses what cannot be the whole truth.

use crate::index::Index;
use crate::options::Recent;
use crate::record::{self, Checkpoint, Survivors};
use crate::topic::Latest;
use crate::transaction::topic_of;
use crate::{Backend, BackendError, Derive, Entry, EventKind, Revision};
use bytes::Bytes;
use std::sync::Arc;
use thiserror::Error;

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("open the store in {place}")]
    Backend { place: String, source: BackendError },
    /// What was read contradicts itself. Nothing is served from it.
    #[error("the store in {place} is damaged: {what}")]
    Damaged { place: String, what: String },
    /// What was read is sound, but ends before what was acknowledged.
    #[error(
        "the store in {place} has lost changes: revision {acknowledged} was acknowledged, and only {found} is there; \
         restore a copy, or remove the file `ACKNOWLEDGED` to go on without them"
    )]
    Lost { place: String, acknowledged: Revision, found: Revision },
    #[error("start the writer thread")]
    Thread { source: std::io::Error },
}

/// Reads everything and returns the index as it was after the last durable change.
pub(crate) fn recover<A>(backend: &dyn Backend, derive: &Derive<A>, recent: Recent) -> Result<Index<A>, OpenError> {
    let place = backend.place();
    let failed = |source| OpenError::Backend { place: place.clone(), source };
    let damaged = |what: String| OpenError::Damaged { place: place.clone(), what };

    let checkpoint = match backend.checkpoint().map_err(failed)? {
        Some(bytes) => Checkpoint::decode(&bytes).map_err(|error| damaged(format!("of its checkpoint, {error}")))?,
        None => Checkpoint::default(),
    };
    let mut scan =
        Scan { index: Index::new(checkpoint, recent), survivors: Survivors::default(), derive, damage: None };
    backend.scan(&mut |revision, bytes| scan.take(revision, bytes)).map_err(failed)?;
    if let Some(what) = scan.damage {
        return Err(damaged(what));
    }
    if scan.survivors != checkpoint.survivors {
        return Err(damaged(format!("records up to revision {} are missing or too many", checkpoint.compacted)));
    }
    let found = scan.index.revision;
    if found < checkpoint.revision {
        return Err(damaged(format!("it ends at revision {found}, but was compacted at {}", checkpoint.revision)));
    }
    match backend.acknowledged() {
        Some(acknowledged) if found < acknowledged => Err(OpenError::Lost { place, acknowledged, found }),
        _ => Ok(scan.index),
    }
}

struct Scan<'a, A> {
    index: Index<A>,
    survivors: Survivors,
    derive: &'a Derive<A>,
    damage: Option<String>,
}

impl<A> Scan<'_, A> {
    /// Takes the next record; `false` stops the scan.
    fn take(&mut self, revision: Revision, bytes: &[u8]) -> bool {
        self.damage = self.check_and_take(revision, bytes).err();
        self.damage.is_none()
    }

    fn check_and_take(&mut self, revision: Revision, bytes: &[u8]) -> Result<(), String> {
        let decoded = record::decode(revision, bytes).map_err(|error| format!("of record {revision}, {error}"))?;
        let topic = topic_of(decoded.key).ok_or_else(|| format!("record {revision} has a key without topic"))?;
        let known = self.index.topic(topic).and_then(|topic| topic.keys.get_key_value(decoded.key));
        let live = known.and_then(|(_, slot)| slot.live()).map_or(0, |entry| entry.revision);
        if revision <= self.index.compacted {
            if decoded.header.kind == EventKind::Delete || known.is_some() {
                return Err(format!("record {revision} should have been compacted"));
            }
            self.survivors.add(revision);
        } else if revision != self.index.revision + 1 {
            return Err(format!("the record after {} is {revision}", self.index.revision));
        } else if live != decoded.header.previous_revision {
            return Err(format!("record {revision} does not follow the version {live} of its key"));
        }
        let key = known.map_or_else(|| Arc::from(decoded.key), |(key, _)| key.clone());
        let latest = match decoded.header.kind {
            EventKind::Delete => Latest::Deleted(revision),
            EventKind::Put => Latest::Live(Arc::new(Entry::new(
                key.clone(),
                // A copy of its own: the engine's bytes may be a view into a whole block.
                Bytes::copy_from_slice(&bytes[decoded.value_start..]),
                revision,
                decoded.header.create_revision,
                self.derive.clone(),
            ))),
        };
        self.index.recover(&key, revision, latest);
        Ok(())
    }
}
