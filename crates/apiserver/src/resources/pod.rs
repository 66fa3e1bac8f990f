//! Pods: the rules of `batch_types::pod` as strategies (AS-173…AS-176).
//!
//! Pods are written far more often than anything else, mostly to change a status or take a finalizer off. Those writes
//! leave the spec alone, so nothing here reads it typed for them unless a rule needs it. Binding, eviction and graceful
//! deletion are verbs of their own.

use batch_types::{field::Error, gates::Gates, names::NameRule, pod};
use k8s_openapi::{
    api::core::v1::{Pod as TypedPod, PodStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    typed,
    values::items,
};

/// `pods`.
#[derive(Debug)]
pub struct Pod;
/// `pods/status`.
#[derive(Debug)]
pub struct Status;
/// `bindings`: an effect on a pod, never an object.
#[derive(Debug)]
pub struct Binding;

impl Strategy for Binding {}

impl Strategy for Pod {
    fn default(&self, object: &mut Value, _gates: &Gates) {
        pod::default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &Context<'_>) -> Vec<String> {
        pod::prepare_for_create(object)
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        typed::check(object, pod::validate)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        typed::read(object).map(|pod| pod::warnings(&pod, None)).unwrap_or_default()
    }

    fn review_new(&self, object: &Value, _cx: &Context<'_>) -> Result<Vec<String>, Vec<Error>> {
        let mut warnings = Vec::new();
        let errors = typed::check(object, |pod| {
            let errors = pod::validate(pod);
            if errors.is_empty() {
                warnings = pod::warnings(pod, None);
            }
            errors
        });
        if errors.is_empty() { Ok(warnings) } else { Err(errors) }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        pod::prepare_for_update(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        if only_plain_metadata_changed(new, old) {
            return metadata::validate_update_and_new(new, old, Scope::Namespaced, NameRule::DnsSubdomain);
        }
        typed::check_update(new, old, pod::validate_update)
    }

    fn may_set_aside(&self, patch: &Map<String, Value>) -> &'static [&'static str] {
        let is_plain = |name: &String| PLAIN_METADATA.contains(&name.as_str());
        match patch.get("metadata").and_then(Value::as_object) {
            Some(metadata) if patch.len() == 1 && metadata.keys().all(is_plain) => &["spec", "status"],
            _ => &[],
        }
    }

    fn answers_delete_with_object(&self) -> bool {
        true
    }
}

impl Strategy for Status {
    fn may_set_aside(&self, patch: &Map<String, Value>) -> &'static [&'static str] {
        if patch.keys().all(|name| matches!(name.as_str(), "metadata" | "status")) { &["spec"] } else { &[] }
    }

    fn needs_set_aside(&self, new: &Value, old: &Value) -> bool {
        pod::status_depends_on_spec(new, old)
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        pod::default(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _cx: &Context<'_>) {
        pod::prepare_for_status_update(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        if new.get("spec") != old.get("spec") {
            return typed::check_update(new, old, pod::validate_status_update);
        }
        // Both have the same spec: it is read once.
        match typed::read(old) {
            Ok(BesideSpec { metadata, status }) => typed::check(new, |new: &TypedPod| {
                let old = TypedPod { metadata, spec: new.spec.clone(), status };
                pod::validate_status_update(new, &old)
            }),
            Err(why) => vec![typed::unreadable(&why)],
        }
    }

    fn warnings_on_update(&self, new: &Value, _old: &Value) -> Vec<String> {
        let has_addresses = ["/status/podIPs", "/status/hostIPs"].iter().any(|list| !items(new, list).is_empty());
        if !has_addresses {
            return Vec::new();
        }
        // Warnings are about addresses only.
        typed::read(new)
            .map(|BesideSpec { metadata, status }| pod::status_warnings(&TypedPod { metadata, spec: None, status }))
            .unwrap_or_default()
    }
}

/// Members of a patch's metadata that no rule sees together with spec or status.
const PLAIN_METADATA: [&str; 7] = [
    "uid",
    "resourceVersion",
    "labels",
    "ownerReferences",
    "finalizers",
    "$deleteFromPrimitiveList/finalizers",
    "$setElementOrder/finalizers",
];

/// A pod without its spec.
#[derive(Deserialize)]
struct BesideSpec {
    metadata: ObjectMeta,
    status: Option<PodStatus>,
}

/// Nothing changed but metadata that has no rules in common with the spec; annotations have some.
fn only_plain_metadata_changed(new: &Value, old: &Value) -> bool {
    const ANNOTATIONS: &str = "/metadata/annotations";
    new.get("spec") == old.get("spec") && new.pointer(ANNOTATIONS) == old.pointer(ANNOTATIONS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn created() -> Value {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]});
        let mut pod = object("v1", "Pod", json!({"spec": spec, "status": {"phase": "Failed"}}));
        Strategy::default(&Pod, &mut pod, context().gates);
        Pod.prepare_for_create(&mut pod, &context());
        pod
    }

    fn updated(strategy: &dyn Strategy, old: &Value, change: impl FnOnce(&mut Value)) -> (Value, Vec<String>) {
        let mut new = old.clone();
        change(&mut new);
        strategy.prepare_for_update(&mut new, old, &context());
        let errors = texts(strategy.validate_update(&new, old, &context()));
        (new, errors)
    }

    /// AS-173.
    #[test]
    fn a_new_pod_is_pending_and_valid() {
        let pod = created();
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["metadata"]["generation"], 1);
        assert_eq!(texts(Pod.validate(&pod, &context())), [""; 0]);
        assert_eq!(Pod.warnings_on_create(&pod), [""; 0]);
    }

    /// The quick way of metadata-only updates finds what the long way would.
    #[test]
    fn metadata_updates_are_checked() {
        let old = created();
        let (new, errors) = updated(&Pod, &old, |pod| pod["metadata"]["finalizers"] = json!(["example.com/a"]));
        assert_eq!((errors, &new["metadata"]["generation"]), (vec![], &json!(1)));
        for changed in [json!({"a b": ""}), json!({"a": "b c"})] {
            let mut new = old.clone();
            new["metadata"]["labels"] = changed;
            assert!(only_plain_metadata_changed(&new, &old));
            let quick = texts(Pod.validate_update(&new, &old, &context()));
            assert_eq!(quick, texts(typed::check_update(&new, &old, pod::validate_update)));
            assert!(!quick.is_empty());
        }
    }

    #[test]
    fn annotations_and_specs_are_checked_with_each_other() {
        let old = created();
        let mut annotated = old.clone();
        annotated["metadata"]["annotations"] = json!({"a": "b"});
        assert!(!only_plain_metadata_changed(&annotated, &old));
        let (new, errors) = updated(&Pod, &old, |pod| pod["spec"]["hostname"] = json!("other"));
        assert_eq!(new["metadata"]["generation"], 2);
        assert!(errors[0].starts_with("spec: Forbidden: pod updates may not change fields other than"), "{errors:?}");
    }

    /// AS-112, AS-176.
    #[test]
    fn status_updates_keep_the_spec() {
        let old = created();
        let (new, errors) = updated(&Status, &old, |pod| {
            pod["spec"]["hostname"] = json!("other");
            pod["status"] = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]});
        });
        assert_eq!(errors, [""; 0]);
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["status"]["qosClass"], "BestEffort");
        assert_eq!(Status.warnings_on_update(&new, &old), [""; 0]);
    }

    /// AS-176: the rule needs the restart policy of the spec.
    #[test]
    fn terminated_containers_stay_terminated() {
        let status = |state: Value| {
            json!({"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [
                {"name": "main", "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state}]})
        };
        let mut old = created();
        old["status"] = status(json!({"terminated": {"exitCode": 1}}));
        let (_, errors) = updated(&Status, &old, |pod| pod["status"] = status(json!({"running": {}})));
        assert_eq!(
            errors,
            ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
        );
    }
}
