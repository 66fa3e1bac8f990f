//! OpenAPI documents as protobuf (AS-48, AS-51): the messages of gnostic, which is what Go clients read.
//!
//! The same JSON value that is served as text is encoded, driven by the messages listed in `gnostic.txt`.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::Value;

/// A document as protobuf.
pub fn encode(dialect: super::Dialect, document: &Value) -> Vec<u8> {
    let root = match dialect {
        super::Dialect::V2 => "v2.Document",
        super::Dialect::V3 => "v3.Document",
    };
    let mut out = Vec::new();
    write_message(root, document, &mut out);
    out
}

/// How a JSON value becomes a message.
#[derive(Debug)]
enum Message {
    Members {
        members: HashMap<&'static str, Slot>,
        extensions: u32,
    },
    Map(Slot),
    Wrap(Slot),
    List(Slot),
    /// The message itself is field 1, a `v3.Reference` field 2.
    OrReference(&'static str),
    By {
        member: &'static str,
        choices: Vec<(&'static str, Slot)>,
    },
}

/// A field and what it holds.
#[derive(Debug, Clone, Copy)]
struct Slot {
    number: u32,
    kind: Kind,
    repeated: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    String,
    Bool,
    /// Any JSON value, which gnostic keeps as YAML text.
    Any,
    /// A scalar default, by type. Others have no place in the message.
    Default,
    Message(&'static str),
}

static MESSAGES: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| read(include_str!("gnostic.txt")));

fn write_message(name: &str, value: &Value, out: &mut Vec<u8>) {
    let message = MESSAGES.get(name).unwrap_or_else(|| panic!("no message `{name}`"));
    match (message, value) {
        (Message::Members { members, extensions }, Value::Object(object)) => {
            for (key, value) in object {
                match members.get(key.as_str()) {
                    Some(slot) => write_slot(*slot, value, out),
                    None if *extensions != 0 && key.starts_with("x-") => {
                        write_pair(Slot { number: *extensions, kind: Kind::Any, repeated: false }, key, value, out);
                    }
                    None => debug_assert!(false, "{name} has no member {key}"),
                }
            }
        }
        (Message::Map(slot), Value::Object(object)) => {
            for (key, value) in object {
                write_pair(*slot, key, value, out);
            }
        }
        (Message::Wrap(slot), value) => write_slot(*slot, value, out),
        (Message::List(slot), Value::Array(items)) => items.iter().for_each(|item| write_slot(*slot, item, out)),
        (Message::List(slot), single) => write_slot(*slot, single, out),
        (Message::OrReference(own), Value::Object(object)) => {
            let (number, kind) = if object.contains_key("$ref") { (2, "v3.Reference") } else { (1, *own) };
            write_slot(Slot { number, kind: Kind::Message(kind), repeated: false }, value, out);
        }
        (Message::By { member, choices }, Value::Object(object)) => {
            let wanted = object.get(*member).and_then(Value::as_str).unwrap_or_default();
            if let Some((_, slot)) = choices.iter().find(|(value, _)| *value == wanted) {
                write_slot(*slot, value, out);
            }
        }
        (_, other) => debug_assert!(false, "{name} is not made from {other}"),
    }
}

fn write_slot(slot: Slot, value: &Value, out: &mut Vec<u8>) {
    match (slot.kind, value) {
        (_, Value::Array(items)) if slot.repeated => {
            for item in items {
                write_slot(Slot { repeated: false, ..slot }, item, out);
            }
        }
        (Kind::String, Value::String(text)) => write_bytes(slot.number, text.as_bytes(), out),
        (Kind::Bool, Value::Bool(flag)) => write_bool(slot.number, *flag, out),
        (Kind::Any, value) => write_bytes(slot.number, &any(value), out),
        (Kind::Default, value) => write_bytes(slot.number, &default(value), out),
        (Kind::Message(name), value) => {
            let mut inner = Vec::new();
            write_message(name, value, &mut inner);
            write_bytes(slot.number, &inner, out);
        }
        (kind, other) => debug_assert!(false, "{kind:?} is not made from {other}"),
    }
}

/// An entry of a map: the name is field 1 and the value field 2 of a message.
fn write_pair(slot: Slot, name: &str, value: &Value, out: &mut Vec<u8>) {
    let mut pair = Vec::new();
    write_bytes(1, name.as_bytes(), &mut pair);
    write_slot(Slot { number: 2, ..slot }, value, &mut pair);
    write_bytes(slot.number, &pair, out);
}

/// JSON is YAML, so the text needs no conversion.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_bytes(2, value.to_string().as_bytes(), &mut out);
    out
}

fn default(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Number(number) => {
            write_varint(1 << 3 | 1, &mut out);
            out.extend(number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::Bool(flag) => write_bool(2, *flag, &mut out),
        Value::String(text) => write_bytes(3, text.as_bytes(), &mut out),
        _ => {}
    }
    out
}

fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 2, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_bool(number: u32, flag: bool, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3, out);
    out.push(u8::from(flag));
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A mistake in the table is a mistake in the program: it panics, in every test.
fn read(table: &'static str) -> HashMap<&'static str, Message> {
    let mut messages: HashMap<&'static str, Message> = HashMap::new();
    let mut current = "";
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let Some(Message::Members { members, extensions }) = messages.get_mut(current) else {
                panic!("`{line}` follows no message")
            };
            match words[..] {
                ["x-", at] => *extensions = number(at),
                [name, at, kind] => {
                    members.insert(name, slot(at, kind));
                }
                _ => panic!("cannot read `{line}`"),
            }
            continue;
        }
        let (name, message) = match words[..] {
            ["message", name] => (name, Message::Members { members: HashMap::new(), extensions: 0 }),
            ["map", name, at, kind] => (name, Message::Map(slot(at, kind))),
            ["wrap", name, at, kind] => (name, Message::Wrap(slot(at, kind))),
            ["list", name, at, kind] => (name, Message::List(slot(at, kind))),
            ["reference", name, own] => (name, Message::OrReference(own)),
            ["by", name, member, ref choices @ ..] => {
                let choices = choices.chunks_exact(3).map(|choice| (choice[0], slot(choice[1], choice[2]))).collect();
                (name, Message::By { member, choices })
            }
            _ => panic!("cannot read `{line}`"),
        };
        current = name;
        messages.insert(name, message);
    }
    messages
}

fn slot(at: &str, kind: &'static str) -> Slot {
    let (kind, repeated) = kind.strip_prefix("[]").map_or((kind, false), |kind| (kind, true));
    let kind = match kind {
        "string" => Kind::String,
        "bool" => Kind::Bool,
        "any" => Kind::Any,
        "v3.DefaultType" => Kind::Default,
        name => Kind::Message(name),
    };
    Slot { number: number(at), kind, repeated }
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no field number"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::openapi::Dialect;

    #[test]
    fn every_message_is_listed() {
        let slots = MESSAGES.values().flat_map(|message| match message {
            Message::Members { members, .. } => members.values().copied().collect(),
            Message::Map(slot) | Message::Wrap(slot) | Message::List(slot) => vec![*slot],
            Message::OrReference(own) => vec![Slot { number: 1, kind: Kind::Message(own), repeated: false }],
            Message::By { choices, .. } => choices.iter().map(|(_, slot)| *slot).collect(),
        });
        for slot in slots {
            if let Kind::Message(name) = slot.kind {
                assert!(MESSAGES.contains_key(name), "{name}");
            }
        }
    }

    #[test]
    fn a_schema_is_encoded_field_by_field() {
        let mut out = Vec::new();
        let schema = json!({"type": "string", "x-kubernetes-list-type": "set"});
        write_message("v2.Schema", &schema, &mut out);
        // type: 22, a message with the text as 1; extensions: 31, a pair whose value keeps YAML as 2.
        let mut expected = vec![0xb2, 0x01, 8, 0x0a, 6];
        expected.extend(b"string");
        expected.extend([0xfa, 0x01, 33, 0x0a, 22]);
        expected.extend(b"x-kubernetes-list-type");
        expected.extend([0x12, 7, 0x12, 5]);
        expected.extend(b"\"set\"");
        assert_eq!(out, expected);
    }

    #[test]
    fn references_and_defaults_have_their_own_places() {
        let mut out = Vec::new();
        write_message("v3.SchemaOrReference", &json!({"$ref": "#/a"}), &mut out);
        assert_eq!(out, [&[0x12, 5, 0x0a, 3][..], b"#/a"].concat());
        assert_eq!(default(&json!({})), Vec::<u8>::new());
        assert_eq!(default(&json!("")), [0x1a, 0]);
        assert_eq!(default(&json!(false)), [0x10, 0]);
        assert_eq!(default(&json!(0)), [&[0x09][..], &[0; 8]].concat());
    }

    /// Members without a place would be lost without a word; the assertions of the encoder say so.
    #[test]
    fn whole_documents_have_a_place_for_everything() {
        let paths = crate::openapi::operations::all();
        for dialect in [Dialect::V2, Dialect::V3] {
            let document = crate::openapi::writer::document(dialect, &paths, vec![("batch", "v1")]);
            assert!(encode(dialect, &document).len() > 100_000);
        }
    }
}
