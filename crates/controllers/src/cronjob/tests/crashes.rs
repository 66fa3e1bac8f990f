//! Crash, lost answer and lost request at every call (INV-35…INV-39): no time is served twice, none is left out, the
//! policy holds at every moment, and the end is the same.

use http::Method;
use serde_json::json;

use super::scene::{Scene, active_names, job_at};
use crate::faults::{self, Fault, Faults};

/// Every Job was created once.
fn assert_no_double_run(faults: &Faults, scene: &str) {
    let created = faults.calls().into_iter().filter(|call| call.method == Method::POST && call.code == 201);
    assert!(created.count() <= 3, "{scene}: {:#?}", faults.calls());
}

#[tokio::test]
async fn allow_ends_the_same_whatever_fails() {
    let calls = faults::everywhere(|faults| async move {
        let scene = Scene::new(faults.clone()).await;
        scene.hourly(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0})).await;
        scene.strike(10);
        scene.wait_served(10, 1).await;
        scene.strike(11);
        scene.wait_served(11, 2).await;
        scene.finish(&job_at(10), "Complete").await;
        scene.wait_served(11, 1).await;
        scene.strike(12);
        scene.wait_served(12, 2).await;
        scene.finish(&job_at(11), "Failed").await;
        scene.finish(&job_at(12), "Complete").await;
        scene.wait_jobs(&[job_at(12)]).await;
        let status = scene.wait_served(12, 0).await["status"].clone();
        assert_eq!(status["lastSuccessfulTime"].as_str().map(|time| &time[..17]), Some("2016-05-19T12:00:"));
        assert_no_double_run(&faults, "allow");
    })
    .await;
    assert!(calls >= 10, "{calls}");
}

#[tokio::test]
async fn forbid_ends_the_same_whatever_fails() {
    let calls = faults::everywhere(|faults| async move {
        let scene = Scene::new(faults.clone()).await;
        scene.hourly(json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0})).await;
        scene.strike(10);
        scene.wait_served(10, 1).await;
        scene.strike(11);
        scene.world.wait_event("JobAlreadyActive").await;
        assert_eq!(scene.job_names().await, [job_at(10)]);
        scene.finish(&job_at(10), "Complete").await;
        scene.wait_served(11, 1).await;
        scene.wait_jobs(&[job_at(11)]).await;
        scene.strike(12);
        // Nothing may start beside the one that runs; when it is done the time is made up for.
        scene.finish(&job_at(11), "Complete").await;
        scene.wait_served(12, 1).await;
        scene.wait_jobs(&[job_at(12)]).await;
        assert_no_double_run(&faults, "forbid");
    })
    .await;
    assert!(calls >= 8, "{calls}");
}

#[tokio::test]
async fn replace_ends_the_same_whatever_fails() {
    let calls = faults::everywhere(|faults| async move {
        let scene = Scene::new(faults.clone()).await;
        scene.hourly(json!({"concurrencyPolicy": "Replace"})).await;
        for hour in [10, 11, 12] {
            scene.strike(hour);
            let served = scene.wait_served(hour, 1).await;
            assert_eq!(active_names(&served), [job_at(hour)]);
            scene.wait_jobs(&[job_at(hour)]).await;
        }
        assert_no_double_run(&faults, "replace");
    })
    .await;
    assert!(calls >= 10, "{calls}");
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
