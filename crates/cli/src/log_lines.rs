//! Lines of pods' logs: whose they are, and cutting a stream of bytes into them.

use std::io::{self, Write as _};
use std::sync::Arc;

use jiff::Timestamp;

/// A longer line is cut. Nodes write no longer ones in one piece, and nothing may be held without bound.
const LINE_MAX: usize = 64 << 10;

/// Whose log it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogOrigin {
    pub(crate) namespace: String,
    pub(crate) job: String,
    pub(crate) pod: String,
    pub(crate) index: Option<u32>,
    /// The index, or what else tells the pod from the others of its Job.
    pub(crate) label: String,
    pub(crate) container: String,
    /// The pod has others too.
    pub(crate) names_container: bool,
}

impl LogOrigin {
    /// `[job/index]`, with the container if there are several.
    pub(crate) fn prefix(&self) -> String {
        match self.names_container {
            true => format!("[{}/{} {}]", self.job, self.label, self.container),
            false => format!("[{}/{}]", self.job, self.label),
        }
    }
}

/// Whole lines of one log, each with its line break.
#[derive(Debug, Clone)]
pub(crate) struct LogPiece {
    pub(crate) origin: Arc<LogOrigin>,
    pub(crate) lines: Vec<u8>,
}

impl LogPiece {
    /// The lines, without their breaks.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
    }

    /// Adds the lines to `text`, each behind `prefix`; without one as they are.
    pub(crate) fn write(&self, prefix: Option<&str>, text: &mut Vec<u8>) {
        let Some(prefix) = prefix else { return text.extend_from_slice(&self.lines) };
        for line in self.lines() {
            for part in [prefix.as_bytes(), b" ", line, b"\n"] {
                text.extend_from_slice(part);
            }
        }
    }

    /// Prints the lines, each with whose it is unless that is unwanted.
    pub(crate) fn print(&self, no_prefix: bool) -> io::Result<()> {
        let mut text = Vec::with_capacity(self.lines.len());
        self.write((!no_prefix).then(|| self.origin.prefix()).as_deref(), &mut text);
        let mut stdout = io::stdout().lock();
        stdout.write_all(&text)?;
        stdout.flush()
    }
}

/// Cuts bytes into whole lines.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// A line whose end has not come.
    rest: Vec<u8>,
}

impl Splitter {
    /// The lines that `bytes` completes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.keep(bytes, &mut whole);
            return whole;
        };
        whole.append(&mut self.rest);
        whole.extend_from_slice(&bytes[..=end]);
        self.keep(&bytes[end + 1..], &mut whole);
        whole
    }

    /// What is left when the stream has ended.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
        }
        self.rest
    }

    fn keep(&mut self, mut bytes: &[u8], whole: &mut Vec<u8>) {
        while self.rest.len() + bytes.len() > LINE_MAX {
            let (now, later) = bytes.split_at(LINE_MAX - self.rest.len());
            whole.append(&mut self.rest);
            whole.extend_from_slice(now);
            whole.push(b'\n');
            bytes = later;
        }
        self.rest.extend_from_slice(bytes);
    }
}

/// How far a log has been shown, by the times that the server puts before its lines: where to go on after a break.
#[derive(Debug, Default)]
pub(crate) struct Bookmark {
    /// The latest time of a line.
    last: Option<Timestamp>,
    /// Lines from the first of that time on, without those that a server leaves out when it is asked for [`Self::since`].
    count: usize,
    /// After a break: what was shown before comes again.
    catching_up: Option<CatchingUp>,
    /// The last line was left out, and so is what else belongs to it.
    hides: bool,
}

#[derive(Debug)]
struct CatchingUp {
    /// Lines that are left to be skipped.
    left: usize,
    /// The last line that was shown has been met again.
    has_met: bool,
}

impl Bookmark {
    /// What to ask for after a break. In whole seconds: what is more exact does not reach every server.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        let last = self.last?;
        Some(Timestamp::from_second(last.as_second()).unwrap_or(last).min(last))
    }

    /// The log is read anew, from [`Self::since`] on.
    pub(crate) fn resume(&mut self) {
        self.catching_up = self.last.map(|_| CatchingUp { left: self.count, has_met: false });
    }

    /// What was shown before the break has not come again.
    pub(crate) fn is_lost(&self) -> bool {
        self.catching_up.as_ref().is_some_and(|catching_up| !catching_up.has_met)
    }

    /// Takes the times off whole lines, and leaves out what was shown before the break. False: lines are missing between
    /// what was shown and what comes now.
    pub(crate) fn turn(&mut self, whole: &[u8]) -> (Vec<u8>, bool) {
        let (mut news, mut is_seamless) = (Vec::with_capacity(whole.len()), true);
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            let (time, text) = timed(line);
            // A note of the node about what is missing has the time at which it was read.
            let is_note = node::logs::lost_bytes(text.strip_suffix(b"\n").unwrap_or(text)).is_some();
            if let Some(time) = time.filter(|_| !is_note) {
                is_seamless &= self.meets(time);
            }
            if !self.hides || is_note {
                news.extend_from_slice(text);
            }
        }
        (news, is_seamless)
    }

    /// Looks at the next line. False: it is not the one that has to follow.
    fn meets(&mut self, time: Timestamp) -> bool {
        let Some(CatchingUp { left, has_met }) = &mut self.catching_up else {
            self.pass(time);
            return true;
        };
        let last = self.last.unwrap_or(Timestamp::MIN);
        if !*has_met && time < last {
            self.hides = true;
            return true;
        }
        if !*has_met && time > last {
            // Those that were shown are gone, and perhaps others behind them.
            self.catching_up = None;
            self.pass(time);
            return false;
        }
        *has_met = true;
        if *left > 0 {
            *left -= 1;
            self.hides = true;
            return true;
        }
        self.catching_up = None;
        self.pass(time);
        true
    }

    fn pass(&mut self, time: Timestamp) {
        self.hides = false;
        if self.last.is_none_or(|last| time > last) {
            (self.last, self.count) = (Some(time), 1);
        } else if self.since().is_some_and(|since| time >= since) {
            self.count += 1;
        }
    }
}

/// A line and the time before it.
pub(crate) fn timed(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let Some(space) = line.iter().take(40).position(|byte| *byte == b' ') else { return (None, line) };
    let time = std::str::from_utf8(&line[..space]).ok().and_then(|text| text.parse().ok());
    if time.is_some() { (time, &line[space + 1..]) } else { (None, line) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_taken_off_lines() {
        let (time, text) = timed(b"2026-11-15T10:00:00.5Z hello you\n");
        assert_eq!((time.map(|time| time.as_millisecond()), text), (Some(1_794_736_800_500), &b"hello you\n"[..]));
        for plain in [&b"hello you\n"[..], b"", b"\n"] {
            assert_eq!(timed(plain), (None, plain));
        }
    }

    /// A log whose lines have these times, in tenths of a second, as a server sends it from a time on.
    fn sent(times: &[i64], since: Option<Timestamp>) -> Vec<u8> {
        let mut text = Vec::new();
        for (number, tenth) in times.iter().enumerate() {
            let time = Timestamp::from_millisecond(1_794_736_800_000 + tenth * 100).unwrap();
            if since.is_none_or(|since| time >= since) {
                text.extend_from_slice(format!("{time} {number}\n").as_bytes());
            }
        }
        text
    }

    #[test]
    fn a_bookmark_tells_when_what_it_marks_is_gone() {
        let mut bookmark = Bookmark::default();
        assert_eq!(bookmark.turn(&sent(&[1, 2, 2], None)), (b"0\n1\n2\n".to_vec(), true));
        bookmark.resume();
        assert_eq!(bookmark.turn(&sent(&[5, 6], None)), (b"0\n1\n".to_vec(), false));
        bookmark.resume();
        assert!(bookmark.is_lost(), "as long as nothing comes");
        assert_eq!(bookmark.turn(&sent(&[6, 7], None)), (b"1\n".to_vec(), true));
        assert!(!bookmark.is_lost());
    }

    /// It is not of the log, and its time is not that of a line.
    #[test]
    fn the_nodes_note_is_shown_and_marks_nothing() {
        let note = "[tally: 7 bytes of this log are missing here: they were rotated away before they were read]";
        let mut bookmark = Bookmark::default();
        let text = format!("2026-11-15T10:00:00Z a\n2026-11-15T10:00:09Z {note}\n2026-11-15T10:00:01Z b\n");
        assert_eq!(bookmark.turn(text.as_bytes()), (format!("a\n{note}\nb\n").into_bytes(), true));
        bookmark.resume();
        let rest = b"2026-11-15T10:00:01Z b\n2026-11-15T10:00:02Z c\n";
        assert_eq!(bookmark.turn(rest), (b"c\n".to_vec(), true));
    }

    #[test]
    fn the_prefix_names_the_container_only_if_there_are_several() {
        let origin = LogOrigin {
            namespace: "default".to_owned(),
            job: "pieces".to_owned(),
            pod: "pieces-3-x".to_owned(),
            index: Some(3),
            label: "3".to_owned(),
            container: "main".to_owned(),
            names_container: false,
        };
        assert_eq!(origin.prefix(), "[pieces/3]");
        assert_eq!(LogOrigin { names_container: true, ..origin }.prefix(), "[pieces/3 main]");
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut splitter = Splitter::default();
        let whole = splitter.push(&vec![b'x'; 3 * LINE_MAX + 5]);
        assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 3);
        assert_eq!(splitter.finish(), b"xxxxx\n");
    }

    proptest! {
        /// However often a log breaks off, each line is shown once; many may have the same time.
        #[test]
        fn breaks_lose_and_repeat_nothing(
            mut times in prop::collection::vec(0i64..40, 1..30),
            breaks in prop::collection::vec(0usize..30, 0..5),
        ) {
            times.sort_unstable();
            let mut breaks: Vec<usize> = breaks.into_iter().map(|at| at.min(times.len())).collect();
            breaks.push(times.len());
            breaks.sort_unstable();
            let (mut bookmark, mut shown) = (Bookmark::default(), Vec::new());
            for written in breaks {
                let (news, is_seamless) = bookmark.turn(&sent(&times[..written], bookmark.since()));
                prop_assert!(is_seamless);
                shown.extend(news);
                bookmark.resume();
            }
            let all: Vec<u8> = (0..times.len()).flat_map(|number| format!("{number}\n").into_bytes()).collect();
            prop_assert_eq!(shown, all);
        }

        /// However a stream is cut, the same lines come out.
        #[test]
        fn cuts_do_not_matter(text in "[ab\n]{0,60}", cuts in prop::collection::vec(0usize..60, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut splitter = Splitter::default();
            let mut out = Vec::new();
            for pair in cuts.windows(2) {
                out.extend(splitter.push(&text.as_bytes()[pair[0]..pair[1]]));
            }
            out.extend(splitter.finish());
            let mut expected = text.clone().into_bytes();
            if !expected.is_empty() && !expected.ends_with(b"\n") {
                expected.push(b'\n');
            }
            prop_assert_eq!(out, expected);
        }
    }
}
