//! Affinity to nodes and to other pods (JA-P18).

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::options::Options;
use super::report::{Place, Report};
use super::zero::list;
use crate::names;
use crate::selector::{self, Tolerance};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WEIGHT: &str = "must be in the range 1-100";
const UNKNOWN_OPERATOR: &str = "not a valid selector operator";

pub(super) fn validate(report: &mut Report, at: &Place<'_>, affinity: &core::Affinity, options: &Options) {
    if let Some(node) = &affinity.node_affinity {
        validate_node(report, &at.child("nodeAffinity"), node, options);
    }
    if let Some(pod) = &affinity.pod_affinity {
        let required = list(&pod.required_during_scheduling_ignored_during_execution);
        let preferred = list(&pod.preferred_during_scheduling_ignored_during_execution);
        validate_pod_terms(report, &at.child("podAffinity"), required, preferred, options);
    }
    if let Some(pod) = &affinity.pod_anti_affinity {
        let required = list(&pod.required_during_scheduling_ignored_during_execution);
        let preferred = list(&pod.preferred_during_scheduling_ignored_during_execution);
        validate_pod_terms(report, &at.child("podAntiAffinity"), required, preferred, options);
    }
}

fn validate_node(report: &mut Report, at: &Place<'_>, affinity: &core::NodeAffinity, options: &Options) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let at = at.child(REQUIRED);
        let at = at.child("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            report.required(&at, "must have at least one node selector term");
        }
        for (i, term) in required.node_selector_terms.iter().enumerate() {
            validate_node_term(report, &at.index(i), term, options.any_label_value_in_required_node_affinity);
        }
    }
    let at = at.child(PREFERRED);
    for (i, term) in list(&affinity.preferred_during_scheduling_ignored_during_execution).iter().enumerate() {
        let at = at.index(i);
        validate_weight(report, &at, term.weight);
        // A preference that nothing can satisfy is harmless, so its values may be anything.
        validate_node_term(report, &at.child("preference"), &term.preference, true);
    }
}

fn validate_weight(report: &mut Report, at: &Place<'_>, weight: i32) {
    if !(1..=100).contains(&weight) {
        report.invalid(&at.child("weight"), weight, WEIGHT);
    }
}

fn validate_node_term(report: &mut Report, at: &Place<'_>, term: &core::NodeSelectorTerm, any_value: bool) {
    let expressions_at = at.child("matchExpressions");
    for (i, requirement) in list(&term.match_expressions).iter().enumerate() {
        validate_node_expression(report, &expressions_at.index(i), requirement, any_value);
    }
    let fields_at = at.child("matchFields");
    for (i, requirement) in list(&term.match_fields).iter().enumerate() {
        validate_node_field(report, &fields_at.index(i), requirement);
    }
}

fn validate_node_expression(
    report: &mut Report,
    at: &Place<'_>,
    requirement: &core::NodeSelectorRequirement,
    any_value: bool,
) {
    let values = list(&requirement.values);
    let values_at = at.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            report.required(&values_at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            report.forbidden(&values_at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            report.required(&values_at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => report.invalid(&at.child("operator"), other, UNKNOWN_OPERATOR),
    }
    report.each_invalid(&at.child("key"), &requirement.key, names::qualified_name(&requirement.key));
    if !any_value {
        for (i, value) in values.iter().enumerate() {
            report.each_invalid(&values_at.index(i), value, names::label_value(value));
        }
    }
}

/// Of a node's fields only its name can be selected by.
fn validate_node_field(report: &mut Report, at: &Place<'_>, requirement: &core::NodeSelectorRequirement) {
    let values = list(&requirement.values);
    let values_at = at.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                report.required(&values_at, text);
            }
        }
        other => report.invalid(&at.child("operator"), other, UNKNOWN_OPERATOR),
    }
    if requirement.key != "metadata.name" {
        return report.invalid(&at.child("key"), requirement.key.as_str(), "not a valid field selector key");
    }
    for (i, value) in values.iter().enumerate() {
        report.each_invalid(&values_at.index(i), value, names::dns_subdomain(value));
    }
}

fn validate_pod_terms(
    report: &mut Report,
    at: &Place<'_>,
    required: &[core::PodAffinityTerm],
    preferred: &[core::WeightedPodAffinityTerm],
    options: &Options,
) {
    let required_at = at.child(REQUIRED);
    for (i, term) in required.iter().enumerate() {
        validate_pod_term(report, &required_at.index(i), term, options);
    }
    let preferred_at = at.child(PREFERRED);
    for (i, term) in preferred.iter().enumerate() {
        let at = preferred_at.index(i);
        validate_weight(report, &at, term.weight);
        validate_pod_term(report, &at.child("podAffinityTerm"), &term.pod_affinity_term, options);
    }
}

fn validate_pod_term(report: &mut Report, at: &Place<'_>, term: &core::PodAffinityTerm, options: &Options) {
    for (name, label_selector) in
        [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)]
    {
        validate_selector(report, &at.child(name), label_selector.as_ref(), options.any_label_value_in_affinity);
    }
    for namespace in list(&term.namespaces) {
        report.each_invalid(&at.child("namespace"), namespace, names::dns_label(namespace));
    }
    let keys = LabelKeys {
        matching: list(&term.match_label_keys),
        mismatching: list(&term.mismatch_label_keys),
        label_selector: term.label_selector.as_ref(),
    };
    keys.validate(report, at);
    if term.topology_key.is_empty() {
        report.required(&at.child("topologyKey"), "can not be empty");
    }
    report.each_invalid(&at.child("topologyKey"), &term.topology_key, names::qualified_name(&term.topology_key));
}

pub(super) fn validate_selector(
    report: &mut Report,
    at: &Place<'_>,
    label_selector: Option<&LabelSelector>,
    any_value: bool,
) {
    let Some(label_selector) = label_selector else { return };
    let tolerance = Tolerance { invalid_label_values: any_value };
    report.extend(selector::validate(label_selector, tolerance, &at.path()));
}

/// Keys whose values are taken from the pod itself and merged into the selector (see `prepare`).
pub(super) struct LabelKeys<'a> {
    pub(super) matching: &'a [String],
    pub(super) mismatching: &'a [String],
    pub(super) label_selector: Option<&'a LabelSelector>,
}

impl LabelKeys<'_> {
    pub(super) fn validate(&self, report: &mut Report, at: &Place<'_>) {
        self.validate_names(report, &at.child("matchLabelKeys"), self.matching);
        self.validate_names(report, &at.child("mismatchLabelKeys"), self.mismatching);
        self.validate_against_selector(report, at);
        let mismatching: HashSet<&String> = self.mismatching.iter().collect();
        let at = at.child("matchLabelKeys");
        for (i, key) in self.matching.iter().enumerate().filter(|(_, key)| mismatching.contains(key)) {
            let text = "exists in both matchLabelKeys and mismatchLabelKeys";
            report.invalid(&at.index(i), key.as_str(), text);
        }
    }

    fn validate_names(&self, report: &mut Report, at: &Place<'_>, keys: &[String]) {
        if !keys.is_empty() && self.label_selector.is_none() {
            return report.forbidden(at, "must not be specified when labelSelector is not set");
        }
        for (i, key) in keys.iter().enumerate() {
            report.each_invalid(&at.index(i), key, names::qualified_name(key));
        }
    }

    /// The selector already holds what the keys were merged into, so a key that shows up twice was there before.
    fn validate_against_selector(&self, report: &mut Report, at: &Place<'_>) {
        let Some(label_selector) = self.label_selector.filter(|_| !self.matching.is_empty()) else { return };
        let indexes: HashMap<&str, usize> =
            self.matching.iter().enumerate().map(|(i, key)| (key.as_str(), i)).collect();
        let mut seen: HashSet<&str> =
            label_selector.match_labels.iter().flatten().map(|(key, _)| key.as_str()).collect();
        for expression in list(&label_selector.match_expressions) {
            let key = expression.key.as_str();
            if let Some(&i) = indexes.get(key)
                && !seen.insert(key)
            {
                report.invalid(&at.index(i), key, "exists in both matchLabelKeys and labelSelector");
            }
            seen.insert(key);
        }
    }
}

/// Whether an already stored spec has a selector that would be refused (JA-P20).
pub(super) fn has_invalid_selector(spec: &core::PodSpec) -> bool {
    let Some(affinity) = &spec.affinity else { return false };
    let mut report = Report::default();
    let root = crate::field::Path::default();
    let root = Place::root(&root);
    let pod = affinity.pod_affinity.iter().flat_map(|pod| {
        let required = list(&pod.required_during_scheduling_ignored_during_execution).iter();
        let preferred = list(&pod.preferred_during_scheduling_ignored_during_execution).iter();
        required.chain(preferred.map(|term| &term.pod_affinity_term))
    });
    let anti = affinity.pod_anti_affinity.iter().flat_map(|pod| {
        let required = list(&pod.required_during_scheduling_ignored_during_execution).iter();
        let preferred = list(&pod.preferred_during_scheduling_ignored_during_execution).iter();
        required.chain(preferred.map(|term| &term.pod_affinity_term))
    });
    for term in pod.chain(anti) {
        validate_selector(&mut report, &root, term.label_selector.as_ref(), false);
        validate_selector(&mut report, &root, term.namespace_selector.as_ref(), false);
    }
    !report.is_empty()
}

/// Whether an already stored spec requires nodes by a label value that cannot exist (JA-P20).
pub(super) fn has_invalid_required_node_value(spec: &core::PodSpec) -> bool {
    let node = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = node.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.iter().flat_map(|required| &required.node_selector_terms);
    let mut values =
        terms.flat_map(|term| list(&term.match_expressions)).flat_map(|expression| list(&expression.values));
    values.any(|value| !names::label_value(value).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::check_templates;

    /// JA-P18.
    #[test]
    fn affinity_to_nodes() {
        let node = |terms: serde_json::Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        check_templates(&[
            (node(json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}])), &[]),
            (node(json!([])), &[&format!("{at}: Required value: must have at least one node selector term")]),
            (
                node(json!([{"matchExpressions": [
                    {"key": "a", "operator": "In"},
                    {"key": "a", "operator": "Exists", "values": ["b"]},
                    {"key": "a", "operator": "Gt", "values": ["1", "2"]},
                    {"key": "a", "operator": "Near", "values": ["-"]},
                ]}])),
                &[
                    &format!(
                        "{at}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
                    ),
                    &format!(
                        "{at}[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or \
                         'DoesNotExist'"
                    ),
                    &format!(
                        "{at}[0].matchExpressions[2].values: Required value: must be specified single value when `operator` \
                         is 'Lt' or 'Gt'"
                    ),
                    &format!(
                        "{at}[0].matchExpressions[3].operator: Invalid value: \"Near\": not a valid selector operator"
                    ),
                    &format!(
                        "{at}[0].matchExpressions[3].values[0]: Invalid value: \"-\": a valid label must be an empty string \
                         or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                    ),
                ],
            ),
            (
                node(json!([{"matchFields": [{"key": "spec.x", "operator": "Exists"}]}])),
                &[
                    &format!(
                        "{at}[0].matchFields[0].operator: Invalid value: \"Exists\": not a valid selector operator"
                    ),
                    &format!("{at}[0].matchFields[0].key: Invalid value: \"spec.x\": not a valid field selector key"),
                ],
            ),
            (
                json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 101, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}}]}}}),
                &[
                    "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: \
                   must be in the range 1-100",
                ],
            ),
        ]);
    }

    #[test]
    fn affinity_to_pods() {
        let pod = |term: serde_json::Value| json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let at = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
        check_templates(&[
            (pod(json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}})), &[]),
            (
                pod(json!({"labelSelector": {}})),
                &[
                    &format!("{at}.topologyKey: Required value: can not be empty"),
                    &format!("{at}.topologyKey: Invalid value: \"\": name part must be non-empty"),
                    &format!(
                        "{at}.topologyKey: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' \
                         or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                         '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                    ),
                ],
            ),
            (
                pod(json!({"topologyKey": "zone", "matchLabelKeys": ["a"]})),
                &[&format!("{at}.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set")],
            ),
            (
                pod(json!({
                    "topologyKey": "zone", "matchLabelKeys": ["a", "b"], "mismatchLabelKeys": ["b"],
                    "labelSelector": {"matchLabels": {"a": "x"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
                })),
                &[
                    &format!("{at}[0]: Invalid value: \"a\": exists in both matchLabelKeys and labelSelector"),
                    &format!(
                        "{at}.matchLabelKeys[1]: Invalid value: \"b\": exists in both matchLabelKeys and mismatchLabelKeys"
                    ),
                ],
            ),
        ]);
    }
}
