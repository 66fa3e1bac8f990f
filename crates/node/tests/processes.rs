//! Pods as real processes, against an API server in this process.

mod support;

use node::logs::Bounds;
use serde_json::{Value, json};
use support::{Cluster, until};

/// A pod with one container that runs a shell script.
fn script(text: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "unused", "command": ["sh", "-c", text]}]})
}

fn terminated(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["terminated"]
}

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
async fn output_can_be_read() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("echo out; echo err >&2; echo no newline at the end | tr -d '\\n'")).await;
    cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "out\nerr\nno newline at the end\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_and_arguments_are_expanded() {
    let cluster = Cluster::start().await;
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"k": "from map"}})).await;
    cluster.create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"k": "from secret", "ALL": "x"}})).await;
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "c", "image": "i",
            "command": ["sh", "-c", "echo \"$A|$MAP|$SECRET|$P_ALL|$NAME|$1|$HOSTNAME\"", "sh"],
            "args": ["$(A)-$(B)"],
            "envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}],
            "env": [
                {"name": "A", "value": "a"},
                {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }],
    });
    cluster.create_pod("p", spec).await;
    cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "a|from map|from secret|x|p|a-$(B)|p\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_config_map_is_waited_for() {
    let cluster = Cluster::start().await;
    let mut spec = script("echo $V");
    spec["containers"][0]["env"] =
        json!([{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}]);
    cluster.create_pod("p", spec).await;
    let pod = cluster
        .wait_for("p", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
        .await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["message"], "configmap \"late\" not found");
    cluster.create("configmaps", json!({"metadata": {"name": "late"}, "data": {"k": "here"}})).await;
    cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_where_the_container_expects_them() {
    let cluster = Cluster::start().await;
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"k": "content", "other": "x"}})).await;
    let host = cluster.directory().join("host");
    std::fs::create_dir(&host).unwrap();
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let spec = json!({
        "restartPolicy": "Never",
        "volumes": [
            {"name": "config", "configMap": {"name": "m"}},
            {"name": "empty", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": host}},
            {"name": "down", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ],
        "initContainers": [{
            "name": "i", "image": "i", "command": ["sh", "-c", "echo shared > /data/file"],
            "volumeMounts": [mount("empty", "/data")],
        }],
        "containers": [{
            "name": "c", "image": "i",
            "command": ["sh", "-c", "cat /etc/tally-test/k; echo; cat /data/file; cat /down/name; echo; \
                cat /single; echo; echo written > /from-host/file; touch /etc/tally-test/x 2>/dev/null || echo read-only; \
                ls -d /etc/passwd; printf bye > /dev/termination-log"],
            "volumeMounts": [
                mount("config", "/etc/tally-test"), mount("empty", "/data"), mount("host", "/from-host"),
                mount("down", "/down"), {"name": "config", "mountPath": "/single", "subPath": "other"},
            ],
        }],
    });
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "content\nshared\np\nx\nread-only\n/etc/passwd\n", "{pod:#}");
    assert_eq!(pod["status"]["phase"], "Succeeded", "{pod:#}");
    assert_eq!(terminated(&pod)["message"], "bye");
    assert_eq!(std::fs::read_to_string(host.join("file")).unwrap(), "written\n");
    for path in ["/etc/tally-test", "/data", "/from-host", "/dev/termination-log"] {
        assert!(!std::path::Path::new(path).exists(), "{path} was left on the machine");
    }
    until("the pod's directory is gone", || async {
        std::fs::read_dir(cluster.node_directory().join("pods")).unwrap().count() == 0
    })
    .await;
}

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
async fn containers_survive_the_node_and_are_found_again() {
    let mut cluster = Cluster::start().await;
    let go = cluster.directory().join("go");
    let text = |code: u32| format!("echo $$$$; while ! test -e {}; do sleep 0.02; done; exit {code}", go.display());
    cluster.create_pod("later", script(&text(5))).await;
    cluster.create_pod("meanwhile", script("sleep 0.3; exit 4")).await;
    for name in ["later", "meanwhile"] {
        cluster.wait_for(name, |pod| pod["status"]["phase"] == "Running").await;
    }
    until("it says its number", || async { cluster.log("later").await.ends_with('\n') }).await;
    let pid: i32 = cluster.log("later").await.trim().parse().unwrap();
    cluster.crash_node().await;
    // One ends while nobody watches, the other goes on.
    until("the nursery has seen the end", || async { cluster.journal().contains("{\"Code\":4}") }).await;
    assert!(support::is_alive(pid));
    cluster.start_node().await;
    let pod = cluster.wait_for_end("meanwhile").await;
    assert_eq!(terminated(&pod)["exitCode"], 4, "REG-H08: {pod:#}");
    std::fs::write(&go, "").unwrap();
    let pod = cluster.wait_for_end("later").await;
    assert_eq!(terminated(&pod)["exitCode"], 5);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "INV-50: never run twice");
    assert_eq!(cluster.log("later").await, format!("{pid}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_killed_nursery_are_reported_as_lost() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("echo $$$$; while :; do sleep 0.05; done")).await;
    until("it runs", || async { cluster.log("p").await.ends_with('\n') }).await;
    let pid: i32 = cluster.log("p").await.trim().parse().unwrap();
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.kill_nursery();
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["reason"], "ContainerStatusUnknown", "{pod:#}");
    assert_eq!(terminated(&pod)["exitCode"], 137);
    until("nothing is left", || async { !support::is_alive(pid) }).await;
    cluster.create_pod("next", script("exit 0")).await;
    cluster.wait_for_end("next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_registers_and_holds_a_lease() {
    let cluster = Cluster::start().await;
    let node = cluster.get("/api/v1/nodes/here").await.unwrap();
    assert_eq!(node["metadata"]["labels"]["tally.dev/runtime"], "process");
    let conditions = node["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"));
    assert!(conditions.iter().any(|it| it["type"] == "tally.dev/ContainerImages" && it["status"] == "False"));
    let lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/here").await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "here");
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

#[tokio::test(flavor = "multi_thread")]
async fn loud_containers_are_rotated_and_capped() {
    let cluster = Cluster::start_with(|options| options.log = Bounds { file_bytes_max: 20_000, files_max: 3 }).await;
    cluster.create_pod("p", script("seq 1 20000; exec >&- 2>&-; sleep 0.05; exit 3")).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 3, "BI-107: an exit is noticed without outputs too");
    let log = cluster.log("p").await;
    assert!(log.ends_with("\n19999\n20000\n"), "the end is kept");
    let kept = support::bytes_below(&cluster.node_directory().join("logs"));
    assert!((20_000..60_001).contains(&kept), "{kept}");
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

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_written_nowhere() {
    let cluster = Cluster::start().await;
    let value = "very-secret-value";
    cluster.create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"k": value}})).await;
    let mut spec = script("test $V = very-secret-value && exit 5");
    let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    spec["containers"][0]["command"][2] = json!("test -n \"$V\" && exit 5");
    spec["containers"][0]["env"] = json!([{"name": "V", "valueFrom": from}]);
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 5);
    assert!(!pod.to_string().contains(value), "BI-108");
    assert!(!support::text_below(&cluster.node_directory()).contains(value), "BI-108");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_path_cannot_leave_its_volume() {
    let cluster = Cluster::start().await;
    let outside = cluster.directory().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let mount = json!({"name": "v", "mountPath": "/tally-v"});
    let spec = json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [{
            "name": "i", "image": "i", "volumeMounts": [mount],
            "command": ["ln", "-s", outside, "/tally-v/link"],
        }],
        "containers": [{
            "name": "c", "image": "i", "command": ["touch", "/tally-sub/escaped"],
            "volumeMounts": [{"name": "v", "mountPath": "/tally-sub", "subPath": "link"}],
        }],
    });
    cluster.create_pod("p", spec).await;
    let waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = cluster.wait_for("p", waiting).await;
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("symlink"), "INV-52: {message}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    cluster.delete_pod("p", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_run_as_the_user_they_ask_for() {
    if !rustix::process::geteuid().is_root() {
        // Rejected at once otherwise, which the rules of admission test.
        return;
    }
    let cluster = Cluster::start().await;
    let mut spec = script("id -u; id -g; touch file && echo wrote");
    spec["securityContext"] = json!({"runAsUser": 12345, "runAsGroup": 23456});
    cluster.create_pod("p", spec).await;
    cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "12345\n23456\nwrote\n");
}
