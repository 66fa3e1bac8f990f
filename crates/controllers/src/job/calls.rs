//! The calls about pods that a plan asks for, and what their answers mean.
//!
//! Calls of one kind go out together, a bounded number at a time. Every call is tied to one pod by its UID, so that a
//! namesake is never touched (INV-23, INV-31).

use std::collections::BTreeMap;

use batch_plan::job::{
    Adoption, CallOutcome, Census, Claims, Creation, PodAction, PodRef, PodStencil, PodView, ReleaseOutcome, Uid,
    patches,
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::{Client, Error};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use teeth::{Mutation, is};

use super::shared::uid_of;
use crate::runtime::{
    Resource, Source,
    requests::{self, DeleteOptions, METADATA_ONLY, PatchType, Preconditions},
};

/// A pod that has changed so often between two calls is left to the next sync.
const CHANGES_MAX: usize = 3;

/// Why pods could not change owners (JC-603, JC-604).
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("can't adopt Pod {pod}: {reason}")]
    Adopt { pod: String, reason: String },
    #[error("release pod `{pod}`")]
    Disown { pod: String, source: Error },
}

/// The pods of a Job as they are now.
#[derive(Debug)]
pub(super) enum Listed {
    All(Census),
    /// There are too many to ask for; in this version of the list.
    TooMany(u64),
}

/// Talks to the API about pods.
pub(super) struct PodCalls {
    pub(super) client: Client,
    /// Calls of one sync that are on their way at the same time.
    pub(super) at_once: usize,
}

impl PodCalls {
    /// Carries out the first step of a plan; outcomes are in the order of its pods.
    pub(super) async fn perform(&self, job: &Job, action: &PodAction) -> Vec<CallOutcome> {
        let (client, namespace) = (&self.client, namespace_of(job));
        match action {
            PodAction::None => Vec::new(),
            PodAction::Create { pods, batches } => self.create_all(job, pods, batches).await,
            PodAction::Remove(pods) => {
                self.together(pods.iter().map(|pod| remove(client, namespace, pod).boxed()).collect()).await
            }
            PodAction::End(pods) => {
                self.together(pods.iter().map(|pod| end(client, namespace, pod).boxed()).collect()).await
            }
        }
    }

    /// Removes tracking finalizers (JC-1311).
    pub(super) async fn release(&self, namespace: &str, pods: &[PodRef]) -> ReleaseOutcome {
        let calls = pods.iter().map(|pod| release_one(&self.client, namespace, pod).boxed()).collect();
        let failed = self.together(calls).await.into_iter().flatten().collect();
        ReleaseOutcome { failed }
    }

    /// Removes the tracking finalizer of pods that are still live.
    pub(super) async fn let_go(&self, namespace: &str, pods: &[PodRef]) -> ReleaseOutcome {
        let calls = pods.iter().map(|pod| let_go_one(&self.client, namespace, pod).boxed()).collect();
        let failed = self.together(calls).await.into_iter().flatten().collect();
        ReleaseOutcome { failed }
    }

    /// Adopts and disowns. The answer is the newest version written, for the read-your-writes guard.
    pub(super) async fn claim(&self, job: &Job, claims: &Claims) -> Result<u64, ClaimError> {
        let client = &self.client;
        // One fresh read decides about all adoptions of a sync (INV-16).
        let adopts = !(claims.adopt.is_empty() && claims.reclaim.is_empty());
        let refused = if adopts { recheck(client, job).await.err().filter(|_| !is(Mutation::C19)) } else { None };
        let (name, uid) = (name_of(job), uid_of(job));
        let adopted = claims
            .adopt
            .iter()
            .map(|Adoption { pod, version }| (pod, patches::at_version(patches::adopt(&pod.uid, name, &uid), version)));
        let reclaimed = claims.reclaim.iter().map(|pod| (pod, patches::reclaim(&pod.uid, name, &uid)));
        let adopt = adopted.chain(reclaimed);
        let adopt = adopt.map(|(pod, patch)| adopt_one(client, job, pod, patch, refused.as_deref()).boxed());
        let disown = claims.disown.iter().map(|pod| disown(client, job, pod).boxed());
        let outcomes = self.together(adopt.chain(disown).collect()).await;
        // All are tried; the first error is the sync's (JC-607).
        outcomes.into_iter().try_fold(0, |newest, outcome| outcome.map(|version| newest.max(version)))
    }

    /// The pods of a Job as they are now, if they fit into so many pages.
    pub(super) async fn list(&self, job: &Job, pages_max: usize) -> Result<Listed, Error> {
        #[derive(Deserialize)]
        struct Page {
            metadata: PageMetadata,
            items: Vec<PodView>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PageMetadata {
            resource_version: String,
            #[serde(default, rename = "continue")]
            token: String,
        }
        let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let labels = selector.and_then(|selector| selector.match_labels.as_ref()).into_iter().flatten();
        // Whatever else a selector asks for, that is at least all that it matches.
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let source = Source {
            namespace: Some(namespace_of(job).to_owned()),
            label_selector: labels.join(","),
            ..Source::all(Resource::PODS)
        };
        let version = |pod: PodView| (pod.uid, pod.resource_version.parse().unwrap_or(u64::MAX));
        let (mut pods, mut token, mut at) = (BTreeMap::new(), String::new(), 0);
        for _ in 0..pages_max {
            let path = source.address(&[("limit", requests::PAGE_LIMIT), ("continue", &token)]);
            let Page { metadata, items } = requests::get(&self.client, &path).await?;
            pods.extend(items.into_iter().map(version));
            (token, at) = (metadata.token, metadata.resource_version.parse().unwrap_or(u64::MAX));
            if token.is_empty() {
                return Ok(Listed::All(Census { at, pods }));
            }
        }
        Ok(Listed::TooMany(at))
    }

    /// JC-1009: batch after batch, until one has a failure.
    async fn create_all(&self, job: &Job, pods: &[Creation], batches: &[usize]) -> Vec<CallOutcome> {
        let stencil = match PodStencil::new(job) {
            Ok(stencil) => stencil,
            Err(no_labels) => {
                let mut outcomes = vec![CallOutcome::Unsent(no_labels.to_string())];
                outcomes.resize(pods.len(), CallOutcome::Skipped);
                return outcomes;
            }
        };
        let mut outcomes = Vec::with_capacity(pods.len());
        let mut rest = pods;
        for size in batches {
            let (batch, later) = rest.split_at((*size).min(rest.len()));
            rest = later;
            let calls = batch.iter().map(|pod| create(&self.client, job, &stencil, pod).boxed()).collect();
            outcomes.extend(self.together(calls).await);
            if outcomes.iter().any(|outcome| outcome.error().is_some()) {
                break;
            }
        }
        outcomes.resize(pods.len(), CallOutcome::Skipped);
        outcomes
    }

    /// Runs calls side by side; answers come in their order.
    async fn together<T: Send>(&self, calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
        stream::iter(calls).buffered(self.at_once).collect().await
    }
}

/// PATCH of a pod whose answer is not looked at.
pub(super) async fn patch(client: &Client, path: &str, patch: &Value) -> Result<(), Error> {
    requests::patch_unread(client, path, PatchType::Strategic, patch).await
}

/// The pod of a call is not there any more: none of that name, or one with another UID (JC-605).
pub(super) fn is_gone(error: &Error) -> bool {
    requests::is_not_found(error) || requests::is_other_uid(error)
}

/// What the server said, in its own words.
pub(super) fn text_of(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        Error::Service(source) => source.to_string(),
        other => other.to_string(),
    }
}

async fn create(client: &Client, job: &Job, stencil: &PodStencil, pod: &Creation) -> CallOutcome {
    let path = Resource::PODS.collection(Some(namespace_of(job)));
    match requests::create_json(client, &path, stencil.body(pod)).await {
        Ok(()) => CallOutcome::Done,
        Err(error) if requests::is_already_exists(&error) => match belongs_to(client, job, &pod.name).await {
            // Our own creation, whose answer we never got (INV-22).
            Ok(Some(true)) => CallOutcome::Done,
            Ok(Some(false)) => CallOutcome::NameTaken,
            // It went away in between: the next sync tries again.
            Ok(None) => CallOutcome::Failed(text_of(&error)),
            Err(error) => CallOutcome::Unanswered(text_of(&error)),
        },
        Err(error) if requests::is_namespace_terminating(&error) && !is(Mutation::C22) => {
            CallOutcome::NamespaceTerminating
        }
        Err(error) => refused(&error),
    }
}

/// Whether a pod of that name is the Job's, if there is one.
async fn belongs_to(client: &Client, job: &Job, name: &str) -> Result<Option<bool>, Error> {
    let found = pod_named(client, namespace_of(job), name).await?;
    let owned = |pod: PodView| pod.controller.is_some_and(|owner| owner.uid == uid_of(job));
    Ok(found.map(owned))
}

/// The pod of a name, if there is one. A list, because the controller may not `get` pods (JC-108).
async fn pod_named(client: &Client, namespace: &str, name: &str) -> Result<Option<PodView>, Error> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<PodView>,
    }
    let collection = Resource::PODS.collection(Some(namespace));
    let path = format!("{collection}?fieldSelector=metadata.name%3D{name}");
    let list: List = requests::get(client, &path).await?;
    Ok(list.items.into_iter().next())
}

/// Marks, deletes, releases: in this order a crash in between neither counts the pod nor leaves it running (INV-23).
async fn remove(client: &Client, namespace: &str, pod: &PodRef) -> CallOutcome {
    let path = Resource::PODS.object(namespace, &pod.name);
    match patch(client, &path, &patches::mark_surplus(&pod.uid)).await {
        Ok(()) => {}
        Err(error) if was_gone(client, namespace, pod, &error).await => return CallOutcome::Gone,
        Err(error) => return CallOutcome::MarkFailed(text_of(&error)),
    }
    match delete(client, namespace, pod).await {
        Ok(version) => release_surplus(client, namespace, pod, version).await,
        Err(outcome) => outcome,
    }
}

/// Releases a pod as it was when it was deleted. If it has changed since, it may have ended, and has to count then (INV-1).
async fn release_surplus(client: &Client, namespace: &str, pod: &PodRef, mut version: Option<String>) -> CallOutcome {
    let path = Resource::PODS.object(namespace, &pod.name);
    for _ in 0..CHANGES_MAX {
        let release = patches::release_surplus(&pod.uid);
        let release = version.as_deref().map_or(release.clone(), |version| patches::at_version(release, version));
        let error = match patch(client, &path, &release).await {
            Ok(()) => return CallOutcome::Done,
            Err(error) => error,
        };
        if was_gone(client, namespace, pod, &error).await {
            return CallOutcome::Done;
        }
        if !requests::is_conflict(&error) {
            return CallOutcome::ReleaseFailed(text_of(&error));
        }
        match pod_named(client, namespace, &pod.name).await {
            Ok(Some(found)) if found.uid == pod.uid && found.phase.is_terminal() => return CallOutcome::HadEnded,
            Ok(Some(found)) if found.uid == pod.uid => version = Some(found.resource_version),
            Ok(_) => return CallOutcome::Done,
            Err(error) => return CallOutcome::ReleaseFailed(text_of(&error)),
        }
    }
    CallOutcome::ReleaseFailed("the pod keeps changing".to_owned())
}

/// The outcome for a pod that is only deleted.
async fn end(client: &Client, namespace: &str, pod: &PodRef) -> CallOutcome {
    delete(client, namespace, pod).await.map_or_else(|outcome| outcome, |_| CallOutcome::Done)
}

/// The version in which the pod is deleted and has not ended, if the server tells; otherwise what else became of it.
async fn delete(client: &Client, namespace: &str, pod: &PodRef) -> Result<Option<String>, CallOutcome> {
    let path = Resource::PODS.object(namespace, &pod.name);
    let preconditions = Preconditions::uid(&pod.uid.to_string());
    let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
    match requests::delete_and_read::<Deleted>(client, &path, &options).await {
        Ok(Deleted { status: DeletedStatus::OfPod { phase }, .. }) if matches!(&*phase, "Succeeded" | "Failed") => {
            Err(CallOutcome::HadEnded)
        }
        Ok(deleted) => Ok(deleted.metadata.resource_version),
        Err(error) if was_gone(client, namespace, pod, &error).await => Err(CallOutcome::Gone),
        Err(error) => Err(refused(&error)),
    }
}

/// What a DELETE answers: the pod, or a `Status`, whose own `status` is a word.
#[derive(Deserialize)]
struct Deleted {
    #[serde(default)]
    metadata: DeletedMetadata,
    #[serde(default)]
    status: DeletedStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletedMetadata {
    resource_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DeletedStatus {
    OfPod { phase: String },
    Other(IgnoredAny),
}

impl Default for DeletedStatus {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

/// Whether a call failed because its pod is gone. "Not found" alone is no proof of it: what counts as gone is counted
/// and forgotten, so it is worth asking once more (INV-1, INV-13).
pub(super) async fn was_gone(client: &Client, namespace: &str, pod: &PodRef, error: &Error) -> bool {
    if !is_gone(error) {
        return false;
    }
    if !requests::is_not_found(error) {
        return true;
    }
    let found = pod_named(client, namespace, &pod.name).await;
    found.is_ok_and(|found| found.is_none_or(|found| found.uid != pod.uid))
}

/// Why a pod still has its finalizer, if it does.
async fn release_one(client: &Client, namespace: &str, pod: &PodRef) -> Option<(Uid, String)> {
    let path = Resource::PODS.object(namespace, &pod.name);
    match patch(client, &path, &patches::release(&pod.uid)).await {
        Err(error) if !was_gone(client, namespace, pod, &error).await => Some((pod.uid.clone(), text_of(&error))),
        _ => None,
    }
}

/// Why a live pod still has its finalizer, if it does. One that has ended has to count first (INV-1).
async fn let_go_one(client: &Client, namespace: &str, pod: &PodRef) -> Option<(Uid, String)> {
    let kept = |why: String| Some((pod.uid.clone(), why));
    let version = match pod_named(client, namespace, &pod.name).await {
        Ok(Some(found)) if found.uid == pod.uid && found.phase.is_terminal() => {
            return kept("the pod has ended, which the cache does not show yet".to_owned());
        }
        Ok(Some(found)) if found.uid == pod.uid => found.resource_version,
        Ok(_) => return None,
        Err(error) => return kept(text_of(&error)),
    };
    let path = Resource::PODS.object(namespace, &pod.name);
    match patch(client, &path, &patches::at_version(patches::release(&pod.uid), &version)).await {
        Err(error) if !was_gone(client, namespace, pod, &error).await => kept(text_of(&error)),
        _ => None,
    }
}

/// Whether the Job is still there, and the same, and not being deleted (JC-604).
async fn recheck(client: &Client, job: &Job) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Found {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        uid: Uid,
        deletion_timestamp: Option<String>,
    }
    let (namespace, name) = (namespace_of(job), name_of(job));
    let path = Resource::JOBS.object(namespace, name);
    let found: Found = requests::get_as(client, &path, METADATA_ONLY).await.map_err(|error| text_of(&error))?;
    let Metadata { uid, deletion_timestamp } = found.metadata;
    if uid != uid_of(job) {
        let wanted = uid_of(job);
        return Err(format!(
            "can't recheck DeletionTimestamp: original Job {namespace}/{name} is gone: got uid {uid}, wanted {wanted}"
        ));
    }
    match deletion_timestamp {
        Some(at) => Err(format!("{namespace}/{name} has just been deleted at {at}")),
        None => Ok(()),
    }
}

async fn adopt_one(
    client: &Client,
    job: &Job,
    pod: &PodRef,
    patch: Value,
    refused: Option<&str>,
) -> Result<u64, ClaimError> {
    let namespace = namespace_of(job);
    let failure = |reason: String| {
        let pod = format!("{namespace}/{} ({})", pod.name, pod.uid);
        ClaimError::Adopt { pod, reason }
    };
    if let Some(reason) = refused {
        return Err(failure(reason.to_owned()));
    }
    let path = Resource::PODS.object(namespace, &pod.name);
    match patch_for_version(client, &path, &patch).await {
        Ok(version) => Ok(version),
        Err(error) if was_gone(client, namespace, pod, &error).await => Ok(0),
        Err(error) => Err(failure(text_of(&error))),
    }
}

async fn disown(client: &Client, job: &Job, pod: &PodRef) -> Result<u64, ClaimError> {
    let namespace = namespace_of(job);
    let path = Resource::PODS.object(namespace, &pod.name);
    match patch_for_version(client, &path, &patches::disown(&pod.uid, &uid_of(job))).await {
        Ok(version) => Ok(version),
        // 422: somebody else has taken the owner reference away, or it is another pod by now.
        Err(error) if is_gone(&error) || requests::is_code(&error, 422) => Ok(0),
        Err(source) => Err(ClaimError::Disown { pod: format!("{namespace}/{}", pod.name), source }),
    }
}

async fn patch_for_version(client: &Client, path: &str, patch: &Value) -> Result<u64, Error> {
    #[derive(Deserialize)]
    struct Written {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let written: Written = requests::patch(client, path, PatchType::Strategic, patch).await?;
    Ok(written.metadata.resource_version.parse().unwrap_or(0))
}

/// A call that did not do what it should. Nobody knows what became of one that failed inside the server or on the way.
fn refused(error: &Error) -> CallOutcome {
    match error {
        Error::Api(status) if status.code < 500 => CallOutcome::Failed(text_of(error)),
        _ => CallOutcome::Unanswered(text_of(error)),
    }
}

pub(super) fn namespace_of(job: &Job) -> &str {
    job.metadata.namespace.as_deref().unwrap_or("")
}

pub(super) fn name_of(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, reason: &str, message: &str) -> Error {
        let status = Status { code, reason: reason.to_owned(), message: message.to_owned(), ..Status::default() };
        Error::Api(Box::new(status))
    }

    /// JC-605, INV-31: another pod under the name is as good as none; a busy one is not.
    #[test]
    fn a_pod_is_gone_when_its_uid_is() {
        for (code, message, gone) in [
            (404, r#"pods "a" not found"#, true),
            (409, "Precondition failed: UID in precondition: x, UID in object meta: y", true),
            (409, "the UID in the precondition (x) does not match the UID in record (y). The object might", true),
            (409, "the object has been modified; please apply your changes to the latest version and try again", false),
            (422, r#"Pod "a" is invalid: metadata.uid: Invalid value: "x": field is immutable"#, true),
            (422, r#"Pod "a" is invalid: metadata.finalizers: Forbidden: no new finalizers"#, false),
            (403, "no", false),
        ] {
            assert_eq!(is_gone(&answer(code, "", message)), gone, "{code} {message}");
        }
    }

    /// INV-22: only an answer that the server gave on purpose says that nothing was created.
    #[test]
    fn failures_inside_the_server_leave_the_outcome_open() {
        for (code, known) in
            [(400, true), (403, true), (409, true), (422, true), (429, true), (500, false), (504, false)]
        {
            let outcome = refused(&answer(code, "", "m"));
            let expected =
                if known { CallOutcome::Failed("m".to_owned()) } else { CallOutcome::Unanswered("m".to_owned()) };
            assert_eq!(outcome, expected, "{code}");
        }
        let broken = refused(&Error::Service("connection reset".into()));
        assert_eq!(broken, CallOutcome::Unanswered("connection reset".to_owned()));
    }
}
