//! How fast the API server is in process, on the durable store: creates, status patches, lists and watches of pods.
//!
//! `cargo run --release -p apiserver --example api_bench [PODS]`

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use apiserver::{ApiServer, Environment, Options};
use futures_util::{StreamExt, TryStreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::{Client, client::Body};

/// The allocator of the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WRITERS: usize = 64;
const IDLE_WATCHES: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pods: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let store =
        store::Store::open_directory(directory.path(), store::Options::default(), apiserver::storage::attributes())?;
    let options = Options { admin_token: None, gates: Default::default(), environment: Environment::system() };
    let server = ApiServer::new(store, options).await?;
    let client = server.client();

    let seconds = parallel(&client, pods, |at| post("/api/v1/namespaces/default/pods", pod(at))).await?;
    row("create pods", pods, seconds);

    let seconds = parallel(&client, pods, |at| {
        let path = format!("/api/v1/namespaces/default/pods/pod-{at}/status");
        patch(&path, r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#)
    })
    .await?;
    row("patch pod status", pods, seconds);

    let seconds = parallel(&client, pods, |at| get(&format!("/api/v1/namespaces/default/pods/pod-{at}"))).await?;
    row("get pods", pods, seconds);

    let before = resident_bytes();
    for (name, path, accept) in [
        ("list, whole", "/api/v1/pods", "application/json"),
        ("list, by label", "/api/v1/pods?labelSelector=shard%3D7", "application/json"),
        ("list, metadata", "/api/v1/pods", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
    ] {
        let start = Instant::now();
        let bytes = drain(&client, path, accept).await?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{name:<18} {pods:>8} pods {:>10.0} ms {:>8.1} MB", seconds * 1e3, bytes as f64 / 1e6);
    }
    println!(
        "resident memory    {:>8.1} MB, lists added {:.1} MB",
        mb(resident_bytes()),
        mb(resident_bytes().saturating_sub(before))
    );

    watches(&client, pods).await
}

/// Runs one request for each of `count` numbers, [`WRITERS`] at a time.
async fn parallel(
    client: &Client,
    count: usize,
    request: impl Fn(usize) -> Request<Vec<u8>> + Send + Sync + 'static,
) -> Result<f64, Box<dyn std::error::Error>> {
    let next = Arc::new(AtomicUsize::new(0));
    let request = Arc::new(request);
    let start = Instant::now();
    let workers = (0..WRITERS).map(|_| {
        let (client, next, request) = (client.clone(), next.clone(), request.clone());
        tokio::spawn(async move {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return Ok::<(), kube::Error>(());
                }
                client.request_text(request(at)).await?;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Idle watches first, then one that follows writes.
async fn watches(client: &Client, pods: usize) -> Result<(), Box<dyn std::error::Error>> {
    let before = resident_bytes();
    let mut open = Vec::new();
    for _ in 0..IDLE_WATCHES {
        let request = get("/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=600").map(Body::from);
        let mut stream = client.send(request).await?.into_body().into_data_stream();
        // Polled once, so that it is waiting like a real one.
        let _ = tokio::time::timeout(Duration::from_millis(1), stream.next()).await;
        open.push(stream);
    }
    println!("{IDLE_WATCHES} idle watches  {:>8.1} MB", mb(resident_bytes().saturating_sub(before)));
    drop(open);

    let writes = pods.min(20_000);
    let request = get("/api/v1/secrets?watch=1&timeoutSeconds=600").map(Body::from);
    let mut stream = client.send(request).await?.into_body().into_data_stream();
    let reader = tokio::spawn(async move {
        let mut lines = 0;
        while lines < writes {
            match stream.try_next().await {
                Ok(Some(chunk)) => lines += chunk.iter().filter(|byte| **byte == b'\n').count(),
                _ => return false,
            }
        }
        true
    });
    let seconds = parallel(client, writes, |at| {
        post(
            "/api/v1/namespaces/default/secrets",
            format!(r#"{{"metadata":{{"name":"s-{at}"}},"stringData":{{"a":"b"}}}}"#),
        )
    })
    .await?;
    let complete = reader.await?;
    row("create, watched", writes, seconds);
    if complete { Ok(()) } else { Err("the watch missed events".into()) }
}

fn row(name: &str, count: usize, seconds: f64) {
    println!("{name:<18} {count:>8} {:>16.0} /s", count as f64 / seconds);
}

async fn drain(client: &Client, path: &str, accept: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let mut request = get(path).map(Body::from);
    request.headers_mut().insert("accept", accept.parse()?);
    let mut body = client.send(request).await?.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, bytes::Bytes::len);
    }
    Ok(bytes)
}

/// About 2 kB as a client would send it.
fn pod(at: usize) -> String {
    let filler = "x".repeat(1200);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{at}","labels":{{"app":"bench","shard":"{}","batch.kubernetes.io/job-name":"bench"}},"annotations":{{"note":"{filler}"}}}},"spec":{{"restartPolicy":"Never","containers":[{{"name":"main","image":"images.example/app:1.0","command":["sh","-c","true"],"env":[{{"name":"A","value":"1"}},{{"name":"JOB_COMPLETION_INDEX","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.labels['batch.kubernetes.io/job-completion-index']"}}}}}}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}}}}]}}}}"#,
        at % 100
    )
}

fn get(path: &str) -> Request<Vec<u8>> {
    request(Method::GET, path, "application/json", Vec::new())
}

fn post(path: &str, body: String) -> Request<Vec<u8>> {
    request(Method::POST, path, "application/json", body.into_bytes())
}

fn patch(path: &str, body: &str) -> Request<Vec<u8>> {
    request(Method::PATCH, path, "application/merge-patch+json", body.as_bytes().to_vec())
}

fn request(method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Request<Vec<u8>> {
    let builder = Request::builder().method(method).uri(path).header("content-type", content_type);
    builder.body(body).expect("the parts of a request are valid")
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
