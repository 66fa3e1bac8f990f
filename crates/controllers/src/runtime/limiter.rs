//! Client-side rate limits: `--kube-api-qps` and `--kube-api-burst`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Tokens that come back at a steady rate, up to a burst. Reservations are served in order.
///
/// Tokens may be owed: a reservation is granted at once and says how long its holder has to wait, as
/// golang.org/x/time/rate does, which client-go uses for the same purposes.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket. `per_second` must be positive and `burst` at least 1, or nothing would ever pass.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second, burst, state: Mutex::new(State { tokens: burst, at: Instant::now() }) }
    }

    /// Takes a token now or in the future; the answer is how long to wait for it.
    pub fn reserve(&self) -> Duration {
        let mut state = self.state.lock();
        self.refill(&mut state);
        state.tokens -= 1.0;
        if state.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-state.tokens / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Takes a token if there is one.
    pub fn try_take(&self) -> bool {
        let mut state = self.state.lock();
        self.refill(&mut state);
        if state.tokens < 1.0 {
            return false;
        }
        state.tokens -= 1.0;
        true
    }

    /// Waits for a token.
    pub async fn take(&self) {
        let wait = self.reserve();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn refill(&self, state: &mut State) {
        let now = Instant::now();
        let earned = now.saturating_duration_since(state.at).as_secs_f64() * self.per_second;
        state.tokens = (state.tokens + earned).min(self.burst);
        state.at = now;
    }
}

/// How fast a client may send requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second; 0 means no limit.
    pub qps: f64,
    pub burst: u32,
}

impl Rate {
    pub const UNLIMITED: Self = Self { qps: 0.0, burst: 0 };
}

/// A client like `client` whose requests, watches included, wait for their turn.
pub fn limited(client: kube::Client, rate: Rate) -> kube::Client {
    if rate.qps <= 0.0 {
        return client;
    }
    let bucket = std::sync::Arc::new(TokenBucket::new(rate.qps, rate.burst));
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| {
        let (client, bucket) = (client.clone(), bucket.clone());
        async move {
            bucket.take().await;
            client.send(request).await
        }
    });
    kube::Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate_holds() {
        let bucket = TokenBucket::new(10.0, 3);
        let started = Instant::now();
        for _ in 0..13 {
            bucket.take().await;
        }
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(990) && took <= Duration::from_millis(1100), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn reservations_queue_up_in_order() {
        let bucket = TokenBucket::new(1.0, 1);
        let waits: Vec<u64> = (0..4).map(|_| bucket.reserve().as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn trying_never_runs_into_debt() {
        let bucket = TokenBucket::new(0.1, 2);
        assert_eq!([bucket.try_take(), bucket.try_take(), bucket.try_take()], [true, true, false]);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!([bucket.try_take(), bucket.try_take()], [true, false]);
    }
}
