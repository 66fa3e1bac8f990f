//! How server-side apply divides a value: leaves that are owned as a whole, objects and maps owned member by member,
//! lists whose items have an identity (AS-142).

use api_schema::{Field, ListType, Shape, Type};
use serde_json::Value;

use super::Object;

/// What a value is to server-side apply.
#[derive(Debug, Clone, Copy)]
pub(super) enum Typed {
    Scalar(&'static Shape),
    Struct { ty: &'static Type, atomic: bool },
    Map { values: &'static Shape, atomic: bool },
    List { items: &'static Shape, kind: &'static ListType },
}

impl Typed {
    pub(super) fn root(ty: &'static Type) -> Self {
        Self::Struct { ty, atomic: false }
    }

    pub(super) fn of_field(field: &'static Field) -> Self {
        Self::of_shape(&field.shape, &field.list)
    }

    /// The type of list items and map values.
    pub(super) fn of_element(shape: &'static Shape) -> Self {
        let kind = if matches!(shape, Shape::List(_)) { &ListType::Atomic } else { &ListType::Granular };
        Self::of_shape(shape, kind)
    }

    fn of_shape(shape: &'static Shape, kind: &'static ListType) -> Self {
        let atomic = *kind == ListType::Atomic;
        match shape {
            Shape::Struct(ty) => Self::Struct { ty, atomic: atomic || ty.atomic },
            Shape::Map(values) => Self::Map { values, atomic },
            Shape::List(items) => Self::List { items, kind },
            scalar => Self::Scalar(scalar),
        }
    }

    /// The type of a member, `None` if there is no such member.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Struct { ty, .. } => ty.field(name).map(Self::of_field),
            Self::Map { values, .. } => Some(Self::of_element(values)),
            _ => None,
        }
    }

    /// Whether the member is one that the type declares, and not a key of a map.
    pub(super) fn declares(self, name: &str) -> bool {
        matches!(self, Self::Struct { ty, .. } if ty.field(name).is_some())
    }
}

/// An object of this type as the API shows it when nothing is set: what a create is compared with.
pub(super) fn empty(ty: &'static Type) -> Value {
    let fields = ty.fields.iter().filter(|field| field.always);
    Value::Object(fields.map(|field| (field.json.to_owned(), zero(field))).collect())
}

fn zero(field: &'static Field) -> Value {
    if field.pointer {
        return Value::Null;
    }
    match &field.shape {
        Shape::Struct(ty) => empty(ty),
        Shape::String | Shape::Quantity => Value::from(""),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => Value::from(0),
        Shape::Bool => Value::from(false),
        Shape::List(_) if field.empty_list => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

/// Equality as upstream has it: `1` and `1.0` are the same. Objects that were encoded in the same order, as canonical
/// ones are, compare without a lookup.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => equal_objects(left, right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

fn equal_objects(left: &Object, right: &Object) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|((name, value), (other_name, other))| {
            if name == other_name {
                equal(value, other)
            } else {
                right.get(name).is_some_and(|other| equal(value, other))
            }
        })
}
