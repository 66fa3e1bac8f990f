//! The requests that a node sends about its pods (PL-21, PL-47, PL-136).

use http::{Method, Request, header};
use kube::Client;
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
        Err(kube::Error::Api(status)) if status.code == 404 => Answer::Gone,
        // A uid that does not fit is a conflict: somebody else has the name (PL-13 of the perturbations).
        Err(kube::Error::Api(status)) if status.code == 409 => Answer::Gone,
        Err(kube::Error::Api(status)) => Answer::Failed(format!("{}: {}", status.code, status.message)),
        Err(error) => Answer::Failed(error.to_string()),
    }
}
