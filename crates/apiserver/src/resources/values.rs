//! Small steps through objects that should have a known shape but are never trusted to.
//!
//! Reading: absent, `null` and mistyped members read as empty. Writing: members are added at the end; canonical order is
//! restored when an object is encoded.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The string at a JSON pointer, or `""`.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a JSON pointer, or 0.
pub(crate) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The boolean at a JSON pointer, or `false`.
pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// The items at a JSON pointer, or none.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The strings at a JSON pointer, or none.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    items(object, pointer).iter().filter_map(Value::as_str).collect()
}

/// The members at a JSON pointer, or none.
pub(crate) fn members<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// The value at a JSON pointer unless it is `null`.
pub(crate) fn present<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

/// The time at a JSON pointer; absent, `null` and unreadable times are none.
pub(crate) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// `value`, or `otherwise` when it is empty.
pub(crate) fn or<'a>(value: &'a str, otherwise: &'a str) -> &'a str {
    if value.is_empty() { otherwise } else { value }
}

/// The first condition of this type is True; later ones of the same type do not count (JA-T2).
pub(crate) fn condition_is_true(object: &Value, condition_type: &str) -> bool {
    items(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == condition_type)
        .is_some_and(|condition| text(condition, "/status") == "True")
}

/// The object in a member, made when there is none; `None` when something else is there, or `value` is no object.
pub(crate) fn object_mut<'a>(value: &'a mut Value, member: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = value.as_object_mut()?.entry(member).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

/// Sets a member of an object.
pub(crate) fn set(value: &mut Value, member: &str, to: impl Into<Value>) {
    if let Some(object) = value.as_object_mut() {
        object.insert(member.to_owned(), to.into());
    }
}

/// Takes a member away.
pub(crate) fn remove(value: &mut Value, member: &str) -> Option<Value> {
    value.as_object_mut()?.shift_remove(member)
}

/// Makes a member of `to` what it is in `from`, absent included.
pub(crate) fn copy(to: &mut Value, from: &Value, member: &str) {
    match from.get(member) {
        Some(value) => set(to, member, value.clone()),
        None => _ = remove(to, member),
    }
}
