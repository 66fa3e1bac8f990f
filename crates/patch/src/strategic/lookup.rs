//! What the schema says about a member that both the live object and the patch have.
//!
//! Upstream finds it by reflection on Go types (`PatchMetaFromStruct`), and its errors speak of those.

use api_schema::{Field, Shape, Type};

use crate::error::PatchError;

/// The type of the object that is being merged.
#[derive(Debug, Clone, Copy)]
pub(super) enum Schema {
    Struct {
        ty: &'static Type,
        pointer: bool,
    },
    /// Something without declared members, by Go's name for its kind.
    Other(&'static str),
}

impl Schema {
    pub(super) fn root(ty: &'static Type) -> Self {
        Self::Struct { ty, pointer: false }
    }

    /// The schema of a member's value.
    pub(super) fn of(field: &'static Field) -> Self {
        Self::of_shape(&field.shape, field.pointer)
    }

    fn of_shape(shape: &'static Shape, pointer: bool) -> Self {
        match shape {
            Shape::Struct(ty) => Self::Struct { ty, pointer },
            Shape::Map(_) => Self::Other("map"),
            Shape::List(_) | Shape::Bytes => Self::Other("slice"),
            Shape::Int32 => Self::Other("int32"),
            Shape::Int64 => Self::Other("int64"),
            Shape::Bool => Self::Other("bool"),
            Shape::String => Self::Other("string"),
            Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString | Shape::Json => {
                Self::Other("struct")
            }
        }
    }

    pub(super) fn field(self, name: &str) -> Result<&'static Field, PatchError> {
        match self {
            Self::Struct { ty, .. } => ty
                .field(name)
                .or_else(|| ty.fields.iter().find(|field| field.json.eq_ignore_ascii_case(name)))
                .ok_or_else(|| {
                    let ty = ty.name;
                    PatchError::internal(format!(
                        "unable to find api field in struct {ty} for the json field \"{name}\""
                    ))
                }),
            Self::Other(kind) => Err(PatchError::internal(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    /// A member that must be a list, and the schema of its items.
    pub(super) fn list(self, name: &str) -> Result<(&'static Field, Self), PatchError> {
        let field = self.field(name)?;
        match &field.shape {
            Shape::List(items) if matches!(**items, Shape::List(_)) => {
                Err(PatchError::internal("unexpected slice of slice"))
            }
            Shape::List(items) => Ok((field, Self::of_shape(items, false))),
            _ if field.pointer => Ok((field, Self::of(field))),
            _ => {
                let kind = self.kind();
                Err(PatchError::internal(format!("expected slice or array type, but got: {kind}")))
            }
        }
    }

    /// Go's name for the kind.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Struct { pointer: true, .. } => "ptr",
            Self::Struct { pointer: false, .. } => "struct",
            Self::Other(kind) => kind,
        }
    }
}
