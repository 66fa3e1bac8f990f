//! What matters about a pod when a node is chosen for it: what it asks for, where it may go, how urgent it is.
//!
//! Pods of one template have the same of all this, so they share one `Class`, and what is found out about one of them is
//! found out about all.

use std::collections::{BTreeMap, BTreeSet};

/// All that decides where a pod can go, and when it is its turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    /// Higher ones go first.
    pub(crate) priority: i32,
    pub(crate) requests: Amounts,
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of these terms must match. `None` asks for nothing.
    pub(crate) node_affinity: Option<Vec<Term>>,
    pub(crate) tolerations: Vec<Toleration>,
}

/// Amounts of resources. What cannot be counted in these units is rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amounts {
    pub(crate) cpu_millis: i64,
    pub(crate) memory_bytes: i64,
    /// Everything else by its name: ephemeral storage, huge pages, devices.
    pub(crate) others: BTreeMap<String, i64>,
}

impl Amounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu_millis = self.cpu_millis.saturating_add(other.cpu_millis);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.cpu_millis = self.cpu_millis.saturating_sub(other.cpu_millis);
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
        for (name, amount) in &other.others {
            if let Some(own) = self.others.get_mut(name) {
                *own = own.saturating_sub(*amount);
            }
        }
    }

    /// The larger of both, resource by resource.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        self.cpu_millis = self.cpu_millis.max(other.cpu_millis);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }
}

/// A term of node affinity: all of its requirements must be met, and an empty one matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term {
    pub(crate) labels: Vec<Requirement>,
    /// About `metadata.name`, the only field there is.
    pub(crate) names: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: Operator,
    pub(crate) values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// Matches nothing: better unscheduled than misplaced.
    Unknown,
}

impl Requirement {
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        let compare = |holds: fn(i64, i64) -> bool| {
            let bound = self.values.iter().next().and_then(|text| text.parse().ok());
            match (value.and_then(|text| text.parse().ok()), bound) {
                (Some(value), Some(bound)) => holds(value, bound),
                _ => false,
            }
        };
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compare(|value, bound| value > bound),
            Operator::Lt => compare(|value, bound| value < bound),
            Operator::Unknown => false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Toleration {
    pub(crate) key: String,
    pub(crate) exists: bool,
    pub(crate) value: String,
    pub(crate) effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

impl Taint {
    /// Keeps pods away that do not tolerate it; `PreferNoSchedule` does not.
    pub(crate) fn repels(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

impl Toleration {
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        let effect_fits = self.effect.is_empty() || self.effect == taint.effect;
        let key_fits = self.key == taint.key || (self.key.is_empty() && self.exists);
        effect_fits && key_fits && (self.exists || self.value == taint.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_match_as_their_operators_say() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn, Unknown};
        for (operator, values, value, matches) in [
            (In, &["a", "b"][..], Some("a"), true),
            (In, &["a"], Some("c"), false),
            (In, &["a"], None, false),
            (NotIn, &["a"], Some("c"), true),
            (NotIn, &["a"], None, true),
            (NotIn, &["a"], Some("a"), false),
            (Exists, &[], Some(""), true),
            (Exists, &[], None, false),
            (DoesNotExist, &[], None, true),
            (Gt, &["5"], Some("6"), true),
            (Gt, &["5"], Some("5"), false),
            (Lt, &["5"], Some("4"), true),
            (Lt, &["5"], Some("x"), false),
            (Unknown, &["a"], Some("a"), false),
        ] {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let requirement = Requirement { key: "k".to_owned(), operator, values };
            assert_eq!(requirement.matches(value), matches, "{requirement:?} {value:?}");
        }
    }

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint = Taint { key: "k".to_owned(), value: "v".to_owned(), effect: "NoSchedule".to_owned() };
        let toleration = |key: &str, exists, value: &str, effect: &str| Toleration {
            key: key.to_owned(),
            exists,
            value: value.to_owned(),
            effect: effect.to_owned(),
        };
        for (toleration, tolerates) in [
            (toleration("k", false, "v", "NoSchedule"), true),
            (toleration("k", false, "v", ""), true),
            (toleration("k", false, "w", ""), false),
            (toleration("k", true, "", "NoSchedule"), true),
            (toleration("", true, "", ""), true),
            (toleration("", false, "", ""), false),
            (toleration("k", true, "", "NoExecute"), false),
            (toleration("x", true, "", ""), false),
        ] {
            assert_eq!(toleration.tolerates(&taint), tolerates, "{toleration:?}");
        }
    }
}
