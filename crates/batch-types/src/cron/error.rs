//! What the schedule parser says, word for word what robfig/cron and Go's `strconv` say: clients see it (JA-CJ5).

use super::duration::DurationError;
use super::zone;
use crate::field::quoted;

/// Why a schedule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("empty spec string")]
    Empty,
    /// The original indexes past the text here and recovers; its words are the contract (CJ-41).
    #[error("invalid schedule format: runtime error: slice bounds out of range [:-1]")]
    ZoneAlone,
    #[error("provided bad location {name}: {source}")]
    BadZone { name: String, source: zone::Error },
    #[error("unrecognized descriptor: {0}")]
    UnknownDescriptor(String),
    #[error("failed to parse duration {descriptor}: {source}")]
    BadDuration { descriptor: String, source: DurationError },
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    FieldCount(Vec<String>),
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: {problem}", quoted(.text))]
    NotAnInteger { text: String, problem: IntegerProblem },
    #[error("negative number ({number}) not allowed: {text}")]
    Negative { number: i64, text: String },
    #[error("too many hyphens: {0}")]
    TooManyHyphens(String),
    #[error("too many slashes: {0}")]
    TooManySlashes(String),
    #[error("beginning of range ({start}) below minimum ({minimum}): {range}")]
    BelowMinimum { start: u64, minimum: u64, range: String },
    #[error("end of range ({end}) above maximum ({maximum}): {range}")]
    AboveMaximum { end: u64, maximum: u64, range: String },
    #[error("beginning of range ({start}) beyond end of range ({end}): {range}")]
    Reversed { start: u64, end: u64, range: String },
    #[error("step of range should be a positive number: {0}")]
    ZeroStep(String),
}

/// Go's two ways not to read a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntegerProblem {
    #[error("invalid syntax")]
    Syntax,
    #[error("value out of range")]
    Range,
}
