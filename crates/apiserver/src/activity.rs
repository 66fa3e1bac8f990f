//! What a connection is doing: whether it has requests under way, since when it has had none, since when the headers of
//! the next one have been on their way, and whether its peer takes what it is sent.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
    /// Since when parts of answers have been handed over without the next part being asked for: the peer has not made
    /// room for it. By the number of the request.
    unread_since: HashMap<u64, Instant>,
    next_number: u64,
    /// Since when the connection has only waited for its last answer to be read.
    ending_since: Option<Instant>,
}

impl Activity {
    /// That of a connection which was just opened: there the headers are awaited at once.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Requests {
            in_flight: 0,
            idle_since: now,
            headers_since: Some(now),
            unread_since: HashMap::new(),
            next_number: 0,
            ending_since: None,
        }))
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

    /// The connection ends as soon as everything is answered.
    pub(crate) fn ends(&self) {
        self.0.lock().ending_since = Some(Instant::now());
    }

    /// A part of an answer has been unread for this long.
    pub(crate) async fn unread_for(&self, limit: Duration) {
        loop {
            let since = self.0.lock().unread_since();
            let look_again = since.unwrap_or_else(Instant::now) + limit;
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

impl Requests {
    /// An answer that was handed over to its end is not in flight any more, and may not have been read all the same.
    fn unread_since(&self) -> Option<Instant> {
        let last = self.ending_since.filter(|_| self.in_flight == 0);
        self.unread_since.values().copied().chain(last).min()
    }
}

/// A request that has not been answered to the end.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    number: u64,
}

impl InFlight {
    pub(crate) fn begin(activity: &Arc<Activity>) -> Self {
        let mut requests = activity.0.lock();
        requests.in_flight += 1;
        requests.headers_since = None;
        let number = requests.next_number;
        requests.next_number += 1;
        drop(requests);
        Self { activity: Arc::clone(activity), number }
    }

    /// A part of the answer was handed over.
    pub(crate) fn gives(&self) {
        self.activity.0.lock().unread_since.insert(self.number, Instant::now());
    }

    /// There was room for another part, and there is none yet.
    pub(crate) fn has_given_all(&self) {
        self.activity.0.lock().unread_since.remove(&self.number);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut requests = self.activity.0.lock();
        requests.in_flight -= 1;
        requests.idle_since = Instant::now();
        requests.unread_since.remove(&self.number);
    }
}
