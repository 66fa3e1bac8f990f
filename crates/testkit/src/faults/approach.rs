//! What is known when a call is about to be made, before it is decided which fault it meets.

use jiff::Timestamp;

use super::fault::Watched;

/// A call that is about to be made, and what could have happened since others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Approach {
    pub(crate) call: usize,
    /// How things stand.
    pub(crate) standing: Standing,
    /// How they stood when a call was answered last, and which.
    pub(crate) answered: Option<(usize, Standing)>,
    pub(crate) consulted: Consulted,
}

/// All that a process leaves behind: if it is the same twice, it makes no difference when the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) life: u32,
    pub(crate) at: Timestamp,
    pub(crate) revision: u64,
    /// Where random numbers go on.
    pub(crate) chance: u64,
    /// How many requests are still on their way.
    pub(crate) late: usize,
}

impl Standing {
    /// Whether a process that ends at one of two moments leaves the same behind as at the other. What is on its way lands
    /// after so many calls, and there may have been one more.
    pub(crate) fn leaves_the_same_as(&self, other: &Self) -> bool {
        self == other && self.late == 0
    }
}

/// How often watches had to know whether they lag. As long as none has, it makes no difference when they began to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Consulted([u64; Watched::EACH.len()]);

impl Consulted {
    pub(crate) fn count(&mut self, plural: &str) {
        for what in Watched::EACH.into_iter().filter(|what| what.includes(plural)) {
            self.0[what as usize] += 1;
        }
    }

    /// How often those were that are concerned.
    pub(crate) fn about(self, what: Watched) -> u64 {
        self.0[what as usize]
    }
}
