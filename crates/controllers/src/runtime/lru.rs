//! A map of bounded size that forgets what was not used for the longest time.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// Keys by when they were last used.
    order: BTreeMap<u64, K>,
    tick: u64,
    capacity: usize,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), tick: 0, capacity }
    }

    /// The value of a key, made if it is missing, now the most recently used.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.tick += 1;
        let tick = self.tick;
        match self.entries.get(key).map(|(used, _)| *used) {
            Some(used) => {
                self.order.remove(&used);
            }
            None => self.make_room(),
        }
        self.order.insert(tick, key.clone());
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (tick, make()));
        entry.0 = tick;
        &mut entry.1
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len().max(self.order.len())
    }

    fn make_room(&mut self) {
        while self.entries.len() >= self.capacity {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert_with(&"a", || 0) += 1;
        *lru.get_or_insert_with(&"b", || 0) += 1;
        *lru.get_or_insert_with(&"a", || 0) += 1;
        lru.get_or_insert_with(&"c", || 9);
        assert_eq!(*lru.get_or_insert_with(&"a", || 0), 2);
        assert_eq!(*lru.get_or_insert_with(&"b", || 0), 0, "forgotten when c came");
        assert_eq!((lru.entries.len(), lru.order.len()), (2, 2));
    }
}
