//! A stand-in for the kubelets: every pod starts, runs and ends as the scenario says, in virtual time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use apiserver::storage::ObjectStore;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Clock, PODS, delete, patch_status};

/// What a scenario may look at to decide how a pod behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    pub name: String,
    /// The Job that controls it; empty if there is none.
    pub job: String,
    pub index: Option<u32>,
    /// How many pods its Job had before.
    pub ordinal: usize,
    /// How many pods its index had before.
    pub attempt: usize,
}

/// How a pod behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// Until it runs; never, if absent.
    pub start_ms: Option<u64>,
    /// From then until it ends; never, if absent.
    pub run_ms: Option<u64>,
    pub exit_code: i32,
    /// How long it takes to stop once it is deleted, and with which code it ends then.
    pub stop_ms: u64,
    pub stop_code: i32,
    /// How often its container fails and is restarted in place before it ends, each time after `run_ms`.
    pub restarts: u32,
    pub reports: Reports,
}

/// How a node tells of a pod (P-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reports {
    /// As a kubelet does.
    Whole,
    /// Nothing but the phase.
    Bare,
    /// The end has a code and no times.
    Timeless,
    /// Half-way it is pending again, and its container waits.
    Wavering,
}

impl Behaviour {
    /// Starts soon, ends with this code after this time.
    pub const fn ends(exit_code: i32, run_ms: u64) -> Self {
        Self {
            start_ms: Some(200),
            run_ms: Some(run_ms),
            exit_code,
            stop_ms: 400,
            stop_code: 143,
            restarts: 0,
            reports: Reports::Whole,
        }
    }

    /// Runs until it is deleted.
    pub const fn runs() -> Self {
        Self { run_ms: None, ..Self::ends(0, 0) }
    }

    /// Never starts.
    pub const fn pends() -> Self {
        Self { start_ms: None, ..Self::runs() }
    }
}

/// The rule by which pods behave.
pub type Behaviours = fn(&PodFacts) -> Behaviour;

pub(super) struct Kubelet {
    client: Client,
    clock: Clock,
    behaviours: Behaviours,
    pods: HashMap<String, Known>,
    /// Pods that each Job, and each index of it, has had.
    had: HashMap<(String, Option<u32>), usize>,
    todo: BTreeMap<(Instant, u64), (String, Todo)>,
    sequence: u64,
    /// How much there is to do, for the world to know whether it is at rest.
    pending: Arc<AtomicUsize>,
}

struct Known {
    name: String,
    behaviour: Behaviour,
    ended: bool,
    deleting: bool,
    restarts: u32,
}

#[derive(Debug, Clone, Copy)]
enum Todo {
    Start,
    Waver,
    End,
    Stop,
}

impl Kubelet {
    pub(super) fn new(client: Client, clock: Clock, behaviours: Behaviours, pending: Arc<AtomicUsize>) -> Self {
        let (pods, had, todo) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Self { client, clock, behaviours, pods, had, todo, sequence: 0, pending }
    }

    /// Runs for as long as the world.
    pub(super) async fn run(mut self, store: ObjectStore) {
        let Ok(mut watch) = store.watch("pods/", 0) else { return };
        loop {
            self.pending.store(self.todo.len(), Ordering::Relaxed);
            let due = self.todo.first_key_value().map(|((due, _), _)| *due);
            tokio::select! {
                biased;
                events = watch.next_batch(usize::MAX) => {
                    let Ok(events) = events else { return };
                    for event in events {
                        let Ok(pod) = serde_json::from_slice::<Pod>(&event.entry.value()) else { continue };
                        match event.kind {
                            store::EventKind::Put => self.applied(&pod),
                            store::EventKind::Delete => self.gone(&pod.metadata.uid),
                        }
                    }
                }
                () = sleep_until(due) => self.work().await,
            }
        }
    }

    fn applied(&mut self, pod: &Pod) {
        let uid = &pod.metadata.uid;
        if !self.pods.contains_key(uid) {
            self.appeared(pod);
        }
        let Some(known) = self.pods.get_mut(uid) else { return };
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            known.ended = true;
        }
        if pod.metadata.deletion_timestamp.is_some() && !std::mem::replace(&mut known.deleting, true) {
            let wait = if known.ended { 0 } else { known.behaviour.stop_ms };
            self.later(uid.clone(), Todo::Stop, wait);
        }
    }

    fn appeared(&mut self, pod: &Pod) {
        let metadata = &pod.metadata;
        let job = metadata.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.name.clone());
        let owner = metadata.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.uid.clone());
        let index = metadata.annotations.get("batch.kubernetes.io/job-completion-index");
        let index = index.and_then(|index| index.parse().ok());
        let owner = owner.unwrap_or_default();
        let mut count = |index| {
            let had = self.had.entry((owner.clone(), index)).or_default();
            *had += 1;
            *had - 1
        };
        let ordinal = count(None);
        let attempt = if index.is_some() { count(index) } else { ordinal };
        let facts = PodFacts { name: metadata.name.clone(), job: job.unwrap_or_default(), index, ordinal, attempt };
        let behaviour = (self.behaviours)(&facts);
        let known = Known { name: facts.name, behaviour, ended: false, deleting: false, restarts: 0 };
        self.pods.insert(metadata.uid.clone(), known);
        if let Some(start_ms) = behaviour.start_ms {
            self.later(metadata.uid.clone(), Todo::Start, start_ms);
        }
    }

    fn gone(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.todo.retain(|_, (of, _)| of != uid);
    }

    fn later(&mut self, uid: String, todo: Todo, wait_ms: u64) {
        self.sequence += 1;
        self.todo.insert((Instant::now() + Duration::from_millis(wait_ms), self.sequence), (uid, todo));
    }

    async fn work(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.todo.first_entry().filter(|first| first.key().0 <= now) {
            let (uid, todo) = first.remove();
            self.act(&uid, todo).await;
        }
    }

    async fn act(&mut self, uid: &str, todo: Todo) {
        let Some(known) = self.pods.get_mut(uid) else { return };
        let (name, behaviour) = (known.name.clone(), known.behaviour);
        match todo {
            Todo::Start if !known.ended && !known.deleting => {
                let restarts = known.restarts;
                self.report(uid, &name, running(&self.clock.now().to_string(), restarts)).await;
                if let Some(run_ms) = behaviour.run_ms {
                    if behaviour.reports == Reports::Wavering {
                        self.later(uid.to_owned(), Todo::Waver, run_ms / 2);
                    }
                    self.later(uid.to_owned(), Todo::End, run_ms);
                }
            }
            Todo::Waver if !known.ended && !known.deleting => self.report(uid, &name, waiting()).await,
            Todo::End if !known.ended && known.restarts < behaviour.restarts => {
                known.restarts += 1;
                let restarts = known.restarts;
                self.report(uid, &name, running(&self.clock.now().to_string(), restarts)).await;
                self.later(uid.to_owned(), Todo::End, behaviour.run_ms.unwrap_or(0));
            }
            Todo::End if !known.ended => {
                known.ended = true;
                let restarts = known.restarts;
                self.report(uid, &name, ended(&self.clock.now(), behaviour.exit_code, restarts)).await;
            }
            Todo::Stop => {
                let restarts = known.restarts;
                if !std::mem::replace(&mut known.ended, true) {
                    self.report(uid, &name, ended(&self.clock.now(), behaviour.stop_code, restarts)).await;
                }
                delete(
                    &self.client,
                    &PODS.object("default", &name),
                    json!({"gracePeriodSeconds": 0,
                    "preconditions": {"uid": uid}}),
                )
                .await;
            }
            Todo::Start | Todo::Waver | Todo::End => {}
        }
    }

    /// The pod may be gone, or another may have its name; neither is the kubelet's concern.
    async fn report(&self, uid: &str, name: &str, mut status: Value) {
        let reports = self.pods.get(uid).map_or(Reports::Whole, |known| known.behaviour.reports);
        match reports {
            Reports::Bare => status = json!({"phase": status["phase"]}),
            Reports::Timeless => {
                if let Some(end) = status.pointer_mut("/containerStatuses/0/state/terminated") {
                    *end = json!({"exitCode": end["exitCode"]});
                }
            }
            Reports::Whole | Reports::Wavering => {}
        }
        let patch = json!({"metadata": {"uid": uid}, "status": status});
        patch_status(&self.client, &PODS.subresource("default", name, "status"), patch).await;
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn running(at: &str, restarts: u32) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": seconds(at)});
    json!({"phase": "Running", "conditions": [ready], "containerStatuses": [{"name": "main", "image": "busybox",
        "imageID": "", "ready": true, "restartCount": restarts, "state": {"running": {"startedAt": seconds(at)}}}]})
}

fn waiting() -> Value {
    json!({"phase": "Pending", "conditions": [], "containerStatuses": [{"name": "main", "image": "busybox", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]})
}

/// How the kubelet reports the end of a pod. Code 0 is success.
pub(super) fn ended(at: &jiff::Timestamp, exit_code: i32, restarts: u32) -> Value {
    let at = seconds(&at.to_string());
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": at});
    json!({"phase": phase, "conditions": [ready], "containerStatuses": [{"name": "main", "image": "busybox",
        "imageID": "", "ready": false, "restartCount": restarts,
        "state": {"terminated": {"exitCode": exit_code, "startedAt": at, "finishedAt": at}}}]})
}

/// A time without its fraction.
fn seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => time.to_owned(),
    }
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    #[serde(default)]
    annotations: HashMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    phase: String,
}
