//! Pods that come with a `nodeName`, for which no scheduler has found out whether they fit.

use node::Capacity;
use serde_json::{Value, json};

use crate::script;
use crate::support::Cluster;

fn asking(script_text: &str, cpu: &str) -> Value {
    let mut spec = script(script_text);
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    spec
}

fn reason_and_message(pod: &Value) -> (&str, &str) {
    let text = |key: &str| pod["status"][key].as_str().unwrap_or_default();
    (text("reason"), text("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_not_fit_are_refused() {
    let capacity = Capacity { cpu_millis: 2000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30, pods: 10 };
    let cluster = Cluster::start_with(|options| options.capacity = capacity).await;
    cluster.create_pod("first", asking("sleep 1000", "1500m")).await;
    cluster.wait_for("first", |pod| pod["status"]["phase"] == "Running").await;
    cluster.create_pod("second", asking("true", "501m")).await;
    let pod = cluster.wait_for_end("second").await;
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000";
    assert_eq!(reason_and_message(&pod), ("OutOfcpu", message));
    assert_eq!(pod["status"]["containerStatuses"], Value::Null, "PL-22");
    cluster.create_pod("third", asking("true", "500m")).await;
    assert_eq!(cluster.wait_for_end("third").await["status"]["phase"], "Succeeded");
    cluster.delete_pod("first", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_want_another_node_are_refused() {
    let cluster = Cluster::start().await;
    for (name, os, phase, reason) in [("other", "plan9", "Failed", "NodeAffinity"), ("own", "linux", "Succeeded", "")] {
        let mut spec = script("true");
        spec["nodeSelector"] = json!({"kubernetes.io/os": os});
        cluster.create_pod(name, spec).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!((pod["status"]["phase"].as_str(), reason_and_message(&pod).0), (Some(phase), reason), "{pod:#}");
    }
}
