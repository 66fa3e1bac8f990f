//! What a container is given: environment, volumes, users.

use serde_json::{Value, json};

use crate::support::{Cluster, until};
use crate::{script, terminated};

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

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_in_the_groups_of_their_pod_and_read_its_files() {
    if !rustix::process::geteuid().is_root() {
        // Everything belongs to the one user there is.
        return;
    }
    let cluster = Cluster::start().await;
    cluster.create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"k": "secret"}})).await;
    let mut spec = script("id -G; cat /tally-s/k; echo; touch /tally-e/f; stat -c %g /tally-e/f");
    spec["securityContext"] =
        json!({"runAsUser": 12345, "runAsGroup": 23456, "fsGroup": 2000, "supplementalGroups": [3000]});
    spec["volumes"] = json!([
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}}, {"name": "e", "emptyDir": {}},
    ]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "s", "mountPath": "/tally-s"}, {"name": "e", "mountPath": "/tally-e"}]);
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "23456 2000 3000\nsecret\n2000\n", "{pod:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_would_break_its_non_root_policy_waits() {
    if !rustix::process::geteuid().is_root() {
        // Nothing runs as root there.
        return;
    }
    let cluster = Cluster::start().await;
    let mut spec = script("true");
    spec["securityContext"] = json!({"runAsNonRoot": true});
    cluster.create_pod("p", spec).await;
    let waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = cluster.wait_for("p", waiting).await;
    assert_eq!(pod["status"]["phase"], "Pending", "PL-13");
    cluster.delete_pod("p", 0).await;
}
