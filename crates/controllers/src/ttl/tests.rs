//! The TTL controller against the real API server on an in-memory store.

use std::sync::Arc;

use batch_plan::ttl::{AFTER_FAILURE, AFTER_FINISHED, AFTER_SUCCESS};
use futures_util::FutureExt;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::*;
use crate::{
    faults::{self, Fault, Faults},
    runtime::{
        Environment, Resource, Shutdown,
        metrics::Exposition,
        requests::{self, Ignored, PatchType},
    },
    testing::{Clock, PATIENCE, World, pod},
};

const JOBS: &Resource = &Resource::JOBS;
const START: &str = "2016-05-19T10:00:00Z";

fn quick() -> Options {
    Options { workers: 2, clock_check: Duration::from_millis(5), ..Options::default() }
}

struct Scene {
    world: World,
    clock: Clock,
}

impl Scene {
    async fn new(options: Options, faults: &Faults) -> Self {
        let clock = Clock::default();
        clock.set(START);
        let mut world = World::at(&clock).await;
        faults::spawn(&mut world, faults, |context| run(context, options));
        Self { world, clock }
    }

    async fn job(&self, name: &str, spec: Value, annotations: Value) {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": annotations},
            "spec": {"template": pod(name)},
        });
        for (field, value) in spec.as_object().unwrap() {
            job["spec"][field] = value.clone();
        }
        self.world.create(JOBS, "default", job).await;
    }

    /// The Job controller's last word about a Job.
    async fn finish(&self, name: &str, kind: &str) {
        let status = finished(kind, &self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        self.world.patch_status(JOBS, "default", name, json!({"status": status})).await;
    }

    async fn wait_deleting(&self, name: &str) -> Value {
        let deleting = |job: Option<&Value>| job.is_some_and(is_deleting);
        self.world.wait(JOBS, "default", name, deleting).await.unwrap()
    }

    async fn is_kept(&self, name: &str) -> bool {
        self.world.get(JOBS, "default", name).await.is_some_and(|job| !is_deleting(&job))
    }
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn finished(kind: &str, at: &str) -> Value {
    let before = if kind == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
    let mut status = json!({"startTime": at, "conditions": [condition(before), condition(kind)]});
    if kind == "Complete" {
        status["completionTime"] = json!(at);
    }
    status
}

/// TTL-3, TTL-7…TTL-9.
#[tokio::test]
async fn a_finished_job_is_deleted_in_the_foreground_when_its_time_is_up() {
    let scene = Scene::new(quick(), &Faults::none()).await;
    scene.job("now", json!({"ttlSecondsAfterFinished": 0}), json!({})).await;
    scene.job("later", json!({"ttlSecondsAfterFinished": 3600}), json!({})).await;
    scene.job("failed", json!({"ttlSecondsAfterFinished": 3600}), json!({})).await;
    scene.job("kept", json!({}), json!({})).await;
    scene.job("unfinished", json!({"ttlSecondsAfterFinished": 0}), json!({})).await;
    for (name, kind) in [("later", "Complete"), ("failed", "Failed"), ("kept", "Complete"), ("now", "Complete")] {
        scene.finish(name, kind).await;
    }
    let job = scene.wait_deleting("now").await;
    assert_eq!(job["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(scene.is_kept("later").await);
    scene.clock.set("2016-05-19T11:00:10Z");
    scene.wait_deleting("later").await;
    scene.wait_deleting("failed").await;
    assert!(scene.is_kept("kept").await && scene.is_kept("unfinished").await);
    let metrics = scene.world.context.metrics.encode(Exposition::Prometheus);
    for line in [
        "ttl_after_finished_controller_job_deletion_duration_seconds_bucket{le=\"819.2\"} 3",
        "ttl_after_finished_controller_job_deletion_duration_seconds_count 3",
        "workqueue_adds_total{name=\"ttl_jobs_to_delete\"} 3",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} not in\n{metrics}");
    }
}

/// TTL-10, TTL-11: whatever was written last counts, and owners do not matter.
#[tokio::test]
async fn the_time_to_live_can_change_after_the_finish() {
    let scene = Scene::new(quick(), &Faults::none()).await;
    let owner = scene.world.create(&Resource::CONFIG_MAPS, "default", crate::testing::config_map("owner")).await;
    for name in ["raised", "removed", "lowered", "given"] {
        let seconds = if name == "given" { json!({}) } else { json!({"ttlSecondsAfterFinished": 3600}) };
        scene.job(name, seconds, json!({})).await;
        scene.finish(name, "Complete").await;
    }
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    for (name, seconds) in
        [("raised", json!(7200)), ("removed", Value::Null), ("lowered", json!(1)), ("given", json!(1))]
    {
        let patch = json!({"metadata": {"ownerReferences": [reference]}, "spec": {"ttlSecondsAfterFinished": seconds}});
        scene.world.patch(JOBS, "default", name, patch).await;
    }
    scene.clock.set("2016-05-19T10:00:05Z");
    scene.wait_deleting("lowered").await;
    scene.wait_deleting("given").await;
    scene.clock.set("2016-05-19T11:30:00Z");
    // A Job whose time is up now is the sign that the clock was noticed.
    scene.job("sign", json!({"ttlSecondsAfterFinished": 0}), json!({})).await;
    scene.finish("sign", "Failed").await;
    scene.wait_deleting("sign").await;
    assert!(scene.is_kept("raised").await && scene.is_kept("removed").await);
    scene.clock.set("2016-05-19T12:00:10Z");
    scene.wait_deleting("raised").await;
    assert!(scene.is_kept("removed").await);
}

/// TTL-5: the clock that finished the Job is an hour ahead.
#[tokio::test]
async fn a_finish_in_the_future_only_defers() {
    let scene = Scene::new(quick(), &Faults::none()).await;
    scene.job("ahead", json!({"ttlSecondsAfterFinished": 10}), json!({})).await;
    let status = finished("Failed", "2016-05-19T11:00:00Z");
    scene.world.patch_status(JOBS, "default", "ahead", json!({"status": status})).await;
    scene.clock.set("2016-05-19T11:00:05Z");
    scene.job("sign", json!({"ttlSecondsAfterFinished": 0}), json!({})).await;
    scene.finish("sign", "Failed").await;
    scene.wait_deleting("sign").await;
    assert!(scene.is_kept("ahead").await);
    scene.clock.set("2016-05-19T11:00:11Z");
    scene.wait_deleting("ahead").await;
}

#[tokio::test]
async fn outcomes_have_their_own_times_and_the_rest_the_default() {
    let options = Options { default_seconds: Some(600), ..quick() };
    let scene = Scene::new(options, &Faults::none()).await;
    let both = json!({AFTER_SUCCESS: "0", AFTER_FAILURE: "86400"});
    scene.job("success", json!({"ttlSecondsAfterFinished": 86400}), both.clone()).await;
    scene.job("failure", json!({"ttlSecondsAfterFinished": 0}), both).await;
    scene.job("default", json!({}), json!({})).await;
    scene.job("typo", json!({"ttlSecondsAfterFinished": 0}), json!({AFTER_SUCCESS: "1h"})).await;
    for name in ["default", "typo", "success"] {
        scene.finish(name, "Complete").await;
    }
    scene.finish("failure", "Failed").await;
    scene.wait_deleting("success").await;
    let event = scene.world.wait_event("InvalidTTL").await;
    assert_eq!(event["involvedObject"]["name"], "typo");
    assert_eq!(event["message"], "Not cleaning up: its time to live is no number of seconds: \"1h\"");
    assert!(scene.is_kept("default").await);
    scene.clock.set("2016-05-19T10:10:01Z");
    scene.wait_deleting("default").await;
    assert!(scene.is_kept("failure").await && scene.is_kept("typo").await);
}

#[tokio::test]
async fn pods_that_nobody_controls_go_if_they_say_so() {
    let scene = Scene::new(Options { default_seconds: Some(0), ..quick() }, &Faults::none()).await;
    let owner = scene.world.create(&Resource::CONFIG_MAPS, "default", crate::testing::config_map("owner")).await;
    for name in ["bare", "controlled", "silent", "running"] {
        let mut pod = pod(name);
        if name != "silent" {
            pod["metadata"]["annotations"] = json!({AFTER_FINISHED: "30"});
        }
        if name == "controlled" {
            pod = crate::testing::owned(pod, &owner, true);
        }
        scene.world.create(&Resource::PODS, "default", pod).await;
        let phase = if name == "running" { "Running" } else { "Failed" };
        let terminated = json!({"terminated": {"exitCode": 1, "finishedAt": START}});
        let state = if name == "running" { json!({"running": {}}) } else { terminated };
        let container = json!({"name": "main", "image": "busybox", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        scene.world.patch_status(&Resource::PODS, "default", name, status).await;
    }
    scene.clock.set("2016-05-19T10:00:29Z");
    assert!(scene.world.get(&Resource::PODS, "default", "bare").await.is_some());
    scene.clock.set("2016-05-19T10:00:31Z");
    scene.world.wait_gone(&Resource::PODS, "default", "bare").await;
    for name in ["controlled", "silent", "running"] {
        assert!(scene.world.get(&Resource::PODS, "default", name).await.is_some(), "{name}");
    }
}

/// With the gate off the controller does not even look.
#[tokio::test(start_paused = true)]
async fn with_the_gate_off_the_field_has_no_effect() {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        if true {
            panic!("{request:?}");
        }
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    let (client, shutdown) = (Client::new(service, "default"), Shutdown::new());
    let (context, _events) = ControllerContext::new(client, Metrics::new(), Environment::system(), shutdown.clone());
    let gates = Gates { ttl_after_finished: false, ..Gates::DEFAULT };
    let mut running = Box::pin(run(context, Options { gates, default_seconds: Some(0), ..quick() }));
    assert!(tokio::time::timeout(Duration::from_secs(3600), &mut running).await.is_err());
    shutdown.cancel();
    running.await;
}

/// Changes a Job at the last moment before the controller's DELETE arrives.
async fn interfered(
    change: impl Fn(Client) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync + 'static,
) -> Scene {
    let faults = Faults::at_first(Method::DELETE, "/jobs/a", Fault::Interference(Arc::new(change)));
    let scene = Scene::new(quick(), &faults).await;
    scene.job("a", json!({"ttlSecondsAfterFinished": 0}), json!({})).await;
    scene.finish("a", "Complete").await;
    faults.wait_answer(Method::DELETE, 409).await;
    scene.job("sign", json!({"ttlSecondsAfterFinished": 0}), json!({})).await;
    scene.finish("sign", "Complete").await;
    scene.wait_deleting("sign").await;
    scene
}

/// REG-G01.
#[tokio::test]
async fn reg_g01_a_time_to_live_raised_at_the_last_moment_keeps_the_job() {
    let scene = interfered(|client| {
        async move {
            let patch = json!({"spec": {"ttlSecondsAfterFinished": 3600}});
            let path = JOBS.object("default", "a");
            requests::patch::<Ignored>(&client, &path, PatchType::Merge, &patch).await.unwrap();
        }
        .boxed()
    })
    .await;
    assert!(scene.is_kept("a").await);
}

/// INV-31, INV-33: another Job has the name by now, and runs.
#[tokio::test]
async fn a_namesake_is_not_deleted() {
    let scene = interfered(|client| {
        async move {
            let path = JOBS.object("default", "a");
            let mut job: Value = requests::get(&client, &path).await.unwrap();
            let options = requests::DeleteOptions { propagation_policy: Some("Background"), ..Default::default() };
            requests::delete(&client, &path, &options).await.unwrap();
            job = json!({"metadata": {"name": "a"}, "spec": {"ttlSecondsAfterFinished": 0, "template": pod("a")},
                "apiVersion": job["apiVersion"], "kind": job["kind"]});
            let collection = JOBS.collection(Some("default"));
            // Until the first one is gone for good, its name is taken.
            let made = tokio::time::timeout(PATIENCE, async {
                while let Err(error) = requests::create::<Ignored>(&client, &collection, &job).await {
                    assert!(requests::is_code(&error, 409), "{error}");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
            made.await.unwrap();
        }
        .boxed()
    })
    .await;
    assert!(scene.is_kept("a").await);
}
