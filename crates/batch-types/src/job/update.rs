//! What may change in a Job (JA section 8).
//!
//! Permissions look at the *old* object, so that a Job may be resumed and changed in one request.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Affinity, Container, PodSpec};
use serde::Serialize;
use serde_json::Value;
use teeth::{Mutation, is};

use super::validation::{Options, template_labels, validate_spec, validate_with};
use super::{has_condition, is_indexed};
use crate::constants::{condition, label};
use crate::equality::typed_eq;
use crate::field::{Error, Path};
use crate::meta::{self, IMMUTABLE};
use crate::selector;

/// Everything wrong with an update: the new object by itself, then the change. Errors of the spec are found by both,
/// and upstream reports both (JA-U4).
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
    errors.extend(immutable(
        &new_spec.pod_failure_policy,
        &old_spec.pod_failure_policy,
        &path.child("podFailurePolicy"),
    ));
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
    (new.parallelism != Some(completions))
        .then(|| Error::invalid(&field, completions, format!("can only be modified in tandem with {path}.parallelism")))
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
    spec.suspend == Some(true)
        && active == 0
        && (!(started || is(Mutation::V03)) || has_condition(job, condition::SUSPENDED))
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
        (old, Some(new)) => Some(Affinity { node_affinity: new.node_affinity.clone(), ..old.unwrap_or_default() }),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{merged, texts, valid};
    use super::*;

    /// Errors of merging `change` into a valid Job that `setup` was merged into; each once, as messages show them.
    fn change(setup: Value, change: Value) -> Vec<String> {
        let old = merged(valid(), &setup);
        let new = merged(old.clone(), &change);
        let errors = validate_update(&serde_json::from_value(new).unwrap(), &serde_json::from_value(old).unwrap());
        let mut unique: Vec<String> = Vec::new();
        for text in texts(&errors) {
            if !unique.contains(&text) {
                unique.push(text);
            }
        }
        unique
    }

    /// The same, without what the values were.
    fn fields(setup: Value, change_: Value) -> Vec<String> {
        let field = |text: String| text.split(": ").next().unwrap_or_default().to_owned();
        change(setup, change_).into_iter().map(field).collect()
    }

    fn indexed(completions: i32, parallelism: i32) -> Value {
        json!({"spec": {"completionMode": "Indexed", "completions": completions, "parallelism": parallelism}})
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn what_may_change_freely() {
        let free = json!({"spec": {"parallelism": 2, "activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 2, "backoffLimit": 1,
            "suspend": true, "podReplacementPolicy": "Failed", "manualSelector": true}, "metadata": {"labels": {"a": "b"}}});
        assert_eq!(change(json!({}), free), NONE);
        let limit = json!({"spec": {"backoffLimitPerIndex": 1, "maxFailedIndexes": 1}});
        let setup = merged(indexed(3, 3), &limit);
        for max in [json!(null), json!(2)] {
            assert_eq!(change(setup.clone(), json!({"spec": {"maxFailedIndexes": max}})), NONE);
        }
    }

    /// INV-45.
    #[test]
    fn what_may_never_change() {
        let suspended = json!({"spec": {"suspend": true}});
        let cases = [
            (json!({}), json!({"managedBy": "a/b"}), "spec.managedBy: Invalid value: \"a/b\": field is immutable"),
            (
                json!({"managedBy": "a/b"}),
                json!({"managedBy": null}),
                "spec.managedBy: Invalid value: null: field is immutable",
            ),
            (json!({}), json!({"completions": null}), "spec.completions: Invalid value: null: field is immutable"),
            (
                json!({"completions": 2}),
                json!({"completions": 4}),
                "spec.completions: Invalid value: 4: field is immutable",
            ),
            (
                json!({"podReplacementPolicy": "Failed"}),
                json!({"podFailurePolicy": {"rules": []}}),
                "spec.podFailurePolicy: Invalid value: {\"rules\":[]}: field is immutable",
            ),
            (
                json!({"completionMode": "Indexed"}),
                json!({"completionMode": "NonIndexed"}),
                "spec.completionMode: Invalid value: \"NonIndexed\": field is immutable",
            ),
            (
                json!({"completionMode": "Indexed", "backoffLimitPerIndex": 1}),
                json!({"backoffLimitPerIndex": 2}),
                "spec.backoffLimitPerIndex: Invalid value: 2: field is immutable",
            ),
            (
                json!({"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededCount": 1}]}}),
                json!({"successPolicy": null}),
                "spec.successPolicy: Invalid value: null: field is immutable",
            ),
            (
                json!({"manualSelector": true}),
                json!({"selector": {"matchLabels": {"job-name": "myjob"}}}),
                "spec.selector: Invalid value: {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"1a2b3c\",\"job-name\":\"myjob\"}}: field is immutable",
            ),
        ];
        for (setup, update, wanted) in cases {
            let setup = json!({"spec": setup});
            assert_eq!(change(setup.clone(), json!({"spec": update})), [wanted]);
            assert_eq!(change(merged(setup, &suspended), json!({"spec": update})), [wanted]);
        }
    }

    #[test]
    fn indexed_jobs_are_scaled_in_tandem() {
        let tandem = "can only be modified in tandem with spec.parallelism";
        let cases = [
            (indexed(1, 1), indexed(2, 2), vec![]),
            (indexed(1, 2), indexed(3, 3), vec![]),
            (indexed(2, 2), indexed(2, 1), vec![]),
            (indexed(2, 2), indexed(2, 3), vec![]),
            (indexed(1, 1), indexed(2, 3), vec![format!("spec.completions: Invalid value: 2: {tandem}")]),
            (
                indexed(1, 1),
                json!({"spec": {"completions": null}}),
                vec!["spec.completions: Required value: when completion mode is Indexed".to_owned()],
            ),
        ];
        for (setup, update, wanted) in cases {
            assert_eq!(change(setup, update), wanted);
        }
    }

    fn pod(change: Value) -> Value {
        json!({"spec": {"template": {"spec": change}}})
    }

    /// A template with affinity to nodes, to pods, or both.
    fn affinity(to: &[&str]) -> Value {
        let nodes = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]});
        let pods = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "a", "labelSelector": {"matchLabels": {"a": "b"}}}}]});
        let fields = to.iter().map(|field| {
            let terms = if *field == "nodeAffinity" { &nodes } else { &pods };
            ((*field).to_owned(), terms.clone())
        });
        pod(json!({"affinity": Value::Object(fields.collect())}))
    }

    /// Changes of scheduling that only a Job without pods may make.
    fn directives() -> Vec<Value> {
        vec![
            pod(json!({"nodeSelector": {"a": "b"}})),
            pod(json!({"tolerations": [{"key": "a", "operator": "Exists"}]})),
            pod(json!({"schedulingGates": [{"name": "a"}]})),
            affinity(&["nodeAffinity"]),
            json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}),
            json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
            pod(json!({"containers": [{"name": "ctr", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]})),
            pod(
                json!({"initContainers": [{"name": "def", "image": "busybox", "resources": {"limits": {"cpu": "1"}}}]}),
            ),
        ]
    }

    /// Changes of what the pod runs.
    fn other_changes() -> Vec<Value> {
        vec![
            pod(json!({"dnsPolicy": "Default"})),
            pod(json!({"containers": [{"name": "ctr", "image": "other"}]})),
            pod(json!({"containers": [{"name": "new", "image": "busybox"}]})),
            pod(json!({"containers": [{"name": "ctr", "image": "busybox"}, {"name": "new", "image": "busybox"}]})),
            pod(json!({"initContainers": null})),
            pod(json!({"resources": {"limits": {"cpu": "1"}}})),
            affinity(&["podAffinity"]),
        ]
    }

    /// The fields that containers have after defaulting, without which every change would be one of them, too.
    fn with_defaults(mut change: Value) -> Value {
        let defaults = json!({"imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File"});
        for list in ["containers", "initContainers"] {
            let list = change.pointer_mut(&format!("/spec/template/spec/{list}"));
            for container in list.and_then(Value::as_array_mut).into_iter().flatten() {
                *container = merged(defaults.clone(), container);
            }
        }
        change
    }

    /// REG-V03: also one that no controller has seen yet.
    #[test]
    fn reg_v03_a_suspended_job_without_pods_may_change_its_scheduling() {
        let condition = |status: &str| json!([{"type": "Suspended", "status": status}]);
        let start = "2024-01-01T00:00:00Z";
        let open = [
            json!({"spec": {"suspend": true}}),
            json!({"spec": {"suspend": true}, "status": {"conditions": condition("True")}}),
            json!({"spec": {"suspend": true}, "status": {"startTime": start, "conditions": condition("True"), "terminating": 1}}),
        ];
        let closed = [
            json!({}),
            json!({"spec": {"suspend": false}, "status": {"conditions": condition("True")}}),
            json!({"spec": {"suspend": true}, "status": {"active": 1}}),
            json!({"spec": {"suspend": true}, "status": {"active": 1, "startTime": start, "conditions": condition("True")}}),
            json!({"spec": {"suspend": true}, "status": {"startTime": start}}),
            json!({"spec": {"suspend": true}, "status": {"startTime": start, "conditions": condition("False")}}),
        ];
        for setup in &open {
            for update in directives().into_iter().map(with_defaults) {
                assert_eq!(change(setup.clone(), update.clone()), NONE, "{setup} {update}");
            }
            for update in other_changes().into_iter().map(with_defaults) {
                assert_eq!(fields(setup.clone(), update.clone()), ["spec.template.spec"], "{setup} {update}");
            }
        }
        for setup in &closed {
            for update in directives().into_iter().chain(other_changes()).map(with_defaults) {
                assert_eq!(fields(setup.clone(), update.clone()), ["spec.template"], "{setup} {update}");
            }
        }
    }

    #[test]
    fn resuming_and_changing_go_together() {
        let update = merged(pod(json!({"nodeSelector": {"a": "b"}})), &json!({"spec": {"suspend": false}}));
        assert_eq!(change(json!({"spec": {"suspend": true}}), update), NONE);
    }

    #[test]
    fn node_affinity_comes_and_goes_but_pod_affinity_stays() {
        let suspended = |setup: Value| merged(setup, &json!({"spec": {"suspend": true}}));
        let none = pod(json!({"affinity": null}));
        let (node, pods, both) =
            (affinity(&["nodeAffinity"]), affinity(&["podAffinity"]), affinity(&["nodeAffinity", "podAffinity"]));
        assert_eq!(change(suspended(node.clone()), none.clone()), NONE);
        assert_eq!(change(suspended(pods.clone()), node), NONE);
        assert_eq!(change(suspended(both.clone()), pod(json!({"affinity": {"nodeAffinity": null}}))), NONE);
        assert_eq!(fields(suspended(pods), none.clone()), ["spec.template.spec"]);
        assert_eq!(fields(suspended(both), none), ["spec.template.spec"]);
    }

    #[test]
    fn a_quantity_spelled_differently_is_no_change() {
        let resources = |cpu: &str| {
            with_defaults(pod(
                json!({"containers": [{"name": "ctr", "image": "busybox", "resources": {"limits": {"cpu": cpu}}}]}),
            ))
        };
        assert_eq!(change(resources("1"), resources("1000m")), NONE);
        assert_eq!(fields(resources("1"), resources("2")), ["spec.template"]);
    }

    /// INV-45: an update that does not touch what has become invalid is not refused for it.
    #[test]
    fn what_is_stored_stays_acceptable() {
        let prefixed = json!({"batch.kubernetes.io/controller-uid": null, "batch.kubernetes.io/job-name": null});
        let legacy = json!({"spec": {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": null, "controller-uid": "1a2b3c"}},
            "template": {"metadata": {"labels": prefixed}}}});
        let odd = json!({"spec": {"manualSelector": true, "selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["-"]}]}}});
        for setup in [legacy, odd] {
            assert_eq!(change(setup, json!({"metadata": {"annotations": {"a": "b"}}})), NONE);
        }
    }

    #[test]
    fn errors_of_the_spec_are_reported_twice() {
        let old = valid();
        let new = merged(old.clone(), &json!({"spec": {"backoffLimit": -1}}));
        let errors = validate_update(&serde_json::from_value(new).unwrap(), &serde_json::from_value(old).unwrap());
        let wanted = "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(texts(&errors), [wanted, wanted]);
    }
}
