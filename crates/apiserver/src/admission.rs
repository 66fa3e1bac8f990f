//! Admission: what the server checks and adds beside a kind's own rules (AS-85, AS-171, AS-221, AS-223).

use batch_types::pod::{self, PriorityFacts};
use serde_json::Value;

use crate::{
    metadata,
    resources::{Resource, registry},
    route::{self, Target},
    server::ApiServer,
    status::{Cause, Status},
    storage::{self, Stored},
};

/// Namespaces that may not be deleted (AS-171).
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Before a new object is prepared: its namespace must exist, and pods get their priority and tolerations.
pub(crate) fn on_create(server: &ApiServer, target: &Target, object: &mut Value) -> Result<(), Status> {
    if target.resource.namespaced {
        namespace_takes_content(server, target, metadata::text(object, "name"))?;
    }
    if target.resource.kind == "Pod" {
        admit_pod(server, target, object)?;
    }
    Ok(())
}

/// After validation: rules that look at other objects.
pub(crate) fn validate_create(server: &ApiServer, target: &Target, object: &Value) -> Result<(), Status> {
    if target.resource.kind == "PriorityClass" && object["globalDefault"] == true {
        only_default(server, target, metadata::text(object, "name"))?;
    }
    Ok(())
}

/// Before an update is prepared: pods keep their priority and regain their tolerations.
pub(crate) fn mutate_update(target: &Target, new: &mut Value, old: &Value) {
    if target.resource.kind == "Pod" && target.subresource.is_none() {
        pod::admit_priority_update(new, old);
        pod::admit_default_tolerations(new);
    }
}

pub(crate) fn on_update(server: &ApiServer, target: &Target, new: &Value, old: &Value) -> Result<(), Status> {
    if target.resource.kind == "PriorityClass" && new["globalDefault"] == true && old["globalDefault"] != true {
        only_default(server, target, metadata::text(new, "name"))?;
    }
    Ok(())
}

pub(crate) fn on_delete(target: &Target) -> Result<(), Status> {
    if target.resource.kind == "Namespace" && IMMORTAL_NAMESPACES.contains(&target.name()) {
        return Err(Status::forbidden(target.resource, target.name(), "this namespace may not be deleted"));
    }
    Ok(())
}

fn namespace_takes_content(server: &ApiServer, target: &Target, name: &str) -> Result<(), Status> {
    let namespaces = resource("", "namespaces")?;
    let namespace = target.namespace();
    let Some(stored) = server.state.store.get(&route::key(namespaces, "", namespace)) else {
        return Err(Status::not_found(namespaces, namespace));
    };
    if !stored.attributes().is_terminating() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(target.resource, name, &why);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(status)
}

fn admit_pod(server: &ApiServer, target: &Target, pod: &mut Value) -> Result<(), Status> {
    let name = metadata::text(pod, "name").to_owned();
    let forbidden = |why: String| Status::forbidden(target.resource, &name, &why);
    let facts = priority_facts(server, pod["spec"]["priorityClassName"].as_str().unwrap_or_default())?;
    pod::admit_priority(pod, facts.as_ref()).map_err(forbidden)?;
    pod::admit_default_tolerations(pod);
    if let Some(class) = pod["spec"]["runtimeClassName"].as_str() {
        // Runtime classes are not served, so none exists.
        let why = format!("pod rejected: RuntimeClass \"{class}\" not found");
        return Err(Status::forbidden(target.resource, &name, &why));
    }
    Ok(())
}

/// The priority class a pod names, or the one that is the default for pods which name none.
fn priority_facts(server: &ApiServer, class: &str) -> Result<Option<PriorityFacts>, Status> {
    let classes = resource("scheduling.k8s.io", "priorityclasses")?;
    if !class.is_empty() {
        let stored = server.state.store.get(&route::key(classes, "", class));
        return stored.map(|stored| facts(&storage::parse(&stored)?)).transpose();
    }
    let mut default: Option<PriorityFacts> = None;
    for stored in list(server, classes)? {
        // Nearly always there is none, and this is asked for every pod: the bytes tell without parsing.
        if !contains(&stored.value, b"\"globalDefault\":true") {
            continue;
        }
        let candidate = facts(&storage::parse(&stored)?)?;
        if default.as_ref().is_none_or(|chosen| candidate.value < chosen.value) {
            default = Some(candidate);
        }
    }
    Ok(default)
}

fn facts(class: &Value) -> Result<PriorityFacts, Status> {
    Ok(PriorityFacts {
        name: metadata::text(class, "name").to_owned(),
        value: class["value"].as_i64().and_then(|value| i32::try_from(value).ok()).unwrap_or_default(),
        preemption_policy: class["preemptionPolicy"].as_str().map(str::to_owned),
    })
}

fn only_default(server: &ApiServer, target: &Target, name: &str) -> Result<(), Status> {
    let taken = all(server, target.resource)?
        .iter()
        .find(|class| class["globalDefault"] == true && metadata::text(class, "name") != name)
        .map(|class| metadata::text(class, "name").to_owned());
    match taken {
        Some(other) => Err(Status::forbidden(
            target.resource,
            name,
            &format!("PriorityClass {other} is already marked as default. Only one default can exist"),
        )),
        None => Ok(()),
    }
}

fn contains(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.windows(pattern.len()).any(|window| window == pattern)
}

fn all(server: &ApiServer, resource: &'static Resource) -> Result<Vec<Value>, Status> {
    list(server, resource)?.iter().map(storage::parse).collect()
}

fn list(server: &ApiServer, resource: &'static Resource) -> Result<Vec<Stored>, Status> {
    let prefix = format!("{}/", resource.topic);
    let found = server
        .state
        .store
        .list(&store::ListQuery::new(&prefix))
        .map_err(|error| Status::internal(error.to_string()))?;
    Ok(found.entries)
}

fn resource(group: &str, plural: &str) -> Result<&'static Resource, Status> {
    registry::find(group, "v1", plural).ok_or_else(|| Status::internal(format!("{plural} are not served")))
}
