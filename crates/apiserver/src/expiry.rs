//! Events go away an hour after their last write (AS-219).
//!
//! Upstream hangs each event on a lease of etcd. Here the object itself tells when it was last written, so that nothing
//! has to be kept beside it and a restart changes nothing. Revisions grow with time: a sweep looks at events from the
//! oldest revision on and ends at the first one that is too young, however many follow.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::{ListQuery, Transaction};

use crate::{
    metadata,
    server::ApiServer,
    status::Status,
    storage::{self, Stored, WriteError},
};

const EVENTS: &str = "events/";
/// kube-apiserver's default of `--event-ttl`.
const TTL: SignedDuration = SignedDuration::from_hours(1);
/// An event outlives its hour by at most this, as long as upstream uses one lease for many.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// Removals that are under way at the same time; the store makes them durable with few syncs.
const REMOVALS_AT_ONCE: usize = 256;

impl ApiServer {
    /// Removes events whose time has come, for as long as it is polled. Whoever runs the server runs this beside it.
    pub async fn expire_events(&self) {
        loop {
            if let Err(status) = sweep(self).await {
                tracing::warn!(why = status.message, "expired events stay until the next sweep");
            }
            tokio::time::sleep(SWEEP_PERIOD).await;
        }
    }
}

async fn sweep(server: &ApiServer) -> Result<(), Status> {
    let store = &server.state.store;
    let found = store.list(&ListQuery::new(EVENTS));
    let mut events = found.map_err(|error| Status::internal(format!("reading the store: {error}")))?.entries;
    events.sort_unstable_by_key(|event| event.revision);
    let now = server.state.environment.now();
    let mut expired = Expired { events: events.iter(), now };
    loop {
        let removals: Vec<_> =
            expired.by_ref().take(REMOVALS_AT_ONCE).map(|(event, last)| remove(server, event, last)).collect();
        if removals.is_empty() {
            return Ok(());
        }
        tracing::debug!(count = removals.len(), "events expire");
        join_all(removals).await.into_iter().collect::<Result<(), Status>>()?;
    }
}

/// The events that have to go, out of all by revision.
struct Expired<'a> {
    events: std::slice::Iter<'a, Stored>,
    now: Timestamp,
}

impl<'a> Iterator for Expired<'a> {
    type Item = (&'a Stored, Value);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let event = self.events.next()?;
            // One that cannot be read has been logged; it is in nobody's way.
            let Ok(object) = storage::parse(event) else { continue };
            match age(&object, self.now) {
                age if age >= TTL => return Some((event, object)),
                // Written while the clock was ahead: it tells nothing about those that follow.
                age if age < SignedDuration::ZERO => {}
                _ => return None,
            }
        }
    }
}

/// How long ago an event was written, by the times that the server itself puts into an object.
fn age(event: &Value, now: Timestamp) -> SignedDuration {
    let managers = event["metadata"]["managedFields"].as_array().into_iter().flatten();
    let times = managers.filter_map(|entry| entry["time"].as_str()).chain([metadata::text(event, "creationTimestamp")]);
    let last = times.filter_map(|time| time.parse::<Timestamp>().ok()).max();
    now.duration_since(last.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Removes an event as it is; finalizers do not hold it, as they do not hold what etcd takes away.
async fn remove(server: &ApiServer, event: &Stored, last: Value) -> Result<(), Status> {
    let removal = Transaction::remove(event.key.clone(), event.revision, storage::stamped(&last));
    match storage::commit(&server.state.store, removal).await {
        // Written again or gone meanwhile.
        Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
        Err(WriteError::Failed(status)) => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_write_counts() {
        let now: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let event = json!({"metadata": {
            "creationTimestamp": "2026-11-15T08:00:00Z",
            "managedFields": [{"time": "2026-11-15T09:30:00Z"}, {"time": "2026-11-15T09:10:00Z"}, {}],
        }});
        assert_eq!(age(&event, now), SignedDuration::from_mins(30));
        let untouched = json!({"metadata": {"creationTimestamp": "2026-11-15T08:00:00Z"}});
        assert_eq!(age(&untouched, now), SignedDuration::from_hours(2));
        let ahead = json!({"metadata": {"creationTimestamp": "2026-11-15T10:00:05Z"}});
        assert!(age(&ahead, now) < SignedDuration::ZERO);
        assert!(age(&json!({}), now) >= TTL, "what tells no time is old");
    }
}
