//! Label selectors as query strings write them: `app=x,tier in (a,b),!legacy` (AS-93).
//!
//! The grammar, its quirks and its error texts are those of upstream's `labels.Parse`; clients show the texts to
//! people. What a selector means is in `label`.

use std::collections::{BTreeSet, HashSet};
use std::str::FromStr;

use super::label::{Operator, Requirement, Selector, key_error};
use crate::field::Path;

/// Why a label selector was not understood, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Parser { tokens: scan(text), at: 0 }.selector()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key or value, or the words `in` and `notin`, which are values too where a value is expected.
    Word(&'a str),
    /// One of `( ) , ! = == != > <`.
    Symbol(&'static str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) => text,
            Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

/// Splits a selector into tokens, the last one being [`Token::End`]. A NUL byte ends the text, as upstream has it.
fn scan(text: &str) -> Vec<Token<'_>> {
    // Longest first, so that `==` is not read as two tokens.
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut rest = text.split('\0').next().unwrap_or_default();
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            tokens.push(Token::End);
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            rest = &rest[end..];
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(mut self) -> Result<Selector, ParseError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                Token::End => return Ok(Selector::new(requirements)),
                other => return Err(found(other, "expected: !, identifier, or 'end of string'")),
            }
            let requirement = self.requirement();
            requirements.push(
                requirement.map_err(|ParseError(text)| ParseError(format!("unable to parse requirement: {text}")))?,
            );
            match (self.next(), self.peek()) {
                (Token::End, _) => return Ok(Selector::new(requirements)),
                (Token::Symbol(","), Token::Word(_) | Token::Symbol("!")) => {}
                (Token::Symbol(","), other) => return Err(found(other, "expected: identifier after ','")),
                (other, _) => return Err(found(other, "expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, ParseError> {
        let (negated, key) = self.key()?;
        if negated {
            return requirement(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return requirement(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.exact_value()?],
        };
        requirement(key, operator, values)
    }

    fn key(&mut self) -> Result<(bool, &'a str), ParseError> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else { return Err(found(token, "expected: identifier")) };
        match key_error(key, &Path::default()) {
            Some(error) => Err(ParseError(error.to_string())),
            None => Ok((negated, key)),
        }
    }

    fn operator(&mut self) -> Result<Operator, ParseError> {
        match self.next() {
            Token::Word("in") => Ok(Operator::In),
            Token::Word("notin") => Ok(Operator::NotIn),
            Token::Symbol("=") => Ok(Operator::Equals),
            Token::Symbol("==") => Ok(Operator::DoubleEquals),
            Token::Symbol("!=") => Ok(Operator::NotEquals),
            Token::Symbol(">") => Ok(Operator::GreaterThan),
            Token::Symbol("<") => Ok(Operator::LessThan),
            other => Err(found(other, "expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// `(a,b)`. Nothing between parentheses or commas is the empty value.
    fn set(&mut self) -> Result<Vec<String>, ParseError> {
        match self.next() {
            Token::Symbol("(") => {}
            // Upstream has no comma in this one text.
            other => return Err(ParseError(format!("found '{}' expected: '('", other.text()))),
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.next();
                return Ok(vec![String::new()]);
            }
            other => return Err(found(other, "expected: ',', ')' or identifier")),
        }
        let values = self.set_values()?;
        self.next(); // The closing parenthesis, which `set_values` has seen.
        Ok(values.into_iter().map(str::to_owned).collect())
    }

    fn set_values(&mut self) -> Result<BTreeSet<&'a str>, ParseError> {
        let mut values = BTreeSet::new();
        loop {
            match (self.next(), self.peek()) {
                (Token::Word(value), following) => {
                    values.insert(value);
                    match following {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        other => return Err(found(other, "expected: ',' or ')'")),
                    }
                }
                (Token::Symbol(","), following) => {
                    if values.is_empty() || matches!(following, Token::Symbol(")" | ",")) {
                        values.insert("");
                    }
                    if following == Token::Symbol(")") {
                        return Ok(values);
                    }
                }
                (other, _) => return Err(found(other, "expected: ',', or identifier")),
            }
        }
    }

    /// The value after `=` and the like; nothing there is the empty value.
    fn exact_value(&mut self) -> Result<String, ParseError> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                Ok(value.to_owned())
            }
            other => Err(found(other, "expected: identifier")),
        }
    }
}

fn requirement(key: &str, operator: Operator, values: Vec<String>) -> Result<Requirement, ParseError> {
    Requirement::new(key.to_owned(), operator, values).map_err(|errors| {
        let mut known = HashSet::new();
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| known.insert(text.clone()));
        ParseError(if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) })
    })
}

fn found(token: Token<'_>, expected: &str) -> ParseError {
    ParseError(format!("found '{}', {expected}", token.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_sorted_by_key() {
        let cases = [
            ("", ""),
            ("  ", ""),
            ("a", "a"),
            ("!a", "!a"),
            (" a = b ", "a=b"),
            ("a==b", "a==b"),
            ("a!=b", "a!=b"),
            ("a=", "a="),
            ("a=,b", "a=,b"),
            ("b in (z, y,z),a notin (x)", "a notin (x),b in (y,z)"),
            ("a in ()", "a in ()"),
            ("a in (,)", "a in ()"),
            ("a in (b,)", "a in (,b)"),
            ("a in (,b)", "a in (,b)"),
            ("a in (b,,c)", "a in (,b,c)"),
            ("a in (in, notin)", "a in (in,notin)"),
            ("in in (in)", "in in (in)"),
            ("in", "in"),
            ("a>1,b<2", "a>1,b<2"),
            ("example.com/a=b", "example.com/a=b"),
            ("a\0,,,", "a"),
        ];
        for (text, shown) in cases {
            let selector: Selector = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn errors_are_upstreams() {
        let cases = [
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            ("a in (b=c)", "unable to parse requirement: found '=', expected: ',' or ')'"),
            ("a in (b,=c)", "unable to parse requirement: found '=', expected: ',', or identifier"),
            ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
            (
                "a>z",
                "unable to parse requirement: values[0]: Invalid value: \"z\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Selector>().unwrap_err().to_string(), error, "{text}");
        }
        let starts = [
            ("a~b", "unable to parse requirement: <nil>: Invalid value: \"a~b\": name part must consist"),
            ("a=x|y", "unable to parse requirement: values[0][a]: Invalid value: \"x|y\": a valid label must"),
            ("a in (-,+)", "unable to parse requirement: [values[0][a]: Invalid value: \"+\": a valid label must"),
            ("a>", "unable to parse requirement: values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators"),
        ];
        for (text, start) in starts {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}\n{start}");
        }
    }

    #[test]
    fn comparisons_need_integers() {
        let matches = |selector: &str, value: Option<&str>| {
            selector.parse::<Selector>().unwrap().matches_with(|key| value.filter(|_| key == "a"))
        };
        assert!(matches("a>1", Some("2")) && !matches("a>1", Some("1")) && !matches("a>1", Some("x")));
        assert!(matches("a<1", Some("-2")) && !matches("a<1", None));
        assert!(
            matches("a!=b", None) && matches("a notin (b)", None) && !matches("a=", None) && matches("a=", Some(""))
        );
    }
}
