//! The node beside the embedded server: real processes, simulated pods, or none; and its logs for `pods/log`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use apiserver::logs::{LogOptions, LogSource, LogStream};
use futures_util::StreamExt as _;
use node::logs::{LogQuery, LogReader, choose_instance};
use node::{ProcessNode, SimulatedNodes, SimulatedOptions};
use serde_json::Value;

use crate::failure::Failure;
use crate::parts::NodeKind;
use crate::server::Server;

/// The node's name when the machine's own is none that Kubernetes takes.
const NAME_DEFAULT: &str = "localhost";

/// What runs pods.
#[derive(Debug)]
pub(crate) enum Node {
    Process(ProcessNode),
    Simulated(SimulatedNodes),
    None,
}

impl Node {
    /// Registers the node and lets it run what is bound to it.
    pub(crate) async fn start(kind: NodeKind, server: &Server, data: &Path) -> Result<Self, Failure> {
        match kind {
            NodeKind::None => Ok(Self::None),
            NodeKind::Simulated => {
                let nodes = SimulatedNodes::start(server.client(), SimulatedOptions::new(1)).await;
                Ok(Self::Simulated(nodes.context("start the simulated node")?))
            }
            NodeKind::Process => {
                let name = machine_name();
                let options = node::Options::new(&name, data.join("node")).context("find this program's own file")?;
                let process = ProcessNode::start(server.client(), options).await.context("start the node")?;
                server.set_log_source(Arc::new(NodeLogs { node_name: name, reader: process.logs() }));
                Ok(Self::Process(process))
            }
        }
    }

    /// Ready when the node has died; never for none.
    pub(crate) async fn ended(&mut self) {
        match self {
            Self::Process(node) => node.ended().await,
            Self::Simulated(nodes) => nodes.ended().await,
            Self::None => std::future::pending().await,
        }
    }

    /// Stops looking after pods. Processes go on and are found again by the next `tally up` on the same data.
    pub(crate) async fn stop(self) {
        match self {
            Self::Process(node) => node.stop().await,
            Self::Simulated(nodes) => nodes.stop().await,
            Self::None => {}
        }
    }
}

/// The machine's name in lower case, if it can be the name of a Node.
fn machine_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy().to_ascii_lowercase();
    if batch_types::names::dns_subdomain(&name).is_empty() { name } else { NAME_DEFAULT.to_owned() }
}

/// Logs of the pods that run here.
struct NodeLogs {
    node_name: String,
    reader: LogReader,
}

impl LogSource for NodeLogs {
    fn serves(&self, node_name: &str) -> bool {
        node_name == self.node_name
    }

    fn read(&self, pod: &Value, options: &LogOptions) -> Result<LogStream, String> {
        let instance = choose_instance(pod, &options.container, options.previous)?;
        let query = LogQuery {
            pod_uid: instance.pod_uid,
            container: instance.container,
            attempt: instance.attempt,
            follow: options.follow,
            tail_lines: options.tail_lines,
            limit_bytes: options.limit_bytes,
            since: options.since,
            timestamps: options.timestamps,
        };
        let lines =
            self.reader.read(query).map(|piece| piece.inspect_err(|error| tracing::warn!(%error, "read a log")));
        // A log that cannot be read on ends there: the answer has begun and cannot fail any more.
        Ok(Box::pin(
            lines.take_while(|piece| std::future::ready(piece.is_ok())).filter_map(|piece| async { piece.ok() }),
        ))
    }
}
