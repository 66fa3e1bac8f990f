//! The ends of containers, told to whoever keeps them after their pods are gone.
//!
//! The node tells a [`HistorySink`] of every ended run before it tells the API: once the API knows, the pod may be deleted
//! at any moment, and its logs with it. What is kept and for how long is the sink's business.

use std::fmt;

use jiff::Timestamp;

use crate::logs::LogTail;

/// Keeps the ends of containers.
pub trait HistorySink: fmt::Debug + Send + Sync {
    /// Takes a run that has ended, without waiting for anything. `kept` is dropped once the run survives the end of this
    /// process, or if it cannot be kept; until then nobody else learns of the end, and the log stays.
    fn ended(&self, run: EndedRun, kept: Kept);
}

/// One ended run of a container; or a pod that ended without any.
#[derive(Clone, Debug)]
pub struct EndedRun {
    pub namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    pub node_name: String,
    pub job: Option<JobRef>,
    /// The completion index.
    pub index: Option<u32>,
    /// `None` if no container ran.
    pub container: Option<String>,
    /// Counted from 0: the API's restartCount.
    pub attempt: u32,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Of the container, as in its status.
    pub reason: String,
    pub message: Option<String>,
    /// Why the pod as a whole was stopped, if it was.
    pub pod_reason: Option<String>,
    pub log: Option<LogTail>,
}

/// The Job that controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRef {
    pub name: String,
    pub uid: String,
}

/// Says, when it is dropped, that a run is kept.
pub struct Kept(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Kept {
    pub(crate) fn new(tell: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Nobody waits.
    pub(crate) fn unheard() -> Self {
        Self(None)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}
