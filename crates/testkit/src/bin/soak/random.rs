//! Repeatable choices: Marsaglia's xorshift, good enough to pick keys and moments.

/// A stream of numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // The one state that xorshift cannot leave is 0.
        Self((seed ^ 0x9E37_79B9_7F4A_7C15).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number in `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A stream of its own, for another task.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}
