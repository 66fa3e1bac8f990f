//! Measures how a real `tally up` runs pods: rate beside xargs and GNU parallel, what a running pod costs, how soon the
//! first Job is done, and what many simulated pods take. `cargo xtask bench` builds and runs it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures_util::TryStreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::Tally;

#[derive(Debug, Parser)]
struct Arguments {
    /// The tally binary, built for release.
    #[arg(long)]
    binary: PathBuf,
    /// Processes to run as pods of one Job, and by other tools.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many at a time.
    #[arg(long, default_value_t = 64)]
    parallelism: usize,
    /// Pods that run at the same time to see what one costs.
    #[arg(long, default_value_t = 500)]
    running: usize,
    /// Simulated pods that live at the same time.
    #[arg(long, default_value_t = 100_000)]
    simulated: usize,
    /// Only rows whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

const STARTS: usize = 10;
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Nothing here takes minutes; what takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    println!("| measure | bar | measured |\n|---|---|---|");
    let is_wanted = |name: &str| name.contains(&arguments.only);
    if is_wanted("rate") {
        rate(&arguments).await?;
    }
    if is_wanted("cost") {
        cost(&arguments).await?;
    }
    if is_wanted("first") {
        first_job(&arguments).await?;
        first_line(&arguments)?;
    }
    if is_wanted("simulated") {
        simulated(&arguments).await?;
    }
    Ok(())
}

/// The same work by others and by a Job, one after the other on the same machine.
async fn rate(arguments: &Arguments) -> Result<()> {
    let Arguments { pods, parallelism, .. } = *arguments;
    let what = format!("{pods} × `true`, {parallelism} at a time");
    let at_once = parallelism.to_string();
    for (tool, flags) in [("xargs", ["-n1", "-P", &at_once, "true"]), ("parallel", ["-n1", "-j", &at_once, "true"])] {
        let measured = match tool_rate(tool, &flags, pods)? {
            Some(rate) => format!("{rate:.0}/s"),
            None => "not installed".to_owned(),
        };
        row(&format!("{what}: {tool}"), "", &measured);
    }
    let data = directory()?;
    let mut server = Tally::start(&arguments.binary, data.path(), &[])?;
    let client = server.client().await?;
    let before = processor_time(&server, data.path())?;
    let spec = json!({"completions": pods, "parallelism": parallelism});
    let took = run_job(&client, "rate", spec, &json!({"command": ["true"]})).await?;
    let used = processor_time(&server, data.path())?.saturating_sub(before);
    let measured = format!(
        "{:.0}/s, {:.2} ms of processor time each",
        pods as f64 / took.as_secs_f64(),
        used.as_secs_f64() * 1e3 / pods as f64
    );
    row(&format!("{what}: tally, one Job, create to Complete"), "≥ 1,000/s", &measured);
    server.stop(STOP_PATIENCE)?;
    Ok(())
}

/// `None` if the tool is not there.
fn tool_rate(tool: &str, flags: &[&str], count: usize) -> Result<Option<f64>> {
    let begin = Instant::now();
    let mut child = match Command::new(tool).args(flags).stdin(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("start `{tool}`")),
    };
    let lines: String = (0..count).map(|number| format!("{number}\n")).collect();
    child.stdin.take().context("stdin is piped")?.write_all(lines.as_bytes())?;
    ensure!(child.wait()?.success(), "`{tool}` failed");
    Ok(Some(count as f64 / begin.elapsed().as_secs_f64()))
}

/// What a pod takes while it runs: in the server and in the nursery, which owns its process.
async fn cost(arguments: &Arguments) -> Result<()> {
    let data = directory()?;
    let mut server = Tally::start(&arguments.binary, data.path(), &[])?;
    let client = server.client().await?;
    // Others first, so that what is made once is there: the figure is what one more costs.
    let sleeps = json!({"command": ["sleep", "1000"]});
    let count = |pods: usize| json!({"completions": pods, "parallelism": pods});
    let others = arguments.running / 2;
    start_job(&client, "warm-up", count(others), &sleeps).await?;
    until_ready(&client, "warm-up", others).await?;
    let before = Usage::of(&server, data.path())?;
    start_job(&client, "cost", count(arguments.running), &sleeps).await?;
    until_ready(&client, "cost", arguments.running).await?;
    let after = Usage::of(&server, data.path())?;
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / arguments.running as f64;
    let memory = each(before.memory, after.memory) / 1e3;
    row("memory a running pod costs, tally and nursery", "≤ 64 kB", &format!("{memory:.1} kB"));
    let files = each(before.files, after.files);
    row("file descriptors a running pod costs, tally and nursery", "≤ 3", &format!("{files:.2}"));
    let sleepers = Api::<Job>::default_namespaced(client);
    // Without a policy the pods of a Job would be left alone.
    sleepers.delete("cost", &DeleteParams::background()).await?;
    sleepers.delete("warm-up", &DeleteParams::background()).await?;
    let deadline = Instant::now() + PATIENCE;
    while children(nursery(data.path())).is_some_and(|count| count > 0) {
        ensure!(Instant::now() < deadline, "pods of deleted Jobs go on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop(STOP_PATIENCE)?;
    Ok(())
}

async fn first_job(arguments: &Arguments) -> Result<()> {
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let data = directory()?;
        let begin = Instant::now();
        let mut server = Tally::start(&arguments.binary, data.path(), &[])?;
        let client = server.client().await?;
        run_job(&client, "first", json!({}), &json!({"command": ["true"]})).await?;
        took.push(begin.elapsed());
        server.stop(STOP_PATIENCE)?;
    }
    took.sort();
    let measured = format!("{:.0?}, worst of {STARTS} {:.0?}", took[STARTS / 2], took[STARTS - 1]);
    row("start of tally to first Job Complete (median)", "≤ 300 ms", &measured);
    Ok(())
}

/// How soon somebody who runs a Job sees what it says.
fn first_line(arguments: &Arguments) -> Result<()> {
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let begin = Instant::now();
        let mut command = Command::new(&arguments.binary);
        command.args(["run", "--quiet", "--", "echo", "hello"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start `tally run`")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
        took.push(begin.elapsed());
        ensure!(child.wait()?.success() && line.ends_with("] hello\n"), "`tally run` says {line:?}");
    }
    took.sort();
    let measured = format!("{:.0?}, worst of {STARTS} {:.0?}", took[STARTS / 2], took[STARTS - 1]);
    row("start of `tally run` to the first line of a log (median)", "≤ 500 ms", &measured);
    Ok(())
}

async fn simulated(arguments: &Arguments) -> Result<()> {
    let data = directory()?;
    let mut server = Tally::start(&arguments.binary, data.path(), &["--node", "simulated"])?;
    let client = server.client().await?;
    let pods = arguments.simulated;
    let begin = Instant::now();
    start_job(&client, "live", json!({"completions": pods, "parallelism": pods}), &json!({"command": ["true"]}))
        .await?;
    until_ready(&client, "live", pods).await?;
    let took = begin.elapsed();
    row(&format!("{pods} simulated pods, create to all ready"), "", &format!("{took:.1?}"));
    let measured = megabytes(memory(server.pid())?);
    row(&format!("memory with {pods} live simulated pods"), "≤ 600 MB", &measured);
    server.stop(STOP_PATIENCE)?;
    Ok(())
}

fn directory() -> Result<TempDir> {
    tempfile::Builder::new().prefix("tally-figures-").tempdir().context("make a data directory")
}

async fn start_job(client: &Client, name: &str, mut spec: Value, container: &Value) -> Result<String> {
    let mut container = container.clone();
    container["name"] = json!("main");
    container["image"] = json!("unused");
    spec["template"] = json!({
        // Only a simulated node reads this.
        "metadata": {"annotations": {"tally.dev/simulate-duration": "forever"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    });
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let created = jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await.context("create the Job")?;
    created.resource_version().context("a Job without a version")
}

/// From sending the Job to hearing that it is complete.
async fn run_job(client: &Client, name: &str, spec: Value, container: &Value) -> Result<Duration> {
    let begin = Instant::now();
    let version = start_job(client, name, spec, container).await?;
    let is_complete = |job: &Job| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|it| it.type_ == "Complete" && it.status == "True")
    };
    watch(client, name, &version, is_complete).await?;
    Ok(begin.elapsed())
}

async fn until_ready(client: &Client, name: &str, pods: usize) -> Result<()> {
    let wanted = i32::try_from(pods)?;
    watch(client, name, "0", |job| job.status.as_ref().is_some_and(|status| status.ready == Some(wanted))).await
}

async fn watch(client: &Client, name: &str, version: &str, is_reached: impl Fn(&Job) -> bool) -> Result<()> {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut version = version.to_owned();
    loop {
        let mut events = Box::pin(jobs.watch(&parameters, &version).await?);
        while let Some(event) =
            tokio::time::timeout_at(deadline, events.try_next()).await.context("it takes too long")??
        {
            if let WatchEvent::Added(job) | WatchEvent::Modified(job) = event {
                if is_reached(&job) {
                    return Ok(());
                }
                version = job.resource_version().context("a Job without a version")?;
            }
        }
    }
}

/// What server and nursery use together.
struct Usage {
    memory: u64,
    files: u64,
}

impl Usage {
    fn of(server: &Tally, data: &Path) -> Result<Self> {
        let mut usage = Self { memory: 0, files: 0 };
        for pid in [Some(server.pid()), nursery(data)].into_iter().flatten() {
            usage.memory += memory(pid)?;
            usage.files += fs::read_dir(format!("/proc/{pid}/fd")).context("count files")?.count() as u64;
        }
        Ok(usage)
    }
}

/// Resident memory in bytes.
fn memory(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read `{path}`"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().context("read VmRSS")?;
    Ok(kilobytes << 10)
}

/// Processor time of server, nursery and the processes that the nursery has waited for.
fn processor_time(server: &Tally, data: &Path) -> Result<Duration> {
    let mut ticks = 0;
    for pid in [Some(server.pid()), nursery(data)].into_iter().flatten() {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("read `{path}`"))?;
        let (_, rest) = stat.rsplit_once(')').context("a process without a name")?;
        let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        // utime, stime, cutime, cstime.
        ticks += fields.get(11..15).map_or(0, |times| times.iter().sum());
    }
    Ok(Duration::from_millis(ticks * 10))
}

/// The process that owns the containers, by its command line.
fn nursery(data: &Path) -> Option<u32> {
    let node = data.join("node").into_os_string().into_encoded_bytes();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        line.split(|byte| *byte == 0).any(|word| word == node).then_some(pid)
    })
}

fn children(pid: Option<u32>) -> Option<usize> {
    let pid = pid?;
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Some(list.split_whitespace().count())
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn row(measure: &str, bar: &str, measured: &str) {
    println!("| {measure} | {bar} | {measured} |");
}
