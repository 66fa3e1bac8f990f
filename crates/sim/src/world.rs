//! Everything that is in a run, and what happens to it step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use batch_types::gates::Gates;
use store::testing::{Fault as DiskError, Unreadable};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::counters::Counters;
use crate::manager::Manager;
use crate::network::{Life, Network, Notes};
use crate::node::{self, Node};
use crate::random::Random;
use crate::scenario::{DiskFault, Fault, NAMESPACES, NODES, Scenario, What};
use crate::server::Server;
use crate::settled;
use crate::users::Users;
use crate::weather::Weather;

/// How often somebody looks whether everything is alive.
const LOOK: Duration = Duration::from_secs(1);
/// How long nothing may change before the system counts as at rest: longer than any delay that controllers keep, of
/// which ten minutes after many failures is the longest.
const QUIET: Duration = Duration::from_secs(660);
/// A healed system comes to rest within this; the longest Job takes a few failed pods and their delays.
const SETTLE_MAX: Duration = Duration::from_secs(3 * 3600);

pub(crate) struct World {
    network: Network,
    server: Server,
    clock: Clock,
    gates: Gates,
    random: Random,
    counters: Counters,
    users: Users,
    manager: Option<Manager>,
    second: Option<Manager>,
    nodes: Vec<Place>,
    /// What comes back by itself, and when.
    returns: BTreeMap<(Instant, u64), Return>,
    next_return: u64,
    pub(crate) violations: Vec<String>,
}

/// The store of a server knows the weather by the network, and the network knows the server: without this neither would
/// ever be let go of.
impl Drop for World {
    fn drop(&mut self) {
        self.network.connect(None);
    }
}

/// A machine, and the process that looks after its pods, if it runs.
struct Place {
    name: &'static str,
    machine: testkit::node::Machine,
    clock: Clock,
    process: Option<Node>,
    /// The Node object exists, as far as we know.
    is_registered: bool,
}

/// Something that is well again after a while.
enum Return {
    Server,
    Manager,
    SecondManagerEnds,
    Node(usize),
    DiskRoom,
    DiskReads,
}

impl World {
    pub(crate) fn new(scenario: &Scenario, counters: Counters, trace: bool) -> Self {
        let seed = scenario.seed;
        let clock = Clock::starting(scenario.began.parse().expect("one of a few constants"));
        let random = Random::of(seed, "network");
        let network = Network::new(scenario.weather, random, clock.another(), counters.clone(), trace);
        let random = Random::of(seed, "server");
        let server = Server::new(network.clone(), clock.clone(), random, scenario.sizes, counters.clone());
        let users = Users::new(network.client("users", &Life::default()), counters.clone());
        let nodes = NODES.map(|name| {
            let clock = clock.another();
            let machine = node::machine(&clock, Random::of(seed, name).number());
            Place { name, machine, clock, process: None, is_registered: false }
        });
        Self {
            network,
            server,
            clock,
            gates: Gates::DEFAULT,
            random: Random::of(seed, "world"),
            counters,
            users,
            manager: None,
            second: None,
            nodes: nodes.into(),
            returns: BTreeMap::new(),
            next_return: 0,
            violations: Vec::new(),
        }
    }

    /// Plays the scenario up to the moment of healing.
    pub(crate) async fn trouble(&mut self, scenario: &Scenario) {
        let start = Instant::now();
        // The beginning is quiet: a system that never came up proves nothing.
        self.network.set_weather(Weather::CALM);
        self.come_up().await;
        self.network.set_weather(scenario.weather);
        for step in &scenario.steps {
            self.wait_until(start + step.at).await;
            match &step.what {
                What::User(action) => self.users.act(action).await,
                What::Fault(fault) => self.fault(fault).await,
            }
        }
        self.wait_until(start + scenario.trouble).await;
    }

    /// Ends all trouble.
    pub(crate) async fn heal(&mut self) {
        self.network.set_weather(Weather::CALM);
        self.returns.clear();
        self.server.disk.mend();
        self.end_second();
        // Gates that were switched off are on again, which takes a restart of everything (P-19).
        if self.gates != Gates::DEFAULT {
            self.gates = Gates::DEFAULT;
            self.server.crash(0);
            self.crash_manager();
        }
        if !self.server.is_healthy() {
            self.server.crash(0);
        }
        self.come_up().await;
        // Whatever users sent in time of trouble arrives before they tidy up: a CronJob that came later would run for ever.
        while self.network.has_late_calls() {
            self.wait_until(Instant::now() + LOOK).await;
        }
        if let Err(error) = self.users.tidy().await {
            self.violations.push(error);
        }
    }

    /// Waits until nothing changes any more; complains if that takes too long.
    pub(crate) async fn settle(&mut self) {
        let deadline = Instant::now() + SETTLE_MAX;
        let (mut newest, mut quiet_since) = (self.newest_change(), Instant::now());
        while quiet_since.elapsed() < QUIET && self.violations.is_empty() {
            self.wait_until(Instant::now() + 5 * LOOK).await;
            let newest_now = self.newest_change();
            if newest_now != newest {
                (newest, quiet_since) = (newest_now, Instant::now());
            }
            if Instant::now() >= deadline {
                self.violations.push(format!("INV-30: not at rest {SETTLE_MAX:?} after everything was healed"));
            }
        }
        let running: BTreeSet<Arc<str>> = self.nodes.iter().flat_map(|place| place.machine.running()).collect();
        if let Some(store) = self.server.store() {
            self.violations.extend(settled::check(store, &running, self.clock.ahead_millis() < 0));
        }
        for place in &self.nodes {
            self.violations.extend(place.machine.violations());
        }
    }

    /// What the server and all others have to do with.
    #[cfg(test)]
    pub(crate) fn held_by_all(&self) -> (Clock, Network) {
        (self.clock.clone(), self.network.clone())
    }

    /// Who did what.
    pub(crate) fn take_notes(&self) -> Notes {
        self.network.take_notes()
    }

    pub(crate) fn disk(&self) -> &store::testing::ForgetfulDisk {
        &self.server.disk
    }

    /// The newest revision that is not about Events, which come and go without meaning.
    fn newest_change(&self) -> u64 {
        let Some(store) = self.server.store() else { return 0 };
        let newest = |topic: &str| {
            let list = store.list(&store::ListQuery::new(topic)).map(|list| list.entries).unwrap_or_default();
            (list.len() as u64, list.iter().map(|entry| entry.revision).max().unwrap_or(0))
        };
        let topics = ["jobs.batch/", "pods/", "cronjobs.batch/", "namespaces/", "nodes/", "configmaps/"];
        topics.iter().map(|topic| newest(topic)).fold(0, |mixed, (count, revision)| {
            mixed.wrapping_mul(1_000_003).wrapping_add(revision).wrapping_mul(31).wrapping_add(count)
        })
    }

    /// Brings up whatever is down.
    async fn come_up(&mut self) {
        while !self.server.is_up() && self.violations.is_empty() {
            self.start_server().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if self.manager.is_none() {
            self.start_manager();
        }
        for number in 0..self.nodes.len() {
            self.start_node(number).await;
        }
        let created = self.users.insist(|| self.users.create_namespace(NAMESPACES[1])).await;
        if let Err(error) = created {
            self.violations.push(error);
        }
    }

    async fn start_server(&mut self) {
        if let Err(error) = self.server.start(self.gates).await {
            // A disk that cannot be read is no broken promise, as long as it says so.
            if error.contains("INV-") || !error.starts_with("open") {
                self.violations.push(error);
            } else {
                self.counters.add("server starts that could not read the disk");
                self.server.disk.fail_reads(Unreadable::None);
            }
        }
    }

    fn start_manager(&mut self) {
        let random = Random::new(self.random.number());
        let manager = Manager::start(&self.network, &self.clock, random, self.gates);
        if self.second.is_some() {
            manager.meet_rival();
        }
        self.manager = Some(manager);
    }

    async fn start_node(&mut self, number: usize) {
        let random = Random::new(self.random.number());
        let place = &mut self.nodes[number];
        if place.process.is_some() {
            return;
        }
        if !place.is_registered {
            let client = self.network.client("node", &Life::default());
            let (name, clock) = (place.name, place.clock.clone());
            for _ in 0..50 {
                if node::register(&client, name, clock.now()).await.is_ok() {
                    place.is_registered = true;
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        place.process = Some(Node::start(place.name, &place.machine, &self.network, &place.clock, random));
    }

    async fn fault(&mut self, fault: &Fault) {
        self.counters.add(&format!("fault: {}", name(fault)));
        match fault {
            Fault::ManagerCrash { down_millis } => {
                self.crash_manager();
                self.later(*down_millis, Return::Manager);
            }
            Fault::SecondManager { for_millis } => {
                let random = Random::new(self.random.number());
                if self.second.is_none() {
                    let second = Manager::start(&self.network, &self.clock, random, self.gates);
                    [Some(&second), self.manager.as_ref()].into_iter().flatten().for_each(Manager::meet_rival);
                    self.second = Some(second);
                    self.later(*for_millis, Return::SecondManagerEnds);
                }
            }
            Fault::ServerCrash { down_millis, kept } => {
                self.server.crash(*kept);
                self.later(*down_millis, Return::Server);
            }
            // The server is started again when somebody notices that its store takes no more writes.
            Fault::DiskWrite { fault, .. } => self.server.disk.fail_next(match fault {
                DiskFault::BeforeWrite => DiskError::BeforeWrite,
                DiskFault::Torn(bytes) => DiskError::Torn(*bytes),
                DiskFault::BeforeSync => DiskError::BeforeSync,
                DiskFault::AfterSync => DiskError::AfterSync,
            }),
            Fault::DiskFull { room, for_millis } => {
                self.server.disk.leave_room_for(*room);
                self.later(*for_millis, Return::DiskRoom);
            }
            Fault::DiskUnreadable { for_millis } => {
                self.server.disk.fail_reads(Unreadable::All);
                self.later(*for_millis, Return::DiskReads);
            }
            Fault::Compact => {
                if let Some(store) = self.server.store() {
                    let revision = store.revision();
                    if store.clone().compact(revision).await.is_ok() && self.manager.is_some() {
                        // The controllers watch from the moment that they run.
                        self.counters.add("history compacted under a watcher");
                    }
                }
            }
            Fault::ClockJump { millis } => {
                self.network.note_jump(*millis);
                self.clock.jump(*millis);
            }
            Fault::NodeClockJump { node, millis } => self.nodes[*node].clock.jump(*millis),
            Fault::NodeCrash { node, down_millis } => {
                self.crash_node(*node);
                self.later(*down_millis, Return::Node(*node));
            }
            Fault::NodeReboot { node, down_millis } => {
                self.crash_node(*node);
                self.nodes[*node].machine.reboot();
                self.later(*down_millis, Return::Node(*node));
            }
            Fault::NodeGone { node, down_millis } => {
                self.crash_node(*node);
                self.nodes[*node].machine.reboot();
                self.lose_node(*node).await;
                self.later(*down_millis, Return::Node(*node));
            }
            Fault::Gates { managed_by, replacement_policy, ttl } => {
                self.gates = Gates {
                    job_managed_by: *managed_by,
                    job_pod_replacement_policy: *replacement_policy,
                    ttl_after_finished: *ttl,
                };
                self.server.crash(0);
                self.crash_manager();
                self.end_second();
                self.later(1, Return::Server);
                self.later(2, Return::Manager);
            }
        }
    }

    fn crash_manager(&mut self) {
        if let Some(manager) = self.manager.take() {
            manager.crash();
        }
    }

    fn end_second(&mut self) {
        if let Some(second) = self.second.take() {
            second.crash();
            self.manager.iter().for_each(Manager::lose_rival);
        }
    }

    fn crash_node(&mut self, number: usize) {
        if let Some(process) = self.nodes[number].process.take() {
            process.crash();
        }
    }

    async fn lose_node(&mut self, number: usize) {
        let client = self.network.client("users", &Life::default());
        let place = &mut self.nodes[number];
        let name = place.name;
        let unregistered = tokio::time::timeout(Duration::from_secs(5), node::unregister(&client, name)).await;
        // Unknown whether it is gone: it is registered again either way.
        let _ = unregistered;
        place.is_registered = false;
    }

    fn later(&mut self, millis: u64, what: Return) {
        self.next_return += 1;
        self.returns.insert((Instant::now() + Duration::from_millis(millis), self.next_return), what);
    }

    /// Lets time pass, with all that comes back in the meantime.
    async fn wait_until(&mut self, moment: Instant) {
        loop {
            let next = self.returns.first_key_value().map(|((at, _), _)| *at);
            let look = Instant::now() + LOOK;
            let until = [Some(moment), next, Some(look)].into_iter().flatten().min().unwrap_or(moment);
            sleep_until(until).await;
            self.look();
            while let Some(entry) = self.returns.first_entry().filter(|entry| entry.key().0 <= Instant::now()) {
                let what = entry.remove();
                self.comes_back(what).await;
            }
            if Instant::now() >= moment {
                return;
            }
        }
    }

    async fn comes_back(&mut self, what: Return) {
        match what {
            Return::Server if !self.server.is_up() => {
                self.start_server().await;
                if !self.server.is_up() {
                    self.later(1000, Return::Server);
                }
            }
            Return::Manager if self.manager.is_none() => self.start_manager(),
            Return::Server | Return::Manager => {}
            Return::SecondManagerEnds => self.end_second(),
            Return::Node(number) => self.start_node(number).await,
            Return::DiskRoom => self.server.disk.leave_room_for(usize::MAX),
            Return::DiskReads => self.server.disk.fail_reads(Unreadable::None),
        }
    }

    /// Looks whether everything that should run does.
    fn look(&mut self) {
        for manager in [&mut self.manager, &mut self.second].into_iter().flatten() {
            if let Some(name) = manager.died() {
                self.violations.push(format!("a controller ended by itself: {name}"));
            }
        }
        for place in &mut self.nodes {
            if place.process.as_mut().is_some_and(Node::has_died) {
                self.violations.push(format!("{} ended by itself", place.name));
            }
        }
        if !self.server.is_healthy() {
            // Whoever runs the server notices that it cannot write and starts it again.
            let kept = usize::try_from(self.random.below(4000)).unwrap_or(0);
            self.server.crash(kept);
            self.later(1000, Return::Server);
        }
    }
}

fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::ManagerCrash { .. } => "controllers crash",
        Fault::SecondManager { .. } => "controllers run twice",
        Fault::ServerCrash { .. } => "API server crashes",
        Fault::DiskWrite { fault: DiskFault::BeforeWrite, .. } => "a write to disk fails",
        Fault::DiskWrite { fault: DiskFault::Torn(_), .. } => "a write to disk is torn",
        Fault::DiskWrite { fault: DiskFault::BeforeSync, .. } => "a sync fails",
        Fault::DiskWrite { fault: DiskFault::AfterSync, .. } => "a sync succeeds unheard",
        Fault::DiskFull { .. } => "the disk fills up",
        Fault::DiskUnreadable { .. } => "the disk cannot be read",
        Fault::Compact => "history is compacted",
        Fault::ClockJump { .. } => "the clock is set",
        Fault::NodeClockJump { .. } => "a node's clock is set",
        Fault::NodeCrash { .. } => "a node's process crashes",
        Fault::NodeReboot { .. } => "a machine reboots",
        Fault::NodeGone { .. } => "a machine is lost",
        Fault::Gates { .. } => "gates are switched",
    }
}
