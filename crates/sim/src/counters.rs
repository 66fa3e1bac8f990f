//! What happened in a run, counted: a run in which nothing went wrong proves nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Clones count into the same place.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    counts: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Counters {
    pub fn add(&self, what: &str) {
        self.add_many(what, 1);
    }

    pub fn add_many(&self, what: &str, many: u64) {
        let mut counts = self.counts.lock();
        match counts.get_mut(what) {
            Some(count) => *count += many,
            None => drop(counts.insert(what.to_owned(), many)),
        }
    }

    pub fn get(&self, what: &str) -> u64 {
        self.counts.lock().get(what).copied().unwrap_or(0)
    }

    /// Takes over what others have counted.
    pub fn absorb(&self, other: &Self) {
        for (what, many) in other.counts.lock().iter() {
            self.add_many(what, *many);
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, many) in self.counts.lock().iter() {
            writeln!(f, "{many:>12}  {what}")?;
        }
        Ok(())
    }
}
