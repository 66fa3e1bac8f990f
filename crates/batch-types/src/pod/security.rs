//! Security contexts of pods and containers: users, capabilities, profiles, kernel parameters (JA-P19).
//!
//! What Windows adds or forbids is in `windows`; the annotations that came before the profile fields are in
//! `annotations`.

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;

use super::options::Options;
use super::report::{Place, Report};
use super::syntax;
use super::windows;
use super::zero::{flag, list};

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const FS_GROUP_CHANGE_POLICIES: [&str; 2] = ["Always", "OnRootMismatch"];
const SUPPLEMENTAL_GROUPS_POLICIES: [&str; 2] = ["Merge", "Strict"];
const SE_LINUX_CHANGE_POLICIES: [&str; 2] = ["MountOption", "Recursive"];
const PROC_MOUNTS: [&str; 2] = ["Default", "Unmasked"];
/// A path minus its terminating zero.
const LOCALHOST_PROFILE_MAX: usize = 4095;

pub(super) fn validate_pod(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec, options: &Options) {
    let default = core::PodSecurityContext::default();
    let context = spec.security_context.as_ref().unwrap_or(&default);
    validate_id(report, &at.child("fsGroup"), context.fs_group);
    validate_id(report, &at.child("runAsUser"), context.run_as_user);
    validate_id(report, &at.child("runAsGroup"), context.run_as_group);
    let groups_at = at.child("supplementalGroups");
    for (i, group) in list(&context.supplemental_groups).iter().enumerate() {
        validate_id(report, &groups_at.index(i), Some(*group));
    }
    if flag(spec.share_process_namespace) && flag(spec.host_pid) {
        let text = "ShareProcessNamespace and HostPID cannot both be enabled";
        report.invalid(&at.child("shareProcessNamespace"), true, text);
    }
    validate_sysctls(report, &at.child("sysctls"), list(&context.sysctls), spec, options);
    let policy = context.fs_group_change_policy.as_deref();
    validate_choice(report, &at.child("fsGroupChangePolicy"), policy, &FS_GROUP_CHANGE_POLICIES);
    validate_seccomp(report, &at.child("seccompProfile"), context.seccomp_profile.as_ref());
    windows::validate_options(report, &at.child("windowsOptions"), context.windows_options.as_ref());
    validate_app_armor(report, &at.child("appArmorProfile"), context.app_armor_profile.as_ref());
    let policy = context.supplemental_groups_policy.as_deref();
    validate_choice(report, &at.child("supplementalGroupsPolicy"), policy, &SUPPLEMENTAL_GROUPS_POLICIES);
    let supported = if options.any_se_linux_change_policy { &SE_LINUX_CHANGE_POLICIES[..] } else { &["Recursive"] };
    let policy = context.se_linux_change_policy.as_deref();
    validate_choice(report, &at.child("seLinuxChangePolicy"), policy, supported);
}

pub(super) fn validate_container(
    report: &mut Report,
    at: &Place<'_>,
    context: &core::SecurityContext,
    spec: &core::PodSpec,
) {
    validate_id(report, &at.child("runAsUser"), context.run_as_user);
    validate_id(report, &at.child("runAsGroup"), context.run_as_group);
    if let Some(mount) = context.proc_mount.as_deref() {
        validate_choice(report, &at.child("procMount"), Some(mount), &PROC_MOUNTS);
        if mount == "Unmasked" && spec.host_users != Some(false) {
            report.invalid(&at.child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    validate_seccomp(report, &at.child("seccompProfile"), context.seccomp_profile.as_ref());
    validate_escalation(report, at, context);
    windows::validate_options(report, &at.child("windowsOptions"), context.windows_options.as_ref());
    validate_app_armor(report, &at.child("appArmorProfile"), context.app_armor_profile.as_ref());
}

/// Refusing escalation contradicts being as privileged as can be already.
fn validate_escalation(report: &mut Report, at: &Place<'_>, context: &core::SecurityContext) {
    if context.allow_privilege_escalation != Some(false) {
        return;
    }
    let shown = || serde_json::to_value(context).unwrap_or_default();
    if flag(context.privileged) {
        report.invalid(at, shown(), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    let added = context.capabilities.iter().flat_map(|capabilities| list(&capabilities.add));
    for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
        let text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        report.invalid(at, shown(), text);
    }
}

/// User and group ids that fit the kernel's signed half.
pub(super) fn validate_id(report: &mut Report, at: &Place<'_>, id: Option<i64>) {
    if let Some(id) = id.filter(|&id| !(0..=i64::from(i32::MAX)).contains(&id)) {
        report.invalid(at, id, "must be between 0 and 2147483647, inclusive");
    }
}

fn validate_choice(report: &mut Report, at: &Place<'_>, value: Option<&str>, supported: &[&str]) {
    if let Some(value) = value.filter(|value| !supported.contains(value)) {
        report.not_supported(at, value, supported);
    }
}

fn validate_seccomp(report: &mut Report, at: &Place<'_>, profile: Option<&core::SeccompProfile>) {
    let Some(profile) = profile else { return };
    match profile.type_.as_str() {
        "" => report.required(&at.child("type"), "type is required when seccompProfile is set"),
        kind => validate_choice(report, &at.child("type"), Some(kind), &PROFILE_TYPES),
    }
    let at = at.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => report.required(&at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(path)) => syntax::local_descending_path(report, &at, path),
        (_, Some(_)) => {
            let shown = serde_json::to_value(profile).unwrap_or_default();
            report.invalid(&at, shown, "can only be set when seccomp type is Localhost");
        }
        (_, None) => {}
    }
}

pub(super) fn validate_app_armor(report: &mut Report, at: &Place<'_>, profile: Option<&core::AppArmorProfile>) {
    let Some(profile) = profile else { return };
    let localhost_at = at.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => report.required(&localhost_at, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(path)) => {
            if path.trim() != path {
                report.invalid(&localhost_at, path.as_str(), "must not be padded with whitespace");
            } else if path.is_empty() {
                report.required(&localhost_at, "must be set when AppArmor type is Localhost");
            }
            if path.len() > LOCALHOST_PROFILE_MAX {
                report.too_long(&localhost_at, LOCALHOST_PROFILE_MAX);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(path)) => {
            report.invalid(&localhost_at, path.as_str(), "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => report.required(&at.child("type"), "type is required when appArmorProfile is set"),
        (kind, _) => report.not_supported(&at.child("type"), kind, &PROFILE_TYPES),
    }
}

fn validate_sysctls(
    report: &mut Report,
    at: &Place<'_>,
    sysctls: &[core::Sysctl],
    spec: &core::PodSpec,
    options: &Options,
) {
    let mut names = HashSet::new();
    for (i, sysctl) in sysctls.iter().enumerate() {
        let at = at.index(i);
        let at = at.child("name");
        let name = sysctl.name.as_str();
        let is_new = names.insert(name);
        if name.is_empty() {
            report.required(&at, "");
        } else if let Some(message) = syntax::sysctl_name(name) {
            report.invalid(&at, name, message);
        } else if !is_new {
            report.duplicate(&at, name);
        }
        if !options.namespaced_sysctls_with_host_namespaces
            && let Some(message) = host_sysctl_problem(name, spec)
        {
            report.invalid(&at, name, message);
        }
    }
}

/// A parameter of a namespace that the pod shares with its host would change the host.
fn host_sysctl_problem(sysctl: &str, spec: &core::PodSpec) -> Option<&'static str> {
    match sysctl_namespace(sysctl)? {
        Namespace::Net => flag(spec.host_network).then_some("may not be specified when 'hostNetwork' is true"),
        Namespace::Ipc => flag(spec.host_ipc).then_some("may not be specified when 'hostIPC' is true"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Net,
    Ipc,
}

fn sysctl_namespace(sysctl: &str) -> Option<Namespace> {
    const IPC: [&str; 10] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    let name = with_dots(sysctl);
    let name = name.split_once('*').map_or(name.as_str(), |(prefix, _)| prefix);
    match name {
        _ if IPC.contains(&name) || name.starts_with("fs.mqueue.") => Some(Namespace::Ipc),
        _ if name.starts_with("net.") => Some(Namespace::Net),
        _ => None,
    }
}

/// If the first separator is a slash, slashes separate and dots belong to the segments.
fn with_dots(sysctl: &str) -> String {
    if sysctl.find(['.', '/']).is_some_and(|at| sysctl[at..].starts_with('/')) {
        let swap = |c| match c {
            '.' => '/',
            '/' => '.',
            c => c,
        };
        return sysctl.chars().map(swap).collect();
    }
    sysctl.to_owned()
}

/// Whether an already stored spec has such a parameter (JA-P20).
pub(super) fn has_namespaced_sysctl(spec: &core::PodSpec) -> bool {
    let sysctls = spec.security_context.iter().flat_map(|context| list(&context.sysctls));
    sysctls.into_iter().any(|sysctl| host_sysctl_problem(&sysctl.name, spec).is_some())
}

/// The profile an AppArmor annotation stands for, if it stands for one.
pub(super) fn app_armor_of_annotation(annotation: &str) -> Option<core::AppArmorProfile> {
    let profile = |kind: &str, path: Option<&str>| core::AppArmorProfile {
        type_: kind.to_owned(),
        localhost_profile: path.map(str::to_owned),
    };
    match annotation {
        "unconfined" => Some(profile("Unconfined", None)),
        "runtime/default" => Some(profile("RuntimeDefault", None)),
        _ => {
            let path = annotation.strip_prefix("localhost/").filter(|path| !path.is_empty())?;
            Some(profile("Localhost", Some(path)))
        }
    }
}

/// User namespaces exclude the other namespaces of the host, and block devices.
pub(super) fn validate_host_users(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec, options: &Options) {
    const TEXT: &str = "when `hostUsers` is false";
    if spec.host_users != Some(false) {
        return;
    }
    if flag(spec.host_network) && !options.host_network_with_user_namespace {
        report.forbidden(&at.child("hostNetwork"), TEXT);
    }
    // The capitals are upstream's.
    if flag(spec.host_pid) {
        report.forbidden(&at.child("HostPID"), TEXT);
    }
    if flag(spec.host_ipc) {
        report.forbidden(&at.child("HostIPC"), TEXT);
    }
    if options.volume_devices_with_user_namespace {
        return;
    }
    for (list_name, i, container) in super::containers::all(spec) {
        if !list(&container.volume_devices).is_empty() {
            let containers_at = at.child(list_name);
            let container_at = containers_at.index(i);
            report.forbidden(&container_at.child("volumeDevices"), TEXT);
        }
    }
}

/// The operating system the pod is for, and what it therefore cannot have.
pub(super) fn validate_os(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    let Some(os) = &spec.os else { return };
    match os.name.as_str() {
        "" => {
            let at = at.child("os");
            report.required(&at.child("name"), "");
        }
        "linux" => windows::forbid_options(report, at, spec),
        "windows" => windows::forbid_linux_fields(report, at, spec),
        other => report.not_supported(&at.child("os"), other, &["linux", "windows"]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::{check_containers, check_templates};

    #[test]
    fn sysctls_belong_to_namespaces() {
        let cases = [
            ("net.ipv4.tcp_syncookies", Some(Namespace::Net)),
            ("net/ipv4/conf/eth0.1/forwarding", Some(Namespace::Net)),
            ("kernel.shm_rmid_forced", Some(Namespace::Ipc)),
            ("fs.mqueue.msg_max", Some(Namespace::Ipc)),
            ("kernel.msg*", Some(Namespace::Ipc)),
            ("kernel.pid_max", None),
            ("netfilter", None),
        ];
        for (name, namespace) in cases {
            assert_eq!(sysctl_namespace(name), namespace, "{name}");
        }
    }

    /// JA-P19.
    #[test]
    fn ids_and_profiles() {
        let id = "must be between 0 and 2147483647, inclusive";
        check_templates(&[
            (
                json!({"securityContext": {
                    "fsGroup": -1, "runAsUser": 2147483648i64, "runAsGroup": 0, "supplementalGroups": [1, -2],
                    "fsGroupChangePolicy": "Never", "supplementalGroupsPolicy": "Some", "seLinuxChangePolicy": "MountOption",
                }}),
                &[
                    &format!("spec.securityContext.fsGroup: Invalid value: -1: {id}"),
                    &format!("spec.securityContext.runAsUser: Invalid value: 2147483648: {id}"),
                    &format!("spec.securityContext.supplementalGroups[1]: Invalid value: -2: {id}"),
                    "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"Never\": supported values: \"Always\", \
                     \"OnRootMismatch\"",
                    "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"Some\": supported values: \
                     \"Merge\", \"Strict\"",
                    "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"MountOption\": supported values: \
                     \"Recursive\"",
                ],
            ),
            (
                json!({"hostPID": true, "shareProcessNamespace": true}),
                &[
                    "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot \
                   both be enabled",
                ],
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Localhost"}, "appArmorProfile": {"type": "Mine"}}}),
                &[
                    "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is \
                     Localhost",
                    "spec.securityContext.appArmorProfile.type: Unsupported value: \"Mine\": supported values: \
                     \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
                ],
            ),
        ]);
        check_containers(&[
            (json!({"securityContext": {"privileged": true, "runAsUser": 0}}), &[]),
            (
                json!({"securityContext": {"procMount": "Unmasked"}}),
                &[
                    "securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
                ],
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "/a/../b"}}}),
                &[
                    "securityContext.seccompProfile.localhostProfile: Invalid value: \"/a/../b\": must be a relative path",
                    "securityContext.seccompProfile.localhostProfile: Invalid value: \"/a/../b\": must not contain '..'",
                ],
            ),
            (
                json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}}),
                &["securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,\"capabilities\":{\"add\":\
                   [\"CAP_SYS_ADMIN\"]}}: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"],
            ),
        ]);
    }

    #[test]
    fn sysctls_must_be_the_pods_own() {
        let spec = |names: &[&str]| {
            let sysctls: Vec<_> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
            json!({"hostNetwork": true, "securityContext": {"sysctls": sysctls}})
        };
        let at = "spec.securityContext.sysctls";
        check_templates(&[
            (spec(&["kernel.shmmax", "kernel/msgmax"]), &[]),
            (
                spec(&["", "a..b", "kernel.sem", "kernel.sem", "net.core.somaxconn"]),
                &[
                    &format!("{at}[0].name: Required value"),
                    &format!(
                        "{at}[1].name: Invalid value: \"a..b\": must have at most 253 characters and match regex \
                         ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
                    ),
                    &format!("{at}[3].name: Duplicate value: \"kernel.sem\""),
                    &format!(
                        "{at}[4].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is \
                         true"
                    ),
                ],
            ),
        ]);
    }

    #[test]
    fn user_namespaces_exclude_the_hosts() {
        check_templates(&[
            (json!({"hostUsers": false}), &[]),
            (
                json!({"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true}),
                &[
                    "spec.hostNetwork: Forbidden: when `hostUsers` is false",
                    "spec.HostPID: Forbidden: when `hostUsers` is false",
                    "spec.HostIPC: Forbidden: when `hostUsers` is false",
                ],
            ),
        ]);
    }

    #[test]
    fn systems_have_their_own_fields() {
        let options = json!({"windowsOptions": {"hostProcess": false}});
        check_templates(&[
            (json!({"os": {"name": ""}}), &["spec.os.name: Required value"]),
            (
                json!({"os": {"name": "plan9"}}),
                &["spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""],
            ),
            (
                json!({"os": {"name": "linux"}, "securityContext": options, "containers": [{"securityContext": options}]}),
                &[
                    "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
                    "spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a \
                     linux pod",
                ],
            ),
            (
                json!({
                    "os": {"name": "windows"}, "hostPID": true, "resources": {},
                    "securityContext": {"runAsUser": 1, "fsGroup": 2},
                    "containers": [{"securityContext": {"privileged": true}}],
                }),
                &[
                    "spec.resources: Forbidden: may not be set for a windows pod",
                    "spec.hostPID: Forbidden: cannot be set for a windows pod",
                    "spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod",
                    "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
                    "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
                ],
            ),
            (
                json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
                &["spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess \
                   containers"],
            ),
        ]);
    }
}
