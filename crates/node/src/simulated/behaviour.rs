//! How a simulated pod behaves: how long it runs and how it ends.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// How long: `1.5s`, `200ms`, `2m`, `1h`, plain seconds, or `forever`.
pub const DURATION: &str = "tally.dev/simulate-duration";
/// The exit code of pods that fail; without a failure share, of all pods.
pub const EXIT_CODE: &str = "tally.dev/simulate-exit-code";
/// Which share of pods fails, from 0 to 1.
pub const FAILURE_SHARE: &str = "tally.dev/simulate-failure-share";

/// What pods do that do not say otherwise in their annotations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    /// `None`: until they are deleted.
    pub duration: Option<Duration>,
    pub exit_code: i32,
    /// Which share ends with `exit_code`; the others end with 0.
    pub failure_share: f64,
}

impl Default for Behaviour {
    /// Succeeds at once.
    fn default() -> Self {
        Self { duration: Some(Duration::ZERO), exit_code: 0, failure_share: 1.0 }
    }
}

impl Behaviour {
    /// This behaviour with what a pod's annotations change about it. What cannot be understood changes nothing.
    pub(super) fn with_annotations(mut self, annotations: &BTreeMap<String, String>) -> Self {
        if let Some(duration) = annotations.get(DURATION).and_then(|text| Self::parse_duration(text)) {
            self.duration = duration;
        }
        let code = annotations.get(EXIT_CODE).and_then(|text| text.parse().ok());
        let share = annotations.get(FAILURE_SHARE).and_then(|text| text.parse().ok());
        self.failing(code, share)
    }

    /// This behaviour with another exit code, or another share of pods that fail. A share alone fails with 1.
    pub fn failing(mut self, code: Option<i32>, share: Option<f64>) -> Self {
        match (code, share) {
            (None, None) => {}
            (Some(code), share) => {
                self.exit_code = code;
                self.failure_share = share.unwrap_or(1.0);
            }
            (None, Some(share)) => {
                self.exit_code = if self.exit_code == 0 { 1 } else { self.exit_code };
                self.failure_share = share;
            }
        }
        self
    }

    /// `Some(None)` is forever; `None` is not a duration.
    pub fn parse_duration(text: &str) -> Option<Option<Duration>> {
        if text == "forever" {
            return Some(None);
        }
        let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let seconds_per_unit = match unit {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let seconds = number.parse::<f64>().ok()? * seconds_per_unit;
        Duration::try_from_secs_f64(seconds).ok().map(Some)
    }

    /// The exit code of one run of a pod: chance, but always the same for the same pod and run.
    pub(super) fn exit_code_of(&self, uid: &str, attempt: u32) -> i32 {
        let mut hasher = DefaultHasher::new();
        (uid, attempt).hash(&mut hasher);
        // The upper 53 bits make a fraction below 1.
        let drawn = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        if drawn < self.failure_share { self.exit_code } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in
            [("5", 5000), ("1.5s", 1500), ("200ms", 200), ("2m", 120_000), ("1h", 3_600_000), ("0", 0)]
        {
            assert_eq!(Behaviour::parse_duration(text), Some(Some(Duration::from_millis(millis))), "{text}");
        }
        assert_eq!(Behaviour::parse_duration("forever"), Some(None));
        for text in ["", "x", "-1s", "1d", "1s2", "..", "1e400"] {
            assert_eq!(Behaviour::parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn annotations_change_the_default() {
        let with = |pairs: &[(&str, &str)]| {
            let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Behaviour::default().with_annotations(&map)
        };
        let outcomes = |behaviour: Behaviour| {
            (0..1000).filter(|run| behaviour.exit_code_of(&format!("uid-{run}"), 0) != 0).count()
        };
        assert_eq!(with(&[]), Behaviour::default());
        assert_eq!(outcomes(with(&[])), 0);
        assert_eq!(outcomes(with(&[(EXIT_CODE, "3")])), 1000);
        assert_eq!(with(&[(EXIT_CODE, "3")]).exit_code_of("u", 0), 3);
        let some = outcomes(with(&[(FAILURE_SHARE, "0.1")]));
        assert!((60..140).contains(&some), "{some}");
        assert_eq!(with(&[(DURATION, "1s"), (EXIT_CODE, "nonsense")]).duration, Some(Duration::from_secs(1)));
    }

    #[test]
    fn chance_is_the_same_every_time_and_differs_between_runs() {
        let behaviour = Behaviour { exit_code: 1, failure_share: 0.5, ..Behaviour::default() };
        let draw = |attempt| (0..64).map(|run| behaviour.exit_code_of(&run.to_string(), attempt)).collect::<Vec<_>>();
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
    }
}
