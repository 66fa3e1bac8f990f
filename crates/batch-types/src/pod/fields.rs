//! Facts about a stored pod that the request path asks for: fields to select by, and how long deletion takes.

use serde_json::Value;

use super::defaults::text;
use crate::json::at;

/// The fields pods can be selected by, besides those every kind has (AS-94).
pub const SELECTABLE_FIELDS: [&str; 8] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

/// The value of such a field, empty when unset.
pub fn field_selector_value(pod: &Value, field: &str) -> Option<String> {
    let (part, name) = field.split_once('.').filter(|_| SELECTABLE_FIELDS.contains(&field))?;
    Some(match at(pod, &[part, name]) {
        Some(Value::Bool(flag)) => flag.to_string(),
        None if name == "hostNetwork" => "false".to_owned(),
        _ => text(pod, &[part, name]).to_owned(),
    })
}

/// How many seconds a pod gets to stop when it is deleted (AS-150): what the request says, else its own grace; none if
/// nobody runs it.
pub fn deletion_grace_seconds(pod: &Value, requested: Option<i64>) -> i64 {
    let unscheduled = text(pod, &["spec", "nodeName"]).is_empty();
    let finished = matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if unscheduled || finished {
        return 0;
    }
    let own = at(pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or_default();
    match requested.unwrap_or(own) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_selected_by_these_fields_only() {
        let pod = json!({"spec": {"nodeName": "n1", "hostNetwork": true}, "status": {"phase": "Running"}});
        let cases = [
            ("spec.nodeName", Some("n1")),
            ("spec.hostNetwork", Some("true")),
            ("status.phase", Some("Running")),
            ("status.podIP", Some("")),
            ("spec.hostname", None),
            ("metadata.name", None),
        ];
        for (field, value) in cases {
            assert_eq!(field_selector_value(&pod, field).as_deref(), value, "{field}");
        }
        assert_eq!(field_selector_value(&json!({}), "spec.hostNetwork").as_deref(), Some("false"));
    }

    #[test]
    fn only_a_running_pod_is_given_time() {
        let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 30}, "status": {"phase": phase}});
        let cases = [
            (pod("n1", "Running"), None, 30),
            (pod("n1", "Running"), Some(5), 5),
            (pod("n1", "Running"), Some(0), 0),
            (pod("n1", "Running"), Some(-7), 1),
            (pod("n1", "Pending"), None, 30),
            (pod("", "Pending"), Some(5), 0),
            (pod("n1", "Succeeded"), Some(5), 0),
            (pod("n1", "Failed"), None, 0),
        ];
        for (pod, requested, seconds) in cases {
            assert_eq!(deletion_grace_seconds(&pod, requested), seconds, "{pod} {requested:?}");
        }
    }
}
