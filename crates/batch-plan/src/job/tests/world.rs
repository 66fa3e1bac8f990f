//! An API server, a kubelet of sorts and a shell, in memory and in virtual time.
//!
//! The server keeps what matters here: optimistic locking, finalizers, UID preconditions, status validation. The shell does
//! with plans what the real one does, call by call, and any call can be refused, lose its answer, or be the last before a
//! crash. Every write is judged at once; see [`World::judge`].

use std::collections::{BTreeMap, BTreeSet};

use batch_types::constants::{annotation, condition};
use batch_types::index_ranges::IndexSet;
use batch_types::job::{has_condition, is_finished, is_indexed, validate_status_update};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use serde_json::{Value, json};

use super::super::*;

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server refuses it.
    Refused,
    /// It lands, but nobody hears of it.
    AnswerLost,
    /// It never lands, and nobody hears of that either.
    RequestLost,
    /// The controller dies before it.
    CrashBefore,
    /// The controller dies after it has landed.
    CrashAfter,
    /// The controller dies, and the creation lands only when the world says so (P-4). Other calls never land.
    LandsLate,
}

/// Faults that go by what a call is about, where [`World::faults`] go by its number.
#[derive(Debug, Clone, Default)]
pub(super) struct Aimed {
    /// How often the answer to the creation of each pod is lost.
    pub(super) creation_answers_lost: usize,
    creations: BTreeMap<String, usize>,
    /// Whether the first attempt to release each pod is refused.
    pub(super) first_releases_refused: bool,
    releases: BTreeSet<String>,
    /// How often the status write that ends the Job is refused.
    pub(super) ends_refused: usize,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) job: Job,
    pub(super) pods: BTreeMap<String, Value>,
    /// Names of those that have not ended.
    live: BTreeSet<String>,
    /// Everything that happened, in order: what watches deliver.
    pub(super) log: Vec<Change>,
    revision: u64,
    uids: u64,
    /// Calls of the controller so far, and what is to go wrong with which.
    pub(super) calls: usize,
    pub(super) faults: BTreeMap<usize, Fault>,
    pub(super) aimed: Aimed,
    pub(super) events: Vec<String>,
    pub(super) metrics: Vec<Metric>,
    /// Creations that are still under way.
    pub(super) under_way: Vec<String>,
    /// UIDs that ever stood in the uncounted lists.
    recorded: [BTreeSet<String>; 2],
    pub(super) created: usize,
    /// The highest that was ever asked for.
    parallelism_max: usize,
    /// The fewest completions that were ever asked for.
    completions_min: usize,
    pub(super) settings: Settings,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Job(Box<Job>),
    Pod(Value),
    PodGone(String),
}

/// Why a call did not work.
#[derive(Debug)]
pub(super) enum Trouble {
    Refused,
    NotFound,
    Conflict,
    Exists,
    AnswerLost,
    Crash,
}

impl World {
    pub(super) fn new(spec: Value) -> Self {
        Self::with_settings(spec, Settings::default())
    }

    pub(super) fn with_settings(spec: Value, settings: Settings) -> Self {
        let mut full = json!({
            "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "selector": {"matchLabels": {"job": "a"}},
            "template": {"metadata": {"labels": {"job": "a"}},
                         "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}},
        });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata = json!({"namespace": "ns", "name": "a", "uid": "job", "resourceVersion": "1"});
        let job: Job = serde_json::from_value(json!({"metadata": metadata, "spec": full, "status": {}})).unwrap();
        Self {
            now: super::text::now(),
            log: vec![Change::Job(Box::new(job.clone()))],
            job,
            pods: BTreeMap::new(),
            live: BTreeSet::new(),
            revision: 1,
            uids: 0,
            calls: 0,
            faults: BTreeMap::new(),
            aimed: Aimed::default(),
            events: Vec::new(),
            metrics: Vec::new(),
            under_way: Vec::new(),
            recorded: Default::default(),
            created: 0,
            parallelism_max: 0,
            completions_min: usize::MAX,
            settings,
        }
    }

    pub(super) fn status(&self) -> &JobStatus {
        self.job.status.as_ref().unwrap()
    }

    pub(super) fn is_finished(&self) -> bool {
        is_finished(&self.job)
    }

    pub(super) fn advance(&mut self, secs: i64) {
        self.now += jiff::SignedDuration::from_secs(secs);
    }

    // What users and nodes do.

    pub(super) fn edit_spec(&mut self, edit: impl FnOnce(&mut Value)) {
        let mut spec = serde_json::to_value(&self.job.spec).unwrap();
        edit(&mut spec);
        self.parallelism_max = self.parallelism_max.max(self.parallelism());
        self.completions_min = self.completions_min.min(self.completions());
        self.job.spec = serde_json::from_value(spec).unwrap();
        self.store_job();
    }

    fn parallelism(&self) -> usize {
        count(self.job.spec.as_ref().and_then(|spec| spec.parallelism))
    }

    fn completions(&self) -> usize {
        count(self.job.spec.as_ref().and_then(|spec| spec.completions))
    }

    /// An edit that changes nothing of importance.
    pub(super) fn touch_job(&mut self) {
        if !self.is_finished() {
            self.store_job();
        }
    }

    pub(super) fn delete_job(&mut self) {
        let at = self.now.to_string();
        let mut job = serde_json::to_value(&self.job).unwrap();
        job["metadata"]["deletionTimestamp"] = json!(at);
        self.job = serde_json::from_value(job).unwrap();
        self.store_job();
    }

    /// Names of pods that are neither ended nor being deleted.
    pub(super) fn active(&self) -> Vec<String> {
        self.live.iter().filter(|name| !is_deleting(&self.pods[*name])).cloned().collect()
    }

    pub(super) fn names(&self, test: impl Fn(&Value) -> bool) -> Vec<String> {
        self.pods.iter().filter(|(_, pod)| test(pod)).map(|(name, _)| name.clone()).collect()
    }

    /// A node reports that the pod has ended, just now.
    pub(super) fn finish(&mut self, name: &str, exit_code: i32) {
        let at = json!(self.now.to_string());
        self.finish_at(name, exit_code, &at);
    }

    /// The same, by the clock of the node.
    pub(super) fn finish_at(&mut self, name: &str, exit_code: i32, at: &Value) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| !is_terminal(pod)) else { return };
        pod["status"] = json!({
            "phase": if exit_code == 0 { "Succeeded" } else { "Failed" },
            "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": exit_code, "finishedAt": at}}}],
        });
        self.store_pod(name);
    }

    pub(super) fn run(&mut self, name: &str) {
        let at = self.now.to_string();
        let Some(pod) = self.pods.get_mut(name).filter(|pod| !is_terminal(pod)) else { return };
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
        pod["status"] = json!({"phase": "Running", "conditions": ready});
        pod["spec"]["nodeName"] = json!("node");
        self.store_pod(name);
    }

    /// A user deletes the pod.
    pub(super) fn delete(&mut self, name: &str) {
        let _ = self.delete_pod(name, None);
    }

    pub(super) fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        if let Some(pod) = self.pods.get_mut(name) {
            edit(pod);
            self.store_pod(name);
        }
    }

    pub(super) fn add_pod(&mut self, mut pod: Value) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.uids += 1;
        pod["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        self.pods.insert(name.clone(), pod);
        self.store_pod(&name);
    }

    /// What was under way arrives.
    pub(super) fn land(&mut self) {
        for body in std::mem::take(&mut self.under_way) {
            let _ = self.create_pod(&body);
        }
    }

    /// Nodes stop the pods that are being deleted and confirm it.
    pub(super) fn stop_deleted_pods(&mut self) {
        for name in self.names(is_deleting) {
            if !is_terminal(&self.pods[&name]) {
                self.finish(&name, 143);
            }
            self.collect(&name);
        }
    }

    // What the server does.

    fn store_job(&mut self) {
        self.revision += 1;
        self.job.metadata.resource_version = Some(self.revision.to_string());
        self.log.push(Change::Job(Box::new(self.job.clone())));
    }

    fn store_pod(&mut self, name: &str) {
        self.revision += 1;
        if let Some(pod) = self.pods.get_mut(name) {
            pod["metadata"]["resourceVersion"] = json!(self.revision.to_string());
            match is_terminal(pod) {
                true => self.live.remove(name),
                false => self.live.insert(name.to_owned()),
            };
            self.log.push(Change::Pod(pod.clone()));
        }
        if self.pods.get(name).is_some_and(|pod| is_deleting(pod) && is_unscheduled_or_ended(pod)) {
            self.collect(name);
        }
    }

    /// Removes a deleted pod once no finalizer holds it.
    fn collect(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name) else { return };
        if is_deleting(pod) && pod["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            self.pods.remove(name);
            self.live.remove(name);
            self.revision += 1;
            self.log.push(Change::PodGone(uid));
        }
    }

    pub(super) fn create_pod(&mut self, body: &str) -> Result<(), Trouble> {
        let mut pod: Value = serde_json::from_str(body).unwrap();
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let attempts = self.aimed.creations.entry(name.clone()).or_default();
        *attempts += 1;
        let is_lost = *attempts <= self.aimed.creation_answers_lost;
        if self.pods.contains_key(&name) {
            return Err(if is_lost { Trouble::AnswerLost } else { Trouble::Exists });
        }
        self.uids += 1;
        self.created += 1;
        pod["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        pod["metadata"]["creationTimestamp"] = json!(self.now.to_string());
        pod["status"] = json!({"phase": "Pending"});
        self.pods.insert(name.clone(), pod);
        self.store_pod(&name);
        self.judge_creation();
        if is_lost { Err(Trouble::AnswerLost) } else { Ok(()) }
    }

    pub(super) fn delete_pod(&mut self, name: &str, uid: Option<&Uid>) -> Result<(), Trouble> {
        let at = self.now.to_string();
        let pod = self.pods.get_mut(name).ok_or(Trouble::NotFound)?;
        if uid.is_some_and(|uid| pod["metadata"]["uid"] != uid.to_string()) {
            return Err(Trouble::Conflict);
        }
        if pod["metadata"].get("deletionTimestamp").is_none() {
            pod["metadata"]["deletionTimestamp"] = json!(at);
            self.store_pod(name);
        }
        Ok(())
    }

    pub(super) fn patch_pod(&mut self, name: &str, patch: &Value) -> Result<(), Trouble> {
        let before = self.pods.get(name).ok_or(Trouble::NotFound)?.clone();
        let patch = &patch["metadata"];
        let version = &patch["resourceVersion"];
        let is_stale = !version.is_null() && *version != before["metadata"]["resourceVersion"];
        if is_stale || before["metadata"]["uid"] != patch["uid"] {
            return Err(Trouble::Conflict);
        }
        let mut metadata = before["metadata"].clone();
        let texts = |value: &Value| -> Vec<Value> { value.as_array().cloned().unwrap_or_default() };
        let mut finalizers = texts(&metadata["finalizers"]);
        let dropped = texts(&patch["$deleteFromPrimitiveList/finalizers"]);
        let uid = before["metadata"]["uid"].as_str().unwrap();
        let releases = dropped.contains(&json!(FINALIZER)) && is_tracked(&before);
        if releases && self.aimed.first_releases_refused && self.aimed.releases.insert(uid.to_owned()) {
            return Err(Trouble::Refused);
        }
        finalizers.retain(|name| !dropped.contains(name));
        finalizers.extend(texts(&patch["finalizers"]));
        metadata["finalizers"] = json!(finalizers);
        for (key, value) in patch["annotations"].as_object().into_iter().flatten() {
            match value.is_null() {
                true => drop(metadata["annotations"].as_object_mut().and_then(|all| all.remove(key))),
                false => metadata["annotations"][key] = value.clone(),
            }
        }
        if let Some(owners) = patch["ownerReferences"].as_array() {
            let kept = owners.iter().filter(|owner| owner.get("$patch").is_none());
            metadata["ownerReferences"] = json!(kept.collect::<Vec<_>>());
        }
        self.judge_release(&before, &metadata);
        self.pods.get_mut(name).unwrap()["metadata"] = metadata;
        self.store_pod(name);
        self.collect_if_confirmed(name);
        Ok(())
    }

    /// A deleted pod that has ended goes with its last finalizer.
    fn collect_if_confirmed(&mut self, name: &str) {
        if self.pods.get(name).is_some_and(is_unscheduled_or_ended) {
            self.collect(name);
        }
    }

    pub(super) fn put_status(&mut self, version: &Option<String>, status: &JobStatus) -> Result<(), Trouble> {
        if *version != self.job.metadata.resource_version {
            return Err(Trouble::Conflict);
        }
        let new = Job { status: Some(status.clone()), ..self.job.clone() };
        if is_finished(&new) && self.aimed.ends_refused > 0 {
            self.aimed.ends_refused -= 1;
            return Err(Trouble::Refused);
        }
        let errors: Vec<String> =
            validate_status_update(&new, &self.job, &self.settings.gates).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "INV-27: the API refuses {errors:?}\nold {:#?}\nnew {status:#?}", self.job.status);
        let old = std::mem::replace(&mut self.job, new);
        self.judge(&old);
        self.store_job();
        Ok(())
    }

    // Promises that hold at every write.

    /// INV-2, 3, 5, 7, 8, 19.
    fn judge(&mut self, old: &Job) {
        let (before, after) = (old.status.as_ref().unwrap(), self.job.status.clone().unwrap());
        let indexed = self.job.spec.as_ref().is_some_and(is_indexed);
        assert!(count(before.failed) <= count(after.failed), "INV-3: failed went down");
        assert!(indexed || count(before.succeeded) <= count(after.succeeded), "INV-3: succeeded went down");
        for kind in ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"] {
            assert!(!has_condition(old, kind) || has_condition(&self.job, kind), "INV-7: {kind} vanished");
        }
        assert!(!is_finished(old), "INV-7: a finished Job was written to");
        assert!(!has_condition(&self.job, "Failed") || has_condition(old, "FailureTarget"), "INV-8");
        assert!(!has_condition(&self.job, "Complete") || has_condition(old, "SuccessCriteriaMet"), "INV-8");
        let conditions = after.conditions.clone().unwrap_or_default();
        let kinds: BTreeSet<&String> = conditions.iter().map(|item| &item.type_).collect();
        assert_eq!(kinds.len(), conditions.len(), "INV-7: a condition type twice");

        let lists = after.uncounted_terminated_pods.clone().unwrap_or_default();
        let lists = [lists.succeeded.unwrap_or_default(), lists.failed.unwrap_or_default()];
        for (side, list) in lists.iter().enumerate() {
            for uid in list {
                assert!(!self.recorded[1 - side].contains(uid), "INV-2: {uid} changed sides");
                self.recorded[side].insert(uid.clone());
            }
        }
        // One that failed by itself before we got to it may count on either side of the line.
        for pod in self.live.iter().map(|name| &self.pods[name]).filter(|pod| is_deleting(pod)) {
            let surplus = pod["metadata"]["annotations"].get(SURPLUS_ANNOTATION).is_some();
            let failed = lists[1].iter().any(|uid| pod["metadata"]["uid"] == *uid);
            assert!(!(surplus && failed), "INV-1: a pod that we removed counts as failed");
        }
        let open = lists.iter().map(Vec::len).sum::<usize>();
        assert!(open <= self.settings.uncounted_pods_max, "INV-5: {open} uncounted pods");
        // INV-1: every pod on record is counted once: what was ever listed is listed still or part of the counter.
        let counted = self.recorded[1].len() - lists[1].len();
        assert_eq!(counted, count(after.failed), "INV-1: failed pods");
        if !indexed {
            let counted = self.recorded[0].len() - lists[0].len();
            assert_eq!(counted, count(after.succeeded), "INV-1: succeeded pods");
        }
        if is_finished(&self.job) {
            let live = self.names(|pod| !is_terminal(pod) && is_owned(pod));
            assert_eq!(live, [""; 0], "INV-9: live pods of a finished Job");
        }
    }

    /// INV-11, 17, 18, 19, 21.
    fn judge_creation(&self) {
        let spec = self.job.spec.as_ref().unwrap();
        assert!(!has_condition(&self.job, condition::FAILURE_TARGET), "INV-11");
        assert!(!has_condition(&self.job, condition::SUCCESS_CRITERIA_MET), "INV-11");
        let live: Vec<&Value> = self.live.iter().map(|name| &self.pods[name]).filter(|pod| is_owned(pod)).collect();
        let active: Vec<&Value> = live.iter().copied().filter(|pod| !is_deleting(pod)).collect();
        let live = live.len();
        // The newest spec may be unknown to the controller, so the highest bound ever given holds.
        let bound = self.parallelism().max(self.parallelism_max);
        assert!(active.len() <= bound, "INV-17: {} active pods with parallelism {bound}", active.len());
        let strict = spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some();
        assert!(!strict || live <= bound, "INV-18: {live} live pods with parallelism {bound}");
        let indexes: Vec<&Value> = active
            .iter()
            .map(|pod| &pod["metadata"]["annotations"][annotation::COMPLETION_INDEX])
            .filter(|index| !index.is_null())
            .collect();
        let different: BTreeSet<String> = indexes.iter().map(ToString::to_string).collect();
        assert_eq!(different.len(), indexes.len(), "INV-19: two active pods of one index");
    }

    /// INV-4.
    fn judge_release(&self, before: &Value, metadata: &Value) {
        let tracked =
            |metadata: &Value| metadata["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)));
        if !tracked(&before["metadata"]) || tracked(metadata) || !is_terminal(before) {
            return;
        }
        let spec = self.job.spec.as_ref().unwrap();
        let surplus = before["metadata"]["annotations"].get(SURPLUS_ANNOTATION).is_some();
        let handed_over = metadata["ownerReferences"].as_array().is_none_or(Vec::is_empty);
        // A Job that has succeeded lets go of pods that were alive when last seen, as recorded in
        // `success-policy/late-success-not-needed`.
        let succeeded = has_condition(&self.job, condition::SUCCESS_CRITERIA_MET);
        let ignored = spec.pod_failure_policy.is_some();
        if self.job.metadata.deletion_timestamp.is_some() || surplus || handed_over || succeeded || ignored {
            return;
        }
        let uid = before["metadata"]["uid"].as_str().unwrap();
        let index = before["metadata"]["annotations"][annotation::COMPLETION_INDEX].as_str();
        let index: Option<u32> = index.and_then(|index| index.parse().ok());
        let completed = self.status().completed_indexes.as_deref().unwrap_or("");
        // That the Job has grown again may be unknown to the controller.
        let size = self.completions().min(self.completions_min);
        let by_index = index.is_some_and(|index| {
            let out_of_range = index as usize >= size;
            out_of_range || IndexSet::parse(completed, i32::MAX).contains(index)
        });
        let named = self.recorded.iter().any(|list| list.contains(uid));
        assert!(named || by_index, "INV-4: {uid} was released before it was on record");
    }

    /// What must be true when nothing happens any more (INV-13).
    pub(super) fn assert_settled(&self) {
        let stuck = self.names(|pod| is_tracked(pod) && (is_terminal(pod) || is_deleting(pod)) && self.is_finished());
        assert_eq!(stuck, [""; 0], "INV-13: pods that are still tracked");
    }

    pub(super) fn emit(&mut self, events: &[Event]) {
        let texts = events.iter().map(|event| format!("{} {}: {}", event.kind.as_str(), event.reason, event.message));
        self.events.extend(texts);
    }

    /// Runs one call of the controller, with whatever is to go wrong with it.
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut Self) -> Result<T, Trouble>) -> Result<T, Trouble> {
        self.calls += 1;
        match self.faults.get(&self.calls).copied() {
            None => call(self),
            Some(Fault::Refused) => Err(Trouble::Refused),
            Some(Fault::CrashBefore | Fault::LandsLate) => Err(Trouble::Crash),
            Some(Fault::AnswerLost) => call(self).and(Err(Trouble::AnswerLost)),
            Some(Fault::RequestLost) => Err(Trouble::AnswerLost),
            Some(Fault::CrashAfter) => call(self).and(Err(Trouble::Crash)),
        }
    }
}

fn count(field: Option<i32>) -> usize {
    usize::try_from(field.unwrap_or(0)).unwrap()
}

pub(super) fn is_terminal(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub(super) fn is_deleting(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_some()
}

fn is_unscheduled_or_ended(pod: &Value) -> bool {
    pod["spec"].get("nodeName").is_none() || is_terminal(pod)
}

pub(super) fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)))
}

pub(super) fn is_owned(pod: &Value) -> bool {
    pod["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == "job"))
}
