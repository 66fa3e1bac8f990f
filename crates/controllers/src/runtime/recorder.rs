//! Events about objects, as client-go's recorder sends them: core/v1, best effort.
//!
//! Recording never waits and never fails: what is worth sending is decided at once (`correlator`), and what does not fit
//! into the queue is dropped and counted.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures_util::future;
use jiff::Timestamp;
use kube::{Client, Error};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    backoff::Backoff,
    correlator::{Correlator, Happening, Outgoing},
    environment::Environment,
    metrics::Metrics,
    requests::{self, Ignored, PatchType},
    resource::Resource,
    supervise::Shutdown,
};

pub use super::correlator::{EventType, MESSAGE_BYTES_MAX, ObjectRef};

/// Events that wait for the server, as in client-go.
const QUEUE_MAX: usize = 1000;
/// How long an event waits for others, to be sent side by side with them: the server then has one sync for all, and what
/// the events are about is not held up by them.
const GATHER: Duration = Duration::from_millis(50);
/// Most events that are sent together.
const TOGETHER_MAX: usize = 64;
/// How often an event is tried while the server cannot be reached: about 16 seconds with the default back-off.
const ATTEMPTS_MAX: u32 = 34;
/// At shutdown, events that still wait get this long.
const FLUSH: Duration = Duration::from_secs(1);

/// Records events under the name of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    shared: Arc<Shared>,
}

struct Shared {
    correlator: Mutex<Correlator>,
    queue: mpsc::Sender<Outgoing>,
    environment: Environment,
    dropped: Counter,
}

/// The half of a recorder that talks to the server.
pub struct EventSender {
    client: Client,
    queue: mpsc::Receiver<Outgoing>,
    environment: Environment,
    dropped: Counter,
}

/// A recorder and its sender, whose `run` somebody must spawn.
pub fn channel(client: Client, metrics: &Metrics, environment: Environment) -> (Recorder, EventSender) {
    let dropped: Counter = metrics.register(
        "tally_events_dropped",
        "Events that were not sent because too many waited or the server could not be reached.",
        Counter::default(),
    );
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let shared = Shared {
        correlator: Mutex::new(Correlator::new()),
        queue: sender,
        environment: environment.clone(),
        dropped: dropped.clone(),
    };
    let recorder = Recorder { component: "tally".into(), shared: Arc::new(shared) };
    (recorder, EventSender { client, queue: receiver, environment, dropped })
}

impl Recorder {
    /// The same recorder under another component's name, such as `job-controller`.
    pub fn component(&self, name: &str) -> Self {
        Self { component: name.into(), shared: self.shared.clone() }
    }

    /// Records that something happened to an object.
    pub fn event(&self, object: &ObjectRef, kind: EventType, reason: &str, message: impl Into<String>) {
        let happening = Happening {
            component: self.component.clone(),
            object: object.clone(),
            kind,
            reason: reason.to_owned(),
            message: message.into(),
        };
        let now = self.shared.environment.now();
        let outgoing = self.shared.correlator.lock().correlate(happening, now);
        if let Some(outgoing) = outgoing
            && self.shared.queue.try_send(outgoing).is_err()
        {
            self.shared.dropped.inc();
        }
    }
}

impl EventSender {
    /// Sends events until shutdown, and then what is left of them for a moment.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut batch = Vec::new();
        loop {
            let gathered = tokio::select! {
                biased;
                () = shutdown.cancelled() => false,
                gathered = gather(&mut self.queue, &mut batch) => gathered,
            };
            // With no recorder left nothing can come any more, but only shutdown ends the task.
            if !gathered {
                break;
            }
            self.send_all(&batch, &shutdown).await;
            batch.clear();
        }
        shutdown.cancelled().await;
        let rest = async {
            for outgoing in &batch {
                self.attempt(outgoing).await.ok();
            }
            while let Ok(outgoing) = self.queue.try_recv() {
                self.attempt(&outgoing).await.ok();
            }
        };
        if tokio::time::timeout(FLUSH, rest).await.is_err() {
            tracing::debug!("events were left unsent at shutdown");
        }
    }

    /// Sends events side by side; those that repeat one another in their order.
    async fn send_all(&self, batch: &[Outgoing], shutdown: &Shutdown) {
        let mut by_name: BTreeMap<&str, Vec<&Outgoing>> = BTreeMap::new();
        for outgoing in batch {
            by_name.entry(&outgoing.name).or_default().push(outgoing);
        }
        let sequences = by_name.into_values().map(|sequence| async move {
            for outgoing in sequence {
                self.send(outgoing, shutdown).await;
            }
        });
        future::join_all(sequences).await;
    }

    /// Sends one event, again and again while the server cannot be reached.
    async fn send(&self, outgoing: &Outgoing, shutdown: &Shutdown) {
        let mut backoff = Backoff::default();
        for _ in 0..ATTEMPTS_MAX {
            let Err(error) = self.attempt(outgoing).await else { return };
            if !is_temporary(&error) {
                // A namespace that goes away refuses events, and equal names mean that the event is there.
                if !requests::is_namespace_terminating(&error) && !requests::is_already_exists(&error) {
                    tracing::warn!(%error, reason = outgoing.happening.reason, "the server rejected an event");
                }
                return;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(backoff.next(&self.environment)) => {}
            }
        }
        self.dropped.inc();
    }

    async fn attempt(&self, outgoing: &Outgoing) -> Result<(), Error> {
        let namespace = namespace_of(outgoing);
        if outgoing.count > 1 {
            let path = Resource::EVENTS.object(namespace, &outgoing.name);
            let patched = requests::patch::<Ignored>(&self.client, &path, PatchType::Strategic, &patch(outgoing)).await;
            match patched {
                // The first one has expired: tell it anew.
                Err(error) if requests::is_not_found(&error) => {}
                other => return other.map(|_| ()),
            }
        }
        let path = Resource::EVENTS.collection(Some(namespace));
        requests::create::<Ignored>(&self.client, &path, &event(outgoing)).await.map(|_| ())
    }
}

/// Waits for an event and, for a moment, for others. `false` if none can come any more.
async fn gather(queue: &mut mpsc::Receiver<Outgoing>, batch: &mut Vec<Outgoing>) -> bool {
    let Some(first) = queue.recv().await else { return false };
    batch.push(first);
    if queue.len() < TOGETHER_MAX {
        tokio::time::sleep(GATHER).await;
    }
    while batch.len() < TOGETHER_MAX
        && let Ok(next) = queue.try_recv()
    {
        batch.push(next);
    }
    true
}

/// Whether the same request can succeed later.
fn is_temporary(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code == 429 || status.code >= 500,
        Error::SerdeError(_) | Error::HttpError(_) => false,
        _ => true,
    }
}

/// Events about objects of the cluster live in `default`.
fn namespace_of(outgoing: &Outgoing) -> &str {
    match outgoing.happening.object.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

fn event(outgoing: &Outgoing) -> Value {
    let Outgoing { happening, name, count, first, last } = outgoing;
    let object = &happening.object;
    let fields = [
        ("kind", &object.kind),
        ("namespace", &object.namespace),
        ("name", &object.name),
        ("uid", &object.uid),
        ("apiVersion", &object.api_version),
        ("resourceVersion", &object.resource_version),
    ];
    let involved: serde_json::Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    json!({
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace_of(outgoing)},
        "involvedObject": involved,
        "reason": happening.reason,
        "message": happening.message,
        "source": {"component": &*happening.component},
        "firstTimestamp": seconds(*first),
        "lastTimestamp": seconds(*last),
        "count": count,
        "type": happening.kind.as_str(),
        "eventTime": null,
        "reportingComponent": &*happening.component,
        "reportingInstance": "",
    })
}

fn patch(outgoing: &Outgoing) -> Value {
    json!({
        "count": outgoing.count,
        "lastTimestamp": seconds(outgoing.last),
        "message": outgoing.happening.message,
    })
}

/// `metav1.Time`: whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("component", &self.component).finish_non_exhaustive()
    }
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSender")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    fn job() -> ObjectRef {
        ObjectRef {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            namespace: "default".to_owned(),
            name: "pi".to_owned(),
            uid: "u1".to_owned(),
            resource_version: "7".to_owned(),
        }
    }

    #[tokio::test]
    async fn events_look_like_client_gos_and_repeats_are_counted() {
        let world = World::new().await;
        let recorder = world.context.recorder.component("job-controller");
        recorder.event(&job(), EventType::Normal, "SuccessfulCreate", "Created pod: pi-x");
        let event = world.wait_event("SuccessfulCreate").await;
        assert_eq!(event["message"], "Created pod: pi-x");
        assert_eq!(event["source"], json!({"component": "job-controller"}));
        assert_eq!(event["reportingComponent"], "job-controller");
        assert_eq!(event["involvedObject"]["uid"], "u1");
        assert_eq!(event["count"], 1);
        assert!(event["metadata"]["name"].as_str().unwrap().starts_with("pi."));

        recorder.event(&job(), EventType::Normal, "SuccessfulCreate", "Created pod: pi-x");
        let name = event["metadata"]["name"].as_str().unwrap().to_owned();
        let counted = |event: Option<&Value>| event.is_some_and(|event| event["count"] == 2);
        world.wait(&Resource::EVENTS, "default", &name, counted).await;

        // An event that has expired is told anew, with its count.
        world.delete(&Resource::EVENTS, "default", &name, "Background").await;
        recorder.event(&job(), EventType::Normal, "SuccessfulCreate", "Created pod: pi-x");
        let counted = |event: Option<&Value>| event.is_some_and(|event| event["count"] == 3);
        world.wait(&Resource::EVENTS, "default", &name, counted).await;
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_instead_of_waiting() {
        let world = World::new().await;
        let metrics = Metrics::new();
        let (recorder, sender) = channel(world.client.clone(), &metrics, Environment::system());
        for n in 0..QUEUE_MAX + 5 {
            let object = ObjectRef { uid: n.to_string(), ..job() };
            recorder.event(&object, EventType::Warning, "R", "m");
        }
        assert_eq!(sender.dropped.get(), 5);
    }
}
