//! The node or its nursery is killed, and comes back.

use std::path::Path;

use serde_json::json;

use crate::support::{self, Cluster, Gate, until};
use crate::{script, terminated};

#[tokio::test(flavor = "multi_thread")]
async fn containers_survive_the_node_and_are_found_again() {
    let mut cluster = Cluster::start().await;
    let go = |name: &str| cluster.directory().join(format!("go-{name}"));
    let (later, meanwhile) = (go("later"), go("meanwhile"));
    let text =
        |go: &Path, code: u32| format!("echo $$$$; until test -e {}; do sleep 0.02; done; exit {code}", go.display());
    cluster.create_pod("later", script(&text(&later, 5))).await;
    cluster.create_pod("meanwhile", script(&text(&meanwhile, 4))).await;
    for name in ["later", "meanwhile"] {
        cluster.wait_for(name, |pod| pod["status"]["phase"] == "Running").await;
    }
    until("it says its number", || async { cluster.log("later").await.ends_with('\n') }).await;
    let pid: i32 = cluster.log("later").await.trim().parse().unwrap();
    cluster.crash_node().await;
    // One ends while nobody watches, the other goes on.
    std::fs::write(&meanwhile, "").unwrap();
    until("the nursery has seen the end", || async { cluster.journal().contains("{\"Code\":4}") }).await;
    assert!(support::is_alive(pid));
    cluster.start_node().await;
    let pod = cluster.wait_for_end("meanwhile").await;
    assert_eq!(terminated(&pod)["exitCode"], 4, "REG-H08: {pod:#}");
    std::fs::write(&later, "").unwrap();
    let pod = cluster.wait_for_end("later").await;
    assert_eq!(terminated(&pod)["exitCode"], 5);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "INV-50: never run twice");
    assert_eq!(cluster.log("later").await, format!("{pid}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_killed_nursery_are_reported_as_lost() {
    let cluster = Cluster::start().await;
    // The kernel kills the shell with its parent, but not what the shell has started.
    cluster.create_pod("p", script("sleep 1000 & echo $$$$ $!; wait")).await;
    until("it runs", || async { cluster.log("p").await.ends_with('\n') }).await;
    let log = cluster.log("p").await;
    let pids: Vec<i32> = log.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.kill_nursery();
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["reason"], "ContainerStatusUnknown", "{pod:#}");
    assert_eq!(terminated(&pod)["exitCode"], 137);
    assert_eq!(cluster.log("p").await, log, "what it said can still be read (PL-124)");
    until("nothing is left", || async { !pids.iter().any(|pid| support::is_alive(*pid)) }).await;
    cluster.create_pod("next", script("exit 0")).await;
    cluster.wait_for_end("next").await;
}

/// PL-28: a pod that lost everything begins anew, with its init containers.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_killed_nursery_begins_anew() {
    let cluster = Cluster::start().await;
    let (inits, went) = (cluster.directory().join("inits"), cluster.directory().join("went"));
    let text = format!("test -e {0} && exit 0; : > {0}; exec sleep 1000", went.display());
    let mut spec = script(&text);
    spec["restartPolicy"] = "OnFailure".into();
    let init = format!("echo again >> {}", inits.display());
    spec["initContainers"] = json!([{"name": "i", "image": "unused", "command": ["sh", "-c", init]}]);
    cluster.create_pod("p", spec).await;
    until("it runs", || async { went.exists() }).await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.kill_nursery();
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["phase"], "Succeeded", "{pod:#}");
    assert_eq!(std::fs::read_to_string(&inits).unwrap(), "again\nagain\n");
    for list in ["initContainerStatuses", "containerStatuses"] {
        assert_eq!(pod["status"][list][0]["restartCount"], 1, "{pod:#}");
    }
}

/// REG-H08 at its narrowest: the end comes after the node has come back and before it is shown the pod.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_before_the_pod_is_listed_is_not_lost() {
    for code in [0, 1] {
        let mut cluster = Cluster::start().await;
        let go = cluster.directory().join("go");
        let text = format!("until test -e {}; do sleep 0.02; done; exit {code}", go.display());
        cluster.create_pod("p", script(&text)).await;
        cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
        cluster.crash_node().await;
        let gate = Gate::closed();
        cluster.start_node_behind(&gate).await;
        std::fs::write(&go, "").unwrap();
        until("the nursery has seen the end", || async { cluster.journal().contains("\"Ended\"") }).await;
        gate.open();
        let pod = cluster.wait_for_end("p").await;
        assert_eq!(terminated(&pod)["exitCode"], code, "{pod:#}");
    }
}

/// The node comes back to a machine on which pods of an earlier one are over or unknown to the API.
#[tokio::test(flavor = "multi_thread")]
async fn what_pods_left_that_do_not_exist_any_more_is_removed() {
    let mut cluster = Cluster::start().await;
    cluster.create_pod("kept", script("echo kept")).await;
    cluster.wait_for_end("kept").await;
    cluster.create_pod("gone", script("echo $$$$; while :; do sleep 0.05; done")).await;
    until("it runs", || async { cluster.log("gone").await.ends_with('\n') }).await;
    let pid: i32 = cluster.log("gone").await.trim().parse().unwrap();
    cluster.crash_node().await;
    for directory in ["pods/stranger/volumes", "logs/stranger/c"] {
        std::fs::create_dir_all(cluster.node_directory().join(directory)).unwrap();
    }
    cluster.delete_pod("gone", 0).await;
    cluster.start_node().await;
    until("its process is gone", || async { !support::is_alive(pid) }).await;
    let names = |directory: &str| -> Vec<String> {
        let entries = std::fs::read_dir(cluster.node_directory().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let kept = cluster.pod("kept").await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    until("only what exists is kept", || async { names("pods").is_empty() && names("logs") == [kept.as_str()] }).await;
    assert_eq!(cluster.log("kept").await, "kept\n");
}

/// A late sweep must not take what was made after the node had started.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_at_once_keep_their_logs() {
    for _ in 0..5 {
        let cluster = Cluster::start().await;
        for number in 0..10 {
            cluster.create_pod(&format!("p{number}"), script("echo here")).await;
        }
        for number in 0..10 {
            let name = format!("p{number}");
            cluster.wait_for_end(&name).await;
            assert_eq!(cluster.log(&name).await, "here\n");
        }
    }
}
