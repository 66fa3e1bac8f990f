//! Which members a canonical object has: what Go leaves out when empty and what it always prints (AS-29, JA-R4).

use serde_json::{Map, Value};

use crate::model::{Field, Shape, Type};

/// Go's zero value of a shape as JSON prints it.
pub(crate) fn zero_value(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Bytes => Value::String(String::new()),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => Value::from(0),
        Shape::Bool => Value::Bool(false),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Struct(ty) => Value::Object(zero_struct(ty)),
        Shape::Time | Shape::MicroTime | Shape::Json | Shape::List(_) | Shape::Map(_) => Value::Null,
    }
}

fn zero_struct(ty: &Type) -> Map<String, Value> {
    assemble(ty, 0, std::iter::empty())
}

/// What an `always` field prints when nothing was given.
pub(crate) fn absent_value(field: &Field) -> Value {
    if field.empty_list {
        Value::Array(Vec::new())
    } else if field.pointer {
        Value::Null
    } else {
        zero_value(&field.shape)
    }
}

/// How a field's value ends up in the canonical object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Keep,
    /// Left out. If the field is always printed, its [`absent_value`] takes the place.
    Drop,
}

/// Whether a given value stays. Pointers keep what they point to; of the rest Go's `omitempty` drops the empty ones,
/// and an always printed list or map that is empty prints as if it were absent.
pub(crate) fn fate(field: &Field, value: &Value) -> Fate {
    let drop = match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && !field.empty_list,
        Value::Object(members) => members.is_empty() && matches!(field.shape, Shape::Map(_)),
        _ if field.pointer || field.always => false,
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
    };
    if drop { Fate::Drop } else { Fate::Keep }
}

/// Puts fields given as (position, value) in ascending order of position into an object, with the always printed ones
/// that are missing in between. `given_mask` has a bit for every given position.
pub(crate) fn assemble(
    ty: &Type,
    given_mask: u128,
    given: impl ExactSizeIterator<Item = (usize, Value)>,
) -> Map<String, Value> {
    let mut missing = ty.always_mask() & !given_mask;
    let mut object = Map::with_capacity(given.len() + missing.count_ones() as usize);
    for (at, value) in given {
        // Everything missing below this position.
        while missing.trailing_zeros() < at as u32 {
            insert_absent(ty, &mut missing, &mut object);
        }
        object.insert(ty.fields[at].json.to_owned(), value);
    }
    while missing != 0 {
        insert_absent(ty, &mut missing, &mut object);
    }
    object
}

/// Inserts the lowest missing field and takes it off the mask.
fn insert_absent(ty: &Type, missing: &mut u128, object: &mut Map<String, Value>) {
    let field = &ty.fields[missing.trailing_zeros() as usize];
    object.insert(field.json.to_owned(), absent_value(field));
    *missing &= *missing - 1;
}
