//! `pods/binding` and `bindings`: gives a pod its node (AS-177).

use batch_types::field::{Error, Path};
use serde_json::{Map, Value, json};

use super::{
    eviction::set_condition,
    update::{Owners, Reading, Write, apply, unmet},
};
use crate::{
    admission,
    answer::Answer,
    decode::{self, Expected},
    metadata, negotiate,
    options::WriteOptions,
    resources::{Strategy, registry},
    route::Target,
    server::{ApiServer, Call},
    status::{Details, Status, success},
};

const BINDING: Expected<'static> = Expected { group: "", version: "v1", kind: "Binding", also_versions: &[] };

/// A binding changes what it changes and nothing else; generation stays (AS-76).
struct BindingStrategy;

impl Strategy for BindingStrategy {}

pub(super) async fn create(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let body_type = negotiate::body_type(&call.headers)?;
    let bytes = call.read_body().await?;
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let decoded = decode::object(&bytes, body_type, BINDING, options.field_validation)?;
    call.warnings.extend(decoded.warnings);
    let mut binding = decoded.value;
    super::create::scope(&mut binding, &Target { resource: pods()?, ..target.clone() })?;
    let name = metadata::text(&binding, "name").to_owned();
    match target.subresource {
        Some(_) => admission::on_create_of_subresource(server, target)?,
        None => admission::on_create(server, target, &mut binding)?,
    }
    if target.name.as_deref().is_some_and(|wanted| wanted != name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    validate(&binding)?;
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let pod = Target { resource: pods()?, name: Some(name), subresource: None, ..target.clone() };
    let stated = |member| Some(metadata::text(&binding, member).to_owned()).filter(|text| !text.is_empty());
    let version = stated("resourceVersion");
    let write = Write {
        target: &pod,
        strategy: &BindingStrategy,
        expected_version: None,
        // As a new object of its own, a binding has no uid yet.
        expected_uid: stated("uid").filter(|_| target.subresource.is_some()),
        owners: Owners::Kept,
        dry_run: options.dry_run,
        reading: Reading::Whole,
    };
    let now = server.state.environment.now();
    apply(server, call, &write, &mut |old, _| {
        let stored = metadata::text(old, "resourceVersion");
        match &version {
            Some(wanted) if wanted != stored => Err(unmet(&pod, "ResourceVersion", wanted, stored)),
            _ => bind(old, &binding, now),
        }
    })
    .await?;
    Ok(Answer::plain(201, success(None, Some(201))))
}

fn pods() -> Result<&'static crate::resources::Resource, Status> {
    registry::find("", "v1", "pods").ok_or_else(|| Status::internal("pods are not served"))
}

/// Upstream reports these without a reason.
fn validate(binding: &Value) -> Result<(), Status> {
    let target = &binding["target"];
    let place = Path::new("target");
    let mut errors = Vec::new();
    let kind = target["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        errors.push(Error::not_supported(&place.child("kind"), kind, &["Node", "<empty>"]).to_string());
    }
    if target["name"].as_str().unwrap_or_default().is_empty() {
        errors.push(Error::required(&place.child("name"), "").to_string());
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::unexplained(one.as_str())),
        many => Err(Status::unexplained(format!("[{}]", many.join(", ")))),
    }
}

fn bind(pod: &Value, binding: &Value, now: jiff::Timestamp) -> Result<Value, Status> {
    let name = metadata::text(pod, "name");
    let refuse = |why: String| {
        let details = Details { name: name.to_owned(), kind: "pods/binding".to_owned(), ..Details::default() };
        Err(Status::conflict_on("pods/binding", details, &why))
    };
    if metadata::is_terminating(pod) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refuse(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    bound["spec"]["nodeName"] = binding["target"]["name"].clone();
    for members in ["annotations", "labels"] {
        merge(&mut bound, binding, members);
    }
    if let Some(status) = bound["status"].as_object_mut() {
        status.shift_remove("nominatedNodeName");
    }
    set_scheduled(&mut bound, now);
    Ok(bound)
}

fn merge(pod: &mut Value, binding: &Value, members: &str) {
    let Some(added) = binding["metadata"][members].as_object() else { return };
    let metadata = metadata::of(pod);
    let existing = metadata.entry(members).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(existing) = existing {
        existing.extend(added.clone());
    }
}

/// PodScheduled turns True; its time moves only when it was not.
fn set_scheduled(pod: &mut Value, now: jiff::Timestamp) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": metadata::time(now)});
    set_condition(pod, condition);
}
