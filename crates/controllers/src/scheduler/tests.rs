//! The scheduler against the real API server.

use std::time::Duration;

use serde_json::{Value, json};

use super::Options;
use crate::{
    runtime::Resource,
    testing::{World, pod},
};

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"name": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "10"}},
    })
}

/// Nodes start with a taint that says that nobody has seen them ready.
async fn add_node(world: &World, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    world.create(&Resource::NODES, "", object).await;
    world.patch(&Resource::NODES, "", &name, json!({"spec": {"taints": null}})).await;
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

async fn world() -> World {
    let mut world = World::new().await;
    let context = world.context.clone();
    world.spawn("scheduler", super::run(context, Options::default()));
    world
}

async fn wait_for_node(world: &World, name: &str) -> String {
    let bound = |pod: Option<&Value>| pod.is_some_and(|pod| pod["spec"]["nodeName"].is_string());
    let pod = world.wait(&Resource::PODS, "default", name, bound).await.unwrap();
    pod["spec"]["nodeName"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn pods_are_bound_where_they_fit() {
    let world = world().await;
    add_node(&world, node("small", "1")).await;
    add_node(&world, node("large", "4")).await;
    world.create(&Resource::PODS, "default", asking("big", "3")).await;
    assert_eq!(wait_for_node(&world, "big").await, "large");
    let mut choosy = pod("choosy");
    choosy["spec"]["nodeSelector"] = json!({"name": "small"});
    world.create(&Resource::PODS, "default", choosy).await;
    assert_eq!(wait_for_node(&world, "choosy").await, "small");
    let event = world.wait_event("Scheduled").await;
    assert_eq!(event["source"]["component"], "default-scheduler");
    assert_eq!(event["message"], "Successfully assigned default/big to large");
}

#[tokio::test]
async fn a_pod_that_does_not_fit_hears_why_and_is_bound_when_room_appears() {
    let world = world().await;
    add_node(&world, node("n", "1")).await;
    world.create(&Resource::PODS, "default", asking("first", "1")).await;
    wait_for_node(&world, "first").await;
    world.create(&Resource::PODS, "default", asking("second", "1")).await;
    let told = |pod: Option<&Value>| {
        let conditions = pod.and_then(|pod| pod["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|it| it["type"] == "PodScheduled" && it["reason"] == "Unschedulable")
    };
    let pod = world.wait(&Resource::PODS, "default", "second", told).await.unwrap();
    let message = pod["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{message}");
    assert_eq!(world.wait_event("FailedScheduling").await["type"], "Warning");
    // A pod that has ended takes no room.
    world.patch_status(&Resource::PODS, "default", "first", json!({"status": {"phase": "Succeeded"}})).await;
    assert_eq!(wait_for_node(&world, "second").await, "n");
}

#[tokio::test]
async fn gated_and_foreign_pods_stay_where_they_are() {
    let world = world().await;
    add_node(&world, node("n", "1")).await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    world.create(&Resource::PODS, "default", gated).await;
    let mut foreign = pod("foreign");
    foreign["spec"]["schedulerName"] = json!("other");
    world.create(&Resource::PODS, "default", foreign).await;
    world.create(&Resource::PODS, "default", pod("ours")).await;
    wait_for_node(&world, "ours").await;
    for name in ["gated", "foreign"] {
        let pod = world.get(&Resource::PODS, "default", name).await.unwrap();
        assert_eq!(pod["spec"].get("nodeName"), None, "{name}");
    }
    world.patch(&Resource::PODS, "default", "gated", json!({"spec": {"schedulingGates": null}})).await;
    wait_for_node(&world, "gated").await;
}

#[tokio::test]
async fn nodes_that_are_not_ready_get_nothing_until_the_taint_is_gone() {
    let world = world().await;
    world.create(&Resource::NODES, "", node("n", "1")).await;
    world.create(&Resource::PODS, "default", pod("p")).await;
    let event = tokio::time::timeout(Duration::from_secs(20), world.wait_event("FailedScheduling")).await.unwrap();
    assert!(event["message"].as_str().unwrap().contains("1 node(s) had untolerated taint(s)"), "{event}");
    world.patch(&Resource::NODES, "", "n", json!({"spec": {"taints": null}})).await;
    assert_eq!(wait_for_node(&world, "p").await, "n");
}
