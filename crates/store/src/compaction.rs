//! Works out which records a step of compaction removes. Pure: the writer makes it durable, then the index forgets.
//!
//! Walking revisions upwards, a step removes the version that each change replaced, and each deletion itself. So the
//! newest version of every live key at the compaction point stays, and so does the predecessor of every change above it,
//! which watchers need.

use crate::index::Index;
use crate::record::{Checkpoint, Survivors};
use crate::transaction::topic_of;
use crate::{EventKind, Revision};

/// Revisions walked in one step: bounds how long commits and readers wait for compaction.
pub(crate) const STEP_REVISIONS_MAX: u64 = 2048;

/// One step, from the index's compaction point up to `through`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) through: Revision,
    pub(crate) removes: Vec<Revision>,
    pub(crate) survivors: Survivors,
    revision: Revision,
}

impl Step {
    /// What must be durable together with the removals.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint { compacted: self.through, revision: self.revision, survivors: self.survivors }
    }
}

/// The next step towards `target`; `None` if the index is there already.
pub(crate) fn next_step<A>(index: &Index<A>, target: Revision) -> Option<Step> {
    let target = target.min(index.revision);
    if target <= index.compacted {
        return None;
    }
    let through = target.min(index.compacted + STEP_REVISIONS_MAX);
    let mut step = Step { through, removes: Vec::new(), survivors: index.survivors, revision: index.revision };
    for revision in index.compacted + 1..=through {
        walk(index, revision, &mut step);
    }
    Some(step)
}

fn walk<A>(index: &Index<A>, revision: Revision, step: &mut Step) {
    let key = index.key_of(revision).expect("the log reaches from the compaction point to the revision");
    let (version, previous) = topic_of(key)
        .and_then(|topic| index.topic(topic)?.keys.get(key)?.version_and_previous(revision))
        .expect("a key keeps all its versions above the compaction point");
    if let Some(previous) = previous
        && previous.kind == EventKind::Put
    {
        step.removes.push(previous.revision);
        step.survivors.remove(previous.revision);
    }
    match version.kind {
        EventKind::Put => step.survivors.add(revision),
        EventKind::Delete => step.removes.push(revision),
    }
}
