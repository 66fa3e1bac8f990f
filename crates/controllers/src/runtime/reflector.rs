//! A mirror of one resource: list, then watch from there, for as long as the process lives.
//!
//! Each object is decoded straight into the caller's projection `T` of it (design D4); the reflector itself remembers
//! only uid and resourceVersion of each, which is what it needs to tell what changed while it was not watching (P-7).
//! It holds no queue: the handler runs in the reflector's task, and a watch is read as fast as its events are handled.
//! What a cache of `T` looks like is up to each controller; [`super::cache`] has one for the simple cases.

use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::{Client, Error};
use prometheus_client::metrics::{counter::Counter, family::Family};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::Instant};

use super::{
    backoff::Backoff,
    context::ControllerContext,
    environment::Environment,
    known::Known,
    requests,
    resource::{Resource, push_parameter},
    supervise::Shutdown,
    watch_stream::{Frame, Page, WatchStream, decode_page},
};

/// A watch is asked to end after between one and two times this, so that clients spread over servers (AS-103).
const WATCH_SECONDS: u64 = 300;
/// A connection that died silently is noticed this long after the watch should have ended.
const WATCH_OVERTIME: Duration = Duration::from_secs(30);
/// A watch that says nothing for longer may be dead, and nobody tells: servers send a bookmark every minute (AS-106). To
/// open another one costs little.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// A watch that ends sooner, with nothing to say, counts as failed (AS-105).
const WATCH_MIN: Duration = Duration::from_secs(1);

/// What a reflector needs to know of the objects it mirrors.
pub trait Mirrored: DeserializeOwned + Send + 'static {
    fn uid(&self) -> &str;
    fn resource_version(&self) -> &str;
}

/// News about the mirrored resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// An object appeared or changed.
    Applied(T),
    /// An object was deleted, or stopped matching the selectors: its last state.
    Deleted(T),
    /// The object with this uid disappeared while nobody watched. Its last state is whatever was last applied.
    Vanished { uid: Box<str> },
    /// The mirror is complete: everything that existed at some moment since the start has been applied. Comes after the
    /// first list, and again after each later one.
    Synced,
}

/// Which objects to mirror.
#[derive(Debug, Clone)]
pub struct Source {
    pub resource: Resource,
    /// All namespaces if `None`.
    pub namespace: Option<String>,
    pub label_selector: String,
    pub field_selector: String,
    /// Ask for `PartialObjectMetadata`.
    pub metadata_only: bool,
}

impl Source {
    /// All objects of a resource, in all namespaces.
    pub fn all(resource: Resource) -> Self {
        Self {
            resource,
            namespace: None,
            label_selector: String::new(),
            field_selector: String::new(),
            metadata_only: false,
        }
    }

    /// Where to ask for them.
    pub fn address(&self, parameters: &[(&str, &str)]) -> String {
        let selectors = [("labelSelector", &*self.label_selector), ("fieldSelector", &*self.field_selector)];
        let mut query = String::new();
        for (name, value) in selectors.iter().chain(parameters).filter(|(_, value)| !value.is_empty()) {
            push_parameter(&mut query, name, value);
        }
        format!("{}?{query}", self.resource.collection(self.namespace.as_deref()))
    }
}

/// How far a reflector has come. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Progress {
    synced: watch::Receiver<bool>,
    version: Arc<AtomicU64>,
    /// How often the server was heard of again after a failure.
    recoveries: watch::Receiver<u64>,
}

impl Progress {
    /// Ready each time the server is heard of again after a failure. Never again, if the reflector has ended.
    pub async fn recovered(&mut self) {
        if self.recoveries.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Ready when the first list has been handled completely. Never, if the reflector ends before.
    pub async fn synced(&self) {
        if self.synced.clone().wait_for(|synced| *synced).await.is_err() {
            std::future::pending().await
        }
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Everything up to this resourceVersion has been handled; 0 before the first list (JC-412).
    pub fn resource_version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

/// Ready when all mirrors are complete, or at shutdown; says whether they are.
pub async fn all_synced(mirrors: &[&Progress], shutdown: &Shutdown) -> bool {
    for mirror in mirrors {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return false,
            () = mirror.synced() => {}
        }
    }
    true
}

/// Mirrors one resource. See the module's text.
pub struct Reflector<T> {
    client: Client,
    source: Source,
    environment: Environment,
    metrics: ReflectorMetrics,
    backoff: Backoff,
    synced: watch::Sender<bool>,
    recoveries: watch::Sender<u64>,
    progress: Progress,
    /// Uid and resourceVersion of every object that the handler believes to exist.
    known: Known,
    /// Where the next watch starts; `None` asks for a list.
    version: Option<String>,
    mirrored: PhantomData<fn() -> T>,
}

impl<T: Mirrored> Reflector<T> {
    pub fn new(context: &ControllerContext, source: Source) -> Self {
        let (synced, recoveries) = (watch::Sender::new(false), watch::Sender::new(0));
        let progress =
            Progress { synced: synced.subscribe(), version: Arc::default(), recoveries: recoveries.subscribe() };
        Self {
            client: context.client.clone(),
            metrics: ReflectorMetrics::new(context, &source.resource),
            source,
            environment: context.environment.clone(),
            backoff: Backoff::default(),
            synced,
            recoveries,
            progress,
            known: Known::default(),
            version: None,
            mirrored: PhantomData,
        }
    }

    /// How long to wait after failures.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Runs until shutdown. `handle` must be quick: note the change, queue a key.
    pub async fn run(mut self, shutdown: Shutdown, mut handle: impl FnMut(Change<T>) + Send) {
        let cancelled = shutdown.cancelled_owned();
        tokio::pin!(cancelled);
        loop {
            let round = async {
                match self.version.clone() {
                    None => self.list(&mut handle).await,
                    Some(version) => self.watch(&version, &mut handle).await,
                }
            };
            let outcome = tokio::select! {
                biased;
                () = &mut cancelled => return,
                outcome = round => outcome,
            };
            let Err(error) = outcome else { continue };
            let delay = self.recover(&error);
            tokio::select! {
                biased;
                () = &mut cancelled => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// What a failed round means for the next one, and when that comes.
    fn recover(&mut self, error: &Failure) -> Duration {
        if let Failure::Request(request) = error
            && requests::is_expired(request)
        {
            // The history that we missed is gone; a list tells what is true now.
            tracing::debug!(resource = %self.source.resource, "watch expired, listing again");
            self.version = None;
        }
        let delay = self.backoff.next(&self.environment);
        let (resource, failures) = (&self.source.resource, self.backoff.failures());
        // An outage is told when it begins and each time it has doubled, not forty times a minute.
        if failures.is_power_of_two() {
            tracing::warn!(%resource, error = %Chain(error), failures, ?delay, "mirror a resource");
        } else {
            tracing::debug!(%resource, error = %Chain(error), failures, ?delay, "mirror a resource");
        }
        delay
    }

    /// Reads the whole collection and tells the handler what is new.
    async fn list(&mut self, handle: &mut impl FnMut(Change<T>)) -> Result<(), Failure> {
        self.metrics.lists.inc();
        // The first list can be handled page by page. Later ones are held back until it is known what has vanished:
        // otherwise an object would be applied before its namesake of another uid is gone (P-13).
        let relisting = *self.synced.borrow();
        let mut held = Vec::new();
        let mut listed = Known::default();
        let mut token = String::new();
        let version = loop {
            let page = self.page(&token).await?;
            for object in page.objects {
                listed.insert(object.uid(), 0);
                if relisting {
                    held.push(object);
                } else {
                    self.apply(object, handle);
                }
            }
            if page.token.is_empty() {
                break page.version;
            }
            token = page.token;
        };
        for uid in self.known.retain(&listed) {
            handle(Change::Vanished { uid });
        }
        for object in held {
            self.apply(object, handle);
        }
        self.reached();
        handle(Change::Synced);
        self.advance(version);
        self.synced.send_replace(true);
        self.recovered();
        Ok(())
    }

    async fn page(&self, token: &str) -> Result<Page<T>, Failure> {
        let accept = if self.source.metadata_only { requests::METADATA_LIST_ONLY } else { "application/json" };
        let address = self.source.address(&[("limit", requests::PAGE_LIMIT), ("continue", token)]);
        let answer = async { requests::collect(requests::open(&self.client, &address, accept).await?).await };
        let page = decode_page(&requests::in_time(answer).await?)?;
        self.skipped(page.skipped);
        Ok(page)
    }

    /// Follows the changes after `version` until the server ends the watch.
    async fn watch(&mut self, version: &str, handle: &mut impl FnMut(Change<T>)) -> Result<(), Failure> {
        let started = Instant::now();
        let seconds = WATCH_SECONDS + self.environment.random() % WATCH_SECONDS;
        let accept = if self.source.metadata_only { requests::METADATA_ONLY } else { "application/json" };
        let timeout = seconds.to_string();
        let parameters = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &timeout),
        ];
        let response = requests::open(&self.client, &self.source.address(&parameters), accept).await?;
        self.reached();
        let mut stream = WatchStream::new(response.into_body());
        let deadline = started + Duration::from_secs(seconds) + WATCH_OVERTIME;
        let mut heard = false;
        loop {
            let patience = deadline.min(Instant::now() + SILENCE_MAX);
            let Ok(next) = tokio::time::timeout_at(patience, stream.next()).await else {
                tracing::debug!(resource = %self.source.resource, "a watch has fallen silent, opening another one");
                return if patience < deadline { Ok(()) } else { Err(Failure::Silent) };
            };
            let Some(frame) = next? else { break };
            heard = true;
            self.follow(frame, handle)?;
        }
        if !heard && started.elapsed() < WATCH_MIN {
            return Err(Failure::TooShort);
        }
        Ok(())
    }

    /// The server does what it is asked for. Whether that lasts is another question.
    fn reached(&self) {
        if self.backoff.failures() > 0 {
            self.recoveries.send_modify(|recoveries| *recoveries += 1);
        }
    }

    /// Something useful came through, so the next failure is a first one.
    fn recovered(&mut self) {
        if self.backoff.failures() > 1 {
            tracing::info!(resource = %self.source.resource, failures = self.backoff.failures(), "mirrored again");
        }
        self.backoff.reset();
    }

    fn follow(&mut self, frame: Frame<T>, handle: &mut impl FnMut(Change<T>)) -> Result<(), Failure> {
        match frame {
            Frame::Applied(object) => {
                let version = object.resource_version().to_owned();
                self.apply(object, handle);
                self.advance(version);
            }
            Frame::Deleted(object) => {
                let version = object.resource_version().to_owned();
                if self.known.remove(object.uid()) {
                    handle(Change::Deleted(object));
                }
                self.advance(version);
            }
            Frame::Bookmark(version) => self.advance(version),
            Frame::Error(status) => return Err(Failure::Request(Error::Api(status))),
            Frame::Undecodable(error) => {
                tracing::warn!(resource = %self.source.resource, %error, "a watch event cannot be decoded, skipped");
                self.skipped(1);
            }
        }
        self.recovered();
        Ok(())
    }

    /// Hands an object on unless this or a newer state of it was handed on before (P-8).
    fn apply(&mut self, object: T, handle: &mut impl FnMut(Change<T>)) {
        // Versions that are no numbers cannot be compared; they count as news.
        let version = object.resource_version().parse().unwrap_or(0);
        if self.known.get(object.uid()).is_some_and(|known| version != 0 && version <= known) {
            return;
        }
        self.known.insert(object.uid(), version);
        handle(Change::Applied(object));
    }

    fn advance(&mut self, version: String) {
        if version.is_empty() {
            return;
        }
        if let Ok(number) = version.parse::<u64>() {
            self.progress.version.fetch_max(number, Ordering::AcqRel);
        }
        self.version = Some(version);
    }

    fn skipped(&self, objects: u64) {
        if objects > 0 {
            self.metrics.undecodable.inc_by(objects);
        }
    }
}

/// Why a round of a reflector failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("ask the server")]
    Request(#[from] Error),
    #[error("read a watch")]
    Read(#[source] Error),
    #[error("a watch event is longer than {0} bytes")]
    TooLong(usize),
    #[error("decode a list")]
    List(#[from] serde_json::Error),
    #[error("the watch ended at once without an event")]
    TooShort,
    #[error("the watch did not end when it should have")]
    Silent,
}

/// An error with its causes, on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[derive(Debug)]
struct ReflectorMetrics {
    lists: Counter,
    undecodable: Counter,
}

impl ReflectorMetrics {
    fn new(context: &ControllerContext, resource: &Resource) -> Self {
        type Counters = Family<[(&'static str, String); 1], Counter>;
        let labels = [("resource", resource.to_string())];
        let lists: Counters = context.metrics.register(
            "tally_reflector_lists",
            "How often the whole of a resource was listed: at the start, and after a watch expired.",
            Family::default(),
        );
        let undecodable: Counters = context.metrics.register(
            "tally_reflector_undecodable_objects",
            "Objects that were skipped because they could not be decoded.",
            Family::default(),
        );
        Self { lists: lists.get_or_create_owned(&labels), undecodable: undecodable.get_or_create_owned(&labels) }
    }
}

impl<T> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, convert::Infallible};

    use bytes::Bytes;
    use futures_util::stream;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full, StreamBody};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde::Deserialize;
    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;
    use crate::{
        runtime::Metrics,
        testing::{World, config_map},
    };

    #[derive(Debug, Deserialize)]
    struct Slim {
        metadata: Meta,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        name: String,
        uid: String,
        resource_version: String,
        #[serde(default)]
        labels: HashMap<String, String>,
    }

    impl Mirrored for Slim {
        fn uid(&self) -> &str {
            &self.metadata.uid
        }

        fn resource_version(&self) -> &str {
            &self.metadata.resource_version
        }
    }

    /// What a reflector has told so far, as text.
    #[derive(Clone, Default)]
    struct Log {
        lines: Arc<Mutex<Vec<String>>>,
        names: Arc<Mutex<HashMap<String, String>>>,
        news: Arc<Notify>,
    }

    impl Log {
        fn note(&self, change: Change<Slim>) {
            let line = match change {
                Change::Applied(object) => {
                    self.names.lock().insert(object.metadata.uid, object.metadata.name.clone());
                    format!("applied {}", object.metadata.name)
                }
                Change::Deleted(object) => format!("deleted {}", object.metadata.name),
                Change::Vanished { uid } => format!("vanished {}", self.names.lock()[&*uid]),
                Change::Synced => "synced".to_owned(),
            };
            self.lines.lock().push(line);
            self.news.notify_one();
        }

        async fn reaches(&self, expected: &[&str]) {
            let reached = tokio::time::timeout(Duration::from_secs(20), async {
                while self.lines.lock().len() < expected.len() {
                    self.news.notified().await;
                }
            });
            let timeout = reached.await.is_err();
            assert_eq!(*self.lines.lock(), expected, "timed out: {timeout}");
        }
    }

    fn start(world: &mut World, source: Source) -> (Log, Progress) {
        let reflector = Reflector::<Slim>::new(&world.context, source);
        let (log, progress) = (Log::default(), reflector.progress());
        let noted = log.clone();
        let shutdown = world.context.shutdown.clone();
        world.spawn("reflector", reflector.run(shutdown, move |change| noted.note(change)));
        (log, progress)
    }

    fn in_default(resource: Resource) -> Source {
        Source { namespace: Some("default".to_owned()), ..Source::all(resource) }
    }

    #[tokio::test]
    async fn what_exists_is_listed_and_what_happens_is_followed() {
        let mut world = World::new().await;
        let created = world.create(&Resource::CONFIG_MAPS, "default", config_map("a")).await;
        let (log, progress) = start(&mut world, in_default(Resource::CONFIG_MAPS));
        progress.synced().await;
        log.reaches(&["applied a", "synced"]).await;
        let version: u64 = created["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(progress.resource_version() >= version);
        world.create(&Resource::CONFIG_MAPS, "default", config_map("b")).await;
        world.patch(&Resource::CONFIG_MAPS, "default", "a", json!({"data": {"k": "v"}})).await;
        world.delete(&Resource::CONFIG_MAPS, "default", "a", "Background").await;
        log.reaches(&["applied a", "synced", "applied b", "applied a", "deleted a"]).await;
    }

    /// INV-30: the connection may be dead, and nobody says so.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_falls_silent_is_opened_again() {
        let (opened, started) = (Arc::new(Notify::new()), Instant::now());
        let told = opened.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let body = match is_watch {
                true => {
                    StreamBody::new(stream::pending::<Result<hyper::body::Frame<Bytes>, Infallible>>()).boxed_unsync()
                }
                false => Full::from(r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#).boxed_unsync(),
            };
            if is_watch {
                told.notify_one();
            }
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let shutdown = Shutdown::new();
        let client = Client::new(service, "default");
        let (context, _) = ControllerContext::new(client, Metrics::new(), Environment::system(), shutdown.clone());
        let reflector = Reflector::<Slim>::new(&context, Source::all(Resource::CONFIG_MAPS));
        let running = tokio::spawn(reflector.run(shutdown.clone(), |_| {}));
        for _ in 0..3 {
            opened.notified().await;
        }
        assert_eq!(started.elapsed().as_secs(), 2 * SILENCE_MAX.as_secs());
        shutdown.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn selectors_decide_what_exists() {
        let mut world = World::new().await;
        let source = Source { label_selector: "app in (x)".to_owned(), ..in_default(Resource::CONFIG_MAPS) };
        let (log, _) = start(&mut world, source);
        log.reaches(&["synced"]).await;
        world.create(&Resource::CONFIG_MAPS, "default", config_map("a")).await;
        world.patch(&Resource::CONFIG_MAPS, "default", "a", json!({"metadata": {"labels": {"app": "x"}}})).await;
        world.patch(&Resource::CONFIG_MAPS, "default", "a", json!({"metadata": {"labels": {"app": "y"}}})).await;
        log.reaches(&["synced", "applied a", "deleted a"]).await;
    }

    #[tokio::test]
    async fn metadata_is_enough_if_asked_for() {
        let mut world = World::new().await;
        world.create(&Resource::CONFIG_MAPS, "default", config_map("a")).await;
        let source = Source { metadata_only: true, ..in_default(Resource::CONFIG_MAPS) };
        let (log, _) = start(&mut world, source);
        log.reaches(&["applied a", "synced"]).await;
        world.patch(&Resource::CONFIG_MAPS, "default", "a", json!({"metadata": {"labels": {"l": "1"}}})).await;
        log.reaches(&["applied a", "synced", "applied a"]).await;
    }

    #[tokio::test]
    async fn long_lists_come_in_pages() {
        let mut world = World::new().await;
        let pages: usize = requests::PAGE_LIMIT.parse().unwrap();
        for n in 0..pages + 3 {
            world.create(&Resource::CONFIG_MAPS, "default", config_map(&format!("c{n}"))).await;
        }
        let (log, progress) = start(&mut world, in_default(Resource::CONFIG_MAPS));
        progress.synced().await;
        assert_eq!(log.lines.lock().len(), pages + 4);
    }

    /// Steps of a reflector whose watch is not running, so that everything between two lists is missed (P-7, P-13).
    #[tokio::test]
    async fn a_later_list_tells_what_was_missed() {
        let world = World::new().await;
        for name in ["gone", "kept", "replaced"] {
            world.create(&Resource::CONFIG_MAPS, "default", config_map(name)).await;
        }
        let mut reflector = Reflector::<Slim>::new(&world.context, in_default(Resource::CONFIG_MAPS));
        let log = Log::default();
        reflector.list(&mut |change| log.note(change)).await.unwrap();
        log.lines.lock().clear();
        for name in ["gone", "replaced"] {
            world.delete(&Resource::CONFIG_MAPS, "default", name, "Background").await;
        }
        world.create(&Resource::CONFIG_MAPS, "default", config_map("replaced")).await;
        reflector.list(&mut |change| log.note(change)).await.unwrap();
        let mut lines = log.lines.lock().clone();
        lines[..2].sort();
        assert_eq!(lines, ["vanished gone", "vanished replaced", "applied replaced", "synced"]);
        assert_eq!(
            world.context.metrics.encode(crate::runtime::metrics::Exposition::Prometheus).matches("} 2").count(),
            1
        );
    }

    #[tokio::test]
    async fn an_expired_watch_leads_to_a_list() {
        let world = World::new().await;
        let mut reflector = Reflector::<Slim>::new(&world.context, in_default(Resource::CONFIG_MAPS));
        reflector.version = Some("5".to_owned());
        let expired = kube::core::Status { code: 410, ..Default::default() };
        reflector.recover(&Failure::Request(Error::Api(Box::new(expired))));
        assert_eq!(reflector.version, None);
        reflector.version = Some("5".to_owned());
        reflector.recover(&Failure::TooShort);
        assert_eq!(reflector.version.as_deref(), Some("5"), "other failures go on where they stopped");
    }

    #[tokio::test]
    async fn states_that_were_seen_are_not_told_again() {
        let world = World::new().await;
        let mut reflector = Reflector::<Slim>::new(&world.context, in_default(Resource::CONFIG_MAPS));
        let log = Log::default();
        let object = |version: &str| {
            let metadata = json!({"name": "a", "uid": "u", "resourceVersion": version});
            serde_json::from_value::<Slim>(json!({"metadata": metadata})).unwrap()
        };
        for frame in [
            Frame::Applied(object("5")),
            Frame::Applied(object("5")),
            Frame::Applied(object("4")),
            Frame::Deleted(object("6")),
            Frame::Deleted(object("6")),
            Frame::Bookmark("9".to_owned()),
        ] {
            reflector.follow(frame, &mut |change| log.note(change)).unwrap();
        }
        assert_eq!(*log.lines.lock(), ["applied a", "deleted a"]);
        assert_eq!(reflector.progress().resource_version(), 9);
    }

    #[tokio::test]
    async fn objects_that_cannot_be_decoded_cost_only_themselves() {
        let mut world = World::new().await;
        // A projection that is stricter than the API.
        #[derive(Debug, Deserialize)]
        struct Strict {
            metadata: Meta,
            #[serde(default)]
            data: HashMap<String, Never>,
        }
        #[derive(Debug, Deserialize)]
        enum Never {}
        impl Mirrored for Strict {
            fn uid(&self) -> &str {
                assert!(self.data.is_empty());
                &self.metadata.uid
            }

            fn resource_version(&self) -> &str {
                &self.metadata.resource_version
            }
        }
        let mut bad = config_map("bad");
        bad["data"] = json!({"k": "text"});
        world.create(&Resource::CONFIG_MAPS, "default", bad).await;
        let mut good = config_map("good");
        good["metadata"]["labels"] = json!({"fine": "yes"});
        world.create(&Resource::CONFIG_MAPS, "default", good).await;
        let reflector = Reflector::<Strict>::new(&world.context, in_default(Resource::CONFIG_MAPS));
        let progress = reflector.progress();
        let shutdown = world.context.shutdown.clone();
        let applied: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = applied.clone();
        let handle = move |change| {
            if let Change::Applied(Strict { metadata, .. }) = change
                && metadata.labels.contains_key("fine")
            {
                noted.lock().push(metadata.name);
            }
        };
        world.spawn("reflector", reflector.run(shutdown, handle));
        progress.synced().await;
        assert_eq!(*applied.lock(), ["good"]);
        let metrics = world.context.metrics.encode(crate::runtime::metrics::Exposition::Prometheus);
        let skipped = metrics.lines().find(|line| line.starts_with("tally_reflector_undecodable_objects_total{"));
        assert!(skipped.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
    }
}
