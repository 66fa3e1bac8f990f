//! Field selectors as query strings write them: `metadata.name=x,status.phase!=Running` (AS-94).
//!
//! Which fields a kind knows is beside the kind (`job`, `pod`); what it says about others is up to the API server.

use std::str::FromStr;

/// Why a field selector was not understood, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {sequence}")]
    InvalidEscape { sequence: String },
    /// Upstream prints the character as a number.
    #[error("invalid field selector: unescaped character in value: {}", *.character as u32)]
    Unescaped { character: char },
}

/// Conditions that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    pub requirements: Vec<FieldRequirement>,
}

/// `field=value` or `field!=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: String,
    pub value: String,
    /// Whether the field must have another value.
    pub negated: bool,
}

impl FieldSelector {
    /// Whether values found by `value_of` match; a field the object lacks counts as empty.
    pub fn matches<V: AsRef<str>>(&self, value_of: impl Fn(&str) -> Option<V>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = value_of(&requirement.field);
            let actual = value.as_ref().map_or("", |value| value.as_ref());
            (actual == requirement.value) != requirement.negated
        })
    }

    /// The value a field must have, if the selector says so exactly: `metadata.name=x` finds one object (AS-95).
    pub fn required_value(&self, field: &str) -> Option<&str> {
        let exact = self.requirements.iter().find(|requirement| requirement.field == field && !requirement.negated);
        exact.map(|requirement| requirement.value.as_str())
    }
}

impl FromStr for FieldSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut terms = split_terms(text);
        // Upstream sorts, which decides whose error is reported.
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, negated, value) = split_term(term)
                .ok_or_else(|| ParseError::NoOperator { selector: text.to_owned(), term: term.to_owned() })?;
            let value = unescape(value)?;
            // `=` alone compares nothing with nothing.
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(FieldRequirement { field: field.to_owned(), value, negated });
            }
        }
        Ok(Self { requirements })
    }
}

/// The parts between commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// (field, whether negated, value) at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find(|(at, c)| *c == '=' || term[*at..].starts_with("!="))?.0;
    let (field, rest) = term.split_at(at);
    match rest.strip_prefix("!=") {
        Some(value) => Some((field, true, value)),
        None => Some((field, false, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?)),
    }
}

fn unescape(value: &str) -> Result<String, ParseError> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence = other.map_or("\\".to_owned(), |other| format!("\\{other}"));
                    return Err(ParseError::InvalidEscape { sequence });
                }
            },
            ',' | '=' => return Err(ParseError::Unescaped { character: c }),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requirements as `field=value` or `field!=value`.
    fn parse(text: &str) -> Vec<String> {
        let selector: FieldSelector = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let shown = |r: FieldRequirement| format!("{}{}{}", r.field, if r.negated { "!=" } else { "=" }, r.value);
        selector.requirements.into_iter().map(shown).collect()
    }

    #[test]
    fn every_form_is_read() {
        let cases: [(&str, &[&str]); 9] = [
            ("", &[]),
            (",,", &[]),
            ("=", &[]),
            ("a=b", &["a=b"]),
            ("a==b", &["a=b"]),
            ("a!=b", &["a!=b"]),
            ("b=1,a=", &["a=", "b=1"]),
            (r"a=b\,c\=d\\", &[r"a=b,c=d\"]),
            ("a!b=c", &["a!b=c"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn errors_are_upstreams() {
        let cases = [
            ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
            ("a=b,foo", "invalid selector: 'a=b,foo'; can't understand 'foo'"),
            (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<FieldSelector>().unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn matching() {
        let selector: FieldSelector = "metadata.name=x,status.phase!=Running".parse().unwrap();
        let object = |name: &'static str, phase: Option<&'static str>| {
            move |field: &str| if field == "metadata.name" { Some(name) } else { phase }
        };
        assert!(selector.matches(object("x", Some("Pending"))) && selector.matches(object("x", None)));
        assert!(!selector.matches(object("y", None)) && !selector.matches(object("x", Some("Running"))));
        assert_eq!(selector.required_value("metadata.name"), Some("x"));
        assert_eq!(selector.required_value("status.phase"), None);
    }
}
