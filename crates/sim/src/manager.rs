//! A process that runs all controllers, as `tally up` does. It can die at any moment and there can be two (P-1, P-12).

use std::time::Duration;

use batch_plan::job::{Manager as Name, Settings};
use batch_types::gates::Gates;
use controllers::runtime::{ControllerContext, Environment, Metrics, Shutdown};
use controllers::{cronjob, gc, job, namespace, podgc, scheduler, ttl};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::network::{Life, Network};
use crate::random::Random;

/// Few: what a thousand workers do at a time, four do one after the other, with more steps between which to fail.
const WORKERS: usize = 4;

pub(crate) struct Manager {
    life: Life,
    tasks: JoinSet<&'static str>,
}

impl Manager {
    pub(crate) fn start(network: &Network, clock: &Clock, mut random: Random, gates: Gates) -> Self {
        let life = Life::default();
        let shutdown = Shutdown::new();
        let workers = usize::try_from(random.between(1, WORKERS as u64)).unwrap_or(WORKERS);
        let (clock, random) = (clock.clone(), Mutex::new(random));
        let environment = Environment::new(move || clock.now(), move || random.lock().number());
        let client = network.client("events", &life);
        let (context, events) = ControllerContext::new(client, Metrics::new(), environment, shutdown.clone());
        // To each its own, so that it can be told who wrote what.
        let context = |name| ControllerContext { client: network.client(name, &life), ..context.clone() };
        let settings = Settings { gates, manager: Name::BuiltIn, ..Settings::default() };
        let mut tasks = JoinSet::new();
        let mut spawn = |name: &'static str, task: futures_util::future::BoxFuture<'static, ()>| {
            tasks.spawn(async move {
                task.await;
                name
            });
        };
        spawn("events", events.run(shutdown).boxed());
        let options = job::Options { settings, workers, ..job::Options::default() };
        spawn("job", job::run(context("job"), options).boxed());
        spawn("ttl", ttl::run(context("ttl"), ttl::Options { gates, workers, ..ttl::Options::default() }).boxed());
        let options = cronjob::Options { workers, ..cronjob::Options::default() };
        spawn("cronjob", cronjob::run(context("cronjob"), options).boxed());
        // What is served does not change while a simulation runs.
        let options = gc::Options { workers, discovery_period: Duration::from_secs(3600), ..gc::Options::default() };
        spawn("gc", gc::run(context("gc"), options).boxed());
        spawn("podgc", podgc::run(context("podgc"), podgc::Options::default()).boxed());
        let options = namespace::Options { workers, ..namespace::Options::default() };
        spawn("namespace", namespace::run(context("namespace"), options).boxed());
        spawn("scheduler", scheduler::run(context("scheduler"), scheduler::Options::default()).boxed());
        Self { life, tasks }
    }

    /// A controller that has ended although nobody had asked it to: its name.
    pub(crate) fn died(&mut self) -> Option<String> {
        let ended = self.tasks.try_join_next()?;
        Some(ended.map_or_else(|error| error.to_string(), str::to_owned))
    }

    /// Another one does the same work.
    pub(crate) fn meet_rival(&self) {
        self.life.meet_rival();
    }

    /// It does not any more.
    pub(crate) fn lose_rival(&self) {
        self.life.lose_rival();
    }

    /// Everything stops where it stands, and so do tasks that were let go of: nothing they send arrives.
    pub(crate) fn crash(mut self) {
        self.life.end();
        self.tasks.abort_all();
    }
}
