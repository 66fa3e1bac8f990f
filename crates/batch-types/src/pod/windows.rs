//! Windows: its security options, host-process pods, and what a pod of either system cannot have of the other.

use k8s_openapi::api::core::v1 as core;

use super::containers;
use super::report::{Place, Report};
use super::zero::{flag, list};
use crate::names;

const CREDENTIAL_SPEC_KIB_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 256;
const USER_BYTES_MAX: usize = 104;
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";

pub(super) fn validate_options(
    report: &mut Report,
    at: &Place<'_>,
    options: Option<&core::WindowsSecurityContextOptions>,
) {
    let Some(options) = options else { return };
    if let Some(name) = &options.gmsa_credential_spec_name {
        report.each_invalid(&at.child("gmsaCredentialSpecName"), name, names::dns_subdomain(name));
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let at = at.child("gmsaCredentialSpec");
        if spec.is_empty() {
            report.invalid(&at, spec.as_str(), "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > CREDENTIAL_SPEC_KIB_MAX * 1024 {
            let text = format!("gmsaCredentialSpec size must be under {CREDENTIAL_SPEC_KIB_MAX} KiB");
            report.invalid(&at, spec.as_str(), text);
        }
    }
    if let Some(user) = &options.run_as_user_name {
        for problem in user_name_problems(user) {
            report.invalid(&at.child("runAsUserName"), user.as_str(), problem);
        }
    }
}

/// `DOMAIN\USER`, the domain optional.
fn user_name_problems(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".to_owned()];
    }
    if name.bytes().any(|c| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".to_owned()];
    }
    if name.matches('\\').count() > 1 {
        return vec!["runAsUserName cannot contain more than one backslash".to_owned()];
    }
    let (domain, user) = match name.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut problems = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_BYTES_MAX) {
        problems.push(format!("runAsUserName's Domain length must be under {DOMAIN_BYTES_MAX} characters"));
    }
    if domain.is_some_and(|domain| !is_net_bios_name(domain) && !is_dns_name(domain)) {
        problems.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        problems.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > USER_BYTES_MAX {
        problems.push(format!("runAsUserName's User length must not be longer than {USER_BYTES_MAX} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        problems.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(|c| r#""/\:;|=,+*?<>@[]"#.contains(c)) {
        let text = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        problems.push(text.to_owned());
    }
    problems
}

fn is_net_bios_name(name: &str) -> bool {
    let length = name.chars().count();
    (1..=15).contains(&length) && !name.starts_with('.') && !name.contains(|c| r#"\/:*?"<>|"#.contains(c))
}

fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| names::is_dns_label(&label.to_ascii_lowercase()))
}

/// Host-process containers: all or none, and on the host's network.
pub(super) fn validate_host_process(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    let of_pod = spec.security_context.as_ref().and_then(|context| context.windows_options.as_ref());
    let of_pod = of_pod.and_then(|options| options.host_process);
    let (mut total, mut host_process) = (0, 0);
    for (list_name, i, container) in containers::all(spec) {
        total += 1;
        let options = container.security_context.as_ref().and_then(|context| context.windows_options.as_ref());
        let of_container = options.and_then(|options| options.host_process);
        if let (Some(pod), Some(container)) = (of_pod, of_container)
            && pod != container
        {
            let containers_at = at.child(list_name);
            let container_at = containers_at.index(i);
            let context_at = container_at.child("securityContext");
            let options_at = context_at.child("windowsOptions");
            let text = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            report.invalid(&options_at.child("hostProcess"), container, text);
        }
        if of_container.or(of_pod) == Some(true) {
            host_process += 1;
        }
    }
    if host_process == 0 {
        return;
    }
    if host_process != total {
        let text = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        report.invalid(at, "", text);
    }
    if !flag(spec.host_network) {
        let text = "hostNetwork must be true if pod contains any hostProcess containers";
        report.invalid(&at.child("hostNetwork"), false, text);
    }
}

/// A Linux pod has no Windows options.
pub(super) fn forbid_options(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    const TEXT: &str = "windows options cannot be set for a linux pod";
    if spec.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
        let at = at.child("securityContext");
        report.forbidden(&at.child("windowsOptions"), TEXT);
    }
    for (list_name, i, container) in containers::all(spec) {
        if container.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
            let containers_at = at.child(list_name);
            let container_at = containers_at.index(i);
            let context_at = container_at.child("securityContext");
            report.forbidden(&context_at.child("windowsOptions"), TEXT);
        }
    }
}

/// A Windows pod has nothing that only Linux knows.
pub(super) fn forbid_linux_fields(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    let default = core::PodSecurityContext::default();
    let context = spec.security_context.as_ref().unwrap_or(&default);
    let context_at = at.child("securityContext");
    let set = [
        (context.app_armor_profile.is_some(), &context_at, "appArmorProfile"),
        (context.se_linux_options.is_some(), &context_at, "seLinuxOptions"),
        (spec.host_users.is_some(), at, "hostUsers"),
        (flag(spec.host_pid), at, "hostPID"),
        (flag(spec.host_ipc), at, "hostIPC"),
        (context.seccomp_profile.is_some(), &context_at, "seccompProfile"),
        (context.fs_group.is_some(), &context_at, "fsGroup"),
        (context.fs_group_change_policy.is_some(), &context_at, "fsGroupChangePolicy"),
        (!list(&context.sysctls).is_empty(), &context_at, "sysctls"),
        (spec.share_process_namespace.is_some(), at, "shareProcessNamespace"),
        (context.run_as_user.is_some(), &context_at, "runAsUser"),
        (context.run_as_group.is_some(), &context_at, "runAsGroup"),
        (!list(&context.supplemental_groups).is_empty(), &context_at, "supplementalGroups"),
        (context.supplemental_groups_policy.is_some(), &context_at, "supplementalGroupsPolicy"),
        (context.se_linux_change_policy.is_some(), &context_at, "seLinuxChangePolicy"),
    ];
    for (_, at, name) in set.into_iter().filter(|(set, ..)| *set) {
        report.forbidden(&at.child(name), NOT_ON_WINDOWS);
    }
    for (list_name, i, container) in containers::all(spec) {
        let Some(context) = &container.security_context else { continue };
        let containers_at = at.child(list_name);
        let container_at = containers_at.index(i);
        let context_at = container_at.child("securityContext");
        forbid_linux_container_fields(report, &context_at, context);
    }
}

fn forbid_linux_container_fields(report: &mut Report, at: &Place<'_>, context: &core::SecurityContext) {
    let set = [
        (context.app_armor_profile.is_some(), "appArmorProfile"),
        (context.se_linux_options.is_some(), "seLinuxOptions"),
        (context.seccomp_profile.is_some(), "seccompProfile"),
        (context.capabilities.is_some(), "capabilities"),
        (context.read_only_root_filesystem.is_some(), "readOnlyRootFilesystem"),
        (context.privileged.is_some(), "privileged"),
        (context.allow_privilege_escalation.is_some(), "allowPrivilegeEscalation"),
        (context.proc_mount.is_some(), "procMount"),
        (context.run_as_user.is_some(), "runAsUser"),
        (context.run_as_group.is_some(), "runAsGroup"),
    ];
    for (_, name) in set.into_iter().filter(|(set, _)| *set) {
        report.forbidden(&at.child(name), NOT_ON_WINDOWS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_user_names() {
        for good in ["user", r"DOMAIN\user", r"example.com\user.name", "a b"] {
            assert!(user_name_problems(good).is_empty(), "{good}");
        }
        let cases = [
            ("", "runAsUserName cannot be an empty string"),
            ("a\tb", "runAsUserName cannot contain control characters"),
            (r"a\b\c", "runAsUserName cannot contain more than one backslash"),
            (r"a\", "runAsUserName's User cannot be empty"),
            (r".a..b..\x", "runAsUserName's Domain doesn't match the NetBios nor the DNS format"),
            (". .", "runAsUserName's User cannot contain only periods or spaces"),
            ("a:b", r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#),
        ];
        for (name, problem) in cases {
            assert_eq!(user_name_problems(name), [problem], "{name}");
        }
    }
}
