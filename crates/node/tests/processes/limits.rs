//! Limits of memory, by control groups or without them (PL-53).

use serde_json::{Value, json};

use crate::support::{Cluster, until};
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
