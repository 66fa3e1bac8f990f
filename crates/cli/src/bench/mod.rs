//! `tally bench`: a load of Jobs for any cluster, and how it coped.
//!
//! `load` makes the Jobs and waits for them, `kubelet` finishes their pods if nobody else shall, `probe` asks how long a
//! small Job takes meanwhile; `site` is where that happens and how it is taken away again; `process` and `calls` look at
//! the programs involved; `figures` is what comes out.

mod calls;
mod figures;
mod kubelet;
mod load;
mod probe;
mod process;
mod site;

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::runtime;
use tokio::signal::unix::SignalKind;
use tokio::time::timeout;

use self::calls::{OwnCalls, ServerCalls};
use self::figures::Figures;
use self::load::Load;
use self::process::Usage;
use self::site::Site;
use crate::cluster::{Cluster, ClusterFlags};
use crate::environment::Environment;
use crate::failure::{Exit, Failure};
use crate::output::{Format, say};
use crate::running::duration;
use crate::shutdown::Signals;
use crate::text::duration_text;

/// Of the random name of a run: short enough for people, long enough that no two are alike in one namespace.
const RUN_LENGTH: usize = 8;

#[derive(Debug, Args)]
#[command(mut_arg("namespace", |flag| flag.help("A namespace that exists, for the Jobs [default: a new one]")))]
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
    /// Leave the Jobs behind, and the namespace that was made for them.
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
    let run = uuid::Uuid::new_v4().simple().to_string()[..RUN_LENGTH].to_owned();
    let site = Site::new(&cluster, options.cluster.namespace.as_deref(), run);
    let calls = OwnCalls::default();
    let work = async {
        site.prepare().await?;
        if options.cluster.namespace.is_none() {
            calls.answered();
        }
        figures(options, &cluster, &site, &calls, before).await
    };
    let measured = tokio::select! {
        measured = timeout(options.timeout, work) => {
            measured.unwrap_or_else(|_| Err(late(&cluster, &calls, options.timeout)))
        }
        signal = interrupted => Err(stopped(signal)),
    };
    if !options.keep {
        site.clear(calls.is_answered()).await;
    }
    measured
}

/// What has not happened in time.
fn late(cluster: &Cluster, calls: &OwnCalls, patience: Duration) -> Failure {
    if !calls.is_answered() {
        return cluster.silent_for(patience);
    }
    Failure::new(anyhow!("the Jobs have not finished within {}", duration_text(patience)))
        .exit(Exit::TimedOut)
        .hint("is there a controller, and a node to run pods? `--finish` stands in for nodes")
}

async fn figures(
    options: &Bench,
    cluster: &Cluster,
    site: &Site<'_>,
    calls: &OwnCalls,
    before: Vec<Usage>,
) -> Result<Figures, Failure> {
    let server_before = ServerCalls::read(&cluster.client).await;
    let begin = Instant::now();
    let (loaded, probes) = load(options, cluster, site, calls).await?;
    let elapsed = begin.elapsed();
    let own = calls.counts();
    let server = ServerCalls::read(&cluster.client).await.since(&server_before);
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

/// How long each Job took, and each probe.
type Loaded = (Vec<Duration>, Vec<Duration>);

async fn load(options: &Bench, cluster: &Cluster, site: &Site<'_>, calls: &OwnCalls) -> Result<Loaded, Failure> {
    let load = Load {
        cluster: cluster.clone(),
        namespace: site.namespace.clone(),
        run: site.run.clone(),
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
            true => kubelet::run(&load).await,
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
    Ok((times, probes))
}
