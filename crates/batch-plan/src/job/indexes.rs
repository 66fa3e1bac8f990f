//! Which completion indexes are busy right now, and which come next.
//!
//! Sets that a status holds are `batch_types::index_ranges::IndexSet`. The sets here follow single pods as they come and
//! go, so each change costs O(log n) and a Job of 100,000 indexes is mostly a handful of intervals. Which pods make an
//! index succeed or fail is decided in `index_tally`.

use std::collections::BTreeMap;
use std::fmt;

use batch_types::index_ranges::IndexSet;

/// A set of completion indexes that changes one index at a time.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct LiveIndexes {
    /// First to last index of each interval. Intervals neither overlap nor touch.
    intervals: BTreeMap<u32, u32>,
}

impl LiveIndexes {
    /// Puts `index` in or takes it out.
    pub(crate) fn set(&mut self, index: u32, member: bool) {
        match member {
            true => self.insert(index),
            false => self.remove(index),
        }
    }

    /// The indexes in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.intervals.iter().flat_map(|(&first, &last)| first..=last)
    }

    fn insert(&mut self, index: u32) {
        let before = self.intervals.range(..=index).next_back().map(|(&first, &last)| (first, last));
        let (first, last) = match before {
            Some((_, last)) if last >= index => return,
            Some((first, last)) if last + 1 == index => (first, index),
            _ => (index, index),
        };
        let last = match last.checked_add(1) {
            Some(next) => self.intervals.remove(&next).unwrap_or(last),
            None => last,
        };
        self.intervals.insert(first, last);
    }

    fn remove(&mut self, index: u32) {
        let Some((&first, &last)) = self.intervals.range(..=index).next_back() else { return };
        if last < index {
            return;
        }
        self.intervals.remove(&first);
        if first < index {
            self.intervals.insert(first, index - 1);
        }
        if index < last {
            self.intervals.insert(index + 1, last);
        }
    }
}

impl fmt::Debug for LiveIndexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.iter().collect::<IndexSet>())
    }
}

/// A set of indexes that can be skipped an interval at a time.
pub(crate) trait Busy {
    /// The last index of the interval that holds `index`, if one does.
    fn interval_end(&self, index: u32) -> Option<u32>;
}

impl Busy for LiveIndexes {
    fn interval_end(&self, index: u32) -> Option<u32> {
        let (_, &last) = self.intervals.range(..=index).next_back()?;
        (last >= index).then_some(last)
    }
}

impl Busy for IndexSet {
    fn interval_end(&self, index: u32) -> Option<u32> {
        let intervals = self.intervals();
        let at = intervals.partition_point(|interval| interval.last < index);
        intervals.get(at).filter(|interval| interval.first <= index).map(|interval| interval.last)
    }
}

/// The smallest `want` indexes below `completions` that none of the `busy` sets has (JC-1011).
pub(crate) fn pending(busy: &[&dyn Busy], completions: u32, want: usize) -> Vec<u32> {
    let mut picked = Vec::new();
    let mut index = 0;
    while index < completions && picked.len() < want {
        match busy.iter().filter_map(|set| set.interval_end(index)).max() {
            // `last` can be the highest number there is; nothing is pending after it.
            Some(last) => match last.checked_add(1) {
                Some(next) => index = next,
                None => break,
            },
            None => {
                picked.push(index);
                index += 1;
            }
        }
    }
    picked
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// V-4: wanted, completions, active, succeeded, failed, picked.
    #[test]
    fn the_lowest_missing_indexes_are_picked() {
        let cases = [
            (5, 3, "", "", "", "0,1,2"),
            (2, 5, "", "", "", "0,1"),
            (3, 10, "0,1", "", "", "2,3,4"),
            (6, 6, "6", "4-5", "", "0,1,2,3"),
            (5, 20, "3,5,8", "2-4,9", "", "0,1,6,7,10"),
            (5, 20, "3,9", "1,5,9", "2,6-7", "0,4,8,10,11"),
            (5, 0, "", "", "", ""),
        ];
        for (want, completions, active, succeeded, failed, picked) in cases {
            let set = |text| IndexSet::parse(text, i32::MAX);
            let mut live = LiveIndexes::default();
            set(active).iter().for_each(|index| live.insert(index));
            let indexes = pending(&[&live, &set(succeeded), &set(failed)], completions, want);
            assert_eq!(indexes.iter().map(u32::to_string).collect::<Vec<_>>().join(","), picked);
        }
    }

    #[test]
    fn the_highest_index_is_an_ordinary_one() {
        let mut live = LiveIndexes::default();
        live.insert(u32::MAX);
        live.insert(u32::MAX - 1);
        assert_eq!(live.interval_end(u32::MAX - 1), Some(u32::MAX));
        live.remove(u32::MAX);
        assert_eq!(live.interval_end(u32::MAX), None);
        assert_eq!(live.interval_end(u32::MAX - 1), Some(u32::MAX - 1));
    }

    proptest! {
        #[test]
        fn behaves_like_a_plain_set(changes in prop::collection::vec((any::<bool>(), 0_u32..40), 0..120),
                                    other in prop::collection::btree_set(0_u32..40, 0..20)) {
            let mut model = BTreeSet::new();
            let mut live = LiveIndexes::default();
            for (member, index) in changes {
                live.set(index, member);
                if member { model.insert(index); } else { model.remove(&index); }
            }
            prop_assert!(live.iter().eq(model.iter().copied()));
            let others: IndexSet = other.iter().copied().collect();
            let free: Vec<u32> = (0..40).filter(|index| !model.contains(index) && !other.contains(index)).collect();
            prop_assert_eq!(pending(&[&live, &others], 40, 100), free);
            let gaps = live.intervals.iter().zip(live.intervals.keys().skip(1));
            for ((_, last), next) in gaps {
                prop_assert!(last + 1 < *next, "intervals touch");
            }
        }
    }
}
