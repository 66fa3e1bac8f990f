//! How long ago, in the few characters a column has (AS-163, JA-T5, JA-T6; upstream's `duration.HumanDuration`).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::resources::values::time;

const UNKNOWN: &str = "<unknown>";

/// Time since the object was created.
pub(super) fn age(object: &Value, now: Timestamp) -> String {
    since(time(object, "/metadata/creationTimestamp"), now)
}

/// Time since an instant that may not be known.
pub(super) fn since(instant: Option<Timestamp>, now: Timestamp) -> String {
    instant.map_or_else(|| UNKNOWN.to_owned(), |instant| human(now.duration_since(instant)))
}

/// A duration with one or two units, the larger the coarser.
pub(super) fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        // Clocks of two machines may differ by a second without the age looking wrong.
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

/// `3h1m`, or `3h` when the smaller unit is zero.
fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JA-T5 samples and each threshold's neighbours.
    #[test]
    fn units_get_coarser_with_size() {
        const DAY: i64 = 86_400;
        const YEAR: i64 = 365 * DAY;
        let cases = [
            (-100, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (7200, "120m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_199, "7d23h"),
            (691_200, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (100 * YEAR, "100y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    /// Fractions are cut off, also below zero: up to two seconds in the future is "now".
    #[test]
    fn fractions_are_cut_off() {
        assert_eq!(human(SignedDuration::from_millis(1_999)), "1s");
        assert_eq!(human(SignedDuration::from_millis(-1_999)), "0s");
        assert_eq!(human(SignedDuration::from_millis(-500)), "0s");
    }

    #[test]
    fn absent_times_are_unknown() {
        assert_eq!(since(None, Timestamp::UNIX_EPOCH), "<unknown>");
    }
}
