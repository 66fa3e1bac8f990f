//! A server with a node of its own, and what tests do with it.

use std::fs;

use k8s_openapi::api::batch::v1::Job;
use kube::api::PostParams;
use kube::{Api, Client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::Tally;

use super::{Ran, Sandbox};

/// A server with a node, and commands that are pointed at it.
pub struct World {
    pub sandbox: Sandbox,
    pub server: Tally,
    pub client: Client,
}

impl World {
    /// One that loses no time between failures.
    pub async fn new() -> Self {
        Self::with(&["--pod-failure-backoff", "10ms", "--job-sync-batch-period", "10ms"]).await
    }

    /// One with these flags.
    pub async fn with(flags: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let data = sandbox.path().join("data");
        let server = Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, flags).expect("a server");
        let client = server.client().await.expect("a server");
        Self { sandbox, server, client }
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        let kubeconfig = self.server.kubeconfig().to_str().expect("a plain path");
        self.sandbox.run(&[arguments, &["--kubeconfig", kubeconfig]].concat())
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create(&self, name: &str, spec: Value, script: &str) {
        let mut spec = spec;
        spec["template"] = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": "none", "command": ["sh", "-c", script]}]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
        let job: Job = serde_json::from_value(job).expect("a Job");
        self.jobs().create(&PostParams::default(), &job).await.expect("an answer");
    }

    /// Creates whatever it is below a path of the API.
    pub async fn post(&self, path: &str, object: Value) -> Value {
        let body = serde_json::to_vec(&object).expect("JSON");
        let request = http::Request::post(path).header("content-type", "application/json").body(body);
        let answer = self.client.request(request.expect("a request")).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub async fn status(&self, name: &str) -> Value {
        serde_json::to_value(self.jobs().get(name).await.expect("an answer").status).expect("an answer")
    }
}

/// Processes of pods outlive a server that is killed; those of a test must not.
impl Drop for World {
    fn drop(&mut self) {
        let node = self.sandbox.path().join("data/node");
        let nursery = format!("__nursery\0{}\0", node.display());
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_it = fs::read_to_string(process.path().join("cmdline")).is_ok_and(|line| line.ends_with(&nursery));
            let number = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            if let Some(pid) = number.filter(|_| is_it) {
                // What it has started ends with it.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// A Job of so many indexes, each of which may fail once.
pub fn indexed(completions: i32) -> Value {
    json!({"completions": completions, "parallelism": completions, "completionMode": "Indexed",
        "backoffLimitPerIndex": 0})
}
