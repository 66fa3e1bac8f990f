//! One watch for every kind that can be collected, and the graph they keep.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use batch_plan::gc::Kind;
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Shared,
    projection::{self, Metadata},
};
use crate::runtime::{
    Change, ControllerContext, Progress, Reflector, Resource, Shutdown, Source,
    discovery::{Served, discover},
    intern::Interner,
    retry_on_recovery,
};

/// Verbs that a kind needs to be collected.
const COLLECTED: &[&str] = &["delete", "list", "watch"];

/// Every served kind by group and kind, for finding owners.
pub(super) type Kinds = Arc<RwLock<HashMap<(String, String), Arc<Kind>>>>;

/// Watches all kinds.
pub(super) struct Monitors {
    context: ControllerContext,
    shared: Shared,
    kinds: Kinds,
    discovery_period: Duration,
    interner: Arc<Mutex<Interner>>,
    running: HashMap<Resource, Shutdown>,
    tasks: JoinSet<()>,
    filled: watch::Sender<bool>,
}

/// Says when everything was seen once.
pub(super) struct Filled(watch::Receiver<bool>);

impl Filled {
    pub(super) async fn wait(mut self) {
        if self.0.wait_for(|filled| *filled).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Monitors {
    pub(super) fn new(context: ControllerContext, shared: Shared, discovery_period: Duration) -> Self {
        Self {
            context,
            shared,
            kinds: Kinds::default(),
            discovery_period,
            interner: Arc::default(),
            running: HashMap::new(),
            tasks: JoinSet::new(),
            filled: watch::Sender::new(false),
        }
    }

    pub(super) fn kinds(&self) -> Kinds {
        self.kinds.clone()
    }

    pub(super) fn filled(&self) -> Filled {
        Filled(self.filled.subscribe())
    }

    /// Follows discovery until shutdown.
    pub(super) async fn run(mut self) {
        let shutdown = self.context.shutdown.clone();
        let mut first = true;
        while !shutdown.is_cancelled() {
            let delay = match discover(&self.context.client).await {
                Ok(found) => {
                    let complete = found.failed.is_empty();
                    let started = self.follow(found.resources, complete);
                    if std::mem::take(&mut first) {
                        self.announce_when_filled(started);
                    }
                    self.discovery_period
                }
                Err(error) => {
                    tracing::warn!(%error, "ask the server what it serves");
                    if first { Duration::from_millis(500) } else { self.discovery_period }
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(delay) => {}
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Starts monitors of new kinds and ends those of kinds that are gone.
    fn follow(&mut self, served: Vec<Served>, complete: bool) -> Vec<Progress> {
        // The two faces of events, and nothing owns or is owned by an event (PL-91).
        let collected: Vec<&Served> =
            served.iter().filter(|one| one.supports(COLLECTED) && one.kind != "Event").collect();
        if complete {
            let wanted: HashSet<&Resource> = collected.iter().map(|one| &one.resource).collect();
            self.running.retain(|resource, monitor| {
                let keep = wanted.contains(resource);
                if !keep {
                    monitor.cancel();
                }
                keep
            });
        }
        let mut kinds = self.kinds.write();
        for one in &served {
            kinds.entry((one.resource.group.to_string(), one.kind.clone())).or_insert_with(|| kind_of(one));
        }
        drop(kinds);
        let mut started = Vec::new();
        for one in collected {
            if !self.running.contains_key(&one.resource) {
                started.push(self.start(one));
            }
        }
        started
    }

    fn start(&mut self, served: &Served) -> Progress {
        let source = Source { metadata_only: true, ..Source::all(served.resource.clone()) };
        let reflector = Reflector::<Metadata>::new(&self.context, source);
        let progress = reflector.progress();
        let shutdown = self.context.shutdown.child_token();
        self.running.insert(served.resource.clone(), shutdown.clone());
        // Whichever kind is watched again first, the server is well.
        for queue in [&self.shared.judge, &self.shared.orphan] {
            self.tasks.spawn(retry_on_recovery(queue.clone(), progress.clone(), shutdown.clone()));
        }
        let (shared, interner, kind) = (self.shared.clone(), self.interner.clone(), kind_of(served));
        self.tasks.spawn(reflector.run(shutdown, move |change| note(&shared, &interner, &kind, change)));
        progress
    }

    fn announce_when_filled(&mut self, mirrors: Vec<Progress>) {
        let filled = self.filled.clone();
        let shutdown = self.context.shutdown.clone();
        self.tasks.spawn(async move {
            if crate::runtime::all_synced(&mirrors.iter().collect::<Vec<_>>(), &shutdown).await {
                filled.send_replace(true);
            }
        });
    }
}

pub(super) fn note(shared: &Shared, interner: &Mutex<Interner>, kind: &Arc<Kind>, change: Change<Metadata>) {
    let mut graph = shared.graph.lock();
    let steps = match change {
        Change::Applied(object) => graph.apply(projection::object(&mut interner.lock(), kind, object.metadata)),
        Change::Deleted(object) => graph.remove(&object.metadata.uid),
        Change::Vanished { uid } => graph.remove(&uid),
        Change::Synced => return,
    };
    shared.take(&graph, steps);
}

fn kind_of(served: &Served) -> Arc<Kind> {
    Arc::new(Kind {
        group: served.resource.group.to_string(),
        version: served.resource.version.to_string(),
        kind: served.kind.clone(),
        plural: served.resource.plural.to_string(),
        namespaced: served.namespaced,
    })
}
