//! The node beside the embedded server: real processes, simulated pods, or none; and its logs for `pods/log`.

use std::path::Path;
use std::sync::Arc;

use ::history::Bounds;
use anyhow::Context as _;
use apiserver::logs::{LogOptions, LogRefusal, LogSource, LogStream};
use futures_util::StreamExt as _;
use node::logs::{LogQuery, LogReader, choose_instance};
use node::{ProcessNode, SimulatedNodes, nursery};
use serde_json::Value;

use crate::failure::Failure;
use crate::history::open_sink;
use crate::node_flags::{NodeFlags, NodeKind};
use crate::server::Server;

/// The node's name when the machine's own is none that Kubernetes takes.
const NAME_DEFAULT: &str = "localhost";

/// What to do about a node that does not start.
const UNUSABLE: &str = "`node/` in the data directory is its own: it must be yours, on a disk with room left; \
                        `--node none` goes without";

/// What runs pods.
#[derive(Debug)]
pub(crate) enum Node {
    Process(ProcessNode),
    Simulated(SimulatedNodes),
    None,
}

impl Node {
    /// Registers the node and lets it run what is bound to it.
    pub(crate) async fn start(
        flags: &NodeFlags,
        server: &Server,
        data: &Path,
        environment: Vec<(String, String)>,
        history: Option<Bounds>,
    ) -> Result<Self, Failure> {
        match flags.node {
            NodeKind::None => Ok(Self::None),
            NodeKind::Simulated { count } => {
                let nodes = SimulatedNodes::start(server.client(), flags.simulated(count)).await;
                Ok(Self::Simulated(nodes.context("start the simulated node")?))
            }
            NodeKind::Process => {
                let name = machine_name();
                let options = node::Options::new(&name, data.join("node")).context("find this program's own file")?;
                let history = history.map(|bounds| open_sink(data, bounds)).transpose()?;
                let options = node::Options { environment, history, ..options };
                let process = ProcessNode::start(server.client(), options).await.context("start the node");
                let process = process.map_err(|error| Failure::new(error).hint(UNUSABLE))?;
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

/// Ends every process of the pods of a data directory, at once and without being asked twice. Their nursery ends when
/// the answer is dropped: earlier, the node would start another one.
pub(crate) fn halt(data: &Path) -> nursery::Halted {
    nursery::halt(&data.join("node"))
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

    fn read(&self, pod: &Value, options: &LogOptions) -> Result<LogStream, LogRefusal> {
        let instance = choose_instance(pod, &options.container, options.previous).map_err(LogRefusal::NotAvailable)?;
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
        // Before the answer begins: after that it can only end early.
        self.reader.check(&query).map_err(|error| LogRefusal::Unreadable(error.to_string()))?;
        let lines =
            self.reader.read(query).map(|piece| piece.inspect_err(|error| tracing::warn!(%error, "read a log")));
        // A log that cannot be read on ends there: the answer has begun and cannot fail any more.
        Ok(Box::pin(
            lines.take_while(|piece| std::future::ready(piece.is_ok())).filter_map(|piece| async { piece.ok() }),
        ))
    }
}
