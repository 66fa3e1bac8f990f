//! Cron schedules as CronJobs write them: `*/5 8-18 * * mon-fri`, `@daily`, `@every 90m`.
//!
//! [`parse`] reads the grammar of robfig/cron v3 (CJ-40…CJ-44) with its error texts; [`Schedule::next_after`] computes
//! the next activation with its rules for days, zones and daylight saving (CJ-45…CJ-48). Which activations were missed
//! and what to do about them is the CronJob controller's business.

mod duration;
mod error;
mod next;
mod parse;
pub mod zone;

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub use duration::DurationError;
pub use error::ParseError;
pub use parse::parse;

/// When something is due.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// At the minutes whose local fields match.
    Fields(Fields),
    /// A fixed number of whole seconds after the last time, at least one.
    Every { seconds: i64 },
}

/// The five fields of a schedule as sets, and where the clock hangs.
#[derive(Debug, Clone, PartialEq)]
pub struct Fields {
    minute: Set,
    hour: Set,
    day_of_month: Set,
    month: Set,
    day_of_week: Set,
    /// `None` is the zone of whoever asks.
    zone: Option<TimeZone>,
}

/// Values of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Set {
    bits: u64,
    /// Whether the field says "any", which decides how the two day fields combine (CJ-45).
    is_star: bool,
}

impl Set {
    fn contains(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits & 1u64.checked_shl(value).unwrap_or(0) != 0)
    }
}

impl Schedule {
    /// The first activation after an instant; `None` if there is none until the end of the fifth following year
    /// (CJ-46). `local` is the zone of schedules that name none.
    pub fn next_after(&self, after: Timestamp, local: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Fields(fields) => fields.next_after(after, local),
            Self::Every { seconds } => {
                next::whole_second(after)?.checked_add(jiff::SignedDuration::from_secs(*seconds)).ok()
            }
        }
    }
}

/// The schedule of a CronJob: `spec.timeZone` counts unless the schedule names a zone itself or the zone is unknown
/// (CJ-40).
pub fn parse_in_zone(schedule: &str, time_zone: Option<&str>) -> Result<Schedule, ParseError> {
    match time_zone {
        Some(name) if !schedule.contains("TZ") && zone::load(name).is_ok() => parse(&format!("TZ={name} {schedule}")),
        _ => parse(schedule),
    }
}
