//! Scopes: which pods a quota is about.

use batch_types::pod;
use serde_json::Value;

use crate::resources::values::{items, number, present, text, texts};

/// What scopes ask about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodFacts {
    /// It has a deadline, which is what `Terminating` means here.
    pub(super) is_terminating: bool,
    is_best_effort: bool,
    priority_class: String,
    is_near_other_namespaces: bool,
}

impl PodFacts {
    pub(super) fn of(pod: &Value) -> Self {
        Self {
            is_terminating: present(pod, "/spec/activeDeadlineSeconds").is_some()
                && number(pod, "/spec/activeDeadlineSeconds") >= 0,
            is_best_effort: pod::qos_class(pod) == "BestEffort",
            priority_class: text(pod, "/spec/priorityClassName").to_owned(),
            is_near_other_namespaces: ["podAffinity", "podAntiAffinity"].iter().any(|kind| looks_elsewhere(pod, kind)),
        }
    }
}

/// One thing that a quota demands of the pods it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    scope: String,
    operator: String,
    values: Vec<String>,
}

impl Requirement {
    /// All requirements of a quota: `scopes`, then `scopeSelector`.
    pub(super) fn all(quota: &Value) -> Vec<Self> {
        let plain = texts(quota, "/spec/scopes").into_iter().map(|scope| Self {
            scope: scope.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selected = items(quota, "/spec/scopeSelector/matchExpressions").iter().map(|expression| Self {
            scope: text(expression, "/scopeName").to_owned(),
            operator: text(expression, "/operator").to_owned(),
            values: texts(expression, "/values").into_iter().map(str::to_owned).collect(),
        });
        plain.chain(selected).collect()
    }

    pub(super) fn selects(&self, pod: &PodFacts) -> bool {
        match self.scope.as_str() {
            "Terminating" => pod.is_terminating,
            "NotTerminating" => !pod.is_terminating,
            "BestEffort" => pod.is_best_effort,
            "NotBestEffort" => !pod.is_best_effort,
            "CrossNamespacePodAffinity" => pod.is_near_other_namespaces,
            "PriorityClass" => self.selects_class(&pod.priority_class),
            _ => false,
        }
    }

    /// As label selectors do: `NotIn` also selects pods without a class.
    fn selects_class(&self, class: &str) -> bool {
        let is_listed = self.values.iter().any(|value| value == class);
        match self.operator.as_str() {
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            "In" => !class.is_empty() && is_listed,
            "NotIn" => class.is_empty() || !is_listed,
            _ => false,
        }
    }
}

fn looks_elsewhere(pod: &Value, kind: &str) -> bool {
    let affinity = &pod["spec"]["affinity"][kind];
    let required = items(affinity, "/requiredDuringSchedulingIgnoredDuringExecution").iter();
    let preferred =
        items(affinity, "/preferredDuringSchedulingIgnoredDuringExecution").iter().map(|term| &term["podAffinityTerm"]);
    required
        .chain(preferred)
        .any(|term| !items(term, "/namespaces").is_empty() || present(term, "/namespaceSelector").is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(quota: Value, pod: Value) -> bool {
        let facts = PodFacts::of(&json!({"spec": pod}));
        Requirement::all(&json!({"spec": quota})).iter().all(|requirement| requirement.selects(&facts))
    }

    #[test]
    fn scopes_select_pods() {
        let asking = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
        let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["a"]}]}});
        let cases = [
            ("Terminating", json!({"activeDeadlineSeconds": 5}), json!({})),
            ("NotTerminating", json!({}), json!({"activeDeadlineSeconds": 5})),
            ("BestEffort", json!({}), json!({"containers": asking})),
            ("NotBestEffort", json!({"containers": asking}), json!({})),
            ("PriorityClass", json!({"priorityClassName": "high"}), json!({})),
            ("CrossNamespacePodAffinity", json!({"affinity": near}), json!({})),
        ];
        for (scope, inside, outside) in cases {
            assert!(selects(json!({"scopes": [scope]}), inside), "{scope}");
            assert!(!selects(json!({"scopes": [scope]}), outside), "{scope}");
        }
        assert!(selects(json!({}), json!({})), "no scope is about every pod");
        assert!(!selects(json!({"scopes": ["Unknown"]}), json!({})));
    }

    #[test]
    fn priority_classes_are_selected_as_labels_are() {
        let select = |operator: &str, values: Value, class: &str| {
            let expression = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
            let quota = json!({"scopeSelector": {"matchExpressions": [expression]}});
            selects(quota, json!({"priorityClassName": class}))
        };
        let cases = [
            ("In", json!(["high"]), "high", true),
            ("In", json!(["high"]), "low", false),
            ("In", json!(["high"]), "", false),
            ("NotIn", json!(["high"]), "high", false),
            ("NotIn", json!(["high"]), "low", true),
            ("NotIn", json!(["high"]), "", true),
            ("Exists", json!([]), "low", true),
            ("Exists", json!([]), "", false),
            ("DoesNotExist", json!([]), "", true),
            ("DoesNotExist", json!([]), "low", false),
        ];
        for (operator, values, class, expected) in cases {
            assert_eq!(select(operator, values, class), expected, "{operator} {class}");
        }
    }
}
