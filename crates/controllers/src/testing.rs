//! What the crate's tests share: the real API server on an in-memory store, called in process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver::{ApiServer, Environment as ServerEnvironment, Options};
use batch_types::gates::Gates;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::runtime::{
    ControllerContext, Environment, Metrics, Resource, Shutdown, Supervisor,
    requests::{self, DeleteOptions, Ignored, PatchType},
};

/// How long a condition may take to become true. Generous: it is only waited for by tests that fail.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// When every world in virtual time begins: a Monday, on a full hour.
const BEGINNING: Timestamp = Timestamp::constant(1_767_607_200, 0);

/// A server, a client for it and a context for controllers. Everything ends when it is dropped.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) context: ControllerContext,
    tasks: Supervisor,
}

/// A wall clock that runs and can be set. Cheap to clone; all clones are one clock.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    /// Nanoseconds that it is ahead of the system's.
    ahead: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }

    pub(crate) fn set(&self, text: &str) {
        let ahead = text.parse::<Timestamp>().unwrap().duration_since(Timestamp::now());
        self.ahead.store(i64::try_from(ahead.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::by(ServerEnvironment::system(), Environment::system()).await
    }

    /// A world in which server and controllers go by a clock that the test sets.
    pub(crate) async fn at(clock: &Clock) -> Self {
        let (server, controllers) = (clock.clone(), clock.clone());
        let random = || uuid::Uuid::new_v4().as_u128();
        let environment = Environment::new(move || controllers.now(), move || random() as u64);
        Self::by(ServerEnvironment::new(move || server.now(), random), environment).await
    }

    /// A world in one thread and virtual time, for a runtime whose clock is paused: the store commits on the caller's task
    /// and the wall clock goes with tokio's. The same seed makes the same calls at the same moments.
    pub(crate) async fn paused(seed: u64) -> Self {
        let (started, drawn) = (Instant::now(), Arc::new(AtomicU64::new(seed)));
        let now = move || BEGINNING + SignedDuration::try_from(started.elapsed()).unwrap();
        // splitmix64
        let random = move || {
            const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
            let mut bits = drawn.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ (bits >> 31)
        };
        let options = store::Options {
            writing: store::Writing::Inline,
            clock: store::Clock::new(move || started.elapsed()),
            ..store::Options::default()
        };
        let wide = random.clone();
        let server = ServerEnvironment::new(now, move || u128::from(wide()) << 64 | u128::from(wide()));
        Self::on(options, server, Environment::new(now, random)).await
    }

    async fn by(environment: ServerEnvironment, controllers: Environment) -> Self {
        Self::on(store::Options::default(), environment, controllers).await
    }

    async fn on(stored: store::Options, environment: ServerEnvironment, controllers: Environment) -> Self {
        let store = store::Store::open_in_memory(stored, apiserver::storage::attributes()).unwrap();
        let options = Options { admin_token: None, gates: Gates::DEFAULT, environment };
        let server = ApiServer::new(store, options).await.unwrap();
        let client = server.client();
        let shutdown = Shutdown::new();
        let (context, sender) = ControllerContext::new(client.clone(), Metrics::new(), controllers, shutdown.clone());
        let mut tasks = Supervisor::new(shutdown.clone());
        tasks.spawn("events", sender.run(shutdown));
        Self { server, client, context, tasks }
    }

    /// Runs a controller for as long as this world lives.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, task);
    }

    pub(crate) async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Value {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        requests::create(&self.client, &resource.collection(namespace), &object).await.unwrap()
    }

    pub(crate) async fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        match requests::get(&self.client, &resource.object(namespace, name)).await {
            Ok(object) => Some(object),
            Err(error) if requests::is_not_found(&error) => None,
            Err(error) => panic!("get {resource} {namespace}/{name}: {error}"),
        }
    }

    pub(crate) async fn delete(&self, resource: &Resource, namespace: &str, name: &str, policy: &'static str) {
        let options = DeleteOptions { propagation_policy: Some(policy), ..DeleteOptions::default() };
        requests::delete(&self.client, &resource.object(namespace, name), &options).await.unwrap();
    }

    pub(crate) async fn patch(&self, resource: &Resource, namespace: &str, name: &str, patch: Value) {
        let path = resource.object(namespace, name);
        requests::patch::<Ignored>(&self.client, &path, PatchType::Merge, &patch).await.unwrap();
    }

    pub(crate) async fn patch_status(&self, resource: &Resource, namespace: &str, name: &str, patch: Value) {
        let path = resource.subresource(namespace, name, "status");
        requests::patch::<Ignored>(&self.client, &path, PatchType::Merge, &patch).await.unwrap();
    }

    pub(crate) async fn list(&self, resource: &Resource) -> Vec<Value> {
        let list: Value = requests::get(&self.client, &resource.collection(None)).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until an object satisfies a condition; `None` stands for its absence.
    pub(crate) async fn wait(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        condition: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let mut last = None;
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.get(resource, namespace, name).await;
                if condition(last.as_ref()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert!(found.is_ok(), "{resource} {namespace}/{name} never became as expected: {last:#?}");
        last
    }

    pub(crate) async fn wait_gone(&self, resource: &Resource, namespace: &str, name: &str) {
        self.wait(resource, namespace, name, |object| object.is_none()).await;
    }

    /// Waits until an event with this reason has been recorded.
    pub(crate) async fn wait_event(&self, reason: &str) -> Value {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let events = self.list(&Resource::EVENTS).await;
                if let Some(event) = events.into_iter().find(|event| event["reason"] == reason) {
                    return event;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        found.unwrap_or_else(|_| panic!("no event {reason}"))
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.create(&Resource::NAMESPACES, "", json!({"metadata": {"name": name}})).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.context.shutdown.cancel();
        self.server.stop();
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    })
}

/// `object` owned by `owner`, as controllers write it.
pub(crate) fn owned(mut object: Value, owner: &Value, blocking: bool) -> Value {
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": blocking, "blockOwnerDeletion": blocking,
    });
    match object["metadata"]["ownerReferences"].as_array_mut() {
        Some(references) => references.push(reference),
        None => object["metadata"]["ownerReferences"] = json!([reference]),
    }
    object
}
