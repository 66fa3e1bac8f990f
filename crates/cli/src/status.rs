//! `tally status`: whether a tally runs on a data directory, and how much it has to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Client};
use serde::Serialize;
use tokio::runtime;
use tokio::time::timeout;

use crate::cluster;
use crate::data_dir;
use crate::environment::Environment;
use crate::failure::{Failure, plain};
use crate::instance::{self, Instance};
use crate::job_view::{JobView, Outcome};
use crate::kubeconfig::server_url;
use crate::output::{Format, say};
use crate::pod_view::PodObject;
use crate::text::duration_text;

/// A server on this machine that takes longer is in trouble.
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects are counted in pages of so many, so that a million pods need no more memory than a page.
const PAGE: u32 = 1000;

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The data directory [default: tally/ in the user's data directory].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// What is known about a running tally.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    running: bool,
    pid: i32,
    server: String,
    version: &'a str,
    data: &'a Path,
    kubeconfig: &'a Path,
    uptime_seconds: i64,
    jobs: BTreeMap<&'static str, u64>,
    pods: BTreeMap<String, u64>,
}

pub(crate) fn run(options: &Status, environment: &Environment) -> Result<(), Failure> {
    let data = data_dir::choose(options.data.as_deref(), environment)?;
    let Some(instance) = instance::running(&data)? else {
        if options.output == Format::Json {
            say(&format!("{}\n", serde_json::json!({ "running": false, "data": data })))?;
        }
        return Err(cluster::not_running(&data, environment));
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("start the async runtime")?;
    let report = runtime.block_on(ask(&data, &instance, environment))?;
    say(&match options.output {
        Format::Json => serde_json::to_string_pretty(&report).context("write the report")? + "\n",
        Format::Text => text(&report),
    })
}

async fn ask<'a>(data: &'a Path, instance: &'a Instance, environment: &Environment) -> Result<Report<'a>, Failure> {
    let flag = data_dir::flag(data, environment);
    let hint = format!("see `tally.log` in the data directory, or end it with `tally down{flag}`");
    let (client, _) = cluster::connect(Some(&instance.kubeconfig), environment).await?;
    let counts = async { Ok((count_jobs(&client).await?, count_pods(&client).await?)) };
    let (jobs, pods) = timeout(PATIENCE, counts)
        .await
        .map_err(|_| anyhow!("process {} does not answer within {PATIENCE:?}", instance.pid))
        .and_then(|counted| counted.map_err(|error| plain(error).context("ask the server")))
        .map_err(|error| Failure::new(error).hint(hint))?;
    Ok(Report {
        running: true,
        pid: instance.pid,
        server: server_url(instance.address),
        version: &instance.version,
        data,
        kubeconfig: &instance.kubeconfig,
        uptime_seconds: Timestamp::now().duration_since(instance.started_at).as_secs(),
        jobs,
        pods,
    })
}

async fn count_jobs(client: &Client) -> kube::Result<BTreeMap<&'static str, u64>> {
    let mut counts = BTreeMap::from([("active", 0), ("complete", 0), ("failed", 0), ("suspended", 0)]);
    let jobs: Api<Job> = Api::all(client.clone());
    let mut count = |job: Job| {
        let suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        let word = match JobView::of(&job).outcome {
            Some(Outcome::Complete) => "complete",
            Some(Outcome::Failed { .. }) => "failed",
            None if suspended => "suspended",
            None => "active",
        };
        *counts.entry(word).or_default() += 1;
    };
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = jobs.list(&page).await?;
        let next = next_page(&page, &list);
        list.items.into_iter().for_each(&mut count);
        match next {
            Some(next) => page = next,
            None => return Ok(counts),
        }
    }
}

async fn count_pods(client: &Client) -> kube::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    let pods: Api<PodObject> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = pods.list(&page).await?;
        let next = next_page(&page, &list);
        for pod in list.items {
            *counts.entry(pod.status.phase.to_ascii_lowercase()).or_default() += 1;
        }
        match next {
            Some(next) => page = next,
            None => return Ok(counts),
        }
    }
}

fn next_page<K: Clone>(page: &ListParams, list: &ObjectList<K>) -> Option<ListParams> {
    let token = list.metadata.continue_.as_deref().filter(|token| !token.is_empty())?;
    Some(page.clone().continue_token(token))
}

fn text(report: &Report<'_>) -> String {
    let counts = |pairs: Vec<(&str, u64)>| {
        let total: u64 = pairs.iter().map(|(_, count)| count).sum();
        let parts: Vec<String> =
            pairs.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
        if parts.is_empty() { "none".to_owned() } else { format!("{total} ({})", parts.join(", ")) }
    };
    let uptime = Duration::from_secs(report.uptime_seconds.max(0).unsigned_abs());
    format!(
        "\
running     process {}, {} at {}
up for      {}
data        {}
kubeconfig  {}
Jobs        {}
pods        {}
",
        report.pid,
        report.version,
        report.server,
        duration_text(uptime),
        report.data.display(),
        report.kubeconfig.display(),
        counts(report.jobs.iter().map(|(word, count)| (*word, *count)).collect()),
        counts(report.pods.iter().map(|(word, count)| (word.as_str(), *count)).collect()),
    )
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn counts_that_are_zero_are_not_read_out() {
        let report = Report {
            running: true,
            pid: 7,
            server: "https://127.0.0.1:6443".to_owned(),
            version: "v0.1.0",
            data: Path::new("/data"),
            kubeconfig: Path::new("/data/kubeconfig"),
            uptime_seconds: 3723,
            jobs: BTreeMap::from([("active", 2), ("complete", 0), ("failed", 1)]),
            pods: BTreeMap::new(),
        };
        expect![[r"
            running     process 7, v0.1.0 at https://127.0.0.1:6443
            up for      1h2m3s
            data        /data
            kubeconfig  /data/kubeconfig
            Jobs        3 (2 active, 1 failed)
            pods        none
        "]]
        .assert_eq(&text(&report));
    }
}
