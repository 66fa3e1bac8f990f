//! What is cached of CronJobs and their Jobs is what the server said, before and after every sync (REG-C24).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use batch_plan::cronjob::{CronJobView, JobView};
use http::{Method, Request};
use jiff::tz::TimeZone;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::scene::{CRON_JOBS, JOBS};
use crate::{
    cronjob::{
        RETRY, creation_skew, sync,
        sync::Syncer,
        watch::{Mirror, Watched},
    },
    runtime::{Alarms, Change, Reflector, Source, WorkQueue, all_synced},
    testing::{World, pod},
};

/// A client of whose writes one in four never arrives.
fn lossy(client: Client) -> Client {
    let writes = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_write = *request.method() != Method::GET;
        let is_lost = is_write && writes.fetch_add(1, Ordering::Relaxed) % 4 == 1;
        let client = client.clone();
        async move { if is_lost { Err(kube::Error::Service("lost".into())) } else { client.send(request).await } }
    });
    Client::new(service, "default")
}

/// INV-32: a CronJob starts a Job every minute, replaces it every other time, and tidies up after itself.
#[tokio::test(start_paused = true)]
async fn reg_c24_every_cached_cronjob_and_job_is_what_the_server_said() {
    let mut world = World::paused(0).await;
    let (context, shutdown) = (world.context.clone(), world.context.shutdown.clone());
    let cron_jobs = Reflector::<Watched<CronJobView>>::new(&context, Source::all(CRON_JOBS.clone()));
    let jobs = Reflector::<Watched<JobView>>::new(&context, Source::all(JOBS.clone()));
    let (cron_jobs_mirrored, jobs_mirrored) = (cron_jobs.progress(), jobs.progress());
    let mirror = Arc::new(Mirror {
        cache: Mutex::default(),
        jobs_seen: jobs_mirrored.clone(),
        alarms: Alarms::new(context.environment.clone(), Duration::from_secs(30)),
        queue: WorkQueue::new("cronjob", RETRY, &context.metrics),
        recorder: context.recorder.clone(),
        environment: context.environment.clone(),
        local_zone: TimeZone::UTC,
    });
    let said = Arc::new(Mutex::new(BTreeMap::new()));
    let (noted, watching) = (said.clone(), mirror.clone());
    let handle = move |change: Change<Watched<CronJobView>>| {
        if let Change::Applied(Watched { view, .. }) = &change {
            noted.lock().insert(view.resource_version.to_string(), format!("{view:?}"));
        }
        watching.cron_job_changed(change);
    };
    world.spawn("cronjobs", cron_jobs.run(shutdown.clone(), handle));
    let (noted, watching) = (said.clone(), mirror.clone());
    let handle = move |change: Change<Watched<JobView>>| {
        if let Change::Applied(Watched { view, .. }) = &change {
            let view = JobView { terminating: false, ..view.clone() };
            noted.lock().insert(view.resource_version.to_string(), format!("{view:?}"));
        }
        watching.job_changed(change);
    };
    world.spawn("jobs", jobs.run(shutdown.clone(), handle));
    assert!(all_synced(&[&cron_jobs_mirrored, &jobs_mirrored], &shutdown).await);

    let syncer = Arc::new(Syncer {
        client: lossy(world.client.clone()),
        recorder: context.recorder.clone(),
        mirror: mirror.clone(),
        skew: creation_skew(&context.metrics),
        starting: AtomicUsize::new(0),
    });
    let seen = Arc::new(Mutex::new((0, BTreeMap::<String, String>::new(), Vec::new())));
    let (kept, looking) = (seen.clone(), mirror.clone());
    let act = move |uid| {
        let (syncer, kept, looking) = (syncer.clone(), kept.clone(), looking.clone());
        async move {
            let look = || {
                let (looks, versions, changed) = &mut *kept.lock();
                for (version, now) in looking.cache.lock().shown() {
                    let first = versions.entry(version).or_insert_with(|| now.clone());
                    if *first != now {
                        changed.push(format!("{first}\n{now}"));
                    }
                }
                *looks += 1;
            };
            look();
            let outcome = sync(syncer, uid).await;
            look();
            outcome
        }
    };
    let queue = mirror.queue.clone();
    world.spawn("alarms", mirror.alarms.clone().run(shutdown.clone(), move |uid| queue.add(uid)));
    world.spawn("worker", mirror.queue.clone().work(shutdown, act));
    live(&world).await;

    let (looks, versions, changed) = &*seen.lock();
    assert!(changed.is_empty(), "{} times, first {}", changed.len(), changed[0]);
    assert!(*looks > 60 && versions.len() > 30, "{looks} looks, {} versions", versions.len());
    let said = said.lock();
    for (version, cached) in versions {
        assert_eq!(Some(cached), said.get(version), "version {version}");
    }
}

/// Twelve minutes, and every other Job ends in its own.
async fn live(world: &World) {
    let template = json!({"spec": {"template": {"spec": pod("x")["spec"]}}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
                          "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Replace",
                                   "successfulJobsHistoryLimit": 1, "jobTemplate": template}});
    world.create(CRON_JOBS, "default", cron_job).await;
    for minute in 0..12 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        if minute % 2 == 1 {
            continue;
        }
        let at = world.context.environment.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
        let status = json!({"status": {"startTime": at, "completionTime": at, "conditions": conditions}});
        let is_unfinished = |job: &Value| job["status"]["conditions"].is_null();
        for job in world.list(JOBS).await.into_iter().filter(is_unfinished) {
            world.patch_status(JOBS, "default", job["metadata"]["name"].as_str().unwrap(), status.clone()).await;
        }
    }
}
