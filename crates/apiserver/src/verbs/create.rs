//! POST: a new object (AS-84…AS-86).

use batch_types::meta;
use serde_json::Value;
use store::Transaction;

use super::{as_read, canonical, context, expected, object_meta, schema, scope_of, stored_form};
use crate::{
    admission,
    answer::{Answer, Document},
    auth::escalation,
    decode, metadata, negotiate,
    options::WriteOptions,
    ownership::{self, Writer},
    query::parse_go_uint,
    quota::{self, Change},
    resources::{Context, Strategy},
    route::{self, Target},
    server::{ApiServer, Call},
    set_aside::SetAside,
    status::Status,
    storage::{self, WriteError},
};

/// A generated name is cut to leave room for its suffix (AS-78).
const GENERATED_PREFIX_MAX: usize = 58;
/// Attempts at a name that is not taken.
const GENERATE_ATTEMPTS_MAX: usize = 8;

pub(super) async fn create(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let body_type = negotiate::body_type(&call.headers)?;
    let bytes = call.read_body().await?;
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let decoded = decode::object(&bytes, body_type, expected(target.resource), options.field_validation)?;
    call.warnings.extend(decoded.warnings);
    let mut object = decoded.value;
    scope(&mut object, target)?;
    ownership::forget_if_asked(&bytes, &mut object);
    let writer = Writer::of(server, target, &call.headers, &options.field_manager);
    let new = New { target, writer: Some(writer), dry_run: options.dry_run };
    store_new(server, call, &new, object).await
}

/// The namespace of body and URL must agree (AS-75).
pub(super) fn scope(object: &mut Value, target: &Target) -> Result<(), Status> {
    let given = metadata::text(object, "namespace");
    if !target.resource.namespaced {
        if !given.is_empty() {
            metadata::of(object).shift_remove("namespace");
        }
        return Ok(());
    }
    if !given.is_empty() && given != target.namespace() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata::of(object).insert("namespace".to_owned(), Value::from(target.namespace()));
    Ok(())
}

/// A new object on its way into the store.
pub(super) struct New<'a> {
    pub target: &'a Target,
    /// Whose fields its fields are; `None` when the object says so itself (apply).
    pub writer: Option<Writer>,
    pub dry_run: bool,
}

/// Defaults, admits, prepares, validates and stores a new object; shared with PUT and apply that create.
pub(super) async fn store_new(
    server: &ApiServer,
    call: &mut Call,
    new: &New<'_>,
    mut object: Value,
) -> Result<Answer, Status> {
    let target = new.target;
    let resource = target.resource;
    let strategy = resource.strategy;
    let given_version = metadata::of(&mut object).shift_remove("resourceVersion").unwrap_or_default();
    let labels_were_given = object["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    strategy.default(&mut object, &server.state.gates);
    call.warnings.extend(meta::drop_duplicate_owners(&mut object));
    // Before admission and strategy: what they add belongs to nobody (AS-86).
    let mut aside = SetAside::default();
    if let Some(writer) = &new.writer {
        metadata::clear_system_members(&mut object);
        if resource.conversion.is_some() || object.as_object().is_some_and(ownership::is_named) {
            writer.record(schema(resource)?, None, &mut object);
        } else {
            aside = SetAside::owners(writer.record_new(&server.state.owners, schema(resource)?, &object));
        }
    }
    escalation::check_create(&server.state, &call.user, target, &object)?;
    admission::on_create(server, target, &mut object)?;
    let may_generate = !metadata::text(&object, "generateName").is_empty();
    let generate = may_generate && metadata::text(&object, "name").is_empty();
    if generate {
        let name = free_name(server, target, metadata::text(&object, "generateName"));
        metadata::of(&mut object).insert("name".to_owned(), Value::from(name));
    }
    let cx = Context { name_was_generated: generate, labels_were_given, ..context(server) };
    let mut prepared = prepare(server, call, target, strategy, object, &cx)?;
    let given_text = given_version.as_str().unwrap_or_default();
    if new.dry_run && !given_text.is_empty() {
        // Only the store asks, and shows its own.
        metadata::of(&mut prepared).insert("resourceVersion".to_owned(), given_version);
        prepared = canonical(resource, prepared)?;
    } else if parse_go_uint(given_text).is_ok_and(|version| version != 0) {
        return Err(Status::unexplained("resourceVersion should not be set on objects to be created"));
    }
    let name = metadata::text(&prepared, "name").to_owned();
    let key = route::key(resource, target.namespace(), &name);
    match write(server, target, &key, prepared, &aside, new.dry_run).await? {
        Written::Done(document) => Ok(Answer::object(201, resource, document)),
        Written::Taken(taken) => Err(already_exists(target, &name, may_generate, &taken)),
    }
}

/// A generated name that is free at this moment (AS-78). Losing it to somebody else before the object is stored takes
/// the same five random characters within a millisecond; the client is then told to try again.
fn free_name(server: &ApiServer, target: &Target, prefix: &str) -> String {
    let prefix: String = prefix.chars().take(GENERATED_PREFIX_MAX).collect();
    let mut name = String::new();
    for _ in 0..GENERATE_ATTEMPTS_MAX {
        name = format!("{prefix}{}", server.state.environment.name_suffix());
        if server.state.store.get(&route::key(target.resource, target.namespace(), &name)).is_none() {
            break;
        }
    }
    name
}

/// Of an object that has both names upstream cannot tell who chose the one that is taken.
fn already_exists(target: &Target, name: &str, may_be_generated: bool, taken: &storage::Stored) -> Status {
    let mut status = Status::already_exists(target.resource, name, taken.attributes().is_terminating());
    if may_be_generated {
        status.message.push_str(", the server was not able to generate a unique name for the object");
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = 1;
        }
    }
    status
}

/// System metadata, strategy, validation.
fn prepare(
    server: &ApiServer,
    call: &mut Call,
    target: &Target,
    strategy: &'static dyn Strategy,
    mut object: Value,
    cx: &Context<'_>,
) -> Result<Value, Status> {
    let resource = target.resource;
    metadata::stamp_new(&mut object, &server.state.environment.uid(), cx.now);
    let mut told = strategy.prepare_for_create(&mut object, cx);
    let mut object = canonical(resource, object)?;
    let (warnings, mut errors) = match strategy.review_new(&object, cx) {
        Ok(warnings) => (warnings, Vec::new()),
        Err(errors) => (Vec::new(), errors),
    };
    if errors.is_empty() {
        errors = meta::validate_common(&object_meta(&object)?, scope_of(resource));
    }
    if !errors.is_empty() {
        return Err(Status::invalid(
            resource.kind,
            resource.validated_group(),
            metadata::text(&object, "name"),
            &errors,
        ));
    }
    let object = if strategy.settle_new(&mut object) { canonical(resource, object)? } else { object };
    admission::validate_create(server, target, &object)?;
    told.extend(warnings);
    call.warnings.extend(told);
    as_read(resource, strategy, object, cx)
}

enum Written {
    Done(Document),
    Taken(storage::Stored),
}

async fn write(
    server: &ApiServer,
    target: &Target,
    key: &str,
    mut object: Value,
    aside: &SetAside,
    dry_run: bool,
) -> Result<Written, Status> {
    let Target { resource, .. } = *target;
    let change = |new| Change { resource, namespace: target.namespace(), key, old: None, new: Some(new), aside };
    if dry_run {
        quota::check(server, change(&object))?;
        aside.restore(&mut object);
        return Ok(match server.state.store.get(key) {
            Some(current) => Written::Taken(current),
            None => Written::Done(Document::Value(object)),
        });
    }
    let object = stored_form(resource, object);
    let stamped = aside.stamped(schema(resource)?, &object);
    match quota::commit(server, change(&object), Transaction::create(key, stamped)).await {
        Ok(stored) => Ok(Written::Done(Document::Stored(stored))),
        Err(WriteError::Conflict(Some(current))) => Ok(Written::Taken(current)),
        // Created and deleted again between the check and the answer: as good as a lost race.
        Err(WriteError::Conflict(None)) => Err(Status::too_many_requests("the object changed too quickly, try again")),
        Err(WriteError::Failed(status)) => Err(status),
    }
}
