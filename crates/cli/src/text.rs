//! Small words for people: durations, counts.

use std::time::Duration;

/// A duration as kubectl writes ages, with a tenth of a second while it is short: `0.4s`, `42s`, `3m20s`, `1h2m3s`.
pub(crate) fn duration_text(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        return format!("{:.1}s", duration.as_secs_f64());
    }
    let seconds = duration.as_secs();
    let (days, hours, minutes, seconds) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{seconds}s"),
        (0, _, _) => format!("{hours}h{minutes}m{seconds}s"),
        _ => format!("{days}d{hours}h"),
    }
}

/// `1 pod`, `2 pods`.
pub(crate) fn counted(count: usize, word: &str) -> String {
    if count == 1 { format!("{count} {word}") } else { format!("{count} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (millis, text) in [
            (0, "0.0s"),
            (449, "0.4s"),
            (9_900, "9.9s"),
            (10_000, "10s"),
            (200_000, "3m20s"),
            (3_723_000, "1h2m3s"),
            (180_000_000, "2d2h"),
        ] {
            assert_eq!(duration_text(Duration::from_millis(millis)), text);
        }
        assert_eq!((counted(1, "pod"), counted(0, "pod")), ("1 pod".to_owned(), "0 pods".to_owned()));
    }
}
