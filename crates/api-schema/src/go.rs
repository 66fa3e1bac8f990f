//! Spellings that error texts share with Go: quoted strings, type names, UTF-8 repair.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::registry::registry;

/// The Go type that a table declares as `declared`, `depth` elements deep, as Go prints it:
/// `([]Container, 0)` is `[]v1.Container` and `([]Container, 1)` is `v1.Container`.
pub(crate) fn type_name(declared: &str, depth: usize) -> String {
    let mut declared = declared.trim_start_matches('*');
    for _ in 0..depth {
        declared = element(declared);
    }
    qualified(declared)
}

/// The declared type of a list's items or a map's values.
fn element(declared: &str) -> &str {
    if let Some(element) = declared.strip_prefix("[]") {
        return element;
    }
    match declared.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        Some((_, value)) => value,
        None => registry().alias(declared).map_or(declared, element),
    }
}

fn qualified(declared: &str) -> String {
    if let Some(element) = declared.strip_prefix("[]") {
        return format!("[]{}", qualified(element));
    }
    if let Some((key, value)) = declared.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", qualified(key), qualified(value));
    }
    match declared {
        "string" | "int32" | "int64" | "bool" => declared.to_owned(),
        "byte" => "uint8".to_owned(),
        "Quantity" => "resource.Quantity".to_owned(),
        "IntOrString" => "intstr.IntOrString".to_owned(),
        _ if declared.starts_with("types.") => declared.to_owned(),
        _ => format!("v1.{}", declared.rsplit('.').next().unwrap_or(declared)),
    }
}

/// `strconv.Quote`: a double-quoted string with everything unprintable escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            _ => push_printable(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// A byte in single quotes as `encoding/json` shows the character it stumbled over. Bytes beyond ASCII are taken for
/// Latin-1, as Go's `string(byte)` does.
pub(crate) fn quote_byte(byte: u8) -> String {
    let mut out = String::from("'");
    match byte {
        b'\'' => out.push_str("\\'"),
        b'\\' => out.push_str("\\\\"),
        _ => push_printable(&mut out, byte as char),
    }
    out.push('\'');
    out
}

fn push_printable(out: &mut String, c: char) {
    match c {
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        ' '..='~' => out.push(c),
        '\0'..='\x1f' | '\x7f' => {
            let _ = write!(out, "\\x{:02x}", c as u32);
        }
        // What Unicode calls printable is approximated: controls, separators and the soft hyphen are not.
        '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{2028}'..='\u{202e}' | '\u{feff}' => {
            let _ = write!(out, "\\u{:04x}", c as u32);
        }
        _ => out.push(c),
    }
}

/// Text from bytes that may not be UTF-8: every bad byte becomes U+FFFD, one by one as Go does it.
pub(crate) fn repaired(bytes: &[u8]) -> Cow<'_, str> {
    let mut rest = bytes;
    let mut out = String::new();
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) if out.is_empty() => return Cow::Borrowed(text),
            Ok(text) => {
                out.push_str(text);
                return Cow::Owned(out);
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                out.push_str(std::str::from_utf8(good).unwrap_or_default());
                out.push(char::REPLACEMENT_CHARACTER);
                rest = &bad[1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_print_as_go_prints_them() {
        let cases = [
            ("*int32", 0, "int32"),
            ("[]Container", 0, "[]v1.Container"),
            ("[]Container", 1, "v1.Container"),
            ("RestartPolicy", 0, "v1.RestartPolicy"),
            ("*types.UID", 0, "types.UID"),
            ("map[string][]byte", 0, "map[string][]uint8"),
            ("map[string][]byte", 1, "[]uint8"),
            ("ResourceList", 0, "v1.ResourceList"),
            ("ResourceList", 1, "resource.Quantity"),
            ("map[string]ExtraValue", 2, "string"),
            ("*events.EventSeries", 0, "v1.EventSeries"),
        ];
        for (declared, depth, expected) in cases {
            assert_eq!(type_name(declared, depth), expected, "{declared} {depth}");
        }
    }

    #[test]
    fn bad_utf8_is_replaced_byte_by_byte() {
        assert_eq!(repaired(b"a\xffb\xe4\xb8c"), "a\u{fffd}b\u{fffd}\u{fffd}c");
        assert!(matches!(repaired("käse".as_bytes()), Cow::Borrowed("käse")));
    }

    #[test]
    fn quoting_escapes_what_is_not_printable() {
        assert_eq!(quote("a\"b\\\n\u{1}ä"), r#""a\"b\\\n\x01ä""#);
        assert_eq!(quote_byte(b'\''), r"'\''");
        assert_eq!(quote_byte(b'"'), "'\"'");
        assert_eq!(quote_byte(0), r"'\x00'");
        assert_eq!(quote_byte(0xe4), "'ä'");
    }
}
