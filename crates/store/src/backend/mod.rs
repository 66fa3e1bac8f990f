//! Where records are kept: the contract of a backend, and its errors.
//!
//! A backend knows revisions and bytes. It must make a batch durable as a whole before `apply` returns, and must not
//! return bytes other than those it was given; everything above (what a record means, what is current, what may be
//! removed) is not its concern.

mod acknowledged;
mod directory;
mod fjall;
mod journal;
mod memory;

pub use self::directory::DirectoryError;
pub use self::fjall::{FjallBackend, FjallOptions};
pub use self::memory::MemoryBackend;

use crate::Revision;
use bytes::Bytes;
use std::error::Error;
use std::path::PathBuf;
use thiserror::Error;

/// Durable storage of records by revision, and of one checkpoint.
pub trait Backend: Send + Sync + 'static {
    /// Where the records are, for error messages.
    fn place(&self) -> String;

    /// The checkpoint of the last batch that had one.
    fn checkpoint(&self) -> Result<Option<Bytes>, BackendError>;

    /// Shows every record in ascending order of revision, until `visit` returns false.
    fn scan(&self, visit: &mut dyn FnMut(Revision, &[u8]) -> bool) -> Result<(), BackendError>;

    /// Applies a batch, durably and as a whole. After an error the caller writes no more.
    fn apply(&self, batch: Batch) -> Result<(), BackendError>;

    /// One record; `None` if it was never written or was removed.
    fn read(&self, revision: Revision) -> Result<Option<Bytes>, BackendError>;

    /// The newest revision that a previous process is known to have made durable, if the backend can tell apart from
    /// the records themselves.
    fn acknowledged(&self) -> Option<Revision> {
        None
    }
}

/// Changes that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New records, ascending by revision; none of them was ever written before.
    pub puts: Vec<(Revision, Bytes)>,
    pub removes: Vec<Revision>,
    pub checkpoint: Option<Bytes>,
}

/// Why a backend could not do what was asked.
#[derive(Debug, Error)]
pub enum BackendError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("{attempt} in `{}`", path.display())]
    Engine { attempt: &'static str, path: PathBuf, source: Box<dyn Error + Send + Sync> },
    /// Damaged files can make the engine panic.
    #[error("{attempt} in `{}`: the storage engine gave up: {message}", path.display())]
    EnginePanic { attempt: &'static str, path: PathBuf, message: String },
    /// More than the end of a journal is damaged. Nothing was changed: what follows may still be worth saving.
    #[error("the journal `{}` is damaged at byte {offset}, and intact after it", path.display())]
    Journal { path: PathBuf, offset: u64 },
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl BackendError {
    /// An error of a backend made elsewhere.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// The error with its causes, on one line.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
