//! One line of a log file: `2026-11-15T10:00:00.123456789Z F text`.
//!
//! `F` ends a line of the container's output, `P` is a part of one that was too long to keep in one piece. Output and
//! errors share one pipe and so their order; the API does not tell them apart either (PL-120).

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

/// Nanoseconds always, so that all lines have the same shape (PL-123).
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(9));

/// Parts of a line of output are at most this long, as container runtimes cut them.
pub(crate) const PART_MAX: usize = 16 << 10;

/// The longest line of a log file; anything longer was not written by us.
pub(crate) const LINE_MAX: usize = PART_MAX + 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// As it is printed before the line if asked for.
    pub(crate) time: &'a [u8],
    pub(crate) is_whole: bool,
    pub(crate) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line without its line end. Anything else in a log file is not shown.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let (time, rest) = (&line[..space], &line[space + 1..]);
        let (tag, rest) = rest.split_first()?;
        let text = rest.strip_prefix(b" ")?;
        match tag {
            b'F' => Some(Self { time, is_whole: true, text }),
            b'P' => Some(Self { time, is_whole: false, text }),
            _ => None,
        }
    }

    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.time).ok()?.parse().ok()
    }
}

/// The prefix of lines written at this moment.
pub(crate) fn stamp(now: Timestamp) -> String {
    let mut text = String::with_capacity(30);
    // Writing to a string cannot fail.
    let _ = PRINTER.print_timestamp(&now, &mut text);
    text
}

/// Appends a line as it stands in the file.
pub(crate) fn push(buffer: &mut Vec<u8>, stamp: &str, is_whole: bool, text: &[u8]) {
    buffer.extend_from_slice(stamp.as_bytes());
    buffer.extend_from_slice(if is_whole { b" F " } else { b" P " });
    buffer.extend_from_slice(text);
    buffer.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let now = Timestamp::new(1_475_713_029, 669_794_202).unwrap();
        let stamp = stamp(now);
        assert_eq!(stamp, "2016-10-06T00:17:09.669794202Z");
        for (is_whole, text) in [(true, &b"hello world"[..]), (false, b""), (true, b" x \xff")] {
            let mut buffer = Vec::new();
            push(&mut buffer, &stamp, is_whole, text);
            let line = Line::parse(buffer.strip_suffix(b"\n").unwrap()).unwrap();
            assert_eq!((line.is_whole, line.text, line.timestamp()), (is_whole, text, Some(now)));
        }
    }

    #[test]
    fn foreign_lines_are_not_read() {
        for line in [&b""[..], b"x", b"x F", b"x Q y", b"2016 ", b"x FF y"] {
            assert_eq!(Line::parse(line), None, "{line:?}");
        }
    }
}
