//! The containers of a pod: names, images, and what distinguishes regular, init and ephemeral ones (JA-P2…P5, P15).
//!
//! What hangs off a container has files of its own: `ports`, `env`, `mounts`, `resources`, `probes`, `restart`,
//! `security`.

use std::borrow::Cow;
use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;

use super::env;
use super::mounts;
use super::options::Options;
use super::ports;
use super::probes;
use super::report::{Place, Report};
use super::resources;
use super::restart;
use super::security;
use super::volumes::Volumes;
use super::zero::{list, text};
use crate::names;

pub(super) const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const TERMINATION_MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

/// What the checks of one container need to know of its pod.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) spec: &'a core::PodSpec,
    pub(super) volumes: &'a Volumes<'a>,
    pub(super) options: &'a Options,
}

/// Every container of a pod with the list it stands in, in the order upstream visits them.
pub(super) fn all(spec: &core::PodSpec) -> impl Iterator<Item = (&'static str, usize, Cow<'_, core::Container>)> {
    let init = list(&spec.init_containers).iter().enumerate();
    let regular = spec.containers.iter().enumerate();
    let ephemeral = list(&spec.ephemeral_containers).iter().enumerate();
    init.map(|(at, container)| ("initContainers", at, Cow::Borrowed(container)))
        .chain(regular.map(|(at, container)| ("containers", at, Cow::Borrowed(container))))
        .chain(ephemeral.map(|(at, container)| ("ephemeralContainers", at, Cow::Owned(as_container(container)))))
}

/// A sidecar is an init container that keeps running.
pub(super) fn is_sidecar(init: &core::Container) -> bool {
    text(&init.restart_policy) == "Always"
}

pub(super) fn validate_regular(report: &mut Report, at: &Place<'_>, pod: &Surroundings<'_>) {
    let containers = &pod.spec.containers;
    if containers.is_empty() {
        return report.required(at, "");
    }
    let mut names = HashSet::with_capacity(containers.len());
    for (i, container) in containers.iter().enumerate() {
        let at = at.index(i);
        validate_common(report, &at, container, pod);
        if !names.insert(container.name.as_str()) {
            report.duplicate(&at.child("name"), container.name.as_str());
        }
        probes::validate_all(report, &at, container, pod.spec);
        restart::validate(report, &at, container.restart_policy.as_deref(), list(&container.restart_policy_rules));
    }
    ports::validate_host_port_conflicts(report, at, containers.iter().enumerate());
}

pub(super) fn validate_init(report: &mut Report, at: &Place<'_>, pod: &Surroundings<'_>) {
    let mut names: HashSet<&str> = pod.spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (i, container) in list(&pod.spec.init_containers).iter().enumerate() {
        let list_at = at;
        let at = at.index(i);
        validate_common(report, &at, container, pod);
        restart::validate_init(report, &at, container);
        if names.contains(container.name.as_str()) {
            report.duplicate(&at.child("name"), container.name.as_str());
        } else if !container.name.is_empty() {
            names.insert(&container.name);
        }
        // Init containers run one by one, so each is checked alone; upstream then counts it as the first of its list.
        ports::validate_host_port_conflicts(report, list_at, std::iter::once((0, container)));
        if is_sidecar(container) {
            probes::validate_all(report, &at, container, pod.spec);
        } else {
            forbid_hooks_and_probes(report, &at, container);
            validate_init_resize_policy(report, &at, container, pod.options);
        }
    }
}

fn forbid_hooks_and_probes(report: &mut Report, at: &Place<'_>, init: &core::Container) {
    let set = [
        ("lifecycle", init.lifecycle.is_some()),
        ("livenessProbe", init.liveness_probe.is_some()),
        ("readinessProbe", init.readiness_probe.is_some()),
        ("startupProbe", init.startup_probe.is_some()),
    ];
    for (name, _) in set.into_iter().filter(|(_, set)| *set) {
        report.forbidden(&at.child(name), ONLY_SIDECARS);
    }
}

fn validate_init_resize_policy(report: &mut Report, at: &Place<'_>, init: &core::Container, options: &Options) {
    if options.init_container_resize_restarts {
        return;
    }
    let at = at.child("resizePolicy");
    for (i, policy) in list(&init.resize_policy).iter().enumerate() {
        if policy.restart_policy == "RestartContainer" {
            let text = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            report.invalid(&at.index(i).child("restartPolicy"), policy.restart_policy.as_str(), text);
        }
    }
}

pub(super) fn validate_ephemeral(report: &mut Report, at: &Place<'_>, pod: &Surroundings<'_>) {
    let ephemeral = list(&pod.spec.ephemeral_containers);
    if ephemeral.is_empty() {
        return;
    }
    let others: HashSet<&str> = pod.spec.containers.iter().map(|container| container.name.as_str()).collect();
    let init = list(&pod.spec.init_containers).iter().map(|container| container.name.as_str());
    let others: HashSet<&str> = others.into_iter().chain(init).collect();
    let mut names = others.clone();
    for (i, container) in ephemeral.iter().enumerate() {
        let at = at.index(i);
        let common = as_container(container);
        validate_common(report, &at, &common, pod);
        validate_for_pod_only(report, &at, &common);
        if !names.insert(&container.name) {
            report.duplicate(&at.child("name"), container.name.as_str());
        }
        let target = text(&container.target_container_name);
        if !target.is_empty() && !others.contains(target) {
            report.not_found(&at.child("targetContainerName"), target);
        }
        forbid_workload_fields(report, &at, &common);
    }
}

/// An ephemeral container is for looking, not for serving: no ports, resources, probes, hooks or sub-paths.
fn forbid_workload_fields(report: &mut Report, at: &Place<'_>, container: &core::Container) {
    let resources = container.resources.as_ref();
    let set = [
        ("ports", !list(&container.ports).is_empty()),
        ("resources", resources.is_some_and(|resources| *resources != core::ResourceRequirements::default())),
        ("resizePolicy", !list(&container.resize_policy).is_empty()),
        ("restartPolicy", container.restart_policy.is_some()),
        ("restartPolicyRules", !list(&container.restart_policy_rules).is_empty()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle.is_some()),
    ];
    for (name, _) in set.into_iter().filter(|(_, set)| *set) {
        report.forbidden(&at.child(name), NOT_EPHEMERAL);
    }
    let at = at.child("volumeMounts");
    for (i, mount) in list(&container.volume_mounts).iter().enumerate() {
        let at = at.index(i);
        if !text(&mount.sub_path).is_empty() {
            report.forbidden(&at.child("subPath"), NOT_EPHEMERAL);
        }
        if !text(&mount.sub_path_expr).is_empty() {
            report.forbidden(&at.child("subPathExpr"), NOT_EPHEMERAL);
        }
    }
}

/// What a pod must satisfy beyond a template (JA-P4).
pub(super) fn validate_for_pod_only(report: &mut Report, at: &Place<'_>, container: &core::Container) {
    let image = text(&container.image);
    if image.len() != image.trim().len() {
        report.invalid(&at.child("image"), image, "must not have leading or trailing whitespace");
    }
}

fn validate_common(report: &mut Report, at: &Place<'_>, container: &core::Container, pod: &Surroundings<'_>) {
    if container.name.is_empty() {
        report.required(&at.child("name"), "");
    } else {
        report.each_invalid(&at.child("name"), &container.name, names::dns_label(&container.name));
    }
    if text(&container.image).is_empty() {
        report.required(&at.child("image"), "");
    }
    let policy = text(&container.termination_message_policy);
    report.one_of(&at.child("terminationMessagePolicy"), policy, &TERMINATION_MESSAGE_POLICIES);
    ports::validate(report, &at.child("ports"), list(&container.ports));
    env::validate(report, &at.child("env"), list(&container.env));
    env::validate_from(report, &at.child("envFrom"), list(&container.env_from));
    mounts::validate(report, at, container, pod.volumes);
    report.one_of(&at.child("imagePullPolicy"), text(&container.image_pull_policy), &PULL_POLICIES);
    if let Some(requirements) = &container.resources {
        resources::validate_container(report, &at.child("resources"), requirements, pod);
    }
    let pod_policy = text(&pod.spec.restart_policy);
    restart::validate_resize(report, &at.child("resizePolicy"), list(&container.resize_policy), pod_policy);
    if let Some(context) = &container.security_context {
        security::validate_container(report, &at.child("securityContext"), context, pod.spec);
    }
}

/// The part of an ephemeral container that every container has.
fn as_container(ephemeral: &core::EphemeralContainer) -> core::Container {
    let from = ephemeral.clone();
    core::Container {
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        lifecycle: from.lifecycle,
        liveness_probe: from.liveness_probe,
        name: from.name,
        ports: from.ports,
        readiness_probe: from.readiness_probe,
        resize_policy: from.resize_policy,
        resources: from.resources,
        restart_policy: from.restart_policy,
        restart_policy_rules: from.restart_policy_rules,
        security_context: from.security_context,
        startup_probe: from.startup_probe,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_devices: from.volume_devices,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::{check_templates, pod_errors, template_errors};

    const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
        start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

    #[test]
    fn containers_are_named_once_and_have_an_image() {
        let upper = format!("spec.containers[0].name: Invalid value: \"Main\": {LABEL}");
        check_templates(&[
            (json!({}), &[]),
            (json!({"containers": []}), &["spec.containers: Required value"]),
            (json!({"containers": [{"name": ""}]}), &["spec.containers[0].name: Required value"]),
            (json!({"containers": [{"name": "Main"}]}), &[&upper]),
            (
                json!({"containers": [{"name": "a.b"}]}),
                &["spec.containers[0].name: Invalid value: \"a.b\": must not contain dots"],
            ),
            (json!({"containers": [{"image": ""}]}), &["spec.containers[0].image: Required value"]),
            (
                json!({"containers": [{}, {"name": "main", "image": "a:1"}]}),
                &["spec.containers[1].name: Duplicate value: \"main\""],
            ),
            (
                json!({"initContainers": [{"name": "main", "image": "a:1"}]}),
                &["spec.initContainers[0].name: Duplicate value: \"main\""],
            ),
            (
                json!({"containers": [{"imagePullPolicy": "Often", "terminationMessagePolicy": "Log"}]}),
                &[
                    "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Log\": supported values: \
                     \"File\", \"FallbackToLogsOnError\"",
                    "spec.containers[0].imagePullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \
                     \"IfNotPresent\", \"Never\"",
                ],
            ),
        ]);
    }

    /// JA-P4: templates may hold images that only mean something once a controller has replaced them.
    #[test]
    fn only_pods_refuse_blanks_around_an_image() {
        let edit = json!({"containers": [{"image": " app "}]});
        assert_eq!(template_errors(&edit), [""; 0]);
        let line = "spec.containers[0].image: Invalid value: \" app \": must not have leading or trailing whitespace";
        assert_eq!(pod_errors(&json!({"spec": edit})), [line]);
    }

    /// JA-P13.
    #[test]
    fn plain_init_containers_have_no_hooks_or_probes() {
        let probe = json!({"exec": {"command": ["true"]}});
        let init = |policy: serde_json::Value| {
            json!({"initContainers": [{
                "name": "setup", "image": "a:1", "restartPolicy": policy,
                "lifecycle": {"preStop": probe}, "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
            }]})
        };
        let refused: Vec<String> = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"]
            .iter()
            .map(|name| {
                format!("spec.initContainers[0].{name}: Forbidden: may not be set for init containers without restartPolicy=Always")
            })
            .collect();
        assert_eq!(template_errors(&init(json!("Always"))), [""; 0]);
        assert_eq!(template_errors(&init(json!(null))), refused);
        assert_eq!(template_errors(&init(json!("OnFailure"))), refused);
    }

    #[test]
    fn plain_init_containers_are_not_restarted_by_a_resize() {
        let init = json!({"restartPolicy": "OnFailure", "initContainers": [{"name": "setup", "image": "a:1", "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]});
        let line = "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be \
                    set to 'RestartContainer' for non-sidecar initContainers";
        assert_eq!(template_errors(&init), [line]);
    }

    /// JA-P15.
    #[test]
    fn ephemeral_containers_do_not_serve() {
        let ephemeral = json!({
            "name": "main", "image": "a:1", "targetContainerName": "other",
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1"}},
            "readinessProbe": {"exec": {"command": ["true"]}},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}],
        });
        let at = "spec.ephemeralContainers[0]";
        let text = "Forbidden: cannot be set for an Ephemeral Container";
        assert_eq!(
            template_errors(&json!({"volumes": [{"name": "v"}], "ephemeralContainers": [ephemeral]})),
            [
                format!("{at}.name: Duplicate value: \"main\""),
                format!("{at}.targetContainerName: Not found: \"other\""),
                format!("{at}.ports: {text}"),
                format!("{at}.resources: {text}"),
                format!("{at}.readinessProbe: {text}"),
                format!("{at}.volumeMounts[0].subPath: {text}"),
                "spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template".to_owned(),
            ]
        );
    }
}
