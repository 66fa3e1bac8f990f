//! The work queue between watches and workers, with the semantics of client-go's (JC-104, JC-105).
//!
//! A key is in the queue at most once, is never handed to two workers at a time, and comes back if it was added while it
//! was worked on. Because keys are deduplicated, the queue is as bounded as the objects the keys stand for. A worker
//! that has done a slice of a large piece of work adds its key again before it lets go: the key goes to the end of the
//! queue, so others get their turn (INV-29).
//!
//! There is no timer task: whoever waits for work also waits for the earliest delayed key.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap, VecDeque},
    fmt,
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use teeth::{Mutation, is};
use tokio::{sync::Notify, time::Instant};

use super::{
    limiter::TokenBucket,
    metrics::Metrics,
    queue_metrics::{self, InFlight, QueueMetrics},
    supervise::Shutdown,
};

/// Delays of keys that are added again because their work failed.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// After the first failure; doubled by each further one.
    pub base: Duration,
    pub max: Duration,
    /// Retries of all keys together: per second, and how many at once.
    pub overall: Option<(f64, u32)>,
}

impl Default for RetryPolicy {
    /// client-go's `DefaultTypedControllerRateLimiter`.
    fn default() -> Self {
        Self { base: Duration::from_millis(5), max: Duration::from_secs(1000), overall: Some((10.0, 100)) }
    }
}

impl RetryPolicy {
    /// Per key only, as the Job controller has it (JC-105).
    pub const fn per_key(base: Duration, max: Duration) -> Self {
        Self { base, max, overall: None }
    }

    fn delay(&self, failures: u32) -> Duration {
        let factor = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
        self.base.checked_mul(factor).unwrap_or(self.max).min(self.max)
    }
}

/// A key that can be queued.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}
impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}

/// A deduplicating queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K: Key> {
    shared: Arc<Shared<K>>,
}

/// A key in the hands of a worker. The key is free again when this is dropped.
pub struct Work<K: Key> {
    queue: WorkQueue<K>,
    key: K,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Wakes one waiting worker; a permit is kept if none waits.
    wake: Notify,
    drained: Notify,
    retry: RetryPolicy,
    overall: Option<TokenBucket>,
    metrics: QueueMetrics,
}

struct State<K> {
    ready: VecDeque<(K, Instant)>,
    keys: HashMap<K, Stage>,
    delayed: Delayed<K>,
    failures: HashMap<K, u32>,
    working: usize,
    closed: bool,
}

/// Where a key is, apart from being delayed.
#[derive(Clone, Copy)]
enum Stage {
    Queued,
    Working { since: Instant, again: bool },
}

impl<K: Key> WorkQueue<K> {
    /// `name` is the metrics' label.
    pub fn new(name: &'static str, retry: RetryPolicy, metrics: &Metrics) -> Self {
        let state = State {
            ready: VecDeque::new(),
            keys: HashMap::new(),
            delayed: Delayed::default(),
            failures: HashMap::new(),
            working: 0,
            closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Notify::new(),
            drained: Notify::new(),
            retry,
            overall: retry.overall.map(|(per_second, burst)| TokenBucket::new(per_second, burst)),
            metrics: QueueMetrics::new(metrics, name),
        });
        let observed: Weak<Shared<K>> = Arc::downgrade(&shared);
        queue_metrics::observe(metrics, name, observed);
        Self { shared }
    }

    /// Adds a key now. A pending delayed add of the same key stays (JC-104).
    pub fn add(&self, key: K) {
        let mut state = self.shared.state.lock();
        self.shared.enqueue(&mut state, key, Instant::now());
    }

    /// Adds a key after a delay. Of several delayed adds of one key the earliest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        let now = Instant::now();
        // Delays come from user-given numbers; one that no clock can express is as good as never.
        let due = now.checked_add(delay).unwrap_or_else(|| now + NEVER);
        if state.delayed.insert(key, due) {
            self.shared.wake.notify_one();
        }
    }

    /// Adds a key after the delay its failures have earned, and counts one more.
    pub fn add_rate_limited(&self, key: K) {
        self.shared.metrics.retries.inc();
        let delay = {
            let mut state = self.shared.state.lock();
            let failures = state.failures.entry(key.clone()).or_insert(0);
            let delay = self.shared.retry.delay(if is(Mutation::C25) { 0 } else { *failures });
            *failures = failures.saturating_add(1);
            delay
        };
        let overall = self.shared.overall.as_ref().map_or(Duration::ZERO, TokenBucket::reserve);
        self.add_after(key, delay.max(overall));
    }

    /// Whatever waits for another attempt after a failure is ready now. Its failures are not forgotten.
    pub fn retry_now(&self) {
        let mut state = self.shared.state.lock();
        let State { failures, delayed, .. } = &mut *state;
        let now = Instant::now();
        let waiting: Vec<K> = failures.keys().filter(|key| delayed.due.contains_key(*key)).cloned().collect();
        for key in waiting {
            delayed.insert(key, now);
        }
        self.shared.wake.notify_one();
    }

    /// Work on the key succeeded: its next failure is a first one.
    pub fn forget(&self, key: &K) {
        self.shared.state.lock().failures.remove(key);
    }

    /// The object of the key is gone: nothing of the key is remembered, and it is not worked on again unless it is
    /// ready or in work already.
    pub fn discard(&self, key: &K) {
        let mut state = self.shared.state.lock();
        state.failures.remove(key);
        state.delayed.remove(key);
    }

    /// How many failures of a key are remembered.
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// The next key to work on; `None` once the queue is closed. Cancelling it loses nothing.
    pub async fn next(&self) -> Option<Work<K>> {
        loop {
            let woken = self.shared.wake.notified();
            let due = {
                let mut state = self.shared.state.lock();
                if state.closed {
                    // Pass the news on to the next waiter.
                    self.shared.wake.notify_one();
                    return None;
                }
                if let Some(key) = self.shared.take(&mut state) {
                    return Some(Work { queue: self.clone(), key });
                }
                state.delayed.next_due()
            };
            match due {
                None => woken.await,
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, woken).await;
                }
            }
        }
    }

    /// A worker's life: takes keys until shutdown, or until the queue is closed. What fails comes back later (JC-105); so
    /// does what panics, and nothing else suffers from it (INV-32). Work that has begun is finished.
    pub async fn work<W, E>(self, shutdown: Shutdown, act: impl Fn(K) -> W)
    where
        W: Future<Output = Result<(), E>>,
    {
        loop {
            let work = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                work = self.next() => work,
            };
            let Some(work) = work else { return };
            let key = work.key().clone();
            // What the work has left behind is memory, which may be wrong at any time as far as the next one knows.
            match AssertUnwindSafe(async { act(key).await }).catch_unwind().await {
                Ok(outcome) => work.finish(&outcome),
                Err(_) => {
                    tracing::error!("work has panicked; it is tried again later");
                    work.finish(&Err::<(), ()>(()));
                }
            }
        }
    }

    /// Closes the queue: adds are ignored from now on, waiting workers end, keys that nobody works on are dropped.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.ready.clear();
        state.delayed = Delayed::default();
        self.shared.metrics.depth.set(0);
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
        if state.working == 0 {
            self.shared.drained.notify_waiters();
        }
    }

    /// Ready when a closed queue has no key in work any more.
    pub async fn drained(&self) {
        loop {
            let done = self.shared.drained.notified();
            {
                let state = self.shared.state.lock();
                if state.closed && state.working == 0 {
                    return;
                }
            }
            done.await;
        }
    }

    /// Keys that are ready, without delayed ones and without those in work.
    pub fn len(&self) -> usize {
        self.shared.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much is kept of keys, whatever for (REG-A14).
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        let State { ready, keys, delayed, failures, working, closed: _ } = &*self.shared.state.lock();
        ready.len() + keys.len() + delayed.due.len() + delayed.heap.len() + failures.len() + working
    }

    /// Whether nothing is ready, delayed or in work.
    pub fn is_idle(&self) -> bool {
        let state = self.shared.state.lock();
        state.ready.is_empty() && state.working == 0 && state.delayed.is_empty()
    }
}

impl<K: Key> Work<K> {
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Ends the work: its failures are forgotten, or it is tried again later.
    pub fn finish<E>(self, outcome: &Result<(), E>) {
        match outcome {
            Ok(()) if is(Mutation::F25) => {}
            Ok(()) => self.queue.forget(&self.key),
            Err(_) => self.queue.add_rate_limited(self.key.clone()),
        }
    }
}

impl<K: Key> Drop for Work<K> {
    fn drop(&mut self) {
        let shared = &self.queue.shared;
        let mut state = shared.state.lock();
        state.working -= 1;
        if let Some(Stage::Working { since, again }) = state.keys.remove(&self.key) {
            shared.metrics.work_duration.observe(since.elapsed().as_secs_f64());
            if again && !state.closed {
                shared.push(&mut state, self.key.clone(), Instant::now());
            }
        }
        if state.closed && state.working == 0 {
            shared.drained.notify_waiters();
        }
    }
}

impl<K: Key> Shared<K> {
    fn enqueue(&self, state: &mut State<K>, key: K, since: Instant) {
        if state.closed {
            return;
        }
        match state.keys.get_mut(&key) {
            Some(Stage::Queued) => {}
            Some(Stage::Working { again, .. }) => {
                if !*again {
                    self.metrics.adds.inc();
                }
                *again = true;
            }
            None => {
                self.metrics.adds.inc();
                self.push(state, key, since);
            }
        }
    }

    fn push(&self, state: &mut State<K>, key: K, since: Instant) {
        state.keys.insert(key.clone(), Stage::Queued);
        state.ready.push_back((key, since));
        self.metrics.depth.inc();
        self.wake.notify_one();
    }

    fn take(&self, state: &mut State<K>) -> Option<K> {
        let now = Instant::now();
        while let Some((key, due)) = state.delayed.pop_due(now) {
            self.enqueue(state, key, due);
        }
        let (key, since) = state.ready.pop_front()?;
        self.metrics.depth.dec();
        self.metrics.queue_duration.observe(now.saturating_duration_since(since).as_secs_f64());
        state.keys.insert(key.clone(), Stage::Working { since: now, again: false });
        state.working += 1;
        // Whoever takes a key leaves somebody awake: for the other ready keys, or to wait for the next delayed one.
        if !state.ready.is_empty() || !state.delayed.is_empty() {
            self.wake.notify_one();
        }
        Some(key)
    }
}

impl<K: Key> InFlight for Shared<K> {
    fn running(&self) -> Vec<Duration> {
        let state = self.state.lock();
        let since = |stage: &Stage| match stage {
            Stage::Working { since, .. } => Some(since.elapsed()),
            Stage::Queued => None,
        };
        state.keys.values().filter_map(since).collect()
    }
}

/// About as far as tokio's clock goes: 30 years.
const NEVER: Duration = Duration::from_secs(86400 * 365 * 30);

/// Delayed keys, earliest first.
///
/// An add that shortens a wait leaves its longer entry in the heap, to be skipped when it comes up; the map says which
/// entry counts. The heap is rebuilt before such leftovers outnumber the keys.
struct Delayed<K> {
    due: HashMap<K, Instant>,
    heap: BinaryHeap<Reverse<Entry<K>>>,
}

struct Entry<K> {
    due: Instant,
    key: K,
}

impl<K: Key> Delayed<K> {
    /// Whether the key is now the earliest.
    fn insert(&mut self, key: K, due: Instant) -> bool {
        if self.due.get(&key).is_some_and(|earlier| *earlier <= due) {
            return false;
        }
        let earliest = self.next_due().is_none_or(|earliest| due < earliest);
        self.due.insert(key.clone(), due);
        self.heap.push(Reverse(Entry { due, key }));
        self.bound_leftovers();
        earliest
    }

    fn remove(&mut self, key: &K) {
        if self.due.remove(key).is_some() {
            self.bound_leftovers();
        }
    }

    fn bound_leftovers(&mut self) {
        if self.due.is_empty() {
            self.heap.clear();
        }
        if self.heap.len() > 2 * self.due.len() + 64 {
            let entries = self.due.iter().map(|(key, due)| Reverse(Entry { due: *due, key: key.clone() }));
            self.heap = entries.collect();
        }
    }

    fn pop_due(&mut self, now: Instant) -> Option<(K, Instant)> {
        while self.heap.peek().is_some_and(|Reverse(entry)| entry.due <= now) {
            let Reverse(entry) = self.heap.pop()?;
            if self.due.get(&entry.key) == Some(&entry.due) {
                self.due.remove(&entry.key);
                return Some((entry.key, entry.due));
            }
        }
        None
    }

    /// May be earlier than the earliest key that counts; whoever wakes up for nothing looks again.
    fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

impl<K> Default for Delayed<K> {
    fn default() -> Self {
        Self { due: HashMap::new(), heap: BinaryHeap::new() }
    }
}

impl<K> Ord for Entry<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.cmp(&other.due)
    }
}

impl<K> PartialOrd for Entry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<K> Eq for Entry<K> {}

impl<K: Key> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Key> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("ready", &self.len()).finish_non_exhaustive()
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.key).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::metrics::Exposition;

    fn queue() -> WorkQueue<u32> {
        WorkQueue::new("test", RetryPolicy::per_key(Duration::from_secs(1), Duration::from_secs(60)), &Metrics::new())
    }

    async fn next(queue: &WorkQueue<u32>) -> Work<u32> {
        queue.next().await.expect("the queue is open")
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_queued_once_and_in_order() {
        let queue = queue();
        for key in [3, 1, 3, 2, 1] {
            queue.add(key);
        }
        let mut order = Vec::new();
        for _ in 0..3 {
            order.push(*next(&queue).await.key());
        }
        assert_eq!(order, [3, 1, 2]);
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_worked_on_comes_back_after_the_others() {
        let queue = queue();
        queue.add(1);
        let work = next(&queue).await;
        queue.add(1);
        queue.add(2);
        assert_eq!(*next(&queue).await.key(), 2);
        assert!(queue.is_empty(), "nobody else may get the key while it is worked on");
        drop(work);
        assert_eq!(*next(&queue).await.key(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_adds_only_ever_shorten_the_wait() {
        let queue = queue();
        let started = Instant::now();
        queue.add_after(1, Duration::from_secs(30));
        queue.add_after(1, Duration::from_secs(10));
        queue.add_after(1, Duration::from_secs(20));
        drop(next(&queue).await);
        assert_eq!(started.elapsed().as_secs(), 10);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err(), "longer waits are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn an_immediate_add_does_not_cancel_a_delayed_one() {
        let queue = queue();
        queue.add_after(1, Duration::from_secs(10));
        queue.add(1);
        drop(next(&queue).await);
        let started = Instant::now();
        drop(next(&queue).await);
        assert_eq!(started.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn several_workers_get_keys_that_become_due_together() {
        let queue = queue();
        let both = async { tokio::join!(next(&queue), next(&queue)) };
        let add = async {
            tokio::task::yield_now().await;
            queue.add_after(1, Duration::from_secs(5));
            queue.add_after(2, Duration::from_secs(5));
        };
        let started = Instant::now();
        let ((first, second), ()) = tokio::join!(both, add);
        assert_eq!(first.key() + second.key(), 3);
        assert_eq!(started.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_up_to_the_maximum() {
        let queue = queue();
        let mut delays = Vec::new();
        for _ in 0..8 {
            let started = Instant::now();
            queue.add_rate_limited(1);
            drop(next(&queue).await);
            delays.push(started.elapsed().as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(queue.failures(&1), 8);
        queue.forget(&1);
        assert_eq!(queue.failures(&1), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn finished_work_is_forgotten_or_retried() {
        let queue = queue();
        queue.add(1);
        next(&queue).await.finish(&Err("no"));
        assert_eq!(queue.failures(&1), 1);
        next(&queue).await.finish(&Ok::<(), ()>(()));
        assert_eq!(queue.failures(&1), 0);
        assert!(queue.is_idle());
    }

    /// REG-C25.
    #[tokio::test(start_paused = true)]
    async fn what_failed_can_be_tried_again_at_once() {
        let queue = queue();
        queue.add(1);
        queue.add(2);
        for _ in 0..2 {
            next(&queue).await.finish(&Err("no"));
        }
        queue.add_after(3, Duration::from_secs(60));
        let began = Instant::now();
        queue.retry_now();
        let mut again = [*next(&queue).await.key(), *next(&queue).await.key()];
        again.sort();
        assert_eq!((again, began.elapsed()), ([1, 2], Duration::ZERO));
        assert_eq!(queue.failures(&1), 1, "the next failure is a second one");
        assert_eq!(*next(&queue).await.key(), 3);
        assert_eq!(began.elapsed(), Duration::from_secs(60), "what had not failed waits");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_tried_again_and_harms_no_other() {
        let queue = queue();
        let shutdown = Shutdown::new();
        let attempts = Arc::new(Mutex::new(Vec::new()));
        queue.add(1);
        queue.add(2);
        let (noted, stop) = (attempts.clone(), shutdown.clone());
        let act = move |key| {
            let (noted, stop) = (noted.clone(), stop.clone());
            async move {
                noted.lock().push(key);
                match noted.lock().len() {
                    1 => panic!("the first attempt"),
                    3 => stop.cancel(),
                    _ => {}
                }
                Ok::<(), ()>(())
            }
        };
        queue.clone().work(shutdown, act).await;
        assert_eq!(*attempts.lock(), [1, 2, 1]);
        assert!(queue.is_idle() && queue.failures(&1) == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_goes_on_until_shutdown_and_retries_what_failed() {
        let queue = queue();
        let shutdown = Shutdown::new();
        let attempts = Arc::new(Mutex::new(Vec::new()));
        queue.add(1);
        queue.add(2);
        let (noted, stop) = (attempts.clone(), shutdown.clone());
        let act = move |key| {
            noted.lock().push(key);
            let done = noted.lock().len() == 3;
            if done {
                stop.cancel();
            }
            async move { if key == 1 && !done { Err("first time") } else { Ok(()) } }
        };
        queue.clone().work(shutdown, act).await;
        assert_eq!(*attempts.lock(), [1, 2, 1]);
        assert!(queue.is_idle() && queue.failures(&1) == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_all_keys_share_a_bucket() {
        let retry = RetryPolicy { overall: Some((1.0, 2)), ..RetryPolicy::default() };
        let queue = WorkQueue::new("test", retry, &Metrics::new());
        let started = Instant::now();
        for key in 0..4 {
            queue.add_rate_limited(key);
        }
        for _ in 0..4 {
            drop(next(&queue).await);
        }
        assert_eq!(started.elapsed().as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_every_worker_and_waits_for_work_in_progress() {
        let queue = queue();
        queue.add(1);
        let work = next(&queue).await;
        let workers = async { tokio::join!(queue.next(), queue.next(), queue.next()) };
        let close = async {
            tokio::task::yield_now().await;
            queue.add(1);
            queue.add_after(5, Duration::from_secs(1));
            queue.close();
            queue.add(9);
        };
        let ((a, b, c), ()) = tokio::join!(workers, close);
        assert!(a.is_none() && b.is_none() && c.is_none());
        assert!(tokio::time::timeout(Duration::from_secs(1), queue.drained()).await.is_err());
        drop(work);
        queue.drained().await;
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn delays_that_no_clock_can_hold_are_no_panic() {
        let queue = queue();
        queue.add_after(1, Duration::MAX);
        queue.add_after(1, Duration::from_secs(1));
        assert_eq!(*next(&queue).await.key(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn leftovers_of_shortened_waits_are_bounded() {
        let queue = queue();
        for seconds in (1..10_000).rev() {
            queue.add_after(1, Duration::from_secs(seconds));
        }
        assert!(queue.shared.state.lock().delayed.heap.len() <= 66);
        drop(next(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_a_discarded_key() {
        let queue = queue();
        for key in 0..1000 {
            queue.add_rate_limited(key);
            queue.add_after(key, Duration::from_secs(1));
        }
        (0..1000).for_each(|key| queue.discard(&key));
        assert!(queue.is_idle() && queue.failures(&7) == 0);
        assert!(queue.shared.state.lock().delayed.heap.len() <= 64);
        assert!(tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_those_of_client_go() {
        let metrics = Metrics::new();
        let queue = WorkQueue::new("job", RetryPolicy::default(), &metrics);
        queue.add(1);
        queue.add(2);
        let work = next(&queue).await;
        tokio::time::advance(Duration::from_secs(3)).await;
        let text = metrics.encode(Exposition::Prometheus);
        for line in [
            "workqueue_depth{name=\"job\"} 1",
            "workqueue_adds_total{name=\"job\"} 2",
            "workqueue_queue_duration_seconds_count{name=\"job\"} 1",
            "workqueue_retries_total{name=\"job\"} 0",
            "workqueue_unfinished_work_seconds{name=\"job\"} 3.0",
            "workqueue_longest_running_processor_seconds{name=\"job\"} 3.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
        drop(work);
        assert!(
            metrics.encode(Exposition::Prometheus).contains("workqueue_work_duration_seconds_count{name=\"job\"} 1")
        );
    }
}
