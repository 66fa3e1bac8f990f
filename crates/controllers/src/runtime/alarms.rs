//! Wake-ups at moments of the wall clock.
//!
//! A work queue delays by duration, on a clock that nobody can set and that stands still while a laptop sleeps. What
//! expires or is scheduled at a date wants to be looked at when the wall clock shows that date, whatever happened to the
//! clock in between (INV-34). So the earliest alarm is slept for, and the clock is looked at again now and then in case
//! it was set. Without alarms nothing wakes up at all.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{environment::Environment, supervise::Shutdown};

/// How long a clock that was set, or a machine that was suspended, may go unnoticed.
pub const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// Alarms by key, one each. Cheap to clone; all clones are the same alarms.
pub struct Alarms<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    environment: Environment,
    clock_check: Duration,
}

struct State<K> {
    at: HashMap<K, Timestamp>,
    order: BTreeSet<(Timestamp, K)>,
}

impl<K: Clone + Ord + Hash> Alarms<K> {
    pub fn new(environment: Environment, clock_check: Duration) -> Self {
        let state = Mutex::new(State { at: HashMap::new(), order: BTreeSet::new() });
        Self { shared: Arc::new(Shared { state, changed: Notify::new(), environment, clock_check }) }
    }

    /// Sets the alarm of a key. Of several the earliest counts: who sets a later one may not have heard the latest news,
    /// and one that rings for nothing does no harm.
    pub fn set(&self, key: K, at: Timestamp) {
        let mut state = self.shared.state.lock();
        match state.at.get(&key).copied() {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                state.order.remove(&(later, key.clone()));
            }
            None => {}
        }
        let first = state.order.first().is_none_or(|(earliest, _)| at < *earliest);
        state.at.insert(key.clone(), at);
        state.order.insert((at, key));
        if first {
            self.shared.changed.notify_one();
        }
    }

    /// The object of the key is gone.
    pub fn cancel(&self, key: &K) {
        let mut state = self.shared.state.lock();
        if let Some(at) = state.at.remove(key) {
            state.order.remove(&(at, key.clone()));
        }
    }

    /// When the next alarm rings.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.shared.state.lock().order.first().map(|(at, _)| *at)
    }

    pub fn len(&self) -> usize {
        self.shared.state.lock().at.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rings until shutdown. An alarm that has rung is gone.
    pub async fn run(self, shutdown: Shutdown, ring: impl Fn(K)) {
        loop {
            let changed = self.shared.changed.notified();
            let wait = self.ring_due(&ring);
            let sleep = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait.min(self.shared.clock_check)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = changed => {}
                () = sleep => {}
            }
        }
    }

    /// Rings what is due; the answer is how long it is to the next.
    fn ring_due(&self, ring: &impl Fn(K)) -> Option<Duration> {
        let now = self.shared.environment.now();
        loop {
            let key = {
                let mut state = self.shared.state.lock();
                let (at, _) = state.order.first()?;
                if let Ok(wait) = Duration::try_from(at.duration_since(now))
                    && !wait.is_zero()
                {
                    return Some(wait);
                }
                let (_, key) = state.order.pop_first()?;
                state.at.remove(&key);
                key
            };
            ring(key);
        }
    }
}

impl<K> Clone for Alarms<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K> fmt::Debug for Alarms<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarms").field("len", &self.shared.state.lock().at.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use jiff::SignedDuration;
    use tokio::time::Instant;

    use super::*;

    const START: Timestamp = Timestamp::constant(1_463_652_000, 0);

    /// A wall clock that goes with tokio's and can be set.
    fn clock() -> (Environment, Arc<AtomicI64>) {
        let (started, set_by) = (Instant::now(), Arc::new(AtomicI64::new(0)));
        let offset = set_by.clone();
        let now = move || {
            let ran = SignedDuration::try_from(started.elapsed()).unwrap();
            START + ran + SignedDuration::from_secs(offset.load(Ordering::Relaxed))
        };
        (Environment::new(now, || 0), set_by)
    }

    fn at(seconds: i64) -> Timestamp {
        START + SignedDuration::from_secs(seconds)
    }

    /// Runs alarms for a while; the answer is what rang, and when on tokio's clock.
    async fn listen(alarms: &Alarms<u32>, seconds: u64) -> Vec<(u64, u32)> {
        let (started, rung, shutdown) = (Instant::now(), Mutex::new(Vec::new()), Shutdown::new());
        let run = alarms.clone().run(shutdown.clone(), |key| rung.lock().push((started.elapsed().as_secs(), key)));
        let _ = tokio::time::timeout(Duration::from_secs(seconds), run).await;
        rung.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn alarms_ring_once_and_in_order() {
        let alarms = Alarms::new(clock().0, CLOCK_CHECK);
        for (key, seconds) in [(1, 90), (2, 10), (3, 10), (4, -5), (5, 500)] {
            alarms.set(key, at(seconds));
        }
        assert_eq!(listen(&alarms, 100).await, [(0, 4), (10, 2), (10, 3), (90, 1)]);
        assert_eq!(alarms.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_counts_and_cancelled_ones_are_gone() {
        let alarms = Alarms::new(clock().0, CLOCK_CHECK);
        alarms.set(1, at(30));
        alarms.set(1, at(10));
        alarms.set(1, at(20));
        alarms.set(2, at(5));
        alarms.cancel(&2);
        alarms.cancel(&9);
        assert_eq!(listen(&alarms, 100).await, [(10, 1)]);
        assert!(alarms.is_empty());
        assert!(alarms.shared.state.lock().order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_alarm_set_while_waiting_is_heard() {
        let alarms = Alarms::new(clock().0, CLOCK_CHECK);
        alarms.set(1, at(20));
        let set = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            alarms.set(2, at(5));
        };
        let (rung, ()) = tokio::join!(listen(&alarms, 100), set);
        assert_eq!(rung, [(5, 2), (20, 1)]);
    }

    /// INV-34: a clock set forward is noticed, and one set back brings nothing forward.
    #[tokio::test(start_paused = true)]
    async fn alarms_follow_a_clock_that_is_set() {
        let (environment, offset) = clock();
        let alarms = Alarms::new(environment, CLOCK_CHECK);
        alarms.set(1, at(3600));
        alarms.set(2, at(60));
        let set = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            offset.store(-60, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(200)).await;
            offset.store(3600, Ordering::Relaxed);
        };
        let (rung, ()) = tokio::join!(listen(&alarms, 1000), set);
        let [(second, 2), (first, 1)] = rung[..] else { panic!("{rung:?}") };
        assert_eq!(second, 120);
        assert!((210..=240).contains(&first), "{first}");
    }
}
