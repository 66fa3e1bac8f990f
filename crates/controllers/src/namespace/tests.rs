//! The namespace controller against the real API server on an in-memory store.

use super::*;
use crate::testing::{World, config_map, pod};

const NAMESPACES: &Resource = &Resource::NAMESPACES;

async fn emptying(furnishing: Furnishing) -> World {
    let mut world = World::new().await;
    let context = world.context.clone();
    world.spawn("namespace", run(context, Options { workers: 2, grace: Duration::from_millis(1), furnishing }));
    world
}

fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_namespace_goes_with_its_content() {
    let world = emptying(Furnishing::default()).await;
    world.namespace("ns").await;
    world.create(&Resource::CONFIG_MAPS, "ns", config_map("a")).await;
    world.create(&Resource::PODS, "ns", pod("p")).await;
    world.create(&Resource::CONFIG_MAPS, "default", config_map("other")).await;
    world.delete(NAMESPACES, "", "ns", "Background").await;
    world.wait_gone(NAMESPACES, "", "ns").await;
    assert!(world.get(&Resource::CONFIG_MAPS, "ns", "a").await.is_none());
    assert!(world.get(&Resource::CONFIG_MAPS, "default", "other").await.is_some());
}

/// PL-101: what is held is named, and the namespace goes when it is let go.
#[tokio::test]
async fn content_with_finalizers_is_reported_and_waited_for() {
    let world = emptying(Furnishing::default()).await;
    world.namespace("ns").await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    world.create(&Resource::CONFIG_MAPS, "ns", held).await;
    world.delete(NAMESPACES, "", "ns", "Background").await;
    let reported = |namespace: Option<&Value>| {
        namespace.is_some_and(|namespace| condition(namespace, "NamespaceFinalizersRemaining")["status"] == "True")
    };
    let namespace = world.wait(NAMESPACES, "", "ns", reported).await.unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let remaining = condition(&namespace, "NamespaceContentRemaining");
    assert_eq!(remaining["message"], "Some resources are remaining: configmaps. has 1 resource instances");
    let finalizers = condition(&namespace, "NamespaceFinalizersRemaining");
    assert_eq!(
        finalizers["message"],
        "Some content in the namespace has finalizers remaining: x.y/z in 1 resource instances"
    );
    world.patch(&Resource::CONFIG_MAPS, "ns", "held", json!({"metadata": {"finalizers": null}})).await;
    world.wait_gone(NAMESPACES, "", "ns").await;
}

#[tokio::test]
async fn pods_go_before_everything_else() {
    let world = emptying(Furnishing::default()).await;
    world.namespace("ns").await;
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    world.create(&Resource::PODS, "ns", held).await;
    world.create(&Resource::CONFIG_MAPS, "ns", config_map("a")).await;
    world.delete(NAMESPACES, "", "ns", "Background").await;
    let reported = |namespace: Option<&Value>| {
        namespace.is_some_and(|namespace| condition(namespace, "NamespaceContentRemaining")["status"] == "True")
    };
    let namespace = world.wait(NAMESPACES, "", "ns", reported).await.unwrap();
    let remaining = condition(&namespace, "NamespaceContentRemaining");
    assert_eq!(remaining["message"], "Some resources are remaining: pods. has 1 resource instances");
    assert!(world.get(&Resource::CONFIG_MAPS, "ns", "a").await.is_some());
    world.patch(&Resource::PODS, "ns", "held", json!({"metadata": {"finalizers": null}})).await;
    world.wait_gone(NAMESPACES, "", "ns").await;
}

#[tokio::test]
async fn other_finalizers_of_the_namespace_are_left_to_their_owners() {
    let world = emptying(Furnishing::default()).await;
    let namespace = json!({"metadata": {"name": "ns"}, "spec": {"finalizers": ["example.com/mine", "kubernetes"]}});
    world.create(NAMESPACES, "", namespace).await;
    world.delete(NAMESPACES, "", "ns", "Background").await;
    let emptied = |namespace: Option<&Value>| {
        namespace.is_some_and(|namespace| namespace["spec"]["finalizers"] == json!(["example.com/mine"]))
    };
    world.wait(NAMESPACES, "", "ns", emptied).await;
}

#[tokio::test]
async fn every_namespace_is_furnished_if_asked_for() {
    let furnishing = Furnishing { service_account: true, root_ca: Some("PEM".to_owned()) };
    let world = emptying(furnishing).await;
    world.namespace("ns").await;
    for namespace in ["ns", "default"] {
        world.wait(&Resource::SERVICE_ACCOUNTS, namespace, "default", |found| found.is_some()).await;
        let filled = |map: Option<&Value>| map.is_some_and(|map| map["data"]["ca.crt"] == "PEM");
        world.wait(&Resource::CONFIG_MAPS, namespace, "kube-root-ca.crt", filled).await;
    }
}

#[test]
fn looking_again_is_quick_at_first_and_bounded_by_the_estimate() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _guard = runtime.enter();
    let emptier = Emptier {
        client: Client::new(service, "default"),
        environment: Environment::system(),
        rounds: Mutex::default(),
    };
    let estimate = Duration::from_secs(30);
    let delays: Vec<u128> = (0..8).map(|_| emptier.delay(&"ns".into(), estimate).as_millis()).collect();
    assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16000, 16000, 16000]);
}
