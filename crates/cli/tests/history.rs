//! What is left of Jobs when they are gone, and why others wait: `tally history`, `tally logs --from-history`, `tally why`
//! against a real `tally up`.

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

#[tokio::test(flavor = "multi_thread")]
async fn why_answers_about_jobs_pods_and_cron_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &[]).unwrap();
    let client = server.client().await.unwrap();
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let why = |subject: &str| stdout(&tally(&["why", subject, "--kubeconfig", kubeconfig]));

    let jobs = create(&client, &job("held", json!({"suspend": true}), "true")).await;
    until("the suspension", async || why("job/held").contains("condition Suspended is True").then_some(())).await;
    assert!(why("held").starts_with("job/held: It is suspended: `spec.suspend` is true.\n"), "{}", why("held"));

    create(&client, &job("sleeper", json!({"activeDeadlineSeconds": 3600}), "sleep 600")).await;
    until("the start", async || {
        why("job/sleeper").starts_with("job/sleeper: It runs: 1 pod is running.").then_some(())
    })
    .await;
    let json = stdout(&tally(&["why", "job/sleeper", "-o", "json", "--kubeconfig", kubeconfig]));
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&answer["kind"], &answer["state"]), (&json!("Job"), &json!("Running")));
    assert!(answer["next"][0]["what"].as_str().unwrap().starts_with("activeDeadlineSeconds (1h)"), "{answer}");

    let mut missing = job("needs", json!({}), "true");
    let containers = &mut missing.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers;
    containers[0].env_from =
        serde_json::from_value(json!([{"configMapRef": {"name": "settings"}}])).expect("a reference");
    create(&client, &missing).await;
    let text = until("the complaint", async || {
        let text = why("job/needs");
        text.contains("cannot start").then_some(text)
    })
    .await;
    assert!(text.contains("CreateContainerConfigError: configmap \"settings\" not found"), "{text}");

    let cron: Value = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "yearly"}, "spec": {
        "schedule": "0 0 31 2 *", "jobTemplate": {"spec": job("x", json!({}), "true").spec}}});
    let cron_jobs: Api<k8s_openapi::api::batch::v1::CronJob> = Api::default_namespaced(client.clone());
    cron_jobs.create(&PostParams::default(), &serde_json::from_value(cron).unwrap()).await.unwrap();
    assert!(why("cronjob/yearly").contains("no date ever matches"), "{}", why("cronjob/yearly"));
    delete(&jobs, "sleeper").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_exist_gets_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &["--node", "none"]).unwrap();
    let client = server.client().await.unwrap();
    create(&client, &job("render-frames", json!({}), "true")).await;
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let hint = |arguments: &[&str]| {
        let output = tally(&[&["why", "--kubeconfig", kubeconfig], arguments].concat());
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.starts_with("error: there is no "), "{stderr}");
        stderr.lines().find_map(|line| line.strip_prefix("hint: ")).expect("a hint").to_owned()
    };
    assert_eq!(hint(&["job/render-frame"]), "did you mean `tally why job/render-frames`?");
    let elsewhere = hint(&["job/render-frames", "-n", "kube-system"]);
    assert_eq!(elsewhere, "there is one in namespace `default`: add `-n default`");
    assert_eq!(hint(&["job/other"]), "if it was deleted, its runs may be on record: `tally history job/other`");
    let pending = until("the pod", async || {
        let text = stdout(&tally(&["why", "job/render-frames", "--kubeconfig", kubeconfig]));
        text.contains("the cluster has no node").then_some(text)
    })
    .await;
    assert!(pending.contains("--node none"), "{pending}");
}

async fn post(client: &Client, path: &str, object: Value) -> Value {
    let body = serde_json::to_vec(&object).expect("JSON");
    let request = http::Request::post(path).header("content-type", "application/json").body(body).expect("a request");
    client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Most people may not list everything; the answer is as good as it can be, and says what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn why_does_without_what_may_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &["--node", "none"]).unwrap();
    let client = server.client().await.unwrap();
    let jobs = create(&client, &job("pi", json!({}), "true")).await;
    until("the pod", async || (jobs.get("pi").await.ok()?.status?.active == Some(1)).then_some(())).await;

    let (core, rbac) = ("/api/v1/namespaces/default", "/apis/rbac.authorization.k8s.io/v1/namespaces/default");
    post(&client, &format!("{core}/serviceaccounts"), json!({"metadata": {"name": "reader"}})).await;
    let rules = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]);
    post(&client, &format!("{rbac}/roles"), json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
    });
    post(&client, &format!("{rbac}/rolebindings"), binding).await;
    let token = post(&client, &format!("{core}/serviceaccounts/reader/token"), json!({"spec": {}})).await;
    let token = token["status"]["token"].as_str().expect("a token");
    let own = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let lines = own.lines().map(|line| match line.split_once("token: ") {
        Some((indent, _)) => format!("{indent}token: {token}\n"),
        None => format!("{line}\n"),
    });
    let reader = dir.path().join("reader");
    std::fs::write(&reader, lines.collect::<String>()).unwrap();

    let text = stdout(&tally(&["why", "job/pi", "--kubeconfig", reader.to_str().unwrap()]));
    assert!(text.starts_with("job/pi: It runs: 1 pod is active.\n"), "{text}");
    let (_, unseen) = text.split_once("\ncould not see:\n").expect("what could not be seen");
    for kind in ["pods", "events", "nodes"] {
        let line = format!("  {kind}: {kind} is forbidden: User \"system:serviceaccount:default:reader\" cannot list");
        assert!(unseen.contains(&line), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_quota_that_refuses_pods() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &["--node", "none"]).unwrap();
    let client = server.client().await.unwrap();
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}});
    post(&client, "/api/v1/namespaces/default/resourcequotas", quota).await;
    let used = "/api/v1/namespaces/default/resourcequotas/small";
    until("the quota's first count", async || {
        let request = http::Request::get(used).body(Vec::new()).expect("a request");
        let quota: Value = client.request(request).await.ok()?;
        quota["status"]["used"]["pods"].is_string().then_some(())
    })
    .await;
    create(&client, &job("pi", json!({}), "true")).await;
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let text = until("the refusal", async || {
        let text = stdout(&tally(&["why", "job/pi", "--kubeconfig", kubeconfig]));
        text.contains("cannot be created").then_some(text)
    })
    .await;
    assert!(text.starts_with("job/pi: 1 pod cannot be created: quota `small` refuses it: "), "{text}");
    assert!(text.contains("  resourcequota/small: pods 0 of 0 used\n"), "{text}");
}

#[test]
fn a_server_that_does_not_answer_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    std::fs::write(&config, text).unwrap();
    let output = tally(&["why", "job/x", "--kubeconfig", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("error: reach http://127.0.0.1:1\n"), "{stderr}");
    assert!(stderr.contains("\nhint: is the server running?"), "{stderr}");
}
