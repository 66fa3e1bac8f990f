//! Durations as Go's `time.ParseDuration` reads them: `90s`, `1h30m`, `1.5h` (CJ-42).

/// Why a duration was refused, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration {}", quoted(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", quoted(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quoted(.unit), quoted(.text))]
    UnknownUnit { unit: String, text: String },
}

/// Nanoseconds.
pub(super) fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (amount, after) = amount(rest).ok_or_else(invalid)?;
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let scale = nanoseconds(unit)
            .ok_or_else(|| DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() })?;
        let part = amount.times(scale).ok_or_else(invalid)?;
        total = total.checked_add(part).filter(|total| *total <= LIMIT).ok_or_else(invalid)?;
        rest = after;
    }
    // One more nanosecond fits below zero than above.
    if negative {
        return Ok((total as i64).wrapping_neg());
    }
    i64::try_from(total).map_err(|_| invalid())
}

/// The most nanoseconds, sign aside.
const LIMIT: u64 = 1 << 63;

/// A number before its unit: digits, and digits after a point.
struct Amount {
    whole: u64,
    fraction: u64,
    /// Ten to the power of the fraction's digits.
    fraction_scale: f64,
}

impl Amount {
    fn times(&self, unit: u64) -> Option<u64> {
        let whole = self.whole.checked_mul(unit).filter(|whole| *whole <= LIMIT)?;
        let fraction = (self.fraction as f64 * (unit as f64 / self.fraction_scale)) as u64;
        whole.checked_add(fraction).filter(|sum| *sum <= LIMIT)
    }
}

/// The number at the start of a text and what follows; `None` without digits or if it is too large.
fn amount(text: &str) -> Option<(Amount, &str)> {
    let digits_end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole_digits, rest) = text.split_at(digits_end(text));
    let (fraction_digits, rest) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => rest.split_at(digits_end(rest)),
    };
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return None;
    }
    let whole = whole_digits.bytes().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|number| *number <= LIMIT)
    })?;
    let mut amount = Amount { whole, fraction: 0, fraction_scale: 1.0 };
    for digit in fraction_digits.bytes() {
        // Digits beyond what fits are dropped, as Go drops them.
        let longer = amount.fraction.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit - b'0')));
        let Some(longer) = longer.filter(|number| *number <= LIMIT) else { break };
        amount.fraction = longer;
        amount.fraction_scale *= 10.0;
    }
    Some((amount, rest))
}

fn nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        "us" | "µs" | "μs" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// Quoted as Go's `time` package does: bytes outside printable ASCII in hexadecimal.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..0x80 => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("0", 0),
            ("-0", 0),
            ("1ns", 1),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("1ms", 1_000_000),
            ("90s", 90_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("-1.5s", -1_500_000_000),
            ("+5m", 300_000_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("1s1s", 2_000_000_000),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(parse(text), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn errors_are_gos() {
        let cases = [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            (".s", "time: invalid duration \".s\""),
            ("10", "time: missing unit in duration \"10\""),
            ("1h30", "time: missing unit in duration \"1h30\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1 h", "time: unknown unit \" h\" in duration \"1 h\""),
            ("1é", "time: unknown unit \"\\xc3\\xa9\" in duration \"1\\xc3\\xa9\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }
}
