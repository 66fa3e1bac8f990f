//! PriorityClasses (AS-2, AS-220; upstream's `pkg/apis/scheduling`).
//!
//! That only one class may be the global default depends on the other classes and is checked by admission.

use batch_types::{
    field::{Error, Path},
    gates::Gates,
    names::NameRule,
};
use serde_json::{Value, json};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{flag, number, object_mut, present, text},
};

/// What users may ask for; everything above is the system's.
const USER_VALUE_MAX: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";

/// The classes that exist from the first second (AS-2): name, value, description.
pub const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// `priorityclasses`.
#[derive(Debug)]
pub struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        if let Some(members) = object.as_object_mut() {
            members.entry("preemptionPolicy").or_insert_with(|| json!("PreemptLowerPriority"));
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        if let Some(metadata) = object_mut(object, "metadata") {
            metadata.insert("generation".to_owned(), json!(1));
        }
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate(object, Scope::Cluster, NameRule::DnsSubdomain);
        let name = text(object, "/metadata/name");
        if name.starts_with(SYSTEM_PREFIX) {
            if let Err(why) = known_system_class(name, object) {
                let detail = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
                );
                errors.push(Error::forbidden(&Path::new("metadata").child("name"), detail));
            }
        } else if number(object, "/value") > USER_VALUE_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
            errors.push(Error::forbidden(&Path::new("value"), detail));
        }
        errors.extend(validate_preemption_policy(object));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        if number(new, "/value") != number(old, "/value") {
            errors.push(Error::forbidden(&Path::new("value"), "may not be changed in an update."));
        }
        let [new_policy, old_policy] = [new, old].map(|object| present(object, "/preemptionPolicy"));
        if new_policy != old_policy {
            let shown = new_policy.cloned().unwrap_or_default();
            errors.push(Error::invalid(&Path::new("preemptionPolicy"), shown, "field is immutable"));
        }
        errors
    }
}

/// A name with the system's prefix must be one of the system's classes, and be it exactly.
fn known_system_class(name: &str, object: &Value) -> Result<(), String> {
    let Some((_, value, _)) = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("{name} is not a known system priority class"));
    };
    if number(object, "/value") != *value {
        return Err(format!("value of {name} PriorityClass must be {value}"));
    }
    if flag(object, "/globalDefault") {
        return Err(format!("globalDefault of {name} PriorityClass must be false"));
    }
    Ok(())
}

fn validate_preemption_policy(object: &Value) -> Option<Error> {
    let at = Path::new("preemptionPolicy");
    match present(object, "/preemptionPolicy")?.as_str()? {
        "PreemptLowerPriority" | "Never" => None,
        "" => Some(Error::required(&at, "")),
        other => Some(Error::not_supported(&at, other, &["PreemptLowerPriority", "Never"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, named, texts};

    fn class(name: &str, members: Value) -> Value {
        let mut class = named("scheduling.k8s.io/v1", "PriorityClass", name, members);
        crate::resources::values::remove(&mut class["metadata"], "namespace");
        Strategy::default(&PriorityClass, &mut class, context().gates);
        PriorityClass.prepare_for_create(&mut class, &context());
        class
    }

    #[test]
    fn classes_preempt_by_default() {
        let fresh = class("a", json!({"value": 1000}));
        assert_eq!(fresh["preemptionPolicy"], "PreemptLowerPriority");
        assert_eq!(fresh["metadata"]["generation"], 1);
        assert_eq!(class("a", json!({"preemptionPolicy": "Never"}))["preemptionPolicy"], "Never");
    }

    /// AS-220.
    #[test]
    fn values_and_names_are_reserved() {
        let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system \
                        use only. error:";
        let cases = [
            ("a", json!({"value": 1_000_000_000}), vec![]),
            ("a", json!({"value": -5}), vec![]),
            (
                "a",
                json!({"value": 1_000_000_001}),
                vec!["value: Forbidden: maximum allowed value of a user defined priority is 1000000000".to_owned()],
            ),
            (
                "system-mine",
                json!({"value": 5}),
                vec![format!("{reserved} system-mine is not a known system priority class")],
            ),
            (
                "system-node-critical",
                json!({"value": 5}),
                vec![format!("{reserved} value of system-node-critical PriorityClass must be 2000001000")],
            ),
            (
                "system-node-critical",
                json!({"value": 2_000_001_000, "globalDefault": true}),
                vec![format!("{reserved} globalDefault of system-node-critical PriorityClass must be false")],
            ),
            (
                "a",
                json!({"preemptionPolicy": "Sometimes"}),
                vec![
                    "preemptionPolicy: Unsupported value: \"Sometimes\": supported values: \
                      \"PreemptLowerPriority\", \"Never\""
                        .to_owned(),
                ],
            ),
            ("a", json!({"preemptionPolicy": ""}), vec!["preemptionPolicy: Required value".to_owned()]),
        ];
        for (name, members, expected) in cases {
            let class = class(name, members);
            assert_eq!(texts(PriorityClass.validate(&class, &context())), expected, "{class}");
        }
    }

    #[test]
    fn system_classes_pass() {
        for (name, value, description) in SYSTEM_CLASSES {
            let class = class(name, json!({"value": value, "description": description}));
            assert_eq!(texts(PriorityClass.validate(&class, &context())), [""; 0]);
        }
    }

    #[test]
    fn value_and_policy_are_final() {
        let old = class("a", json!({"value": 5}));
        let new = class("a", json!({"value": 6, "preemptionPolicy": "Never", "description": "new"}));
        assert_eq!(
            texts(PriorityClass.validate_update(&new, &old, &context())),
            [
                "value: Forbidden: may not be changed in an update.",
                "preemptionPolicy: Invalid value: \"Never\": field is immutable"
            ]
        );
        assert!(PriorityClass.validate_update(&old, &old, &context()).is_empty());
    }
}
