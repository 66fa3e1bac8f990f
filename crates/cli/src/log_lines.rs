//! Lines of pods' logs: whose they are, and cutting a stream of bytes into them.

use std::io::{self, Write as _};
use std::sync::Arc;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
