//! `spec.podFailurePolicy`: rules on how failed pods count (JA section 6.3).

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};
use serde_json::Value;

use crate::constants::{condition, value};
use crate::field::{Error, Path, quoted};
use crate::names;

const RULES_MAX: usize = 20;
/// One for every exit code but 0.
const EXIT_CODES_MAX: usize = 255;
const CONDITION_PATTERNS_MAX: usize = 20;

// Sorted, as upstream shows them.
const ACTIONS: [&str; 4] =
    [value::ACTION_COUNT, value::ACTION_FAIL_INDEX, value::ACTION_FAIL_JOB, value::ACTION_IGNORE];
const OPERATORS: [&str; 2] = [value::OPERATOR_IN, value::OPERATOR_NOT_IN];
const STATUSES: [&str; 3] = [condition::FALSE, condition::TRUE, condition::UNKNOWN];

pub(super) fn validate(policy: &PodFailurePolicy, spec: &JobSpec, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let path = path.child("rules");
    if policy.rules.len() > RULES_MAX {
        errors.push(Error::too_many(&path, policy.rules.len(), RULES_MAX));
    }
    let containers = container_names(spec);
    for (at, rule) in policy.rules.iter().enumerate() {
        errors.extend(validate_rule(rule, spec, &containers, &path.index(at)));
    }
    errors
}

fn container_names(spec: &JobSpec) -> BTreeSet<&str> {
    let Some(pod) = &spec.template.spec else { return BTreeSet::new() };
    pod.containers.iter().chain(pod.init_containers.iter().flatten()).map(|container| container.name.as_str()).collect()
}

fn validate_rule(
    rule: &PodFailurePolicyRule,
    spec: &JobSpec,
    containers: &BTreeSet<&str>,
    path: &Path,
) -> Vec<Error> {
    let mut errors = Vec::new();
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    if rule.action == value::ACTION_FAIL_INDEX {
        if spec.backoff_limit_per_index.is_none() {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(Error::invalid(&path.child("action"), rule.action.as_str(), detail));
        }
    } else {
        errors.extend(validate_one_of(&rule.action, &ACTIONS, &path.child("action")));
    }
    if let Some(requirement) = &rule.on_exit_codes {
        errors.extend(validate_exit_codes(requirement, containers, &path.child("onExitCodes")));
    }
    errors.extend(validate_condition_patterns(patterns, &path.child("onPodConditions")));
    match (&rule.on_exit_codes, patterns) {
        (Some(_), [_, ..]) => {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            errors.push(Error::invalid_unshown(path, detail));
        }
        (None, []) => {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            errors.push(Error::invalid_unshown(path, detail));
        }
        _ => {}
    }
    errors
}

fn validate_exit_codes(
    requirement: &PodFailurePolicyOnExitCodesRequirement,
    containers: &BTreeSet<&str>,
    path: &Path,
) -> Vec<Error> {
    let mut errors = Vec::new();
    errors.extend(validate_one_of(&requirement.operator, &OPERATORS, &path.child("operator")));
    if let Some(name) = requirement.container_name.as_deref().filter(|name| !containers.contains(name)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(Error::invalid(&path.child("containerName"), name, detail));
    }
    let (path, values) = (path.child("values"), requirement.values.as_slice());
    if values.is_empty() {
        // Typed, an empty list and none are one; `field::show_as_sent` restores the difference.
        errors.push(Error::invalid(&path, Value::Null, "at least one value is required"));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(Error::too_many(&path, values.len(), EXIT_CODES_MAX));
    }
    let mut seen = BTreeSet::new();
    for (at, code) in values.iter().enumerate() {
        if requirement.operator == value::OPERATOR_IN && *code == 0 {
            errors.push(Error::invalid(&path.index(at), *code, "must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            errors.push(Error::duplicate(&path.index(at), *code));
        }
    }
    if !values.is_sorted() {
        errors.push(Error::invalid(&path, values.to_vec(), "must be ordered"));
    }
    errors
}

fn validate_condition_patterns(patterns: &[PodFailurePolicyOnPodConditionsPattern], path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if patterns.len() > CONDITION_PATTERNS_MAX {
        errors.push(Error::too_many(path, patterns.len(), CONDITION_PATTERNS_MAX));
    }
    for (at, pattern) in patterns.iter().enumerate() {
        let path = path.index(at);
        for message in names::qualified_name(&pattern.type_) {
            errors.push(Error::invalid(&path.child("type"), pattern.type_.as_str(), message));
        }
        let status = pattern.status.as_deref().unwrap_or_default();
        errors.extend(validate_one_of(status, &STATUSES, &path.child("status")));
    }
    errors
}

/// Required when empty, unsupported when unknown; upstream lists the values differently in each.
fn validate_one_of(value: &str, supported: &[&str], path: &Path) -> Option<Error> {
    if value.is_empty() {
        let listed: Vec<_> = supported.iter().map(|value| quoted(value)).collect();
        return Some(Error::required(path, format!("valid values: [{}]", listed.join(" "))));
    }
    (!supported.contains(&value)).then(|| Error::not_supported(path, value, supported))
}
