//! What a connection is doing: whether it has requests under way, since when it has had none, and since when the headers
//! of the next one have been on their way.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(crate) struct Activity(Mutex<Requests>);

#[derive(Debug)]
struct Requests {
    in_flight: usize,
    idle_since: Instant,
    /// `None` while requests are under way and, once there has been one, until something comes that they do not have.
    headers_since: Option<Instant>,
}

impl Activity {
    /// That of a connection which was just opened: there the headers are awaited at once.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Requests { in_flight: 0, idle_since: now, headers_since: Some(now) }))
    }

    pub(crate) async fn idle_for(&self, limit: Duration) {
        loop {
            let look_again = {
                let requests = self.0.lock();
                if requests.in_flight > 0 { Instant::now() + limit } else { requests.idle_since + limit }
            };
            if look_again <= Instant::now() {
                return;
            }
            sleep_until(look_again).await;
        }
    }

    /// Headers have been on their way for this long. Means nothing for HTTP/2, where other things are sent as well.
    pub(crate) async fn in_headers_for(&self, limit: Duration) {
        loop {
            let look_again = self.0.lock().headers_since.unwrap_or_else(Instant::now) + limit;
            if look_again <= Instant::now() {
                return;
            }
            sleep_until(look_again).await;
        }
    }

    /// The peer has sent something.
    pub(crate) fn heard(&self) {
        let mut requests = self.0.lock();
        if requests.in_flight == 0 {
            requests.headers_since.get_or_insert_with(Instant::now);
        }
    }

    /// What was heard last was the rest of a body, not the next headers.
    pub(crate) fn body_ends(&self) {
        self.0.lock().headers_since = None;
    }
}

/// A request that has not been answered to the end.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl InFlight {
    pub(crate) fn begin(activity: &Arc<Activity>) -> Self {
        let mut requests = activity.0.lock();
        requests.in_flight += 1;
        requests.headers_since = None;
        drop(requests);
        Self(Arc::clone(activity))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut requests = self.0.0.lock();
        requests.in_flight -= 1;
        requests.idle_since = Instant::now();
    }
}
