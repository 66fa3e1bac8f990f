//! The namespace controller: empties namespaces that are being deleted, and furnishes new ones (PL-99…PL-102).
//!
//! `content` deletes what is in a namespace, `conditions` says how far it has come. What is created in every namespace
//! is an option, because on a cluster other controllers do that.

mod conditions;
mod content;
mod furnish;

use std::{collections::HashMap, sync::Arc, time::Duration};

use batch_types::constants::finalizer;
use kube::{Client, Error};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::runtime::{
    Change, ControllerContext, Environment, Mirrored, Reflector, Resource, RetryPolicy, Source, Supervisor, WorkQueue,
    all_synced, requests, retry_on_recovery,
};

pub use self::furnish::Furnishing;

/// What can be chosen about the namespace controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--concurrent-namespace-syncs`.
    pub workers: usize,
    /// How long after its deletion a namespace is emptied, so that writers that had not heard of it are done.
    pub grace: Duration,
    /// What is put into every namespace.
    pub furnishing: Furnishing,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 10, grace: Duration::from_secs(5), furnishing: Furnishing::default() }
    }
}

/// Runs the namespace controller until shutdown.
pub async fn run(context: ControllerContext, options: Options) {
    let shutdown = context.shutdown.child_token();
    let context = context.with_shutdown(shutdown.clone());
    let mut tasks = Supervisor::new(shutdown.clone());
    let retry =
        RetryPolicy { base: Duration::from_millis(5), max: Duration::from_secs(60), overall: Some((10.0, 100)) };
    let queue: WorkQueue<Arc<str>> = WorkQueue::new("namespace", retry, &context.metrics);
    let present: WorkQueue<Arc<str>> = WorkQueue::new("serviceaccount", RetryPolicy::default(), &context.metrics);

    let reflector = Reflector::<Namespace>::new(&context, Source::all(Resource::NAMESPACES));
    let mirrored = reflector.progress();
    let (deleted, seen, wanted) = (queue.clone(), present.clone(), options.furnishing.is_wanted());
    let grace = options.grace;
    let handle = move |change| match change {
        Change::Applied(Namespace { metadata }) if metadata.deletion_timestamp.is_some() => {
            deleted.add_after(metadata.name.into(), grace);
        }
        Change::Applied(Namespace { metadata }) if wanted => seen.add(metadata.name.into()),
        _ => {}
    };
    tasks.spawn("namespaces", reflector.run(shutdown.clone(), handle));
    let emptier = Arc::new(Emptier {
        client: context.client.clone(),
        environment: context.environment.clone(),
        rounds: Mutex::default(),
    });
    if all_synced(&[&mirrored], &shutdown).await {
        let (emptied, furnished) = (queue.clone(), present.clone());
        tasks.spawn("namespace recovery", retry_on_recovery(emptied, mirrored.clone(), shutdown.clone()));
        tasks.spawn("namespace furnisher recovery", retry_on_recovery(furnished, mirrored, shutdown.clone()));
        for _ in 0..options.workers.max(1) {
            let (emptier, later) = (emptier.clone(), queue.clone());
            let act = move |name| empty(emptier.clone(), later.clone(), name);
            tasks.spawn("namespace worker", queue.clone().work(shutdown.clone(), act));
        }
        if wanted {
            let furnishing = Arc::new(options.furnishing);
            let client = context.client.clone();
            let act = move |name| furnish::furnish(furnishing.clone(), client.clone(), name);
            tasks.spawn("namespace furnisher", present.work(shutdown, act));
        }
    }
    if let Err(error) = tasks.run().await {
        tracing::error!(%error, "namespace controller");
    }
}

async fn empty(emptier: Arc<Emptier>, queue: WorkQueue<Arc<str>>, name: Arc<str>) -> Result<(), NamespaceError> {
    let outcome = emptier.sync(&name).await;
    match &outcome {
        Ok(None) => {}
        Ok(Some(delay)) => queue.add_after(name, *delay),
        Err(error) => {
            tracing::warn!(error = error as &dyn std::error::Error, namespace = &*name, "delete a namespace");
        }
    }
    outcome.map(|_| ())
}

/// Why a namespace could not be brought further. It will be tried again.
#[derive(Debug, thiserror::Error)]
enum NamespaceError {
    #[error("read the namespace")]
    Read(#[source] Error),
    #[error("write the namespace's status")]
    Status(#[source] Error),
    #[error("finalize the namespace")]
    Finalize(#[source] Error),
    #[error("delete the namespace's content: {0}")]
    Content(String),
}

/// How often each namespace was found to have content left, by name.
type Rounds = HashMap<Arc<str>, u32>;

/// How often a write that another writer interferes with is tried at once; after that it waits in the queue.
const CONFLICTS_MAX: usize = 5;

struct Emptier {
    client: Client,
    environment: Environment,
    rounds: Mutex<Rounds>,
}

impl Emptier {
    /// Brings a namespace's deletion further; the answer is when to look again.
    async fn sync(&self, name: &Arc<str>) -> Result<Option<Duration>, NamespaceError> {
        let path = Resource::NAMESPACES.object("", name);
        let namespace: Value = match requests::get(&self.client, &path).await {
            Ok(namespace) => namespace,
            Err(error) if requests::is_not_found(&error) => return Ok(self.done(name)),
            Err(error) => return Err(NamespaceError::Read(error)),
        };
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            return Ok(self.done(name));
        }
        let uid = namespace["metadata"]["uid"].clone();
        self.update_status(name, &uid, |status| {
            let changed = status["phase"] != "Terminating";
            status["phase"] = json!("Terminating");
            changed
        })
        .await?;
        let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        if finalizers.is_empty() {
            return Ok(self.done(name));
        }
        let remaining = content::delete(&self.client, name).await;
        let now = self.environment.now();
        self.update_status(name, &uid, |status| conditions::update(status, &remaining, now)).await?;
        if let Some(errors) = remaining.errors() {
            return Err(NamespaceError::Content(errors));
        }
        if let Some(estimate) = remaining.estimate {
            return Ok(Some(self.delay(name, estimate)));
        }
        self.finalize(name, &uid).await?;
        Ok(self.done(name))
    }

    fn done(&self, name: &str) -> Option<Duration> {
        self.rounds.lock().remove(name);
        None
    }

    /// Half of the estimate and a second (PL-100), but the first few times sooner: what runs here ends quickly.
    fn delay(&self, name: &Arc<str>, estimate: Duration) -> Duration {
        let mut rounds = self.rounds.lock();
        let round = rounds.entry(name.clone()).or_insert(0);
        let early = Duration::from_millis(500) * 2_u32.saturating_pow((*round).min(16));
        *round += 1;
        early.min(estimate / 2 + Duration::from_secs(1))
    }

    /// Changes the status of a namespace that is still the same. `change` says whether it changed anything.
    async fn update_status(
        &self,
        name: &str,
        uid: &Value,
        change: impl Fn(&mut Value) -> bool,
    ) -> Result<(), NamespaceError> {
        let path = Resource::NAMESPACES.subresource("", name, "status");
        self.rewrite(name, uid, &path, |namespace| change(&mut namespace["status"]))
            .await
            .map_err(NamespaceError::Status)
    }

    /// Gives up our own finalizer in `spec`, which lets the namespace go.
    async fn finalize(&self, name: &str, uid: &Value) -> Result<(), NamespaceError> {
        let path = Resource::NAMESPACES.subresource("", name, "finalize");
        let change = |namespace: &mut Value| {
            let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() else { return false };
            let before = finalizers.len();
            finalizers.retain(|name| name != finalizer::KUBERNETES);
            finalizers.len() != before
        };
        self.rewrite(name, uid, &path, change).await.map_err(NamespaceError::Finalize)
    }

    /// Reads, changes and writes until nobody interferes.
    async fn rewrite(
        &self,
        name: &str,
        uid: &Value,
        path: &str,
        change: impl Fn(&mut Value) -> bool,
    ) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut namespace: Value = match requests::get(&self.client, &Resource::NAMESPACES.object("", name)).await {
                Ok(namespace) => namespace,
                Err(error) if requests::is_not_found(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            if namespace["metadata"]["uid"] != *uid || !change(&mut namespace) {
                return Ok(());
            }
            match requests::replace::<requests::Ignored>(&self.client, path, &namespace).await {
                Ok(_) => return Ok(()),
                Err(error) if requests::is_not_found(&error) => return Ok(()),
                Err(error) if requests::is_conflict(&error) && tries < CONFLICTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What is decoded of a namespace.
#[derive(Debug, Deserialize)]
struct Namespace {
    metadata: NamespaceMeta,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamespaceMeta {
    name: String,
    uid: Box<str>,
    resource_version: Box<str>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Mirrored for Namespace {
    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

#[cfg(test)]
mod tests;
