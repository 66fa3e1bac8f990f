//! How much history is kept.

use std::time::Duration;

use ::history::Bounds;
use clap::Args;

/// Less cannot hold even a few logs.
const BYTES_MIN: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "History")]
pub(crate) struct HistoryFlags {
    /// Keep how containers ended and the end of their logs in files of at most this size together, oldest first out;
    /// 0 keeps nothing.
    #[arg(long, value_name = "BYTES", default_value = "256Mi", value_parser = bytes)]
    history_max_bytes: u64,
    /// Keep them for this long (`90m`, `12h`, `30d`); 0 keeps them until there is no room.
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
    history_max_age: Duration,
}

impl HistoryFlags {
    /// `None`: no history.
    pub(crate) fn bounds(self) -> Option<Bounds> {
        let age_max = (!self.history_max_age.is_zero()).then_some(self.history_max_age);
        (self.history_max_bytes > 0).then_some(Bounds { bytes_max: self.history_max_bytes, age_max })
    }
}

/// A size as the API writes quantities: `1048576`, `512Ki`, `256Mi`, `2Gi`.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "say a size as in `64Mi` or `2Gi`, or 0".to_owned();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit).ok_or_else(wrong)? {
        size if size > 0 && size < BYTES_MIN => Err("it takes at least 1Mi; 0 keeps nothing".to_owned()),
        size => Ok(size),
    }
}

/// An age: a number and one of s, m, h, d; or 0.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "say an age as in `90m`, `12h` or `30d`, or 0".to_owned();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match &text[digits..] {
        "" if number == 0 => 1,
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .filter(|seconds| i64::try_from(*seconds).is_ok())
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_quantities() {
        for (text, size) in [("0", 0), ("1048576", 1 << 20), ("256Mi", 256 << 20), ("2Gi", 2 << 30), ("5M", 5_000_000)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for wrong in ["", "Mi", "1.5Gi", "-1", "10", "512Ki", "99999999999Ti", "1 Gi"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_a_unit() {
        for (text, seconds) in [("0", 0), ("45s", 45), ("90m", 5400), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "5", "d", "1w", "-1d", "99999999999999999d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn zero_bytes_are_no_history() {
        let flags = HistoryFlags { history_max_bytes: 0, history_max_age: Duration::from_secs(1) };
        assert_eq!(flags.bounds(), None);
        let flags = HistoryFlags { history_max_bytes: 1 << 20, history_max_age: Duration::ZERO };
        assert_eq!(flags.bounds(), Some(Bounds { bytes_max: 1 << 20, age_max: None }));
    }
}
