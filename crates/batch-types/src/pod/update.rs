//! What an update of a pod may change (AS-175).

use k8s_openapi::api::core::v1 as core;
use serde_json::Value;

use super::annotations;
use super::containers;
use super::options::Options;
use super::report::{Place, Report};
use super::scheduling;
use super::validate::validate_metadata_and_spec;
use super::zero::{list, text};
use crate::equality::typed_eq;
use crate::field::{Error, Path};
use crate::meta;

const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Everything wrong with replacing `old` by `new`, which [`prepare_for_update`](super::prepare_for_update) has seen.
pub fn validate_update(new: &core::Pod, old: &core::Pod) -> Vec<Error> {
    let default = core::PodSpec::default();
    let spec = new.spec.as_ref().unwrap_or(&default);
    let old_spec = old.spec.as_ref().unwrap_or(&default);
    let options = Options::update(true, old_spec, old.metadata.annotations.as_ref());
    let mut report = Report::default();

    let metadata_path = Path::new("metadata");
    report.extend(meta::validate_update(&new.metadata, &old.metadata, &metadata_path));
    validate_metadata_and_spec(&mut report, &new.metadata, spec, &options);
    let (new_annotations, old_annotations) = (new.metadata.annotations.as_ref(), old.metadata.annotations.as_ref());
    let metadata_at = Place::root(&metadata_path);
    let annotations_at = metadata_at.child("annotations");
    annotations::validate_update(&mut report, &annotations_at, new_annotations, old_annotations);
    annotations::validate(&mut report, &annotations_at, new_annotations, spec, &options);

    let spec_path = Path::new("spec");
    validate_spec_update(&mut report, &Place::root(&spec_path), spec, old_spec, &options);
    report.into_errors()
}

fn validate_spec_update(
    report: &mut Report,
    at: &Place<'_>,
    new: &core::PodSpec,
    old: &core::PodSpec,
    options: &Options,
) {
    let lists = [
        ("containers", new.containers.as_slice(), old.containers.len()),
        ("initContainers", list(&new.init_containers), list(&old.init_containers).len()),
    ];
    for (name, containers, old_count) in lists {
        let at = at.child(name);
        if containers.len() != old_count {
            return report.forbidden(&at, "pod updates may not add or remove containers");
        }
        for (i, container) in containers.iter().enumerate() {
            let at = at.index(i);
            if text(&container.image).is_empty() {
                report.required(&at.child("image"), "");
            }
            containers::validate_for_pod_only(report, &at, container);
        }
    }
    if !validate_deadline(report, &at.child("activeDeadlineSeconds"), new, old) {
        return;
    }
    validate_tolerations(report, &at.child("tolerations"), new, old, options);
    validate_gates(report, &at.child("schedulingGates"), new, old);
    if typed_eq(new, old) {
        return;
    }
    let mut rest = with_changeable_fields_of(new, old);
    if !list(&old.scheduling_gates).is_empty() {
        validate_gated(report, at, &mut rest, old);
    }
    if !typed_eq(&rest, old) {
        report.forbidden(at, format!("{CHANGEABLE}\n{}", difference(&rest, old)));
    }
}

/// The deadline can be set and shortened. False if nothing more is to be checked.
fn validate_deadline(report: &mut Report, at: &Place<'_>, new: &core::PodSpec, old: &core::PodSpec) -> bool {
    match (new.active_deadline_seconds, old.active_deadline_seconds) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            report.invalid(at, new, "must be between 0 and 2147483647, inclusive");
            return false;
        }
        (Some(new), Some(old)) if old < new => {
            report.invalid(at, new, "must be less than or equal to previous value");
            return false;
        }
        (None, Some(_)) => report.invalid(at, Value::Null, "must not update from a positive integer to nil value"),
        _ => {}
    }
    true
}

/// Tolerations can be added, and existing ones may tolerate for longer or shorter.
fn validate_tolerations(
    report: &mut Report,
    at: &Place<'_>,
    new: &core::PodSpec,
    old: &core::PodSpec,
    options: &Options,
) {
    let new = list(&new.tolerations);
    let same = |a: &core::Toleration, b: &core::Toleration| {
        (text(&a.key), text(&a.operator), text(&a.value), text(&a.effect))
            == (text(&b.key), text(&b.operator), text(&b.value), text(&b.effect))
    };
    if list(&old.tolerations).iter().any(|old| !new.iter().any(|new| same(old, new))) {
        return report.forbidden(at, "existing toleration can not be modified except its tolerationSeconds");
    }
    scheduling::validate_tolerations(report, at, new, options);
}

fn validate_gates(report: &mut Report, at: &Place<'_>, new: &core::PodSpec, old: &core::PodSpec) {
    let old = list(&old.scheduling_gates);
    for (i, gate) in list(&new.scheduling_gates).iter().enumerate() {
        if !old.iter().any(|old| old.name == gate.name) {
            let at = at.index(i);
            let text = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.name);
            report.forbidden(&at.child("name"), text);
        }
    }
}

/// `new` with the fields that may change put back, so that any difference left is one that may not be.
fn with_changeable_fields_of(new: &core::PodSpec, old: &core::PodSpec) -> core::PodSpec {
    let mut rest = new.clone();
    for (container, old) in rest.containers.iter_mut().zip(&old.containers) {
        container.image.clone_from(&old.image);
    }
    let init_containers = rest.init_containers.iter_mut().flatten().zip(list(&old.init_containers));
    for (container, old) in init_containers {
        container.image.clone_from(&old.image);
    }
    rest.active_deadline_seconds = old.active_deadline_seconds;
    rest.scheduling_gates.clone_from(&old.scheduling_gates);
    rest.tolerations.clone_from(&old.tolerations);
    if old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0)
        && rest.termination_grace_period_seconds == Some(1)
    {
        rest.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
    rest
}

/// While a pod is gated nobody has decided where it goes, so it can still be narrowed down.
fn validate_gated(report: &mut Report, at: &Place<'_>, rest: &mut core::PodSpec, old: &core::PodSpec) {
    if !typed_eq(&rest.node_selector, &old.node_selector) {
        let old_labels = old.node_selector.iter().flatten();
        let kept = |(key, value): (&String, &String)| {
            rest.node_selector.as_ref().is_some_and(|labels| labels.get(key) == Some(value))
        };
        if !old_labels.into_iter().all(kept) {
            let shown = serde_json::to_value(&rest.node_selector).unwrap_or_default();
            let text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            report.invalid(&at.child("nodeSelector"), shown, text);
        }
        rest.node_selector.clone_from(&old.node_selector);
    }
    let node_affinity =
        |spec: &core::PodSpec| spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    let (new_affinity, old_affinity) = (node_affinity(rest), node_affinity(old));
    if typed_eq(&new_affinity, &old_affinity) {
        return;
    }
    let affinity_at = at.child("affinity");
    validate_node_affinity(report, &affinity_at.child("nodeAffinity"), new_affinity.as_ref(), old_affinity.as_ref());
    match &mut rest.affinity {
        None => rest.affinity = Some(core::Affinity { node_affinity: old_affinity, ..Default::default() }),
        Some(affinity)
            if old.affinity.is_none() && affinity.pod_affinity.is_none() && affinity.pod_anti_affinity.is_none() =>
        {
            rest.affinity = None;
        }
        Some(affinity) => affinity.node_affinity = old_affinity,
    }
}

/// Required terms may get more conditions but neither fewer nor other ones; preferences are free.
fn validate_node_affinity(
    report: &mut Report,
    at: &Place<'_>,
    new: Option<&core::NodeAffinity>,
    old: Option<&core::NodeAffinity>,
) {
    let terms = |affinity: Option<&core::NodeAffinity>| {
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        required.map(|required| required.node_selector_terms.clone())
    };
    let Some(old_terms) = terms(old) else { return };
    let given_terms = terms(new);
    let new_terms = given_terms.as_deref().unwrap_or_default();
    let at = at.child("requiredDuringSchedulingIgnoredDuringExecution");
    let at = at.child("nodeSelectorTerms");
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let shown = serde_json::to_value(&given_terms).unwrap_or_default();
        let text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return report.invalid(&at, shown, text);
    }
    for (i, (new, old)) in new_terms.iter().zip(&old_terms).enumerate() {
        if !has_only_additions(new, old) {
            let shown = serde_json::to_value(new).unwrap_or_default();
            report.invalid(&at.index(i), shown, "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn has_only_additions(new: &core::NodeSelectorTerm, old: &core::NodeSelectorTerm) -> bool {
    let parts = [
        (list(&new.match_expressions), list(&old.match_expressions)),
        (list(&new.match_fields), list(&old.match_fields)),
    ];
    // A term without conditions matches no node; with conditions it would match some.
    let stays_empty = parts.iter().all(|(new, _)| new.is_empty()) || parts.iter().any(|(_, old)| !old.is_empty());
    stays_empty && parts.iter().all(|(new, old)| new.get(..old.len()).is_some_and(|kept| typed_eq(&kept, old)))
}

/// What upstream prints is its own diff of Go structs; ours names the top-level fields, which is what a reader needs.
fn difference(new: &core::PodSpec, old: &core::PodSpec) -> String {
    let fields = |spec: &core::PodSpec| match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (new, old) = (fields(new), fields(old));
    let mut names: Vec<&String> = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))).collect();
    names.retain(|name| old.get(*name) != new.get(*name));
    let line = |sign: char, name: &str, value: Option<&Value>| value.map(|value| format!("{sign} {name}: {value}\n"));
    names
        .into_iter()
        .flat_map(|name| [line('-', name, old.get(name)), line('+', name, new.get(name))])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::{edited, lines, pod, typed_pod};

    fn update(old: Value, new: Value) -> Vec<String> {
        let mut old = edited(pod(), &old);
        let mut new = edited(old.clone(), &new);
        crate::pod::default(&mut old);
        crate::pod::default(&mut new);
        let mut lines = lines(&validate_update(&typed_pod(&new), &typed_pod(&old)));
        // Only the first line of the refusal is fixed; what follows describes the difference.
        lines.iter_mut().for_each(|line| line.truncate(line.find('\n').unwrap_or(line.len())));
        lines
    }

    /// AS-175.
    #[test]
    fn few_fields_of_a_pod_change() {
        let refused = format!("spec: Forbidden: {CHANGEABLE}");
        let toleration = json!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
        let longer = edited(toleration.clone(), &json!({"tolerationSeconds": 5}));
        let cases: Vec<(Value, Value, Vec<&str>)> = vec![
            (json!({}), json!({"metadata": {"labels": {"a": "b"}}}), vec![]),
            (json!({}), json!({"spec": {"containers": [{"image": "b:2"}]}}), vec![]),
            (
                json!({}),
                json!({"spec": {"containers": [{"image": ""}]}}),
                vec!["spec.containers[0].image: Required value", "spec.containers[0].image: Required value"],
            ),
            (
                json!({}),
                json!({"spec": {"containers": [{}, {"name": "b", "image": "b:1"}]}}),
                vec!["spec.containers: Forbidden: pod updates may not add or remove containers"],
            ),
            (json!({}), json!({"spec": {"activeDeadlineSeconds": 10}}), vec![]),
            (
                json!({"spec": {"activeDeadlineSeconds": 10}}),
                json!({"spec": {"activeDeadlineSeconds": 11}}),
                vec!["spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"],
            ),
            (
                json!({"spec": {"activeDeadlineSeconds": 10}}),
                json!({"spec": {"activeDeadlineSeconds": null}}),
                vec![
                    "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
                ],
            ),
            (
                json!({"spec": {"tolerations": [toleration]}}),
                json!({"spec": {"tolerations": [longer, {"operator": "Exists"}]}}),
                vec![],
            ),
            (
                json!({"spec": {"tolerations": [toleration]}}),
                json!({"spec": {"tolerations": []}}),
                vec![
                    "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
                ],
            ),
            (json!({}), json!({"spec": {"nodeName": "n1"}}), vec![&refused]),
            (json!({}), json!({"spec": {"terminationGracePeriodSeconds": 5}}), vec![&refused]),
            (json!({}), json!({"spec": {"nodeSelector": {"a": "b"}}}), vec![&refused]),
            (
                json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}),
                json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1000m"}}}]}}),
                vec![],
            ),
        ];
        for (old, new, expected) in cases {
            assert_eq!(update(old, new.clone()), expected, "{new}");
        }
    }

    #[test]
    fn gated_pods_can_be_narrowed_down() {
        let node = |values: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": values}}});
        let one = json!({"key": "a", "operator": "Exists"});
        let two = json!({"key": "b", "operator": "Exists"});
        let gated =
            |edit: Value| json!({"spec": edited(json!({"schedulingGates": [{"name": "g"}, {"name": "h"}]}), &edit)});
        let at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        let cases: Vec<(Value, Value, Vec<String>)> = vec![
            (gated(json!({})), json!({"spec": {"schedulingGates": [{"name": "h"}]}}), vec![]),
            (
                gated(json!({})),
                json!({"spec": {"schedulingGates": [{"name": "x"}]}}),
                vec![
                    "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'x'"
                        .to_owned(),
                ],
            ),
            (gated(json!({"nodeSelector": {"a": "b"}})), json!({"spec": {"nodeSelector": {"c": "d"}}}), vec![]),
            (
                gated(json!({"nodeSelector": {"a": "b"}})),
                json!({"spec": {"nodeSelector": {"a": "c"}}}),
                vec![
                    "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no \
                     mutations or deletions)"
                        .to_owned(),
                ],
            ),
            (gated(json!({})), json!({"spec": {"affinity": node(json!([{"matchExpressions": [one]}]))}}), vec![]),
            (
                gated(json!({"affinity": node(json!([{"matchExpressions": [one]}]))})),
                json!({"spec": {"affinity": node(json!([{"matchExpressions": [one, two]}]))}}),
                vec![],
            ),
            (
                gated(json!({"affinity": node(json!([{"matchExpressions": [one]}]))})),
                json!({"spec": {"affinity": node(json!([{"matchExpressions": [two]}]))}}),
                vec![format!(
                    "{at}[0]: Invalid value: {{\"matchExpressions\":[{{\"key\":\"b\",\"operator\":\"Exists\"}}]}}: only \
                     additions are allowed (no mutations or deletions)"
                )],
            ),
            (
                gated(json!({"affinity": node(json!([{"matchExpressions": [one]}]))})),
                json!({"spec": {"affinity": null}}),
                vec![format!(
                    "{at}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"
                )],
            ),
            (
                gated(json!({})),
                json!({"spec": {"affinity": {"podAffinity": {}}}}),
                vec![format!("spec: Forbidden: {CHANGEABLE}")],
            ),
        ];
        for (old, new, expected) in cases {
            assert_eq!(update(old, new.clone()), expected, "{new}");
        }
    }

    #[test]
    fn the_refusal_names_the_fields() {
        let old = typed_pod(&pod());
        let new = typed_pod(&edited(pod(), &json!({"spec": {"nodeName": "n1"}})));
        let error = validate_update(&new, &old).pop().unwrap();
        assert!(error.detail.ends_with("\n+ nodeName: \"n1\"\n"), "{}", error.detail);
    }
}
