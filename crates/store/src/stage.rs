//! Judges the transactions of one batch and turns those that hold into records and events. No IO.

use crate::index::Index;
use crate::record::Header;
use crate::transaction::{Condition, Operation};
use crate::{CommitError, Committed, Derive, Entry, Event, EventKind, Expect, Revision, Transaction};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// The changes of one batch, not durable and not visible yet.
pub(crate) struct Stage<'a, A> {
    index: &'a Index<A>,
    derive: &'a Derive<A>,
    changes: Vec<Change<A>>,
    /// What earlier transactions of the batch made of the keys they touched.
    overlay: HashMap<Arc<str>, Option<Arc<Entry<A>>>>,
}

pub(crate) struct Change<A> {
    pub(crate) record: Bytes,
    pub(crate) event: Arc<Event<A>>,
}

impl<'a, A> Stage<'a, A> {
    pub(crate) fn new(index: &'a Index<A>, derive: &'a Derive<A>) -> Self {
        Self { index, derive, changes: Vec::new(), overlay: HashMap::new() }
    }

    pub(crate) fn into_changes(self) -> Vec<Change<A>> {
        self.changes
    }

    /// Stages a transaction whole, or not at all. The answer holds once the batch is durable: it may rest on changes
    /// of earlier transactions in the batch.
    pub(crate) fn add(&mut self, transaction: &Transaction) -> Result<Committed<A>, CommitError<A>> {
        for condition in &transaction.conditions {
            self.judge(condition)?;
        }
        let start = self.changes.len();
        for operation in &transaction.operations {
            if let Err(conflict) = self.apply(operation, start) {
                self.changes.truncate(start);
                return Err(conflict);
            }
        }
        let entries: Vec<_> = self.changes[start..].iter().map(|change| change.event.entry.clone()).collect();
        for change in &self.changes[start..] {
            self.overlay.insert(change.event.key().clone(), change.event.left());
        }
        Ok(Committed { entries, revision: self.revision() })
    }

    fn revision(&self) -> Revision {
        self.index.revision + self.changes.len() as Revision
    }

    fn judge(&self, condition: &Condition) -> Result<(), CommitError<A>> {
        let current = self.before_transaction(&condition.key);
        let holds = match (condition.expect, &current) {
            (Expect::Absent, None) | (Expect::Present, Some(_)) => true,
            (Expect::AtRevision(revision), Some(entry)) => entry.revision == revision,
            _ => false,
        };
        if holds { Ok(()) } else { Err(CommitError::Conflict { key: condition.key.clone(), current }) }
    }

    /// Appends the change that `operation` makes; the current transaction's changes begin at `start`.
    fn apply(&mut self, operation: &Operation, start: usize) -> Result<(), CommitError<A>> {
        let previous = self.within_transaction(operation.key(), start);
        let kind = match operation {
            Operation::Put { .. } => EventKind::Put,
            Operation::Delete { key, .. } if previous.is_none() => {
                return Err(CommitError::Conflict { key: key.clone(), current: None });
            }
            Operation::Delete { .. } => EventKind::Delete,
        };
        let revision = self.revision() + 1;
        let header = Header {
            revision,
            kind,
            create_revision: previous.as_ref().map_or(revision, |previous| previous.create_revision),
            previous_revision: previous.as_ref().map_or(0, |previous| previous.revision),
        };
        // One allocation per key, not per version: the log holds a handle for every revision.
        let key = previous.as_ref().map_or_else(|| operation.key().clone(), |previous| previous.key.clone());
        let encoded = header.encode(&key, operation.value());
        let entry = Entry::new(key, encoded.value, revision, header.create_revision, self.derive.clone());
        let event = Arc::new(Event::new(kind, Arc::new(entry), previous));
        self.changes.push(Change { record: encoded.bytes, event });
        Ok(())
    }

    fn before_transaction(&self, key: &str) -> Option<Arc<Entry<A>>> {
        match self.overlay.get(key) {
            Some(current) => current.clone(),
            None => self.index.live(key).cloned(),
        }
    }

    fn within_transaction(&self, key: &str, start: usize) -> Option<Arc<Entry<A>>> {
        match self.changes[start..].iter().rev().find(|change| **change.event.key() == *key) {
            Some(change) => change.event.left(),
            None => self.before_transaction(key),
        }
    }
}

impl<A> Event<A> {
    /// What the change left under its key.
    fn left(&self) -> Option<Arc<Entry<A>>> {
        match self.kind {
            EventKind::Put => Some(self.entry.clone()),
            EventKind::Delete => None,
        }
    }
}
