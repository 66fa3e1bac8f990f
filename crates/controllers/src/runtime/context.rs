//! What every controller is given.

use std::fmt;

use kube::Client;

use super::{environment::Environment, metrics::Metrics, recorder::Recorder, supervise::Shutdown};

/// The world as a controller sees it. Cheap to clone. Options are each controller's own.
#[derive(Clone)]
pub struct ControllerContext {
    /// The only door to objects (design D1).
    pub client: Client,
    /// Use [`Recorder::component`] to speak under the controller's own name.
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub environment: Environment,
    /// Asks the controller to end.
    pub shutdown: Shutdown,
}

impl ControllerContext {
    /// A context with a recorder of its own, and the recorder's other half, whose `run` somebody must spawn.
    pub fn new(
        client: Client,
        metrics: Metrics,
        environment: Environment,
        shutdown: Shutdown,
    ) -> (Self, super::recorder::EventSender) {
        let (recorder, sender) = super::recorder::channel(client.clone(), &metrics, environment.clone());
        (Self { client, recorder, metrics, environment, shutdown }, sender)
    }

    /// The same with another token, for a group of tasks that can end on its own.
    pub fn with_shutdown(&self, shutdown: Shutdown) -> Self {
        Self { shutdown, ..self.clone() }
    }
}

impl fmt::Debug for ControllerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerContext")
    }
}
