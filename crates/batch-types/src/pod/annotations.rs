//! Annotations with a meaning for pods: mirror pods, deletion cost, and the forerunners of today's fields.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use serde::Deserialize as _;

use super::containers;
use super::options::Options;
use super::report::{Place, Report};
use super::scheduling;
use super::syntax;
use super::zero::text;
use crate::annotation_json;
use crate::field;

/// Set by kubelets on the API's copy of a static pod.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) type Annotations = BTreeMap<String, String>;

pub(super) fn validate(
    report: &mut Report,
    at: &Place<'_>,
    annotations: Option<&Annotations>,
    spec: &core::PodSpec,
    options: &Options,
) {
    let Some(annotations) = annotations else { return };
    if let Some(mirror) = annotations.get(MIRROR).filter(|_| text(&spec.node_name).is_empty()) {
        report.invalid(&at.key(MIRROR), mirror.as_str(), "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(tolerations) = annotations.get(TOLERATIONS).filter(|tolerations| !tolerations.is_empty()) {
        validate_tolerations(report, at, tolerations, options);
    }
    if !options.any_deletion_cost && !has_valid_deletion_cost(Some(annotations)) {
        let cost = annotations.get(DELETION_COST).map(String::as_str).unwrap_or_default();
        report.invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    if let Some(profile) = annotations.get(SECCOMP_POD) {
        validate_seccomp(report, &at.child(SECCOMP_POD), profile);
    }
    for (key, profile) in annotations.iter().filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER_PREFIX)) {
        validate_seccomp(report, &at.child(key), profile);
    }
    for (key, profile) in annotations {
        if let Some(container) = key.strip_prefix(APP_ARMOR_PREFIX) {
            validate_app_armor(report, &at.key(key), container, profile, spec);
        }
    }
}

fn validate_tolerations(report: &mut Report, at: &Place<'_>, json: &str, options: &Options) {
    const MEMBERS: [annotation_json::Member; 5] = [
        ("Key", "string"),
        ("Operator", "core.TolerationOperator"),
        ("Value", "string"),
        ("Effect", "core.TaintEffect"),
        ("TolerationSeconds", "int64"),
    ];
    let read = annotation_json::list(json, "core.Toleration", &MEMBERS).and_then(|items| {
        let typed = items.into_iter().map(core::Toleration::deserialize).collect::<Result<Vec<_>, _>>();
        typed.map_err(|error| error.to_string())
    });
    match read {
        Ok(tolerations) => {
            scheduling::validate_tolerations(report, &at.child(TOLERATIONS), &tolerations, options);
        }
        Err(error) => report.invalid(at, TOLERATIONS, error),
    }
}

/// Costs are plain 32-bit integers, without a plus or leading zeros.
pub(super) fn has_valid_deletion_cost(annotations: Option<&Annotations>) -> bool {
    let Some(cost) = annotations.and_then(|annotations| annotations.get(DELETION_COST)) else { return true };
    let plain = cost == "0" || matches!(cost.bytes().next(), Some(b'-' | b'1'..=b'9'));
    plain && cost.parse::<i32>().is_ok()
}

fn validate_seccomp(report: &mut Report, at: &Place<'_>, profile: &str) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        _ => match profile.strip_prefix("localhost/") {
            Some(path) => syntax::local_descending_path(report, at, path),
            None => report.invalid(at, profile, "must be a valid seccomp profile"),
        },
    }
}

fn validate_app_armor(report: &mut Report, at: &Place<'_>, container: &str, profile: &str, spec: &core::PodSpec) {
    if !containers::all(spec).any(|(_, _, other)| other.name == container) {
        report.invalid(at, container, "container not found");
    }
    let known = matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
    if !known {
        report.invalid(at, profile, format!("invalid AppArmor profile name: {}", field::quoted(profile)));
    }
}

/// Where a profile is given both as a field and as its annotation, they must agree. Create only.
pub(super) fn validate_profiles_match(
    report: &mut Report,
    at: &Place<'_>,
    annotations: Option<&Annotations>,
    spec: &core::PodSpec,
) {
    let Some(annotations) = annotations else { return };
    let pod_context = spec.security_context.as_ref();
    let pod_seccomp = pod_context.and_then(|context| context.seccomp_profile.as_ref());
    if let (Some(profile), Some(annotation)) = (pod_seccomp, annotations.get(SECCOMP_POD)) {
        let at = at.child("securityContext");
        validate_seccomp_match(report, &at.child("seccompProfile"), profile, annotation);
    }
    for (list_name, i, container) in containers::all(spec) {
        let profile = container.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
        let annotation = annotations.get(&format!("{SECCOMP_CONTAINER_PREFIX}{}", container.name));
        if let (Some(profile), Some(annotation)) = (profile, annotation) {
            let containers_at = at.child(list_name);
            let container_at = containers_at.index(i);
            let at = container_at.child("securityContext");
            validate_seccomp_match(report, &at.child("seccompProfile"), profile, annotation);
        }
    }
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return;
    }
    let pod_profile = pod_context.and_then(|context| context.app_armor_profile.as_ref());
    for (list_name, i, container) in containers::all(spec) {
        let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
        let annotation = annotations.get(&format!("{APP_ARMOR_PREFIX}{}", container.name));
        if let (Some(profile), Some(annotation)) = (own.or(pod_profile), annotation) {
            let containers_at = at.child(list_name);
            let container_at = containers_at.index(i);
            let at = container_at.child("securityContext");
            validate_app_armor_match(report, &at.child("appArmorProfile"), profile, annotation);
        }
    }
}

fn validate_seccomp_match(report: &mut Report, at: &Place<'_>, profile: &core::SeccompProfile, annotation: &str) {
    let localhost = profile.localhost_profile.as_deref();
    let runtime_default = ["runtime/default", "docker/default"];
    match agreement(&profile.type_, localhost, annotation, &runtime_default) {
        Agreement::Full => {}
        Agreement::TypeDiffers => {
            report.forbidden(&at.child("type"), "seccomp type in annotation and field must match");
        }
        Agreement::ProfileDiffers => {
            report.forbidden(&at.child("localhostProfile"), "seccomp profile in annotation and field must match");
        }
    }
}

fn validate_app_armor_match(report: &mut Report, at: &Place<'_>, profile: &core::AppArmorProfile, annotation: &str) {
    let localhost = profile.localhost_profile.as_deref();
    match agreement(&profile.type_, localhost, annotation, &["runtime/default"]) {
        Agreement::Full => {}
        Agreement::TypeDiffers => {
            report.forbidden(&at.child("type"), "apparmor type in annotation and field must match");
        }
        Agreement::ProfileDiffers => {
            report.forbidden(&at.child("localhostProfile"), "apparmor profile in annotation and field must match");
        }
    }
}

enum Agreement {
    Full,
    TypeDiffers,
    ProfileDiffers,
}

fn agreement(kind: &str, localhost: Option<&str>, annotation: &str, runtime_default: &[&str]) -> Agreement {
    let same_type = match kind {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => runtime_default.contains(&annotation),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(path) if localhost != Some(path) => return Agreement::ProfileDiffers,
            path => path.is_some(),
        },
        _ => true,
    };
    if same_type { Agreement::Full } else { Agreement::TypeDiffers }
}

/// Annotations that are fixed once the pod exists.
pub(super) fn validate_update(
    report: &mut Report,
    at: &Place<'_>,
    new: Option<&Annotations>,
    old: Option<&Annotations>,
) {
    let empty = Annotations::new();
    let (new, old) = (new.unwrap_or(&empty), old.unwrap_or(&empty));
    for (key, _) in old.iter().filter(|(key, value)| new.get(*key) != Some(value)) {
        if key.starts_with(APP_ARMOR_PREFIX) {
            report.forbidden(&at.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            report.forbidden(&at.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for key in new.keys().filter(|key| !old.contains_key(*key)) {
        if key.starts_with(APP_ARMOR_PREFIX) {
            report.forbidden(&at.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            report.forbidden(&at.key(key), "may not add mirror pod annotation");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::{edited, lines, pod, pod_errors, template, typed_pod, typed_template};

    fn template_lines(annotations: Value, spec: Value) -> Vec<String> {
        let mut template = edited(template(), &json!({"metadata": {"annotations": annotations}, "spec": spec}));
        crate::pod::default_template(&mut template);
        lines(&crate::pod::validate_template_for_job(&typed_template(&template), &field::Path::default()))
    }

    #[test]
    fn annotations_with_a_meaning() {
        let cases = [
            (json!({"controller.kubernetes.io/pod-deletion-cost": "-10"}), None),
            (
                json!({"controller.kubernetes.io/pod-deletion-cost": "+10"}),
                Some(
                    "annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+10\": must be a 32bit \
                     integer",
                ),
            ),
            (json!({"scheduler.alpha.kubernetes.io/tolerations": "null"}), None),
            (json!({"scheduler.alpha.kubernetes.io/tolerations": r#"[{"KEY":"a","operator":"Exists"}]"#}), None),
            (
                json!({"scheduler.alpha.kubernetes.io/tolerations": "[null]"}),
                Some(
                    "annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Invalid value: \"\": operator must \
                     be Exists when `key` is empty, which means \"match all values and all keys\"",
                ),
            ),
            (
                json!({"scheduler.alpha.kubernetes.io/tolerations": "x"}),
                Some(
                    "annotations: Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\": invalid character 'x' \
                     looking for beginning of value",
                ),
            ),
            (
                json!({"kubernetes.io/config.mirror": "x"}),
                Some(
                    "annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod \
                     annotation is set",
                ),
            ),
            (
                json!({"seccomp.security.alpha.kubernetes.io/pod": "mine"}),
                Some(
                    "annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"mine\": must be a valid seccomp \
                     profile",
                ),
            ),
            (
                json!({"container.apparmor.security.beta.kubernetes.io/other": "localhost/x"}),
                Some(
                    "annotations[container.apparmor.security.beta.kubernetes.io/other]: Invalid value: \"other\": container \
                     not found",
                ),
            ),
            (
                json!({"container.apparmor.security.beta.kubernetes.io/main": "mine"}),
                Some(
                    "annotations[container.apparmor.security.beta.kubernetes.io/main]: Invalid value: \"mine\": invalid \
                     AppArmor profile name: \"mine\"",
                ),
            ),
        ];
        for (annotations, line) in cases {
            assert_eq!(template_lines(annotations.clone(), json!({})), Vec::from_iter(line), "{annotations}");
        }
    }

    #[test]
    fn profiles_agree_with_their_annotations() {
        let context = |kind: &str, profile: Value| json!({"containers": [{"securityContext": {kind: profile}}]});
        let seccomp = "container.seccomp.security.alpha.kubernetes.io/main";
        let app_armor = "container.apparmor.security.beta.kubernetes.io/main";
        let runtime_default = json!({"type": "RuntimeDefault"});
        let localhost = json!({"type": "Localhost", "localhostProfile": "a"});
        let cases = [
            (seccomp, "docker/default", context("seccompProfile", runtime_default.clone()), None),
            (
                seccomp,
                "unconfined",
                context("seccompProfile", runtime_default.clone()),
                Some("seccompProfile.type: Forbidden: seccomp type in annotation and field must match"),
            ),
            (
                seccomp,
                "localhost/b",
                context("seccompProfile", localhost.clone()),
                Some("seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match"),
            ),
            (app_armor, "localhost/a", context("appArmorProfile", localhost), None),
            (
                app_armor,
                "unconfined",
                context("appArmorProfile", runtime_default),
                Some("appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"),
            ),
        ];
        for (key, annotation, spec, line) in cases {
            let expected = line.map(|line| format!("spec.containers[0].securityContext.{line}"));
            assert_eq!(template_lines(json!({key: annotation}), spec), Vec::from_iter(expected), "{key} {annotation}");
        }
    }

    #[test]
    fn some_annotations_stay_as_they_are() {
        let key = "container.apparmor.security.beta.kubernetes.io/main";
        let with = |annotations: Value| {
            let mut pod = edited(pod(), &json!({"metadata": {"annotations": annotations}}));
            crate::pod::default(&mut pod);
            typed_pod(&pod)
        };
        let update = |new: Value, old: Value| lines(&crate::pod::validate_update(&with(new), &with(old)));
        let set = json!({key: "unconfined", "a": "b"});
        assert_eq!(update(json!({key: "unconfined", "a": "c"}), set.clone()), [""; 0]);
        let line = |text: &str| format!("metadata.annotations[{key}]: Forbidden: may not {text} AppArmor annotations");
        assert_eq!(update(json!({}), set.clone()), [line("remove or update")]);
        assert_eq!(update(set, json!({})), [line("add")]);
    }

    #[test]
    fn static_pods_bring_no_claims() {
        let edit = json!({
            "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": "n1", "resourceClaims": [{"name": "c"}]},
        });
        assert_eq!(pod_errors(&edit), ["[]: Forbidden: static pods do not support resource claims"]);
    }
}
