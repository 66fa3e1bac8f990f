//! The annotation in which client-side `kubectl apply` keeps its last configuration, and what it means when the same
//! object is applied server-side (AS-140). Follows `lastappliedmanager.go` and `lastappliedupdater.go`.

use api_schema::Type;
use serde_json::Value;

use super::Object;
use super::compare::compare;
use super::extract::field_set;
use super::field_set::FieldSet;
use super::validate::validate;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The limit on all annotations together (AS-79).
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// The fields that client-side apply set and that still have the value it set. `None` without a usable annotation.
pub(super) fn owned_fields(ty: &'static Type, live: &Value, api_version: &str) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    validate(ty, live).ok()?;
    validate(ty, &last).ok()?;
    let difference = compare(ty, &last, live, &[]).ok()?;
    let mut fields = field_set(ty, &last);
    fields.subtract(&difference.changed);
    fields.subtract(&difference.removed);
    Some(fields)
}

/// Puts the applied configuration into the annotation, if the object has one.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let text = encode_without_annotation(config);
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), text.into());
        if size(annotations) > ANNOTATION_BYTES_MAX {
            annotations.shift_remove(ANNOTATION);
        }
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    Some(text).filter(|text| !text.is_empty())
}

fn size(annotations: &Object) -> usize {
    annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum()
}

/// As Go's encoder writes it: members sorted, HTML-sensitive characters escaped, a line feed at the end.
fn encode_without_annotation(config: &Value) -> String {
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(ANNOTATION);
    }
    config.sort_all_objects();
    let text = config.to_string();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026") + "\n"
}
