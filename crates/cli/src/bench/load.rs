//! Makes Jobs and waits until all are complete.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;

use super::calls::OwnCalls;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::job_view::{JobView, Outcome};

/// Creates on their way at the same time.
const CREATES_MAX: usize = 16;

/// The label by which the load's Jobs are told from the probes'.
pub(super) const PART: &str = "tally.dev/bench";

/// The label by which everything of one run is told from all others'.
pub(super) const RUN: &str = "tally.dev/bench-run";

/// A scheduler that does not exist.
const NOBODY: &str = "tally-bench-nobody";

/// What to make, and where.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) cluster: Cluster,
    pub(super) namespace: String,
    /// Tells this run's Jobs from all others'.
    pub(super) run: String,
    pub(super) jobs: u32,
    pub(super) completions: u32,
    pub(super) parallelism: u32,
    pub(super) image: String,
    /// Nodes shall leave the pods alone.
    pub(super) is_finished_here: bool,
    pub(super) calls: OwnCalls,
}

impl Load {
    /// From the creation of each Job to its completion, as seen from here.
    pub(super) async fn run(&self) -> Result<Vec<Duration>, Failure> {
        let api: Api<Job> = Api::namespaced(self.cluster.client.clone(), &self.namespace);
        let config = watcher::Config::default().labels(&self.selector("load"));
        let mut events = watcher(api.clone(), config).default_backoff().boxed();
        let mut created: HashMap<String, Instant> = HashMap::new();
        let create = async |number: u32| {
            let name = self.name("load", number.into());
            let job = self.job(&name, "load", self.completions, self.parallelism)?;
            let begin = Instant::now();
            self.calls.count("create");
            api.create(&PostParams::default(), &job).await.map_err(|error| self.refused(error))?;
            self.calls.answered();
            Ok::<_, Failure>((name, begin))
        };
        let mut creates = Box::pin(stream::iter(0..self.jobs).map(create).buffer_unordered(CREATES_MAX));
        let (mut times, mut ended) = (Vec::new(), HashMap::<String, Instant>::new());
        while times.len() < self.jobs as usize {
            tokio::select! {
                made = creates.try_next(), if created.len() < self.jobs as usize => {
                    if let Some((name, begin)) = made? {
                        // The watch may have been faster than the answer.
                        if let Some(end) = ended.get(&name) {
                            times.push(end.duration_since(begin));
                        }
                        created.insert(name, begin);
                    }
                }
                Some(event) = events.next() => {
                    let Ok(Event::Apply(job) | Event::InitApply(job)) = event else { continue };
                    let view = JobView::of(&job);
                    match view.outcome {
                        None => {}
                        Some(Outcome::Complete) => match created.get(&view.name) {
                            Some(begin) => {
                                let end = Instant::now();
                                if ended.insert(view.name, end).is_none() {
                                    times.push(end.duration_since(*begin));
                                }
                            }
                            None => {
                                ended.insert(view.name, Instant::now());
                            }
                        },
                        Some(failed) => return Err(failure(&view.name, &failed)),
                    }
                }
            }
        }
        Ok(times)
    }

    /// By which the Jobs of one part are found.
    pub(super) fn selector(&self, part: &str) -> String {
        format!("{RUN}={},{PART}={part}", self.run)
    }

    /// Free in a namespace where other runs have left theirs.
    pub(super) fn name(&self, part: &str, number: u64) -> String {
        format!("{part}-{}-{number}", self.run)
    }

    /// A Job of pods that succeed at once.
    pub(super) fn job(&self, name: &str, part: &str, completions: u32, parallelism: u32) -> Result<Job, Failure> {
        let mut pod = json!({
            "metadata": {"labels": {PART: part, RUN: self.run}},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": self.image, "command": ["true"]}]},
        });
        if self.is_finished_here {
            pod["spec"]["schedulerName"] = json!(NOBODY);
        }
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": {PART: part, RUN: self.run}},
            "spec": {
                "completions": completions, "parallelism": parallelism, "completionMode": "Indexed", "template": pod,
            },
        });
        serde_json::from_value(job).map_err(|error| Failure::new(anyhow!(error).context("make a Job")))
    }

    /// Why a Job could not be created.
    pub(super) fn refused(&self, error: kube::Error) -> Failure {
        let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
        let failure = self.cluster.failure(error, "create a Job");
        match code {
            403 => failure.hint("the credentials must be allowed to create Jobs, and quota must have room for them"),
            404 => failure.hint(format!("make the namespace first: `kubectl create namespace {}`", self.namespace)),
            _ => failure,
        }
    }
}

pub(super) fn failure(name: &str, outcome: &Outcome) -> Failure {
    Failure::new(anyhow!("job/{name} failed: {}", outcome.why()))
        .hint("keep it with `--keep` and look into it with `tally why`")
}
