//! Small steps through JSON objects that should have a known shape but are never trusted to.
//!
//! Defaulting and the strategies get what a client sent after decoding; a value of the wrong type is left alone here
//! and refused elsewhere, so nothing in this module fails.

use serde_json::{Map, Value};

/// Whether a field counts as unset: absent, or null, which Go decodes to the same thing.
pub(crate) fn is_unset(object: &Map<String, Value>, key: &str) -> bool {
    object.get(key).is_none_or(Value::is_null)
}

/// Sets a field that is unset.
pub(crate) fn set_default(object: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if is_unset(object, key) {
        object.insert(key.to_owned(), value.into());
    }
}

/// The object in a field, made if the field is unset; `None` if something else is there.
pub(crate) fn object_or_new<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    set_default(object, key, Map::new());
    object.get_mut(key)?.as_object_mut()
}

/// The value at the end of a chain of fields.
pub(crate) fn at<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// The same, to change it.
pub(crate) fn at_mut<'a>(value: &'a mut Value, keys: &[&str]) -> Option<&'a mut Value> {
    keys.iter().try_fold(value, |value, key| value.get_mut(key)).filter(|value| !value.is_null())
}

/// The items of a list at the end of a chain of fields, none if there is no list.
pub(crate) fn items_mut<'a>(value: &'a mut Value, keys: &[&str]) -> impl Iterator<Item = &'a mut Value> {
    at_mut(value, keys).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Puts a copy of `from`'s field into `to`, or takes the field away if `from` has none.
pub(crate) fn copy_field(to: &mut Value, from: &Value, key: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(key) {
        Some(value) => _ = to.insert(key.to_owned(), value.clone()),
        None => _ = to.shift_remove(key),
    }
}

/// Takes a field away.
pub(crate) fn remove_field(value: &mut Value, key: &str) {
    if let Some(object) = value.as_object_mut() {
        object.shift_remove(key);
    }
}
