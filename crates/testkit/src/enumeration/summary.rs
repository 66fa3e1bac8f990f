//! How a world ended, in a form in which two runs can be compared: without names, uids and times that chance or a delay
//! may change.

use std::fmt::Write;

use apiserver::storage::ObjectStore;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use store::ListQuery;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What there is to see of an object. Specs and owners of fields are most of what is stored.
#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    generate_name: Option<String>,
    uid: String,
    finalizers: Vec<String>,
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Owner {
    uid: String,
    #[serde(default)]
    controller: bool,
}

/// One line for each Job, each CronJob, and for pods that no Job controls.
pub(super) fn summary(store: &ObjectStore) -> String {
    let (jobs, pods) = (objects(store, "jobs.batch/"), objects(store, "pods/"));
    let mut text = String::new();
    for job in &jobs {
        let own: Vec<&Object> = pods.iter().filter(|pod| pod.controller() == Some(&*job.metadata.uid)).collect();
        let _ = writeln!(text, "job {} {} | {}", job.metadata.name, status(job), population(&own));
    }
    for cron_job in objects(store, "cronjobs.batch/") {
        let status = &cron_job.status;
        let active: Vec<&str> =
            status["active"].as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str()).collect();
        let succeeded = status["lastSuccessfulTime"].is_string();
        let last = &status["lastScheduleTime"];
        let _ =
            writeln!(text, "cronjob {} active={active:?} last={last} succeeded={succeeded}", cron_job.metadata.name);
    }
    let known = |pod: &&Object| jobs.iter().any(|job| pod.controller() == Some(&*job.metadata.uid));
    for pod in pods.iter().filter(|pod| !known(pod)) {
        // Generated names depend on the uid of a Job that is gone.
        let name = pod.metadata.generate_name.as_ref().unwrap_or(&pod.metadata.name);
        let _ = writeln!(text, "pod {name} {}", population(&[pod]));
    }
    text
}

fn objects(store: &ObjectStore, prefix: &str) -> Vec<Object> {
    let Ok(list) = store.list(&ListQuery::new(prefix)) else { return Vec::new() };
    list.entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value()).ok()).collect()
}

impl Object {
    /// The uid of who controls it.
    fn controller(&self) -> Option<&str> {
        self.metadata.owner_references.iter().find(|owner| owner.controller).map(|owner| &*owner.uid)
    }
}

fn status(job: &Object) -> String {
    let status = &job.status;
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
    if job.metadata.deletion_timestamp.is_some() {
        text.push_str(" deleting");
    }
    text
}

/// How many pods are live, and how many are tracked. Ended ones may be more or fewer: what matters is in the counters.
fn population(pods: &[&Object]) -> String {
    let ended = |pod: &Object| matches!(pod.status["phase"].as_str(), Some("Succeeded" | "Failed"));
    let live = pods.iter().filter(|pod| !ended(pod)).count();
    let is_tracked = |pod: &&&Object| pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING);
    let tracked = pods.iter().filter(is_tracked).count();
    format!("live={live} tracked={tracked}")
}
