//! Stands in for kubelets: says of every pod that it has succeeded.

use std::collections::HashSet;

use anyhow::anyhow;
use futures_util::StreamExt as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::task::JoinSet;

use super::load::{Load, RUN};
use crate::failure::Failure;
use crate::pod_view::PodObject;

/// Patches on their way at the same time.
const PATCHES_MAX: usize = 128;

/// Works until it is dropped; ends only with what keeps it from working. Pods of others are left alone.
pub(super) async fn run(load: &Load) -> Failure {
    let (cluster, calls) = (&load.cluster, &load.calls);
    let pods: Api<PodObject> = Api::namespaced(cluster.client.clone(), &load.namespace);
    let config = watcher::Config::default().labels(&format!("{RUN}={}", load.run));
    let mut events = watcher(pods.clone(), config).default_backoff().boxed();
    // Pods that were told of, until they are gone: each is patched once.
    let mut told: HashSet<String> = HashSet::new();
    let mut patches: JoinSet<kube::Result<()>> = JoinSet::new();
    loop {
        tokio::select! {
            Some(done) = patches.join_next(), if !patches.is_empty() => {
                if let Ok(Err(error)) = done {
                    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
                    let failure = cluster.failure(error, "finish a pod");
                    let hint = "the credentials must be allowed to patch `pods/status`";
                    return if is_forbidden { failure.hint(hint) } else { failure };
                }
            }
            event = events.next(), if patches.len() < PATCHES_MAX => match event {
                Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => {
                    if !pod.has_ended() && told.insert(pod.uid().to_owned()) {
                        calls.count("patch");
                        patches.spawn(finish(pods.clone(), pod.name().to_owned()));
                    }
                }
                Some(Ok(Event::Delete(pod))) => {
                    told.remove(pod.uid());
                }
                Some(Ok(Event::Init | Event::InitDone)) => {}
                Some(Err(error)) => tracing::debug!(%error, "the watch of pods is interrupted"),
                None => return Failure::new(anyhow!("the watch of pods ended")),
            }
        }
    }
}

async fn finish(pods: Api<PodObject>, name: String) -> kube::Result<()> {
    let terminated = json!({"exitCode": 0, "reason": "Completed"});
    let status = json!({"status": {
        "phase": "Succeeded",
        "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated}}],
    }});
    match pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await {
        // Deleted meanwhile: somebody ended the Job.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}
