//! Selectors: which objects a query or a `LabelSelector` means.
//!
//! [`label`] decides whether labels match; [`parse`] reads the label selectors of query strings (AS-93); [`field`]
//! reads field selectors (AS-94); [`validate`](fn@validate) checks `LabelSelector` fields of objects (JA-V32).

pub mod field;
pub mod label;
pub mod parse;
mod validate;

pub use field::FieldSelector;
pub use label::{Operator, Requirement, Selector};
pub use validate::{Tolerance, has_invalid_label_value, validate, validate_requirement, value};
