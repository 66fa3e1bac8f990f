//! Deletion, grace, hooks; and that nothing outlives its container.

use serde_json::{Value, json};

use crate::script;
use crate::support::{self, Cluster, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_gets_sigterm_and_ends_before_it_goes() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.watch_pods().await;
    cluster
        .create_pod("p", script("trap 'echo stopping; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
        .await;
    until("the script is ready", || async { cluster.log("p").await == "ready\n" }).await;
    cluster.delete_pod("p", 30).await;
    cluster.wait_until_gone("p").await;
    let phases = watch.phases_until_deleted("p").await;
    assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "PL-47, PL-45: {phases:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ignores_sigterm_is_killed_with_all_it_started() {
    let cluster = Cluster::start().await;
    // A daemon in a session of its own, which the shell does not wait for.
    let text = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo $!; while :; do sleep 0.1; done";
    cluster.create_pod("p", script(text)).await;
    until("the daemon runs", || async { cluster.log("p").await.ends_with('\n') }).await;
    let daemon: i32 = cluster.log("p").await.trim().parse().unwrap();
    assert!(support::is_alive(daemon));
    cluster.delete_pod("p", 1).await;
    cluster.wait_until_gone("p").await;
    until("nothing is left", || async { !support::is_alive(daemon) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_does_not_outlive_its_container() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("setsid sleep 1000 >/dev/null 2>&1 & echo $!")).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    let daemon: i32 = cluster.log("p").await.trim().parse().unwrap();
    until("the daemon is gone", || async { !support::is_alive(daemon) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_hooks_run_beside_the_container() {
    let cluster = Cluster::start().await;
    let ready = cluster.directory().join("ready");
    let stopped = cluster.directory().join("stopped");
    let mut spec = script("while :; do sleep 0.05; done");
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["test", "-e", ready]}, "periodSeconds": 1});
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["touch", stopped]}}});
    cluster.create_pod("p", spec).await;
    let is_ready = |pod: &Value, value: &str| {
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == value)
    };
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running" && is_ready(pod, "False")).await;
    std::fs::write(&ready, "").unwrap();
    cluster.wait_for("p", |pod| is_ready(pod, "True")).await;
    cluster.delete_pod("p", 30).await;
    cluster.wait_until_gone("p").await;
    assert!(stopped.exists(), "the preStop hook ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_with_its_pods_reports_them() {
    let mut cluster = Cluster::start().await;
    cluster.create_pod("p", script("while :; do sleep 0.05; done")).await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.stop_node_with_pods().await;
    let pod = cluster.pod("p").await.unwrap();
    assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&json!("Failed"), &json!("Terminated")));
    assert_eq!(pod["status"]["conditions"][0]["type"], "DisruptionTarget");
}

/// BI-107: however many processes there are, and whatever sessions they went to.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_forks_a_lot_leaves_none() {
    let cluster = Cluster::start().await;
    let text = "for i in $(seq 100); do setsid sh -c 'trap \"\" TERM; echo $$$$; sleep 1000 & wait' & done; wait";
    cluster.create_pod("p", script(text)).await;
    until("all run", || async { cluster.log("p").await.lines().count() == 100 }).await;
    let pids: Vec<i32> = cluster.log("p").await.lines().map(|line| line.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| support::is_alive(*pid)));
    cluster.delete_pod("p", 1).await;
    cluster.wait_until_gone("p").await;
    until("none is left", || async { !pids.iter().any(|pid| support::is_alive(*pid)) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_do_not_outlive_their_container() {
    let cluster = Cluster::start().await;
    let mark = cluster.directory().join("hook");
    let mut spec = script(&format!("until test -s {}; do sleep 0.02; done", mark.display()));
    let hook = format!("echo $$ > {}; sleep 1000", mark.display());
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", hook]}}});
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    let pid: i32 = std::fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
    until("the hook is gone", || async { !support::is_alive(pid) }).await;
}

/// With the node there, and with one that comes later.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_somebody_else_has_ended_is_stopped_and_how_it_ended_is_reported() {
    let mut cluster = Cluster::start().await;
    let failed = json!({"status": {"phase": "Failed", "reason": "Elsewhere"}});
    let is_reported = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143;
    for name in ["here", "later"] {
        cluster.create_pod(name, script("exec sleep 1000")).await;
        cluster.wait_for(name, |pod| pod["status"]["phase"] == "Running").await;
    }
    cluster.patch_pod("here/status", &failed).await;
    let here = cluster.wait_for("here", is_reported).await;
    cluster.crash_node().await;
    cluster.patch_pod("later/status", &failed).await;
    cluster.start_node().await;
    let later = cluster.wait_for("later", is_reported).await;
    for pod in [here, later] {
        let status = &pod["status"];
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Elsewhere")), "PL-8");
        let ready = status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
        assert_eq!(ready["status"], "False", "PL-20");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_deadline_may_be_set_while_the_pod_runs() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("exec sleep 1000")).await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.patch_pod("p", &json!({"spec": {"activeDeadlineSeconds": 1}})).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded", "{pod:#}");
}
