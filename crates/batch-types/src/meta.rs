//! `metadata` of every kind: what is checked on create and on update, and what the server restores.
//!
//! Two layers of checks exist upstream and both are visible to clients. A kind's own strategy calls [`validate`] and
//! [`validate_update`]; the request path calls [`validate_common`] after a create strategy and
//! [`validate_common_update`] before an update strategy. An update therefore reports some errors twice, which `causes`
//! shows (AS-33).
//!
//! How names and label values must look is in `names`; which fields a server sets on its own (uid, times) is up to the
//! API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde_json::{Map, Value};

use crate::constants::finalizer;
use crate::field::{Error, Path, is_printable, quoted};
use crate::json::{copy_field, is_unset, remove_field};
use crate::names::{self, NameRule};

/// The most bytes all annotation keys and values of an object may have together (AS-79).
pub const ANNOTATIONS_SIZE_MAX: usize = 256 << 10;
/// The longest field manager (AS-35).
pub const FIELD_MANAGER_MAX: usize = 128;
/// The longest subresource name in a managedFields entry.
const SUBRESOURCE_MAX: usize = 256;
/// What every immutable field says.
pub const IMMUTABLE: &str = "field is immutable";
/// What every count and duration below zero says.
pub const NON_NEGATIVE: &str = "must be greater than or equal to 0";

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// What a kind's strategy checks of `metadata` on create, and on update too where upstream repeats it (JA-V1, JA-V2).
pub fn validate(meta: &ObjectMeta, scope: Scope, rule: NameRule, path: &Path) -> Vec<Error> {
    let mut errors = validate_object_meta(meta, scope, rule, path);
    errors.extend(validate_finalizers_qualified(meta, path));
    errors
}

/// What a kind's strategy checks of `metadata` on update.
pub fn validate_update(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Vec<Error> {
    let mut errors = validate_object_meta_update(new, old, path);
    errors.extend(validate_finalizers_qualified(new, path));
    errors
}

/// What every kind must satisfy on create, checked after its strategy has found nothing wrong.
pub fn validate_common(meta: &ObjectMeta, scope: Scope) -> Vec<Error> {
    validate_object_meta(meta, scope, NameRule::PathSegment, &Path::new("metadata"))
}

/// What every kind must satisfy on update, reported in front of its strategy's errors.
pub fn validate_common_update(new: &ObjectMeta, old: &ObjectMeta, scope: Scope) -> Vec<Error> {
    let mut errors = validate_common(new, scope);
    errors.extend(validate_object_meta_update(new, old, &Path::new("metadata")));
    errors
}

/// Puts back what an update may not touch (AS-75, JA-U1): generation, creation and deletion marks, and the uid when the
/// request left it out. A different uid stays and is refused as immutable. `selfLink` is history and goes.
pub fn restore_system_fields(new: &mut Value, old: &Value) {
    let none = Value::Object(Map::new());
    let old = old.get("metadata").unwrap_or(&none);
    let Some(new) = new.get_mut("metadata") else { return };
    copy_field(new, old, "generation");
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if old.get(key).is_some_and(|time| !time.is_null()) {
            copy_field(new, old, key);
        }
    }
    let Some(fields) = new.as_object() else { return };
    let missing_uid = fields.get("uid").and_then(Value::as_str).is_none_or(str::is_empty);
    let missing_grace = is_unset(fields, "deletionGracePeriodSeconds");
    if missing_uid {
        copy_field(new, old, "uid");
    }
    if missing_grace {
        copy_field(new, old, "deletionGracePeriodSeconds");
    }
    remove_field(new, "selfLink");
}

/// Drops owner references that repeat a uid and says so in a warning (AS-81).
pub fn drop_duplicate_owners(object: &mut Value) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = BTreeSet::new();
    let mut repeated = Vec::new();
    owners.retain(|owner| {
        let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
        let is_new = seen.insert(uid.to_owned());
        if !is_new && !repeated.iter().any(|known| known == uid) {
            repeated.push(uid.to_owned());
        }
        is_new
    });
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}

/// Keys and values of labels. Upstream names the map as the field and shows the offending key or value.
pub fn validate_labels(labels: &BTreeMap<String, String>, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        errors.extend(each_invalid(path, key, names::qualified_name(key)));
        errors.extend(each_invalid(path, value, names::label_value(value)));
    }
    errors
}

/// Keys of annotations, where case does not matter, and the size of all together.
pub fn validate_annotations(annotations: &BTreeMap<String, String>, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.len();
        // Lower case only changes the outcome for the prefix, which must be a DNS name.
        if key.bytes().any(|byte| byte.is_ascii_uppercase()) || !key.is_ascii() {
            errors.extend(each_invalid(path, key, names::qualified_name(&key.to_lowercase())));
        } else {
            errors.extend(each_invalid(path, key, names::qualified_name(key)));
        }
    }
    if size > ANNOTATIONS_SIZE_MAX {
        errors.push(Error::too_long(path, ANNOTATIONS_SIZE_MAX));
    }
    errors
}

/// A field manager as given in a query or kept in managedFields.
pub fn validate_field_manager(manager: &str, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(Error::too_long(path, FIELD_MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
        errors.push(Error::invalid(path, manager, detail));
    }
    errors
}

/// The error of a count or duration below zero.
pub fn validate_non_negative(value: impl Into<i64>, path: &Path) -> Option<Error> {
    let value = value.into();
    (value < 0).then(|| Error::invalid(path, value, NON_NEGATIVE))
}

/// A time as it is shown in errors and on the wire: UTC, whole seconds.
pub fn time_value(time: Option<&Time>) -> Value {
    time.map_or(Value::Null, |time| time.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
}

/// Equal on the wire, where times have whole seconds (JA-R5).
pub fn same_time(a: Option<&Time>, b: Option<&Time>) -> bool {
    let seconds = |time: Option<&Time>| time.map(|time| time.0.as_second());
    seconds(a) == seconds(b)
}

fn validate_object_meta(meta: &ObjectMeta, scope: Scope, rule: NameRule, path: &Path) -> Vec<Error> {
    let mut errors = validate_names(meta, rule, path);
    errors.extend(validate_namespace(meta, scope, path));
    errors.extend(validate_non_negative(meta.generation.unwrap_or_default(), &path.child("generation")));
    errors.extend(validate_labels_and_owners(meta, path));
    if let Some(finalizers) = &meta.finalizers {
        errors.extend(validate_finalizers(finalizers, &path.child("finalizers")));
    }
    errors.extend(validate_managed_fields(meta, path));
    errors
}

fn validate_names(meta: &ObjectMeta, rule: NameRule, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if let Some(prefix) = meta.generate_name.as_deref().filter(|prefix| !prefix.is_empty()) {
        errors.extend(each_invalid(&path.child("generateName"), prefix, rule.check_prefix(prefix)));
    }
    match meta.name.as_deref().unwrap_or_default() {
        "" => errors.push(Error::required(&path.child("name"), "name or generateName is required")),
        name => errors.extend(each_invalid(&path.child("name"), name, rule.check(name))),
    }
    errors
}

fn validate_namespace(meta: &ObjectMeta, scope: Scope, path: &Path) -> Vec<Error> {
    let path = path.child("namespace");
    match (scope, meta.namespace.as_deref().unwrap_or_default()) {
        (Scope::Namespaced, "") => vec![Error::required(&path, "")],
        (Scope::Namespaced, namespace) => each_invalid(&path, namespace, names::dns_label(namespace)).collect(),
        (Scope::Cluster, "") => Vec::new(),
        (Scope::Cluster, _) => vec![Error::forbidden(&path, "not allowed on this type")],
    }
}

fn validate_labels_and_owners(meta: &ObjectMeta, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if let Some(labels) = &meta.labels {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = &meta.annotations {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    if let Some(owners) = &meta.owner_references {
        errors.extend(validate_owner_references(owners, &path.child("ownerReferences")));
    }
    errors
}

/// Complaints about a second controller, each of which shows all references. Nobody reads more of them, and without a bound
/// they would take the square of the space that the object does (INV-54).
const CONTROLLER_ERRORS_MAX: usize = 16;

fn validate_owner_references(owners: &[OwnerReference], path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut controller: Option<&OwnerReference> = None;
    let mut others = 0;
    for owner in owners {
        errors.extend(validate_owner_reference(owner, path));
        if owner.controller != Some(true) {
            continue;
        }
        match controller {
            None => controller = Some(owner),
            Some(_) if others == CONTROLLER_ERRORS_MAX => {}
            Some(first) => {
                others += 1;
                let all: Vec<_> = owners.iter().map(owner_value).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and \
                     {}/{}",
                    first.kind, first.name, owner.kind, owner.name
                );
                errors.push(Error::invalid(path, all, detail));
            }
        }
    }
    errors
}

fn validate_owner_reference(owner: &OwnerReference, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if version_of(&owner.api_version).is_empty() {
        let detail = "version must not be empty";
        errors.push(Error::invalid(&path.child("apiVersion"), owner.api_version.as_str(), detail));
    }
    for (field, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
        if value.is_empty() {
            errors.push(Error::invalid(&path.child(field), "", "must not be empty"));
        }
    }
    if matches!(owner.api_version.as_str(), "v1" | "/v1") && owner.kind == "Event" {
        errors.push(Error::invalid(path, owner_value(owner), "/v1, Kind=Event is disallowed from being an owner"));
    }
    errors
}

/// The version in `group/version` or `version`; empty when there are more parts.
fn version_of(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None => api_version,
        Some((_, version)) if version.contains('/') => "",
        Some((_, version)) => version,
    }
}

/// An owner reference with its fields in the order of the Go type, which is the order errors show.
fn owner_value(owner: &OwnerReference) -> Value {
    let mut value = Map::new();
    for (key, text) in
        [("apiVersion", &owner.api_version), ("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)]
    {
        value.insert(key.to_owned(), text.as_str().into());
    }
    for (key, flag) in [("controller", owner.controller), ("blockOwnerDeletion", owner.block_owner_deletion)] {
        if let Some(flag) = flag {
            value.insert(key.to_owned(), flag.into());
        }
    }
    value.into()
}

fn validate_finalizers(finalizers: &[String], path: &Path) -> Vec<Error> {
    let mut errors: Vec<_> = finalizers
        .iter()
        .flat_map(|finalizer| each_invalid(path, finalizer, names::qualified_name(finalizer)))
        .collect();
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has(finalizer::ORPHAN_DEPENDENTS) && has(finalizer::FOREGROUND_DELETION) {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(Error::invalid(path, finalizers.to_vec(), detail));
    }
    errors
}

/// Finalizers without a domain are reserved for the system (AS-80).
fn validate_finalizers_qualified(meta: &ObjectMeta, path: &Path) -> Vec<Error> {
    const STANDARD: [&str; 3] = [finalizer::KUBERNETES, finalizer::ORPHAN_DEPENDENTS, finalizer::FOREGROUND_DELETION];
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let unqualified = |name: &str| !name.contains('/') && !STANDARD.contains(&name);
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let errors = finalizers.iter().enumerate().filter(|(_, name)| unqualified(name));
    errors.map(|(at, name)| Error::invalid(&path.child("finalizers").index(at), name.as_str(), detail)).collect()
}

fn validate_managed_fields(meta: &ObjectMeta, path: &Path) -> Vec<Error> {
    let entries = meta.managed_fields.as_deref().unwrap_or_default().iter().enumerate();
    entries
        .flat_map(|(at, entry)| validate_managed_fields_entry(entry, &path.child("managedFields").index(at)))
        .collect()
}

fn validate_managed_fields_entry(entry: &ManagedFieldsEntry, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let operation = entry.operation.as_deref().unwrap_or_default();
    if !matches!(operation, "Apply" | "Update") {
        errors.push(Error::invalid(&path.child("operation"), operation, "must be `Apply` or `Update`"));
    }
    let fields_type = entry.fields_type.as_deref().unwrap_or_default();
    if !matches!(fields_type, "" | "FieldsV1") {
        errors.push(Error::invalid(&path.child("fieldsType"), fields_type, "must be `FieldsV1`"));
    }
    errors.extend(validate_field_manager(entry.manager.as_deref().unwrap_or_default(), &path.child("manager")));
    if entry.subresource.as_ref().is_some_and(|subresource| subresource.len() > SUBRESOURCE_MAX) {
        errors.push(Error::too_long(&path.child("subresource"), SUBRESOURCE_MAX));
    }
    errors
}

fn validate_object_meta_update(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if old.deletion_timestamp.is_some() {
        errors.extend(validate_no_new_finalizers(new, old, &path.child("finalizers")));
    }
    if new.resource_version.as_deref().unwrap_or_default().is_empty() {
        errors.push(Error::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = new.generation.unwrap_or_default();
    if generation < old.generation.unwrap_or_default() {
        errors.push(Error::invalid(&path.child("generation"), generation, "must not be decremented"));
    }
    errors.extend(validate_identity(new, old, path));
    errors.extend(validate_labels_and_owners(new, path));
    errors.extend(validate_managed_fields(new, path));
    errors
}

fn validate_no_new_finalizers(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Option<Error> {
    let set = |meta: &ObjectMeta| -> BTreeSet<String> { meta.finalizers.iter().flatten().cloned().collect() };
    let extra: Vec<_> = set(new).difference(&set(old)).map(|name| quoted(name)).collect();
    (!extra.is_empty()).then(|| {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            extra.join(", ")
        );
        Error::forbidden(path, detail)
    })
}

/// The fields that say which object this is, and the marks only the server sets.
fn validate_identity(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let texts =
        [("name", &new.name, &old.name), ("namespace", &new.namespace, &old.namespace), ("uid", &new.uid, &old.uid)];
    for (field, new, old) in texts {
        let (new, old) = (new.as_deref().unwrap_or_default(), old.as_deref().unwrap_or_default());
        if new != old {
            let error = Error::invalid(&path.child(field), new, IMMUTABLE);
            errors.push(if field == "uid" { error.named() } else { error });
        }
    }
    let times = [
        ("creationTimestamp", &new.creation_timestamp, &old.creation_timestamp),
        ("deletionTimestamp", &new.deletion_timestamp, &old.deletion_timestamp),
    ];
    for (field, new, old) in times {
        if !same_time(new.as_ref(), old.as_ref()) {
            errors.push(Error::invalid(&path.child(field), time_value(new.as_ref()), IMMUTABLE));
        }
    }
    if new.deletion_grace_period_seconds != old.deletion_grace_period_seconds {
        let field = path.child("deletionGracePeriodSeconds");
        errors.push(Error::invalid(&field, new.deletion_grace_period_seconds, IMMUTABLE));
    }
    errors
}

/// One error for each message about the same text.
fn each_invalid<'a>(path: &'a Path, value: &'a str, messages: Vec<String>) -> impl Iterator<Item = Error> + 'a {
    messages.into_iter().map(move |message| Error::invalid(path, value, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    fn check(value: Value) -> Vec<String> {
        let errors = validate(&meta(value), Scope::Namespaced, NameRule::DnsSubdomain, &Path::new("metadata"));
        errors.iter().map(ToString::to_string).collect()
    }

    fn check_update(new: Value, old: Value) -> Vec<String> {
        let errors = validate_update(&meta(new), &meta(old), &Path::new("metadata"));
        errors.iter().map(ToString::to_string).collect()
    }

    /// Every text starts with the wanted one; the long explanations are tested in `names`.
    fn assert_starts(got: &[String], want: &[&str]) {
        assert_eq!(got.len(), want.len(), "{got:#?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.starts_with(want), "{got}\n{want}");
        }
    }

    #[test]
    fn a_plain_object_is_fine() {
        let fine = json!({"name": "a", "namespace": "b", "labels": {"app": "x"}, "annotations": {"Example.com/A": "y"},
            "finalizers": ["orphan", "example.com/f"], "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob",
            "name": "c", "uid": "u", "controller": true}], "managedFields": [{"operation": "Apply", "manager": "kubectl"}]});
        assert_starts(&check(fine), &[]);
    }

    #[test]
    fn names_are_required_and_checked() {
        assert_starts(
            &check(json!({"namespace": "b"})),
            &["metadata.name: Required value: name or generateName is required"],
        );
        assert_starts(
            &check(json!({"namespace": "B", "name": "A", "generateName": "C_"})),
            &[
                "metadata.generateName: Invalid value: \"C_\": a lowercase RFC 1123 subdomain",
                "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
                "metadata.namespace: Invalid value: \"B\": a lowercase RFC 1123 label",
            ],
        );
        assert_starts(&check(json!({"name": "a"})), &["metadata.namespace: Required value"]);
    }

    #[test]
    fn cluster_objects_have_no_namespace() {
        let got = validate_common(&meta(json!({"name": "a/b", "namespace": "c"})), Scope::Cluster);
        let got: Vec<_> = got.iter().map(ToString::to_string).collect();
        assert_starts(
            &got,
            &[
                "metadata.name: Invalid value: \"a/b\": may not contain '/'",
                "metadata.namespace: Forbidden: not allowed on this type",
            ],
        );
    }

    #[test]
    fn labels_and_annotations_name_the_map() {
        let object = json!({"name": "a", "namespace": "b", "generation": -1, "labels": {"a b": "c d"},
            "annotations": {"x y": "", "z": "v".repeat(ANNOTATIONS_SIZE_MAX)}});
        assert_starts(
            &check(object),
            &[
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
                "metadata.labels: Invalid value: \"a b\": name part must consist",
                "metadata.labels: Invalid value: \"c d\": a valid label must be",
                "metadata.annotations: Invalid value: \"x y\": name part must consist",
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ],
        );
    }

    #[test]
    fn owners() {
        let owner = |name: &str| json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": name, "blockOwnerDeletion": false, "controller": true});
        let shown = |name: &str| {
            format!(
                "{{\"apiVersion\":\"batch/v1\",\"kind\":\"CronJob\",\"name\":\"{name}\",\"uid\":\"{name}\",\"controller\":true,\"blockOwnerDeletion\":false}}"
            )
        };
        let object = json!({"name": "a", "namespace": "b", "ownerReferences": [
            {"apiVersion": "a/b/c", "kind": "", "name": "", "uid": ""},
            {"apiVersion": "v1", "kind": "Event", "name": "p", "uid": "u"}, owner("x"), owner("y")]});
        let refs = format!(
            "[{{\"apiVersion\":\"a/b/c\",\"kind\":\"\",\"name\":\"\",\"uid\":\"\"}},{{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"p\",\"uid\":\"u\"}},{},{}]",
            shown("x"),
            shown("y")
        );
        assert_eq!(
            check(object),
            [
                "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
                "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"p\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed from being an owner",
                &format!(
                    "metadata.ownerReferences: Invalid value: {refs}: Only one reference can have Controller set to true. Found \"true\" in references for CronJob/x and CronJob/y"
                ),
            ]
        );
        let event = json!([{"apiVersion": "/v1", "kind": "Event", "name": "p", "uid": "u"}]);
        let refused = check(json!({"name": "a", "namespace": "b", "ownerReferences": event}));
        assert!(refused[0].ends_with("/v1, Kind=Event is disallowed from being an owner"), "{refused:?}");
    }

    /// INV-54: each complaint shows all references.
    #[test]
    fn complaints_about_many_controllers_are_bounded() {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "u", "controller": true});
        let found = check(json!({"name": "a", "namespace": "b", "ownerReferences": vec![owner; 1_000]}));
        assert_eq!(found.len(), CONTROLLER_ERRORS_MAX);
    }

    /// INV-46.
    #[test]
    fn finalizers() {
        assert_starts(
            &check(json!({"name": "a", "namespace": "b", "finalizers": ["keep", "", "kubernetes"]})),
            &[
                "metadata.finalizers: Invalid value: \"\": name part must be non-empty",
                "metadata.finalizers: Invalid value: \"\": name part must consist",
                "metadata.finalizers[0]: Invalid value: \"keep\": name is neither a standard finalizer name nor is it fully qualified",
                "metadata.finalizers[1]: Invalid value: \"\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        );
        assert_eq!(
            check(json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]})),
            [
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
            ]
        );
    }

    /// INV-45; INV-46: the deletion timestamp is neither cleared nor moved, and no finalizer is added after it.
    #[test]
    fn identity_and_server_marks_are_immutable() {
        let old = json!({"name": "a", "namespace": "b", "uid": "u", "generation": 2, "resourceVersion": "1",
            "creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": "2024-01-02T00:00:00Z",
            "deletionGracePeriodSeconds": 0, "finalizers": ["a/b"]});
        assert_starts(&check_update(old.clone(), old.clone()), &[]);
        assert_eq!(
            check_update(
                json!({"name": "x", "namespace": "y", "uid": "z", "generation": 1, "finalizers": ["a/c", "a/b", "a/a"]}),
                old
            ),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a/a\", \"a/c\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"x\": field is immutable",
                "metadata.namespace: Invalid value: \"y\": field is immutable",
                "metadata.uid: Invalid value: \"z\": field is immutable",
                "metadata.creationTimestamp: Invalid value: null: field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
                "metadata.deletionGracePeriodSeconds: Invalid value: null: field is immutable",
            ]
        );
    }

    #[test]
    fn setting_server_marks_is_refused() {
        let old = json!({"name": "a", "resourceVersion": "1"});
        let mut new = old.clone();
        new["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        new["deletionGracePeriodSeconds"] = json!(7);
        assert_eq!(
            check_update(new, old),
            [
                "metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field is immutable",
                "metadata.deletionGracePeriodSeconds: Invalid value: 7: field is immutable",
            ]
        );
    }

    #[test]
    fn system_fields_come_back() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3, "creationTimestamp": "t1",
            "deletionTimestamp": "t2", "deletionGracePeriodSeconds": 5}});
        let mut new =
            json!({"metadata": {"name": "a", "generation": 9, "creationTimestamp": "x", "uid": "", "selfLink": "/x"}});
        restore_system_fields(&mut new, &old);
        assert_eq!(new, old);

        let mut new = json!({"metadata": {"uid": "other", "generation": 9, "deletionTimestamp": "x", "deletionGracePeriodSeconds": 1}});
        restore_system_fields(&mut new, &json!({"metadata": {"uid": "u"}}));
        assert_eq!(
            new,
            json!({"metadata": {"uid": "other", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 1}})
        );
    }

    #[test]
    fn duplicate_owners_go_with_a_warning() {
        let mut object = json!({"metadata": {"ownerReferences": [{"uid": "u1", "name": "a"}, {"uid": "u2"}, {"uid": "u1"}, {"uid": "u1"}]}});
        let warning = drop_duplicate_owners(&mut object).unwrap();
        assert!(warning.ends_with("duplicate UID(s) observed: u1"), "{warning}");
        assert_eq!(object, json!({"metadata": {"ownerReferences": [{"uid": "u1", "name": "a"}, {"uid": "u2"}]}}));
        assert_eq!(drop_duplicate_owners(&mut object), None);
        assert_eq!(drop_duplicate_owners(&mut json!({})), None);
    }

    #[test]
    fn field_managers() {
        let texts = |manager: &str| -> Vec<String> {
            validate_field_manager(manager, &Path::new("fieldManager")).iter().map(Error::text).collect()
        };
        assert_eq!(texts("kubectl é"), [""; 0]);
        assert_eq!(texts("a\u{7}"), ["Invalid value: \"a\\a\": invalid character U+0007 (at position 1)"]);
        assert_eq!(texts(&"x".repeat(129)), ["Too long: may not be more than 128 bytes"]);
    }
}
