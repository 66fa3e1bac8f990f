//! The wake-up of a topic's watchers.
//!
//! Who waits and who is woken is kept in several lists, so that hundreds of watchers that are woken together do not all
//! queue up for one lock when they begin to wait again. Watchers get their list in turn and are woken list by list in the
//! order in which they began to wait: which of several is first must be repeatable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

const LISTS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Wake {
    lists: [Notify; LISTS],
    subscribed: AtomicUsize,
}

/// One watcher's place.
#[derive(Debug, Clone)]
pub(crate) struct Sleeper {
    wake: Arc<Wake>,
    list: usize,
}

impl Wake {
    pub(crate) fn subscribe(self: &Arc<Self>) -> Sleeper {
        let list = self.subscribed.fetch_add(1, Ordering::Relaxed) % LISTS;
        Sleeper { wake: self.clone(), list }
    }

    pub(crate) fn wake_all(&self) {
        self.lists.iter().for_each(Notify::notify_waiters);
    }
}

impl Sleeper {
    /// Ready after the next [`Wake::wake_all`] that follows this call, polled by then or not.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.wake.lists[self.list].notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn everyone_who_asked_before_is_woken_and_nobody_else() {
        let wake = Arc::new(Wake::default());
        let sleepers: Vec<Sleeper> = (0..3 * LISTS).map(|_| wake.subscribe()).collect();
        let mut waiting: Vec<_> = sleepers.iter().map(|sleeper| Box::pin(sleeper.woken())).collect();
        assert!(waiting.iter_mut().all(|woken| woken.as_mut().now_or_never().is_none()));
        wake.wake_all();
        assert!(waiting.iter_mut().all(|woken| woken.as_mut().now_or_never().is_some()));
        assert!(sleepers.iter().all(|sleeper| Box::pin(sleeper.woken()).now_or_never().is_none()));
    }
}
