//! Objects in the store: the server's view of keys and bytes.
//!
//! Everything here is mechanical; when an object may be written is decided by the verbs.

use std::sync::Arc;

use api_schema::json;
use serde_json::Value;
use store::{CommitError, Committed, Derive, Store, Transaction};

use crate::{attributes::Attributes, status::Status};

/// A stored object: its key, its bytes and its revision.
pub type Stored = Arc<store::Entry<Attributes>>;

/// The store with the attributes that the server needs.
pub type ObjectStore = Store<Attributes>;

/// How the store derives attributes; given to it when it is opened.
pub fn attributes() -> Derive<Attributes> {
    Arc::new(|key, value| Attributes::of(key, value))
}

/// Why a conditional write did not happen.
#[derive(Debug)]
pub enum WriteError {
    /// The object is not what the writer saw; what it is now.
    Conflict(Option<Stored>),
    Failed(Status),
}

impl From<Status> for WriteError {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// Stores a new object that no quota counts.
pub async fn create(store: &ObjectStore, key: &str, object: &Value) -> Result<Stored, WriteError> {
    commit(store, Transaction::create(key, stamped(object))).await
}

/// Replaces an object that is still at `revision` and that no quota counts.
pub async fn update(store: &ObjectStore, key: &str, revision: u64, object: &Value) -> Result<Stored, WriteError> {
    commit(store, Transaction::update(key, revision, stamped(object))).await
}

/// Commits a transaction whose first operation is what the caller is about.
pub(crate) async fn commit(store: &ObjectStore, transaction: Transaction) -> Result<Stored, WriteError> {
    first_of(store.commit(transaction).await)
}

/// What the first operation of a transaction wrote.
pub(crate) fn first_of(outcome: Result<Committed<Attributes>, CommitError<Attributes>>) -> Result<Stored, WriteError> {
    match outcome {
        Ok(committed) => match committed.entries.into_iter().next() {
            Some(entry) => Ok(entry),
            None => Err(WriteError::Failed(Status::internal("the store committed nothing"))),
        },
        Err(CommitError::Conflict { current, .. }) => Err(WriteError::Conflict(current)),
        Err(error @ CommitError::Invalid { .. }) => Err(WriteError::Failed(Status::too_large(error.to_string()))),
        Err(error) => {
            tracing::error!(%error, "the store refused a write");
            Err(WriteError::Failed(Status::unavailable(error.to_string())))
        }
    }
}

/// An object as bytes, with room for its version.
pub(crate) fn stamped(object: &Value) -> store::Value {
    let (head, tail) = json::encode_stamped(object);
    store::Value::stamped(head, tail)
}

/// A stored object as a value. Stored bytes were written by this server, so they parse.
pub fn parse(stored: &Stored) -> Result<Value, Status> {
    serde_json::from_slice(&stored.value()).map_err(|error| unreadable(stored, &error))
}

pub(crate) fn unreadable(stored: &Stored, error: &serde_json::Error) -> Status {
    tracing::error!(key = %stored.key, %error, "a stored object does not parse");
    Status::internal(format!("stored object does not parse: {error}"))
}
