//! What a writer asks for, and the answers it can get.

use crate::{Entry, Revision, Value};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Longest key in bytes: a resource with its group, a namespace and a name stay below 700.
pub(crate) const KEY_BYTES_MAX: usize = 1024;
/// Longest value in bytes: the API server's largest request body (3 MiB) with room for defaulted fields.
pub(crate) const VALUE_BYTES_MAX: usize = 8 << 20;
/// Most operations and most conditions of one transaction; staging compares keys of one transaction pairwise.
pub(crate) const OPERATIONS_MAX: usize = 256;

/// Conditions and operations that take effect together or not at all.
///
/// All conditions are judged before the first operation. Every operation gets its own revision, consecutive in the
/// order given. Operations may touch a key twice; the second then sees the first.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) operations: Vec<Operation>,
}

/// What a condition demands of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Present,
    /// Present, and last changed by this revision.
    AtRevision(Revision),
}

#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) key: Arc<str>,
    pub(crate) expect: Expect,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put { key: Arc<str>, value: Value },
    Delete { key: Arc<str>, last: Value },
}

impl Transaction {
    pub fn new() -> Self {
        Self::default()
    }

    /// Demands something of `key`.
    #[must_use]
    pub fn require(mut self, key: impl Into<Arc<str>>, expect: Expect) -> Self {
        self.conditions.push(Condition { key: key.into(), expect });
        self
    }

    /// Writes `key`, whether it exists or not.
    #[must_use]
    pub fn put(mut self, key: impl Into<Arc<str>>, value: Value) -> Self {
        self.operations.push(Operation::Put { key: key.into(), value });
        self
    }

    /// Removes `key`, which must exist. `last` is what watchers get to see as its last content (AS-99).
    #[must_use]
    pub fn delete(mut self, key: impl Into<Arc<str>>, last: Value) -> Self {
        self.operations.push(Operation::Delete { key: key.into(), last });
        self
    }

    /// Writes `key`, which must not exist.
    #[must_use]
    pub fn create(key: impl Into<Arc<str>>, value: Value) -> Self {
        let key = key.into();
        Self::new().require(key.clone(), Expect::Absent).put(key, value)
    }

    /// Writes `key`, which must be at `revision`.
    #[must_use]
    pub fn update(key: impl Into<Arc<str>>, revision: Revision, value: Value) -> Self {
        let key = key.into();
        Self::new().require(key.clone(), Expect::AtRevision(revision)).put(key, value)
    }

    /// Removes `key`, which must be at `revision`.
    #[must_use]
    pub fn remove(key: impl Into<Arc<str>>, revision: Revision, last: Value) -> Self {
        let key = key.into();
        Self::new().require(key.clone(), Expect::AtRevision(revision)).delete(key, last)
    }

    /// The bytes this transaction can add to disk, near enough to bound queues and batches by.
    pub(crate) fn bytes(&self) -> usize {
        self.operations.iter().map(|operation| operation.key().len() + operation.value().len_max()).sum()
    }

    pub(crate) fn validate(&self) -> Result<(), &'static str> {
        if self.operations.len() > OPERATIONS_MAX || self.conditions.len() > OPERATIONS_MAX {
            return Err("more than 256 operations or conditions");
        }
        for operation in &self.operations {
            let key = operation.key();
            if topic_of(key).is_none() || key.ends_with('/') {
                return Err("a key that is not `topic/rest`");
            }
            if key.len() > KEY_BYTES_MAX {
                return Err("a key longer than 1024 bytes");
            }
            if operation.value().len_max() > VALUE_BYTES_MAX {
                return Err("a value larger than 8 MiB");
            }
        }
        Ok(())
    }
}

impl Operation {
    pub(crate) fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub(crate) fn value(&self) -> &Value {
        match self {
            Self::Put { value, .. } => value,
            Self::Delete { last, .. } => last,
        }
    }
}

/// The topic of a key or prefix: its first segment, which must not be empty and must end in `/`.
pub(crate) fn topic_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(topic, _)| topic).filter(|topic| !topic.is_empty())
}

/// A transaction that took effect and is durable.
pub struct Committed<A> {
    /// What each operation wrote, in the order given; for a deletion the stamped last content.
    pub entries: Vec<Arc<Entry<A>>>,
    /// The newest revision the transaction's outcome is based on: that of its last operation if it has one.
    pub revision: Revision,
}

impl<A> fmt::Debug for Committed<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Committed").field("entries", &self.entries).field("revision", &self.revision).finish()
    }
}

/// Why a transaction was not acknowledged.
#[derive(Error)]
pub enum CommitError<A> {
    /// A condition did not hold, or a deletion found nothing. Nothing was written. Carries what is there, so that a
    /// retry needs no second read.
    #[error("key `{key}` is not in the expected state")]
    Conflict { key: Arc<str>, current: Option<Arc<Entry<A>>> },
    /// The transaction can never be accepted. Nothing was written.
    #[error("the transaction has {reason}")]
    Invalid { reason: &'static str },
    /// A write or sync failed, now or earlier. Whether this transaction survives a restart is unknown.
    #[error("the store takes no more writes: {reason}")]
    Failed { reason: Arc<str> },
    /// The store was closed before the transaction got its turn.
    #[error("the store is closed")]
    Closed,
}

// Written out, because deriving would demand `A: Debug`.
impl<A> fmt::Debug for CommitError<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { key, current } => {
                formatter.debug_struct("Conflict").field("key", key).field("current", current).finish()
            }
            Self::Invalid { reason } => formatter.debug_struct("Invalid").field("reason", reason).finish(),
            Self::Failed { reason } => formatter.debug_struct("Failed").field("reason", reason).finish(),
            Self::Closed => formatter.write_str("Closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_out_of_bounds_are_invalid() {
        let put = |key: &str| Transaction::new().put(key, Value::plain("x"));
        let cases = [
            ("an ordinary key", put("pods/a/b"), true),
            ("no topic", put("pods"), false),
            ("an empty topic", put("/pods"), false),
            ("nothing behind the topic", put("pods/"), false),
            ("the longest key", put(&format!("t/{}", "k".repeat(KEY_BYTES_MAX - 2))), true),
            ("a key one too long", put(&format!("t/{}", "k".repeat(KEY_BYTES_MAX - 1))), false),
            ("the largest value", Transaction::new().put("t/k", Value::plain(vec![0; VALUE_BYTES_MAX])), true),
            ("a value one too large", Transaction::new().put("t/k", Value::plain(vec![0; VALUE_BYTES_MAX + 1])), false),
            ("the most operations", (0..OPERATIONS_MAX).fold(put("t/k"), |t, _| t).put("t/k", Value::plain("")), true),
            (
                "one operation too many",
                (0..=OPERATIONS_MAX).fold(Transaction::new(), |t, _| t.put("t/k", Value::plain(""))),
                false,
            ),
        ];
        for (name, transaction, valid) in cases {
            assert_eq!(transaction.validate().is_ok(), valid, "{name}");
        }
    }
}
