//! `metadata` as strategies check it: the rules are in `batch_types::meta`, here they meet canonical objects.
//!
//! The checks that every kind shares run in the request path, before or after the strategy's.

use batch_types::{
    field::{Error, Path},
    meta,
    names::NameRule,
};
use serde_json::Value;

use crate::metadata;

pub(super) use batch_types::meta::Scope;

/// What a finalizer without a domain is told. Kinds outside the core packages do not say it.
const UNQUALIFIED: &str = "name is neither a standard finalizer name nor is it fully qualified";

/// Metadata of a new object; on update where upstream repeats it.
pub(super) fn validate(object: &Value, scope: Scope, rule: NameRule) -> Vec<Error> {
    match metadata::typed_with_managers(object) {
        Ok(metadata) => meta::validate(&metadata, scope, rule, &path()),
        Err(why) => vec![unreadable(&why)],
    }
}

/// Metadata of a changed object.
pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<Error> {
    match (metadata::typed_with_managers(new), metadata::typed(old)) {
        (Ok(new), Ok(old)) => meta::validate_update(&new, &old, &path()),
        (Err(why), _) | (_, Err(why)) => vec![unreadable(&why)],
    }
}

/// [`validate_update`], then [`validate`], of metadata that is read once for both.
pub(super) fn validate_update_and_new(new: &Value, old: &Value, scope: Scope, rule: NameRule) -> Vec<Error> {
    match (metadata::typed_with_managers(new), metadata::typed(old)) {
        (Ok(new), Ok(old)) => {
            let mut errors = meta::validate_update(&new, &old, &path());
            errors.extend(meta::validate(&new, scope, rule, &path()));
            errors
        }
        (Err(why), _) | (_, Err(why)) => vec![unreadable(&why)],
    }
}

/// [`validate`] without the rule on unqualified finalizers (upstream's `apimachinery` function of the same name).
pub(super) fn validate_plain(object: &Value, scope: Scope, rule: NameRule) -> Vec<Error> {
    without_unqualified(validate(object, scope, rule))
}

/// [`validate_update`] without the rule on unqualified finalizers.
pub(super) fn validate_update_plain(new: &Value, old: &Value) -> Vec<Error> {
    without_unqualified(validate_update(new, old))
}

fn without_unqualified(mut errors: Vec<Error>) -> Vec<Error> {
    errors.retain(|error| error.detail != UNQUALIFIED);
    errors
}

/// Canonical metadata always fits its type; if it did not, the request fails and nothing else does.
fn unreadable(why: &serde_json::Error) -> Error {
    Error::internal(&path(), why.to_string())
}

fn path() -> Path {
    Path::new("metadata")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::texts;

    #[test]
    fn unreadable_metadata_is_an_error_and_no_panic() {
        let object = json!({"metadata": {"name": "a", "labels": [1]}});
        let errors = texts(validate(&object, Scope::Cluster, NameRule::DnsSubdomain));
        assert!(errors[0].starts_with("metadata: Internal error: "), "{errors:?}");
        assert_eq!(errors.len(), 1);
        assert_eq!(validate(&json!([]), Scope::Cluster, NameRule::DnsSubdomain).len(), 1);
    }

    /// AS-76: a client may send managedFields, and what it sends is checked.
    #[test]
    fn managers_that_clients_send_are_checked() {
        let entry = json!({"manager": "m".repeat(129), "operation": "Update", "fieldsV1": {"f:data": {}}});
        let object = json!({"metadata": {"name": "a", "resourceVersion": "1", "managedFields": [entry]}});
        let expected = ["metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"];
        assert_eq!(texts(validate(&object, Scope::Cluster, NameRule::DnsSubdomain)), expected);
        assert_eq!(texts(validate_update(&object, &object)), expected);
    }

    #[test]
    fn unqualified_finalizers_matter_to_most_kinds() {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "1", "finalizers": ["bad"]}});
        let expected = [format!("metadata.finalizers[0]: Invalid value: \"bad\": {UNQUALIFIED}")];
        assert_eq!(texts(validate(&object, Scope::Cluster, NameRule::DnsSubdomain)), expected);
        assert_eq!(texts(validate_update(&object, &object)), expected);
        assert_eq!(texts(validate_plain(&object, Scope::Cluster, NameRule::DnsSubdomain)), [""; 0]);
        assert_eq!(texts(validate_update_plain(&object, &object)), [""; 0]);
    }
}
