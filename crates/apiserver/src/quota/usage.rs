//! What one object uses of what quotas count, and the scopes it belongs to (upstream's quota evaluators).
//!
//! A pod uses compute resources until it has ended; every object counts as one while it is stored.

use std::collections::BTreeSet;

use api_schema::{Format, Quantity};
use batch_types::{pod, resource_names};
use k8s_openapi::{api::core::v1::PodSpec, serde::Deserialize};
use serde_json::Value;

use super::{
    amounts::{self, Amounts},
    scopes::{PodFacts, Requirement},
};
use crate::resources::{
    Resource,
    values::{items, text},
};

/// The compute resources of pods that a quota may limit, besides huge pages and extended resources.
const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// A quota on one of these demands that every container says how much it wants.
const DEMANDED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
/// Kinds that are counted under their bare plural too.
const ALIASES: [&str; 3] = ["configmaps", "resourcequotas", "secrets"];

/// What an object uses.
#[derive(Debug, Clone)]
pub(super) struct Usage {
    /// Everything that a quota could count of it.
    pub(super) amounts: Amounts,
    /// What scopes ask about; objects that are no pods are in no scope.
    pub(super) pod: Option<PodFacts>,
}

impl Usage {
    pub(super) fn of(resource: &Resource, object: &Value) -> Self {
        if resource.kind == "Pod" {
            return Self { amounts: pod_amounts(object), pod: Some(PodFacts::of(object)) };
        }
        Self { amounts: object_names(resource).into_iter().map(|name| (name, one())).collect(), pod: None }
    }

    /// Whether all scopes of a quota select the object.
    pub(super) fn is_in(&self, scopes: &[Requirement]) -> bool {
        scopes.iter().all(|scope| self.pod.as_ref().is_some_and(|pod| scope.selects(pod)))
    }
}

/// Whether objects of this resource can use the resource `name` of a quota.
pub(super) fn uses(resource: &Resource, name: &str) -> bool {
    if resource.kind == "Pod" {
        return POD_RESOURCES.contains(&name) || is_pod_prefix(name);
    }
    object_names(resource).iter().any(|own| own == name)
}

/// Events come and go too quickly to be counted.
pub(super) fn is_counted(resource: &Resource) -> bool {
    resource.namespaced && resource.kind != "Event"
}

/// What is wrong with a pod whose containers do not say what a quota on `limited` must know.
pub(super) fn unspecified<'a>(pod: &Value, limited: impl Iterator<Item = &'a str>) -> Option<String> {
    let level = |list| pod["spec"]["resources"][list].as_object();
    if [level("requests"), level("limits")].into_iter().flatten().flatten().any(|(name, _)| is_pod_level(name)) {
        return None;
    }
    let demanded: BTreeSet<&str> = limited.filter(|name| DEMANDED.contains(name)).collect();
    let missing: Vec<String> = demanded
        .into_iter()
        .filter_map(|name| {
            let without: BTreeSet<&str> = ["/spec/containers", "/spec/initContainers"]
                .iter()
                .flat_map(|list| items(pod, list))
                .filter(|container| !specifies(container, name))
                .map(|container| text(container, "/name"))
                .collect();
            let names: Vec<&str> = without.into_iter().collect();
            (!names.is_empty()).then(|| format!("{name} for: {}", names.join(",")))
        })
        .collect();
    (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
}

fn is_pod_level(name: &str) -> bool {
    resource_names::is_pod_level(name)
}

fn specifies(container: &Value, name: &str) -> bool {
    let (list, resource) = match name.split_once('.') {
        Some((list, resource)) => (list, resource),
        None => ("requests", name),
    };
    container["resources"][list].get(resource).is_some()
}

/// Huge pages, and extended resources as `requests.example.com/gpu`.
fn is_pod_prefix(name: &str) -> bool {
    let requested = name.strip_prefix("requests.");
    resource_names::is_huge_pages(requested.unwrap_or(name))
        || (requested.is_some() && !resource_names::is_native(name))
}

/// `count/jobs.batch`, and for some also `secrets`.
fn object_names(resource: &Resource) -> Vec<String> {
    let mut names = vec![format!("count/{}", resource.qualified())];
    if resource.group.is_empty() && ALIASES.contains(&resource.plural) {
        names.push(resource.plural.to_owned());
    }
    names
}

fn pod_amounts(object: &Value) -> Amounts {
    let mut used = Amounts::from([("count/pods".to_owned(), one())]);
    if matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
        return used;
    }
    used.insert("pods".to_owned(), one());
    // A stored pod fits its type; one that did not would use nothing beyond being there.
    let Ok(spec) = PodSpec::deserialize(&object["spec"]) else { return used };
    for (name, amount) in pod::requests(&spec) {
        let plain = resource_names::is_standard_for_container(&name);
        if plain || resource_names::is_extended(&name) {
            used.insert(format!("requests.{name}"), amount.clone());
        }
        if plain {
            used.insert(name, amount);
        }
    }
    let limited = pod::limits(&spec)
        .into_iter()
        .filter(|(name, _)| ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()));
    amounts::add(&mut used, &limited.map(|(name, amount)| (format!("limits.{name}"), amount)).collect());
    used
}

fn one() -> Quantity {
    Quantity::new(1, Format::DecimalSI)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::registry;

    fn pods() -> &'static Resource {
        registry::find("", "v1", "pods").unwrap()
    }

    fn pod(resources: Value) -> Value {
        json!({"spec": {"containers": [{"name": "main", "image": "a", "resources": resources}]}})
    }

    #[test]
    fn a_pod_uses_what_it_asks_for_until_it_has_ended() {
        let mut object = pod(json!({
            "requests": {"cpu": "250m", "memory": "64Mi", "hugepages-2Mi": "2Mi", "example.com/gpu": "1"},
            "limits": {"cpu": "1", "memory": "128Mi", "hugepages-2Mi": "2Mi", "example.com/gpu": "1"},
        }));
        assert_eq!(
            amounts::write(&Usage::of(pods(), &object).amounts),
            json!({
                "count/pods": "1", "pods": "1",
                "cpu": "250m", "requests.cpu": "250m", "limits.cpu": "1",
                "memory": "64Mi", "requests.memory": "64Mi", "limits.memory": "128Mi",
                "hugepages-2Mi": "2Mi", "requests.hugepages-2Mi": "2Mi", "requests.example.com/gpu": "1",
            })
        );
        for phase in ["Succeeded", "Failed"] {
            object["status"] = json!({"phase": phase});
            assert_eq!(amounts::write(&Usage::of(pods(), &object).amounts), json!({"count/pods": "1"}));
        }
    }

    #[test]
    fn other_objects_count_as_one() {
        let cases = [
            ("batch", "jobs", json!({"count/jobs.batch": "1"})),
            ("", "secrets", json!({"count/secrets": "1", "secrets": "1"})),
            ("", "serviceaccounts", json!({"count/serviceaccounts": "1"})),
        ];
        for (group, plural, expected) in cases {
            let resource = registry::find(group, "v1", plural).unwrap();
            assert_eq!(amounts::write(&Usage::of(resource, &json!({})).amounts), expected);
            assert!(expected.as_object().unwrap().keys().all(|name| uses(resource, name)), "{plural}");
            assert!(!uses(resource, "pods"), "{plural}");
        }
        assert!(!is_counted(registry::find("", "v1", "events").unwrap()));
        assert!(!is_counted(registry::find("", "v1", "namespaces").unwrap()));
    }

    #[test]
    fn quotas_of_pods() {
        for name in ["pods", "cpu", "requests.hugepages-2Mi", "hugepages-1Gi", "requests.example.com/gpu"] {
            assert!(uses(pods(), name), "{name}");
        }
        for name in ["services", "example.com/gpu", "count/jobs.batch", "requests.storage"] {
            assert!(!uses(pods(), name), "{name}");
        }
    }

    #[test]
    fn containers_must_say_what_quotas_must_know() {
        let mut object = pod(json!({"requests": {"cpu": "1"}}));
        object["spec"]["initContainers"] = json!([{"name": "first"}, {"name": "also"}]);
        let limited = ["limits.cpu", "requests.cpu", "pods", "limits.ephemeral-storage"];
        assert_eq!(
            unspecified(&object, limited.into_iter()).unwrap(),
            "must specify limits.cpu for: also,first,main; requests.cpu for: also,first"
        );
        assert_eq!(unspecified(&object, ["pods"].into_iter()), None);
        object["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
        assert_eq!(unspecified(&object, limited.into_iter()), None);
    }
}
