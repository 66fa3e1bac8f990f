//! What can be chosen when a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits of a store. The defaults suit one machine with up to some 100,000 objects.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub history: History,
    pub recent: Recent,
    pub clock: Clock,
    pub writing: Writing,
}

/// Who makes commits durable. The work is the same either way; only where it is done differs.
#[derive(Clone, Debug, Default)]
pub enum Writing {
    /// A thread of its own, so that no caller's task ever waits for a disk.
    #[default]
    Thread,
    /// The task that commits, before its commit returns. There is no thread and reads from disk are done in place, so
    /// that on one thread the same calls give the same bytes: for simulations and for tests that must repeat.
    /// History is cut by age only when something is written.
    Inline,
    /// As `Inline`, but a commit is made durable by a task that first waits for as long as this says, as for a slow
    /// sync; what is committed meanwhile shares it. Needs a runtime with a clock.
    InlineAfter(SyncTime),
}

/// How long the next sync takes.
#[derive(Clone)]
pub struct SyncTime(Arc<dyn Fn() -> Duration + Send + Sync>);

impl SyncTime {
    pub fn new(next: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    pub(crate) fn next(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for SyncTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SyncTime")
    }
}

/// How long superseded versions and deletions stay readable. Whichever limit is reached first cuts.
#[derive(Clone, Debug)]
pub struct History {
    /// 10 minutes by default: clients resume a watch after up to 5 (AS-107).
    pub age_max: Duration,
    /// 250,000 changes by default: about 0.5 GB on disk and 15 MB of memory at 2 KB an object, and start-up reads it
    /// in about a second. A watcher that falls further behind is cheaper to answer with 410 and a fresh list.
    pub events_max: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { age_max: Duration::from_secs(600), events_max: 250_000 }
    }
}

/// How many recent events stay in memory; older ones inside the history are read from disk.
#[derive(Clone, Debug)]
pub struct Recent {
    /// 32 MiB by default, over all topics; values and their frames count.
    pub bytes_max: usize,
    /// 50,000 by default, over all topics.
    pub events_max: usize,
}

impl Default for Recent {
    fn default() -> Self {
        Self { bytes_max: 32 << 20, events_max: 50_000 }
    }
}

/// Time since some fixed moment, never going back. Tests put their own in.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}
