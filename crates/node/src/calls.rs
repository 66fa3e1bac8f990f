//! The requests that a node sends about its pods (PL-21, PL-47, PL-136).

use std::collections::BTreeMap;

use http::{Method, Request, header};
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// How a request ended, as far as the node cares.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// The object does not exist, or another one has its name.
    Gone,
    Failed(String),
}

pub(crate) async fn patch_status(client: &Client, namespace: &str, name: &str, patch: &Value) -> Answer {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    send(client, Method::PATCH, &path, "application/strategic-merge-patch+json", patch).await
}

/// The final DELETE of a pod that has ended.
pub(crate) async fn delete_pod(client: &Client, namespace: &str, name: &str, uid: &str) -> Answer {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    send(client, Method::DELETE, &path, "application/json", &options).await
}

pub(crate) async fn create(client: &Client, path: &str, object: &Value) -> Answer {
    send(client, Method::POST, path, "application/json", object).await
}

pub(crate) async fn merge_patch(client: &Client, path: &str, patch: &Value) -> Answer {
    send(client, Method::PATCH, path, "application/merge-patch+json", patch).await
}

pub(crate) async fn node_labels(client: &Client, name: &str) -> Result<BTreeMap<String, String>, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Node {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        labels: BTreeMap<String, String>,
    }
    let request = Request::get(format!("/api/v1/nodes/{name}")).body(Vec::new()).map_err(|error| error.to_string())?;
    let node = client.request::<Node>(request).await.map_err(|error| error.to_string())?;
    Ok(node.metadata.labels)
}

async fn send(client: &Client, method: Method, path: &str, content_type: &str, body: &Value) -> Answer {
    let body = match serde_json::to_vec(body) {
        Ok(body) => body,
        Err(error) => return Answer::Failed(error.to_string()),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, "application/json")
        .body(body);
    let request = match request {
        Ok(request) => request,
        Err(error) => return Answer::Failed(error.to_string()),
    };
    match client.request::<IgnoredAny>(request).await {
        Ok(_) => Answer::Done,
        Err(kube::Error::Api(status)) => refused(status.code, &status.message),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// A conflict may be about the uid: then somebody else has the name. Other conflicts pass.
fn refused(code: u16, message: &str) -> Answer {
    match code {
        404 => Answer::Gone,
        409 if message.contains("UID in ") => Answer::Gone,
        _ => Answer::Failed(format!("{code}: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_conflict_about_the_uid_means_that_the_pod_is_gone() {
        for (code, message, gone) in [
            (404, "pods \"p\" not found", true),
            (409, "Precondition failed: UID in precondition: x, UID in object meta: y", true),
            (409, "the UID in the precondition (x) does not match the UID in record (y).", true),
            (409, "the object has been modified; please apply your changes to the latest version", false),
            (409, "nodes \"n\" already exists", false),
            (429, "slow down", false),
            (500, "UID in doubt", false),
        ] {
            assert_eq!(matches!(refused(code, message), Answer::Gone), gone, "PL-141: {code} {message}");
        }
    }
}
