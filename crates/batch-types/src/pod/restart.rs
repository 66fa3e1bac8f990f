//! Restart and resize policies of single containers (JA-P14).

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;

use super::report::{Place, Report};
use super::zero::{list, text};

const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const POLICY_MISSING: &str = "must specify restartPolicy when restart rules are used";
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const RESIZE_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];

/// The container's own restart policy and its exceptions by exit code.
pub(super) fn validate(
    report: &mut Report,
    at: &Place<'_>,
    policy: Option<&str>,
    rules: &[core::ContainerRestartRule],
) {
    match policy {
        None if rules.is_empty() => return,
        None => {
            report.required(&at.child("restartPolicy"), POLICY_MISSING);
        }
        Some(policy) if !POLICIES.contains(&policy) => {
            report.not_supported(&at.child("restartPolicy"), policy, &POLICIES);
        }
        Some(_) => {}
    }
    let at = at.child("restartPolicyRules");
    if rules.len() > RULES_MAX {
        report.too_many(&at, rules.len(), RULES_MAX);
    }
    for (i, rule) in rules.iter().enumerate() {
        let at = at.index(i);
        if !ACTIONS.contains(&rule.action.as_str()) {
            report.not_supported(&at.child("action"), &rule.action, &ACTIONS);
        }
        let at = at.child("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            report.required(&at, "must be specified");
            continue;
        };
        if !OPERATORS.contains(&codes.operator.as_str()) {
            report.not_supported(&at.child("operator"), &codes.operator, &OPERATORS);
        }
        let count = list(&codes.values).len();
        if count > EXIT_CODES_MAX {
            report.too_many(&at.child("values"), count, EXIT_CODES_MAX);
        }
    }
}

/// As [`validate`], for an init container: without a policy upstream does not look at the rules.
pub(super) fn validate_init(report: &mut Report, at: &Place<'_>, init: &core::Container) {
    let rules = list(&init.restart_policy_rules);
    if init.restart_policy.is_some() {
        validate(report, at, init.restart_policy.as_deref(), rules);
    } else if !rules.is_empty() {
        report.required(&at.child("restartPolicy"), POLICY_MISSING);
    }
}

/// Whether changing a resource in place restarts the container.
pub(super) fn validate_resize(
    report: &mut Report,
    at: &Place<'_>,
    policies: &[core::ContainerResizePolicy],
    pod_restart_policy: &str,
) {
    let mut resources = HashSet::new();
    for (i, policy) in policies.iter().enumerate() {
        if !resources.insert(policy.resource_name.as_str()) {
            report.duplicate(&at.index(i), policy.resource_name.as_str());
        }
        report.one_of(at, &policy.resource_name, &RESIZABLE);
        report.one_of(at, &policy.restart_policy, &RESIZE_POLICIES);
        if pod_restart_policy == "Never" && policy.restart_policy != "NotRequired" {
            let text = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            report.invalid(at, policy.restart_policy.as_str(), text);
        }
    }
}

/// Whether a container that exited with this code starts again (PL-31): its rules, its policy, then the pod's.
pub(super) fn should_restart(container: &core::Container, spec: &core::PodSpec, exit_code: i32) -> bool {
    let by_policy = |policy: &str| match policy {
        "Never" => Some(false),
        "OnFailure" => Some(exit_code != 0),
        "Always" => Some(true),
        _ => None,
    };
    if let Some(policy) = &container.restart_policy {
        let matching = list(&container.restart_policy_rules).iter().find(|rule| matches(rule, exit_code));
        if matching.is_some_and(|rule| ACTIONS.contains(&rule.action.as_str())) {
            return true;
        }
        if let Some(answer) = by_policy(policy) {
            return answer;
        }
    }
    by_policy(text(&spec.restart_policy)).unwrap_or(true)
}

/// A rule that restarts all containers can start any of them again, whatever its own policy says.
pub(super) fn any_may_restart_all(spec: &core::PodSpec) -> bool {
    let mut rules = spec
        .containers
        .iter()
        .chain(list(&spec.init_containers))
        .flat_map(|container| list(&container.restart_policy_rules));
    rules.any(|rule| rule.action == "RestartAllContainers")
}

fn matches(rule: &core::ContainerRestartRule, exit_code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let listed = list(&codes.values).contains(&exit_code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::{check_containers, template_errors};

    /// JA-P14.
    #[test]
    fn restart_rules_need_a_policy_and_exit_codes() {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
        let too_many: Vec<_> = (0..21).map(|_| rule.clone()).collect();
        check_containers(&[
            (json!({"restartPolicy": "OnFailure", "restartPolicyRules": [rule]}), &[]),
            (
                json!({"restartPolicyRules": [rule]}),
                &["restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
            ),
            (
                json!({"restartPolicy": "Sometimes"}),
                &["restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"Never\", \
                   \"OnFailure\""],
            ),
            (
                json!({"restartPolicy": "Never", "restartPolicyRules": too_many}),
                &["restartPolicyRules: Too many: 21: must have at most 20 items"],
            ),
            (
                json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Stop"}]}),
                &[
                    "restartPolicyRules[0].action: Unsupported value: \"Stop\": supported values: \"Restart\", \
                     \"RestartAllContainers\"",
                    "restartPolicyRules[0].exitCodes: Required value: must be specified",
                ],
            ),
            (
                json!({"restartPolicy": "Never", "restartPolicyRules": [
                    {"action": "Restart", "exitCodes": {"operator": "Is", "values": vec![1; 256]}}]}),
                &[
                    "restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\": supported values: \"In\", \
                     \"NotIn\"",
                    "restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
                ],
            ),
        ]);
        let init =
            json!({"initContainers": [{"name": "a", "image": "a:1", "restartPolicyRules": [{"action": "Stop"}]}]});
        let line = "spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used";
        assert_eq!(template_errors(&init), [line]);
    }

    #[test]
    fn resizing_may_not_restart_what_never_restarts() {
        check_containers(&[
            (json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}), &[]),
            (
                json!({"resizePolicy": [
                    {"resourceName": "cpu", "restartPolicy": "RestartContainer"},
                    {"resourceName": "cpu", "restartPolicy": ""},
                    {"resourceName": "disk", "restartPolicy": "NotRequired"},
                ]}),
                &[
                    "resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is \
                     'Never'",
                    "resizePolicy[1]: Duplicate value: \"cpu\"",
                    "resizePolicy: Required value",
                    "resizePolicy: Invalid value: \"\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
                    "resizePolicy: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\"",
                ],
            ),
        ]);
    }

    /// PL-31.
    #[test]
    fn rules_decide_before_policies() {
        let container = |policy: Option<&str>, operator: &str| core::Container {
            restart_policy: policy.map(str::to_owned),
            restart_policy_rules: Some(vec![core::ContainerRestartRule {
                action: "Restart".to_owned(),
                exit_codes: Some(core::ContainerRestartRuleOnExitCodes {
                    operator: operator.to_owned(),
                    values: Some(vec![42]),
                }),
            }]),
            ..Default::default()
        };
        let pod = |policy: &str| core::PodSpec { restart_policy: Some(policy.to_owned()), ..Default::default() };
        let cases = [
            (Some("Never"), "In", "Never", 42, true),
            (Some("Never"), "In", "Always", 1, false),
            (Some("Never"), "NotIn", "Never", 1, true),
            (Some("OnFailure"), "In", "Never", 0, false),
            (Some("OnFailure"), "In", "Never", 1, true),
            (Some("Always"), "In", "Never", 0, true),
            (None, "In", "Never", 42, false),
            (None, "In", "OnFailure", 1, true),
            (None, "In", "Always", 0, true),
        ];
        for (policy, operator, pod_policy, code, restarts) in cases {
            let answer = should_restart(&container(policy, operator), &pod(pod_policy), code);
            assert_eq!(answer, restarts, "{policy:?} {operator} {pod_policy} {code}");
        }
    }
}
