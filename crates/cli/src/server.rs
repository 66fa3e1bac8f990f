//! The one place of this crate that knows how the API server and its store are made and ended.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use apiserver::logs::LogSource;
use apiserver::serve::{Limits, serve};
use apiserver::storage::ObjectStore;
use apiserver::tls::{Identity, server_names};
use apiserver::{ApiServer, Environment, Options};
use jiff::Timestamp;
use store::{BackendError, DirectoryError, OpenError};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::up::Settings;

/// The version clients are told at `/version`.
pub(crate) const KUBERNETES_VERSION: &str = "v1.36.4";

/// A server that listens and has not begun to accept.
#[derive(Debug)]
pub(crate) struct Server {
    api: ApiServer,
    identity: Identity,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Opens the store before the port: of two servers started twice in the same way, the second one's real trouble is
    /// the data directory.
    pub(crate) async fn start(settings: &Settings) -> Result<Self, Failure> {
        let store = open_store(&settings.data.join("store"))?;
        let listener = listen(settings.listen).await?;
        let address = listener.local_addr().context("find the port")?;
        let identity = Identity::load_or_create(&settings.data, &server_names(settings.listen.ip()), Timestamp::now())
            .map_err(|error| Failure::new(error).hint("a file that is named here can be removed to get a new one"))?;
        let options = Options {
            admin_token: Some(identity.token.reveal().to_owned()),
            gates: settings.gates,
            environment: Environment::system(),
        };
        let api = ApiServer::new(store, options)
            .await
            .map_err(|status| anyhow!("prepare the API server: {}", status.message))?;
        Ok(Self { api, identity, listener, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client that calls this server without a network (design D1).
    pub(crate) fn client(&self) -> kube::Client {
        self.api.client()
    }

    /// Where `pods/log` is read from.
    pub(crate) fn set_log_source(&self, logs: Arc<dyn LogSource>) {
        self.api.set_log_source(logs);
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Serves until `shutdown` is ready, then ends: watches first, then requests, then the store.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let shutdown = async {
            shutdown.await;
            self.api.stop();
        };
        let drained = serve(self.listener, self.identity.tls, self.api.clone(), Limits::default(), shutdown).await;
        if drained.cut > 0 {
            tracing::warn!(connections = drained.cut, "cut connections that did not end in time");
        }
        Ok(())
    }
}

fn open_store(path: &Path) -> Result<ObjectStore, Failure> {
    ObjectStore::open_directory(path, store::Options::default(), apiserver::storage::attributes()).map_err(|error| {
        let in_use =
            matches!(&error, OpenError::Backend { source: BackendError::Directory(DirectoryError::Locked { .. }), .. });
        Failure::new(error).hint(match in_use {
            true => "another tally has it: end that process, or pass another directory with `--data DIR`",
            false => "pass another directory with `--data DIR`, or bring a copy of this one back",
        })
    })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                let any = SocketAddr::new(address.ip(), 0);
                format!("end the program that uses the port, or take any free one with `--listen {any}`")
            }
            _ => "pass an address of this machine, for example `--listen 127.0.0.1:0`".to_owned(),
        };
        Failure::new(anyhow!(error).context(format!("listen on `{address}`"))).hint(hint)
    })
}
