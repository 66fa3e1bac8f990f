//! The nodes of a world, and what their processes do by chance (P-18).
//!
//! How a process behaves is in its arguments: `run=MILLIS` at most, `fail=PERMILLE`, `codes=1,42`, `term=MILLIS` to stop.
//! Everything else follows from the identity of the instance, so that the same pod does the same whenever it is asked.

use std::sync::Arc;
use std::time::Duration;

use controllers::runtime::requests::{self, DeleteOptions, Ignored, PatchType};
use controllers::runtime::{ControllerContext, Environment, Metrics, Resource, Shutdown};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::node::{Agent, Fate, Instance, Machine};
use tokio::task::JoinSet;

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
        let clock = clock.clone();
        let agent = Agent::new(name, machine.clone(), context, Arc::new(move |moment| clock.at(moment)));
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

/// The machine of a node, under the node's own seed.
pub(crate) fn machine(clock: &Clock, seed: u64) -> Machine {
    let clock = clock.clone();
    Machine::new(Arc::new(move |moment| clock.at(moment)), Arc::new(move |instance, args| fate(seed, instance, args)))
}

fn fate(seed: u64, instance: &Instance, arguments: &[String]) -> Fate {
    let value = |name: &str| arguments.iter().find_map(|text| text.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| value(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let codes: Vec<i32> = value("codes").into_iter().flat_map(|text| text.split(',')).flat_map(str::parse).collect();
    let codes = if codes.is_empty() { vec![1] } else { codes };
    let purpose = format!("{}/{}/{}", instance.pod, instance.container, instance.attempt);
    let mut random = Random::of(seed, &purpose);
    let runs = Duration::from_millis(random.below(number("run") + 1));
    let code = if random.chance(number("fail")) { random.pick(&codes) } else { 0 };
    Fate { runs, code, stop_takes: Duration::from_millis(number("term")) }
}
