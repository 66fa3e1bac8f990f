//! An object without the fields of a set. Follows `typed/remove.go`.

use api_schema::{ListType, Type};
use serde_json::Value;

use super::field_set::{FieldSet, children, is_member};
use super::typed::Typed;
use super::{Object, element};

/// Removes every member of the set. What loses all its members becomes null, which decodes as absent.
pub(super) fn remove(ty: &'static Type, object: &Value, set: &FieldSet) -> Value {
    without(object, set.root(), Typed::root(ty))
}

fn without(value: &Value, set: &Object, typed: Typed) -> Value {
    match (typed, value) {
        (Typed::Scalar(_), value) => value.clone(),
        (Typed::Struct { atomic: false, .. } | Typed::Map { atomic: false, .. }, Value::Object(members)) => {
            let kept: Object = members
                .iter()
                .filter_map(|(name, value)| {
                    let value = child(value, set, &element::field(name), typed.member(name))?;
                    Some((name.clone(), value))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Typed::List { items, kind: kind @ (ListType::Set | ListType::Map(_)) }, Value::Array(values)) => {
            let kept: Vec<Value> = values
                .iter()
                .filter_map(|item| match element::of_item(item, kind, items) {
                    Ok(step) => child(item, set, &step, Some(Typed::of_element(items))),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => Value::Null,
    }
}

/// What is left of a child, `None` if it goes.
fn child(value: &Value, set: &Object, step: &str, typed: Option<Typed>) -> Option<Value> {
    let Some(Value::Object(node)) = set.get(step) else { return Some(value.clone()) };
    if is_member(node) {
        return None;
    }
    match typed {
        Some(typed) if children(node).next().is_some() => Some(without(value, node, typed)),
        _ => Some(value.clone()),
    }
}
