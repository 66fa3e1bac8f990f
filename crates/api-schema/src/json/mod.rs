//! JSON bodies to canonical values and back, with the behaviour and the error texts of Go's decoder as Kubernetes
//! uses it (`sigs.k8s.io/json`).
//!
//! A canonical value has its members in the API's order, no member that Go would leave out, every member that Go
//! always prints, sorted map keys, and times, quantities and base64 in normal form. Whatever decodes once, decodes to
//! the same value again.
//!
//! Unknown and duplicate members never fail a decoding: they are listed, and the caller ignores, warns or refuses
//! according to `fieldValidation` (AS-155).

mod canonical;
mod convert;
mod decode;
mod encode;
mod error;
mod lexer;
mod merge;
mod scalar;
mod syntax;
mod times;
mod type_meta;

use serde_json::Value;

pub(crate) use canonical::{Fate, assemble, fate, zero_value};
pub use convert::{convert, convert_unstructured};
pub use decode::{decode, parse, parse_noting_duplicates};
pub use encode::{Raw, encode, encode_pretty, encode_stamped, encode_stamped_with};
pub(crate) use encode::{encode_number, encode_string};
pub use error::{DecodeError, StrictError};
pub use scalar::kind_of;
pub use syntax::check as check_syntax;
pub use times::for_each_time;
pub use type_meta::{summary, type_meta};

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Unknown and duplicate members in the order of the document, at most 100, each once.
    pub strict: Vec<StrictError>,
}

/// How deep a value of unknown shape may nest. Go allows 10,000 levels; ours are limited because dropping and encoding
/// a value recurse. Nothing legitimate comes near.
pub(crate) const DEPTH_MAX: usize = 256;
