//! What is looked at of a Job and its pods.

use batch_plan::job::{Phase, PodView};
use batch_types::constants::value;
use batch_types::index_ranges::IndexSet;
use jiff::Timestamp;
use serde::Deserialize as _;

use crate::events::{self, Event};
use crate::object::Object;
use crate::pod::namespace_flag;
use crate::snapshot::{Snapshot, objects};
use crate::words::{counted, foreign};

pub(super) struct Case<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) job: Object<'a>,
    /// Those that can be read.
    pub(super) pods: Vec<Pod<'a>>,
    pub(super) events: Vec<Event<'a>>,
    pub(super) now: Timestamp,
}

pub(super) struct Pod<'a> {
    pub(super) object: Object<'a>,
    pub(super) view: PodView,
}

impl Pod<'_> {
    pub(super) fn is_active(&self) -> bool {
        !self.view.phase.is_terminal() && !self.view.deleting
    }
}

impl<'a> Case<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let job = snapshot.subject();
        let own = |pod: &Pod<'_>| match (&pod.view.controller, job.uid()) {
            (Some(controller), Some(uid)) => controller.uid.to_string() == uid,
            _ => true,
        };
        let pods = objects(snapshot.pods.as_ref())
            .filter_map(|object| Some(Pod { object, view: PodView::deserialize(object.0).ok()? }))
            .filter(own)
            .collect();
        Self { snapshot, job, pods, events: events::about(snapshot, "Job", job), now: snapshot.now }
    }

    pub(super) fn about(&self) -> String {
        format!("job/{}", foreign(self.job.name()))
    }

    /// The Job as commands name it.
    pub(super) fn argument(&self) -> String {
        format!("{}{}", self.about(), self.flag())
    }

    pub(super) fn flag(&self) -> String {
        namespace_flag(self.job)
    }

    pub(super) fn age_secs(&self) -> i64 {
        self.job.created().map_or(0, |created| self.now.duration_since(created).as_secs())
    }

    pub(super) fn terminating(&self) -> impl Iterator<Item = &Pod<'a>> {
        self.pods.iter().filter(|pod| pod.view.deleting && !pod.view.phase.is_terminal())
    }

    /// Pods that count as failed (JC-702).
    pub(super) fn failed(&self) -> impl Iterator<Item = &Pod<'a>> {
        let replace_only_failed = self.replaces_only_failed();
        self.pods.iter().filter(move |pod| match pod.view.phase {
            Phase::Failed => true,
            Phase::Succeeded => false,
            _ => pod.view.deleting && !replace_only_failed,
        })
    }

    /// JC-701.
    pub(super) fn replaces_only_failed(&self) -> bool {
        self.job.text("/spec/podReplacementPolicy") == Some(value::REPLACE_FAILED)
            || self.job.at("/spec/podFailurePolicy").is_some()
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.job.text("/spec/completionMode") == Some(value::INDEXED)
    }

    pub(super) fn completions(&self) -> Option<i32> {
        self.job.int("/spec/completions").and_then(|count| i32::try_from(count).ok())
    }

    pub(super) fn indexes(&self, pointer: &str) -> IndexSet {
        let text = self.job.text(pointer).unwrap_or("");
        IndexSet::parse(text, self.completions().unwrap_or(0))
    }

    /// How many pods should be active now (JC-1006).
    pub(super) fn wanted(&self) -> u64 {
        let parallelism = self.job.int("/spec/parallelism").unwrap_or(1).max(0).unsigned_abs();
        let succeeded = self.job.count("/status/succeeded");
        match self.job.int("/spec/completions") {
            Some(completions) => completions.max(0).unsigned_abs().saturating_sub(succeeded).min(parallelism),
            None if succeeded > 0 => 0,
            None => parallelism,
        }
    }

    /// `3 of 10 completions are done`, and what failed.
    pub(super) fn progress(&self) -> String {
        let (succeeded, failed) = (self.job.count("/status/succeeded"), self.job.count("/status/failed"));
        let done = match self.job.int("/spec/completions") {
            Some(1) if succeeded == 0 => String::new(),
            Some(completions) => format!("{succeeded} of {completions} completions are done"),
            None if succeeded > 0 => format!("{} succeeded", counted(succeeded, "pod")),
            None => String::new(),
        };
        let failed = if failed > 0 { format!("{} failed so far", counted(failed, "pod")) } else { String::new() };
        [done, failed].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}
