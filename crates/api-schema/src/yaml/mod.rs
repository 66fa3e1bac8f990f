//! YAML bodies and answers (AS-22, AS-26), with the behaviour and the words of the parser Kubernetes uses: YAML 1.1 as
//! libyaml reads it, the first document of a stream, everything turned into JSON before it is looked at.
//!
//! | module | what it does |
//! |---|---|
//! | [`scan`] | characters to tokens |
//! | [`compose`] | tokens to nodes |
//! | [`resolve`] | plain scalars to booleans, numbers, null |
//! | [`convert`] | nodes to JSON |
//! | [`emit`] | values to YAML |

mod compose;
mod convert;
mod emit;
mod resolve;
mod scan;

use convert::{Converted, Duplicate};
use scan::Mark;

pub use emit::to_string;

/// A YAML document as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct FromYaml {
    pub json: Vec<u8>,
    /// Keys that their mapping has already, each in upstream's words with its line. The last one counts.
    pub duplicates: Vec<String>,
}

impl FromYaml {
    /// What a strict reading says about all duplicates together.
    pub fn strict_error(&self) -> Option<String> {
        let told = || format!("yaml: unmarshal errors:\n  {}", self.duplicates.join("\n  "));
        (!self.duplicates.is_empty()).then(told)
    }
}

/// The JSON that the first document of `bytes` stands for, or upstream's words for why there is none.
pub fn to_json(bytes: &[u8]) -> Result<FromYaml, String> {
    let Converted { json, duplicates } = convert_first(bytes).map_err(|problem| problem.to_string())?;
    let duplicates = duplicates.iter().map(|Duplicate { line, message }| format!("line {line}: {message}")).collect();
    Ok(FromYaml { json, duplicates })
}

/// What is wrong with a document, for people who look for the line in an editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Counted from one. Upstream's own messages count from zero here and there.
    pub line: Option<usize>,
    pub message: String,
}

/// The JSON that the first document of `text` stands for. A key that occurs twice is a fault.
pub fn to_json_strictly(text: &str) -> Result<Vec<u8>, Fault> {
    // The end of a text is noticed behind its last line.
    let lines = text.lines().count().max(1);
    let Converted { json, duplicates } = convert_first(text.as_bytes())
        .map_err(|problem| Fault { line: problem.at.map(|line| (line + 1).min(lines)), message: problem.message })?;
    match duplicates.into_iter().next() {
        None => Ok(json),
        Some(Duplicate { line, message }) => Err(Fault { line: Some(line), message }),
    }
}

fn convert_first(bytes: &[u8]) -> Result<Converted, Problem> {
    convert::convert(&compose::compose(readable(bytes)?)?)
}

/// The text, if all of it is characters that YAML allows.
fn readable(bytes: &[u8]) -> Result<&str, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let rest = &bytes[error.valid_up_to()..];
        let is_lead = rest.first().is_some_and(|byte| matches!(byte, 0xc0..=0xf7));
        Problem::decoder(match error.error_len() {
            None => "incomplete UTF-8 octet sequence",
            Some(_) if is_lead => "invalid trailing UTF-8 octet",
            Some(_) => "invalid leading UTF-8 octet",
        })
    })?;
    let is_allowed =
        |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    if text.contains(|c| !is_allowed(c)) {
        return Err(Problem::decoder("control characters are not allowed"));
    }
    Ok(text)
}

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    message: String,
    /// As upstream counts.
    line: Option<usize>,
    /// Where it is, counted from zero.
    at: Option<usize>,
    prefix: &'static str,
}

impl Problem {
    /// Found while scanning; its line is counted from one.
    fn scanner(message: &'static str, context: Mark, at: Mark) -> Self {
        let line = if at.line > 0 { at.line + 1 } else { context.line };
        Self::at_line(message, line, at)
    }

    /// Found while putting tokens together; its line is counted from zero, as upstream forgets to add one.
    fn parser(message: &'static str, at: Mark) -> Self {
        Self::at_line(message, at.line, at)
    }

    fn parser_in(message: &'static str, context: Mark, at: Mark) -> Self {
        Self::at_line(message, if at.line > 0 { at.line } else { context.line }, at)
    }

    fn at_line(message: &'static str, line: usize, at: Mark) -> Self {
        Self { message: message.to_owned(), line: (line > 0).then_some(line), at: Some(at.line), prefix: "yaml: " }
    }

    /// About what the document means rather than where something is.
    fn decoder(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: None, at: None, prefix: "yaml: " }
    }

    /// About what JSON cannot hold.
    fn converter(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: None, at: None, prefix: "" }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.prefix)?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests;
