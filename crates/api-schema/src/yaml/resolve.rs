//! What an untagged plain scalar stands for: YAML 1.1's words for booleans and null, and Go's spelling of numbers.

/// A scalar that has been understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

/// Resolves a scalar without a tag.
pub(super) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.bytes().next() {
        Some(b'.') => parse_float(text).map(Scalar::Float),
        Some(b'+' | b'-' | b'0'..=b'9') if !is_timestamp(text) => parse_number(text),
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.to_owned()))
}

/// Whether a text must be quoted to remain one.
pub(super) fn is_plain_text(text: &str) -> bool {
    // Times have a tag of their own, although they are read as strings.
    matches!(resolve(text), Scalar::Text(_)) && !is_timestamp(text) && !is_base_60(text)
}

fn parse_number(text: &str) -> Option<Scalar> {
    let plain = text.replace('_', "");
    if let Some(number) = parse_int(&plain) {
        return Some(number);
    }
    if is_yaml_float(&plain) { parse_float(&plain).map(Scalar::Float) } else { None }
}

/// `strconv.ParseInt` with base 0, and `ParseUint` for what is too large: `0x`, `0o`, `0b` and a leading zero for octal.
fn parse_int(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    let signed = i128::from(magnitude) * if negative { -1 } else { 1 };
    match i64::try_from(signed) {
        Ok(number) => Some(Scalar::Int(number)),
        // ParseUint takes no sign.
        Err(_) => (!text.starts_with(['+', '-'])).then_some(Scalar::Uint(magnitude)),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_yaml_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let well_formed = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    well_formed && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

/// Finite or nothing, as Go's parser refuses what overflows.
fn parse_float(text: &str) -> Option<f64> {
    let decimal = text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
    text.parse::<f64>().ok().filter(|number| decimal && number.is_finite())
}

/// The times upstream recognises, which then stay strings: a date of four, one or two, and one or two digits, alone or
/// with a time of day.
fn is_timestamp(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-') else { return false };
    if year.len() != 4 || !year.bytes().all(|c| c.is_ascii_digit()) {
        return false;
    }
    let Some((month, rest)) = rest.split_once('-') else { return false };
    let day_length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (day, time) = rest.split_at(day_length);
    let number = |text: &str| (1..=2).contains(&text.len()).then(|| text.parse::<u8>().ok()).flatten();
    let month_fits = number(month).is_some_and(|month| (1..=12).contains(&month));
    let day_fits = number(day).is_some_and(|day| (1..=31).contains(&day));
    month_fits && day_fits && (time.is_empty() || is_time_of_day(time))
}

fn is_time_of_day(time: &str) -> bool {
    let zoned = time.starts_with(['T', 't']);
    let Some(time) = time.strip_prefix(['T', 't', ' ']) else { return false };
    let parts: Vec<&str> = time.splitn(3, ':').collect();
    let [hour, minute, rest] = parts.as_slice() else { return false };
    let seconds = rest.bytes().take_while(|c| c.is_ascii_digit()).count();
    let (second, rest) = rest.split_at(seconds);
    let number =
        |text: &str, max: u8| (1..=2).contains(&text.len()) && text.parse::<u8>().is_ok_and(|number| number <= max);
    if !number(hour, 23) || !number(minute, 59) || !number(second, 59) {
        return false;
    }
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    if !zoned {
        return rest.is_empty();
    }
    let offset = |text: &str| {
        text.len() == 6
            && text.starts_with(['+', '-'])
            && text.as_bytes()[3] == b':'
            && text.bytes().enumerate().all(|(at, c)| matches!(at, 0 | 3) || c.is_ascii_digit())
    };
    rest == "Z" || offset(rest)
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`: a number to other parsers, so it is quoted for them.
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit() || c == b'_');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let sixtieths = |part: &&str| match part.as_bytes() {
        [ones] => ones.is_ascii_digit(),
        [tens, ones] => (b'0'..=b'5').contains(tens) && ones.is_ascii_digit(),
        _ => false,
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && !rest.is_empty()
        && rest.iter().all(sixtieths)
        && digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_resolve_as_yaml_1_1_and_go_have_it() {
        let text = |text: &str| Scalar::Text(text.to_owned());
        let cases = [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("y", Scalar::Bool(true)),
            ("off", Scalar::Bool(false)),
            ("yEs", text("yEs")),
            ("12", Scalar::Int(12)),
            ("-0x1F", Scalar::Int(-31)),
            ("0o17", Scalar::Int(15)),
            ("017", Scalar::Int(15)),
            ("018", Scalar::Float(18.0)),
            ("0b101", Scalar::Int(5)),
            ("1_000", Scalar::Int(1000)),
            ("18446744073709551615", Scalar::Uint(u64::MAX)),
            ("1.5", Scalar::Float(1.5)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("-", text("-")),
            ("1.2.3", text("1.2.3")),
            ("500m", text("500m")),
            ("0x", text("0x")),
            ("2026-11-15", text("2026-11-15")),
            ("2026-11-15T10:00:00Z", text("2026-11-15T10:00:00Z")),
        ];
        for (from, expected) in cases {
            assert_eq!(resolve(from), expected, "{from}");
        }
    }

    #[test]
    fn what_would_be_read_as_something_else_is_no_plain_text() {
        for quoted in ["", "y", "null", "12", "1e3", "0644", "2026-11-15", "2026-11-15T10:00:00Z", "12:30:45"] {
            assert!(!is_plain_text(quoted), "{quoted}");
        }
        for plain in ["a", "v1", "500m", "1.2.3", "12:65", "2026-13-15", "--", "1Gi"] {
            assert!(is_plain_text(plain), "{plain}");
        }
    }
}
