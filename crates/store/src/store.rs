//! The handle that everything else is reached through.

use crate::list::{List, ListQuery, ReadError, list};
use crate::queue::Queue;
use crate::recovery::{OpenError, recover};
use crate::shared::Shared;
use crate::window::Window;
use crate::writer::WRITER_PANICKED;
use crate::writing::Running;
use crate::{
    Backend, CommitError, Committed, Derive, Entry, FjallBackend, FjallOptions, MemoryBackend, Options, Revision,
    Transaction, Watch, Writing,
};
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// An open store. Cheap to clone; the last handle closes it.
pub struct Store<A> {
    handle: Arc<Handle<A>>,
}

/// Ends and awaits the writer when the last handle goes.
struct Handle<A> {
    shared: Arc<Shared<A>>,
    writer: Running<A>,
}

/// Sizes worth a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub revision: Revision,
    /// History begins here.
    pub compacted: Revision,
    /// Keys that exist.
    pub keys: usize,
    /// Events kept in memory, and their bytes.
    pub recent_events: usize,
    pub recent_bytes: usize,
}

impl<A: Send + Sync + 'static> Store<A> {
    /// Opens the store in a directory, creating it if there is none. Blocks while everything is read and checked.
    pub fn open_directory(path: &Path, options: Options, derive: Derive<A>) -> Result<Self, OpenError> {
        let backend = FjallBackend::open(path, &FjallOptions::default())
            .map_err(|source| OpenError::Backend { place: format!("`{}`", path.display()), source })?;
        Self::open(backend, options, derive)
    }

    /// A store that is gone when it is closed.
    pub fn open_in_memory(options: Options, derive: Derive<A>) -> Result<Self, OpenError> {
        Self::open(MemoryBackend::default(), options, derive)
    }

    /// Opens the store that `backend` holds.
    pub fn open(backend: impl Backend, options: Options, derive: Derive<A>) -> Result<Self, OpenError> {
        let index = recover(&backend, &derive, options.recent)?;
        let window = Window::new(options.history, options.clock.now(), index.revision);
        tracing::info!(revision = index.revision, compacted = index.compacted, "opened the store");
        let shared = Arc::new(Shared {
            published: Notify::new(),
            index: RwLock::new(index),
            backend: Box::new(backend),
            queue: Queue::new(),
            derive,
            clock: options.clock,
            failure: OnceLock::new(),
            reads_in_place: !matches!(options.writing, Writing::Thread),
            replayed: Mutex::default(),
        });
        let writer = Running::start(&shared, window, options.writing)?;
        Ok(Self { handle: Arc::new(Handle { shared, writer }) })
    }

    /// Watches the changes under `prefix` after `from`. A `from` that is not reached yet is accepted; nothing up to it
    /// will be delivered (AS-100).
    pub fn watch(&self, prefix: &str, from: Revision) -> Result<Watch<A>, ReadError> {
        Watch::open(&self.handle.shared, prefix, from)
    }

    /// Commits a transaction: returns once it is durable and visible, or was refused. Only after
    /// [`CommitError::Failed`] is it unknown whether it will be there when the store is opened again.
    ///
    /// Dropping the future does not undo a transaction that is queued already.
    pub async fn commit(&self, transaction: Transaction) -> Result<Committed<A>, CommitError<A>> {
        transaction.validate().map_err(|reason| CommitError::Invalid { reason })?;
        let shared = &self.handle.shared;
        let gone = || match shared.failure.get() {
            Some(reason) => CommitError::Failed { reason: reason.clone() },
            None => CommitError::Closed,
        };
        let answered = shared.queue.commit(transaction).await.map_err(|_| gone())?;
        self.handle.writer.queued();
        // What is queued is answered, also when the store is closed; only a panic takes the answer away.
        answered.await.map_err(|_| CommitError::Failed { reason: WRITER_PANICKED.into() })?
    }

    /// Compacts up to `revision` now, whatever the limits; returns the compaction point reached.
    pub async fn compact(&self, revision: Revision) -> Result<Revision, ReadError> {
        let answered = self.handle.shared.queue.compact(revision).map_err(|_| ReadError::Closed)?;
        self.handle.writer.queued();
        answered.await.map_err(|_| ReadError::Closed)
    }
}

impl<A> Store<A> {
    /// The current version of `key`.
    pub fn get(&self, key: &str) -> Option<Arc<Entry<A>>> {
        self.handle.shared.index.read().live(key).cloned()
    }

    /// Entries under a prefix, in order. Current ones come from memory; `at` an older revision may read from disk.
    pub fn list(&self, query: &ListQuery<'_>) -> Result<List<A>, ReadError> {
        list(&self.handle.shared, query)
    }

    /// The newest revision: durable, visible, and delivered to watchers as fast as they read.
    pub fn revision(&self) -> Revision {
        self.handle.shared.index.read().revision
    }

    /// The newest revision of a topic's keys, 0 before the first: whether anything under it changed since, for little.
    pub fn topic_revision(&self, topic: &str) -> Revision {
        let index = self.handle.shared.index.read();
        index.topic(topic).map_or(0, |topic| topic.revisions.back().copied().unwrap_or(topic.dropped_through))
    }

    /// The oldest revision that can be listed at or watched from.
    pub fn compacted_revision(&self) -> Revision {
        self.handle.shared.index.read().compacted
    }

    /// Waits until the store has reached `revision`, at most for `timeout`; returns the revision it is at then.
    pub async fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<Revision, ReadError> {
        let reached = async {
            loop {
                // Noted before looking: a change published after the look wakes the wait below.
                let published = self.handle.shared.published.notified();
                match self.revision() {
                    current if current >= revision => return current,
                    _ => published.await,
                }
            }
        };
        let waited = tokio::time::timeout(timeout, reached).await;
        waited.map_err(|_| ReadError::Future { requested: revision, current: self.revision() })
    }

    /// Whether the store takes writes; otherwise why not. Reads go on either way.
    pub fn health(&self) -> Result<(), Arc<str>> {
        self.handle.shared.failure.get().map_or(Ok(()), |reason| Err(reason.clone()))
    }

    pub fn stats(&self) -> Stats {
        let index = self.handle.shared.index.read();
        let (recent_events, recent_bytes) = index.recent_size();
        let keys = index.topics().map(|topic| topic.live_keys).sum();
        Stats { revision: index.revision, compacted: index.compacted, keys, recent_events, recent_bytes }
    }
}

impl<A> Drop for Handle<A> {
    fn drop(&mut self) {
        // The writer, dropped next, does what is queued and ends.
        self.shared.queue.close(false);
    }
}

impl<A> Clone for Store<A> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<A> fmt::Debug for Store<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
