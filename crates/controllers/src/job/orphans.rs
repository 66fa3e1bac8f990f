//! Tracking finalizers that outlived their Job (JC section 3).
//!
//! A sync releases the pods of its own Job. What is left are pods whose Job is gone, and pods that lost their owner.

use std::{sync::Arc, time::Duration};

use batch_plan::job::{Controller, PodRef, PodView, Uid, is_orphan, owns, patches};
use batch_types::job::is_finished;
use k8s_openapi::api::batch::v1::Job;
use kube::{Client, Error};
use serde::Deserialize;

use super::{
    calls,
    shared::{Entry, Shared},
};
use crate::runtime::{
    Resource,
    requests::{self, METADATA_ONLY},
};

/// A pod that nobody may be responsible for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Orphan {
    pub(super) namespace: String,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    /// The watch has shown that its Job is gone, so there is nothing to ask.
    pub(super) job_is_gone: bool,
}

/// Releases a pod if it is an orphan (JC-304).
pub(super) async fn release(client: &Client, shared: &Shared, orphan: &Orphan) -> Result<(), Error> {
    let patch = if orphan.job_is_gone {
        patches::release(&orphan.uid)
    } else {
        match verdict(shared, &orphan.uid) {
            Verdict::Leave => return Ok(()),
            Verdict::Wait => {
                shared.orphans.add_after(orphan.clone(), ADOPTION);
                return Ok(());
            }
            // Pods and Jobs are two watches: a Job that is missing may just not have been shown yet. Upstream takes the
            // cache's word for it.
            Verdict::Ask(controller, _) if exists(client, &orphan.namespace, &controller).await? => return Ok(()),
            // If the pod is another one by now, the retry judges that.
            Verdict::Release(version) | Verdict::Ask(_, version) => {
                patches::at_version(patches::release(&orphan.uid), &version)
            }
        }
    };
    tracing::debug!(namespace = orphan.namespace, pod = &*orphan.name, "release an orphan");
    let path = Resource::PODS.object(&orphan.namespace, &orphan.name);
    let pod = PodRef { name: orphan.name.clone(), uid: orphan.uid.clone() };
    match calls::patch(client, &path, &patch).await {
        Err(error) if !calls::was_gone(client, &orphan.namespace, &pod, &error).await => Err(error),
        _ => Ok(()),
    }
}

/// How long a Job may take to adopt a pod until somebody looks again.
const ADOPTION: Duration = Duration::from_secs(5);

enum Verdict {
    Leave,
    /// A Job is about to adopt it. Until then the finalizer says that it is not counted yet; upstream removes it, and the
    /// pod may end before it is back (INV-1).
    Wait,
    /// As it is in this version.
    Release(String),
    /// Its Job is not known; ask the server whether it is gone.
    Ask(Controller, String),
}

fn verdict(shared: &Shared, uid: &Uid) -> Verdict {
    let state = shared.state.lock();
    // A Job has taken it, or it is gone.
    let Some(pod) = state.ledger.stray_pod(uid) else { return Verdict::Leave };
    let PodView { controller, resource_version, .. } = pod;
    let version = resource_version.clone();
    let job = controller.as_ref().and_then(|controller| state.jobs.get(&controller.uid));
    let adopters = || state.ledger.adopters(pod).filter_map(|uid| state.jobs.get(uid));
    let adopts = |entry: &Entry| {
        let Job { metadata, .. } = &*entry.job;
        owns(&entry.job, &shared.settings) && !is_finished(&entry.job) && metadata.deletion_timestamp.is_none()
    };
    match controller {
        None if pod.finalizer && adopters().any(adopts) => Verdict::Wait,
        _ if !is_orphan(pod, job.map(|entry| &*entry.job), &shared.settings) => Verdict::Leave,
        Some(controller) if job.is_none() => Verdict::Ask(controller.clone(), version),
        _ => Verdict::Release(version),
    }
}

/// Whether the very Job that a pod names is there.
async fn exists(client: &Client, namespace: &str, controller: &Controller) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Found {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: Uid,
    }
    let path = Resource::JOBS.object(namespace, &controller.name);
    match requests::get_as::<Found>(client, &path, METADATA_ONLY).await {
        Ok(found) => Ok(found.metadata.uid == controller.uid),
        Err(error) if requests::is_not_found(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
