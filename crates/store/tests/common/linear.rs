//! Is a concurrent history of one key possible if operations take effect one at a time (Wing and Gong)?
//!
//! A key is a register that is compared and set. Every value is written by one operation only, so a value says which
//! operation it is from. An operation without an answer may have taken effect at any moment after it began, or never.

use std::collections::HashSet;

/// What was asked for, and what came of it.
#[derive(Clone, Debug)]
pub struct Operation {
    pub kind: Kind,
    /// Moments of a clock that all clients share.
    pub began: u64,
    pub ended: u64,
    pub answer: Answer,
}

/// `None` is the absence of a value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Read,
    Set { expected: Option<u32>, new: Option<u32> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What was read.
    Read(Option<u32>),
    Done,
    /// What was there instead.
    Refused(Option<u32>),
    /// Nobody knows. `ended` is when it can have taken effect at the latest.
    Unknown,
}

/// Whether there is an order of the operations that explains every answer and keeps those apart that did not overlap.
pub fn is_linearizable(operations: &[Operation]) -> bool {
    assert!(operations.len() <= 128, "a set of operations is a number of 128 bits");
    search(operations, 0, None, &mut HashSet::new())
}

fn search(operations: &[Operation], done: u128, value: Option<u32>, seen: &mut HashSet<(u128, Option<u32>)>) -> bool {
    let open = |index: &usize| done & (1 << index) == 0;
    let must = (0..operations.len()).filter(open).filter(|index| operations[*index].answer != Answer::Unknown);
    // Whatever comes next must have begun before any that is left was over.
    let Some(limit) = must.map(|index| operations[index].ended).min() else { return true };
    if !seen.insert((done, value)) {
        return false;
    }
    (0..operations.len()).filter(open).filter(|index| operations[*index].began <= limit).any(|index| {
        let mut next = |value| search(operations, done | (1 << index), value, seen);
        let operation = &operations[index];
        match (operation.kind, operation.answer) {
            (Kind::Read, Answer::Read(read)) => read == value && next(value),
            (Kind::Set { expected, new }, Answer::Done) => expected == value && next(new),
            (Kind::Set { expected, .. }, Answer::Refused(found)) => expected != value && found == value && next(value),
            // One that did not take effect need not be placed at all.
            (Kind::Set { expected, new }, Answer::Unknown) => expected == value && next(new),
            _ => false,
        }
    })
}
