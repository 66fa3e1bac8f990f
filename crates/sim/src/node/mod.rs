//! Nodes: the product's own pod lifecycle, over processes that only exist on paper (P-18).
//!
//! [`Machine`] is what outlives the node's process: the containers. [`Node`] is the process, which finds them again.

mod agent;
mod machine;

use std::sync::Arc;

use controllers::runtime::requests::{self, DeleteOptions, Ignored, PatchType};
use controllers::runtime::{ControllerContext, Environment, Metrics, Resource, Shutdown};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub(crate) use machine::Machine;

use self::agent::Agent;
use crate::clock::Clock;
use crate::network::{Life, Network};
use crate::random::Random;

/// The process that looks after the pods of one machine.
pub(crate) struct Node {
    life: Life,
    tasks: JoinSet<()>,
}

impl Node {
    pub(crate) fn start(name: &str, machine: &Machine, network: &Network, clock: &Clock, random: Random) -> Self {
        let life = Life::default();
        let client = network.client("node", &life);
        let (walls, random) = (clock.clone(), Mutex::new(random));
        let environment = Environment::new(move || walls.now(), move || random.lock().number());
        // Events are not sent: nothing depends on those of a node.
        let (context, _events) = ControllerContext::new(client, Metrics::new(), environment, Shutdown::new());
        let mut tasks = JoinSet::new();
        let agent = Agent::new(name, machine.clone(), context, clock.clone());
        tasks.spawn(agent.run());
        Self { life, tasks }
    }

    pub(crate) fn has_died(&mut self) -> bool {
        self.tasks.try_join_next().is_some()
    }

    pub(crate) fn crash(mut self) {
        self.life.end();
        self.tasks.abort_all();
    }
}

/// Makes the Node object if it is missing, and says that it is ready.
pub(crate) async fn register(client: &Client, name: &str, now: jiff::Timestamp) -> Result<(), kube::Error> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    match requests::create::<Ignored>(client, &Resource::NODES.collection(None), &node).await {
        Ok(_) => {}
        Err(error) if requests::is_already_exists(&error) => {}
        Err(error) => return Err(error),
    }
    let time = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let resources = json!({"cpu": "1000", "memory": "1Ti", "pods": "10000"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": time, "lastTransitionTime": time});
    let status = json!({"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}});
    let path = Resource::NODES.subresource("", name, "status");
    requests::patch::<Ignored>(client, &path, PatchType::Merge, &status).await?;
    let path = Resource::NODES.object("", name);
    let found: Value = requests::get(client, &path).await?;
    if found["spec"]["taints"].is_array() {
        let patch = json!({"spec": {"taints": null}});
        requests::patch::<Ignored>(client, &path, PatchType::Merge, &patch).await?;
    }
    Ok(())
}

/// Removes the Node object, as somebody does whose machine has burnt down.
pub(crate) async fn unregister(client: &Client, name: &str) -> Result<(), kube::Error> {
    match requests::delete(client, &Resource::NODES.object("", name), &DeleteOptions::default()).await {
        Err(error) if requests::is_not_found(&error) => Ok(()),
        other => other,
    }
}

/// What the parts of this module call a pod.
type Uid = Arc<str>;
