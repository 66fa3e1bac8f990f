//! What the server sets, keeps and drops in a pod before validating it (AS-112, AS-173, AS-175, AS-176).

use std::collections::HashMap;

use k8s_openapi::api::core::v1::AppArmorProfile;
use serde_json::{Map, Value, json};

use super::annotations::APP_ARMOR_PREFIX;
use super::defaults::{CONTAINER_LISTS, text};
use super::qos::qos_class;
use super::report::{Place, Report};
use super::security;
use super::status;
use crate::equality::semantic_eq;
use crate::field;
use crate::json::{at, at_mut, copy_field, items_mut, object_or_new, remove_field};

/// A new pod starts at generation 1, pending, with its service class; whatever status was sent is gone. A gated one gets
/// a condition that says so, as of its `creationTimestamp`, which the caller has set. Returns warnings that have to come
/// before those of [`warnings`](super::warnings).
pub fn prepare_for_create(pod: &mut Value) -> Vec<String> {
    let qos = match text(pod, &["status", "qosClass"]) {
        "" => qos_class(pod).to_owned(),
        class => class.to_owned(),
    };
    let mut status = json!({"phase": "Pending", "qosClass": qos});
    drop_disabled_fields(pod.get_mut("spec"), None);
    if at(pod, &["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": at(pod, &["metadata", "creationTimestamp"]),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    let Some(fields) = pod.as_object_mut() else { return Vec::new() };
    fields.insert("status".to_owned(), status);
    if let Some(metadata) = object_or_new(fields, "metadata") {
        metadata.insert("generation".to_owned(), 1.into());
    }
    merge_label_keys(pod);
    sync_app_armor(pod)
}

/// An update of the pod cannot change its status, and counts when it changes its spec.
pub fn prepare_for_update(new: &mut Value, old: &Value) {
    copy_field(new, old, "status");
    drop_disabled_fields(new.get_mut("spec"), old.get("spec"));
    let generation = at(old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
    let changed = !semantic_eq(new.get("spec").unwrap_or(&Value::Null), old.get("spec").unwrap_or(&Value::Null));
    set_generation(new, generation.saturating_add(changed.into()));
}

fn set_generation(pod: &mut Value, generation: i64) {
    let metadata = pod.as_object_mut().and_then(|pod| object_or_new(pod, "metadata"));
    if let Some(metadata) = metadata.filter(|metadata| generation != 0 || metadata.contains_key("generation")) {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

/// An update of `/status` cannot change the spec, the owners or the deletion, nor take back what was observed.
pub fn prepare_for_status_update(new: &mut Value, old: &Value) {
    copy_field(new, old, "spec");
    if let (Some(metadata), Some(old_metadata)) = (new.get_mut("metadata"), old.get("metadata")) {
        for key in ["deletionTimestamp", "ownerReferences", "generation"] {
            copy_field(metadata, old_metadata, key);
        }
    }
    let Some(fields) = new.as_object_mut() else { return };
    if object_or_new(fields, "status").is_none() {
        return;
    }
    let (none, Some(new_status)) = (Value::Null, new.get_mut("status")) else { return };
    let old_status = old.get("status").unwrap_or(&none);
    if text(new_status, &["qosClass"]).is_empty() {
        copy_field(new_status, old_status, "qosClass");
    }
    keep_observed_generations(new_status, old_status);
    drop_disabled_status_fields(new_status, old_status);
    status::default(new);
}

/// A writer that does not know `observedGeneration` must not erase it. Conditions are matched by type, in order, because
/// a type may occur more than once.
fn keep_observed_generations(new: &mut Value, old: &Value) {
    const KEY: &str = "observedGeneration";
    let is_unset = |value: &Value| value.get(KEY).and_then(Value::as_i64).unwrap_or_default() == 0;
    if is_unset(new) {
        copy_field(new, old, KEY);
    }
    let mut by_type: HashMap<&str, std::collections::VecDeque<&Value>> = HashMap::new();
    for condition in old.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        by_type.entry(text(condition, &["type"])).or_default().push_back(condition);
    }
    for condition in items_mut(new, &["conditions"]) {
        let old = by_type.get_mut(text(condition, &["type"])).and_then(|conditions| conditions.pop_front());
        if let Some(old) = old.filter(|_| is_unset(condition)) {
            copy_field(condition, old, KEY);
        }
    }
}

/// Takes out of a template what is behind gates that are off, unless the old one has it already (JA-C7).
pub fn drop_disabled_template_fields(template: &mut Value, old: Option<&Value>) {
    drop_disabled_fields(template.get_mut("spec"), old.and_then(|old| old.get("spec")));
}

fn drop_disabled_fields(spec: Option<&mut Value>, old: Option<&Value>) {
    let Some(spec) = spec else { return };
    if old.and_then(|old| at(old, &["schedulingGroup"])).is_none() {
        remove_field(spec, "schedulingGroup");
    }
    for source in ["clusterTrustBundle", "podCertificate"] {
        if !old.is_some_and(|old| has_projection(old, source)) {
            for volume in items_mut(spec, &["volumes"]) {
                for projection in items_mut(volume, &["projected", "sources"]) {
                    remove_field(projection, source);
                }
            }
        }
    }
    if !old.is_some_and(has_stop_signal) {
        for list in CONTAINER_LISTS {
            for container in items_mut(spec, &[list]) {
                drop_stop_signal(container);
            }
        }
    }
}

fn has_projection(spec: &Value, source: &str) -> bool {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let mut projections =
        volumes.filter_map(|volume| at(volume, &["projected", "sources"]).and_then(Value::as_array)).flatten();
    projections.any(|projection| at(projection, &[source]).is_some())
}

fn has_stop_signal(spec: &Value) -> bool {
    let lists = CONTAINER_LISTS.iter().filter_map(|list| spec.get(list).and_then(Value::as_array));
    lists.flatten().any(|container| at(container, &["lifecycle", "stopSignal"]).is_some())
}

/// A lifecycle that said nothing else is gone with its signal.
fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = at_mut(container, &["lifecycle"]).and_then(Value::as_object_mut) else { return };
    let had_signal = lifecycle.shift_remove("stopSignal").is_some();
    if had_signal && lifecycle.is_empty() {
        remove_field(container, "lifecycle");
    }
}

/// What container statuses carry behind gates that are off.
fn drop_disabled_status_fields(new: &mut Value, old: &Value) {
    const CLAIMS: &str = "nodeAllocatableResourceClaimStatuses";
    const LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    if at(old, &[CLAIMS]).is_none() {
        remove_field(new, CLAIMS);
    }
    let mut old_statuses = LISTS.iter().filter_map(|list| old.get(list).and_then(Value::as_array)).flatten();
    let in_use = old_statuses.any(|status| {
        let mounts = status.get("volumeMounts").and_then(Value::as_array);
        mounts.is_some_and(|mounts| mounts.iter().any(|mount| at(mount, &["volumeStatus"]).is_some()))
    });
    if in_use {
        return;
    }
    for list in LISTS {
        for status in items_mut(new, &[list]) {
            for mount in items_mut(status, &["volumeMounts"]) {
                remove_field(mount, "volumeStatus");
            }
        }
    }
}

/// Label keys to match by become expressions of the selector, with the pod's own values, once and for all.
fn merge_label_keys(pod: &mut Value) {
    let Some(labels) = at(pod, &["metadata", "labels"]).and_then(Value::as_object).cloned() else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let preferred = ["spec", "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution"];
        for term in items_mut(pod, &preferred) {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge_term(term, &labels);
            }
        }
        for term in items_mut(pod, &["spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"]) {
            merge_term(term, &labels);
        }
    }
    for constraint in items_mut(pod, &["spec", "topologySpreadConstraints"]) {
        merge_keys(constraint, "matchLabelKeys", "In", &labels);
    }
}

fn merge_term(term: &mut Value, labels: &Map<String, Value>) {
    merge_keys(term, "matchLabelKeys", "In", labels);
    merge_keys(term, "mismatchLabelKeys", "NotIn", labels);
}

fn merge_keys(term: &mut Value, keys: &str, operator: &str, labels: &Map<String, Value>) {
    let keys = term.get(keys).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let expressions: Vec<Value> =
        keys.filter_map(|key| Some(json!({"key": key, "operator": operator, "values": [labels.get(key)?]}))).collect();
    // Without a selector the term matches nothing, whatever the keys say.
    let Some(selector) = at_mut(term, &["labelSelector"]).and_then(Value::as_object_mut) else { return };
    if expressions.is_empty() {
        return;
    }
    match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        Some(present) => present.extend(expressions),
        None => _ = selector.insert("matchExpressions".to_owned(), expressions.into()),
    }
}

/// The deprecated AppArmor annotations become fields where the fields are not set, with a warning each.
fn sync_app_armor(pod: &mut Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(annotations) = at(pod, &["metadata", "annotations"]).and_then(Value::as_object).cloned() else {
        return warnings;
    };
    let has_any = annotations.keys().any(|key| key.starts_with(APP_ARMOR_PREFIX));
    if !has_any || text(pod, &["spec", "os", "name"]) == "windows" {
        return warnings;
    }
    let pod_profile = at(pod, &["spec", "securityContext", "appArmorProfile"]).cloned();
    for list in CONTAINER_LISTS {
        for container in items_mut(pod, &["spec", list]) {
            let key = format!("{APP_ARMOR_PREFIX}{}", text(container, &["name"]));
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else { continue };
            if at(container, &["securityContext", "appArmorProfile"]).is_some() {
                continue;
            }
            let profile = security::app_armor_of_annotation(annotation).filter(is_valid);
            let profile = profile.and_then(|profile| serde_json::to_value(profile).ok());
            let warns = match profile {
                None => true,
                Some(profile) if pod_profile.as_ref() == Some(&profile) => false,
                Some(profile) => {
                    let context = container.as_object_mut().and_then(|c| object_or_new(c, "securityContext"));
                    if let Some(context) = context {
                        context.insert("appArmorProfile".to_owned(), profile);
                    }
                    true
                }
            };
            if warns {
                let at = field::Path::new("metadata").child("annotations").key(&key);
                warnings.push(format!("{at}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
            }
        }
    }
    warnings
}

fn is_valid(profile: &AppArmorProfile) -> bool {
    let root = field::Path::default();
    let mut report = Report::default();
    security::validate_app_armor(&mut report, &Place::root(&root), Some(profile));
    report.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{edited, pod, template};

    /// AS-173.
    #[test]
    fn new_pods_start_pending() {
        let mut new =
            edited(pod(), &json!({"metadata": {"generation": 7}, "status": {"phase": "Running", "podIP": "1.2.3.4"}}));
        assert_eq!(prepare_for_create(&mut new), [""; 0]);
        assert_eq!(new["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(new["metadata"]["generation"], 1);

        let mut gated = edited(pod(), &json!({"spec": {"schedulingGates": [{"name": "g"}]}}));
        prepare_for_create(&mut gated);
        assert_eq!(
            gated["status"]["conditions"],
            json!([{
                "type": "PodScheduled", "status": "False", "lastProbeTime": null,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }])
        );
    }

    /// AS-175: status stays, and only a changed spec counts.
    #[test]
    fn updates_count_when_the_spec_changes() {
        let old = edited(pod(), &json!({"metadata": {"generation": 3}, "status": {"phase": "Running"}}));
        let updated = |edit: Value| {
            let mut new = edited(old.clone(), &edit);
            prepare_for_update(&mut new, &old);
            (new["metadata"]["generation"].clone(), new["status"].clone())
        };
        let running = json!({"phase": "Running"});
        assert_eq!(updated(json!({"metadata": {"labels": {"a": "b"}}, "status": null})), (json!(3), running.clone()));
        assert_eq!(updated(json!({"spec": {"containers": [{"image": "b"}]}})), (json!(4), running));
    }

    /// AS-112, AS-176.
    #[test]
    fn status_updates_touch_only_status_and_some_metadata() {
        let old = edited(
            pod(),
            &json!({
                "metadata": {"ownerReferences": [{"uid": "o"}]},
                "status": {"phase": "Pending", "qosClass": "BestEffort", "observedGeneration": 2, "conditions": [
                    {"type": "A", "observedGeneration": 1}, {"type": "A", "observedGeneration": 2}, {"type": "B"}]},
            }),
        );
        let mut new = edited(
            pod(),
            &json!({
                "metadata": {"labels": {"a": "b"}, "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": []},
                "spec": {"nodeName": "n1"},
                "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
                    {"type": "A"}, {"type": "A", "observedGeneration": 5}, {"type": "C"}]},
            }),
        );
        prepare_for_status_update(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(new["metadata"]["ownerReferences"], old["metadata"]["ownerReferences"]);
        assert_eq!(new["metadata"].get("deletionTimestamp"), None);
        assert_eq!(
            new["status"],
            json!({
                "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "qosClass": "BestEffort", "observedGeneration": 2,
                "conditions": [
                    {"type": "A", "observedGeneration": 1}, {"type": "A", "observedGeneration": 5}, {"type": "C"}],
            })
        );
    }

    /// JA-C7.
    #[test]
    fn fields_behind_closed_gates_are_dropped_unless_stored() {
        let spec = json!({
            "schedulingGroup": {"podGroupName": "g"},
            "containers": [{"lifecycle": {"stopSignal": "SIGTERM"}}],
            "volumes": [{"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {"path": "a"}}, {"podCertificate": {"keyPath": "b"}}]}}],
        });
        let full = edited(template(), &json!({"spec": spec}));
        let mut new = full.clone();
        drop_disabled_template_fields(&mut new, None);
        assert_eq!(new["spec"].get("schedulingGroup"), None);
        assert_eq!(new["spec"]["containers"][0].get("lifecycle"), None);
        assert_eq!(new["spec"]["volumes"][0]["projected"]["sources"], json!([{}, {}]));

        let mut kept = full.clone();
        drop_disabled_template_fields(&mut kept, Some(&full));
        assert_eq!(kept, full);

        let mut hook = edited(
            template(),
            &json!({"spec": {"containers": [
            {"lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}}]}}),
        );
        drop_disabled_template_fields(&mut hook, None);
        assert_eq!(hook["spec"]["containers"][0]["lifecycle"], json!({"preStop": {"sleep": {"seconds": 1}}}));
    }

    #[test]
    fn label_keys_become_part_of_selectors() {
        let mut new = edited(
            pod(),
            &json!({
                "metadata": {"labels": {"app": "x", "rev": "1"}},
                "spec": {
                    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {}, "matchLabelKeys": ["app", "none"], "mismatchLabelKeys": ["rev"]}]}},
                    "topologySpreadConstraints": [
                        {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "matchLabelKeys": ["rev"]},
                        {"matchLabelKeys": ["rev"]}],
                },
            }),
        );
        prepare_for_create(&mut new);
        let term = &new["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(
            term["labelSelector"],
            json!({"matchExpressions": [
                {"key": "app", "operator": "In", "values": ["x"]}, {"key": "rev", "operator": "NotIn", "values": ["1"]}]})
        );
        let constraints = &new["spec"]["topologySpreadConstraints"];
        assert_eq!(
            constraints[0]["labelSelector"]["matchExpressions"],
            json!([{"key": "a", "operator": "Exists"}, {"key": "rev", "operator": "In", "values": ["1"]}])
        );
        assert_eq!(constraints[1].get("labelSelector"), None);
    }

    #[test]
    fn app_armor_annotations_become_fields() {
        let key = format!("{APP_ARMOR_PREFIX}main");
        let created = |annotation: &str, pod_profile: Value| {
            let edit = json!({
                "metadata": {"annotations": {key.as_str(): annotation}},
                "spec": {"securityContext": {"appArmorProfile": pod_profile}},
            });
            let mut new = edited(pod(), &edit);
            let warnings = prepare_for_create(&mut new);
            (new["spec"]["containers"][0]["securityContext"]["appArmorProfile"].take(), warnings)
        };
        let warning =
            format!("metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead");
        let localhost = json!({"type": "Localhost", "localhostProfile": "a"});
        assert_eq!(created("localhost/a", Value::Null), (localhost.clone(), vec![warning.clone()]));
        assert_eq!(created("localhost/a", localhost), (Value::Null, vec![]));
        assert_eq!(created("mine", Value::Null), (Value::Null, vec![warning]));
    }
}
