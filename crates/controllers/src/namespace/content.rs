//! Deleting everything in a namespace: pods first, then the rest (PL-99).

use std::{collections::BTreeMap, time::Duration};

use kube::{Client, Error};
use serde::Deserialize;

use crate::runtime::{
    Resource,
    discovery::{Served, discover},
    requests::{self, DeleteOptions, METADATA_LIST_ONLY, Preconditions},
};

/// How long it takes until somebody removes a finalizer, for want of better knowledge.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);
/// What a pod takes to end if it does not say.
const GRACE_PERIOD_DEFAULT: u64 = 30;

/// What is left of a namespace after a round.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// Objects by resource, as `pods.` or `jobs.batch`.
    pub(super) objects: BTreeMap<String, usize>,
    /// Objects by the finalizer that holds them.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Groups that could not say what they serve.
    pub(super) discovery_failures: Vec<String>,
    pub(super) delete_failures: Vec<String>,
    /// When more may be gone; `None` if there is nothing to wait for.
    pub(super) estimate: Option<Duration>,
}

impl Remaining {
    /// All that went wrong, as one text.
    pub(super) fn errors(&self) -> Option<String> {
        let all: Vec<&str> = self.discovery_failures.iter().chain(&self.delete_failures).map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    fn wait(&mut self, estimate: Duration) {
        self.estimate = Some(self.estimate.map_or(estimate, |known| known.max(estimate)));
    }
}

/// Deletes what is in a namespace, as far as that goes at once.
pub(super) async fn delete(client: &Client, namespace: &str) -> Remaining {
    let mut remaining = Remaining::default();
    let served = match discover(client).await {
        Ok(found) => {
            remaining.discovery_failures = found.failed;
            found.resources
        }
        Err(error) => {
            remaining.discovery_failures.push(error.to_string());
            return remaining;
        }
    };
    let content: Vec<Served> = served.into_iter().filter(|one| one.namespaced && one.supports(&["delete"])).collect();
    // Pods go before what they use, secrets and policies say (gate OrderedNamespaceDeletion).
    let (pods, others): (Vec<Served>, Vec<Served>) =
        content.into_iter().partition(|one| one.resource == Resource::PODS);
    for one in &pods {
        delete_resource(client, namespace, one, &mut remaining).await;
    }
    if !remaining.objects.is_empty() || !remaining.delete_failures.is_empty() {
        return remaining;
    }
    for one in &others {
        delete_resource(client, namespace, one, &mut remaining).await;
    }
    remaining
}

async fn delete_resource(client: &Client, namespace: &str, served: &Served, remaining: &mut Remaining) {
    if let Err(error) = try_delete_resource(client, namespace, served, remaining).await {
        remaining.delete_failures.push(format!("{}: {error}", served.resource));
    }
}

async fn try_delete_resource(
    client: &Client,
    namespace: &str,
    served: &Served,
    remaining: &mut Remaining,
) -> Result<(), Error> {
    let resource = &served.resource;
    // How long pods need must be asked before they are told to end.
    let grace = if *resource == Resource::PODS { pod_estimate(client, namespace).await? } else { None };
    if served.supports(&["deletecollection"]) {
        match requests::delete_collection(client, resource, namespace).await {
            Err(error) if !requests::is_not_found(&error) && !requests::is_code(&error, 405) => return Err(error),
            _ => {}
        }
    } else if served.supports(&["list"]) {
        delete_each(client, namespace, resource).await?;
    }
    if !served.supports(&["list"]) {
        return Ok(());
    }
    let (mut left, mut held) = (0, false);
    let finalizers = &mut remaining.finalizers;
    list(client, namespace, resource, |object: Left| {
        left += 1;
        for finalizer in object.metadata.finalizers {
            *finalizers.entry(finalizer).or_default() += 1;
            held = true;
        }
    })
    .await?;
    if left == 0 {
        return Ok(());
    }
    *remaining.objects.entry(group_resource(resource)).or_default() += left;
    match grace {
        Some(grace) => remaining.wait(grace),
        None if held => remaining.wait(FINALIZER_ESTIMATE),
        // New objects cannot be made any more, so a few stragglers are gone next time.
        None => remaining.wait(Duration::ZERO),
    }
    Ok(())
}

/// One by one, for resources whose collection cannot be deleted.
async fn delete_each(client: &Client, namespace: &str, resource: &Resource) -> Result<(), Error> {
    let mut objects = Vec::new();
    list(client, namespace, resource, |object: Left| objects.push(object)).await?;
    for object in objects {
        let options = DeleteOptions {
            propagation_policy: Some("Background"),
            preconditions: Preconditions::uid(&object.metadata.uid),
            ..DeleteOptions::default()
        };
        match requests::delete(client, &resource.object(namespace, &object.metadata.name), &options).await {
            Err(error) if !requests::is_not_found(&error) && !requests::is_conflict(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The longest grace period of pods that still run (PL-100).
async fn pod_estimate(client: &Client, namespace: &str) -> Result<Option<Duration>, Error> {
    let path = Resource::PODS.collection(Some(namespace));
    let mut longest = None;
    requests::for_each(client, &path, "application/json", |pod: PodGrace| {
        if !matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            longest = longest.max(Some(pod.spec.termination_grace_period_seconds.unwrap_or(GRACE_PERIOD_DEFAULT)));
        }
    })
    .await?;
    Ok(longest.map(Duration::from_secs))
}

async fn list(client: &Client, namespace: &str, resource: &Resource, each: impl FnMut(Left)) -> Result<(), Error> {
    let path = resource.collection(Some(namespace));
    match requests::for_each(client, &path, METADATA_LIST_ONLY, each).await {
        // The kind itself went away meanwhile.
        Err(error) if requests::is_not_found(&error) => Ok(()),
        other => other,
    }
}

/// `pods.` and `jobs.batch`: upstream prints the group even if there is none.
fn group_resource(resource: &Resource) -> String {
    format!("{}.{}", resource.plural, resource.group)
}

#[derive(Deserialize)]
struct Left {
    metadata: LeftMeta,
}

#[derive(Deserialize)]
struct LeftMeta {
    name: String,
    uid: String,
    #[serde(default)]
    finalizers: Vec<String>,
}

#[derive(Deserialize)]
struct PodGrace {
    spec: PodGraceSpec,
    #[serde(default)]
    status: PodGraceStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodGraceSpec {
    termination_grace_period_seconds: Option<u64>,
}

#[derive(Deserialize, Default)]
struct PodGraceStatus {
    #[serde(default)]
    phase: String,
}
