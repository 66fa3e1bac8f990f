//! Whether there is room for a pod on this node, and whether it wants to be here (PL-22, PL-105).
//!
//! A scheduler has usually found out before; a pod that was created with a `nodeName` is looked at for the first time.
//! Reasons and texts are those of the kubelet (`pkg/kubelet/lifecycle/predicate.go`).

use std::collections::BTreeMap;

use api_schema::Quantity;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::admission::Rejection;
use crate::agent::Capacity;
use crate::pod::{PodSpec, RestartPolicy};

/// What a pod asks for, or several have taken. Of other resources the node has none to give away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    cpu_millis: i64,
    memory_bytes: i64,
    ephemeral_storage_bytes: i64,
}

impl Requests {
    /// The sum of containers and sidecars, or what init containers need at their busiest, and the overhead. Requests of
    /// the pod as a whole take the place of those of its containers. The scheduler counts in the same way.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let mut running = Self::default();
        let mut starting = Self::default();
        for container in &spec.init_containers {
            let own = Self::of_resources(container.resources.as_deref());
            let busy = running.plus(own);
            if container.restart_policy == Some(RestartPolicy::Always) {
                running = busy;
            }
            starting = starting.at_least(busy);
        }
        for container in &spec.containers {
            running = running.plus(Self::of_resources(container.resources.as_deref()));
        }
        let whole = Self::of_resources(spec.resources.as_deref());
        let parts = running.at_least(starting);
        let chosen = |whole: i64, parts: i64| if whole > 0 { whole } else { parts };
        let requests = Self {
            cpu_millis: chosen(whole.cpu_millis, parts.cpu_millis),
            memory_bytes: chosen(whole.memory_bytes, parts.memory_bytes),
            // There is none of the pod as a whole.
            ephemeral_storage_bytes: parts.ephemeral_storage_bytes,
        };
        requests.plus(Self::of_lists([spec.overhead.as_ref(), None]))
    }

    /// Limits stand in for requests that are missing (PL-106).
    fn of_resources(resources: Option<&ResourceRequirements>) -> Self {
        resources.map_or(Self::default(), |it| Self::of_lists([it.requests.as_ref(), it.limits.as_ref()]))
    }

    /// The first list that names a resource counts.
    fn of_lists(lists: [Option<&BTreeMap<String, Text>>; 2]) -> Self {
        let get = |name: &str| {
            let text = lists.iter().flatten().find_map(|list| list.get(name))?;
            Quantity::parse(&text.0).ok()
        };
        Self {
            cpu_millis: get("cpu").map_or(0, |amount| amount.milli_value()),
            memory_bytes: get("memory").map_or(0, |amount| amount.value()),
            ephemeral_storage_bytes: get("ephemeral-storage").map_or(0, |amount| amount.value()),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            ephemeral_storage_bytes: self.ephemeral_storage_bytes.saturating_add(other.ephemeral_storage_bytes),
        }
    }

    fn at_least(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.max(other.cpu_millis),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            ephemeral_storage_bytes: self.ephemeral_storage_bytes.max(other.ephemeral_storage_bytes),
        }
    }
}

/// What the pods of the node have taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pods: i64,
    requests: Requests,
}

impl FromIterator<Requests> for Usage {
    fn from_iter<I: IntoIterator<Item = Requests>>(pods: I) -> Self {
        pods.into_iter()
            .fold(Self::default(), |usage, own| Self { pods: usage.pods + 1, requests: usage.requests.plus(own) })
    }
}

/// Is there room for one more?
pub(crate) fn check_room(wanted: Requests, usage: Usage, capacity: Capacity) -> Result<(), Rejection> {
    let Usage { pods, requests: used } = usage;
    let check = |reason, resource, wanted: i64, used: i64, capacity: i64| {
        // Asking for nothing is always granted, also where more is taken than there is.
        if wanted <= 0 || wanted <= capacity.saturating_sub(used) {
            return Ok(());
        }
        let text = format!(
            "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
        );
        Err(Rejection { reason, text })
    };
    check("OutOfpods", "pods", 1, pods, capacity.pods)?;
    check("OutOfcpu", "cpu", wanted.cpu_millis, used.cpu_millis, capacity.cpu_millis)?;
    // The Node says what it has in KiB.
    let memory = capacity.memory_bytes / 1024 * 1024;
    check("OutOfmemory", "memory", wanted.memory_bytes, used.memory_bytes, memory)?;
    let (wanted, used) = (wanted.ephemeral_storage_bytes, used.ephemeral_storage_bytes);
    let storage = capacity.ephemeral_storage_bytes / 1024 * 1024;
    check("OutOfephemeral-storage", "ephemeral-storage", wanted, used, storage)
}

/// Does it depend on the labels or the name of the node whether the pod wants to be here?
pub(crate) fn is_choosy(spec: &PodSpec) -> bool {
    !spec.node_selector.is_empty() || required_affinity(spec).is_some()
}

/// Does the pod want to be on a node with this name and these labels?
pub(crate) fn check_choice(spec: &PodSpec, name: &str, labels: &BTreeMap<String, String>) -> Result<(), Rejection> {
    let is_selected = spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let is_affine = required_affinity(spec)
        .is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches_term(term, name, labels)));
    if is_selected && is_affine {
        return Ok(());
    }
    let text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned();
    Err(Rejection { reason: "NodeAffinity", text })
}

fn required_affinity(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_ref()
}

/// All requirements must be met, and a term without any matches nothing.
fn matches_term(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let (expressions, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    let is_empty = expressions.clone().chain(fields.clone()).next().is_none();
    let label = |key: &str| labels.get(key).map(String::as_str);
    // `metadata.name` is the only field there is.
    !is_empty
        && expressions.into_iter().all(|it| matches(it, label(&it.key)))
        && fields.into_iter().all(|it| matches(it, Some(name)))
}

fn matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let compare = |holds: fn(&i64, &i64) -> bool| {
        let number = |text: &str| text.parse::<i64>().ok();
        let (own, bound) = (value.and_then(number), values.first().and_then(|text| number(text)));
        own.zip(bound).is_some_and(|(own, bound)| holds(&own, &bound))
    };
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requests(spec: Value) -> (i64, i64) {
        let Requests { cpu_millis, memory_bytes, .. } = Requests::of(&serde_json::from_value(spec).unwrap());
        (cpu_millis, memory_bytes)
    }

    #[test]
    fn requests_are_what_a_pod_needs_at_its_busiest() {
        let asking = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": "1Ki"}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        let limited = json!({"resources": {"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"cpu": "1"}}});
        assert_eq!(requests(json!({"containers": [{}]})), (0, 0));
        assert_eq!(requests(json!({"containers": [asking("1"), asking("250m")]})), (1250, 2048));
        assert_eq!(requests(json!({"containers": [limited]})), (1000, 1024));
        assert_eq!(
            requests(json!({"initContainers": [asking("3"), sidecar], "containers": [asking("1")]})),
            (3000, 1024)
        );
        assert_eq!(
            requests(json!({"initContainers": [sidecar, asking("3")], "containers": [asking("1")]})),
            (3100, 1024)
        );
        let whole =
            json!({"resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": "1m"}, "containers": [asking("1")]});
        assert_eq!(requests(whole), (5001, 1024));
    }

    #[test]
    fn a_pod_must_fit_what_is_left() {
        let capacity =
            Capacity { cpu_millis: 2000, memory_bytes: 4096 + 1000, ephemeral_storage_bytes: 2048 + 1000, pods: 2 };
        let wants = |cpu_millis, memory_bytes| Requests { cpu_millis, memory_bytes, ephemeral_storage_bytes: 0 };
        let check = |wanted, used: &[Requests]| {
            let refused = check_room(wanted, used.iter().copied().collect(), capacity).err()?;
            Some((refused.reason, refused.text))
        };
        assert_eq!(check(wants(2000, 4096), &[]), None);
        let text = "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000";
        assert_eq!(check(wants(1501, 9000), &[wants(500, 0)]), Some(("OutOfcpu", text.to_owned())));
        let text = "Node didn't have enough resource: memory, requested: 97, used: 4000, capacity: 4096";
        assert_eq!(check(wants(1500, 97), &[wants(500, 4000)]), Some(("OutOfmemory", text.to_owned())));
        let stores = |text: &str| {
            let spec = json!({"containers": [{"resources": {"limits": {"ephemeral-storage": text}}}]});
            Requests::of(&serde_json::from_value(spec).unwrap())
        };
        assert_eq!(check(stores("1Ki"), &[stores("1Ki")]), None);
        let text = "Node didn't have enough resource: ephemeral-storage, requested: 1025, used: 1024, capacity: 2048";
        assert_eq!(check(stores("1025"), &[stores("1Ki")]), Some(("OutOfephemeral-storage", text.to_owned())));
        assert_eq!(check(wants(0, 0), &[wants(9000, 9000)]), None, "nothing fits into an overfull node too");
        let text = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
        assert_eq!(check(wants(0, 0), &[wants(0, 0); 2]), Some(("OutOfpods", text.to_owned())));
    }

    #[test]
    fn selector_and_affinity_must_match() {
        let labels = [("zone".to_owned(), "a".to_owned()), ("size".to_owned(), "5".to_owned())].into();
        let check = |spec: Value| {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert!(is_choosy(&spec));
            check_choice(&spec, "n", &labels).is_ok()
        };
        let affine = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
        };
        assert!(check(json!({"nodeSelector": {"zone": "a"}})));
        assert!(!check(json!({"nodeSelector": {"zone": "a", "size": "6"}})));
        for (key, operator, values, matches) in [
            ("zone", "In", &["b", "a"][..], true),
            ("zone", "In", &["b"], false),
            ("zone", "NotIn", &["a"], false),
            ("none", "NotIn", &["a"], true),
            ("zone", "Exists", &[], true),
            ("zone", "DoesNotExist", &[], false),
            ("size", "Gt", &["4"], true),
            ("size", "Lt", &["5"], false),
            ("zone", "Gt", &["4"], false),
            ("zone", "?", &["a"], false),
        ] {
            let requirement = json!({"key": key, "operator": operator, "values": values});
            let spec = affine(json!([{"matchExpressions": [requirement]}]));
            assert_eq!(check(spec), matches, "{key} {operator} {values:?}");
        }
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(check(affine(json!([named("x"), named("n")]))));
        assert!(!check(affine(json!([named("x")]))));
        assert!(!check(affine(json!([{}]))), "a term without requirements matches nothing");
        assert!(!is_choosy(&PodSpec::default()));
    }
}
