//! Leases (AS-110, AS-111, AS-220; upstream's `pkg/registry/coordination/lease`).

use batch_types::{
    field::{Error, Path},
    names::NameRule,
};
use serde_json::Value;

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{object_mut, present},
};

/// Members of the gate CoordinatedLeaderElection, which is off: new leases lose them.
const GATED: [&str; 2] = ["strategy", "preferredHolder"];

/// `leases`.
#[derive(Debug)]
pub struct Lease;

impl Strategy for Lease {
    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        drop_gated(object, None);
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_plain(object, Scope::Namespaced, NameRule::DnsSubdomain);
        errors.extend(validate_spec(object));
        errors
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        drop_gated(new, Some(old));
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update_plain(new, old);
        errors.extend(validate_spec(new));
        errors
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

/// Members behind the gate stay only where they are stored already.
fn drop_gated(object: &mut Value, old: Option<&Value>) {
    let stored = old.and_then(|old| old.get("spec"));
    let Some(spec) = object_mut(object, "spec") else { return };
    for member in GATED {
        if stored.is_none_or(|stored| stored.get(member).is_none_or(Value::is_null)) {
            spec.shift_remove(member);
        }
    }
}

fn validate_spec(object: &Value) -> Vec<Error> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    let limits = [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ];
    for (member, least, detail) in limits {
        let value = present(object, &format!("/spec/{member}")).and_then(Value::as_i64);
        if let Some(value) = value.filter(|&value| value < least) {
            errors.push(Error::invalid(&spec.child(member), value, detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn lease(spec: Value) -> Value {
        object("coordination.k8s.io/v1", "Lease", json!({ "spec": spec }))
    }

    #[test]
    fn numbers_are_limited() {
        let cases = [
            (json!({}), vec![]),
            (json!({"leaseDurationSeconds": 1, "leaseTransitions": 0}), vec![]),
            (
                json!({"leaseDurationSeconds": 0}),
                vec!["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
            ),
            (
                json!({"leaseDurationSeconds": -1, "leaseTransitions": -1}),
                vec![
                    "spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0",
                    "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(texts(Lease.validate(&lease(spec.clone()), &context())), expected, "{spec}");
            assert_eq!(texts(Lease.validate_update(&lease(spec.clone()), &lease(json!({})), &context())), expected);
        }
    }

    /// Recorded: members of the switched-off gate vanish without a word.
    #[test]
    fn gated_members_are_dropped() {
        let mut new = lease(json!({"holderIdentity": "me", "strategy": "x", "preferredHolder": "you"}));
        Lease.prepare_for_create(&mut new, &context());
        assert_eq!(new["spec"], json!({"holderIdentity": "me"}));
        let old = lease(json!({"strategy": "OldestEmulationVersion"}));
        let mut new = lease(json!({"strategy": "y", "preferredHolder": "you"}));
        Lease.prepare_for_update(&mut new, &old, &context());
        assert_eq!(new["spec"], json!({"strategy": "y"}));
    }
}
