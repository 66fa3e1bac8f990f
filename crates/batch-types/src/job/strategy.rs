//! What the server does to a Job before checking it: status, generation, generated labels and selector (JA-C3…C7,
//! JA-U1, JA-U2, JA-S1).

use serde_json::{Map, Value};

use super::Defaulted;
use crate::constants::label;
use crate::equality::semantic_eq;
use crate::gates::Gates;
use crate::json::{at, copy_field, is_unset, object_or_new, remove_field};
use crate::pod;

/// What a create strategy has to know about the request.
#[derive(Debug, Clone, Copy)]
pub struct CreateFacts<'a> {
    /// The uid the new Job has got.
    pub uid: &'a str,
    /// Whether its name was made from `generateName`.
    pub generated_name: bool,
    /// What [`default`](super::default) said when the request was decoded.
    pub defaulted: Defaulted,
    pub gates: &'a Gates,
}

/// Makes a decoded and defaulted Job, with name and uid set, ready to be checked and stored.
pub fn prepare_for_create(job: &mut Value, facts: &CreateFacts<'_>) {
    generate_selector(job, facts);
    let Some(fields) = job.as_object_mut() else { return };
    fields.insert("status".to_owned(), Map::new().into());
    if let Some(metadata) = object_or_new(fields, "metadata") {
        metadata.insert("generation".to_owned(), 1.into());
    }
    let Some(spec) = job.get_mut("spec") else { return };
    let dropped = [
        ("managedBy", facts.gates.job_managed_by),
        ("podReplacementPolicy", facts.gates.job_pod_replacement_policy),
        ("ttlSecondsAfterFinished", facts.gates.ttl_after_finished),
    ];
    for (field, _) in dropped.iter().filter(|(_, enabled)| !enabled) {
        remove_field(spec, field);
    }
    if let Some(template) = spec.get_mut("template") {
        pod::drop_disabled_template_fields(template, None);
    }
}

/// Undoes what an update of the main resource may not change and counts a changed spec.
pub fn prepare_for_update(new: &mut Value, old: &Value, gates: &Gates) {
    restore_status(new, old);
    let none = Value::Object(Map::new());
    let old_spec = old.get("spec").unwrap_or(&none);
    if let Some(spec) = new.get_mut("spec") {
        // A field whose gate is off stays where it is already used. `managedBy` is immutable and needs no rule here.
        let dropped = [
            ("podReplacementPolicy", gates.job_pod_replacement_policy),
            ("ttlSecondsAfterFinished", gates.ttl_after_finished),
        ];
        for (field, enabled) in dropped {
            if !enabled && at(old_spec, &[field]).is_none() {
                remove_field(spec, field);
            }
        }
        if let Some(template) = spec.get_mut("template") {
            pod::drop_disabled_template_fields(template, at(old_spec, &["template"]));
        }
    }
    set_generation(new, old);
}

/// Undoes everything but status and metadata in an update of `/status` (JA-S1).
pub fn prepare_for_status_update(new: &mut Value, old: &Value) {
    copy_field(new, old, "spec");
    if let Some(metadata) = new.get_mut("metadata") {
        copy_field(metadata, old.get("metadata").unwrap_or(&Value::Null), "generation");
    }
}

/// Puts the stored status back; a main resource update does not touch it.
pub(crate) fn restore_status(new: &mut Value, old: &Value) {
    copy_field(new, old, "status");
    if let Some(fields) = new.as_object_mut()
        && is_unset(fields, "status")
    {
        fields.insert("status".to_owned(), Map::new().into());
    }
}

/// The stored generation, one more if the spec now means something else (JA-U2).
pub(crate) fn set_generation(new: &mut Value, old: &Value) {
    let spec = |object: &Value| object.get("spec").cloned().unwrap_or_default();
    let changed = match (new.get("spec"), old.get("spec")) {
        (Some(new), Some(old)) => !semantic_eq(new, old),
        _ => !semantic_eq(&spec(new), &spec(old)),
    };
    let stored = at(old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
    if let Some(metadata) = new.as_object_mut().and_then(|new| object_or_new(new, "metadata")) {
        metadata.insert("generation".to_owned(), stored.saturating_add(changed.into()).into());
    }
}

/// Labels the template and selects those labels, unless the user does (JA-C4, JA-C5). What is there stays; conflicts
/// are refused by validation.
fn generate_selector(job: &mut Value, facts: &CreateFacts<'_>) {
    if at(job, &["spec", "manualSelector"]).and_then(Value::as_bool).unwrap_or_default() {
        return;
    }
    let name = at(job, &["metadata", "name"]).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = job.as_object_mut().and_then(|job| object_or_new(job, "spec")) else { return };
    let template = object_or_new(spec, "template").and_then(|template| object_or_new(template, "metadata"));
    if let Some(labels) = template.and_then(|metadata| object_or_new(metadata, "labels")) {
        let generated = [
            (label::LEGACY_JOB_NAME, name.as_str()),
            (label::JOB_NAME, name.as_str()),
            (label::LEGACY_CONTROLLER_UID, facts.uid),
            (label::CONTROLLER_UID, facts.uid),
        ];
        for (key, value) in generated {
            labels.entry(key).or_insert_with(|| value.into());
        }
        labels.sort_keys();
    }
    if let Some(labels) = object_or_new(spec, "selector").and_then(|selector| object_or_new(selector, "matchLabels")) {
        labels.entry(label::CONTROLLER_UID).or_insert_with(|| facts.uid.into());
        labels.sort_keys();
    }
    share_labels(job, facts);
}

/// With a fixed name, labels that defaulting took from the template are the very map that was just added to; a
/// generated name makes upstream copy the object first, which parts the two (JA-D4).
fn share_labels(job: &mut Value, facts: &CreateFacts<'_>) {
    if !facts.defaulted.labels_from_template || facts.generated_name {
        return;
    }
    let Some(labels) = at(job, &["spec", "template", "metadata", "labels"]).cloned() else { return };
    if let Some(metadata) = job.as_object_mut().and_then(|job| object_or_new(job, "metadata")) {
        metadata.insert("labels".to_owned(), labels);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::default;

    fn created(mut job: Value, generated_name: bool) -> Value {
        let defaulted = default(&mut job, &Gates::DEFAULT);
        prepare_for_create(&mut job, &CreateFacts { uid: "u1", generated_name, defaulted, gates: &Gates::DEFAULT });
        job
    }

    fn four_labels() -> Value {
        json!({"batch.kubernetes.io/controller-uid": "u1", "batch.kubernetes.io/job-name": "demo", "controller-uid": "u1", "job-name": "demo"})
    }

    fn with_app(mut labels: Value) -> Value {
        labels["app"] = json!("x");
        labels
    }

    #[test]
    fn labels_and_selector_are_generated() {
        let job =
            created(json!({"metadata": {"name": "demo"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}}), false);
        assert_eq!(job["spec"]["template"]["metadata"]["labels"], four_labels());
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"a": "b", "batch.kubernetes.io/controller-uid": "u1"}})
        );
        assert_eq!(job["metadata"].get("labels"), None);
    }

    #[test]
    fn what_the_user_set_stays() {
        let labels = json!({"job-name": "other", "batch.kubernetes.io/controller-uid": "x"});
        let job = created(
            json!({"metadata": {"name": "demo", "labels": {"a": "b"}}, "spec": {
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "y"}}, "template": {"metadata": {"labels": labels}}}}),
            false,
        );
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({"job-name": "other", "batch.kubernetes.io/controller-uid": "x", "batch.kubernetes.io/job-name": "demo", "controller-uid": "u1"})
        );
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "y"}}));
        assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn with_a_manual_selector_nothing_is_generated() {
        let job = created(json!({"metadata": {"name": "demo"}, "spec": {"manualSelector": true}}), false);
        assert_eq!(job["spec"].get("selector"), None);
        assert_eq!(job["spec"]["template"].get("metadata"), None);
    }

    #[test]
    fn defaulted_labels_grow_with_the_templates_unless_the_name_is_generated() {
        let job = json!({"metadata": {"name": "demo"}, "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}});
        assert_eq!(created(job.clone(), false)["metadata"]["labels"], with_app(four_labels()));
        assert_eq!(created(job, true)["metadata"]["labels"], json!({"app": "x"}));
    }

    #[test]
    fn status_and_generation_start_anew() {
        let job = created(json!({"metadata": {"name": "demo", "generation": 9}, "status": {"active": 1}}), false);
        assert_eq!((&job["status"], &job["metadata"]["generation"]), (&json!({}), &json!(1)));
    }

    #[test]
    fn gates_that_are_off_drop_their_fields() {
        let spec = json!({"managedBy": "a/b", "podReplacementPolicy": "Failed", "ttlSecondsAfterFinished": 1});
        let off = Gates { job_managed_by: false, job_pod_replacement_policy: false, ttl_after_finished: false };
        let mut job = json!({"spec": spec});
        let facts = CreateFacts { uid: "u1", generated_name: false, defaulted: Defaulted::default(), gates: &off };
        prepare_for_create(&mut job, &facts);
        for field in ["managedBy", "podReplacementPolicy", "ttlSecondsAfterFinished"] {
            assert_eq!(job["spec"].get(field), None, "{field}");
        }
        let kept = created(json!({"spec": spec}), false);
        for field in ["managedBy", "podReplacementPolicy", "ttlSecondsAfterFinished"] {
            assert_eq!(kept["spec"][field], spec[field], "{field}");
        }

        let (mut new, old) = (json!({"spec": spec}), json!({"spec": {"ttlSecondsAfterFinished": 5}}));
        prepare_for_update(&mut new, &old, &off);
        assert_eq!(new["spec"], json!({"managedBy": "a/b", "ttlSecondsAfterFinished": 1}));
    }

    #[test]
    fn generation_counts_changes_of_the_spec() {
        let old =
            json!({"metadata": {"generation": 4}, "spec": {"suspend": false, "template": {}}, "status": {"active": 1}});
        let update = |change: &dyn Fn(&mut Value)| {
            let mut new = old.clone();
            change(&mut new);
            prepare_for_update(&mut new, &old, &Gates::DEFAULT);
            new
        };
        let new = update(&|job| job["spec"]["suspend"] = json!(true));
        assert_eq!(new["metadata"]["generation"], 5);
        let new = update(&|job| job["metadata"] = json!({"labels": {"a": "b"}}));
        assert_eq!(new["metadata"], json!({"labels": {"a": "b"}, "generation": 4}));
        let new = update(&|job| job["status"] = json!({"active": 7}));
        assert_eq!((&new["status"], &new["metadata"]["generation"]), (&json!({"active": 1}), &json!(4)));
        let new = update(&|job| job["spec"]["tolerations"] = json!([]));
        assert_eq!(new["metadata"]["generation"], 4);
    }

    #[test]
    fn a_status_update_keeps_the_spec() {
        let old = json!({"metadata": {"generation": 4}, "spec": {"parallelism": 1}, "status": {}});
        let mut new = json!({"metadata": {"generation": 9, "labels": {"a": "b"}}, "spec": {"parallelism": 2}, "status": {"active": 1}});
        prepare_for_status_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 4, "labels": {"a": "b"}}, "spec": {"parallelism": 1}, "status": {"active": 1}})
        );
    }
}
