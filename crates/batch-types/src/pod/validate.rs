//! Validation of pods and pod templates on create, and of a spec in upstream's order (JA section 7, JA-V28).
//!
//! Each kind of field has a file of its own; this one says what is checked, in which order, and what differs between
//! a pod and a template. Updates are in `update`, status in `status`.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::affinity;
use super::annotations::{self, MIRROR};
use super::claims;
use super::containers::{self, Surroundings};
use super::env;
use super::network;
use super::options::Options;
use super::ports;
use super::report::{Place, Report};
use super::resources;
use super::scheduling;
use super::security;
use super::spread;
use super::volumes;
use super::windows;
use super::zero::{list, text};
use crate::field::{Error, Path};
use crate::meta::{self, Scope};
use crate::names::{self, NameRule};

/// Everything wrong with a new pod.
pub fn validate(pod: &core::Pod) -> Vec<Error> {
    let default = core::PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&default);
    let mut report = Report::default();
    validate_metadata_and_spec(&mut report, &pod.metadata, spec, &Options::create(true));
    let path = Path::new("spec");
    let at = Place::root(&path);
    if !list(&spec.ephemeral_containers).is_empty() {
        report.forbidden(&at.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(&spec.node_name).is_empty() && !list(&spec.scheduling_gates).is_empty() {
        report.forbidden(&at.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    annotations::validate_profiles_match(&mut report, &at, pod.metadata.annotations.as_ref(), spec);
    report.into_errors()
}

/// Everything wrong with the pod template of a new Job, at `path`. Which restart policies a Job allows is the Job's
/// own rule (JA-V29, JA-V30).
pub fn validate_template_for_job(template: &core::PodTemplateSpec, path: &Path) -> Vec<Error> {
    validate_template(template, path, &Options::create(false))
}

/// The same for a Job that had the template `old` before: what it already had that newer rules refuse is let pass
/// (JA-P20).
pub fn validate_template_update_for_job(
    template: &core::PodTemplateSpec,
    old: &core::PodTemplateSpec,
    path: &Path,
) -> Vec<Error> {
    let old_annotations = old.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let default = core::PodSpec::default();
    let old_spec = old.spec.as_ref().unwrap_or(&default);
    validate_template(template, path, &Options::update(false, old_spec, old_annotations))
}

fn validate_template(template: &core::PodTemplateSpec, path: &Path, options: &Options) -> Vec<Error> {
    let default = core::PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&default);
    let mut report = Report::default();
    let at = Place::root(path);
    let metadata = template.metadata.as_ref();
    // Upstream leaves `metadata` out of these two paths (JA-P1).
    if let Some(labels) = metadata.and_then(|metadata| metadata.labels.as_ref()) {
        report.extend(meta::validate_labels(labels, &at.child("labels").path()));
    }
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    if let Some(annotations) = annotations {
        report.extend(meta::validate_annotations(annotations, &at.child("annotations").path()));
    }
    annotations::validate(&mut report, &at.child("annotations"), annotations, spec, options);
    let spec_at = at.child("spec");
    validate_spec(&mut report, &spec_at, spec, None, options);
    annotations::validate_profiles_match(&mut report, &spec_at, annotations, spec);
    if !list(&spec.ephemeral_containers).is_empty() {
        let text = "ephemeral containers not allowed in pod template";
        report.forbidden(&spec_at.child("ephemeralContainers"), text);
    }
    report.into_errors()
}

/// What creates and updates of pods have in common.
pub(super) fn validate_metadata_and_spec(
    report: &mut Report,
    metadata: &ObjectMeta,
    spec: &core::PodSpec,
    options: &Options,
) {
    let metadata_path = Path::new("metadata");
    report.extend(meta::validate(metadata, Scope::Namespaced, NameRule::DnsSubdomain, &metadata_path));
    let metadata_at = Place::root(&metadata_path);
    let annotations = metadata.annotations.as_ref();
    annotations::validate(report, &metadata_at.child("annotations"), annotations, spec, options);
    let spec_path = Path::new("spec");
    let at = Place::root(&spec_path);
    validate_spec(report, &at, spec, Some(metadata), options);
    validate_tokens(report, &at, spec);
    for (list_name, containers) in
        [("containers", spec.containers.as_slice()), ("initContainers", list(&spec.init_containers))]
    {
        let at = at.child(list_name);
        for (i, container) in containers.iter().enumerate() {
            containers::validate_for_pod_only(report, &at.index(i), container);
        }
    }
}

/// Without an account there is nobody to make a token for.
fn validate_tokens(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    if !text(&spec.service_account_name).is_empty() {
        return;
    }
    let at = at.child("volumes");
    for (v, volume) in list(&spec.volumes).iter().enumerate() {
        let sources = volume.projected.as_ref().map(|projected| list(&projected.sources)).unwrap_or_default();
        for (s, _) in sources.iter().enumerate().filter(|(_, source)| source.service_account_token.is_some()) {
            let volume_at = at.index(v);
            let projected_at = volume_at.child("projected");
            let sources_at = projected_at.child("sources");
            let source_at = sources_at.index(s);
            let text = "must not be specified when serviceAccountName is not set";
            report.forbidden(&source_at.child("serviceAccountToken"), text);
        }
    }
}

/// A pod's spec; `metadata` is known for pods only.
fn validate_spec(
    report: &mut Report,
    at: &Place<'_>,
    spec: &core::PodSpec,
    metadata: Option<&ObjectMeta>,
    options: &Options,
) {
    if spec.termination_grace_period_seconds.is_none() {
        report.required(&at.child("terminationGracePeriodSeconds"), "");
    }
    let pod_name = metadata.and_then(|metadata| metadata.name.as_deref()).filter(|name| !name.is_empty());
    let valid_volumes = volumes::validate(report, &at.child("volumes"), list(&spec.volumes), pod_name, options);
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    let is_mirror = annotations.is_some_and(|annotations| annotations.contains_key(MIRROR));
    claims::validate_pod_claims(report, &at.child("resourceClaims"), list(&spec.resource_claims), is_mirror);
    let surroundings = Surroundings { spec, volumes: &valid_volumes, options };
    containers::validate_regular(report, &at.child("containers"), &surroundings);
    containers::validate_init(report, &at.child("initContainers"), &surroundings);
    containers::validate_ephemeral(report, &at.child("ephemeralContainers"), &surroundings);
    resources::validate_pod_level(report, at, spec, options);
    ports::validate_host_network(report, at, spec, options.is_pod);
    report.one_of(&at.child("restartPolicy"), text(&spec.restart_policy), &["Always", "OnFailure", "Never"]);
    network::validate_dns_policy(report, at, spec);
    if let Some(node_selector) = &spec.node_selector {
        report.extend(meta::validate_labels(node_selector, &at.child("nodeSelector").path()));
    }
    security::validate_pod(report, &at.child("securityContext"), spec, options);
    if let Some(affinity) = &spec.affinity {
        affinity::validate(report, &at.child("affinity"), affinity, options);
    }
    network::validate_dns_config(report, at, spec);
    scheduling::validate_readiness_gates(report, &at.child("readinessGates"), list(&spec.readiness_gates));
    scheduling::validate_gates(report, &at.child("schedulingGates"), list(&spec.scheduling_gates));
    let constraints = list(&spec.topology_spread_constraints);
    spread::validate(report, &at.child("topologySpreadConstraints"), constraints, options);
    windows::validate_host_process(report, at, spec);
    security::validate_host_users(report, at, spec, options);
    network::validate_hostname_override(report, at, spec);
    validate_names(report, at, spec);
    scheduling::validate_tolerations(report, &at.child("tolerations"), list(&spec.tolerations), options);
    network::validate_host_aliases(report, &at.child("hostAliases"), list(&spec.host_aliases));
    validate_subdomain(report, &at.child("priorityClassName"), text(&spec.priority_class_name));
    if let Some(class) = &spec.runtime_class_name {
        report.each_invalid(&at.child("runtimeClassName"), class, names::dns_subdomain(class));
    }
    scheduling::validate_preemption_policy(report, &at.child("preemptionPolicy"), spec.preemption_policy.as_deref());
    if let Some(overhead) = &spec.overhead {
        resources::validate_overhead(report, &at.child("overhead"), overhead, options);
    }
    security::validate_os(report, at, spec);
    if let Some(group) = &spec.scheduling_group {
        scheduling::validate_group(report, &at.child("schedulingGroup"), group);
    }
    env::validate_file_volumes(report, at, spec);
}

/// Names of other objects, the deadline, and the pod's own host name (JA-P16).
fn validate_names(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    validate_subdomain(report, &at.child("serviceAccountName"), text(&spec.service_account_name));
    validate_subdomain(report, &at.child("nodeName"), text(&spec.node_name));
    if let Some(seconds) = spec.active_deadline_seconds.filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds)) {
        report.invalid(&at.child("activeDeadlineSeconds"), seconds, "must be between 1 and 2147483647, inclusive");
    }
    for (name, value) in [("hostname", text(&spec.hostname)), ("subdomain", text(&spec.subdomain))] {
        if !value.is_empty() {
            report.each_invalid(&at.child(name), value, names::dns_label(value));
        }
    }
}

fn validate_subdomain(report: &mut Report, at: &Place<'_>, name: &str) {
    if !name.is_empty() {
        report.each_invalid(at, name, names::dns_subdomain(name));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::{check_templates, edited, lines, pod_errors, template, typed_template};

    #[test]
    fn names_of_other_objects_and_the_deadline() {
        let subdomain = names::dns_subdomain("A").join("");
        check_templates(&[
            (json!({"activeDeadlineSeconds": 1}), &[]),
            (
                json!({"activeDeadlineSeconds": 0}),
                &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
            ),
            (
                json!({"serviceAccountName": "A", "nodeName": "A", "priorityClassName": "A", "runtimeClassName": "A"}),
                &[
                    &format!("spec.serviceAccountName: Invalid value: \"A\": {subdomain}"),
                    &format!("spec.nodeName: Invalid value: \"A\": {subdomain}"),
                    &format!("spec.priorityClassName: Invalid value: \"A\": {subdomain}"),
                    &format!("spec.runtimeClassName: Invalid value: \"A\": {subdomain}"),
                ],
            ),
            (
                json!({"restartPolicy": "Sometimes"}),
                &[
                    "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \
                   \"Never\"",
                ],
            ),
            (
                json!({"overhead": {"cpu": "-1"}}),
                &["spec.overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
        ]);
    }

    /// JA-P1.
    #[test]
    fn metadata_of_a_template() {
        let mut template = edited(
            template(),
            &json!({"metadata": {"labels": {"a": "-"}, "annotations": {"a b": ""}, "name": "Not Checked"}}),
        );
        crate::pod::default_template(&mut template);
        let errors = lines(&validate_template_for_job(&typed_template(&template), &Path::new("spec.template")));
        assert_eq!(
            errors,
            [
                format!("spec.template.labels: Invalid value: \"-\": {}", names::label_value("-").join("")),
                format!("spec.template.annotations: Invalid value: \"a b\": {}", names::qualified_name("a b").join("")),
            ]
        );
    }

    #[test]
    fn new_pods_are_bare() {
        let cases = [
            (
                json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "a:1"}]}}),
                "spec.ephemeralContainers: Forbidden: cannot be set on create",
            ),
            (
                json!({"spec": {"nodeName": "n1", "schedulingGates": [{"name": "g"}]}}),
                "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            ),
        ];
        for (edit, line) in cases {
            assert_eq!(pod_errors(&edit), [line]);
        }
    }
}
