//! Whose time the writer runs on: a thread of its own, or the task that has something to write ([`Writing`]).
//!
//! Callers queue their work the same way whichever it is, and the writer takes it from the queue the same way; here is
//! only who wakes whom.

use crate::recovery::OpenError;
use crate::shared::Shared;
use crate::window::Window;
use crate::writer::Writer;
use crate::{SyncTime, Writing};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The writer at work. Dropping it lets the writer finish what is queued.
pub(crate) enum Running<A> {
    Thread(Option<JoinHandle<()>>),
    Inline(Inline<A>),
}

/// A writer without a thread.
pub(crate) struct Inline<A> {
    writer: Arc<Mutex<Writer<A>>>,
    slow: Option<Slow>,
}

/// Syncs that take their time.
struct Slow {
    time: SyncTime,
    /// Whether a sync is under way, which what is queued now may join.
    under_way: Arc<AtomicBool>,
}

impl<A: Send + Sync + 'static> Running<A> {
    pub(crate) fn start(shared: &Arc<Shared<A>>, window: Window, writing: Writing) -> Result<Self, OpenError> {
        let writer = Writer::new(shared.clone(), window);
        let slow = match writing {
            Writing::Thread => return Self::spawn(writer),
            Writing::Inline => None,
            Writing::InlineAfter(time) => Some(Slow { time, under_way: Arc::default() }),
        };
        Ok(Self::Inline(Inline { writer: Arc::new(Mutex::new(writer)), slow }))
    }

    fn spawn(writer: Writer<A>) -> Result<Self, OpenError> {
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| OpenError::Thread { source })?;
        Ok(Self::Thread(Some(thread)))
    }

    /// Sees to it that what was just queued is done. A thread has been woken by the queue already.
    pub(crate) fn queued(&self) {
        match self {
            Self::Thread(_) => {}
            Self::Inline(Inline { writer, slow: None }) => writer.lock().drain(),
            Self::Inline(Inline { writer, slow: Some(slow) }) => slow.drain_later(writer),
        }
    }
}

impl Slow {
    /// In a task of its own: the caller may be dropped while it waits, and what is queued takes effect nevertheless.
    fn drain_later<A: Send + Sync + 'static>(&self, writer: &Arc<Mutex<Writer<A>>>) {
        if self.under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        // Weak: a sync that is under way must not keep a store open that everybody has let go of.
        let (time, writer, under_way) = (self.time.next(), Arc::downgrade(writer), self.under_way.clone());
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            // Before the work: what is queued during it may come too late for it.
            under_way.store(false, Ordering::Release);
            if let Some(writer) = writer.upgrade() {
                writer.lock().drain();
            }
        });
    }
}

impl<A> Drop for Running<A> {
    fn drop(&mut self) {
        match self {
            // A panic was turned into a failed store already.
            Self::Thread(thread) => drop(thread.take().map(JoinHandle::join)),
            Self::Inline(inline) => inline.writer.lock().drain(),
        }
    }
}
