//! Namespaces (AS-170…AS-172; upstream's `pkg/registry/core/namespace`).
//!
//! A namespace has two lists of finalizers: `metadata.finalizers` like everything else, and `spec.finalizers`, which only
//! `/finalize` can empty. How DELETE starts the termination is with the other deletions in `verbs`; emptying the content
//! of a terminating namespace is a controller's work.

use batch_types::{
    field::{Error, Path},
    gates::Gates,
    names::{self, NameRule},
};
use serde_json::{Value, json};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{copy, items, object_mut, present, set, text, texts},
};

/// The label every namespace carries, so that selectors can name it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that stands for the content of the namespace.
const CONTENT_FINALIZER: &str = "kubernetes";

/// `namespaces`.
#[derive(Debug)]
pub struct Namespace;
/// `namespaces/status`.
#[derive(Debug)]
pub struct Status;
/// `namespaces/finalize`.
#[derive(Debug)]
pub struct Finalize;

impl Strategy for Namespace {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        set(object, "status", json!({"phase": "Active"}));
        let mut finalizers: Vec<Value> = items(object, "/spec/finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == CONTENT_FINALIZER) {
            finalizers.push(json!(CONTENT_FINALIZER));
        }
        if let Some(spec) = object_mut(object, "spec") {
            spec.insert("finalizers".to_owned(), Value::Array(finalizers));
        }
        Vec::new()
    }

    /// A generated name has no label yet: upstream generates it after defaulting, and a bad one is told once.
    fn settle_new(&self, object: &mut Value) -> bool {
        label_with_name(object);
        true
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate(object)
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        // The spec holds nothing but the finalizers.
        copy(new, old, "spec");
        copy(new, old, "status");
        label_with_name(new);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = validate(new);
        errors.extend(metadata::validate_update(new, old));
        errors
    }

    fn answers_delete_with_object(&self) -> bool {
        true
    }
}

impl Strategy for Status {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        copy(new, old, "spec");
        label_with_name(new);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        let phase = text(new, "/status/phase");
        // The capital letter is upstream's.
        let at = Path::new("status").child("Phase");
        let is_terminating = present(new, "/metadata/deletionTimestamp").is_some();
        match (is_terminating, phase) {
            (false, "Active") | (true, "Terminating") => {}
            (false, _) => {
                errors.push(Error::invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty"));
            }
            (true, _) => {
                errors.push(Error::invalid(
                    &at,
                    phase,
                    "may only be 'Terminating' if `deletionTimestamp` is not empty",
                ));
            }
        }
        errors
    }
}

impl Strategy for Finalize {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        default(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        copy(new, old, "status");
        label_with_name(new);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = metadata::validate_update(new, old);
        let list = Path::new("spec").child("finalizers");
        for (at, finalizer) in texts(new, "/spec/finalizers").into_iter().enumerate() {
            errors.extend(validate_finalizer(finalizer, &list.index(at)));
        }
        errors
    }
}

fn default(object: &mut Value) {
    label_with_name(object);
    if let Some(status) = object_mut(object, "status") {
        status.entry("phase").or_insert_with(|| json!("Active"));
    }
}

/// Keeps [`NAME_LABEL`] true on every write. Nameless objects get it once their name is generated.
fn label_with_name(object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    if name.is_empty() {
        return;
    }
    let Some(metadata) = object.get_mut("metadata") else { return };
    if let Some(labels) = object_mut(metadata, "labels") {
        labels.insert(NAME_LABEL.to_owned(), Value::String(name));
    }
}

fn validate(object: &Value) -> Vec<Error> {
    let mut errors = metadata::validate(object, Scope::Cluster, NameRule::DnsLabel);
    // Without an index, unlike `/finalize`: upstream points at the list.
    let list = Path::new("spec").child("finalizers");
    for finalizer in texts(object, "/spec/finalizers") {
        errors.extend(validate_finalizer(finalizer, &list));
    }
    errors
}

fn validate_finalizer(finalizer: &str, at: &Path) -> Vec<Error> {
    let mut errors: Vec<Error> =
        names::qualified_name(finalizer).into_iter().map(|message| Error::invalid(at, finalizer, message)).collect();
    if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(Error::invalid(at, finalizer, detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, texts};

    fn namespace(name: &str) -> Value {
        json!({
            "kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": name, "resourceVersion": "1"}, "spec": {}, "status": {},
        })
    }

    fn created(mut object: Value) -> Value {
        Strategy::default(&Namespace, &mut object, context().gates);
        Namespace.prepare_for_create(&mut object, &context());
        object
    }

    /// AS-170.
    #[test]
    fn creation_adds_finalizer_phase_and_label() {
        let object = created(namespace("a"));
        assert_eq!(object["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(object["status"], json!({"phase": "Active"}));
        assert_eq!(object["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "a"}));
        let mut own = namespace("a");
        own["spec"] = json!({"finalizers": ["example.com/x"]});
        own["status"] = json!({"phase": "Terminating"});
        let own = created(own);
        assert_eq!(own["spec"], json!({"finalizers": ["example.com/x", "kubernetes"]}));
        assert_eq!(own["status"], json!({"phase": "Active"}));
    }

    #[test]
    fn names_are_labels() {
        let long = "a".repeat(64);
        assert_eq!(
            texts(Namespace.validate(&created(namespace(&long)), &context())),
            [
                format!("metadata.name: Invalid value: \"{long}\": must be no more than 63 characters"),
                format!("metadata.labels: Invalid value: \"{long}\": must be no more than 63 bytes"),
            ]
        );
        assert!(Namespace.validate(&created(namespace("a-b")), &context()).is_empty());
    }

    /// AS-33: what is wrong with a generated name is not wrong with a label as well.
    #[test]
    fn generated_names_become_labels_last() {
        let mut object = namespace("");
        Strategy::default(&Namespace, &mut object, context().gates);
        object["metadata"]["name"] = json!("-x");
        Namespace.prepare_for_create(&mut object, &context());
        let found = texts(Namespace.validate(&object, &context()));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("metadata.name: "), "{found:?}");
        assert!(Namespace.settle_new(&mut object));
        assert_eq!(object["metadata"]["labels"][NAME_LABEL], "-x");
    }

    /// AS-170: the label cannot lie, the finalizers cannot change, the status stays.
    #[test]
    fn updates_keep_what_is_not_theirs() {
        let old = created(namespace("a"));
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"kubernetes.io/metadata.name": "lie", "b": "c"});
        new["spec"] = json!({});
        new["status"] = json!({"phase": "Terminating"});
        Namespace.prepare_for_update(&mut new, &old, &context());
        assert_eq!(new["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "a", "b": "c"}));
        assert_eq!((&new["spec"], &new["status"]), (&old["spec"], &old["status"]));
    }

    #[test]
    fn the_phase_follows_the_deletion() {
        let old = created(namespace("a"));
        let mut new = old.clone();
        new["status"]["phase"] = json!("Terminating");
        new["spec"] = json!({});
        Status.prepare_for_update(&mut new, &old, &context());
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(
            texts(Status.validate_update(&new, &old, &context())),
            ["status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"]
        );
        let mut terminating = old.clone();
        terminating["metadata"]["deletionTimestamp"] = json!("2024-05-01T10:00:00Z");
        let mut active = terminating.clone();
        active["status"]["phase"] = json!("Active");
        assert_eq!(
            texts(Status.validate_update(&active, &terminating, &context())),
            ["status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"]
        );
    }

    /// AS-172.
    #[test]
    fn finalize_changes_spec_finalizers_only() {
        let old = created(namespace("a"));
        let mut new = old.clone();
        new["spec"] = json!({"finalizers": ["x"]});
        new["status"] = json!({});
        Finalize.prepare_for_update(&mut new, &old, &context());
        assert_eq!(new["status"], old["status"]);
        assert_eq!(
            texts(Finalize.validate_update(&new, &old, &context())),
            ["spec.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully \
              qualified"]
        );
        new["spec"] = json!({});
        assert!(Finalize.validate_update(&new, &old, &context()).is_empty());
    }
}
