//! Acting on one object: confirm with the server, then delete, detach or release it.

use std::sync::Arc;

use batch_plan::gc::{Kind, Object, OwnerReference, Propagation, Situation, Standing, Uid, Verdict, verdict};
use batch_types::constants::finalizer;
use futures_util::{TryStreamExt, stream};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};
use teeth::{Mutation, is};

use super::{
    Shared,
    monitors::Kinds,
    projection::{Fields, Metadata, owners},
};
use crate::runtime::{
    Resource,
    lru::Lru,
    requests::{self, DeleteOptions, Ignored, METADATA_ONLY, PatchType, Preconditions},
};

/// How many answers of the server about owners are remembered.
const OWNERS_REMEMBERED: usize = 4096;
/// How often a write that another writer interferes with is tried at once; after that it waits in the queue.
const CONFLICTS_MAX: usize = 5;

/// How many dependents of one owner are told at the same time to forget it.
const DETACH_CONCURRENCY: usize = 16;

/// Why an object could not be dealt with. It will be tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum GcError {
    #[error("look for the owner {kind} `{name}`")]
    Owner { kind: String, name: String, source: Error },
    #[error("the owner's kind `{0}` is not served")]
    UnknownKind(String),
    #[error("delete {0}")]
    Delete(String, #[source] Error),
    #[error("read {0}")]
    Read(String, #[source] Error),
    #[error("patch {0}")]
    Patch(String, #[source] Error),
    #[error("{0} keeps changing")]
    Contended(String),
    #[error("no watch has shown the owner {0}, which is there")]
    Unseen(String),
}

pub(super) struct Judge {
    client: Client,
    shared: Shared,
    kinds: Kinds,
    /// What the server said about owners. Only what cannot change back is kept: a uid that is gone stays gone, and a
    /// deletion is never taken back.
    owners: Mutex<Lru<Question, Option<Standing>>>,
}

/// What the server is asked about an owner. An answer is about all of it (PL-91): a reference with the right uid and a
/// wrong name is dangling, and that says nothing about references with the right one (INV-40).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    group: Box<str>,
    kind: Arc<str>,
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Uid,
}

impl Question {
    fn new(dependent: &Object, owner: &OwnerReference) -> Self {
        Self {
            group: owner.group().into(),
            kind: owner.kind.clone(),
            namespace: dependent.namespace.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

impl Judge {
    pub(super) fn new(client: Client, shared: Shared, kinds: Kinds) -> Self {
        Self { client, shared, kinds, owners: Mutex::new(Lru::new(OWNERS_REMEMBERED)) }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Deals with an object that may have lost its owners, or may have nothing left to wait for.
    pub(super) async fn judge(&self, uid: &Uid) -> Result<(), GcError> {
        let situation = self.shared.graph.lock().situation(uid);
        match situation {
            Situation::AtRest => Ok(()),
            Situation::Released(object) => self.remove_finalizer(&object, finalizer::FOREGROUND_DELETION).await,
            Situation::InDoubt { object, standings, has_dependents, may_be_circular } => {
                let Some(standings) = self.confirm(&object, standings).await? else { return Ok(()) };
                self.execute(&object, verdict(&object, &standings, has_dependents, may_be_circular)).await?;
                self.all_seen(&object, &standings)
            }
        }
    }

    /// An owner that goes while its watch lists again may never be seen, and its end is news for nobody. So whoever relies
    /// on one that only the server has told of is judged again until a watch has shown it (INV-30).
    fn all_seen(&self, object: &Object, standings: &[Standing]) -> Result<(), GcError> {
        let graph = self.shared.graph.lock();
        let relied_on = object.owners.iter().zip(standings).filter(|(_, standing)| **standing == Standing::Solid);
        match relied_on.map(|(owner, _)| owner).find(|owner| graph.get(&owner.uid).is_none()) {
            Some(owner) => Err(GcError::Unseen(format!("{} `{}`", owner.kind, owner.name))),
            None => Ok(()),
        }
    }

    /// Makes the dependents of a deleted object forget it (PL-95).
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<(), GcError> {
        let (owner, dependents) = {
            let graph = self.shared.graph.lock();
            let Some(owner) = graph.get(uid).cloned() else { return Ok(()) };
            let dependents = graph.dependents_of(uid).filter_map(|dependent| graph.get(dependent).cloned());
            (owner, dependents.collect::<Vec<_>>())
        };
        stream::iter(dependents.iter().map(Ok))
            .try_for_each_concurrent(DETACH_CONCURRENCY, |dependent| self.detach(dependent, std::slice::from_ref(uid)))
            .await?;
        self.remove_finalizer(&owner, finalizer::ORPHAN_DEPENDENTS).await
    }

    /// Has the server confirm what the graph believes. `None` if the object must be left alone.
    async fn confirm(&self, object: &Object, believed: Vec<Standing>) -> Result<Option<Vec<Standing>>, GcError> {
        let mut standings = Vec::with_capacity(believed.len());
        for (owner, believed) in object.owners.iter().zip(believed) {
            // Believing in an owner that is just going does no harm: its end will be news.
            let standing = match believed {
                Standing::Solid => Some(Standing::Solid),
                Standing::Dangling if is(Mutation::H01) => Some(Standing::Dangling),
                Standing::Dangling | Standing::Waiting => self.ask(object, owner).await?,
            };
            let Some(standing) = standing else { return Ok(None) };
            standings.push(standing);
        }
        Ok(Some(standings))
    }

    /// How the server says an owner stands. `None` if the question makes no sense.
    async fn ask(&self, dependent: &Object, owner: &OwnerReference) -> Result<Option<Standing>, GcError> {
        let question = Question::new(dependent, owner);
        if let Some(standing) = *self.owners.lock().get_or_insert_with(&question, || None) {
            return Ok(Some(standing));
        }
        let Some(kind) = self.kinds.read().get(&(owner.group().to_owned(), owner.kind.to_string())).cloned() else {
            return Err(GcError::UnknownKind(format!("{} {}", owner.api_version, owner.kind)));
        };
        if kind.namespaced && dependent.namespace.is_empty() {
            // An object of the cluster cannot have an owner in a namespace; which one was meant nobody knows.
            return Ok(None);
        }
        let namespace = if kind.namespaced { &*dependent.namespace } else { "" };
        let path = resource(&kind).object(namespace, &owner.name);
        let standing = match requests::get_as::<Metadata>(&self.client, &path, METADATA_ONLY).await {
            Ok(found) => standing(&found.metadata, &owner.uid),
            Err(error) if requests::is_not_found(&error) => Standing::Dangling,
            Err(source) => {
                return Err(GcError::Owner { kind: owner.kind.to_string(), name: owner.name.to_string(), source });
            }
        };
        if standing != Standing::Solid {
            *self.owners.lock().get_or_insert_with(&question, || None) = Some(standing);
        }
        Ok(Some(standing))
    }

    async fn execute(&self, object: &Object, verdict: Verdict) -> Result<(), GcError> {
        match verdict {
            Verdict::Keep => Ok(()),
            Verdict::Detach(owners) => self.detach(object, &owners).await,
            Verdict::Delete { propagation, unblock_first: false } => {
                self.delete(object, propagation, Some(object.resource_version.to_string())).await
            }
            Verdict::Delete { propagation, unblock_first: true } => {
                self.unblock(object).await?;
                self.delete(object, propagation, None).await
            }
        }
    }

    /// Deletes an object that has the owners it was judged by (INV-40): in this version, or in the one that is read first.
    async fn delete(
        &self,
        object: &Object,
        propagation: Propagation,
        mut version: Option<String>,
    ) -> Result<(), GcError> {
        tracing::debug!(object = %describe(object), ?propagation, "delete an object without owners");
        for _ in 0..CONFLICTS_MAX {
            if version.is_none() {
                // Somebody wrote to it. That matters only if it got other owners.
                let Some(now) = self.read(object).await? else { return Ok(()) };
                let judged = object.owners.iter().map(|owner| &*owner.uid);
                if !owners(&now).eq(judged) {
                    return Err(GcError::Contended(describe(object)));
                }
                version = Some(now.resource_version);
            }
            let options = DeleteOptions {
                propagation_policy: Some(policy(propagation)),
                preconditions: Preconditions {
                    uid: Some(object.uid.to_string()),
                    resource_version: version.take().filter(|_| !is(Mutation::H03)),
                },
                ..DeleteOptions::default()
            };
            match requests::delete(&self.client, &path(object), &options).await {
                Err(error) if requests::is_conflict(&error) => {}
                other => return settled(other).map_err(|error| GcError::Delete(describe(object), error)),
            }
        }
        Err(GcError::Contended(describe(object)))
    }

    /// Takes owners off an object (AS-127).
    async fn detach(&self, object: &Object, owners: &[Uid]) -> Result<(), GcError> {
        let gone: Vec<Value> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": &**uid})).collect();
        let strategic = json!({"metadata": {"ownerReferences": gone, "uid": &*object.uid}});
        let path = path(object);
        match requests::patch::<Ignored>(&self.client, &path, PatchType::Strategic, &strategic).await {
            // Custom resources know no strategic patches.
            Err(error) if requests::is_code(&error, 415) => {}
            other => return patched(object, other),
        }
        self.rewrite(object, |references| {
            references.retain(|reference| !owners.iter().any(|uid| reference["uid"] == **uid));
        })
        .await
    }

    /// Makes an object let its owners go before it is gone itself, to end a circle.
    async fn unblock(&self, object: &Object) -> Result<(), GcError> {
        self.rewrite(object, |references| {
            for reference in references.iter_mut().filter(|reference| reference["blockOwnerDeletion"] == true) {
                reference["blockOwnerDeletion"] = json!(false);
            }
        })
        .await
    }

    /// Changes the owner references of an object with a merge patch of the whole list, guarded by its version.
    async fn rewrite(&self, object: &Object, change: impl Fn(&mut Vec<Value>)) -> Result<(), GcError> {
        let path = path(object);
        for _ in 0..CONFLICTS_MAX {
            let read = requests::get_as::<Value>(&self.client, &path, METADATA_ONLY).await;
            let mut now = match read {
                Ok(now) if now["metadata"]["uid"] == *object.uid => now,
                Ok(_) => return Ok(()),
                Err(error) => return Err(GcError::Read(describe(object), error)),
            };
            let version = now["metadata"]["resourceVersion"].take();
            let mut references = now["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            change(&mut references);
            let patch = json!({"metadata": {
                "ownerReferences": references, "uid": &*object.uid, "resourceVersion": version,
            }});
            match requests::patch::<Ignored>(&self.client, &path, PatchType::Merge, &patch).await {
                Err(error) if requests::is_conflict(&error) => {}
                other => return patched(object, other),
            }
        }
        Err(GcError::Contended(describe(object)))
    }

    /// Removes one of the collector's own finalizers, with the complete new list and the version (AS-127).
    async fn remove_finalizer(&self, object: &Object, name: &str) -> Result<(), GcError> {
        for _ in 0..CONFLICTS_MAX {
            let Some(now) = self.read(object).await? else { return Ok(()) };
            if !now.finalizers.iter().any(|finalizer| finalizer == name) {
                return Ok(());
            }
            let rest: Vec<&String> = now.finalizers.iter().filter(|finalizer| *finalizer != name).collect();
            let patch = json!({"metadata": {"resourceVersion": now.resource_version, "finalizers": rest}});
            match requests::patch::<Ignored>(&self.client, &path(object), PatchType::Merge, &patch).await {
                Err(error) if requests::is_conflict(&error) => {}
                other => return patched(object, other),
            }
        }
        Err(GcError::Contended(describe(object)))
    }

    /// The object as it is now; `None` if another one has its name.
    async fn read(&self, object: &Object) -> Result<Option<Fields>, GcError> {
        match requests::get_as::<Metadata>(&self.client, &path(object), METADATA_ONLY).await {
            Ok(now) => Ok(Some(now.metadata).filter(|now| *now.uid == *object.uid)),
            Err(error) => Err(GcError::Read(describe(object), error)),
        }
    }
}

fn standing(owner: &Fields, uid: &str) -> Standing {
    let foreground = owner.finalizers.iter().any(|name| name == finalizer::FOREGROUND_DELETION);
    match owner.uid == uid {
        false => Standing::Dangling,
        true if owner.deletion_timestamp.is_some() && foreground => Standing::Waiting,
        true => Standing::Solid,
    }
}

/// A delete of something whose name somebody else has by now is done. Another conflict is not: the server may have given
/// up because of other writers, and nobody would come back to the object (INV-30). Neither is "not found" as long as the
/// watch shows the object: it is tried again until the graph has forgotten it.
fn settled(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if requests::is_other_uid(&error) => Ok(()),
        other => other,
    }
}

/// The same for a patch. A uid that does not fit is an immutable field (AS-126).
fn patched(object: &Object, outcome: Result<Ignored, Error>) -> Result<(), GcError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if requests::is_other_uid(&error) => Ok(()),
        Err(error) => Err(GcError::Patch(describe(object), error)),
    }
}

fn policy(propagation: Propagation) -> &'static str {
    match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    }
}

fn resource(kind: &Kind) -> Resource {
    Resource {
        group: kind.group.clone().into(),
        version: kind.version.clone().into(),
        plural: kind.plural.clone().into(),
    }
}

fn path(object: &Object) -> String {
    resource(&object.kind).object(&object.namespace, &object.name)
}

fn describe(object: &Object) -> String {
    format!("{} `{}/{}`", object.kind.kind, object.namespace, object.name)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// INV-30: whoever is told that a delete is done does not come back to it.
    #[test]
    fn a_delete_is_done_when_another_has_the_name_and_not_when_the_server_gave_up() {
        for (code, message, done) in [
            // The graph still has it: either the watch is about to show that it is gone, or it is there after all.
            (404, r#"pods "a" not found"#, false),
            (409, "the UID in the precondition (x) does not match the UID in record (y)", true),
            (409, "Precondition failed: UID in precondition: x, UID in object meta: y", true),
            (409, "the object has been modified; please apply your changes to the latest version and try again", false),
            (429, "slow down", false),
            (503, "the store takes no more writes", false),
        ] {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            let outcome = settled(Err(Error::Api(Box::new(status))));
            assert_eq!(outcome.is_ok(), done, "{code} {message}");
        }
    }
}
