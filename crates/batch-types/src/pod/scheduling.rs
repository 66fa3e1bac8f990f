//! Where and when a pod may be scheduled: tolerations, gates, readiness gates, priority (JA-P17, JA-P19).
//!
//! Affinity and topology spread are in `affinity` and `spread`.

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;

use super::options::Options;
use super::report::{Place, Report};
use super::zero::text;
use crate::names;

const OPERATORS: [&str; 2] = ["Equal", "Exists"];
const ALL_OPERATORS: [&str; 4] = ["Equal", "Exists", "Lt", "Gt"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate_tolerations(
    report: &mut Report,
    at: &Place<'_>,
    tolerations: &[core::Toleration],
    options: &Options,
) {
    for (i, toleration) in tolerations.iter().enumerate() {
        validate_toleration(report, &at.index(i), toleration, options);
    }
}

fn validate_toleration(report: &mut Report, at: &Place<'_>, toleration: &core::Toleration, options: &Options) {
    let (key, value) = (text(&toleration.key), text(&toleration.value));
    let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
    if !key.is_empty() {
        report.each_invalid(&at.child("key"), key, names::qualified_name(key));
    } else if operator != "Exists" {
        let text = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        report.invalid(&at.child("operator"), operator, text);
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        report.invalid(&at.child("effect"), effect, text);
    }
    match operator {
        "" | "Equal" => {
            let messages = names::label_value(value);
            if !messages.is_empty() {
                report.invalid(&at.child("operator"), value, messages.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                report.invalid(&at.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
        }
        "Lt" | "Gt" if options.comparing_tolerations => {
            for message in decimal_integer_problems(value) {
                report.invalid(&at.child("value"), value, message);
            }
        }
        // A gate keeps these two off, but they are named as if they were known.
        "Lt" | "Gt" => report.not_supported(&at.child("operator"), operator, &ALL_OPERATORS),
        _ => report.not_supported(&at.child("operator"), operator, &OPERATORS),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        report.not_supported(&at.child("effect"), effect, &EFFECTS);
    }
}

/// Whether a toleration uses the operators that are off unless already stored.
pub(super) fn compares_numbers(toleration: &core::Toleration) -> bool {
    matches!(text(&toleration.operator), "Lt" | "Gt")
}

fn decimal_integer_problems(value: &str) -> Vec<String> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let canonical = value == "0"
        || (digits.bytes().all(|c| c.is_ascii_digit()) && matches!(digits.bytes().next(), Some(b'1'..=b'9')));
    let mut problems = Vec::new();
    if value.is_empty() {
        problems.push("must be non-empty".to_owned());
    } else if !canonical {
        let text = "must be a valid decimal integer in canonical form";
        problems.push(text.to_owned());
    }
    if value.parse::<i64>().is_err() {
        let cause = if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        problems.push(format!("strconv.ParseInt: parsing {}: {cause}", crate::field::quoted(value)));
    }
    problems
}

pub(super) fn validate_gates(report: &mut Report, at: &Place<'_>, gates: &[core::PodSchedulingGate]) {
    let mut seen = HashSet::new();
    for (i, gate) in gates.iter().enumerate() {
        let at = at.index(i);
        report.each_invalid(&at, &gate.name, names::qualified_name(&gate.name));
        if !seen.insert(gate.name.as_str()) {
            report.duplicate(&at, gate.name.as_str());
        }
    }
}

pub(super) fn validate_readiness_gates(report: &mut Report, at: &Place<'_>, gates: &[core::PodReadinessGate]) {
    for (i, gate) in gates.iter().enumerate() {
        let at = at.index(i);
        let kind = gate.condition_type.as_str();
        report.each_invalid(&at.child("conditionType"), kind, names::qualified_name(kind));
    }
}

pub(super) fn validate_preemption_policy(report: &mut Report, at: &Place<'_>, policy: Option<&str>) {
    if let Some(policy) = policy {
        report.one_of(at, policy, &["PreemptLowerPriority", "Never"]);
    }
}

/// Reached only for objects stored with the field: on create it is dropped (JA-C7).
pub(super) fn validate_group(report: &mut Report, at: &Place<'_>, group: &core::PodSchedulingGroup) {
    let at = at.child("podGroupName");
    match &group.pod_group_name {
        None => report.invalid(&at, serde_json::Value::Null, "must specify one of: `podGroupName`"),
        Some(name) => report.each_invalid(&at, name, names::dns_subdomain(name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::check_templates;

    fn toleration(edit: serde_json::Value) -> serde_json::Value {
        json!({"tolerations": [edit]})
    }

    /// JA-P17.
    #[test]
    fn tolerations() {
        let at = "spec.tolerations[0]";
        check_templates(&[
            (toleration(json!({"operator": "Exists"})), &[]),
            (toleration(json!({"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5})), &[]),
            (
                toleration(json!({"value": "v"})),
                &[&format!(
                    "{at}.operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match \
                     all values and all keys\""
                )],
            ),
            (
                toleration(json!({"key": "k", "operator": "Exists", "value": "v"})),
                &[&format!("{at}.operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'")],
            ),
            (
                toleration(json!({"key": "k", "tolerationSeconds": 5})),
                &[&format!(
                    "{at}.effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set"
                )],
            ),
            (
                toleration(json!({"key": "k", "operator": "Is", "effect": "Never"})),
                &[
                    &format!("{at}.operator: Unsupported value: \"Is\": supported values: \"Equal\", \"Exists\""),
                    &format!(
                        "{at}.effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \
                         \"PreferNoSchedule\", \"NoExecute\""
                    ),
                ],
            ),
            (
                toleration(json!({"key": "k", "operator": "Gt", "value": "1"})),
                &[&format!(
                    "{at}.operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\""
                )],
            ),
        ]);
    }

    #[test]
    fn gates_and_policies() {
        check_templates(&[
            (
                json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]}),
                &["spec.schedulingGates[1]: Duplicate value: \"a\""],
            ),
            (
                json!({"readinessGates": [{"conditionType": "/a"}]}),
                &["spec.readinessGates[0].conditionType: Invalid value: \"/a\": prefix part must be non-empty"],
            ),
            (
                json!({"preemptionPolicy": "Always"}),
                &["spec.preemptionPolicy: Unsupported value: \"Always\": supported values: \"PreemptLowerPriority\", \
                   \"Never\""],
            ),
        ]);
    }

    #[test]
    fn numbers_in_tolerations_are_canonical() {
        for good in ["0", "-1", "42"] {
            assert!(decimal_integer_problems(good).is_empty(), "{good}");
        }
        for bad in ["007", "-0", "+1", "1.5"] {
            assert!(!decimal_integer_problems(bad).is_empty(), "{bad}");
        }
        assert_eq!(
            decimal_integer_problems("9223372036854775808"),
            ["strconv.ParseInt: parsing \"9223372036854775808\": value out of range"]
        );
    }
}
