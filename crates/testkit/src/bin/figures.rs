//! Measures a real `tally up` over HTTPS: start, memory, rates. `cargo xtask bench` builds and runs it.
//!
//! Clients and server share the machine, so rates are those of both together.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use http::Request;
use kube::Client;
use testkit::Tally;
use tokio::task::JoinSet;

#[derive(Debug, Parser)]
struct Arguments {
    /// The tally binary, built for release.
    #[arg(long)]
    binary: PathBuf,
    /// Pods to create, list and start with.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Clients that write at the same time.
    #[arg(long, default_value_t = 64)]
    writers: usize,
    /// Watches that are open at the same time.
    #[arg(long, default_value_t = 1000)]
    watches: usize,
}

const STARTS: usize = 10;
const STOP_PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    println!("| measure | bar | measured |\n|---|---|---|");
    let size = fs::metadata(&arguments.binary).context("find the binary")?.len();
    row("binary, stripped", "≤ 25 MB", &megabytes(size));
    starts(&arguments)?;

    let data = tempfile::Builder::new().prefix("tally-figures-").tempdir().context("make a data directory")?;
    let mut server = start(&arguments, data.path())?;
    let client = server.client().await?;
    watches(&arguments, &server, &client).await?;
    creates(&arguments, &client).await?;
    row(&format!("memory with {} pods", arguments.pods), "≤ 600 MB", &megabytes(resident(&server)?));
    lists(&arguments, &client).await?;
    row("memory after these lists", "", &megabytes(resident(&server)?));
    server.stop(STOP_PATIENCE)?;

    let again = start(&arguments, data.path())?;
    row(&format!("start to ready with {} pods", arguments.pods), "≤ 2 s", &format!("{:.2?}", again.started_in()));
    row("memory right after that start", "", &megabytes(resident(&again)?));
    Ok(())
}

fn starts(arguments: &Arguments) -> Result<()> {
    let mut took = Vec::new();
    let mut idle = 0;
    for _ in 0..STARTS {
        let data = tempfile::tempdir().context("make a data directory")?;
        let mut server = start(arguments, data.path())?;
        took.push(server.started_in());
        idle = resident(&server)?;
        server.stop(STOP_PATIENCE)?;
    }
    took.sort();
    row("start to ready, empty directory (median)", "≤ 100 ms", &format!("{:.1?}", took[STARTS / 2]));
    row("idle memory", "≤ 30 MB", &megabytes(idle));
    Ok(())
}

async fn watches(arguments: &Arguments, server: &Tally, client: &Client) -> Result<()> {
    let before = resident(server)?;
    let mut open = Vec::new();
    for _ in 0..arguments.watches {
        let request = Request::get("/api/v1/namespaces/default/pods?watch=1&resourceVersion=0").body(Vec::new())?;
        open.push(client.request_stream(request).await?);
    }
    let grown = resident(server)?.saturating_sub(before);
    row(&format!("{} idle watches", open.len()), "≤ 30 MB", &megabytes(grown));
    Ok(())
}

async fn creates(arguments: &Arguments, client: &Client) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    let begin = Instant::now();
    for _ in 0..arguments.writers {
        let (client, next, pods) = (client.clone(), Arc::clone(&next), arguments.pods);
        writers.spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= pods {
                    return anyhow::Ok(took);
                }
                let request = Request::post("/api/v1/namespaces/default/pods")
                    .header("content-type", "application/json")
                    .body(pod(number))?;
                let begin = Instant::now();
                client.request_text(request).await?;
                took.push(begin.elapsed());
            }
        });
    }
    let mut took = Vec::new();
    while let Some(done) = writers.join_next().await {
        took.append(&mut done??);
    }
    let rate = took.len() as f64 / begin.elapsed().as_secs_f64();
    took.sort();
    let percentile = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    let measured = format!("{rate:.0}/s, p50 {:.1?}, p99 {:.1?}", percentile(50), percentile(99));
    row(&format!("pod creates over HTTPS, {} writers, 2 KB", arguments.writers), "≥ 3,000/s", &measured);
    Ok(())
}

async fn lists(arguments: &Arguments, client: &Client) -> Result<()> {
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (what, accept) in [("full", "application/json"), ("metadata only", metadata)] {
        let request = Request::get("/api/v1/pods?resourceVersion=0").header("accept", accept).body(Vec::new())?;
        let begin = Instant::now();
        let text = client.request_text(request).await?;
        let took = begin.elapsed();
        let found = text.matches("\"name\":\"figure-").count();
        ensure!(found >= arguments.pods, "the list has {found} pods of {}", arguments.pods);
        let measured = format!("{took:.2?}, {}", megabytes(text.len() as u64));
        row(&format!("LIST of {} pods, {what}", arguments.pods), "", &measured);
    }
    Ok(())
}

/// A pod that takes about 2 kB when stored.
fn pod(number: usize) -> Vec<u8> {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("figure-{number:06}"),
            "labels": { "app": "figures", "number": number.to_string() },
            "annotations": { "padding": "x".repeat(600) }
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "busybox", "command": ["true"] }]
        }
    })
    .to_string()
    .into_bytes()
}

fn start(arguments: &Arguments, data: &std::path::Path) -> Result<Tally> {
    Tally::start(&arguments.binary, data, &["--node", "none", "--controllers", "none"])
}

/// Resident memory in bytes.
fn resident(server: &Tally) -> Result<u64> {
    let path = format!("/proc/{}/status", server.pid());
    let status = fs::read_to_string(&path).with_context(|| format!("read `{path}`"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().context("read VmRSS")?;
    Ok(kilobytes << 10)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn row(measure: &str, bar: &str, measured: &str) {
    println!("| {measure} | {bar} | {measured} |");
}
