//! Messages to canonical values.
//!
//! A message may give a field several times: lists and maps grow, scalars are replaced, and nested messages merge as if
//! their bytes were one message. So the contents are collected by field first, and read field by field in API order.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::wire::{BYTES, Fields, ProtobufError, Tag, VARINT};
use crate::go;
use crate::json::{self, Fate, assemble, fate};
use crate::model::{Embed, Field, Shape, Type, Wire};
use crate::quantity::Quantity;
use crate::time::{Precision, Timestamp};

/// Decodes the bytes of an object, which do not tell their own type: `kind` and `apiVersion` are in the envelope, and
/// not in the result.
pub fn decode(ty: &'static Type, raw: &[u8]) -> Result<Value, ProtobufError> {
    message(ty, raw).map(Value::Object)
}

/// What a field holds on the wire.
#[derive(Debug, Clone, Copy)]
enum Content<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// Reads a message. Recursion is bounded by the depth of the types.
fn message(ty: &'static Type, bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
    let mut contents = Vec::with_capacity(16);
    collect(ty, None, bytes, &mut contents)?;
    contents.sort_by_key(|(at, _)| *at);
    let mut given = Vec::with_capacity(contents.len());
    let mut mask = 0;
    for occurrences in contents.chunk_by(|a, b| a.0 == b.0) {
        let at = occurrences[0].0;
        let field = &ty.fields[at];
        let value = field_value(field, occurrences)?;
        if fate(field, &value) == Fate::Keep {
            mask |= 1 << at;
            given.push((at, value));
        }
    }
    Ok(assemble(ty, mask, given.into_iter()))
}

/// Lists the contents of the known fields with their positions, looking into nested messages that JSON inlines.
fn collect<'a>(
    ty: &'static Type,
    embed: Option<Embed>,
    bytes: &'a [u8],
    contents: &mut Vec<(usize, Content<'a>)>,
) -> Result<(), ProtobufError> {
    let mut fields = Fields::new(embed.map_or(ty.name, |embed| embed.name), bytes);
    while let Some(tag) = fields.tag()? {
        let wire = match embed {
            Some(embed) => ty.wire_in(embed, tag.number),
            None => ty.wire(tag.number),
        };
        match wire {
            Wire::Field(at) => contents.push((at, content(tag, &mut fields, ty.fields[at].json)?)),
            Wire::Embed(embed) => {
                let bytes = length_delimited(tag, &mut fields, embed.name)?;
                collect(ty, Some(embed), bytes, contents)?;
            }
            Wire::Unknown => fields.skip(tag.wire_type)?,
        }
    }
    Ok(())
}

fn content<'a>(tag: Tag, fields: &mut Fields<'a>, name: &str) -> Result<Content<'a>, ProtobufError> {
    match tag.wire_type {
        VARINT => fields.varint().map(Content::Varint),
        BYTES => fields.bytes().map(Content::Bytes),
        _ => Err(wrong_wire_type(tag.wire_type, name)),
    }
}

/// The value of a field from everything the message says about it, which is at least one thing.
fn field_value(field: &'static Field, occurrences: &[(usize, Content<'_>)]) -> Result<Value, ProtobufError> {
    let last = occurrences[occurrences.len() - 1].1;
    match &field.shape {
        Shape::Struct(ty) if occurrences.len() == 1 => message(ty, last.bytes(field.json)?).map(Value::Object),
        Shape::Struct(ty) => {
            let mut merged = Vec::new();
            for (_, content) in occurrences {
                merged.extend_from_slice(content.bytes(field.json)?);
            }
            message(ty, &merged).map(Value::Object)
        }
        Shape::List(element) => {
            let mut items = Vec::with_capacity(occurrences.len());
            for (_, content) in occurrences {
                list_items(element, field, *content, &mut items)?;
            }
            Ok(Value::Array(items))
        }
        Shape::Map(element) => {
            let mut members = Map::with_capacity(occurrences.len());
            for (_, content) in occurrences {
                let (key, value) = map_entry(element, field, content.bytes(field.json)?)?;
                members.insert(key, value);
            }
            if !members.keys().is_sorted() {
                members.sort_keys();
            }
            Ok(Value::Object(members))
        }
        shape => element_value(shape, field, last),
    }
}

impl<'a> Content<'a> {
    fn bytes(self, name: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Varint(_) => Err(wrong_wire_type(VARINT, name)),
        }
    }

    fn varint(self, name: &str) -> Result<u64, ProtobufError> {
        match self {
            Content::Varint(value) => Ok(value),
            Content::Bytes(_) => Err(wrong_wire_type(BYTES, name)),
        }
    }
}

/// One item, or several if numbers are packed.
fn list_items(
    element: &Shape,
    field: &'static Field,
    content: Content<'_>,
    items: &mut Vec<Value>,
) -> Result<(), ProtobufError> {
    match (element, content) {
        (Shape::Int32 | Shape::Int64 | Shape::Bool, Content::Bytes(bytes)) => {
            let mut packed = Fields::new("", bytes);
            while packed.unread() > 0 {
                items.push(number(element, packed.varint()?));
            }
        }
        _ => items.push(element_value(element, field, content)?),
    }
    Ok(())
}

/// A map is a list of messages with a key and a value, either of which may be missing.
fn map_entry(element: &Shape, field: &'static Field, bytes: &[u8]) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    let mut value = None;
    let mut fields = Fields::new("Entry", bytes);
    while let Some(tag) = fields.tag()? {
        match tag.number {
            1 => key = text(length_delimited(tag, &mut fields, field.json)?),
            2 => value = Some(element_value(element, field, content(tag, &mut fields, field.json)?)?),
            _ => fields.skip(tag.wire_type)?,
        }
    }
    Ok((key, value.unwrap_or_else(|| json::zero_value(element))))
}

/// A list as a map's value is wrapped in a message of its own (AS-243, ExtraValue).
fn wrapped_list(item: &Shape, field: &'static Field, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut items = Vec::new();
    let mut fields = Fields::new("ExtraValue", bytes);
    while let Some(tag) = fields.tag()? {
        match tag.number {
            1 => list_items(item, field, content(tag, &mut fields, field.json)?, &mut items)?,
            _ => fields.skip(tag.wire_type)?,
        }
    }
    Ok(Value::Array(items))
}

/// A single value: a field's, or an item of a list or map.
fn element_value(shape: &Shape, field: &'static Field, content: Content<'_>) -> Result<Value, ProtobufError> {
    if let Shape::Int32 | Shape::Int64 | Shape::Bool = shape {
        return Ok(number(shape, content.varint(field.json)?));
    }
    let bytes = content.bytes(field.json)?;
    match shape {
        Shape::Struct(ty) => message(ty, bytes).map(Value::Object),
        Shape::List(item) => wrapped_list(item, field, bytes),
        Shape::Bytes => Ok(Value::String(STANDARD.encode(bytes))),
        Shape::Time => timestamp(bytes, Precision::Seconds),
        Shape::MicroTime => timestamp(bytes, Precision::Micros),
        Shape::Quantity => quantity(bytes),
        Shape::IntOrString => int_or_string(bytes),
        Shape::Json => raw_json(bytes),
        _ => Ok(Value::String(text(bytes))),
    }
}

fn number(shape: &Shape, varint: u64) -> Value {
    match shape {
        Shape::Bool => Value::Bool(varint != 0),
        Shape::Int32 => Value::from(varint as i32),
        _ => Value::from(varint as i64),
    }
}

fn text(bytes: &[u8]) -> String {
    go::repaired(bytes).into_owned()
}

/// `{1 seconds, 2 nanos}`; an empty message is the zero time.
fn timestamp(bytes: &[u8], precision: Precision) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0i64, 0i32);
    let mut fields = Fields::new("Timestamp", bytes);
    while let Some(tag) = fields.tag()? {
        match (tag.number, tag.wire_type) {
            (1, VARINT) => seconds = fields.varint()? as i64,
            (2, VARINT) => nanos = fields.varint()? as i32,
            (1 | 2, _) => {
                return Err(wrong_wire_type(tag.wire_type, if tag.number == 1 { "seconds" } else { "nanos" }));
            }
            (_, wire_type) => fields.skip(wire_type)?,
        }
    }
    // Nanoseconds out of range carry over, as Go's time.Unix does it.
    let carry = i64::from(nanos.div_euclid(1_000_000_000));
    let nanos = nanos.rem_euclid(1_000_000_000) as u32;
    let time = match precision {
        Precision::Seconds => Timestamp { seconds, nanos: 0 },
        Precision::Micros => Timestamp { seconds: seconds.saturating_add(carry), nanos: nanos / 1000 * 1000 },
    };
    Ok(if time == Timestamp::ZERO { Value::Null } else { Value::String(time.format(precision)) })
}

fn quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut value = Quantity::ZERO.to_string();
    let mut fields = Fields::new("Quantity", bytes);
    while let Some(tag) = fields.tag()? {
        if tag.number != 1 {
            fields.skip(tag.wire_type)?;
            continue;
        }
        let text = text(length_delimited(tag, &mut fields, "string_")?);
        let quantity = Quantity::parse(&text).map_err(|error| ProtobufError::Value(error.to_string()))?;
        value = quantity.to_string();
    }
    Ok(Value::String(value))
}

/// `{1 type, 2 intVal, 3 strVal}`; any type but 0 is taken for a string.
fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut kind, mut integer, mut string) = (0, 0, String::new());
    let mut fields = Fields::new("IntOrString", bytes);
    while let Some(tag) = fields.tag()? {
        match (tag.number, tag.wire_type) {
            (1, VARINT) => kind = fields.varint()?,
            (2, VARINT) => integer = fields.varint()? as i32,
            (3, BYTES) => string = text(fields.bytes()?),
            (number @ 1..=3, _) => {
                return Err(wrong_wire_type(tag.wire_type, ["type", "intVal", "strVal"][number as usize - 1]));
            }
            (_, wire_type) => fields.skip(wire_type)?,
        }
    }
    Ok(if kind == 0 { Value::from(integer) } else { Value::String(string) })
}

/// `{1 Raw}` with JSON in it.
fn raw_json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut raw: &[u8] = b"null";
    let mut fields = Fields::new("FieldsV1", bytes);
    while let Some(tag) = fields.tag()? {
        match tag.number {
            1 => raw = length_delimited(tag, &mut fields, "raw")?,
            _ => fields.skip(tag.wire_type)?,
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    json::parse(raw).map_err(|error| ProtobufError::Value(error.to_string()))
}

fn length_delimited<'a>(tag: Tag, fields: &mut Fields<'a>, name: &str) -> Result<&'a [u8], ProtobufError> {
    if tag.wire_type == BYTES { fields.bytes() } else { Err(wrong_wire_type(tag.wire_type, name)) }
}

/// Upstream names the Go field, which is the JSON name with a capital in all but a few cases.
fn wrong_wire_type(wire_type: u8, json_name: &str) -> ProtobufError {
    let field = match json_name {
        "metadata" => "ObjectMeta".to_owned(),
        "uid" => "UID".to_owned(),
        "apiVersion" => "APIVersion".to_owned(),
        _ => {
            let mut letters = json_name.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    };
    ProtobufError::WrongWireType { wire_type, field }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry;

    fn job(raw: &[u8]) -> Result<Value, String> {
        decode(registry().kind("batch/v1", "Job").unwrap(), raw).map_err(|error| error.to_string())
    }

    #[test]
    fn repeated_messages_merge_and_scalars_are_replaced() {
        let twice = b"\x0a\x03\x0a\x01a\x0a\x03\x1a\x01n\x12\x02\x08\x05\x12\x02\x08\x06";
        let value = job(twice).unwrap();
        assert_eq!(value["metadata"], json!({"name": "a", "namespace": "n"}));
        assert_eq!(value["spec"]["parallelism"], 6);
    }

    #[test]
    fn zeros_are_dropped_unless_they_are_pointers() {
        // status.active is plain, status.ready a pointer; the label's value is missing.
        let value = job(b"\x1a\x04\x20\x00\x48\x00\x0a\x05\x5a\x03\x0a\x01a").unwrap();
        assert_eq!(value["status"], json!({"ready": 0}));
        assert_eq!(value["metadata"]["labels"], json!({"a": ""}));
    }

    #[test]
    fn numbers_may_be_packed_and_negative_ones_are_long() {
        let requirement = registry().get("PodFailurePolicyOnExitCodesRequirement").unwrap();
        let unpacked = decode(requirement, b"\x18\x01\x18\x02").unwrap();
        let packed = decode(requirement, b"\x1a\x02\x01\x02").unwrap();
        assert_eq!(unpacked["values"], json!([1, 2]));
        assert_eq!(packed, unpacked);
        let value = job(b"\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").unwrap();
        assert_eq!(value["spec"]["parallelism"], -1);
    }

    #[test]
    fn malformed_objects_are_refused() {
        let cases: [(&[u8], &str); 4] = [
            (b"\x0a\x05", "unexpected EOF"),
            (b"\x08\x01", "proto: wrong wireType = 0 for field ObjectMeta"),
            (b"\x12\x03\x0a\x01x", "proto: wrong wireType = 2 for field Parallelism"),
            (b"\x12\x01\x0c", "proto: JobSpec: wiretype end group for non-group"),
        ];
        for (raw, expected) in cases {
            assert_eq!(job(raw).unwrap_err(), expected);
        }
        let container = registry().get("ResourceRequirements").unwrap();
        let bad_quantity = b"\x0a\x0a\x0a\x03cpu\x12\x03\x0a\x01x";
        assert!(decode(container, bad_quantity).unwrap_err().to_string().starts_with("quantities must match"));
    }
}
