//! What users do in a scenario, and when.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use apiserver::storage::ObjectStore;
use controllers::runtime::Resource;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use store::ListQuery;

use super::{JOBS, PODS, create, delete, kubelet, patch, patch_status};
use crate::{faults::Wire, world::Clock};

/// One thing that happens, when its time has come.
#[derive(Debug, Clone)]
pub struct Step {
    pub when: When,
    pub what: What,
}

/// The moment of a step; the step before it has been done by then.
#[derive(Debug, Clone, PartialEq)]
pub enum When {
    /// So many milliseconds after the step before.
    After(u64),
    /// So many pods are in this phase and not being deleted.
    Pods(&'static str, usize),
    /// A Job has this condition.
    Condition(&'static str, &'static str),
    /// A Job's status has this value.
    Status(&'static str, &'static str, Value),
    /// So many Jobs exist.
    Jobs(usize),
    /// There is no Job of this name.
    Gone(&'static str),
}

/// What a user does.
#[derive(Debug, Clone)]
pub enum What {
    Create(Resource, Value),
    /// Makes a pod that the Job of this name controls.
    CreatePodOf(&'static str, Value),
    /// A merge patch.
    Patch(Resource, &'static str, Value),
    PatchStatus(Resource, &'static str, Value),
    Delete(Resource, &'static str, &'static str),
    /// Deletes the first so many pods by name that are not being deleted.
    DeletePods(usize),
    /// A merge patch of the first so many pods by name.
    PatchPods(usize, Value),
    /// Ends the first so many running pods by name with a code.
    EndPods(usize, i32),
    /// Nothing; for waiting.
    Nothing,
}

impl Step {
    pub fn new(when: When, what: What) -> Self {
        Self { when, what }
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<String>,
}

/// How far a script is. Cheap to clone; all clones show the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Stage(Arc<AtomicU8>);

impl Stage {
    const WAITING: u8 = 1;
    const OVER: u8 = 2;

    /// Whether it waits for something other than time.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::WAITING
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::OVER
    }

    fn set(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }
}

/// Whether every Job there is has ended.
pub(super) fn all_jobs_are_over(store: &ObjectStore) -> bool {
    objects(store, "jobs.batch/").iter().all(|job| has_condition(job, "Complete") || has_condition(job, "Failed"))
}

/// The uids of pods that have not ended.
pub(super) fn live_pods(store: &ObjectStore) -> BTreeSet<String> {
    let pods = objects(store, "pods/").into_iter();
    let live = pods.filter(|pod| !matches!(pod.status["phase"].as_str(), Some("Succeeded" | "Failed")));
    live.map(|pod| pod.metadata.uid).collect()
}

/// Does the steps of a scenario one after the other.
pub(super) struct Play {
    pub(super) store: ObjectStore,
    pub(super) client: Client,
    pub(super) wire: Wire,
    pub(super) clock: Clock,
    pub(super) stage: Stage,
}

impl Play {
    pub(super) async fn run(self, steps: Vec<Step>) {
        for Step { when, what } in steps {
            self.wait(&when).await;
            self.act(what).await;
        }
        self.stage.set(Stage::OVER);
    }

    async fn wait(&self, when: &When) {
        if let When::After(millis) = when {
            return tokio::time::sleep(Duration::from_millis(*millis)).await;
        }
        let mut seen = self.store.revision();
        self.stage.set(Stage::WAITING);
        while !self.holds(when) {
            // Whoever waits in vain while a Job goes on is found out by the world's horizon.
            let day = Duration::from_secs(86_400);
            seen = self.store.wait_for_revision(seen + 1, day).await.unwrap_or(seen);
        }
        self.stage.set(0);
    }

    fn holds(&self, when: &When) -> bool {
        match when {
            When::After(_) => true,
            When::Pods(phase, count) => {
                let pods = self.objects("pods/default/");
                let matches =
                    |pod: &&Object| pod.status["phase"] == *phase && pod.metadata.deletion_timestamp.is_none();
                pods.iter().filter(matches).count() == *count
            }
            When::Condition(name, kind) => self.job(name).is_some_and(|job| has_condition(&job, kind)),
            When::Status(name, field, value) => self.job(name).is_some_and(|job| job.status[*field] == *value),
            When::Jobs(count) => self.objects("jobs.batch/default/").len() == *count,
            When::Gone(name) => self.job(name).is_none(),
        }
    }

    fn job(&self, name: &str) -> Option<Object> {
        let entry = self.store.get(&format!("jobs.batch/default/{name}"))?;
        serde_json::from_slice(&entry.value()).ok()
    }

    fn objects(&self, prefix: &str) -> Vec<Object> {
        objects(&self.store, prefix)
    }

    async fn act(&self, what: What) {
        let client = &self.client;
        match what {
            What::Nothing => {}
            What::Create(resource, object) => {
                let namespace = if resource == Resource::NODES { None } else { Some("default") };
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let path = resource.object(namespace.unwrap_or_default(), name);
                self.wire.note_made(path, object.clone());
                create(client, &resource.collection(namespace), object).await;
            }
            What::CreatePodOf(job, mut pod) => {
                let uid = self.job(job).map(|job| job.metadata.uid);
                pod["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}]);
                create(client, &PODS.collection(Some("default")), pod).await;
            }
            What::Patch(resource, name, body) => patch(client, &resource.object("default", name), body).await,
            What::PatchStatus(resource, name, body) => {
                patch_status(client, &resource.subresource("default", name, "status"), body).await;
            }
            What::Delete(resource, name, policy) => {
                let namespace = if resource == Resource::NODES { "" } else { "default" };
                delete(client, &resource.object(namespace, name), json!({"propagationPolicy": policy})).await;
            }
            What::DeletePods(count) => {
                for name in self.first_pods(count, |pod| pod.metadata.deletion_timestamp.is_none()) {
                    delete(client, &PODS.object("default", &name), json!({})).await;
                }
            }
            What::PatchPods(count, body) => {
                for name in self.first_pods(count, |_| true) {
                    patch(client, &PODS.object("default", &name), body.clone()).await;
                }
            }
            What::EndPods(count, code) => {
                for name in self.first_pods(count, |pod| pod.status["phase"] == "Running") {
                    let status = json!({"status": kubelet::ended(&self.clock.now(), code, 0)});
                    patch_status(client, &PODS.subresource("default", &name, "status"), status).await;
                }
            }
        }
    }

    fn first_pods(&self, count: usize, matches: impl Fn(&Object) -> bool) -> Vec<String> {
        let pods = self.objects("pods/default/").into_iter().filter(matches);
        pods.take(count).map(|pod| pod.metadata.name).collect()
    }
}

fn objects(store: &ObjectStore, prefix: &str) -> Vec<Object> {
    let Ok(list) = store.list(&ListQuery::new(prefix)) else { return Vec::new() };
    list.entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value()).ok()).collect()
}

fn has_condition(job: &Object, kind: &str) -> bool {
    let conditions = job.status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == kind && one["status"] == "True")
}

/// A step that edits a Job.
pub fn edit(when: When, name: &'static str, patch: Value) -> Step {
    Step::new(when, What::Patch(JOBS, name, patch))
}
