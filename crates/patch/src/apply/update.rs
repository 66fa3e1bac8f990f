//! Ownership after a write that is not an apply: whoever changes a field owns it (AS-134).

use std::borrow::Cow;

use api_schema::Type;
use serde_json::{Value, json};

use super::Manager;
use super::compare::{Comparison, compare, walk};
use super::field_set::FieldSet;
use super::managers::{self, Entry, NEVER_OWNED, Operation};
use super::trace::Trace;
use super::typed::{self, equal};

/// Brings `metadata.managedFields` of `new` up to date with what differs from `live` (`None` on create).
///
/// Call it with the decoded and defaulted new object, before admission and strategy change it (AS-86). The live
/// entries are the base; entries that a client sent to the main endpoint take their place, and an empty list or
/// `[{}]` forgets them all (AS-136), so a decoder must not drop that empty list: see [`resets_managed_fields`].
///
/// Never fails, like upstream's `UpdateNoErrors`: an object whose list items cannot be told apart is left without
/// `managedFields`.
pub fn update_managed_fields(ty: &'static Type, live: Option<&Value>, new: &mut Value, manager: &Manager<'_>) {
    let given = take(new);
    let entries = base(live, given, manager.subresource);
    if entries.is_empty() && live.is_some() {
        return;
    }
    let entries = record(ty, &or_empty(ty, live), new, entries, manager);
    managers::encode(new, entries.unwrap_or_default());
}

/// Whether an object, as a client sent it, asks to forget who owns what (AS-136).
pub fn resets_managed_fields(object: &Value) -> bool {
    managers::of(object).is_some_and(is_reset)
}

fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.values().all(Value::is_null),
        _ => false,
    }
}

/// Takes the entries out of an object, since they must not own themselves.
fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.shift_remove("managedFields")
}

/// The entries to start from. A list that does not read falls back to the live one, which is always readable.
fn base(live: Option<&Value>, given: Option<Value>, subresource: &str) -> Vec<Entry> {
    let stored = live.and_then(managers::of);
    match (given, stored) {
        (Some(given), Some(stored)) if equal(&given, stored) => managers::decode(given, true).unwrap_or_default(),
        (Some(given), _) if subresource.is_empty() && is_reset(&given) => Vec::new(),
        (Some(given), stored) if subresource.is_empty() => match managers::decode(given, false) {
            Ok(entries) if !entries.is_empty() => entries,
            _ => decode_stored(stored),
        },
        (_, stored) => decode_stored(stored),
    }
}

fn decode_stored(stored: Option<&Value>) -> Vec<Entry> {
    stored.and_then(|stored| managers::decode(stored.clone(), true).ok()).unwrap_or_default()
}

/// The entries after `manager` turned `live` into `new`.
pub(super) fn record(
    ty: &'static Type,
    live: &Value,
    new: &Value,
    mut entries: Vec<Entry>,
    manager: &Manager<'_>,
) -> Result<Vec<Entry>, String> {
    let difference = compare(ty, live, new, &not_owned_through(manager))?;
    settle(&mut entries, difference, manager);
    Ok(managers::cap(entries))
}

/// Takes from each manager what it lost, and gives what changed to the one who changed it.
fn settle(entries: &mut Vec<Entry>, difference: Comparison, manager: &Manager<'_>) {
    let mut own = Entry::new(manager, Operation::Update, FieldSet::new());
    for entry in entries.iter_mut().filter(|entry| entry.api_version == manager.api_version) {
        if !entry.is_same_manager(&own) {
            entry.fields.subtract(&difference.changed);
        }
        entry.fields.subtract(&difference.removed);
    }
    if !difference.changed.is_empty() {
        if let Some(at) = entries.iter().position(|entry| entry.is_same_manager(&own)) {
            own = entries.swap_remove(at);
        }
        if own.fields.union(difference.changed) {
            own.fields.sort();
        }
        own.time = Some(manager.now.to_owned());
        entries.push(own);
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// What a write changed, as far as anybody can own it.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference(Option<Comparison>);

impl Difference {
    /// For objects that both come without `managedFields`; `None` for one that was not there before.
    pub fn between(ty: &'static Type, live: Option<&Value>, new: &Value, manager: &Manager<'_>) -> Self {
        Self(compare(ty, &or_empty(ty, live), new, &not_owned_through(manager)).ok())
    }
}

/// Appends bytes that only equal differences have in common, and says whether there is a difference at all.
///
/// An error is about list items that cannot be told apart; what was appended means nothing then.
pub fn trace(
    ty: &'static Type,
    live: Option<&Value>,
    new: &Value,
    manager: &Manager<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, String> {
    let before = out.len();
    walk(ty, &or_empty(ty, live), new, &not_owned_through(manager), &mut Trace::on(out))?;
    Ok(out.len() > before)
}

/// What a write is compared with.
fn or_empty<'v>(ty: &'static Type, live: Option<&'v Value>) -> Cow<'v, Value> {
    live.map_or_else(|| Cow::Owned(typed::empty(ty)), Cow::Borrowed)
}

/// `managedFields` after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The list as JSON; `None` if nobody owns anything.
    pub managed_fields: Option<Vec<u8>>,
    /// Whether a manager came, went, gained or lost a field; a new time alone does not count (AS-83).
    pub differs: bool,
}

/// What [`update_managed_fields`] does to a list that the server has stored and the writer did not name, on bytes: the
/// list is most of what a small write would otherwise have to read and write.
pub fn record_on_bytes(stored: &[u8], difference: &Difference, manager: &Manager<'_>) -> Recorded {
    let list: Value = serde_json::from_slice(stored).unwrap_or_default();
    let before = managers::decode(list.clone(), true).unwrap_or_default();
    let mut object = json!({"metadata": {}});
    if let Some(comparison) = &difference.0 {
        let mut entries = before;
        settle(&mut entries, comparison.clone(), manager);
        managers::encode(&mut object, managers::cap(entries));
    }
    let after = managers::of(&object);
    Recorded {
        managed_fields: after.map(|list| {
            let mut bytes = Vec::with_capacity(stored.len() + 128);
            api_schema::json::encode(list, &mut bytes);
            bytes
        }),
        differs: !after.is_some_and(|after| managers::equal_lists_but_for_times(after, &list)),
    }
}

/// Fields that are nobody's, or that this endpoint resets (AS-133).
pub(super) fn not_owned_through<'a>(manager: &Manager<'a>) -> Vec<&'a [&'a str]> {
    NEVER_OWNED.iter().chain(manager.reset_fields).copied().collect()
}
