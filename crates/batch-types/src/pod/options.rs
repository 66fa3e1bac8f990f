//! What validation lets pass because the stored object already has it (JA-P20).
//!
//! A rule that came later than the data must not make old objects impossible to update. Every allowance is derived
//! from the old spec, once, before the new one is looked at; a create has none.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

use super::affinity;
use super::annotations;
use super::resources;
use super::scheduling;
use super::security;
use super::spread;
use super::syntax;
use super::zero::{flag, list, text};
use crate::field;

/// How strict to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// A pod, not a template: some rules are for pods only.
    pub(super) is_pod: bool,
    pub(super) any_deletion_cost: bool,
    pub(super) any_label_value_in_affinity: bool,
    pub(super) any_label_value_in_required_node_affinity: bool,
    pub(super) any_spread_selector: bool,
    pub(super) legacy_spread_match_label_keys: bool,
    pub(super) indivisible_huge_pages: bool,
    pub(super) non_local_token_path: bool,
    pub(super) namespaced_sysctls_with_host_namespaces: bool,
    pub(super) any_se_linux_change_policy: bool,
    pub(super) comparing_tolerations: bool,
    pub(super) host_network_with_user_namespace: bool,
    pub(super) volume_devices_with_user_namespace: bool,
    pub(super) init_container_resize_restarts: bool,
}

impl Options {
    /// Options for a new object.
    pub(super) fn create(is_pod: bool) -> Self {
        Self { is_pod, ..Self::default() }
    }

    /// Options for replacing an object that had this spec and these annotations.
    pub(super) fn update(is_pod: bool, old: &core::PodSpec, annotations: Option<&BTreeMap<String, String>>) -> Self {
        let user_namespace = old.host_users == Some(false);
        Self {
            is_pod,
            any_deletion_cost: !annotations::has_valid_deletion_cost(annotations),
            any_label_value_in_affinity: affinity::has_invalid_selector(old),
            any_label_value_in_required_node_affinity: affinity::has_invalid_required_node_value(old),
            any_spread_selector: spread::has_invalid_selector(old),
            legacy_spread_match_label_keys: spread::has_invalid_match_label_keys(old),
            indivisible_huge_pages: resources::has_indivisible_huge_pages(old),
            non_local_token_path: has_non_local_token_path(old),
            namespaced_sysctls_with_host_namespaces: security::has_namespaced_sysctl(old),
            any_se_linux_change_policy: has_se_linux_change_policy(old),
            comparing_tolerations: list(&old.tolerations).iter().any(scheduling::compares_numbers),
            host_network_with_user_namespace: flag(old.host_network) && user_namespace,
            volume_devices_with_user_namespace: user_namespace && has_volume_devices(old),
            init_container_resize_restarts: has_init_container_resize_restart(old),
        }
    }
}

fn has_non_local_token_path(spec: &core::PodSpec) -> bool {
    let root = field::Path::default();
    let root = super::report::Place::root(&root);
    let mut report = super::report::Report::default();
    for volume in list(&spec.volumes) {
        let sources = volume.projected.iter().flat_map(|projected| list(&projected.sources));
        for token in sources.filter_map(|source| source.service_account_token.as_ref()) {
            syntax::local_non_reserved_path(&mut report, &root, &token.path);
        }
    }
    !report.is_empty()
}

fn has_se_linux_change_policy(spec: &core::PodSpec) -> bool {
    spec.security_context.as_ref().is_some_and(|context| context.se_linux_change_policy.is_some())
}

fn has_volume_devices(spec: &core::PodSpec) -> bool {
    let regular = spec.containers.iter().chain(list(&spec.init_containers));
    let mut devices = regular
        .map(|container| &container.volume_devices)
        .chain(list(&spec.ephemeral_containers).iter().map(|container| &container.volume_devices));
    devices.any(|devices| !list(devices).is_empty())
}

fn has_init_container_resize_restart(spec: &core::PodSpec) -> bool {
    let plain = list(&spec.init_containers).iter().filter(|init| text(&init.restart_policy) != "Always");
    plain.flat_map(|init| list(&init.resize_policy)).any(|policy| policy.restart_policy == "RestartContainer")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::{edited, lines, template, typed_template};

    /// JA-P20: what is stored stays valid, but only what was stored.
    #[test]
    fn stored_oddities_are_let_pass() {
        let spread = |edit: Value| {
            let base = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
            json!({"topologySpreadConstraints": [edited(base, &edit)]})
        };
        let odd = [
            json!({"containers": [{"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}}]}),
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "zone",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}}]}}}),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}]}}}}),
            spread(json!({"labelSelector": {"matchLabels": {"a": "-"}}})),
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "/t"}}]}}]}),
            json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.a", "value": "1"}]}}),
            json!({"securityContext": {"seLinuxChangePolicy": "MountOption"}}),
            json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}),
            json!({"hostUsers": false, "hostNetwork": true}),
            json!({
                "hostUsers": false,
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
                "containers": [{"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}],
            }),
            json!({"restartPolicy": "OnFailure", "initContainers": [{"name": "a", "image": "a:1", "resizePolicy": [
                {"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}),
        ];
        let path = field::Path::default();
        for spec in odd {
            let mut old = edited(template(), &json!({"spec": spec}));
            crate::pod::default_template(&mut old);
            let old = typed_template(&old);
            let refused = crate::pod::validate_template_for_job(&old, &path);
            assert_eq!(refused.len(), 1, "{spec} {:?}", lines(&refused));
            assert_eq!(lines(&crate::pod::validate_template_update_for_job(&old, &old, &path)), [""; 0], "{spec}");
        }
    }

    #[test]
    fn stored_deletion_costs_are_let_pass() {
        let annotations = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "cheap"}}});
        let mut old = edited(template(), &annotations);
        crate::pod::default_template(&mut old);
        let old = typed_template(&old);
        let path = field::Path::default();
        assert_eq!(crate::pod::validate_template_for_job(&old, &path).len(), 1);
        assert_eq!(lines(&crate::pod::validate_template_update_for_job(&old, &old, &path)), [""; 0]);
    }
}
