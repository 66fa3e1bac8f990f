//! Values to bytes as Go's encoder writes them: compact or indented, HTML-sensitive characters escaped (AS-26).

use serde_json::{Map, Number, Value};

use crate::model::Type;
use crate::registry::registry;

/// Appends the value without any white space.
pub fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => encode_number(number, out),
        Value::String(text) => encode_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index == 0);
                encode(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (index, (key, value)) in members.iter().enumerate() {
                separate(out, index == 0);
                encode_key(key, out);
                encode(value, out);
            }
            out.push(b'}');
        }
    }
}

/// Appends the value indented by two spaces a level; empty objects and arrays stay on their line.
pub fn encode_pretty(value: &Value, out: &mut Vec<u8>) {
    pretty(value, 0, out);
}

fn pretty(value: &Value, depth: usize, out: &mut Vec<u8>) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index == 0);
                new_line(depth + 1, out);
                pretty(item, depth + 1, out);
            }
            new_line(depth, out);
            out.push(b']');
        }
        Value::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (index, (key, value)) in members.iter().enumerate() {
                separate(out, index == 0);
                new_line(depth + 1, out);
                encode_string(key, out);
                out.extend_from_slice(b": ");
                pretty(value, depth + 1, out);
            }
            new_line(depth, out);
            out.push(b'}');
        }
        scalar => encode(scalar, out),
    }
}

fn new_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// Encodes an object in two pieces, between which the digits of `metadata.resourceVersion` belong: the revision is
/// known only when the object is stored. A resourceVersion that the object already has is left out.
///
/// The quotes are part of the pieces, and the member stands where the API's order puts it.
pub fn encode_stamped(object: &Value) -> (Vec<u8>, Vec<u8>) {
    stamp(object, |_| None, &Raw::default())
}

/// Parts of an object that are only known as bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw<'a> {
    /// Members of the object, in the order of its type.
    pub members: &'a [(&'a str, &'a [u8])],
    /// `metadata.managedFields`.
    pub managed_fields: Option<&'a [u8]>,
}

/// Like [`encode_stamped`], with parts of an object of `ty` that take their places among the others as they are.
pub fn encode_stamped_with(ty: &Type, object: &Value, raw: &Raw<'_>) -> (Vec<u8>, Vec<u8>) {
    stamp(object, |member| ty.position(member), raw)
}

fn stamp(object: &Value, position: impl Fn(&str) -> Option<usize>, raw: &Raw<'_>) -> (Vec<u8>, Vec<u8>) {
    let Raw { members: mut raw, managed_fields } = *raw;
    let size = raw.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + managed_fields.map_or(0, <[u8]>::len) + 1024;
    let mut stamp = Stamp { out: Vec::with_capacity(size), split: None, managed_fields };
    let empty = Map::new();
    let members = object.as_object().unwrap_or(&empty);
    let has_metadata = members.get("metadata").is_some_and(Value::is_object);
    stamp.out.push(b'{');
    let mut first = true;
    for (key, value) in members {
        // Metadata comes after the type; if there is none it is made up there.
        if !has_metadata && stamp.split.is_none() && !matches!(key.as_str(), "kind" | "apiVersion") {
            separate(&mut stamp.out, std::mem::take(&mut first));
            stamp.metadata(&empty);
        }
        while let [(member, bytes), rest @ ..] = raw
            && position(member) < position(key)
        {
            separate(&mut stamp.out, std::mem::take(&mut first));
            stamp.raw(member, bytes);
            raw = rest;
        }
        separate(&mut stamp.out, std::mem::take(&mut first));
        match value {
            Value::Object(metadata) if key == "metadata" => stamp.metadata(metadata),
            _ => {
                encode_key(key, &mut stamp.out);
                encode(value, &mut stamp.out);
            }
        }
    }
    if stamp.split.is_none() {
        separate(&mut stamp.out, std::mem::take(&mut first));
        stamp.metadata(&empty);
    }
    for (member, bytes) in raw {
        separate(&mut stamp.out, false);
        stamp.raw(member, bytes);
    }
    stamp.out.push(b'}');
    let tail = stamp.out.split_off(stamp.split.unwrap_or(0));
    (stamp.out, tail)
}

struct Stamp<'a> {
    out: Vec<u8>,
    /// Where the digits go.
    split: Option<usize>,
    managed_fields: Option<&'a [u8]>,
}

impl Stamp<'_> {
    fn metadata(&mut self, members: &Map<String, Value>) {
        let order = object_meta();
        let own_place = order.position("resourceVersion");
        encode_key("metadata", &mut self.out);
        self.out.push(b'{');
        let mut first = true;
        for (key, value) in members {
            if key == "resourceVersion" {
                continue;
            }
            if self.split.is_none() && order.position(key) > own_place {
                separate(&mut self.out, std::mem::take(&mut first));
                self.resource_version();
            }
            separate(&mut self.out, std::mem::take(&mut first));
            encode_key(key, &mut self.out);
            encode(value, &mut self.out);
        }
        if self.split.is_none() {
            separate(&mut self.out, first);
            self.resource_version();
        }
        // The last member of all.
        if let Some(bytes) = self.managed_fields {
            separate(&mut self.out, false);
            self.raw("managedFields", bytes);
        }
        self.out.push(b'}');
    }

    fn raw(&mut self, member: &str, bytes: &[u8]) {
        encode_key(member, &mut self.out);
        self.out.extend_from_slice(bytes);
    }

    fn resource_version(&mut self) {
        self.out.extend_from_slice(b"\"resourceVersion\":\"");
        self.split = Some(self.out.len());
        self.out.push(b'"');
    }
}

fn object_meta() -> &'static Type {
    registry().get("ObjectMeta").expect("the tables declare ObjectMeta")
}

fn separate(out: &mut Vec<u8>, first: bool) {
    if !first {
        out.push(b',');
    }
}

/// A member's name and colon. Names of the API need no escapes, so they are copied whole when they are plain.
fn encode_key(key: &str, out: &mut Vec<u8>) {
    encode_string(key, out);
    out.push(b':');
}

/// Appends a quoted string.
pub(crate) fn encode_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !NEEDS_CARE[byte as usize] {
            continue;
        }
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            b'<' => b"\\u003c",
            b'>' => b"\\u003e",
            b'&' => b"\\u0026",
            0xe2 if bytes[at..].starts_with("\u{2028}".as_bytes()) => b"\\u2028",
            0xe2 if bytes[at..].starts_with("\u{2029}".as_bytes()) => b"\\u2029",
            0xe2 => continue,
            _ => {
                out.extend_from_slice(&bytes[start..at]);
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                start = at + 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[start..at]);
        out.extend_from_slice(escape);
        start = at + if byte == 0xe2 { 3 } else { 1 };
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

/// Bytes that are not simply copied; 0xe2 starts U+2028 and U+2029, which JavaScript takes for line ends.
const NEEDS_CARE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};

/// Integers plainly, floats with Go's choice between plain and exponent form.
pub(crate) fn encode_number(number: &Number, out: &mut Vec<u8>) {
    let text = match number.as_f64() {
        Some(float) if number.is_f64() => go_float(float),
        _ => number.to_string(),
    };
    out.extend_from_slice(text.as_bytes());
}

fn go_float(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compact(value: &Value) -> String {
        let mut out = Vec::new();
        encode(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        let value = json!({"a<b>&c": "\"\\\n\r\t\u{8}\u{c}\u{1}\u{7f}ä\u{2028}x\u{2029}\u{2030}😀"});
        let expected = r#"{"a\u003cb\u003e\u0026c":"\"\\\n\r\t\b\f\u0001DELä\u2028x\u2029‰😀"}"#;
        assert_eq!(compact(&value), expected.replace("DEL", "\u{7f}"));
    }

    #[test]
    fn numbers_are_written_as_go_does() {
        let cases = [
            (json!(0), "0"),
            (json!(-5), "-5"),
            (json!(1.0), "1"),
            (json!(0.5), "0.5"),
            (json!(1e21), "1e+21"),
            (json!(1.5e-7), "1.5e-7"),
            (json!(0.000001), "0.000001"),
            (json!(123456789.25), "123456789.25"),
        ];
        for (value, expected) in cases {
            assert_eq!(compact(&value), expected);
        }
    }

    #[test]
    fn indentation_keeps_empty_containers_together() {
        let mut out = Vec::new();
        encode_pretty(&json!({"a": {}, "b": [], "c": [1, {"d": null}]}), &mut out);
        let expected = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": null\n    }\n  ]\n}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn stamped_objects_leave_room_for_the_revision_in_its_place() {
        let cases = [
            (
                json!({"kind": "Job", "metadata": {"name": "a", "uid": "u", "generation": 1}, "spec": {}}),
                r#"{"kind":"Job","metadata":{"name":"a","uid":"u","resourceVersion":"7","generation":1},"spec":{}}"#,
            ),
            (json!({"metadata": {"name": "a"}}), r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#),
            (
                json!({"metadata": {"name": "a", "resourceVersion": "3", "labels": {"x": "y"}}}),
                r#"{"metadata":{"name":"a","resourceVersion":"7","labels":{"x":"y"}}}"#,
            ),
            (json!({"metadata": {}}), r#"{"metadata":{"resourceVersion":"7"}}"#),
            (json!({"metadata": {"labels": {}}}), r#"{"metadata":{"resourceVersion":"7","labels":{}}}"#),
            (json!({}), r#"{"metadata":{"resourceVersion":"7"}}"#),
            (json!({"kind": "X", "data": {}}), r#"{"kind":"X","metadata":{"resourceVersion":"7"},"data":{}}"#),
        ];
        for (object, expected) in cases {
            let (head, tail) = encode_stamped(&object);
            assert_eq!(String::from_utf8([head, b"7".to_vec(), tail].concat()).unwrap(), expected);
        }
    }
}
