//! `tally bench`: a load of Jobs for any cluster, and how it coped.
//!
//! `load` makes the Jobs and waits for them, `kubelet` finishes their pods if nobody else shall, `probe` asks how long a
//! small Job takes meanwhile; `process` and `calls` look at the programs involved; `figures` is what comes out.

mod calls;
mod figures;
mod kubelet;
mod load;
mod probe;
mod process;

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::runtime;
use tokio::signal::unix::SignalKind;
use tokio::time::timeout;

use self::calls::{OwnCalls, ServerCalls};
use self::figures::Figures;
use self::load::Load;
use self::process::Usage;
use crate::cluster::{Cluster, ClusterFlags};
use crate::environment::Environment;
use crate::failure::{Exit, Failure, plain};
use crate::output::{Format, say, tell};
use crate::running::duration;
use crate::shutdown::Signals;
use crate::text::duration_text;

/// A server that takes longer to accept one request is not waited for at the end.
const DELETE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How many Jobs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,
    /// Completions of each Job; they are Indexed.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    completions: u32,
    /// Pods of each Job that exist at the same time [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    parallelism: Option<u32>,
    /// Stand in for the kubelet: say of each pod that it has succeeded, as soon as it is there. Otherwise the
    /// cluster's nodes run `true`.
    #[arg(long)]
    finish: bool,
    /// Start a Job of one pod this often, and tell how long each took.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    probe_interval: Option<Duration>,
    /// The image of the pods; a node that runs processes does not use it.
    #[arg(long, value_name = "IMAGE", default_value = "busybox")]
    image: String,
    /// Processes whose CPU time and memory to tell: controllers or servers on this machine.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Give up after this long; the exit code is 124.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    timeout: Duration,
    /// Leave the Jobs and their namespace behind.
    #[arg(long)]
    keep: bool,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) fn run(options: &Bench, environment: &Environment) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("start the async runtime")?;
    let measured = runtime.block_on(measure(options, environment));
    // Whatever is still on its way to the server is not waited for.
    runtime.shutdown_background();
    let figures = measured?;
    say(&match options.output {
        Format::Text => figures.table(),
        Format::Json => format!("{:#}\n", figures.json()),
    })
}

async fn measure(options: &Bench, environment: &Environment) -> Result<Figures, Failure> {
    let cluster = options.cluster.connect(environment).await?;
    let before: Vec<Usage> = options.pid.iter().map(|pid| process::usage(*pid)).collect::<Result<_, _>>()?;
    // Before anything is made that must be taken away again.
    let interrupted = Signals::listen().context("listen for signals")?.first_then(|| {});
    // Namespaces of other runs are not looked at; this one's is deleted with everything in it.
    let namespace = match &options.cluster.namespace {
        Some(namespace) => namespace.clone(),
        None => make_namespace(&cluster).await?,
    };
    let measured = tokio::select! {
        measured = figures(options, &cluster.client, &namespace, before) => measured,
        signal = interrupted => Err(stopped(signal)),
    };
    if !options.keep && options.cluster.namespace.is_none() {
        delete_namespace(&cluster.client, &namespace).await;
    }
    measured
}

async fn figures(options: &Bench, client: &Client, namespace: &str, before: Vec<Usage>) -> Result<Figures, Failure> {
    let server_before = ServerCalls::read(client).await;
    let begin = Instant::now();
    let ran = timeout(options.timeout, load(options, client, namespace)).await;
    let elapsed = begin.elapsed();
    let server = ServerCalls::read(client).await.since(&server_before);
    let (loaded, probes, own) = ran.map_err(|_| {
        let error = anyhow!("the Jobs have not finished within {}", duration_text(options.timeout));
        Failure::new(error)
            .exit(Exit::TimedOut)
            .hint("is there a controller, and a node to run pods? `--finish` stands in for nodes")
    })??;
    let after: Vec<Usage> = options.pid.iter().map(|pid| process::usage(*pid)).collect::<Result<_, _>>()?;
    Ok(Figures {
        jobs: options.jobs,
        completions: options.completions,
        parallelism: options.parallelism.unwrap_or(options.completions),
        finished_by_bench: options.finish,
        elapsed,
        job_times: loaded,
        probe_times: probes,
        own_calls: own,
        server_calls: server,
        processes: before.into_iter().zip(after).map(|(before, after)| after.since(&before)).collect(),
    })
}

fn stopped(signal: SignalKind) -> Failure {
    let (what, exit) = match signal {
        signal if signal == SignalKind::interrupt() => ("interrupted", Exit::Interrupted),
        signal if signal == SignalKind::hangup() => ("the terminal is gone", Exit::HungUp),
        _ => ("terminated", Exit::Terminated),
    };
    Failure::new(anyhow!("{what}: the Jobs have not finished")).exit(exit).hint("run the same command to begin again")
}

/// Nobody waits for its end: that takes as long as there are pods in it.
async fn delete_namespace(client: &Client, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let why = match timeout(DELETE_MAX, namespaces.delete(namespace, &DeleteParams::default())).await {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => plain(error).to_string(),
        Err(_) => "the server does not answer".to_owned(),
    };
    tell(&format!("note: namespace `{namespace}` is left behind: {why}"));
}

type Loaded = (Vec<Duration>, Vec<Duration>, Vec<(&'static str, u64)>);

async fn load(options: &Bench, client: &Client, namespace: &str) -> Result<Loaded, Failure> {
    let calls = OwnCalls::default();
    let load = Load {
        client: client.clone(),
        namespace: namespace.to_owned(),
        jobs: options.jobs,
        completions: options.completions,
        parallelism: options.parallelism.unwrap_or(options.completions),
        image: options.image.clone(),
        is_finished_here: options.finish,
        calls: calls.clone(),
    };
    // Neither ends by itself: they are dropped when the load is done.
    let finishing = async {
        match options.finish {
            true => kubelet::run(client.clone(), namespace, &calls).await,
            false => std::future::pending().await,
        }
    };
    let mut probes = Vec::new();
    let probing = async {
        match options.probe_interval {
            Some(interval) => probe::run(&load, interval, &mut probes).await,
            None => std::future::pending().await,
        }
    };
    let times = tokio::select! {
        times = load.run() => times?,
        failure = finishing => return Err(failure),
        failure = probing => return Err(failure),
    };
    Ok((times, probes, calls.counts()))
}

async fn make_namespace(cluster: &Cluster) -> Result<String, Failure> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let metadata = ObjectMeta { generate_name: Some("tally-bench-".to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let made = namespaces.create(&PostParams::default(), &namespace).await.map_err(|error| {
        Failure::new(plain(error).context(format!("make a namespace on {}", cluster.server)))
            .hint("name one that exists with `-n NAMESPACE`")
    })?;
    Ok(made.metadata.name.unwrap_or_default())
}
