//! The next activation of a schedule (CJ-45…CJ-47).
//!
//! Between two changes of a zone's offset the clock on the wall runs straight, and the next match is plain calendar
//! arithmetic. So the search goes from stretch to stretch: local times that a change skips lie in no stretch and never
//! fire, those that it repeats lie in two and fire twice.
//!
//! Upstream steps days and hours across changes instead. The results are the same but where midnight is skipped or the
//! change is not a whole hour; there it can pass over a day or fire in the wrong hour, and this search does neither.

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use teeth::{Mutation, is};

use super::{Fields, Set};

/// Give up after this many calendar years, as upstream does; around 2100 leap days are further apart.
const YEARS_MAX: i16 = 5;

impl Fields {
    pub(super) fn next_after(&self, after: Timestamp, local: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(local);
        let mut from = whole_second(after)?.checked_add(SignedDuration::from_secs(1)).ok()?;
        let last_day = Date::new(zone.to_datetime(from).year().checked_add(YEARS_MAX)?, 12, 31).unwrap_or(Date::MAX);
        loop {
            let offset = zone.to_offset(from);
            let change = zone.following(from).next().map(|change| change.timestamp());
            let stretch_end = change.map_or(last_day, |change| offset.to_datetime(change).date().min(last_day));
            let found = self.next_local(whole_minute(offset.to_datetime(from))?, stretch_end);
            let found = found.and_then(|found| offset.to_timestamp(found).ok());
            match (found, change) {
                (Some(found), change) if change.is_none_or(|change| found < change || is(Mutation::F22)) => {
                    return Some(found);
                }
                (_, Some(change)) if zone.to_datetime(change).date() <= last_day => from = change,
                _ => return None,
            }
        }
    }

    /// The first match of the calendar at or after `from`, on `last_day` at the latest.
    fn next_local(&self, from: DateTime, last_day: Date) -> Option<DateTime> {
        let (mut day, mut hour, mut minute) = (from.date(), from.hour(), from.minute());
        while day <= last_day {
            if !self.month.contains(day.month()) {
                day = day.first_of_month().checked_add(1.month()).ok()?;
            } else if let Some((hour, minute)) = self.next_time(day, hour, minute) {
                return Some(day.at(hour, minute, 0, 0));
            } else {
                day = day.tomorrow().ok()?;
            }
            (hour, minute) = (0, 0);
        }
        None
    }

    /// The first match on a day at or after a time.
    fn next_time(&self, day: Date, hour: i8, minute: i8) -> Option<(i8, i8)> {
        if !self.matches_day(day) {
            return None;
        }
        if self.hour.contains(hour)
            && let Some(minute) = self.minute.next_from(minute)
        {
            return Some((hour, minute));
        }
        Some((self.hour.next_from(hour + 1)?, self.minute.next_from(0)?))
    }

    fn matches_day(&self, day: Date) -> bool {
        let of_month = self.day_of_month.contains(day.day());
        let of_week = self.day_of_week.contains(day.weekday().since(Weekday::Sunday));
        if self.day_of_month.is_star || self.day_of_week.is_star { of_month && of_week } else { of_month || of_week }
    }
}

impl Set {
    /// The smallest value not below `value`.
    fn next_from(self, value: i8) -> Option<i8> {
        let value = u32::try_from(value).ok()?;
        let rest = self.bits.checked_shr(value).filter(|rest| *rest != 0)?;
        i8::try_from(value + rest.trailing_zeros()).ok()
    }
}

/// The last whole second at or before an instant.
pub(super) fn whole_second(instant: Timestamp) -> Option<Timestamp> {
    let seconds = instant.as_nanosecond().div_euclid(1_000_000_000);
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

/// The first whole minute of the clock at or after a local time.
fn whole_minute(local: DateTime) -> Option<DateTime> {
    match local.second() {
        0 => Some(local),
        second => local.checked_add(i64::from(60 - second).seconds()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cron::{Schedule, parse, parse_in_zone};

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    fn instant(text: &str) -> Timestamp {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_table_holds() {
        let rows: Vec<_> =
            include_str!("next_table.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert!(rows.len() >= 300);
        let mut wrong = Vec::new();
        for row in rows {
            let [name, schedule, after, next] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
            let wanted = (next != "never").then(|| instant(next));
            let in_zone = parse_in_zone(schedule, Some(name)).unwrap();
            let in_local_zone = parse(schedule).unwrap();
            for (schedule, local) in [(in_zone, TimeZone::UTC), (in_local_zone, zone(name))] {
                let got = schedule.next_after(instant(after), &local);
                if got != wanted {
                    let got = got.map(|got| got.to_zoned(zone(name)).to_string());
                    wrong.push(format!("{row}, got {got:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn fixed_delays_drop_fractions_of_a_second() {
        let next = |schedule: &str, after: &str| parse(schedule).unwrap().next_after(instant(after), &TimeZone::UTC);
        assert_eq!(next("@every 1h", "2024-05-15T12:00:00.7Z"), Some(instant("2024-05-15T13:00:00Z")));
        assert_eq!(next("@every 1.9s", "2024-05-15T12:00:00Z"), Some(instant("2024-05-15T12:00:01Z")));
        assert_eq!(next("@every 90m", "1969-12-31T23:59:59.5Z"), Some(instant("1970-01-01T01:29:59Z")));
    }

    #[test]
    fn the_end_of_the_calendar_is_no_activation() {
        for schedule in ["* * * * *", "@every 1h", "0 0 1 1 *", "30 2 * * 1"] {
            assert_eq!(parse(schedule).unwrap().next_after(Timestamp::MAX, &TimeZone::UTC), None, "{schedule}");
        }
    }

    fn any_fields() -> impl Strategy<Value = String> {
        let field = |min: u32, max: u32| {
            prop_oneof![
                3 => Just("*".to_owned()),
                2 => (min..=max).prop_map(|value| value.to_string()),
                1 => (min..=max, 1u32..20).prop_map(|(start, step)| format!("{start}/{step}")),
                1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
                1 => (2u32..20).prop_map(|step| format!("*/{step}")),
            ]
        };
        (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6))
            .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"))
    }

    proptest! {
        #[test]
        fn activations_follow_each_other_and_match(
            fields in any_fields(),
            name in prop::sample::select(vec!["UTC", "America/New_York", "Europe/Rome", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo", "Pacific/Apia"]),
            start in 1_300_000_000i64..1_900_000_000,
        ) {
            let (schedule, zone) = (parse(&fields).unwrap(), zone(name));
            let Schedule::Fields(sets) = &schedule else { unreachable!() };
            let mut after = Timestamp::from_second(start).unwrap();
            for _ in 0..5 {
                let Some(next) = schedule.next_after(after, &zone) else { break };
                prop_assert!(next > after);
                let local = zone.to_datetime(next);
                prop_assert!(sets.minute.contains(local.minute()) && sets.hour.contains(local.hour()));
                prop_assert!(sets.month.contains(local.month()) && sets.matches_day(local.date()) && local.second() == 0);
                after = next;
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[-*/?,@0-9a-zA-Z= ]{0,24}", start in -10_000_000_000i64..10_000_000_000) {
            if let Ok(schedule) = parse(&text) {
                schedule.next_after(Timestamp::from_second(start).unwrap(), &TimeZone::UTC);
            }
        }
    }
}
