//! Durable revisions: keys and bytes, one revision per change, compare-and-set transactions, ordered lists at a
//! revision, watches without gaps, compaction, recovery.
//!
//! The model is etcd's. Every change is one record under its own revision and is written once; what is current, and
//! which older versions are still readable, is an index in memory that start-up rebuilds from the records. One writer
//! assigns revisions and commits many transactions with one sync; nothing is answered, readable or watched before
//! it is durable.
//!
//! A key is `topic/rest`, for example `pods/default/pi-x7`. The topic is what watchers are woken by; everything else in
//! a key is only order. Values are opaque here except for one hole where the writer puts the revision ([`Value`]).
//!
//! Deliberately elsewhere: kinds, JSON, selectors, HTTP (`apiserver`). The format on disk: `docs/store-format.md`.

mod backend;
mod compaction;
mod entry;
mod event;
mod index;
mod list;
mod options;
pub mod private;
mod queue;
mod record;
mod recovery;
mod rest;
mod shared;
mod stage;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod topic;
mod transaction;
mod wake;
mod watch;
mod window;
mod writer;
mod writing;

pub use backend::{Backend, BackendError, Batch, DirectoryError, FjallBackend, FjallOptions, MemoryBackend};
pub use entry::{Derive, Entry, Value};
pub use event::{Event, EventKind};
pub use list::{List, ListQuery, ReadError};
pub use options::{Clock, History, Options, Recent, SyncTime, Writing};
pub use recovery::OpenError;
pub use store::{Stats, Store};
pub use transaction::{CommitError, Committed, Expect, Transaction};
pub use watch::Watch;

/// The number of one change, unique and growing across all topics. Revision 0 is the empty store before any change.
pub type Revision = u64;
