//! What careless users do (P-14): once, without looking whether it worked. And how they tidy up in the end.

use std::time::Duration;

use controllers::runtime::Resource;
use controllers::runtime::requests::{self, DeleteOptions, Ignored, PatchType};
use kube::{Client, Error};
use serde_json::{Value, json};

use crate::counters::Counters;
use crate::scenario::{Action, HOLD, NAMESPACES, Place};

/// Users do not wait longer for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often something is tried that must succeed.
const ATTEMPTS: usize = 50;

pub(crate) struct Users {
    client: Client,
    counters: Counters,
}

impl Users {
    pub(crate) fn new(client: Client, counters: Counters) -> Self {
        Self { client, counters }
    }

    pub(crate) async fn act(&self, action: &Action) {
        match tokio::time::timeout(PATIENCE, self.try_act(action)).await {
            Ok(Ok(())) => self.counters.add(&format!("user: {}", name(action))),
            // Most of what a user does blindly cannot be done.
            Ok(Err(error)) => tracing::debug!(%error, ?action, "a user"),
            Err(_) => self.counters.add("user: lost patience"),
        }
    }

    async fn try_act(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::CreateJob { at, spec } => self.create(&Resource::JOBS, *at, "Job", &spec.0).await,
            Action::Namesake { at, spec, policy } => {
                self.delete(&Resource::JOBS, *at, policy).await?;
                self.create(&Resource::JOBS, *at, "Job", &spec.0).await
            }
            Action::DeleteJob { at, policy } => self.delete(&Resource::JOBS, *at, policy).await,
            Action::PatchJob { at, patch } => self.patch(&Resource::JOBS, at.namespace, at.name, &patch.0).await,
            Action::CreateCronJob { at, spec } => self.create(&Resource::CRON_JOBS, *at, "CronJob", &spec.0).await,
            Action::PatchCronJob { at, patch } => {
                self.patch(&Resource::CRON_JOBS, at.namespace, at.name, &patch.0).await
            }
            Action::DeleteCronJob { at, policy } => self.delete(&Resource::CRON_JOBS, *at, policy).await,
            Action::DeletePod { namespace, which, grace_seconds } => {
                let Some(pod) = self.pod(namespace, *which).await? else { return Ok(()) };
                let options = DeleteOptions { grace_period_seconds: *grace_seconds, ..DeleteOptions::default() };
                requests::delete(&self.client, &Resource::PODS.object(namespace, &pod), &options).await
            }
            Action::PatchPod { namespace, which, patch } => self.patch_pod(namespace, *which, &patch.0).await,
            Action::RelabelPod { namespace, which } => {
                let labels = json!({"controller-uid": null, "batch.kubernetes.io/controller-uid": null});
                self.patch_pod(namespace, *which, &json!({"metadata": {"labels": labels}})).await
            }
            Action::DisownPod { namespace, which } => {
                self.patch_pod(namespace, *which, &json!({"metadata": {"ownerReferences": null}})).await
            }
            Action::EvictPod { namespace, which } => {
                let Some(pod) = self.pod(namespace, *which).await? else { return Ok(()) };
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"name": pod, "namespace": namespace},
                });
                let path = Resource::PODS.subresource(namespace, &pod, "eviction");
                requests::create::<Ignored>(&self.client, &path, &eviction).await.map(drop)
            }
            Action::DeleteNamespace { namespace } => {
                let path = Resource::NAMESPACES.object("", namespace);
                requests::delete(&self.client, &path, &DeleteOptions::default()).await
            }
            Action::CreateNamespace { namespace } => self.create_namespace(namespace).await,
        }
    }

    /// When everything is healed: nothing is held back any more, and no clock starts anything new.
    pub(crate) async fn tidy(&self) -> Result<(), String> {
        for namespace in NAMESPACES {
            for (resource, patch) in [
                (Resource::CRON_JOBS, json!({"spec": {"suspend": true}})),
                (Resource::JOBS, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}})),
                (Resource::PODS, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}})),
            ] {
                self.tidy_all(&resource, namespace, &patch).await?;
            }
        }
        Ok(())
    }

    async fn tidy_all(&self, resource: &Resource, namespace: &str, patch: &Value) -> Result<(), String> {
        let path = resource.collection(Some(namespace));
        let list = self.insist(|| requests::get::<Value>(&self.client, &path)).await?;
        let Some(list) = list else { return Ok(()) };
        for object in list["items"].as_array().into_iter().flatten() {
            let held = &object["metadata"]["finalizers"];
            let is_held = held.as_array().is_some_and(|held| held.iter().any(|one| one == HOLD));
            if *resource == Resource::CRON_JOBS || is_held {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                self.insist(|| self.patch(resource, namespace, name, patch)).await?;
            }
        }
        Ok(())
    }

    /// Tries until it works. `None` if there is nothing to do it with.
    pub(crate) async fn insist<T, F: Future<Output = Result<T, Error>>>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<Option<T>, String> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match attempt().await {
                Ok(done) => return Ok(Some(done)),
                Err(error) if requests::is_not_found(&error) => return Ok(None),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(format!("a healed server does not answer: {last}"))
    }

    pub(crate) async fn create_namespace(&self, namespace: &str) -> Result<(), Error> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let path = Resource::NAMESPACES.collection(None);
        match requests::create::<Ignored>(&self.client, &path, &object).await {
            Err(error) if requests::is_already_exists(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn create(&self, resource: &Resource, at: Place, kind: &str, spec: &Value) -> Result<(), Error> {
        let object = json!({
            "apiVersion": "batch/v1", "kind": kind, "metadata": {"name": at.name}, "spec": spec,
        });
        let path = resource.collection(Some(at.namespace));
        let created = requests::create::<Ignored>(&self.client, &path, &object).await.map(drop);
        if let Err(error) = &created
            && requests::is_code(error, 422)
        {
            // The shapes are meant to be valid: otherwise less is tried than it seems.
            self.counters.add(&format!("invalid: {error}"));
        }
        created
    }

    async fn delete(&self, resource: &Resource, at: Place, policy: &'static str) -> Result<(), Error> {
        let options = DeleteOptions { propagation_policy: Some(policy), ..DeleteOptions::default() };
        requests::delete(&self.client, &resource.object(at.namespace, at.name), &options).await
    }

    async fn patch(&self, resource: &Resource, namespace: &str, name: &str, patch: &Value) -> Result<(), Error> {
        let path = resource.object(namespace, name);
        requests::patch::<Ignored>(&self.client, &path, PatchType::Strategic, patch).await.map(drop)
    }

    async fn patch_pod(&self, namespace: &str, which: u64, patch: &Value) -> Result<(), Error> {
        match self.pod(namespace, which).await? {
            Some(pod) => self.patch(&Resource::PODS, namespace, &pod, patch).await,
            None => Ok(()),
        }
    }

    /// The name of one of the pods.
    async fn pod(&self, namespace: &str, which: u64) -> Result<Option<String>, Error> {
        let list: Value = requests::get(&self.client, &Resource::PODS.collection(Some(namespace))).await?;
        let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        let chosen = usize::try_from(which % pods.len().max(1) as u64).unwrap_or(0);
        Ok(pods.get(chosen).and_then(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned))
    }
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::CreateJob { .. } => "create a Job",
        Action::Namesake { .. } => "replace a Job by a namesake",
        Action::DeleteJob { policy: "Foreground", .. } => "delete a Job in the foreground",
        Action::DeleteJob { policy: "Orphan", .. } => "delete a Job and orphan its pods",
        Action::DeleteJob { .. } => "delete a Job",
        Action::PatchJob { patch, .. } => match patch.0["spec"].as_object().and_then(|spec| spec.keys().next()) {
            Some(field) if field == "suspend" && patch.0["spec"]["suspend"] == true => "suspend a Job",
            Some(field) if field == "suspend" => "resume a Job",
            Some(field) if field == "parallelism" => "resize a Job",
            Some(_) => "change times of a Job",
            None => "edit a Job's metadata",
        },
        Action::CreateCronJob { .. } => "create a CronJob",
        Action::PatchCronJob { .. } => "edit a CronJob",
        Action::DeleteCronJob { .. } => "delete a CronJob",
        Action::DeletePod { .. } => "delete a pod",
        Action::PatchPod { .. } => "edit a pod",
        Action::RelabelPod { .. } => "take a pod away by its labels",
        Action::DisownPod { .. } => "take a pod's owners away",
        Action::EvictPod { .. } => "evict a pod",
        Action::DeleteNamespace { .. } => "delete a namespace",
        Action::CreateNamespace { .. } => "create a namespace",
    }
}
