//! Applying a configuration: merge it into the live object, take away what its manager no longer applies, and refuse
//! what would change other managers' fields (AS-137 to AS-140). Follows `structuredmerge.go` and `merge/update.go`.

use api_schema::Type;
use serde_json::Value;

use super::compare::compare;
use super::conflict::Conflict;
use super::extract::{field_set, with_declared_parents};
use super::field_set::FieldSet;
use super::managers::{self, Entry, NEVER_OWNED, Operation};
use super::merge::merge;
use super::remove::remove;
use super::typed::{self, equal};
use super::update::{not_owned_through, record};
use super::validate::validate;
use super::{Manager, element, last_applied};
use crate::bounds::{DEPTH_MAX, depth};
use crate::error::PatchError;

/// The only manager that may take over from client-side apply (AS-140).
const KUBECTL: &str = "kubectl";

/// Who owned an object's fields before anybody applied to it (AS-136).
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies `config` to the canonical live object, `None` if it does not exist yet. The result has its
/// `managedFields` and still has to be decoded, defaulted and validated.
///
/// The caller compares the outcome with [`super::equal_but_for_times`] to find that nothing changed (AS-139), and
/// checks `resourceVersion`, `uid`, name and namespace, which come from the configuration if that has them.
pub fn apply(
    ty: &'static Type,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, PatchError> {
    check_kind(ty, config, manager.api_version)?;
    if depth(config, DEPTH_MAX).is_none() {
        return Err(PatchError::bad_request(format!("error decoding patch: exceeded max depth of {DEPTH_MAX}")));
    }
    let empty;
    let live = match live {
        Some(live) => live,
        None => {
            empty = typed::empty(ty);
            &empty
        }
    };
    let application = Application { ty, live, config, manager };
    let entries = managers::of(live).cloned().unwrap_or_default();
    let entries = managers::decode(entries, true)
        .map_err(|error| PatchError::internal(format!("failed to decode managed fields: {error}")))?;
    let (mut object, entries) = match application.run(entries.clone(), force) {
        Err(Failure::Conflicts(conflicts)) if manager.name == KUBECTL => application.settle(conflicts, entries),
        outcome => outcome,
    }
    .map_err(Failure::into_error)?;
    if manager.name == KUBECTL {
        last_applied::refresh(&mut object, config);
    }
    managers::encode(&mut object, entries);
    Ok(object)
}

/// The body must be of the endpoint's kind and leave the bookkeeping to the server (AS-128).
fn check_kind(ty: &Type, config: &Value, api_version: &str) -> Result<(), PatchError> {
    let kind = GroupVersionKind::of(config);
    if kind.version_text() != api_version || kind.kind != ty.name {
        return Err(PatchError::bad_request(format!("invalid object type: {}", kind.display())));
    }
    if managers::of(config).is_some_and(Value::is_array) {
        return Err(PatchError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// One attempt's input.
#[derive(Clone, Copy)]
struct Application<'a> {
    ty: &'static Type,
    live: &'a Value,
    config: &'a Value,
    manager: &'a Manager<'a>,
}

enum Failure {
    /// Fields by the manager that owns them.
    Conflicts(Vec<(Entry, FieldSet)>),
    Other(PatchError),
}

impl Failure {
    fn into_error(self) -> PatchError {
        match self {
            Self::Other(error) => error,
            Self::Conflicts(conflicts) => PatchError::Conflicts(conflicts.iter().flat_map(named_conflicts).collect()),
        }
    }
}

fn named_conflicts((entry, fields): &(Entry, FieldSet)) -> Vec<Conflict> {
    let field = |path: &Vec<String>| path.iter().map(|step| element::display(step)).collect();
    fields.paths().iter().map(|path| Conflict { manager: entry.display(), field: field(path) }).collect()
}

impl Application<'_> {
    /// The new object, without bookkeeping, and the entries that go with it.
    fn run(self, mut entries: Vec<Entry>, force: bool) -> Result<(Value, Vec<Entry>), Failure> {
        if entries.is_empty() {
            let before = Manager { name: BEFORE_FIRST_APPLY, ..*self.manager };
            entries = record(self.ty, &typed::empty(self.ty), self.live, entries, &before).map_err(internal)?;
        }
        validate(self.ty, self.config).map_err(|error| {
            internal(format!("failed to create typed patch object ({}): {error}", self.describe_config()))
        })?;
        let merged = merge(self.ty, self.live, self.config)
            .map_err(|error| internal(format!("failed to merge config: {error}")))?;

        let mut own = Entry::new(self.manager, Operation::Apply, field_set(self.ty, self.config));
        own.fields.subtract_with_children(&FieldSet::from_names(self.manager.reset_fields));
        let last = entries.iter().position(|entry| entry.is_same_manager(&own)).map(|at| entries.swap_remove(at));
        let object = match &last {
            Some(last) if !last.fields.is_empty() => self.prune(merged, &last.fields, &own.fields, &entries),
            _ => merged,
        };
        let mut entries = self.take_over(&object, entries, force)?;

        let unchanged = equal(self.live, &object);
        own.time = if unchanged { last.and_then(|last| last.time) } else { Some(self.manager.now.to_owned()) };
        own.fields.subtract(&never_owned());
        own.fields.sort();
        if !own.fields.is_empty() {
            entries.push(own);
        }
        Ok((object, entries))
    }

    /// Removes what the manager applied last time and does not apply now, unless somebody else owns it (AS-137).
    ///
    /// A declared field counts as applied with anything inside it, so that objects which lose their last member go
    /// too; what was never applied comes back in the end.
    fn prune(self, merged: Value, last: &FieldSet, own: &FieldSet, others: &[Entry]) -> Value {
        let ty = self.ty;
        let all_of = |object: &Value| with_declared_parents(&field_set(ty, object), ty);
        let last = with_declared_parents(last, ty);
        let mut owned = own.clone();
        for entry in others {
            owned.union(entry.fields.clone());
        }
        let everything = all_of(&merged);

        let mut kept = all_of(&remove(ty, &merged, &last));
        kept.union(with_declared_parents(&owned, ty));
        let mut gone = everything.clone();
        gone.subtract(&kept);

        let mut dropped = everything;
        dropped.subtract(&all_of(&remove(ty, &merged, &gone)));
        remove(ty, &merged, &dropped.intersection(&last))
    }

    /// Takes changed and removed fields away from the other managers; changed ones are conflicts without force.
    fn take_over(self, object: &Value, mut entries: Vec<Entry>, force: bool) -> Result<Vec<Entry>, Failure> {
        let difference = compare(self.ty, self.live, object, &not_owned_through(self.manager)).map_err(internal)?;
        let mut conflicts = Vec::new();
        for entry in entries.iter_mut().filter(|entry| entry.api_version == self.manager.api_version) {
            let conflict = entry.fields.intersection(&difference.changed);
            if !conflict.is_empty() && !force {
                conflicts.push((entry.clone(), conflict));
                continue;
            }
            entry.fields.subtract(&conflict);
            entry.fields.subtract(&difference.removed);
        }
        if !conflicts.is_empty() {
            conflicts.sort_by_cached_key(|(entry, _)| entry.identifier());
            return Err(Failure::Conflicts(conflicts));
        }
        entries.retain(|entry| !entry.fields.is_empty());
        Ok(entries)
    }

    /// Conflicts of kubectl are forced where client-side apply set the very value that is live (AS-140).
    fn settle(self, conflicts: Vec<(Entry, FieldSet)>, entries: Vec<Entry>) -> Result<(Value, Vec<Entry>), Failure> {
        let Some(allowed) = last_applied::owned_fields(self.ty, self.live, self.manager.api_version) else {
            return Err(Failure::Conflicts(conflicts));
        };
        let mut open = conflicts;
        open.iter_mut().for_each(|(_, fields)| fields.subtract(&allowed));
        open.retain(|(_, fields)| !fields.is_empty());
        if open.is_empty() { self.run(entries, true) } else { Err(Failure::Conflicts(open)) }
    }

    fn describe_config(self) -> String {
        let metadata = |name: &str| self.config["metadata"][name].as_str().unwrap_or_default().to_owned();
        let kind = GroupVersionKind::of(self.config).display();
        format!("{}/{}; {kind}", metadata("namespace"), metadata("name"))
    }
}

fn internal(message: String) -> Failure {
    Failure::Other(PatchError::Internal(message))
}

/// What is stripped from a set in the end (AS-133). Until then it is needed: it keeps `metadata` from being pruned.
fn never_owned() -> FieldSet {
    let mut set = FieldSet::from_names(NEVER_OWNED);
    set.insert(&[element::field("metadata")]);
    set
}

/// What an object says it is, printed as Go prints it.
struct GroupVersionKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl<'a> GroupVersionKind<'a> {
    /// Empty where the object does not say, or has an `apiVersion` of more than two parts.
    fn of(object: &'a Value) -> Self {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = match text("apiVersion").split_once('/') {
            None => ("", text("apiVersion")),
            Some((_, version)) if version.contains('/') => return Self { group: "", version: "", kind: "" },
            Some((group, version)) => (group, version),
        };
        Self { group, version, kind: text("kind") }
    }

    fn version_text(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `/v1, Kind=ConfigMap`.
    fn display(&self) -> String {
        format!("{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}
