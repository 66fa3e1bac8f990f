//! Kills `tally up` while it runs Jobs of real processes: whatever the moment, every pod's command runs once and to its
//! end, the Job's counters are exact, no index completes twice, and nothing is left behind (INV-49, INV-50, REG-H08).
//!
//! Every process writes its beginning and its end to a ledger, so that what happened is known without asking the server.
//! Some indexes fail the first time. In some rounds the nursery is killed too, which takes the processes along: then
//! pods may be lost, but must be reported as that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use testkit::Tally;
use tokio::time::sleep;

use crate::ledger::{Ledger, Run};
use crate::random::Random;
use crate::traces;

const PARALLELISM: u32 = 50;
/// Kills come at a random moment up to this after the server is ready: before, during and after most of the work.
const LIFE_MILLIS_MAX: u64 = 1500;
/// How long nobody may be there between a kill and the next start.
const ABSENCE_MILLIS_MAX: u64 = 300;
const KILLS_MAX: u64 = 3;
/// A round takes seconds; what takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// What was done so far.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) kills: u64,
    pub(crate) pods: usize,
    pub(crate) lost: usize,
}

#[derive(Debug)]
pub(crate) struct PodSoak {
    binary: PathBuf,
    scratch: PathBuf,
    completions: u32,
    random: Random,
    pub(crate) totals: Totals,
}

impl PodSoak {
    pub(crate) fn new(binary: &Path, scratch: &Path, completions: u32, seed: u64) -> Self {
        let (binary, scratch) = (binary.to_owned(), scratch.to_owned());
        Self { binary, scratch, completions, random: Random::new(seed), totals: Totals::default() }
    }

    /// One Job from creation to removal, with kills in between.
    pub(crate) async fn round(&mut self, number: u32) -> Result<()> {
        let name = format!("soak-{number}");
        let ledger = self.scratch.join(&name);
        fs::create_dir(&ledger).context("make a directory for the ledger")?;
        let mut server = self.start()?;
        let mut client = server.client().await?;
        // Every other Job mounts a volume, so that there are mounts to leave behind.
        let job = job(&name, self.completions, &ledger, number.is_multiple_of(2))?;
        Api::default_namespaced(client.clone()).create(&PostParams::default(), &job).await.context("create the Job")?;
        let takes_nursery_along = number.is_multiple_of(5);
        for _ in 0..=self.random.below(KILLS_MAX) {
            sleep(Duration::from_millis(self.random.below(LIFE_MILLIS_MAX))).await;
            server = self.kill_and_restart(server, takes_nursery_along).await?;
            client = server.client().await?;
        }
        let status = completed(&client, &name).await?;
        self.check(&client, &name, &status, &ledger, takes_nursery_along).await?;
        remove(&client, &name).await?;
        nothing_left(&self.data(), traces::of_pods).await?;
        let stopped = server.stop(PATIENCE)?;
        ensure!(stopped.success(), "the server stopped with {stopped}");
        nothing_left(&self.data(), traces::of_nursery).await
    }

    fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    fn start(&self) -> Result<Tally> {
        // A failed pod is replaced soon: the soak is about kills, not about back-off.
        Tally::start(&self.binary, &self.data(), &["--pod-failure-backoff", "50ms"])
    }

    async fn kill_and_restart(&mut self, server: Tally, takes_nursery_along: bool) -> Result<Tally> {
        let stderr = server.stderr();
        server.kill()?;
        ensure!(!stderr.contains("panicked at"), "the server panicked:\n{stderr}");
        if takes_nursery_along {
            traces::kill_nursery(&self.data())?;
        }
        self.totals.kills += 1;
        sleep(Duration::from_millis(self.random.below(ABSENCE_MILLIS_MAX))).await;
        self.start()
    }

    async fn check(
        &mut self,
        client: &Client,
        name: &str,
        status: &JobStatus,
        ledger: &Path,
        may_lose: bool,
    ) -> Result<()> {
        let selector = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pods = pods.list(&selector).await.context("list the pods")?.items;
        let ledger = Ledger::read(&ledger.join("ledger")).context("read the ledger")?;
        self.totals.pods += pods.len();
        let mut phases = BTreeMap::new();
        for pod in &pods {
            let ended = Ended::of(pod).with_context(|| format!("pod `{}`", pod.name_any()))?;
            *phases.entry(ended.phase).or_insert(0) += 1;
            self.totals.lost += usize::from(ended.is_lost);
            let run = ledger.run(&pod.uid().unwrap_or_default());
            ended.check(run, may_lose).with_context(|| format!("pod `{}`, ledger {run:?}", pod.name_any()))?;
        }
        ensure!(ledger.len() <= pods.len(), "{} processes ran for {} pods", ledger.len(), pods.len());
        let counted = |phase: &str| phases.get(phase).copied();
        ensure!(status.succeeded == counted("Succeeded"), "{:?} succeeded, pods {phases:?}", status.succeeded);
        ensure!(status.failed == counted("Failed"), "{:?} failed, pods {phases:?}", status.failed);
        let completions = i32::try_from(self.completions)?;
        ensure!(status.succeeded == Some(completions), "{:?} of {completions} indexes completed", status.succeeded);
        let all = format!("0-{}", completions - 1);
        ensure!(status.completed_indexes.as_deref() == Some(all.as_str()), "{:?}", status.completed_indexes);
        ensure!(status.active.unwrap_or(0) == 0 && status.terminating.unwrap_or(0) == 0, "{status:?}");
        ledger.check_completed_once(self.completions, may_lose)
    }
}

/// What the API says about the end of a pod.
#[derive(Debug)]
struct Ended<'a> {
    phase: &'a str,
    code: i32,
    is_lost: bool,
}

impl<'a> Ended<'a> {
    fn of(pod: &'a Pod) -> Result<Self> {
        let PodStatus { phase, container_statuses, .. } = pod.status.as_ref().context("no status")?;
        let phase = phase.as_deref().context("no phase")?;
        let state = container_statuses.iter().flatten().find_map(|status| status.state.as_ref());
        let Some(end) = state.and_then(|state| state.terminated.as_ref()) else {
            bail!("has not ended: {phase}, {state:?}")
        };
        let is_lost = end.reason.as_deref() == Some("ContainerStatusUnknown");
        Ok(Self { phase, code: end.exit_code, is_lost })
    }

    /// Against what the process itself wrote.
    fn check(&self, run: Option<&Run>, may_lose: bool) -> Result<()> {
        ensure!(self.phase == if self.code == 0 { "Succeeded" } else { "Failed" }, "{self:?}");
        ensure!(run.is_none_or(|run| run.begins == 1), "its command ran more than once");
        if self.is_lost {
            ensure!(may_lose, "was lost although its nursery lived");
            return Ok(());
        }
        let end = run.and_then(|run| run.end).context("its command did not run to its end")?;
        ensure!(end == self.code, "its command ended with {end}, the API says {}", self.code);
        Ok(())
    }
}

fn job(name: &str, completions: u32, ledger: &Path, with_volume: bool) -> Result<Job> {
    // One write to a file opened for appending is never torn by another. Every tenth index fails the first time.
    let script = format!(
        r#"cd {ledger}
say() {{ echo "$1 ${{TALLY_INSTANCE%%/*}} $JOB_COMPLETION_INDEX $2" >> ledger; }}
say begin -
sleep 0.0$((JOB_COMPLETION_INDEX % 10))
code=0
case $JOB_COMPLETION_INDEX in *7) mkdir failed-$JOB_COMPLETION_INDEX 2>/dev/null && code=3;; esac
say end $code
exit $code"#,
        ledger = ledger.display()
    );
    let mounts = if with_volume { json!([{"name": "scratch", "mountPath": "/scratch-of-soak"}]) } else { json!([]) };
    let volumes = if with_volume { json!([{"name": "scratch", "emptyDir": {}}]) } else { json!([]) };
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed", "completions": completions, "parallelism": PARALLELISM,
            "backoffLimit": 1_000_000,
            "template": {"spec": {
                "restartPolicy": "Never", "volumes": volumes,
                "containers": [
                    {"name": "c", "image": "unused", "command": ["sh", "-c", script], "volumeMounts": mounts},
                ],
            }},
        },
    });
    serde_json::from_value(job).context("make the Job")
}

/// The status of the Job once it is complete.
async fn completed(client: &Client, name: &str) -> Result<JobStatus> {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = jobs.get_status(name).await.context("read the Job")?.status.unwrap_or_default();
        let is = |kind: &str| status.conditions.iter().flatten().any(|it| it.type_ == kind && it.status == "True");
        if is("Complete") {
            return Ok(status);
        }
        ensure!(!is("Failed") && Instant::now() < deadline, "the Job does not complete: {status:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Deletes the Job and waits until its pods are gone.
async fn remove(client: &Client, name: &str) -> Result<()> {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.delete(name, &DeleteParams::background()).await.context("delete the Job")?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let deadline = Instant::now() + PATIENCE;
    while !pods.list_metadata(&ListParams::default().limit(1)).await.context("list the pods")?.items.is_empty() {
        ensure!(Instant::now() < deadline, "pods of a deleted Job stay");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// What is on its way out gets a moment.
async fn nothing_left(data: &Path, find: fn(&Path) -> Vec<String>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = find(data);
        if found.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left behind:\n{}", found.join("\n"));
        sleep(Duration::from_millis(50)).await;
    }
}
