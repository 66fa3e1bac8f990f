//! Records in a directory, kept by the storage engine fjall.
//!
//! The engine's journal is the one thing that is synced per batch; its tables follow in the background. Record keys are
//! revisions in big-endian order, so tables hardly overlap and the engine mostly moves them instead of rewriting.

use super::acknowledged::Acknowledged;
use super::directory::Directory;
use super::{Backend, BackendError, Batch, DirectoryError, journal};
use crate::Revision;
use ::fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use bytes::Bytes;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use teeth::{Mutation, is};

/// Sizes of the engine.
#[derive(Clone, Debug)]
pub struct FjallOptions {
    /// 2 MiB by default: current values are in our own memory, this cache only serves lists and watches of the past.
    pub cache_bytes: u64,
    /// Write buffer of the records, settled when a directory is created. 16 MiB by default: large enough that flushing
    /// keeps up with a full-speed writer, small enough that up to four of them stay ordinary.
    pub buffer_bytes: u64,
}

impl Default for FjallOptions {
    fn default() -> Self {
        Self { cache_bytes: 2 << 20, buffer_bytes: 16 << 20 }
    }
}

/// Write buffer of the checkpoint, which is one small key.
const CHECKPOINT_BUFFER_BYTES: u64 = 64 << 10;
/// The least the engine accepts. Journals beyond it are read at start-up for nothing.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// One flushes while the other merges.
const WORKERS: usize = 2;
/// Blocks of several records: they are read in order at start-up.
const BLOCK_BYTES: u32 = 16 << 10;

const CHECKPOINT_KEY: &[u8] = b"checkpoint";

/// A store directory.
pub struct FjallBackend {
    records: Keyspace,
    checkpoint: Keyspace,
    database: Database,
    acknowledged: Acknowledged,
    /// The note is an extra; one warning is enough if it cannot be written.
    note_failed: AtomicBool,
    // Last, so that the lock outlives the engine.
    directory: Directory,
}

impl FjallBackend {
    /// Opens the directory at `path`, creating it if there is none.
    pub fn open(path: &Path, options: &FjallOptions) -> Result<Self, BackendError> {
        let directory = Directory::open(path)?;
        let acknowledged = Acknowledged::open(path).map_err(|source| {
            let path = path.join(super::acknowledged::FILE_NAME);
            DirectoryError::Io { attempt: "open", path, source }
        })?;
        directory.close_engine()?;
        journal::check(&directory.engine())?;
        let (database, records, checkpoint) =
            guard("open the data", path, || open_engine(&directory.engine(), options))?;
        directory.complete()?;
        Ok(Self { records, checkpoint, database, acknowledged, note_failed: AtomicBool::new(false), directory })
    }

    fn guard<T>(&self, attempt: &'static str, act: impl FnOnce() -> ::fjall::Result<T>) -> Result<T, BackendError> {
        guard(attempt, self.directory.path(), act)
    }
}

fn open_engine(path: &Path, options: &FjallOptions) -> ::fjall::Result<(Database, Keyspace, Keyspace)> {
    let database = Database::builder(path)
        .cache_size(options.cache_bytes)
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .worker_threads(WORKERS)
        // The engine checks a journal by compressing again, which another version of the compressor need not repeat.
        .journal_compression(CompressionType::None)
        .open()?;
    let records = database.keyspace("records", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(options.buffer_bytes)
            .data_block_size_policy(::fjall::config::BlockSizePolicy::all(BLOCK_BYTES))
            .expect_point_read_hits(true)
    })?;
    let checkpoint = database
        .keyspace("checkpoint", || KeyspaceCreateOptions::default().max_memtable_size(CHECKPOINT_BUFFER_BYTES))?;
    Ok((database, records, checkpoint))
}

/// Names the directory in every error, and turns the engine's panics over damaged files into errors.
fn guard<T>(attempt: &'static str, path: &Path, act: impl FnOnce() -> ::fjall::Result<T>) -> Result<T, BackendError> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(BackendError::Engine { attempt, path: path.to_owned(), source: cause(error) }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let message = text.unwrap_or("no message").to_owned();
            Err(BackendError::EnginePanic { attempt, path: path.to_owned(), message })
        }
    }
}

/// The operating system's words where the engine only wraps them.
fn cause(error: ::fjall::Error) -> Box<dyn Error + Send + Sync> {
    match error {
        ::fjall::Error::Io(error) | ::fjall::Error::Storage(::fjall::LsmError::Io(error)) => Box::new(error),
        other => Box::new(other),
    }
}

impl Backend for FjallBackend {
    fn place(&self) -> String {
        format!("`{}`", self.directory.path().display())
    }

    fn checkpoint(&self) -> Result<Option<Bytes>, BackendError> {
        self.guard("read the checkpoint", || Ok(self.checkpoint.get(CHECKPOINT_KEY)?.map(Bytes::from)))
    }

    fn scan(&self, visit: &mut dyn FnMut(Revision, &[u8]) -> bool) -> Result<(), BackendError> {
        let strange = self.guard("read all records", || {
            for item in self.records.iter() {
                let (key, bytes) = item.into_inner()?;
                let Ok(key) = <[u8; 8]>::try_from(&*key) else { return Ok(true) };
                if !visit(Revision::from_be_bytes(key), &bytes) {
                    break;
                }
            }
            Ok(false)
        })?;
        if strange {
            return Err(BackendError::new(format!("a key that is no revision is stored in {}", self.place())));
        }
        Ok(())
    }

    fn apply(&self, batch: Batch) -> Result<(), BackendError> {
        let newest = batch.puts.last().map(|(revision, _)| *revision);
        self.guard("write", || {
            let changes = batch.puts.len() + batch.removes.len() + 1;
            let mode = if is(Mutation::S01) { PersistMode::Buffer } else { PersistMode::SyncData };
            let mut write = OwnedWriteBatch::with_capacity(self.database.clone(), changes).durability(Some(mode));
            for (revision, bytes) in batch.puts {
                write.insert(&self.records, revision.to_be_bytes(), bytes);
            }
            for revision in batch.removes {
                write.remove(&self.records, revision.to_be_bytes());
            }
            if let Some(bytes) = batch.checkpoint {
                write.insert(&self.checkpoint, CHECKPOINT_KEY, bytes);
            }
            write.commit()
        })?;
        if let Some(newest) = newest
            && let Err(error) = self.acknowledged.note(newest)
            && !self.note_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "cannot note the newest revision; a damaged log might go unnoticed");
        }
        Ok(())
    }

    fn read(&self, revision: Revision) -> Result<Option<Bytes>, BackendError> {
        self.guard("read a record", || Ok(self.records.get(revision.to_be_bytes())?.map(Bytes::from)))
    }

    fn acknowledged(&self) -> Option<Revision> {
        self.acknowledged.found()
    }
}

impl std::fmt::Debug for FjallBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FjallBackend").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    /// BI-122: the engine's files have the modes that the umask leaves them, whatever it is.
    #[test]
    fn the_engines_files_are_out_of_reach_of_others() {
        let parent = tempfile::tempdir().unwrap();
        let open = || FjallBackend::open(parent.path(), &FjallOptions::default()).unwrap().directory.engine();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let engine = open();
        assert_eq!(mode(&engine), 0o700);
        std::fs::set_permissions(&engine, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(mode(&open()), 0o700, "of an older version");
    }
}
