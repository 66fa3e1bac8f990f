//! Defaults of pod templates (JA section 3.3) and of pods (AS-174), on canonical JSON.
//!
//! Defaulting runs on every object that is decoded, also when read back from the store, so it must leave its own
//! output unchanged. What a template must not have filled in, because the pod made from it will, is in [`default`]
//! only: requests from limits, service links, host ports.
//!
//! Two things that upstream does while converting between versions are done here as well, since both mean "what this
//! object says when it does not say": the old name of `serviceAccountName`, and annotations that stood for init
//! containers.

use api_schema::Quantity;
use k8s_openapi::api::core::v1 as core;
use serde_json::{Map, Value, json};

use super::image;
use super::resources;
use super::status;
use crate::json::{at, at_mut, items_mut, object_or_new, remove_field, set_default};
use crate::resource_names;

/// Every list of containers a pod has.
pub(super) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const FILE_MODE: i32 = 0o644;
const TOKEN_SECONDS: i64 = 3600;
/// Annotations of releases without an `initContainers` field; dropped so that no old agent obeys them.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Fills in what a pod template leaves out (JA-D20…D34).
pub fn default_template(template: &mut Value) {
    drop_init_container_annotations(template);
    let Some(template) = template.as_object_mut() else { return };
    if let Some(spec) = object_or_new(template, "spec") {
        default_spec(spec);
    }
}

/// Fills in what a pod leaves out: what a template would, and what only pods get (AS-174).
pub fn default(pod: &mut Value) {
    drop_init_container_annotations(pod);
    if let Some(spec) = pod.as_object_mut().and_then(|pod| object_or_new(pod, "spec")) {
        default_pod_only(spec);
        default_spec(spec);
    }
    status::default(pod);
}

fn drop_init_container_annotations(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata") else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    let before = annotations.len();
    annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
    if annotations.is_empty() && before > 0 {
        remove_field(metadata, "annotations");
    }
}

/// A text that is absent or empty; Go's defaulting does not tell the two apart.
fn default_text(object: &mut Map<String, Value>, key: &str, value: &str) {
    if object.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
        object.insert(key.to_owned(), value.into());
    }
}

/// A number that is absent or zero.
fn default_number(object: &mut Map<String, Value>, key: &str, value: i64) {
    if object.get(key).and_then(Value::as_i64).is_none_or(|number| number == 0) {
        object.insert(key.to_owned(), value.into());
    }
}

fn default_pod_only(spec: &mut Map<String, Value>) {
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_requests(container);
        }
    }
    default_pod_level_resources(spec);
    set_default(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                default_host_ports(container);
            }
        }
    }
    // Negative grace means one second, for pods only: a template keeps what it says.
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
}

/// What is limited but not requested is requested in full.
fn default_requests(container: &mut Value) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()) else {
        return;
    };
    let limits = limits.clone();
    let Some(requests) = object_or_new(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn default_host_ports(container: &mut Value) {
    for port in items_mut(container, &["ports"]) {
        let Some(number) = port.get("containerPort").and_then(Value::as_i64) else { continue };
        if let Some(port) = port.as_object_mut().filter(|_| number != 0) {
            default_number(port, "hostPort", number);
        }
    }
}

/// Pod-level resources follow from what the containers ask for, once any of them are given.
fn default_pod_level_resources(spec: &mut Map<String, Value>) {
    let given = |key: &str| {
        let list = spec.get("resources").and_then(|resources| resources.get(key)).and_then(Value::as_object);
        list.is_some_and(|list| !list.is_empty())
    };
    if !given("limits") && !given("requests") {
        return;
    }
    // The sums are over typed containers; a spec that is not one is refused by decoding.
    let Ok(typed) = serde_json::from_value::<core::PodSpec>(Value::Object(spec.clone())) else { return };
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let mut limits = amounts(resources, "limits");
    let mut requests = amounts(resources, "requests");
    for (name, sum) in resources::aggregate(&typed, |resources| resources.limits.as_ref()) {
        if resource_names::is_huge_pages(&name) && !requests.contains_key(&name) {
            limits.entry(name).or_insert_with(|| sum.to_string().into());
        }
    }
    if !limits.is_empty() {
        for (name, sum) in resources::aggregate(&typed, |resources| resources.requests.as_ref()) {
            if resource_names::is_pod_level(&name) && resource_names::is_overcommit_allowed(&name) {
                requests.entry(name).or_insert_with(|| sum.to_string().into());
            }
        }
        for (name, limit) in limits.iter().filter(|(name, _)| resource_names::is_pod_level(name)) {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
        resources.insert("limits".to_owned(), Value::Object(limits));
    }
    if !requests.is_empty() {
        resources.insert("requests".to_owned(), Value::Object(requests));
    }
}

fn amounts(resources: &Map<String, Value>, key: &str) -> Map<String, Value> {
    resources.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn default_spec(spec: &mut Map<String, Value>) {
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", Map::new());
    set_default(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "schedulerName", "default-scheduler");
    mirror_service_account(spec);
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        default_volume(volume);
    }
    for list in CONTAINER_LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_container(container);
        }
    }
    round_up(spec.get_mut("overhead"));
    if let Some(resources) = spec.get_mut("resources") {
        round_up_requirements(resources);
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; the new one wins, and both are shown.
fn mirror_service_account(spec: &mut Map<String, Value>) {
    let name = |key: &str| spec.get(key).and_then(Value::as_str).filter(|name| !name.is_empty());
    match name("serviceAccountName").or_else(|| name("serviceAccount")).map(str::to_owned) {
        Some(name) => {
            for key in ["serviceAccountName", "serviceAccount"] {
                if spec.get(key).and_then(Value::as_str) != Some(&name) {
                    spec.insert(key.to_owned(), name.as_str().into());
                }
            }
        }
        None => {
            spec.shift_remove("serviceAccountName");
            spec.shift_remove("serviceAccount");
        }
    }
}

fn default_container(container: &mut Value) {
    for port in items_mut(container, &["ports"]) {
        if let Some(port) = port.as_object_mut() {
            default_text(port, "protocol", "TCP");
        }
    }
    for variable in items_mut(container, &["env"]) {
        default_field_ref(at_mut(variable, &["valueFrom", "fieldRef"]));
        if let Some(file) = at_mut(variable, &["valueFrom", "fileKeyRef"]).and_then(Value::as_object_mut) {
            set_default(file, "optional", false);
        }
    }
    if let Some(resources) = container.get_mut("resources") {
        round_up_requirements(resources);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        default_probe(container.get_mut(probe));
    }
    for hook in ["postStart", "preStop"] {
        default_http_get(at_mut(container, &["lifecycle", hook, "httpGet"]));
    }
    let Some(container) = container.as_object_mut() else { return };
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull_policy = image::default_pull_policy(image);
    default_text(container, "imagePullPolicy", pull_policy);
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
}

fn default_probe(probe: Option<&mut Value>) {
    let Some(probe) = probe else { return };
    default_http_get(at_mut(probe, &["httpGet"]));
    if let Some(grpc) = at_mut(probe, &["grpc"]).and_then(Value::as_object_mut) {
        set_default(grpc, "service", "");
    }
    let Some(probe) = probe.as_object_mut() else { return };
    default_number(probe, "timeoutSeconds", 1);
    default_number(probe, "periodSeconds", 10);
    default_number(probe, "successThreshold", 1);
    default_number(probe, "failureThreshold", 3);
}

fn default_http_get(action: Option<&mut Value>) {
    if let Some(action) = action.and_then(Value::as_object_mut) {
        default_text(action, "path", "/");
        default_text(action, "scheme", "HTTP");
    }
}

fn default_field_ref(selector: Option<&mut Value>) {
    if let Some(selector) = selector.and_then(Value::as_object_mut) {
        default_text(selector, "apiVersion", "v1");
    }
}

fn default_volume(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    let has_source = fields.iter().any(|(key, value)| key != "name" && !value.is_null());
    if !has_source {
        fields.insert("emptyDir".to_owned(), json!({}));
        return;
    }
    for (kind, source) in fields.iter_mut() {
        if kind != "name" {
            default_volume_source(kind, source);
        }
    }
}

fn default_volume_source(kind: &str, source: &mut Value) {
    match kind {
        "downwardAPI" => default_downward_items(source),
        "projected" => {
            for projection in items_mut(source, &["sources"]) {
                if let Some(downward) = at_mut(projection, &["downwardAPI"]) {
                    default_downward_items(downward);
                }
                if let Some(token) = at_mut(projection, &["serviceAccountToken"]).and_then(Value::as_object_mut) {
                    set_default(token, "expirationSeconds", TOKEN_SECONDS);
                }
            }
        }
        "ephemeral" => {
            if let Some(requirements) = at_mut(source, &["volumeClaimTemplate", "spec", "resources"]) {
                round_up_requirements(requirements);
            }
            if let Some(spec) = at_mut(source, &["volumeClaimTemplate", "spec"]).and_then(Value::as_object_mut) {
                set_default(spec, "volumeMode", "Filesystem");
            }
        }
        _ => {}
    }
    let Some(source) = source.as_object_mut() else { return };
    match kind {
        "secret" | "configMap" | "downwardAPI" | "projected" => set_default(source, "defaultMode", FILE_MODE),
        "hostPath" => set_default(source, "type", ""),
        "image" => {
            let reference = source.get("reference").and_then(Value::as_str).unwrap_or_default();
            let pull_policy = image::default_pull_policy(reference);
            default_text(source, "pullPolicy", pull_policy);
        }
        "iscsi" => default_text(source, "iscsiInterface", "default"),
        "rbd" => {
            default_text(source, "pool", "rbd");
            default_text(source, "user", "admin");
            default_text(source, "keyring", "/etc/ceph/keyring");
        }
        "azureDisk" => {
            set_default(source, "cachingMode", "ReadWrite");
            set_default(source, "fsType", "ext4");
            set_default(source, "readOnly", false);
            set_default(source, "kind", "Shared");
        }
        "scaleIO" => {
            default_text(source, "storageMode", "ThinProvisioned");
            default_text(source, "fsType", "xfs");
        }
        _ => {}
    }
}

fn default_downward_items(source: &mut Value) {
    for item in items_mut(source, &["items"]) {
        default_field_ref(at_mut(item, &["fieldRef"]));
    }
}

pub(super) fn round_up_requirements(requirements: &mut Value) {
    round_up(requirements.get_mut("limits"));
    round_up(requirements.get_mut("requests"));
}

/// Nothing finer than a thousandth is kept (JA-D30).
pub(super) fn round_up(list: Option<&mut Value>) {
    const MILLI: i32 = -3;
    for amount in list.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        // Only these suffixes and fractions can be finer than that.
        let Some(text) = amount.as_str().filter(|text| text.contains(['n', 'u', 'm', '.', 'e', 'E'])) else { continue };
        let Ok(mut quantity) = Quantity::parse(text) else { continue };
        quantity.round_up(MILLI);
        let rounded = quantity.to_string();
        if rounded != text {
            *amount = rounded.into();
        }
    }
}

/// The text of a field, empty when absent.
pub(super) fn text<'a>(value: &'a Value, keys: &[&str]) -> &'a str {
    at(value, keys).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{edited, pod, template};

    fn defaulted(spec: Value) -> Value {
        let mut template = edited(template(), &json!({"spec": spec}));
        default_template(&mut template);
        let once = template.clone();
        default_template(&mut template);
        assert_eq!(template, once, "defaulting changes its own output");
        template["spec"].take()
    }

    fn defaulted_pod(spec: Value) -> Value {
        let mut pod = edited(pod(), &json!({"spec": spec}));
        default(&mut pod);
        let once = pod.clone();
        default(&mut pod);
        assert_eq!(pod, once, "defaulting changes its own output");
        pod["spec"].take()
    }

    /// JA-D20…D26.
    #[test]
    fn a_minimal_template() {
        let expected = json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": "images.example/app:1.0",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
        });
        assert_eq!(defaulted(json!({})), expected);
        assert_eq!(defaulted(json!({"restartPolicy": ""}))["restartPolicy"], "Always");
        assert_eq!(defaulted(json!({"terminationGracePeriodSeconds": -1}))["terminationGracePeriodSeconds"], -1);
    }

    /// JA-D27…D30.
    #[test]
    fn parts_of_containers() {
        let spec = defaulted(json!({"containers": [{
            "ports": [{"containerPort": 80}],
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "valueFrom": {"fileKeyRef": {"key": "k"}}},
            ],
            "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
            "livenessProbe": {"grpc": {"port": 80}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80, "scheme": "HTTPS"}}},
            "resources": {"limits": {"cpu": "100u", "memory": "1Gi"}},
        }]}));
        let container = &spec["containers"][0];
        assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(container["env"][1]["valueFrom"]["fileKeyRef"]["optional"], false);
        assert_eq!(
            container["readinessProbe"],
            json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3,
            })
        );
        assert_eq!(container["livenessProbe"]["grpc"]["service"], "");
        assert_eq!(container["lifecycle"]["preStop"]["httpGet"], json!({"port": 80, "scheme": "HTTPS", "path": "/"}));
        assert_eq!(container["resources"], json!({"limits": {"cpu": "1m", "memory": "1Gi"}}));
    }

    /// JA-D31…D34.
    #[test]
    fn volumes() {
        let cases = [
            (json!({}), json!({"emptyDir": {}})),
            (json!({"configMap": {"name": "c"}}), json!({"configMap": {"name": "c", "defaultMode": 420}})),
            (json!({"secret": {"defaultMode": 256}}), json!({"secret": {"defaultMode": 256}})),
            (json!({"hostPath": {"path": "/"}}), json!({"hostPath": {"path": "/", "type": ""}})),
            (
                json!({"projected": {"sources": [
                    {"serviceAccountToken": {"path": "t"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]}}),
                json!({"projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                    {"downwardAPI": {"items": [
                        {"path": "n", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}]}},
                ]}}),
            ),
            (json!({"image": {"reference": "a"}}), json!({"image": {"reference": "a", "pullPolicy": "Always"}})),
            (
                json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
                json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}}),
            ),
            (json!({"iscsi": {}}), json!({"iscsi": {"iscsiInterface": "default"}})),
            (json!({"rbd": {}}), json!({"rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}})),
            (
                json!({"azureDisk": {}}),
                json!({"azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": false, "kind": "Shared"}}),
            ),
            (json!({"scaleIO": {}}), json!({"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"}})),
        ];
        for (source, expected) in cases {
            let volume = edited(json!({"name": "v"}), &source);
            let spec = defaulted(json!({"volumes": [volume]}));
            assert_eq!(spec["volumes"][0], edited(json!({"name": "v"}), &expected), "{source}");
        }
    }

    #[test]
    fn the_service_account_has_two_names() {
        let names = |spec: Value| {
            let spec = defaulted(spec);
            (spec["serviceAccountName"].clone(), spec["serviceAccount"].clone())
        };
        assert_eq!(names(json!({"serviceAccount": "old"})), (json!("old"), json!("old")));
        assert_eq!(names(json!({"serviceAccount": "old", "serviceAccountName": "new"})), (json!("new"), json!("new")));
        assert_eq!(names(json!({"serviceAccountName": ""})), (Value::Null, Value::Null));
    }

    /// AS-174, and what templates must not get.
    #[test]
    fn pods_get_more_than_templates() {
        let edit = json!({
            "hostNetwork": true,
            "terminationGracePeriodSeconds": -5,
            "containers": [{
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            }],
        });
        let spec = defaulted_pod(edit.clone());
        let container = &spec["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(container["ports"][0]["hostPort"], 80);
        assert_eq!((&spec["enableServiceLinks"], &spec["terminationGracePeriodSeconds"]), (&json!(true), &json!(1)));

        let template = defaulted(edit);
        let container = &template["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"cpu": "500m"}));
        assert_eq!(container["ports"][0].get("hostPort"), None);
        assert_eq!(template.get("enableServiceLinks"), None);
    }

    #[test]
    fn pod_level_requests_follow_from_containers_and_limits() {
        let resources = |pod: Value, container: Value| {
            defaulted_pod(json!({"resources": pod, "containers": [{"resources": container}]}))["resources"].take()
        };
        assert_eq!(
            resources(json!({"limits": {"cpu": "4", "memory": "1Gi"}}), json!({"requests": {"cpu": "1"}})),
            json!({"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}})
        );
        assert_eq!(
            resources(json!({"requests": {"cpu": "4"}}), json!({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}})),
            json!({"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"cpu": "4", "hugepages-2Mi": "4Mi"}})
        );
        assert_eq!(resources(json!({}), json!({"limits": {"cpu": "1"}})), json!({}));
    }

    #[test]
    fn annotations_for_old_agents_are_dropped() {
        let mut pod = edited(
            pod(),
            &json!({"metadata": {"annotations": {
            "pod.beta.kubernetes.io/init-containers": "[]", "a": "b"}}}),
        );
        default(&mut pod);
        assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
    }
}
