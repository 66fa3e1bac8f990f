//! Time and chance, injected so that tests and simulations are repeatable.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

/// The alphabet of generated name suffixes (AS-78): no vowels, so that no words appear.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// Where the server takes its clock and its randomness from.
#[derive(Clone)]
pub struct Environment {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    random: Arc<dyn Fn() -> u128 + Send + Sync>,
}

impl Environment {
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        random: impl Fn() -> u128 + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), random: Arc::new(random) }
    }

    /// The system's clock and random numbers.
    pub fn system() -> Self {
        Self::new(Timestamp::now, || uuid::Uuid::new_v4().as_u128())
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// A new version 4 UUID as text.
    pub fn uid(&self) -> String {
        uuid::Builder::from_random_bytes((self.random)().to_be_bytes()).into_uuid().to_string()
    }

    /// The random part of a generated name.
    pub fn name_suffix(&self) -> String {
        // A version 4 UUID fixes bits 48..52 and 64..66; the low 48 bits are all random.
        let mut bits = (self.random)() & ((1 << 48) - 1);
        let mut suffix = String::with_capacity(SUFFIX_LENGTH);
        for _ in 0..SUFFIX_LENGTH {
            suffix.push(SUFFIX_ALPHABET[(bits % 27) as usize] as char);
            bits /= 27;
        }
        suffix
    }

    /// A number in `0..bound`.
    pub fn below(&self, bound: u64) -> u64 {
        ((self.random)() as u64 & ((1 << 48) - 1)) % bound
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_suffixes_use_the_restricted_alphabet() {
        let suffix = Environment::system().name_suffix();
        assert_eq!(suffix.len(), SUFFIX_LENGTH);
        assert!(suffix.bytes().all(|byte| SUFFIX_ALPHABET.contains(&byte)), "{suffix}");
    }

    #[test]
    fn uids_are_version_4() {
        let uid = Environment::new(Timestamp::now, || 0).uid();
        assert_eq!(uid, "00000000-0000-4000-8000-000000000000");
    }
}
