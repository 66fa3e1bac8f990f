//! Members that a document gives twice. Go decodes the second into the variable that holds the first, so objects and
//! maps merge, items of lists merge by position, and a null resets only what can be nil.

use serde_json::Value;

use crate::model::Shape;

/// The value after decoding `later`, verbatim, over `earlier`.
pub(super) fn overlay(shape: &Shape, pointer: bool, earlier: Value, later: Value) -> Value {
    match (shape, earlier, later) {
        (_, earlier, Value::Null) => {
            let keeps = match shape {
                Shape::List(_) | Shape::Map(_) | Shape::Bytes | Shape::Json => false,
                Shape::Time | Shape::MicroTime | Shape::Quantity => false,
                _ => !pointer,
            };
            if keeps { earlier } else { Value::Null }
        }
        (Shape::Struct(ty), Value::Object(mut members), Value::Object(later)) => {
            for (name, value) in later {
                let Some(field) = ty.field(&name) else { continue };
                let earlier = members.remove(&name).unwrap_or_default();
                members.insert(name, overlay(&field.shape, field.pointer, earlier, value));
            }
            Value::Object(members)
        }
        (Shape::Map(_), Value::Object(mut members), Value::Object(later)) => {
            members.extend(later);
            Value::Object(members)
        }
        (Shape::List(element), Value::Array(earlier), Value::Array(later)) => {
            let mut earlier = earlier.into_iter();
            let items = later.into_iter().map(|item| {
                let before = earlier.next().unwrap_or_default();
                overlay(element, false, before, item)
            });
            Value::Array(items.collect())
        }
        (_, _, later) => later,
    }
}
