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

fn validate_rule(rule: &PodFailurePolicyRule, spec: &JobSpec, containers: &BTreeSet<&str>, path: &Path) -> Vec<Error> {
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
    (!supported.contains(&value)).then(|| Error::not_supported(path, value, supported).named())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{indexed, job, texts};
    use super::super::validate;

    /// Errors of a policy of one rule, without the path to it.
    fn rule(rule: serde_json::Value) -> Vec<String> {
        let job = job(json!({"spec": {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [rule]}}}));
        let strip =
            |text: String| text.strip_prefix("spec.podFailurePolicy.rules[0]").map(str::to_owned).unwrap_or(text);
        texts(&validate(&job)).into_iter().map(strip).collect()
    }

    fn exit_codes(requirement: serde_json::Value) -> Vec<String> {
        rule(json!({"action": "Count", "onExitCodes": requirement}))
    }

    fn condition(pattern: serde_json::Value) -> Vec<String> {
        rule(json!({"action": "Ignore", "onPodConditions": [pattern]}))
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn what_is_fine() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onPodConditions": [{"type": "example.com/Custom", "status": "False"}]},
            {"action": "Count", "onExitCodes": {"containerName": "ctr", "operator": "In", "values": [1, 2, 3]}},
            {"action": "Ignore", "onExitCodes": {"containerName": "def", "operator": "In", "values": [4]}},
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [-1073741819, -1073741676, 0, 5]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [6]}}
        ]);
        let fine = indexed(
            json!({"spec": {"backoffLimitPerIndex": 1, "podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": rules}}}),
        );
        assert_eq!(texts(&validate(&fine)), NONE);
    }

    /// JA-V41…V43.
    #[test]
    fn actions() {
        let with = |action: &str| rule(json!({"action": action, "onExitCodes": {"operator": "In", "values": [1]}}));
        assert_eq!(
            with(""),
            [".action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"]
        );
        assert_eq!(
            with("Retry"),
            [
                ".action: Unsupported value: \"Retry\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\""
            ]
        );
        assert_eq!(
            with("FailIndex"),
            [".action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set"]
        );
    }

    /// JA-V53, JA-V54.
    #[test]
    fn exactly_one_requirement() {
        assert_eq!(
            rule(json!({"action": "Count"})),
            [": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"]
        );
        assert_eq!(
            rule(
                json!({"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}, "onPodConditions": [{"type": "A", "status": "True"}]})
            ),
            [": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"]
        );
    }

    /// JA-V44…V49.
    #[test]
    fn exit_code_requirements() {
        let values = |values: serde_json::Value| exit_codes(json!({"operator": "In", "values": values}));
        let cases = [
            (exit_codes(json!({"values": [1]})), vec!["operator: Required value: valid values: [\"In\" \"NotIn\"]"]),
            (
                exit_codes(json!({"operator": "Is", "values": [1]})),
                vec!["operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\""],
            ),
            (
                exit_codes(json!({"containerName": "xyz", "operator": "In", "values": [1]})),
                vec![
                    "containerName: Invalid value: \"xyz\": must be one of the container or initContainer names in the pod template",
                ],
            ),
            (values(json!([])), vec!["values: Invalid value: null: at least one value is required"]),
            (values(json!([11, 11])), vec!["values[1]: Duplicate value: 11"]),
            (values(json!([12, 13, 13, 13])), vec!["values[2]: Duplicate value: 13", "values[3]: Duplicate value: 13"]),
            (values(json!([19, 11])), vec!["values: Invalid value: [19,11]: must be ordered"]),
            (
                values(json!([1, 0, 2])),
                vec![
                    "values[1]: Invalid value: 0: must not be 0 for the In operator",
                    "values: Invalid value: [1,0,2]: must be ordered",
                ],
            ),
            (values(json!((1..=256).collect::<Vec<_>>())), vec!["values: Too many: 256: must have at most 255 items"]),
        ];
        for (got, wanted) in cases {
            let wanted: Vec<_> = wanted.iter().map(|text| format!(".onExitCodes.{text}")).collect();
            assert_eq!(got, wanted);
        }
    }

    /// JA-V50…V52.
    #[test]
    fn condition_patterns() {
        assert_eq!(
            condition(json!({"type": "A"})),
            [".onPodConditions[0].status: Required value: valid values: [\"False\" \"True\" \"Unknown\"]"]
        );
        assert_eq!(
            condition(json!({"type": "A", "status": "Maybe"})),
            [
                ".onPodConditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\""
            ]
        );
        let errors = condition(json!({"type": "", "status": "True"}));
        assert_eq!(errors[0], ".onPodConditions[0].type: Invalid value: \"\": name part must be non-empty");
        let many: Vec<_> = (0..21).map(|at| json!({"type": format!("A{at}"), "status": "True"})).collect();
        assert_eq!(
            rule(json!({"action": "Ignore", "onPodConditions": many})),
            [".onPodConditions: Too many: 21: must have at most 20 items"]
        );
    }

    /// JA-V40.
    #[test]
    fn twenty_rules() {
        let rules = vec![json!({"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}); 21];
        let job = job(json!({"spec": {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": rules}}}));
        assert_eq!(texts(&validate(&job)), ["spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"]);
    }
}
