//! Simulated nodes against an API server in this process.

mod support;

use node::{SimulatedNodes, SimulatedOptions};
use serde_json::{Value, json};
use support::Cluster;

async fn simulated() -> (Cluster, SimulatedNodes) {
    let cluster = Cluster::without_node().await;
    let nodes = SimulatedNodes::start(cluster.client(), SimulatedOptions::new(2)).await.expect("the nodes start");
    (cluster, nodes)
}

async fn create(cluster: &Cluster, name: &str, annotations: Value, policy: &str) {
    let spec = json!({
        "nodeName": "simulated-1",
        "restartPolicy": policy,
        "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}],
    });
    cluster.create_pod_with(json!({"name": name, "annotations": annotations}), spec).await;
}

fn code(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_end_as_their_annotations_say() {
    let (cluster, nodes) = simulated().await;
    for (name, annotations, phase, exit) in [
        ("plain", json!({}), "Succeeded", 0),
        ("short", json!({"tally.dev/simulate-duration": "50ms"}), "Succeeded", 0),
        ("code", json!({"tally.dev/simulate-exit-code": "3"}), "Failed", 3),
        ("none-fail", json!({"tally.dev/simulate-failure-share": "0"}), "Succeeded", 0),
        ("all-fail", json!({"tally.dev/simulate-failure-share": "1"}), "Failed", 1),
    ] {
        create(&cluster, name, annotations, "Never").await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(pod["status"]["phase"], phase, "{name}");
        assert_eq!(code(&pod), exit, "{name}");
    }
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_pod_restarts_if_its_policy_says_so() {
    let (cluster, nodes) = simulated().await;
    let annotations = json!({"tally.dev/simulate-exit-code": "7", "tally.dev/simulate-duration": "10ms"});
    create(&cluster, "p", annotations, "OnFailure").await;
    let pod = cluster.wait_for("p", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 7);
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_fails_and_goes() {
    let (cluster, nodes) = simulated().await;
    let mut watch = cluster.watch_pods().await;
    create(&cluster, "p", json!({"tally.dev/simulate-duration": "forever"}), "Never").await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.delete_pod("p", 30).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(watch.phases_until_deleted("p").await.last().map(String::as_str), Some("Failed"));
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_pods_go_on_under_the_next_simulation() {
    let (cluster, nodes) = simulated().await;
    create(&cluster, "p", json!({"tally.dev/simulate-duration": "300ms"}), "Never").await;
    let running = cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    nodes.stop().await;
    let nodes = SimulatedNodes::start(cluster.client(), SimulatedOptions::new(2)).await.expect("the nodes start");
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(pod["status"]["startTime"], running["status"]["startTime"]);
    nodes.stop().await;
}
