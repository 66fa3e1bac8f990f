//! What the server serves, by aggregated discovery: two requests for everything.

use std::{borrow::Cow, collections::HashSet};

use kube::{Client, Error};
use serde::Deserialize;

use super::{requests, resource::Resource};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A served resource. Each is listed once, in the version its group prefers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub resource: Resource,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
}

impl Served {
    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|served| served == verb))
    }
}

/// All served resources, and the groups that could not say what they serve right now.
#[derive(Debug, Default)]
pub struct Discovery {
    pub resources: Vec<Served>,
    pub failed: Vec<String>,
}

/// Asks the server what it serves.
pub async fn discover(client: &Client) -> Result<Discovery, Error> {
    let mut found = Discovery::default();
    for path in ["/api", "/apis"] {
        let list: GroupList = requests::get_as(client, path, AGGREGATED).await?;
        list.items.into_iter().for_each(|group| add_group(&mut found, group));
    }
    Ok(found)
}

fn add_group(found: &mut Discovery, group: Group) {
    let mut seen = HashSet::new();
    for version in group.versions {
        if version.freshness == "Stale" {
            found.failed.push(format!("{}/{}", group.metadata.name, version.version));
        }
        // Versions come in order of preference: the first that has a resource is the one to use.
        for resource in version.resources {
            let Some(kind) = resource.response_kind.filter(|_| seen.insert(resource.resource.clone())) else {
                continue;
            };
            found.resources.push(Served {
                resource: Resource {
                    group: Cow::Owned(group.metadata.name.clone()),
                    version: Cow::Owned(version.version.clone()),
                    plural: Cow::Owned(resource.resource),
                },
                kind: kind.kind,
                namespaced: resource.scope == "Namespaced",
                verbs: resource.verbs,
            });
        }
    }
}

#[derive(Deserialize)]
struct GroupList {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMeta,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct GroupMeta {
    /// Absent for the core group.
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<ServedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    kind: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[tokio::test]
    async fn the_embedded_server_tells_what_it_serves() {
        let world = World::new().await;
        let found = discover(&world.client).await.unwrap();
        assert!(found.failed.is_empty());
        let of = |plural: &str| found.resources.iter().find(|served| served.resource.plural == plural).unwrap();
        assert_eq!(of("jobs").resource, Resource::JOBS);
        assert_eq!(of("jobs").kind, "Job");
        assert!(of("jobs").namespaced && of("jobs").supports(&["delete", "list", "watch"]));
        assert!(!of("nodes").namespaced);
        assert!(!of("namespaces").supports(&["deletecollection"]));
        assert!(!of("bindings").supports(&["list"]));
    }

    #[test]
    fn each_resource_is_taken_in_its_preferred_version() {
        let group: Group = serde_json::from_str(
            r#"{"metadata": {"name": "x.io"}, "versions": [
                {"version": "v2", "freshness": "Current", "resources": [
                    {"resource": "as", "scope": "Namespaced", "responseKind": {"kind": "A"}, "verbs": ["get"]}]},
                {"version": "v1", "freshness": "Stale", "resources": [
                    {"resource": "as", "scope": "Namespaced", "responseKind": {"kind": "A"}, "verbs": ["get"]},
                    {"resource": "bs", "scope": "Cluster", "responseKind": {"kind": "B"}},
                    {"resource": "odd", "scope": "Cluster", "responseKind": null}]}]}"#,
        )
        .unwrap();
        let mut found = Discovery::default();
        add_group(&mut found, group);
        let names: Vec<String> =
            found.resources.iter().map(|one| format!("{} {}", one.resource.api_version(), one.kind)).collect();
        assert_eq!(names, ["x.io/v2 A", "x.io/v1 B"]);
        assert_eq!(found.failed, ["x.io/v1"]);
    }
}
