//! Requirements on labels and whether a set of labels meets them.
//!
//! How selectors are written in a query string is in `parse`.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::field::{Error, Path};
use crate::names;

/// Which labels match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// No object at all: what a null `LabelSelector` means.
    Nothing,
    /// Every object that meets all requirements, sorted by key; without requirements, every object.
    All(Vec<Requirement>),
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    GreaterThan,
    LessThan,
    Exists,
    DoesNotExist,
}

impl Selector {
    pub const EVERYTHING: Self = Self::All(Vec::new());

    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(requirements)
    }

    /// The meaning of a `LabelSelector`: null selects nothing, empty selects everything. `None` if it is malformed.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Option<Self> {
        let Some(selector) = selector else { return Some(Self::Nothing) };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key.clone(), Operator::Equals, vec![value.clone()]).ok()?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            let values = expression.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(expression.key.clone(), operator, values).ok()?);
        }
        Some(Self::new(requirements))
    }

    /// Whether it selects whatever there is.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// Whether labels found by `lookup` match.
    pub fn matches_with<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => {
                requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.key)))
            }
        }
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Whether the labels of a JSON object match.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.matches_with(|key| labels?.get(key)?.as_str())
    }

    /// The requirements, none for a selector that selects nothing.
    pub fn requirements(&self) -> &[Requirement] {
        match self {
            Self::Nothing => &[],
            Self::All(requirements) => requirements,
        }
    }
}

/// `a=b,c in (d,e),!f`: what tables and `describe` show (JA-T7).
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements().iter().enumerate() {
            write!(f, "{}{requirement}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Requirement {
    /// A requirement, or everything that is wrong with it, with fields as upstream names them.
    pub fn new(key: String, operator: Operator, values: Vec<String>) -> Result<Self, Vec<Error>> {
        let mut errors = Vec::new();
        errors.extend(key_error(&key, &Path::new("key")));
        errors.extend(operator.values_errors(&values));
        for (at, value) in values.iter().enumerate() {
            let messages = names::label_value(value);
            if !messages.is_empty() {
                errors.push(Error::invalid(&values_path().index(at).key(&key), value.as_str(), messages.join("; ")));
            }
        }
        if errors.is_empty() { Ok(Self { key, operator, values }) } else { Err(errors) }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether the label's value, `None` if the object lacks it, is as required.
    pub fn matches(&self, actual: Option<&str>) -> bool {
        let listed = |actual: &str| self.values.iter().any(|value| value == actual);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => actual.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !actual.is_some_and(listed),
            Operator::Exists => actual.is_some(),
            Operator::DoesNotExist => actual.is_none(),
            Operator::GreaterThan => self.compares(actual, |actual, bound| actual > bound),
            Operator::LessThan => self.compares(actual, |actual, bound| actual < bound),
        }
    }

    fn compares(&self, actual: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let actual = actual.and_then(|actual| actual.parse().ok());
        let bound = self.values.first().and_then(|bound| bound.parse().ok());
        matches!((actual, bound), (Some(actual), Some(bound)) if holds(actual, bound))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<_> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl Operator {
    /// How many values it takes, and of which form.
    fn values_errors(self, values: &[String]) -> Vec<Error> {
        let (fits, detail) = match self {
            Self::In | Self::NotIn => (!values.is_empty(), "for 'in', 'notin' operators, values set can't be empty"),
            Self::Equals | Self::DoubleEquals | Self::NotEquals => {
                (values.len() == 1, "exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist => {
                (values.is_empty(), "values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan => {
                (values.len() == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
            }
        };
        let mut errors = Vec::new();
        if !fits {
            errors.push(Error::invalid(&values_path(), values.to_vec(), detail));
        }
        if matches!(self, Self::GreaterThan | Self::LessThan) {
            let not_integers = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
            errors.extend(not_integers.map(|(at, value)| {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                Error::invalid(&values_path().index(at), value.as_str(), detail)
            }));
        }
        errors
    }
}

/// All that is wrong with a key, in one error.
pub(super) fn key_error(key: &str, path: &Path) -> Option<Error> {
    let messages = names::qualified_name(key);
    (!messages.is_empty()).then(|| Error::invalid(path, key, messages.join("; ")))
}

fn values_path() -> Path {
    Path::new("values")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(value: Value) -> Option<Selector> {
        let selector: LabelSelector = serde_json::from_value(value).unwrap();
        Selector::from_label_selector(Some(&selector))
    }

    #[test]
    fn null_selects_nothing_and_empty_selects_everything() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let nothing = Selector::from_label_selector(None).unwrap();
        assert!(!nothing.matches(&labels) && !nothing.matches(&BTreeMap::new()));
        let everything = selector(json!({})).unwrap();
        assert!(everything.is_everything() && everything.matches(&labels) && everything.matches(&BTreeMap::new()));
    }

    #[test]
    fn expressions() {
        let object = |labels: Value| json!({"metadata": {"labels": labels}});
        let cases = [
            (json!({"matchLabels": {"a": "1"}}), "a=1", vec![json!({"a": "1"})], vec![json!({"a": "2"}), json!({})]),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}]}),
                "a in (1,2)",
                vec![json!({"a": "1"}), json!({"a": "2"})],
                vec![json!({"a": "3"}), json!({})],
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                "a notin (1)",
                vec![json!({"a": "2"}), json!({})],
                vec![json!({"a": "1"})],
            ),
            (
                json!({"matchExpressions": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist"}]}),
                "!a,b",
                vec![json!({"b": ""})],
                vec![json!({}), json!({"a": "", "b": ""})],
            ),
        ];
        for (value, text, matching, other) in cases {
            let selector = selector(value).unwrap();
            assert_eq!(selector.to_string(), text);
            for labels in matching {
                assert!(selector.matches_object(&object(labels.clone())), "{text} {labels}");
            }
            for labels in other {
                assert!(!selector.matches_object(&object(labels.clone())), "{text} {labels}");
            }
        }
    }

    #[test]
    fn malformed_selectors_have_no_meaning() {
        for value in [
            json!({"matchLabels": {"a b": "c"}}),
            json!({"matchLabels": {"a": "c d"}}),
            json!({"matchExpressions": [{"key": "a", "operator": "Is"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        ] {
            assert_eq!(selector(value.clone()), None, "{value}");
        }
    }
}
