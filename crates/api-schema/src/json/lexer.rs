//! Reads JSON tokens fast and says only *that* the text is malformed; the words for it are found afterwards, by
//! reading the document again (`syntax`).

use std::borrow::Cow;

use super::DEPTH_MAX;
use super::error::Path;
use super::scalar::Found;
use serde_json::{Map, Value};

/// The document is not JSON (or nests too deep).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads text, since a document that is not UTF-8 is repaired as a whole before (`go::repaired`): bad bytes in strings
/// become U+FFFD as Go makes them, and anywhere else the document is malformed either way.
#[derive(Debug)]
pub(crate) struct Lexer<'d> {
    text: &'d str,
    input: &'d [u8],
    at: usize,
    /// Objects and arrays that are open.
    depth: usize,
}

/// Go refuses documents that nest deeper.
pub(crate) const NESTING_MAX: usize = 10_000;

impl<'d> Lexer<'d> {
    pub(crate) fn new(text: &'d str) -> Self {
        Self { text, input: text.as_bytes(), at: 0, depth: 0 }
    }

    /// The next byte that is not white space, without consuming it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<u8, Malformed> {
        while let Some(&byte) = self.input.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(Malformed)
    }

    #[inline]
    pub(crate) fn expect(&mut self, wanted: u8) -> Result<(), Malformed> {
        if self.peek()? == wanted {
            self.at += 1;
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), Malformed> {
        if self.peek().is_ok() { Err(Malformed) } else { Ok(()) }
    }

    /// Enters `{` or `[`; false if it is empty, and then it is already left again.
    #[inline]
    pub(crate) fn open(&mut self, close: u8) -> Result<bool, Malformed> {
        self.at += 1;
        if self.depth >= NESTING_MAX {
            return Err(Malformed);
        }
        if self.peek()? == close {
            self.at += 1;
            return Ok(false);
        }
        self.depth += 1;
        Ok(true)
    }

    /// After a member or item: true if another one follows.
    #[inline]
    pub(crate) fn more(&mut self, close: u8) -> Result<bool, Malformed> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b',' {
            Ok(true)
        } else if byte == close {
            self.depth -= 1;
            Ok(false)
        } else {
            Err(Malformed)
        }
    }

    /// A member's name and the colon after it.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Cow<'d, str>, Malformed> {
        if self.peek()? != b'"' {
            return Err(Malformed);
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(key)
    }

    /// The value here, consumed unless it is an object or array.
    pub(crate) fn found(&mut self) -> Result<Found<'d>, Malformed> {
        match self.peek()? {
            b'"' => Ok(Found::String(self.string()?)),
            b'{' => Ok(Found::Object),
            b'[' => Ok(Found::Array),
            b'n' => self.literal("null").map(|()| Found::Null),
            b't' => self.literal("true").map(|()| Found::Bool(true)),
            b'f' => self.literal("false").map(|()| Found::Bool(false)),
            _ => self.number().map(Found::Number),
        }
    }

    pub(crate) fn literal(&mut self, word: &str) -> Result<(), Malformed> {
        if self.input[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    fn number(&mut self) -> Result<&'d str, Malformed> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(Malformed),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn digits(&mut self) {
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        self.digits();
        if self.at > start { Ok(()) } else { Err(Malformed) }
    }

    /// A string whose opening quote is the next byte. Borrowed unless it has escapes.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Cow<'d, str>, Malformed> {
        self.at += 1;
        let start = self.at;
        self.plain_run()?;
        if self.input[self.at] == b'"' {
            let text = &self.text[start..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(text));
        }
        self.escaped(start).map(Cow::Owned)
    }

    /// Advances to a quote or backslash.
    #[inline]
    fn plain_run(&mut self) -> Result<(), Malformed> {
        // Eight bytes at a time while none of them can end the run.
        while let Some(word) = self.input.get(self.at..self.at + 8).and_then(|bytes| bytes.first_chunk()) {
            match first_special(u64::from_le_bytes(*word)) {
                Some(offset) => {
                    self.at += offset;
                    return if self.input[self.at] < 0x20 { Err(Malformed) } else { Ok(()) };
                }
                None => self.at += 8,
            }
        }
        let rest = &self.input[self.at..];
        let stop = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20).ok_or(Malformed)?;
        self.at += stop;
        if rest[stop] < 0x20 { Err(Malformed) } else { Ok(()) }
    }

    /// The rest of a string that has escapes; `start` is where the string's text starts.
    fn escaped(&mut self, start: usize) -> Result<String, Malformed> {
        let mut out = self.text[start..self.at].to_owned();
        loop {
            // At a backslash or the closing quote.
            let byte = self.input[self.at];
            self.at += 1;
            if byte == b'"' {
                return Ok(out);
            }
            let escape = self.byte().ok_or(Malformed)?;
            self.at += 1;
            out.push(match escape {
                b'"' | b'\\' | b'/' => escape as char,
                b'b' => '\x08',
                b'f' => '\x0c',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => self.unicode_escape()?,
                _ => return Err(Malformed),
            });
            let run = self.at;
            self.plain_run()?;
            out.push_str(&self.text[run..self.at]);
        }
    }

    /// The character after `\u`; half a surrogate pair becomes U+FFFD.
    fn unicode_escape(&mut self) -> Result<char, Malformed> {
        let first = self.four_hex_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let before = self.at;
        if (0xd800..0xdc00).contains(&first) && self.input[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.four_hex_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        // What followed was not the other half: it is read again as what it is.
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four_hex_digits(&mut self) -> Result<u32, Malformed> {
        let digits = self.input.get(self.at..self.at + 4).ok_or(Malformed)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, &byte| {
            let digit = (byte as char).to_digit(16).ok_or(Malformed)?;
            Ok(code << 4 | digit)
        })
    }

    /// Skips one value of any depth without recursion.
    pub(crate) fn skip(&mut self) -> Result<(), Malformed> {
        let outer = self.depth;
        // The closing bracket of everything opened here.
        let mut open: Vec<u8> = Vec::new();
        loop {
            let opened = match self.peek()? {
                b'{' => self.open(b'}')?.then_some(b'}'),
                b'[' => self.open(b']')?.then_some(b']'),
                _ => {
                    self.found()?;
                    None
                }
            };
            match opened {
                Some(close) => open.push(close),
                None => loop {
                    let Some(&close) = open.last() else {
                        debug_assert_eq!(self.depth, outer);
                        return Ok(());
                    };
                    if self.more(close)? {
                        break;
                    }
                    open.pop();
                },
            }
            if open.last() == Some(&b'}') {
                self.key()?;
            }
        }
    }

    /// One value of any shape, as it is. Fails beyond [`DEPTH_MAX`] levels.
    pub(crate) fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        self.value_noting(depth, &Path::ROOT, &mut |_, _| {})
    }

    /// Like [`Lexer::value`]; tells of every member that an object gives again.
    pub(crate) fn value_noting(
        &mut self,
        depth: usize,
        path: &Path<'_>,
        repeated: &mut dyn FnMut(&Path<'_>, &str),
    ) -> Result<Value, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        Ok(match self.found()? {
            Found::Null => Value::Null,
            Found::Bool(value) => Value::Bool(value),
            Found::Number(literal) => number_value(literal),
            Found::String(text) => Value::String(text.into_owned()),
            Found::Array => {
                let mut items = Vec::new();
                let mut more = self.open(b']')?;
                while more {
                    items.push(self.value_noting(depth + 1, &path.index(items.len()), repeated)?);
                    more = self.more(b']')?;
                }
                Value::Array(items)
            }
            Found::Object => {
                let mut members = Map::new();
                let mut more = self.open(b'}')?;
                while more {
                    let key = self.key()?.into_owned();
                    if members.contains_key(&key) {
                        repeated(path, &key);
                    }
                    let value = self.value_noting(depth + 1, &path.key(&key), repeated)?;
                    members.insert(key, value);
                    more = self.more(b'}')?;
                }
                Value::Object(members)
            }
        })
    }
}

/// The position of the first quote, backslash or control character among eight bytes, first byte lowest.
///
/// The usual trick: subtracting one from a zero byte borrows, which sets its high bit. Borrows can mark bytes above a
/// real match wrongly, but never below it, and the lowest mark is all we use.
fn first_special(word: u64) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let quote = is_zero(word ^ (ONES * b'"' as u64));
    let backslash = is_zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    let special = quote | backslash | control;
    (special != 0).then(|| special.trailing_zeros() as usize / 8)
}

/// Integers that fit an int64 stay integers; everything else is a float, as upstream reads untyped numbers.
fn number_value(literal: &str) -> Value {
    if let Ok(value) = literal.parse::<i64>() {
        return Value::from(value);
    }
    let float = literal.parse::<f64>().unwrap_or_default();
    serde_json::Number::from_f64(float).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_found_wherever_they_stand() {
        for at in 0..8 {
            for byte in 0..=255u8 {
                let mut word = [b'a'; 8];
                word[at] = byte;
                let special = byte == b'"' || byte == b'\\' || byte < 0x20;
                assert_eq!(first_special(u64::from_le_bytes(word)), special.then_some(at), "{byte:#x} at {at}");
            }
        }
        assert_eq!(first_special(u64::from_le_bytes(*b"\x20\x21\x1f\"\\\x00aa")), Some(2));
    }
}
