//! A cluster of one API server in memory and a node, for tests.

#![allow(dead_code, reason = "every test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use apiserver::{ApiServer, Environment, storage};
use batch_types::gates::Gates;
use futures_util::{Stream, StreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::WatchEvent;
use kube::{Api, Client};
use node::logs::{LogQuery, choose_instance};
use node::{Options, ProcessNode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything here takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    client: Client,
    directory: TempDir,
    node: Option<ProcessNode>,
}

impl Cluster {
    pub async fn start() -> Self {
        let mut cluster = Self::without_node().await;
        cluster.start_node().await;
        cluster
    }

    pub async fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        let mut cluster = Self::without_node().await;
        let mut options = cluster.options();
        change(&mut options);
        cluster.node = Some(ProcessNode::start(cluster.client(), options).await.unwrap());
        cluster
    }

    pub async fn without_node() -> Self {
        let store = storage::ObjectStore::open_in_memory(store::Options::default(), storage::attributes()).unwrap();
        let options =
            apiserver::Options { admin_token: None, gates: Gates::DEFAULT, environment: Environment::system() };
        let server = ApiServer::new(store, options).await.unwrap();
        Self { client: server.client(), directory: TempDir::new().unwrap(), node: None }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub async fn start_node(&mut self) {
        self.node = Some(ProcessNode::start(self.client.clone(), self.options()).await.unwrap());
    }

    /// Starts a node that is not shown any pods until the gate is opened.
    pub async fn start_node_behind(&mut self, gate: &Gate) {
        let (inner, gate) = (self.client.clone(), gate.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (inner, mut is_open) = (inner.clone(), gate.0.subscribe());
            async move {
                if request.uri().path() == "/api/v1/pods" {
                    is_open.wait_for(|is_open| *is_open).await.expect("the gate is there");
                }
                inner.send(request).await
            }
        });
        let client = Client::new(service, "default");
        self.node = Some(ProcessNode::start(client, self.options()).await.unwrap());
    }

    fn options(&self) -> Options {
        let mut options = Options::new("here", self.node_directory()).unwrap();
        options.nursery_command = vec![env!("CARGO_BIN_EXE_node-nursery").into()];
        options.environment = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
        options
    }

    /// Ends the node without giving it a chance to do anything more.
    pub async fn crash_node(&mut self) {
        let node = self.node.take().unwrap();
        node.stop().await;
    }

    pub async fn stop_node_with_pods(&mut self) {
        self.node.take().unwrap().stop_with_pods(PATIENCE).await;
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn node_directory(&self) -> PathBuf {
        self.directory.path().join("node")
    }

    /// Whether the machine lets the node use them.
    pub async fn has_control_groups(&self) -> bool {
        let node = self.get("/api/v1/nodes/here").await.expect("the node has registered itself");
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let limits = conditions.iter().find(|it| it["type"] == "tally.dev/ResourceLimits").expect("a condition");
        limits["status"] == "True"
    }

    pub fn journal(&self) -> String {
        std::fs::read_to_string(self.node_directory().join("nursery/journal")).unwrap_or_default()
    }

    /// The process that owns the containers.
    pub fn nursery(&self) -> i32 {
        nursery_of(&self.node_directory()).expect("no nursery runs")
    }

    pub fn kill_nursery(&self) {
        let pid = self.nursery();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
    }

    pub async fn create(&self, plural: &str, object: Value) {
        self.post(&format!("/api/v1/namespaces/default/{plural}"), &object).await;
    }

    /// A pod that is bound to the node `here`.
    pub async fn create_pod(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = json!("here");
        self.create_pod_with(json!({"name": name}), spec).await;
    }

    pub async fn create_pod_with(&self, metadata: Value, spec: Value) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.post("/api/v1/namespaces/default/pods", &pod).await;
    }

    async fn post(&self, path: &str, object: &Value) {
        let body = serde_json::to_vec(object).unwrap();
        let request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    pub async fn delete_pod(&self, name: &str, grace: u32) {
        let path = format!("/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds={grace}");
        let request = Request::delete(path).body(Vec::new()).unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    /// `path` may name a subresource: `p/status`.
    pub async fn patch_pod(&self, path: &str, patch: &Value) {
        let request = Request::patch(format!("/api/v1/namespaces/default/pods/{path}"))
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(patch).unwrap())
            .unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        self.client.request::<Value>(request).await.ok()
    }

    pub async fn pod(&self, name: &str) -> Option<Value> {
        self.get(&format!("/api/v1/namespaces/default/pods/{name}")).await
    }

    pub async fn wait_for(&self, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pod = self.pod(name).await.unwrap_or_default();
            if condition(&pod) {
                return pod;
            }
            assert!(tokio::time::Instant::now() < deadline, "pod `{name}` does not get there:\n{pod:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn wait_for_end(&self, name: &str) -> Value {
        self.wait_for(name, |pod| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))).await
    }

    pub async fn wait_until_gone(&self, name: &str) {
        until("the pod is gone", || async { self.pod(name).await.is_none() }).await;
    }

    /// The log of container `c`; empty while there is none.
    pub async fn log(&self, name: &str) -> String {
        self.try_log(name).await.unwrap()
    }

    /// The same, or why it cannot be read.
    pub async fn try_log(&self, name: &str) -> Result<String, String> {
        let pod = self.pod(name).await.unwrap();
        let Ok(choice) = choose_instance(&pod, "c", false) else { return Ok(String::new()) };
        let query = LogQuery {
            pod_uid: choice.pod_uid,
            container: choice.container,
            attempt: choice.attempt,
            ..LogQuery::default()
        };
        let logs = self.node.as_ref().unwrap().logs();
        let checked = logs.check(&query).map_err(|error| error.to_string());
        let pieces: Vec<_> = logs.read(query).collect().await;
        let bytes: Result<Vec<u8>, String> = pieces.into_iter().try_fold(Vec::new(), |mut bytes, piece| {
            bytes.extend(piece.map_err(|error| error.to_string())?);
            Ok(bytes)
        });
        assert_eq!(checked.is_ok(), bytes.is_ok(), "the check says what reading says");
        Ok(String::from_utf8(bytes?).unwrap())
    }

    pub async fn watch_pods(&self) -> Watch {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let events = pods.watch(&kube::api::WatchParams::default(), "0").await.unwrap();
        Watch { events: Box::pin(events) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The nursery ends by itself unless something of a failed test still runs.
        if let Some(pid) = nursery_of(&self.node_directory())
            && std::thread::panicking()
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Holds requests back until it is opened.
#[derive(Clone)]
pub struct Gate(tokio::sync::watch::Sender<bool>);

impl Gate {
    pub fn closed() -> Self {
        Self(tokio::sync::watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

pub struct Watch {
    events: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>> + Send>>,
}

impl Watch {
    /// The phases that a pod went through before its object went.
    pub async fn phases_until_deleted(&mut self, name: &str) -> Vec<String> {
        let mut phases = Vec::new();
        loop {
            let event = tokio::time::timeout(PATIENCE, self.events.next()).await.unwrap().unwrap().unwrap();
            let (pod, is_deleted) = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                WatchEvent::Deleted(pod) => (pod, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => panic!("{status:?}"),
            };
            if pod.metadata.name.as_deref() == Some(name) {
                phases.extend(pod.status.and_then(|status| status.phase));
                if is_deleted {
                    return phases;
                }
            }
        }
    }
}

/// Waits for a condition, at most as long as is reasonable.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Does a process of this number exist and run?
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// How many processes bear the mark of a pod.
pub fn marked_processes(uid: &str) -> usize {
    let mark = format!("TALLY_INSTANCE={uid}/");
    let has_mark =
        |environment: Vec<u8>| environment.split(|byte| *byte == 0).any(|it| it.starts_with(mark.as_bytes()));
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| std::fs::read(entry.path().join("environ")).is_ok_and(has_mark)).count()
}

/// The nursery of a directory, by its command line.
fn nursery_of(directory: &Path) -> Option<i32> {
    let wanted = directory.as_os_str().as_encoded_bytes();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        line.split(|byte| *byte == 0).any(|word| word == wanted).then_some(pid)
    })
}

/// The size of all files below a directory.
pub fn bytes_below(directory: &Path) -> usize {
    files_below(directory).iter().map(|file| std::fs::read(file).unwrap_or_default().len()).sum()
}

/// The content of all files below a directory.
pub fn text_below(directory: &Path) -> String {
    let contents = files_below(directory).into_iter().map(|file| std::fs::read(file).unwrap_or_default());
    contents.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    // What is there may go at any moment.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}
