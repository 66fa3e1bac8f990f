//! The agent of a node that runs processes: what a kubelet is to a machine with containers.

mod events;
mod options;
mod probing;
mod status;
mod supervisor;
pub(crate) mod watch;

use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use options::{Capacity, Options};

use self::supervisor::{Inbox, Supervisor};
use crate::logs::{LogReader, Running};
use crate::nursery::protocol::{Report, Welcome};
use crate::nursery::{Layout, Nursery, NurseryError};
use crate::registration::{self, Description};

/// A nursery takes some milliseconds to start.
const WELCOME_PATIENCE: Duration = Duration::from_secs(15);

/// Changes of pods that wait for the node.
const CHANGES: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("open the nursery")]
    Nursery(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the nursery did not answer; see `{0}`")]
    Silent(String),
    #[error("register node `{name}`: {reason}")]
    Register { name: String, reason: String },
}

impl From<NurseryError> for Error {
    fn from(error: NurseryError) -> Self {
        Self::Nursery(Box::new(error))
    }
}

/// A node at work.
#[derive(Debug)]
pub struct ProcessNode {
    logs: LogReader,
    task: JoinHandle<()>,
    shutdown: CancellationToken,
    drain: CancellationToken,
}

impl ProcessNode {
    /// Registers the node and starts to run what is bound to it. Pods that ran under an earlier node with the same
    /// directory are found again.
    pub async fn start(client: Client, options: Options) -> Result<Self, Error> {
        let layout = Layout::new(&options.directory);
        let (nursery, mut reports) = Nursery::open(layout.clone(), options.nursery_command.clone()).await?;
        let first = tokio::time::timeout(WELCOME_PATIENCE, reports.recv()).await;
        let Ok(Some(Report::Welcome(welcome))) = first else {
            return Err(Error::Silent(layout.errors().display().to_string()));
        };
        let description = description(&options, &welcome);
        registration::register(&client, &description)
            .await
            .map_err(|reason| Error::Register { name: options.name.clone(), reason })?;
        let running = Running::default();
        let logs = LogReader::new(layout.logs(), running.clone());
        let (shutdown, drain) = (CancellationToken::new(), CancellationToken::new());
        let (changes_in, changes) = mpsc::channel(CHANGES);
        let name = options.name.clone();
        let (supervisor, messages) = Supervisor::new(client.clone(), options, nursery, welcome, running);
        let inbox = Inbox { changes, reports, messages, shutdown: shutdown.clone(), drain: drain.clone() };
        let task = tokio::spawn(async move {
            tokio::select! {
                () = supervisor.run(inbox) => {}
                () = watch::pods(client.clone(), format!("spec.nodeName={name}"), changes_in) => {}
                () = registration::beat(&client, &description.name) => {}
            }
        });
        Ok(Self { logs, task, shutdown, drain })
    }

    /// Reads the logs of this node's pods.
    pub fn logs(&self) -> LogReader {
        self.logs.clone()
    }

    /// Waits until the node has ended, which it does only after [`Self::stop`] or by a fault.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }

    /// Stops the agent. Containers go on without it, and the next one finds them again.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        self.ended().await;
    }

    /// Stops all containers, reports their pods as failed because of the shutdown (PL-62), then stops the agent. After
    /// `patience` it stops as it is.
    pub async fn stop_with_pods(mut self, patience: Duration) {
        self.drain.cancel();
        if tokio::time::timeout(patience, self.ended()).await.is_err() {
            self.stop().await;
        }
    }
}

fn description(options: &Options, welcome: &Welcome) -> Description {
    Description {
        name: options.name.clone(),
        address: options.address.to_string(),
        capacity: options.capacity,
        runtime: "process",
        abilities: welcome.abilities,
        obstacles: welcome.obstacles.clone(),
    }
}
