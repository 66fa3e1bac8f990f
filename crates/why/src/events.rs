//! Events of the API, which come in two shapes: core ones and those of `events.k8s.io`.

use jiff::Timestamp;

use crate::answer::Evidence;
use crate::object::Object;
use crate::snapshot::{Snapshot, objects};
use crate::words::{clause, foreign};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    /// When it was last seen.
    pub(crate) at: Option<Timestamp>,
    /// When it was first seen.
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) count: i64,
    kind: &'a str,
    name: &'a str,
    uid: Option<&'a str>,
}

impl<'a> Event<'a> {
    fn of(object: Object<'a>) -> Option<Self> {
        let involved = object.at("/involvedObject").or_else(|| object.at("/regarding"))?;
        let at = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"]
            .into_iter()
            .find_map(|pointer| object.time(pointer));
        Some(Self {
            reason: object.text("/reason")?,
            message: object.text("/message").or_else(|| object.text("/note")).unwrap_or(""),
            at: at.or_else(|| object.time("/firstTimestamp")).or_else(|| object.created()),
            first_at: object.time("/firstTimestamp").or_else(|| object.time("/eventTime")).or(at),
            count: object.int("/series/count").or_else(|| object.int("/count")).unwrap_or(1),
            kind: involved.text("/kind").unwrap_or(""),
            name: involved.text("/name").unwrap_or(""),
            uid: involved.text("/uid"),
        })
    }

    fn is_about(&self, kind: &str, object: Object<'_>) -> bool {
        let same = match (self.uid, object.uid()) {
            (Some(event), Some(object)) => event == object,
            _ => true,
        };
        self.kind == kind && self.name == object.name() && same
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let times = if self.count > 1 { format!(", {} times", self.count) } else { String::new() };
        let about = format!("event of {}/{}", self.kind.to_lowercase(), foreign(self.name));
        Evidence::new(about, format!("{}{times}: {}", foreign(self.reason), clause(self.message)), self.at)
    }
}

/// The events about an object, oldest first.
pub(crate) fn about<'a>(snapshot: &'a Snapshot, kind: &str, object: Object<'_>) -> Vec<Event<'a>> {
    let all = objects(snapshot.events.as_ref()).filter_map(Event::of);
    let mut own: Vec<Event<'_>> = all.filter(|event| event.is_about(kind, object)).collect();
    own.sort_by_key(|event| event.at);
    own
}

/// The last event with one of these reasons.
pub(crate) fn last<'a>(events: &[Event<'a>], reasons: &[&str]) -> Option<Event<'a>> {
    events.iter().rev().find(|event| reasons.contains(&event.reason)).copied()
}
