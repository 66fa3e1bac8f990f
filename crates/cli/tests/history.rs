//! What is left of Jobs when they are gone: `tally history` and `tally logs --from-history` beside a real `tally up`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::Tally;

const PATIENCE: Duration = Duration::from_secs(60);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tally"))
}

fn tally(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).env_remove("RUST_LOG").env_remove("KUBECONFIG").output().expect("run tally")
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn job(name: &str, spec: Value, script: &str) -> Job {
    let mut job = json!({
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]}]}}},
    });
    for (key, value) in spec.as_object().expect("an object") {
        job["spec"][key] = value.clone();
    }
    serde_json::from_value(job).expect("a Job")
}

async fn create(client: &Client, job: &Job) -> Api<Job> {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), job).await.expect("create the Job");
    jobs
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn finished(jobs: &Api<Job>, name: &str) {
    until("the end of the Job", async || {
        let status = jobs.get(name).await.ok()?.status?;
        let ends = ["Complete", "Failed"];
        status.conditions?.iter().any(|it| ends.contains(&it.type_.as_str()) && it.status == "True").then_some(())
    })
    .await;
}

async fn delete(jobs: &Api<Job>, name: &str) {
    let parameters =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    jobs.delete(name, &parameters).await.expect("delete the Job");
    until("the Job's deletion", async || jobs.get_opt(name).await.ok()?.is_none().then_some(())).await;
}

fn records(data: &Path, more: &[&str]) -> Vec<Value> {
    let data = data.to_str().expect("a path");
    let text = stdout(&tally(&[&["history", "--data", data, "-o", "json"], more].concat()));
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["items"].as_array().expect("items").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_job_ended_and_what_it_said_outlives_the_job_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Tally::start(binary(), &data, &[]).unwrap();
    let client = server.client().await.unwrap();
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 6});
    let script = r#"echo "piece $JOB_COMPLETION_INDEX"; test "$JOB_COMPLETION_INDEX" != 1 || exit 42"#;
    let failing = job("pieces", with_policy(spec), script);
    let jobs = create(&client, &failing).await;
    finished(&jobs, "pieces").await;
    let uid = jobs.get("pieces").await.unwrap().metadata.uid.unwrap();
    delete(&jobs, "pieces").await;

    // The server still runs: reading needs nobody's leave.
    let failed = records(&data, &["job/pieces", "--failed", "--index", "1"]);
    assert_eq!(failed.len(), 1, "{failed:?}");
    let record = &failed[0];
    assert_eq!(record["exitCode"], 42);
    assert_eq!(record["reason"], "Error");
    assert_eq!((&record["jobName"], &record["jobUid"]), (&json!("pieces"), &json!(uid)));
    assert_eq!((&record["index"], &record["attempt"], &record["container"]), (&json!(1), &json!(1), &json!("main")));
    for field in ["podName", "podUid", "node", "startedAt", "finishedAt", "recordedAt"] {
        assert!(record[field].is_string(), "{field}: {record}");
    }
    server.kill().unwrap();

    // Nothing runs any more, and the process had no chance to tidy up.
    assert_eq!(records(&data, &["job/pieces", "--failed"]), failed);
    let path = data.to_str().unwrap();
    let log = stdout(&tally(&["logs", "--from-history", "job/pieces", "--index", "1", "--failed", "--data", path]));
    assert_eq!(log, "[pieces/1] piece 1\n");
    let table = stdout(&tally(&["history", "job/pieces", "--failed", "--data", path]));
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["ENDED", "JOB", "INDEX", "ATTEMPT", "EXIT", "REASON", "DURATION", "POD"]);
    assert!(table.lines().nth(1).unwrap().contains("pieces   1       1         42     Error"), "{table}");

    // The next server goes on with the same history.
    let server = Tally::start(binary(), &data, &[]).unwrap();
    let jobs = create(&server.client().await.unwrap(), &job("again", json!({}), "echo more")).await;
    finished(&jobs, "again").await;
    assert_eq!(records(&data, &["job/again"]).len(), 1);
    assert_eq!(records(&data, &["job/pieces", "--failed"]), failed);
}

/// Exit code 42 ends the Job at once, so that the test does not wait for a retry.
fn with_policy(mut spec: Value) -> Value {
    spec["podFailurePolicy"] =
        json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_cannot_start_are_on_record_too() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &[]).unwrap();
    let mut bad = job("bad", json!({}), "");
    let containers = &mut bad.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers;
    containers[0].command = Some(vec!["/no/such/program".to_owned()]);
    let jobs = create(&server.client().await.unwrap(), &bad).await;
    finished(&jobs, "bad").await;
    let records = records(dir.path(), &["job/bad"]);
    assert_eq!(records.len(), 1);
    assert_eq!((&records[0]["exitCode"], &records[0]["reason"]), (&json!(128), &json!("StartError")));
    assert!(records[0]["message"].as_str().unwrap().contains("/no/such/program"), "{records:?}");
    let why = stdout(&tally(&["why", "job/bad", "--kubeconfig", server.kubeconfig().to_str().unwrap()]));
    assert!(why.starts_with("job/bad: It failed: 1 pod failed, more than backoffLimit 0 allows."), "{why}");
    assert!(why.contains("(StartError)") && why.contains("correct the container's `command`"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_it_there_is_no_history() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &["--history-max-bytes", "0"]).unwrap();
    let jobs = create(&server.client().await.unwrap(), &job("quick", json!({}), "true")).await;
    finished(&jobs, "quick").await;
    let output = tally(&["history", "--data", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).replace(&dir.path().display().to_string(), "DIR");
    assert_eq!(
        stderr,
        "error: there is no history in `DIR/history`\n\n\
         hint: `tally up` keeps one in its data directory; say which with `--data DIR`\n"
    );
}
