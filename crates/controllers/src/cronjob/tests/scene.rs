//! A world with a CronJob controller and a clock.

use std::time::Duration;

use batch_plan::cronjob::job_name;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cronjob::{Options, run},
    faults::{self, Faults},
    runtime::Resource,
    testing::{Clock, World, pod},
};

pub(super) const CRON_JOBS: &Resource = &Resource::CRON_JOBS;
pub(super) const JOBS: &Resource = &Resource::JOBS;

pub(super) struct Scene {
    pub(super) world: World,
    pub(super) clock: Clock,
    pub(super) faults: Faults,
}

impl Scene {
    /// A controller half a minute before ten o'clock.
    pub(super) async fn new(faults: Faults) -> Self {
        Self::by(Clock::default(), faults).await
    }

    /// The same, by a clock that others have as well.
    pub(super) async fn by(clock: Clock, faults: Faults) -> Self {
        clock.set("2016-05-19T09:59:30Z");
        let mut world = World::at(&clock).await;
        let options = Options { workers: 4, clock_check: Duration::from_millis(5), ..Options::default() };
        faults::spawn(&mut world, &faults, |context| run(context, options));
        Self { world, clock, faults }
    }

    /// A CronJob `c` for every full hour.
    pub(super) async fn hourly(&self, spec: Value) -> Value {
        let mut cron_job = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
            "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": pod("c")}}},
        });
        for (field, value) in spec.as_object().unwrap() {
            cron_job["spec"][field] = value.clone();
        }
        self.world.create(CRON_JOBS, "default", cron_job).await
    }

    /// Sets the clock to a moment after a full hour.
    pub(super) fn strike(&self, hour: u8) {
        strike(&self.clock, hour);
    }

    /// Waits until the status says that the hour was served, and lists so many Jobs as active.
    pub(super) async fn wait_served(&self, hour: u8, active: usize) -> Value {
        let served = |cron_job: Option<&Value>| {
            cron_job.is_some_and(|cron_job| {
                let status = &cron_job["status"];
                status["lastScheduleTime"] == format!("2016-05-19T{hour}:00:00Z")
                    && active_names(cron_job).len() == active
            })
        };
        self.world.wait(CRON_JOBS, "default", "c", served).await.unwrap()
    }

    pub(super) async fn wait_active(&self, active: usize) -> Value {
        let listed = |cron_job: Option<&Value>| cron_job.is_some_and(|cron_job| active_names(cron_job).len() == active);
        self.world.wait(CRON_JOBS, "default", "c", listed).await.unwrap()
    }

    /// The Job controller's last word about a Job.
    pub(super) async fn finish(&self, name: &str, kind: &str) {
        let at = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let before = if kind == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
        let mut status = json!({"startTime": at, "conditions": [condition(before), condition(kind)]});
        if kind == "Complete" {
            status["completionTime"] = json!(at);
        }
        self.world.patch_status(JOBS, "default", name, json!({"status": status})).await;
    }

    pub(super) async fn job_names(&self) -> Vec<String> {
        let jobs = self.world.list(JOBS).await;
        let mut names: Vec<String> =
            jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// Waits until exactly these Jobs are there.
    pub(super) async fn wait_jobs(&self, names: &[String]) {
        for _ in 0..4000 {
            if self.job_names().await == names {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?} never became {names:?}; calls: {:#?}", self.job_names().await, self.faults.calls());
    }
}

/// Sets a clock to a moment after a full hour.
pub(super) fn strike(clock: &Clock, hour: u8) {
    clock.set(&format!("2016-05-19T{hour}:00:00.5Z"));
}

/// The name of the Job of a full hour.
pub(super) fn job_at(hour: u8) -> String {
    let time: Timestamp = format!("2016-05-19T{hour}:00:00Z").parse().unwrap();
    job_name("c", time)
}

pub(super) fn active_names(cron_job: &Value) -> Vec<&str> {
    let active = cron_job["status"]["active"].as_array();
    active.into_iter().flatten().filter_map(|entry| entry["name"].as_str()).collect()
}
