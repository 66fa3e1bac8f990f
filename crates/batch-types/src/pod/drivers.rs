//! Volume sources of storage drivers: CSI, and the ones that were built in before it.
//!
//! Most of the latter stopped working releases ago (see `warnings`) but are still validated as before.

use k8s_openapi::api::core::v1 as core;

use super::report::{Place, Report};
use super::syntax;
use super::volumes::require;
use super::zero::{flag, list, text};
use crate::names;

const DRIVER_NAME_MAX: usize = 63;
const ISCSI_NAME_MAX: usize = 64;
const QUOBYTE_TENANT_MAX: usize = 64;
const AZURE_CACHING_MODES: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const AZURE_DISK_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const AZURE_MANAGED_URI: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const AZURE_BLOB_URI: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
const HOST_PORT_PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";

pub(super) fn validate_csi(report: &mut Report, at: &Place<'_>, source: &core::CSIVolumeSource) {
    let driver = source.driver.as_str();
    if driver.is_empty() {
        report.required(&at.child("driver"), "");
    } else {
        if driver.len() > DRIVER_NAME_MAX {
            report.too_long(&at.child("driver"), DRIVER_NAME_MAX);
        }
        report.each_invalid(&at.child("driver"), driver, names::dns_subdomain(&driver.to_lowercase()));
    }
    let Some(secret) = &source.node_publish_secret_ref else { return };
    if secret.name.is_empty() {
        let at = at.child("nodePublishSecretRef");
        report.required(&at.child("name"), "");
    } else {
        report.each_invalid(&at.child("name"), &secret.name, names::dns_subdomain(&secret.name));
    }
}

pub(super) fn validate_nfs(report: &mut Report, at: &Place<'_>, source: &core::NFSVolumeSource) {
    require(report, &at.child("server"), &source.server);
    require(report, &at.child("path"), &source.path);
    if !source.path.starts_with('/') {
        report.invalid(&at.child("path"), source.path.as_str(), "must be an absolute path");
    }
}

pub(super) fn validate_git_repo(report: &mut Report, at: &Place<'_>, source: &core::GitRepoVolumeSource) {
    require(report, &at.child("repository"), &source.repository);
    syntax::local_descending_path(report, &at.child("directory"), text(&source.directory));
}

pub(super) fn validate_gce_persistent_disk(
    report: &mut Report,
    at: &Place<'_>,
    source: &core::GCEPersistentDiskVolumeSource,
) {
    require(report, &at.child("pdName"), &source.pd_name);
    validate_partition(report, &at.child("partition"), source.partition);
}

pub(super) fn validate_aws_elastic_block_store(
    report: &mut Report,
    at: &Place<'_>,
    source: &core::AWSElasticBlockStoreVolumeSource,
) {
    require(report, &at.child("volumeID"), &source.volume_id);
    validate_partition(report, &at.child("partition"), source.partition);
}

/// Zero passes although the text says otherwise: it means the whole disk.
fn validate_partition(report: &mut Report, at: &Place<'_>, partition: Option<i32>) {
    let partition = partition.unwrap_or_default();
    if !(0..=255).contains(&partition) {
        report.invalid(at, partition, "must be between 1 and 255, inclusive");
    }
}

pub(super) fn validate_iscsi(report: &mut Report, at: &Place<'_>, source: &core::ISCSIVolumeSource) {
    require(report, &at.child("targetPortal"), &source.target_portal);
    if source.iqn.is_empty() {
        report.required(&at.child("iqn"), "");
    } else {
        validate_iscsi_qualified_name(report, &at.child("iqn"), &source.iqn);
    }
    validate_lun(report, &at.child("lun"), source.lun);
    let authenticates = flag(source.chap_auth_discovery) || flag(source.chap_auth_session);
    if authenticates && source.secret_ref.is_none() {
        report.required(&at.child("secretRef"), "");
    }
    if let Some(initiator) = &source.initiator_name {
        validate_iscsi_qualified_name(report, &at.child("initiatorname"), initiator);
    }
}

pub(super) fn validate_iscsi_name_length(
    report: &mut Report,
    at: &Place<'_>,
    volume: &str,
    source: &core::ISCSIVolumeSource,
) {
    if source.initiator_name.is_some() && volume.len() + 1 + source.target_portal.len() > ISCSI_NAME_MAX {
        let text = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                    iscsi.initiatorName is specified.";
        report.invalid(at, volume, text);
    }
}

fn validate_iscsi_qualified_name(report: &mut Report, at: &Place<'_>, name: &str) {
    let well_formed = match name.get(..3) {
        Some("iqn") => name.match_indices("iqn.").any(|(start, _)| is_iqn(&name[start + 4..])),
        Some("eui") => is_hex_name(name, 16),
        Some("naa") => is_hex_name(name, 32),
        _ => return report.invalid(at, name, "must be valid format starting with iqn, eui, or naa"),
    };
    if !well_formed {
        report.invalid(at, name, "must be valid format");
    }
}

/// What follows `iqn.`: `yyyy-mm.` and a reversed domain, a colon, and a name without separators.
fn is_iqn(rest: &str) -> bool {
    let date = |pattern: &str, text: &[u8]| {
        pattern.bytes().zip(text).all(|(want, &c)| if want == b'd' { c.is_ascii_digit() } else { c == want })
    };
    let Some((head, tail)) = rest.as_bytes().split_at_checked("dddd-dd.".len()) else { return false };
    let authority = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.');
    let domain = tail.iter().take_while(|c| authority(c)).count();
    let name = &tail[domain..];
    date("dddd-dd.", head)
        && domain > 0
        && name.len() > 1
        && name[0] == b':'
        && name[1..].iter().all(|c| !b",;*&$| \t\n\x0c\r".contains(c))
}

fn is_hex_name(name: &str, digits: usize) -> bool {
    let mut rest = name.chars().skip(4);
    let alphanumeric = rest.by_ref().take_while(char::is_ascii_alphanumeric).count();
    alphanumeric == digits && name.chars().count() == 4 + digits
}

fn validate_lun(report: &mut Report, at: &Place<'_>, lun: i32) {
    if !(0..=255).contains(&lun) {
        report.invalid(at, lun, "must be between 0 and 255, inclusive");
    }
}

pub(super) fn validate_fc(report: &mut Report, at: &Place<'_>, source: &core::FCVolumeSource) {
    let (targets, wwids) = (list(&source.target_wwns), list(&source.wwids));
    if targets.is_empty() && wwids.is_empty() {
        report.required(&at.child("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !wwids.is_empty() {
        report.invalid(&at.child("targetWWNs"), targets, "targetWWNs and wwids can not be specified simultaneously");
    }
    match source.lun {
        None => report.required(&at.child("lun"), "lun is required if targetWWNs is specified"),
        Some(lun) => validate_lun(report, &at.child("lun"), lun),
    }
}

pub(super) fn validate_glusterfs(report: &mut Report, at: &Place<'_>, source: &core::GlusterfsVolumeSource) {
    require(report, &at.child("endpoints"), &source.endpoints);
    require(report, &at.child("path"), &source.path);
}

pub(super) fn validate_flocker(report: &mut Report, at: &Place<'_>, source: &core::FlockerVolumeSource) {
    let (name, uuid) = (text(&source.dataset_name), text(&source.dataset_uuid));
    if name.is_empty() && uuid.is_empty() {
        report.required(at, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        report.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        report.invalid(&at.child("datasetName"), name, "must not contain '/'");
    }
}

pub(super) fn validate_rbd(report: &mut Report, at: &Place<'_>, source: &core::RBDVolumeSource) {
    if source.monitors.is_empty() {
        report.required(&at.child("monitors"), "");
    }
    require(report, &at.child("image"), &source.image);
}

pub(super) fn validate_cephfs(report: &mut Report, at: &Place<'_>, source: &core::CephFSVolumeSource) {
    if source.monitors.is_empty() {
        report.required(&at.child("monitors"), "");
    }
}

pub(super) fn validate_cinder(report: &mut Report, at: &Place<'_>, source: &core::CinderVolumeSource) {
    require(report, &at.child("volumeID"), &source.volume_id);
    validate_secret_ref(report, at, source.secret_ref.as_ref());
}

fn validate_secret_ref(report: &mut Report, at: &Place<'_>, secret: Option<&core::LocalObjectReference>) {
    if let Some(secret) = secret {
        let at = at.child("secretRef");
        require(report, &at.child("name"), &secret.name);
    }
}

pub(super) fn validate_quobyte(report: &mut Report, at: &Place<'_>, source: &core::QuobyteVolumeSource) {
    if source.registry.is_empty() {
        report.required(&at.child("registry"), HOST_PORT_PAIRS);
    } else if text(&source.tenant).len() > QUOBYTE_TENANT_MAX {
        report.required(&at.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in source.registry.split(',').filter(|pair| !is_host_port(pair)) {
            report.invalid(&at.child("registry"), source.registry.as_str(), HOST_PORT_PAIRS);
        }
    }
    require(report, &at.child("volume"), &source.volume);
}

/// `host:port` or `[host]:port`, without looking at either part (Go's `net.SplitHostPort`).
fn is_host_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(inner) => inner,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

pub(super) fn validate_flex_volume(report: &mut Report, at: &Place<'_>, source: &core::FlexVolumeSource) {
    require(report, &at.child("driver"), &source.driver);
    let at = at.child("options");
    for key in source.options.iter().flat_map(|options| options.keys()) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            report.invalid(&at.key(key), key.as_str(), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

pub(super) fn validate_azure_file(report: &mut Report, at: &Place<'_>, source: &core::AzureFileVolumeSource) {
    require(report, &at.child("secretName"), &source.secret_name);
    require(report, &at.child("shareName"), &source.share_name);
}

pub(super) fn validate_azure_disk(report: &mut Report, at: &Place<'_>, source: &core::AzureDiskVolumeSource) {
    require(report, &at.child("diskName"), &source.disk_name);
    require(report, &at.child("diskURI"), &source.disk_uri);
    if let Some(mode) = source.caching_mode.as_deref().filter(|mode| !AZURE_CACHING_MODES.contains(mode)) {
        report.not_supported(&at.child("cachingMode"), mode, &AZURE_CACHING_MODES);
    }
    let Some(kind) = source.kind.as_deref() else { return };
    if !AZURE_DISK_KINDS.contains(&kind) {
        report.not_supported(&at.child("kind"), kind, &AZURE_DISK_KINDS);
    }
    let (prefix, form) =
        if kind == "Managed" { ("/subscriptions/", AZURE_MANAGED_URI) } else { ("https://", AZURE_BLOB_URI) };
    if !source.disk_uri.starts_with(prefix) {
        report.not_supported_text(&at.child("diskURI"), &source.disk_uri, &[form]);
    }
}

pub(super) fn validate_scale_io(report: &mut Report, at: &Place<'_>, source: &core::ScaleIOVolumeSource) {
    require(report, &at.child("gateway"), &source.gateway);
    require(report, &at.child("system"), &source.system);
    require(report, &at.child("volumeName"), text(&source.volume_name));
}

pub(super) fn validate_storageos(report: &mut Report, at: &Place<'_>, source: &core::StorageOSVolumeSource) {
    let (volume, namespace) = (text(&source.volume_name), text(&source.volume_namespace));
    if volume.is_empty() {
        report.required(&at.child("volumeName"), "");
    } else {
        report.each_invalid(&at.child("volumeName"), volume, names::dns_label(volume));
    }
    if !namespace.is_empty() {
        report.each_invalid(&at.child("volumeNamespace"), namespace, names::dns_label(namespace));
    }
    validate_secret_ref(report, at, source.secret_ref.as_ref());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::check_volumes;

    #[test]
    fn host_port_pairs() {
        for good in ["host:80", "[::1]:80", ":80", "host:"] {
            assert!(is_host_port(good), "{good}");
        }
        for bad in ["host", "::1:80", "[::1:80", "", "a]:80"] {
            assert!(!is_host_port(bad), "{bad}");
        }
    }

    #[test]
    fn iscsi_names() {
        for good in ["2001-04.com.example:storage.disk1", "2014-12.a:b"] {
            assert!(is_iqn(good), "{good}");
        }
        for bad in ["2001-04.com.example", "201-04.com:x", "2001-04.:x", "2001-04.com:", "2001-04.com:a b"] {
            assert!(!is_iqn(bad), "{bad}");
        }
        assert!(is_hex_name("eui.0123456789abcdef", 16));
        assert!(!is_hex_name("eui.0123456789abcde", 16));
    }

    #[test]
    fn drivers_need_their_fields() {
        let iqn = "2001-04.com.example:storage";
        check_volumes(&[
            (json!({"csi": {"driver": "csi.example.com", "nodePublishSecretRef": {"name": "s"}}}), &[]),
            (
                json!({"csi": {"nodePublishSecretRef": {}}}),
                &["csi.driver: Required value", "csi.nodePublishSecretRef.name: Required value"],
            ),
            (json!({"csi": {"driver": "d".repeat(64)}}), &["csi.driver: Too long: may not be more than 63 bytes"]),
            (
                json!({"nfs": {}}),
                &[
                    "nfs.server: Required value",
                    "nfs.path: Required value",
                    "nfs.path: Invalid value: \"\": must be an absolute path",
                ],
            ),
            (
                json!({"gitRepo": {"directory": "../a"}}),
                &[
                    "gitRepo.repository: Required value",
                    "gitRepo.directory: Invalid value: \"../a\": must not contain '..'",
                ],
            ),
            (
                json!({"gcePersistentDisk": {"partition": 256}}),
                &[
                    "persistentDisk.pdName: Required value",
                    "persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
                ],
            ),
            (json!({"awsElasticBlockStore": {}}), &["awsElasticBlockStore.volumeID: Required value"]),
            (json!({"iscsi": {"targetPortal": "p", "iqn": format!("iqn.{iqn}"), "lun": 1}}), &[]),
            (
                json!({"iscsi": {"iqn": "x", "lun": 256, "chapAuthSession": true, "initiatorName": "eui.1"}}),
                &[
                    "iscsi.targetPortal: Required value",
                    "iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
                    "iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                    "iscsi.secretRef: Required value",
                    "iscsi.initiatorname: Invalid value: \"eui.1\": must be valid format",
                ],
            ),
            (json!({"glusterfs": {}}), &["glusterfs.endpoints: Required value", "glusterfs.path: Required value"]),
            (json!({"flocker": {}}), &["flocker: Required value: one of datasetName and datasetUUID is required"]),
            (json!({"rbd": {}}), &["rbd.monitors: Required value", "rbd.image: Required value"]),
            (json!({"cephfs": {}}), &["cephfs.monitors: Required value"]),
            (
                json!({"cinder": {"secretRef": {}}}),
                &["cinder.volumeID: Required value", "cinder.secretRef.name: Required value"],
            ),
            (
                json!({"quobyte": {"registry": "a:1,b"}}),
                &[
                    "quobyte.registry: Invalid value: \"a:1,b\": must be a host:port pair or multiple pairs separated by \
                     commas",
                    "quobyte.volume: Required value",
                ],
            ),
            (
                json!({"fc": {}}),
                &["fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
            ),
            (
                json!({"fc": {"targetWWNs": ["a"], "wwids": ["b"]}}),
                &[
                    "fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously",
                    "fc.lun: Required value: lun is required if targetWWNs is specified",
                ],
            ),
            (
                json!({"flexVolume": {"driver": "d", "options": {"a.k8s.io/x": "y"}}}),
                &[
                    "flexVolume.options[a.k8s.io/x]: Invalid value: \"a.k8s.io/x\": kubernetes.io and k8s.io namespaces are \
                   reserved",
                ],
            ),
            (
                json!({"azureFile": {}}),
                &["azureFile.secretName: Required value", "azureFile.shareName: Required value"],
            ),
            (
                json!({"azureDisk": {"diskName": "d", "diskURI": "x", "cachingMode": "Some"}}),
                &[
                    "azureDisk.cachingMode: Unsupported value: \"Some\": supported values: \"None\", \"ReadOnly\", \
                     \"ReadWrite\"",
                    "azureDisk.diskURI: Unsupported value: \"x\": supported values: \
                     \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\"",
                ],
            ),
            (json!({"vsphereVolume": {}}), &["vsphereVolume.volumePath: Required value"]),
            (json!({"photonPersistentDisk": {}}), &["photonPersistentDisk.pdID: Required value"]),
            (json!({"portworxVolume": {}}), &["portworxVolume.volumeID: Required value"]),
            (
                json!({"scaleIO": {}}),
                &[
                    "scaleIO.gateway: Required value",
                    "scaleIO.system: Required value",
                    "scaleIO.volumeName: Required value",
                ],
            ),
            (json!({"storageos": {}}), &["storageos.volumeName: Required value"]),
        ]);
    }
}
