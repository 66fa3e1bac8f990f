//! Validation errors by field, in the words and the order of upstream's `field.Error` (AS-33).

use std::fmt;

use serde_json::Value;

/// A path such as `spec.template.spec.containers[0].name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(String);

impl Path {
    pub fn new(root: impl Into<String>) -> Self {
        Self(root.into())
    }

    /// `self.name`, or `name` at the root.
    pub fn child(&self, name: &str) -> Self {
        // Most paths are made for fields with nothing wrong: `concat` is a fraction of what `format!` costs.
        if self.0.is_empty() { Self(name.to_owned()) } else { Self([&self.0, ".", name].concat()) }
    }

    /// `self[at]`.
    pub fn index(&self, at: usize) -> Self {
        Self(format!("{}[{at}]", self.0))
    }

    /// `self[key]`, for maps.
    pub fn key(&self, key: &str) -> Self {
        Self([&self.0, "[", key, "]"].concat())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    pub field: Path,
    pub problem: Problem,
    pub detail: String,
    /// See [`Error::named`].
    pub is_named: bool,
}

/// What is wrong, with the value where upstream shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    Required,
    Invalid(Value),
    /// Invalid, where upstream leaves the value out of the text.
    InvalidUnshown,
    TypeInvalid(Value),
    NotSupported {
        value: Value,
        supported: Vec<String>,
    },
    Forbidden,
    Duplicate(Value),
    NotFound(Value),
    TooLong {
        max: usize,
    },
    TooMany {
        actual: usize,
        max: usize,
    },
    Internal,
}

impl Error {
    fn new(field: &Path, problem: Problem, detail: impl Into<String>) -> Self {
        Self { field: field.clone(), problem, detail: detail.into(), is_named: false }
    }

    /// Of a value whose Go type is a string by another name, or a pointer to one: upstream shows it as JSON.
    #[must_use]
    pub fn named(mut self) -> Self {
        self.is_named = true;
        self
    }

    pub fn required(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(field, Problem::Required, detail)
    }

    pub fn invalid(field: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, Problem::Invalid(value.into()), detail)
    }

    /// Invalid as a whole; the value is not part of the text.
    pub fn invalid_unshown(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(field, Problem::InvalidUnshown, detail)
    }

    pub fn type_invalid(field: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, Problem::TypeInvalid(value.into()), detail)
    }

    /// The caller sorts `supported` the way upstream does.
    pub fn not_supported(field: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|&value| value.to_owned()).collect();
        let problem = Problem::NotSupported { value: value.into(), supported };
        Self::new(field, problem, "")
    }

    pub fn forbidden(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(field, Problem::Forbidden, detail)
    }

    pub fn duplicate(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(field, Problem::Duplicate(value.into()), "")
    }

    pub fn not_found(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(field, Problem::NotFound(value.into()), "")
    }

    pub fn too_long(field: &Path, max: usize) -> Self {
        Self::new(field, Problem::TooLong { max }, "")
    }

    pub fn too_many(field: &Path, actual: usize, max: usize) -> Self {
        Self::new(field, Problem::TooMany { actual, max }, "")
    }

    pub fn internal(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(field, Problem::Internal, detail)
    }

    /// `causes[].reason` of the Status.
    pub fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Required => "FieldValueRequired",
            Problem::Invalid(_) | Problem::InvalidUnshown => "FieldValueInvalid",
            Problem::TypeInvalid(_) => "FieldValueTypeInvalid",
            Problem::NotSupported { .. } => "FieldValueNotSupported",
            Problem::Forbidden => "FieldValueForbidden",
            Problem::Duplicate(_) => "FieldValueDuplicate",
            Problem::NotFound(_) => "FieldValueNotFound",
            Problem::TooLong { .. } => "FieldValueTooLong",
            Problem::TooMany { .. } => "FieldValueTooMany",
            Problem::Internal => "InternalError",
        }
    }

    /// The text without the field: `causes[].message` of the Status. Strings are quoted there, everything else is JSON.
    pub fn text(&self) -> String {
        let shown = |value: &Value| match value {
            Value::String(text) if !self.is_named => quoted(text),
            other => go_json(other),
        };
        let head = match &self.problem {
            Problem::Required => "Required value".to_owned(),
            Problem::Invalid(value) | Problem::TypeInvalid(value) => format!("Invalid value: {}", shown(value)),
            Problem::InvalidUnshown => "Invalid value".to_owned(),
            Problem::NotSupported { value, supported } => {
                let supported: Vec<_> = supported.iter().map(|value| quoted(value)).collect();
                let known = if supported.is_empty() {
                    String::new()
                } else {
                    format!(": supported values: {}", supported.join(", "))
                };
                format!("Unsupported value: {}{known}", shown(value))
            }
            Problem::Forbidden => "Forbidden".to_owned(),
            Problem::Duplicate(value) => format!("Duplicate value: {}", shown(value)),
            Problem::NotFound(value) => format!("Not found: {}", shown(value)),
            Problem::TooLong { max } => format!("Too long: may not be more than {max} bytes"),
            Problem::TooMany { actual, max } => format!("Too many: {actual}: must have at most {max} items"),
            Problem::Internal => "Internal error".to_owned(),
        };
        if self.detail.is_empty() { head } else { format!("{head}: {}", self.detail) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text())
    }
}

/// Errors of typed validation, with empty lists and maps shown as they were sent.
///
/// A typed list cannot tell `null` from `[]`, so rules report an empty required list as `null`; upstream shows what the
/// request held. `object` is that request.
pub fn show_as_sent(errors: &mut [Error], object: &Value) {
    for error in errors {
        if let Problem::Invalid(shown @ Value::Null) = &mut error.problem
            && let Some(sent @ (Value::Array(_) | Value::Object(_))) = lookup(object, &error.field.0)
        {
            *shown = sent.clone();
        }
    }
}

/// The value at a path without map keys, such as `spec.rules[0].values`.
fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, step| {
        let mut parts = step.split('[');
        let value = value.get(parts.next()?)?;
        parts.try_fold(value, |value, part| value.get(part.strip_suffix(']')?.parse::<usize>().ok()?))
    })
}

/// JSON as Go's encoder writes it, which keeps it safe inside HTML.
fn go_json(value: &Value) -> String {
    let json = value.to_string();
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// A string between double quotes as Go's `%q` writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if is_printable(c) => out.push(c),
            c if c.is_ascii() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c as u32 <= 0xffff => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // The standard library keeps the table to itself, but escapes what is not in it; the letter in front keeps it from
    // escaping combining marks, which it does at the start of a text only.
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_upstreams() {
        let path = Path::new("spec").child("rules").index(0).child("action");
        let cases = [
            (Error::required(&path, ""), "spec.rules[0].action: Required value"),
            (
                Error::invalid(&path, -1, "must be positive"),
                "spec.rules[0].action: Invalid value: -1: must be positive",
            ),
            (Error::invalid(&path, "a\"b", "no"), "spec.rules[0].action: Invalid value: \"a\\\"b\": no"),
            (
                Error::not_supported(&path, "X", &["A", "B"]),
                "spec.rules[0].action: Unsupported value: \"X\": supported values: \"A\", \"B\"",
            ),
            (Error::too_many(&path, 21, 20), "spec.rules[0].action: Too many: 21: must have at most 20 items"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn compound_values_are_go_json() {
        let path = Path::new("spec");
        let value = serde_json::json!({"a": "<b> & c", "b": ["d\"", 1, null]});
        assert_eq!(
            Error::invalid(&path, value, "no").text(),
            r#"Invalid value: {"a":"\u003cb\u003e \u0026 c","b":["d\"",1,null]}: no"#
        );
        assert_eq!(Error::invalid_unshown(&path, "no").to_string(), "spec: Invalid value: no");
        let text = "a<b\u{1}\"";
        assert_eq!(Error::duplicate(&path, text).text(), r#"Duplicate value: "a<b\x01\"""#);
        assert_eq!(Error::duplicate(&path, text).named().text(), r#"Duplicate value: "a\u003cb\u0001\"""#);
    }

    #[test]
    fn quoting_is_gos() {
        let cases = [
            ("a é 日", r#""a é 日""#),
            ("\u{0}\u{7}\u{1b}\u{7f}", r#""\x00\a\x1b\x7f""#),
            ("\u{85}\u{a0}\u{ad}\u{feff}\u{2028}", r#""\u0085\u00a0\u00ad\ufeff\u2028""#),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{1f600}\u{e0001}", "\"\u{1f600}\\U000e0001\""),
        ];
        for (text, quote) in cases {
            assert_eq!(quoted(text), quote);
        }
    }

    #[test]
    fn empty_lists_are_shown_as_sent() {
        let object = serde_json::json!({"spec": {"rules": [{"values": []}, {"values": null}, {}]}});
        let at = |index| Path::new("spec").child("rules").index(index).child("values");
        let mut errors: Vec<_> = (0..4).map(|index| Error::invalid(&at(index), Value::Null, "none")).collect();
        show_as_sent(&mut errors, &object);
        let texts: Vec<_> = errors.iter().map(Error::text).collect();
        let null = "Invalid value: null: none";
        assert_eq!(texts, ["Invalid value: []: none", null, null, null]);
    }
}
