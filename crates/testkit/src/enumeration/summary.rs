//! How a world ended, in a form in which two runs can be compared: without names, uids and times that chance or a delay
//! may change.

use std::fmt::Write;

use apiserver::storage::ObjectStore;
use serde_json::Value;
use store::ListQuery;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// One line for each Job, each CronJob, and for pods that no Job controls.
pub(super) fn summary(store: &ObjectStore) -> String {
    let (jobs, pods) = (objects(store, "jobs.batch/"), objects(store, "pods/"));
    let mut text = String::new();
    for job in &jobs {
        let uid = &job["metadata"]["uid"];
        let own: Vec<&Value> = pods.iter().filter(|pod| controller(pod) == Some(uid)).collect();
        let _ = writeln!(text, "job {} {} | {}", name(job), status(job), population(&own));
    }
    for cron_job in objects(store, "cronjobs.batch/") {
        let status = &cron_job["status"];
        let active: Vec<&str> =
            status["active"].as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str()).collect();
        let succeeded = status["lastSuccessfulTime"].is_string();
        let last = &status["lastScheduleTime"];
        let _ = writeln!(text, "cronjob {} active={active:?} last={last} succeeded={succeeded}", name(&cron_job));
    }
    let known = |pod: &&Value| jobs.iter().any(|job| controller(pod) == Some(&job["metadata"]["uid"]));
    for pod in pods.iter().filter(|pod| !known(pod)) {
        // Generated names depend on the uid of a Job that is gone.
        let name = pod["metadata"]["generateName"].as_str().unwrap_or_else(|| name(pod));
        let _ = writeln!(text, "pod {name} {}", population(&[pod]));
    }
    text
}

fn objects(store: &ObjectStore, prefix: &str) -> Vec<Value> {
    let Ok(list) = store.list(&ListQuery::new(prefix)) else { return Vec::new() };
    list.entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value()).ok()).collect()
}

fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true).map(|owner| &owner["uid"])
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn status(job: &Value) -> String {
    let status = &job["status"];
    let mut text = String::new();
    let mut conditions: Vec<String> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["status"] == "True")
        .map(|one| {
            format!("{}({})", one["type"].as_str().unwrap_or_default(), one["reason"].as_str().unwrap_or_default())
        })
        .collect();
    conditions.sort();
    text.push_str(&conditions.join(" "));
    for field in ["active", "ready", "terminating", "succeeded", "failed"] {
        let _ = write!(text, " {field}={}", status[field].as_u64().unwrap_or(0));
    }
    for field in ["completedIndexes", "failedIndexes"] {
        if let Some(indexes) = status[field].as_str() {
            let _ = write!(text, " {field}={indexes}");
        }
    }
    if job["metadata"]["deletionTimestamp"].is_string() {
        text.push_str(" deleting");
    }
    text
}

/// How many pods are live, and how many are tracked. Ended ones may be more or fewer: what matters is in the counters.
fn population(pods: &[&Value]) -> String {
    let ended = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let live = pods.iter().filter(|pod| !ended(pod)).count();
    let finalizers =
        |pod: &Value| pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&TRACKING.into()));
    let tracked = pods.iter().filter(|pod| finalizers(pod)).count();
    format!("live={live} tracked={tracked}")
}
