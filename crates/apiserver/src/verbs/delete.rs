//! DELETE: marks, grace, finalizers, removal (AS-143…AS-151).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::Transaction;

use super::{canonical, stored_form};
use crate::{
    admission,
    answer::{Answer, Document, served},
    decode, metadata, negotiate,
    options::DeleteOptions,
    quota::{self, Change},
    route::Target,
    server::{ApiServer, Call},
    set_aside::NOTHING,
    status::{Details, Status, success},
    storage::{self, Stored, WriteError},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// How often a delete is tried again when the object changes meanwhile.
const ATTEMPTS_MAX: usize = 100;
const GRACE_SECONDS_DEFAULT: i64 = 30;

pub(super) async fn delete(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let options = options(call).await?;
    admission::on_delete(target)?;
    // Told whatever becomes of the delete.
    if let Some(warning) = default_propagation_warning(target, &options) {
        call.warnings.push(warning.to_owned());
    }
    let outcome = remove(server, target, &options).await?;
    Ok(answer(target, &options, outcome))
}

/// From the body if there is one, otherwise from the query; never from both (AS-143).
pub(super) async fn options(call: &mut Call) -> Result<DeleteOptions, Status> {
    let bytes = call.read_body().await?;
    if bytes.is_empty() {
        return DeleteOptions::from_query(&call.query);
    }
    let body_type = negotiate::body_type(&call.headers)?;
    let decoded = decode::delete_options(&bytes, body_type)?;
    DeleteOptions::from_value(&decoded)
}

pub(super) fn default_propagation_warning(target: &Target, options: &DeleteOptions) -> Option<&'static str> {
    let unspecified = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    target.resource.strategy.orphans_by_default().filter(|_| unspecified)
}

/// What became of a delete.
pub(super) enum Outcome {
    /// Still there, marked or waiting.
    Kept(Document),
    /// Gone; what it was at the end.
    Removed(Value),
}

fn answer(target: &Target, options: &DeleteOptions, outcome: Outcome) -> Answer {
    let resource = target.resource;
    match outcome {
        // Only who asks in the old way for dependents to go is told that this takes time.
        Outcome::Kept(document) if options.orphan_dependents == Some(false) => Answer::object(202, resource, document),
        Outcome::Kept(document) => Answer::object(200, resource, document),
        Outcome::Removed(last) if resource.strategy.answers_delete_with_object() => {
            Answer::object(200, resource, Document::Value(last))
        }
        Outcome::Removed(last) => {
            let uid = metadata::text(&last, "uid").to_owned();
            let details = Details { uid, ..Details::of(resource, target.name()) };
            Answer::plain(200, success(Some(details), None))
        }
    }
}

/// Deletes one object: marks it, or removes it when nothing holds it.
pub(super) async fn remove(server: &ApiServer, target: &Target, options: &DeleteOptions) -> Result<Outcome, Status> {
    let key = target.key();
    let not_found = || Status::not_found(target.resource, target.name());
    let mut current = server.state.store.get(&key);
    for _ in 0..ATTEMPTS_MAX {
        let Some(stored) = current else { return Err(not_found()) };
        match attempt(server, target, options, &key, stored).await {
            Ok(outcome) => return Ok(outcome),
            Err(WriteError::Conflict(newer)) => current = newer,
            Err(WriteError::Failed(status)) => return Err(status),
        }
    }
    Err(Status::stale(target.resource, target.name()))
}

async fn attempt(
    server: &ApiServer,
    target: &Target,
    options: &DeleteOptions,
    key: &str,
    stored: Stored,
) -> Result<Outcome, WriteError> {
    let resource = target.resource;
    let now = server.state.environment.now();
    let old = served(&stored, resource).map_err(WriteError::Failed)?;
    check_preconditions(target, options, &old).map_err(WriteError::Failed)?;
    admission::validate_delete(target).map_err(WriteError::Failed)?;
    let Step { object: new, goes } = match resource.kind {
        "Namespace" => namespace_step(&old, options, now),
        "Pod" => pod_step(&old, options, now),
        _ => plain_step(&old, resource.strategy, options, now),
    };
    let new = canonical(resource, new).map_err(WriteError::Failed)?;
    let change = Change { resource, namespace: target.namespace(), key, old: Some(&old), new: None, aside: &NOTHING };
    let is_marked = new != old;
    if options.dry_run {
        return Ok(if goes { Outcome::Removed(new) } else { Outcome::Kept(Document::Value(new)) });
    }
    if !goes && !is_marked {
        return Ok(Outcome::Kept(Document::Stored(stored)));
    }
    let marked = || storage::stamped(&stored_form(resource, new.clone()));
    if !goes {
        let update = Transaction::update(key, stored.revision, marked());
        let kept = quota::commit(server, Change { new: Some(&new), ..change }, update).await?;
        return Ok(Outcome::Kept(Document::Stored(kept)));
    }
    // Marked and removed in one transaction: after a crash between the two nothing would hold the object, and nobody
    // would remove it (INV-30).
    let removal = match is_marked {
        true => Transaction::update(key, stored.revision, marked()).delete(key, marked()),
        false => Transaction::remove(key, stored.revision, marked()),
    };
    match quota::commit(server, change, removal).await {
        Ok(first) => {
            let mut last = served(&first, resource).map_err(WriteError::Failed)?;
            // What is answered carries the version of the removal.
            let version = first.revision + u64::from(is_marked);
            metadata::of(&mut last).insert("resourceVersion".to_owned(), json!(version.to_string()));
            Ok(Outcome::Removed(last))
        }
        Err(WriteError::Conflict(None)) => Ok(Outcome::Removed(new)),
        Err(error) => Err(error),
    }
}

/// The preconditions of a delete (AS-145).
pub(super) fn check_preconditions(target: &Target, options: &DeleteOptions, object: &Value) -> Result<(), Status> {
    let resource = target.resource;
    let uid = metadata::text(object, "uid");
    let version = metadata::text(object, "resourceVersion");
    if resource.kind == "Namespace" {
        return check_namespace_preconditions(target, options, uid, version);
    }
    let refuse = |why: String| {
        let details = Details { kind: resource.kind.to_owned(), ..Details::of(resource, target.name()) };
        let subject = if resource.group.is_empty() {
            resource.kind.to_owned()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        Err(Status::conflict_on(&subject, details, &why))
    };
    match &options.uid {
        Some(wanted) if wanted != uid => {
            return refuse(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ));
        }
        _ => {}
    }
    match &options.resource_version {
        Some(wanted) if wanted != version => refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        )),
        _ => Ok(()),
    }
}

/// Namespaces are deleted by a handler of their own, which words the same refusal differently.
fn check_namespace_preconditions(
    target: &Target,
    options: &DeleteOptions,
    uid: &str,
    version: &str,
) -> Result<(), Status> {
    let refuse = |what: &str, wanted: &str, stored: &str| {
        let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {stored}");
        Err(Status::conflict(target.resource, target.name(), &why))
    };
    match (&options.uid, &options.resource_version) {
        (Some(wanted), _) if wanted != uid => refuse("UID", wanted, uid),
        (_, Some(wanted)) if wanted != version => refuse("ResourceVersion", wanted, version),
        _ => Ok(()),
    }
}

/// The object after one delete call, and whether it goes now.
struct Step {
    object: Value,
    goes: bool,
}

/// Kinds without grace: finalizers alone decide (AS-146).
fn plain_step(old: &Value, strategy: &dyn crate::resources::Strategy, options: &DeleteOptions, now: Timestamp) -> Step {
    let mut object = old.clone();
    if !strategy.ignores_propagation() {
        set_propagation(&mut object, options, strategy.orphans_by_default().is_some());
    }
    if metadata::finalizers(&object).is_empty() {
        // A finalizer that only now was dropped is gone with the object, and nobody sees it without.
        return Step { object: old.clone(), goes: true };
    }
    mark(&mut object, now);
    Step { object, goes: false }
}

/// Sets deletionTimestamp and a grace of zero, once.
fn mark(object: &mut Value, now: Timestamp) {
    if object["metadata"]["deletionGracePeriodSeconds"].is_null() {
        metadata::bump_generation(object);
    }
    let stamped: Option<Timestamp> = metadata::text(object, "deletionTimestamp").parse().ok();
    let members = metadata::of(object);
    if stamped.is_none_or(|stamp| stamp > now) {
        members.insert("deletionTimestamp".to_owned(), metadata::time(now));
    }
    members.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
}

/// Adds and removes the garbage collector's finalizers (AS-146 step 2).
fn set_propagation(object: &mut Value, options: &DeleteOptions, orphans_by_default: bool) {
    let current: Vec<String> = metadata::finalizers(object).into_iter().map(str::to_owned).collect();
    let has = |finalizer: &str| current.iter().any(|present| present == finalizer);
    let policy = options.propagation_policy.as_deref();
    let unspecified = policy.is_none() && options.orphan_dependents.is_none();
    let orphan = options.orphan_dependents == Some(true)
        || policy == Some("Orphan")
        || (unspecified && (has(ORPHAN) || (orphans_by_default && !has(FOREGROUND))));
    let foreground = policy == Some("Foreground") || (unspecified && has(FOREGROUND) && !orphan);
    let mut finalizers: Vec<&str> = current
        .iter()
        .map(String::as_str)
        .filter(|&finalizer| finalizer != ORPHAN && finalizer != FOREGROUND)
        .collect();
    if orphan {
        finalizers.push(ORPHAN);
    }
    if foreground {
        finalizers.push(FOREGROUND);
    }
    let same = finalizers.len() == current.len() && finalizers.iter().all(|&finalizer| has(finalizer));
    if !same {
        metadata::set_finalizers(object, &finalizers);
    }
}

/// Pods end gracefully (AS-150).
fn pod_step(old: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let pending = old["metadata"]["deletionGracePeriodSeconds"].as_i64().filter(|_| metadata::is_terminating(old));
    match pending {
        Some(left) if left > 0 => shorten(old, options, left, now),
        Some(_) => {
            // Grace is over: only finalizers can hold it.
            let mut object = old.clone();
            set_propagation(&mut object, options, false);
            match metadata::finalizers(&object).is_empty() {
                true => Step { object: old.clone(), goes: true },
                false => Step { object, goes: false },
            }
        }
        None => first_pod_delete(old, options, now),
    }
}

fn first_pod_delete(old: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(GRACE_SECONDS_DEFAULT);
    let unscheduled = old["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let grace = match options.grace_period_seconds.unwrap_or(own) {
        _ if unscheduled || ended => 0,
        negative if negative < 0 => 1,
        seconds => seconds,
    };
    let mut object = old.clone();
    metadata::bump_generation(&mut object);
    set_propagation(&mut object, options, false);
    set_grace(&mut object, later(now, grace), grace);
    let goes = grace == 0 && metadata::finalizers(&object).is_empty();
    Step { object, goes }
}

/// A pod that is already ending may only be asked to end sooner.
fn shorten(old: &Value, options: &DeleteOptions, left: i64, now: Timestamp) -> Step {
    let unchanged = || Step { object: old.clone(), goes: false };
    let wanted = match options.grace_period_seconds {
        Some(seconds) if seconds < 0 => 1,
        Some(seconds) => seconds,
        None => return unchanged(),
    };
    if wanted >= left {
        return unchanged();
    }
    let ends: Timestamp = metadata::text(old, "deletionTimestamp").parse().unwrap_or(now);
    let moved = later(ends, wanted - left);
    let (ends, grace) = if moved < now { (now, wanted.min(1)) } else { (moved, wanted) };
    let mut object = old.clone();
    set_propagation(&mut object, options, false);
    set_grace(&mut object, ends, grace);
    let goes = grace == 0 && metadata::finalizers(&object).is_empty();
    Step { object, goes }
}

fn set_grace(object: &mut Value, ends: Timestamp, grace: i64) {
    let members = metadata::of(object);
    members.insert("deletionTimestamp".to_owned(), metadata::time(ends));
    members.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// Namespaces turn `Terminating` and wait for their own finalizers (AS-171).
fn namespace_step(old: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let mut object = old.clone();
    if !metadata::is_terminating(old) {
        metadata::of(&mut object).insert("deletionTimestamp".to_owned(), metadata::time(now));
        object["status"]["phase"] = json!("Terminating");
        set_propagation(&mut object, options, false);
        return Step { object, goes: false };
    }
    let held = old["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let goes = !held && metadata::finalizers(old).is_empty();
    Step { object, goes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-15T10:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn graceful(seconds: Option<i64>) -> DeleteOptions {
        DeleteOptions { grace_period_seconds: seconds, ..DeleteOptions::default() }
    }

    fn policy(policy: &str) -> DeleteOptions {
        DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() }
    }

    fn bound_pod() -> Value {
        json!({"metadata": {"name": "a", "generation": 1}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}})
    }

    /// INV-46.
    #[test]
    fn a_bound_pod_waits_for_its_grace_as_150() {
        let step = pod_step(&bound_pod(), &graceful(None), now());
        assert!(!step.goes);
        assert_eq!(step.object["metadata"]["deletionGracePeriodSeconds"], 30);
        assert_eq!(step.object["metadata"]["deletionTimestamp"], "2026-11-15T10:00:30Z");
        assert_eq!(step.object["metadata"]["generation"], 2);
        assert!(pod_step(&bound_pod(), &graceful(Some(0)), now()).goes);
    }

    /// INV-46.
    #[test]
    fn unscheduled_and_ended_pods_go_at_once_as_150() {
        let mut pod = bound_pod();
        pod["status"]["phase"] = json!("Succeeded");
        assert!(pod_step(&pod, &graceful(Some(20)), now()).goes);
        let mut pod = bound_pod();
        pod["spec"]["nodeName"] = json!("");
        assert!(pod_step(&pod, &graceful(None), now()).goes);
    }

    /// INV-46.
    #[test]
    fn a_second_delete_only_shortens_as_150() {
        let ending = pod_step(&bound_pod(), &graceful(None), now()).object;
        let longer = pod_step(&ending, &graceful(Some(60)), now());
        assert_eq!((longer.goes, &longer.object), (false, &ending));
        let shorter = pod_step(&ending, &graceful(Some(5)), now()).object;
        assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-11-15T10:00:05Z");
        assert_eq!(shorter["metadata"]["generation"], 2);
        assert!(pod_step(&ending, &graceful(Some(0)), now()).goes);
    }

    /// INV-46.
    #[test]
    fn only_a_delete_that_shortens_says_what_becomes_of_dependents() {
        let ending = pod_step(&bound_pod(), &graceful(None), now()).object;
        let foreground = |seconds| DeleteOptions { grace_period_seconds: seconds, ..policy("Foreground") };
        let finalizers = |seconds| {
            let step = pod_step(&ending, &foreground(seconds), now());
            (step.goes, metadata::finalizers(&step.object).join(" "))
        };
        let held = (false, FOREGROUND.to_owned());
        assert_eq!([finalizers(Some(5)), finalizers(Some(0))], [held.clone(), held]);
        assert_eq!([finalizers(Some(60)), finalizers(None)], [(false, String::new()), (false, String::new())]);
    }

    #[test]
    fn propagation_sets_finalizers_as_146() {
        let finalizers = |start: &[&str], options: &DeleteOptions, orphans: bool| {
            let mut object = json!({"metadata": {"finalizers": start}});
            set_propagation(&mut object, options, orphans);
            metadata::finalizers(&object).join(" ")
        };
        assert_eq!(finalizers(&[], &policy("Foreground"), true), "foregroundDeletion");
        assert_eq!(finalizers(&["orphan"], &policy("Foreground"), true), "foregroundDeletion");
        assert_eq!(finalizers(&["a.b/c", "orphan"], &policy("Background"), true), "a.b/c");
        assert_eq!(finalizers(&["a.b/c"], &policy("Orphan"), false), "a.b/c orphan");
        assert_eq!(finalizers(&[], &DeleteOptions::default(), true), "orphan");
        assert_eq!(finalizers(&["foregroundDeletion"], &DeleteOptions::default(), true), "foregroundDeletion");
        assert_eq!(finalizers(&[], &DeleteOptions::default(), false), "");
    }
}
