//! ServiceAccounts (upstream's `pkg/registry/core/serviceaccount`).

use batch_types::{field::Error, names::NameRule};
use serde_json::{Value, json};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::text,
};

/// An annotation that once restricted which secrets pods may mount.
const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// `serviceaccounts`.
#[derive(Debug)]
pub struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        keep_names_of_secrets(object);
        Vec::new()
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(object)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        warnings(object, None)
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value, _cx: &Context<'_>) {
        keep_names_of_secrets(new);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        errors.extend(validate(new));
        errors
    }

    fn warnings_on_update(&self, new: &Value, old: &Value) -> Vec<String> {
        warnings(new, Some(old))
    }

    fn answers_delete_with_object(&self) -> bool {
        true
    }
}

fn validate(object: &Value) -> Vec<Error> {
    metadata::validate(object, Scope::Namespaced, NameRule::DnsSubdomain)
}

/// A secret is always in the account's namespace, so only its name means something.
fn keep_names_of_secrets(object: &mut Value) {
    for secret in object.pointer_mut("/secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        *secret = match text(secret, "/name") {
            "" => json!({}),
            name => json!({ "name": name }),
        };
    }
}

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let annotated = |object: &Value| {
        object.pointer("/metadata/annotations").is_some_and(|all| all.get(ENFORCE_MOUNTABLE_SECRETS).is_some())
    };
    if !annotated(object) || old.is_some_and(annotated) {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{ENFORCE_MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to \
         isolate access to mounted secrets"
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, object, texts};

    #[test]
    fn secrets_are_names() {
        let members = json!({"secrets": [{"kind": "Secret", "name": "s", "namespace": "other"}, {"uid": "u"}]});
        let mut account = object("v1", "ServiceAccount", members);
        ServiceAccount.prepare_for_create(&mut account, &context());
        assert_eq!(account["secrets"], json!([{"name": "s"}, {}]));
    }

    #[test]
    fn only_a_new_annotation_is_warned_about() {
        let plain = object("v1", "ServiceAccount", json!({}));
        let mut annotated = plain.clone();
        annotated["metadata"]["annotations"] = json!({ENFORCE_MOUNTABLE_SECRETS: "true"});
        assert_eq!(ServiceAccount.warnings_on_create(&plain), [""; 0]);
        assert_eq!(ServiceAccount.warnings_on_create(&annotated).len(), 1);
        assert_eq!(ServiceAccount.warnings_on_update(&annotated, &plain).len(), 1);
        assert_eq!(ServiceAccount.warnings_on_update(&annotated, &annotated), [""; 0]);
    }

    #[test]
    fn metadata_is_all_there_is_to_check() {
        let mut account = object("v1", "ServiceAccount", json!({}));
        assert!(ServiceAccount.validate(&account, &context()).is_empty());
        account["metadata"]["name"] = json!("A_b");
        assert!(texts(ServiceAccount.validate(&account, &context()))[0].starts_with("metadata.name: Invalid value"));
    }
}
