//! One step of a field path, in the wire form of `FieldsV1` (AS-131): `f:` and a member's name, `k:` and the keys of a
//! list item as compact JSON, `v:` and a set member as JSON, `i:` and an index.
//!
//! The wire form identifies the step, so equal steps are equal texts; that is why keys are written sorted and numbers
//! in one way.

use api_schema::{ListType, Shape};
use serde_json::Value;

use crate::go_format::quoted;

pub(super) fn field(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    out.push_str("f:");
    out.push_str(name);
    out
}

/// The step to an item of a list map or set; an error is upstream's complaint about the item.
pub(super) fn of_item(item: &Value, kind: &ListType, items: &'static Shape) -> Result<String, String> {
    match kind {
        ListType::Map(keys) => of_keys(item, keys, items),
        ListType::Set => of_value(item),
        ListType::Atomic | ListType::Granular => Err("invalid indexing of non-associative list".into()),
    }
}

fn of_keys(item: &Value, keys: &[&str], items: &'static Shape) -> Result<String, String> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let default = items.as_struct().map(|ty| ty.name).and_then(key_default);
    let mut found: Vec<(&str, &Value)> = Vec::with_capacity(keys.len());
    for &key in keys {
        match (members.get(key), &default) {
            (Some(value), _) => found.push((key, value)),
            (None, Some((name, value))) if *name == key => found.push((key, value)),
            (None, _) => {}
        }
    }
    if found.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| quoted(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(key_element(found))
}

/// The only key with a default in the schema (AS-142).
fn key_default(type_name: &str) -> Option<(&'static str, Value)> {
    (type_name == "ContainerPort").then(|| ("protocol", Value::from("TCP")))
}

fn key_element(mut keys: Vec<(&str, &Value)>) -> String {
    keys.sort_unstable_by_key(|(name, _)| *name);
    let mut out = String::from("k:{");
    for (at, (name, value)) in keys.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_json(&mut out, &Value::from(name));
        out.push(':');
        push_json(&mut out, value);
    }
    out.push('}');
    out
}

fn of_value(item: &Value) -> Result<String, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
        scalar => {
            let mut out = String::from("v:");
            push_json(&mut out, scalar);
            Ok(out)
        }
    }
}

/// JSON as upstream's encoder writes it: HTML-sensitive characters escaped, whole floats as integers.
fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                out.push_str(&(float as i64).to_string());
            }
            _ => out.push_str(&number.to_string()),
        },
        other => {
            let text = other.to_string();
            if text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
                let escaped = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
                out.push_str(&escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029"));
            } else {
                out.push_str(&text);
            }
        }
    }
}

/// A step from a client, in normal form. `None`: a kind of step that is unknown and therefore ignored.
pub(super) fn normal(wire: &str) -> Result<Option<String>, String> {
    if wire.len() < 2 {
        return Err("key must be 2 characters long:".into());
    }
    if wire.as_bytes()[1] != b':' {
        return Err(format!("missing colon: {wire}"));
    }
    match (wire.as_bytes()[0], &wire[2..]) {
        (b'f', _) => Ok(Some(wire.to_owned())),
        (b'v', json) => {
            let value: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
            let mut out = String::from("v:");
            push_json(&mut out, &value);
            Ok(Some(out))
        }
        (b'k', json) => {
            let keys: super::Object = serde_json::from_str(json).map_err(|error| error.to_string())?;
            Ok(Some(key_element(keys.iter().map(|(name, value)| (name.as_str(), value)).collect())))
        }
        (b'i', index) => {
            let index: i64 = index.parse().map_err(|_| format!("invalid index: {index}"))?;
            Ok(Some(format!("i:{index}")))
        }
        _ => Ok(None),
    }
}

/// As people read it (AS-141): `.name`, `[name="c"]`, `[="x"]`, `[0]`.
pub(super) fn display(wire: &str) -> String {
    let content = wire.get(2..).unwrap_or_default();
    match wire.as_bytes().first() {
        Some(b'f') => format!(".{content}"),
        Some(b'k') => {
            let keys: super::Object = serde_json::from_str(content).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={}", display_value(value))).collect();
            format!("[{}]", keys.join(","))
        }
        Some(b'v') => {
            let value: Value = serde_json::from_str(content).unwrap_or_default();
            format!("[={}]", display_value(&value))
        }
        _ => format!("[{content}]"),
    }
}

fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_like_upstream_prints_them() {
        let cases = [
            ("f:spec", ".spec"),
            (r#"k:{"name":"c"}"#, r#"[name="c"]"#),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"a.b/c""#, r#"[="a.b/c"]"#),
            ("v:5", "[=5]"),
            ("i:3", "[3]"),
        ];
        for (wire, shown) in cases {
            assert_eq!(display(wire), shown);
            assert_eq!(normal(wire).unwrap().unwrap(), wire);
        }
    }

    #[test]
    fn steps_from_clients_are_brought_into_one_form() {
        assert_eq!(normal(r#"k:{ "b" : 80.0, "a":"<" }"#).unwrap().unwrap(), r#"k:{"a":"\u003c","b":80}"#);
        assert_eq!(normal("q:future").unwrap(), None);
        for bad in ["f", "name", "k:[]", "v:", "i:x", "k:{"] {
            assert!(normal(bad).is_err(), "{bad}");
        }
    }
}
