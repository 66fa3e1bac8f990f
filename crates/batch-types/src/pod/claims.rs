//! Claims: the volume claim template of an ephemeral volume, and references to resource claims.

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::report::{Place, Report};
use super::resources;
use super::zero::{list, text};
use crate::selector::{self, Tolerance};
use crate::{field, meta, names};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const DEFAULT_GROUP_KIND: &str = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";

/// The claim made for each pod that uses the volume.
pub(super) fn validate_template(report: &mut Report, at: &Place<'_>, template: &core::PersistentVolumeClaimTemplate) {
    if let Some(metadata) = &template.metadata {
        validate_metadata(report, &at.child("metadata"), metadata);
    }
    validate_spec(report, &at.child("spec"), &template.spec);
}

/// Only labels and annotations reach the claim; anything else would be ignored silently, so it is refused.
fn validate_metadata(report: &mut Report, at: &Place<'_>, metadata: &ObjectMeta) {
    if let Some(annotations) = &metadata.annotations {
        report.extend(meta::validate_annotations(annotations, &at.child("annotations").path()));
    }
    if let Some(labels) = &metadata.labels {
        report.extend(meta::validate_labels(labels, &at.child("labels").path()));
    }
    // In the order and spelling of upstream's struct, first letter lowered.
    let set = [
        ("name", !text(&metadata.name).is_empty()),
        ("generateName", !text(&metadata.generate_name).is_empty()),
        ("namespace", !text(&metadata.namespace).is_empty()),
        ("selfLink", !text(&metadata.self_link).is_empty()),
        ("uID", !text(&metadata.uid).is_empty()),
        ("resourceVersion", !text(&metadata.resource_version).is_empty()),
        ("generation", metadata.generation.unwrap_or_default() != 0),
        ("creationTimestamp", metadata.creation_timestamp.is_some()),
        ("deletionTimestamp", metadata.deletion_timestamp.is_some()),
        ("deletionGracePeriodSeconds", metadata.deletion_grace_period_seconds.is_some()),
        ("ownerReferences", !list(&metadata.owner_references).is_empty()),
        ("finalizers", !list(&metadata.finalizers).is_empty()),
        ("managedFields", !list(&metadata.managed_fields).is_empty()),
    ];
    for (name, _) in set.into_iter().filter(|(_, set)| *set) {
        report.forbidden(&at.child(name), "cannot be set");
    }
}

fn validate_spec(report: &mut Report, at: &Place<'_>, spec: &core::PersistentVolumeClaimSpec) {
    let modes = list(&spec.access_modes);
    if modes.is_empty() {
        report.required(&at.child("accessModes"), "at least 1 access mode is required");
    }
    if let Some(label_selector) = &spec.selector {
        report.extend(selector::validate(label_selector, Tolerance::default(), &at.child("selector").path()));
    }
    let known = |mode: &&String| ACCESS_MODES.contains(&mode.as_str());
    for mode in modes.iter().filter(|mode| !known(mode)) {
        report.not_supported(&at.child("accessModes"), mode, &ACCESS_MODES);
    }
    let exclusive = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    if exclusive && modes.iter().filter(known).any(|mode| mode != "ReadWriteOncePod") {
        report.forbidden(&at.child("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
    validate_storage(report, &at.child("resources"), spec.resources.as_ref());
    validate_class(report, &at.child("storageClassName"), text(&spec.storage_class_name));
    if let Some(mode) = spec.volume_mode.as_deref().filter(|mode| !VOLUME_MODES.contains(mode)) {
        report.not_supported(&at.child("volumeMode"), mode, &VOLUME_MODES);
    }
    validate_data_sources(report, at, spec);
    validate_class(report, &at.child("volumeAttributesClassName"), text(&spec.volume_attributes_class_name));
}

fn validate_storage(report: &mut Report, at: &Place<'_>, requirements: Option<&core::VolumeResourceRequirements>) {
    let requests = requirements.and_then(|requirements| requirements.requests.as_ref());
    match requests.and_then(|requests| requests.get("storage")) {
        None => report.required(&at.key("storage"), ""),
        Some(storage) => resources::require_positive(report, &at.key("storage"), storage),
    }
}

fn validate_class(report: &mut Report, at: &Place<'_>, name: &str) {
    if !name.is_empty() {
        report.each_invalid(at, name, names::dns_subdomain(name));
    }
}

fn validate_data_sources(report: &mut Report, at: &Place<'_>, spec: &core::PersistentVolumeClaimSpec) {
    if let Some(source) = &spec.data_source {
        let group = text(&source.api_group);
        validate_data_source(report, &at.child("dataSource"), &source.name, &source.kind, group);
    }
    let Some(reference) = &spec.data_source_ref else { return };
    let reference_at = at.child("dataSourceRef");
    validate_data_source(report, &reference_at, &reference.name, &reference.kind, text(&reference.api_group));
    let namespace = text(&reference.namespace);
    if !namespace.is_empty() {
        report.each_invalid(&reference_at.child("namespace"), namespace, names::dns_label(namespace));
    }
    let Some(source) = &spec.data_source else { return };
    // Upstream passes a path where a value belongs, which prints as an empty object.
    let value = || Value::Object(serde_json::Map::new());
    if !namespace.is_empty() {
        report.invalid(at, value(), "may not be specified when dataSourceRef.namespace is specified");
    } else if (&source.api_group, &source.kind, &source.name)
        != (&reference.api_group, &reference.kind, &reference.name)
    {
        report.invalid(at, value(), "must match dataSourceRef");
    }
}

fn validate_data_source(report: &mut Report, at: &Place<'_>, name: &str, kind: &str, group: &str) {
    if name.is_empty() {
        report.required(&at.child("name"), "");
    }
    if kind.is_empty() {
        report.required(&at.child("kind"), "");
    }
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        report.invalid(at, kind, DEFAULT_GROUP_KIND);
    }
    if !group.is_empty() {
        report.each_invalid(&at.child("apiGroup"), group, names::dns_subdomain(group));
    }
}

/// The resource claims a pod brings; its containers refer to them by name.
pub(super) fn validate_pod_claims(
    report: &mut Report,
    at: &Place<'_>,
    claims: &[core::PodResourceClaim],
    is_mirror: bool,
) {
    let mut claim_names = HashSet::new();
    for (i, claim) in claims.iter().enumerate() {
        if is_mirror {
            // Upstream's nameless path prints like this.
            let nowhere = field::Path::new("[]");
            report.forbidden(&Place::root(&nowhere), "static pods do not support resource claims");
            continue;
        }
        let at = at.index(i);
        if claim.name.is_empty() {
            report.required(&at.child("name"), "");
        } else if claim_names.contains(claim.name.as_str()) {
            report.duplicate(&at.child("name"), claim.name.as_str());
        } else {
            report.each_invalid(&at.child("name"), &claim.name, names::dns_label(&claim.name));
            claim_names.insert(claim.name.as_str());
        }
        let shown = || serde_json::to_value(claim).unwrap_or_default();
        match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
            (Some(_), Some(_)) => {
                let text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                report.invalid(&at, shown(), text);
            }
            (None, None) => {
                let text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                report.invalid(&at, shown(), text);
            }
            _ => {}
        }
        if let Some(name) = &claim.resource_claim_name {
            report.each_invalid(&at.child("resourceClaimName"), name, names::dns_subdomain(name));
        }
        if let Some(name) = &claim.resource_claim_template_name {
            report.each_invalid(&at.child("resourceClaimTemplateName"), name, names::dns_subdomain(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::{check_templates, check_volumes};

    #[test]
    fn claim_templates() {
        let ephemeral = |template: serde_json::Value| json!({"ephemeral": {"volumeClaimTemplate": template}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let at = "ephemeral.volumeClaimTemplate";
        check_volumes(&[
            (json!({"ephemeral": {}}), &[&format!("{at}: Required value")]),
            (ephemeral(json!({"metadata": {"labels": {"a": "b"}}, "spec": spec})), &[]),
            (
                ephemeral(json!({"metadata": {"name": "n", "finalizers": ["a/b"]}, "spec": spec})),
                &[
                    &format!("{at}.metadata.name: Forbidden: cannot be set"),
                    &format!("{at}.metadata.finalizers: Forbidden: cannot be set"),
                ],
            ),
            (
                ephemeral(json!({"spec": {}})),
                &[
                    &format!("{at}.spec.accessModes: Required value: at least 1 access mode is required"),
                    &format!("{at}.spec.resources[storage]: Required value"),
                ],
            ),
            (
                ephemeral(json!({"spec": {
                    "accessModes": ["ReadWriteOncePod", "ReadWriteOnce", "Never"],
                    "resources": {"requests": {"storage": "0"}},
                    "storageClassName": "Fast", "volumeMode": "Tape",
                    "dataSource": {"kind": "Snapshot", "name": ""},
                }})),
                &[
                    &format!(
                        "{at}.spec.accessModes: Unsupported value: \"Never\": supported values: \"ReadOnlyMany\", \
                         \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\""
                    ),
                    &format!("{at}.spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"),
                    &format!("{at}.spec.resources[storage]: Invalid value: \"0\": must be greater than zero"),
                    &format!(
                        "{at}.spec.storageClassName: Invalid value: \"Fast\": {}",
                        names::dns_subdomain("Fast").join("")
                    ),
                    &format!(
                        "{at}.spec.volumeMode: Unsupported value: \"Tape\": supported values: \"Block\", \"Filesystem\""
                    ),
                    &format!("{at}.spec.dataSource.name: Required value"),
                    &format!(
                        "{at}.spec.dataSource: Invalid value: \"Snapshot\": must be 'PersistentVolumeClaim' when \
                         referencing the default apiGroup"
                    ),
                ],
            ),
        ]);
    }

    #[test]
    fn resource_claims_of_pods() {
        let one = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
        let both = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
        check_templates(&[
            (json!({"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}), &[]),
            (
                json!({"resourceClaims": [
                    {"name": "c"}, {"name": "c", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]}),
                &[
                    &format!("spec.resourceClaims[0]: Invalid value: {{\"name\":\"c\"}}: {one}"),
                    "spec.resourceClaims[1].name: Duplicate value: \"c\"",
                    &format!(
                        "spec.resourceClaims[1]: Invalid value: {{\"name\":\"c\",\"resourceClaimName\":\"x\",\
                         \"resourceClaimTemplateName\":\"y\"}}: {both}"
                    ),
                ],
            ),
        ]);
    }
}
