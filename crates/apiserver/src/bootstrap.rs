//! Objects that exist from the first second (AS-2).

use serde_json::{Value, json};

use crate::{
    metadata,
    resources::{priorityclass::SYSTEM_CLASSES, registry},
    route,
    server::ApiServer,
    status::Status,
    storage::{self, WriteError},
};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
pub(crate) async fn run(server: &ApiServer) -> Result<(), Status> {
    for name in NAMESPACES {
        let object = json!({
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        ensure(server, "", "namespaces", name, object).await?;
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
        ensure(server, "scheduling.k8s.io", "priorityclasses", name, object).await?;
    }
    Ok(())
}

async fn ensure(server: &ApiServer, group: &str, plural: &str, name: &str, mut object: Value) -> Result<(), Status> {
    let Some(resource) = registry::find(group, "v1", plural) else { return Ok(()) };
    let key = route::key(resource, "", name);
    let state = &server.state;
    if state.store.get(&key).is_some() {
        return Ok(());
    }
    metadata::stamp_new(&mut object, &state.environment.uid(), state.environment.now());
    let object = crate::verbs::canonical(resource, object)?;
    match storage::create(&state.store, &key, &object).await {
        Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
        Err(WriteError::Failed(status)) => Err(status),
    }
}
