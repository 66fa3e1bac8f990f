//! What is started when, and what is told about it.

use std::sync::Arc;

use futures_util::FutureExt as _;
use http::Method;
use serde_json::{Value, json};

use super::scene::{CRON_JOBS, JOBS, Scene, active_names, job_at, strike};
use crate::{
    faults::{Fault, Faults},
    runtime::{
        Resource,
        metrics::Exposition,
        requests::{self, Ignored, PatchType},
    },
    testing::{Clock, pod},
};

#[tokio::test]
async fn a_job_is_started_by_the_clock_and_written_down() {
    let scene = Scene::new(Faults::none()).await;
    let cron_job = scene.hourly(json!({"timeZone": "Europe/Rome"})).await;
    scene.strike(10);
    let served = scene.wait_served(10, 1).await;
    let job = scene.world.get(JOBS, "default", &job_at(10)).await.unwrap();
    let entry = &served["status"]["active"][0];
    assert_eq!(entry["uid"], job["metadata"]["uid"]);
    assert_eq!((&entry["apiVersion"], &entry["kind"]), (&json!("batch/v1"), &json!("Job")));
    assert!(entry["resourceVersion"].is_string());
    let annotations = &job["metadata"]["annotations"];
    assert_eq!(annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"], "2016-05-19T12:00:00+02:00");
    let owner = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": cron_job["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(job["metadata"]["ownerReferences"], owner);
    let event = scene.world.wait_event("SuccessfulCreate").await;
    assert_eq!(event["message"], format!("Created job {}", job_at(10)));
    assert_eq!(event["source"]["component"], "cronjob-controller");
    let metrics = scene.world.context.metrics.encode(Exposition::Prometheus);
    let line = "cronjob_controller_job_creation_skew_duration_seconds_bucket{le=\"1.0\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
    assert!(metrics.contains("workqueue_adds_total{name=\"cronjob\"}"), "{metrics}");

    scene.finish(&job_at(10), "Complete").await;
    let done = scene.wait_active(0).await;
    assert_eq!(done["status"]["lastSuccessfulTime"].as_str().map(|time| &time[..18]), Some("2016-05-19T10:00:0"));
    scene.world.wait_event("SawCompletedJob").await;
}

#[tokio::test]
async fn forbid_waits_for_the_running_job_and_then_makes_up_for_the_time() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid"})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.strike(11);
    scene.world.wait_event("JobAlreadyActive").await;
    assert_eq!(scene.job_names().await, [job_at(10)]);
    scene.finish(&job_at(10), "Failed").await;
    let served = scene.wait_served(11, 1).await;
    assert_eq!(active_names(&served), [job_at(11)]);
    assert!(served["status"]["lastSuccessfulTime"].is_null());
}

#[tokio::test]
async fn replace_deletes_the_running_job_first() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Replace"})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.strike(11);
    scene.wait_served(11, 1).await;
    assert_eq!(scene.job_names().await, [job_at(11)]);
    scene.world.wait_event("SuccessfulDelete").await;
    let calls = scene.faults.calls();
    let position = |method: Method| calls.iter().rposition(|call| call.method == method).unwrap();
    assert!(position(Method::DELETE) < position(Method::POST));
}

/// INV-39: the Job that is to be replaced ends just before it is looked at; the watch will tell later.
#[tokio::test]
async fn a_job_that_has_ended_is_not_replaced_but_kept_as_history() {
    let at = "2016-05-19T11:00:00Z";
    let end = Fault::Interference(Arc::new(move |client| {
        async move {
            let path = JOBS.subresource("default", &job_at(10), "status");
            let condition =
                |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
            let conditions = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
            let patch = json!({"status": {"startTime": at, "completionTime": at, "conditions": conditions}});
            requests::patch::<Ignored>(&client, &path, PatchType::Merge, &patch).await.unwrap();
        }
        .boxed()
    }));
    let scene = Scene::new(Faults::at_first(Method::GET, "/jobs/c-", end)).await;
    scene.hourly(json!({"concurrencyPolicy": "Replace"})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.strike(11);
    let served = scene.wait_served(11, 1).await;
    assert_eq!(active_names(&served), [job_at(11)]);
    assert_eq!(served["status"]["lastSuccessfulTime"], at);
    assert_eq!(scene.job_names().await, [job_at(10), job_at(11)]);
}

#[tokio::test]
async fn suspended_nothing_starts_and_resumed_the_latest_missed_time_does() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"suspend": true})).await;
    scene.strike(13);
    scene.world.patch(CRON_JOBS, "default", "c", json!({"spec": {"suspend": false}})).await;
    scene.wait_served(13, 1).await;
    assert_eq!(scene.job_names().await, [job_at(13)]);
}

/// REG-F04.
#[tokio::test]
async fn a_running_job_that_is_deleted_by_hand_does_not_block_the_next() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid"})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.world.delete(JOBS, "default", &job_at(10), "Background").await;
    scene.wait_active(0).await;
    scene.world.wait_event("MissingJob").await;
    scene.strike(11);
    scene.wait_served(11, 1).await;
}

/// REG-F12: the template's labels are not what makes a Job ours.
#[tokio::test]
async fn reg_f12_a_new_template_does_not_lose_the_jobs_of_the_old_one() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    let labels = json!({"spec": {"jobTemplate": {"metadata": {"labels": {"new": "label"}}}}});
    scene.world.patch(CRON_JOBS, "default", "c", labels).await;
    scene.finish(&job_at(10), "Complete").await;
    scene.wait_active(0).await;
    scene.strike(11);
    scene.wait_served(11, 1).await;
    assert_eq!(scene.job_names().await, [job_at(10), job_at(11)]);
}

/// CJ-15, row 52: history goes although nothing can be created, and the refusal is told.
#[tokio::test]
async fn a_full_quota_does_not_keep_history() {
    let refused = Fault::Refused(403, "jobs.batch \"c\" is forbidden: exceeded quota: q");
    let scene = Scene::new(Faults::at_first(Method::POST, "/jobs", refused)).await;
    scene.hourly(json!({"successfulJobsHistoryLimit": 0})).await;
    scene.strike(10);
    // The refusal comes once; then the start is tried again.
    let event = scene.world.wait_event("FailedCreate").await;
    assert_eq!(event["message"], "Error creating job: jobs.batch \"c\" is forbidden: exceeded quota: q");
    scene.wait_served(10, 1).await;
    scene.finish(&job_at(10), "Complete").await;
    scene.world.wait_gone(JOBS, "default", &job_at(10)).await;
    // REG-F20.
    let status = scene.wait_active(0).await["status"].clone();
    assert!(status["lastSuccessfulTime"].is_string());
}

/// INV-37, INV-32: the addresses of such Jobs are those of other things, or of nothing.
#[tokio::test]
async fn entries_of_the_status_that_are_no_jobs_do_not_stop_a_cronjob() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid"})).await;
    let entry = |name: &str| json!({"namespace": "default", "name": name, "uid": "u"});
    for (hour, active) in [
        (10, json!([{}])),
        (11, json!([entry("..")])),
        (12, json!([entry("a/b%2f"), {"name": "c", "namespace": "kube-system", "uid": "v"}, entry("")])),
        (13, json!([null, {"name": null, "uid": null}])),
    ] {
        scene.world.patch_status(CRON_JOBS, "default", "c", json!({"status": {"active": active}})).await;
        scene.strike(hour);
        let served = scene.wait_served(hour, 1).await;
        assert_eq!(active_names(&served), [job_at(hour)]);
        scene.finish(&job_at(hour), "Complete").await;
        scene.wait_active(0).await;
    }
    scene.world.wait_event("MissingJob").await;
}

/// CJ-70: upstream sleeps for good.
#[tokio::test]
async fn a_foreign_job_in_the_way_costs_only_its_own_time() {
    let scene = Scene::new(Faults::none()).await;
    let foreign = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_at(10)},
        "spec": {"template": pod("c")}});
    scene.world.create(JOBS, "default", foreign).await;
    scene.hourly(json!({})).await;
    scene.strike(10);
    scene.faults.wait_answer(Method::POST, 409).await;
    scene.strike(11);
    let served = scene.wait_served(11, 1).await;
    assert_eq!(active_names(&served), [job_at(11)]);
    assert_eq!(scene.job_names().await, [job_at(10), job_at(11)]);
}

/// REG-F18: Jobs of a deleted CronJob of this name are left alone.
#[tokio::test]
async fn a_namesake_starts_from_nothing() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid"})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.world.delete(CRON_JOBS, "default", "c", "Orphan").await;
    let patch = json!({"metadata": {"finalizers": null}});
    scene.world.patch(CRON_JOBS, "default", "c", patch).await;
    scene.world.wait_gone(CRON_JOBS, "default", "c").await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0})).await;
    scene.finish(&job_at(10), "Complete").await;
    scene.strike(11);
    let served = scene.wait_served(11, 1).await;
    assert!(served["status"]["lastSuccessfulTime"].is_null());
    assert_eq!(scene.job_names().await, [job_at(10), job_at(11)]);
}

/// CJ-27: there nothing can be created, and nobody is left to be told.
#[tokio::test]
async fn in_a_namespace_that_goes_away_nothing_is_told() {
    let scene = Scene::new(Faults::none()).await;
    scene.world.namespace("going").await;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["x/y"]}});
    scene.world.create(&Resource::CONFIG_MAPS, "going", held).await;
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": pod("c")}}}});
    scene.world.create(CRON_JOBS, "going", cron_job).await;
    scene.world.delete(&Resource::NAMESPACES, "", "going", "Background").await;
    scene.strike(10);
    scene.faults.wait_answer(Method::POST, 403).await;
    let events = scene.world.list(&Resource::EVENTS).await;
    let told = |event: &Value| event["reason"] == "FailedCreate";
    assert!(!events.iter().any(told), "{events:#?}");
}

/// CJ-74.
#[tokio::test]
async fn a_job_made_by_hand_is_noticed_and_its_success_taken_over() {
    let scene = Scene::new(Faults::none()).await;
    let cron_job = scene.hourly(json!({})).await;
    let owner = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": cron_job["metadata"]["uid"],
        "controller": true}]);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "by-hand", "ownerReferences": owner},
        "spec": {"template": pod("c")}});
    scene.world.create(JOBS, "default", job).await;
    let event = scene.world.wait_event("UnexpectedJob").await;
    assert_eq!(event["message"], "Saw a job that the controller did not create or forgot: by-hand");
    scene.finish("by-hand", "Complete").await;
    let taken_over = |cron_job: Option<&Value>| {
        cron_job.is_some_and(|cron_job| cron_job["status"]["lastSuccessfulTime"].is_string())
    };
    scene.world.wait(CRON_JOBS, "default", "c", taken_over).await;
}

/// The Job is over, and history wants it gone, before anybody could write down that it was started.
#[tokio::test]
async fn a_job_that_ends_during_a_crash_is_not_started_again() {
    let faults = Faults::at_first(Method::PUT, "/status", Fault::RequestLost);
    let scene = Scene::new(faults.clone()).await;
    scene.hourly(json!({"successfulJobsHistoryLimit": 0, "suspend": false})).await;
    scene.strike(10);
    scene.wait_jobs(&[job_at(10)]).await;
    scene.finish(&job_at(10), "Complete").await;
    scene.wait_jobs(&[]).await;
    scene.wait_served(10, 0).await;
    let created = faults.calls().into_iter().filter(|call| call.method == Method::POST && call.code == 201);
    assert_eq!(created.count(), 1);
}

/// INV-36: the answer to a creation is lost, the watch does not show the Job, and meanwhile the next time has come.
#[tokio::test]
async fn a_job_of_which_nobody_was_told_is_asked_for_before_another_is_started() {
    let clock = Clock::default();
    let later = clock.clone();
    let lost = Fault::AnswerLost(Arc::new(move || strike(&later, 11)));
    let faults = Faults::at_first(Method::POST, "/jobs", lost).with_blind_watch("/jobs");
    let scene = Scene::by(clock, faults).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid"})).await;
    scene.strike(10);
    let served = scene.wait_served(10, 1).await;
    assert_eq!(active_names(&served), [job_at(10)]);
    scene.world.wait_event("JobAlreadyActive").await;
    assert_eq!(scene.job_names().await, [job_at(10)]);
}

/// INV-39: the CronJob goes, its Jobs stay, and one of them is let go just before it would be deleted as history.
#[tokio::test]
async fn a_job_that_is_not_the_cronjobs_any_more_is_not_its_history() {
    let let_go = Fault::Interference(Arc::new(|client| {
        async move {
            let path = JOBS.object("default", &job_at(10));
            let patch = json!({"metadata": {"ownerReferences": null}});
            requests::patch::<Ignored>(&client, &path, PatchType::Merge, &patch).await.unwrap();
        }
        .boxed()
    }));
    let scene = Scene::new(Faults::at_first(Method::DELETE, "/jobs", let_go)).await;
    scene.hourly(json!({"successfulJobsHistoryLimit": 0})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.finish(&job_at(10), "Complete").await;
    scene.faults.wait_answer(Method::DELETE, 409).await;
    scene.strike(11);
    scene.wait_served(11, 1).await;
    assert_eq!(scene.job_names().await, [job_at(10), job_at(11)]);
    let events = scene.world.list(&Resource::EVENTS).await;
    assert!(!events.iter().any(|event| event["reason"] == "FailedDelete"), "{events:#?}");
}

/// INV-38: upstream lists it for as long as it exists, and with `Forbid` starts nothing any more.
#[tokio::test]
async fn a_running_job_that_was_given_away_does_not_block_the_next() {
    let scene = Scene::new(Faults::none()).await;
    scene.hourly(json!({"concurrencyPolicy": "Forbid"})).await;
    scene.strike(10);
    scene.wait_served(10, 1).await;
    scene.world.patch(JOBS, "default", &job_at(10), json!({"metadata": {"ownerReferences": null}})).await;
    scene.wait_active(0).await;
    scene.strike(11);
    scene.wait_served(11, 1).await;
    assert_eq!(scene.job_names().await, [job_at(10), job_at(11)]);
}
