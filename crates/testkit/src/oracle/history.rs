//! The store's log as the oracle reads it: every change of every pod, Job and CronJob, in order.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use apiserver::storage::ObjectStore;
use bytes::Bytes;
use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::views::{CronJob, Job, Pod};
use crate::faults::{Announcement, Authored, Call, Fault, Read};

/// Everything that happened, in the order of revisions.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(super) changes: Vec<Change>,
    /// What controllers told about, asked for and called; empty where nobody wrote it down.
    pub announcements: Vec<Announcement>,
    pub reads: Vec<Read>,
    pub calls: Vec<Call>,
    /// Which of the calls wrote a revision.
    pub writes: BTreeMap<u64, usize>,
    /// Revisions whose writers were not told: the answer got lost, they were dead by then, or had given up. Nothing where
    /// nobody wrote that down.
    pub unheard: Option<BTreeSet<u64>>,
    /// When the clock that controllers and the server write times by was set, and by how much; in order.
    pub clock_jumps: Vec<(Timestamp, SignedDuration)>,
}

/// One revision as it is stored.
#[derive(Debug, Clone)]
pub struct Record {
    pub revision: u64,
    /// Who made it: a controller's name, `world`, or empty if nobody knows.
    pub by: &'static str,
    pub at: Option<Timestamp>,
    pub key: String,
    /// Nothing if it was removed.
    pub value: Option<Bytes>,
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
        Self::of_records(&records(store, authored))
    }

    /// The same, of records that were read already.
    pub fn of_records(records: &[Record]) -> Self {
        let (mut pods, mut jobs, mut cron_jobs) = (Present::default(), Present::default(), Present::default());
        let change = |record: &Record| Change {
            revision: record.revision,
            by: record.by,
            at: record.at,
            what: match record.key.split('/').next() {
                Some("pods") => What::Pod(pods.step(record)),
                Some("jobs.batch") => What::Job(jobs.step(record)),
                _ => What::CronJob(cron_jobs.step(record)),
            },
        };
        Self { changes: records.iter().map(change).collect(), ..Self::default() }
    }

    /// The call that wrote a revision, if that was written down.
    pub(super) fn call_of(&self, revision: u64) -> Option<&Call> {
        self.calls.get(*self.writes.get(&revision)?)
    }

    /// Whether a call wrote a revision when its sender had given it up.
    pub(super) fn is_late(&self, revision: u64) -> bool {
        let fault = self.call_of(revision).and_then(|call| call.fault);
        matches!(fault, Some(Fault::Late(_) | Fault::LateAfterRestart))
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

    /// The latest time that the clock showed to whoever decided what was carried out at `at`: at that moment, or just
    /// before it was set back, if the decision can have been taken by then.
    pub(super) fn latest_clock(&self, at: Timestamp, window: Duration) -> Timestamp {
        let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
        let mut ahead = SignedDuration::ZERO;
        let mut latest = Timestamp::MIN;
        for (set_at, by) in self.clock_jumps.iter().filter(|(set_at, _)| *set_at <= at) {
            if at.duration_since(*set_at) <= window {
                latest = latest.max(set_at.saturating_add(ahead).unwrap_or(*set_at));
            }
            ahead += *by;
        }
        latest.max(at.saturating_add(ahead).unwrap_or(at))
    }
}

fn step<T: DeserializeOwned>(before: Option<Value>, after: Option<Value>) -> Step<T> {
    let parsed = |value: Value| Arc::new(serde_json::from_value(value).expect("an object made by hand is readable"));
    Step { before: before.map(parsed), after: after.map(parsed) }
}

/// Reads all revisions of pods, Jobs and CronJobs, in order.
pub fn records(store: &ObjectStore, authored: &[Authored]) -> Vec<Record> {
    records_by(store, authored, store::Event::revision)
}

/// The same in an order of its own.
pub(crate) fn records_by<A: Send + Sync + 'static>(
    store: &store::Store<A>,
    authored: &[Authored],
    revision: impl Fn(&store::Event<A>) -> u64,
) -> Vec<Record> {
    let mut records = Vec::new();
    for topic in ["pods/", "jobs.batch/", "cronjobs.batch/"] {
        let Ok(mut watch) = store.watch(topic, 0) else { continue };
        while let Some(Ok(events)) = watch.next_batch(usize::MAX).now_or_never() {
            records.extend(events.into_iter().map(|event| Record {
                revision: revision(&event),
                by: "",
                at: None,
                key: event.key().to_string(),
                value: (event.kind == store::EventKind::Put).then(|| event.entry.value()),
            }));
        }
    }
    records.sort_unstable_by_key(|record| record.revision);
    let mut authors = authored.iter().peekable();
    for record in &mut records {
        while authors.next_if(|author| author.revision < record.revision).is_some() {}
        if let Some(author) = authors.peek().filter(|author| author.revision == record.revision) {
            (record.by, record.at) = (author.by, Some(author.at));
        }
    }
    records
}

/// The objects of one kind that are there, by key.
struct Present<T>(HashMap<String, Arc<T>>);

impl<T> Default for Present<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: DeserializeOwned> Present<T> {
    fn step(&mut self, Record { key, value, .. }: &Record) -> Step<T> {
        let before = self.0.remove(key);
        let after = value.as_ref().map(|bytes| {
            Arc::new(serde_json::from_slice::<T>(bytes).unwrap_or_else(|error| panic!("read `{key}`: {error}")))
        });
        self.0.extend(after.iter().map(|object| (key.clone(), object.clone())));
        Step { before, after }
    }
}
