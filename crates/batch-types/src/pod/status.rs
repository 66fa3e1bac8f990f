//! Pod status: its defaults, and what an update of `/status` may not do (AS-176).
//!
//! Phases are not checked here: any writer can set any phase, and PL-2 binds the writers instead.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::annotations;
use super::defaults::{round_up, round_up_requirements, text as text_at};
use super::ip;
use super::options::Options;
use super::report::{Place, Report};
use super::resources;
use super::restart;
use super::security;
use super::zero::{list, text};
use crate::field::{Error, Path};
use crate::json::{at, at_mut, items_mut};
use crate::{meta, names, resource_names};

const NOT_BACK: &str = "may not be transitioned to non-terminated state";
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
const HEALTH_MESSAGE_MAX: usize = 1024;
const ONE_PER_FAMILY: &str = "may specify no more than one IP for each IP family";

/// The list of pod addresses and the single one say the same; where they differ the single one counts, because old
/// agents know no list.
pub(super) fn default(pod: &mut Value) {
    let Some(status) = at_mut(pod, &["status"]) else { return };
    let single = text_at(status, &["podIP"]).to_owned();
    let first = at(status, &["podIPs"]).and_then(|ips| ips.get(0)).map(|ip| text_at(ip, &["ip"]).to_owned());
    let Some(fields) = status.as_object_mut() else { return };
    match (single.as_str(), first) {
        ("", Some(first)) if !first.is_empty() => _ = fields.insert("podIP".to_owned(), first.into()),
        ("", _) => {}
        (single, first) if first.as_deref() != Some(single) => {
            fields.insert("podIPs".to_owned(), json!([{"ip": single}]));
        }
        _ => {}
    }
    round_up(fields.get_mut("allocatedResources"));
    if let Some(requirements) = fields.get_mut("resources") {
        round_up_requirements(requirements);
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in items_mut(status, &[list]) {
            round_up(container.get_mut("allocatedResources"));
            if let Some(requirements) = container.get_mut("resources") {
                round_up_requirements(requirements);
            }
        }
    }
}

/// Everything wrong with replacing the status of `old` by that of `new`. Metadata that comes with it is stored too and
/// checked as in any update.
pub fn validate_status_update(new: &core::Pod, old: &core::Pod) -> Vec<Error> {
    let (no_spec, no_status) = (core::PodSpec::default(), core::PodStatus::default());
    let spec = new.spec.as_ref().unwrap_or(&no_spec);
    let old_spec = old.spec.as_ref().unwrap_or(&no_spec);
    let status = new.status.as_ref().unwrap_or(&no_status);
    let old_status = old.status.as_ref().unwrap_or(&no_status);
    let options = Options::update(true, old_spec, old.metadata.annotations.as_ref());

    let mut report = Report::default();
    let metadata_path = Path::new("metadata");
    report.extend(meta::validate_update(&new.metadata, &old.metadata, &metadata_path));
    let metadata_at = Place::root(&metadata_path);
    let (new_annotations, old_annotations) = (new.metadata.annotations.as_ref(), old.metadata.annotations.as_ref());
    let annotations_at = metadata_at.child("annotations");
    annotations::validate_update(&mut report, &annotations_at, new_annotations, old_annotations);
    annotations::validate(&mut report, &annotations_at, new_annotations, spec, &options);

    let path = Path::new("status");
    let at = Place::root(&path);
    validate_conditions(&mut report, &at.child("conditions"), list(&status.conditions));
    if text(&spec.node_name) != text(&old_spec.node_name) {
        report.forbidden(&at.child("nodeName"), "may not be changed directly");
    }
    validate_nominated_node(&mut report, &at.child("nominatedNodeName"), status, old_status, old_spec);
    if let Some(generation) = status.observed_generation.filter(|generation| *generation < 0) {
        report.invalid(&at.child("observedGeneration"), generation, "must be a non-negative integer");
    }
    if text(&status.qos_class) != text(&old_status.qos_class) {
        report.invalid(&at.child("qosClass"), text(&status.qos_class), meta::IMMUTABLE);
    }
    validate_transitions(&mut report, &at, status, old_status, old_spec);
    validate_claims(&mut report, &at, status, spec);
    validate_pod_ips(&mut report, &at.child("podIPs"), status, old_status);
    validate_host_ips(&mut report, &at.child("hostIPs"), status, old_status);
    validate_containers(&mut report, &at, status, spec);
    report.into_errors()
}

/// Warnings about addresses in a status that are valid but unusual.
pub fn status_warnings(pod: &core::Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let path = Path::new("status");
    let at = Place::root(&path);
    let (pod_at, host_at) = (at.child("podIPs"), at.child("hostIPs"));
    let pod_ips = list(&status.pod_ips).iter().enumerate();
    let host_ips = list(&status.host_ips).iter().enumerate();
    let of = |at: &Place<'_>, i: usize, ip: &str| {
        let at = at.index(i);
        ip::warning(&at.child("ip"), ip)
    };
    let pod = pod_ips.filter_map(|(i, ip)| of(&pod_at, i, &ip.ip));
    let host = host_ips.filter_map(|(i, ip)| of(&host_at, i, &ip.ip));
    pod.chain(host).collect()
}

fn validate_conditions(report: &mut Report, at: &Place<'_>, conditions: &[core::PodCondition]) {
    for (i, condition) in conditions.iter().enumerate() {
        let at = at.index(i);
        if let Some(generation) = condition.observed_generation.filter(|generation| *generation < 0) {
            report.invalid(&at.child("observedGeneration"), generation, "must be a non-negative integer");
        }
        if !SYSTEM_CONDITIONS.contains(&condition.type_.as_str()) {
            report.each_invalid(&at.child("Type"), &condition.type_, names::qualified_name(&condition.type_));
        }
    }
}

fn validate_nominated_node(
    report: &mut Report,
    at: &Place<'_>,
    status: &core::PodStatus,
    old_status: &core::PodStatus,
    old_spec: &core::PodSpec,
) {
    let nominated = text(&status.nominated_node_name);
    if nominated.is_empty() || nominated == text(&old_status.nominated_node_name) {
        return;
    }
    report.each_invalid(at, nominated, names::dns_subdomain(nominated));
    if !text(&old_spec.node_name).is_empty() {
        report.forbidden(at, "may not be set on pods that are already bound to a node");
    }
}

/// A terminated container stays so unless its restart policy starts it again.
fn validate_transitions(
    report: &mut Report,
    at: &Place<'_>,
    status: &core::PodStatus,
    old_status: &core::PodStatus,
    spec: &core::PodSpec,
) {
    if !restart::any_may_restart_all(spec) {
        let may_restart = |containers: &[core::Container], name: &str, exit_code: i32| {
            let container = containers.iter().find(|container| container.name == name);
            container.is_some_and(|container| restart::should_restart(container, spec, exit_code))
        };
        validate_transition(
            report,
            &at.child("containerStatuses"),
            (list(&status.container_statuses), list(&old_status.container_statuses)),
            |name, exit_code| may_restart(&spec.containers, name, exit_code),
        );
        validate_transition(
            report,
            &at.child("initContainerStatuses"),
            (list(&status.init_container_statuses), list(&old_status.init_container_statuses)),
            |name, exit_code| may_restart(list(&spec.init_containers), name, exit_code),
        );
    }
    validate_transition(
        report,
        &at.child("ephemeralContainerStatuses"),
        (list(&status.ephemeral_container_statuses), list(&old_status.ephemeral_container_statuses)),
        |_, _| false,
    );
}

fn validate_transition(
    report: &mut Report,
    at: &Place<'_>,
    (new, old): (&[core::ContainerStatus], &[core::ContainerStatus]),
    may_restart: impl Fn(&str, i32) -> bool,
) {
    for (i, old) in old.iter().enumerate() {
        let Some(exit_code) = terminated(old).map(|terminated| terminated.exit_code) else { continue };
        let back = new.iter().any(|new| new.name == old.name && terminated(new).is_none());
        if back && !may_restart(&old.name, exit_code) {
            let at = at.index(i);
            report.forbidden(&at.child("state"), NOT_BACK);
        }
    }
}

fn terminated(status: &core::ContainerStatus) -> Option<&core::ContainerStateTerminated> {
    status.state.as_ref().and_then(|state| state.terminated.as_ref())
}

fn validate_claims(report: &mut Report, at: &Place<'_>, status: &core::PodStatus, spec: &core::PodSpec) {
    validate_claim_statuses(report, &at.child("resourceClaimStatuses"), status, spec);
    if let Some(extended) = &status.extended_resource_claim_status {
        validate_extended_claim(report, &at.child("extendedResourceClaimStatus"), extended, spec);
    }
    validate_allocatable_claims(report, &at.child("nodeAllocatableResourceClaimStatuses"), status, spec);
}

fn validate_claim_statuses(report: &mut Report, at: &Place<'_>, status: &core::PodStatus, spec: &core::PodSpec) {
    let mut seen = HashSet::new();
    for (i, claim) in list(&status.resource_claim_statuses).iter().enumerate() {
        let at = at.index(i);
        if !list(&spec.resource_claims).iter().any(|pod_claim| pod_claim.name == claim.name) {
            let text = "must match the name of an entry in `spec.resourceClaims`";
            report.invalid(&at.child("name"), claim.name.as_str(), text);
        }
        if !seen.insert(claim.name.as_str()) {
            report.duplicate(&at.child("name"), claim.name.as_str());
        }
        if let Some(name) = &claim.resource_claim_name {
            report.each_invalid(&at.child("resourceClaimName"), name, names::dns_subdomain(name));
        }
    }
}

fn validate_extended_claim(
    report: &mut Report,
    at: &Place<'_>,
    status: &core::PodExtendedResourceClaimStatus,
    spec: &core::PodSpec,
) {
    let containers: HashMap<&str, &core::Container> = list(&spec.init_containers)
        .iter()
        .chain(&spec.containers)
        .map(|container| (container.name.as_str(), container))
        .collect();
    let mappings_at = at.child("requestMappings");
    if status.request_mappings.is_empty() {
        report.required(&mappings_at, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for (i, mapping) in status.request_mappings.iter().enumerate() {
        let mapping_at = mappings_at.index(i);
        let (container, resource) = (mapping.container_name.as_str(), mapping.resource_name.as_str());
        match containers.get(container) {
            None => {
                let text = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                report.invalid(&mapping_at.child("containerName"), container, text);
            }
            Some(found) => {
                let requests = found.resources.as_ref().and_then(|resources| resources.requests.as_ref());
                if !requests.is_some_and(|requests| requests.contains_key(resource)) {
                    let text = "must match the extended resource name of an entry in \
                                spec.initContainers.resources.requests or spec.containers.resources.requests";
                    report.invalid(&mapping_at.child("resourceName"), resource, text);
                }
            }
        }
        let request = mapping.request_name.as_str();
        report.each_invalid(&at.child("requestName"), request, names::dns_label(request));
        if !seen.insert((container, resource, request)) {
            report.duplicate(&mapping_at.child("containerName"), container);
            report.duplicate(&mapping_at.child("resourceName"), resource);
            report.duplicate(&mapping_at.child("requestName"), request);
        }
    }
    let name = status.resource_claim_name.as_str();
    if name.is_empty() {
        report.required(&at.child("resourceClaimName"), "");
    } else {
        report.each_invalid(&at.child("resourceClaimName"), name, names::dns_subdomain(name));
    }
}

fn validate_allocatable_claims(report: &mut Report, at: &Place<'_>, status: &core::PodStatus, spec: &core::PodSpec) {
    for (i, claim) in list(&status.node_allocatable_resource_claim_statuses).iter().enumerate() {
        let at = at.index(i);
        let name = claim.resource_claim_name.as_str();
        if name.is_empty() {
            report.required(&at.child("resourceClaimName"), "must not be empty");
        }
        let in_spec =
            list(&spec.resource_claims).iter().any(|claim| claim.resource_claim_name.as_deref() == Some(name));
        let in_status = list(&status.resource_claim_statuses)
            .iter()
            .any(|claim| claim.resource_claim_name.as_deref() == Some(name));
        if !in_spec && !in_status {
            report.invalid(&at.child("resourceClaimName"), name, "no mapping found in pod reference");
        }
        if list(&claim.containers).is_empty() {
            report.required(&at.child("containers"), "must not be empty");
        }
        let resources_at = at.child("resources");
        if claim.resources.is_empty() {
            report.required(&resources_at, "must not be empty");
        }
        for (name, amount) in &claim.resources {
            let at = resources_at.key(name);
            if !resource_names::is_native(name) {
                report.invalid(&at, name.as_str(), "must be a node allocatable resource name");
            }
            if resources::is_negative(amount) {
                report.invalid(&at, resources::quantity(amount).to_string(), "must be non-negative");
            }
        }
    }
}

fn validate_pod_ips(report: &mut Report, at: &Place<'_>, status: &core::PodStatus, old: &core::PodStatus) {
    let ips: Vec<&str> = list(&status.pod_ips).iter().map(|ip| ip.ip.as_str()).collect();
    let old_ips: Vec<&str> = list(&old.pod_ips).iter().map(|ip| ip.ip.as_str()).collect();
    validate_ips(report, at, &ips, &old_ips);
}

fn validate_host_ips(report: &mut Report, at: &Place<'_>, status: &core::PodStatus, old: &core::PodStatus) {
    let ips: Vec<&str> = list(&status.host_ips).iter().map(|ip| ip.ip.as_str()).collect();
    if let Some(first) = ips.first().filter(|first| **first != text(&status.host_ip)) {
        let at = at.index(0);
        report.invalid(&at.child("ip"), *first, "must be equal to `hostIP`");
    }
    let old_ips: Vec<&str> = list(&old.host_ips).iter().map(|ip| ip.ip.as_str()).collect();
    validate_ips(report, at, &ips, &old_ips);
}

/// Addresses already stored are accepted whatever they look like.
fn validate_ips(report: &mut Report, at: &Place<'_>, ips: &[&str], old_ips: &[&str]) {
    for (i, ip) in ips.iter().enumerate().filter(|(_, ip)| !old_ips.contains(ip)) {
        ip::validate(report, &at.index(i), ip);
    }
    if ips.len() <= 1 {
        return;
    }
    if let Some((i, ip)) = ips.iter().enumerate().find(|(_, ip)| ip::parse_sloppy(ip).is_none()) {
        let cause = format!("failed to check for dual stack with error:invalid IP[{i}]: {ip}");
        report.extend([Error::internal(&at.path(), cause)]);
    }
    if !ip::is_dual_stack(ips) {
        let shown: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        report.invalid(at, shown, ONE_PER_FAMILY);
    }
}

fn validate_containers(report: &mut Report, at: &Place<'_>, status: &core::PodStatus, spec: &core::PodSpec) {
    let lists = [
        ("containerStatuses", list(&status.container_statuses)),
        ("initContainerStatuses", list(&status.init_container_statuses)),
        ("ephemeralContainerStatuses", list(&status.ephemeral_container_statuses)),
    ];
    let is_windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    for (name, statuses) in lists {
        let at = at.child(name);
        for (i, container) in statuses.iter().enumerate() {
            validate_user(report, &at.index(i), container, is_windows);
        }
    }
    let containers = [spec.containers.as_slice(), list(&spec.init_containers)];
    for ((name, statuses), containers) in lists.into_iter().zip(containers) {
        let at = at.child(name);
        for (i, container) in statuses.iter().enumerate() {
            validate_allocated(report, &at.index(i), container, containers);
        }
    }
    let (name, ephemeral) = lists[2];
    let at = at.child(name);
    for (i, _) in
        ephemeral.iter().enumerate().filter(|(_, status)| !list(&status.allocated_resources_status).is_empty())
    {
        let at = at.index(i);
        report.forbidden(&at.child("allocatedResourcesStatus"), "must not be specified in container status");
    }
}

fn validate_user(report: &mut Report, at: &Place<'_>, container: &core::ContainerStatus, is_windows: bool) {
    let Some(user) = container.user.as_ref().and_then(|user| user.linux.as_ref()) else { return };
    let at = at.child("user");
    let at = at.child("linux");
    if is_windows {
        return report.forbidden(&at, "cannot be set for a windows pod");
    }
    security::validate_id(report, &at.child("uid"), Some(user.uid));
    security::validate_id(report, &at.child("gid"), Some(user.gid));
    let groups_at = at.child("supplementalGroups");
    for (i, group) in list(&user.supplemental_groups).iter().enumerate() {
        security::validate_id(report, &groups_at.index(i), Some(*group));
    }
}

fn validate_allocated(
    report: &mut Report,
    at: &Place<'_>,
    status: &core::ContainerStatus,
    containers: &[core::Container],
) {
    let at = at.child("allocatedResourcesStatus");
    let container = containers.iter().find(|container| container.name == status.name);
    for (i, allocated) in list(&status.allocated_resources_status).iter().enumerate() {
        let at = at.index(i);
        // Statuses of containers that are not in the spec are let pass.
        if let Some(problem) = container.and_then(|container| allocation_problem(container, &allocated.name)) {
            report.invalid(&at.child("name"), allocated.name.as_str(), problem);
        }
        let resources_at = at.child("resources");
        let mut seen = HashSet::new();
        for (j, resource) in list(&allocated.resources).iter().enumerate() {
            let at = resources_at.index(j);
            let health = text(&resource.health);
            if !HEALTH.contains(&health) {
                report.not_supported(&at.child("health"), health, &HEALTH);
            }
            match resource.message.as_deref() {
                Some("") => report.required(&at.child("message"), "must be non-empty if specified"),
                Some(message) if message.len() > HEALTH_MESSAGE_MAX => {
                    report.too_long(&at.child("message"), HEALTH_MESSAGE_MAX);
                }
                _ => {}
            }
            if !seen.insert(resource.resource_id.as_str()) {
                report.duplicate(&at.child("resourceID"), resource.resource_id.as_str());
            }
        }
    }
}

fn allocation_problem(container: &core::Container, name: &str) -> Option<&'static str> {
    let resources = container.resources.as_ref();
    if let Some(claim) = name.strip_prefix("claim:") {
        let claims = resources.map(|resources| list(&resources.claims)).unwrap_or_default();
        let known = claims.iter().any(|known| match text(&known.request) {
            "" => claim == known.name,
            request => claim.strip_prefix(&known.name).and_then(|rest| rest.strip_prefix('/')) == Some(request),
        });
        return (!known).then_some(
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
             'claim:<claimName>' if request is empty",
        );
    }
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let known = requests.is_some_and(|requests| requests.contains_key(name));
    (!known).then_some("must match one of the container's resource requests")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{edited, lines, pod, typed_pod};

    fn update(spec: Value, old: Value, new: Value) -> Vec<String> {
        let base = edited(pod(), &json!({"spec": spec}));
        let with = |status: Value| typed_pod(&edited(base.clone(), &json!({"status": status})));
        lines(&validate_status_update(&with(new), &with(old)))
    }

    fn terminated(exit_code: i32) -> Value {
        json!({"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": exit_code}}}]})
    }

    /// AS-176, PL-15.
    #[test]
    fn terminated_containers_come_back_only_if_restarted() {
        let running = json!({"containerStatuses": [{"name": "main", "state": {"running": {}}}]});
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        let all = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}]);
        let refused = ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"];
        let cases: [(Value, i32, &[&str]); 7] = [
            (json!({"restartPolicy": "Never"}), 1, &refused),
            (json!({"restartPolicy": "OnFailure"}), 1, &[]),
            (json!({"restartPolicy": "OnFailure"}), 0, &refused),
            (json!({"restartPolicy": "Always"}), 0, &[]),
            (json!({"containers": [{"restartPolicy": "Never", "restartPolicyRules": rules}]}), 42, &[]),
            (json!({"containers": [{"restartPolicy": "Never", "restartPolicyRules": rules}]}), 1, &refused),
            (json!({"containers": [{"restartPolicy": "Never", "restartPolicyRules": all}]}), 1, &[]),
        ];
        for (spec, exit_code, expected) in cases {
            assert_eq!(update(spec.clone(), terminated(exit_code), running.clone()), expected, "{spec} {exit_code}");
        }
        assert_eq!(update(json!({}), terminated(1), json!({})), [""; 0], "left out is not transitioned");
        let ephemeral = |state: Value| json!({"ephemeralContainerStatuses": [{"name": "e", "state": state}]});
        assert_eq!(
            update(
                json!({"restartPolicy": "Always"}),
                ephemeral(json!({"terminated": {}})),
                ephemeral(json!({"running": {}}))
            ),
            ["status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
        );
    }

    #[test]
    fn fields_of_the_status() {
        let ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        let cases: Vec<(Value, Value, Value, Vec<String>)> = vec![
            (json!({}), json!({"phase": "Succeeded"}), json!({"phase": "Running"}), vec![]),
            (
                json!({}),
                json!({"qosClass": "BestEffort"}),
                json!({"qosClass": "Guaranteed"}),
                vec!["status.qosClass: Invalid value: \"Guaranteed\": field is immutable".to_owned()],
            ),
            (
                json!({"nodeName": "n1"}),
                json!({}),
                json!({"nominatedNodeName": "n2"}),
                vec![
                    "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node".to_owned(),
                ],
            ),
            (
                json!({}),
                json!({}),
                json!({"observedGeneration": -1, "conditions": [{"type": "Ready"}, {"type": "/x"}]}),
                vec![
                    "status.conditions[1].Type: Invalid value: \"/x\": prefix part must be non-empty".to_owned(),
                    "status.observedGeneration: Invalid value: -1: must be a non-negative integer".to_owned(),
                ],
            ),
            (
                json!({}),
                json!({"podIPs": [{"ip": "old"}]}),
                json!({"podIPs": [{"ip": "old"}]}),
                vec![],
            ),
            (
                json!({}),
                json!({}),
                json!({"podIPs": [{"ip": "ten"}]}),
                vec![format!("status.podIPs[0]: Invalid value: \"ten\": {ip}")],
            ),
            (
                json!({}),
                json!({}),
                json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}),
                vec![
                    "status.podIPs: Invalid value: [{\"ip\":\"10.0.0.1\"},{\"ip\":\"10.0.0.2\"}]: may specify no more than \
                     one IP for each IP family"
                        .to_owned(),
                ],
            ),
            (
                json!({}),
                json!({}),
                json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}),
                vec!["status.hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`".to_owned()],
            ),
            (
                json!({}),
                json!({}),
                json!({"resourceClaimStatuses": [{"name": "c"}]}),
                vec![
                    "status.resourceClaimStatuses[0].name: Invalid value: \"c\": must match the name of an entry in \
                     `spec.resourceClaims`"
                        .to_owned(),
                ],
            ),
        ];
        for (spec, old, new, expected) in cases {
            assert_eq!(update(spec, old, new.clone()), expected, "{new}");
        }
    }

    #[test]
    fn container_statuses_report_what_exists() {
        let status = |edit: Value| json!({"containerStatuses": [edited(json!({"name": "main"}), &edit)]});
        let at = "status.containerStatuses[0]";
        assert_eq!(
            update(json!({}), json!({}), status(json!({"user": {"linux": {"uid": -1, "gid": 0}}}))),
            [format!("{at}.user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive")]
        );
        let allocated = json!({"allocatedResourcesStatus": [{"name": "cpu", "resources": [
            {"resourceID": "a", "health": "Fine"}, {"resourceID": "a", "health": "Healthy", "message": ""}]}]});
        assert_eq!(
            update(json!({}), json!({}), status(allocated)),
            [
                format!(
                    "{at}.allocatedResourcesStatus[0].name: Invalid value: \"cpu\": must match one of the container's resource \
                     requests"
                ),
                format!(
                    "{at}.allocatedResourcesStatus[0].resources[0].health: Unsupported value: \"Fine\": supported values: \
                     \"Healthy\", \"Unhealthy\", \"Unknown\""
                ),
                format!(
                    "{at}.allocatedResourcesStatus[0].resources[1].message: Required value: must be non-empty if specified"
                ),
                format!("{at}.allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: \"a\""),
            ]
        );
    }

    #[test]
    fn pod_addresses_are_mirrored() {
        let mirrored = |status: Value| {
            let mut pod = json!({"status": status});
            default(&mut pod);
            pod["status"].take()
        };
        let both = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
        assert_eq!(mirrored(json!({"podIP": "10.0.0.1"})), both);
        assert_eq!(mirrored(json!({"podIPs": [{"ip": "10.0.0.1"}]})), both);
        assert_eq!(mirrored(json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]})), both);
        let dual = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]});
        assert_eq!(mirrored(dual.clone()), dual);
    }

    #[test]
    fn unusual_addresses_are_warned_about() {
        let pod = typed_pod(&edited(pod(), &json!({"status": {"hostIPs": [{"ip": "::FFFF:0:1"}]}})));
        assert_eq!(
            status_warnings(&pod),
            ["status.hostIPs[0].ip: non-standard IP address \"::FFFF:0:1\" is invalid: use \"0.0.0.1\""]
        );
    }
}
