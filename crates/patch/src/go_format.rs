//! Values spelled as Go's `fmt` package spells them, since several of upstream's error texts embed them.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// `%v` of a decoded JSON value: `map[image:x name:c]`, `[a b]`, `<nil>`; map keys sorted.
pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// `%v` of a slice of decoded JSON values.
pub(crate) fn plain_list(items: &[Value]) -> String {
    let mut out = String::new();
    write_list(&mut out, items);
    out
}

/// `%#v` of a decoded YAML value, as in `expected string, got &value.valueUnstructured{Value:1}`. Every number in an
/// applied configuration is a float to upstream.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_float(number.as_f64().unwrap_or_default()),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(key, value)| format!("{}:{}", quoted(key), syntax(value))).collect();
            members.sort_unstable();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
    }
}

/// `%q`: a Go string literal.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = if (c as u32) < 0x80 {
                    write!(out, "\\x{:02x}", c as u32)
                } else {
                    write!(out, "\\u{:04x}", c as u32)
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The kind of a decoded JSON value as `reflect` names it.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// The type of a decoded JSON value as `reflect` prints it with `%s`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        scalar => kind(scalar),
    }
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&go_number(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_list(out, items),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| key.as_str());
            out.push_str("map[");
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_plain(out, value);
            }
            out.push(']');
        }
    }
}

fn write_list(out: &mut String, items: &[Value]) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        write_plain(out, item);
    }
    out.push(']');
}

/// Integers in full, floats in Go's shortest `%g`.
fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => go_float(float),
        _ => number.to_string(),
    }
}

/// Shortest digits that read back the same; an exponent (of two digits at least) below 1e-04 and from 1e+06 on.
fn go_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_values_read_like_go() {
        let value = json!({"name": "c", "env": [{"b": 1, "a": null}], "on": true, "share": 0.5});
        assert_eq!(plain(&value), "map[env:[map[a:<nil> b:1]] name:c on:true share:0.5]");
        assert_eq!(plain_list(&[json!("a"), json!(2)]), "[a 2]");
    }

    #[test]
    fn floats_take_an_exponent_as_in_go() {
        assert_eq!(plain(&json!(1e6)), "1e+06");
        assert_eq!(plain(&json!(123456.5)), "123456.5");
        assert_eq!(syntax(&json!(1234567)), "1.234567e+06");
        assert_eq!(plain(&json!(0.00001)), "1e-05");
        assert_eq!(plain(&json!(1.5)), "1.5");
    }

    #[test]
    fn syntax_is_a_go_expression() {
        assert_eq!(syntax(&json!(["a", 1])), r#"[]interface {}{"a", 1}"#);
        assert_eq!(syntax(&json!({"b": 1, "a": "x"})), r#"map[string]interface {}{"a":"x", "b":1}"#);
    }

    #[test]
    fn quoted_escapes() {
        assert_eq!(quoted("a\"b\\\n\u{1}é"), r#""a\"b\\\n\x01é""#);
    }
}
