//! How many pods a second a node runs, from create to terminal phase, against an API server in memory.
//!
//! `cargo bench -p node -- [process|simulated] [PODS] [IN-FLIGHT]`, by default 10,000 × `true`, 64 at a time.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run should say so and stop")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apiserver::{ApiServer, Environment, storage};
use batch_types::gates::Gates;
use futures_util::io::AsyncBufReadExt as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Changes of pods that the watch has shown.
static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// Who waits for the end of which pod.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let kind = arguments.first().map_or("process", String::as_str).to_owned();
    let number = |index: usize, default| arguments.get(index).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (pods, in_flight) = (number(1, 10_000), number(2, 64));
    tokio::runtime::Runtime::new().unwrap().block_on(measure(&kind, pods, in_flight));
}

async fn measure(kind: &str, pods: usize, in_flight: usize) {
    let store = storage::ObjectStore::open_in_memory(store::Options::default(), storage::attributes()).unwrap();
    let options = apiserver::Options { admin_token: None, gates: Gates::DEFAULT, environment: Environment::system() };
    let client = ApiServer::new(store, options).await.unwrap().client();
    let directory = TempDir::new().unwrap();
    let node = match kind {
        "simulated" => {
            let nodes = node::SimulatedNodes::start(client.clone(), node::SimulatedOptions::new(1)).await.unwrap();
            std::mem::forget(nodes);
            "simulated-0"
        }
        _ => {
            let mut options = node::Options::new("here", directory.path().join("node")).unwrap();
            options.nursery_command = vec![env!("CARGO_BIN_EXE_node-nursery").into()];
            options.environment = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
            std::mem::forget(node::ProcessNode::start(client.clone(), options).await.unwrap());
            "here"
        }
    };
    let waiting = Waiting::default();
    tokio::spawn(watch(client.clone(), waiting.clone()));
    run(&client, node, &waiting, "warm", 100, in_flight).await;
    let (begin, events) = (Instant::now(), EVENTS.load(Ordering::Relaxed));
    run(&client, node, &waiting, "pod", pods, in_flight).await;
    let taken = begin.elapsed();
    let rate = pods as f64 / taken.as_secs_f64();
    let writes = (EVENTS.load(Ordering::Relaxed) - events) as f64 / pods as f64;
    println!("{kind}: {pods} pods in {taken:.2?}, {rate:.0} a second, {writes:.2} writes each");
}

async fn run(client: &Client, node: &str, waiting: &Waiting, prefix: &str, pods: usize, in_flight: usize) {
    stream::iter(0..pods)
        .for_each_concurrent(in_flight, |number| async move {
            let name = format!("{prefix}-{number}");
            let (sender, receiver) = oneshot::channel();
            waiting.lock().insert(name.clone(), sender);
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {
                    "nodeName": node, "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "command": ["true"]}],
                },
            });
            let request = Request::post("/api/v1/namespaces/default/pods")
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&pod).unwrap())
                .unwrap();
            client.request_text(request).await.unwrap();
            tokio::time::timeout(Duration::from_secs(60), receiver).await.unwrap().unwrap();
        })
        .await;
}

/// Wakes those whose pod has ended.
async fn watch(client: Client, waiting: Waiting) {
    let path = "/api/v1/pods?watch=true&resourceVersion=0";
    let events = client.request_stream(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    let mut lines = Box::pin(events).lines();
    while let Some(line) = lines.try_next().await.unwrap() {
        EVENTS.fetch_add(1, Ordering::Relaxed);
        if line.contains("\"phase\":\"Succeeded\"") || line.contains("\"phase\":\"Failed\"") {
            let event: Value = serde_json::from_str(&line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap();
            if let Some(sender) = waiting.lock().remove(name) {
                let _ = sender.send(());
            }
        }
    }
}
