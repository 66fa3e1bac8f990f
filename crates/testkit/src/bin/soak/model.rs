//! What must be true of the server, from what it has acknowledged. Pure: the soak feeds it, and tests do.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};

/// A stored version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) value: u64,
    pub(crate) revision: u64,
}

/// A write that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Put(u64),
    Delete,
}

/// One key: the last version that was acknowledged, and the write that was sent and not answered when the server died.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Key {
    acknowledged: Option<Version>,
    unanswered: Option<Asked>,
}

impl Key {
    pub(crate) fn current(&self) -> Option<Version> {
        self.acknowledged
    }

    pub(crate) fn ask(&mut self, asked: Asked) {
        self.unanswered = Some(asked);
    }

    /// The write that was asked for has been answered; a removal has no revision.
    pub(crate) fn acknowledge(&mut self, revision: u64) {
        self.acknowledged = match self.unanswered.take() {
            Some(Asked::Put(value)) => Some(Version { value, revision }),
            Some(Asked::Delete) | None => None,
        };
    }

    /// Compares with what a restarted server has, and goes on from there. An unanswered write may have happened or not;
    /// nothing else may.
    pub(crate) fn reconcile(&mut self, name: &str, found: Option<Version>) -> Result<()> {
        let old = self.acknowledged;
        let happened = match (self.unanswered.take(), found) {
            (Some(Asked::Put(value)), Some(found)) => {
                found.value == value && old.is_none_or(|old| old.revision < found.revision)
            }
            (Some(Asked::Delete), None) => true,
            _ => false,
        };
        ensure!(found == old || happened, "`{name}`: acknowledged {old:?}, found {found:?} after the restart");
        self.acknowledged = found;
        Ok(())
    }
}

/// A watch event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) revision: u64,
    pub(crate) name: String,
    pub(crate) deleted: bool,
}

/// What watches delivered, across restarts, against what was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct WatchLog {
    last: u64,
    written: BTreeSet<(u64, String)>,
    /// Name and the revision that was removed.
    removed: BTreeMap<String, Vec<u64>>,
    seen: Vec<Seen>,
    pub(crate) total: usize,
}

impl WatchLog {
    /// A log of everything after `revision`.
    pub(crate) fn starting_at(revision: u64) -> Self {
        Self { last: revision, ..Self::default() }
    }

    /// Where to resume.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn record(&mut self, seen: Seen) -> Result<()> {
        let last = self.last;
        ensure!(seen.revision > last, "the watch delivered {seen:?} after revision {last}");
        self.last = seen.revision;
        self.total += 1;
        self.seen.push(seen);
        Ok(())
    }

    pub(crate) fn wrote(&mut self, name: &str, revision: u64) {
        self.written.insert((revision, name.to_owned()));
    }

    pub(crate) fn removed(&mut self, name: &str, last: u64) {
        self.removed.entry(name.to_owned()).or_default().push(last);
    }

    /// Call when the watch has caught up: everything acknowledged must have been delivered. Then forgets it.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let mut removals: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for seen in &self.seen {
            if seen.deleted {
                removals.entry(&seen.name).or_default().push(seen.revision);
            } else {
                self.written.remove(&(seen.revision, seen.name.clone()));
            }
        }
        if let Some(missing) = self.written.first() {
            bail!("the watch never delivered {missing:?} ({} acknowledged writes in all)", self.written.len());
        }
        for (name, lasts) in &self.removed {
            for last in lasts {
                let delivered = removals.get(name.as_str()).is_some_and(|all| all.iter().any(|at| at > last));
                ensure!(delivered, "the watch never delivered the removal of `{name}` at {last}");
            }
        }
        self.written.clear();
        self.removed.clear();
        self.seen.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Version = Version { value: 1, revision: 10 };
    const NEW: Version = Version { value: 2, revision: 12 };

    fn reconcile(unanswered: Option<Asked>, found: Option<Version>) -> bool {
        let mut key = Key { acknowledged: Some(OLD), unanswered };
        let accepted = key.reconcile("k", found).is_ok();
        assert!(!accepted || key == Key { acknowledged: found, unanswered: None });
        accepted
    }

    #[test]
    fn acknowledged_writes_stay_and_unanswered_ones_may_have_happened() {
        for (unanswered, found, fine) in [
            (None, Some(OLD), true),
            (None, None, false),
            (None, Some(NEW), false),
            (Some(Asked::Put(2)), Some(OLD), true),
            (Some(Asked::Put(2)), Some(NEW), true),
            (Some(Asked::Put(3)), Some(NEW), false),
            (Some(Asked::Put(2)), Some(Version { value: 2, revision: 9 }), false),
            (Some(Asked::Put(2)), None, false),
            (Some(Asked::Delete), None, true),
            (Some(Asked::Delete), Some(OLD), true),
            (Some(Asked::Delete), Some(NEW), false),
            (None, Some(Version { revision: 11, ..OLD }), false),
        ] {
            assert_eq!(reconcile(unanswered, found), fine, "{unanswered:?} then {found:?}");
        }
    }

    fn seen(revision: u64, name: &str, deleted: bool) -> Seen {
        Seen { revision, name: name.to_owned(), deleted }
    }

    #[test]
    fn a_complete_watch_settles() {
        let mut log = WatchLog::starting_at(5);
        log.wrote("a", 6);
        log.removed("a", 6);
        log.record(seen(6, "a", false)).unwrap();
        log.record(seen(7, "b", false)).unwrap();
        log.record(seen(8, "a", true)).unwrap();
        log.settle().unwrap();
        assert_eq!((log.last(), log.total), (8, 3));
    }

    #[test]
    fn gaps_repeats_and_disorder_are_noticed() {
        let mut log = WatchLog::starting_at(5);
        log.record(seen(5, "a", false)).unwrap_err();
        log.record(seen(7, "a", false)).unwrap();
        log.record(seen(6, "b", false)).unwrap_err();
        log.wrote("b", 6);
        log.settle().unwrap_err();

        let mut log = WatchLog::starting_at(5);
        log.removed("a", 7);
        log.record(seen(6, "a", true)).unwrap();
        log.settle().unwrap_err();
    }
}
