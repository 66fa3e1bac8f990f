//! The volumes of a pod: names, exactly one source each, and the sources of everyday use (JA-P10).
//!
//! Projected volumes, claim templates and the drivers of the in-tree era are in `projected`, `claims` and `drivers`.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1 as core;

use super::claims;
use super::containers::PULL_POLICIES;
use super::drivers;
use super::env::{self, VOLUME_FIELDS};
use super::options::Options;
use super::projected;
use super::report::{Place, Report};
use super::resources;
use super::syntax;
use super::zero::{list, text};
use crate::field;
use crate::names;

const SECOND_SOURCE: &str = "may not specify more than 1 volume type";
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// The volumes that passed, by name: only these can be mounted.
#[derive(Debug, Default)]
pub(super) struct Volumes<'a>(HashMap<&'a str, &'a core::Volume>);

impl<'a> Volumes<'a> {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a core::Volume> {
        self.0.get(name).copied()
    }
}

/// `pod_name` is known for pods only; claims created for ephemeral volumes are named after it.
pub(super) fn validate<'a>(
    report: &mut Report,
    at: &Place<'_>,
    volumes: &'a [core::Volume],
    pod_name: Option<&str>,
    options: &Options,
) -> Volumes<'a> {
    let mut valid = Volumes::default();
    let mut created_claims = HashSet::new();
    if let Some(pod_name) = pod_name {
        let ephemeral = volumes.iter().filter(|volume| volume.ephemeral.is_some());
        created_claims.extend(ephemeral.map(|volume| format!("{pod_name}-{}", volume.name)));
    }
    for (i, volume) in volumes.iter().enumerate() {
        let at = at.index(i);
        let before = report.len();
        validate_source(report, &at, volume, pod_name, options);
        if volume.name.is_empty() {
            report.required(&at.child("name"), "");
        } else {
            report.each_invalid(&at.child("name"), &volume.name, names::dns_label(&volume.name));
        }
        if valid.contains(&volume.name) {
            report.duplicate(&at.child("name"), volume.name.as_str());
        }
        if report.len() == before {
            valid.0.insert(&volume.name, volume);
        }
        let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
        if let Some(claim) = claim.filter(|&claim| created_claims.contains(claim)) {
            let source = at.child("persistentVolumeClaim");
            let text = "must not reference a PVC that gets created for an ephemeral volume";
            report.invalid(&source.child("claimName"), claim, text);
        }
    }
    valid
}

/// Looks into the first source and refuses every further one, in upstream's order of kinds.
fn validate_source(
    report: &mut Report,
    at: &Place<'_>,
    volume: &core::Volume,
    pod_name: Option<&str>,
    options: &Options,
) {
    let mut sources = 0;
    // Checks `$source` at `$at` when it is the first of its volume; `$named` is where a second one is reported.
    macro_rules! source {
        ($source:expr, $named:literal, $check:expr) => {
            if let Some(source) = &$source {
                sources += 1;
                if sources > 1 {
                    report.forbidden(&at.child($named), SECOND_SOURCE);
                } else {
                    $check(&mut *report, source);
                }
            }
        };
    }
    source!(volume.empty_dir, "emptyDir", |report: &mut Report, source: &core::EmptyDirVolumeSource| {
        if source.size_limit.as_ref().is_some_and(resources::is_negative) {
            let at = at.child("emptyDir");
            report.forbidden(&at.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
    });
    source!(volume.host_path, "hostPath", |report: &mut Report, source| {
        validate_host_path(report, &at.child("hostPath"), source);
    });
    source!(volume.git_repo, "gitRepo", |report: &mut Report, source| {
        drivers::validate_git_repo(report, &at.child("gitRepo"), source);
    });
    source!(volume.gce_persistent_disk, "gcePersistentDisk", |report: &mut Report, source| {
        drivers::validate_gce_persistent_disk(report, &at.child("persistentDisk"), source);
    });
    source!(volume.aws_elastic_block_store, "awsElasticBlockStore", |report: &mut Report, source| {
        drivers::validate_aws_elastic_block_store(report, &at.child("awsElasticBlockStore"), source);
    });
    source!(volume.secret, "secret", |report: &mut Report, source| {
        validate_secret(report, &at.child("secret"), source);
    });
    source!(volume.nfs, "nfs", |report: &mut Report, source| {
        drivers::validate_nfs(report, &at.child("nfs"), source);
    });
    source!(volume.iscsi, "iscsi", |report: &mut Report, source| {
        drivers::validate_iscsi(report, &at.child("iscsi"), source);
    });
    if let Some(iscsi) = &volume.iscsi {
        drivers::validate_iscsi_name_length(report, &at.child("name"), &volume.name, iscsi);
    }
    source!(volume.glusterfs, "glusterfs", |report: &mut Report, source| {
        drivers::validate_glusterfs(report, &at.child("glusterfs"), source);
    });
    source!(volume.flocker, "flocker", |report: &mut Report, source| {
        drivers::validate_flocker(report, &at.child("flocker"), source);
    });
    source!(
        volume.persistent_volume_claim,
        "persistentVolumeClaim",
        |report: &mut Report, source: &core::PersistentVolumeClaimVolumeSource| {
            let at = at.child("persistentVolumeClaim");
            require(report, &at.child("claimName"), &source.claim_name);
        }
    );
    source!(volume.rbd, "rbd", |report: &mut Report, source| {
        drivers::validate_rbd(report, &at.child("rbd"), source);
    });
    source!(volume.cinder, "cinder", |report: &mut Report, source| {
        drivers::validate_cinder(report, &at.child("cinder"), source);
    });
    source!(volume.cephfs, "cephFS", |report: &mut Report, source| {
        drivers::validate_cephfs(report, &at.child("cephfs"), source);
    });
    source!(volume.quobyte, "quobyte", |report: &mut Report, source| {
        drivers::validate_quobyte(report, &at.child("quobyte"), source);
    });
    // The misspelling is upstream's.
    source!(volume.downward_api, "downwarAPI", |report: &mut Report, source| {
        validate_downward_api(report, &at.child("downwardAPI"), source);
    });
    source!(volume.fc, "fc", |report: &mut Report, source| {
        drivers::validate_fc(report, &at.child("fc"), source);
    });
    source!(volume.flex_volume, "flexVolume", |report: &mut Report, source| {
        drivers::validate_flex_volume(report, &at.child("flexVolume"), source);
    });
    source!(volume.config_map, "configMap", |report: &mut Report, source| {
        validate_config_map(report, &at.child("configMap"), source);
    });
    source!(volume.azure_file, "azureFile", |report: &mut Report, source| {
        drivers::validate_azure_file(report, &at.child("azureFile"), source);
    });
    source!(
        volume.vsphere_volume,
        "vsphereVolume",
        |report: &mut Report, source: &core::VsphereVirtualDiskVolumeSource| {
            let at = at.child("vsphereVolume");
            require(report, &at.child("volumePath"), &source.volume_path);
        }
    );
    source!(
        volume.photon_persistent_disk,
        "photonPersistentDisk",
        |report: &mut Report, source: &core::PhotonPersistentDiskVolumeSource| {
            let at = at.child("photonPersistentDisk");
            require(report, &at.child("pdID"), &source.pd_id);
        }
    );
    source!(volume.portworx_volume, "portworxVolume", |report: &mut Report, source: &core::PortworxVolumeSource| {
        let at = at.child("portworxVolume");
        require(report, &at.child("volumeID"), &source.volume_id);
    });
    source!(volume.azure_disk, "azureDisk", |report: &mut Report, source| {
        drivers::validate_azure_disk(report, &at.child("azureDisk"), source);
    });
    source!(volume.storageos, "storageos", |report: &mut Report, source| {
        drivers::validate_storageos(report, &at.child("storageos"), source);
    });
    source!(volume.projected, "projected", |report: &mut Report, source| {
        projected::validate(report, &at.child("projected"), source, options);
    });
    source!(volume.scale_io, "scaleIO", |report: &mut Report, source| {
        drivers::validate_scale_io(report, &at.child("scaleIO"), source);
    });
    source!(volume.csi, "csi", |report: &mut Report, source| {
        drivers::validate_csi(report, &at.child("csi"), source);
    });
    source!(volume.ephemeral, "ephemeral", |report: &mut Report, source| {
        validate_ephemeral(report, at, source, &volume.name, pod_name);
    });
    source!(volume.image, "image", |report: &mut Report, source: &core::ImageVolumeSource| {
        let at = at.child("image");
        if options.is_pod {
            require(report, &at.child("reference"), text(&source.reference));
        }
        report.one_of(&at.child("pullPolicy"), text(&source.pull_policy), &PULL_POLICIES);
    });
    if sources == 0 {
        report.required(at, "must specify a volume type");
    }
}

/// The commonest rule of all: the field must be there.
pub(super) fn require(report: &mut Report, at: &Place<'_>, value: &str) {
    if value.is_empty() {
        report.required(at, "");
    }
}

fn validate_host_path(report: &mut Report, at: &Place<'_>, source: &core::HostPathVolumeSource) {
    if source.path.is_empty() {
        return report.required(&at.child("path"), "");
    }
    syntax::no_backsteps(report, &at.child("path"), &source.path);
    if let Some(kind) = source.type_.as_deref().filter(|kind| !HOST_PATH_TYPES.contains(kind)) {
        report.not_supported(&at.child("type"), kind, &HOST_PATH_TYPES);
    }
}

fn validate_secret(report: &mut Report, at: &Place<'_>, source: &core::SecretVolumeSource) {
    require(report, &at.child("secretName"), text(&source.secret_name));
    syntax::file_mode(report, &at.child("defaultMode"), source.default_mode);
    validate_items(report, &at.child("items"), list(&source.items));
}

fn validate_config_map(report: &mut Report, at: &Place<'_>, source: &core::ConfigMapVolumeSource) {
    require(report, &at.child("name"), &source.name);
    syntax::file_mode(report, &at.child("defaultMode"), source.default_mode);
    validate_items(report, &at.child("items"), list(&source.items));
}

fn validate_items(report: &mut Report, at: &Place<'_>, items: &[core::KeyToPath]) {
    for (i, item) in items.iter().enumerate() {
        validate_item(report, &at.index(i), item);
    }
}

/// A key of a ConfigMap or Secret and the file it becomes.
pub(super) fn validate_item(report: &mut Report, at: &Place<'_>, item: &core::KeyToPath) {
    require(report, &at.child("key"), &item.key);
    require(report, &at.child("path"), &item.path);
    syntax::local_non_reserved_path(report, &at.child("path"), &item.path);
    syntax::file_mode(report, &at.child("mode"), item.mode);
}

fn validate_downward_api(report: &mut Report, at: &Place<'_>, source: &core::DownwardAPIVolumeSource) {
    syntax::file_mode(report, &at.child("defaultMode"), source.default_mode);
    for file in list(&source.items) {
        validate_downward_file(report, at, file);
    }
}

/// Upstream reports these at the volume, without saying which file.
pub(super) fn validate_downward_file(report: &mut Report, at: &Place<'_>, file: &core::DownwardAPIVolumeFile) {
    require(report, &at.child("path"), &file.path);
    syntax::local_non_reserved_path(report, &at.child("path"), &file.path);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(selector), resource) => {
            env::validate_field(report, &at.child("fieldRef"), selector, &VOLUME_FIELDS);
            if resource.is_some() {
                report.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (None, Some(selector)) => resources::validate_field(report, &at.child("resourceFieldRef"), selector, true),
        (None, None) => report.required(at, "one of fieldRef and resourceFieldRef is required"),
    }
    syntax::file_mode(report, &at.child("mode"), file.mode);
}

fn validate_ephemeral(
    report: &mut Report,
    at: &Place<'_>,
    source: &core::EphemeralVolumeSource,
    volume: &str,
    pod_name: Option<&str>,
) {
    let template_at = at.child("ephemeral");
    let template_at = template_at.child("volumeClaimTemplate");
    match &source.volume_claim_template {
        None => report.required(&template_at, ""),
        Some(template) => claims::validate_template(report, &template_at, template),
    }
    let Some(pod_name) = pod_name.filter(|_| !volume.is_empty()) else { return };
    let claim = format!("{pod_name}-{volume}");
    for message in names::dns_subdomain(&claim) {
        report.invalid(&at.child("name"), volume, format!("PVC name {}: {message}", field::quoted(&claim)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::{check_templates, check_volumes, pod_errors, template_errors};

    /// JA-P10.
    #[test]
    fn volumes_have_a_name_and_one_source() {
        check_templates(&[
            (json!({"volumes": [{"name": "v"}, {"name": "w", "hostPath": {"path": "/srv"}}]}), &[]),
            (json!({"volumes": [{"emptyDir": {}}]}), &["spec.volumes[0].name: Required value"]),
            (json!({"volumes": [{"name": "v"}, {"name": "v"}]}), &["spec.volumes[1].name: Duplicate value: \"v\""]),
            (
                json!({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {}, "secret": {}, "downwardAPI": {}}]}),
                &[
                    "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
                    "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
                    "spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
                ],
            ),
        ]);
        // Only undefaulted objects can have no source at all.
        let template = core::PodTemplateSpec {
            spec: Some(core::PodSpec { volumes: Some(vec![core::Volume::default()]), ..Default::default() }),
            ..Default::default()
        };
        let errors = crate::pod::validate_template_for_job(&template, &field::Path::default());
        assert!(
            errors
                .iter()
                .any(|error| error.to_string() == "spec.volumes[0]: Required value: must specify a volume type")
        );
    }

    #[test]
    fn everyday_sources() {
        let mode = "must be a number between 0 and 0777 (octal), both inclusive";
        check_volumes(&[
            (json!({"emptyDir": {"sizeLimit": "1Gi"}}), &[]),
            (
                json!({"emptyDir": {"sizeLimit": "-1"}}),
                &["emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
            ),
            (json!({"hostPath": {}}), &["hostPath.path: Required value"]),
            (
                json!({"hostPath": {"path": "/a/../b", "type": "Pipe"}}),
                &[
                    "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
                    "hostPath.type: Unsupported value: \"Pipe\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \
                     \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
                ],
            ),
            (json!({"secret": {}}), &["secret.secretName: Required value"]),
            (json!({"configMap": {}}), &["configMap.name: Required value"]),
            (json!({"persistentVolumeClaim": {}}), &["persistentVolumeClaim.claimName: Required value"]),
            (
                json!({"configMap": {"name": "c", "defaultMode": 512, "items": [
                    {"key": "", "path": ""}, {"key": "k", "path": "/a", "mode": -1}, {"key": "k", "path": "..data"}]}}),
                &[
                    &format!("configMap.defaultMode: Invalid value: 512: {mode}"),
                    "configMap.items[0].key: Required value",
                    "configMap.items[0].path: Required value",
                    "configMap.items[1].path: Invalid value: \"/a\": must be a relative path",
                    &format!("configMap.items[1].mode: Invalid value: -1: {mode}"),
                    "configMap.items[2].path: Invalid value: \"..data\": must not start with '..'",
                ],
            ),
            (
                json!({"downwardAPI": {"items": [
                    {"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "b", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
                    {"path": "c"},
                    {"path": "d", "fieldRef": {"fieldPath": "spec.host"}},
                    {"path": "e", "resourceFieldRef": {"resource": "limits.cpu"}},
                ]}}),
                &[
                    "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
                    "downwardAPI.fieldRef.fieldPath: Unsupported value: \"spec.nodeName\": supported values: \
                     \"metadata.annotations\", \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \
                     \"metadata.uid\"",
                    "downwardAPI.resourceFieldRef.containerName: Required value",
                ],
            ),
            (
                json!({"image": {"reference": "a", "pullPolicy": "Often"}}),
                &["image.pullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \
                   \"Never\""],
            ),
        ]);
    }

    #[test]
    fn only_pods_must_name_the_image_of_a_volume() {
        let spec = json!({"volumes": [{"name": "v", "image": {}}]});
        assert_eq!(template_errors(&spec), [""; 0]);
        assert_eq!(pod_errors(&json!({"spec": spec})), ["spec.volumes[0].image.reference: Required value"]);
    }

    #[test]
    fn claims_of_ephemeral_volumes_are_named_after_the_pod() {
        let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volumes = |name: &str, other: &str| {
            json!({"spec": {"volumes": [
                {"name": name, "ephemeral": {"volumeClaimTemplate": claim}},
                {"name": "p", "persistentVolumeClaim": {"claimName": other}},
            ]}})
        };
        assert_eq!(pod_errors(&volumes("v", "other")), [""; 0]);
        assert_eq!(
            pod_errors(&volumes("v", "demo-v")),
            [
                "spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: \"demo-v\": must not reference a PVC that \
              gets created for an ephemeral volume"
            ]
        );
        let long = "v".repeat(63);
        let edit = json!({"metadata": {"name": "d".repeat(250)}, "spec": volumes(&long, "other")["spec"]});
        assert_eq!(
            pod_errors(&edit),
            [format!(
                "spec.volumes[0].name: Invalid value: \"{long}\": PVC name \"{}-{long}\": must be no more than 253 characters",
                "d".repeat(250)
            )]
        );
    }
}
