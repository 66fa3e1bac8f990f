//! The pod garbage collector (PL-85…PL-90): every 20 seconds, over all pods.
//!
//! Decisions are in `batch_plan::podgc`; here are the watches, the questions to the server, and the deletions.

mod projection;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use batch_plan::podgc::{self, Collection, Missing, Node, Pod, QUARANTINE, Reason, TERMINATED_THRESHOLD};
use futures_util::{StreamExt, stream};
use kube::{Client, Error};
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, family::Family};
use serde_json::{Value, json};
use teeth::{Mutation, is};
use tokio::time::Instant;

use self::projection::{NodeView, PodView};
use crate::runtime::{
    Cache, Change, ControllerContext, Environment, Metrics, Progress, Reflector, Resource, Source, Supervisor,
    all_synced,
    intern::Interner,
    requests::{self, DeleteOptions, Ignored, METADATA_ONLY, PatchType, Preconditions},
};

/// Pods that are dealt with at the same time.
const CONCURRENCY: usize = 16;

/// A mirror of a resource that others can look at.
type Shared<T> = Arc<Mutex<Cache<T>>>;

/// What can be chosen about the pod garbage collector.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--terminated-pod-gc-threshold`; zero or less keeps ended pods for ever.
    pub terminated_threshold: i64,
    pub period: Duration,
    /// How long a node must be missing before its pods are given up.
    pub quarantine: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminated_threshold: TERMINATED_THRESHOLD, period: Duration::from_secs(20), quarantine: QUARANTINE }
    }
}

/// Runs the pod garbage collector until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown);
    let mut interner = Interner::default();
    let (pods, pods_mirrored) =
        mirror(&mut tasks, &context, "podgc pods", Resource::PODS, move |view: &mut PodView| view.share(&mut interner));
    let (nodes, nodes_mirrored) = mirror(&mut tasks, &context, "podgc nodes", Resource::NODES, |_: &mut NodeView| {});
    let collector = Collector {
        client: context.client.clone(),
        environment: context.environment.clone(),
        counts: Counts::new(&context.metrics),
        options,
        pods,
        nodes,
        missing: Missing::new(),
        started: Instant::now(),
    };
    tasks.spawn("podgc", async move {
        if all_synced(&[&pods_mirrored, &nodes_mirrored], &context.shutdown).await {
            collector.run(&context).await;
        }
    });
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "pod garbage collector");
    }
}

fn mirror<T: crate::runtime::Mirrored + Sync>(
    tasks: &mut Supervisor,
    context: &ControllerContext,
    name: &'static str,
    resource: Resource,
    mut prepare: impl FnMut(&mut T) + Send + 'static,
) -> (Shared<T>, Progress) {
    let cache: Shared<T> = Arc::default();
    let reflector = Reflector::new(context, Source::all(resource));
    let progress = reflector.progress();
    let noted = cache.clone();
    let handle = move |mut change| {
        if let Change::Applied(object) = &mut change {
            prepare(object);
        }
        noted.lock().apply(change);
    };
    tasks.spawn(name, reflector.run(context.shutdown.clone(), handle));
    (cache, progress)
}

struct Collector {
    client: Client,
    environment: Environment,
    counts: Counts,
    options: Options,
    pods: Shared<PodView>,
    nodes: Shared<NodeView>,
    missing: Missing,
    /// The zero of the clock that quarantines are measured with.
    started: Instant,
}

impl Collector {
    async fn run(mut self, context: &ControllerContext) {
        loop {
            tokio::select! {
                biased;
                () = context.shutdown.cancelled() => return,
                () = self.round() => {}
            }
            tokio::select! {
                biased;
                () = context.shutdown.cancelled() => return,
                () = tokio::time::sleep(self.options.period) => {}
            }
        }
    }

    async fn round(&mut self) {
        let views: Vec<Arc<PodView>> = self.pods.lock().iter().cloned().collect();
        let pods: Vec<&Pod> = views.iter().map(|view| &view.pod).collect();
        let nodes: HashMap<Arc<str>, Node> =
            self.nodes.lock().iter().map(|node| (node.name.clone(), node.node)).collect();
        let now = self.started.elapsed();
        let suspects = podgc::suspects(&pods, &nodes, &mut self.missing, now, self.options.quarantine);
        let gone = self.confirm(suspects).await;
        let plan = podgc::collect(&pods, &nodes, &gone, self.options.terminated_threshold);
        if !plan.is_empty() {
            tracing::info!(pods = plan.len(), "collect pods");
        }
        let collect = |one: Collection| self.collect(&views[one.index], one);
        stream::iter(plan).for_each_concurrent(CONCURRENCY, collect).await;
    }

    /// Which of the suspects the server does not know. One that cannot be asked about is left for the next round.
    async fn confirm(&self, suspects: Vec<Arc<str>>) -> HashSet<Arc<str>> {
        let mut gone = HashSet::new();
        for node in suspects {
            let path = Resource::NODES.object("", &node);
            match requests::get_as::<Ignored>(&self.client, &path, METADATA_ONLY).await {
                Ok(_) => {}
                Err(error) if requests::is_not_found(&error) => {
                    gone.insert(node);
                }
                Err(error) => tracing::warn!(%error, node = &*node, "look for a node"),
            }
        }
        gone
    }

    /// Errors are left for the next round (PL-90).
    async fn collect(&self, view: &PodView, one: Collection) {
        let labels = [("namespace", view.pod.namespace.to_string()), ("reason", one.reason.as_str().to_owned())];
        self.counts.deleted.get_or_create(&labels).inc();
        if let Err(error) = self.mark_and_delete(view, one).await {
            self.counts.errors.get_or_create(&labels).inc();
            tracing::warn!(%error, namespace = &*view.pod.namespace, pod = &*view.pod.name, "collect a pod");
        }
    }

    async fn mark_and_delete(&self, view: &PodView, one: Collection) -> Result<(), Error> {
        let (namespace, name) = (&*view.pod.namespace, &*view.pod.name);
        if one.mark_failed {
            let path = Resource::PODS.subresource(namespace, name, "status");
            let patch = failed(view, one.reason, &self.environment);
            let patched = requests::patch::<Ignored>(&self.client, &path, PatchType::Strategic, &patch).await;
            match patched {
                // Gone, which is what we want.
                Err(error) if requests::is_not_found(&error) => return Ok(()),
                other => other.map(|_| ())?,
            }
        }
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Preconditions::uid(&view.uid),
            ..DeleteOptions::default()
        };
        match requests::delete(&self.client, &Resource::PODS.object(namespace, name), &options).await {
            // Gone, or another pod has the name.
            Err(error) if requests::is_not_found(&error) || requests::is_conflict(&error) => Ok(()),
            other => other,
        }
    }
}

/// The status patch that ends a pod, guarded by its uid (PL-90) and its version: a pod that has ended since it was looked
/// at keeps its outcome (INV-41), which upstream's uid alone does not see to.
fn failed(view: &PodView, reason: Reason, environment: &Environment) -> Value {
    let mut status = json!({"phase": "Failed"});
    if view.generation > 0 {
        status["observedGeneration"] = json!(view.generation);
    }
    if reason == Reason::Orphaned {
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        });
        if view.generation > 0 {
            condition["observedGeneration"] = json!(view.generation);
        }
        // A condition that is true already keeps the time since when it is.
        if !view.disrupted {
            let now = environment.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            condition["lastTransitionTime"] = json!(now);
        }
        status["conditions"] = json!([condition]);
    }
    let version = if is(Mutation::H05) { "1" } else { &*view.resource_version };
    json!({"metadata": {"uid": view.uid, "resourceVersion": version}, "status": status})
}

type Labels = [(&'static str, String); 2];

struct Counts {
    deleted: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
}

impl Counts {
    fn new(metrics: &Metrics) -> Self {
        let deleted = metrics.register(
            "pod_gc_collector_force_delete_pods",
            "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            Family::default(),
        );
        let errors = metrics.register(
            "pod_gc_collector_force_delete_pod_errors",
            "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
            Family::default(),
        );
        Self { deleted, errors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod};

    const PODS: &Resource = &Resource::PODS;

    fn quick() -> Options {
        Options { period: Duration::from_millis(10), quarantine: Duration::from_millis(50), ..Options::default() }
    }

    async fn collecting(options: Options) -> World {
        let mut world = World::new().await;
        let context = world.context.clone();
        world.spawn("podgc", run(context, options));
        world
    }

    fn held(name: &str, node: Option<&str>) -> Value {
        let mut pod = pod(name);
        pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        pod
    }

    fn in_phase(phase: &str) -> impl Fn(Option<&Value>) -> bool {
        move |pod| pod.is_some_and(|pod| pod["status"]["phase"] == phase)
    }

    fn deleting(pod: Option<&Value>) -> bool {
        pod.is_some_and(|pod| pod["metadata"]["deletionGracePeriodSeconds"] == 0)
    }

    /// A Job's pod that was never scheduled must still end (PL-89, JC-2903).
    #[tokio::test]
    async fn an_unscheduled_pod_that_is_deleted_ends_failed() {
        let world = collecting(quick()).await;
        world.create(PODS, "default", held("a", None)).await;
        world.delete(PODS, "default", "a", "Background").await;
        let pod = world.wait(PODS, "default", "a", in_phase("Failed")).await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        assert!(conditions.iter().all(|condition| condition["type"] != "DisruptionTarget"), "{pod}");
        world.patch(PODS, "default", "a", json!({"metadata": {"finalizers": null}})).await;
        world.wait_gone(PODS, "default", "a").await;
    }

    #[tokio::test]
    async fn pods_of_a_node_that_is_gone_end_failed_and_disrupted() {
        let world = collecting(quick()).await;
        world.create(PODS, "default", held("running", Some("lost"))).await;
        world.create(PODS, "default", held("done", Some("lost"))).await;
        world.patch_status(PODS, "default", "done", json!({"status": {"phase": "Succeeded"}})).await;
        let pod = world.wait(PODS, "default", "running", in_phase("Failed")).await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
        assert_eq!(target["status"], "True");
        assert_eq!(target["reason"], "DeletionByPodGC");
        assert_eq!(target["message"], "PodGC: node no longer exists");
        assert!(target["lastTransitionTime"].is_string());
        world.wait(PODS, "default", "running", deleting).await;
        let done = world.wait(PODS, "default", "done", deleting).await.unwrap();
        assert_eq!(done["status"]["phase"], "Succeeded", "an outcome is kept (INV-41)");
    }

    #[tokio::test]
    async fn terminating_pods_of_a_node_out_of_service_end_failed() {
        let world = collecting(quick()).await;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "out"},
            "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
        });
        world.create(&Resource::NODES, "", node).await;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        world.patch_status(&Resource::NODES, "", "out", ready).await;
        world.create(PODS, "default", held("a", Some("out"))).await;
        world.create(PODS, "default", held("b", Some("out"))).await;
        world.delete(PODS, "default", "a", "Background").await;
        world.wait(PODS, "default", "a", in_phase("Failed")).await;
        assert!(in_phase("Pending")(world.get(PODS, "default", "b").await.as_ref()));
    }

    #[tokio::test]
    async fn the_oldest_ended_pods_beyond_the_threshold_go() {
        let world = collecting(Options { terminated_threshold: 1, ..quick() }).await;
        for name in ["a", "b"] {
            world.create(PODS, "default", pod(name)).await;
        }
        world.create(PODS, "default", pod("c")).await;
        for name in ["b", "a"] {
            world.patch_status(PODS, "default", name, json!({"status": {"phase": "Failed"}})).await;
        }
        // Both are of the same second, so their names decide.
        world.wait_gone(PODS, "default", "a").await;
        assert!(world.get(PODS, "default", "b").await.is_some());
        assert!(world.get(PODS, "default", "c").await.is_some());
    }

    #[test]
    fn a_condition_that_is_true_already_keeps_its_time() {
        let environment = Environment::new(|| jiff::Timestamp::UNIX_EPOCH, || 0);
        let view = |disrupted| -> PodView {
            let conditions =
                if disrupted { json!([{"type": "DisruptionTarget", "status": "True"}]) } else { json!([]) };
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 2,
                    "creationTimestamp": "2024-01-01T00:00:00Z"},
                "spec": {"nodeName": "n"},
                "status": {"phase": "Running", "conditions": conditions},
            }))
            .unwrap()
        };
        let condition = |disrupted| failed(&view(disrupted), Reason::Orphaned, &environment);
        let fresh = condition(false);
        assert_eq!(fresh["metadata"]["uid"], "u");
        assert_eq!(fresh["status"]["observedGeneration"], 2);
        assert_eq!(fresh["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(condition(true)["status"]["conditions"][0]["lastTransitionTime"].is_null());
        assert!(failed(&view(false), Reason::Unscheduled, &environment)["status"]["conditions"].is_null());
    }
}
