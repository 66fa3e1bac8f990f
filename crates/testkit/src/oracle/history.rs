//! The store's log as the oracle reads it: every change of every pod, Job and CronJob, in order.

use std::{collections::HashMap, sync::Arc};

use apiserver::storage::ObjectStore;
use futures_util::FutureExt;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::views::{CronJob, Job, Pod};
use crate::faults::{Announcement, Authored, Call, Read};

/// Everything that happened, in the order of revisions.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(super) changes: Vec<Change>,
    /// What controllers told about, asked for and called; empty where nobody wrote it down.
    pub announcements: Vec<Announcement>,
    pub reads: Vec<Read>,
    pub calls: Vec<Call>,
}

/// One revision.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    /// Who made it: a controller's name, `world`, or empty if nobody knows.
    pub(super) by: &'static str,
    pub(super) at: Option<Timestamp>,
    pub(super) what: What,
}

/// An object before and after.
#[derive(Debug, Clone)]
pub(super) enum What {
    Pod(Step<Pod>),
    Job(Step<Job>),
    CronJob(Step<CronJob>),
}

/// Absence before is creation, absence after is removal.
#[derive(Debug, Clone)]
pub(super) struct Step<T> {
    pub(super) before: Option<Arc<T>>,
    pub(super) after: Option<Arc<T>>,
}

impl History {
    /// Reads the log of a store from its beginning. `authored` says who wrote what; it may be incomplete.
    ///
    /// History must not have been compacted: the oracle cannot judge what it cannot see.
    pub fn read(store: &ObjectStore, authored: &[Authored]) -> Self {
        let mut changes = Vec::new();
        read(store, "pods/", What::Pod, &mut changes);
        read(store, "jobs.batch/", What::Job, &mut changes);
        read(store, "cronjobs.batch/", What::CronJob, &mut changes);
        changes.sort_unstable_by_key(|change| change.revision);
        let mut authors = authored.iter().peekable();
        for change in &mut changes {
            while authors.next_if(|author| author.revision < change.revision).is_some() {}
            if let Some(author) = authors.peek().filter(|author| author.revision == change.revision) {
                (change.by, change.at) = (author.by, Some(author.at));
            }
        }
        Self { changes, ..Self::default() }
    }

    /// A history made by hand: `(by, seconds, kind, object)` per revision, from 1. A `null` object with the name in
    /// `kind`, as in `Pod a`, removes it. For tests of the checks themselves.
    pub fn of(steps: &[(&'static str, i64, &str, Value)]) -> Self {
        let mut now: HashMap<String, Value> = HashMap::new();
        let mut changes = Vec::new();
        for (number, (by, at, kind, object)) in steps.iter().enumerate() {
            let (kind, name) = match kind.split_once(' ') {
                Some((kind, name)) => (kind, name.to_owned()),
                None => (*kind, object["metadata"]["name"].as_str().unwrap_or_default().to_owned()),
            };
            let key = format!("{kind}/{name}");
            let before = now.get(&key).cloned();
            // Another uid under the name: the old object went in the same breath.
            let before = before.filter(|old| object.is_null() || old["metadata"]["uid"] == object["metadata"]["uid"]);
            let after = Some(object.clone()).filter(|object| !object.is_null());
            match &after {
                Some(object) => now.insert(key, object.clone()),
                None => now.remove(&key),
            };
            let what = match kind {
                "Pod" => What::Pod(step(before, after)),
                "Job" => What::Job(step(before, after)),
                _ => What::CronJob(step(before, after)),
            };
            let at = Timestamp::from_second(*at).ok();
            changes.push(Change { revision: number as u64 + 1, by, at, what });
        }
        Self { changes, ..Self::default() }
    }
}

fn step<T: DeserializeOwned>(before: Option<Value>, after: Option<Value>) -> Step<T> {
    let parsed = |value: Value| Arc::new(serde_json::from_value(value).expect("an object made by hand is readable"));
    Step { before: before.map(parsed), after: after.map(parsed) }
}

fn read<T: DeserializeOwned>(
    store: &ObjectStore,
    topic: &str,
    wrap: impl Fn(Step<T>) -> What,
    changes: &mut Vec<Change>,
) {
    let Ok(mut watch) = store.watch(topic, 0) else { return };
    let mut now: HashMap<Arc<str>, Arc<T>> = HashMap::new();
    while let Some(Ok(events)) = watch.next_batch(usize::MAX).now_or_never() {
        for event in events {
            let before = now.remove(event.key());
            let after = match event.kind {
                store::EventKind::Delete => None,
                store::EventKind::Put => {
                    let object = serde_json::from_slice::<T>(&event.entry.value());
                    Some(Arc::new(object.unwrap_or_else(|error| panic!("read `{}`: {error}", event.key()))))
                }
            };
            if let Some(after) = &after {
                now.insert(event.key().clone(), after.clone());
            }
            let what = wrap(Step { before, after });
            changes.push(Change { revision: event.revision(), by: "", at: None, what });
        }
    }
}
