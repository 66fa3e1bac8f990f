//! Reading JSON objects that may have any shape: what is not there, or is something else, is `None`.

use jiff::Timestamp;
use serde_json::Value;

/// An object of the API, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<'a>(pub(crate) &'a Value);

/// A condition that is True.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition<'a> {
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) since: Option<Timestamp>,
}

impl<'a> Object<'a> {
    pub(crate) fn at(self, pointer: &str) -> Option<Object<'a>> {
        self.0.pointer(pointer).filter(|value| !value.is_null()).map(Object)
    }

    /// A text that is not empty.
    pub(crate) fn text(self, pointer: &str) -> Option<&'a str> {
        self.at(pointer)?.0.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn int(self, pointer: &str) -> Option<i64> {
        self.at(pointer)?.0.as_i64()
    }

    pub(crate) fn count(self, pointer: &str) -> u64 {
        self.int(pointer).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    pub(crate) fn flag(self, pointer: &str) -> bool {
        self.at(pointer).is_some_and(|value| value.0.as_bool() == Some(true))
    }

    pub(crate) fn time(self, pointer: &str) -> Option<Timestamp> {
        // A zero time of Go is no time.
        self.text(pointer)?.parse().ok().filter(|time: &Timestamp| time.as_second() > 0)
    }

    pub(crate) fn list(self, pointer: &str) -> impl Iterator<Item = Object<'a>> {
        self.at(pointer).and_then(|value| value.0.as_array()).into_iter().flatten().map(Object)
    }

    pub(crate) fn texts(self, pointer: &str) -> Vec<&'a str> {
        self.list(pointer).filter_map(|item| item.0.as_str()).collect()
    }

    /// A label or annotation; its key needs no escaping here.
    pub(crate) fn entry(self, map: &str, key: &str) -> Option<&'a str> {
        self.at(map)?.0.as_object()?.get(key)?.as_str()
    }

    pub(crate) fn annotation(self, key: &str) -> Option<&'a str> {
        self.entry("/metadata/annotations", key)
    }

    pub(crate) fn label(self, key: &str) -> Option<&'a str> {
        self.entry("/metadata/labels", key)
    }

    pub(crate) fn name(self) -> &'a str {
        self.text("/metadata/name").unwrap_or("?")
    }

    pub(crate) fn namespace(self) -> &'a str {
        self.text("/metadata/namespace").unwrap_or("")
    }

    pub(crate) fn uid(self) -> Option<&'a str> {
        self.text("/metadata/uid")
    }

    pub(crate) fn created(self) -> Option<Timestamp> {
        self.time("/metadata/creationTimestamp")
    }

    pub(crate) fn is_deleting(self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some()
    }

    pub(crate) fn finalizers(self) -> Vec<&'a str> {
        self.texts("/metadata/finalizers")
    }

    /// The first condition of a type, whatever it says.
    pub(crate) fn condition(self, kind: &str) -> Option<Condition<'a>> {
        let found = self.list("/status/conditions").find(|item| item.text("/type") == Some(kind))?;
        Some(Condition {
            status: found.text("/status").unwrap_or(""),
            reason: found.text("/reason").unwrap_or(""),
            message: found.text("/message").unwrap_or(""),
            since: found.time("/lastTransitionTime"),
        })
    }

    pub(crate) fn is_true(self, kind: &str) -> Option<Condition<'a>> {
        self.condition(kind).filter(|condition| condition.status == "True")
    }

    /// The owner with `controller: true`, as kind and name.
    pub(crate) fn controller(self) -> Option<(&'a str, &'a str)> {
        let owner = self.list("/metadata/ownerReferences").find(|owner| owner.flag("/controller"))?;
        Some((owner.text("/kind")?, owner.text("/name")?))
    }
}
