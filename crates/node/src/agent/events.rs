//! Events about pods, sent beside the work and never in its way (PL-127).
//!
//! Like a kubelet the node sends at most 50 a second, with bursts of 100: events are for people, and a thousand pods a
//! second are not read by anyone. What is over the limit, or does not fit the queue, is dropped. What happens again is
//! counted in the Event that was made when it happened first (PL-136).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::calls::{self, Answer};

const QUEUE: usize = 256;
const RATE: f64 = 50.0;
const BURST: f64 = 100.0;
/// The API's own limit is 1,024 bytes.
const MESSAGE_MAX: usize = 1024;
/// Events that are remembered, to be counted if they happen again.
const MEMORY_MAX: usize = 1024;

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

/// What makes two events the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    field_path: Option<String>,
    is_warning: bool,
    reason: &'static str,
    message: String,
}

impl Key {
    fn of(entry: &Entry) -> Self {
        let Entry { subject, is_warning, reason, message } = entry;
        Self {
            uid: subject.uid.clone(),
            field_path: subject.field_path.clone(),
            is_warning: *is_warning,
            reason,
            message: message.clone(),
        }
    }
}

/// An Event that the API has.
#[derive(Debug)]
struct Sent {
    name: String,
    count: u64,
    /// When it happened last, as a number that grows.
    seen: u64,
}

/// The Events that happened last.
#[derive(Debug, Default)]
struct Memory {
    sent: HashMap<Key, Sent>,
    number: u64,
}

impl Memory {
    /// The Event that says the same, and how often that has happened now.
    fn again(&mut self, key: &Key) -> Option<(String, u64)> {
        self.number += 1;
        let sent = self.sent.get_mut(key)?;
        sent.count += 1;
        sent.seen = self.number;
        Some((sent.name.clone(), sent.count))
    }

    /// Takes the place of what was not seen for longest, if there is no other.
    fn remember(&mut self, key: Key, name: String) {
        if self.sent.len() >= MEMORY_MAX {
            let oldest = self.sent.values().map(|sent| sent.seen).min();
            self.sent.retain(|_, sent| Some(sent.seen) != oldest);
        }
        self.sent.insert(key, Sent { name, count: 1, seen: self.number });
    }
}

async fn send_all(client: Client, node: String, mut entries: mpsc::Receiver<Entry>) {
    let mut memory = Memory::default();
    while let Some(entry) = entries.recv().await {
        let sent = tokio::time::timeout(Duration::from_secs(10), send(&client, &node, &mut memory, &entry)).await;
        if !matches!(sent, Ok(Answer::Done)) {
            tracing::debug!(reason = entry.reason, pod = entry.subject.name, "an event was not taken");
        }
    }
}

async fn send(client: &Client, node: &str, memory: &mut Memory, entry: &Entry) -> Answer {
    let path = format!("/api/v1/namespaces/{}/events", entry.subject.namespace);
    let (key, now) = (Key::of(entry), Timestamp::now());
    if let Some((name, count)) = memory.again(&key) {
        let patch = json!({"count": count, "lastTimestamp": seconds(now)});
        match calls::merge_patch(client, &format!("{path}/{name}"), &patch).await {
            // Events do not last; a new one takes its place.
            Answer::Gone => {}
            answer => return answer,
        }
    }
    let name = &entry.subject.name;
    let name = format!("{}.{:x}{:x}", &name[..name.floor_char_boundary(200)], now.as_nanosecond(), memory.number);
    let answer = calls::create(client, &path, &event(entry, node, now, &name)).await;
    if matches!(answer, Answer::Done) {
        memory.remember(key, name);
    }
    answer
}

/// A time of the API: whole seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn event(entry: &Entry, node: &str, now: Timestamp, event_name: &str) -> Value {
    let Subject { namespace, name, uid, field_path } = &entry.subject;
    let seconds = seconds(now);
    let mut involved = json!({"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": uid});
    if let Some(field_path) = field_path {
        involved["fieldPath"] = field_path.as_str().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event_name,
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
    use std::collections::VecDeque;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn bursts_are_bounded_and_fill_up_again() {
        let start = Instant::now();
        let mut bucket = Bucket { tokens: BURST, filled_at: start };
        assert_eq!((0..500).filter(|_| bucket.take(start)).count(), 100);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..500).filter(|_| bucket.take(later)).count(), 50);
    }

    /// A client whose server tells what it is asked, and answers with these codes; then with 200.
    fn server(codes: &[u16]) -> (Client, mpsc::UnboundedReceiver<(String, Value)>) {
        let (heard_in, heard) = mpsc::unbounded_channel();
        let codes = Arc::new(Mutex::new(VecDeque::from(codes.to_vec())));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (heard_in, codes) = (heard_in.clone(), Arc::clone(&codes));
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let body: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?).unwrap();
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let line = format!("{method} {path} {name}");
                heard_in.send((line.trim_end().to_owned(), body)).unwrap();
                let code = codes.lock().pop_front().unwrap_or(200);
                let answer = json!({"kind": "Status", "code": code, "message": "", "reason": "", "status": "Failure"});
                let answer = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, kube::Error>(http::Response::builder().status(code).body(answer).unwrap())
            }
        });
        (Client::new(service, "ns"), heard)
    }

    fn entry(container: &str, message: &str) -> Entry {
        let subject = Subject {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            field_path: Some(format!("spec.containers{{{container}}}")),
        };
        Entry { subject, is_warning: true, reason: "Unhealthy", message: message.to_owned() }
    }

    #[tokio::test]
    async fn what_happens_again_is_counted() {
        // The first Event is gone when it happens for the third time.
        let (client, mut heard) = server(&[201, 200, 404, 201, 200]);
        let mut memory = Memory::default();
        for entry in [entry("a", "no"), entry("a", "no"), entry("a", "no"), entry("a", "no"), entry("b", "no")] {
            assert!(matches!(send(&client, "here", &mut memory, &entry).await, Answer::Done));
        }
        let mut names: Vec<String> = Vec::new();
        for (verb, count) in [("POST", 1), ("PATCH", 2), ("PATCH", 3), ("POST", 1), ("PATCH", 2), ("POST", 1)] {
            let (line, body) = heard.recv().await.unwrap();
            if verb == "POST" {
                names.push(line.rsplit(' ').next().unwrap().to_owned());
                assert_eq!(line, format!("POST /api/v1/namespaces/ns/events {}", names[names.len() - 1]));
            } else {
                let name = &names[names.len() - 1];
                assert_eq!(line, format!("PATCH /api/v1/namespaces/ns/events/{name}"), "PL-136");
                assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
            }
            assert_eq!(body["count"], count, "{line}");
            assert!(body["lastTimestamp"].is_string());
        }
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
    }

    #[tokio::test]
    async fn an_event_that_was_not_taken_is_not_counted() {
        let (client, mut heard) = server(&[500]);
        let mut memory = Memory::default();
        assert!(matches!(send(&client, "here", &mut memory, &entry("a", "no")).await, Answer::Failed(_)));
        assert!(matches!(send(&client, "here", &mut memory, &entry("a", "no")).await, Answer::Done));
        heard.recv().await.unwrap();
        assert!(heard.recv().await.unwrap().0.starts_with("POST "));
    }

    #[test]
    fn what_was_not_seen_for_longest_is_forgotten_first() {
        let mut memory = Memory::default();
        let key = |number: usize| Key::of(&entry("a", &number.to_string()));
        for number in 0..MEMORY_MAX {
            assert_eq!(memory.again(&key(number)), None);
            memory.remember(key(number), number.to_string());
        }
        assert_eq!(memory.again(&key(0)), Some(("0".to_owned(), 2)));
        memory.remember(key(MEMORY_MAX), "new".to_owned());
        assert_eq!(memory.sent.len(), MEMORY_MAX);
        assert_eq!(memory.again(&key(1)), None);
        assert_eq!(memory.again(&key(0)), Some(("0".to_owned(), 3)));
    }
}
