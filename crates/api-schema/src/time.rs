//! Times as the API writes them: RFC 3339 in UTC, with whole seconds (`Time`) or six fractional digits (`MicroTime`).
//!
//! Reading accepts what Go's `time.Parse` accepts for these layouts and refuses the rest in its words (AS-27).

/// An instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Counted forward, below 1,000,000,000.
    pub nanos: u32,
}

/// How much of a second is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    Seconds,
    Micros,
}

const DAY: i64 = 86_400;

impl Timestamp {
    /// Go's zero time, the first instant of year 1, which the API treats as absent.
    pub const ZERO: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

    /// The instant in UTC, cut (not rounded) to the precision.
    pub fn format(&self, precision: Precision) -> String {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(DAY));
        let second_of_day = self.seconds.rem_euclid(DAY);
        let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        let year = if year < 0 { format!("{year:05}") } else { format!("{year:04}") };
        match precision {
            Precision::Seconds => format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"),
            Precision::Micros => {
                let micros = self.nanos / 1000;
                format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
            }
        }
    }

    /// Reads a time in either layout; the error is Go's text.
    pub fn parse(text: &str, precision: Precision) -> Result<Timestamp, String> {
        Parser { text, rest: text, precision }.timestamp()
    }
}

/// Whether the text is already what [`Timestamp::format`] would print for it, and not the zero time.
pub(crate) fn is_canonical(text: &str, precision: Precision) -> bool {
    let bytes = text.as_bytes();
    let pattern: &[u8] = match precision {
        Precision::Seconds => b"dddd-dd-ddTdd:dd:ddZ",
        Precision::Micros => b"dddd-dd-ddTdd:dd:dd.ddddddZ",
    };
    let fits = |(byte, wanted): (&u8, &u8)| if *wanted == b'd' { byte.is_ascii_digit() } else { byte == wanted };
    if bytes.len() != pattern.len() || !bytes.iter().zip(pattern).all(fits) {
        return false;
    }
    let number = |from: usize, to: usize| bytes[from..to].iter().fold(0, |n, byte| n * 10 + i64::from(byte - b'0'));
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    year > 1
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && number(11, 13) < 24
        && number(14, 16) < 60
        && number(17, 19) < 60
}

/// Walks the layout element by element, since Go's error names the element that did not fit and the text there.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl<'a> Parser<'a> {
    fn timestamp(mut self) -> Result<Timestamp, String> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true)?;
        if !(1..=12).contains(&month) {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.number("02", true)?;
        self.literal("T")?;
        let hour = self.number_below(24, "15", false, "hour")?;
        self.literal(":")?;
        let minute = self.number_below(60, "04", true, "minute")?;
        self.literal(":")?;
        let second = self.number_below(60, "05", true, "second")?;
        let nanos = match self.precision {
            Precision::Seconds => self.optional_fraction(),
            Precision::Micros => self.six_digits()?,
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {}: extra text: {}", quote(self.text), quote(self.rest)));
        }
        if day < 1 || day > days_in_month(year, month) {
            return Err(self.out_of_range("day"));
        }
        let seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        Ok(Timestamp { seconds, nanos })
    }

    fn year(&mut self) -> Result<i64, String> {
        let digits = self.rest.get(..4).filter(|year| year.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(digits) = digits else { return Err(self.mismatch("2006", self.rest)) };
        self.rest = &self.rest[4..];
        Ok(digits.bytes().fold(0, |n, byte| n * 10 + i64::from(byte - b'0')))
    }

    fn literal(&mut self, wanted: &str) -> Result<(), String> {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.mismatch(wanted, self.rest)),
        }
    }

    /// One or two digits; exactly two if `fixed`.
    fn number(&mut self, element: &str, fixed: bool) -> Result<i64, String> {
        let digit =
            |at: usize| self.rest.as_bytes().get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0');
        let (value, length) = match (digit(0), digit(1)) {
            (Some(tens), Some(ones)) => (tens * 10 + ones, 2),
            (Some(ones), None) if !fixed => (ones, 1),
            _ => return Err(self.mismatch(element, self.rest)),
        };
        self.rest = &self.rest[length..];
        Ok(value.into())
    }

    fn number_below(&mut self, limit: i64, element: &str, fixed: bool, name: &str) -> Result<i64, String> {
        let value = self.number(element, fixed)?;
        if value < limit { Ok(value) } else { Err(self.out_of_range(name)) }
    }

    /// A fraction that the layout does not mention but Go tolerates after the seconds.
    fn optional_fraction(&mut self) -> u32 {
        let Some(digits) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return 0;
        }
        self.rest = &digits[length..];
        nanos(&digits[..length])
    }

    /// The layout's `.000000`, which wants exactly as many digits.
    fn six_digits(&mut self) -> Result<u32, String> {
        let digits = self.rest.strip_prefix(['.', ',']).and_then(|rest| rest.get(..6));
        match digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(digits) => {
                self.rest = &self.rest[7..];
                Ok(nanos(digits))
            }
            None => Err(self.mismatch(".000000", self.rest)),
        }
    }

    /// `Z`, or an offset in seconds east of UTC.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        if bytes.len() < 6 || bytes[3] != b':' || !self.rest.is_char_boundary(6) {
            return Err(self.mismatch("Z07:00", self.rest));
        }
        let two_digits = |at: usize| {
            let (tens, ones) = (bytes[at], bytes[at + 1]);
            let digits = tens.is_ascii_digit() && ones.is_ascii_digit();
            digits.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
        };
        let (hours, minutes) = (two_digits(1), two_digits(4));
        let sign = match bytes[0] {
            b'+' => 1,
            b'-' => -1,
            _ => 0,
        };
        let before = self.rest;
        self.rest = &self.rest[6..];
        // Go looks at the ranges first, and allows 24 hours and 60 minutes.
        if hours.is_some_and(|hours| hours > 24) {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if hours.is_some() && minutes.is_some_and(|minutes| minutes > 60) {
            return Err(self.out_of_range("time zone offset minute"));
        }
        match (sign, hours, minutes) {
            (1 | -1, Some(hours), Some(minutes)) => Ok(sign * (hours * 60 + minutes) * 60),
            _ => Err(self.mismatch("Z07:00", before)),
        }
    }

    fn mismatch(&self, element: &str, found: &str) -> String {
        let layout = match self.precision {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        };
        format!("parsing time {} as \"{layout}\": cannot parse {} as \"{element}\"", quote(self.text), quote(found))
    }

    fn out_of_range(&self, name: &str) -> String {
        format!("parsing time {}: {name} out of range", quote(self.text))
    }
}

/// The first nine digits of a fraction.
fn nanos(digits: &str) -> u32 {
    let digits = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    digits.fold(0, |n, digit| n * 10 + u32::from(digit - b'0'))
}

/// Go's time package quotes in its own way: everything beyond printable ASCII byte by byte.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            b' '..=0x7f => out.push(byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that leap days come
/// last, in eras of 400 years.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalised(text: &str, precision: Precision) -> String {
        Timestamp::parse(text, precision).map_or_else(|error| error, |time| time.format(precision))
    }

    #[test]
    fn times_become_utc_with_the_layouts_precision() {
        let seconds = [
            ("2026-11-15T06:27:19Z", "2026-11-15T06:27:19Z"),
            ("2026-11-15T06:27:19+02:00", "2026-11-15T04:27:19Z"),
            ("2026-11-15T06:27:19.999999999Z", "2026-11-15T06:27:19Z"),
            ("2026-11-15T06:27:19,5-01:30", "2026-11-15T07:57:19Z"),
            ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
            ("2024-05-01T1:00:00Z", "2024-05-01T01:00:00Z"),
            ("2024-05-01T00:00:00+24:00", "2024-04-30T00:00:00Z"),
        ];
        for (text, expected) in seconds {
            assert_eq!(normalised(text, Precision::Seconds), expected, "{text}");
        }
        let micros = [
            ("2024-05-01T10:00:00.000001Z", "2024-05-01T10:00:00.000001Z"),
            ("2024-05-01T10:00:00.500000+01:00", "2024-05-01T09:00:00.500000Z"),
        ];
        for (text, expected) in micros {
            assert_eq!(normalised(text, Precision::Micros), expected, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_in_gos_words() {
        let as_seconds = r#"as "2006-01-02T15:04:05Z07:00": cannot parse"#;
        let cases = [
            ("yesterday", format!(r#"parsing time "yesterday" {as_seconds} "yesterday" as "2006""#)),
            ("", format!(r#"parsing time "" {as_seconds} "" as "2006""#)),
            ("2024-05-01", format!(r#"parsing time "2024-05-01" {as_seconds} "" as "T""#)),
            ("2024-5-01T", format!(r#"parsing time "2024-5-01T" {as_seconds} "5-01T" as "01""#)),
            ("2024-05-01T10:00:00", format!(r#"parsing time "2024-05-01T10:00:00" {as_seconds} "" as "Z07:00""#)),
            (
                "2024-05-01 10:00:00Z",
                format!(r#"parsing time "2024-05-01 10:00:00Z" {as_seconds} " 10:00:00Z" as "T""#),
            ),
            ("2024-13-01T10:00:00Z", r#"parsing time "2024-13-01T10:00:00Z": month out of range"#.to_owned()),
            ("2023-02-29T10:00:00Z", r#"parsing time "2023-02-29T10:00:00Z": day out of range"#.to_owned()),
            ("2023-02-28T24:00:00Z", r#"parsing time "2023-02-28T24:00:00Z": hour out of range"#.to_owned()),
            ("2023-02-28T23:00:00Zx", r#"parsing time "2023-02-28T23:00:00Zx": extra text: "x""#.to_owned()),
        ];
        for (text, expected) in cases {
            assert_eq!(normalised(text, Precision::Seconds), expected);
        }
        assert_eq!(
            normalised("2024-05-01T10:00:00.5Z", Precision::Micros),
            r#"parsing time "2024-05-01T10:00:00.5Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5Z" as ".000000""#
        );
        assert_eq!(
            normalised("2024-05-01T10:00:00Z", Precision::Micros),
            r#"parsing time "2024-05-01T10:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn zero_time_is_the_first_instant_of_year_one() {
        assert_eq!(Timestamp::parse("0001-01-01T00:00:00Z", Precision::Seconds), Ok(Timestamp::ZERO));
        assert!(!is_canonical("0001-01-01T00:00:00Z", Precision::Seconds));
    }

    proptest! {
        #[test]
        fn formatting_is_undone_by_parsing(seconds in -62_135_596_799i64..253_402_300_800, micros in 0u32..1_000_000) {
            let time = Timestamp { seconds, nanos: micros * 1000 };
            let text = time.format(Precision::Micros);
            prop_assert_eq!(Timestamp::parse(&text, Precision::Micros), Ok(time));
            prop_assert!(is_canonical(&text, Precision::Micros) || text.starts_with("0001"));
        }

        #[test]
        fn parsing_and_formatting_never_panic(text in ".{0,40}", seconds in any::<i64>()) {
            let _ = Timestamp::parse(&text, Precision::Seconds);
            let _ = Timestamp::parse(&text, Precision::Micros);
            let _ = Timestamp { seconds, nanos: 0 }.format(Precision::Seconds);
        }
    }
}
