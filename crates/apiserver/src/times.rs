//! Times that the API keeps and `jiff`, with which rules compute, cannot hold: its last instant is some hours before the
//! end of year 9999, and it knows no year before 0 in four digits (JA-R5).
//!
//! Such a time is stored and answered as it was sent. Only the typed copy that rules read has the nearest one instead.

use api_schema::{Type, json};
use serde_json::Value;

const EARLIEST: &str = "0000-01-01T00:00:00Z";
const LATEST: &str = "9999-12-30T22:00:00Z";
/// As much of a time as there is before the fraction of its second.
const WHOLE: usize = LATEST.len() - 1;

/// Moves the times of a canonical value that are too early or too late. False if there are none.
pub fn bring_within_range(ty: &'static Type, value: &mut Value) -> bool {
    let mut moved = false;
    json::for_each_time(ty, value, &mut |text| {
        if let Some(nearest) = nearest(text) {
            nearest.clone_into(text);
            moved = true;
        }
    });
    moved
}

/// The nearest time within the range, for one beyond it.
fn nearest(time: &str) -> Option<&'static str> {
    let year = time.find('-');
    match (year, time.get(..WHOLE)) {
        // Years of five digits, which other time zones can lead to.
        (Some(5..), _) => Some(LATEST),
        (Some(0), _) => Some(EARLIEST),
        (Some(4), Some(whole)) if *whole > LATEST[..WHOLE] => Some(LATEST),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_range_is_moved_and_nothing_else() {
        for (time, expected) in [
            ("9999-12-31T23:59:59Z", Some(LATEST)),
            ("9999-12-30T22:00:01.000000Z", Some(LATEST)),
            ("10000-01-01T03:00:00Z", Some(LATEST)),
            ("-0001-12-31T23:00:00Z", Some(EARLIEST)),
            ("9999-12-30T22:00:00.999999Z", None),
            ("2024-01-01T00:00:00Z", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(time), expected, "{time}");
            let held = expected.unwrap_or(time);
            assert_eq!(held.parse::<jiff::Timestamp>().is_ok(), held.len() > 1, "{held}");
            assert!(expected.is_none() || time.parse::<jiff::Timestamp>().is_err(), "{time}");
        }
    }
}
