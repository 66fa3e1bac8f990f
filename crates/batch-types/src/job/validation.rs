//! What a Job must look like (JA section 6). Errors come in upstream's order.
//!
//! Policies have their own files; what may change is in `update`, the pod template's rules are in `pod`.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;
use teeth::{Mutation, is};

use super::{failure_policy, is_indexed, success_policy};
use crate::constants::{label, value};
use crate::field::{Error, Path};
use crate::meta::{self, Scope, validate_non_negative};
use crate::names::{self, NameRule};
use crate::pod;
use crate::selector::{self, Selector};

/// The most pods an Indexed Job may run at once and the most indexes that may fail: it bounds the length of
/// `completedIndexes` and `failedIndexes` (JA-V19, JA-V21).
const INDEXED_MAX: i32 = 100_000;
/// Above this many completions a limit per index needs tighter bounds (JA-V22).
pub(super) const COMPLETIONS_SOFT_MAX: i32 = 100_000;
/// Those bounds, for parallelism and for failed indexes.
pub(super) const HIGH_COMPLETIONS_MAX: i32 = 10_000;
/// The longest `managedBy` (JA-V16).
const MANAGED_BY_MAX: usize = 63;

/// Everything wrong with a Job that is to be created.
pub fn validate(job: &Job) -> Vec<Error> {
    validate_with(job, &Options::CREATE)
}

/// What old objects may do that new ones may not.
pub(super) struct Options<'a> {
    /// Whether the prefixed labels must be on the template, too (JA-U7).
    pub(super) prefixed_labels_required: bool,
    pub(super) selector_tolerance: selector::Tolerance,
    /// The template that is stored, whose faults are tolerated (JA-P20).
    pub(super) old_template: Option<&'a PodTemplateSpec>,
}

impl Options<'_> {
    const CREATE: Self = Self {
        prefixed_labels_required: true,
        selector_tolerance: selector::Tolerance { invalid_label_values: false },
        old_template: None,
    };
}

/// The checks create and update share.
pub(super) fn validate_with(job: &Job, options: &Options<'_>) -> Vec<Error> {
    let unset = JobSpec::default();
    let spec = job.spec.as_ref().unwrap_or(&unset);
    let mut errors = meta::validate(&job.metadata, Scope::Namespaced, NameRule::DnsSubdomain, &Path::new("metadata"));
    errors.extend(validate_generated_selector(job, spec, options.prefixed_labels_required));
    errors.extend(validate_spec(spec, &Path::new("spec"), options));
    errors.extend(validate_pod_host_names(job, spec));
    errors
}

/// The spec of a Job, selector included.
pub(super) fn validate_spec(spec: &JobSpec, path: &Path, options: &Options<'_>) -> Vec<Error> {
    let mut errors = validate_template_job_spec(spec, options.old_template, path);
    match &spec.selector {
        None => errors.push(Error::required(&path.child("selector"), "")),
        Some(selector) => {
            errors.extend(selector::validate(selector, options.selector_tolerance, &path.child("selector")));
        }
    }
    let labels = template_labels(&spec.template);
    let selector = Selector::from_label_selector(spec.selector.as_ref());
    if selector.is_some_and(|selector| !selector.matches_with(|key| labels?.get(key).map(String::as_str))) {
        let path = path.child("template").child("metadata").child("labels");
        errors.push(Error::invalid(&path, labels_value(labels), "`selector` does not match template `labels`"));
    }
    errors
}

/// The spec of a Job or of a CronJob's Job template: everything but the selector.
pub(crate) fn validate_template_job_spec(
    spec: &JobSpec,
    old_template: Option<&PodTemplateSpec>,
    path: &Path,
) -> Vec<Error> {
    let mut errors = validate_counts(spec, path);
    if let Some(managed_by) = &spec.managed_by {
        errors.extend(validate_managed_by(managed_by, &path.child("managedBy")));
    }
    errors.extend(validate_completion_mode(spec, path));
    if let Some(policy) = &spec.pod_failure_policy {
        errors.extend(failure_policy::validate(policy, spec, &path.child("podFailurePolicy")));
    }
    if let Some(policy) = &spec.success_policy {
        errors.extend(success_policy::validate(policy, spec, &path.child("successPolicy")));
    }
    errors.extend(validate_pod_replacement_policy(spec, &path.child("podReplacementPolicy")));
    let template_path = path.child("template");
    errors.extend(match old_template {
        None => pod::validate_template_for_job(&spec.template, &template_path),
        Some(old) => pod::validate_template_update_for_job(&spec.template, old, &template_path),
    });
    errors.extend(validate_restart_policy(spec, &template_path.child("spec").child("restartPolicy")));
    errors
}

/// The labels of a template, `None` where there are none at all.
pub(super) fn template_labels(template: &PodTemplateSpec) -> Option<&BTreeMap<String, String>> {
    template.metadata.as_ref()?.labels.as_ref()
}

/// A generated selector selects generated labels and nothing else (JA-V3…V6).
fn validate_generated_selector(job: &Job, spec: &JobSpec, prefixed_labels_required: bool) -> Vec<Error> {
    let Some(selector) = spec.selector.as_ref().filter(|_| spec.manual_selector != Some(true)) else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if uid.is_empty() {
        errors.push(Error::required(&Path::new("metadata").child("uid"), ""));
    }
    let mut expected = vec![(label::LEGACY_CONTROLLER_UID, uid), (label::LEGACY_JOB_NAME, name)];
    if prefixed_labels_required {
        expected.extend([(label::CONTROLLER_UID, uid), (label::JOB_NAME, name)]);
    }
    for (key, value) in &expected {
        errors.extend(validate_has_label(&spec.template, key, value));
    }
    let lookup = |key: &str| expected.iter().find(|(expected, _)| *expected == key).map(|(_, value)| *value);
    if Selector::from_label_selector(Some(selector)).is_some_and(|selector| !selector.matches_with(lookup)) {
        let path = Path::new("spec").child("selector");
        errors.push(Error::invalid(&path, selector::value(Some(selector)), "`selector` not auto-generated"));
    }
    errors
}

fn validate_has_label(template: &PodTemplateSpec, key: &str, expected: &str) -> Option<Error> {
    let labels = template_labels(template);
    let actual = labels.and_then(|labels| labels.get(key));
    if actual.is_some_and(|actual| actual == expected) {
        return None;
    }
    let path = Path::new("spec").child("template").child("metadata").child("labels").key(key);
    let detail = format!("must be '{expected}'");
    Some(match actual {
        None => Error::required(&path, detail),
        Some(_) => Error::invalid(&path, labels_value(labels), detail),
    })
}

fn labels_value(labels: Option<&BTreeMap<String, String>>) -> Value {
    labels.map_or(Value::Null, |labels| {
        Value::Object(labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect())
    })
}

/// No count may be negative; zero is fine everywhere (JA-V10, JA-V11).
fn validate_counts(spec: &JobSpec, path: &Path) -> Vec<Error> {
    let counts = [
        ("parallelism", spec.parallelism.map(i64::from)),
        ("completions", spec.completions.map(i64::from)),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit.map(i64::from)),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index.map(i64::from)),
        ("maxFailedIndexes", spec.max_failed_indexes.map(i64::from)),
    ];
    let negative = counts.into_iter().filter(|(_, count)| count.is_some_and(|count| count < 0));
    let mut errors: Vec<_> =
        negative.filter_map(|(field, count)| validate_non_negative(count?, &path.child(field))).collect();
    if spec.max_failed_indexes.is_some() && spec.backoff_limit_per_index.is_none() {
        errors.push(Error::required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    errors
}

fn validate_managed_by(managed_by: &str, path: &Path) -> Vec<Error> {
    let mut errors = names::validate_domain_prefixed_path(managed_by, path);
    if managed_by.len() > MANAGED_BY_MAX {
        errors.push(Error::too_long(path, MANAGED_BY_MAX));
    }
    errors
}

/// JA-V17…V23.
fn validate_completion_mode(spec: &JobSpec, path: &Path) -> Vec<Error> {
    match spec.completion_mode.as_deref() {
        Some(value::INDEXED) => validate_indexed(spec, path),
        Some(value::NON_INDEXED) | None => validate_non_indexed(spec, path),
        Some(other) => {
            vec![
                Error::not_supported(&path.child("completionMode"), other, &[value::NON_INDEXED, value::INDEXED])
                    .named(),
            ]
        }
    }
}

fn validate_indexed(spec: &JobSpec, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let above = |count: Option<i32>, max: i32| count.filter(|count| *count > max);
    let is_excused = is(Mutation::V01) && spec.success_policy.is_some();
    if spec.completions.is_none() && !is_excused {
        errors.push(Error::required(&path.child("completions"), "when completion mode is Indexed"));
    }
    if let Some(parallelism) = above(spec.parallelism, INDEXED_MAX) {
        let detail = format!("must be less than or equal to {INDEXED_MAX} when completion mode is Indexed");
        errors.push(Error::invalid(&path.child("parallelism"), parallelism, detail));
    }
    if let Some(max_failed) = spec.completions.and_then(|completions| above(spec.max_failed_indexes, completions)) {
        let detail = "must be less than or equal to completions";
        errors.push(Error::invalid(&path.child("maxFailedIndexes"), max_failed, detail));
    }
    if let Some(max_failed) = above(spec.max_failed_indexes, INDEXED_MAX) {
        let detail = format!("must be less than or equal to {INDEXED_MAX}");
        errors.push(Error::invalid(&path.child("maxFailedIndexes"), max_failed, detail));
    }
    if above(spec.completions, COMPLETIONS_SOFT_MAX).is_none() || spec.backoff_limit_per_index.is_none() {
        return errors;
    }
    if spec.max_failed_indexes.is_none() {
        let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}");
        errors.push(Error::required(&path.child("maxFailedIndexes"), detail));
    }
    for (field, count) in [("parallelism", spec.parallelism), ("maxFailedIndexes", spec.max_failed_indexes)] {
        if let Some(count) = above(count, HIGH_COMPLETIONS_MAX) {
            let detail = format!(
                "must be less than or equal to {HIGH_COMPLETIONS_MAX} when completions are above \
                 {COMPLETIONS_SOFT_MAX} and used with backoff limit per index"
            );
            errors.push(Error::invalid(&path.child(field), count, detail));
        }
    }
    errors
}

fn validate_non_indexed(spec: &JobSpec, path: &Path) -> Vec<Error> {
    let fields =
        [("backoffLimitPerIndex", spec.backoff_limit_per_index), ("maxFailedIndexes", spec.max_failed_indexes)];
    let set = fields.into_iter().filter_map(|(field, count)| Some((field, count?)));
    set.map(|(field, count)| Error::invalid(&path.child(field), count, "requires indexed completion mode")).collect()
}

/// JA-V26, JA-V27.
fn validate_pod_replacement_policy(spec: &JobSpec, path: &Path) -> Option<Error> {
    let policy = spec.pod_replacement_policy.as_deref()?;
    let supported: &[&str] = if spec.pod_failure_policy.is_some() {
        &[value::REPLACE_FAILED]
    } else {
        &[value::REPLACE_FAILED, value::REPLACE_TERMINATING_OR_FAILED]
    };
    (!supported.contains(&policy)).then(|| Error::not_supported(path, policy, supported).named())
}

/// Pods that restart forever cannot complete (JA-V29, JA-V30).
fn validate_restart_policy(spec: &JobSpec, path: &Path) -> Option<Error> {
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or_default();
    match policy {
        value::RESTART_NEVER => None,
        value::RESTART_ON_FAILURE => spec
            .pod_failure_policy
            .as_ref()
            .map(|_| Error::invalid(path, policy, "only \"Never\" is supported when podFailurePolicy is specified")),
        // Defaulting turns "unset" into `Always`, so both count as unset.
        "" | value::RESTART_ALWAYS => Some(Error::required(path, "valid values: \"OnFailure\", \"Never\"")),
        other => Some(Error::not_supported(path, other, &[value::RESTART_ON_FAILURE, value::RESTART_NEVER]).named()),
    }
}

/// Pods of an Indexed Job are reached by host name, which ends in the index (JA-V34).
fn validate_pod_host_names(job: &Job, spec: &JobSpec) -> Option<Error> {
    let completions = spec.completions.filter(|completions| is_indexed(spec) && *completions > 0)?;
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let longest = format!("{name}-{}", completions - 1);
    (!names::is_dns_label(&longest) && !is(Mutation::V05)).then(|| {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        Error::invalid(&Path::new("metadata").child("name"), name, detail)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{indexed, job, texts};
    use super::*;

    fn check(job: Job) -> Vec<String> {
        texts(&validate(&job))
    }

    fn spec(changes: Value) -> Vec<String> {
        check(job(json!({"spec": changes})))
    }

    fn indexed_spec(changes: Value) -> Vec<String> {
        check(indexed(json!({"spec": changes})))
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn what_is_fine() {
        let fine = [
            job(json!({})),
            job(json!({"spec": {"parallelism": 0, "completions": 0, "backoffLimit": 0, "ttlSecondsAfterFinished": 0}})),
            job(json!({"spec": {"managedBy": "example.com/foo", "podReplacementPolicy": "Failed"}})),
            job(json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})),
            job(
                json!({"spec": {"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}}),
            ),
            job(json!({"spec": {"parallelism": 1_000_000_000, "completions": 1_000_000_000}})),
            indexed(json!({"spec": {"completions": 2, "parallelism": 100_000}})),
            indexed(
                json!({"spec": {"completions": 100_000, "parallelism": 100_000, "maxFailedIndexes": 100_000, "backoffLimitPerIndex": 1}}),
            ),
            indexed(
                json!({"spec": {"completions": 1_000_000_000, "parallelism": 10_000, "maxFailedIndexes": 10_000, "backoffLimitPerIndex": 1}}),
            ),
        ];
        for job in fine {
            assert_eq!(check(job.clone()), NONE, "{job:?}");
        }
    }

    #[test]
    fn counts_may_not_be_negative() {
        for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
        {
            let wanted = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
            assert_eq!(spec(json!({field: -1})), [wanted]);
        }
        assert_eq!(
            indexed_spec(json!({"backoffLimitPerIndex": -1, "maxFailedIndexes": -1})),
            [
                "spec.backoffLimitPerIndex: Invalid value: -1: must be greater than or equal to 0",
                "spec.maxFailedIndexes: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
    }

    #[test]
    fn managed_by_is_a_short_domain_prefixed_path() {
        assert_eq!(spec(json!({"managedBy": ""})), ["spec.managedBy: Required value"]);
        assert_eq!(
            spec(json!({"managedBy": "invalid custom controller name"})),
            [
                "spec.managedBy: Invalid value: \"invalid custom controller name\": must be a domain-prefixed path (such as \"acme.io/foo\")"
            ]
        );
        let long = format!("example.com/{}", "x".repeat(52));
        assert_eq!(spec(json!({"managedBy": long})), ["spec.managedBy: Too long: may not be more than 63 bytes"]);
    }

    #[test]
    fn completion_modes_and_their_limits() {
        assert_eq!(
            spec(json!({"completionMode": "indexed"})),
            ["spec.completionMode: Unsupported value: \"indexed\": supported values: \"NonIndexed\", \"Indexed\""]
        );
        assert_eq!(
            spec(json!({"completionMode": "a<b"})),
            [r#"spec.completionMode: Unsupported value: "a\u003cb": supported values: "NonIndexed", "Indexed""#]
        );
        assert_eq!(
            spec(json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1})),
            [
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
                "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
            ]
        );
        let above = "when completions are above 100000 and used with backoff limit per index";
        let cases = [
            (json!({"completions": null}), vec!["spec.completions: Required value: when completion mode is Indexed".to_owned()]),
            (
                json!({"parallelism": 100_001}),
                vec!["spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed".to_owned()],
            ),
            (
                json!({"maxFailedIndexes": 4}),
                vec!["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified".to_owned()],
            ),
            (
                json!({"maxFailedIndexes": 6, "backoffLimitPerIndex": 1}),
                vec!["spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions".to_owned()],
            ),
            (
                json!({"completions": 100_001, "backoffLimitPerIndex": 1}),
                vec!["spec.maxFailedIndexes: Required value: must be specified when completions is above 100000".to_owned()],
            ),
            (
                json!({"completions": 100_001, "parallelism": 10_001, "maxFailedIndexes": 100_001, "backoffLimitPerIndex": 1}),
                vec![
                    "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000".to_owned(),
                    format!("spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 {above}"),
                    format!("spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 10000 {above}"),
                ],
            ),
        ];
        for (changes, wanted) in cases {
            assert_eq!(indexed_spec(changes.clone()), wanted, "{changes}");
        }
    }

    /// REG-V01: without completions there is nothing that a success policy could be compared with.
    #[test]
    fn reg_v01_a_success_policy_does_not_replace_completions() {
        let policy = json!({"rules": [{"succeededIndexes": "0", "succeededCount": 1}]});
        let found = indexed_spec(json!({"completions": null, "parallelism": 2, "successPolicy": policy}));
        let required = "spec.completions: Required value: when completion mode is Indexed";
        assert!(found.iter().any(|error| error == required), "{found:?}");
    }

    /// REG-V05, JA-V34.
    #[test]
    fn reg_v05_pod_names_of_indexed_jobs_must_be_host_names() {
        let named = |name: &str, completions: i32| {
            let mut job = indexed(json!({"spec": {"completions": completions, "manualSelector": true}}));
            job.metadata.name = Some(name.to_owned());
            check(job)
        };
        let long = "a".repeat(61);
        assert_eq!(named(&long, 10), NONE);
        assert_eq!(
            named(&long, 11),
            [format!(
                "metadata.name: Invalid value: \"{long}\": will not able to create pod with invalid DNS label: {long}-10"
            )]
        );
        assert_eq!(
            named("de.mo", 10),
            ["metadata.name: Invalid value: \"de.mo\": will not able to create pod with invalid DNS label: de.mo-9"]
        );
        assert_eq!(named("de.mo", 0), NONE);
    }

    #[test]
    fn replacement_and_restart_policies() {
        let failure_policy = json!({"rules": []});
        let cases = [
            (
                json!({"podReplacementPolicy": "x"}),
                "spec.podReplacementPolicy: Unsupported value: \"x\": supported values: \"Failed\", \"TerminatingOrFailed\"",
            ),
            (
                json!({"podFailurePolicy": failure_policy}),
                "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
            ),
            (
                json!({"template": {"spec": {"restartPolicy": "Always"}}}),
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (
                json!({"podFailurePolicy": failure_policy, "podReplacementPolicy": "Failed", "template": {"spec": {"restartPolicy": "OnFailure"}}}),
                "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when podFailurePolicy is specified",
            ),
        ];
        for (changes, wanted) in cases {
            assert_eq!(spec(changes), [wanted]);
        }
        assert_eq!(
            spec(json!({"template": {"spec": {"restartPolicy": "Sometimes"}}})),
            [
                "spec.template.spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                "spec.template.spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"OnFailure\", \"Never\"",
            ]
        );
    }

    #[test]
    fn selectors_are_required_and_match() {
        let labels = "{\"a\":\"b\"}";
        let manual = |selector: Value| {
            let mut job = job(json!({"spec": {"manualSelector": true, "selector": selector}}));
            let template = job.spec.as_mut().unwrap();
            template.template.metadata.as_mut().unwrap().labels = Some([("a".to_owned(), "b".to_owned())].into());
            check(job)
        };
        let mismatch = format!(
            "spec.template.metadata.labels: Invalid value: {labels}: `selector` does not match template `labels`"
        );
        assert_eq!(manual(json!(null)), ["spec.selector: Required value".to_owned(), mismatch.clone()]);
        assert_eq!(manual(json!({"matchLabels": {"batch.kubernetes.io/controller-uid": null, "a": "c"}})), [mismatch]);
        assert_eq!(
            manual(json!({"matchLabels": null, "matchExpressions": [{"key": "a", "operator": "Is"}]})),
            ["spec.selector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator"]
        );
        assert_eq!(manual(json!({"matchLabels": null})), NONE);
    }

    #[test]
    fn generated_selectors_select_generated_labels() {
        let labels = |changes: Value| spec(json!({"template": {"metadata": {"labels": changes}}}));
        assert_eq!(
            labels(json!({"controller-uid": null})),
            ["spec.template.metadata.labels[controller-uid]: Required value: must be '1a2b3c'"]
        );
        let shown = "{\"batch.kubernetes.io/controller-uid\":\"1a2b3c\",\"batch.kubernetes.io/job-name\":\"myjob\",\"controller-uid\":\"1a2b3c\",\"job-name\":\"other\"}";
        assert_eq!(
            labels(json!({"job-name": "other"})),
            [format!("spec.template.metadata.labels[job-name]: Invalid value: {shown}: must be 'myjob'")]
        );
        assert_eq!(
            labels(json!(null)),
            [
                "spec.template.metadata.labels[controller-uid]: Required value: must be '1a2b3c'",
                "spec.template.metadata.labels[job-name]: Required value: must be 'myjob'",
                "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Required value: must be '1a2b3c'",
                "spec.template.metadata.labels[batch.kubernetes.io/job-name]: Required value: must be 'myjob'",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
            ]
        );
        assert_eq!(
            spec(
                json!({"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}})
            ),
            [
                "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\",\"batch.kubernetes.io/controller-uid\":\"1a2b3c\"}}: `selector` not auto-generated"
            ]
        );
        let mut job = job(json!({}));
        job.metadata.uid = None;
        assert_eq!(check(job)[0], "metadata.uid: Required value");
    }

    #[test]
    fn long_names_fail_as_label_values() {
        let name = "a".repeat(64);
        let labels = json!({"job-name": name, "batch.kubernetes.io/job-name": name});
        let errors =
            check(job(json!({"metadata": {"name": name}, "spec": {"template": {"metadata": {"labels": labels}}}})));
        let wanted = format!("spec.template.labels: Invalid value: \"{name}\": must be no more than 63 bytes");
        assert_eq!(errors, [wanted.clone(), wanted]);
    }
}
