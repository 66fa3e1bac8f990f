//! A data directory that is put back as it was some time ago (P-10).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Api, Client};
use serde_json::json;
use testkit::Tally;

const PATIENCE: Duration = Duration::from_secs(60);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tally"))
}

fn job(name: &str, script: &str) -> Job {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]}]}}},
    }))
    .expect("a Job")
}

async fn until(jobs: &Api<Job>, name: &str, condition: impl Condition<Job>) {
    let seen = tokio::time::timeout(PATIENCE, await_condition(jobs.clone(), name, condition)).await;
    seen.expect("the Job goes on").expect("the Job can be watched");
}

async fn create(client: &Client, job: &Job) -> Api<Job> {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), job).await.expect("create the Job");
    jobs
}

async fn completed(jobs: &Api<Job>, name: &str) -> Job {
    until(jobs, name, conditions::is_job_completed()).await;
    jobs.get(name).await.expect("the Job")
}

/// Everything, with its modes and whatever is no ordinary file.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().expect("run cp");
    assert!(status.success(), "{status}");
}

/// What was done since is unknown and can be done again; what ran then and has ended since is noticed to be gone, and its
/// Job goes on; what had ended by then stays as it was.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_the_data_is_taken_up_where_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup) = (dir.path().join("data"), dir.path().join("backup"));
    let gate = dir.path().join("gate");
    let mut server = Tally::start(binary(), &data, &[]).unwrap();
    let client = server.client().await.unwrap();
    let jobs = create(&client, &job("before", "exit 0")).await;
    let before = completed(&jobs, "before").await;
    let waits = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    create(&client, &job("across", &waits)).await;
    let runs =
        |job: Option<&Job>| job.is_some_and(|job| job.status.as_ref().and_then(|status| status.ready) == Some(1));
    until(&jobs, "across", runs).await;
    assert!(server.stop(PATIENCE).unwrap().success());
    copy(&data, &backup);

    let mut server = Tally::start(binary(), &data, &[]).unwrap();
    let client = server.client().await.unwrap();
    fs::write(&gate, "").unwrap();
    let jobs = create(&client, &job("after", "exit 0")).await;
    completed(&jobs, "across").await;
    completed(&jobs, "after").await;
    jobs.delete("before", &DeleteParams::background()).await.unwrap();
    assert!(server.stop(PATIENCE).unwrap().success());
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&backup, &data).unwrap();

    let server = Tally::start(binary(), &data, &[]).unwrap();
    let client = server.client().await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    assert_eq!(jobs.get("before").await.unwrap(), before);
    assert!(jobs.get_opt("after").await.unwrap().is_none());
    create(&client, &job("after", "exit 0")).await;
    for (name, failed) in [("across", Some(1)), ("after", None)] {
        let status = completed(&jobs, name).await.status.unwrap();
        assert_eq!((status.succeeded, status.failed), (Some(1), failed), "{name}");
    }
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let tracked: Vec<_> = pods.iter().filter(|pod| pod.metadata.finalizers.is_some()).collect();
    assert!(tracked.is_empty(), "{tracked:?}");
    assert_eq!(pods.len(), 4, "one of each, and one that was lost");
}
