//! One topic in memory: its keys in order with the versions still readable, its recent events, its wake-up.

use crate::rest::Model;
use crate::wake::Wake;
use crate::{Entry, Event, EventKind, Revision};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// What an event costs besides its bytes: the event, its entry, handles and allocator overhead, rounded up.
const EVENT_OVERHEAD_BYTES: usize = 320;

/// Everything about the keys that share a first segment.
pub(crate) struct Topic<A> {
    pub(crate) keys: BTreeMap<Arc<str>, Slot<A>>,
    /// How many of `keys` exist now; the others were deleted within the history.
    pub(crate) live_keys: usize,
    /// Every revision of this topic above the compaction point, ascending.
    pub(crate) revisions: VecDeque<Revision>,
    /// The newest revision of this topic that compaction has taken out of `revisions`. A watcher that has not got past
    /// it has missed something; one that has does not care how far compaction went.
    pub(crate) dropped_through: Revision,
    /// The newest events, ascending by revision, without gaps above `evicted_through`.
    pub(crate) recent: VecDeque<Arc<Event<A>>>,
    /// The newest revision of this topic that is not in `recent` any more.
    pub(crate) evicted_through: Revision,
    pub(crate) recent_bytes: usize,
    /// By which values at rest were last described.
    last_model: Option<Model>,
    pub(crate) published: Arc<Wake>,
}

/// One key: its newest version and the older ones inside the history.
pub(crate) struct Slot<A> {
    pub(crate) latest: Latest<A>,
    /// Ascending. At most the first is at or below the compaction point.
    pub(crate) older: VecDeque<Version>,
}

pub(crate) enum Latest<A> {
    Live(Arc<Entry<A>>),
    Deleted(Revision),
}

/// An older version; its bytes are among the recent events or on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) revision: Revision,
    pub(crate) kind: EventKind,
}

/// What a key was at some revision.
pub(crate) enum VersionAt<'a, A> {
    Latest(&'a Arc<Entry<A>>),
    Older(Revision),
    Absent,
}

impl<A> Default for Topic<A> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            live_keys: 0,
            revisions: VecDeque::new(),
            dropped_through: 0,
            recent: VecDeque::new(),
            evicted_through: 0,
            recent_bytes: 0,
            last_model: None,
            published: Arc::default(),
        }
    }
}

/// The store is closed: watchers are woken to hear of it.
impl<A> Drop for Topic<A> {
    fn drop(&mut self) {
        self.published.wake_all();
    }
}

impl<A> Topic<A> {
    pub(crate) fn live(&self, key: &str) -> Option<&Arc<Entry<A>>> {
        self.keys.get(key)?.live()
    }

    /// Makes `latest` the newest version of its key.
    pub(crate) fn install(&mut self, key: &Arc<str>, latest: Latest<A>) {
        self.live_keys += usize::from(latest.is_live());
        match self.keys.get_mut(&**key) {
            Some(slot) => {
                let replaced = std::mem::replace(&mut slot.latest, latest);
                self.live_keys -= usize::from(replaced.is_live());
                slot.older.push_back(replaced.version());
            }
            None => {
                self.keys.insert(key.clone(), Slot { latest, older: VecDeque::new() });
            }
        }
    }

    pub(crate) fn remember(&mut self, event: Arc<Event<A>>) {
        self.recent_bytes += cost(&event);
        self.recent.push_back(event);
    }

    /// Drops the oldest recent event, which frees its [`cost`].
    pub(crate) fn evict(&mut self) -> Option<Arc<Event<A>>> {
        let event = self.recent.pop_front()?;
        self.evicted_through = event.revision();
        self.recent_bytes -= cost(&event);
        Some(event)
    }

    /// By what `entry` might be described: the model of its neighbour, since keys of one origin have names that begin
    /// alike, and the last one of the topic. `None` if the entry is not current any more.
    pub(crate) fn models_for(&self, entry: &Arc<Entry<A>>) -> Option<Vec<Model>> {
        let up_to_key = (Bound::Unbounded, Bound::Included(&*entry.key));
        let mut slots = self.keys.range::<str, _>(up_to_key).rev().map(|(_, slot)| slot.live());
        slots.next().flatten().filter(|current| Arc::ptr_eq(current, entry))?;
        let neighbour = slots.next().flatten().and_then(|neighbour| neighbour.model());
        let last = self.last_model.as_ref().filter(|last| neighbour.is_none_or(|model| !Arc::ptr_eq(model, last)));
        Some(neighbour.into_iter().chain(last).cloned().collect())
    }

    /// Puts `rested`, the same version, in the place of `entry` unless that was replaced meanwhile.
    pub(crate) fn settle(&mut self, entry: &Arc<Entry<A>>, rested: Entry<A>) {
        self.last_model = rested.model().cloned();
        if let Some(Slot { latest: Latest::Live(current), .. }) = self.keys.get_mut(&*entry.key)
            && Arc::ptr_eq(current, entry)
        {
            *current = Arc::new(rested);
        }
    }

    /// The recent event of exactly this revision.
    pub(crate) fn recent_at(&self, revision: Revision) -> Option<&Arc<Event<A>>> {
        let position = self.recent.binary_search_by_key(&revision, |event| event.revision()).ok()?;
        self.recent.get(position)
    }

    /// Forgets what compaction up to and including `revision`, a change of `key`, takes away.
    pub(crate) fn forget(&mut self, key: &str, revision: Revision) {
        debug_assert_eq!(self.revisions.front(), Some(&revision), "compaction goes in order");
        self.revisions.pop_front();
        self.dropped_through = revision;
        let Some(slot) = self.keys.get_mut(key) else { return };
        while slot.older.front().is_some_and(|version| version.revision < revision || version.is_delete_at(revision)) {
            slot.older.pop_front();
        }
        if slot.older.is_empty() {
            slot.older = VecDeque::new();
            if slot.latest.version().is_delete_at(revision) {
                self.keys.remove(key);
            }
        }
    }
}

/// An event's share of the budget: its value, the frame that may be built from it, and overhead. The previous version
/// is almost always shared with an older event.
pub(crate) fn cost<A>(event: &Event<A>) -> usize {
    2 * event.entry.value_len() + EVENT_OVERHEAD_BYTES
}

impl<A> Slot<A> {
    pub(crate) fn live(&self) -> Option<&Arc<Entry<A>>> {
        match &self.latest {
            Latest::Live(entry) => Some(entry),
            Latest::Deleted(_) => None,
        }
    }

    /// What the key was at `at`, which must not be below the compaction point.
    pub(crate) fn at(&self, at: Revision) -> VersionAt<'_, A> {
        if self.latest.version().revision <= at {
            return self.live().map_or(VersionAt::Absent, VersionAt::Latest);
        }
        let newer = self.older.partition_point(|version| version.revision <= at);
        match newer.checked_sub(1).and_then(|position| self.older.get(position)) {
            Some(version) if version.kind == EventKind::Put => VersionAt::Older(version.revision),
            _ => VersionAt::Absent,
        }
    }

    /// The version that `revision` wrote and the one before it.
    pub(crate) fn version_and_previous(&self, revision: Revision) -> Option<(Version, Option<Version>)> {
        let latest = self.latest.version();
        if latest.revision == revision {
            return Some((latest, self.older.back().copied()));
        }
        let position = self.older.binary_search_by_key(&revision, |version| version.revision).ok()?;
        let previous = position.checked_sub(1).and_then(|position| self.older.get(position)).copied();
        Some((*self.older.get(position)?, previous))
    }
}

impl<A> Latest<A> {
    fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    fn version(&self) -> Version {
        match self {
            Self::Live(entry) => Version { revision: entry.revision, kind: EventKind::Put },
            Self::Deleted(revision) => Version { revision: *revision, kind: EventKind::Delete },
        }
    }
}

impl Version {
    fn is_delete_at(&self, revision: Revision) -> bool {
        self.revision == revision && self.kind == EventKind::Delete
    }
}
