//! What a CronJob must look like (JA-CJ3…CJ19). All of its spec may change, so an update is checked like a create, with
//! tolerance for what older servers let pass.

use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::constants::value;
use crate::cron;
use crate::field::{Error, Path};
use crate::job;
use crate::meta::{self, Scope, validate_non_negative};
use crate::names::{self, NameRule};
use crate::selector;

/// The longest name: a Job's name less the eleven characters its CronJob appends (CJ-50).
const NAME_MAX: usize = names::LABEL_MAX - 11;

/// Everything wrong with a CronJob that is to be created.
pub fn validate(cron_job: &CronJob) -> Vec<Error> {
    let mut errors =
        meta::validate(&cron_job.metadata, Scope::Namespaced, NameRule::DnsSubdomain, &Path::new("metadata"));
    errors.extend(validate_spec(&cron_job.spec, None));
    // Stored CronJobs may have longer names from before this rule; it binds new ones only (JA-CJ18).
    let name = cron_job.metadata.name.as_deref().unwrap_or_default();
    if name.len() > NAME_MAX {
        let detail = format!("must be no more than {NAME_MAX} characters");
        errors.push(Error::invalid(&Path::new("metadata").child("name"), name, detail));
    }
    errors
}

/// Everything wrong with an update.
pub fn validate_update(new: &CronJob, old: &CronJob) -> Vec<Error> {
    let mut errors = meta::validate_update(&new.metadata, &old.metadata, &Path::new("metadata"));
    errors.extend(validate_spec(&new.spec, Some(&old.spec)));
    errors
}

fn validate_spec(spec: &CronJobSpec, old: Option<&CronJobSpec>) -> Vec<Error> {
    let path = Path::new("spec");
    let mut errors = validate_schedule(spec, old, &path.child("schedule"));
    errors.extend(non_negative(spec.starting_deadline_seconds, &path.child("startingDeadlineSeconds")));
    if old.is_none_or(|old| old.time_zone != spec.time_zone)
        && let Some(zone) = &spec.time_zone
    {
        errors.extend(validate_time_zone(zone, &path.child("timeZone")));
    }
    errors.extend(validate_concurrency_policy(spec, &path.child("concurrencyPolicy")));
    let old_template = old.and_then(|old| old.job_template.spec.as_ref()).map(|spec| &spec.template);
    errors.extend(validate_job_template(&spec.job_template, old_template, &path.child("jobTemplate").child("spec")));
    for (field, limit) in [
        ("successfulJobsHistoryLimit", spec.successful_jobs_history_limit),
        ("failedJobsHistoryLimit", spec.failed_jobs_history_limit),
    ] {
        errors.extend(non_negative(limit.map(i64::from), &path.child(field)));
    }
    errors
}

fn non_negative(count: Option<i64>, path: &Path) -> Option<Error> {
    count.and_then(|count| validate_non_negative(count, path))
}

/// JA-CJ4…CJ7.
fn validate_schedule(spec: &CronJobSpec, old: Option<&CronJobSpec>, path: &Path) -> Vec<Error> {
    let schedule = spec.schedule.as_str();
    if schedule.is_empty() {
        return vec![Error::required(path, "")];
    }
    let mut errors = Vec::new();
    if let Err(error) = cron::parse(schedule) {
        errors.push(Error::invalid(path, schedule, error.to_string()));
    }
    if schedule.contains("TZ") {
        let had_zone = old.is_some_and(|old| old.schedule.contains("TZ"));
        if !had_zone {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(Error::invalid(path, schedule, detail));
        } else if spec.time_zone.is_some() {
            let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.push(Error::invalid(path, schedule, detail));
        }
    }
    errors
}

/// JA-CJ9…CJ12.
fn validate_time_zone(zone: &str, path: &Path) -> Vec<Error> {
    if zone.is_empty() {
        return vec![Error::invalid(path, zone, "timeZone must be nil or non-empty string")];
    }
    if !zone.split('/').all(is_zone_part) {
        return vec![Error::invalid(path, zone, format!("unknown time zone {zone}"))];
    }
    let mut errors = Vec::new();
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(Error::invalid(path, zone, detail));
    }
    if let Err(error) = cron::zone::load(zone) {
        errors.push(Error::invalid(path, zone, error.to_string()));
    }
    errors
}

/// A file name of the tz database, so that no other file is ever opened (JA-CJ10).
fn is_zone_part(part: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
    (1..=14).contains(&part.len())
        && part != "."
        && part != ".."
        && !part.starts_with('-')
        && part.bytes().all(is_fine)
}

/// JA-CJ13.
fn validate_concurrency_policy(spec: &CronJobSpec, path: &Path) -> Option<Error> {
    const SUPPORTED: [&str; 3] = [value::CONCURRENCY_ALLOW, value::CONCURRENCY_FORBID, value::CONCURRENCY_REPLACE];
    match spec.concurrency_policy.as_deref().unwrap_or_default() {
        "" => Some(Error::required(path, "")),
        policy if SUPPORTED.contains(&policy) => None,
        policy => Some(Error::not_supported(path, policy, &SUPPORTED)),
    }
}

/// Jobs made of the template always have generated selectors (JA-CJ14…CJ16).
fn validate_job_template(
    template: &JobTemplateSpec,
    old_template: Option<&PodTemplateSpec>,
    path: &Path,
) -> Vec<Error> {
    let unset = JobSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&unset);
    let mut errors = job::validate_template_job_spec(spec, old_template, path);
    if spec.selector.is_some() {
        let shown = selector::value(spec.selector.as_ref());
        errors.push(Error::invalid(&path.child("selector"), shown, "`selector` will be auto-generated"));
    }
    if spec.manual_selector == Some(true) {
        errors.push(Error::not_supported(&path.child("manualSelector"), true, &["nil", "false"]));
    }
    errors
}
