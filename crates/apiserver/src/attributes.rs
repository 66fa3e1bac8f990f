//! The little that is known of every stored object without parsing it: where its labels and its selectable fields
//! stand in the bytes (design D3).
//!
//! Spans instead of copies: about eight bytes a field, however long the labels are. Lists and watches with selectors
//! read straight from the stored JSON.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use serde_json::Value;

use crate::resources::{Resource, registry};

/// Spans into one stored object, in the order of [`paths`]: labels, deletionTimestamp, then the kind's selectable fields.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    spans: Box<[Option<Span>]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

const LABELS: &[&str] = &["metadata", "labels"];
const DELETION: &[&str] = &["metadata", "deletionTimestamp"];
/// How many spans every kind has, before its selectable fields.
const COMMON: usize = 2;

impl Attributes {
    /// Finds the spans of an object stored under `key`.
    pub fn of(key: &str, value: &[u8]) -> Self {
        let topic = key.split('/').next().unwrap_or_default();
        let resource = registry::by_topic(topic);
        Self { spans: skim(value, &paths(resource)).into_boxed_slice() }
    }

    /// The value of a label. Neither keys nor values of valid labels hold anything that JSON would escape.
    pub fn label<'v>(&self, value: &'v [u8], key: &str) -> Option<&'v str> {
        let span = self.spans.first().copied().flatten()?;
        let bytes = value.get(span.range())?;
        let mut pairs = Pairs { cursor: Cursor { bytes, at: 1 } };
        pairs.find(|(name, _)| *name == key.as_bytes()).and_then(|(_, label)| std::str::from_utf8(label).ok())
    }

    /// Whether the object is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.spans.get(1).is_some_and(Option::is_some)
    }

    /// The text of the resource's `at`-th selectable field; `None` when it is absent.
    pub fn field<'v>(&self, value: &'v [u8], at: usize) -> Option<Cow<'v, str>> {
        let span = self.spans.get(COMMON + at).copied().flatten()?;
        let raw = value.get(span.range())?;
        if raw.first() == Some(&b'"') { unquote(raw) } else { std::str::from_utf8(raw).ok().map(Cow::Borrowed) }
    }
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The bytes of an object's metadata.
pub fn metadata_bytes(object: &Bytes) -> Bytes {
    match skim(object, &[&["metadata"]])[0] {
        Some(span) => object.slice(span.range()),
        None => Bytes::from_static(b"{}"),
    }
}

/// Reads a stored object member by member: whoever is told a name says what becomes of its value, by one of the other
/// methods. Names need no escapes.
pub struct Members<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Members<'a> {
    pub fn of(object: &'a [u8]) -> Self {
        Self { cursor: Cursor { bytes: object, at: 1 } }
    }

    /// The name of the next member; `None` at the end of the object, which is the inner one after [`Self::enter`].
    pub fn next_name(&mut self) -> Option<&'a str> {
        match self.cursor.peek()? {
            b',' => self.cursor.at += 1,
            b'}' => {
                self.cursor.at += 1;
                return None;
            }
            _ => {}
        }
        let name = self.cursor.string()?;
        self.cursor.expect(b':')?;
        std::str::from_utf8(name).ok()
    }

    /// Goes on with the members of the value, if it is an object.
    pub fn enter(&mut self) -> bool {
        let is_object = self.cursor.peek() == Some(b'{');
        self.cursor.at += usize::from(is_object);
        is_object
    }

    /// Where the value stands.
    pub fn span(&mut self) -> Range<usize> {
        let start = self.cursor.at;
        if self.cursor.skip().is_none() {
            self.cursor.at = self.cursor.bytes.len();
        }
        start..self.cursor.at
    }

    /// The value itself.
    pub fn value(&mut self) -> Result<Value, serde_json::Error> {
        let rest = self.cursor.bytes.get(self.cursor.at..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter();
        let value = values.next().unwrap_or_else(|| serde_json::from_slice(b""));
        self.cursor.at += values.byte_offset();
        value
    }
}

fn paths(resource: Option<&'static Resource>) -> Vec<&'static [&'static str]> {
    let selectable = resource.map(|resource| resource.selectable).unwrap_or_default();
    [LABELS, DELETION].into_iter().chain(selectable.iter().map(|field| field.path)).collect()
}

/// The span of each path's value in a JSON object, without building anything of it.
fn skim(json: &[u8], paths: &[&[&str]]) -> Vec<Option<Span>> {
    let mut spans = vec![None; paths.len()];
    let wanted: Vec<usize> = (0..paths.len()).collect();
    let mut cursor = Cursor { bytes: json, at: 0 };
    // Malformed input cannot come from the store; if it did, absent attributes are the safe reading.
    let _ = cursor.object(paths, 0, &wanted, &mut spans);
    spans
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Walks an object at `depth` of the `wanted` paths and notes the spans that end here.
    fn object(&mut self, paths: &[&[&str]], depth: usize, wanted: &[usize], spans: &mut [Option<Span>]) -> Option<()> {
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            let inside: Vec<usize> = wanted
                .iter()
                .copied()
                .filter(|&at| paths[at].get(depth).is_some_and(|s| s.as_bytes() == key))
                .collect();
            let start = self.at;
            if inside.is_empty() {
                self.skip()?;
            } else {
                let deeper: Vec<usize> = inside.iter().copied().filter(|&at| paths[at].len() > depth + 1).collect();
                if deeper.is_empty() || self.peek() != Some(b'{') {
                    self.skip()?;
                } else {
                    self.object(paths, depth + 1, &deeper, spans)?;
                }
                let span = Span { start: u32::try_from(start).ok()?, end: u32::try_from(self.at).ok()? };
                for at in inside.into_iter().filter(|&at| paths[at].len() == depth + 1) {
                    spans[at] = Some(span);
                }
            }
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The raw text of a string between its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.next()? {
                b'"' => return Some(&self.bytes[start..self.at - 1]),
                b'\\' => self.at += 1,
                _ => {}
            }
        }
    }

    /// Steps over one value of any kind.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b'}' | b']' if depth == 0 => return Some(()),
                _ => self.at += 1,
            }
            if depth == 0 && matches!(self.peek(), None | Some(b',' | b'}' | b']')) {
                return Some(());
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }
}

/// The members of a JSON object whose values are strings.
struct Pairs<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.peek()? == b',' {
            self.cursor.at += 1;
        }
        let key = self.cursor.string()?;
        self.cursor.expect(b':')?;
        Some((key, self.cursor.string()?))
    }
}

/// A JSON string without its quotes; borrowed unless it contains an escape.
fn unquote(raw: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(raw).ok()?;
    if text.contains('\\') {
        return serde_json::from_str(text).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(text.strip_prefix('"')?.strip_suffix('"')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"app":"x","tier":"1"},"uid":"u"},"spec":{"containers":[{"name":"c","args":["}","\"]"]}],"nodeName":"n1"},"status":{"phase":"Running","n":-1.5e3}}"#;

    fn texts(json: &str, paths: &[&[&str]]) -> Vec<Option<String>> {
        let spans = skim(json.as_bytes(), paths);
        spans.iter().map(|span| span.map(|span| json[span.range()].to_owned())).collect()
    }

    #[test]
    fn spans_are_found_behind_anything() {
        let paths: &[&[&str]] =
            &[&["metadata", "labels"], &["spec", "nodeName"], &["status", "phase"], &["status", "n"], &["status", "x"]];
        let expected = [Some(r#"{"app":"x","tier":"1"}"#), Some("\"n1\""), Some("\"Running\""), Some("-1.5e3"), None];
        assert_eq!(texts(POD, paths), expected.map(|text| text.map(str::to_owned)));
    }

    /// All members, with those of `metadata` told like others and `labels` taken from its span.
    fn read(object: &str) -> Option<Vec<(String, Value)>> {
        let mut members = Members::of(object.as_bytes());
        let mut all = Vec::new();
        while let Some(name) = members.next_name() {
            if name == "metadata" && members.enter() {
                while let Some(name) = members.next_name() {
                    let value = match name {
                        "labels" => serde_json::from_str(object.get(members.span())?).ok()?,
                        _ => members.value().ok()?,
                    };
                    all.push((format!("metadata.{name}"), value));
                }
            } else {
                all.push((name.to_owned(), members.value().ok()?));
            }
        }
        Some(all)
    }

    #[test]
    fn members_are_read_one_by_one() {
        let whole: Value = serde_json::from_str(POD).unwrap();
        let mut expected = Vec::new();
        for (name, value) in whole.as_object().unwrap() {
            match value.as_object().filter(|_| name == "metadata") {
                Some(inner) => {
                    expected.extend(inner.iter().map(|(name, value)| (format!("metadata.{name}"), value.clone())));
                }
                None => expected.push((name.clone(), value.clone())),
            }
        }
        assert_eq!(read(POD).unwrap(), expected);
        assert_eq!(read("{}").unwrap(), []);
        assert_eq!(read(r#"{"metadata":{},"n":12,"x":null}"#).unwrap().len(), 2);
        assert_eq!(read(r#"{"metadata":7}"#).unwrap(), [("metadata".to_owned(), Value::from(7))]);
    }

    #[test]
    fn reading_what_is_cut_off_ends() {
        (0..POD.len()).for_each(|cut| drop(read(&POD[..cut])));
    }

    #[test]
    fn labels_are_read_from_the_bytes() {
        let attributes = Attributes::of("pods/ns/a", POD.as_bytes());
        assert_eq!(attributes.label(POD.as_bytes(), "app"), Some("x"));
        assert_eq!(attributes.label(POD.as_bytes(), "tier"), Some("1"));
        assert_eq!(attributes.label(POD.as_bytes(), "none"), None);
    }

    #[test]
    fn broken_bytes_have_no_attributes() {
        for cut in 0..POD.len() {
            let _ = Attributes::of("pods/ns/a", &POD.as_bytes()[..cut]);
        }
        assert_eq!(Attributes::of("pods/ns/a", b"[1]").label(b"[1]", "app"), None);
    }
}
