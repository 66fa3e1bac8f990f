//! A server on an in-memory store, called in process.

#![allow(dead_code, reason = "every test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a panic here is a failed test")]

use apiserver::{ApiServer, Environment, Options};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

pub const TOKEN: &str = "secret";

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Answer {
    pub fn version(&self) -> u64 {
        self.body["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    pub fn names(&self) -> Vec<&str> {
        self.body["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }

    #[track_caller]
    pub fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{:#}", self.body);
        self
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct Api {
    pub server: ApiServer,
    pub client: kube::Client,
    pub store: apiserver::storage::ObjectStore,
}

impl Api {
    pub async fn new() -> Self {
        Self::with(store::Options::default()).await
    }

    pub async fn with(options: store::Options) -> Self {
        let store = store::Store::open_in_memory(options, apiserver::storage::attributes()).unwrap();
        Self::on(store, Environment::system()).await
    }

    /// Without threads: a clock that is paused does not wait for them.
    pub async fn inline() -> Self {
        Self::in_environment(Environment::system()).await
    }

    /// The same, with a clock and randomness of its own.
    pub async fn in_environment(environment: Environment) -> Self {
        let attributes = apiserver::storage::attributes();
        let options = store::Options { writing: store::Writing::Inline, ..store::Options::default() };
        let store = store::Store::open_in_memory(options, attributes).unwrap();
        Self::on(store, environment).await
    }

    /// Another server on the same store.
    pub async fn restarted(&self) -> Self {
        self.restarted_in(Environment::system()).await
    }

    /// The same, with a clock and randomness of its own.
    pub async fn restarted_in(&self, environment: Environment) -> Self {
        Self::on(self.store.clone(), environment).await
    }

    async fn on(store: apiserver::storage::ObjectStore, environment: Environment) -> Self {
        let options = Options { admin_token: Some(TOKEN.to_owned()), gates: Default::default(), environment };
        let server = ApiServer::new(store.clone(), options).await.unwrap();
        Self { client: server.client(), server, store }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", "").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, "application/json", &body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, "application/json", &body.to_string()).await
    }

    pub async fn merge(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", &body.to_string()).await
    }

    pub async fn delete(&self, path: &str, body: Value) -> Answer {
        self.send(Method::DELETE, path, "application/json", &body.to_string()).await
    }

    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: &str) -> Answer {
        let response = self.raw(method, path, &[("content-type", content_type)], body).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let warnings =
            parts.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect();
        Answer {
            code: parts.status.as_u16(),
            warnings,
            body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        }
    }

    pub async fn raw(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        self.client.send(request.body(Body::from(body.as_bytes().to_vec())).unwrap()).await.unwrap()
    }

    /// A watch, as lines.
    pub async fn watch(&self, path: &str) -> Events {
        let response = self.raw(Method::GET, path, &[], "").await;
        assert_eq!(response.status(), 200);
        Events { body: response.into_body(), rest: Vec::new() }
    }
}

/// The events of a watch, one by one.
pub struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; `None` when the server ended the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.rest.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// `(type, name, resourceVersion)` of the next event.
    pub async fn summary(&mut self) -> Option<(String, String, u64)> {
        let event = self.next().await?;
        let metadata = &event["object"]["metadata"];
        Some((
            event["type"].as_str().unwrap().to_owned(),
            metadata["name"].as_str().unwrap_or_default().to_owned(),
            metadata["resourceVersion"].as_str().unwrap_or("0").parse().unwrap(),
        ))
    }
}

pub fn config_map(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "data": {"a": "0"}})
}

pub fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}},
    })
}

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
