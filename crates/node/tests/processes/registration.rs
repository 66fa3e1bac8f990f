//! What the node says about itself (PL-136).

use crate::support::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn the_node_registers_and_holds_a_lease() {
    let cluster = Cluster::start().await;
    let node = cluster.get("/api/v1/nodes/here").await.unwrap();
    assert_eq!(node["metadata"]["labels"]["tally.dev/runtime"], "process");
    let conditions = node["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"));
    assert!(conditions.iter().any(|it| it["type"] == "tally.dev/ContainerImages" && it["status"] == "False"));
    assert!(node["status"]["allocatable"]["ephemeral-storage"].is_string(), "PL-103");
    let lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/here").await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "here");
}
