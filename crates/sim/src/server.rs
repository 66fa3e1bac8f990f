//! The API server on its disk: starts, dies with what was not synced, and comes back (P-10, P-17).

use std::time::Duration;

use apiserver::storage::{ObjectStore, attributes};
use apiserver::{ApiServer, Environment, Options};
use batch_types::gates::Gates;
use parking_lot::Mutex;
use store::testing::ForgetfulDisk;
use store::{History, Recent, SyncTime, Writing};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::counters::Counters;
use crate::network::{Callee, Network};
use crate::random::Random;
use crate::scenario::Sizes;

pub(crate) struct Server {
    pub(crate) disk: ForgetfulDisk,
    network: Network,
    clock: Clock,
    random: Random,
    sizes: Sizes,
    counters: Counters,
    running: Option<Running>,
    /// Highest revision that anybody can have seen.
    seen: u64,
}

struct Running {
    store: ObjectStore,
    dead: CancellationToken,
}

impl Server {
    pub(crate) fn new(network: Network, clock: Clock, random: Random, sizes: Sizes, counters: Counters) -> Self {
        Self { disk: ForgetfulDisk::default(), network, clock, random, sizes, counters, running: None, seen: 0 }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn store(&self) -> Option<&ObjectStore> {
        self.running.as_ref().map(|running| &running.store)
    }

    /// Whether the store can still write; a server whose store cannot is of no use and is started again.
    pub(crate) fn is_healthy(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.store.health().is_ok())
    }

    /// Opens what is on the disk and serves it. An error is a broken promise, unless the disk cannot be read.
    pub(crate) async fn start(&mut self, gates: Gates) -> Result<(), String> {
        let opened = Instant::now();
        let weather = self.network.weather();
        let writing = match weather.sync_millis_max {
            0 => Writing::Inline,
            _ => Writing::InlineAfter(self.sync_time()),
        };
        let options = store::Options {
            history: History { events_max: self.sizes.history_events_max, ..History::default() },
            recent: Recent { events_max: self.sizes.recent_events_max, ..Recent::default() },
            clock: store::Clock::new(move || opened.elapsed()),
            writing,
        };
        let store =
            ObjectStore::open(self.disk.mount(), options, attributes()).map_err(|error| format!("open: {error}"))?;
        if store.revision() < self.seen {
            return Err(format!("INV-42: revision {} was seen, and {} is there", self.seen, store.revision()));
        }
        let (clock, random) = (self.clock.clone(), Mutex::new(Random::new(self.random.number())));
        let environment = Environment::new(
            move || clock.now(),
            move || {
                let mut random = random.lock();
                (u128::from(random.number()) << 64) | u128::from(random.number())
            },
        );
        let options = Options { admin_token: None, gates, environment };
        let Ok(server) = ApiServer::new(store.clone(), options).await else {
            // The disk failed in the middle of it. It is tried again.
            self.disk.lose_power(0);
            self.counters.add("server starts that failed");
            return Ok(());
        };
        let dead = CancellationToken::new();
        let revisions = store.clone();
        let revision = std::sync::Arc::new(move || revisions.revision());
        self.network.connect(Some(Callee { client: server.client(), revision, dead: dead.clone() }));
        self.running = Some(Running { store, dead });
        Ok(())
    }

    /// The machine loses power; of what was not synced, up to `kept` bytes are there afterwards.
    pub(crate) fn crash(&mut self, kept: usize) {
        let Some(running) = self.running.take() else { return };
        self.counters.add("server crashes");
        if self.disk.unsynced() > 0 {
            self.counters.add("recoveries with unsynced data");
        }
        self.seen = self.seen.max(running.store.revision());
        self.network.connect(None);
        running.dead.cancel();
        if self.disk.lose_power(kept) {
            self.counters.add("recoveries with a torn tail");
        }
    }

    fn sync_time(&mut self) -> SyncTime {
        let (network, random) = (self.network.clone(), Mutex::new(Random::new(self.random.number())));
        SyncTime::new(move || Duration::from_millis(random.lock().below(network.weather().sync_millis_max + 1)))
    }
}
