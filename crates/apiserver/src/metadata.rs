//! The metadata that only the server writes (AS-72…AS-76), on canonical values.

use api_schema::registry;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::{Deserialize as _, de::value::MapDeserializer};
use serde_json::{Map, Value, json};

use crate::times;

/// The members that a client cannot set on create (AS-74).
const SYSTEM_MEMBERS: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// `metadata` of an object, made when missing.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("made an object above")
}

pub fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object["metadata"][member].as_str().unwrap_or_default()
}

/// Typed metadata. managedFields are left out: the server writes them itself, and they are most of the bytes.
pub fn typed(object: &Value) -> Result<ObjectMeta, serde_json::Error> {
    let members = || object["metadata"].as_object().into_iter().flatten().filter(|(name, _)| *name != "managedFields");
    let read = ObjectMeta::deserialize(MapDeserializer::new(members().map(|(name, value)| (name.as_str(), value))));
    let (Err(_), Some(ty)) = (&read, registry().get("ObjectMeta")) else { return read };
    let mut metadata: Value = members().map(|(name, value)| (name.clone(), value.clone())).collect();
    if times::bring_within_range(ty, &mut metadata) { ObjectMeta::deserialize(&metadata) } else { read }
}

/// Typed metadata with managedFields, but without the fields in them: who manages is checked, what is not.
pub fn typed_with_managers(object: &Value) -> Result<ObjectMeta, serde_json::Error> {
    let mut typed = typed(object)?;
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |entry: &Value, member: &str| entry[member].as_str().map(str::to_owned);
    let entries = entries.map(|entry| ManagedFieldsEntry {
        manager: text(entry, "manager"),
        operation: text(entry, "operation"),
        api_version: text(entry, "apiVersion"),
        fields_type: text(entry, "fieldsType"),
        subresource: text(entry, "subresource"),
        ..ManagedFieldsEntry::default()
    });
    typed.managed_fields = Some(entries.collect());
    Ok(typed)
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whole seconds in UTC, as `metav1.Time` prints (AS-27).
pub fn time(now: Timestamp) -> Value {
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    json!(seconds.to_string())
}

/// Drops what a client may not choose.
pub fn clear_system_members(object: &mut Value) {
    let metadata = of(object);
    for member in SYSTEM_MEMBERS {
        metadata.shift_remove(member);
    }
}

/// Drops what a client may not choose and sets what the server does.
pub fn stamp_new(object: &mut Value, uid: &str, now: Timestamp) {
    clear_system_members(object);
    let metadata = of(object);
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), time(now));
}

/// Puts back on update what only the server changes (AS-75), the version read included.
pub fn restore(new: &mut Value, old: &Value) {
    batch_types::meta::restore_system_fields(new, old);
    let version = old["metadata"]["resourceVersion"].clone();
    let metadata = of(new);
    metadata.shift_remove("selfLink");
    metadata.insert("resourceVersion".to_owned(), version);
}

/// Generation + 1 for kinds that have one.
pub fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|&generation| generation > 0) {
        of(object).insert("generation".to_owned(), json!(generation + 1));
    }
}

pub fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let metadata = of(object);
    if finalizers.is_empty() {
        metadata.shift_remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}
