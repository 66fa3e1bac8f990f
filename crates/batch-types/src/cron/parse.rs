//! Reading a schedule: prefix, descriptor, or five fields (CJ-41…CJ-44).

use teeth::{Mutation, is};

use super::duration;
use super::error::{IntegerProblem, ParseError};
use super::zone::{self, Zone};
use super::{Fields, Schedule, Set};

/// Reads a schedule, which may start with `TZ=<zone> ` or `CRON_TZ=<zone> `.
pub fn parse(text: &str) -> Result<Schedule, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Empty);
    }
    let (zone, rest) = split_zone(text)?;
    if rest.starts_with('@') {
        return parse_descriptor(rest, zone);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let [minute, hour, day_of_month, month, day_of_week] = fields[..] else {
        return Err(ParseError::FieldCount(fields.into_iter().map(str::to_owned).collect()));
    };
    Ok(Schedule::Fields(Fields {
        minute: parse_field(minute, &MINUTES)?,
        hour: parse_field(hour, &HOURS)?,
        day_of_month: parse_field(day_of_month, &DAYS_OF_MONTH)?,
        month: parse_field(month, &MONTHS)?,
        day_of_week: parse_field(day_of_week, &DAYS_OF_WEEK)?,
        zone: match zone {
            Zone::Local => None,
            Zone::Named(zone) => Some(zone),
        },
    }))
}

/// Smallest and largest value of a field, and names for its values, the first naming `min`.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS_OF_MONTH: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAYS_OF_WEEK: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

fn split_zone(text: &str) -> Result<(Zone, &str), ParseError> {
    let Some(named) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok((Zone::Local, text));
    };
    let alone = || if is(Mutation::V09) { Ok(named.split_at(named.len() + 1)) } else { Err(ParseError::ZoneAlone) };
    let (name, rest) = named.split_once(' ').map_or_else(alone, Ok)?;
    let zone = zone::load(name).map_err(|source| ParseError::BadZone { name: name.to_owned(), source })?;
    Ok((zone, rest.trim()))
}

fn parse_descriptor(text: &str, zone: Zone) -> Result<Schedule, ParseError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return parse_every(text),
    };
    let mut schedule = parse(fields)?;
    if let (Schedule::Fields(fields), Zone::Named(zone)) = (&mut schedule, zone) {
        fields.zone = Some(zone);
    }
    Ok(schedule)
}

fn parse_every(text: &str) -> Result<Schedule, ParseError> {
    let duration = text.strip_prefix("@every ").ok_or_else(|| ParseError::UnknownDescriptor(text.to_owned()))?;
    let nanoseconds =
        duration::parse(duration).map_err(|source| ParseError::BadDuration { descriptor: text.to_owned(), source })?;
    Ok(Schedule::Every { seconds: (nanoseconds / 1_000_000_000).max(1) })
}

/// A comma list of ranges. Empty elements are ignored, so `,` is a field that never matches.
fn parse_field(field: &str, bounds: &Bounds) -> Result<Set, ParseError> {
    let mut set = Set::default();
    for range in field.split(',').filter(|range| !range.is_empty()) {
        let part = parse_range(range, bounds)?;
        set.bits |= part.bits;
        set.is_star |= part.is_star;
    }
    Ok(set)
}

/// `*`, `?`, `N` or `N-M`, each optionally with `/step`. The order of the checks decides which error is reported.
fn parse_range(range: &str, bounds: &Bounds) -> Result<Set, ParseError> {
    let (limits, step) = match range.split_once('/') {
        None => (range, None),
        Some((limits, step)) => (limits, Some(step)),
    };
    let mut limits = limits.split('-');
    let first = limits.next().unwrap_or_default();
    let is_any = matches!(first, "*" | "?");
    let (start, mut end, is_single) = match (is_any, limits.next()) {
        (true, second) => (bounds.min, bounds.max, second.is_none()),
        (false, None) => {
            let start = parse_value(first, bounds)?;
            (start, start, true)
        }
        (false, Some(second)) => {
            let start = parse_value(first, bounds)?;
            if limits.next().is_some() {
                return Err(ParseError::TooManyHyphens(range.to_owned()));
            }
            (start, parse_value(second, bounds)?, false)
        }
    };
    let step = match step {
        None => 1,
        Some(step) if step.contains('/') => return Err(ParseError::TooManySlashes(range.to_owned())),
        Some(step) => {
            // `N/step` runs from N to the end of the field.
            if is_single {
                end = bounds.max;
            }
            parse_number(step)?
        }
    };
    check_range(start, end, step, bounds, range)?;
    let values = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok(Set { bits: values.fold(0, |bits, value| bits | 1 << value), is_star: is_any && step == 1 })
}

fn check_range(start: u64, end: u64, step: u64, bounds: &Bounds, range: &str) -> Result<(), ParseError> {
    let range = range.to_owned();
    if start < bounds.min {
        return Err(ParseError::BelowMinimum { start, minimum: bounds.min, range });
    }
    if end > bounds.max {
        return Err(ParseError::AboveMaximum { end, maximum: bounds.max, range });
    }
    if start > end {
        return Err(ParseError::Reversed { start, end, range });
    }
    if step == 0 {
        return Err(ParseError::ZeroStep(range));
    }
    Ok(())
}

fn parse_value(text: &str, bounds: &Bounds) -> Result<u64, ParseError> {
    match (bounds.min..).zip(bounds.names).find(|(_, name)| text.eq_ignore_ascii_case(name)) {
        Some((value, _)) => Ok(value),
        None => parse_number(text),
    }
}

/// A number as Go's `Atoi` reads it.
fn parse_number(text: &str) -> Result<u64, ParseError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let number: i64 = text.parse().map_err(|error: std::num::ParseIntError| ParseError::NotAnInteger {
        text: text.to_owned(),
        problem: match error.kind() {
            PosOverflow | NegOverflow => IntegerProblem::Range,
            _ => IntegerProblem::Syntax,
        },
    })?;
    u64::try_from(number).map_err(|_| ParseError::Negative { number, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        match parse(text) {
            Ok(Schedule::Fields(fields)) => fields,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn values(set: Set) -> Vec<u32> {
        (0..64).filter(|value| set.bits & (1 << value) != 0).collect()
    }

    #[test]
    fn ranges_steps_and_names() {
        let all = fields("1,3-5,7-11/2,50/4 0-23/8 ,31, JAN,mar-May Sun-sat");
        assert_eq!(values(all.minute), [1, 3, 4, 5, 7, 9, 11, 50, 54, 58]);
        assert_eq!(values(all.hour), [0, 8, 16]);
        assert_eq!(values(all.day_of_month), [31]);
        assert_eq!(values(all.month), [1, 3, 4, 5]);
        assert_eq!(values(all.day_of_week), [0, 1, 2, 3, 4, 5, 6]);
        assert!(!all.day_of_week.is_star);
        assert_eq!(values(fields(", * * * *").minute), [0u32; 0]);
        assert_eq!(values(fields("0/99999999999 * * * *").minute), [0]);
    }

    #[test]
    fn only_plain_stars_are_stars() {
        for (field, is_star) in
            [("*", true), ("?", true), ("*/1", true), ("1,*", true), ("*/2", false), ("1-31", false)]
        {
            assert_eq!(fields(&format!("0 0 {field} * 1")).day_of_month.is_star, is_star, "{field}");
        }
    }

    #[test]
    fn descriptors_are_short_for_fields() {
        for (descriptor, text) in [
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
            ("@monthly", "0 0 1 * *"),
            ("@weekly", "0 0 * * 0"),
            ("@daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@hourly", "0 * * * *"),
            ("TZ=Europe/Rome @daily", "CRON_TZ=Europe/Rome 0 0 * * *"),
        ] {
            assert_eq!(parse(descriptor), parse(text), "{descriptor}");
        }
        for (text, seconds) in
            [("@every 1h30m", 5400), ("@every 1.9s", 1), ("@every 0", 1), ("@every -5m", 1), ("TZ=UTC @every 90s", 90)]
        {
            assert_eq!(parse(text), Ok(Schedule::Every { seconds }), "{text}");
        }
    }

    #[test]
    fn errors_are_upstreams() {
        let cases = [
            ("", "empty spec string"),
            ("error", "expected exactly 5 fields, found 1: [error]"),
            (" ", "expected exactly 5 fields, found 0: []"),
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("0 24 * * *", "end of range (24) above maximum (23): 24"),
            ("0 0 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("0 0 32 * *", "end of range (32) above maximum (31): 32"),
            ("0 0 * 13 *", "end of range (13) above maximum (12): 13"),
            ("0 0 * * 7", "end of range (7) above maximum (6): 7"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("*/2/3 * * * *", "too many slashes: */2/3"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("0 0 L * *", "failed to parse int from L: strconv.Atoi: parsing \"L\": invalid syntax"),
            ("0 0 * * 1#2", "failed to parse int from 1#2: strconv.Atoi: parsing \"1#2\": invalid syntax"),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("1- * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("*/ * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("*/-5 * * * *", "negative number (-5) not allowed: -5"),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            ("* * * foo *", "failed to parse int from foo: strconv.Atoi: parsing \"foo\": invalid syntax"),
            ("mon * * * *", "failed to parse int from mon: strconv.Atoi: parsing \"mon\": invalid syntax"),
            ("@fortnightly", "unrecognized descriptor: @fortnightly"),
            ("@Daily", "unrecognized descriptor: @Daily"),
            ("@daily ", "unrecognized descriptor: @daily "),
            ("@every", "unrecognized descriptor: @every"),
            ("@every 10", "failed to parse duration @every 10: time: missing unit in duration \"10\""),
            ("@every 1d", "failed to parse duration @every 1d: time: unknown unit \"d\" in duration \"1d\""),
            ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
            ("CRON_TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
            ("TZ=Nowhere 0 0 * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
            ("TZ=../x 0 0 * * *", "provided bad location ../x: time: invalid location name"),
            ("TZ=UTC ", "expected exactly 5 fields, found 0: []"),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn odd_forms_are_accepted_as_upstream_does() {
        for (text, same) in [
            ("*-5 * * * *", "* * * * *"),
            ("?-x-y/2 * * * *", "0-59/2 * * * *"),
            ("\t0  0 * * *\u{a0}", "0 0 * * *"),
            ("TZ= 0 0 * * *", "TZ=UTC 0 0 * * *"),
            ("TZ=Local 0 0 * * *", "0 0 * * *"),
            ("+1 * * * *", "1 * * * *"),
        ] {
            assert_eq!(parse(text), parse(same), "{text}");
        }
    }

    #[test]
    fn the_cronjobs_zone_counts_unless_the_schedule_has_one() {
        let in_zone = |schedule, zone| super::super::parse_in_zone(schedule, zone);
        assert_eq!(in_zone("0 0 * * *", Some("Europe/Rome")), parse("TZ=Europe/Rome 0 0 * * *"));
        assert_eq!(in_zone("TZ=UTC 0 0 * * *", Some("Europe/Rome")), parse("TZ=UTC 0 0 * * *"));
        assert_eq!(in_zone("0 0 * * *", Some("nowhere")), parse("0 0 * * *"));
        assert_eq!(in_zone("0 0 * * *", None), parse("0 0 * * *"));
    }
}
