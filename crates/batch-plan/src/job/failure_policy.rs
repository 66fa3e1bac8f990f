//! `spec.podFailurePolicy`: what the way a pod failed means for its Job (JC section 16).
//!
//! A pod is judged once, when its status arrives; the result is small enough to be kept. When a judgement is acted upon
//! is decided in `verdict` (FailJob), `tally` (FailIndex) and `tracking` (counting).

use batch_types::constants::{condition, value};
use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyRule};

use super::PodView;

/// A policy with the rules that can decide anything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailurePolicy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    /// Zero-based place among all rules of the policy, for messages.
    position: usize,
    action: PolicyAction,
    requirement: Requirement,
}

#[derive(Debug, Clone, PartialEq)]
enum Requirement {
    ExitCodes { container: Option<String>, listed: bool, values: Vec<i32> },
    Conditions(Vec<(String, String)>),
}

/// What a rule does. Each is also a value of the metric label `action` (JC-2201).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyAction {
    FailJob,
    FailIndex,
    Ignore,
    Count,
}

impl PolicyAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FailJob => value::ACTION_FAIL_JOB,
            Self::FailIndex => value::ACTION_FAIL_INDEX,
            Self::Ignore => value::ACTION_IGNORE,
            Self::Count => value::ACTION_COUNT,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::FailJob, Self::FailIndex, Self::Ignore, Self::Count].into_iter().find(|action| action.as_str() == text)
    }
}

/// The rule that decides about a pod, and why it matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyMatch {
    pub(crate) action: PolicyAction,
    rule: usize,
    cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    ExitCode { container: String, code: i32 },
    Condition(String),
}

impl PolicyMatch {
    /// The message of the Job's condition (JC-902).
    pub(crate) fn message(&self, namespace: &str, pod: &str) -> String {
        let Self { action, rule, cause } = self;
        let action = action.as_str();
        match cause {
            Cause::ExitCode { container, code } => format!(
                "Container {container} for pod {namespace}/{pod} failed with exit code {code} matching {action} rule at \
                 index {rule}"
            ),
            Cause::Condition(kind) => {
                format!("Pod {namespace}/{pod} has condition {kind} matching {action} rule at index {rule}")
            }
        }
    }
}

impl FailurePolicy {
    pub(crate) fn new(policy: &PodFailurePolicy) -> Self {
        Self { rules: policy.rules.iter().enumerate().filter_map(|(at, rule)| Rule::new(at, rule)).collect() }
    }

    /// The first rule that matches (JC-1602); none means that the failure is simply counted.
    pub(crate) fn judge(&self, pod: &PodView) -> Option<PolicyMatch> {
        self.rules.iter().find_map(|rule| {
            let cause = rule.requirement.cause(pod)?;
            Some(PolicyMatch { action: rule.action, rule: rule.position, cause })
        })
    }
}

impl Rule {
    /// Nothing for a rule that can never decide: unknown action or operator, no requirement (JC-1602).
    fn new(position: usize, rule: &PodFailurePolicyRule) -> Option<Self> {
        let requirement = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => Requirement::ExitCodes {
                container: codes.container_name.clone(),
                listed: match codes.operator.as_str() {
                    value::OPERATOR_IN => true,
                    value::OPERATOR_NOT_IN => false,
                    _ => return None,
                },
                values: codes.values.clone(),
            },
            (None, Some(patterns)) => Requirement::Conditions(
                patterns
                    .iter()
                    .map(|pattern| {
                        let status = pattern.status.as_deref().filter(|status| !status.is_empty());
                        (pattern.type_.clone(), status.unwrap_or(condition::TRUE).to_owned())
                    })
                    .collect(),
            ),
            (None, None) => return None,
        };
        Some(Self { position, action: PolicyAction::parse(&rule.action)?, requirement })
    }
}

impl Requirement {
    /// JC-1603 and JC-1604.
    fn cause(&self, pod: &PodView) -> Option<Cause> {
        match self {
            Self::ExitCodes { container, listed, values } => pod
                .exit_codes
                .iter()
                .filter(|ended| container.as_ref().is_none_or(|name| *name == ended.container))
                .find(|ended| values.contains(&ended.code) == *listed)
                .map(|ended| Cause::ExitCode { container: ended.container.clone(), code: ended.code }),
            Self::Conditions(patterns) => pod
                .conditions
                .iter()
                .find(|present| patterns.contains(present))
                .map(|(kind, _)| Cause::Condition(kind.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    /// `exits` are containers with codes as `main=2`; an init container is written `init:name=2`.
    fn pod(exits: &str, conditions: &str) -> PodView {
        let pairs = |text: &str| -> Vec<(String, String)> {
            let words = text.split_whitespace().filter_map(|word| word.split_once('='));
            words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let ended = |name: &str, code: &str| json!({"name": name, "state": {"terminated": {"exitCode": code.parse::<i32>().unwrap()}}});
        let (init, main): (Vec<_>, Vec<_>) = pairs(exits).into_iter().partition(|(name, _)| name.starts_with("init:"));
        let statuses = |items: &[(String, String)]| -> Vec<_> {
            items.iter().map(|(name, code)| ended(name.trim_start_matches("init:"), code)).collect()
        };
        let conditions: Vec<_> =
            pairs(conditions).iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        serde_json::from_value(json!({"status": {"phase": "Failed", "conditions": conditions,
            "containerStatuses": statuses(&main), "initContainerStatuses": statuses(&init)}}))
        .unwrap()
    }

    fn check(rules: serde_json::Value, exits: &str, conditions: &str, expected: Expect) {
        let policy = FailurePolicy::new(&serde_json::from_value(json!({"rules": rules})).unwrap());
        let found = policy.judge(&pod(exits, conditions));
        let text = found.map_or("no match".to_owned(), |found| found.message("ns", "p"));
        expected.assert_eq(&text);
    }

    fn codes(action: &str, operator: &str, values: &[i32]) -> serde_json::Value {
        json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
    }

    fn on(action: &str, kind: &str, status: &str) -> serde_json::Value {
        json!({"action": action, "onPodConditions": [{"type": kind, "status": status}]})
    }

    /// V-13, the rows that are about matching.
    #[test]
    fn the_first_rule_that_matches_and_is_known_decides() {
        check(
            json!([codes("Explode", "In", &[1, 2]), codes("FailJob", "In", &[2, 3])]),
            "main=2",
            "",
            expect!["Container main for pod ns/p failed with exit code 2 matching FailJob rule at index 1"],
        );
        check(
            json!([codes("Ignore", "Near", &[2]), codes("Count", "In", &[2])]),
            "main=2",
            "",
            expect!["Container main for pod ns/p failed with exit code 2 matching Count rule at index 1"],
        );
        check(json!([{"action": "FailJob"}]), "main=2", "", expect!["no match"]);
        check(json!([]), "main=2", "", expect!["no match"]);
    }

    #[test]
    fn exit_codes() {
        let not_zero = json!([codes("FailJob", "NotIn", &[1]), codes("FailJob", "In", &[0])]);
        check(not_zero, "main=0 side=0", "", expect!["no match"]);
        check(
            json!([codes("Ignore", "In", &[-1_073_741_510])]),
            "main=-1073741510",
            "",
            expect!["Container main for pod ns/p failed with exit code -1073741510 matching Ignore rule at index 0"],
        );
        check(
            json!([codes("FailJob", "In", &[5])]),
            "main=1 init:prepare=5",
            "",
            expect!["Container prepare for pod ns/p failed with exit code 5 matching FailJob rule at index 0"],
        );
        check(
            json!([codes("Ignore", "In", &[7]), codes("FailJob", "In", &[5])]),
            "first=7 second=5",
            "",
            expect!["Container first for pod ns/p failed with exit code 7 matching Ignore rule at index 0"],
        );
        let named = json!([{"action": "FailJob",
                            "onExitCodes": {"operator": "In", "values": [5], "containerName": "main"}}]);
        check(named.clone(), "main=0 side=5", "", expect!["no match"]);
        check(
            named,
            "main=5 side=6",
            "",
            expect!["Container main for pod ns/p failed with exit code 5 matching FailJob rule at index 0"],
        );
    }

    #[test]
    fn conditions() {
        check(
            json!([on("Count", "ResourceLimitExceeded", "True"), on("Ignore", "DisruptionTarget", "True")]),
            "",
            "ResourceLimitExceeded=True DisruptionTarget=True",
            expect!["Pod ns/p has condition ResourceLimitExceeded matching Count rule at index 0"],
        );
        for status in ["False", "Unknown"] {
            check(
                json!([on("Ignore", "DisruptionTarget", status)]),
                "",
                &format!("DisruptionTarget={status}"),
                expect!["Pod ns/p has condition DisruptionTarget matching Ignore rule at index 0"],
            );
        }
        check(json!([on("Ignore", "A", "True")]), "", "A=False", expect!["no match"]);
        check(json!([on("Ignore", "A", "False")]), "", "A=True", expect!["no match"]);
        check(
            json!([{"action": "FailIndex", "onPodConditions": [{"type": "A"}]}]),
            "",
            "A=True",
            expect!["Pod ns/p has condition A matching FailIndex rule at index 0"],
        );
    }
}
