//! A difference between two objects as bytes, made without the sets of fields it stands for: enough to see that a write
//! makes the same difference as one before.

use super::compare::{Fate, Step, Witness};

/// Writes what it is shown, but for what is the same on both sides.
#[derive(Debug)]
pub(super) struct Trace<'o> {
    out: &'o mut Vec<u8>,
    /// Where the steps begin that the walk is in, and what is below them.
    open: Vec<(usize, usize)>,
}

impl<'o> Trace<'o> {
    pub(super) fn on(out: &'o mut Vec<u8>) -> Self {
        Self { out, open: Vec::new() }
    }
}

impl Witness for Trace<'_> {
    fn enter(&mut self, step: Step<'_>) {
        let (mark, text) = match step {
            Step::Field(name) => (b'.', name),
            Step::Item(identity) => (b'[', identity),
        };
        let begin = self.out.len();
        self.out.push(mark);
        self.out.extend_from_slice(&text.len().to_le_bytes());
        self.out.extend_from_slice(text.as_bytes());
        self.open.push((begin, self.out.len()));
    }

    fn leave(&mut self, _: Step<'_>, fate: Fate) {
        let Some((begin, below)) = self.open.pop() else { return };
        match fate {
            Fate::Same if self.out.len() == below => self.out.truncate(begin),
            Fate::Same => self.out.push(b'='),
            Fate::Changed => self.out.push(b'+'),
            Fate::Removed => self.out.push(b'-'),
        }
    }
}
