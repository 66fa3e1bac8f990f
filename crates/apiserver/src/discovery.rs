//! Discovery documents and `/version`, built from the registry (AS-37…AS-46, AS-53).
//!
//! Pure bodies: which of them a client gets (Accept, `If-None-Match`) is decided where requests are answered.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::resources::{
    Resource, Subresource,
    registry::{GROUPS, RESOURCES, REVIEWS, Review},
};

/// The Kubernetes release whose behaviour is served.
pub const KUBERNETES_VERSION: &str = "v1.36.4";

/// `GET /api` for clients that do not ask for the aggregated form (AS-37).
pub fn legacy_api(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `GET /apis` for clients that do not ask for the aggregated form (AS-38).
pub fn legacy_apis() -> Value {
    let groups: Vec<Value> = named_groups().map(|name| Value::Object(group(name))).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/<name>` (AS-38).
pub fn legacy_group(name: &str) -> Option<Value> {
    let name = named_groups().find(|&known| known == name)?;
    let mut body = Map::new();
    body.insert("kind".to_owned(), json!("APIGroup"));
    body.insert("apiVersion".to_owned(), json!("v1"));
    body.extend(group(name));
    Some(Value::Object(body))
}

/// `GET /api/v1` and `GET /apis/<group>/<version>` (AS-39).
pub fn resource_list(group: &str, version: &str) -> Option<Value> {
    let mut resources = legacy_resources(group, version);
    if resources.is_empty() {
        return None;
    }
    resources.sort_by(|left, right| left["name"].as_str().cmp(&right["name"].as_str()));
    let mut body = Map::new();
    body.insert("kind".to_owned(), json!("APIResourceList"));
    // The core group's document was born before this member was filled in.
    if !group.is_empty() {
        body.insert("apiVersion".to_owned(), json!("v1"));
    }
    body.insert("groupVersion".to_owned(), json!(group_version(group, version)));
    body.insert("resources".to_owned(), Value::Array(resources));
    Some(Value::Object(body))
}

/// `GET /api`, aggregated (AS-41).
pub fn aggregated_api() -> Value {
    aggregated([""].into_iter())
}

/// `GET /apis`, aggregated (AS-41).
pub fn aggregated_apis() -> Value {
    aggregated(named_groups())
}

/// What identifies a body: the upper-case hexadecimal SHA-512 of its compact encoding (AS-45). Quotes are the header's.
pub fn etag(body: &Value) -> String {
    Sha512::digest(body.to_string().as_bytes()).iter().fold(String::with_capacity(128), |mut tag, byte| {
        // Writing to a string cannot fail.
        let _ = write!(tag, "{byte:02X}");
        tag
    })
}

/// `GET /version` (AS-53). Clients read `major`, `minor` and `gitVersion`; the build members name this program.
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": KUBERNETES_VERSION,
        "gitCommit": concat!("tally-", env!("CARGO_PKG_VERSION")),
        "gitTreeState": "clean",
        // Builds are reproducible: nothing in them depends on when they were made.
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": platform(),
    })
}

/// Operating system and architecture in Go's words.
fn platform() -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    format!("{os}/{architecture}")
}

fn named_groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().copied().filter(|group| !group.is_empty())
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// `name`, `versions` and `preferredVersion` of a group. Every group is served in one version.
fn group(name: &str) -> Map<String, Value> {
    let version = json!({"groupVersion": group_version(name, "v1"), "version": "v1"});
    let mut group = Map::new();
    group.insert("name".to_owned(), json!(name));
    group.insert("versions".to_owned(), json!([version]));
    group.insert("preferredVersion".to_owned(), version);
    group
}

fn legacy_resources(group: &str, version: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for resource in served(group, version) {
        all.push(legacy_resource(resource));
        all.extend(resource.subresources.iter().map(|subresource| legacy_subresource(resource, subresource)));
    }
    all.extend(reviews(group, version).map(|review| {
        json!({
            "name": review.plural,
            "singularName": review.singular,
            "namespaced": review.namespaced,
            "kind": review.kind,
            "verbs": Review::VERBS,
        })
    }));
    all
}

fn legacy_resource(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(resource.plural));
    entry.insert("singularName".to_owned(), json!(resource.singular));
    entry.insert("namespaced".to_owned(), json!(resource.namespaced));
    entry.insert("kind".to_owned(), json!(resource.kind));
    entry.insert("verbs".to_owned(), json!(resource.verbs));
    insert_names(&mut entry, resource);
    if !resource.storage_version_hash.is_empty() {
        entry.insert("storageVersionHash".to_owned(), json!(resource.storage_version_hash));
    }
    Value::Object(entry)
}

fn legacy_subresource(resource: &Resource, subresource: &Subresource) -> Value {
    let (group, version, kind) = subresource.kind.unwrap_or((resource.group, resource.version, resource.kind));
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(format!("{}/{}", resource.plural, subresource.name)));
    entry.insert("singularName".to_owned(), json!(""));
    entry.insert("namespaced".to_owned(), json!(resource.namespaced));
    if (group, version) != (resource.group, resource.version) {
        entry.insert("group".to_owned(), json!(group));
        entry.insert("version".to_owned(), json!(version));
    }
    entry.insert("kind".to_owned(), json!(kind));
    entry.insert("verbs".to_owned(), json!(subresource.verbs));
    Value::Object(entry)
}

fn insert_names(entry: &mut Map<String, Value>, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(resource.categories));
    }
}

fn aggregated(groups: impl Iterator<Item = &'static str>) -> Value {
    let items: Vec<Value> = groups.map(aggregated_group).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(group: &str) -> Value {
    let mut resources: Vec<Value> = served(group, "v1").map(aggregated_resource).collect();
    resources.extend(reviews(group, "v1").map(|review| {
        json!({
            "resource": review.plural,
            "responseKind": response_kind("", "", review.kind),
            "scope": scope(review.namespaced),
            "singularResource": review.singular,
            "verbs": Review::VERBS,
        })
    }));
    resources.sort_by(|left, right| left["resource"].as_str().cmp(&right["resource"].as_str()));
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({
        "metadata": metadata,
        "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}],
    })
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("resource".to_owned(), json!(resource.plural));
    entry.insert("responseKind".to_owned(), response_kind("", "", resource.kind));
    entry.insert("scope".to_owned(), json!(scope(resource.namespaced)));
    entry.insert("singularResource".to_owned(), json!(resource.singular));
    entry.insert("verbs".to_owned(), json!(resource.verbs));
    insert_names(&mut entry, resource);
    if !resource.subresources.is_empty() {
        let mut subresources: Vec<&Subresource> = resource.subresources.iter().collect();
        subresources.sort_by_key(|subresource| subresource.name);
        let subresources: Vec<Value> =
            subresources.into_iter().map(|subresource| aggregated_subresource(resource, subresource)).collect();
        entry.insert("subresources".to_owned(), Value::Array(subresources));
    }
    Value::Object(entry)
}

fn aggregated_subresource(resource: &Resource, subresource: &Subresource) -> Value {
    let response_kind = match subresource.kind {
        Some((group, version, kind)) if (group, version) != (resource.group, resource.version) => {
            response_kind(group, version, kind)
        }
        Some((_, _, kind)) => response_kind("", "", kind),
        None => response_kind("", "", resource.kind),
    };
    json!({"subresource": subresource.name, "responseKind": response_kind, "verbs": subresource.verbs})
}

/// Group and version are empty when they are the enclosing ones (AS-41).
fn response_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn scope(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

fn served<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(move |resource| resource.group == group && resource.version == version)
}

fn reviews<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Review> {
    REVIEWS.iter().filter(move |review| review.group == group && review.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    const PART: [&str; 3] = ["get", "patch", "update"];

    fn entry(list: &Value, name: &str) -> Value {
        let resources = list["resources"].as_array().expect("resources");
        resources.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    }

    /// AS-37, AS-38.
    #[test]
    fn legacy_groups() {
        assert_eq!(
            legacy_api("127.0.0.1:6443").to_string(),
            r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:6443"}]}"#
        );
        assert_eq!(
            legacy_group("coordination.k8s.io").expect("served").to_string(),
            concat!(
                r#"{"kind":"APIGroup","apiVersion":"v1","name":"coordination.k8s.io","#,
                r#""versions":[{"groupVersion":"coordination.k8s.io/v1","version":"v1"}],"#,
                r#""preferredVersion":{"groupVersion":"coordination.k8s.io/v1","version":"v1"}}"#
            )
        );
        assert_eq!(legacy_group("forest"), None);
        assert_eq!(legacy_group(""), None);
        let apis = legacy_apis();
        let names: Vec<_> = apis["groups"].as_array().expect("groups").iter().map(|group| &group["name"]).collect();
        assert_eq!(
            names,
            [
                "events.k8s.io",
                "authentication.k8s.io",
                "authorization.k8s.io",
                "batch",
                "rbac.authorization.k8s.io",
                "scheduling.k8s.io",
                "coordination.k8s.io"
            ]
        );
    }

    /// AS-39: names are sorted, subresources among them, each with its kind and verbs.
    #[test]
    fn core_resources() {
        let core = resource_list("", "v1").expect("served");
        assert_eq!(core.get("apiVersion"), None);
        assert_eq!(core["groupVersion"], "v1");
        let names: Vec<_> =
            core["resources"].as_array().expect("resources").iter().map(|entry| &entry["name"]).collect();
        assert_eq!(
            names,
            [
                "bindings",
                "configmaps",
                "events",
                "limitranges",
                "namespaces",
                "namespaces/finalize",
                "namespaces/status",
                "nodes",
                "nodes/status",
                "pods",
                "pods/binding",
                "pods/eviction",
                "pods/log",
                "pods/status",
                "resourcequotas",
                "resourcequotas/status",
                "secrets",
                "serviceaccounts",
                "serviceaccounts/token"
            ]
        );
        let cases = [
            json!({"name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"]}),
            json!({"name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace",
                   "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"], "shortNames": ["ns"],
                   "storageVersionHash": "Q3oi5N2YM8M="}),
            json!({"name": "namespaces/finalize", "singularName": "", "namespaced": false, "kind": "Namespace",
                   "verbs": ["update"]}),
            json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ALL,
                   "shortNames": ["po"], "categories": ["all"], "storageVersionHash": "xPOwRZ+Yhw8="}),
            json!({"name": "pods/binding", "singularName": "", "namespaced": true, "kind": "Binding", "verbs": ["create"]}),
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
                   "kind": "Eviction", "verbs": ["create"]}),
            json!({"name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]}),
            json!({"name": "pods/status", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": PART}),
        ];
        for expected in cases {
            let name = expected["name"].as_str().expect("a name");
            assert_eq!(entry(&core, name).to_string(), expected.to_string());
        }
    }

    #[test]
    fn other_resources() {
        let batch = resource_list("batch", "v1").expect("served");
        assert_eq!(batch["apiVersion"], "v1");
        assert_eq!(
            entry(&batch, "cronjobs"),
            json!({"name": "cronjobs", "singularName": "cronjob", "namespaced": true, "kind": "CronJob", "verbs": ALL,
                   "shortNames": ["cj"], "categories": ["all"], "storageVersionHash": "sd5LIXh4Fjs="})
        );
        let reviews = resource_list("authorization.k8s.io", "v1").expect("served");
        assert_eq!(
            entry(&reviews, "localsubjectaccessreviews"),
            json!({"name": "localsubjectaccessreviews", "singularName": "localsubjectaccessreview",
                   "namespaced": true, "kind": "LocalSubjectAccessReview", "verbs": ["create"]})
        );
        for (group, version) in [("batch", "v2"), ("forest", "v1"), ("", "v2")] {
            assert_eq!(resource_list(group, version), None, "{group}/{version}");
        }
    }

    /// AS-41.
    #[test]
    fn aggregated_form() {
        let api = aggregated_api();
        assert_eq!(api["items"].as_array().expect("items").len(), 1);
        assert_eq!(api["items"][0]["metadata"], json!({}));
        let pods = api["items"][0]["versions"][0]["resources"]
            .as_array()
            .expect("resources")
            .iter()
            .find(|entry| entry["resource"] == "pods")
            .expect("pods");
        assert_eq!(
            pods["subresources"][1],
            json!({"subresource": "eviction",
                   "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"}, "verbs": ["create"]})
        );
        let apis = aggregated_apis();
        let leases = apis["items"]
            .as_array()
            .expect("items")
            .iter()
            .find(|item| item["metadata"]["name"] == "coordination.k8s.io");
        assert_eq!(
            leases.expect("the group").to_string(),
            json!({
                "metadata": {"name": "coordination.k8s.io"},
                "versions": [{
                    "version": "v1",
                    "resources": [{
                        "resource": "leases",
                        "responseKind": {"group": "", "version": "", "kind": "Lease"},
                        "scope": "Namespaced",
                        "singularResource": "lease",
                        "verbs": ALL,
                    }],
                    "freshness": "Current",
                }],
            })
            .to_string()
        );
    }

    /// AS-45: 128 upper-case hexadecimal digits.
    #[test]
    fn etag_is_the_hash_of_the_body() {
        // SHA-512 of the two bytes `{}`.
        let tag = etag(&json!({}));
        assert!(tag.starts_with("27C74670ADB75075FAD058D5CEAF7B20C4E7786C83BAE8A32F626F9782AF34C9"), "{tag}");
        assert_eq!(tag.len(), 128);
        assert_ne!(tag, etag(&json!({"a": 1})));
    }

    /// AS-53: a semantic version with `v`, and no member missing.
    #[test]
    fn version_is_kubernetes() {
        let version = version();
        assert_eq!(version["gitVersion"], "v1.36.4");
        assert!(
            version.as_object().expect("members").values().all(|value| value.as_str().is_some_and(|v| !v.is_empty()))
        );
    }
}
