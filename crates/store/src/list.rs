//! Ordered lists under a prefix, now or at an older revision.

use crate::shared::Shared;
use crate::topic::{Topic, VersionAt};
use crate::transaction::topic_of;
use crate::{BackendError, Entry, Revision};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use thiserror::Error;

/// Which entries to list.
#[derive(Clone, Copy, Debug)]
pub struct ListQuery<'a> {
    /// At least a topic with its slash: `pods/`, `pods/default/`.
    pub prefix: &'a str,
    /// Where to begin: `Bound::Excluded` with the last key of a page gives the next one.
    pub start: Bound<&'a str>,
    /// Most entries to return; `None` for all.
    pub limit: Option<usize>,
    /// The revision to list at; `None` for now.
    pub at: Option<Revision>,
}

impl<'a> ListQuery<'a> {
    /// Everything under `prefix`, now.
    pub fn new(prefix: &'a str) -> Self {
        Self { prefix, start: Bound::Unbounded, limit: None, at: None }
    }
}

/// Entries in byte order of their keys.
pub struct List<A> {
    pub entries: Vec<Arc<Entry<A>>>,
    /// The revision that the list shows.
    pub revision: Revision,
    /// How many more the limit cut off (`remainingItemCount`, AS-90).
    pub remaining: usize,
}

impl<A> fmt::Debug for List<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("List")
            .field("entries", &self.entries)
            .field("revision", &self.revision)
            .field("remaining", &self.remaining)
            .finish()
    }
}

/// Why a list or a watch cannot be served.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Answered with 410 (AS-92, AS-104).
    #[error("revision {requested} is older than the history kept, which begins at {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    /// Answered with 504 (AS-87).
    #[error("revision {requested} is not reached yet, the store is at {current}")]
    Future { requested: Revision, current: Revision },
    #[error("prefix `{prefix}` does not begin with `topic/`")]
    NoTopic { prefix: String },
    #[error("read stored revision {revision}")]
    Stored { revision: Revision, source: BackendError },
    #[error("the store is closed")]
    Closed,
}

/// An entry of a list at an older revision: at hand, or to be read from disk once the index is unlocked.
enum Found<A> {
    Here(Arc<Entry<A>>),
    Stored(Revision),
}

pub(crate) fn list<A>(shared: &Shared<A>, query: &ListQuery<'_>) -> Result<List<A>, ReadError> {
    let name = topic_of(query.prefix).ok_or_else(|| ReadError::NoTopic { prefix: query.prefix.to_owned() })?;
    let (revision, found, remaining) = {
        let index = shared.index.read();
        let at = query.at.unwrap_or(index.revision);
        if at > index.revision {
            return Err(ReadError::Future { requested: at, current: index.revision });
        }
        if at < index.compacted {
            return Err(ReadError::Compacted { requested: at, oldest: index.compacted });
        }
        let (found, remaining) = index.topic(name).map_or((Vec::new(), 0), |topic| find(topic, query, at));
        (at, found, remaining)
    };
    let entries = found.into_iter().map(|found| match found {
        Found::Here(entry) => Ok(entry),
        Found::Stored(stored) => shared.read_entry(stored, revision),
    });
    Ok(List { entries: entries.collect::<Result<_, _>>()?, revision, remaining })
}

fn find<A>(topic: &Topic<A>, query: &ListQuery<'_>, at: Revision) -> (Vec<Found<A>>, usize) {
    let start = match query.start {
        Bound::Included(key) | Bound::Excluded(key) if key >= query.prefix => query.start,
        _ => Bound::Included(query.prefix),
    };
    let mut present = topic
        .keys
        .range::<str, _>((start, Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(query.prefix))
        .map(|(_, slot)| slot.at(at))
        .filter(|version| !matches!(version, VersionAt::Absent));
    let found = present.by_ref().take(query.limit.unwrap_or(usize::MAX)).filter_map(|version| match version {
        VersionAt::Latest(entry) => Some(Found::Here(entry.clone())),
        VersionAt::Older(revision) => Some(match topic.recent_at(revision) {
            Some(event) => Found::Here(event.entry.clone()),
            None => Found::Stored(revision),
        }),
        VersionAt::Absent => None,
    });
    (found.collect(), present.count())
}
