//! Which events are worth sending, and in what form: client-go's `EventCorrelator` (JC-2103).
//!
//! Equal events become one with a count; many similar ones become one "combined" event; an object that gets too many
//! loses the rest. Sending them is in `recorder`.

use std::{collections::HashSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{limiter::TokenBucket, lru::Lru};

/// How many objects, events and kinds of events are remembered.
const REMEMBERED_MAX: usize = 4096;
/// From this many distinct messages of one object, type and reason on, they are combined …
const SIMILAR_MAX: usize = 10;
/// … if the pause between them is not longer than this.
const SIMILAR_INTERVAL: Duration = Duration::from_secs(600);
/// Events of one source, object and type: so many at once, then one every five minutes.
const SPAM_BURST: u32 = 25;
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;
/// The longest message (events.k8s.io validation).
pub const MESSAGE_BYTES_MAX: usize = 1024;
const COMBINED: &str = "(combined from similar events): ";

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    /// Empty for objects of the cluster.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// How serious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(super) struct Happening {
    pub(super) component: Arc<str>,
    pub(super) object: ObjectRef,
    pub(super) kind: EventType,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What to tell the server about it.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) happening: Happening,
    /// The name of the Event object.
    pub(super) name: String,
    /// More than 1 updates an event that was sent before.
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

#[derive(Debug)]
pub(super) struct Correlator {
    similar: Lru<SimilarKey, Similar>,
    sent: Lru<SentKey, Option<Sent>>,
    spam: Lru<SpamKey, TokenBucket>,
    /// The last number given out in a name, so that two events of one moment differ.
    last_nanosecond: i128,
}

type SimilarKey = (Arc<str>, ObjectRef, EventType, String);
/// Similar events, and the message unless they are combined.
type SentKey = (SimilarKey, Option<String>);
type SpamKey = (Arc<str>, ObjectRef, EventType);

#[derive(Debug)]
struct Similar {
    messages: HashSet<String>,
    at: Instant,
}

#[derive(Debug, Clone)]
struct Sent {
    name: String,
    count: u32,
    first: Timestamp,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            similar: Lru::new(REMEMBERED_MAX),
            sent: Lru::new(REMEMBERED_MAX),
            spam: Lru::new(REMEMBERED_MAX),
            last_nanosecond: 0,
        }
    }

    /// What to send for something that happened now; `None` if it is one too many.
    pub(super) fn correlate(&mut self, mut happening: Happening, now: Timestamp) -> Option<Outgoing> {
        // Which state of the object it was about does not make events different.
        let mut object = happening.object.clone();
        object.resource_version.clear();
        let spam = (happening.component.clone(), object.clone(), happening.kind);
        let similar = (happening.component.clone(), object, happening.kind, happening.reason.clone());

        let combined = self.combines(&similar, &happening.message);
        let key = (similar, (!combined).then(|| happening.message.clone()));
        if combined {
            happening.message.insert_str(0, COMBINED);
        }
        truncate(&mut happening.message, MESSAGE_BYTES_MAX);
        let outgoing = self.count(key, happening, now);
        let bucket = self.spam.get_or_insert_with(&spam, || TokenBucket::new(SPAM_PER_SECOND, SPAM_BURST));
        bucket.try_take().then_some(outgoing)
    }

    /// Whether this is one of too many similar events.
    fn combines(&mut self, key: &SimilarKey, message: &str) -> bool {
        let now = Instant::now();
        let similar = self.similar.get_or_insert_with(key, || Similar { messages: HashSet::new(), at: now });
        if now.duration_since(similar.at) > SIMILAR_INTERVAL {
            similar.messages.clear();
        }
        similar.at = now;
        if similar.messages.contains(message) {
            return false;
        }
        // The set never grows beyond what the question needs.
        if similar.messages.len() >= SIMILAR_MAX - 1 {
            return true;
        }
        similar.messages.insert(message.to_owned());
        false
    }

    fn count(&mut self, key: SentKey, happening: Happening, now: Timestamp) -> Outgoing {
        let name = self.name(&happening.object.name, now);
        let sent = self.sent.get_or_insert_with(&key, || None);
        let sent = match sent {
            Some(sent) => {
                sent.count = sent.count.saturating_add(1);
                sent.clone()
            }
            None => sent.insert(Sent { name, count: 1, first: now }).clone(),
        };
        Outgoing { happening, name: sent.name, count: sent.count, first: sent.first, last: now }
    }

    /// `<object>.<nanoseconds in hexadecimal>`, as client-go names them.
    fn name(&mut self, object: &str, now: Timestamp) -> String {
        self.last_nanosecond = now.as_nanosecond().max(self.last_nanosecond + 1);
        format!("{object}.{:x}", self.last_nanosecond)
    }
}

/// Cuts a text to at most `bytes`, between characters.
fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(object: &str, reason: &str, message: &str) -> Happening {
        let object = ObjectRef { kind: "Job".to_owned(), name: object.to_owned(), ..ObjectRef::default() };
        let (reason, message) = (reason.to_owned(), message.to_owned());
        Happening { component: "job-controller".into(), object, kind: EventType::Normal, reason, message }
    }

    fn send(correlator: &mut Correlator, object: &str, reason: &str, message: &str) -> Option<(String, u32)> {
        let outgoing = correlator.correlate(happening(object, reason, message), Timestamp::UNIX_EPOCH)?;
        Some((outgoing.happening.message, outgoing.count))
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_are_counted() {
        let mut correlator = Correlator::new();
        let first = correlator.correlate(happening("a", "R", "m"), Timestamp::UNIX_EPOCH).unwrap();
        let mut again = happening("a", "R", "m");
        again.object.resource_version = "7".to_owned();
        let later = Timestamp::from_second(5).unwrap();
        let second = correlator.correlate(again, later).unwrap();
        assert_eq!((first.count, second.count), (1, 2));
        assert_eq!((second.name, second.first, second.last), (first.name, Timestamp::UNIX_EPOCH, later));
    }

    #[tokio::test(start_paused = true)]
    async fn the_tenth_distinct_message_and_the_following_are_combined() {
        let mut correlator = Correlator::new();
        let mut messages = Vec::new();
        for n in 1..=12 {
            messages.push(send(&mut correlator, "a", "R", &format!("pod {n}")).unwrap());
        }
        assert_eq!(messages[8], ("pod 9".to_owned(), 1));
        assert_eq!(messages[9], ("(combined from similar events): pod 10".to_owned(), 1));
        assert_eq!(messages[11], ("(combined from similar events): pod 12".to_owned(), 3));
        assert_eq!(send(&mut correlator, "a", "Other", "x"), Some(("x".to_owned(), 1)));
        tokio::time::advance(SIMILAR_INTERVAL + Duration::from_secs(1)).await;
        assert_eq!(send(&mut correlator, "a", "R", "pod 13"), Some(("pod 13".to_owned(), 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_gets_25_events_and_then_one_every_five_minutes() {
        let mut correlator = Correlator::new();
        let sent = (0..40).filter(|n| send(&mut correlator, "a", "R", &format!("{n}")).is_some()).count();
        assert_eq!(sent, 25);
        assert!(send(&mut correlator, "b", "R", "m").is_some());
        tokio::time::advance(Duration::from_secs(301)).await;
        assert!(send(&mut correlator, "a", "R", "m").is_some());
        assert!(send(&mut correlator, "a", "R", "m").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn memory_and_messages_are_bounded() {
        let mut correlator = Correlator::new();
        for n in 0..REMEMBERED_MAX + 10 {
            send(&mut correlator, &format!("job-{n}"), "R", "m");
        }
        let remembered = [correlator.similar.len(), correlator.sent.len(), correlator.spam.len()];
        assert_eq!(remembered, [REMEMBERED_MAX; 3]);
        let (message, _) = send(&mut correlator, "a", "R", &"ä".repeat(2000)).unwrap();
        assert_eq!(message.len(), MESSAGE_BYTES_MAX);
    }
}
