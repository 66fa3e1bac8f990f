//! Single values: what each shape accepts, and what it becomes.
//!
//! Shared by the two ways in (bytes and values), so that both accept the same and complain alike.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::{DecodeError, Path};
use crate::go;
use crate::model::Shape;
use crate::quantity::Quantity;
use crate::time::{self, Precision, Timestamp};

/// What stands in the document.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    Null,
    Bool(bool),
    /// The literal as written.
    Number(&'a str),
    String(Cow<'a, str>),
    Array,
    Object,
}

/// Why a value was refused.
///
/// Go's decoder remembers the first type error and goes on, but stops at errors that a type's own `UnmarshalJSON`
/// returns. Which error is reported when there are several depends on it.
#[derive(Debug)]
pub(crate) enum Refusal {
    Remembered(DecodeError),
    Final(DecodeError),
}

/// The Go type that a place was declared with: `declared` of a field, `depth` lists or maps inside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoType<'a> {
    pub(crate) declared: &'a str,
    pub(crate) depth: usize,
}

impl GoType<'_> {
    pub(crate) fn element(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    pub(crate) fn name(self) -> String {
        go::type_name(self.declared, self.depth)
    }
}

impl Found<'_> {
    /// The kind of value as Go names it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Found::Null => "null",
            Found::Bool(_) => "bool",
            Found::Number(_) => "number",
            Found::String(_) => "string",
            Found::Array => "array",
            Found::Object => "object",
        }
    }
}

/// What `encoding/json` calls a value in `cannot unmarshal … into Go value of type …`.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => Found::Null,
        Value::Bool(value) => Found::Bool(*value),
        Value::Number(_) => Found::Number(""),
        Value::String(_) => Found::String(Cow::Borrowed("")),
        Value::Array(_) => Found::Array,
        Value::Object(_) => Found::Object,
    }
    .kind()
}

/// The canonical value of a scalar shape. `found` is not null: what null means depends on the place.
pub(crate) fn scalar(shape: &Shape, found: Found<'_>, path: &Path<'_>, go_type: GoType<'_>) -> Result<Value, Refusal> {
    match (shape, found) {
        (Shape::String, Found::String(text)) => Ok(Value::String(text.into_owned())),
        (Shape::Int32, Found::Number(literal)) => integer(literal, true, path),
        (Shape::Int64, Found::Number(literal)) => integer(literal, false, path),
        (Shape::Bool, Found::Bool(value)) => Ok(Value::Bool(value)),
        (Shape::Bytes, Found::String(text)) => match normal_base64(text) {
            Ok(text) => Ok(Value::String(text.into_owned())),
            Err(error) => Err(Refusal::Remembered(DecodeError::Value(error))),
        },
        (Shape::Time, found) => timestamp(found, Precision::Seconds, path),
        (Shape::MicroTime, found) => timestamp(found, Precision::Micros, path),
        (Shape::Quantity, found) => quantity(&found),
        (Shape::IntOrString, Found::String(text)) => Ok(Value::String(text.into_owned())),
        (Shape::IntOrString, Found::Number(literal)) => integer(literal, true, path).map_err(finally),
        (Shape::IntOrString, found) => Err(Refusal::Final(path.cannot_unmarshal(found.kind(), "int32"))),
        (_, found) => Err(Refusal::Remembered(path.cannot_unmarshal(found.kind(), &go_type.name()))),
    }
}

/// One of the numbers that Go reads as bytes where it finds a list of them instead of base64. Null is zero.
pub(crate) fn byte(found: &Found<'_>, path: &Path<'_>) -> Result<u8, DecodeError> {
    match found {
        Found::Null => Ok(0),
        Found::Number(literal) => {
            literal.parse().map_err(|_| path.cannot_unmarshal(&format!("number {literal}"), "uint8"))
        }
        found => Err(path.cannot_unmarshal(found.kind(), "uint8")),
    }
}

pub(crate) fn encoded(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

fn finally(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Remembered(error) | Refusal::Final(error) => Refusal::Final(error),
    }
}

/// Go parses the literal as an integer: fractions and exponents are refused even if they are whole numbers.
fn integer(literal: &str, narrow: bool, path: &Path<'_>) -> Result<Value, Refusal> {
    let value = literal.parse::<i64>().ok().filter(|value| !narrow || i32::try_from(*value).is_ok());
    value.map(Value::from).ok_or_else(|| {
        let go_type = if narrow { "int32" } else { "int64" };
        Refusal::Remembered(path.cannot_unmarshal(&format!("number {literal}"), go_type))
    })
}

fn timestamp(found: Found<'_>, precision: Precision, path: &Path<'_>) -> Result<Value, Refusal> {
    let Found::String(text) = found else {
        return Err(Refusal::Final(path.cannot_unmarshal(found.kind(), "string")));
    };
    if time::is_canonical(&text, precision) {
        return Ok(Value::String(text.into_owned()));
    }
    match Timestamp::parse(&text, precision) {
        Ok(Timestamp::ZERO) => Ok(Value::Null),
        Ok(time) => Ok(Value::String(time.format(precision))),
        Err(error) => Err(Refusal::Final(DecodeError::Value(error))),
    }
}

/// Quantities read the text of whatever stands there.
fn quantity(found: &Found<'_>) -> Result<Value, Refusal> {
    let text = match found {
        Found::String(text) => text.trim(),
        Found::Number(literal) => literal,
        // No other JSON value starts like a quantity.
        _ => "{}",
    };
    match Quantity::parse(text) {
        Ok(quantity) => Ok(Value::String(quantity.to_string())),
        Err(error) => Err(Refusal::Final(DecodeError::Value(error.to_string()))),
    }
}

/// Base64 as the encoder would write it. Go's decoder tolerates line breaks and stray bits in the last character.
pub(crate) fn normal_base64(text: Cow<'_, str>) -> Result<Cow<'_, str>, String> {
    if STANDARD.decode(text.as_bytes()).is_ok() {
        return Ok(text);
    }
    match decode_base64(text.as_bytes()) {
        Ok(bytes) => Ok(Cow::Owned(STANDARD.encode(bytes))),
        Err(at) => Err(format!("illegal base64 data at input byte {at}")),
    }
}

/// Decodes like Go's `base64.StdEncoding`; the error is the offset it would report.
fn decode_base64(input: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(input.len() / 4 * 3);
    let mut at = 0;
    loop {
        let mut bits = 0u32;
        let mut count = 0;
        while count < 4 {
            let Some(&byte) = input.get(at) else {
                return if count == 0 { Ok(out) } else { Err(at - count) };
            };
            at += 1;
            match (sextet(byte), byte) {
                (Some(value), _) => {
                    bits = bits << 6 | value;
                    count += 1;
                }
                (None, b'\n' | b'\r') => {}
                (None, b'=') if count >= 2 => return end_of_base64(input, at, bits, count, out),
                _ => return Err(at - 1),
            }
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
}

/// What may follow the first `=`: another one if two are due, line breaks, nothing else.
fn end_of_base64(input: &[u8], mut at: usize, bits: u32, count: usize, mut out: Vec<u8>) -> Result<Vec<u8>, usize> {
    let skip_breaks = |mut at: usize| {
        while matches!(input.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    if count == 2 {
        at = skip_breaks(at);
        match input.get(at) {
            None => return Err(input.len()),
            Some(b'=') => at += 1,
            Some(_) => return Err(at - 1),
        }
    }
    at = skip_breaks(at);
    if at < input.len() {
        return Err(at);
    }
    let bytes = (bits << (6 * (4 - count))).to_be_bytes();
    out.extend_from_slice(&bytes[1..count]);
    Ok(out)
}

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_normalised_or_refused_at_gos_offset() {
        let cases = [
            ("aGVsbG8=", Ok("aGVsbG8=")),
            ("aGVs\nbG8=\n", Ok("aGVsbG8=")),
            ("aGVsbG9=", Ok("aGVsbG8=")),
            ("", Ok("")),
            ("***", Err(0)),
            ("hello!", Err(5)),
            ("aGVsbG8", Err(4)),
            ("a", Err(0)),
            ("aa=", Err(3)),
            ("aa=a", Err(2)),
            ("aaa=a", Err(4)),
            ("=", Err(0)),
        ];
        for (text, expected) in cases {
            let expected = expected.map(str::to_owned).map_err(|at| format!("illegal base64 data at input byte {at}"));
            assert_eq!(normal_base64(Cow::Borrowed(text)).map(Cow::into_owned), expected, "{text}");
        }
    }
}
