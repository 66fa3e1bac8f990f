//! One file per verb. The path of a request is the same for every kind; what differs is asked of its strategy.

mod apply;
mod binding;
mod create;
mod delete;
mod delete_collection;
mod eviction;
mod get;
mod list;
mod log;
mod patch;
mod token;
mod update;
mod watch;

use std::pin::Pin;

use api_schema::{Type, json, registry};
use batch_types::meta::Scope;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    answer::Answer,
    decode::Expected,
    metadata,
    negotiate::Representation,
    resources::{Context, Endpoint, Resource, Strategy},
    route::Target,
    server::{ApiServer, Call, State},
    status::Status,
};

/// What is to be done with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Not bound by the request timeout.
    pub(crate) fn streams(self) -> bool {
        matches!(self, Self::Watch | Self::DeleteCollection)
    }
}

/// The verb that method and target stand for; 405 when the resource does not serve it (AS-3, AS-5).
pub(crate) fn of(call: &Call, target: &Target) -> Result<Verb, Status> {
    let on_object = target.name.is_some();
    let verb = match (call.method.clone(), on_object) {
        (Method::GET, false) if target.watch_path || call.query.flag("watch") => Verb::Watch,
        (Method::GET, false) => Verb::List,
        (Method::GET, true) if target.watch_path => Verb::Watch,
        (Method::GET, true) => Verb::Get,
        (Method::POST, _) => Verb::Create,
        (Method::PUT, true) => Verb::Update,
        (Method::PATCH, true) => Verb::Patch,
        (Method::DELETE, true) => Verb::Delete,
        (Method::DELETE, false) => Verb::DeleteCollection,
        _ => return Err(Status::method_not_allowed()),
    };
    let served = match target.subresource {
        Some(subresource) => subresource.verbs.contains(&verb.name()),
        None => target.resource.allows(verb.name()) && (verb != Verb::Create || !on_object),
    };
    let everywhere = target.resource.namespaced && target.namespace.is_none();
    if served && !(everywhere && matches!(verb, Verb::Create | Verb::DeleteCollection)) {
        Ok(verb)
    } else {
        Err(Status::method_not_allowed())
    }
}

/// Does it. Boxed, so that the futures of all verbs do not add up to one large type.
pub(crate) fn run<'a>(
    server: &'a ApiServer,
    call: &'a mut Call,
    target: &'a Target,
    verb: Verb,
    representation: Representation,
) -> Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send + 'a>> {
    Box::pin(run_verb(server, call, target, verb, representation))
}

async fn run_verb(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    verb: Verb,
    representation: Representation,
) -> Result<Answer, Status> {
    match (verb, target.subresource.map(|subresource| &subresource.endpoint)) {
        (Verb::Create, Some(Endpoint::Binding)) => binding::create(server, call, target).await,
        (Verb::Create, Some(Endpoint::Eviction)) => eviction::create(server, call, target).await,
        (Verb::Create, Some(Endpoint::Token)) => token::create(server, call, target).await,
        (Verb::Create, None) if target.resource.kind == "Binding" => binding::create(server, call, target).await,
        (Verb::Get, Some(Endpoint::Log)) => log::get(server, call, target),
        (Verb::Get, _) => get::get(server, call, target).await,
        (Verb::List, _) => list::list(server, call, target).await,
        (Verb::Watch, _) => watch::watch(server, call, target, representation).await,
        (Verb::Create, _) => create::create(server, call, target).await,
        (Verb::Update, _) => update::update(server, call, target).await,
        (Verb::Patch, _) => patch::patch(server, call, target).await,
        (Verb::Delete, _) => delete::delete(server, call, target).await,
        (Verb::DeleteCollection, _) => delete_collection::delete_collection(server, call, target).await,
    }
}

/// The strategy of the endpoint: the resource's own, or that of one of its parts.
fn strategy(target: &Target) -> &'static dyn Strategy {
    match target.subresource.map(|subresource| &subresource.endpoint) {
        Some(Endpoint::Part(part)) => *part,
        _ => target.resource.strategy,
    }
}

fn expected(resource: &'static Resource) -> Expected<'static> {
    Expected { group: resource.group, version: resource.version, kind: resource.kind, also_versions: &[] }
}

fn context(server: &ApiServer) -> Context<'_> {
    let State { environment, gates, .. } = &*server.state;
    Context { now: environment.now(), gates, name_was_generated: false, labels_were_given: false }
}

/// The schema of a resource's objects.
pub(crate) fn schema(resource: &Resource) -> Result<&'static Type, Status> {
    let api_version = resource.api_version();
    registry()
        .kind(&api_version, resource.kind)
        .ok_or_else(|| Status::internal(format!("no schema for {api_version} {}", resource.kind)))
}

/// Brings an object that rules have edited back into canonical form.
pub(crate) fn canonical(resource: &Resource, object: Value) -> Result<Value, Status> {
    json::convert(schema(resource)?, object)
        .map(|decoded| decoded.value)
        .map_err(|error| Status::internal(format!("{} does not fit its schema: {error}", resource.kind)))
}

/// The object as a later read will default it (JA-D4), so that stored bytes can be served as they are.
fn as_read(resource: &Resource, strategy: &dyn Strategy, mut object: Value, cx: &Context<'_>) -> Result<Value, Status> {
    if strategy.default_on_read(&mut object, cx.gates) { canonical(resource, object) } else { Ok(object) }
}

/// The typed metadata of a canonical object.
fn object_meta(object: &Value) -> Result<ObjectMeta, Status> {
    metadata::typed(object).map_err(|error| Status::internal(format!("metadata does not fit its schema: {error}")))
}

fn scope_of(resource: &Resource) -> Scope {
    if resource.namespaced { Scope::Namespaced } else { Scope::Cluster }
}

/// The object in the version it is stored in.
fn stored_form(resource: &Resource, object: Value) -> Value {
    match resource.conversion {
        Some(conversion) => conversion.stored_form(object),
        None => object,
    }
}
