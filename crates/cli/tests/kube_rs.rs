//! kube-rs over HTTPS: typed calls, watcher and reflector, and a controller built on them that applies what it wants.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt};
use serde_json::json;
use testkit::Tally;
use tokio::time::timeout;

/// Far longer than anything here takes; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(data: &Path) -> Tally {
    let binary = Path::new(env!("CARGO_BIN_EXE_tally"));
    Tally::start(binary, data, &["--node", "none", "--controllers", "none"]).expect("tally starts")
}

async fn server() -> (Tally, Client, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = start(dir.path());
    let client = server.client().await.expect("a client");
    (server, client, dir)
}

#[tokio::test]
async fn a_job_lives_through_every_verb() {
    let (_server, client, _dir) = server().await;
    let jobs: Api<Job> = Api::default_namespaced(client);
    let created = jobs.create(&PostParams::default(), &testkit::job("pi")).await.unwrap();
    assert_eq!(created.spec.as_ref().unwrap().backoff_limit, Some(6));

    let patch = json!({ "spec": { "parallelism": 3 } });
    let params = PatchParams::default();
    for patch in [Patch::Strategic(&patch), Patch::Merge(&patch)] {
        let patched = jobs.patch("pi", &params, &patch).await.unwrap();
        assert_eq!(patched.spec.unwrap().parallelism, Some(3));
    }
    let mut current = jobs.get("pi").await.unwrap();
    current.labels_mut().insert("tier".to_owned(), "back".to_owned());
    let replaced = jobs.replace("pi", &PostParams::default(), &current).await.unwrap();
    let conflict = jobs.replace("pi", &PostParams::default(), &current).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.is_conflict()));

    let listed = jobs.list(&ListParams::default().labels("tier=back")).await.unwrap();
    assert_eq!(listed.items, [replaced]);
    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    assert!(jobs.delete("pi", &background).await.unwrap().is_right(), "gone at once");
    assert_eq!(jobs.get_opt("pi").await.unwrap(), None);
}

#[tokio::test]
async fn metadata_only_and_cluster_wide_lists_work() {
    let (_server, client, _dir) = server().await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &testkit::job("pi")).await.unwrap();
    let everywhere: Api<Job> = Api::all(client);
    let listed = everywhere.list_metadata(&ListParams::default()).await.unwrap();
    let names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["pi"]);
}

#[tokio::test]
async fn a_reflector_follows_creation_change_and_deletion() {
    let (_server, client, _dir) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for number in 0..3 {
        maps.create(&PostParams::default(), &testkit::config_map(&format!("m-{number}"), "old")).await.unwrap();
    }
    // Pages of one: the initial list has to follow continue tokens.
    let config = watcher::Config::default().page_size(1);
    let (store, writer) = reflector::store();
    let mut events = std::pin::pin!(watcher(maps.clone(), config).reflect(writer));
    let mut next = async || timeout(PATIENCE, events.try_next()).await.unwrap().unwrap().expect("watchers do not end");
    while !matches!(next().await, watcher::Event::InitDone) {}
    assert_eq!(store.state().iter().filter(|map| map.name_any().starts_with("m-")).count(), 3);

    let patch = json!({ "data": { "value": "new" } });
    maps.patch("m-1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert!(matches!(next().await, watcher::Event::Apply(map) if map.name_any() == "m-1"));
    maps.delete("m-2", &DeleteParams::default()).await.unwrap();
    assert!(matches!(next().await, watcher::Event::Delete(map) if map.name_any() == "m-2"));
    let reference = |name: &str| ObjectRef::<ConfigMap>::new(name).within("default");
    assert_eq!(store.get(&reference("m-1")).unwrap().data.as_ref().unwrap()["value"], "new");
    assert!(store.get(&reference("m-2")).is_none());
}

#[tokio::test]
async fn a_watcher_streams_its_initial_list() {
    let (_server, client, _dir) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &testkit::config_map("there", "")).await.unwrap();
    let mut events = std::pin::pin!(watcher(maps, watcher::Config::default().streaming_lists()));
    let mut names = Vec::new();
    loop {
        match timeout(PATIENCE, events.try_next()).await.unwrap().unwrap().expect("watchers do not end") {
            watcher::Event::InitApply(map) => names.push(map.name_any()),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    assert!(names.contains(&"there".to_owned()), "{names:?}");
}

#[tokio::test]
async fn a_watch_resumes_after_the_server_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    let maps: Api<ConfigMap> = Api::default_namespaced(first.client().await.unwrap());
    maps.create(&PostParams::default(), &testkit::config_map("before", "")).await.unwrap();
    let listed = maps.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap();
    maps.create(&PostParams::default(), &testkit::config_map("between", "")).await.unwrap();
    first.kill().unwrap();

    // The watch goes on from a version that the dead server gave out.
    let second = start(dir.path());
    let maps: Api<ConfigMap> = Api::default_namespaced(second.client().await.unwrap());
    let events = maps.watch(&Default::default(), &version).await.unwrap();
    let mut events = std::pin::pin!(events);
    let event = timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(event, kube::api::WatchEvent::Added(map) if map.name_any() == "between"));
}

#[tokio::test]
async fn a_wrong_token_is_unauthorized() {
    let (server, _client, dir) = server().await;
    let token = std::fs::read_to_string(dir.path().join("token")).unwrap();
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap().replace(token.trim(), &"0".repeat(64));
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, kubeconfig).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(testkit::client_for(&wrong).await.unwrap());
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
}

/// What the controller below needs of the world.
struct Cluster {
    client: Client,
}

const MANAGER: &str = "wishes-controller";

/// Wants a Job for every ConfigMap labelled `wish`, as large as the ConfigMap says, and says so by server-side apply.
async fn grant(wish: Arc<ConfigMap>, cluster: Arc<Cluster>) -> Result<Action, kube::Error> {
    let jobs: Api<Job> = Api::default_namespaced(cluster.client.clone());
    let parallelism: i32 = wish.data.as_ref().and_then(|data| data["value"].parse().ok()).unwrap_or(1);
    let container = json!({ "name": "main", "image": "busybox", "command": ["true"] });
    let wanted = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": wish.name_any(), "ownerReferences": [wish.controller_owner_ref(&())] },
        "spec": {
            "parallelism": parallelism,
            "template": { "spec": { "restartPolicy": "Never", "containers": [container] } },
        },
    });
    jobs.patch(&wish.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(wanted)).await?;
    Ok(Action::await_change())
}

/// Waits until the Job is as a controller should have made it.
async fn until(jobs: &Api<Job>, name: &str, holds: impl Fn(&Job) -> bool) -> Job {
    let mut events = std::pin::pin!(kube::runtime::watcher::watch_object(jobs.clone(), name));
    let looking = async {
        loop {
            if let Some(job) = events.try_next().await.expect("a watch").flatten()
                && holds(&job)
            {
                return job;
            }
        }
    };
    timeout(PATIENCE, looking).await.expect("the controller does its work")
}

fn parallelism(job: &Job) -> Option<i32> {
    job.spec.as_ref().and_then(|spec| spec.parallelism)
}

#[tokio::test]
async fn a_controller_keeps_what_it_applied() {
    let (_server, client, _dir) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let chosen = watcher::Config::default().labels("wish");
    let controller = Controller::new(maps.clone(), chosen)
        .owns(jobs.clone(), watcher::Config::default())
        .run(grant, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(Cluster { client }))
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(controller);

    let mut wish = testkit::config_map("wish", "2");
    wish.labels_mut().insert("wish".to_owned(), String::new());
    maps.create(&PostParams::default(), &wish).await.unwrap();
    let made = until(&jobs, "wish", |job| parallelism(job) == Some(2)).await;
    let owners: Vec<_> = made.managed_fields().iter().map(|entry| (&entry.manager, &entry.operation)).collect();
    assert_eq!(owners, [(&Some(MANAGER.to_owned()), &Some("Apply".to_owned()))]);

    // Its own wish changes; somebody else interferes; somebody deletes what it made.
    let change = json!({ "data": { "value": "3" } });
    maps.patch("wish", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    until(&jobs, "wish", |job| parallelism(job) == Some(3)).await;
    let polite = json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": { "parallelism": 9 } });
    let refused = jobs.patch("wish", &PatchParams::apply("somebody"), &Patch::Apply(&polite)).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.is_conflict()), "{refused}");
    jobs.patch("wish", &PatchParams::apply("somebody").force(), &Patch::Apply(&polite)).await.unwrap();
    until(&jobs, "wish", |job| parallelism(job) == Some(3)).await;
    jobs.delete("wish", &DeleteParams::background()).await.unwrap();
    let again = until(&jobs, "wish", |job| job.uid() != made.uid()).await;
    assert_eq!(parallelism(&again), Some(3));
    running.abort();
}
