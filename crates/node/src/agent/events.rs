//! Events about pods, sent beside the work and never in its way (PL-127).
//!
//! Like a kubelet the node sends at most 50 a second, with bursts of 100: events are for people, and a thousand pods a
//! second are not read by anyone. What is over the limit, or does not fit the queue, is dropped.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::calls;

const QUEUE: usize = 256;
const RATE: f64 = 50.0;
const BURST: f64 = 100.0;
/// The API's own limit is 1,024 bytes.
const MESSAGE_MAX: usize = 1024;

/// What an event is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// `spec.containers{name}`, if it is about one container.
    pub(crate) field_path: Option<String>,
}

#[derive(Debug)]
struct Entry {
    subject: Subject,
    is_warning: bool,
    reason: &'static str,
    message: String,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Entry>,
    bucket: Bucket,
}

impl Recorder {
    /// Sends until the recorder is dropped.
    pub(crate) fn start(client: Client, node: String) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        tokio::spawn(send_all(client, node, entries));
        Self { queue, bucket: Bucket { tokens: BURST, filled_at: Instant::now() } }
    }

    pub(crate) fn record(&mut self, subject: Subject, is_warning: bool, reason: &'static str, message: String) {
        if self.bucket.take(Instant::now()) {
            let _ = self.queue.try_send(Entry { subject, is_warning, reason, message });
        }
    }
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled_at);
        self.tokens = (self.tokens + passed.as_secs_f64() * RATE).min(BURST);
        self.filled_at = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

async fn send_all(client: Client, node: String, mut entries: mpsc::Receiver<Entry>) {
    let mut number: u64 = 0;
    while let Some(entry) = entries.recv().await {
        number += 1;
        let path = format!("/api/v1/namespaces/{}/events", entry.subject.namespace);
        let event = event(&entry, &node, Timestamp::now(), number);
        let sent = tokio::time::timeout(Duration::from_secs(10), calls::create(&client, &path, &event)).await;
        if !matches!(sent, Ok(calls::Answer::Done)) {
            tracing::debug!(reason = entry.reason, pod = entry.subject.name, "an event was not taken");
        }
    }
}

fn event(entry: &Entry, node: &str, now: Timestamp, number: u64) -> Value {
    let Subject { namespace, name, uid, field_path } = &entry.subject;
    let nanos = now.as_nanosecond();
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let mut involved = json!({"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": uid});
    if let Some(field_path) = field_path {
        involved["fieldPath"] = field_path.as_str().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{nanos:x}{number:x}", &name[..name.floor_char_boundary(200)]),
            "namespace": namespace,
        },
        "involvedObject": involved,
        "reason": entry.reason,
        "message": &entry.message[..entry.message.floor_char_boundary(MESSAGE_MAX)],
        "type": if entry.is_warning { "Warning" } else { "Normal" },
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet",
        "reportingInstance": node,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_bounded_and_fill_up_again() {
        let start = Instant::now();
        let mut bucket = Bucket { tokens: BURST, filled_at: start };
        assert_eq!((0..500).filter(|_| bucket.take(start)).count(), 100);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..500).filter(|_| bucket.take(later)).count(), 50);
    }
}
