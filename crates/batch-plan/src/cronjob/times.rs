//! Which times of a schedule were missed, which one is due and which comes next (CJ-30…CJ-35).
//!
//! Upstream estimates from the distance of the first two missed times where the last one must be, and finds nothing if
//! the schedule is irregular (CJ-31); for `@every` it lets a starting deadline move the rhythm until nothing is ever due
//! (CJ-35). Here the last time is found exactly and a fixed rhythm stays what it is: the same result wherever upstream
//! has one, and a due run where it has none (INV-37).

use batch_types::cron::Schedule;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::CronJobView;
use teeth::{Mutation, is};

/// More missed times than this are worth a warning (CJ-30).
const MISSED_MAX: i64 = 100;

/// The activations of a schedule after an instant. They end if there is none in the following five years.
///
/// `zone` is the zone of schedules that name none.
pub fn next_runs<'a>(
    schedule: &'a Schedule,
    zone: &'a TimeZone,
    after: Timestamp,
) -> impl Iterator<Item = Timestamp> + use<'a> {
    std::iter::successors(schedule.next_after(after, zone), |last| schedule.next_after(*last, zone))
}

/// A schedule and the time up to which it has been served.
#[derive(Debug, Clone, Copy)]
pub struct Times<'a> {
    pub schedule: &'a Schedule,
    /// Of schedules that name none.
    pub zone: &'a TimeZone,
    /// The last scheduled time, or the creation of the CronJob.
    pub since: Timestamp,
    pub starting_deadline_seconds: Option<i64>,
}

/// A time at which a Job should have started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub time: Timestamp,
    /// About how many were missed is more than people expect.
    pub many_missed: bool,
}

/// The schedule is well-formed and has no activation, as the 31st of February has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverDue;

impl std::fmt::Display for NeverDue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Upstream's words; it compares two times that both do not exist.
        f.write_str("time difference between two schedules is less than 1 second")
    }
}

impl<'a> Times<'a> {
    pub fn new(cron_job: &CronJobView, last: Option<Timestamp>, schedule: &'a Schedule, zone: &'a TimeZone) -> Self {
        Self {
            schedule,
            zone,
            since: last.unwrap_or(cron_job.created),
            starting_deadline_seconds: cron_job.spec.starting_deadline_seconds,
        }
    }

    /// The most recent missed time that may still be started (CJ-32).
    pub fn due(&self, now: Timestamp) -> Result<Option<Due>, NeverDue> {
        let Some(time) = self.most_recent(now) else {
            return if self.next(now).is_some() { Ok(None) } else { Err(NeverDue) };
        };
        let earliest = self.earliest(now);
        if time <= earliest {
            return Ok(None);
        }
        Ok(Some(Due { time, many_missed: self.missed(earliest, now) > MISSED_MAX }))
    }

    /// The first time after now, or after the time up to which everything is done if that is later (CJ-33).
    ///
    /// Upstream adds 100 milliseconds. Whoever waits here compares with the same clock that decides what is due, so a
    /// wake-up is never too early and need not be late.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        match self.schedule {
            Schedule::Fields(_) => self.after(now.max(self.since)),
            Schedule::Every { .. } => self.after(self.most_recent(now).unwrap_or(self.since)),
        }
    }

    /// Nothing at or before this is started any more. A deadline that reaches back beyond all clocks is none (REG-F26).
    fn earliest(&self, now: Timestamp) -> Timestamp {
        let deadline = self.starting_deadline_seconds.map(|seconds| match is(Mutation::F26) {
            true => SignedDuration::from_nanos(seconds.wrapping_mul(1_000_000_000)),
            false => SignedDuration::from_secs(seconds),
        });
        let earliest = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
        earliest.map_or(self.since, |earliest| earliest.max(self.since))
    }

    /// The last activation that is not after now.
    fn most_recent(&self, now: Timestamp) -> Option<Timestamp> {
        let is_past = |time: &Timestamp| *time <= now;
        let first = self.after(self.since).filter(is_past)?;
        if let Schedule::Every { seconds } = self.schedule {
            let rounds = now.duration_since(first).as_secs() / seconds;
            return first.checked_add(SignedDuration::from_secs(rounds.checked_mul(*seconds)?)).ok();
        }
        let Some(second) = self.after(first).filter(is_past).filter(|_| !is(Mutation::F14)) else { return Some(first) };
        // The successor of every instant before the wanted one is in the past, and of every other in the future.
        let (mut before, mut not_before) = (second.as_second() - 1, now.as_second());
        let past_after = |second: i64| self.after(Timestamp::from_second(second).ok()?).filter(is_past);
        while not_before - before > 1 {
            let middle = before + (not_before - before) / 2;
            match past_after(middle) {
                Some(_) => before = middle,
                None => not_before = middle,
            }
        }
        past_after(before)
    }

    /// About how many activations lie after `earliest` and not after now, as upstream estimates it (CJ-30).
    fn missed(&self, earliest: Timestamp, now: Timestamp) -> i64 {
        let first = match self.schedule {
            Schedule::Fields(_) => self.after(earliest),
            Schedule::Every { .. } => self.after(self.most_recent(earliest).unwrap_or(self.since)),
        };
        let Some((first, second)) = first.and_then(|first| Some((first, self.after(first)?))) else { return 1 };
        let interval = second.duration_since(first).as_secs().max(1);
        now.duration_since(first).as_secs() / interval + 1
    }

    fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        self.schedule.next_after(instant, self.zone)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use batch_types::cron::{parse, parse_in_zone};
    use jiff::civil::DateTime;
    use proptest::prelude::*;

    use super::*;

    static UTC: TimeZone = TimeZone::UTC;

    /// A Thursday.
    const T: &str = "2016-05-19T10:00:00Z";
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;

    fn t(seconds: i64) -> Timestamp {
        T.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    fn times(schedule: &Schedule, since: i64, deadline: Option<i64>) -> Times<'_> {
        Times { schedule, zone: &UTC, since: t(since), starting_deadline_seconds: deadline }
    }

    /// A.5 and A.6: schedule, since, deadline, now; due time and whether many were missed. All relative to T.
    #[test]
    fn the_most_recent_missed_time_is_due() {
        type Row = (&'static str, i64, Option<i64>, i64, Option<(i64, bool)>);
        let rows: &[Row] = &[
            ("0 * * * *", 0, None, 30, None),
            ("0 * * * *", 0, None, 61 * MINUTE, Some((HOUR, false))),
            ("0 * * * *", 10, None, 301 * MINUTE, Some((5 * HOUR, false))),
            ("30 6-16/4 * * 1-5", 30 * MINUTE, None, DAY + 31 * MINUTE, Some((DAY + 30 * MINUTE, false))),
            ("30 6-16/4 * * 1-5", 30 * MINUTE, None, 4 * DAY + 31 * MINUTE, Some((4 * DAY + 30 * MINUTE, false))),
            ("30 6-16/4 * * 1-5", 0, None, DAY + 31 * MINUTE, Some((DAY + 30 * MINUTE, false))),
            // Upstream finds nothing here although five were missed (CJ-31).
            ("30 10,11,12 * * 1-5", 30 * MINUTE, None, 30 * HOUR + 30 * MINUTE, Some((26 * HOUR + 30 * MINUTE, false))),
            ("@every 1h", MINUTE, None, 7 * DAY, Some((6 * DAY + 23 * HOUR + MINUTE, true))),
            ("*/5 * * * *", 30 * MINUTE, None, 31 * MINUTE, None),
            ("*/5 * * * *", 30 * MINUTE, Some(60), 32 * MINUTE, None),
            ("*/5 * * * *", 30 * MINUTE, Some(60), 35 * MINUTE + 59, Some((35 * MINUTE, false))),
            ("*/5 * * * *", 30 * MINUTE, Some(60), 36 * MINUTE, None),
            ("0 * * * *", -10 * MINUTE, None, -7 * MINUTE, None),
            ("0 * * * *", -10 * MINUTE, None, 2, Some((0, false))),
            ("0 * * * *", 0, None, 2 * MINUTE, None),
            ("0 * * * *", 0, None, HOUR + 5 * MINUTE, Some((HOUR, false))),
            ("0 * * * *", -HOUR, None, HOUR + 5 * MINUTE, Some((HOUR, false))),
            ("0 * * * *", -HOUR, None, 10 * DAY + HOUR, Some((10 * DAY + HOUR, true))),
            ("0 * * * *", -HOUR, Some(2 * HOUR), 10 * DAY + HOUR, Some((10 * DAY + HOUR, false))),
            // CJ-34: a deadline of zero leaves no moment to start.
            ("* * * * *", 0, Some(0), HOUR, None),
            ("0 * * * *", 0, Some(1), HOUR, Some((HOUR, false))),
            // CJ-35 of upstream: never due. The rhythm is kept, and what is in time is started.
            ("@every 1h", 0, Some(10), HOUR + 5, Some((HOUR, false))),
            ("@every 1h", 0, Some(10), HOUR + 11, None),
            ("@every 1h", 0, Some(10), 50 * HOUR + 5, Some((50 * HOUR, false))),
            // CJ-78: the clock went back.
            ("0 * * * *", 2 * HOUR, None, HOUR, None),
            ("@every 1h", 2 * HOUR, None, HOUR, None),
        ];
        for (text, since, deadline, now, expected) in rows {
            let schedule = parse(text).unwrap();
            let due = times(&schedule, *since, *deadline).due(t(*now));
            let expected = expected.map(|(time, many_missed)| Due { time: t(time), many_missed });
            assert_eq!(due, Ok(expected), "{text} since {since} at {now} deadline {deadline:?}");
        }
    }

    /// REG-F26, INV-37: more seconds than a Duration of Go, or any clock, can hold mean no limit.
    #[test]
    fn reg_f26_long_starting_deadlines_do_not_overflow() {
        let schedule = parse("0 * * * *").unwrap();
        let due = |deadline, now| times(&schedule, 0, Some(deadline)).due(t(now)).unwrap().map(|due| due.time);
        // As long after the time as it can be before the next one comes.
        let late = 2 * HOUR - 1;
        for deadline in [9_223_372_036, 9_223_372_037, i64::MAX] {
            assert_eq!(due(deadline, HOUR), Some(t(HOUR)), "{deadline}");
            assert_eq!(due(deadline, late), Some(t(HOUR)), "{deadline} is a limit");
        }
        assert_eq!((due(1, HOUR), due(1, HOUR + 1), due(1, late)), (Some(t(HOUR)), None, None));
        // CJ-34.
        assert_eq!((due(0, HOUR), due(0, HOUR + 1), due(0, late)), (None, None, None));
    }

    /// A.7, without the 100 milliseconds.
    #[test]
    fn the_next_time_is_ahead() {
        let rows: &[(&str, i64, i64, i64)] = &[
            ("30 6-16/4 * * 1-5", 30 * MINUTE, DAY + 31 * MINUTE, 3 * HOUR + 59 * MINUTE),
            ("30 10,11,12 * * 1-5", 30 * MINUTE, 30 * HOUR + 30 * MINUTE, 66 * HOUR),
            ("0 12 * * 4", 2 * HOUR, 19 * DAY + 90 * MINUTE, 48 * HOUR + 30 * MINUTE),
            ("0 12 * * 5", 0, 6 * HOUR, 20 * HOUR),
            ("@every 1h", -MINUTE, 0, 59 * MINUTE),
            ("@every 1h", -HOUR, 0, HOUR),
            ("@every 1h", -61 * MINUTE, 0, 59 * MINUTE),
            ("@every 1h", HOUR, 0, 2 * HOUR),
            ("0 * * * *", HOUR, 0, 2 * HOUR),
        ];
        for (text, since, now, wait) in rows {
            let schedule = parse(text).unwrap();
            let next = times(&schedule, *since, Some(5)).next(t(*now)).unwrap();
            assert_eq!(next.duration_since(t(*now)).as_secs(), *wait, "{text} since {since} at {now}");
        }
    }

    /// REG-F10, INV-37.
    #[test]
    fn reg_f10_a_day_that_does_not_exist_is_never_due() {
        let schedule = parse("59 23 31 2 *").unwrap();
        assert_eq!(times(&schedule, 0, None).due(t(40 * DAY)), Err(NeverDue));
        assert_eq!(times(&schedule, 0, None).next(t(0)), None);
        assert_eq!(next_runs(&schedule, &UTC, t(0)).next(), None);
        assert_eq!(NeverDue.to_string(), "time difference between two schedules is less than 1 second");
    }

    /// Where leap days are eight years apart the search gives up in between, and finds them again later.
    #[test]
    fn a_pause_longer_than_the_search_is_not_the_end() {
        let schedule = parse("0 0 29 2 *").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let since = |since: &str| Times { since: at(since), ..times(&schedule, 0, None) };
        let due = since("2092-03-01T00:00:00Z").due(at("2096-02-29T00:00:01Z"));
        assert_eq!(due.unwrap().map(|due| due.time), Some(at("2096-02-29T00:00:00Z")));
        assert_eq!(since("2096-02-29T00:00:00Z").due(at("2100-01-01T00:00:00Z")), Ok(None));
    }

    #[test]
    fn runs_follow_the_wall_clock_through_both_changes_of_it() {
        let runs = |text, after: &str, count| -> Vec<String> {
            let schedule = parse_in_zone(text, Some("Europe/Rome")).unwrap();
            let runs = next_runs(&schedule, &UTC, after.parse().unwrap());
            runs.take(count).map(|run| run.to_string()).collect()
        };
        // 02:30 does not exist on 27 March 2016 and exists twice on 30 October (CJ-47).
        assert_eq!(runs("30 2 * * *", "2016-03-26T00:00:00Z", 2), ["2016-03-26T01:30:00Z", "2016-03-28T00:30:00Z"]);
        assert_eq!(runs("30 2 30 10 *", "2016-10-01T00:00:00Z", 2), ["2016-10-30T00:30:00Z", "2016-10-30T01:30:00Z"]);
    }

    /// A schedule as a list of minutes, hours, days, months and days of the week that match, with no parser or search in
    /// between.
    #[derive(Debug, Clone)]
    struct Matcher {
        text: String,
        minutes: u64,
        hours: u64,
        days: u64,
        months: u64,
        weekdays: u64,
        /// Days and days of the week are alternatives unless one of them is a star.
        has_star_day: bool,
    }

    impl Matcher {
        fn is_day(&self, local: DateTime) -> bool {
            let in_month = self.days >> local.day() & 1 == 1;
            let in_week = self.weekdays >> local.weekday().to_sunday_zero_offset() & 1 == 1;
            let in_either = if self.has_star_day { in_month && in_week } else { in_month || in_week };
            in_either && self.months >> local.month() & 1 == 1
        }

        /// Every minute after one instant and not after another whose wall clock matches, the last first: hours advance in
        /// absolute time, so that a local time that does not exist is left out and one that occurs twice counts twice (CJ-47).
        fn walk_back(&self, zone: &TimeZone, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> {
            // Clocks change at full quarters of an hour.
            const QUARTER: i64 = 15 * MINUTE;
            let (first, last) = (after.as_second().div_euclid(MINUTE) + 1, until.as_second().div_euclid(MINUTE));
            let first_quarter = (first * MINUTE).div_euclid(QUARTER);
            let quarters = (first_quarter..=(last * MINUTE).div_euclid(QUARTER)).rev();
            quarters
                .flat_map(move |quarter| {
                    let begin = Timestamp::from_second(quarter * QUARTER).unwrap();
                    let local = zone.to_datetime(begin);
                    let matches = self.hours >> local.hour() & 1 == 1 && self.is_day(local);
                    let minute = quarter * QUARTER / MINUTE;
                    let in_quarter = (0..15)
                        .rev()
                        .filter(move |offset| matches && self.minutes >> (i64::from(local.minute()) + offset) & 1 == 1);
                    let found = in_quarter.map(move |offset| minute + offset);
                    found.filter(move |minute| (first..=last).contains(minute))
                })
                .map(|minute| Timestamp::from_second(minute * MINUTE).unwrap())
        }
    }

    /// All of them, with the way they are written.
    fn any_field(min: u32, max: u32) -> impl Strategy<Value = (String, u64)> {
        let bits = |values: &mut dyn Iterator<Item = u32>| values.fold(0, |bits, value| bits | 1 << value);
        prop_oneof![
            3 => Just(("*".to_owned(), bits(&mut (min..=max)))),
            2 => (min..=max).prop_map(move |value| (value.to_string(), bits(&mut std::iter::once(value)))),
            1 => (min..=max, 1u32..20).prop_map(move |(start, step)| {
                (format!("{start}/{step}"), bits(&mut (start..=max).step_by(step as usize)))
            }),
            1 => (min..=max, min..=max).prop_map(move |(a, b)| {
                (format!("{},{}", a.min(b), a.max(b)), bits(&mut [a, b].into_iter()))
            }),
            1 => (min..=max, min..=max).prop_map(move |(a, b)| {
                (format!("{}-{}", a.min(b), a.max(b)), bits(&mut (a.min(b)..=a.max(b))))
            }),
        ]
    }

    fn any_matcher() -> impl Strategy<Value = Matcher> {
        let fields = (any_field(0, 59), any_field(0, 23), any_field(1, 31), any_field(1, 12), any_field(0, 6));
        fields.prop_map(|(minute, hour, day, month, weekday)| Matcher {
            text: format!("{} {} {} {} {}", minute.0, hour.0, day.0, month.0, weekday.0),
            minutes: minute.1,
            hours: hour.1,
            days: day.1,
            months: month.1,
            weekdays: weekday.1,
            has_star_day: day.0 == "*" || weekday.0 == "*",
        })
    }

    /// Of these minutes and hours of every day.
    fn daily(text: &str, minutes: u64, hours: u64) -> Matcher {
        let all = u64::MAX;
        Matcher { text: text.to_owned(), minutes, hours, days: all, months: all, weekdays: all, has_star_day: true }
    }

    /// REG-F22, INV-35: every zone, around every change of its clock in two years: what is started is every minute that
    /// matches on the wall clock, each once.
    #[test]
    fn reg_f22_no_clock_change_starts_anything_twice_or_at_another_time() {
        let begin: Timestamp = "2025-06-01T00:00:00Z".parse().unwrap();
        let end = begin + SignedDuration::from_hours(2 * 365 * 24);
        let around = SignedDuration::from_hours(5);
        let (mut zones, mut gaps, mut folds) = (0, 0, 0);
        // Many zones are other names of one, or change at the same instant in the same way: that is looked at once.
        let mut seen = HashSet::new();
        for name in jiff::tz::db().available() {
            let Ok(zone) = TimeZone::get(name.as_str()) else { continue };
            if parse_in_zone("* * * * *", Some(name.as_str())).is_err() {
                continue;
            }
            zones += 1;
            for change in zone.following(begin).take_while(|change| change.timestamp() < end) {
                let instant = change.timestamp();
                let offset = |instant| i64::from(zone.to_offset(instant).seconds());
                let (before, after) = (offset(instant - SignedDuration::from_secs(1)), offset(instant));
                if before == after || !seen.insert((instant, before, after)) {
                    continue;
                }
                // A time in the middle of what is left out or comes twice.
                let inside = (instant.as_second() + before + (after - before) / 2).rem_euclid(DAY);
                let (minute, hour) = (inside % HOUR / MINUTE, inside / HOUR);
                let once = daily(&format!("{minute} {hour} * * *"), 1 << minute, 1 << hour);
                let found = compare_runs(&once, name.as_str(), &zone, instant, around);
                let expected = if after > before { 0 } else { 2 };
                assert_eq!(found, expected, "{} at {instant}: {}", name.as_str(), once.text);
                *(if after > before { &mut gaps } else { &mut folds }) += 1;
                for matcher in [
                    daily("*/30 0-4 * * *", 1 | 1 << 30, 0b11111),
                    daily("*/15 * * * *", 1 | 1 << 15 | 1 << 30 | 1 << 45, u64::MAX),
                ] {
                    compare_runs(&matcher, name.as_str(), &zone, instant, around);
                }
            }
        }
        assert!(zones > 300 && gaps > 30 && folds > 30, "{zones} zones, {gaps} gaps, {folds} folds");
    }

    /// How many runs there are around an instant: those that a walk through all minutes finds.
    fn compare_runs(
        matcher: &Matcher,
        name: &str,
        zone: &TimeZone,
        instant: Timestamp,
        around: SignedDuration,
    ) -> usize {
        let schedule = parse_in_zone(&matcher.text, Some(name)).unwrap();
        let (begin, end) = (instant - around, instant + around);
        let runs: Vec<Timestamp> = next_runs(&schedule, &UTC, begin).take_while(|run| *run <= end).collect();
        let mut walk: Vec<Timestamp> = matcher.walk_back(zone, begin, end).collect();
        walk.reverse();
        assert_eq!(runs, walk, "{name} at {instant}: {}", matcher.text);
        runs.len()
    }

    fn any_schedule() -> impl Strategy<Value = String> {
        prop_oneof![
            5 => any_matcher().prop_map(|matcher| matcher.text),
            1 => (1u32..400).prop_map(|minutes| format!("@every {minutes}m")),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// REG-F14, INV-37: against a walk through all minutes.
        #[test]
        fn reg_f14_the_last_minute_of_a_walk_that_matches_is_due(
            matcher in any_matcher(),
            zone in prop::sample::select(vec!["UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
            since in 1_300_000_000i64..1_900_000_000,
            gap in prop_oneof![2 => 0i64..7_200, 1 => 0i64..400_000],
            deadline in prop::option::of(0i64..90_000),
        ) {
            let schedule = parse_in_zone(&matcher.text, Some(zone)).unwrap();
            let since = Timestamp::from_second(since).unwrap();
            let now = since + SignedDuration::from_secs(gap);
            let walk = matcher.walk_back(&TimeZone::get(zone).unwrap(), since, now).next();
            let times = Times { schedule: &schedule, zone: &UTC, since, starting_deadline_seconds: deadline };
            prop_assert_eq!(times.most_recent(now), walk);
            let in_time = |time: &Timestamp| deadline.is_none_or(|deadline| now.duration_since(*time).as_secs() < deadline);
            match times.due(now) {
                Ok(due) => prop_assert_eq!(due.map(|due| due.time), walk.filter(in_time)),
                Err(NeverDue) => prop_assert_eq!(walk, None),
            }
            if let Some(next) = times.next(now) {
                prop_assert!(next > now);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// REG-F14: a fixed rhythm, against a walk through all activations.
        #[test]
        fn reg_f14_the_last_activation_of_a_rhythm_is_due(
            minutes in 1i64..400,
            since in 1_300_000_000i64..1_900_000_000,
            gap in prop_oneof![0i64..7_200, 0i64..400_000],
            deadline in prop::option::of(0i64..90_000),
        ) {
            let schedule = parse(&format!("@every {minutes}m")).unwrap();
            let since = Timestamp::from_second(since).unwrap();
            let now = since + SignedDuration::from_secs(gap);
            let walk = (1..).map(|round| round * minutes * MINUTE).take_while(|passed| *passed <= gap).last();
            let walk = walk.map(|passed| since + SignedDuration::from_secs(passed));
            let times = Times { schedule: &schedule, zone: &UTC, since, starting_deadline_seconds: deadline };
            let in_time = |time: &Timestamp| deadline.is_none_or(|deadline| now.duration_since(*time).as_secs() < deadline);
            prop_assert_eq!(times.due(now).unwrap().map(|due| due.time), walk.filter(in_time));
            prop_assert!(times.next(now).unwrap() > now);
        }

        /// CJ-30 word for word, as far as it finds anything: the same time.
        #[test]
        fn upstreams_estimate_is_right_where_it_finds_something(
            text in any_schedule(),
            since in 1_300_000_000i64..1_900_000_000,
            gap in 0i64..4_000_000,
        ) {
            let schedule = parse(&text).unwrap();
            let since = Timestamp::from_second(since).unwrap();
            let now = since + SignedDuration::from_secs(gap);
            let next = |after| schedule.next_after(after, &UTC);
            let Some((first, second)) = next(since).and_then(|first| Some((first, next(first)?))) else { return Ok(()) };
            let times = Times { schedule: &schedule, zone: &UTC, since, starting_deadline_seconds: None };
            if now < second {
                prop_assert_eq!(times.most_recent(now), Some(first).filter(|first| *first <= now));
                return Ok(());
            }
            let interval = second.duration_since(first).as_secs();
            let count = now.duration_since(first).as_secs() / interval + 1;
            let start = first + SignedDuration::from_secs((count - 2) * interval);
            let estimate = next_runs(&schedule, &UTC, start).take_while(|time| *time <= now).last();
            if estimate.is_some() {
                prop_assert_eq!(times.most_recent(now), estimate);
            }
        }
    }
}
