//! The bounded queue between callers and the writer.
//!
//! Bounded by count and by bytes at once: a transaction takes one slot plus one per started 16 KiB, and holds them
//! until it is answered. Callers without a slot wait; nobody is refused for load.

use crate::{CommitError, Committed, Revision, Transaction};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// All slots: at most 4,096 transactions or about 64 MiB are under way.
const SLOTS: usize = 4096;
const SLOT_BYTES: usize = 16 << 10;
/// Most transactions that share one sync. More would make the first wait for the last without saving much.
const BATCH_TRANSACTIONS_MAX: usize = 1024;
/// How long a sync waits for writers that are expected to join it. Much less than most disks take for a sync.
const GATHER_MAX: Duration = Duration::from_micros(300);
/// Most bytes that share one sync.
const BATCH_BYTES_MAX: usize = 8 << 20;

pub(crate) struct Queue<A> {
    slots: Arc<Semaphore>,
    waiting: Mutex<Waiting<A>>,
    arrived: Condvar,
}

struct Waiting<A> {
    commits: VecDeque<Commit<A>>,
    compactions: VecDeque<Compact>,
    closed: bool,
    /// With how many transactions the writer wants to be woken.
    wanted: usize,
}

/// A transaction and who asked for it.
pub(crate) struct Commit<A> {
    pub(crate) transaction: Transaction,
    pub(crate) answer: oneshot::Sender<Result<Committed<A>, CommitError<A>>>,
    /// Given back when the transaction is answered and dropped.
    _slots: OwnedSemaphorePermit,
}

/// A demand to compact, and who asked for it.
pub(crate) struct Compact {
    pub(crate) revision: Revision,
    pub(crate) answer: oneshot::Sender<Revision>,
}

/// What the writer is to do next.
pub(crate) enum Work<A> {
    Commit(Vec<Commit<A>>),
    Compact(Compact),
    /// Nothing came in time.
    Idle,
    Closed,
}

pub(crate) struct Closed;

impl<A> Queue<A> {
    pub(crate) fn new() -> Self {
        let waiting = Waiting { commits: VecDeque::new(), compactions: VecDeque::new(), closed: false, wanted: 1 };
        Self { slots: Arc::new(Semaphore::new(SLOTS)), waiting: Mutex::new(waiting), arrived: Condvar::new() }
    }

    /// Queues a transaction; the receiver gets its answer. Once this returned, the transaction takes effect whether
    /// or not anybody still waits.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
    ) -> Result<oneshot::Receiver<Result<Committed<A>, CommitError<A>>>, Closed> {
        let slots = self.slots.clone().acquire_many_owned(slots_of(&transaction)).await.map_err(|_| Closed)?;
        let (answer, answered) = oneshot::channel();
        let commit = Commit { transaction, answer, _slots: slots };
        self.push(|waiting| waiting.commits.push_back(commit)).map(|()| answered)
    }

    /// Queues a compaction. For tests and tools; not bounded, as nothing calls it by itself.
    pub(crate) fn compact(&self, revision: Revision) -> Result<oneshot::Receiver<Revision>, Closed> {
        let (answer, answered) = oneshot::channel();
        self.push(|waiting| waiting.compactions.push_back(Compact { revision, answer })).map(|()| answered)
    }

    /// How many transactions wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().commits.len()
    }

    /// Waits a moment for as many transactions as were under way a moment ago. Callers who were answered together mostly
    /// come back together: without this the first of them would have a sync of its own, and so would the next.
    pub(crate) fn gather(&self, expected: usize) {
        let expected = expected.min(BATCH_TRANSACTIONS_MAX);
        let deadline = Instant::now() + GATHER_MAX;
        let mut waiting = self.waiting.lock();
        waiting.wanted = expected;
        while waiting.commits.len() < expected && waiting.compactions.is_empty() && !waiting.closed {
            if self.arrived.wait_until(&mut waiting, deadline).timed_out() {
                break;
            }
        }
        waiting.wanted = 1;
    }

    /// Waits for work, at most for `patience`. What was queued before closing is still handed out.
    pub(crate) fn take(&self, patience: Option<Duration>) -> Work<A> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() && !waiting.closed {
            match patience {
                Some(patience) => drop(self.arrived.wait_for(&mut waiting, patience)),
                None => self.arrived.wait(&mut waiting),
            }
        }
        if let Some(compact) = waiting.compactions.pop_front() {
            return Work::Compact(compact);
        }
        match (waiting.commits.is_empty(), waiting.closed) {
            (false, _) => Work::Commit(waiting.batch()),
            (true, true) => Work::Closed,
            (true, false) => Work::Idle,
        }
    }

    /// Refuses everything from now on. With `discard`, also what is queued: those callers find their answer gone.
    pub(crate) fn close(&self, discard: bool) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        if discard {
            waiting.commits.clear();
            waiting.compactions.clear();
        }
        drop(waiting);
        self.slots.close();
        self.arrived.notify_one();
    }

    fn push(&self, add: impl FnOnce(&mut Waiting<A>)) -> Result<(), Closed> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err(Closed);
        }
        add(&mut waiting);
        let is_awaited = waiting.commits.len() >= waiting.wanted || !waiting.compactions.is_empty();
        drop(waiting);
        if is_awaited {
            self.arrived.notify_one();
        }
        Ok(())
    }
}

impl<A> Waiting<A> {
    fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.compactions.is_empty()
    }

    /// Takes from the front as much as may share a sync, and at least one.
    fn batch(&mut self) -> Vec<Commit<A>> {
        let mut bytes = 0;
        let fitting = self.commits.iter().take(BATCH_TRANSACTIONS_MAX).take_while(|commit| {
            let fits = bytes < BATCH_BYTES_MAX;
            bytes += commit.transaction.bytes();
            fits
        });
        let count = fitting.count();
        self.commits.drain(..count).collect()
    }
}

fn slots_of(transaction: &Transaction) -> u32 {
    u32::try_from((1 + transaction.bytes() / SLOT_BYTES).min(SLOTS)).expect("at most SLOTS")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;
    use futures_util::FutureExt;

    fn of_bytes(bytes: usize) -> Transaction {
        Transaction::new().put("t/k", Value::plain(vec![0; bytes]))
    }

    /// Queues until a caller would have to wait; returns how many went in.
    fn fill(queue: &Queue<()>, bytes: usize) -> usize {
        (0..).take_while(|_| queue.commit(of_bytes(bytes)).now_or_never().is_some()).count()
    }

    fn taken(queue: &Queue<()>) -> usize {
        match queue.take(Some(Duration::ZERO)) {
            Work::Commit(commits) => commits.len(),
            Work::Compact(_) | Work::Idle | Work::Closed => 0,
        }
    }

    #[test]
    fn callers_wait_when_the_queue_is_full_by_count_or_by_bytes() {
        assert_eq!(fill(&Queue::new(), 10), SLOTS);
        assert_eq!(fill(&Queue::new(), 1 << 20), SLOTS / 65);
        assert_eq!(fill(&Queue::new(), SLOTS * SLOT_BYTES * 2), 1, "the largest still gets its turn");
    }

    #[test]
    fn a_batch_is_bounded_by_count_and_by_bytes() {
        let queue = Queue::new();
        fill(&queue, 10);
        assert_eq!(taken(&queue), BATCH_TRANSACTIONS_MAX);
        let queue = Queue::new();
        fill(&queue, BATCH_BYTES_MAX / 2);
        assert_eq!(taken(&queue), 2);
    }

    #[test]
    fn a_sync_waits_for_those_who_are_expected_but_not_for_long() {
        let queue: Arc<Queue<()>> = Arc::new(Queue::new());
        queue.gather(1);
        let writer = std::thread::spawn({
            let queue = queue.clone();
            move || {
                while queue.len() < 3 {
                    queue.gather(3);
                }
            }
        });
        let answers: Vec<_> = (0..3).map(|_| queue.commit(of_bytes(1)).now_or_never().unwrap()).collect();
        writer.join().unwrap();
        assert_eq!((taken(&queue), answers.len()), (3, 3));
    }

    #[test]
    fn answered_transactions_make_room() {
        let queue = Queue::new();
        fill(&queue, 10);
        assert_eq!(taken(&queue), BATCH_TRANSACTIONS_MAX);
        assert_eq!(fill(&queue, 10), BATCH_TRANSACTIONS_MAX);
    }

    #[test]
    fn a_closed_queue_refuses_and_still_hands_out_what_it_has() {
        let queue: Queue<()> = Queue::new();
        let _answered = queue.commit(of_bytes(1)).now_or_never().unwrap();
        queue.close(false);
        assert!(queue.commit(of_bytes(1)).now_or_never().unwrap().is_err());
        assert!(queue.compact(1).is_err());
        assert_eq!(taken(&queue), 1);
        assert!(matches!(queue.take(None), Work::Closed));
    }
}
