//! A label selector as one line of text (JA-T7; upstream's `metav1.FormatLabelSelector`).

use serde_json::Value;

use crate::resources::values::{items, text};

/// Requirements sorted by key and joined with commas; `<none>` when there are none, `<error>` when one makes no sense.
pub(super) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "<none>".to_owned() };
    let Some(mut requirements) = requirements(selector) else { return "<error>".to_owned() };
    if requirements.is_empty() {
        return "<none>".to_owned();
    }
    requirements.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// Key and text of each requirement.
fn requirements(selector: &Value) -> Option<Vec<(&str, String)>> {
    let mut all = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        all.push((key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        all.push((key, requirement(key, expression)?));
    }
    Some(all)
}

fn requirement(key: &str, expression: &Value) -> Option<String> {
    let mut values: Vec<&str> = items(expression, "/values").iter().filter_map(Value::as_str).collect();
    values.sort_unstable();
    match (text(expression, "/operator"), values.is_empty()) {
        ("In", false) => Some(format!("{key} in ({})", values.join(","))),
        ("NotIn", false) => Some(format!("{key} notin ({})", values.join(","))),
        ("Exists", true) => Some(key.to_owned()),
        ("DoesNotExist", true) => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_are_sorted_by_key() {
        let cases = [
            (json!({}), "<none>"),
            (json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2"),
            (
                json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
                "app=x,tier",
            ),
            (
                json!({"matchExpressions": [
                    {"key": "z", "operator": "NotIn", "values": ["b", "a"]},
                    {"key": "y", "operator": "DoesNotExist"},
                    {"key": "x", "operator": "In", "values": ["q"]},
                ]}),
                "x in (q),!y,z notin (a,b)",
            ),
            (json!({"matchExpressions": [{"key": "x", "operator": "Near", "values": ["q"]}]}), "<error>"),
            (json!({"matchExpressions": [{"key": "x", "operator": "In"}]}), "<error>"),
        ];
        for (value, expected) in cases {
            assert_eq!(selector(Some(&value)), expected, "{value}");
        }
        assert_eq!(selector(None), "<none>");
    }
}
