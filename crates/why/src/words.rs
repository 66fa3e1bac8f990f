//! Times, counts and foreign texts as people read them.

use jiff::{SignedDuration, Timestamp};

/// Texts of others are cut here; the object itself has the rest.
const TEXT_MAX: usize = 400;

/// `45s`, `3m20s`, `5h10m`, `3d4h`: two units are enough to act upon.
pub(crate) fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().unsigned_abs();
    let (days, hours, minutes, rest) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let pair = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..60 => format!("{rest}s"),
        60..3600 => pair(minutes, "m", rest, "s"),
        3600..86_400 => pair(hours, "h", minutes, "m"),
        _ => pair(days, "d", hours, "h"),
    }
}

pub(crate) fn seconds(count: i64) -> String {
    span(SignedDuration::from_secs(count))
}

/// `12s ago`, `now` or `in 12s`. Waiting is rounded up: nothing is said to be due a second too early.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let left = time.duration_since(now);
    if left.is_positive() {
        let whole = left.as_secs() + i64::from(left.subsec_nanos() > 0);
        return format!("in {}", seconds(whole));
    }
    match left.as_secs() {
        0 => "now".to_owned(),
        _ => format!("{} ago", span(left)),
    }
}

/// An instant in whole seconds of UTC.
pub(crate) fn instant(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// `1 pod`, `2 pods`; irregular plurals do not occur.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix("ndex")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ndexes"),
        _ => format!("{count} {noun}s"),
    }
}

/// The verb that goes with a count.
pub(crate) fn verb<'a>(count: u64, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed<T: AsRef<str>>(items: &[T]) -> String {
    match items {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [head @ .., last] => {
            let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", head.join(", "), last.as_ref())
        }
    }
}

/// A text from the cluster, safe for a terminal and of bearable length: no control characters, one line.
pub(crate) fn foreign(text: &str) -> String {
    let mut plain = String::new();
    for word in text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty()) {
        if !plain.is_empty() {
            plain.push(' ');
        }
        plain.push_str(word);
        if plain.len() > TEXT_MAX {
            plain.truncate(plain.floor_char_boundary(TEXT_MAX));
            plain.push('…');
            break;
        }
    }
    plain
}

/// A foreign text without the full stop that our own sentence brings.
pub(crate) fn clause(text: &str) -> String {
    let mut text = foreign(text);
    while text.ends_with(['.', ' ', ':', ';']) {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_at_most_two_units() {
        let cases =
            [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (3600, "1h"), (18_630, "5h10m"), (273_600, "3d4h")];
        for (seconds, text) in cases {
            assert_eq!(span(SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn foreign_texts_cannot_play_tricks_on_a_terminal() {
        assert_eq!(foreign("a\u{1b}[31m\n  b\t\u{7}c"), "a [31m b c");
        assert!(foreign(&"ä".repeat(10_000)).len() <= TEXT_MAX + 4);
        assert_eq!(clause("no room. "), "no room");
    }

    #[test]
    fn lists_and_counts_read_well() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        assert_eq!((counted(1, "pod"), counted(2, "index")), ("1 pod".to_owned(), "2 indexes".to_owned()));
    }
}
