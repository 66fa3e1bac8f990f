//! Objects in the store: the server's view of keys and bytes.
//!
//! Everything here is mechanical; when an object may be written is decided by the verbs.

use std::sync::Arc;

use api_schema::json;
use serde_json::Value;
use store::{CommitError, Derive, Store, Transaction};

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

/// Stores a new object.
pub async fn create(store: &ObjectStore, key: &str, object: &Value) -> Result<Stored, WriteError> {
    commit_one(store, Transaction::create(key, stamped(object))).await
}

/// Replaces an object that is still at `revision`.
pub async fn update(store: &ObjectStore, key: &str, revision: u64, object: &Value) -> Result<Stored, WriteError> {
    commit_one(store, Transaction::update(key, revision, stamped(object))).await
}

/// Removes an object that is still at `revision`; `last` is what watchers see of it.
pub async fn delete(store: &ObjectStore, key: &str, revision: u64, last: &Value) -> Result<Stored, WriteError> {
    commit_one(store, Transaction::remove(key, revision, stamped(last))).await
}

async fn commit_one(store: &ObjectStore, transaction: Transaction) -> Result<Stored, WriteError> {
    match store.commit(transaction).await {
        Ok(mut committed) => match committed.entries.pop() {
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

fn stamped(object: &Value) -> store::Value {
    let (head, tail) = json::encode_stamped(object);
    store::Value::stamped(head, tail)
}

/// A stored object as a value. Stored bytes were written by this server, so they parse.
pub fn parse(stored: &Stored) -> Result<Value, Status> {
    serde_json::from_slice(&stored.value).map_err(|error| {
        tracing::error!(key = %stored.key, %error, "a stored object does not parse");
        Status::internal(format!("stored object does not parse: {error}"))
    })
}
