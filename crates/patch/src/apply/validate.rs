//! Whether an applied configuration fits the schema (AS-130), in upstream's words. Follows `typed/validate.go`.
//!
//! It is stricter than decoding: no unknown fields, and no two list items with the same identity.

use std::collections::HashSet;

use api_schema::{ListType, Shape, Type};
use serde_json::Value;

use super::typed::Typed;
use super::{Object, element};
use crate::go_format::{plain, syntax, type_name};

/// All misfits as one text: `.spec.foo: field not declared in schema`.
pub(super) fn validate(ty: &'static Type, object: &Value) -> Result<(), String> {
    let mut misfits = Misfits { path: String::new(), found: Vec::new() };
    misfits.value(object, Typed::root(ty));
    match misfits.found.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

struct Misfits {
    path: String,
    found: Vec<String>,
}

impl Misfits {
    fn value(&mut self, value: &Value, typed: Typed) {
        match (typed, value) {
            (_, Value::Null) => {}
            (Typed::Scalar(shape), value) => self.scalar(value, shape),
            (Typed::Struct { .. } | Typed::Map { .. }, Value::Object(members)) => self.members(members, typed),
            (Typed::Struct { .. } | Typed::Map { .. }, value) => {
                self.add(format!("expected map, got &{{{}}}", plain(value)));
            }
            (Typed::List { items, kind }, Value::Array(values)) => self.items(values, items, kind),
            (Typed::List { .. }, value) => self.add(format!("expected list, got &{{{}}}", plain(value))),
        }
    }

    fn scalar(&mut self, value: &Value, shape: &Shape) {
        match (shape, value) {
            (Shape::Json, _)
            | (Shape::String | Shape::Bytes, Value::String(_))
            | (Shape::Int32 | Shape::Int64, Value::Number(_))
            | (Shape::Bool, Value::Bool(_)) => {}
            (Shape::String | Shape::Bytes, value) => {
                self.add(format!("expected string, got &value.valueUnstructured{{Value:{}}}", syntax(value)));
            }
            (Shape::Int32 | Shape::Int64, value) => {
                self.add(format!("expected numeric (int or float), got {}", type_name(value)));
            }
            (Shape::Bool, value) => self.add(format!("expected boolean, got &{{{}}}", plain(value))),
            // Times, quantities and the like are scalars of any kind here; decoding looks closer.
            (_, value @ (Value::Object(_) | Value::Array(_))) => {
                self.add(format!("expected any scalar, got &{{{}}}", plain(value)));
            }
            _ => {}
        }
    }

    /// Members after an undeclared one are not looked at, as upstream's walk stops there.
    fn members(&mut self, members: &Object, typed: Typed) {
        for (name, value) in members {
            let length = self.path.len();
            self.path.push('.');
            self.path.push_str(name);
            match typed.member(name) {
                Some(typed) => self.value(value, typed),
                None => self.add("field not declared in schema".into()),
            }
            self.path.truncate(length);
            if typed.member(name).is_none() {
                return;
            }
        }
    }

    fn items(&mut self, values: &[Value], items: &'static Shape, kind: &ListType) {
        let mut seen = HashSet::with_capacity(values.len());
        for (at, item) in values.iter().enumerate() {
            let step = match kind {
                ListType::Atomic | ListType::Granular => format!("[{at}]"),
                ListType::Set | ListType::Map(_) => match element::of_item(item, kind, items) {
                    Ok(step) => element::display(&step),
                    Err(error) => {
                        self.add(format!("element {at}: {error}"));
                        return;
                    }
                },
            };
            if !seen.insert(step.clone()) {
                self.add(format!("duplicate entries for key {step}"));
            }
            let length = self.path.len();
            self.path.push_str(&step);
            self.value(item, Typed::of_element(items));
            self.path.truncate(length);
        }
    }

    fn add(&mut self, misfit: String) {
        if self.path.is_empty() {
            self.found.push(misfit);
        } else {
            self.found.push(format!("{}: {misfit}", self.path));
        }
    }
}
