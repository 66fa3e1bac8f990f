//! The scheduler (PL-103 to PL-107): gives pods without a node one that has room for them.
//!
//! Placement is decided in `placement`, without clock or IO; here are the watches, the bindings, and the words for those
//! who wait. Not here: preemption, pod affinity, topology spread, host ports, volumes that bind to nodes.

mod class;
mod node;
mod placement;
mod projection;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::{Notify, Semaphore},
    time::sleep,
};

use self::{
    placement::{Complaint, Placed, Placement},
    projection::{NodeView, PodView},
};
use crate::runtime::{
    Change, ControllerContext, EventType, ObjectRef, Recorder, Reflector, Resource, Source, Supervisor, all_synced,
    intern::Interner,
    limiter::TokenBucket,
    requests::{self, Ignored, PatchType},
};

/// Bindings under way at the same time.
const BINDINGS_MAX: usize = 64;
/// Decisions that are taken in one go, so that news is heard in between.
const BATCH: usize = 256;
/// A pod whose binding failed waits this long.
const RETRY: Duration = Duration::from_secs(1);
/// Pods that wait are told why, at most this many a second: thousands may wait for the same reason.
const COMPLAINTS_PER_SECOND: f64 = 50.0;
const COMPLAINTS_BURST: u32 = 100;
/// So few at a time that those who found their place meanwhile are not told otherwise.
const COMPLAINTS_BATCH: usize = 16;
/// Events about pods that found their place, as many as a kubelet would send.
const EVENTS_PER_SECOND: f64 = 50.0;
const EVENTS_BURST: u32 = 100;
/// A pod that is placed at once needs no complaint.
const COMPLAINT_DELAY: Duration = Duration::from_millis(200);

/// What can be chosen about the scheduler.
#[derive(Debug, Clone)]
pub struct Options {
    /// Pods with this `schedulerName` are placed.
    pub name: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { name: "default-scheduler".to_owned() }
    }
}

/// What the watches and the scheduler share.
#[derive(Default)]
struct Shared {
    placement: Mutex<Placement>,
    /// Something happened that may let a pod be placed.
    news: Notify,
    /// Somebody waits and should be told why.
    waiting: Notify,
}

/// Runs the scheduler until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown.clone());
    let shared = Arc::new(Shared::default());

    let mut source = Source::all(Resource::PODS);
    // Pods that have ended take no room: for this watch they are gone.
    "status.phase!=Succeeded,status.phase!=Failed".clone_into(&mut source.field_selector);
    let pods = Reflector::new(&context, source);
    let pods_mirrored = pods.progress();
    let (own, name) = (shared.clone(), options.name.clone());
    let mut interner = Interner::default();
    let handle = move |mut change: Change<PodView>| {
        if let Change::Applied(view) = &mut change {
            view.share(&mut interner);
        }
        own.pod_changed(change, &name);
    };
    tasks.spawn("scheduler pods", pods.run(shutdown.clone(), handle));

    let nodes = Reflector::new(&context, Source::all(Resource::NODES));
    let nodes_mirrored = nodes.progress();
    let own = shared.clone();
    let mut names = HashMap::new();
    tasks.spawn("scheduler nodes", nodes.run(shutdown.clone(), move |change| own.node_changed(change, &mut names)));

    let scheduler = Scheduler {
        client: context.client.clone(),
        recorder: context.recorder.component(&options.name),
        shared,
        bindings: Arc::new(Semaphore::new(BINDINGS_MAX)),
        events: Arc::new(TokenBucket::new(EVENTS_PER_SECOND, EVENTS_BURST)),
        now: context.environment.clone(),
    };
    tasks.spawn("scheduler", async move {
        if all_synced(&[&pods_mirrored, &nodes_mirrored], &shutdown).await {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = scheduler.place_all() => {}
                () = scheduler.complain() => {}
            }
        }
    });
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "scheduler");
    }
}

impl Shared {
    fn pod_changed(&self, change: Change<PodView>, scheduler_name: &str) {
        let mut placement = self.placement.lock();
        match change {
            Change::Applied(view) => {
                let mut facts = view.facts;
                facts.is_ours &= view.scheduler_name == scheduler_name;
                placement.apply_pod(facts);
            }
            Change::Deleted(view) => placement.remove_pod(&view.facts.uid),
            Change::Vanished { uid } => placement.remove_pod(&uid),
            Change::Synced => {}
        }
        if placement.has_work() {
            self.news.notify_one();
        }
        if placement.has_complaints() {
            self.waiting.notify_one();
        }
    }

    fn node_changed(&self, change: Change<NodeView>, names: &mut HashMap<Box<str>, String>) {
        use crate::runtime::Mirrored as _;
        let mut placement = self.placement.lock();
        match change {
            Change::Applied(view) => {
                names.insert(view.uid().into(), view.offer.name.clone());
                placement.apply_node(view.offer);
            }
            Change::Deleted(view) => {
                names.remove(view.uid());
                placement.remove_node(&view.offer.name);
            }
            Change::Vanished { uid } => {
                if let Some(name) = names.remove(&uid) {
                    placement.remove_node(&name);
                }
            }
            Change::Synced => {}
        }
        self.news.notify_one();
    }
}

struct Scheduler {
    client: Client,
    recorder: Recorder,
    shared: Arc<Shared>,
    bindings: Arc<Semaphore>,
    events: Arc<TokenBucket>,
    now: crate::runtime::Environment,
}

impl Scheduler {
    async fn place_all(&self) {
        loop {
            let (batch, has_complaints) = {
                let mut placement = self.shared.placement.lock();
                (placement.place(BATCH), placement.has_complaints())
            };
            if has_complaints {
                self.shared.waiting.notify_one();
            }
            if batch.is_empty() {
                self.shared.news.notified().await;
                continue;
            }
            for placed in batch {
                let Ok(permit) = self.bindings.clone().acquire_owned().await else { return };
                let (client, recorder) = (self.client.clone(), self.recorder.clone());
                let (shared, events, now) = (self.shared.clone(), self.events.clone(), self.now.clone());
                tokio::spawn(async move {
                    let outcome = bind(&client, &placed).await;
                    drop(permit);
                    bound(&shared, &recorder, &events, &placed, outcome, &now).await;
                });
            }
        }
    }

    /// Tells pods why they wait.
    async fn complain(&self) {
        let bucket = TokenBucket::new(COMPLAINTS_PER_SECOND, COMPLAINTS_BURST);
        loop {
            self.shared.waiting.notified().await;
            sleep(COMPLAINT_DELAY).await;
            loop {
                let batch = self.shared.placement.lock().complaints(COMPLAINTS_BATCH);
                if batch.is_empty() {
                    break;
                }
                for complaint in batch {
                    bucket.take().await;
                    self.tell(&complaint).await;
                }
            }
        }
    }

    async fn tell(&self, complaint: &Complaint) {
        let Complaint { pod, message } = complaint;
        let path = Resource::PODS.subresource(&pod.namespace, &pod.name, "status");
        let now = self.now.now();
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": &**message,
            "lastProbeTime": null,
            "lastTransitionTime": Timestamp::from_second(now.as_second()).unwrap_or(now).to_string(),
        });
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": {"conditions": [condition]}});
        let told = requests::patch::<Ignored>(&self.client, &path, PatchType::Strategic, &patch).await;
        if let Err(error) = told {
            // It may have gone or found its place meanwhile.
            tracing::debug!(%error, pod = %pod.name, "tell a pod why it waits");
            return;
        }
        let object = reference(&pod.namespace, &pod.name, &pod.uid);
        self.recorder.event(&object, EventType::Warning, "FailedScheduling", message.to_string());
    }
}

async fn bind(client: &Client, placed: &Placed) -> Result<(), kube::Error> {
    let Placed { pod, node } = placed;
    let path = Resource::PODS.subresource(&pod.namespace, &pod.name, "binding");
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": &*pod.name, "namespace": &*pod.namespace, "uid": &*pod.uid},
        "target": {"kind": "Node", "name": &**node},
    });
    requests::create_json(client, &path, binding.to_string()).await
}

async fn bound(
    shared: &Shared,
    recorder: &Recorder,
    events: &TokenBucket,
    placed: &Placed,
    outcome: Result<(), kube::Error>,
    now: &crate::runtime::Environment,
) {
    let Placed { pod, node } = placed;
    match outcome {
        Ok(()) => {
            if events.try_take() {
                let object = reference(&pod.namespace, &pod.name, &pod.uid);
                let message = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
                recorder.event(&object, EventType::Normal, "Scheduled", message);
            }
        }
        Err(error) if requests::is_not_found(&error) => shared.placement.lock().remove_pod(&pod.uid),
        Err(error) => {
            tracing::debug!(%error, pod = %pod.name, %node, "bind a pod");
            sleep(RETRY).await;
            shared.placement.lock().unplace(&pod.uid, now.now());
            shared.news.notify_one();
        }
    }
}

fn reference(namespace: &str, name: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
        ..ObjectRef::default()
    }
}
