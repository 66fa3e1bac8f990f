//! `tally controller` as a cluster meets it: whose Jobs it runs, how it stands by, what it says when it cannot work.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use controllers::job::access;
use expect_test::{Expect, expect};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::Tally;

const PATIENCE: Duration = Duration::from_secs(30);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tally"))
}

fn tally(arguments: &[&str]) -> Output {
    let environment = ["RUST_LOG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"];
    let mut command = Command::new(binary());
    for name in environment {
        command.env_remove(name);
    }
    command.args(arguments).output().expect("run tally")
}

fn check_failure(output: &Output, code: i32, stderr: Expect) {
    stderr.assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code));
    assert!(output.stdout.is_empty(), "failures print nothing on stdout");
}

/// A controller process. Dropping it kills it.
struct Controller(Child);

impl Controller {
    fn start(kubeconfig: &Path, more: &[&str]) -> Self {
        let child = Command::new(binary())
            .args(["controller", "--kube-api-qps", "0", "--kubeconfig"])
            .arg(kubeconfig)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start tally controller");
        Self(child)
    }

    /// Reads what it logs until this comes; what follows is read and forgotten. Everything up to there, or to its end.
    fn wait_log(&mut self, text: &'static str) -> String {
        let stderr = self.0.stderr.take().expect("stderr is piped, and nobody has read it");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let (mut all, deadline) = (String::new(), Instant::now() + PATIENCE);
        while !all.contains(text) {
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => all.extend([&line, "\n"]),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("`{text}` does not come within {PATIENCE:?}:\n{all}"),
            }
        }
        all
    }

    /// The line that says that it works.
    fn ready_line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        line
    }

    /// Asks it to end; says with what code it did.
    fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("a signal");
        self.0.wait().expect("its end").code()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(folder: &Path) -> Tally {
    Tally::start(binary(), folder, &["--controllers", "none", "--node", "none"]).expect("a server")
}

/// How a Job of three pods was counted: succeeded, failed; then its pods, and how many of them are still tracked.
async fn tally_of(client: &Client, name: &str) -> (i32, i32, usize, usize) {
    let (jobs, pods): (Api<Job>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let status = jobs.get(name).await.expect("the Job").status.expect("a status");
    let selector = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let pods = pods.list(&selector).await.expect("pods").items;
    let tracked = pods.iter().filter(|pod| !pod.metadata.finalizers.as_deref().unwrap_or_default().is_empty());
    (status.succeeded.unwrap_or(0), status.failed.unwrap_or(0), pods.len(), tracked.count())
}

async fn create_job_of(client: &Client, name: &str, completions: i32, parallelism: i32) {
    let mut job: Job = testkit::job(name);
    let spec = job.spec.as_mut().expect("a spec");
    (spec.completions, spec.parallelism) = (Some(completions), Some(parallelism));
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &job).await.expect("a Job");
}

async fn create_job(client: &Client, name: &str, managed_by: Option<&str>) {
    let mut job: Job = testkit::job(name);
    job.spec.as_mut().expect("a spec").managed_by = managed_by.map(str::to_owned);
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &job).await.expect("a Job");
}

async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lets the Job's pods succeed until it is complete.
async fn complete(client: &Client, name: &str) {
    let (jobs, pods): (Api<Job>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let selector = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    wait_for(name, async || {
        for pod in pods.list(&selector).await.expect("pods") {
            let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            let name = pod.metadata.name.expect("a name");
            pods.patch_status(&name, &PatchParams::default(), &patch).await.expect("a patch");
        }
        let job = jobs.get(name).await.expect("the Job");
        job.status.is_some_and(|status| status.completion_time.is_some())
    })
    .await;
}

#[tokio::test]
async fn it_runs_the_jobs_that_name_it_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let client = server.client().await.unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut controller = Controller::start(server.kubeconfig(), &["--bind-address", &address]);
    let line = controller.ready_line();
    assert!(line.starts_with("tally v0.1.0 runs Jobs managed by tally.dev/job-controller on https://127"), "{line}");

    create_job(&client, "built-in", None).await;
    create_job(&client, "ours", Some("tally.dev/job-controller")).await;
    complete(&client, "ours").await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    assert_eq!(jobs.get("built-in").await.unwrap().status.unwrap_or_default(), Default::default());

    assert_eq!(get(&address, "/readyz"), "ok");
    let metrics = get(&address, "/metrics");
    for name in ["job_controller_jobs_finished_total{", "workqueue_adds_total{name=\"job\"}", "leader_election_master"]
    {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }

    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    let holder = async || leases.get("tally.dev-job-controller").await.unwrap().spec.unwrap().holder_identity;
    assert!(holder().await.is_some_and(|holder| !holder.is_empty()));
    assert_eq!(controller.stop(), Some(0));
    assert_eq!(holder().await.unwrap_or_default(), "", "released for the next one");
}

/// Several copies may be started: one works, the next takes over when it ends.
#[tokio::test]
async fn a_second_copy_stands_by_and_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let client = server.client().await.unwrap();
    let mut first = Controller::start(server.kubeconfig(), &["--replace-built-in"]);
    let line = first.ready_line();
    assert!(line.starts_with("tally v0.1.0 runs all Jobs without a manager on https://"), "{line}");
    let mut second = Controller::start(server.kubeconfig(), &["--replace-built-in"]);
    let told = second.wait_log("standing by: ");
    assert!(told.contains("` holds the Lease kube-system/tally-job-controller\n"), "{told}");
    create_job(&client, "a", None).await;
    complete(&client, "a").await;
    assert_eq!(first.stop(), Some(0));
    assert!(second.ready_line().starts_with("tally"), "it says so when it begins to work");
    create_job(&client, "b", None).await;
    complete(&client, "b").await;
    assert_eq!(second.stop(), Some(0));
}

/// The server is killed while a Job runs and comes back later: the controller waits, goes on, and nothing is lost or
/// counted twice.
#[tokio::test]
async fn an_outage_of_the_server_is_waited_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let (address, kubeconfig) = (server.address().unwrap().to_owned(), server.kubeconfig().to_owned());
    let mut controller = Controller::start(&kubeconfig, &["--replace-built-in", "--leader-elect=false"]);
    controller.ready_line();
    let client = server.client().await.unwrap();
    create_job_of(&client, "a", 3, 2).await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    wait_for("two pods", async || {
        jobs.get("a").await.expect("the Job").status.is_some_and(|status| status.active == Some(2))
    })
    .await;
    server.kill().unwrap();
    let log = controller.wait_log("failures=8");
    assert!(log.contains("mirror a resource resource=jobs.batch"), "{log}");
    let server =
        Tally::start_at(&address, binary(), folder.path(), &["--controllers", "none", "--node", "none"]).unwrap();
    let client = server.client().await.unwrap();
    complete(&client, "a").await;
    assert_eq!(tally_of(&client, "a").await, (3, 0, 3, 0));
    assert_eq!(controller.stop(), Some(0));
}

/// A leader that the server is out of reach for does not go on writing when another may lead; it says why it ends.
#[tokio::test]
async fn a_leader_that_cannot_renew_its_lease_ends_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let timing = ["--leader-elect-renew-deadline", "1s", "--leader-elect-retry-period", "200ms"];
    let mut controller = Controller::start(server.kubeconfig(), &timing);
    controller.ready_line();
    server.kill().unwrap();
    let log = controller.wait_log("hint: ");
    assert!(log.contains("error: lost the lease `tally.dev-job-controller`: not renewed within 1s: "), "{log}");
    assert!(log.contains("hint: start it again when the server answers"), "{log}");
    assert_eq!(controller.0.wait().unwrap().code(), Some(1));
}

/// Two copies by mistake, without election: refused writes, and every pod counted once.
#[tokio::test]
async fn two_copies_at_once_count_every_pod_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let client = server.client().await.unwrap();
    let start = || Controller::start(server.kubeconfig(), &["--replace-built-in", "--leader-elect=false"]);
    let mut copies = [start(), start()];
    for copy in &mut copies {
        copy.ready_line();
    }
    create_job_of(&client, "a", 40, 8).await;
    complete(&client, "a").await;
    assert_eq!(tally_of(&client, "a").await, (40, 0, 40, 0));
    for copy in copies {
        assert_eq!(copy.stop(), Some(0));
    }
}

#[test]
fn without_a_cluster_it_says_what_is_missing() {
    check_failure(
        &tally(&["controller", "--kubeconfig", "/nowhere/config"]),
        1,
        expect![[r"
            error: read the kubeconfig `/nowhere/config`
              caused by: No such file or directory

            hint: say which cluster with `--kubeconfig FILE`, or start one with `tally up -d`
        "]],
    );
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    for wrong in [
        ["--managed-by", "kubernetes.io/job-controller"],
        ["--pod-failure-backoff", "10"],
        ["--concurrent-job-syncs", "0"],
        ["--kube-api-qps", "-1"],
        ["--leader-elect-renew-deadline", "15s"],
        ["--leader-elect-lease-duration", "15500ms"],
        ["--controllers", "nope"],
    ] {
        let output = tally(&["controller", wrong[0], wrong[1]]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "), "{wrong:?}");
    }
}

/// Missing permissions are named all at once, before anything is half done.
#[test]
fn missing_permissions_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The client asks several questions at once, each on a connection of its own.
    thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            thread::spawn(|| answer_reviews(stream));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();
    check_failure(
        &tally(&["controller", "--kubeconfig", kubeconfig.to_str().unwrap()]),
        1,
        expect![[r"
            error: the credentials lack permissions: create pods, delete pods

            hint: the ClusterRole in `deploy/` of tally's sources has all of them
        "]],
    );
}

/// An API server that only answers access reviews: no, for creating and deleting.
fn answer_reviews(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let verb = review["spec"]["resourceAttributes"]["verb"].as_str().expect("a verb");
        let answer = json!({"status": {"allowed": !["create", "delete"].contains(&verb)}}).to_string();
        write!(
            stream,
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
    }
}

/// The body of a plain HTTP answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    body.to_owned()
}

fn deployed(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    fs::read_to_string(path).expect("a manifest")
}

/// JC-108: the manifests grant what the controller asks for, no more and no less.
#[test]
fn the_manifests_grant_what_is_needed() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&deployed("rbac.yaml")).expect("YAML");
    let role = documents.iter().find(|document| document["kind"] == "ClusterRole").expect("a role");
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| text.as_str().expect("text").to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for resource in texts(&rule["resources"]) {
            granted.extend(texts(&rule["verbs"]).into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    let wanted = access::NEEDED.iter().chain(&access::WISHED);
    let wanted = wanted.map(|one| (one.resource.to_owned(), one.verb.to_owned())).collect();
    assert_eq!(granted, wanted);
}

/// A typo in a manifest would only be found in a cluster.
#[test]
fn the_manifests_pass_flags_that_exist() {
    for file in ["managed-by.yaml", "replace-built-in.yaml"] {
        let deployment: Value = serde_saphyr::from_str(&deployed(file)).expect("YAML");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments: Vec<&str> =
            container["args"].as_array().expect("arguments").iter().map(|text| text.as_str().expect("text")).collect();
        let output = tally(&[&arguments[..], &["--kubeconfig", "/nowhere/config"]].concat());
        assert_eq!(output.status.code(), Some(1), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
