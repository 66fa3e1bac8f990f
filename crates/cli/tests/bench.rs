//! `tally bench` against a server without a node: the benchmark finishes the pods itself.

mod common;

use std::process::{Command, Stdio};
use std::time::Instant;

use common::{PATIENCE, Sandbox, signal, wait};
use expect_test::expect;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::Tally;

#[test]
fn a_load_is_made_measured_and_taken_away() {
    let sandbox = Sandbox::new();
    let data = sandbox.path().join("data");
    let server = Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, &["--node", "none"]).unwrap();
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let pid = server.pid().to_string();
    let arguments = ["bench", "--kubeconfig", kubeconfig, "--jobs", "2", "--completions", "20", "--parallelism", "10"];
    let more = ["--finish", "--probe-interval", "200ms", "--pid", &pid];
    let ran = sandbox.run(&[&arguments[..], &more[..], &["-o", "json"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let figures: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&figures["jobs"], &figures["completions"]), (&2.into(), &20.into()));
    assert!(figures["ownCalls"]["patch"].as_u64().unwrap() >= 40, "{figures}");
    assert!(figures["podsPerSecond"].as_f64().unwrap() > 0.0);
    assert!(figures["processes"][0]["cpuSeconds"].as_f64().unwrap() > 0.0);

    let table = sandbox.run(&[&arguments[..], &["--finish"]].concat()).stdout;
    assert!(table.starts_with("load            2 × 20 pods, 10 at a time, finished by this program\n"), "{table}");
    assert!(
        table.contains("\nthroughput      ") && table.contains("\nown calls       2 create, 40 patch\n"),
        "{table}"
    );

    let late = sandbox.run(&[&arguments[..], &["--timeout", "300ms"]].concat());
    late.check_refused(
        124,
        expect![[r"
            error: the Jobs have not finished within TIME

            hint: is there a controller, and a node to run pods? `--finish` stands in for nodes
        "]],
    );
    let nobody = sandbox.run(&[&arguments[..], &["--pid", "4194305"]].concat());
    assert_eq!((nobody.code, nobody.stderr.starts_with("error: there is no process 4194305\n")), (Some(2), true));
}

/// Whatever ends it, nothing is left on somebody else's cluster.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_is_taken_away_however_it_ends() {
    let sandbox = Sandbox::new();
    let data = sandbox.path().join("data");
    let server = Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, &["--node", "none"]).unwrap();
    let client = server.client().await.unwrap();
    let jobs: Api<Job> = Api::all(client.clone());
    let namespaces: Api<Namespace> = Api::all(client);
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    for (stop, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let arguments = ["bench", "--kubeconfig", kubeconfig, "--completions", "2"];
        let mut child = sandbox.command(&arguments).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let namespace = 'found: loop {
            let made = jobs.list(&ListParams::default()).await.unwrap();
            for name in made.items.into_iter().filter_map(|job| job.metadata.namespace) {
                let found = namespaces.get_opt(&name).await.unwrap();
                if found.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
                    break 'found name;
                }
            }
            assert!(Instant::now() < deadline, "it makes a Job");
            tokio::task::yield_now().await;
        };
        signal(&child, stop);
        assert_eq!(wait(&mut child).code(), Some(code));
        let left = namespaces.get_opt(&namespace).await.unwrap();
        assert!(left.is_none_or(|it| it.metadata.deletion_timestamp.is_some()), "{namespace} is not on its way out");
    }
    // A process that is asked about may end before its figures are taken.
    let mut asked = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = asked.id().to_string();
    let arguments = ["bench", "--kubeconfig", kubeconfig, "--completions", "2", "--finish", "--pid", &pid];
    let mut bench = sandbox.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    asked.kill().unwrap();
    asked.wait().unwrap();
    wait(&mut bench);
    for namespace in namespaces.list(&ListParams::default()).await.unwrap() {
        let name = namespace.metadata.name.unwrap_or_default();
        let is_going = namespace.metadata.deletion_timestamp.is_some();
        assert!(!name.starts_with("tally-bench-") || is_going, "{name} is not on its way out");
    }
}

/// In a namespace of somebody's, other pods are left alone, and one run after the other finds its names free.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_named_is_left_as_it_was() {
    let sandbox = Sandbox::new();
    let data = sandbox.path().join("data");
    let server = Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, &["--node", "none"]).unwrap();
    let client = server.client().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let container = json!({"name": "c", "image": "i", "command": ["true"]});
    let theirs = json!({"metadata": {"name": "theirs"}, "spec": {"containers": [container]}});
    pods.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client);
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let arguments = ["bench", "--kubeconfig", kubeconfig, "-n", "default", "--completions", "2", "--finish"];
    for (more, left) in [(&["--keep"][..], 1), (&[], 1), (&["--jobs", "3"], 1)] {
        let ran = sandbox.run(&[&arguments[..], more].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{more:?}: {ran:?}");
        let all = jobs.list(&ListParams::default()).await.unwrap();
        let stay = all.items.iter().filter(|job| job.metadata.deletion_timestamp.is_none()).count();
        assert_eq!(stay, left, "{more:?}");
    }
    let phase = pods.get("theirs").await.unwrap().status.and_then(|status| status.phase);
    assert_eq!(phase.as_deref(), Some("Pending"));
    let missing = sandbox.run(&[&arguments[..4], &["missing"]].concat());
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("\nhint: make the namespace first: `kubectl create namespace missing`"),
        "{missing:?}"
    );
}

/// The server counts everybody's calls, its own controllers' among them; only the pods' end is this program's doing.
#[test]
fn the_servers_own_calls_are_told() {
    let sandbox = Sandbox::new();
    let data = sandbox.path().join("data");
    let server = Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, &["--node", "simulated=2"]).unwrap();
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let arguments = ["bench", "--kubeconfig", kubeconfig, "--jobs", "1", "--completions", "20", "-o", "json"];
    let ran = sandbox.run(&arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let calls = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["serverCalls"];
    let count = |verb: &str| calls[verb].as_u64().unwrap_or_default();
    // A Job, its pods and as many bindings.
    assert!(count("post") >= 41, "{calls}");
    assert!(count("patch") + count("put") >= 40, "statuses, and finalizers that are taken off: {calls}");
}
