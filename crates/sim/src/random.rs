//! Chance that can be repeated: everything random in a run comes from its seed.

/// A stream of numbers (splitmix64: small, fast, and good enough to choose faults with).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for one purpose, so that what one part draws does not change what another part gets.
    #[must_use]
    pub fn of(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed, |mixed, byte| Self(mixed ^ u64::from(byte)).number());
        Self(mixed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// A number in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of several.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[usize::try_from(self.below(among.len() as u64)).expect("an index")].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let numbers = |mut random: Random| (0..8).map(|_| random.number()).collect::<Vec<_>>();
        assert_eq!(numbers(Random::of(7, "users")), numbers(Random::of(7, "users")));
        assert_ne!(numbers(Random::of(7, "users")), numbers(Random::of(7, "faults")));
        assert_ne!(numbers(Random::of(7, "users")), numbers(Random::of(8, "users")));
    }

    #[test]
    fn chances_are_about_what_they_say() {
        let mut random = Random::new(1);
        let hits = (0..10_000).filter(|_| random.chance(100)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!((0..100).all(|_| (3..=5).contains(&random.between(3, 5))));
    }
}
