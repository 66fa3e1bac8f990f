//! What can be wrong with a body, worded as upstream words it, and the path to where it is wrong.

use std::fmt;

use crate::go;
use crate::model::{Field, Type};

/// A body that is not JSON, or not of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON: `invalid character 'x' looking for beginning of value`.
    #[error("{0}")]
    Syntax(String),
    /// A value of the wrong type: `json: cannot unmarshal string into Go struct field …`.
    #[error("{0}")]
    Type(String),
    /// A text that is no time, quantity or base64.
    #[error("{0}")]
    Value(String),
}

/// A member that the type does not have, or has only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrictError {
    Unknown(String),
    Duplicate(String),
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictError::Unknown(path) => write!(f, "unknown field {}", go::quote(path)),
            StrictError::Duplicate(path) => write!(f, "duplicate field {}", go::quote(path)),
        }
    }
}

/// More than this many are not collected, so that a hostile body cannot make the answer huge; as upstream.
const STRICT_ERRORS_MAX: usize = 100;

/// Adds a strict error unless it is known or there are too many.
pub(crate) fn push_strict(errors: &mut Vec<StrictError>, error: StrictError) {
    if errors.len() < STRICT_ERRORS_MAX && !errors.contains(&error) {
        errors.push(error);
    }
}

/// Where in the document we are: a list on the stack, so that following it costs nothing until it is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a Type, &'a Field),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(crate) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub(crate) fn field(&'a self, ty: &'a Type, field: &'a Field) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(ty, field) }
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// The path of a member below this one as strict errors print it: `spec.containers[0].bar`.
    pub(crate) fn member(&self, name: &str) -> String {
        let mut out = String::new();
        self.write(&mut out);
        push_member(&mut out, name);
        out
    }

    fn write(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        match self.step {
            Step::Root => {}
            Step::Field(_, field) => push_member(out, field.json),
            Step::Key(key) => push_member(out, key),
            Step::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }

    /// `json: cannot unmarshal <found> into …` at this place.
    pub(crate) fn cannot_unmarshal(&self, found: &str, go_type: &str) -> DecodeError {
        let mut names = Vec::new();
        let mut struct_name = None;
        let mut next = Some(self);
        while let Some(path) = next {
            if let Step::Field(ty, field) = path.step {
                struct_name.get_or_insert(ty.name);
                names.push(field.json);
                names.extend(field.embed.map(|embed| embed.name));
            }
            next = path.parent;
        }
        names.reverse();
        DecodeError::Type(match struct_name {
            Some(name) => {
                let names = names.join(".");
                format!("json: cannot unmarshal {found} into Go struct field {name}.{names} of type {go_type}")
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {go_type}"),
        })
    }
}

fn push_member(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
}
