//! Where a container sees the pod's volumes: mounts and block devices (JA-P11).

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1 as core;

use super::report::{Place, Report};
use super::syntax;
use super::volumes::Volumes;
use super::zero::{flag, list, text};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE_READ_ONLY: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];

pub(super) fn validate(report: &mut Report, at: &Place<'_>, container: &core::Container, volumes: &Volumes<'_>) {
    let mounts = list(&container.volume_mounts);
    let devices = list(&container.volume_devices);
    if mounts.is_empty() && devices.is_empty() {
        return;
    }
    let devices_by_name: HashMap<&str, &str> =
        devices.iter().map(|device| (device.name.as_str(), device.device_path.as_str())).collect();
    let mounts_by_name: HashMap<&str, &str> =
        mounts.iter().map(|mount| (mount.name.as_str(), mount.mount_path.as_str())).collect();
    validate_mounts(report, &at.child("volumeMounts"), container, volumes, &devices_by_name);
    validate_devices(report, &at.child("volumeDevices"), devices, volumes, &mounts_by_name);
}

fn validate_mounts(
    report: &mut Report,
    at: &Place<'_>,
    container: &core::Container,
    volumes: &Volumes<'_>,
    devices: &HashMap<&str, &str>,
) {
    let mut paths = HashSet::new();
    for (i, mount) in list(&container.volume_mounts).iter().enumerate() {
        let list_at = at;
        let at = at.index(i);
        let (name, path) = (mount.name.as_str(), mount.mount_path.as_str());
        if name.is_empty() {
            report.required(&at.child("name"), "");
        }
        if !volumes.contains(name) {
            report.not_found(&at.child("name"), name);
        }
        if path.is_empty() {
            report.required(&at.child("mountPath"), "");
        }
        if !paths.insert(path) {
            report.invalid(&at.child("mountPath"), path, "must be unique");
        }
        if devices.contains_key(name) {
            report.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|&device| device == path) {
            report.invalid(&at.child("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        validate_sub_paths(report, &at, list_at, mount);
        // Upstream leaves the index out of the paths of the two checks below.
        if let Some(propagation) = &mount.mount_propagation {
            validate_propagation(report, &list_at.child("mountPropagation"), propagation, container);
        }
        validate_recursive_read_only(report, &list_at.child("recursiveReadOnly"), mount);
    }
}

fn validate_sub_paths(report: &mut Report, at: &Place<'_>, list_at: &Place<'_>, mount: &core::VolumeMount) {
    let (sub_path, expression) = (text(&mount.sub_path), text(&mount.sub_path_expr));
    if !sub_path.is_empty() {
        syntax::local_descending_path(report, &list_at.child("subPath"), sub_path);
    }
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            let text = "subPathExpr and subPath are mutually exclusive";
            report.invalid(&at.child("subPathExpr"), expression, text);
        }
        syntax::local_descending_path(report, &list_at.child("subPathExpr"), expression);
    }
}

fn validate_propagation(report: &mut Report, at: &Place<'_>, propagation: &str, container: &core::Container) {
    if !PROPAGATIONS.contains(&propagation) {
        report.not_supported(at, propagation, &PROPAGATIONS);
    }
    let privileged = container.security_context.as_ref().is_some_and(|context| flag(context.privileged));
    if propagation == "Bidirectional" && !privileged {
        report.forbidden(at, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn validate_recursive_read_only(report: &mut Report, at: &Place<'_>, mount: &core::VolumeMount) {
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount.read_only) {
                report.forbidden(at, "may only be specified when readOnly is true");
            }
            if mount.mount_propagation.as_deref().is_some_and(|propagation| propagation != "None") {
                report.forbidden(at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => report.not_supported(at, other, &RECURSIVE_READ_ONLY),
    }
}

fn validate_devices(
    report: &mut Report,
    at: &Place<'_>,
    devices: &[core::VolumeDevice],
    volumes: &Volumes<'_>,
    mounts: &HashMap<&str, &str>,
) {
    let mut names = HashSet::new();
    let mut paths = HashSet::new();
    for (i, device) in devices.iter().enumerate() {
        let at = at.index(i);
        let (name, path) = (device.name.as_str(), device.device_path.as_str());
        if name.is_empty() {
            report.required(&at.child("name"), "");
        }
        if names.contains(name) {
            report.invalid(&at.child("name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => report.not_found(&at.child("name"), name),
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                report.invalid(&at.child("name"), name, text);
            }
            Some(_) => {}
        }
        if path.is_empty() {
            report.required(&at.child("devicePath"), "");
        }
        if paths.contains(path) {
            report.invalid(&at.child("devicePath"), path, "must be unique");
        }
        if syntax::has_backsteps(path) {
            report.invalid(&at.child("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
        if mounts.contains_key(name) {
            report.invalid(&at.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|&mount| mount == path) {
            report.invalid(&at.child("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::check_templates;

    fn mounts(mounts: serde_json::Value) -> serde_json::Value {
        json!({"volumes": [{"name": "v"}], "containers": [{"volumeMounts": mounts}]})
    }

    /// JA-P11.
    #[test]
    fn mounts_name_a_volume_and_a_path_of_their_own() {
        let at = "spec.containers[0].volumeMounts";
        check_templates(&[
            (mounts(json!([{"name": "v", "mountPath": "/v", "subPath": "a/b"}])), &[]),
            (mounts(json!([{"name": "w", "mountPath": "/v"}])), &[&format!("{at}[0].name: Not found: \"w\"")]),
            (
                mounts(json!([{}])),
                &[
                    &format!("{at}[0].name: Required value"),
                    &format!("{at}[0].name: Not found: \"\""),
                    &format!("{at}[0].mountPath: Required value"),
                ],
            ),
            (
                mounts(json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}])),
                &[&format!("{at}[1].mountPath: Invalid value: \"/v\": must be unique")],
            ),
            (
                mounts(json!([{"name": "v", "mountPath": "/v", "subPath": "/a", "subPathExpr": "../$(A)"}])),
                &[
                    &format!("{at}.subPath: Invalid value: \"/a\": must be a relative path"),
                    &format!(
                        "{at}[0].subPathExpr: Invalid value: \"../$(A)\": subPathExpr and subPath are mutually exclusive"
                    ),
                    &format!("{at}.subPathExpr: Invalid value: \"../$(A)\": must not contain '..'"),
                ],
            ),
            // A volume with problems of its own cannot be mounted.
            (
                json!({
                    "volumes": [{"name": "v", "hostPath": {}}],
                    "containers": [{"volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                }),
                &["spec.volumes[0].hostPath.path: Required value", &format!("{at}[0].name: Not found: \"v\"")],
            ),
        ]);
    }

    #[test]
    fn propagation_and_recursion() {
        let at = "spec.containers[0].volumeMounts";
        let mount = |edit: serde_json::Value| {
            let mut mount = json!({"name": "v", "mountPath": "/v"});
            mount.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
            mounts(json!([mount]))
        };
        check_templates(&[
            (mount(json!({"mountPropagation": "HostToContainer"})), &[]),
            (
                mount(json!({"mountPropagation": "Bidirectional"})),
                &[&format!(
                    "{at}.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged \
                     containers"
                )],
            ),
            (
                mount(json!({"mountPropagation": "Both"})),
                &[&format!(
                    "{at}.mountPropagation: Unsupported value: \"Both\": supported values: \"Bidirectional\", \
                     \"HostToContainer\", \"None\""
                )],
            ),
            (mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true})), &[]),
            (
                mount(json!({"recursiveReadOnly": "IfPossible", "mountPropagation": "HostToContainer"})),
                &[
                    &format!("{at}.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"),
                    &format!(
                        "{at}.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not \
                         specified"
                    ),
                ],
            ),
            (
                mount(json!({"recursiveReadOnly": "Yes"})),
                &[&format!(
                    "{at}.recursiveReadOnly: Unsupported value: \"Yes\": supported values: \"Disabled\", \"Enabled\", \
                     \"IfPossible\""
                )],
            ),
        ]);
    }

    #[test]
    fn block_devices_come_from_claims() {
        let spec = |devices: serde_json::Value| {
            json!({
                "volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}],
                "containers": [{"volumeMounts": [{"name": "v", "mountPath": "/v"}], "volumeDevices": devices}],
            })
        };
        let at = "spec.containers[0]";
        check_templates(&[
            (spec(json!([{"name": "p", "devicePath": "/dev/x"}])), &[]),
            (
                spec(json!([{"name": "v", "devicePath": "/v"}])),
                &[
                    &format!(
                        "{at}.volumeMounts[0].name: Invalid value: \"v\": must not already exist in volumeDevices"
                    ),
                    &format!(
                        "{at}.volumeMounts[0].mountPath: Invalid value: \"/v\": must not already exist as a path in \
                         volumeDevices"
                    ),
                    &format!(
                        "{at}.volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of \
                         PersistentVolumeClaim or Ephemeral for block mode"
                    ),
                    &format!(
                        "{at}.volumeDevices[0].name: Invalid value: \"v\": must not already exist in volumeMounts"
                    ),
                    &format!(
                        "{at}.volumeDevices[0].devicePath: Invalid value: \"/v\": must not already exist as a path in \
                         volumeMounts"
                    ),
                ],
            ),
            (
                spec(json!([{"name": "p", "devicePath": "/dev/../x"}, {"name": "p", "devicePath": ""}])),
                &[
                    &format!(
                        "{at}.volumeDevices[0].devicePath: Invalid value: \"/dev/../x\": can not contain backsteps ('..')"
                    ),
                    &format!("{at}.volumeDevices[1].name: Invalid value: \"p\": must be unique"),
                    &format!("{at}.volumeDevices[1].devicePath: Required value"),
                ],
            ),
        ]);
    }
}
