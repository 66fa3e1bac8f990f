//! The shell against the real API server on an in-memory store. Rules are tested with the plan; here is what only a
//! server, time and trouble can show.

mod cached;
mod crowds;
mod paper;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use batch_plan::job::{CallOutcome, Census, PodAction, PodRef};
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    calls::{Listed, PodCalls},
    shared::Beginning,
    *,
};
use crate::{
    runtime::{
        Change, ControllerContext,
        metrics::Exposition,
        requests::{self, Ignored, PatchType},
    },
    testing::World,
};

const NAMESPACE: &str = "default";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// A Job with the given fields of its spec.
fn job(name: &str, spec: Value) -> Value {
    let mut full = json!({"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}],
    }}});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": full})
}

fn has_condition(job: &Value, kind: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)))
}

fn is_active(pod: &Value) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    !ended && pod["metadata"]["deletionTimestamp"].is_null()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Delays that a test can wait for.
fn options() -> Options {
    let short = Duration::from_millis(300);
    let settings = Settings { pod_failure_backoff: short, pod_failure_backoff_max: short, ..Settings::default() };
    Options { settings: Settings { sync_batch_period: Duration::from_millis(50), ..settings }, ..Options::default() }
}

/// A running controller. Dropping it is the power cut.
struct Running(JoinHandle<()>);

impl Running {
    fn start(context: &ControllerContext, client: Client, options: Options) -> Self {
        let context = ControllerContext { client, ..context.clone() };
        Self(tokio::spawn(run(context, options)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What happens to a request before the server sees it, or to its answer after.
enum Fate {
    Passes,
    Refused(StatusCode, &'static str),
    /// The server acts, and nobody hears of it.
    AnswerLost,
}

/// A client some of whose requests meet trouble.
fn troubled(client: &Client, fate: impl Fn(&Request<Body>) -> Fate + Send + Sync + 'static) -> Client {
    let (client, fate) = (client.clone(), Arc::new(fate));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fate) = (client.clone(), fate(&request));
        async move {
            match fate {
                Fate::Passes => client.send(request).await,
                Fate::Refused(code, message) => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
                                        "reason": "Forbidden", "message": message});
                    let response = Response::builder().status(code).body(Body::from(status.to_string().into_bytes()));
                    Ok(response.unwrap())
                }
                Fate::AnswerLost => {
                    client.send(request).await?;
                    Err(kube::Error::Service("connection reset".into()))
                }
            }
        }
    });
    Client::new(service, NAMESPACE)
}

fn is_pod_creation(request: &Request<Body>) -> bool {
    *request.method() == Method::POST && request.uri().path().ends_with("/pods")
}

fn is_pod_patch(request: &Request<Body>) -> bool {
    *request.method() == Method::PATCH && request.uri().path().contains("/pods/")
}

impl World {
    fn start(&self) -> Running {
        Running::start(&self.context, self.client.clone(), options())
    }

    async fn create_job(&self, name: &str, spec: Value) -> Value {
        self.create(&Resource::JOBS, NAMESPACE, job(name, spec)).await
    }

    async fn wait_job(&self, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let found = self.wait(&Resource::JOBS, NAMESPACE, name, |job| job.is_some_and(&condition)).await;
        found.expect("the condition wants an object")
    }

    async fn wait_finished(&self, name: &str, kind: &str) -> Value {
        self.wait_job(name, |job| has_condition(job, kind)).await
    }

    /// Waits until the pods are as expected.
    async fn wait_pods(&self, condition: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let pods = self.list(&Resource::PODS).await;
            if condition(&pods) {
                return pods;
            }
            assert!(Instant::now() < deadline, "the pods never became as expected: {pods:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for that many active pods.
    async fn wait_active(&self, count: usize) -> Vec<Value> {
        let is_count = |pods: &[Value]| pods.iter().filter(|pod| is_active(pod)).count() == count;
        self.wait_pods(is_count).await.into_iter().filter(is_active).collect()
    }

    async fn finish_pod(&self, pod: &Value, exit_code: i32, finished_at: jiff::Timestamp) {
        let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
        let at = finished_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let terminated = json!({"exitCode": exit_code, "startedAt": at, "finishedAt": at});
        let container = json!({"name": "main", "image": "busybox", "imageID": "", "ready": false, "restartCount": 0,
                               "state": {"terminated": terminated}});
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        self.patch_status(&Resource::PODS, NAMESPACE, &name(pod), status).await;
    }

    async fn succeed(&self, pod: &Value) {
        self.finish_pod(pod, 0, jiff::Timestamp::now()).await;
    }

    /// Long ago, so that no delay is left.
    async fn fail(&self, pod: &Value) {
        self.finish_pod(pod, 1, "2026-01-01T00:00:00Z".parse().unwrap()).await;
    }

    /// Lets every pod succeed as soon as it is there, until the Job is over.
    async fn succeed_all(&self, job: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            let found = self.get(&Resource::JOBS, NAMESPACE, job).await.expect("the Job is there");
            if has_condition(&found, "Complete") || has_condition(&found, "Failed") {
                return found;
            }
            for pod in self.list(&Resource::PODS).await.iter().filter(|pod| is_active(pod)) {
                self.succeed(pod).await;
            }
            assert!(Instant::now() < deadline, "the Job never finished: {found:#}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// INV-13.
    async fn wait_released(&self) -> Vec<Value> {
        self.wait_pods(|pods| !pods.iter().any(is_tracked)).await
    }

    fn metric(&self, line: &str) -> String {
        let text = self.context.metrics.encode(Exposition::Prometheus);
        let value = text.lines().find_map(|found| found.strip_prefix(line));
        value.map_or_else(|| format!("no {line}"), |value| value.trim().to_owned())
    }
}

/// SC-41 without failures; events, metrics, finalizers.
#[tokio::test]
async fn a_job_creates_its_pods_counts_them_and_completes() {
    let world = World::new().await;
    let _controller = world.start();
    world.create_job("a", json!({"completions": 3, "parallelism": 2})).await;
    let pods = world.wait_active(2).await;
    assert!(pods.iter().all(|pod| is_tracked(pod) && pod["metadata"]["generateName"] == "a-"));
    world.wait_job("a", |job| job["status"]["active"] == 2 && job["status"]["ready"] == 0).await;
    let job = world.succeed_all("a").await;
    let status = &job["status"];
    assert_eq!((&status["succeeded"], &status["failed"], &status["active"]), (&json!(3), &Value::Null, &Value::Null));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(has_condition(&job, "SuccessCriteriaMet") && status["completionTime"].is_string());
    assert_eq!(world.wait_released().await.len(), 3);
    assert_eq!(world.wait_event("Completed").await["message"], "Job completed");
    assert_eq!(world.wait_event("SuccessfulCreate").await["source"]["component"], "job-controller");
    for (line, value) in [
        ("job_controller_job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\"}", "3"),
        ("job_controller_job_pods_creation_total{reason=\"new\",status=\"succeeded\"}", "3"),
        ("job_controller_terminated_pods_tracking_finalizer_total{event=\"add\"}", "3"),
    ] {
        assert_eq!(world.metric(line), value, "{line}");
    }
    let finished = "job_controller_jobs_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\",\
                    reason=\"CompletionsReached\"}";
    assert_eq!(world.metric(finished), "1");
}

/// SC-45.
#[tokio::test]
async fn an_indexed_job_runs_every_index_once() {
    let world = World::new().await;
    let _controller = world.start();
    world.create_job("a", json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"})).await;
    let pods = world.wait_active(3).await;
    let index = |pod: &Value| pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
    world.fail(pods.iter().find(|pod| index(pod) == "2").unwrap()).await;
    world.wait_job("a", |job| job["status"]["failed"] == 1).await;
    let job = world.succeed_all("a").await;
    assert_eq!((&job["status"]["completedIndexes"], &job["status"]["failed"]), (&json!("0-3"), &json!(1)));
    assert_eq!(world.wait_released().await.len(), 5);
}

/// SC-70: a failure is counted at once, and its replacement waits.
#[tokio::test]
async fn failed_pods_are_replaced_after_a_delay_and_limited() {
    let world = World::new().await;
    let _controller = world.start();
    world.create_job("a", json!({"backoffLimit": 1})).await;
    let first = world.wait_active(1).await;
    // Times have whole seconds, so the end may be up to a second in the past.
    world.finish_pod(&first[0], 1, jiff::Timestamp::now() + Duration::from_secs(1)).await;
    let failed = Instant::now();
    world.wait_job("a", |job| job["status"]["failed"] == 1).await;
    let second = world.wait_active(1).await;
    assert!(failed.elapsed() >= Duration::from_millis(250), "after {:?}", failed.elapsed());
    world.fail(&second[0]).await;
    let job = world.wait_finished("a", "Failed").await;
    assert_eq!(job["status"]["failed"], 2);
    assert_eq!(world.wait_event("BackoffLimitExceeded").await["type"], "Warning");
    world.wait_released().await;
}

/// SC-72…74: suspended pods count as nothing.
#[tokio::test]
async fn suspending_removes_pods_and_resuming_creates_new_ones() {
    let world = World::new().await;
    let _controller = world.start();
    world.create_job("a", json!({"completions": 2, "parallelism": 2})).await;
    world.wait_active(2).await;
    world.patch(&Resource::JOBS, NAMESPACE, "a", json!({"spec": {"suspend": true}})).await;
    let suspended = |job: &Value| has_condition(job, "Suspended") && job["status"]["startTime"].is_null();
    world.wait_job("a", suspended).await;
    world.wait_pods(|pods| pods.is_empty()).await;
    world.patch(&Resource::JOBS, NAMESPACE, "a", json!({"spec": {"suspend": false}})).await;
    world.wait_active(2).await;
    let job = world.succeed_all("a").await;
    assert_eq!((&job["status"]["succeeded"], &job["status"]["failed"]), (&json!(2), &Value::Null));
}

/// SC-65…67, JC-206: with the Job gone, nobody else removes the finalizers.
#[tokio::test]
async fn pods_of_a_deleted_job_lose_their_finalizer() {
    let world = World::new().await;
    let _controller = world.start();
    world.create_job("a", json!({"parallelism": 3})).await;
    world.wait_active(3).await;
    world.delete(&Resource::JOBS, NAMESPACE, "a", "Background").await;
    assert_eq!(world.wait_released().await.len(), 3);
}

/// The Job goes away while its sync is creating pods: the garbage collector takes what the sync still made, so nothing
/// may hold it, and nothing more follows (INV-13, INV-21).
#[tokio::test]
async fn a_job_deleted_during_its_sync_leaves_nothing_behind() {
    let world = World::new().await;
    let (creations, real) = (Arc::new(AtomicUsize::new(0)), world.client.clone());
    let counted = creations.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, counted) = (real.clone(), counted.clone());
        async move {
            // Slow start creates one pod, then two: the Job goes in between.
            if is_pod_creation(&request) && counted.fetch_add(1, Ordering::SeqCst) == 1 {
                let path = Resource::JOBS.object(NAMESPACE, "a");
                let options = requests::DeleteOptions { propagation_policy: Some("Background"), ..Default::default() };
                requests::delete(&client, &path, &options).await.expect("the Job is there");
            }
            client.send(request).await
        }
    });
    let _controller = Running::start(&world.context, Client::new(service, NAMESPACE), options());
    let collector = crate::gc::run(world.context.clone(), crate::gc::Options::default());
    let _collector = Running(tokio::spawn(collector));
    world.create_job("a", json!({"parallelism": 12, "completions": 12})).await;
    world.wait(&Resource::JOBS, NAMESPACE, "a", |job| job.is_none()).await;
    let other = world.create_job("b", json!({})).await;
    let is_other = |pod: &Value| pod["metadata"]["ownerReferences"][0]["uid"] == other["metadata"]["uid"];
    world.wait_pods(|pods| pods.len() == 1 && pods.iter().all(is_other)).await;
    let made = creations.load(Ordering::SeqCst);
    assert!((3..=13).contains(&made), "one sync's pods and the other Job's: {made}");
}

/// SC-39, REG-C10: a namesake starts from nothing.
#[tokio::test]
async fn a_job_recreated_at_once_does_not_wait_for_its_predecessor() {
    let world = World::new().await;
    let slow = Settings { pod_failure_backoff: Duration::from_secs(600), ..Settings::default() };
    let _controller = Running::start(&world.context, world.client.clone(), Options { settings: slow, ..options() });
    world.create_job("a", json!({})).await;
    let first = world.wait_active(1).await;
    world.finish_pod(&first[0], 1, jiff::Timestamp::now()).await;
    world.wait_job("a", |job| job["status"]["failed"] == 1 && job["status"]["active"].is_null()).await;
    world.delete(&Resource::JOBS, NAMESPACE, "a", "Background").await;
    let second = world.create_job("a", json!({})).await;
    let pods = world.wait_active(1).await;
    assert_eq!(pods[0]["metadata"]["ownerReferences"][0]["uid"], second["metadata"]["uid"]);
    let job = world.wait_job("a", |job| job["status"]["active"] == 1).await;
    assert_eq!(job["status"]["failed"], Value::Null);
}

/// JC-604, JC-606: owner and finalizer come together, and an ended pod is counted.
#[tokio::test]
async fn pods_that_match_are_adopted() {
    let world = World::new().await;
    let stray = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "labels": {"of": "a"}},
                       "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    let stray = world.create(&Resource::PODS, NAMESPACE, stray).await;
    world.succeed(&stray).await;
    let _controller = world.start();
    let template = json!({"metadata": {"labels": {"of": "a"}},
                          "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    let selector = json!({"matchLabels": {"of": "a"}});
    let spec = json!({"manualSelector": true, "selector": selector, "template": template, "completions": 1});
    let job = world.create_job("a", spec).await;
    let done = world.wait_finished("a", "Complete").await;
    assert_eq!(done["status"]["succeeded"], 1);
    let pods = world.wait_released().await;
    assert_eq!(pods.len(), 1, "no other pod was needed");
    assert_eq!(pods[0]["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
}

/// SC-35, SC-36, INV-15.
#[tokio::test]
async fn jobs_of_other_controllers_are_not_touched() {
    let world = World::new().await;
    let _controller = world.start();
    let theirs = world.create_job("theirs", json!({"managedBy": "example.com/queue", "suspend": true})).await;
    world.create_job("ours", json!({"managedBy": "kubernetes.io/job-controller"})).await;
    world.succeed_all("ours").await;
    let left = world.get(&Resource::JOBS, NAMESPACE, "theirs").await.unwrap();
    assert_eq!(left["metadata"]["resourceVersion"], theirs["metadata"]["resourceVersion"], "nothing was written");
    let line = "job_controller_jobs_by_external_controller_total{controller_name=\"example.com/queue\"}";
    assert_eq!(world.metric(line), "1");
}

#[tokio::test]
async fn an_external_controller_runs_only_the_jobs_that_name_it() {
    let world = World::new().await;
    let manager = batch_plan::job::Manager::External("tally.dev/job-controller".to_owned());
    let settings = Settings { manager, ..options().settings };
    let _controller = Running::start(&world.context, world.client.clone(), Options { settings, ..options() });
    let built_in = world.create_job("built-in", json!({})).await;
    world.create_job("ours", json!({"managedBy": "tally.dev/job-controller"})).await;
    world.succeed_all("ours").await;
    let left = world.get(&Resource::JOBS, NAMESPACE, "built-in").await.unwrap();
    assert_eq!(left["metadata"]["resourceVersion"], built_in["metadata"]["resourceVersion"]);
}

/// JC-304: a tracking finalizer without a Job goes.
#[tokio::test]
async fn orphans_are_released_and_pods_of_running_jobs_are_not() {
    let world = World::new().await;
    let orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "finalizers": [FINALIZER]},
                        "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    world.create(&Resource::PODS, NAMESPACE, orphan).await;
    let _controller = world.start();
    world.wait_released().await;
    world.create_job("a", json!({})).await;
    assert!(world.wait_active(2).await.iter().any(is_tracked));
}

/// INV-4: a Job adopts the pod while it is taken for an orphan; from then on the finalizer is the Job's.
#[tokio::test]
async fn a_pod_that_a_job_has_just_adopted_is_no_orphan() {
    let world = World::new().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": [FINALIZER]},
                     "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    let pod = world.create(&Resource::PODS, NAMESPACE, pod).await;
    let metrics = crate::runtime::Metrics::new();
    let queues = (WorkQueue::new("job", RETRY, &metrics), WorkQueue::new("job_orphan_pod", RETRY, &metrics));
    let shared = Shared::new(Settings::default(), crate::runtime::Environment::system(), &metrics, queues.0, queues.1);
    shared.pod_changed(Change::Applied(serde_json::from_value(pod.clone()).unwrap()));
    let uid = Uid::new(pod["metadata"]["uid"].as_str().unwrap());
    let orphan = Orphan { namespace: NAMESPACE.to_owned(), name: "p".into(), uid, job_is_gone: false };

    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true});
    world.patch(&Resource::PODS, NAMESPACE, "p", json!({"metadata": {"ownerReferences": [owner]}})).await;
    let refused = orphans::release(&world.client, &shared, &orphan).await.unwrap_err();
    assert!(requests::is_conflict(&refused), "{refused}");
    assert!(is_tracked(&world.get(&Resource::PODS, NAMESPACE, "p").await.unwrap()));

    world.patch(&Resource::PODS, NAMESPACE, "p", json!({"metadata": {"ownerReferences": null}})).await;
    let pod = world.get(&Resource::PODS, NAMESPACE, "p").await.unwrap();
    shared.pod_changed(Change::Applied(serde_json::from_value(pod).unwrap()));
    orphans::release(&world.client, &shared, &orphan).await.unwrap();
    assert!(!is_tracked(&world.get(&Resource::PODS, NAMESPACE, "p").await.unwrap()));
}

/// A pod of a Job, made by hand.
async fn tracked_pod(world: &World) -> (Value, PodRef) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": [FINALIZER]},
                     "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    let pod = world.create(&Resource::PODS, NAMESPACE, pod).await;
    let uid = Uid::new(pod["metadata"]["uid"].as_str().unwrap());
    (pod, PodRef { name: "p".into(), uid })
}

/// INV-1: the cache shows a live pod of a Job that has succeeded without it. If it has ended by now it has to count.
#[tokio::test]
async fn a_pod_that_has_ended_unseen_is_not_let_go() {
    let world = World::new().await;
    let (pod, reference) = tracked_pod(&world).await;
    let calls = PodCalls { client: world.client.clone(), at_once: 1 };
    world.succeed(&pod).await;
    let outcome = calls.let_go(NAMESPACE, std::slice::from_ref(&reference)).await;
    assert!(outcome.failed.contains_key(&reference.uid), "{outcome:?}");
    assert!(is_tracked(&world.get(&Resource::PODS, NAMESPACE, "p").await.unwrap()));

    world.delete(&Resource::PODS, NAMESPACE, "p", "Background").await;
    world.patch(&Resource::PODS, NAMESPACE, "p", json!({"metadata": {"finalizers": null}})).await;
    let (_, reference) = tracked_pod(&world).await;
    let outcome = calls.let_go(NAMESPACE, std::slice::from_ref(&reference)).await;
    assert!(outcome.failed.is_empty(), "{outcome:?}");
    assert!(!is_tracked(&world.get(&Resource::PODS, NAMESPACE, "p").await.unwrap()));
}

/// INV-1: a surplus pod changes between its deletion and its release. If it has ended it keeps its finalizer until the cache
/// shows how; if not it goes.
#[tokio::test]
async fn a_surplus_pod_that_ends_before_its_release_keeps_its_finalizer() {
    for (ends, expected) in [(true, CallOutcome::HadEnded), (false, CallOutcome::Done)] {
        let world = World::new().await;
        let (_, reference) = tracked_pod(&world).await;
        let (server, deleted) = (world.client.clone(), Arc::new(AtomicUsize::new(0)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, deleted) = (server.clone(), deleted.clone());
            async move {
                let is_delete = *request.method() == Method::DELETE;
                // The first patch after the deletion is the release.
                if is_pod_patch(&request) && deleted.swap(0, Ordering::SeqCst) == 1 {
                    let path = Resource::PODS.subresource(NAMESPACE, "p", "status");
                    let phase = if ends { "Succeeded" } else { "Running" };
                    let status = json!({"status": {"phase": phase, "message": "on its way"}});
                    requests::patch::<Value>(&server, &path, PatchType::Merge, &status).await?;
                }
                let response = server.send(request).await;
                deleted.fetch_add(usize::from(is_delete), Ordering::SeqCst);
                response
            }
        });
        let calls = PodCalls { client: Client::new(service, NAMESPACE), at_once: 1 };
        let outcomes = calls
            .perform(&serde_json::from_value(job("a", json!({}))).unwrap(), &PodAction::Remove(vec![reference]))
            .await;
        assert_eq!(outcomes, [expected]);
        let left = world.get(&Resource::PODS, NAMESPACE, "p").await;
        assert_eq!(left.as_ref().is_some_and(is_tracked), ends, "{left:?}");
    }
}

/// REG-A12: found at the start.
#[tokio::test]
async fn pods_that_a_finished_job_left_tracked_are_released() {
    let world = World::new().await;
    let controller = world.start();
    world.create_job("a", json!({})).await;
    world.succeed_all("a").await;
    let pods = world.wait_released().await;
    drop(controller);
    let path = Resource::PODS.object(NAMESPACE, &name(&pods[0]));
    let patch = json!({"metadata": {"finalizers": [FINALIZER]}});
    requests::patch::<Ignored>(&world.client, &path, PatchType::Merge, &patch).await.unwrap();
    let _controller = world.start();
    world.wait_released().await;
}

/// JC-1316, P-1: the controller dies before its n-th write, for every n, and another one goes on.
#[tokio::test]
async fn a_controller_that_dies_at_any_write_is_continued_by_the_next() {
    for spec in [
        json!({"completions": 3, "parallelism": 2}),
        json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"}),
    ] {
        for crash_at in 0..14 {
            let world = World::new().await;
            let writes = AtomicUsize::new(0);
            let dead = Arc::new(AtomicBool::new(false));
            let died = dead.clone();
            let dying = troubled(&world.client, move |request| {
                let write = *request.method() != Method::GET && !request.uri().path().ends_with("/events");
                if write && writes.fetch_add(1, Ordering::SeqCst) >= crash_at {
                    died.store(true, Ordering::SeqCst);
                    return Fate::Refused(StatusCode::SERVICE_UNAVAILABLE, "dead");
                }
                Fate::Passes
            });
            let first = Running::start(&world.context, dying, options());
            world.create_job("a", spec.clone()).await;
            while !dead.load(Ordering::SeqCst) {
                let job = world.get(&Resource::JOBS, NAMESPACE, "a").await.unwrap();
                if has_condition(&job, "Complete") {
                    break;
                }
                for pod in world.list(&Resource::PODS).await.iter().filter(|pod| is_active(pod)) {
                    world.succeed(pod).await;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(first);
            let _second = world.start();
            let job = world.succeed_all("a").await;
            assert_eq!(job["status"]["succeeded"], 3, "crash before write {crash_at}: {:#}", job["status"]);
            assert_eq!(job["status"]["failed"], Value::Null, "crash before write {crash_at}");
            assert_eq!(world.wait_released().await.len(), 3, "crash before write {crash_at}");
        }
    }
}

/// P-5: somebody edits the Job all the time.
#[tokio::test]
async fn a_storm_of_conflicts_neither_loses_nor_repeats_a_pod() {
    let world = World::new().await;
    let _controller = world.start();
    world.create_job("a", json!({"completions": 12, "parallelism": 4})).await;
    let client = world.client.clone();
    let storm = tokio::spawn(async move {
        for number in 0_u64.. {
            let patch = json!({"metadata": {"annotations": {"storm": number.to_string()}}});
            let path = Resource::JOBS.object(NAMESPACE, "a");
            requests::patch::<Ignored>(&client, &path, PatchType::Merge, &patch).await.unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let job = world.succeed_all("a").await;
    storm.abort();
    assert_eq!((&job["status"]["succeeded"], &job["status"]["failed"]), (&json!(12), &Value::Null));
    assert_eq!(world.wait_released().await.len(), 12);
    assert!(job["metadata"]["annotations"]["storm"].is_string(), "our writes keep what others wrote");
}

/// A quota or a webhook that refuses pods: said in an event, tried again with growing pauses.
#[tokio::test]
async fn refused_pods_are_reported_and_tried_again_without_haste() {
    let world = World::new().await;
    let (refuse, attempts) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (refusing, counted) = (refuse.clone(), attempts.clone());
    let client = troubled(&world.client, move |request| {
        if is_pod_creation(request) && refusing.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
            return Fate::Refused(StatusCode::FORBIDDEN, "exceeded quota: pods=0");
        }
        Fate::Passes
    });
    let _controller = Running::start(&world.context, client, options());
    world.create_job("a", json!({"parallelism": 8})).await;
    let event = world.wait_event("FailedCreate").await;
    assert_eq!(event["message"], "Error creating: exceeded quota: pods=0");
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_millis(1500) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(attempts.load(Ordering::SeqCst) <= 3, "{} attempts", attempts.load(Ordering::SeqCst));
    refuse.store(false, Ordering::SeqCst);
    world.wait_active(8).await;
}

/// SC-112: nothing is lost when patches of pods are refused for a while.
#[tokio::test]
async fn a_job_does_not_finish_before_its_pods_are_released() {
    let world = World::new().await;
    let refuse = Arc::new(AtomicBool::new(true));
    let refusing = refuse.clone();
    let client =
        troubled(&world.client, move |request| match is_pod_patch(request) && refusing.load(Ordering::SeqCst) {
            true => Fate::Refused(StatusCode::FORBIDDEN, "denied by a webhook"),
            false => Fate::Passes,
        });
    let _controller = Running::start(&world.context, client, options());
    world.create_job("a", json!({})).await;
    let pods = world.wait_active(1).await;
    world.succeed(&pods[0]).await;
    let job = world.wait_finished("a", "SuccessCriteriaMet").await;
    assert_eq!(job["status"]["uncountedTerminatedPods"]["succeeded"], json!([pods[0]["metadata"]["uid"]]));
    assert!(!has_condition(&job, "Complete"));
    refuse.store(false, Ordering::SeqCst);
    let job = world.wait_finished("a", "Complete").await;
    assert_eq!(job["status"]["succeeded"], 1);
}

/// REG-C09, INV-22: the first two answers to creations are lost.
#[tokio::test]
async fn a_lost_answer_does_not_create_a_second_pod() {
    for mode in ["Indexed", "NonIndexed"] {
        let world = World::new().await;
        let lost = AtomicUsize::new(0);
        let client = troubled(&world.client, move |request| {
            if is_pod_creation(request) && lost.fetch_add(1, Ordering::SeqCst) < 2 {
                return Fate::AnswerLost;
            }
            Fate::Passes
        });
        let _controller = Running::start(&world.context, client, options());
        world.create_job("a", json!({"completions": 3, "parallelism": 3, "completionMode": mode})).await;
        world.wait_job("a", |job| job["status"]["active"] == 3).await;
        assert_eq!(world.list(&Resource::PODS).await.len(), 3, "{mode}");
        let job = world.succeed_all("a").await;
        assert_eq!((&job["status"]["succeeded"], world.list(&Resource::PODS).await.len()), (&json!(3), 3), "{mode}");
    }
}

/// INV-32: create, finish and delete many Jobs; nothing of them stays in memory.
#[tokio::test]
async fn reg_a14_nothing_is_remembered_of_what_is_gone() {
    use crate::runtime::{Environment, Metrics};

    let metrics = Metrics::new();
    let queues = (WorkQueue::new("job", RETRY, &metrics), WorkQueue::new("job_orphan_pod", RETRY, &metrics));
    let shared = Shared::new(Settings::default(), Environment::system(), &metrics, queues.0, queues.1);
    let parsed = |value: &Value| serde_json::from_value::<Job>(value.clone()).unwrap();
    for number in 0..100 {
        let mut object = job(&format!("job-{number}"), json!({"selector": {"matchLabels": {"of": "a"}}}));
        object["metadata"]["uid"] = json!(format!("uid-{number}"));
        object["metadata"]["resourceVersion"] = json!("1");
        shared.job_changed(Change::Applied(parsed(&object)));
        shared.jobs.add_after(Uid::new(&format!("uid-{number}")), Duration::from_secs(3600));
        shared.jobs.add_rate_limited(Uid::new(&format!("uid-{number}")));
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": object["metadata"]["name"],
                           "uid": object["metadata"]["uid"], "controller": true});
        let pod = json!({"metadata": {"name": "p", "namespace": NAMESPACE, "uid": format!("pod-{number}"),
                                      "labels": {"of": "a"}, "ownerReferences": [owner]}});
        let pod = || serde_json::from_value::<WatchedPod>(pod.clone()).unwrap();
        shared.pod_changed(Change::Applied(pod()));
        shared.pod_changed(Change::Deleted(pod()));
        shared.job_changed(Change::Deleted(parsed(&object)));
    }
    {
        let state = shared.state.lock();
        assert!(state.ledger.is_empty() && state.jobs.is_empty());
    }
    // The keys that were ready go as soon as a worker looks at them.
    while let Ok(Some(work)) = tokio::time::timeout(Duration::ZERO, shared.jobs.next()).await {
        assert!(matches!(shared.begin(work.key(), 0), shared::Beginning::Gone));
        work.finish(&Ok::<(), ()>(()));
    }
    assert_eq!((shared.jobs.remembered(), shared.orphans.remembered()), (0, 0));
}

/// What the watches and the workers share, without a server: events in any order.
struct Watches {
    shared: Shared,
}

impl Watches {
    /// A Job that was made while this process runs, and its only pod, which has failed and is tracked at version 11.
    fn new() -> Self {
        let watches = Self::empty();
        watches.shared.job_changed(Change::Synced);
        watches.job(10, json!({"active": 1, "ready": 0}));
        watches.pod(11, true);
        watches
    }

    fn empty() -> Self {
        let metrics = crate::runtime::Metrics::new();
        let queue = |name| WorkQueue::new(name, RETRY, &metrics);
        let environment = crate::runtime::Environment::new(|| "2026-01-05T10:00:00Z".parse().unwrap(), || 0);
        let orphans = WorkQueue::new("orphans", RETRY, &metrics);
        let shared = Shared::new(Settings::default(), environment, &metrics, queue("jobs"), orphans);
        Self { shared }
    }

    /// The same of a Job that an earlier process may have known, and that was asked for. The cache shows no pod of it.
    fn inherited() -> Self {
        let watches = Self::empty();
        let status = json!({"active": 1, "ready": 0});
        watches.job(10, status.clone());
        watches.shared.job_changed(Change::Synced);
        assert!(matches!(watches.begin(10), Beginning::Unconfirmed(_)));
        watches.shared.confirm(&Uid::new("j"), Self::job_at(10, status));
        watches
    }

    fn begin(&self, pods_read: u64) -> Beginning {
        self.shared.begin(&Uid::new("j"), pods_read)
    }

    fn job_at(version: u64, status: Value) -> Job {
        let selector = json!({"matchLabels": {"job": "a"}});
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": NAMESPACE, "uid": "j", "generation": 1,
                         "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-05T10:00:01Z"},
            "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "selector": selector, "template": {}},
            "status": status,
        }))
        .unwrap()
    }

    fn job(&self, version: u64, status: Value) {
        self.shared.job_changed(Change::Applied(Self::job_at(version, status)));
    }

    fn pod(&self, version: u64, tracked: bool) {
        let finalizers: &[&str] = if tracked { &[FINALIZER] } else { &[] };
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true});
        let pod = json!({
            "metadata": {"name": "a-x", "namespace": NAMESPACE, "uid": "p", "resourceVersion": version.to_string(),
                         "labels": {"job": "a"}, "finalizers": finalizers, "ownerReferences": [owner]},
            "status": {"phase": "Failed"},
        });
        self.shared.pod_changed(Change::Applied(serde_json::from_value(pod).unwrap()));
    }

    /// The version that the next sync waits for, if it does not plan.
    fn waits_for(&self, pods_read: u64) -> Option<u64> {
        match self.begin(pods_read) {
            Beginning::Planned(..) => None,
            Beginning::Overtaken { written, .. } => Some(written),
            other => panic!("{other:?}"),
        }
    }

    /// The server answers a question asked for that version.
    fn listed(&self, written: u64, pods: &[(&str, u64)]) {
        let pods = pods.iter().map(|(uid, version)| (Uid::new(uid), *version)).collect();
        self.shared.pods_listed(&Uid::new("j"), written, Census { at: written, pods });
    }
}

/// INV-1, P-12: another controller has counted the pod and released it. The watch of Jobs shows that first.
#[test]
fn a_pod_that_another_controller_counted_is_not_counted_again() {
    let watches = Watches::new();
    assert_eq!(watches.waits_for(11), None, "nobody else has written");
    watches.job(14, json!({"failed": 1, "ready": 0}));
    assert_eq!(watches.waits_for(11), Some(14), "the cache still shows the pod as it was");
    watches.listed(13, &[("p", 11)]);
    assert_eq!(watches.waits_for(11), Some(14), "the list was older than that");
    watches.listed(14, &[("p", 12)]);
    assert_eq!(watches.waits_for(11), Some(12), "the server has a newer state of it");
    watches.pod(12, false);
    assert_eq!(watches.waits_for(12), None);
}

/// No bookmark is needed to know that there is nothing more to come.
#[test]
fn a_cache_that_shows_all_pods_of_a_job_as_they_are_is_new_enough() {
    let watches = Watches::new();
    watches.job(14, json!({"active": 1, "ready": 1}));
    watches.listed(14, &[]);
    assert_eq!(watches.waits_for(11), Some(14), "the pod is gone, and the cache does not show that yet");
    watches.listed(14, &[("p", 11)]);
    assert_eq!(watches.waits_for(11), None);
}

/// Edits of the spec say nothing about pods, and our own writes say nothing new.
#[test]
fn neither_edits_nor_own_writes_hold_a_job_up() {
    let watches = Watches::new();
    watches.job(12, json!({"active": 1, "ready": 0}));
    assert_eq!(watches.waits_for(11), None, "an edit");
    let written = json!({"active": 1, "ready": 1});
    watches.job(13, written.clone());
    watches.shared.wrote_job(&Uid::new("j"), Watches::job_at(13, written));
    assert_eq!(watches.waits_for(11), None, "the watch was faster than the answer");
}

/// INV-17, P-9: before a process makes pods that an earlier one may have made, it asks for them.
#[test]
fn pods_that_an_earlier_process_may_have_made_are_asked_for_before_others_are_made() {
    let watches = Watches::inherited();
    assert!(matches!(watches.begin(10), Beginning::Inherited(_)));
    let census = Census { at: 14, pods: [(Uid::new("p"), 12)].into() };
    watches.shared.inherit(&Uid::new("j"), Listed::All(census));
    assert_eq!(watches.waits_for(10), Some(12), "there is one");
    watches.pod(12, true);
    assert_eq!(watches.waits_for(12), None);
}

/// One answer is enough for all Jobs once the cache has come as far.
#[test]
fn a_cache_that_shows_the_present_needs_no_further_questions() {
    let watches = Watches::inherited();
    watches.shared.inherit(&Uid::new("another"), Listed::TooMany(14));
    assert!(matches!(watches.begin(13), Beginning::Inherited(_)));
    assert_eq!(watches.waits_for(14), None);
}

/// Nobody knows the pods of a Job that has too many, so the cache has to come as far as the question.
#[test]
fn a_job_with_too_many_pods_to_ask_for_waits_for_the_watch() {
    let watches = Watches::inherited();
    watches.shared.inherit(&Uid::new("j"), Listed::TooMany(14));
    assert_eq!(watches.waits_for(13), Some(14));
    assert_eq!(watches.waits_for(14), None);
}
