//! Warnings about pods and templates that are valid but probably not what was meant (JA section 10).

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::annotations::{APP_ARMOR_PREFIX, Annotations, SECCOMP_CONTAINER_PREFIX, SECCOMP_POD};
use super::containers;
use super::ip;
use super::overlap;
use super::report::Place;
use super::resources::{self, ResourceList};
use super::security;
use super::zero::{list, text};
use crate::field::{Path, quoted};
use crate::names;

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Warnings on creating a pod, none on updating one: people rarely write pods themselves, and updates are frequent.
pub fn warnings(pod: &core::Pod, old: Option<&core::Pod>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let messages = names::dns_label(text(&pod.metadata.name));
    if !messages.is_empty() {
        found.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            messages.join(" ")
        ));
    }
    if let Some(spec) = &pod.spec {
        let (metadata, spec_path) = (Path::new("metadata"), Path::new("spec"));
        let places = Places { metadata: Place::root(&metadata), spec: Place::root(&spec_path), in_template: false };
        collect(&mut found, spec, Some(&pod.metadata), &places);
    }
    found
}

/// Warnings about a pod template at `path` (JA-W3).
pub fn template_warnings(template: &core::PodTemplateSpec, path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(spec) = &template.spec {
        let root = Place::root(path);
        let places = Places { metadata: root.child("metadata"), spec: root.child("spec"), in_template: true };
        collect(&mut found, spec, template.metadata.as_ref(), &places);
    }
    found
}

struct Places<'a> {
    metadata: Place<'a>,
    spec: Place<'a>,
    in_template: bool,
}

fn collect(found: &mut Vec<String>, spec: &core::PodSpec, metadata: Option<&ObjectMeta>, places: &Places<'_>) {
    let none = Annotations::new();
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref()).unwrap_or(&none);
    node_labels(found, &places.spec, spec);
    spread_constraints(found, &places.spec, spec);
    deprecated_annotations(found, &places.metadata, annotations);
    volumes(found, &places.spec, spec);
    found.extend(overlap::warnings(list(&spec.volumes)));
    repeated_entries(found, &places.spec, spec);
    fractional_bytes(found, &places.spec.child("overhead"), spec.overhead.as_ref());
    profiles_and_containers(found, spec, annotations, places);
    ports(found, &places.spec, spec);
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        let at = places.spec.child("terminationGracePeriodSeconds").path();
        found.push(format!("{at}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    pod_affinity(found, &places.spec, spec);
    addresses(found, &places.spec, spec);
}

/// Labels of nodes that have a successor or lost their meaning.
fn deprecated_node_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => "deprecated since v1.22; use Taints and Tolerations instead",
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

fn node_labels(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    let selector_at = at.child("nodeSelector");
    for key in spec.node_selector.iter().flat_map(BTreeMap::keys) {
        if let Some(message) = deprecated_node_label(key) {
            found.push(format!("{}: {message}", selector_at.key(key).path()));
        }
    }
    let Some(affinity) = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()) else { return };
    let at = at.child("affinity");
    let at = at.child("nodeAffinity");
    let required_at = at.child(REQUIRED);
    let required_at = required_at.child("nodeSelectorTerms");
    let required = affinity.required_during_scheduling_ignored_during_execution.iter();
    for (i, term) in required.flat_map(|required| &required.node_selector_terms).enumerate() {
        node_term(found, &required_at.index(i), term, false);
    }
    let preferred_at = at.child(PREFERRED);
    for (i, term) in list(&affinity.preferred_during_scheduling_ignored_during_execution).iter().enumerate() {
        let at = preferred_at.index(i);
        node_term(found, &at.child("preference"), &term.preference, true);
    }
}

fn node_term(found: &mut Vec<String>, at: &Place<'_>, term: &core::NodeSelectorTerm, check_values: bool) {
    let at = at.child("matchExpressions");
    for (i, expression) in list(&term.match_expressions).iter().enumerate() {
        let at = at.index(i);
        if let Some(message) = deprecated_node_label(&expression.key) {
            found.push(format!("{}: {} is {message}", at.child("key").path(), expression.key));
        }
        let values = list(&expression.values).iter().enumerate().filter(|_| check_values);
        let values_at = at.child("values");
        for (j, value) in values {
            for message in names::label_value(value) {
                found.push(format!("{}: {value} is invalid, {message}", values_at.index(j).path()));
            }
        }
    }
}

fn spread_constraints(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    let at = at.child("topologySpreadConstraints");
    for (i, constraint) in list(&spec.topology_spread_constraints).iter().enumerate() {
        let at = at.index(i);
        if let Some(message) = deprecated_node_label(&constraint.topology_key) {
            found.push(format!("{}: {} is {message}", at.child("topologyKey").path(), constraint.topology_key));
        }
        if constraint.label_selector.is_none() {
            found.push(format!("{}: {NULL_SELECTOR}", at.child("labelSelector").path()));
        }
    }
}

fn deprecated_annotations(found: &mut Vec<String>, at: &Place<'_>, annotations: &Annotations) {
    const DEPRECATED: [(&str, &str); 3] = [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
        ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ];
    let at = at.child("annotations");
    for (key, message) in DEPRECATED {
        if annotations.contains_key(key) {
            found.push(format!("{}: {message}", at.key(key).path()));
        }
    }
}

/// Drivers that are gone or going.
fn volumes(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    const GONE_1_25: &str = "deprecated in v1.22, non-functional in v1.25+";
    const GONE_1_31: &str = "deprecated in v1.28, non-functional in v1.31+";
    let at = at.child("volumes");
    for (i, volume) in list(&spec.volumes).iter().enumerate() {
        let at = at.index(i);
        let before_claims = [
            (
                volume.photon_persistent_disk.is_some(),
                "photonPersistentDisk",
                "deprecated in v1.11, non-functional in v1.16+",
            ),
            (volume.git_repo.is_some(), "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
            (volume.scale_io.is_some(), "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
            (volume.flocker.is_some(), "flocker", GONE_1_25),
            (volume.storageos.is_some(), "storageOS", GONE_1_25),
            (volume.quobyte.is_some(), "quobyte", GONE_1_25),
            (volume.glusterfs.is_some(), "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ];
        let after_claims = [(volume.cephfs.is_some(), "cephfs", GONE_1_31), (volume.rbd.is_some(), "rbd", GONE_1_31)];
        deprecated_drivers(found, &at, &before_claims);
        claim_template(found, &at, volume);
        deprecated_drivers(found, &at, &after_claims);
    }
}

fn deprecated_drivers(found: &mut Vec<String>, at: &Place<'_>, drivers: &[(bool, &str, &str)]) {
    for (_, name, message) in drivers.iter().filter(|(used, ..)| *used) {
        found.push(format!("{}: {message}", at.child(name).path()));
    }
}

fn claim_template(found: &mut Vec<String>, at: &Place<'_>, volume: &core::Volume) {
    let template = volume.ephemeral.as_ref().and_then(|ephemeral| ephemeral.volume_claim_template.as_ref());
    let Some(requirements) = template.and_then(|template| template.spec.resources.as_ref()) else { return };
    let at = at.child("ephemeral");
    let at = at.child("volumeClaimTemplate");
    let at = at.child("spec");
    let at = at.child("resources");
    for (name, list) in [("requests", &requirements.requests), ("limits", &requirements.limits)] {
        fractional(found, &at.child(name), list.as_ref(), "storage");
    }
}

fn fractional(found: &mut Vec<String>, at: &Place<'_>, list: Option<&ResourceList>, name: &str) {
    if let Some(amount) = list.and_then(|list| list.get(name)).filter(|amount| resources::is_fractional(amount)) {
        let shown = quoted(&resources::quantity(amount).to_string());
        found.push(format!("{}: fractional byte value {shown} is invalid, must be an integer", at.key(name).path()));
    }
}

fn fractional_bytes(found: &mut Vec<String>, at: &Place<'_>, list: Option<&ResourceList>) {
    fractional(found, at, list, "memory");
    fractional(found, at, list, "ephemeral-storage");
}

/// Entries that merge by key and therefore cannot occur twice under apply.
fn repeated_entries(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    let mut seen = HashSet::new();
    let aliases_at = at.child("hostAliases");
    for (i, alias) in list(&spec.host_aliases).iter().enumerate() {
        if !seen.insert(alias.ip.as_str()) {
            let at = aliases_at.index(i);
            found.push(format!("{}: duplicate ip {}", at.child("ip").path(), quoted(&alias.ip)));
        }
    }
    let mut seen = HashSet::new();
    let secrets_at = at.child("imagePullSecrets");
    for (i, secret) in list(&spec.image_pull_secrets).iter().enumerate() {
        if !seen.insert(secret.name.as_str()) {
            let at = secrets_at.index(i);
            found.push(format!("{}: duplicate name {}", at.child("name").path(), quoted(&secret.name)));
        }
    }
    for (i, _) in list(&spec.image_pull_secrets).iter().enumerate().filter(|(_, secret)| secret.name.is_empty()) {
        let at = secrets_at.index(i);
        found.push(format!("{}: invalid empty name \"\"", at.child("name").path()));
    }
}

fn profiles_and_containers(
    found: &mut Vec<String>,
    spec: &core::PodSpec,
    annotations: &Annotations,
    places: &Places<'_>,
) {
    const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    let annotations_at = places.metadata.child("annotations");
    let context = spec.security_context.as_ref();
    if context.is_none_or(|context| context.seccomp_profile.is_none()) && annotations.contains_key(SECCOMP_POD) {
        found.push(format!("{}: {SECCOMP}", annotations_at.key(SECCOMP_POD).path()));
    }
    let pod_app_armor = context.and_then(|context| context.app_armor_profile.as_ref());
    for (list_name, i, container) in containers::all(spec) {
        if !annotations.is_empty() {
            let context = container.security_context.as_ref();
            let key = format!("{SECCOMP_CONTAINER_PREFIX}{}", container.name);
            let has_field = context.is_some_and(|context| context.seccomp_profile.is_some());
            if !has_field && annotations.contains_key(&key) {
                found.push(format!("{}: {SECCOMP}", annotations_at.key(&key).path()));
            }
            // Pods get theirs from `prepare_for_create`, which turns these annotations into fields.
            let key = format!("{APP_ARMOR_PREFIX}{}", container.name);
            let has_field = context.is_some_and(|context| context.app_armor_profile.is_some());
            if let Some(annotation) = annotations.get(&key).filter(|_| places.in_template && !has_field) {
                let profile = security::app_armor_of_annotation(annotation);
                if pod_app_armor.is_none() || pod_app_armor != profile.as_ref() {
                    let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
                    found.push(format!("{}: {text}", annotations_at.key(&key).path()));
                }
            }
        }
        let containers_at = places.spec.child(list_name);
        container_resources(found, &containers_at.index(i), &container);
        hidden_variables(found, &containers_at.index(i), list(&container.env));
    }
}

fn container_resources(found: &mut Vec<String>, at: &Place<'_>, container: &core::Container) {
    let Some(resources) = &container.resources else { return };
    let at = at.child("resources");
    for name in ["memory", "ephemeral-storage"] {
        fractional(found, &at.child("limits"), resources.limits.as_ref(), name);
        fractional(found, &at.child("requests"), resources.requests.as_ref(), name);
    }
}

/// A variable set twice, where the second does not build on the first.
fn hidden_variables(found: &mut Vec<String>, at: &Place<'_>, variables: &[core::EnvVar]) {
    let at = at.child("env");
    let mut seen = HashSet::new();
    for (i, variable) in variables.iter().enumerate().filter(|_| variables.len() > 1) {
        if seen.insert(variable.name.as_str()) {
            continue;
        }
        let reference = format!("$({})", variable.name);
        let value = text(&variable.value);
        if variable.value_from.is_some() || value == reference || !value.contains(&reference) {
            let name = quoted(&variable.name);
            let text = format!("hides previous definition of {name}, which may be dropped when using apply");
            found.push(format!("{}: {text}", at.index(i).path()));
        }
    }
}

/// Many more than an answer has room for. Each of many equal ports is in the way of each other (INV-54).
const WARNINGS_MAX: usize = 256;

fn ports(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    let has_ports =
        |(_, _, container): (_, _, std::borrow::Cow<'_, core::Container>)| !list(&container.ports).is_empty();
    if !containers::all(spec).any(has_ports) {
        return;
    }
    type Known = Vec<(Path, core::ContainerPort)>;
    let mut by_number: HashMap<(i32, String), Known> = HashMap::new();
    let mut by_name: HashMap<String, Path> = HashMap::new();
    let mut name_warnings = Vec::new();
    for (list_name, i, container) in containers::all(spec) {
        let containers_at = at.child(list_name);
        let container_at = containers_at.index(i);
        let ports_at = container_at.child("ports");
        for (j, port) in list(&container.ports).iter().enumerate() {
            let path = ports_at.index(j).path();
            if !text(&port.host_ip).is_empty() && port.host_port.unwrap_or_default() == 0 {
                found.push(format!("{path}: hostIP set without hostPort: {}", go_syntax(port)));
            }
            let known = by_number.entry((port.container_port, text(&port.protocol).to_owned())).or_default();
            let conflicts = known.iter().filter_map(|(other, theirs)| {
                port_conflict(port, theirs).map(|kind| format!("{path}: {kind} port definition with {other}"))
            });
            found.extend(conflicts.take(WARNINGS_MAX.saturating_sub(found.len())));
            if known.len() < WARNINGS_MAX {
                known.push((path.clone(), port.clone()));
            }
            let name = text(&port.name);
            if name.is_empty() {
                continue;
            }
            match by_name.get(name) {
                Some(other) => name_warnings.push(format!(
                    "{path}: duplicate port name {} with {other}, services and probes that select ports by name will \
                     use {other}",
                    quoted(name)
                )),
                None => _ = by_name.insert(name.to_owned(), path),
            }
        }
    }
    found.extend(name_warnings);
}

/// How two definitions of the same container port and protocol get into each other's way.
fn port_conflict(a: &core::ContainerPort, b: &core::ContainerPort) -> Option<&'static str> {
    let (a_host, b_host) = (a.host_port.unwrap_or_default(), b.host_port.unwrap_or_default());
    let (a_ip, b_ip) = (text(&a.host_ip), text(&b.host_ip));
    if a_ip == b_ip && a_host == b_host {
        Some("duplicate")
    } else if a_host == 0 || b_host == 0 {
        Some("overlapping")
    } else if a_host == b_host && a_ip.is_empty() != b_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

/// A port as Go prints a struct, which is what upstream shows here.
fn go_syntax(port: &core::ContainerPort) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        text(&port.name),
        port.host_port.unwrap_or_default(),
        port.container_port,
        text(&port.protocol),
        text(&port.host_ip),
    )
}

fn pod_affinity(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    let Some(affinity) = &spec.affinity else { return };
    let at = at.child("affinity");
    if let Some(pod) = &affinity.pod_affinity {
        let required = list(&pod.required_during_scheduling_ignored_during_execution);
        let preferred = list(&pod.preferred_during_scheduling_ignored_during_execution);
        pod_terms(found, &at.child("podAffinity"), required, preferred);
    }
    if let Some(pod) = &affinity.pod_anti_affinity {
        let required = list(&pod.required_during_scheduling_ignored_during_execution);
        let preferred = list(&pod.preferred_during_scheduling_ignored_during_execution);
        pod_terms(found, &at.child("podAntiAffinity"), required, preferred);
    }
}

fn pod_terms(
    found: &mut Vec<String>,
    at: &Place<'_>,
    required: &[core::PodAffinityTerm],
    preferred: &[core::WeightedPodAffinityTerm],
) {
    let required_at = at.child(REQUIRED);
    for (i, _) in required.iter().enumerate().filter(|(_, term)| term.label_selector.is_none()) {
        let at = required_at.index(i);
        found.push(format!("{}: {NULL_SELECTOR}", at.child("labelSelector").path()));
    }
    let preferred_at = at.child(PREFERRED);
    let nulls = preferred.iter().enumerate().filter(|(_, term)| term.pod_affinity_term.label_selector.is_none());
    for (i, _) in nulls {
        let at = preferred_at.index(i);
        let at = at.child("podAffinityTerm");
        found.push(format!("{}: {NULL_SELECTOR}", at.child("labelSelector").path()));
    }
}

fn addresses(found: &mut Vec<String>, at: &Place<'_>, spec: &core::PodSpec) {
    let servers = spec.dns_config.as_ref().map(|config| list(&config.nameservers)).unwrap_or_default();
    let servers_at = at.child("dnsConfig");
    let servers_at = servers_at.child("nameservers");
    found.extend(servers.iter().enumerate().filter_map(|(i, server)| ip::warning(&servers_at.index(i), server)));
    let aliases_at = at.child("hostAliases");
    for (i, alias) in list(&spec.host_aliases).iter().enumerate() {
        let at = aliases_at.index(i);
        found.extend(ip::warning(&at.child("ip"), &alias.ip));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::{edited, pod, template, typed_pod, typed_template};

    fn of_template(edit: Value) -> Vec<String> {
        let mut template = edited(template(), &edit);
        crate::pod::default_template(&mut template);
        template_warnings(&typed_template(&template), &Path::new("spec.template"))
    }

    /// JA-W3.
    #[test]
    fn templates() {
        let cases: Vec<(Value, Vec<&str>)> = vec![
            (json!({}), vec![]),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                vec![
                    "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                ],
            ),
            (
                json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 1, "preference": {"matchExpressions": [
                        {"key": "node-role.kubernetes.io/master", "operator": "In", "values": ["-"]}]}}]}}}),
                vec![
                    "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.\
                     matchExpressions[0].key: node-role.kubernetes.io/master is use \"node-role.kubernetes.io/control-plane\" \
                     instead",
                    "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.\
                     matchExpressions[0].values[0]: - is invalid, a valid label must be an empty string or consist of \
                     alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                     'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                ],
            ),
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "failure-domain.beta.kubernetes.io/zone"}]}),
                vec![
                    "spec.template.spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is \
                     deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
                    "spec.template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                ],
            ),
            (
                json!({"volumes": [{"name": "v", "gitRepo": {}}, {"name": "w", "storageos": {}}]}),
                vec![
                    "spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                    "spec.template.spec.volumes[1].storageOS: deprecated in v1.22, non-functional in v1.25+",
                ],
            ),
            (
                json!({"volumes": [{"name": "v", "configMap": {"name": "c", "items": [
                    {"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}}]}),
                vec!["volume \"v\" (ConfigMap \"c\"): overlapping paths: \"x/y\" with \"x\""],
            ),
            (
                json!({"volumes": [{"name": "v", "projected": {"sources": [
                    {}, {"secret": {"name": "s", "items": [{"key": "a", "path": "t"}]}}, {"serviceAccountToken": {"path": "t"}}]}}]}),
                vec![
                    "volume \"v\" (Projected) has no sources provided",
                    "volume \"v\" (Projected): overlapping paths: \"t\" (ServiceAccountToken) with \"t\" (Secret \"s\")",
                ],
            ),
            (
                json!({"hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}], "imagePullSecrets": [{"name": ""}, {"name": ""}]}),
                vec![
                    "spec.template.spec.hostAliases[1].ip: duplicate ip \"1.2.3.4\"",
                    "spec.template.spec.imagePullSecrets[1].name: duplicate name \"\"",
                    "spec.template.spec.imagePullSecrets[0].name: invalid empty name \"\"",
                    "spec.template.spec.imagePullSecrets[1].name: invalid empty name \"\"",
                ],
            ),
            (
                json!({
                    "overhead": {"memory": "1500m"},
                    "containers": [{"resources": {"limits": {"memory": "1m"}, "requests": {"ephemeral-storage": "100m"}}}],
                }),
                vec![
                    "spec.template.spec.overhead[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
                    "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"1m\" is invalid, must be an integer",
                    "spec.template.spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value \"100m\" is \
                     invalid, must be an integer",
                ],
            ),
            (
                json!({"containers": [{"env": [
                    {"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}]}]}),
                vec![
                    "spec.template.spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
                ],
            ),
            (
                json!({"terminationGracePeriodSeconds": -1}),
                vec![
                    "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
                ],
            ),
            (
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "a"}}]}}}),
                vec![
                    "spec.template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a \
                     null labelSelector results in matching no pod",
                    "spec.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].\
                     podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
                ],
            ),
            (
                json!({"dnsConfig": {"nameservers": ["FE80::1"]}}),
                vec![
                    "spec.template.spec.dnsConfig.nameservers[0]: IPv6 address \"FE80::1\" should be in RFC 5952 canonical format (\"fe80::1\")",
                ],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(of_template(json!({"spec": spec})), expected, "{spec}");
        }
    }

    #[test]
    fn annotations_that_do_nothing() {
        let annotations = json!({
            "scheduler.alpha.kubernetes.io/critical-pod": "",
            "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
            "container.apparmor.security.beta.kubernetes.io/main": "unconfined",
        });
        assert_eq!(
            of_template(json!({"metadata": {"annotations": annotations}})),
            [
                "spec.template.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use \
                 the \"priorityClassName\" field instead",
                "spec.template.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use \
                 the \"seccompProfile\" field instead",
                "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]: deprecated since \
                 v1.30; use the \"appArmorProfile\" field instead",
            ]
        );
    }

    #[test]
    fn warnings_about_many_ports_are_bounded() {
        let ports = vec![json!({"containerPort": 1}); 5_000];
        let found = of_template(json!({"spec": {"containers": [{"ports": ports}]}}));
        assert_eq!(found.len(), WARNINGS_MAX);
    }

    #[test]
    fn ports_in_each_others_way() {
        let ports = |ports: Value| of_template(json!({"spec": {"containers": [{"ports": ports}]}}));
        let at = "spec.template.spec.containers[0].ports";
        assert_eq!(
            ports(json!([{"containerPort": 80}, {"containerPort": 80}])),
            [format!("{at}[1]: duplicate port definition with {at}[0]")]
        );
        assert_eq!(
            ports(json!([{"containerPort": 80}, {"containerPort": 80, "hostPort": 80}])),
            [format!("{at}[1]: overlapping port definition with {at}[0]")]
        );
        assert_eq!(
            ports(
                json!([{"containerPort": 80, "hostPort": 80}, {"containerPort": 80, "hostPort": 80, "hostIP": "1.2.3.4"}])
            ),
            [format!("{at}[1]: dangerously ambiguous port definition with {at}[0]")]
        );
        assert_eq!(ports(json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}])), [""; 0]);
        assert_eq!(
            ports(json!([{"containerPort": 80, "hostIP": "1.2.3.4"}])),
            [format!(
                "{at}[0]: hostIP set without hostPort: {{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}}"
            )]
        );
        let two = json!({"spec": {
            "containers": [{"ports": [{"containerPort": 81, "name": "web"}]}],
            "initContainers": [{"name": "a", "image": "a:1", "ports": [{"containerPort": 80, "name": "web"}]}],
        }});
        let first = "spec.template.spec.initContainers[0].ports[0]";
        assert_eq!(
            of_template(two),
            [format!(
                "{at}[0]: duplicate port name \"web\" with {first}, services and probes that select ports by name will use {first}"
            )]
        );
    }

    #[test]
    fn pods_are_warned_about_once() {
        let mut dotted =
            edited(pod(), &json!({"metadata": {"name": "a.b"}, "spec": {"imagePullSecrets": [{"name": ""}]}}));
        crate::pod::default(&mut dotted);
        let dotted = typed_pod(&dotted);
        assert_eq!(
            warnings(&dotted, None),
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
                 recommended: [must not contain dots]",
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
            ]
        );
        assert_eq!(warnings(&dotted, Some(&dotted)), [""; 0]);
    }
}
