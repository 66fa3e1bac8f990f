//! The entries of `metadata.managedFields`: reading and writing them, their identity and order (AS-131, AS-132), and the
//! cap on how many updates are remembered (AS-135).

use std::collections::HashMap;

use serde_json::Value;

use super::field_set::FieldSet;
use super::typed::equal;
use super::{Manager, Object};
use crate::go_format::quoted;

/// Fields that nobody owns (AS-133). `metadata` itself is not owned either.
pub(super) const NEVER_OWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Upstream's `DefaultMaxUpdateManagers`.
const UPDATE_MANAGERS_MAX: usize = 10;

/// The manager that entries beyond the cap are merged into.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// How a manager came by its fields. The order is that of the encoded list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// One manager's fields.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    /// As `metav1.Time` prints it, so that the order of texts is the order of times.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

impl Entry {
    pub(super) fn new(manager: &Manager<'_>, operation: Operation, fields: FieldSet) -> Self {
        Self {
            manager: if manager.name.is_empty() { "unknown" } else { manager.name }.to_owned(),
            operation,
            api_version: manager.api_version.to_owned(),
            subresource: manager.subresource.to_owned(),
            time: None,
            fields,
        }
    }

    /// Whether two entries are the same manager's: appliers keep theirs across API versions (AS-132).
    pub(super) fn is_same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Upstream's text for a manager's identity, which it sorts by.
    pub(super) fn identifier(&self) -> String {
        let mut out =
            format!("{{\"manager\":{},\"operation\":\"{}\"", Value::from(self.manager.as_str()), self.operation.name());
        if self.operation == Operation::Update {
            out += &format!(",\"apiVersion\":{}", Value::from(self.api_version.as_str()));
        }
        if !self.subresource.is_empty() {
            out += &format!(",\"subresource\":{}", Value::from(self.subresource.as_str()));
        }
        out + "}"
    }

    /// The manager as conflicts show it (AS-138).
    pub(super) fn display(&self) -> String {
        let mut out = quoted(&self.manager);
        if !self.subresource.is_empty() {
            out += &format!(" with subresource {}", quoted(&self.subresource));
        }
        if self.operation == Operation::Update {
            out += &format!(" using {}", self.api_version);
        }
        out
    }

    fn is_ancient_changes(&self) -> bool {
        self.manager == ANCIENT_CHANGES && self.operation == Operation::Update && self.subresource.is_empty()
    }

    /// Becomes the entry for ancient changes, with those of a younger one.
    fn absorb(&mut self, younger: Self) {
        self.manager = ANCIENT_CHANGES.to_owned();
        self.subresource.clear();
        self.fields.union(younger.fields);
        self.fields.sort();
        self.time = younger.time;
    }

    /// Reads an entry; `trusted` ones were written by [`encode`] and need no look at their fields.
    fn decode(at: usize, value: Value, trusted: bool) -> Result<Self, String> {
        let Value::Object(mut members) = value else { return Err(format!("entry {at} is not an object")) };
        let mut text = |name: &str| match members.get_mut(name) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        };
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".into()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".into());
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => return Err(format!("invalid fieldsType {} in managed fields entry {at}", quoted(other))),
        }
        let (manager, subresource) = (text("manager"), text("subresource"));
        let time = Some(text("time")).filter(|time| !time.is_empty());
        let fields = match members.get_mut("fieldsV1") {
            Some(Value::Object(fields)) if trusted => FieldSet::trusted(std::mem::take(fields)),
            Some(fields) => {
                let mut fields = FieldSet::from_wire(fields).map_err(|error| format!("error decoding set: {error}"))?;
                fields.sort();
                fields
            }
            None => FieldSet::new(),
        };
        Ok(Self { manager, operation, api_version, subresource, time, fields })
    }

    /// In the order of the API's type definition.
    fn encode(self) -> Value {
        let mut out = Object::with_capacity(7);
        let mut set = |name: &str, value: Value| out.insert(name.to_owned(), value);
        set("manager", self.manager.into());
        set("operation", self.operation.name().into());
        set("apiVersion", self.api_version.into());
        if let Some(time) = self.time {
            set("time", time.into());
        }
        set("fieldsType", "FieldsV1".into());
        set("fieldsV1", self.fields.into_value());
        if !self.subresource.is_empty() {
            set("subresource", self.subresource.into());
        }
        Value::Object(out)
    }
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// `metadata.managedFields` of an object, if it has any.
pub(super) fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Reads a list of entries. Of entries with the same identity the last one counts.
pub(super) fn decode(list: Value, trusted: bool) -> Result<Vec<Entry>, String> {
    let values = match list {
        Value::Array(values) => values,
        Value::Null => Vec::new(),
        _ => return Err("managedFields is not a list".into()),
    };
    let mut entries: Vec<Entry> = Vec::with_capacity(values.len());
    for (at, value) in values.into_iter().enumerate() {
        entries.push(Entry::decode(at, value, trusted)?);
    }
    if !trusted {
        let last: HashMap<String, usize> = entries.iter().map(Entry::identifier).zip(0..).collect();
        let mut at = 0..;
        entries.retain(|entry| last.get(&entry.identifier()) == at.next().as_ref());
    }
    Ok(entries)
}

/// Puts entries into an object: applies first, then by time, then by name. Without entries the member goes.
pub(super) fn encode(object: &mut Value, mut entries: Vec<Entry>) {
    if !object.is_object() {
        return;
    }
    let metadata = &mut object["metadata"];
    if entries.is_empty() {
        if let Value::Object(metadata) = metadata {
            metadata.shift_remove("managedFields");
        }
        return;
    }
    if !metadata.is_object() {
        *metadata = Value::Object(Object::new());
    }
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| (entry.operation, entry.time.is_some());
        key(a)
            .cmp(&key(b))
            .then_with(|| a.time.cmp(&b.time))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    metadata["managedFields"] = entries.into_iter().map(Entry::encode).collect();
}

/// Merges the oldest updates until no more than the cap are left (AS-135). Follows `capmanagers.go`.
pub(super) fn cap(entries: Vec<Entry>) -> Vec<Entry> {
    let mut updates: Vec<usize> = (0..entries.len()).filter(|&at| entries[at].operation == Operation::Update).collect();
    let mut count = updates.len();
    if count <= UPDATE_MANAGERS_MAX {
        return entries;
    }
    updates.sort_by_cached_key(|&at| (entries[at].time.clone(), entries[at].identifier()));
    let existing: HashMap<String, usize> = (0..entries.len())
        .filter(|&at| entries[at].is_ancient_changes())
        .map(|at| (entries[at].api_version.clone(), at))
        .collect();
    let mut slots: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    // For each API version the entry that others are merged into: the one that is there already, or else the oldest.
    let mut buckets: HashMap<String, usize> = HashMap::new();
    for at in updates {
        if count <= UPDATE_MANAGERS_MAX {
            break;
        }
        let Some(entry) = slots[at].take() else { continue };
        match buckets.get(&entry.api_version) {
            Some(&bucket) if bucket != at => {
                count -= 1;
                if let Some(bucket) = &mut slots[bucket] {
                    bucket.absorb(entry);
                }
            }
            Some(_) => slots[at] = Some(entry),
            None => {
                let bucket = existing.get(&entry.api_version).copied().unwrap_or(at);
                buckets.insert(entry.api_version.clone(), bucket);
                slots[at] = Some(entry);
            }
        }
    }
    slots.into_iter().flatten().collect()
}

/// Whether a write changes nothing: the objects are equal except for the times of `managedFields` (AS-83).
pub fn equal_but_for_times(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return equal(left, right) };
    left.len() == right.len()
        && left.iter().all(|(name, value)| match right.get(name) {
            Some(other) if name == "metadata" => equal_metadata(value, other),
            Some(other) => equal(value, other),
            None => false,
        })
}

fn equal_metadata(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return equal(left, right) };
    left.len() == right.len()
        && left.iter().all(|(name, value)| match (value, right.get(name)) {
            (Value::Array(value), Some(Value::Array(other))) if name == "managedFields" => equal_lists(value, other),
            (value, Some(other)) => equal(value, other),
            (_, None) => false,
        })
}

pub(super) fn equal_lists_but_for_times(left: &Value, right: &Value) -> bool {
    matches!((left, right), (Value::Array(left), Value::Array(right)) if equal_lists(left, right))
}

/// Entries are sorted by time, so equal ones may have changed places; not many, since a write gives a new time to one.
/// Beyond a number that no server produces, places count.
fn equal_lists(left: &[Value], right: &[Value]) -> bool {
    const SEARCHED_MAX: usize = 100;
    let in_place = || left.iter().zip(right).all(|(left, right)| equal_entries(left, right));
    let anywhere = || left.iter().all(|left| right.iter().any(|right| equal_entries(left, right)));
    left.len() == right.len() && (in_place() || (left.len() <= SEARCHED_MAX && anywhere()))
}

fn equal_entries(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return false };
    let covered = |left: &Object, right: &Object| {
        left.iter().all(|(name, value)| name == "time" || right.get(name).is_some_and(|other| equal(value, other)))
    };
    covered(left, right) && covered(right, left)
}
