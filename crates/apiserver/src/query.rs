//! Query strings, read the way Go's `url.ParseQuery` and Kubernetes' parameter conversion read them (AS-13, AS-14).

use std::borrow::Cow;

use crate::status::Status;

/// The decoded pairs of a query string, in order.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
    /// Pairs that could not be decoded and were dropped (AS-14); worth a log line.
    pub dropped: usize,
}

impl Query {
    pub fn parse(raw: Option<&str>) -> Self {
        let mut query = Self::default();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (pair.contains(';'), unescape(key), unescape(value)) {
                (false, Some(key), Some(value)) => query.pairs.push((key, value)),
                _ => query.dropped += 1,
            }
        }
        query
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value, empty when absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn all(&self, name: &str) -> Vec<String> {
        self.pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Missing, `0` and `false` are false; anything else, the empty string included, is true.
    pub fn flag(&self, name: &str) -> bool {
        self.flag_if_set(name).unwrap_or(false)
    }

    pub fn flag_if_set(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        self.get(name).map(parse_go_int).transpose().map_err(Status::bad_request)
    }
}

/// `strconv.ParseInt(text, 10, 64)` with its error text.
pub fn parse_go_int(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    text.parse::<i64>().map_err(|_| format!("strconv.ParseInt: parsing {}: {why}", batch_types::field::quoted(text)))
}

/// `strconv.ParseUint(text, 10, 64)` with its error text.
pub fn parse_go_uint(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    let parsed = if is_number { text.parse::<u64>().ok() } else { None };
    parsed.ok_or_else(|| format!("strconv.ParseUint: parsing {}: {why}", batch_types::field::quoted(text)))
}

fn unescape(text: &str) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => {
                let hex = bytes.get(at + 1..at + 3)?;
                let high = (hex[0] as char).to_digit(16)?;
                let low = (hex[1] as char).to_digit(16)?;
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            byte => out.push(byte),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// A path segment with its percent escapes resolved; `None` when they are malformed.
pub fn unescape_path(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.contains('%') {
        return Some(Cow::Borrowed(segment));
    }
    // A plus sign is itself in a path.
    unescape(&segment.replace('+', "%2B")).map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_bad_escapes_are_dropped() {
        let query = Query::parse(Some("labelSelector=g%3Dx%%%&limit=2&a=b+c"));
        assert_eq!(query.get("labelSelector"), None);
        assert_eq!((query.get("limit"), query.get("a"), query.dropped), (Some("2"), Some("b c"), 1));
    }

    #[test]
    fn flags_are_true_unless_zero_or_false() {
        let query = Query::parse(Some("a&b=yes&c=0&d=FALSE&e="));
        let flags: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| query.flag(name)).into();
        assert_eq!(flags, [true, true, false, false, true, false]);
    }

    #[test]
    fn integers_fail_in_gos_words() {
        let query = Query::parse(Some("limit=few&big=99999999999999999999"));
        assert_eq!(query.integer("limit").unwrap_err().message, "strconv.ParseInt: parsing \"few\": invalid syntax");
        assert!(query.integer("big").unwrap_err().message.ends_with("value out of range"));
        assert_eq!(query.integer("none").unwrap(), None);
        let empty = Query::parse(Some("limit=")).integer("limit").unwrap_err();
        assert_eq!((empty.code, empty.message.as_str()), (400, "strconv.ParseInt: parsing \"\": invalid syntax"));
    }
}
