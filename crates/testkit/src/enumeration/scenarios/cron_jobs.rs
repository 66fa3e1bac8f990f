//! Jobs by the clock. Worlds begin on a full hour.

use controllers::runtime::Resource;
use serde_json::{Value, json};

use super::{Scenario, job_spec};
use crate::world::{Behaviour, Behaviours, Controllers, Step, What, When};

pub(super) const SCENARIOS: &[Scenario] = &[
    cron_job("cron-allow", RUN_LONG, || every_ten_minutes(json!({"concurrencyPolicy": "Allow"}), 21)),
    // Suspended late enough for the run that has to wait for the one before, even behind caches that lag for minutes.
    cron_job("cron-forbid", RUN_LONG, || every_ten_minutes(json!({"concurrencyPolicy": "Forbid"}), 29)),
    cron_job("cron-replace", RUN_LONG, || every_ten_minutes(json!({"concurrencyPolicy": "Replace"}), 21)),
    // Somebody forgets the Job that runs, and takes the last time back to one that was over before (P-14).
    cron_job("cron-status-edited", RUN_LONG, || {
        let status = json!({"status": {"active": null, "lastScheduleTime": "2026-01-05T10:00:00Z"}});
        let forget = Step::new(When::Jobs(1), What::PatchStatus(Resource::CRON_JOBS, "c", status));
        let mut steps = every_ten_minutes(json!({"concurrencyPolicy": "Forbid"}), 12);
        steps.insert(1, forget);
        steps
    }),
    cron_job("cron-history", RUN_SHORT, || {
        every_ten_minutes(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}), 31)
    }),
    cron_job("cron-no-history", RUN_SHORT, || every_ten_minutes(json!({"successfulJobsHistoryLimit": 0}), 21)),
];

const RUN_LONG: Behaviours = |_| Behaviour { stop_ms: 1_000, ..Behaviour::ends(0, 780_000) };
const RUN_SHORT: Behaviours = |pod| Behaviour::ends(i32::from(pod.job.ends_with('1')), 60_000);

const fn cron_job(name: &'static str, behaviours: Behaviours, script: fn() -> Vec<Step>) -> Scenario {
    let controllers = Controllers { cron_job: true, ..Controllers::JOB };
    // A Job that is not made in time is not made at all, because then the CronJob is suspended.
    Scenario { controllers, stalls_matter: true, ..Scenario::job(name, behaviours, script, "cronjob c active=[]") }
}

/// A CronJob that is suspended after so many minutes.
fn every_ten_minutes(fields: Value, minutes: u64) -> Vec<Step> {
    let mut spec = json!({"schedule": "*/10 * * * *", "jobTemplate": {"spec": job_spec(json!({"backoffLimit": 0}))}});
    if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
        spec.extend(fields);
    }
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec});
    let suspend = What::Patch(Resource::CRON_JOBS, "c", json!({"spec": {"suspend": true}}));
    vec![
        Step::new(When::After(500), What::Create(Resource::CRON_JOBS, cron_job)),
        Step::new(When::After(minutes * 60_000), suspend),
    ]
}
