//! Objects that exist from the first second (AS-2): namespaces, priority classes, roles and their bindings.

use futures_util::future::try_join_all;
use serde::Deserialize as _;
use serde_json::{Value, json};
use store::Transaction;

use crate::{
    auth::rbac::{self, PolicyRule, defaults},
    metadata,
    resources::{Resource, priorityclass::SYSTEM_CLASSES, registry},
    route,
    server::ApiServer,
    status::Status,
    storage::{self, Stored, WriteError},
};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Makes what is missing, all at once: the store makes it durable with one sync.
pub(crate) async fn run(server: &ApiServer) -> Result<(), Status> {
    let mut wanted = Vec::new();
    for name in NAMESPACES {
        let object = json!({
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        wanted.push(("", "namespaces", name, object));
    }
    for (name, value, description) in SYSTEM_CLASSES {
        let object = json!({
            "kind": "PriorityClass",
            "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        wanted.push(("scheduling.k8s.io", "priorityclasses", name, object));
    }
    for (name, role) in defaults::cluster_roles() {
        wanted.push((rbac::GROUP, "clusterroles", name, role));
    }
    for (name, binding) in defaults::cluster_role_bindings() {
        wanted.push((rbac::GROUP, "clusterrolebindings", name, binding));
    }
    let made = wanted.into_iter().map(|(group, plural, name, object)| ensure(server, group, plural, name, object));
    try_join_all(made).await.map(drop)
}

async fn ensure(server: &ApiServer, group: &str, plural: &str, name: &str, mut object: Value) -> Result<(), Status> {
    let Some(resource) = registry::find(group, "v1", plural) else { return Ok(()) };
    let key = route::key(resource, "", name);
    let state = &server.state;
    let written = match state.store.get(&key) {
        Some(stored) => complete(server, resource, &key, &stored, &object).await,
        None => {
            metadata::stamp_new(&mut object, &state.environment.uid(), state.environment.now());
            let object = crate::verbs::canonical(resource, object)?;
            storage::create(&state.store, &key, &object).await.map(drop)
        }
    };
    match written {
        Ok(()) | Err(WriteError::Conflict(_)) => Ok(()),
        Err(WriteError::Failed(status)) => Err(status),
    }
}

/// A default role or binding that wants to be kept up to date gets back what it lacks, and keeps what was added to it.
async fn complete(
    server: &ApiServer,
    resource: &'static Resource,
    key: &str,
    stored: &Stored,
    default: &Value,
) -> Result<(), WriteError> {
    if resource.group != rbac::GROUP {
        return Ok(());
    }
    let mut object = storage::parse(stored).map_err(WriteError::Failed)?;
    if object["metadata"]["annotations"][defaults::AUTO_UPDATE] != "true" || !add_missing(&mut object, default) {
        return Ok(());
    }
    let object = crate::verbs::canonical(resource, object).map_err(WriteError::Failed)?;
    let update = Transaction::update(key, stored.revision, storage::stamped(&object));
    storage::commit(&server.state.store, update).await.map(drop)
}

/// Adds the rules or subjects of a default that an object does not have; tells whether there were any.
fn add_missing(object: &mut Value, default: &Value) -> bool {
    let list = |object: &Value, member: &str| object[member].as_array().cloned().unwrap_or_default();
    let member = if default["subjects"].is_array() { "subjects" } else { "rules" };
    let mut present = list(object, member);
    let missing: Vec<Value> = match member {
        "subjects" => list(default, member).into_iter().filter(|subject| !present.contains(subject)).collect(),
        _ => {
            let typed = |values: &[Value]| -> Vec<PolicyRule> {
                values.iter().filter_map(|rule| PolicyRule::deserialize(rule).ok()).collect()
            };
            rbac::missing(&typed(&present), &typed(&list(default, member)))
                .map(|rules| rules.into_iter().map(|rule| json!(rule)).collect())
                .unwrap_or_default()
        }
    };
    let has_any = !missing.is_empty();
    if has_any {
        present.extend(missing);
        object[member] = Value::Array(present);
    }
    has_any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_get_back_what_was_taken_from_them() {
        let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": ["batch"], "resources": ["jobs"]});
        let mut role = json!({"rules": [rule("get"), rule("own")]});
        let default = json!({"rules": [rule("get"), rule("list")]});
        assert!(add_missing(&mut role, &default));
        assert_eq!(role["rules"], json!([rule("get"), rule("own"), rule("list")]));
        assert!(!add_missing(&mut role, &default), "nothing is missing any more");

        let subject = |name: &str| json!({"kind": "Group", "name": name});
        let mut binding = json!({"subjects": null});
        assert!(add_missing(&mut binding, &json!({"subjects": [subject("a")]})));
        assert_eq!(binding["subjects"], json!([subject("a")]));
    }
}
