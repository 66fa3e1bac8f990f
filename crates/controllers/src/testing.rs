//! What the crate's tests share: the real API server on an in-memory store, called in process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use apiserver::{ApiServer, Environment as ServerEnvironment, Options};
use batch_types::gates::Gates;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};

use crate::runtime::{
    ControllerContext, Environment, Metrics, Resource, Shutdown, Supervisor,
    requests::{self, DeleteOptions, Ignored, PatchType},
};

/// How long a condition may take to become true. Generous: it is only waited for by tests that fail.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

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

    async fn by(environment: ServerEnvironment, controllers: Environment) -> Self {
        let store = store::Store::open_in_memory(store::Options::default(), apiserver::storage::attributes()).unwrap();
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
