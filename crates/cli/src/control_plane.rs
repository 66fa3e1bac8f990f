//! What runs beside the embedded API server: the controllers and the node, started and ended together.
//!
//! `up` and `run` differ in the server they bring and in when they end; the rest is here.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use ::history::Bounds;
use anyhow::anyhow;
use controllers::job;
use controllers::namespace::Furnishing;
use controllers::runtime::{Shutdown, TaskError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;
use crate::nodes::Node;
use crate::parts::Parts;
use crate::running::{Choice, start};
use crate::server::Server;

/// After everything has ended, stray background work gets this long before the process ends without it.
pub(crate) const RUNTIME_END: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) parts: Parts,
    pub(crate) job: job::Options,
    /// The authority's certificate, which every namespace is told; a server without a door has none.
    pub(crate) root_ca: Option<String>,
    /// What the processes of pods have in their environment before the pod says anything.
    pub(crate) environment: Vec<(String, String)>,
    /// How much is kept about ended containers; without it, nothing.
    pub(crate) history: Option<Bounds>,
}

/// Controllers and a node at work.
pub(crate) struct ControlPlane {
    controllers: Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>,
    node: Node,
    shutdown: Shutdown,
}

impl ControlPlane {
    /// Starts everything on `server`; the node keeps its files below `data`.
    pub(crate) async fn start(server: &Server, data: &Path, setup: Setup) -> Result<Self, Failure> {
        let node = Node::start(&setup.parts.node, server, data, setup.environment, setup.history).await?;
        let shutdown = Shutdown::new();
        // Nobody else makes these on one machine.
        let furnishing = Furnishing { service_account: true, root_ca: setup.root_ca };
        let choice = Choice { controllers: setup.parts.controllers, job: setup.job, furnishing };
        let running = start(server.client(), server.metrics(), choice, shutdown.clone(), || {})
            .beside("event expiry", server.expire_events(shutdown.clone()));
        Ok(Self { controllers: Box::pin(running.ended()), node, shutdown })
    }

    /// Ready when a part has died unasked. One that dies takes the process along: the rest would go on accepting Jobs
    /// that nobody runs.
    pub(crate) async fn died(&mut self) -> Failure {
        tokio::select! {
            outcome = &mut self.controllers => match outcome {
                Err(error) => Failure::new(error),
                Ok(()) => Failure::new(anyhow!("the controllers ended unasked")),
            },
            () = self.node.ended() => Failure::new(anyhow!("the node ended unasked")),
        }
        .hint("its last words are in the log: run with `-v`")
    }

    /// Ends the controllers, then the node, before the server that both talk to.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.shutdown.cancel();
        let ended = self.controllers.await;
        self.node.stop().await;
        ended.map_err(Failure::new)
    }
}

/// Each connection and each table of the store takes a file descriptor, and the usual soft limit of 1,024 is for
/// programs that use select(2).
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::debug!(%error, "raise the limit of open files");
    }
}
