//! The garbage collector against the real API server on an in-memory store.

use std::collections::HashMap;

use batch_plan::gc::Kind;
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{projection::Metadata, *};
use crate::{
    runtime::{Change, Resource, intern::Interner},
    testing::{World, config_map, owned, pod},
};

const MAPS: &Resource = &Resource::CONFIG_MAPS;
const PODS: &Resource = &Resource::PODS;

async fn collecting() -> World {
    let mut world = World::new().await;
    let context = world.context.clone();
    world.spawn("gc", run(context, Options { workers: 4, ..Options::default() }));
    world
}

fn owners(object: Option<&Value>) -> Vec<&str> {
    let references = object.and_then(|object| object["metadata"]["ownerReferences"].as_array());
    references.into_iter().flatten().filter_map(|owner| owner["name"].as_str()).collect()
}

#[tokio::test]
async fn background_deletion_cascades_through_generations() {
    let world = collecting().await;
    let top = world.create(MAPS, "default", config_map("top")).await;
    let middle = world.create(MAPS, "default", owned(config_map("middle"), &top, true)).await;
    world.create(MAPS, "default", owned(config_map("bottom"), &middle, true)).await;
    world.delete(MAPS, "default", "top", "Background").await;
    world.wait_gone(MAPS, "default", "top").await;
    world.wait_gone(MAPS, "default", "middle").await;
    world.wait_gone(MAPS, "default", "bottom").await;
}

#[tokio::test]
async fn foreground_deletion_ends_with_the_last_blocking_dependent() {
    let world = collecting().await;
    let top = world.create(MAPS, "default", config_map("top")).await;
    let mut held = owned(config_map("held"), &top, true);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let held = world.create(MAPS, "default", held).await;
    world.create(MAPS, "default", owned(config_map("leaf"), &held, true)).await;
    world.delete(MAPS, "default", "top", "Foreground").await;
    // What is in the way is deleted in the foreground too, because it has dependents of its own (PL-98).
    let waits = |object: Option<&Value>| {
        object.is_some_and(|object| object["metadata"]["finalizers"] == json!(["example.com/hold"]))
            && object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
    };
    world.wait_gone(MAPS, "default", "leaf").await;
    world.wait(MAPS, "default", "held", waits).await;
    let top = world.get(MAPS, "default", "top").await.expect("waits for what is held");
    assert_eq!(top["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    world.patch(MAPS, "default", "held", json!({"metadata": {"finalizers": null}})).await;
    world.wait_gone(MAPS, "default", "held").await;
    world.wait_gone(MAPS, "default", "top").await;
}

#[tokio::test]
async fn foreground_deletion_does_not_wait_for_others() {
    let world = collecting().await;
    let top = world.create(MAPS, "default", config_map("top")).await;
    let mut loose = owned(config_map("loose"), &top, false);
    loose["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(MAPS, "default", loose).await;
    world.delete(MAPS, "default", "top", "Foreground").await;
    world.wait_gone(MAPS, "default", "top").await;
    let deleting =
        |object: Option<&Value>| object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string());
    world.wait(MAPS, "default", "loose", deleting).await;
    world.patch(MAPS, "default", "loose", json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn circles_of_owners_can_be_deleted() {
    let world = collecting().await;
    let a = world.create(MAPS, "default", config_map("a")).await;
    let b = world.create(MAPS, "default", owned(config_map("b"), &a, true)).await;
    let references = owned(config_map("a"), &b, true)["metadata"]["ownerReferences"].clone();
    world.patch(MAPS, "default", "a", json!({"metadata": {"ownerReferences": references}})).await;
    world.delete(MAPS, "default", "a", "Foreground").await;
    world.wait_gone(MAPS, "default", "a").await;
    world.wait_gone(MAPS, "default", "b").await;
}

#[tokio::test]
async fn orphans_lose_their_owner_and_live_on() {
    let world = collecting().await;
    let top = world.create(MAPS, "default", config_map("top")).await;
    let other = world.create(MAPS, "default", config_map("other")).await;
    world.create(PODS, "default", owned(pod("one"), &top, true)).await;
    world.create(PODS, "default", owned(owned(pod("two"), &other, false), &top, true)).await;
    // The watches must have seen the pods: an orphan that nobody knows of is no orphan.
    world
        .create(
            MAPS,
            "default",
            owned(
                config_map("seen"),
                &json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "absent", "uid": "absent"},
                }),
                false,
            ),
        )
        .await;
    world.wait_gone(MAPS, "default", "seen").await;
    world.delete(MAPS, "default", "top", "Orphan").await;
    world.wait_gone(MAPS, "default", "top").await;
    assert_eq!(owners(world.get(PODS, "default", "one").await.as_ref()), [""; 0]);
    assert_eq!(owners(world.get(PODS, "default", "two").await.as_ref()), ["other"]);
}

#[tokio::test]
async fn an_object_stays_while_one_of_its_owners_does() {
    let world = collecting().await;
    let a = world.create(MAPS, "default", config_map("a")).await;
    let b = world.create(MAPS, "default", config_map("b")).await;
    world.create(MAPS, "default", owned(owned(config_map("child"), &a, false), &b, false)).await;
    world.delete(MAPS, "default", "a", "Background").await;
    world.wait(MAPS, "default", "child", |child| owners(child) == ["b"]).await;
    world.delete(MAPS, "default", "b", "Background").await;
    world.wait_gone(MAPS, "default", "child").await;
}

/// INV-40, PL-91: references to the same uid that go wrong in other ways, judged first, say nothing about the right one. The
/// graph has not seen the owner yet, as when one watch is behind the other.
#[tokio::test]
async fn a_wrong_reference_to_a_living_owner_condemns_only_who_has_it() {
    let world = World::new().await;
    let top = world.create(MAPS, "default", config_map("top")).await;
    let wrongly = |field: &str, value: &str| {
        let mut other = top.clone();
        *other.pointer_mut(field).unwrap() = json!(value);
        other
    };
    let references = [
        ("wrong-name", wrongly("/metadata/name", "absent"), false),
        ("wrong-kind", wrongly("/kind", "Secret"), false),
        ("wrong-group", wrongly("/apiVersion", "gone/v1"), false),
        ("right", top.clone(), true),
    ];
    let kinds = ["", "gone"].into_iter().flat_map(|group| ["ConfigMap", "Secret"].map(|name| kind(group, name)));
    let kinds: HashMap<_, _> = kinds.map(|kind| ((kind.group.clone(), kind.kind.clone()), kind)).collect();
    let maps = kinds[&(String::new(), "ConfigMap".to_owned())].clone();
    let (judge, graph) = judge(&world, kinds);
    for (name, owner, stays) in references {
        let object = world.create(MAPS, "default", owned(config_map(name), &owner, false)).await;
        let uid: Uid = object["metadata"]["uid"].as_str().unwrap().into();
        let seen: Metadata = serde_json::from_value(object).unwrap();
        graph.lock().apply(projection::object(&mut Interner::default(), &maps, seen.metadata));
        let outcome = judge.judge(&uid).await;
        assert_eq!(world.get(MAPS, "default", name).await.is_some(), stays, "{name}");
        assert_eq!(matches!(outcome, Err(GcError::Unseen(_))), stays, "{name}: {outcome:?}");
    }
}

/// INV-30, INV-40: an owner that the server knows goes before any watch has shown it, as when a watch lists again.
#[tokio::test]
async fn an_owner_that_no_watch_has_shown_is_asked_for_until_one_has() {
    let world = World::new().await;
    let map = kind("", "ConfigMap");
    let (judge, graph) = judge(&world, HashMap::from([((map.group.clone(), map.kind.clone()), map.clone())]));
    let see = |object: &Value| {
        let seen: Metadata = serde_json::from_value(object.clone()).unwrap();
        graph.lock().apply(projection::object(&mut Interner::default(), &map, seen.metadata))
    };
    let create = async |name: &str, owner: &Value| {
        let object = world.create(MAPS, "default", owned(config_map(name), owner, false)).await;
        see(&object);
        Uid::from(object["metadata"]["uid"].as_str().unwrap())
    };
    let (seen, unseen) = (
        world.create(MAPS, "default", config_map("seen")).await,
        world.create(MAPS, "default", config_map("unseen")).await,
    );
    let (stays, goes) = (create("stays", &seen).await, create("goes", &unseen).await);
    for child in [&stays, &goes] {
        assert!(matches!(judge.judge(child).await, Err(GcError::Unseen(_))), "it is to be asked for again");
    }
    see(&seen);
    world.delete(MAPS, "default", "unseen", "Background").await;
    for child in [&stays, &goes] {
        judge.judge(child).await.unwrap();
    }
    assert!(world.get(MAPS, "default", "stays").await.is_some());
    assert!(world.get(MAPS, "default", "goes").await.is_none());
}

fn kind(group: &str, name: &str) -> Arc<Kind> {
    Arc::new(Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: name.to_owned(),
        plural: format!("{}s", name.to_lowercase()),
        namespaced: true,
    })
}

/// A judge without monitors: its graph knows what it is told.
fn judge(world: &World, kinds: HashMap<(String, String), Arc<Kind>>) -> (Judge, Arc<Mutex<Graph>>) {
    let queue = |name| WorkQueue::new(name, RetryPolicy::default(), &world.context.metrics);
    let graph = Arc::<Mutex<Graph>>::default();
    let shared = Shared {
        graph: graph.clone(),
        judge: queue("judge"),
        orphan: queue("orphan"),
        recorder: world.context.recorder.clone(),
    };
    (Judge::new(world.context.client.clone(), shared, Arc::new(RwLock::new(kinds))), graph)
}

/// INV-32: ten thousand Jobs go, each with a pod, before it or after it.
#[tokio::test]
async fn reg_a14_nothing_is_remembered_of_what_is_gone() {
    const JOBS: usize = 10_000;
    let world = World::new().await;
    let (judge, _) = judge(&world, HashMap::new());
    let (shared, interner) = (judge.shared(), Mutex::new(Interner::default()));
    let kind = |name: &str| {
        let (group, version) = ("batch".to_owned(), "v1".to_owned());
        Arc::new(Kind { group, version, kind: name.to_owned(), plural: String::new(), namespaced: true })
    };
    let kinds = [kind("Job"), kind("Pod")];
    let object = |number: usize, owned: bool| -> Metadata {
        let name = if owned { format!("pod-{number}") } else { format!("job-{number}") };
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": format!("job-{number}"),
                           "uid": format!("job-{number}"), "blockOwnerDeletion": true});
        let owners = if owned { json!([owner]) } else { json!([]) };
        let metadata = json!({"uid": name, "name": name, "namespace": "default", "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let note = |number: usize, owned: bool, change: fn(Metadata) -> Change<Metadata>| {
        monitors::note(shared, &interner, &kinds[usize::from(owned)], change(object(number, owned)));
    };
    for number in 0..JOBS {
        // Pods may be heard of before their Jobs.
        let job_first = number.is_multiple_of(2);
        for owned in [!job_first, job_first] {
            note(number, owned, Change::Applied);
        }
    }
    let vanished = |object: Metadata| Change::Vanished { uid: object.metadata.uid.into() };
    for number in 0..JOBS {
        let pod_first = number.is_multiple_of(3);
        for owned in [pod_first, !pod_first] {
            note(number, owned, if number.is_multiple_of(5) { vanished } else { Change::Deleted });
        }
    }
    // Those that were in doubt when their Job went are gone by now.
    while !shared.judge.is_empty() {
        let work = shared.judge.next().await.unwrap();
        let outcome = judge.judge(work.key()).await;
        work.finish(&outcome);
    }
    assert!(shared.graph.lock().is_empty());
    assert_eq!((shared.judge.remembered(), shared.orphan.remembered()), (0, 0));
}

/// INV-46, PL-94, PL-98: what a wrong reference was told does not turn a foreground deletion into another one.
#[tokio::test]
async fn foreground_deletion_is_what_it_says_also_after_a_wrong_reference() {
    let world = collecting().await;
    let top = world.create(MAPS, "default", config_map("top")).await;
    let mut misnamed = top.clone();
    misnamed["metadata"]["name"] = json!("absent");
    world.create(MAPS, "default", owned(config_map("wrong"), &misnamed, false)).await;
    world.wait_gone(MAPS, "default", "wrong").await;

    let middle = world.create(MAPS, "default", owned(config_map("middle"), &top, true)).await;
    let mut leaf = owned(config_map("leaf"), &middle, true);
    leaf["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(MAPS, "default", leaf).await;
    world.delete(MAPS, "default", "top", "Foreground").await;
    let deleting =
        |object: Option<&Value>| object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string());
    world.wait(MAPS, "default", "leaf", deleting).await;
    let middle = world.get(MAPS, "default", "middle").await.expect("waits for the leaf");
    assert_eq!(middle["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    world.patch(MAPS, "default", "leaf", json!({"metadata": {"finalizers": null}})).await;
    world.wait_gone(MAPS, "default", "top").await;
}

/// PL-92: a namesake of the owner is not the owner.
#[tokio::test]
async fn an_owner_made_anew_does_not_inherit() {
    let mut world = World::new().await;
    let old = world.create(MAPS, "default", config_map("owner")).await;
    world.create(MAPS, "default", owned(config_map("child"), &old, false)).await;
    world.delete(MAPS, "default", "owner", "Background").await;
    let new = world.create(MAPS, "default", config_map("owner")).await;
    world.create(MAPS, "default", owned(config_map("own-child"), &new, false)).await;
    let context = world.context.clone();
    world.spawn("gc", run(context, Options::default()));
    world.wait_gone(MAPS, "default", "child").await;
    assert!(world.get(MAPS, "default", "own-child").await.is_some());
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_reported_and_counts_as_absent() {
    let world = collecting().await;
    world.namespace("other").await;
    let far = world.create(MAPS, "other", config_map("far")).await;
    let child = world.create(MAPS, "default", owned(config_map("child"), &far, false)).await;
    world.wait_gone(MAPS, "default", "child").await;
    let event = world.wait_event("OwnerRefInvalidNamespace").await;
    let uid = far["metadata"]["uid"].as_str().unwrap();
    let expected = format!(
        "ownerRef [v1/ConfigMap, namespace: default, name: far, uid: {uid}] does not exist in namespace \"default\""
    );
    assert_eq!(event["message"], expected);
    assert_eq!(event["involvedObject"]["uid"], child["metadata"]["uid"]);
    assert_eq!(event["source"]["component"], "garbage-collector-controller");
}

#[tokio::test]
async fn what_cannot_be_judged_is_left_alone() {
    let world = collecting().await;
    let stranger = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "t"}});
    world.create(MAPS, "default", owned(config_map("unknown-owner"), &stranger, false)).await;
    let map = world.create(MAPS, "default", config_map("map")).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    world.create(&Resource::NODES, "", owned(node, &map, false)).await;
    // Something that is collected shows that the collector got this far.
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "absent", "uid": "absent"}});
    world.create(MAPS, "default", owned(config_map("garbage"), &absent, false)).await;
    world.wait_gone(MAPS, "default", "garbage").await;
    assert!(world.get(MAPS, "default", "unknown-owner").await.is_some());
    assert!(world.get(&Resource::NODES, "", "n").await.is_some());
}
