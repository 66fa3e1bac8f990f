//! The one place of this crate that knows how the API server and its store are made and ended.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use apiserver::logs::LogSource;
use apiserver::serve::{Limits, serve};
use apiserver::storage::ObjectStore;
use apiserver::tls::{self, Identity, server_names};
use apiserver::{ApiServer, Environment, IssuerError, Options, TokenIssuer};
use batch_types::gates::Gates;
use controllers::runtime::metrics::Exposition;
use controllers::runtime::{Metrics, Shutdown};
use jiff::Timestamp;
use store::{BackendError, DirectoryError, OpenError};
use tokio::net::TcpListener;
use tokio::time::interval;

use crate::data_dir;
use crate::failure::Failure;
use crate::instance;
use crate::kubeconfig::shell_word;

/// The version clients are told at `/version`.
pub(crate) const KUBERNETES_VERSION: &str = "v1.36.4";

/// Whether the store still takes writes is looked at this often.
const STORE_LOOK: Duration = Duration::from_millis(100);

/// What to do about a key or token that is damaged.
const HINT_REMOVE: &str = "a file that is named here can be removed to get a new one";

/// Where objects are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Below this directory, for the next process to find.
    Directory(&'a Path),
    /// Nowhere: they go with the process.
    Memory,
}

/// A server that only this process can talk to, until it is given a [`Door`].
#[derive(Debug)]
pub(crate) struct Server {
    api: ApiServer,
    metrics: Metrics,
}

/// What clients of other processes need: a port, a certificate, a token.
#[derive(Debug)]
pub(crate) struct Door {
    identity: Identity,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// A server without a door.
    pub(crate) async fn private(place: Place<'_>, gates: Gates) -> Result<Self, Failure> {
        Self::new(open_store(place)?, gates, None).await
    }

    /// A server that listens and has not begun to accept.
    ///
    /// Opens the store before the port: of two servers started twice in the same way, the second one's real trouble is
    /// the data directory.
    pub(crate) async fn public(data: &Path, listen: SocketAddr, gates: Gates) -> Result<(Self, Door), Failure> {
        let store = open_store(Place::Directory(data))?;
        let door = Door::open(data, listen).await?;
        let server = Self::new(store, gates, Some(door.identity.token.reveal().to_owned())).await?;
        let issuer = TokenIssuer::load_or_create(&data.join("pki").join("service-account.key")).map_err(|error| {
            let hint = match &error {
                IssuerError::Private(refused) => data_dir::remedy(refused),
                IssuerError::Write { source, .. } => Some(data_dir::write_remedy(source)),
                _ => None,
            };
            Failure::new(error).hint(hint.unwrap_or_else(|| HINT_REMOVE.to_owned()))
        })?;
        server.api.set_token_issuer(issuer);
        Ok((server, door))
    }

    async fn new(store: ObjectStore, gates: Gates, admin_token: Option<String>) -> Result<Self, Failure> {
        let options = Options { admin_token, gates, environment: Environment::system() };
        let api = ApiServer::new(store, options)
            .await
            .map_err(|status| anyhow!("prepare the API server: {}", status.message))?;
        let metrics = Metrics::new();
        metrics.register_collector("apiserver_request", || api.request_metrics());
        let all = metrics.clone();
        api.set_metrics_source(Arc::new(move |accept| {
            let exposition = Exposition::accepted(accept);
            (exposition.content_type(), all.encode(exposition))
        }));
        Ok(Self { api, metrics })
    }

    /// A client that calls this server without a network (design D1).
    pub(crate) fn client(&self) -> kube::Client {
        self.api.client()
    }

    /// What `/metrics` tells; whoever runs beside the server adds its own.
    pub(crate) fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Where `pods/log` is read from.
    pub(crate) fn set_log_source(&self, logs: Arc<dyn LogSource>) {
        self.api.set_log_source(logs);
    }

    /// Removes events whose time has come, until `shutdown`.
    pub(crate) fn expire_events(&self, shutdown: Shutdown) -> impl Future<Output = ()> + Send + 'static {
        let api = self.api.clone();
        async move {
            shutdown.run_until_cancelled(api.expire_events()).await;
        }
    }

    /// Ready, with the reason, when the store takes no more writes: it never does again.
    pub(crate) async fn store_fails(&self) -> String {
        let mut look = interval(STORE_LOOK);
        loop {
            look.tick().await;
            if let Err(reason) = self.api.store_health() {
                return format!("the store takes no more writes: {reason}");
            }
        }
    }

    /// Ends open watches and refuses what comes.
    pub(crate) fn stop(&self) {
        self.api.stop();
    }

    /// Serves until `shutdown` is ready, then ends: watches first, then requests, then the store.
    pub(crate) async fn run(self, door: Door, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let shutdown = async {
            shutdown.await;
            self.api.stop();
        };
        let drained = serve(door.listener, door.identity.tls, self.api.clone(), Limits::default(), shutdown).await;
        if drained.cut > 0 {
            tracing::warn!(connections = drained.cut, "cut connections that did not end in time");
        }
        Ok(())
    }
}

impl Door {
    async fn open(data: &Path, listen: SocketAddr) -> Result<Self, Failure> {
        let listener = bind("--listen", listen).await?;
        let address = listener.local_addr().context("find the port")?;
        let identity =
            Identity::load_or_create(data, &server_names(listen.ip()), Timestamp::now()).map_err(|error| {
                let hint = match &error {
                    tls::Error::Private(refused) => data_dir::remedy(refused),
                    tls::Error::Write { source, .. } => Some(data_dir::write_remedy(source)),
                    _ => None,
                };
                Failure::new(error).hint(hint.unwrap_or_else(|| HINT_REMOVE.to_owned()))
            })?;
        Ok(Self { identity, listener, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn open_store(place: Place<'_>) -> Result<ObjectStore, Failure> {
    let (options, attributes) = (store::Options::default(), apiserver::storage::attributes());
    let opened = match place {
        Place::Memory => ObjectStore::open_in_memory(options, attributes),
        Place::Directory(data) => ObjectStore::open_directory(&data.join("store"), options, attributes),
    };
    opened.map_err(|error| {
        let other = || "pass another directory with `--data DIR`, or bring a copy of this one back".to_owned();
        let hint = match (&error, place) {
            (OpenError::Backend { source: BackendError::Directory(source), .. }, Place::Directory(data)) => {
                match source {
                    DirectoryError::Locked { .. } => in_use_hint(data),
                    DirectoryError::Private(refused) => data_dir::remedy(refused).unwrap_or_else(other),
                    _ => other(),
                }
            }
            _ => other(),
        };
        Failure::new(error).hint(hint)
    })
}

/// What to do about a directory that another tally has. `tally down` only knows those that stay.
fn in_use_hint(data: &Path) -> String {
    match instance::running(data) {
        Ok(Some(_)) => format!(
            "another tally has it: `tally down --data {}` ends that process, `--data DIR` takes another directory",
            shell_word(data)
        ),
        _ => "a `tally run` has it: wait for its end, or take another directory with `--data DIR`".to_owned(),
    }
}

/// Listens where `flag` says.
pub(crate) async fn bind(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = bind_hint(flag, address, error.kind());
        Failure::new(anyhow!(error).context(format!("listen on `{address}`"))).hint(hint)
    })
}

fn bind_hint(flag: &str, address: SocketAddr, trouble: io::ErrorKind) -> String {
    match trouble {
        io::ErrorKind::AddrInUse => {
            let any = SocketAddr::new(address.ip(), 0);
            format!("end the program that uses the port, or take any free one with `{flag} {any}`")
        }
        io::ErrorKind::PermissionDenied => {
            let above = SocketAddr::new(address.ip(), 6443);
            format!("low ports are for root: take one from 1024 on, for example `{flag} {above}`")
        }
        _ => format!("pass an address of this machine, for example `{flag} 127.0.0.1:0`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root may listen on every port, so the error is made up.
    #[test]
    fn a_port_that_is_not_allowed_is_no_wrong_address() {
        let hint = |trouble| bind_hint("--listen", "127.0.0.1:443".parse().unwrap(), trouble);
        assert_eq!(
            hint(io::ErrorKind::PermissionDenied),
            "low ports are for root: take one from 1024 on, for example `--listen 127.0.0.1:6443`"
        );
        assert!(hint(io::ErrorKind::AddrInUse).contains("`--listen 127.0.0.1:0`"));
        assert!(hint(io::ErrorKind::AddrNotAvailable).starts_with("pass an address of this machine"));
    }
}
