//! `tally logs` when things go wrong: servers that go away, and the order of what one pod said.

mod common;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use common::world::World;
use common::{PATIENCE, until, wait};
use k8s_openapi::api::batch::v1::Job;
use kube::api::PostParams;
use rustix::process::Signal;
use serde_json::json;
use testkit::Tally;

/// `tally logs -f` with its output in files.
struct Following {
    child: Child,
    folder: std::path::PathBuf,
}

impl Following {
    fn start(world: &World, job: &str) -> Self {
        let (folder, kubeconfig) =
            (world.sandbox.path().to_owned(), world.server.kubeconfig().to_str().expect("a plain path"));
        let child = world
            .sandbox
            .command(&["logs", "-f", job, "--kubeconfig", kubeconfig])
            .stdout(File::create(folder.join("shown")).expect("a file"))
            .stderr(File::create(folder.join("told")).expect("a file"))
            .spawn()
            .expect("start tally");
        Self { child, folder }
    }

    fn shown(&self) -> String {
        fs::read_to_string(self.folder.join("shown")).expect("what was shown")
    }

    fn told(&self) -> String {
        fs::read_to_string(self.folder.join("told")).expect("what was told")
    }
}

/// What is written while nobody serves it is shown when somebody does, and nothing twice.
async fn goes_on(end: impl FnOnce(&mut Tally)) {
    let mut world = World::new().await;
    let (folder, address) = (world.sandbox.path().to_owned(), world.server.address().expect("its address").to_owned());
    let gate = |number: u32| folder.join(format!("gate-{number}"));
    let until_gate = |number: u32| format!("while ! [ -e {} ]; do sleep 0.02; done", gate(number).display());
    let script = format!(
        "seq -f 'first %g' 50; {}; seq -f 'second %g' 50; touch {}; {}; echo third; printf 'no end'",
        until_gate(1),
        gate(2).display(),
        until_gate(3)
    );
    world.create("long", json!({"completions": 1, "completionMode": "Indexed"}), &script).await;
    let mut following = Following::start(&world, "job/long");
    until("it has begun", || following.shown().contains("first 50\n"));
    end(&mut world.server);
    fs::write(gate(1), "").expect("a gate");
    until("it writes while nobody serves it", || gate(2).exists());
    world.server =
        Tally::start_at(&address, env!("CARGO_BIN_EXE_tally").as_ref(), &folder.join("data"), &[]).expect("a server");
    until("it goes on", || following.shown().contains("second 50\n"));
    fs::write(gate(3), "").expect("a gate");
    assert_eq!(wait(&mut following.child).code(), Some(0), "{}", following.told());
    let lines = |word: &str| (1..=50).map(|number| format!("[long/0] {word} {number}\n")).collect::<String>();
    let expected = format!("{}{}[long/0] third\n[long/0] no end\n", lines("first"), lines("second"));
    assert_eq!(following.shown(), expected, "{}", following.told());
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_go_on_when_a_server_is_started_again() {
    goes_on(|server| {
        server.stop(PATIENCE).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_go_on_when_a_server_that_was_killed_is_started_again() {
    goes_on(|server| {
        server.signal(Signal::KILL).unwrap();
        server.wait(PATIENCE).unwrap();
    })
    .await;
}

/// What is gone by the time at which it could be read again is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_is_named() {
    let mut world = World::new().await;
    let (folder, address) = (world.sandbox.path().to_owned(), world.server.address().unwrap().to_owned());
    let script = format!("echo begun; while ! [ -e {} ]; do sleep 0.02; done", folder.join("gate").display());
    world.create("gone", json!({"completions": 1, "completionMode": "Indexed"}), &script).await;
    let mut following = Following::start(&world, "job/gone");
    until("it has begun", || following.shown().contains("begun"));
    world.server.signal(Signal::KILL).unwrap();
    world.server.wait(PATIENCE).unwrap();
    // Somebody makes room.
    fs::remove_dir_all(folder.join("data/node/logs")).unwrap();
    world.server = Tally::start_at(&address, env!("CARGO_BIN_EXE_tally").as_ref(), &folder.join("data"), &[]).unwrap();
    fs::write(folder.join("gate"), "").unwrap();
    assert_eq!(wait(&mut following.child).code(), Some(1), "{}", following.told());
    let told = following.told();
    assert!(told.contains("[gone/0] (lines are missing: ") && told.contains("error: 1 log is not complete"), "{told}");
    assert_eq!(following.shown(), "[gone/0] begun\n");
}

/// Without `-f` nobody waits for the server to come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_breaks_off_is_a_failure() {
    let mut world = World::new().await;
    // More than a pipe and all buffers on the way hold.
    let script = "yes $(printf '%01000d' 7) | head -n 20000";
    world.create("big", json!({"completions": 1, "completionMode": "Indexed"}), script).await;
    assert_eq!(world.run(&["wait", "job/big", "--timeout", "60s"]).code, Some(0));
    let kubeconfig = world.server.kubeconfig().to_str().unwrap().to_owned();
    for more in [&[][..], &["--interleave"]] {
        let mut command = world.sandbox.command(&["logs", "job/big", "--kubeconfig", &kubeconfig]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().ends_with("07"));
        world.server.signal(Signal::KILL).unwrap();
        world.server.wait(PATIENCE).unwrap();
        assert!(lines.map_while(Result::ok).count() < 20_000 - 1);
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(wait(&mut child).code(), Some(1), "{told}");
        assert!(told.contains("[big/0] (the log breaks off here: ") && told.contains("error: 1 log is not"), "{told}");
        let (address, data) = (world.server.address().unwrap().to_owned(), world.sandbox.path().join("data"));
        world.server = Tally::start_at(&address, env!("CARGO_BIN_EXE_tally").as_ref(), &data, &[]).unwrap();
    }
}

/// However long the log of an init container is, and however soon the next one has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_pod_said_comes_in_order() {
    let world = World::new().await;
    let tried = world.sandbox.path().join("tried");
    let main = format!("if [ -e {0} ]; then echo second; else touch {0}; echo first; exit 1; fi", tried.display());
    let container = |name: &str, script: &str| json!({"name": name, "image": "none", "command": ["sh", "-c", script]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "order"},
        "spec": {"template": {"spec": {"restartPolicy": "OnFailure",
            "initContainers": [container("prepare", "seq 20000")], "containers": [container("main", &main)]}}}});
    let job: Job = serde_json::from_value(job).unwrap();
    world.jobs().create(&PostParams::default(), &job).await.unwrap();
    assert_eq!(world.run(&["wait", "job/order", "--timeout", "60s"]).code, Some(0));
    let ran = world.run(&["logs", "-f", "job/order"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let said: Vec<&str> = ran.stdout.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let expected: Vec<String> =
        (1..=20_000).map(|number| number.to_string()).chain(["first".to_owned(), "second".to_owned()]).collect();
    assert_eq!(said.len(), expected.len());
    assert!(said.iter().zip(&expected).all(|(said, expected)| said == expected), "{:?}", said.last_chunk::<3>());
}
