//! The values of Secrets are seen by the containers that ask for them and by nobody else (INV-53, BI-108).

use serde_json::{Value, json};

use crate::support::{self, Cluster, until};
use crate::{script, terminated};

const VALUE: &str = "very-secret-value";

async fn cluster_with_secret() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"k": VALUE}})).await;
    cluster
}

fn variable() -> Value {
    json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])
}

/// A pod whose script sees the secret as a variable.
fn with_secret(text: &str) -> Value {
    let mut spec = script(text);
    spec["containers"][0]["env"] = variable();
    spec
}

/// Neither on disk nor in the API, beside the Secret itself.
async fn assert_hidden(cluster: &Cluster, when: &str) {
    assert!(!support::text_below(&cluster.node_directory()).contains(VALUE), "BI-108: on disk {when}");
    for plural in ["pods", "events"] {
        let list = cluster.get(&format!("/api/v1/namespaces/default/{plural}")).await.expect("the API lists them");
        assert!(!list.to_string().contains(VALUE), "BI-108: in {plural} {when}: {list:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_crash_shows_a_secret() {
    let mut cluster = cluster_with_secret().await;
    let go = cluster.directory().join("go");
    let text = format!("test -n \"$V\" || exit 1; until test -e {}; do sleep 0.02; done; exit 5", go.display());
    cluster.create_pod("p", with_secret(&text)).await;
    cluster.crash_node().await;
    assert_hidden(&cluster, "after a crash before the start").await;
    cluster.start_node().await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    assert_hidden(&cluster, "while it runs").await;
    cluster.crash_node().await;
    std::fs::write(&go, "").unwrap();
    until("the nursery has seen the end", || async { cluster.journal().contains("{\"Code\":5}") }).await;
    assert_hidden(&cluster, "after an end that nobody saw").await;
    cluster.start_node().await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 5);
    assert_hidden(&cluster, "in the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_nursery_shows_no_secret() {
    let cluster = cluster_with_secret().await;
    cluster.create_pod("p", with_secret("while :; do sleep 0.05; done")).await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.kill_nursery();
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["reason"], "ContainerStatusUnknown");
    assert_hidden(&cluster, "after the nursery was killed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_what_the_pod_wrote_and_not_what_became_of_it() {
    let cluster = cluster_with_secret().await;
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "command": ["/$(V)"], "env": variable()}],
    });
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["message"], "exec: \"/$(V)\": stat /$(V): no such file or directory");
    assert_hidden(&cluster, "after a failed start").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_secrets_go_with_their_pod() {
    let cluster = cluster_with_secret().await;
    let mut spec = script(&format!("test $(wc -c < /tally-secret/k) = {} && exit 5", VALUE.len()));
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/tally-secret"}]);
    spec["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 5, "{pod:#}");
    until("the files are gone", || async { !support::text_below(&cluster.node_directory()).contains(VALUE) }).await;
    assert_hidden(&cluster, "in the end").await;
}
