//! The pods of nodes, as the API shows them.

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::pod::Pod;

/// What a watch says. A list comes as `Restarted`, its pods, and `Listed`.
#[derive(Debug)]
pub(crate) enum Change {
    Restarted,
    Applied(Box<Pod>),
    Deleted(Box<Pod>),
    Listed,
}

/// Watches the pods of a field selector until nobody listens. Errors are waited out with growing delays.
pub(crate) async fn pods(client: Client, selector: String, changes: mpsc::Sender<Change>) {
    let pods: Api<Pod> = Api::all(client);
    let config = watcher::Config::default().fields(&selector);
    let mut events = watcher(pods, config).default_backoff().into_stream().boxed();
    loop {
        let change = match events.try_next().await {
            Ok(Some(watcher::Event::Init)) => Change::Restarted,
            Ok(Some(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod))) => Change::Applied(Box::new(pod)),
            Ok(Some(watcher::Event::Delete(pod))) => Change::Deleted(Box::new(pod)),
            Ok(Some(watcher::Event::InitDone)) => Change::Listed,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the watch of pods is interrupted");
                continue;
            }
        };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}
