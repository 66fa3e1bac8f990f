//! What must be true of a system at rest: nothing waits for anything that will not come (INV-13, INV-30).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apiserver::storage::ObjectStore;
use batch_types::constants::finalizer;
use batch_types::index_ranges::IndexSet;
use serde_json::Value;
use store::ListQuery;

use crate::shapes::FOREIGN_MANAGER;

/// The objects of one kind by key.
type Objects = BTreeMap<String, Value>;

/// Everything of a kind.
fn all(store: &ObjectStore, topic: &str) -> Objects {
    let list = store.list(&ListQuery::new(&format!("{topic}/")));
    let entries = list.map(|list| list.entries).unwrap_or_default();
    entries
        .into_iter()
        .map(|entry| (entry.key.to_string(), serde_json::from_slice(&entry.value()).unwrap_or_default()))
        .collect()
}

/// What is wrong with the state that the system came to rest in.
///
/// `clock_set_back`: times to live may still be running.
pub(crate) fn check(store: &ObjectStore, running: &BTreeSet<Arc<str>>, clock_set_back: bool) -> Vec<String> {
    let (jobs, pods, namespaces) = (all(store, "jobs.batch"), all(store, "pods"), all(store, "namespaces"));
    let mut wrong = Vec::new();
    for (key, namespace) in &namespaces {
        if is_deleted(namespace) {
            wrong.push(format!("INV-30: {key} is still being deleted: {}", namespace["status"]));
        }
    }
    for (key, job) in &jobs {
        check_job(key, job, clock_set_back, &mut wrong);
    }
    let uids: BTreeSet<&str> = jobs.values().filter_map(|job| job["metadata"]["uid"].as_str()).collect();
    let mut waiting = BTreeSet::new();
    for (key, pod) in &pods {
        check_pod(key, pod, &uids, &jobs, &mut waiting, &mut wrong);
    }
    let known: BTreeSet<&str> = pods.values().filter(|pod| !has_ended(pod)).filter_map(|pod| uid(pod)).collect();
    for uid in running.iter().filter(|uid| !known.contains(&***uid)) {
        wrong.push(format!("INV-49: a process of pod {uid} runs, and no live pod says so"));
    }
    wrong
}

fn check_job(key: &str, job: &Value, clock_set_back: bool, wrong: &mut Vec<String>) {
    let spec = &job["spec"];
    if is_deleted(job) {
        wrong.push(format!("INV-30: {key} is still being deleted: {}", job["metadata"]));
    }
    if spec["managedBy"] == FOREIGN_MANAGER {
        return;
    }
    let is_finished = is_finished(job);
    // Without parallelism nothing is ever begun.
    if !is_finished && spec["suspend"] != true && spec["parallelism"] != 0 {
        wrong.push(format!("INV-30: {key} is not finished: {}", job["status"]));
    }
    if is_finished && spec["ttlSecondsAfterFinished"].is_u64() && !clock_set_back {
        wrong.push(format!("INV-34: {key} has outlived its time: {}", job["status"]));
    }
}

fn check_pod(
    key: &str,
    pod: &Value,
    uids: &BTreeSet<&str>,
    jobs: &Objects,
    waiting: &mut BTreeSet<(String, u32)>,
    wrong: &mut Vec<String>,
) {
    let meta = &pod["metadata"];
    let owners = meta["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let controller = owners.iter().find(|owner| owner["controller"] == true && owner["kind"] == "Job");
    let owner = controller.and_then(|owner| owner["uid"].as_str());
    if let Some(owner) = owner
        && !uids.contains(owner)
    {
        wrong.push(format!("INV-40: {key} belongs to a Job that does not exist: {owner}"));
    }
    let is_tracked =
        meta["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == finalizer::JOB_TRACKING));
    let job = owner.and_then(|owner| jobs.values().find(|job| uid(job) == Some(owner)));
    let is_needed = job.is_some_and(|job| !is_finished(job));
    // One for each index.
    let held = job.and_then(|job| index_held_for(pod, job)).map(|index| (owner.unwrap_or_default().to_owned(), index));
    if is_tracked && held.is_some_and(|index| waiting.insert(index)) {
        return;
    }
    if is_deleted(pod) {
        wrong.push(format!("INV-30: {key} is still being deleted: {meta} {}", pod["status"]["phase"]));
    }
    if is_tracked && has_ended(pod) && job.is_none_or(|job| job["spec"]["managedBy"] != FOREIGN_MANAGER) {
        wrong.push(format!("INV-13: {key} has ended and is still tracked ({})", pod["status"]["phase"]));
    } else if is_tracked && !is_needed {
        wrong.push(format!("INV-13: {key} is tracked for no Job that is unfinished"));
    }
    if job.is_some_and(is_finished) && !has_ended(pod) {
        wrong.push(format!("INV-9: {key} is live, and its Job is finished"));
    }
}

/// JC-1506: a failed pod keeps the number of failures of its index until there is a pod to hand it to, and a Job that is
/// suspended, or has no parallelism, makes none.
fn index_held_for(pod: &Value, job: &Value) -> Option<u32> {
    let (spec, status) = (&job["spec"], &job["status"]);
    let index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"].as_str()?.parse().ok()?;
    let is_done = ["completedIndexes", "failedIndexes"]
        .iter()
        .any(|field| IndexSet::parse(status[field].as_str().unwrap_or_default(), i32::MAX).contains(index));
    let makes_none = spec["suspend"] == true || spec["parallelism"] == 0;
    let has_failed = pod["status"]["phase"] == "Failed";
    let waits = spec["backoffLimitPerIndex"].is_u64() && makes_none && has_failed && !is_done && !is_finished(job);
    waits.then_some(index)
}

fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn has_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
}

fn is_finished(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|one| (one["type"] == "Complete" || one["type"] == "Failed") && one["status"] == "True")
}
