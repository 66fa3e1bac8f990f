//! Admission: what the server checks and adds beside a kind's own rules (AS-85, AS-171, AS-221, AS-223).
//!
//! Quotas, the last step, are charged where an object is stored: see `quota`.

use batch_types::pod::{self, PriorityFacts, ServiceAccountFacts};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    limits, metadata,
    resources::{Resource, registry},
    route::{self, Target},
    server::ApiServer,
    status::{Cause, Status},
    storage::{self, Stored},
};

/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// Namespaces that may not be deleted (AS-171).
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Priority classes that may not be deleted, one by one at least: deletes of the collection do not look.
const SYSTEM_PRIORITY_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

/// Before a new object is prepared: its namespace must exist, and pods get their priority and tolerations.
pub(crate) fn on_create(server: &ApiServer, target: &Target, object: &mut Value) -> Result<(), Status> {
    if target.resource.namespaced {
        namespace_takes_content(server, target, name_so_far(object))?;
    }
    if target.resource.kind == "Pod" {
        admit_pod(server, target, object)?;
    }
    Ok(())
}

/// Before a binding, an eviction or a token is made: they are new content too.
pub(crate) fn on_create_of_subresource(server: &ApiServer, target: &Target) -> Result<(), Status> {
    namespace_takes_content(server, target, target.name())
}

/// After validation: rules that look at other objects.
pub(crate) fn validate_create(server: &ApiServer, target: &Target, object: &Value) -> Result<(), Status> {
    if target.resource.kind == "PriorityClass" && object["globalDefault"] == true {
        only_default(server, target, metadata::text(object, "name"))?;
    }
    if target.resource.kind == "Pod" {
        let forbidden = |why: String| Status::forbidden(target.resource, metadata::text(object, "name"), &why);
        for limit_range in limit_ranges(server, target)? {
            limits::check(&limit_range, object).map_err(forbidden)?;
        }
        pod::admit_overhead(object).map_err(forbidden)?;
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

/// Before anything is known of the object.
pub(crate) fn on_delete(target: &Target) -> Result<(), Status> {
    if target.resource.kind == "PriorityClass" && SYSTEM_PRIORITY_CLASSES.contains(&target.name()) {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(target.resource, target.name(), why));
    }
    Ok(())
}

/// Once the object turned out to be the one that is meant.
pub(crate) fn validate_delete(target: &Target) -> Result<(), Status> {
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
    let name = name_so_far(pod).to_owned();
    for limit_range in limit_ranges(server, target)? {
        limits::admit(&limit_range, pod);
    }
    admit_service_account(server, target, pod, &name)?;
    let forbidden = |why: String| Status::forbidden(target.resource, &name, &why);
    let facts = priority_facts(server, pod["spec"]["priorityClassName"].as_str().unwrap_or_default())?;
    pod::admit_priority(pod, facts.as_ref()).map_err(forbidden)?;
    pod::admit_default_tolerations(pod);
    pod::admit_runtime_class(pod).map_err(forbidden)
}

/// What refusals call an object whose name is generated only after admission.
fn name_so_far(object: &Value) -> &str {
    let given = ["name", "generateName"].map(|member| metadata::text(object, member));
    given.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

/// The limit ranges of a namespace. Nearly always there are none, which costs one look into an empty range.
fn limit_ranges(server: &ApiServer, target: &Target) -> Result<Vec<Value>, Status> {
    let resource = resource("", "limitranges")?;
    let prefix = format!("{}/{}/", resource.topic, target.namespace());
    under(server, &prefix)?.iter().map(storage::parse).collect()
}

/// A pod runs as an account of its namespace (AS-222). `default` is made right after the namespace, by a controller; who
/// is faster than that gets it all the same, because the account decides nothing that could not follow later.
fn admit_service_account(server: &ApiServer, target: &Target, pod: &mut Value, name: &str) -> Result<(), Status> {
    let Some(account) = pod::service_account_name(pod).map(str::to_owned) else { return Ok(()) };
    if !server.state.authenticator.knows_anybody() {
        // Nobody but this process can call the server: a token would open nothing, and accounts mean nothing.
        return Ok(());
    }
    let accounts = resource("", "serviceaccounts")?;
    let mut facts = match server.state.store.get(&route::key(accounts, target.namespace(), &account)) {
        Some(stored) => account_facts(&stored)?,
        None if account == DEFAULT_ACCOUNT => ServiceAccountFacts::default(),
        None => {
            let why = format!(
                "error looking up service account {}/{account}: serviceaccount \"{account}\" not found",
                target.namespace()
            );
            return Err(Status::forbidden(target.resource, name, &why));
        }
    };
    // Most pods run as `default` and never call the API: unless somebody asks for it, or that account was granted
    // something, they are spared a token that would open nothing.
    if account == DEFAULT_ACCOUNT && facts.automount_token.is_none() {
        facts.automount_token = Some(server.state.is_granted_anything(target.namespace(), &account)?);
    }
    pod::admit_service_account(pod, &facts, &server.state.environment.name_suffix());
    Ok(())
}

/// Read for every pod, so only what is needed.
fn account_facts(stored: &Stored) -> Result<ServiceAccountFacts, Status> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Account {
        automount_service_account_token: Option<bool>,
        #[serde(default)]
        image_pull_secrets: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        name: String,
    }
    let account: Account = serde_json::from_slice(&stored.value())
        .map_err(|error| Status::internal(format!("stored object does not parse: {error}")))?;
    Ok(ServiceAccountFacts {
        automount_token: account.automount_service_account_token,
        image_pull_secrets: account.image_pull_secrets.into_iter().map(|secret| secret.name).collect(),
    })
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
        if !contains(&stored.value(), b"\"globalDefault\":true") {
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
    under(server, &format!("{}/", resource.topic))
}

fn under(server: &ApiServer, prefix: &str) -> Result<Vec<Stored>, Status> {
    let listed = server.state.store.list(&store::ListQuery::new(prefix));
    listed.map(|found| found.entries).map_err(|error| Status::internal(error.to_string()))
}

fn resource(group: &str, plural: &str) -> Result<&'static Resource, Status> {
    registry::find(group, "v1", plural).ok_or_else(|| Status::internal(format!("{plural} are not served")))
}
