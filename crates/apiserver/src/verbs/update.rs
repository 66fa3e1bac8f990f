//! PUT, and the shared end of every write to an existing object (AS-110…AS-114).

use batch_types::meta;
use serde_json::Value;
use store::Transaction;

use super::{
    as_read, canonical, context,
    create::{self, New},
    expected,
    list::object_version,
    object_meta, schema, scope_of, stored_form, strategy,
};
use crate::{
    admission,
    answer::{Answer, Document, served},
    auth::escalation,
    decode, metadata, negotiate,
    options::WriteOptions,
    ownership::{self, Writer},
    quota,
    resources::Strategy,
    route::Target,
    server::{ApiServer, Call},
    set_aside::SetAside,
    status::Status,
    storage::{self, Stored, WriteError},
};

/// How often a write without a version is tried again when others win the race.
const ATTEMPTS_MAX: usize = 100;

pub(super) async fn update(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let bytes = call.read_body().await?;
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let body_type = negotiate::body_type(&call.headers)?;
    let decoded = decode::object(&bytes, body_type, expected(target.resource), options.field_validation)?;
    call.warnings.extend(decoded.warnings);
    let mut object = decoded.value;
    create::scope(&mut object, target)?;
    check_name(&object, target)?;
    let strategy = strategy(target);
    strategy.default(&mut object, &server.state.gates);
    let expected_uid = Some(metadata::text(&object, "uid").to_owned()).filter(|uid| !uid.is_empty());
    ownership::forget_if_asked(&bytes, &mut object);
    let writer = Writer::of(server, target, &call.headers, &options.field_manager);
    let is_missing = server.state.store.get(&target.key()).is_none();
    if is_missing && strategy.creates_on_update() && target.subresource.is_none() {
        if let Some(uid) = &expected_uid {
            return Err(wrong_uid(target, uid, ""));
        }
        server.authorize_create(call, target)?;
        metadata::of(&mut object).shift_remove("resourceVersion");
        let new = New { target, writer: Some(writer), dry_run: options.dry_run };
        return create::store_new(server, call, &new, object).await;
    }
    // What a subresource is told of owners does not count.
    let reading = match target.subresource {
        Some(_) if target.resource.conversion.is_none() => {
            metadata::of(&mut object).shift_remove("managedFields");
            Reading::Without(&[])
        }
        _ => Reading::Whole,
    };
    let owners = Owners::RecordedFor(writer);
    let write =
        Write { target, strategy, expected_version: None, expected_uid, owners, dry_run: options.dry_run, reading };
    apply(server, call, &write, &mut |_, _| Ok(object.clone())).await
}

/// The name of body and URL must agree (AS-75).
pub(super) fn check_name(object: &Value, target: &Target) -> Result<(), Status> {
    match metadata::text(object, "name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name()
        ))),
        name if name != target.name() => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name()
        ))),
        _ => Ok(()),
    }
}

fn must_be_specified(target: &Target) -> Status {
    let path = batch_types::field::Path::new("metadata").child("resourceVersion");
    let error = batch_types::field::Error::invalid(&path, 0, "must be specified for an update");
    // Upstream names the resource here, where other validation errors name the kind.
    Status::invalid(target.resource.plural, target.resource.group, target.name(), &[error])
}

/// A write to an existing object: what it may rely on, and how it ends.
pub(super) struct Write<'a> {
    pub target: &'a Target,
    pub strategy: &'static dyn Strategy,
    /// The version the writer read; `None` when the new object tells it.
    pub expected_version: Option<u64>,
    pub expected_uid: Option<String>,
    pub owners: Owners,
    pub dry_run: bool,
    pub reading: Reading,
}

/// How much of the current object a write looks at.
#[derive(Clone, Copy)]
pub(super) enum Reading {
    Whole,
    /// Neither at these members nor at managedFields.
    Without(&'static [&'static str]),
}

/// What a write does to managedFields.
pub(super) enum Owners {
    /// Changed fields become the writer's.
    RecordedFor(Writer),
    /// The new object already says whose they are (apply).
    Settled,
    /// They stay as they are.
    Kept,
}

/// Makes the new object from the current one; called again when somebody else was faster.
pub(super) type Change<'a> = &'a mut (dyn FnMut(&Value, &mut Call) -> Result<Value, Status> + Send);

/// Computes the new object from the current one and stores it, again and again until nobody was faster.
pub(super) async fn apply(
    server: &ApiServer,
    call: &mut Call,
    write: &Write<'_>,
    change: Change<'_>,
) -> Result<Answer, Status> {
    let target = write.target;
    let key = target.key();
    let mut current = server.state.store.get(&key);
    let mut reading = write.reading;
    for _ in 0..ATTEMPTS_MAX {
        let Some(stored) = &current else { return Err(Status::not_found(target.resource, target.name())) };
        let warnings = call.warnings.len();
        let (old, aside) = read(stored, target, reading)?;
        check_uid(&old, write)?;
        let mut changed = change(&old, call)?;
        aside.strip(&mut changed);
        check_version(stored, &changed, write)?;
        let Some(next) = prepare(server, call, write, changed, Current { object: &old, aside: &aside })? else {
            call.warnings.truncate(warnings);
            reading = Reading::Whole;
            continue;
        };
        match store_changed(server, &key, stored, write, next, &old).await {
            Ok(document) => return Ok(Answer::object(200, target.resource, document)),
            Err(WriteError::Conflict(newer)) => {
                call.warnings.truncate(warnings);
                current = newer;
            }
            Err(WriteError::Failed(status)) => return Err(status),
        }
    }
    Err(Status::stale(target.resource, target.name()))
}

/// The object that is to be changed.
#[derive(Clone, Copy)]
struct Current<'a> {
    object: &'a Value,
    /// What the object and its successor are judged without.
    aside: &'a SetAside,
}

/// What is to take its place.
struct Next {
    object: Value,
    aside: SetAside,
    /// Whether owners that are set aside have changed; others are part of the object.
    owners_differ: bool,
}

fn read(stored: &Stored, target: &Target, reading: Reading) -> Result<(Value, SetAside), Status> {
    match reading {
        Reading::Whole => Ok((served(stored, target.resource)?, SetAside::default())),
        Reading::Without(members) => SetAside::split(stored, members),
    }
}

fn check_uid(old: &Value, write: &Write<'_>) -> Result<(), Status> {
    let stored = metadata::text(old, "uid");
    match &write.expected_uid {
        Some(uid) if uid != stored => Err(wrong_uid(write.target, uid, stored)),
        _ => Ok(()),
    }
}

/// A uid in the body is a precondition, also on an object that is about to be made.
fn wrong_uid(target: &Target, uid: &str, stored: &str) -> Status {
    unmet(target, "UID", uid, stored)
}

/// A precondition that the store finds unmet.
pub(super) fn unmet(target: &Target, what: &str, wanted: &str, stored: &str) -> Status {
    let place = if target.resource.namespaced { format!("{}/", target.namespace()) } else { String::new() };
    let (plural, name) = (target.resource.plural, target.name());
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{plural}/{place}{name}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {stored}"
    );
    Status::conflict(target.resource, name, &why)
}

/// A version in the new object, from PUT or from a patch, must be the stored one (AS-110, AS-115).
fn check_version(stored: &Stored, changed: &Value, write: &Write<'_>) -> Result<(), Status> {
    let given = match write.expected_version {
        Some(version) => Some(version),
        None => object_version(metadata::text(changed, "resourceVersion"))?,
    };
    match given {
        Some(version) if version != stored.revision => Err(Status::stale(write.target.resource, write.target.name())),
        None if !write.strategy.updates_unconditionally() => Err(must_be_specified(write.target)),
        _ => Ok(()),
    }
}

/// System metadata, strategy, validation. `None` when what was set aside is needed after all.
fn prepare(
    server: &ApiServer,
    call: &mut Call,
    write: &Write<'_>,
    mut new: Value,
    current: Current<'_>,
) -> Result<Option<Next>, Status> {
    let Current { object: old, aside } = current;
    let resource = write.target.resource;
    let cx = context(server);
    let mut next_aside = aside.clone();
    let mut owners_differ = false;
    match (&write.owners, aside.managed_fields()) {
        (Owners::RecordedFor(writer), Some(stored)) => {
            let after = writer.record_aside(&server.state.owners, schema(resource)?, (old, &new), stored);
            owners_differ = after.differs;
            next_aside = aside.with_managed_fields(after.managed_fields);
        }
        (Owners::RecordedFor(writer), None) => writer.record(schema(resource)?, Some(old), &mut new),
        (Owners::Settled, _) => {}
        (Owners::Kept, _) => ownership::keep(old, &mut new),
    }
    metadata::restore(&mut new, old);
    call.warnings.extend(meta::drop_duplicate_owners(&mut new));
    if aside.is_empty() {
        admission::mutate_update(write.target, &mut new, old);
    }
    write.strategy.prepare_for_update(&mut new, old, &cx);
    let mut new = canonical(resource, new)?;
    aside.strip(&mut new);
    if !aside.is_empty() && write.strategy.needs_set_aside(&new, old) {
        return Ok(None);
    }
    escalation::check_update(&server.state, &call.user, write.target, &new, old)?;
    let is_unchanged = !owners_differ
        && if write.strategy.defaults_on_read() {
            is_same(&as_read(resource, write.strategy, new.clone(), &cx)?, old)
        } else {
            is_same(&new, old)
        };
    let next = |object| Some(Next { object, aside: next_aside, owners_differ });
    if is_unchanged {
        return Ok(next(new));
    }
    admission::on_update(server, write.target, &new, old)?;
    let mut errors = Vec::new();
    if !has_same_metadata(&new, old) {
        errors = meta::validate_common_update(&object_meta(&new)?, &object_meta(old)?, scope_of(resource));
    }
    errors.extend(write.strategy.validate_update(&new, old, &cx));
    if !errors.is_empty() {
        return Err(Status::invalid(resource.kind, resource.validated_group(), metadata::text(old, "name"), &errors));
    }
    call.warnings.extend(write.strategy.warnings_on_update(&new, old));
    as_read(resource, write.strategy, new, &cx).map(next)
}

/// Stores the result, unless it changes nothing (AS-83) or lets a terminating object go (AS-113).
async fn store_changed(
    server: &ApiServer,
    key: &str,
    stored: &Stored,
    write: &Write<'_>,
    next: Next,
    old: &Value,
) -> Result<Document, WriteError> {
    let Next { object: mut new, aside, owners_differ } = next;
    let resource = write.target.resource;
    let change =
        quota::Change { resource, namespace: write.target.namespace(), key, old: Some(old), new: None, aside: &aside };
    if is_released(&new, old, resource.kind) {
        if !write.dry_run {
            // Watchers see the object as it last was in the store, finalizers included (AS-99).
            let last = storage::parse(stored)?;
            quota::commit(server, change, Transaction::remove(key, stored.revision, storage::stamped(&last))).await?;
        }
        aside.restore(&mut new);
        return Ok(Document::Value(new));
    }
    let is_first_write = stored.revision == stored.create_revision;
    if !owners_differ && is_same(&new, old) && !(is_first_write && write.strategy.is_completed_by_first_write(old)) {
        return Ok(Document::Stored(stored.clone()));
    }
    if write.dry_run {
        quota::check(server, quota::Change { new: Some(&new), ..change })?;
        aside.restore(&mut new);
        return Ok(Document::Value(new));
    }
    let new = stored_form(resource, new);
    let update = Transaction::update(key, stored.revision, aside.stamped(schema(resource)?, &new));
    quota::commit(server, quota::Change { new: Some(&new), ..change }, update).await.map(Document::Stored)
}

/// Nothing changed but the times in managedFields, which do not count (AS-83).
fn is_same(new: &Value, old: &Value) -> bool {
    patch::apply::equal_but_for_times(new, old)
}

/// Whether everything that metadata rules look at is as it was: all but the server's own record of owners.
fn has_same_metadata(new: &Value, old: &Value) -> bool {
    let members = |object: &Value| {
        object["metadata"]
            .as_object()
            .map_or(0, |members| members.len() - usize::from(members.contains_key("managedFields")))
    };
    members(new) == members(old)
        && new["metadata"].as_object().is_some_and(|metadata| {
            metadata.iter().all(|(name, value)| name == "managedFields" || old["metadata"].get(name) == Some(value))
        })
}

/// The last finalizer of a terminating object is gone, and no grace period is left.
fn is_released(new: &Value, old: &Value, kind: &str) -> bool {
    let grace = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let held_by_spec = kind == "Namespace" && new["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    metadata::is_terminating(old) && grace == 0 && metadata::finalizers(new).is_empty() && !held_by_spec
}
