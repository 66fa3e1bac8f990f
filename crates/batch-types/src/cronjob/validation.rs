//! What a CronJob must look like (JA-CJ3…CJ19). All of its spec may change, so an update is checked like a create, with
//! tolerance for what older servers let pass.

use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use teeth::{Mutation, is};

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
    if !zone.split('/').all(is_zone_part) && !is(Mutation::V07) {
        return vec![Error::invalid(path, zone, format!("unknown time zone {zone}")).named()];
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
    (1..=14).contains(&part.len()) && part != "." && part != ".." && !part.starts_with('-') && part.bytes().all(is_fine)
}

/// JA-CJ13.
fn validate_concurrency_policy(spec: &CronJobSpec, path: &Path) -> Option<Error> {
    const SUPPORTED: [&str; 3] = [value::CONCURRENCY_ALLOW, value::CONCURRENCY_FORBID, value::CONCURRENCY_REPLACE];
    match spec.concurrency_policy.as_deref().unwrap_or_default() {
        "" => Some(Error::required(path, "")),
        policy if SUPPORTED.contains(&policy) => None,
        policy => Some(Error::not_supported(path, policy, &SUPPORTED).named()),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NONE: [&str; 0] = [];

    fn cron_job(spec: Value) -> CronJob {
        let mut base = json!({
            "metadata": {"name": "mycronjob", "namespace": "default", "uid": "1a2b3c", "resourceVersion": "1"},
            "spec": {"schedule": "5 5 * * ?", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "OnFailure", "containers": [{"name": "abc", "image": "image"}]}}}}}
        });
        crate::cronjob::default(&mut base);
        for (key, value) in spec.as_object().unwrap() {
            base["spec"][key] = value.clone();
        }
        serde_json::from_value(base).unwrap()
    }

    fn texts(errors: Vec<Error>) -> Vec<String> {
        errors.iter().map(|error| error.to_string().trim_start_matches("spec.").to_owned()).collect()
    }

    fn create(spec: Value) -> Vec<String> {
        texts(validate(&cron_job(spec)))
    }

    fn update(old: Value, new: Value) -> Vec<String> {
        texts(validate_update(&cron_job(new), &cron_job(old)))
    }

    #[test]
    fn what_is_fine() {
        for spec in [
            json!({}),
            json!({"schedule": "* * * * ?"}),
            json!({"schedule": "@hourly"}),
            json!({"schedule": "0 * * * *", "timeZone": "Europe/Rome"}),
            json!({"concurrencyPolicy": "Replace", "startingDeadlineSeconds": 0, "successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0}),
        ] {
            assert_eq!(create(spec.clone()), NONE, "{spec}");
            assert_eq!(update(spec.clone(), spec.clone()), NONE, "{spec}");
        }
    }

    #[test]
    fn what_is_refused_on_create_and_update() {
        let negative = "must be greater than or equal to 0";
        let cases = [
            (json!({"schedule": ""}), "schedule: Required value".to_owned()),
            (
                json!({"schedule": "error"}),
                "schedule: Invalid value: \"error\": expected exactly 5 fields, found 1: [error]".to_owned(),
            ),
            (json!({"startingDeadlineSeconds": -1}), format!("startingDeadlineSeconds: Invalid value: -1: {negative}")),
            (
                json!({"successfulJobsHistoryLimit": -1}),
                format!("successfulJobsHistoryLimit: Invalid value: -1: {negative}"),
            ),
            (json!({"failedJobsHistoryLimit": -1}), format!("failedJobsHistoryLimit: Invalid value: -1: {negative}")),
            (json!({"concurrencyPolicy": ""}), "concurrencyPolicy: Required value".to_owned()),
            (
                json!({"concurrencyPolicy": "Queue"}),
                "concurrencyPolicy: Unsupported value: \"Queue\": supported values: \"Allow\", \"Forbid\", \"Replace\""
                    .to_owned(),
            ),
        ];
        for (spec, wanted) in cases {
            assert_eq!(create(spec.clone()), [wanted.as_str()]);
            assert_eq!(update(json!({}), spec), [wanted]);
        }
    }

    #[test]
    fn time_zones() {
        let zone = |name: &str| create(json!({"timeZone": name}));
        let explicit = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        assert_eq!(zone(""), ["timeZone: Invalid value: \"\": timeZone must be nil or non-empty string"]);
        assert_eq!(
            zone("LOCAL"),
            [
                format!("timeZone: Invalid value: \"LOCAL\": {explicit}"),
                "timeZone: Invalid value: \"LOCAL\": unknown time zone LOCAL".to_owned()
            ]
        );
        assert_eq!(zone("Local"), [format!("timeZone: Invalid value: \"Local\": {explicit}")]);
        for name in [
            " Europe/Rome",
            "Europe/Rome ",
            "Europe/InvalidRome",
            " ",
            "bad-time-zone",
            "./UTC",
            "../UTC",
            "/UTC",
            "a//b",
            "-x",
            "Europe/AnExtremelyLongCity",
            "europe/rome",
        ] {
            assert_eq!(zone(name), [format!("timeZone: Invalid value: \"{name}\": unknown time zone {name}")]);
        }
        assert_eq!(zone("a<b"), [r#"timeZone: Invalid value: "a\u003cb": unknown time zone a<b"#]);
    }

    /// REG-V07, INV-52: names with path elements, most of which lead to a zone all the same.
    #[test]
    fn reg_v07_a_path_is_no_time_zone() {
        for name in [
            "Europe/../UTC",
            "../zoneinfo/UTC",
            "../UTC",
            "./UTC",
            "Europe/./Rome",
            "Europe//Rome",
            "/usr/share/zoneinfo/UTC",
            "UTC/",
            "../../../etc/localtime",
        ] {
            let wanted = format!("timeZone: Invalid value: \"{name}\": unknown time zone {name}");
            assert_eq!(create(json!({"timeZone": name})), [wanted.as_str()]);
            assert_eq!(update(json!({}), json!({"timeZone": name})), [wanted]);
            let inside = create(json!({"schedule": format!("TZ={name} 0 * * * *")}));
            assert!(inside.iter().any(|error| error.contains("provided bad location")), "{name}: {inside:?}");
        }
    }

    /// REG-V01, the half of the CronJob: without completions there is nothing that a success policy could be compared with.
    #[test]
    fn reg_v01_a_success_policy_does_not_replace_completions_in_a_template() {
        let policy = json!({"rules": [{"succeededIndexes": "0", "succeededCount": 1}]});
        let spec = json!({"completionMode": "Indexed", "parallelism": 2, "successPolicy": policy, "template": {"spec":
            {"restartPolicy": "Never", "containers": [{"name": "abc", "image": "image"}]}}});
        let mut base = json!({"spec": {"jobTemplate": {"spec": spec}}});
        crate::cronjob::default(&mut base);
        let required = "jobTemplate.spec.completions: Required value: when completion mode is Indexed";
        let spec = json!({"jobTemplate": base["spec"]["jobTemplate"]});
        for found in [create(spec.clone()), update(json!({}), spec)] {
            assert!(found.iter().any(|error| error == required), "{found:?}");
        }
    }

    /// REG-V09: upstream's parser indexes past the end of what has no blank.
    #[test]
    fn reg_v09_a_zone_without_schedule_is_refused() {
        for schedule in ["TZ=", "TZ=x", "CRON_TZ=x", "TZ= ", "CRON_TZ=UTC"] {
            assert!(!create(json!({"schedule": schedule})).is_empty(), "{schedule}");
        }
    }

    /// INV-45.
    #[test]
    fn an_unchanged_time_zone_is_not_checked() {
        let zone = |name: Value| json!({"timeZone": name});
        let broken = "timeZone: Invalid value: \"broken\": unknown time zone broken";
        let cases = [
            (json!(null), json!("America/New_York"), vec![]),
            (json!(null), json!("broken"), vec![broken]),
            (json!("Europe/Rome"), json!("America/New_York"), vec![]),
            (json!("Europe/Rome"), json!("broken"), vec![broken]),
            (json!("broken"), json!("broken"), vec![]),
            (json!("broken"), json!("UTC"), vec![]),
            (json!("other"), json!("broken"), vec![broken]),
        ];
        for (old, new, wanted) in cases {
            assert_eq!(update(zone(old), zone(new)), wanted);
        }
    }

    #[test]
    fn zones_inside_schedules_are_history() {
        let plain = json!({"schedule": "0 * * * *"});
        let zoned = json!({"schedule": "TZ=UTC 0 * * * *"});
        let instead = "schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        assert_eq!(create(zoned.clone()), [instead]);
        assert_eq!(update(plain.clone(), zoned.clone()), [instead]);
        assert_eq!(update(zoned.clone(), plain), NONE);
        assert_eq!(update(zoned.clone(), zoned.clone()), NONE);
        assert_eq!(
            update(zoned, json!({"schedule": "TZ=UTC 0 * * * *", "timeZone": "UTC"})),
            [
                "schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use both timeZone field and TZ or CRON_TZ in schedule"
            ]
        );
        for schedule in ["TZ=0", "TZ=", "CRON_TZ=UTC", "TZ=Invalid/Timezone"] {
            let errors = create(json!({"schedule": schedule}));
            assert!(errors[0].contains(": invalid schedule format"), "{errors:?}");
            assert_eq!(errors.len(), 2);
        }
    }

    #[test]
    fn the_job_template_is_a_job_without_selector() {
        let template = |changes: Value| {
            let mut spec = json!({"template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "abc", "image": "image"}]}}});
            for (key, value) in changes.as_object().unwrap() {
                spec[key] = value.clone();
            }
            let mut base = json!({"spec": {"jobTemplate": {"spec": spec}}});
            crate::cronjob::default(&mut base);
            create(json!({"jobTemplate": base["spec"]["jobTemplate"]}))
        };
        let prefix = "jobTemplate.spec";
        assert_eq!(template(json!({})), NONE);
        assert_eq!(
            template(json!({"parallelism": -1})),
            [format!("{prefix}.parallelism: Invalid value: -1: must be greater than or equal to 0")]
        );
        assert_eq!(
            template(json!({"selector": {"matchLabels": {"a": "b"}}, "manualSelector": true})),
            [
                format!(
                    "{prefix}.selector: Invalid value: {{\"matchLabels\":{{\"a\":\"b\"}}}}: `selector` will be auto-generated"
                ),
                format!("{prefix}.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\""),
            ]
        );
        assert_eq!(
            template(json!({"template": {"spec": {"containers": [{"name": "abc", "image": "image"}]}}})),
            [format!("{prefix}.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"")]
        );
    }

    #[test]
    fn names_leave_room_for_the_jobs_suffix() {
        let named = |length: usize| {
            let mut cron_job = cron_job(json!({}));
            cron_job.metadata.name = Some("a".repeat(length));
            cron_job
        };
        assert_eq!(texts(validate(&named(52))), NONE);
        let wanted =
            format!("metadata.name: Invalid value: \"{}\": must be no more than 52 characters", "a".repeat(53));
        assert_eq!(texts(validate(&named(53))), [wanted]);
        assert_eq!(texts(validate_update(&named(53), &named(53))), NONE);
    }
}
