//! Canonical values to messages.
//!
//! Writes what the value has. Upstream's encoders also write the zeros that JSON leaves out; no decoder can tell.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::envelope::envelope;
use super::wire::{put_bytes, put_message, put_number};
use crate::json;
use crate::model::{Embed, Field, Shape, Type};
use crate::time::{Precision, Timestamp};

/// Encodes a canonical object with its envelope.
pub fn encode(ty: &'static Type, value: &Value, api_version: &str, kind: &str) -> Vec<u8> {
    envelope(api_version, kind, |out| {
        if let Value::Object(members) = value {
            message(ty, members, out);
        }
    })
}

/// A frame of a watch stream: four bytes of length, then `{1 type, 2 object {1 raw}}` (AS-242). The object is what
/// [`encode`] returned.
pub fn encode_watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 32);
    out.extend_from_slice(&[0; 4]);
    put_bytes(&mut out, 1, event_type.as_bytes());
    put_message(&mut out, 2, |out| put_bytes(out, 1, object));
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

fn message(ty: &'static Type, members: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut fields = Members { ty, members: members.iter(), guess: 0 }.peekable();
    while let Some((field, value)) = fields.next() {
        let Some(embed) = field.embed else {
            put_field(field, value, out);
            continue;
        };
        // Members of an embedded struct stand together; they share one nested message.
        let mut embedded = vec![(field, value)];
        while let Some(next) = fields.next_if(|(field, _)| field.embed == Some(embed)) {
            embedded.push(next);
        }
        put_embedded(embed, &embedded, out);
    }
}

fn put_embedded(embed: Embed, fields: &[(&'static Field, &Value)], out: &mut Vec<u8>) {
    // `kind` and `apiVersion` are in the envelope.
    if embed.number != 0 {
        put_message(out, embed.number, |out| fields.iter().for_each(|(field, value)| put_field(field, value, out)));
    }
}

/// The known members of an object with their fields.
struct Members<'a> {
    ty: &'static Type,
    members: serde_json::map::Iter<'a>,
    guess: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'static Field, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (name, value) = self.members.next()?;
            if let Some(at) = self.ty.position_near(self.guess, name) {
                self.guess = at + 1;
                return Some((&self.ty.fields[at], value));
            }
        }
    }
}

fn put_field(field: &'static Field, value: &Value, out: &mut Vec<u8>) {
    match (&field.shape, value) {
        (_, Value::Null) => {}
        (Shape::List(element), Value::Array(items)) => {
            items.iter().for_each(|item| put(element, field.number, item, out))
        }
        (Shape::Map(element), Value::Object(members)) => {
            for (key, value) in members {
                put_message(out, field.number, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    put_map_value(element, value, out);
                });
            }
        }
        (shape, value) => put(shape, field.number, value, out),
    }
}

fn put_map_value(element: &Shape, value: &Value, out: &mut Vec<u8>) {
    match (element, value) {
        (Shape::List(item), Value::Array(items)) => {
            put_message(out, 2, |out| items.iter().for_each(|value| put(item, 1, value, out)));
        }
        _ => put(element, 2, value, out),
    }
}

/// One value under a number. What does not fit its shape is left out: the value is canonical, so it cannot occur.
fn put(shape: &Shape, number: u32, value: &Value, out: &mut Vec<u8>) {
    match (shape, value) {
        (Shape::Struct(ty), Value::Object(members)) => put_message(out, number, |out| message(ty, members, out)),
        (Shape::String, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
        (Shape::Int32 | Shape::Int64, Value::Number(value)) => put_number(out, number, value.as_i64().unwrap_or(0)),
        (Shape::Bool, Value::Bool(value)) => put_number(out, number, i64::from(*value)),
        (Shape::Bytes, Value::String(text)) => put_bytes(out, number, &STANDARD.decode(text).unwrap_or_default()),
        (Shape::Time, Value::String(text)) => put_time(number, text, Precision::Seconds, out),
        (Shape::MicroTime, Value::String(text)) => put_time(number, text, Precision::Micros, out),
        (Shape::Quantity, Value::String(text)) => put_message(out, number, |out| put_bytes(out, 1, text.as_bytes())),
        (Shape::IntOrString, Value::String(text)) => put_message(out, number, |out| {
            put_number(out, 1, 1);
            put_number(out, 2, 0);
            put_bytes(out, 3, text.as_bytes());
        }),
        (Shape::IntOrString, Value::Number(value)) => put_message(out, number, |out| {
            put_number(out, 1, 0);
            put_number(out, 2, value.as_i64().unwrap_or(0));
            put_bytes(out, 3, b"");
        }),
        (Shape::Json, value) => put_message(out, number, |out| {
            let mut raw = Vec::new();
            json::encode(value, &mut raw);
            put_bytes(out, 1, &raw);
        }),
        _ => {}
    }
}

fn put_time(number: u32, text: &str, precision: Precision, out: &mut Vec<u8>) {
    let time = Timestamp::parse(text, precision).unwrap_or(Timestamp::ZERO);
    put_message(out, number, |out| {
        put_number(out, 1, time.seconds);
        put_number(out, 2, i64::from(time.nanos));
    });
}
