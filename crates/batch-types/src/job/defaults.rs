//! What a Job means where it says nothing (JA-D1…D8).
//!
//! Defaults apply each time an object is read, from a request or from the store, so they must not depend on anything
//! else and applying them twice must change nothing.

use serde_json::{Map, Value};

use crate::constants::value;
use crate::gates::Gates;
use crate::json::{at, is_unset, items_mut, object_or_new, set_default};
use crate::pod;

/// What defaulting did that the create strategy has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaulted {
    /// `metadata.labels` was empty and is now the template's labels (JA-D4). Upstream makes the two one map, so labels
    /// generated later appear in both.
    pub labels_from_template: bool,
}

/// Fills in a Job.
pub fn default(job: &mut Value, gates: &Gates) -> Defaulted {
    let Some(fields) = job.as_object_mut() else { return Defaulted::default() };
    if let Some(spec) = object_or_new(fields, "spec") {
        set_default(spec, "template", Map::new());
        if let Some(template) = spec.get_mut("template") {
            pod::default_template(template);
        }
        default_spec(spec, gates);
    }
    default_condition_patterns(job, &["spec"]);
    Defaulted { labels_from_template: default_labels(job) }
}

/// Condition patterns of a pod failure policy mean "true" (JA-D7); `spec` says where the Job spec is.
pub(crate) fn default_condition_patterns(object: &mut Value, spec: &[&str]) {
    let rules = [spec, &["podFailurePolicy", "rules"]].concat();
    for rule in items_mut(object, &rules) {
        for pattern in items_mut(rule, &["onPodConditions"]).filter_map(Value::as_object_mut) {
            if pattern.get("status").is_none_or(|status| status.is_null() || status == "") {
                pattern.insert("status".to_owned(), "True".into());
            }
        }
    }
}

fn default_spec(spec: &mut Map<String, Value>, gates: &Gates) {
    if is_unset(spec, "completions") && is_unset(spec, "parallelism") {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let backoff_limit = if is_unset(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
    set_default(spec, "backoffLimit", backoff_limit);
    set_default(spec, "completionMode", value::NON_INDEXED);
    set_default(spec, "suspend", false);
    if gates.job_pod_replacement_policy {
        let unset = is_unset(spec, "podFailurePolicy");
        let policy = if unset { value::REPLACE_TERMINATING_OR_FAILED } else { value::REPLACE_FAILED };
        set_default(spec, "podReplacementPolicy", policy);
    }
    set_default(spec, "manualSelector", false);
}

/// Gives a Job without labels those of its template; whether it did.
fn default_labels(job: &mut Value) -> bool {
    let is_filled = |labels: &Value| labels.as_object().is_some_and(|labels| !labels.is_empty());
    if at(job, &["metadata", "labels"]).is_some_and(is_filled) {
        return false;
    }
    let Some(labels) = at(job, &["spec", "template", "metadata", "labels"]).filter(|labels| is_filled(labels)) else {
        return false;
    };
    let labels = labels.clone();
    let Some(metadata) = job.as_object_mut().and_then(|job| object_or_new(job, "metadata")) else { return false };
    metadata.insert("labels".to_owned(), labels);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The spec after defaulting, without the template, and what defaulting reported.
    fn defaulted(mut job: Value) -> (Value, Value, bool) {
        let done = default(&mut job, &Gates::DEFAULT);
        let mut spec = job["spec"].take();
        spec.as_object_mut().unwrap().shift_remove("template");
        (spec, job["metadata"]["labels"].take(), done.labels_from_template)
    }

    #[test]
    fn unset_fields_get_their_defaults() {
        let base = json!({"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "suspend": false, "podReplacementPolicy": "TerminatingOrFailed", "manualSelector": false});
        let with = |changes: Value| {
            let mut all = base.clone();
            for (key, value) in changes.as_object().unwrap() {
                all[key] = value.clone();
            }
            all
        };
        let without = |key: &str, changes: Value| {
            let mut all = with(changes);
            all.as_object_mut().unwrap().shift_remove(key);
            all
        };
        let cases = [
            (json!({}), base.clone()),
            (json!({"suspend": true}), with(json!({"suspend": true}))),
            (json!({"parallelism": 0}), without("completions", json!({"parallelism": 0}))),
            (json!({"parallelism": 2, "completions": null}), with(json!({"parallelism": 2, "completions": null}))),
            (json!({"completions": 2}), with(json!({"completions": 2}))),
            (json!({"backoffLimit": 5}), with(json!({"backoffLimit": 5}))),
            (json!({"backoffLimitPerIndex": 1}), with(json!({"backoffLimitPerIndex": 1, "backoffLimit": i32::MAX}))),
            (
                json!({"backoffLimitPerIndex": 1, "backoffLimit": 3}),
                with(json!({"backoffLimitPerIndex": 1, "backoffLimit": 3})),
            ),
            (
                json!({"podFailurePolicy": {"rules": []}}),
                with(json!({"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "Failed"})),
            ),
        ];
        for (spec, wanted) in cases {
            assert_eq!(defaulted(json!({"spec": spec})).0, wanted, "{spec}");
        }
        let full = json!({"completions": 8, "parallelism": 9, "backoffLimit": 10, "completionMode": "Indexed",
            "suspend": true, "podReplacementPolicy": "Failed", "manualSelector": true});
        assert_eq!(defaulted(json!({"spec": full})).0, full);
    }

    #[test]
    fn condition_patterns_default_to_true() {
        let rules = json!([{"onPodConditions": [{"type": "A"}, {"type": "B", "status": ""}, {"type": "C", "status": "False"}]},
            {"onExitCodes": {"operator": "In", "values": [1]}}]);
        let (spec, _, _) = defaulted(json!({"spec": {"podFailurePolicy": {"rules": rules}}}));
        let rule = &spec["podFailurePolicy"]["rules"];
        assert_eq!(
            rule[0]["onPodConditions"],
            json!([{"type": "A", "status": "True"}, {"type": "B", "status": "True"}, {"type": "C", "status": "False"}])
        );
        assert_eq!(rule[1], json!({"onExitCodes": {"operator": "In", "values": [1]}}));
    }

    #[test]
    fn a_job_without_labels_gets_the_templates() {
        let job = |labels: Value, template: Value| json!({"metadata": {"labels": labels}, "spec": {"template": {"metadata": {"labels": template}}}});
        let labels = |labels, template| {
            let (_, labels, copied) = defaulted(job(labels, template));
            (labels, copied)
        };
        assert_eq!(labels(json!(null), json!({"a": "b"})), (json!({"a": "b"}), true));
        assert_eq!(labels(json!({}), json!({"a": "b"})), (json!({"a": "b"}), true));
        assert_eq!(labels(json!({"c": "d"}), json!({"a": "b"})), (json!({"c": "d"}), false));
        assert_eq!(labels(json!({"a": "b"}), json!({"a": "b"})), (json!({"a": "b"}), false));
        assert_eq!(labels(json!(null), json!(null)), (json!(null), false));
    }

    #[test]
    fn without_its_gate_the_replacement_policy_stays_unset() {
        let mut job = json!({});
        default(&mut job, &Gates { job_pod_replacement_policy: false, ..Gates::DEFAULT });
        assert_eq!(job["spec"].get("podReplacementPolicy"), None);
    }

    /// JSON that has the names of Job fields in plausible and implausible places.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2i64..200_000).prop_map(Value::from),
            prop_oneof![Just(""), Just("Indexed"), Just("True"), Just("a")].prop_map(Value::from),
        ];
        let keys = prop::sample::select(vec![
            "metadata",
            "labels",
            "spec",
            "status",
            "template",
            "selector",
            "matchLabels",
            "podFailurePolicy",
            "rules",
            "onPodConditions",
            "completions",
            "parallelism",
            "manualSelector",
            "backoffLimitPerIndex",
            "containers",
            "name",
            "generation",
            "uid",
            "image",
            "volumes",
            "initContainers",
            "jobTemplate",
            "resources",
            "limits",
            "env",
            "ports",
            "livenessProbe",
            "httpGet",
            "lifecycle",
            "securityContext",
            "valueFrom",
            "fieldRef",
            "emptyDir",
        ]);
        leaf.prop_recursive(6, 80, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec((keys.clone(), inner), 0..5).prop_map(|fields| Value::Object(
                    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn defaulting_is_idempotent_and_never_fails(mut job in any_json()) {
            default(&mut job, &Gates::DEFAULT);
            let once = job.clone();
            default(&mut job, &Gates::DEFAULT);
            prop_assert_eq!(&job, &once);
            crate::cronjob::default(&mut job);
            let once = job.clone();
            crate::cronjob::default(&mut job);
            prop_assert_eq!(job, once);
        }

        #[test]
        fn strategies_never_fail(mut new in any_json(), old in any_json()) {
            use crate::job::*;
            let facts = CreateFacts { uid: "u", generated_name: false, defaulted: Defaulted { labels_from_template: true }, gates: &Gates::DEFAULT };
            prepare_for_update(&mut new, &old, &Gates::DEFAULT);
            prepare_for_status_update(&mut new, &old);
            crate::cronjob::prepare_for_update(&mut new, &old);
            crate::cronjob::prepare_for_create(&mut new);
            prepare_for_create(&mut new, &facts);
            crate::meta::restore_system_fields(&mut new, &old);
            crate::meta::drop_duplicate_owners(&mut new);
        }
    }
}
