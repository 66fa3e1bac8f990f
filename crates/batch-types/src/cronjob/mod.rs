//! `batch/v1` CronJobs: defaults, strategies, validation, warnings (JA section 13).
//!
//! The order of a request is as for Jobs. Schedules are read and computed in `cron`; when Jobs are made is the
//! controller's business.

mod strategy;
mod validation;

use k8s_openapi::api::batch::v1::CronJob;
use serde_json::{Map, Value};

use crate::constants::value;
use crate::field::Path;
use crate::job;
use crate::json::{object_or_new, set_default};
use crate::pod;

pub use strategy::{prepare_for_create, prepare_for_status_update, prepare_for_update};
pub use validation::{validate, validate_update};

/// Fills in a CronJob (JA-D10, JA-D11). Of the Job template only the pod template and the failure policy are filled in;
/// the rest waits until a Job is made of it (JA-D12).
pub fn default(cron_job: &mut Value) {
    let Some(fields) = cron_job.as_object_mut() else { return };
    let Some(spec) = object_or_new(fields, "spec") else { return };
    if spec.get("concurrencyPolicy").is_some_and(|policy| policy == "") {
        spec.shift_remove("concurrencyPolicy");
    }
    set_default(spec, "concurrencyPolicy", value::CONCURRENCY_ALLOW);
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    let job_spec = object_or_new(spec, "jobTemplate").and_then(|template| object_or_new(template, "spec"));
    if let Some(job_spec) = job_spec {
        set_default(job_spec, "template", Map::new());
        if let Some(template) = job_spec.get_mut("template") {
            pod::default_template(template);
        }
    }
    job::default_condition_patterns(cron_job, &["spec", "jobTemplate", "spec"]);
}

pub fn warnings_on_create(cron_job: &CronJob) -> Vec<String> {
    let name = cron_job.metadata.name.as_deref().unwrap_or_default();
    let mut warnings: Vec<_> = job::name_warning(name).into_iter().collect();
    warnings.extend(job_template_warnings(cron_job));
    warnings
}

pub fn warnings_on_update(new: &CronJob, old: &CronJob) -> Vec<String> {
    let mut warnings = Vec::new();
    if new.metadata.generation != old.metadata.generation {
        warnings.extend(job_template_warnings(new));
    }
    if new.spec.schedule.contains("TZ") {
        // The doubled `spec` is upstream's (JA-W4).
        let text = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
            https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        warnings.push(text.to_owned());
    }
    warnings
}

fn job_template_warnings(cron_job: &CronJob) -> Vec<String> {
    let path = Path::new("spec").child("jobTemplate").child("spec");
    let spec = cron_job.spec.job_template.spec.as_ref();
    spec.map(|spec| job::spec_warnings(spec, &path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(mut cron_job: Value) -> Value {
        default(&mut cron_job);
        let mut spec = cron_job["spec"].take();
        spec["jobTemplate"]["spec"].as_object_mut().unwrap().shift_remove("template");
        spec
    }

    #[test]
    fn unset_fields_get_their_defaults() {
        let wanted = json!({"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1, "jobTemplate": {"spec": {}}});
        assert_eq!(defaulted(json!({})), wanted);
        assert_eq!(defaulted(json!({"spec": {"concurrencyPolicy": ""}})), wanted);
        let full = json!({"concurrencyPolicy": "Forbid", "suspend": true, "successfulJobsHistoryLimit": 5,
            "failedJobsHistoryLimit": 5, "jobTemplate": {"spec": {"parallelism": 2}}});
        assert_eq!(defaulted(json!({"spec": full})), full);
    }

    #[test]
    fn the_job_template_keeps_its_blanks() {
        let rules = json!([{"onPodConditions": [{"type": "A"}]}]);
        let spec = defaulted(json!({"spec": {"jobTemplate": {"spec": {"podFailurePolicy": {"rules": rules}}}}}));
        assert_eq!(
            spec["jobTemplate"]["spec"],
            json!({"podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "A", "status": "True"}]}]}})
        );
    }

    #[test]
    fn the_pod_template_is_filled_in() {
        let mut cron_job = json!({});
        default(&mut cron_job);
        assert_eq!(cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    }

    fn typed(name: &str, generation: i64, schedule: &str, spec: Value) -> CronJob {
        let object = json!({"metadata": {"name": name, "generation": generation},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": spec}}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn warnings() {
        let high = json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001, "template": {"spec": {"containers": []}}});
        let low = json!({"template": {"spec": {"containers": []}}});
        assert_eq!(warnings_on_create(&typed("a", 1, "@daily", low.clone())), [""; 0]);
        assert_eq!(warnings_on_create(&typed("a.b", 1, "@daily", low.clone())).len(), 1);
        let warnings = warnings_on_create(&typed("a", 1, "@daily", high.clone()));
        assert!(warnings[0].starts_with("spec.jobTemplate.spec: In Indexed Jobs"), "{warnings:?}");

        let old = typed("a", 1, "@daily", low.clone());
        assert_eq!(warnings_on_update(&typed("a", 1, "@daily", high.clone()), &old), [""; 0]);
        assert_eq!(warnings_on_update(&typed("a", 2, "@daily", high), &old).len(), 1);
        let warnings = warnings_on_update(&typed("a", 2, "CRON_TZ=UTC 5 5 * * ?", low), &old);
        assert_eq!(
            warnings,
            ["cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
              https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"]
        );
    }
}
