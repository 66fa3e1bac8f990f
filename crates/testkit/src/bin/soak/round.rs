//! One round: start, compare, write under load, kill.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use testkit::{Tally, config_map};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::model::{Asked, Key, Seen, Version, WatchLog};
use crate::random::Random;

/// Few keys a writer, so that most writes are updates and removals of something that exists.
const KEYS: u64 = 20;
/// With this the objects are about 2 kB.
const PADDING: usize = 1500;
/// The server is killed after a random time up to this, in the middle of commits, compactions and flushes alike.
const LOAD_MILLIS_MAX: u64 = 200;
/// Nothing here takes a second on an idle machine; what takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state that outlives the server.
#[derive(Debug)]
pub(crate) struct Soak {
    binary: PathBuf,
    data: PathBuf,
    random: Random,
    writers: Vec<Writer>,
    markers: BTreeMap<String, Key>,
    log: Option<WatchLog>,
    /// No revision up to this one may be given out again.
    highest: u64,
    starts: Vec<Duration>,
    acknowledged: usize,
}

impl Soak {
    pub(crate) fn new(binary: &Path, data: &Path, writers: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let writers = (0..writers).map(|number| Writer::new(number, random.fork())).collect();
        Self {
            binary: binary.to_owned(),
            data: data.to_owned(),
            random,
            writers,
            markers: BTreeMap::new(),
            log: None,
            highest: 0,
            starts: Vec::new(),
            acknowledged: 0,
        }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    pub(crate) fn watched(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.total)
    }

    /// How long each start took until the server was ready.
    pub(crate) fn starts(&self) -> &[Duration] {
        &self.starts
    }

    /// Starts the server on what the last kill left behind, checks it, and kills it under load.
    pub(crate) async fn round(&mut self, number: u32) -> Result<()> {
        let server = self.start()?;
        let api = Api::default_namespaced(server.client().await?);
        let said = async {
            self.compare(&api).await.context("compare with what was acknowledged")?;
            let log = self.catch_up(&api, number).await.context("resume the watch")?;
            self.load(&api, log, server).await
        };
        said.await
    }

    /// Checks what the last kill left behind and ends in order.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let mut server = self.start()?;
        let api = Api::default_namespaced(server.client().await?);
        self.compare(&api).await.context("compare with what was acknowledged")?;
        let log = self.catch_up(&api, u32::MAX).await.context("resume the watch")?;
        self.log = Some(log);
        let status = server.stop(PATIENCE)?;
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }

    fn start(&mut self) -> Result<Tally> {
        let server = Tally::start(&self.binary, &self.data, &["--node", "none", "--controllers", "none"])?;
        self.starts.push(server.started_in());
        Ok(server)
    }

    async fn compare(&mut self, api: &Api<ConfigMap>) -> Result<()> {
        let list = timeout(PATIENCE, api.list(&ListParams::default())).await??;
        let revision: u64 = list.metadata.resource_version.as_deref().unwrap_or_default().parse()?;
        ensure!(revision >= self.highest, "the server is at revision {revision}, and gave out {}", self.highest);
        self.highest = revision;
        let mut found = HashMap::new();
        for object in &list.items {
            // Others live in the namespace too, such as kube-root-ca.crt.
            if let Some(version) = version_of(object)? {
                found.insert(object.name_any(), version);
            }
        }
        let keys = self.writers.iter_mut().flat_map(|writer| &mut writer.keys).chain(&mut self.markers);
        for (name, key) in keys {
            key.reconcile(name, found.remove(name))?;
        }
        ensure!(found.is_empty(), "nobody wrote {found:?}");
        if self.log.is_none() {
            self.log = Some(WatchLog::starting_at(revision));
        }
        Ok(())
    }

    /// Resumes the watch where the dead server left it, up to a marker that is written now.
    async fn catch_up(&mut self, api: &Api<ConfigMap>, round: u32) -> Result<WatchLog> {
        let mut log = self.log.take().context("a log since the first round")?;
        let name = format!("marker-{round}");
        let mut marker = Key::default();
        marker.ask(Asked::Put(0));
        let created = timeout(PATIENCE, api.create(&PostParams::default(), &config_map(&name, "0"))).await??;
        let version = version_of(&created)?.context("a marker without a value")?;
        ensure!(version.revision > self.highest, "revision {} was given out twice", version.revision);
        marker.acknowledge(version.revision);
        self.markers.insert(name.clone(), marker);
        log.wrote(&name, version.revision);

        let events = timeout(PATIENCE, api.watch(&watch_params(), &log.last().to_string())).await??;
        let mut events = pin!(events);
        while log.last() < version.revision {
            let event = timeout(PATIENCE, events.try_next()).await.context("the watch is silent")??;
            if let Some(seen) = seen(event.context("the watch ended")?)? {
                log.record(seen)?;
            }
        }
        log.settle()?;
        Ok(log)
    }

    async fn load(&mut self, api: &Api<ConfigMap>, log: WatchLog, server: Tally) -> Result<()> {
        let events = timeout(PATIENCE, api.watch(&watch_params(), &log.last().to_string())).await??;
        let watching = tokio::spawn(follow(events, log));
        let mut writing = JoinSet::new();
        for writer in self.writers.drain(..) {
            writing.spawn(writer.run(api.clone(), self.highest));
        }
        // The one thing here that is a matter of time: the load itself.
        sleep(Duration::from_millis(self.random.below(LOAD_MILLIS_MAX))).await;
        let stderr = server.stderr();
        server.kill()?;
        // Warnings are fine: a batch that the kill tore is cut off, and the log says so.
        ensure!(!stderr.contains("panicked at") && !stderr.contains(" ERROR "), "the server complained:\n{stderr}");

        let mut written = Vec::new();
        while let Some(done) = timeout(PATIENCE, writing.join_next()).await.context("a writer hangs")? {
            let (writer, mut done) = done.context("a writer panicked")??;
            self.writers.push(writer);
            written.append(&mut done);
        }
        self.acknowledged += written.len();
        let mut log = timeout(PATIENCE, watching).await.context("the watch hangs")???;
        for done in written {
            match done {
                Done::Wrote { name, revision } => {
                    self.highest = self.highest.max(revision);
                    log.wrote(&name, revision);
                }
                Done::Removed { name, last } => log.removed(&name, last),
            }
        }
        self.highest = self.highest.max(log.last());
        self.log = Some(log);
        Ok(())
    }
}

/// Something the server has acknowledged.
#[derive(Debug)]
enum Done {
    Wrote { name: String, revision: u64 },
    Removed { name: String, last: u64 },
}

/// One client with keys that nobody else writes.
#[derive(Debug)]
struct Writer {
    keys: BTreeMap<String, Key>,
    random: Random,
    next_value: u64,
}

impl Writer {
    fn new(number: usize, random: Random) -> Self {
        let keys = (0..KEYS).map(|key| (format!("key-{number}-{key}"), Key::default())).collect();
        Self { keys, random, next_value: 1 }
    }

    /// Writes until the server is gone. Revisions must lie above `floor`.
    async fn run(mut self, api: Api<ConfigMap>, floor: u64) -> Result<(Self, Vec<Done>)> {
        let mut done = Vec::new();
        loop {
            match self.write(&api).await {
                Ok(Done::Wrote { name, revision }) if revision <= floor => {
                    bail!("`{name}` got revision {revision}, and {floor} was given out before")
                }
                Ok(one) => done.push(one),
                Err(kube::Error::Api(status)) => bail!("the server refused a write: {status}"),
                Err(_gone) => return Ok((self, done)),
            }
        }
    }

    async fn write(&mut self, api: &Api<ConfigMap>) -> kube::Result<Done> {
        let chosen = self.random.below(KEYS) as usize;
        let remove = self.random.below(5) == 0;
        let (name, key) = self.keys.iter_mut().nth(chosen).expect("chosen among the keys");
        let name = name.clone();
        if let (Some(old), true) = (key.current(), remove) {
            key.ask(Asked::Delete);
            api.delete(&name, &DeleteParams::default()).await?;
            key.acknowledge(0);
            return Ok(Done::Removed { name, last: old.revision });
        }
        let value = self.next_value;
        self.next_value += 1;
        let mut object = config_map(&name, &value.to_string());
        object.data.get_or_insert_default().insert("padding".to_owned(), "x".repeat(PADDING));
        object.metadata.resource_version = key.current().map(|old| old.revision.to_string());
        key.ask(Asked::Put(value));
        let stored = match key.current() {
            None => api.create(&PostParams::default(), &object).await?,
            Some(_) => api.replace(&name, &PostParams::default(), &object).await?,
        };
        let revision = stored.resource_version().unwrap_or_default().parse().unwrap_or(0);
        key.acknowledge(revision);
        Ok(Done::Wrote { name, revision })
    }
}

/// Adds what a watch delivers to the log, until the server is gone.
async fn follow(
    events: impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>,
    mut log: WatchLog,
) -> Result<WatchLog> {
    let mut events = pin!(events);
    while let Ok(Some(event)) = events.try_next().await {
        if let Some(seen) = seen(event)? {
            log.record(seen)?;
        }
    }
    Ok(log)
}

fn watch_params() -> WatchParams {
    WatchParams::default().disable_bookmarks()
}

/// The event as the log wants it; `None` for objects that the soak did not write.
fn seen(event: WatchEvent<ConfigMap>) -> Result<Option<Seen>> {
    let (object, deleted) = match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
        WatchEvent::Deleted(object) => (object, true),
        WatchEvent::Bookmark(_) => return Ok(None),
        WatchEvent::Error(status) => bail!("the watch ended with {status}"),
    };
    let version = version_of(&object)?;
    Ok(version.map(|version| Seen { revision: version.revision, name: object.name_any(), deleted }))
}

fn version_of(object: &ConfigMap) -> Result<Option<Version>> {
    let Some(value) = object.data.as_ref().and_then(|data| data.get("value")) else { return Ok(None) };
    let revision = object.resource_version().context("an object without a resourceVersion")?;
    Ok(Some(Version { value: value.parse()?, revision: revision.parse()? }))
}
