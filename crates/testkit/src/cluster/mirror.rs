//! What a cluster has in the namespace `default`, kept in a store of our own: whoever reads worlds can read it too.
//!
//! Each kind is watched by itself, so kinds may overtake each other here. Objects keep the revision that they have there,
//! by which the oracle puts everything in order.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use apiserver::storage::ObjectStore;
use bytes::BytesMut;
use controllers::runtime::Resource;
use http::Request;
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde::Deserialize;
use serde_json::Value;
use store::{Event, Transaction};
use tokio::task::JoinSet;

const NAMESPACE: &str = "default";
/// What is watched, and under which key it is kept.
const KINDS: [(Resource, &str); 3] =
    [(Resource::PODS, "pods"), (Resource::JOBS, "jobs.batch"), (Resource::CRON_JOBS, "cronjobs.batch")];

/// Goes on for as long as it is there.
pub(super) struct Mirror {
    store: ObjectStore,
    _watches: JoinSet<()>,
}

#[derive(Deserialize)]
struct Line {
    r#type: String,
    object: Value,
}

impl Mirror {
    /// Begins with nothing: there must be no such objects yet.
    pub(super) async fn begin(client: &Client) -> Result<Self> {
        let options = store::Options {
            writing: store::Writing::Inline,
            // The oracle wants to see everything.
            history: store::History { age_max: Duration::from_secs(86_400), ..store::History::default() },
            ..store::Options::default()
        };
        let store = ObjectStore::open_in_memory(options, apiserver::storage::attributes()).context("open a store")?;
        let mut watches = JoinSet::new();
        for (resource, topic) in KINDS {
            let collection = resource.collection(Some(NAMESPACE));
            let list: Value = client.request(Request::get(&collection).body(Vec::new())?).await?;
            let items = list["items"].as_array().map_or(0, Vec::len);
            ensure!(items == 0, "there are {topic} in the namespace `{NAMESPACE}` already");
            let from = revision_of(&list);
            let kind = Kind { client: client.clone(), collection, topic, store: store.clone() };
            watches.spawn(async move {
                if let Err(error) = kind.follow(from).await {
                    eprintln!("error: the watch of {topic} ended: {error:#}");
                }
            });
        }
        Ok(Self { store, _watches: watches })
    }

    pub(super) fn store(&self) -> ObjectStore {
        self.store.clone()
    }
}

/// One kind of objects on its way here.
struct Kind {
    client: Client,
    collection: String,
    topic: &'static str,
    store: ObjectStore,
}

impl Kind {
    /// A server ends a watch now and then; it goes on where it was.
    async fn follow(&self, mut from: u64) -> Result<()> {
        loop {
            let uri = format!("{}?watch=true&resourceVersion={from}", self.collection);
            let response = self.client.send(Request::get(uri).body(Body::empty())?).await?;
            ensure!(response.status().is_success(), "answered with {}", response.status());
            let (mut body, mut partial) = (response.into_body(), BytesMut::new());
            while let Some(Ok(frame)) = body.frame().await {
                partial.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = partial.iter().position(|byte| *byte == b'\n') {
                    let line: Line = serde_json::from_slice(&partial.split_to(end + 1))?;
                    from = revision_of(&line.object).max(from);
                    apply(&self.store, self.topic, line).await?;
                }
            }
        }
    }
}

async fn apply(store: &ObjectStore, topic: &str, Line { r#type, object }: Line) -> Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let key = format!("{topic}/{NAMESPACE}/{name}");
    let value = store::Value::plain(serde_json::to_vec(&object)?);
    let transaction = match &*r#type {
        "ADDED" | "MODIFIED" => Transaction::new().put(key, value),
        "DELETED" => Transaction::new().delete(key, value),
        "BOOKMARK" => return Ok(()),
        _ => bail!("{}", object["message"]),
    };
    store.commit(transaction).await.map_err(|error| anyhow!("{error}"))?;
    Ok(())
}

/// The revision that a change has in the cluster.
pub(crate) fn revision_there<A>(event: &Event<A>) -> u64 {
    serde_json::from_slice(&event.entry.value()).map_or(0, |object: Value| revision_of(&object))
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oracle;

    /// A pod's end that was watched after the status that counts it has come before it all the same.
    #[tokio::test]
    async fn the_order_is_the_one_that_it_had_there() {
        let options = store::Options { writing: store::Writing::Inline, ..store::Options::default() };
        let store = ObjectStore::open_in_memory(options, apiserver::storage::attributes()).expect("a store");
        for (topic, revision) in [("jobs.batch", "12"), ("pods", "11")] {
            let object = json!({"metadata": {"name": "a", "resourceVersion": revision}});
            apply(&store, topic, Line { r#type: "ADDED".to_owned(), object }).await.expect("it is kept");
        }
        let records = oracle::records_by(&store, &[], revision_there);
        let order: Vec<(u64, &str)> = records.iter().map(|record| (record.revision, &*record.key)).collect();
        assert_eq!(order, [(11, "pods/default/a"), (12, "jobs.batch/default/a")]);
    }
}
