//! What the store's tests share: disks that can be opened again, shorthand, and a naive model.

// Every test binary uses its own part of this.
#![allow(dead_code, unreachable_pub)]

pub mod linear;
pub mod model;

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use store::testing::ForgetfulDisk;
use store::{
    Derive, EventKind, FjallBackend, FjallOptions, List, ListQuery, MemoryBackend, OpenError, Options, ReadError,
    Revision, Store, SyncTime, Transaction, Value, Watch, Writing,
};

/// Attributes in tests: the value's length, so that a wrong pairing shows.
pub type Attributes = usize;
pub type TestStore = Store<Attributes>;

pub fn derive() -> Derive<Attributes> {
    Arc::new(|_: &str, value: &Bytes| value.len())
}

/// Something a store can be opened on, closed, and opened again.
pub trait Disk {
    fn new() -> Self;
    fn try_open(&self, options: Options) -> Result<TestStore, OpenError>;

    fn open(&self, options: Options) -> TestStore {
        self.try_open(options).unwrap()
    }
}

pub struct Memory(pub MemoryBackend);

impl Disk for Memory {
    fn new() -> Self {
        Self(MemoryBackend::default())
    }

    fn try_open(&self, options: Options) -> Result<TestStore, OpenError> {
        Store::open(self.0.clone(), options, derive())
    }
}

/// A directory with small write buffers, so that a short test has tables and not only a log.
pub struct Fjall(pub tempfile::TempDir);

impl Disk for Fjall {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn try_open(&self, options: Options) -> Result<TestStore, OpenError> {
        open_fjall(self.0.path(), options)
    }
}

pub fn open_fjall(path: &std::path::Path, options: Options) -> Result<TestStore, OpenError> {
    let sizes = FjallOptions { buffer_bytes: 32 << 10, ..FjallOptions::default() };
    let backend = FjallBackend::open(path, &sizes)
        .map_err(|source| OpenError::Backend { place: path.display().to_string(), source })?;
    Store::open(backend, options, derive())
}

pub struct Forgetful(pub ForgetfulDisk);

impl Disk for Forgetful {
    fn new() -> Self {
        Self(ForgetfulDisk::default())
    }

    /// Every opening is a restart after power loss.
    fn try_open(&self, options: Options) -> Result<TestStore, OpenError> {
        self.0.lose_power(0);
        Store::open(self.0.clone(), options, derive())
    }
}

/// Another disk, written on the committing task instead of a thread.
pub struct Inline<D>(pub D);

impl<D: Disk> Disk for Inline<D> {
    fn new() -> Self {
        Self(D::new())
    }

    fn try_open(&self, options: Options) -> Result<TestStore, OpenError> {
        self.0.try_open(Options { writing: Writing::Inline, ..options })
    }
}

/// Another disk, whose syncs take a while.
pub struct Slow<D>(pub D);

impl<D: Disk> Disk for Slow<D> {
    fn new() -> Self {
        Self(D::new())
    }

    fn try_open(&self, options: Options) -> Result<TestStore, OpenError> {
        let sync_time = SyncTime::new(|| Duration::from_micros(100));
        self.0.try_open(Options { writing: Writing::InlineAfter(sync_time), ..options })
    }
}

/// A value with the revision in its middle.
pub fn stamped(text: &str) -> Value {
    Value::stamped(format!("{text}@"), "!")
}

/// What [`stamped`] is stored as.
pub fn stamped_as(text: &str, revision: Revision) -> String {
    format!("{text}@{revision}!")
}

pub fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Commits a transaction that must succeed; returns its last revision.
pub async fn commit(store: &TestStore, transaction: Transaction) -> Revision {
    store.commit(transaction).await.unwrap().revision
}

/// Waits until the writer has done whatever compaction was due: it compacts after it has answered.
pub async fn settle(store: &TestStore) {
    for _ in 0..2 {
        let _ = store.commit(Transaction::new()).await;
    }
}

pub async fn put(store: &TestStore, key: &str, value: &str) -> Revision {
    commit(store, Transaction::new().put(key, stamped(value))).await
}

pub async fn delete(store: &TestStore, key: &str, last: &str) -> Revision {
    commit(store, Transaction::new().delete(key, stamped(last))).await
}

/// `key=value` of everything under `prefix`, at `at`.
pub fn listed(store: &TestStore, prefix: &str, at: Option<Revision>) -> Result<Vec<String>, ReadError> {
    store.list(&ListQuery { at, ..ListQuery::new(prefix) }).map(|list| shown(&list))
}

pub fn shown(list: &List<Attributes>) -> Vec<String> {
    let entries = list.entries.iter();
    entries
        .map(|entry| {
            assert_eq!(*entry.attributes(), entry.value_len());
            format!("{}={}", entry.key, text(&entry.value()))
        })
        .collect()
}

/// The next `count` events, one line each: revision, `+` created, `~` changed or `-` deleted, key, value, previous.
pub async fn watched(watch: &mut Watch<Attributes>, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let events = watch.next_batch(count - lines.len()).await.unwrap();
        assert!(!events.is_empty());
        lines.extend(events.iter().map(|event| event_line(event)));
    }
    lines
}

pub fn event_line(event: &store::Event<Attributes>) -> String {
    let sign = match (event.kind, &event.previous) {
        (EventKind::Put, None) => '+',
        (EventKind::Put, Some(_)) => '~',
        (EventKind::Delete, _) => '-',
    };
    let previous = event.previous.as_ref().map_or(String::new(), |previous| text(&previous.value()));
    format!("{} {sign} {} {} {previous}", event.revision(), event.key(), text(&event.entry.value()))
}
