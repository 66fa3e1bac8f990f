//! Real bugs of the past that need a server to show (REG-…): A08, C13, C19, C24, F08, F25, H01, H03, H05 and H07.
//!
//! Those that are about how often and when something is tried, C22 and C25, are in `attempts`. Those that concern one
//! controller alone are among its own tests, pure ones in `batch-plan`.

mod attempts;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use batch_plan::job::Settings;
use futures_util::FutureExt as _;
use http::Method;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cronjob,
    faults::{self, Fault, Faults},
    gc, job, podgc,
    runtime::{
        ControllerContext, Metrics, Resource, RetryPolicy, WorkQueue,
        requests::{self, DeleteOptions},
    },
    testing::{World, config_map, owned, pod},
};

const JOBS: &Resource = &Resource::JOBS;
const PODS: &Resource = &Resource::PODS;
const MAPS: &Resource = &Resource::CONFIG_MAPS;

fn job_options() -> job::Options {
    let settings = Settings { sync_batch_period: Duration::from_millis(5), ..Settings::default() };
    job::Options { settings, ..job::Options::default() }
}

fn job_object(name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                            "spec": {"template": {"spec": pod("x")["spec"]}}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

/// The Job is deleted, its dependents to be orphaned, right before the fresh read that adoption needs (INV-16).
#[tokio::test]
async fn reg_c19_a_job_that_is_being_deleted_does_not_adopt() {
    let delete = |client: Client| {
        let options = DeleteOptions { propagation_policy: Some("Orphan"), ..DeleteOptions::default() };
        async move { requests::delete(&client, &JOBS.object("default", "a"), &options).await.unwrap() }.boxed()
    };
    // Reads of a Job that may be older than the process are not the ones.
    let armed = Arc::new(AtomicBool::new(false));
    let faults = Faults::when(armed.clone(), Method::GET, "/jobs/a", Fault::Interference(Arc::new(delete)));
    let mut world = World::new().await;
    faults::spawn(&mut world, &faults, |context| job::run(context, job_options()));
    let template = json!({"metadata": {"labels": {"of": "a"}}, "spec": pod("x")["spec"]});
    let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"of": "a"}}, "template": template});
    world.create(JOBS, "default", job_object("a", spec)).await;
    let has_pod = |job: Option<&Value>| job.is_some_and(|job| job["status"]["active"] == 1);
    world.wait(JOBS, "default", "a", has_pod).await;
    armed.store(true, Ordering::SeqCst);
    let mut stray = pod("stray");
    stray["metadata"]["labels"] = json!({"of": "a"});
    world.create(PODS, "default", stray).await;
    let is_going = |job: Option<&Value>| job.is_some_and(|job| job["metadata"]["deletionTimestamp"].is_string());
    world.wait(JOBS, "default", "a", is_going).await;
    // Another Job shows that the controller has gone on.
    world.create(JOBS, "default", job_object("b", json!({}))).await;
    world.wait(JOBS, "default", "b", has_pod).await;
    let stray = world.get(PODS, "default", "stray").await.unwrap();
    assert!(stray["metadata"]["ownerReferences"].is_null(), "{stray}");
    assert!(stray["metadata"]["finalizers"].is_null(), "{stray}");
}

/// The server refuses a pod once, as a quota does that somebody else writes to, and no event follows (INV-30).
#[tokio::test]
async fn reg_a08_a_refused_creation_is_tried_again() {
    let faults = Faults::at_first(Method::POST, "/pods", Fault::Refused(409, "the object has been modified"));
    let mut world = World::new().await;
    faults::spawn(&mut world, &faults, |context| job::run(context, job_options()));
    world.create(JOBS, "default", job_object("a", json!({}))).await;
    world.wait(JOBS, "default", "a", |job| job.is_some_and(|job| job["status"]["active"] == 1)).await;
    assert_eq!(world.list(PODS).await.len(), 1);
}

/// The first Job of a name is deleted before its deadline; the second one ends at its own (INV-26, INV-31).
#[tokio::test]
async fn reg_c13_a_namesake_has_a_deadline_of_its_own() {
    let mut world = World::new().await;
    world.spawn("job", job::run(world.context.clone(), job_options()));
    world.create(JOBS, "default", job_object("a", json!({"activeDeadlineSeconds": 3600}))).await;
    world.wait(JOBS, "default", "a", |job| job.is_some_and(|job| job["status"]["active"] == 1)).await;
    world.delete(JOBS, "default", "a", "Background").await;
    world.wait_gone(JOBS, "default", "a").await;
    world.create(JOBS, "default", job_object("a", json!({"activeDeadlineSeconds": 1}))).await;
    let is_over =
        |job: Option<&Value>| job.is_some_and(|job| job["status"]["conditions"][0]["reason"] == "DeadlineExceeded");
    world.wait(JOBS, "default", "a", is_over).await;
}

/// A status that the server did not take is not taken for the Job's (INV-32).
#[tokio::test]
async fn reg_c24_a_refused_write_leaves_the_cache_as_it_was() {
    let faults = Faults::at_first(Method::PUT, "/jobs/a/status", Fault::Refused(500, "no"));
    let mut world = World::new().await;
    faults::spawn(&mut world, &faults, |context| job::run(context, job_options()));
    world.create(JOBS, "default", job_object("a", json!({}))).await;
    world.wait(JOBS, "default", "a", |job| job.is_some_and(|job| job["status"]["active"] == 1)).await;
}

/// Jobs that are history go with their pods.
#[tokio::test]
async fn reg_f08_history_takes_its_pods_along() {
    let mut world = World::new().await;
    for (name, task) in [
        ("gc", gc::run(world.context.clone(), gc::Options::default()).boxed()),
        ("job", job::run(world.context.clone(), job_options()).boxed()),
        ("cronjob", cronjob::run(world.context.clone(), cronjob::Options::default()).boxed()),
    ] {
        world.spawn(name, task);
    }
    let template = json!({"spec": {"template": {"spec": pod("x")["spec"]}}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
                          "spec": {"schedule": "0 0 31 2 *", "successfulJobsHistoryLimit": 0, "jobTemplate": template}});
    let cron_job = world.create(&Resource::CRON_JOBS, "default", cron_job).await;
    world.create(JOBS, "default", owned(job_object("a", json!({})), &cron_job, true)).await;
    let active = |job: Option<&Value>| job.is_some_and(|job| job["status"]["active"] == 1);
    world.wait(JOBS, "default", "a", active).await;
    let name = world.list(PODS).await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    world.patch_status(PODS, "default", &name, json!({"status": {"phase": "Succeeded"}})).await;
    world.wait_gone(JOBS, "default", "a").await;
    world.wait_gone(PODS, "default", &name).await;
}

/// An error, a clean sync that asks for nothing, an error: the second one starts with the first delay.
#[tokio::test(start_paused = true)]
async fn reg_f25_a_clean_sync_forgets_earlier_errors() {
    let retry = RetryPolicy::per_key(Duration::from_secs(1), Duration::from_secs(60));
    let queue: WorkQueue<u32> = WorkQueue::new("test", retry, &Metrics::new());
    let mut delays = Vec::new();
    queue.add(1);
    for fails in [true, true, false, true, true] {
        let started = Instant::now();
        let work = queue.next().await.unwrap();
        delays.push(started.elapsed().as_secs());
        work.finish(&if fails { Err(()) } else { Ok(()) });
        if !fails {
            queue.add(1);
        }
    }
    assert_eq!(delays, [0, 1, 2, 0, 1]);
}

/// The collector starts while objects of three kinds own each other, and the list of each kind in turn does not come: an
/// owner that it would have shown must not look absent.
#[tokio::test]
async fn reg_h01_nothing_with_a_live_owner_is_collected_at_the_start() {
    for late in [MAPS, PODS, JOBS] {
        let mut world = World::new().await;
        let map = world.create(MAPS, "default", config_map("owner")).await;
        let held = world.create(PODS, "default", owned(pod("pod"), &map, false)).await;
        let job = owned(job_object("job", json!({"suspend": true})), &held, false);
        let job = world.create(JOBS, "default", job).await;
        world.create(MAPS, "default", owned(config_map("child"), &job, false)).await;
        let inner = world.client.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let inner = inner.clone();
            async move {
                if *request.method() == Method::GET && request.uri().path().ends_with(&*late.plural) {
                    std::future::pending::<()>().await;
                }
                inner.send(request).await
            }
        });
        let context = ControllerContext { client: Client::new(service, "default"), ..world.context.clone() };
        let options = gc::Options { sync_timeout: Duration::from_millis(10), ..gc::Options::default() };
        world.spawn("gc", gc::run(context, options));
        let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "absent", "uid": "absent"}});
        // The second one is judged after all that was there before.
        for name in ["garbage", "more"] {
            let (resource, garbage) = if late == MAPS { (PODS, pod(name)) } else { (MAPS, config_map(name)) };
            world.create(resource, "default", owned(garbage, &absent, false)).await;
            world.wait_gone(resource, "default", name).await;
        }
        for (resource, name) in [(MAPS, "owner"), (PODS, "pod"), (JOBS, "job"), (MAPS, "child")] {
            assert!(world.get(resource, "default", name).await.is_some(), "without {}: {name}", late.plural);
        }
    }
}

/// The object gets a live owner between its judgement and its deletion.
#[tokio::test]
async fn reg_h03_an_owner_added_at_the_last_moment_keeps_the_object() {
    let mut world = World::new().await;
    let keeper = world.create(MAPS, "default", config_map("keeper")).await;
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "absent", "uid": "absent"}});
    let child = owned(config_map("child"), &absent, false);
    let rescued = owned(child.clone(), &keeper, false);
    let add_owner = move |client: Client| {
        let patch = json!({"metadata": {"ownerReferences": rescued["metadata"]["ownerReferences"]}});
        async move {
            let path = MAPS.object("default", "child");
            let merge = requests::PatchType::Merge;
            requests::patch::<requests::Ignored>(&client, &path, merge, &patch).await.unwrap();
        }
        .boxed()
    };
    let faults = Faults::at_first(Method::DELETE, "/configmaps/child", Fault::Interference(Arc::new(add_owner)));
    faults::spawn(&mut world, &faults, |context| gc::run(context, gc::Options::default()));
    world.create(MAPS, "default", child).await;
    faults.wait_answer(Method::DELETE, 409).await;
    // Judged again: the dangling owner goes, the object stays.
    let keeps = |object: Option<&Value>| {
        object.is_some_and(|object| object["metadata"]["ownerReferences"].as_array().is_some_and(|all| all.len() == 1))
    };
    let child = world.wait(MAPS, "default", "child", keeps).await.unwrap();
    assert_eq!(child["metadata"]["ownerReferences"][0]["name"], "keeper");
}

/// REG-H05, REG-H07: the node of a pod is gone. The pod fails first, although its environment names something twice,
/// and only then is replaced, although the policy is to wait for failures.
#[tokio::test]
async fn reg_h05_and_h07_a_pod_of_a_vanished_node_fails_and_is_then_replaced() {
    let mut world = World::new().await;
    let podgc = podgc::Options {
        period: Duration::from_millis(10),
        quarantine: Duration::from_millis(50),
        ..podgc::Options::default()
    };
    world.spawn("podgc", podgc::run(world.context.clone(), podgc));
    let mut options = job_options();
    options.settings.pod_failure_backoff = Duration::from_millis(1);
    // How the pods are when another one is made.
    let (armed, phases) = (Arc::new(AtomicBool::new(false)), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let noted = phases.clone();
    let look = move |client: Client| {
        let noted = noted.clone();
        async move {
            let list: Value = requests::get(&client, &PODS.collection(Some("default"))).await.unwrap();
            let phase = |pod: &Value| pod["status"]["phase"].clone();
            *noted.lock() = list["items"].as_array().unwrap().iter().map(phase).collect();
        }
        .boxed()
    };
    let faults = Faults::when(armed.clone(), Method::POST, "/pods", Fault::Interference(Arc::new(look)));
    faults::spawn(&mut world, &faults, |context| job::run(context, options));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}});
    world.create(&Resource::NODES, "", node).await;
    let mut spec = pod("x")["spec"].clone();
    spec["containers"][0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let spec = json!({"podReplacementPolicy": "Failed", "template": {"spec": spec}});
    world.create(JOBS, "default", job_object("a", spec)).await;
    world.wait(JOBS, "default", "a", |job| job.is_some_and(|job| job["status"]["active"] == 1)).await;
    let first = world.list(PODS).await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": first},
                         "target": {"apiVersion": "v1", "kind": "Node", "name": "lost"}});
    let path = PODS.subresource("default", &first, "binding");
    requests::create::<requests::Ignored>(&world.client, &path, &binding).await.unwrap();
    armed.store(true, Ordering::SeqCst);
    world.delete(&Resource::NODES, "", "lost", "Background").await;
    let replaced =
        |job: Option<&Value>| job.is_some_and(|job| job["status"]["failed"] == 1 && job["status"]["active"] == 1);
    world.wait(JOBS, "default", "a", replaced).await;
    assert_eq!(*phases.lock(), ["Failed"], "it has failed before another one is made");
}
