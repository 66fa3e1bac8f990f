//! What the tests of this module share: a small valid pod, edits of it, and the lines that come out.

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use crate::field::{Error, Path};

/// A template with one container, as small as it can be.
pub(super) fn template() -> Value {
    json!({
        "metadata": {},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "images.example/app:1.0"}]},
    })
}

/// A pod with the same spec.
pub(super) fn pod() -> Value {
    let mut pod = template();
    pod["metadata"] = json!({
        "name": "demo",
        "namespace": "default",
        "uid": "u1",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    pod
}

/// `base` changed by a JSON merge patch, with one extension: a list under `containers` or `initContainers` is merged
/// item by item.
pub(super) fn edited(mut base: Value, edit: &Value) -> Value {
    merge(&mut base, edit);
    base
}

fn merge(target: &mut Value, edit: &Value) {
    let Value::Object(edit) = edit else {
        *target = edit.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (key, value) in edit {
        match (fields.get_mut(key), value) {
            (_, Value::Null) => _ = fields.shift_remove(key),
            (Some(Value::Array(items)), Value::Array(edits)) if key == "containers" && !edits.is_empty() => {
                items.resize(items.len().max(edits.len()), json!({}));
                items.iter_mut().zip(edits).for_each(|(item, edit)| merge(item, edit));
            }
            (Some(present), value) => merge(present, value),
            (None, value) => {
                let mut new = Value::Null;
                merge(&mut new, value);
                fields.insert(key.clone(), new);
            }
        }
    }
}

pub(super) fn typed_pod(pod: &Value) -> core::Pod {
    serde_json::from_value(pod.clone()).expect("tests write well-formed pods")
}

pub(super) fn typed_template(template: &Value) -> core::PodTemplateSpec {
    serde_json::from_value(template.clone()).expect("tests write well-formed templates")
}

pub(super) fn lines(errors: &[Error]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// What is wrong with the template after an edit of its spec, with paths that start at `spec`.
pub(super) fn template_errors(spec_edit: &Value) -> Vec<String> {
    let mut template = edited(template(), &json!({"spec": spec_edit}));
    super::default_template(&mut template);
    lines(&super::validate_template_for_job(&typed_template(&template), &Path::default()))
}

/// What is wrong with a new pod after an edit.
pub(super) fn pod_errors(edit: &Value) -> Vec<String> {
    let mut pod = edited(pod(), edit);
    super::default(&mut pod);
    lines(&super::validate(&typed_pod(&pod)))
}

/// Checks edits of the template's spec against the lines they produce; no lines means valid.
pub(super) fn check_templates(cases: &[(Value, &[&str])]) {
    for (edit, expected) in cases {
        assert_eq!(template_errors(edit), *expected, "{edit}");
    }
}

/// The same for edits of the template's only container, with paths that start at the container.
pub(super) fn check_containers(cases: &[(Value, &[&str])]) {
    const AT: &str = "spec.containers[0].";
    for (edit, expected) in cases {
        let errors = template_errors(&json!({"containers": [edit]}));
        let errors: Vec<&str> = errors.iter().map(|line| line.strip_prefix(AT).unwrap_or(line)).collect();
        assert_eq!(errors, *expected, "{edit}");
    }
}

/// The same for one volume named `v`, with paths that start at the volume.
pub(super) fn check_volumes(cases: &[(Value, &[&str])]) {
    const AT: &str = "spec.volumes[0]";
    for (source, expected) in cases {
        let volume = edited(json!({"name": "v"}), source);
        let errors = template_errors(&json!({"volumes": [volume]}));
        let errors: Vec<&str> = errors
            .iter()
            .map(|line| line.strip_prefix(AT).unwrap_or(line))
            .map(|line| line.strip_prefix('.').unwrap_or(line))
            .collect();
        assert_eq!(errors, *expected, "{source}");
    }
}
