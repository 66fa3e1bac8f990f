//! Exit codes, and commands that cannot start (PL-53, BI-106).

use serde_json::json;

use crate::support::{Cluster, until};
use crate::{script, terminated};

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_become_phases() {
    let cluster = Cluster::start().await;
    for (name, text, phase, code, reason) in [
        ("ok", "exit 0", "Succeeded", 0, "Completed"),
        ("three", "exit 3", "Failed", 3, "Error"),
        ("killed", "kill -9 $$$$", "Failed", 137, "Error"),
        ("terminated", "kill -15 $$$$", "Failed", 143, "Error"),
    ] {
        cluster.create_pod(name, script(text)).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(pod["status"]["phase"], phase, "{name}");
        assert_eq!(terminated(&pod)["exitCode"], code, "{name}");
        assert_eq!(terminated(&pod)["reason"], reason, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_cannot_start_fail_the_pod_with_a_reason() {
    let cluster = Cluster::start().await;
    let directory = json!({"name": "c", "image": "i", "command": ["true"], "workingDir": "/nonexistent/dir"});
    for (name, container, text) in [
        ("missing", json!({"name": "c", "image": "i", "command": ["no-such-command"]}), "executable file not found"),
        ("path", json!({"name": "c", "image": "i", "command": ["/no/such"]}), "no such file or directory"),
        ("directory", json!({"name": "c", "image": "i", "command": ["/tmp"]}), "is a directory"),
        ("forbidden", json!({"name": "c", "image": "i", "command": ["/etc/passwd"]}), "permission denied"),
        ("workdir", directory, "chdir to cwd"),
    ] {
        cluster.create_pod(name, json!({"restartPolicy": "Never", "containers": [container]})).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(pod["status"]["phase"], "Failed", "BI-106 {name}");
        assert_eq!(terminated(&pod)["exitCode"], 128, "{name}");
        assert_eq!(terminated(&pod)["reason"], "StartError", "{name}");
        let message = terminated(&pod)["message"].as_str().unwrap();
        assert!(message.contains(text), "{name}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_command_is_told_what_to_do() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]})).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["reason"], "CommandRequired");
    assert!(pod["status"]["message"].as_str().unwrap().contains("set `command`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_failure_restarts_in_place() {
    let cluster = Cluster::start().await;
    let mark = cluster.directory().join("mark");
    let text = format!("echo run; test -e {0} && exit 0; touch {0}; exit 7", mark.display());
    let mut spec = script(&text);
    spec["restartPolicy"] = json!("OnFailure");
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(status["restartCount"], 1);
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 7);
}

/// PL-25, PL-136: what happens again is counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_told_by_the_events_of_the_first_start() {
    let cluster = Cluster::start().await;
    let went = cluster.directory().join("went");
    let mut spec = script(&format!("test -e {0} && exit 0; : > {0}; exit 1", went.display()));
    spec["restartPolicy"] = json!("OnFailure");
    cluster.create_pod("p", spec).await;
    assert_eq!(cluster.wait_for_end("p").await["status"]["phase"], "Succeeded");
    until("both starts are told", || async {
        let events = cluster.get("/api/v1/namespaces/default/events").await.unwrap_or_default();
        let counts = |reason: &str| -> Vec<i64> {
            let of_reason = events["items"].as_array().into_iter().flatten().filter(|it| it["reason"] == reason);
            of_reason.filter_map(|event| event["count"].as_i64()).collect()
        };
        (counts("Created"), counts("Started")) == (vec![2], vec![2])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_are_stopped_when_the_work_is_done() {
    let cluster = Cluster::start().await;
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{
            "name": "side", "image": "i", "restartPolicy": "Always",
            "command": ["sh", "-c", "while :; do sleep 0.05; done"],
        }],
        "containers": [{"name": "c", "image": "i", "command": ["true"]}],
    });
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_log_can_be_the_termination_message() {
    let cluster = Cluster::start().await;
    let mut spec = script("seq 1 200; exit 1");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    let message = terminated(&pod)["message"].as_str().unwrap();
    assert_eq!(message.lines().count(), 80, "PL-56");
    assert!(message.ends_with("199\n200\n"));
}
