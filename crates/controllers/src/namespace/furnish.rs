//! What every namespace gets: ServiceAccount `default` and ConfigMap `kube-root-ca.crt`.
//!
//! On a cluster kube-controller-manager makes them; an embedded server has nobody else (section 1 of the API server's
//! specification). They are made when a namespace appears or changes; nobody watches whether they stay.

use std::sync::Arc;

use kube::{Client, Error};
use serde_json::{Value, json};

use crate::runtime::{Resource, requests};

/// What to put into every namespace. Nothing by default.
#[derive(Debug, Clone, Default)]
pub struct Furnishing {
    /// The ServiceAccount `default`.
    pub service_account: bool,
    /// The content of `ca.crt` in the ConfigMap `kube-root-ca.crt`.
    pub root_ca: Option<String>,
}

impl Furnishing {
    pub(super) fn is_wanted(&self) -> bool {
        self.service_account || self.root_ca.is_some()
    }

    async fn put_into(&self, client: &Client, namespace: &str) -> Result<(), Error> {
        if self.service_account {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            ensure(client, &Resource::SERVICE_ACCOUNTS, namespace, &account).await?;
        }
        if let Some(root_ca) = &self.root_ca {
            let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                               endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                               guaranteed across distributions of Kubernetes clusters.";
            let map = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": "kube-root-ca.crt",
                    "annotations": {"kubernetes.io/description": description},
                },
                "data": {"ca.crt": root_ca},
            });
            ensure(client, &Resource::CONFIG_MAPS, namespace, &map).await?;
        }
        Ok(())
    }
}

/// Furnishes one namespace.
pub(super) async fn furnish(wanted: Arc<Furnishing>, client: Client, namespace: Arc<str>) -> Result<(), Error> {
    let outcome = wanted.put_into(&client, &namespace).await;
    if let Err(error) = &outcome {
        tracing::warn!(%error, namespace = &*namespace, "furnish a namespace");
    }
    outcome
}

/// Creates an object unless it exists, or its namespace is going away.
async fn ensure(client: &Client, resource: &Resource, namespace: &str, object: &Value) -> Result<(), Error> {
    match requests::create::<requests::Ignored>(client, &resource.collection(Some(namespace)), object).await {
        Err(error) if requests::is_already_exists(&error) => Ok(()),
        Err(error) if requests::is_not_found(&error) || requests::is_namespace_terminating(&error) => Ok(()),
        other => other.map(|_| ()),
    }
}
