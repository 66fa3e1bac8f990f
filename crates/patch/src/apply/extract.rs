//! The set of all fields that an object mentions: what an applied configuration owns. Follows `typed/tofieldset.go`.

use std::collections::HashSet;

use api_schema::{ListType, Shape, Type};
use serde_json::Value;

use super::field_set::{FieldSet, attach, children, is_member};
use super::typed::Typed;
use super::{Object, element};

/// Every leaf and every list item of the object.
pub(super) fn field_set(ty: &'static Type, object: &Value) -> FieldSet {
    let mut set = Object::new();
    below(object, Typed::root(ty), &mut set);
    FieldSet::trusted(set)
}

/// The set with every declared field on the way to a member as a member too, which it usually is not:
/// `.spec.a` adds `.spec`, but `.data.a` of a map of its own kind does not add what is a key.
pub(super) fn with_declared_parents(set: &FieldSet, ty: &'static Type) -> FieldSet {
    FieldSet::trusted(declare(set.root(), Some(Typed::root(ty))))
}

/// Collects what is below a value; true if the value itself is a leaf.
fn below(value: &Value, typed: Typed, set: &mut Object) -> bool {
    match (typed, value) {
        (Typed::Scalar(_) | Typed::Struct { atomic: true, .. } | Typed::Map { atomic: true, .. }, _) => true,
        (Typed::List { kind: ListType::Atomic | ListType::Granular, .. }, _) => true,
        (Typed::Struct { .. } | Typed::Map { .. }, Value::Object(members)) => {
            for (name, value) in members {
                member(name, value, typed, set);
            }
            false
        }
        (Typed::List { items, kind }, Value::Array(values)) => {
            list(values, items, kind, set);
            false
        }
        _ => false,
    }
}

fn member(name: &str, value: &Value, typed: Typed, set: &mut Object) {
    let Some(member) = typed.member(name) else { return };
    let mut inside = Object::new();
    let leaf = below(value, member, &mut inside);
    let empty = value.is_null() || value.as_object().is_some_and(Object::is_empty);
    attach(set, element::field(name), inside, leaf || empty || !typed.declares(name));
}

fn list(values: &[Value], items: &'static Shape, kind: &ListType, set: &mut Object) {
    let steps: Vec<(String, &Value)> =
        values.iter().filter_map(|item| Some((element::of_item(item, kind, items).ok()?, item))).collect();
    let mut seen = HashSet::new();
    let repeated: HashSet<&str> =
        steps.iter().map(|(step, _)| step.as_str()).filter(|step| !seen.insert(*step)).collect();
    for (step, item) in &steps {
        let mut inside = Object::new();
        // Items that share an identity are owned together, not field by field.
        if !repeated.contains(step.as_str()) {
            below(item, Typed::of_element(items), &mut inside);
        }
        attach(set, step.clone(), inside, true);
    }
}

fn declare(node: &Object, typed: Option<Typed>) -> Object {
    let mut out = Object::new();
    for (step, child) in children(node) {
        let name = step.strip_prefix("f:");
        let (child_type, declared) = match (typed, name) {
            (Some(typed @ (Typed::Struct { .. } | Typed::Map { .. })), Some(name)) => {
                (typed.member(name), typed.declares(name))
            }
            (Some(Typed::List { items, .. }), None) if step.starts_with("k:") => {
                (Some(Typed::of_element(items)), false)
            }
            _ => (None, false),
        };
        attach(&mut out, step.clone(), declare(child, child_type), declared || is_member(child));
    }
    out
}
