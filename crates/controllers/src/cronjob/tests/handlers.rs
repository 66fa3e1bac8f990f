//! What news leads to, without a server (A.3), and that nothing is left when all objects are gone (REG-A14).

use std::time::Duration;

use batch_plan::{
    cronjob::{CronJobView, JobView},
    job::Uid,
};
use jiff::{Timestamp, tz::TimeZone};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    cronjob::{
        RETRY,
        cache::Origin,
        watch::{Mirror, Watched},
    },
    runtime::{
        Alarms, Change, ControllerContext, Environment, Metrics, Reflector, Resource, Shutdown, Source, WorkQueue,
    },
};

fn now() -> Timestamp {
    "2016-05-19T09:59:59Z".parse().unwrap()
}

fn mirror() -> Mirror {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    let (environment, metrics) = (Environment::new(now, || 0), Metrics::new());
    let client = kube::Client::new(service, "default");
    let (context, _) = ControllerContext::new(client, metrics.clone(), environment.clone(), Shutdown::new());
    let jobs = Reflector::<Watched<JobView>>::new(&context, Source::all(Resource::JOBS));
    Mirror {
        cache: Mutex::default(),
        jobs_seen: jobs.progress(),
        alarms: Alarms::new(environment.clone(), Duration::from_secs(1)),
        queue: WorkQueue::new("cronjob", RETRY, &metrics),
        recorder: context.recorder,
        environment,
        local_zone: TimeZone::UTC,
    }
}

fn cron_job(version: u32, schedule: &str, zone: Option<&str>, label: &str) -> Watched<CronJobView> {
    let view: CronJobView = serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "c", "resourceVersion": version.to_string(),
            "creationTimestamp": "2016-05-19T09:00:00Z"},
        "spec": {"schedule": schedule, "timeZone": zone, "jobTemplate": {"metadata": {"labels": {"l": label}}}},
        "status": {"lastScheduleTime": "2016-05-19T09:59:00Z"},
    }))
    .unwrap();
    view.into()
}

fn job(version: u32, status: Value) -> Watched<JobView> {
    let view: JobView = serde_json::from_value(json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "j", "resourceVersion": version.to_string(),
            "ownerReferences": [{"kind": "CronJob", "uid": "c", "controller": true}]},
        "status": status,
    }))
    .unwrap();
    view.into()
}

/// What is queued at once, and how many seconds away the alarm is.
fn outcome(mirror: &Mirror) -> (usize, Option<i64>) {
    let alarm = mirror.alarms.earliest().map(|at| at.duration_since(now()).as_secs());
    (mirror.queue.len(), alarm)
}

/// Rows 47 to 50.
#[tokio::test]
async fn a_new_schedule_waits_for_its_next_time_and_other_changes_do_not() {
    for (name, old, new, expected) in [
        ("template", ("30 * * * *", None, "a"), ("30 * * * *", None, "b"), (1, None)),
        ("schedule", ("30 * * * *", None, "a"), ("*/1 * * * *", None, "a"), (0, Some(1))),
        ("every, longer", ("@every 1m", None, "a"), ("@every 3m", None, "a"), (0, Some(121))),
        ("every, shorter", ("@every 3m", None, "a"), ("@every 1m", None, "a"), (0, Some(1))),
        ("zone", ("0 10 * * *", Some("Europe/Rome"), "a"), ("0 10 * * *", None, "a"), (0, Some(1))),
        ("unreadable", ("0 10 * * *", None, "a"), ("", None, "a"), (0, None)),
        ("never", ("0 10 * * *", None, "a"), ("0 0 31 2 *", None, "a"), (1, None)),
    ] {
        let mirror = mirror();
        mirror.cron_job_changed(Change::Applied(cron_job(1, old.0, old.1, old.2)));
        assert_eq!(mirror.queue.len(), 1, "{name}: added");
        drop(mirror.queue.next().await);
        mirror.cron_job_changed(Change::Applied(cron_job(2, new.0, new.1, new.2)));
        assert_eq!(outcome(&mirror), expected, "{name}");
    }
}

/// CJ-5, CJ-6.
#[tokio::test]
async fn jobs_wake_the_cronjob_that_controls_them() {
    let mirror = mirror();
    mirror.job_changed(Change::Applied(job(1, json!({}))));
    assert_eq!(mirror.queue.len(), 1);
    drop(mirror.queue.next().await);
    mirror.job_changed(Change::Applied(job(2, json!({"active": 1}))));
    assert_eq!(mirror.queue.len(), 0);
    mirror.job_changed(Change::Vanished { uid: "j".into() });
    assert_eq!(mirror.queue.len(), 1);
}

/// INV-32: a hundred CronJobs start ten thousand Jobs, which end, and go by themselves, as history, or after their CronJob.
#[tokio::test]
async fn reg_a14_ten_thousand_jobs_leave_nothing_behind() {
    const JOBS: usize = 10_000;
    let mirror = mirror();
    let owner = |number: usize| Uid::new(&format!("c-{}", number % 100));
    let (running, ended) = (job(1, json!({})), job(2, json!({"conditions": [{"type": "Complete", "status": "True"}]})));
    let named = |of: &Watched<JobView>, number: usize| {
        let (name, uid) = (format!("j-{number}").into(), Uid::new(&format!("j-{number}")));
        JobView { name, uid, owner: Some(owner(number)), ..of.view.clone() }
    };
    let cron_job = |number: usize, version: u32| -> Watched<CronJobView> {
        let mut view = cron_job(version, "0 * * * *", None, "a").view;
        view.uid = owner(number);
        view.into()
    };
    for number in 0..100 {
        mirror.cron_job_changed(Change::Applied(cron_job(number, 1)));
        mirror.wake(&owner(number), now());
        mirror.queue.add_rate_limited(owner(number));
    }
    for number in 0..JOBS {
        let mut cache = mirror.cache.lock();
        cache.note_confirmed(&owner(number));
        cache.note_creation(&owner(number), "j");
        // The answer to the creation may never come.
        if number.is_multiple_of(3) {
            cache.settle_creation(&owner(number));
            cache.note_job(named(&running, number), Origin::Answer);
        }
        drop(cache);
        mirror.job_changed(Change::Applied(named(&running, number).into()));
        mirror.job_changed(Change::Applied(named(&ended, number).into()));
    }
    for number in 0..JOBS {
        if number == JOBS / 2 {
            (0..100).for_each(|number| mirror.cron_job_changed(Change::Deleted(cron_job(number, 2))));
        }
        let job = named(&ended, number);
        mirror.cache.lock().note_deletion(&job.uid);
        mirror.job_changed(match number.is_multiple_of(2) {
            true => Change::Deleted(job.into()),
            false => Change::Vanished { uid: job.uid.to_string().into() },
        });
    }
    assert_nothing_left(&mirror).await;
}

/// What is queued is looked at, and nothing is there.
async fn assert_nothing_left(mirror: &Mirror) {
    while !mirror.queue.is_empty() {
        drop(mirror.queue.next().await);
    }
    assert!(mirror.cache.lock().is_empty() && mirror.alarms.is_empty());
    assert_eq!(mirror.queue.remembered(), 0);
}

/// REG-A14.
#[tokio::test]
async fn nothing_is_remembered_of_what_is_gone() {
    let mirror = mirror();
    mirror.cron_job_changed(Change::Applied(cron_job(1, "0 * * * *", None, "a")));
    mirror.cron_job_changed(Change::Applied(cron_job(2, "30 * * * *", None, "a")));
    mirror.job_changed(Change::Applied(job(3, json!({}))));
    mirror.queue.add_rate_limited(Uid::new("c"));
    mirror.job_changed(Change::Deleted(job(4, json!({}))));
    mirror.cron_job_changed(Change::Deleted(cron_job(5, "30 * * * *", None, "a")));
    assert_nothing_left(&mirror).await;
}
