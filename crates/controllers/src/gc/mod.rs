//! The garbage collector: deletes what has lost its owners (PL-91…PL-98).
//!
//! Here everything is put together; `monitors` watch every kind and keep the graph, `judge` acts on single objects. The
//! graph itself and every decision are in `batch_plan::gc`.

mod judge;
mod monitors;
mod projection;

use std::{sync::Arc, time::Duration};

use batch_plan::gc::{Deletion, Graph, Step, Uid};
use parking_lot::Mutex;

use self::{
    judge::{GcError, Judge},
    monitors::Monitors,
};
use crate::runtime::{ControllerContext, EventType, ObjectRef, Recorder, RetryPolicy, Supervisor, WorkQueue};

/// Dependents are watched apart from their owners. One that was made just before its owner was deleted may be seen a
/// little after that, and must not be overlooked when the owner lets go of its dependents (INV-46).
const SETTLE: Duration = Duration::from_millis(100);

/// What can be chosen about the garbage collector.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--concurrent-gc-syncs`.
    pub workers: usize,
    /// How often to look for new kinds.
    pub discovery_period: Duration,
    /// How long the first fill of the graph may take before work begins without the kinds that are missing: one broken
    /// kind must not stop the rest (INV-40).
    pub sync_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { workers: 20, discovery_period: seconds(30), sync_timeout: seconds(30) }
    }
}

/// What the parts of the collector share.
#[derive(Clone)]
struct Shared {
    graph: Arc<Mutex<Graph>>,
    /// Objects to judge, by uid.
    judge: WorkQueue<Uid>,
    /// Owners whose dependents are to forget them, by uid.
    orphan: WorkQueue<Uid>,
    recorder: Recorder,
}

/// Runs the garbage collector until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    let retry = RetryPolicy::default();
    let shared = Shared {
        graph: Arc::default(),
        judge: WorkQueue::new("garbage_collector_attempt_to_delete", retry, &context.metrics),
        orphan: WorkQueue::new("garbage_collector_attempt_to_orphan", retry, &context.metrics),
        recorder: context.recorder.component("garbage-collector-controller"),
    };
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown.clone());
    let monitors = Monitors::new(context.clone(), shared.clone(), options.discovery_period);
    let kinds = monitors.kinds();
    let filled = monitors.filled();
    tasks.spawn("gc monitors", monitors.run());

    let judge = Arc::new(Judge::new(context.client.clone(), shared.clone(), kinds));
    let ready = async move {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => false,
            () = filled.wait() => true,
            () = tokio::time::sleep(options.sync_timeout) => true,
        }
    };
    // Nothing is judged before everything was seen once: an owner that has not been listed yet is no reason even to ask.
    if ready.await {
        for _ in 0..options.workers.max(1) {
            let worker = judge.clone();
            let act = move |uid: Uid| {
                let worker = worker.clone();
                async move { logged(&uid, worker.judge(&uid).await) }
            };
            tasks.spawn("gc worker", shared.judge.clone().work(context.shutdown.clone(), act));
            let worker = judge.clone();
            let act = move |uid: Uid| {
                let worker = worker.clone();
                async move { logged(&uid, worker.orphan(&uid).await) }
            };
            tasks.spawn("gc orphan worker", shared.orphan.clone().work(context.shutdown.clone(), act));
        }
    }
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "garbage collector");
    }
}

fn logged(uid: &Uid, outcome: Result<(), GcError>) -> Result<(), GcError> {
    if let Err(error) = &outcome {
        tracing::debug!(error = error as &dyn std::error::Error, uid = &**uid, "collect garbage");
    }
    outcome
}

impl Shared {
    /// Puts what follows from news on its way.
    fn take(&self, graph: &Graph, steps: Vec<Step>) {
        for step in steps {
            match step {
                // An owner that may go acts on what it knows of its dependents.
                Step::Judge(uid) if is_owner_going(graph, &uid) => self.judge.add_after(uid, SETTLE),
                Step::Judge(uid) => self.judge.add(uid),
                Step::Orphan(uid) => self.orphan.add_after(uid, SETTLE),
                Step::ReportInvalidNamespace { dependent, owner } => {
                    let Some(object) = graph.get(&dependent) else { continue };
                    let identity = format!(
                        "[{}/{}, namespace: {}, name: {}, uid: {}]",
                        owner.api_version, owner.kind, object.namespace, owner.name, owner.uid
                    );
                    let message = format!("ownerRef {identity} does not exist in namespace \"{}\"", object.namespace);
                    self.recorder.event(&object_ref(object), EventType::Warning, "OwnerRefInvalidNamespace", message);
                }
            }
        }
    }
}

fn is_owner_going(graph: &Graph, uid: &str) -> bool {
    graph.get(uid).is_some_and(|object| object.deletion == Deletion::Foreground)
}

fn object_ref(object: &batch_plan::gc::Object) -> ObjectRef {
    let kind = &object.kind;
    let api_version =
        if kind.group.is_empty() { kind.version.clone() } else { format!("{}/{}", kind.group, kind.version) };
    ObjectRef {
        api_version,
        kind: kind.kind.clone(),
        namespace: object.namespace.to_string(),
        name: object.name.to_string(),
        uid: object.uid.to_string(),
        resource_version: object.resource_version.to_string(),
    }
}

#[cfg(test)]
mod tests;
