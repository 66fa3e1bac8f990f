//! `LabelSelector` fields of objects: what is legal (JA-V32) and how errors show one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Map, Value};

use crate::field::{Error, Path};
use crate::{meta, names};

/// What is let pass because it is already stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tolerance {
    /// Label values in expressions that newer rules refuse.
    pub invalid_label_values: bool,
}

/// Everything wrong with a selector.
pub fn validate(selector: &LabelSelector, tolerance: Tolerance, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if let Some(labels) = &selector.match_labels {
        errors.extend(meta::validate_labels(labels, &path.child("matchLabels")));
    }
    for (at, expression) in selector.match_expressions.iter().flatten().enumerate() {
        errors.extend(validate_requirement(expression, tolerance, &path.child("matchExpressions").index(at)));
    }
    errors
}

/// Everything wrong with one expression.
pub fn validate_requirement(expression: &LabelSelectorRequirement, tolerance: Tolerance, path: &Path) -> Vec<Error> {
    let values = expression.values.as_deref().unwrap_or_default();
    let mut errors = Vec::new();
    match expression.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    for message in names::qualified_name(&expression.key) {
        errors.push(Error::invalid(&path.child("key"), expression.key.as_str(), message));
    }
    if !tolerance.invalid_label_values {
        for (at, value) in values.iter().enumerate() {
            for message in names::label_value(value) {
                errors.push(Error::invalid(&path.child("values").index(at), value.as_str(), message));
            }
        }
    }
    errors
}

/// Whether a stored selector holds label values that today's rules refuse; updates of it must then tolerate them.
pub fn has_invalid_label_value(selector: Option<&LabelSelector>) -> bool {
    let expressions = selector.and_then(|selector| selector.match_expressions.as_deref()).unwrap_or_default();
    expressions
        .iter()
        .flat_map(|expression| expression.values.iter().flatten())
        .any(|value| !names::label_value(value).is_empty())
}

/// A selector with its fields in the order of the Go type, which is the order errors show; null if absent.
pub fn value(selector: Option<&LabelSelector>) -> Value {
    let Some(selector) = selector else { return Value::Null };
    let mut value = Map::new();
    if let Some(labels) = selector.match_labels.as_ref().filter(|labels| !labels.is_empty()) {
        let labels: Map<_, _> = labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        value.insert("matchLabels".to_owned(), labels.into());
    }
    if let Some(expressions) = selector.match_expressions.as_ref().filter(|expressions| !expressions.is_empty()) {
        let expressions: Vec<_> = expressions.iter().map(expression_value).collect();
        value.insert("matchExpressions".to_owned(), expressions.into());
    }
    value.into()
}

fn expression_value(expression: &LabelSelectorRequirement) -> Value {
    let mut value = Map::new();
    value.insert("key".to_owned(), expression.key.as_str().into());
    value.insert("operator".to_owned(), expression.operator.as_str().into());
    if let Some(values) = expression.values.as_ref().filter(|values| !values.is_empty()) {
        value.insert("values".to_owned(), values.clone().into());
    }
    value.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn errors_are_upstreams() {
        let bad = selector(json!({"matchLabels": {"a": "b c"}, "matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]},
            {"key": "a", "operator": "Is"}, {"key": "", "operator": "NotIn", "values": ["b", "-"]}]}));
        let errors = validate(&bad, Tolerance::default(), &Path::new("spec.selector"));
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let starts = [
            "spec.selector.matchLabels: Invalid value: \"b c\": a valid label",
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.selector.matchExpressions[2].operator: Invalid value: \"Is\": not a valid selector operator",
            "spec.selector.matchExpressions[3].key: Invalid value: \"\": name part must be non-empty",
            "spec.selector.matchExpressions[3].key: Invalid value: \"\": name part must consist",
            "spec.selector.matchExpressions[3].values[1]: Invalid value: \"-\": a valid label",
        ];
        assert_eq!(texts.len(), starts.len(), "{texts:#?}");
        for (text, start) in texts.iter().zip(starts) {
            assert!(text.starts_with(start), "{text}\n{start}");
        }
    }

    #[test]
    fn stored_values_are_tolerated() {
        let stored = selector(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}));
        assert!(has_invalid_label_value(Some(&stored)));
        assert!(!has_invalid_label_value(None));
        let tolerance = Tolerance { invalid_label_values: true };
        assert!(validate(&stored, tolerance, &Path::new("s")).is_empty());
    }

    #[test]
    fn shown_in_go_order() {
        let shown = value(Some(&selector(json!({
            "matchExpressions": [{"values": ["c"], "operator": "In", "key": "b"}, {"operator": "Exists", "key": "d", "values": []}],
            "matchLabels": {"z": "1", "a": "2"}
        }))));
        assert_eq!(
            shown.to_string(),
            r#"{"matchLabels":{"a":"2","z":"1"},"matchExpressions":[{"key":"b","operator":"In","values":["c"]},{"key":"d","operator":"Exists"}]}"#
        );
        assert_eq!(value(None), Value::Null);
    }
}
