//! What is cached of Jobs is what the server said, before and after every sync (REG-C24).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Method, StatusCode};
use k8s_openapi::api::batch::v1::Job;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Fate, NAMESPACE, job, name, troubled};
use crate::{
    job::{Options, RETRY, WatchedPod, calls::PodCalls, shared::Shared, sync, sync::Syncer},
    runtime::{Change, Reflector, Resource, Source, WorkQueue, all_synced},
    testing::World,
};

/// Objects by version: no two objects, and no two states of one, share a version.
type Versions = BTreeMap<String, String>;

/// Every Job in the cache, in its version. Objects are compared whole; nothing else is a hash that never collides.
fn cached(shared: &Shared) -> Versions {
    shared.state.lock().jobs.values().map(|entry| text(&entry.job)).collect()
}

fn text(job: &Job) -> (String, String) {
    let mut job = job.clone();
    job.metadata.managed_fields = None;
    (job.metadata.resource_version.clone().unwrap_or_default(), serde_json::to_string(&job).unwrap())
}

/// INV-32: Jobs run, end, fail, are suspended and resumed, and one write in three is refused. What the cache shows of a Job
/// in a version never changes, whoever looks when, and it is what the server had in that version.
#[tokio::test(start_paused = true)]
async fn reg_c24_every_cached_job_is_what_the_server_said() {
    let mut world = World::paused(0).await;
    let writes = AtomicUsize::new(0);
    let client = troubled(&world.client, move |request| {
        let is_write = *request.method() != Method::GET;
        match is_write && writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            true => Fate::Refused(StatusCode::INTERNAL_SERVER_ERROR, "no"),
            false => Fate::Passes,
        }
    });
    let context = world.context.clone();
    let queue = |name| WorkQueue::new(name, RETRY, &context.metrics);
    let orphans = WorkQueue::new("orphans", RETRY, &context.metrics);
    let settings = Options::default().settings;
    let shared = Arc::new(Shared::new(settings, context.environment.clone(), &context.metrics, queue("jobs"), orphans));

    // What the server says, by a watch of its own.
    let said = Arc::new(Mutex::new(Versions::new()));
    let (noted, shutdown) = (said.clone(), context.shutdown.clone());
    let note = move |change| {
        if let Change::Applied(job) | Change::Deleted(job) = change {
            noted.lock().extend([text(&job)]);
        }
    };
    world.spawn("watch", Reflector::<Job>::new(&context, Source::all(Resource::JOBS)).run(shutdown.clone(), note));
    let jobs = Reflector::<Job>::new(&context, Source::all(Resource::JOBS));
    let pods = Reflector::<WatchedPod>::new(&context, Source::all(Resource::PODS));
    let (jobs_mirrored, pods_mirrored) = (jobs.progress(), pods.progress());
    let watching = shared.clone();
    world.spawn("jobs", jobs.run(shutdown.clone(), move |change| watching.job_changed(change)));
    let watching = shared.clone();
    world.spawn("pods", pods.run(shutdown.clone(), move |change| watching.pod_changed(change)));
    assert!(all_synced(&[&jobs_mirrored, &pods_mirrored], &shutdown).await);

    let calls = PodCalls { client, at_once: 4 };
    let syncer = Arc::new(Syncer::new(calls, context.recorder.clone(), shared.clone(), pods_mirrored));
    // Who panics here is only tried again.
    let seen = Arc::new(Mutex::new((0, Versions::new(), Vec::new())));
    let (looking, kept) = (shared.clone(), seen.clone());
    let act = move |uid| {
        let (syncer, looking, kept) = (syncer.clone(), looking.clone(), kept.clone());
        async move {
            let look = |about: &str| {
                let (looks, versions, changed) = &mut *kept.lock();
                for (version, now) in cached(&looking) {
                    let first = versions.entry(version).or_insert_with(|| now.clone());
                    if *first != now {
                        changed.push(format!("{about} sync {}: {first}\n{now}", *looks / 2));
                    }
                }
                *looks += 1;
            };
            look("before");
            let outcome = sync(syncer, uid).await;
            look("after");
            outcome
        }
    };
    world.spawn("worker", shared.jobs.clone().work(shutdown, act));
    live(&world).await;

    let (looks, versions, changed) = &*seen.lock();
    assert!(changed.is_empty(), "{} times, first {}", changed.len(), changed[0]);
    assert!(*looks > 80 && versions.len() > 20, "{looks} looks, {} versions", versions.len());
    let said = said.lock();
    for (version, cached) in versions {
        assert_eq!(Some(cached), said.get(version), "version {version}");
    }
}

/// The lives of a few Jobs.
async fn live(world: &World) {
    let rules = json!({"rules": [{"succeededIndexes": "0"}]});
    let specs = [
        ("plain", json!({"parallelism": 2, "completions": 3})),
        ("indexed", json!({"parallelism": 2, "completions": 3, "completionMode": "Indexed", "successPolicy": rules})),
        ("failing", json!({"parallelism": 2, "backoffLimit": 1})),
        ("paused", json!({"parallelism": 2, "completions": 2})),
    ];
    for (name, spec) in &specs {
        world.create(&Resource::JOBS, NAMESPACE, job(name, spec.clone())).await;
    }
    let minute = std::time::Duration::from_secs(60);
    for round in 0..12 {
        tokio::time::sleep(minute).await;
        if round == 1 || round == 3 {
            let patch = json!({"spec": {"suspend": round == 1}});
            world.patch(&Resource::JOBS, NAMESPACE, "paused", patch).await;
        }
        let ended = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        for pod in world.list(&Resource::PODS).await.into_iter().filter(|pod| !ended(pod)).skip(round % 2) {
            let code = i32::from(name(&pod).starts_with("failing"));
            world.finish_pod(&pod, code, world.context.environment.now()).await;
        }
    }
    for (name, _) in specs {
        let over = ["Complete", "Failed"];
        let is_over =
            |job: Option<&Value>| job.is_some_and(|job| over.iter().any(|kind| super::has_condition(job, kind)));
        world.wait(&Resource::JOBS, NAMESPACE, name, is_over).await;
        world.delete(&Resource::JOBS, NAMESPACE, name, "Background").await;
    }
    tokio::time::sleep(minute).await;
}
