//! The same scenarios with a real API server and the controllers in a process of their own, between which stands a proxy
//! that deals out the faults (invariants, section 3: real processes).
//!
//! Time is real there, so only some cases can be tried, and calls that are made at once may come in another order each
//! time. What it shows is that nothing about the worlds in one thread is essential: the same binary, killed with a signal,
//! over sockets, against any server that speaks the API of Kubernetes, and any controller of Jobs beside ours.
//!
//! | file | does |
//! |---|---|
//! | `proxy` | takes a process' requests over HTTP and hands them to the wire |
//! | `process` | starts the controllers and kills them |
//! | `mirror` | shows the cluster as a store, for the stand-ins of users and kubelets and for the oracle |

mod mirror;
mod process;
mod proxy;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use apiserver::storage::ObjectStore;
use http::{Method, Request};
use kube::{Client, client::Body};
use serde::Deserialize;
use tokio::sync::Mutex;

use self::mirror::Mirror;
pub(crate) use self::{mirror::revision_there, process::Process};
use crate::faults::Wire;

/// An API server without controllers of Jobs and without kubelets, and the controllers to run against it.
#[derive(Clone)]
pub struct Cluster {
    /// Nothing happens to what is sent here.
    pub client: Client,
    /// A program and its arguments; `{kubeconfig}` stands for the way to the proxy.
    pub controllers: Vec<String>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

/// A cluster that a world takes place in.
pub(crate) struct Session {
    controllers: Vec<String>,
    mirror: Mirror,
    /// The newest revision that is known of.
    newest: Arc<AtomicU64>,
    server: Client,
    /// Held by whoever has a call under way, so that it is clear who made which revision.
    turn: Arc<Mutex<()>>,
}

impl Session {
    pub(crate) async fn begin(cluster: &Cluster) -> Result<Self> {
        let newest = Arc::new(AtomicU64::new(newest_revision(&cluster.client).await?));
        Ok(Self {
            controllers: cluster.controllers.clone(),
            mirror: Mirror::begin(&cluster.client).await.context("watch the cluster")?,
            server: noting(cluster.client.clone(), newest.clone()),
            newest,
            turn: Arc::default(),
        })
    }

    /// For the wire: a client after whose writes the newest revision is known.
    pub(crate) fn server(&self) -> Client {
        self.server.clone()
    }

    pub(crate) fn revision(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let newest = self.newest.clone();
        move || newest.load(Ordering::Relaxed)
    }

    /// What there is in the cluster, a moment later.
    pub(crate) fn store(&self) -> ObjectStore {
        self.mirror.store()
    }

    /// A client for users and kubelets, who wait for their turn.
    pub(crate) fn world_client(&self, wire: &Wire) -> Client {
        let (client, turn) = (wire.world_client(), self.turn.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, turn) = (client.clone(), turn.clone());
            async move {
                let _turn = turn.lock().await;
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }

    /// The controllers with empty memory, as the present life of the wire.
    pub(crate) fn start(&self, wire: &Wire) -> Result<Process> {
        Process::start(&self.controllers, wire.client("job"), self.turn.clone())
    }
}

/// A client that asks for the newest revision after every write.
fn noting(server: Client, newest: Arc<AtomicU64>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, newest) = (server.clone(), newest.clone());
        async move {
            let writes = *request.method() != Method::GET;
            let response = server.send(request).await?;
            if writes {
                newest.fetch_max(newest_revision(&server).await?, Ordering::Relaxed);
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, "default")
}

/// Every list says which revision it shows, and they are of all kinds together.
async fn newest_revision(client: &Client) -> Result<u64, kube::Error> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMeta {
        resource_version: String,
    }
    let request = Request::get("/api/v1/namespaces/default/configmaps?limit=1").body(Vec::new());
    let list: List = client.request(request.map_err(kube::Error::HttpError)?).await?;
    Ok(list.metadata.resource_version.parse().unwrap_or(0))
}
