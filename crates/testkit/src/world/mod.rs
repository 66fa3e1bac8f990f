//! A whole cluster in one thread and virtual time: the real API server on an in-memory store, the real controllers, a
//! stand-in for the kubelets, and users who follow a script.
//!
//! Everything that could differ between two runs is given: the clock is tokio's paused one, random numbers have a seed,
//! and the store commits on the caller's task. So the same scenario with the same faults makes the same calls in the same
//! order, and writes the same revisions.
//!
//! The same stand-ins and scripts can be put in a real cluster ([`World::within`]), where nothing of that holds.

mod clock;
mod kubelet;
mod life;
mod script;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use apiserver::{ApiServer, Environment, Options, storage::ObjectStore};
use bytes::Bytes;
use controllers::runtime::{
    Resource,
    requests::{self, Ignored, PatchType},
};
use http::Request;
use kube::{Client, client::Body};
use serde_json::Value;
use store::Backend;

use self::{
    clock::Chance,
    kubelet::Kubelet,
    life::{Host, Life},
    script::{Play, Stage},
};
pub use self::{
    clock::Clock,
    kubelet::{Behaviour, Behaviours, PodFacts, Reports},
    life::Controllers,
    script::{Step, What, When, edit},
};
use crate::{
    cluster::{self, Cluster},
    faults::Wire,
    node::{Fate, Instance, Machine},
    oracle::{self, Record},
};

pub(crate) const PODS: Resource = Resource::PODS;
pub(crate) const JOBS: Resource = Resource::JOBS;
/// Where pods of scenarios run.
pub(crate) const NODE: &str = "node";

/// How long a process is down after a crash.
const DOWN: Duration = Duration::from_millis(100);

/// How long a world is waited for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Nothing happens for so long: then nothing will.
    quiet: Duration,
    /// The same while a Job goes on, which may only wait.
    quiet_amid_jobs: Duration,
    /// The same when all has come to rest before, and a new process that remembers nothing has looked at it.
    quiet_again: Duration,
    /// A world that has not come to rest by then never will (INV-30).
    horizon_ms: u64,
}

impl Patience {
    /// Longer than any delay there is: retries come within a minute, and creations that are never seen are expected for
    /// five, by those who made them.
    const VIRTUAL: Self = Self {
        quiet: Duration::from_secs(330),
        quiet_amid_jobs: Duration::from_secs(330),
        quiet_again: Duration::from_secs(130),
        horizon_ms: 4 * 3_600_000,
    };
    /// As long as one can wait.
    const REAL: Self = Self {
        quiet: Duration::from_millis(1_500),
        quiet_amid_jobs: Duration::from_secs(20),
        quiet_again: Duration::from_millis(1_500),
        horizon_ms: 120_000,
    };
}

/// What a world begins with and what happens in it.
#[derive(Debug, Clone)]
pub struct Setting {
    pub controllers: Controllers,
    pub behaviours: Behaviours,
    pub script: Vec<Step>,
    pub seed: u64,
}

/// See the module's text.
pub struct World {
    pub store: ObjectStore,
    pub wire: Wire,
    pub clock: Clock,
    client: Client,
    host: Host,
    patience: Patience,
    chance: Chance,
    setting: Setting,
    life: Option<Life>,
    /// The containers, where the node is a real one. They outlive a life.
    machine: Machine,
    /// What the kubelet still has to do.
    pending: Arc<AtomicUsize>,
    /// How far the users are.
    stage: Stage,
    /// What was wrong with processes that are over.
    complaints: Vec<String>,
    /// Metrics of lives that are over, and of the present one at the end.
    pub metrics: Vec<String>,
    /// More calls than this are a sign of a loop (INV-29).
    pub calls_max: usize,
    /// Whether metrics are kept.
    pub keep_metrics: bool,
}

/// Why a world did not come to rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unrest {
    /// Time is up, or a step of the script waits for something that does not come.
    Horizon,
    /// More calls than anybody needs.
    Calls(usize),
}

impl World {
    /// A world on the present runtime, whose clock must be paused. No controller runs yet.
    pub async fn new(setting: Setting) -> Self {
        let clock = Clock::start();
        let chance = Chance::seeded(setting.seed);
        let options = store::Options {
            writing: store::Writing::Inline,
            clock: store::Clock::new(move || Duration::from_millis(clock.millis())),
            history: store::History { age_max: Duration::from_secs(365 * 86_400), ..store::History::default() },
            ..store::Options::default()
        };
        let store =
            store::Store::open(begun(), options, apiserver::storage::attributes()).expect("a store in memory opens");
        let environment = {
            let chance = chance.clone();
            Environment::new(move || clock.now(), move || chance.wide())
        };
        let options = Options { admin_token: None, gates: batch_types::gates::Gates::DEFAULT, environment };
        let server = ApiServer::new(store.clone(), options).await.expect("an empty store takes the first objects");
        let revision = {
            let store = store.clone();
            move || store.revision()
        };
        let position = {
            let chance = chance.clone();
            move || chance.position()
        };
        let wire = Wire::new(server.client(), revision, position, clock);
        let client = wire.world_client();
        Self::of(Host::Here(server), setting, store, wire, client, clock, chance)
    }

    /// A world in a cluster, in real time, with the controllers in a process of their own. Nothing runs yet.
    pub async fn within(cluster: &Cluster, setting: Setting) -> Result<Self> {
        let session = cluster::Session::begin(cluster).await?;
        let (clock, chance) = (Clock::real(), Chance::seeded(setting.seed));
        let wire = Wire::new(session.server(), session.revision(), || 0, clock);
        let (store, client) = (session.store(), session.world_client(&wire));
        Ok(Self::of(Host::Elsewhere(session), setting, store, wire, client, clock, chance))
    }

    fn of(
        host: Host,
        setting: Setting,
        store: ObjectStore,
        wire: Wire,
        client: Client,
        clock: Clock,
        chance: Chance,
    ) -> Self {
        Self {
            store,
            wire,
            clock,
            client,
            patience: match host {
                Host::Here(_) => Patience::VIRTUAL,
                Host::Elsewhere(_) => Patience::REAL,
            },
            host,
            chance,
            setting,
            life: None,
            machine: Machine::new(Arc::new(move |moment| clock.at(moment)), Arc::new(fate)),
            pending: Arc::default(),
            stage: Stage::default(),
            complaints: Vec::new(),
            metrics: Vec::new(),
            calls_max: usize::MAX,
            keep_metrics: false,
        }
    }

    /// Starts everything and lets it happen until nothing does any more.
    pub async fn play(&mut self) -> Result<(), Unrest> {
        if !self.setting.controllers.node {
            let kubelet = Kubelet::new(self.client.clone(), self.clock, self.setting.behaviours, self.pending.clone());
            tokio::spawn(kubelet.run(self.store.clone()));
        }
        self.begin_life();
        let play = Play {
            store: self.store.clone(),
            client: self.client.clone(),
            wire: self.wire.clone(),
            clock: self.clock,
            stage: self.stage.clone(),
        };
        tokio::spawn(play.run(std::mem::take(&mut self.setting.script)));
        let (stage, store) = (self.stage.clone(), self.store.clone());
        // A fault can make impossible what a user waits for; when all Jobs are over it does not come any more.
        let done = || stage.is_over() || stage.is_waiting() && script::all_jobs_are_over(&store);
        self.settle(self.patience.quiet, done).await
    }

    /// Whether the same calls come at the same moments each time.
    pub fn is_repeatable(&self) -> bool {
        matches!(self.host, Host::Here(_))
    }

    /// Whether the users have done all they had to do.
    pub fn has_played(&self) -> bool {
        self.stage.is_over()
    }

    /// What is wrong with the containers of a real node that has come to rest (INV-49, INV-50).
    pub fn container_violations(&self) -> Vec<String> {
        let mut violations = self.machine.violations();
        let live = script::live_pods(&self.store);
        let left = self.machine.running().into_iter().filter(|uid| !live.contains(&**uid));
        violations.extend(left.map(|uid| format!("INV-49: a process of the pod {uid}, which is over, runs")));
        violations
    }

    /// Ends the present process and lets a new one with empty memory come to rest.
    pub async fn restart(&mut self) -> Result<(), Unrest> {
        self.end_life();
        self.wire.next_life();
        self.begin_life();
        self.settle(self.patience.quiet_again, || true).await
    }

    async fn settle(&mut self, quiet: Duration, done: impl Fn() -> bool) -> Result<(), Unrest> {
        let mut calm = Duration::ZERO;
        loop {
            let before = (self.store.revision(), self.wire.call_count());
            let crashed = self.wire.clone();
            tokio::select! {
                biased;
                () = crashed.crashed() => {
                    self.end_life();
                    self.wire.next_life();
                    tokio::time::sleep(DOWN).await;
                    self.begin_life();
                    continue;
                }
                () = tokio::time::sleep(quiet) => {}
            }
            let after = (self.store.revision(), self.wire.call_count());
            calm = if before == after { calm + quiet } else { Duration::ZERO };
            let at_rest = done() && self.pending.load(Ordering::Relaxed) == 0 && calm >= self.quiet_enough(quiet);
            if at_rest && !self.wire.land_all().await {
                return Ok(());
            }
            if after.1 > self.calls_max {
                return Err(Unrest::Calls(after.1));
            }
            if self.clock.millis() > self.patience.horizon_ms {
                return Err(Unrest::Horizon);
            }
        }
    }

    fn quiet_enough(&self, quiet: Duration) -> Duration {
        let Patience { quiet_amid_jobs, .. } = self.patience;
        if quiet >= quiet_amid_jobs || script::all_jobs_are_over(&self.store) { quiet } else { quiet_amid_jobs }
    }

    fn begin_life(&mut self) {
        let World { setting, machine, wire, clock, chance, .. } = &*self;
        self.life = Some(Life::begin(&self.host, &setting.controllers, machine, wire, *clock, chance));
    }

    fn end_life(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        self.complaints.extend(life.complaint());
        if self.keep_metrics {
            self.metrics.extend(life.job_metrics());
        }
    }

    /// What is wrong with the processes of the controllers so far, where they are processes.
    pub fn process_complaints(&mut self) -> Vec<String> {
        let last = self.life.as_mut().and_then(Life::complaint);
        self.complaints.drain(..).chain(last).collect()
    }

    /// Every change of pods, Jobs and CronJobs in its order, and who made it.
    pub fn records(&self) -> Vec<Record> {
        let authored = self.wire.authored();
        match self.host {
            Host::Here(_) => oracle::records(&self.store, &authored),
            Host::Elsewhere(_) => oracle::records_by(&self.store, &authored, cluster::revision_there),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Host::Here(server) = &self.host {
            server.stop();
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("store", &self.store).field("wire", &self.wire).finish_non_exhaustive()
    }
}

/// Does in advance what every world begins with.
pub fn prepare() {
    begun();
}

/// A store's records with what every server makes first, which is the same each time and takes a while.
fn begun() -> store::MemoryBackend {
    static RECORDS: OnceLock<Vec<(u64, Bytes)>> = OnceLock::new();
    let records = RECORDS.get_or_init(|| {
        let backend = store::MemoryBackend::default();
        let opened = backend.clone();
        let bootstrap = || in_virtual_time(bootstrap(opened));
        match tokio::runtime::Handle::try_current() {
            // Elsewhere, because one runtime cannot be within another.
            Ok(_) => std::thread::scope(|scope| scope.spawn(bootstrap).join()).expect("an empty store takes objects"),
            // A thread would leave its stack behind, for as long as the process is there.
            Err(_) => bootstrap(),
        }
        let mut records = Vec::new();
        let mut keep = |revision, bytes: &[u8]| {
            records.push((revision, Bytes::copy_from_slice(bytes)));
            true
        };
        backend.scan(&mut keep).expect("memory can be read");
        records
    });
    let backend = store::MemoryBackend::default();
    backend.apply(store::Batch { puts: records.clone(), ..store::Batch::default() }).expect("memory can be written");
    backend
}

async fn bootstrap(backend: store::MemoryBackend) {
    let chance = Chance::seeded(0);
    let clock = Clock::start();
    let options = store::Options { writing: store::Writing::Inline, ..store::Options::default() };
    let store = store::Store::open(backend, options, apiserver::storage::attributes()).expect("memory opens");
    let environment = Environment::new(move || clock.now(), move || chance.wide());
    let options = Options { admin_token: None, gates: batch_types::gates::Gates::DEFAULT, environment };
    ApiServer::new(store, options).await.expect("an empty store takes the first objects");
}

/// A container's arguments say what its processes do: `run=MILLIS`, and the first `fails=TIMES` end with 1.
fn fate(instance: &Instance, arguments: &[String]) -> Fate {
    let value = |name: &str| arguments.iter().find_map(|text| text.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| value(name).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    Fate {
        runs: Duration::from_millis(number("run").into()),
        code: i32::from(instance.attempt < number("fails")),
        stop_takes: Duration::from_millis(400),
    }
}

/// Runs something on a runtime of its own whose clock is paused.
pub fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without a driver needs nothing");
    runtime.block_on(work)
}

// Users and kubelets: a refusal is an answer like any other, because faults may have taken the object away.

async fn create(client: &Client, path: &str, object: Value) {
    let _ = requests::create::<Ignored>(client, path, &object).await;
}

async fn patch(client: &Client, path: &str, patch: Value) {
    let _ = requests::patch::<Ignored>(client, path, PatchType::Merge, &patch).await;
}

async fn patch_status(client: &Client, path: &str, patch: Value) {
    let _ = requests::patch::<Ignored>(client, path, PatchType::Merge, &patch).await;
}

async fn delete(client: &Client, path: &str, options: Value) {
    let request = Request::delete(path)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Body::from(options.to_string().into_bytes()));
    if let Ok(request) = request {
        let _ = client.send(request).await;
    }
}
