//! What may change in a Job (JA section 8).
//!
//! Permissions look at the *old* object, so that a Job may be resumed and changed in one request.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Affinity, Container, PodSpec};
use serde::Serialize;
use serde_json::Value;

use super::validation::{Options, template_labels, validate_spec, validate_with};
use super::{has_condition, is_indexed};
use crate::constants::{condition, label};
use crate::equality::typed_eq;
use crate::field::{Error, Path};
use crate::meta::{self, IMMUTABLE};
use crate::selector;

/// Everything wrong with an update: the new object by itself, then the change. Errors of the spec are found by both, and
/// upstream reports both (JA-U4).
pub fn validate_update(new: &Job, old: &Job) -> Vec<Error> {
    let unset = JobSpec::default();
    let (new_spec, old_spec) = (new.spec.as_ref().unwrap_or(&unset), old.spec.as_ref().unwrap_or(&unset));
    let options = options(old_spec);
    let mut errors = validate_with(new, &options);
    errors.extend(meta::validate_update(&new.metadata, &old.metadata, &Path::new("metadata")));

    let path = Path::new("spec");
    errors.extend(validate_spec(new_spec, &path, &options));
    errors.extend(validate_completions(new_spec, old_spec, &path));
    if !typed_eq(&new_spec.selector, &old_spec.selector) {
        let shown = selector::value(new_spec.selector.as_ref());
        errors.push(Error::invalid(&path.child("selector"), shown, IMMUTABLE));
    }
    errors.extend(validate_template(new_spec, old, old_spec, &path.child("template")));
    errors.extend(immutable(&new_spec.completion_mode, &old_spec.completion_mode, &path.child("completionMode")));
    errors.extend(immutable(&new_spec.pod_failure_policy, &old_spec.pod_failure_policy, &path.child("podFailurePolicy")));
    errors.extend(immutable(
        &new_spec.backoff_limit_per_index,
        &old_spec.backoff_limit_per_index,
        &path.child("backoffLimitPerIndex"),
    ));
    errors.extend(immutable(&new_spec.managed_by, &old_spec.managed_by, &path.child("managedBy")));
    errors.extend(immutable(&new_spec.success_policy, &old_spec.success_policy, &path.child("successPolicy")));
    errors
}

/// What is already stored stays acceptable (JA-U7, JA-P20).
fn options(old: &JobSpec) -> Options<'_> {
    let had = |key: &str| template_labels(&old.template).is_some_and(|labels| labels.contains_key(key));
    Options {
        prefixed_labels_required: had(label::JOB_NAME) && had(label::CONTROLLER_UID),
        selector_tolerance: selector::Tolerance {
            invalid_label_values: selector::has_invalid_label_value(old.selector.as_ref()),
        },
        old_template: Some(&old.template),
    }
}

/// Fixed, except that an Indexed Job may grow or shrink together with its parallelism (JA-U5).
fn validate_completions(new: &JobSpec, old: &JobSpec, path: &Path) -> Option<Error> {
    let field = path.child("completions");
    if new.completions == old.completions {
        return None;
    }
    if !is_indexed(new) {
        return Some(Error::invalid(&field, new.completions, IMMUTABLE));
    }
    // An Indexed Job without completions is refused already (JA-V18).
    let completions = new.completions?;
    (new.parallelism != Some(completions)).then(|| {
        Error::invalid(&field, completions, format!("can only be modified in tandem with {path}.parallelism"))
    })
}

/// JA-U9…U13.
fn validate_template(new: &JobSpec, old_job: &Job, old: &JobSpec, path: &Path) -> Option<Error> {
    if !is_template_mutable(old_job, old) {
        return immutable(&new.template, &old.template, path);
    }
    // Only the pod is compared from here on; labels and annotations are among what may change.
    let unset = PodSpec::default();
    let new = new.template.spec.as_ref().unwrap_or(&unset);
    let allowed = with_mutable_fields(old.template.spec.clone().unwrap_or_default(), new);
    immutable(new, &allowed, &path.child("spec"))
}

/// Suspended and without running pods: nothing runs by the old template, nor will until it is resumed (JA-U10).
fn is_template_mutable(job: &Job, spec: &JobSpec) -> bool {
    let status = job.status.as_ref();
    let active = status.and_then(|status| status.active).unwrap_or_default();
    let started = status.is_some_and(|status| status.start_time.is_some());
    spec.suspend == Some(true) && active == 0 && (!started || has_condition(job, condition::SUSPENDED))
}

/// The old pod with everything taken from the new one that may differ (JA-U12).
fn with_mutable_fields(mut old: PodSpec, new: &PodSpec) -> PodSpec {
    old.affinity = with_node_affinity(old.affinity, new.affinity.as_ref());
    old.node_selector.clone_from(&new.node_selector);
    old.tolerations.clone_from(&new.tolerations);
    old.scheduling_gates.clone_from(&new.scheduling_gates);
    copy_resources(&mut old.containers, &new.containers);
    if let (Some(old), Some(new)) = (&mut old.init_containers, &new.init_containers) {
        copy_resources(old, new);
    }
    old
}

/// Node affinity may come, change and go, and with it the struct around it; affinity to pods may not (JA-U13).
fn with_node_affinity(old: Option<Affinity>, new: Option<&Affinity>) -> Option<Affinity> {
    match (old, new) {
        (None, None) => None,
        (Some(old), None) => {
            let rest = Affinity { node_affinity: None, ..old };
            (rest != Affinity::default()).then_some(rest)
        }
        (old, Some(new)) => {
            Some(Affinity { node_affinity: new.node_affinity.clone(), ..old.unwrap_or_default() })
        }
    }
}

/// Resources may change for containers that keep their name and place.
fn copy_resources(old: &mut [Container], new: &[Container]) {
    if old.len() != new.len() {
        return;
    }
    for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old.name == new.name) {
        old.resources.clone_from(&new.resources);
    }
}

fn immutable<T: PartialEq + Serialize>(new: &T, old: &T, path: &Path) -> Option<Error> {
    (!typed_eq(new, old)).then(|| {
        let shown = serde_json::to_value(new).unwrap_or(Value::Null);
        Error::invalid(path, shown, IMMUTABLE)
    })
}
