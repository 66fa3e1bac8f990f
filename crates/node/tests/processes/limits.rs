//! Limits of memory and of the number of processes, by control groups or without them (PL-53, BI-107).

use serde_json::{Value, json};

use crate::support::{self, Cluster, until};
use crate::{script, terminated};

const MEBIBYTE: usize = 1 << 20;

/// Takes twice the limit and keeps it, so that the machine has enough left however late the nursery looks.
const GREEDY: &str = "x=$(head -c 67108864 /dev/zero | tr '\\0' x); sleep 60; : $x";

fn limited(text: &str, memory: &str) -> Value {
    let mut spec = script(text);
    spec["containers"][0]["resources"] = json!({"limits": {"memory": memory}});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_over_its_memory_is_killed_with_all_it_has_started() {
    let cluster = Cluster::start().await;
    for (name, text) in [
        ("alone", GREEDY.to_owned()),
        ("child", format!("({GREEDY}) & wait; exit 0")),
        ("daemon", "(setsid sh -c \"$GREEDY\" &); while :; do sleep 0.05; done".to_owned()),
    ] {
        let mut spec = limited(&text, "32Mi");
        spec["containers"][0]["env"] = json!([{"name": "GREEDY", "value": GREEDY.replace('$', "$$")}]);
        cluster.create_pod(name, spec).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(pod["status"]["phase"], "Failed", "{name}");
        assert_eq!(terminated(&pod)["exitCode"], 137, "{name}");
        assert_eq!(terminated(&pod)["reason"], "OOMKilled", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_do_not_count_for_what_they_share() {
    let cluster = Cluster::start().await;
    // Eight times the text would be over the limit. Long enough for several looks.
    let text = format!(
        "x=$(head -c {} /dev/zero | tr '\\0' x); for i in 1 2 3 4 5 6 7; do (sleep 0.3; : $i) & done; wait",
        12 * MEBIBYTE
    );
    cluster.create_pod("p", limited(&text, "72Mi")).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["reason"], "Completed", "{pod:#}");
}

/// BI-107. None of them goes on for ever, lest a test that fails takes the machine with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_forks_without_end_is_killed_with_all_it_has_started() {
    let cluster = Cluster::start_with(|options| options.processes_max = 100).await;
    if cluster.has_control_groups().await {
        eprintln!("skipped: control groups have a limit of their own, for all containers together");
        return;
    }
    for (name, text) in [
        ("flat", "i=0; while test $i -lt 3000; do sleep 1000 & i=$((i+1)); done; wait"),
        ("tree", "t() { for i in 1 2 3; do test $1 -eq 0 || t $(($1-1)) & done; sleep 1000; }; t 7"),
        ("daemons", "i=0; while test $i -lt 3000; do (setsid sleep 1000 &); i=$((i+1)); done; sleep 1000"),
        ("heirs", "t() { sleep 1000 & test $1 -eq 0 || t $(($1-1)) & }; t 3000; sleep 1000"),
    ] {
        cluster.create_pod(name, script(text)).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(pod["status"]["phase"], "Failed", "{name}");
        assert_eq!(terminated(&pod)["exitCode"], 137, "{name}");
        assert_eq!(terminated(&pod)["message"], "killed: more than 100 processes", "{name}");
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        until("none is left", || async { support::marked_processes(uid) == 0 }).await;
    }
    // Others are not concerned.
    cluster.create_pod("few", script("for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3 & done; wait")).await;
    let pod = cluster.wait_for_end("few").await;
    assert_eq!(pod["status"]["phase"], "Succeeded", "{pod:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_out_of_memory_while_the_node_was_away_is_known_as_such() {
    let mut cluster = Cluster::start().await;
    let go = cluster.directory().join("go");
    let text = format!("until test -e {}; do sleep 0.02; done; {GREEDY}", go.display());
    cluster.create_pod("p", limited(&text, "32Mi")).await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.crash_node().await;
    std::fs::write(&go, "").unwrap();
    until("the nursery has seen the end", || async { cluster.journal().contains("\"OutOfMemory\"") }).await;
    cluster.start_node().await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 137, "{pod:#}");
    assert_eq!(terminated(&pod)["reason"], "OOMKilled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_volume_outgrows_its_limit_is_evicted() {
    let cluster = Cluster::start().await;
    let mut spec = script("head -c 2000000 /dev/urandom > /tally-e/file; exec sleep 1000");
    spec["volumes"] = json!([{"name": "e", "emptyDir": {"sizeLimit": "1Mi"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "e", "mountPath": "/tally-e"}]);
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    let status = &pod["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Evicted")), "{pod:#}");
    assert_eq!(status["message"], "Usage of EmptyDir volume \"e\" exceeds the limit \"1Mi\". ");
}
