//! Values that are already parsed, such as the result of a patch, to canonical values.
//!
//! Works in place and rebuilds an object only where it is not canonical yet: after a patch nearly all of it is.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Decoded;
use super::canonical::{Fate, absent_value, assemble, fate, zero_value};
use super::error::{DecodeError, Path, StrictError, push_strict};
use super::scalar::{Found, GoType, Refusal, byte, encoded, normal_base64, scalar};
use crate::model::{Shape, Type};

/// Like [`decode`](super::decode) for a value that is already parsed: JSON patches and merge patches, whose result
/// upstream writes as JSON and decodes again. There are no duplicates to find any more.
pub fn convert(ty: &'static Type, value: Value) -> Result<Decoded, DecodeError> {
    run(ty, value, Wording::Json)
}

/// Like [`convert`], with the behaviour of upstream's `FromUnstructured`, which reads the result of strategic merge
/// patches and of apply: other error texts, whole floats are integers, too large integers wrap around, and unknown
/// members are sorted.
pub fn convert_unstructured(ty: &'static Type, value: Value) -> Result<Decoded, DecodeError> {
    let mut decoded = run(ty, value, Wording::Unstructured)?;
    decoded.strict.sort_by_cached_key(ToString::to_string);
    Ok(decoded)
}

/// Makes a value that is known to fit its shape canonical.
pub(super) fn normalise(shape: &Shape, value: &mut Value) {
    let mut converter = Converter::new(Wording::Json);
    // What does not fit cannot occur; it would be reported when the value is read again.
    let _ = converter.value(shape, value, &Path::ROOT, GoType { declared: "", depth: 0 });
}

fn run(ty: &'static Type, mut value: Value, wording: Wording) -> Result<Decoded, DecodeError> {
    let mut converter = Converter::new(wording);
    let shape = Shape::Struct(ty);
    converter.value(&shape, &mut value, &Path::ROOT, GoType { declared: ty.name, depth: 0 })?;
    if let Some(error) = converter.type_error {
        return Err(error);
    }
    if value.is_null() {
        value = zero_value(&shape);
    }
    Ok(Decoded { value, strict: converter.strict })
}

#[derive(Clone, Copy, PartialEq)]
enum Wording {
    Json,
    Unstructured,
}

struct Converter {
    wording: Wording,
    strict: Vec<StrictError>,
    /// The first error of those that do not stop the conversion.
    type_error: Option<DecodeError>,
}

impl Converter {
    fn new(wording: Wording) -> Self {
        Self { wording, strict: Vec::new(), type_error: None }
    }

    /// Makes `value` canonical; null stays null. A value that does not fit becomes null and the error is remembered.
    fn value(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        path: &Path<'_>,
        go_type: GoType<'_>,
    ) -> Result<(), DecodeError> {
        match (shape, &mut *value) {
            (_, Value::Null) | (Shape::String, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => Ok(()),
            (Shape::Json, _) => Ok(()),
            (Shape::Struct(ty), Value::Object(members)) => self.object(ty, members, path),
            (Shape::List(element), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.element(element, item, &path.index(index), go_type.element())?;
                }
                Ok(())
            }
            (Shape::Map(element), Value::Object(members)) => {
                for (key, item) in members.iter_mut() {
                    self.element(element, item, &path.key(key), go_type.element())?;
                }
                if !members.keys().is_sorted() {
                    members.sort_keys();
                }
                Ok(())
            }
            (Shape::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
            (Shape::Int32, Value::Number(number)) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
                Ok(())
            }
            (Shape::Bytes, Value::Array(items)) if self.wording == Wording::Json => {
                let mut bytes = Vec::with_capacity(items.len());
                for item in items {
                    match with_found(item, |found| byte(&found, path)) {
                        Ok(byte) => bytes.push(byte),
                        Err(error) => {
                            self.type_error.get_or_insert(error);
                        }
                    }
                }
                *value = encoded(&bytes);
                Ok(())
            }
            _ if self.wording == Wording::Json => self.scalar(shape, value, path, go_type),
            _ => unstructured_scalar(shape, value, go_type).map_err(DecodeError::Type),
        }
    }

    /// An item of a list or map, which is never null.
    fn element(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        path: &Path<'_>,
        go_type: GoType<'_>,
    ) -> Result<(), DecodeError> {
        self.value(shape, value, path, go_type)?;
        if value.is_null() {
            *value = zero_value(shape);
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        path: &Path<'_>,
        go_type: GoType<'_>,
    ) -> Result<(), DecodeError> {
        match with_found(value, |found| scalar(shape, found, path, go_type)) {
            Ok(canonical) => *value = canonical,
            Err(Refusal::Final(error)) => return Err(error),
            Err(Refusal::Remembered(error)) => {
                self.type_error.get_or_insert(error);
                *value = Value::Null;
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        ty: &'static Type,
        members: &mut Map<String, Value>,
        path: &Path<'_>,
    ) -> Result<(), DecodeError> {
        let mut next = 0;
        let mut ordered = true;
        let mut needless = false;
        let mut always = 0u128;
        let mut first_error: Option<(usize, DecodeError)> = None;
        for (key, value) in members.iter_mut() {
            let Some(at) = ty.position_near(next, key) else {
                push_strict(&mut self.strict, StrictError::Unknown(path.member(key)));
                needless = true;
                continue;
            };
            let field = &ty.fields[at];
            ordered &= at >= next;
            next = at + 1;
            let go_type = GoType { declared: field.declared, depth: 0 };
            match self.value(&field.shape, value, &path.field(ty, field), go_type) {
                Ok(()) => {}
                // This converter walks the type, not the document: the error of the earliest field counts.
                Err(error) if self.wording == Wording::Unstructured => {
                    if first_error.as_ref().is_none_or(|(earlier, _)| at < *earlier) {
                        first_error = Some((at, error));
                    }
                }
                Err(error) => return Err(error),
            }
            always |= u128::from(field.always) << at;
            if fate(field, value) == Fate::Drop {
                if field.always {
                    *value = absent_value(field);
                } else {
                    *value = Value::Null;
                    needless = true;
                }
            }
        }
        if let Some((_, error)) = first_error {
            return Err(error);
        }
        if needless || !ordered || always != ty.always_mask() {
            rebuild(ty, members);
        }
        Ok(())
    }
}

/// Puts an object whose values are canonical in order, without what does not belong there.
fn rebuild(ty: &'static Type, members: &mut Map<String, Value>) {
    let mut given: Vec<(usize, Value)> = Vec::with_capacity(members.len());
    let mut mask = 0;
    for (key, value) in std::mem::take(members) {
        if let Some(at) = ty.position(&key).filter(|at| ty.fields[*at].always || !value.is_null()) {
            given.push((at, value));
            mask |= 1 << at;
        }
    }
    given.sort_unstable_by_key(|(at, _)| *at);
    *members = assemble(ty, mask, given.into_iter());
}

/// Shows a value to the scalar rules, giving away its text so that it need not be copied.
fn with_found<R>(value: &mut Value, read: impl FnOnce(Found<'_>) -> R) -> R {
    match value {
        Value::Null => read(Found::Null),
        Value::Bool(value) => read(Found::Bool(*value)),
        Value::Number(number) => read(Found::Number(&number.to_string())),
        Value::String(text) => read(Found::String(Cow::Owned(std::mem::take(text)))),
        Value::Array(_) => read(Found::Array),
        Value::Object(_) => read(Found::Object),
    }
}

/// Single values as `FromUnstructured` reads them, and its words for what it cannot read.
fn unstructured_scalar(shape: &Shape, value: &mut Value, go_type: GoType<'_>) -> Result<(), String> {
    let kind = unstructured_kind(value);
    match (shape, &*value) {
        (Shape::Int32, Value::Number(number)) => {
            let Some(integer) = whole_number(number) else {
                return Err(format!("cannot convert float64 to {}", go_type.name()));
            };
            *value = Value::from(integer as i32);
        }
        (Shape::Int64, Value::Number(number)) => {
            let Some(integer) = whole_number(number) else {
                return Err(format!("cannot convert float64 to {}", go_type.name()));
            };
            *value = Value::from(integer);
        }
        (Shape::String, _) if kind == "int64" => return Err(format!("cannot convert int64 to {}", go_type.name())),
        (Shape::String, _) => return Err("unrecognized type: string".to_owned()),
        (Shape::Bool, _) => return Err("unrecognized type: bool".to_owned()),
        (Shape::Int32, _) => return Err("unrecognized type: int32".to_owned()),
        (Shape::Int64, _) => return Err("unrecognized type: int64".to_owned()),
        (Shape::Struct(_), _) => return Err(format!("cannot restore struct from: {kind}")),
        (Shape::List(_), _) => return Err(format!("cannot restore slice from {kind}")),
        (Shape::Map(_), _) => return Err(format!("cannot restore map from {kind}")),
        (Shape::Bytes, Value::String(text)) => match normal_base64(Cow::Borrowed(text)) {
            Ok(Cow::Owned(text)) => *value = Value::String(text),
            Ok(Cow::Borrowed(_)) => {}
            Err(error) => return Err(format!("error decoding from json: {error}")),
        },
        (Shape::Bytes, Value::Array(items)) => {
            let bytes = items.iter().map(unstructured_byte).collect::<Result<Vec<u8>, _>>()?;
            *value = encoded(&bytes);
        }
        (Shape::Bytes, _) => return Err(format!("cannot restore slice from {kind}")),
        (Shape::Json, _) => {}
        // These have an UnmarshalJSON of their own, which is called without telling it where it is.
        (Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString, _) => {
            match with_found(value, |found| scalar(shape, found, &Path::ROOT, go_type)) {
                Ok(canonical) => *value = canonical,
                Err(Refusal::Final(error) | Refusal::Remembered(error)) => return Err(error.to_string()),
            }
        }
    }
    Ok(())
}

/// A byte of a list that stands for bytes; like other integers it wraps around.
fn unstructured_byte(item: &Value) -> Result<u8, String> {
    match item {
        Value::Null => Ok(0),
        Value::Number(number) => {
            whole_number(number).map(|number| number as u8).ok_or_else(|| "cannot convert float64 to uint8".to_owned())
        }
        _ => Err("unrecognized type: uint8".to_owned()),
    }
}

/// The integer of a number without a fraction.
fn whole_number(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i64))
}

/// The kind of Go value that upstream's parser makes of a JSON value.
fn unstructured_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::decode;
    use crate::registry;

    fn ty(api_version: &str, kind: &str) -> &'static Type {
        registry().kind(api_version, kind).unwrap()
    }

    #[test]
    fn converting_a_value_equals_decoding_its_text() {
        let documents = [
            r#"{"spec":{"template":{"spec":{"containers":[{"image":"a","name":"m","resources":{"limits":{"cpu":"1000m"}}}]}},
                "parallelism":0,"foo":1},"metadata":{"labels":{"b":"2","a":"1"},"creationTimestamp":null}}"#,
            r#"{"status":{"conditions":[{"status":"True","type":"Complete"},null],"active":0,"ready":0}}"#,
            "{}",
            "null",
        ];
        for document in documents {
            let decoded = decode(ty("batch/v1", "Job"), document.as_bytes());
            let converted = convert(ty("batch/v1", "Job"), serde_json::from_str(document).unwrap());
            assert_eq!(converted, decoded, "{document}");
            let text = converted.as_ref().unwrap().value.to_string();
            assert_eq!(text, decoded.unwrap().value.to_string(), "member order too");
            let again = convert(ty("batch/v1", "Job"), converted.unwrap().value).unwrap();
            assert_eq!(again.value.to_string(), text);
        }
    }

    #[test]
    fn errors_are_those_of_decoding() {
        let values = [
            json!({"spec": {"parallelism": "3"}}),
            json!({"spec": {"parallelism": 2147483648u64}}),
            json!({"spec": {"activeDeadlineSeconds": 1.5}}),
            json!({"metadata": {"labels": []}}),
            json!({"metadata": {"labels": {"a": true}}}),
            json!({"status": {"startTime": ""}}),
            json!({"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}}}),
            json!([]),
        ];
        for value in values {
            let decoded = decode(ty("batch/v1", "Job"), value.to_string().as_bytes());
            assert!(decoded.is_err());
            assert_eq!(convert(ty("batch/v1", "Job"), value), decoded);
        }
    }

    #[test]
    fn unstructured_conversion_has_its_own_words_and_lenience() {
        let cases = [
            (
                json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": "5"}}}}),
                "unrecognized type: int64",
            ),
            (json!({"spec": {"template": {"spec": {"containers": {"name": "x"}}}}}), "cannot restore slice from map"),
            (json!({"spec": {"template": {"spec": {"restartPolicy": 1}}}}), "cannot convert int64 to v1.RestartPolicy"),
            (json!({"metadata": {"name": 1}}), "cannot convert int64 to string"),
            (json!({"metadata": {"name": true}}), "unrecognized type: string"),
            (json!({"metadata": {"labels": []}}), "cannot restore map from slice"),
            (json!({"spec": "x"}), "cannot restore struct from: string"),
            (json!({"spec": {"parallelism": 1.5}}), "cannot convert float64 to int32"),
            (json!({"spec": {"suspend": 1}}), "unrecognized type: bool"),
            (json!({"status": {"startTime": 5}}), "json: cannot unmarshal number into Go value of type string"),
            (json!({"spec": {"suspend": 1, "parallelism": "x"}}), "unrecognized type: int32"),
        ];
        for (value, expected) in cases {
            let error = convert_unstructured(ty("batch/v1", "Job"), value.clone()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{value}");
        }
        let secret = |item: Value| convert_unstructured(ty("v1", "Secret"), json!({"data": {"a": [item]}}));
        for (item, data) in [(json!(104), "aA=="), (json!(360), "aA=="), (json!(104.0), "aA=="), (Value::Null, "AA==")]
        {
            assert_eq!(secret(item).unwrap().value["data"]["a"], data);
        }
        assert_eq!(secret(json!(1.5)).unwrap_err().to_string(), "cannot convert float64 to uint8");
        assert_eq!(secret(json!("x")).unwrap_err().to_string(), "unrecognized type: uint8");
        let lenient = json!({"spec": {"parallelism": 5.0, "completions": 4294967297u64}, "z": 1, "b": {"c": 1}});
        let decoded = convert_unstructured(ty("batch/v1", "Job"), lenient).unwrap();
        assert_eq!(decoded.value["spec"]["parallelism"], 5);
        assert_eq!(decoded.value["spec"]["completions"], 1);
        let listed: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
        assert_eq!(listed, [r#"unknown field "b""#, r#"unknown field "z""#]);
    }
}
