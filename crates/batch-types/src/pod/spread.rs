//! Topology spread constraints (JA-P18).

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as core;

use super::affinity::{self, LabelKeys};
use super::options::Options;
use super::report::{Place, Report};
use super::zero::list;
use crate::field;
use crate::names;

const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const NODE_POLICIES: [&str; 2] = ["Honor", "Ignore"];
const NOT_POSITIVE: &str = "must be greater than zero";

pub(super) fn validate(
    report: &mut Report,
    at: &Place<'_>,
    constraints: &[core::TopologySpreadConstraint],
    options: &Options,
) {
    let last = last_of_each(constraints);
    for (i, constraint) in constraints.iter().enumerate() {
        let at = at.index(i);
        let action = constraint.when_unsatisfiable.as_str();
        if constraint.max_skew <= 0 {
            report.invalid(&at.child("maxSkew"), constraint.max_skew, NOT_POSITIVE);
        }
        if constraint.topology_key.is_empty() {
            report.required(&at.child("topologyKey"), "can not be empty");
        }
        if !ACTIONS.contains(&action) {
            report.not_supported(&at.child("whenUnsatisfiable"), action, &ACTIONS);
        }
        if last.get(&pair_of(constraint)).is_some_and(|last| *last > i) {
            let pair = format!("{{{}, {action}}}", constraint.topology_key);
            report.duplicate(&at.child("{topologyKey, whenUnsatisfiable}"), pair);
        }
        validate_min_domains(report, &at.child("minDomains"), constraint.min_domains, action);
        for (name, policy) in [
            ("nodeAffinityPolicy", constraint.node_affinity_policy.as_deref()),
            ("nodeTaintsPolicy", constraint.node_taints_policy.as_deref()),
        ] {
            if let Some(policy) = policy.filter(|policy| !NODE_POLICIES.contains(policy)) {
                report.not_supported(&at.child(name), policy, &NODE_POLICIES);
            }
        }
        if options.legacy_spread_match_label_keys {
            validate_legacy_keys(report, &at.child("matchLabelKeys"), constraint);
        } else {
            label_keys(constraint).validate(report, &at);
        }
        if !options.any_spread_selector {
            let label_selector = constraint.label_selector.as_ref();
            affinity::validate_selector(report, &at.child("labelSelector"), label_selector, false);
        }
    }
}

/// Where each pair that has to be unique comes last.
fn last_of_each(constraints: &[core::TopologySpreadConstraint]) -> HashMap<(&str, &str), usize> {
    constraints.iter().enumerate().map(|(i, constraint)| (pair_of(constraint), i)).collect()
}

fn pair_of(constraint: &core::TopologySpreadConstraint) -> (&str, &str) {
    (&constraint.topology_key, &constraint.when_unsatisfiable)
}

fn label_keys(constraint: &core::TopologySpreadConstraint) -> LabelKeys<'_> {
    LabelKeys {
        matching: list(&constraint.match_label_keys),
        mismatching: &[],
        label_selector: constraint.label_selector.as_ref(),
    }
}

fn validate_min_domains(report: &mut Report, at: &Place<'_>, min_domains: Option<i32>, action: &str) {
    let Some(min_domains) = min_domains else { return };
    if min_domains <= 0 {
        report.invalid(at, min_domains, NOT_POSITIVE);
    }
    if action != "DoNotSchedule" {
        let text = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        report.invalid(at, min_domains, text);
    }
}

/// The rule of releases before the keys were merged into the selector, for pods that fail the present one.
fn validate_legacy_keys(report: &mut Report, at: &Place<'_>, constraint: &core::TopologySpreadConstraint) {
    let keys = list(&constraint.match_label_keys);
    if keys.is_empty() {
        return;
    }
    let Some(label_selector) = &constraint.label_selector else {
        report.forbidden(at, "must not be specified when labelSelector is not set");
        for (i, key) in keys.iter().enumerate() {
            report.each_invalid(&at.index(i), key, names::qualified_name(key));
        }
        return;
    };
    for (i, key) in keys.iter().enumerate() {
        report.each_invalid(&at.index(i), key, names::qualified_name(key));
        let in_labels = label_selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(key));
        let in_expressions = list(&label_selector.match_expressions).iter().any(|expression| expression.key == *key);
        if in_labels || in_expressions {
            report.invalid(&at.index(i), key.as_str(), "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// Whether an already stored spec has a selector that would be refused (JA-P20).
pub(super) fn has_invalid_selector(spec: &core::PodSpec) -> bool {
    finds_problem(spec, |report, at, constraint| {
        affinity::validate_selector(report, at, constraint.label_selector.as_ref(), false);
    })
}

/// Whether an already stored spec has keys that would be refused (JA-P20).
pub(super) fn has_invalid_match_label_keys(spec: &core::PodSpec) -> bool {
    finds_problem(spec, |report, at, constraint| label_keys(constraint).validate(report, at))
}

fn finds_problem(
    spec: &core::PodSpec,
    check: impl Fn(&mut Report, &Place<'_>, &core::TopologySpreadConstraint),
) -> bool {
    let root = field::Path::default();
    let root = Place::root(&root);
    let mut report = Report::default();
    for constraint in list(&spec.topology_spread_constraints) {
        check(&mut report, &root, constraint);
    }
    !report.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::check_templates;

    /// JA-P18.
    #[test]
    fn constraints() {
        let spec = |constraints: serde_json::Value| json!({"topologySpreadConstraints": constraints});
        let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        let at = "spec.topologySpreadConstraints";
        check_templates(&[
            (spec(json!([constraint])), &[]),
            (
                spec(json!([constraint, constraint])),
                &[&format!("{at}[0].{{topologyKey, whenUnsatisfiable}}: Duplicate value: \"{{zone, DoNotSchedule}}\"")],
            ),
            (
                spec(json!([{
                    "maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Wait", "minDomains": 0,
                    "nodeAffinityPolicy": "Obey", "nodeTaintsPolicy": "Obey", "matchLabelKeys": ["a"],
                }])),
                &[
                    &format!("{at}[0].maxSkew: Invalid value: 0: must be greater than zero"),
                    &format!("{at}[0].topologyKey: Required value: can not be empty"),
                    &format!(
                        "{at}[0].whenUnsatisfiable: Unsupported value: \"Wait\": supported values: \"DoNotSchedule\", \
                         \"ScheduleAnyway\""
                    ),
                    &format!("{at}[0].minDomains: Invalid value: 0: must be greater than zero"),
                    &format!(
                        "{at}[0].minDomains: Invalid value: 0: can only use minDomains if \
                         whenUnsatisfiable=DoNotSchedule, not Wait"
                    ),
                    &format!(
                        "{at}[0].nodeAffinityPolicy: Unsupported value: \"Obey\": supported values: \"Honor\", \"Ignore\""
                    ),
                    &format!(
                        "{at}[0].nodeTaintsPolicy: Unsupported value: \"Obey\": supported values: \"Honor\", \"Ignore\""
                    ),
                    &format!("{at}[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"),
                ],
            ),
        ]);
    }
}
