//! Finds the words for a malformed document: the texts of Go's `encoding/json` scanner.
//!
//! Only run on documents that the lexer already refused, so it is written for clarity.

use super::error::DecodeError;
use super::lexer::NESTING_MAX;
use crate::go;

/// Whether the document is well-formed JSON; the error is Go's.
pub fn check(document: &[u8]) -> Result<(), DecodeError> {
    Scanner { rest: document, open: Vec::new() }.document().map_err(DecodeError::Syntax)
}

struct Scanner<'d> {
    rest: &'d [u8],
    /// What is open, innermost last.
    open: Vec<Container>,
}

#[derive(Clone, Copy, PartialEq)]
enum Container {
    Object,
    Array,
}

type Step = Result<(), String>;

impl Scanner<'_> {
    fn document(mut self) -> Step {
        loop {
            if self.value()? {
                continue;
            }
            // A value is complete: leave what it closes, or go on to the next member or item.
            while let Some(&container) = self.open.last() {
                if self.after_value(container)? {
                    break;
                }
                self.open.pop();
            }
            if self.open.is_empty() {
                return match self.skip_space() {
                    None => Ok(()),
                    Some(byte) => Err(unexpected(byte, "after top-level value")),
                };
            }
        }
    }

    /// Reads one scalar, or the start of a container up to its first value; true if a value comes next.
    fn value(&mut self) -> Result<bool, String> {
        let byte = self.next_token()?;
        match byte {
            b'{' => {
                self.push(byte, Container::Object)?;
                if self.skip_space() == Some(b'}') {
                    return Ok(false);
                }
                self.key()?;
                return Ok(true);
            }
            b'[' => {
                self.push(byte, Container::Array)?;
                return Ok(self.skip_space() != Some(b']'));
            }
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(byte)?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => return Err(unexpected(byte, "looking for beginning of value")),
        }
        Ok(false)
    }

    fn push(&mut self, byte: u8, container: Container) -> Step {
        self.open.push(container);
        if self.open.len() > NESTING_MAX { Err(unexpected(byte, "exceeded max depth")) } else { Ok(()) }
    }

    /// True if another value follows in the container, false if it was closed.
    fn after_value(&mut self, container: Container) -> Result<bool, String> {
        let byte = self.next_token()?;
        match (container, byte) {
            (Container::Object, b',') => self.key().map(|()| true),
            (Container::Array, b',') => Ok(true),
            (Container::Object, b'}') | (Container::Array, b']') => Ok(false),
            (Container::Object, _) => Err(unexpected(byte, "after object key:value pair")),
            (Container::Array, _) => Err(unexpected(byte, "after array element")),
        }
    }

    fn key(&mut self) -> Step {
        match self.next_token()? {
            b'"' => self.string()?,
            byte => return Err(unexpected(byte, "looking for beginning of object key string")),
        }
        match self.next_token()? {
            b':' => Ok(()),
            byte => Err(unexpected(byte, "after object key")),
        }
    }

    /// After the opening quote.
    fn string(&mut self) -> Step {
        loop {
            match self.next_byte()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_byte()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next_byte()?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(unexpected(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(unexpected(byte, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(unexpected(byte, "in string literal")),
                _ => {}
            }
        }
    }

    /// After the first byte. What follows a complete number is somebody else's business.
    fn number(&mut self, first: u8) -> Step {
        let leading = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if leading != b'0' {
            self.more_digits();
        }
        if self.rest.first() == Some(&b'.') {
            self.rest = &self.rest[1..];
            self.digit("after decimal point in numeric literal")?;
            self.more_digits();
        }
        if let Some(b'e' | b'E') = self.rest.first() {
            self.rest = &self.rest[1..];
            if let Some(b'+' | b'-') = self.rest.first() {
                self.rest = &self.rest[1..];
            }
            self.digit("in exponent of numeric literal")?;
            self.more_digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        let byte = self.next_byte()?;
        if byte.is_ascii_digit() { Ok(byte) } else { Err(unexpected(byte, context)) }
    }

    fn more_digits(&mut self) {
        while let Some(b'0'..=b'9') = self.rest.first() {
            self.rest = &self.rest[1..];
        }
    }

    /// After the first letter.
    fn word(&mut self, word: &str) -> Step {
        for wanted in word.bytes().skip(1) {
            let byte = self.next_byte()?;
            if byte != wanted {
                let context = format!("in literal {word} (expecting '{}')", wanted as char);
                return Err(unexpected(byte, &context));
            }
        }
        Ok(())
    }

    /// The next byte that is not white space, left in place.
    fn skip_space(&mut self) -> Option<u8> {
        self.rest = trim_space(self.rest);
        self.rest.first().copied()
    }

    fn next_token(&mut self) -> Result<u8, String> {
        self.skip_space();
        self.next_byte()
    }

    fn next_byte(&mut self) -> Result<u8, String> {
        let (&byte, rest) = self.rest.split_first().ok_or("unexpected end of JSON input")?;
        self.rest = rest;
        Ok(byte)
    }
}

/// Skips the white space that JSON knows, which is less than what ASCII has.
fn trim_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    &text[start.unwrap_or(text.len())..]
}

fn unexpected(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", go::quote_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_documents_are_described_in_gos_words() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (r#"{"a":1} x"#, "invalid character 'x' after top-level value"),
            ("{oops", "invalid character 'o' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("[1}", "invalid character '}' after array element"),
            ("tru", "unexpected end of JSON input"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("nil", "invalid character 'i' in literal null (expecting 'u')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u12g4""#, "invalid character 'g' in \\u hexadecimal character escape"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
        ];
        for (document, expected) in cases {
            assert_eq!(check(document.as_bytes()), Err(DecodeError::Syntax(expected.to_owned())), "{document}");
        }
        for document in ["{}", " [1, {\"a\": [null]}, \"\\u00e4\"] ", "-0.5e+7", "\"\"", "{\"a\":{}}", "[[]]"] {
            assert_eq!(check(document.as_bytes()), Ok(()), "{document}");
        }
        let deep = "[".repeat(NESTING_MAX + 1);
        assert_eq!(
            check(deep.as_bytes()),
            Err(DecodeError::Syntax("invalid character '[' exceeded max depth".to_owned()))
        );
    }
}
