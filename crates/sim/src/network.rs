//! The way between clients and the API server: calls and answers get lost, come late, or are refused; watches lag and
//! break off (P-2 … P-8).
//!
//! A call is carried out by the server even if its caller has died meanwhile, as over a real network; and nothing that a
//! dead caller's leftovers send arrives any more.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::counters::Counters;
use crate::random::Random;
use crate::weather::Weather;

type Error = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer as it gets through.
type Pieces = UnsyncBoxBody<Bytes, Error>;

/// One life of a process that calls. Clones are the same life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// Since when.
    over: Arc<OnceLock<Instant>>,
    rival: Arc<AtomicBool>,
}

/// Whose call it is.
struct Sender {
    name: &'static str,
    life: Life,
    /// Whether its sender has given it up.
    is_late: bool,
    /// Whether the answer gets lost.
    is_unheard: bool,
}

impl Sender {
    /// Whether it does not count on the call any more, or another process does the same work.
    fn is_unfenced(&self) -> bool {
        self.is_late || self.life.is_over() || self.life.has_rival()
    }
}

impl Life {
    pub(crate) fn end(&self) {
        let _ = self.over.set(Instant::now());
    }

    /// From now on another process does the same work.
    pub(crate) fn meet_rival(&self) {
        self.rival.store(true, Ordering::Relaxed);
    }

    /// The other process has ended. What it worked on is noted as such.
    pub(crate) fn lose_rival(&self) {
        self.rival.store(false, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.get().is_some()
    }

    fn has_rival(&self) -> bool {
        self.rival.load(Ordering::Relaxed)
    }
}

/// A server that can be called.
#[derive(Clone)]
pub(crate) struct Callee {
    pub(crate) client: Client,
    /// The newest revision of its store.
    pub(crate) revision: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Cancelled when the server dies, and everything it was doing with it.
    pub(crate) dead: CancellationToken,
}

/// Clones are the same network.
#[derive(Clone)]
pub(crate) struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    callee: Mutex<Option<Callee>>,
    weather: Mutex<Weather>,
    random: Mutex<Random>,
    counters: Counters,
    trace: bool,
    clock: Clock,
    notes: Mutex<Notes>,
    /// Calls that are late and still on their way.
    late: AtomicUsize,
}

/// Who did what, for the judge.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Who wrote a revision, and when.
    pub(crate) authors: BTreeMap<u64, (&'static str, Timestamp)>,
    /// Who asked for which object, at which revision.
    pub(crate) reads: Vec<(&'static str, String, u64)>,
    /// Revisions that a call wrote whose sender did not count on it any more: it came late, or its sender was dead, or
    /// another process did the same work at the time.
    pub(crate) unfenced: BTreeSet<u64>,
    /// Revisions that a call wrote whose sender was not told of it, or not the only one to work on it.
    pub(crate) unheard: BTreeSet<u64>,
    /// What controllers were shown by their lists and watches of a kind.
    pub(crate) shown: BTreeMap<Follower, Vec<Shown>>,
    /// When lives ended that are over, by number.
    pub(crate) ends: BTreeMap<usize, Timestamp>,
    /// What controllers told about, in the order in which it was first sent.
    pub(crate) announcements: Vec<Announced>,
    /// When the clock of servers and controllers was set, and by how many milliseconds.
    pub(crate) jumps: Vec<(Timestamp, i64)>,
    lives: Vec<Life>,
}

/// One life of a controller that follows the objects of a kind: the number of its life, its name, and the path.
pub(crate) type Follower = (usize, &'static str, String);

/// Something that arrived: the change of a revision, or as a whole everything up to it, by a list or a bookmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) at: Timestamp,
    pub(crate) revision: u64,
    pub(crate) is_whole: bool,
}

/// An Event, when it was first sent.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) life: usize,
    name: String,
    /// How many like it there were before, and itself.
    count: u64,
    pub(crate) reason: String,
    /// What it is about.
    pub(crate) uid: String,
    /// The newest revision at the time.
    pub(crate) revision: u64,
}

impl Notes {
    /// Lives are numbered in the order in which they are heard of.
    fn number(&mut self, life: &Life) -> usize {
        let known = self.lives.iter().position(|one| Arc::ptr_eq(&one.over, &life.over));
        known.unwrap_or_else(|| {
            self.lives.push(life.clone());
            self.lives.len() - 1
        })
    }

    /// Whoever repeats an Event raises its count; who sends the same again only tries again.
    fn announce(&mut self, life: &Life, last_segment: &str, event: &Value) {
        let life = self.number(life);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = event["metadata"]["name"].as_str().unwrap_or(last_segment).to_owned();
        let count = event["count"].as_u64().unwrap_or(1);
        let mut same = self.announcements.iter().filter(|one| one.life == life && one.name == name);
        if same.clone().any(|one| one.count == count) {
            return;
        }
        let (reason, uid) = match same.next() {
            Some(first) => (first.reason.clone(), first.uid.clone()),
            None => (text(&event["reason"]), text(&event["involvedObject"]["uid"])),
        };
        let revision = self.authors.last_key_value().map_or(0, |(revision, _)| *revision);
        self.announcements.push(Announced { life, name, count, reason, uid, revision });
    }
}

/// What becomes of one call.
enum Fate {
    Delivered,
    RequestLost,
    ReplyLost,
    Late(Duration),
    Refused(u16, &'static str),
}

impl Network {
    /// `clock` must be one that nobody sets.
    pub(crate) fn new(weather: Weather, random: Random, clock: Clock, counters: Counters, trace: bool) -> Self {
        let (weather, random, notes) = (Mutex::new(weather), Mutex::new(random), Mutex::default());
        let (callee, late) = (Mutex::new(None), AtomicUsize::new(0));
        Self { shared: Arc::new(Shared { callee, weather, random, counters, trace, clock, notes, late }) }
    }

    /// Whether nobody else has this network any more.
    #[cfg(test)]
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Whether calls that are late are still to arrive.
    pub(crate) fn has_late_calls(&self) -> bool {
        self.shared.late.load(Ordering::Relaxed) > 0
    }

    /// Everything that was noted so far.
    pub(crate) fn take_notes(&self) -> Notes {
        let mut notes = std::mem::take(&mut *self.shared.notes.lock());
        let ends = notes.lives.iter().map(|life| life.over.get().map(|end| self.shared.clock.at(*end)));
        notes.ends = ends.enumerate().filter_map(|(number, end)| Some((number, end?))).collect();
        notes
    }

    /// A client as one process has it.
    pub(crate) fn client(&self, name: &'static str, life: &Life) -> Client {
        let (network, life) = (self.clone(), life.clone());
        let service = tower::service_fn(move |request| {
            let (network, life) = (network.clone(), life.clone());
            async move {
                let answered = network.send(name, &life, request).await;
                if life.is_over() { std::future::pending().await } else { answered }
            }
        });
        Client::new(service, "default")
    }

    pub(crate) fn connect(&self, callee: Option<Callee>) {
        *self.shared.callee.lock() = callee;
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        *self.shared.weather.lock() = weather;
    }

    pub(crate) fn weather(&self) -> Weather {
        *self.shared.weather.lock()
    }

    /// The clock of servers and controllers is being set.
    pub(crate) fn note_jump(&self, millis: i64) {
        let now = self.shared.clock.now();
        self.shared.notes.lock().jumps.push((now, millis));
    }

    async fn send(&self, name: &'static str, life: &Life, request: Request<Body>) -> Result<Response<Pieces>, Error> {
        if life.is_over() {
            return std::future::pending().await;
        }
        if name == "events" && request.method() != Method::GET {
            let event: Value = serde_json::from_slice(&peek(&request)).unwrap_or_default();
            let last_segment = request.uri().path().rsplit('/').next().unwrap_or_default();
            self.shared.notes.lock().announce(life, last_segment, &event);
        }
        let label = label(&request);
        let fate = self.fate(&request);
        let (there, back) = (self.latency(), self.latency());
        self.count(&fate, &label);
        if self.shared.trace {
            eprintln!("{:>10.3} {name:<10} {label} {}", elapsed(), request.uri());
        }
        match fate {
            Fate::Delivered => {
                let answered = self
                    .deliver(Sender { name, life: life.clone(), is_late: false, is_unheard: false }, request, there)
                    .await;
                pause(back).await;
                answered
            }
            Fate::RequestLost => {
                pause(there).await;
                Err("the connection was reset".into())
            }
            Fate::ReplyLost => {
                // The answer's body is dropped unread, which ends a watch too.
                drop(
                    self.deliver(Sender { name, life: life.clone(), is_late: false, is_unheard: true }, request, there)
                        .await,
                );
                Err("the connection was reset before the answer came".into())
            }
            Fate::Late(delay) => {
                let (network, life) = (self.clone(), life.clone());
                self.shared.late.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    pause(delay).await;
                    // What was on its way arrives, even if its sender is dead by now.
                    let _ = network
                        .deliver(Sender { name, life, is_late: true, is_unheard: true }, request, Duration::ZERO)
                        .await;
                    network.shared.late.fetch_sub(1, Ordering::Relaxed);
                });
                pause(there).await;
                Err("the call timed out".into())
            }
            Fate::Refused(code, reason) => {
                pause(there).await;
                Ok(refusal(code, reason))
            }
        }
    }

    /// Lets the server that is there at the moment of arrival carry the call out.
    async fn deliver(
        &self,
        sender: Sender,
        request: Request<Body>,
        there: Duration,
    ) -> Result<Response<Pieces>, Error> {
        let (answer, answered) = oneshot::channel();
        let network = self.clone();
        tokio::spawn(async move {
            pause(there).await;
            let Some(callee) = network.shared.callee.lock().clone() else {
                let _ = answer.send(Err("connection refused".into()));
                return;
            };
            let dead = callee.dead.clone();
            tokio::select! {
                biased;
                () = dead.cancelled() => {}
                response = network.carry_out(sender, request, callee) => drop(answer.send(response)),
            }
        });
        answered.await.unwrap_or_else(|_| Err("the connection broke".into()))
    }

    /// Lets a server work on a call, and notes what comes of it.
    async fn carry_out(
        &self,
        sender: Sender,
        request: Request<Body>,
        callee: Callee,
    ) -> Result<Response<Pieces>, Error> {
        let is_write = request.method() != Method::GET;
        if !is_write && request.uri().query().is_none() {
            let read = (sender.name, request.uri().path().to_owned(), (callee.revision)());
            self.shared.notes.lock().reads.push(read);
        }
        let follows = follows(&request).map(|path| (sender.life.clone(), sender.name, path));
        let is_list = !request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let mut work = pin!(callee.client.send(request));
        // A store that writes in place does so while the call is worked on, and only then.
        let response = poll_fn(|context| {
            let before = (callee.revision)();
            let polled = work.as_mut().poll(context);
            for revision in before + 1..=(callee.revision)() {
                self.note_author(&sender, revision);
            }
            polled
        });
        let response = response.await.map_err(Error::from)?;
        if !is_write {
            let follower = follows.map(|follower| (follower, is_list));
            return Ok(self.watched(response, callee.dead, follower));
        }
        // One that takes its time writes for several at once; then the answer says which revision is whose.
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        if let Some(revision) = resource_version(&bytes).filter(|_| parts.status.is_success()) {
            self.note_author(&sender, revision);
            if !sender.is_unheard && !sender.is_unfenced() {
                self.shared.notes.lock().unheard.remove(&revision);
            }
        }
        Ok(self.watched(Response::from_parts(parts, Body::from(bytes)), callee.dead, None))
    }

    fn note_author(&self, sender: &Sender, revision: u64) {
        let now = self.shared.clock.now();
        let mut notes = self.shared.notes.lock();
        let is_news = !notes.authors.contains_key(&revision);
        notes.authors.entry(revision).or_insert((sender.name, now));
        if is_news {
            notes.unheard.insert(revision);
        }
        if is_news && sender.is_unfenced() {
            notes.unfenced.insert(revision);
        }
    }

    /// The answer as it gets through: piece by piece, sometimes late, sometimes not to its end.
    fn watched(
        &self,
        response: Response<Body>,
        dead: CancellationToken,
        follower: Option<((Life, &'static str, String), bool)>,
    ) -> Response<Pieces> {
        let (parts, body) = response.into_parts();
        let random = Random::new(self.shared.random.lock().number());
        let pieces = stream::unfold(Some((self.clone(), body, random, dead, follower)), |state| async {
            let (network, mut body, mut random, dead, follower) = state?;
            let piece = tokio::select! {
                biased;
                () = dead.cancelled() => return Some((Err(Error::from("the connection broke")), None)),
                piece = body.frame() => piece?,
            };
            let weather = network.weather();
            if random.chance(weather.watch_lag) {
                network.shared.counters.add("watch pieces delayed");
                pause(Duration::from_millis(random.below(weather.watch_lag_millis_max + 1))).await;
            }
            if random.chance(weather.watch_cut) {
                network.shared.counters.add("answers cut off");
                return Some((Err("the connection broke".into()), None));
            }
            if let Ok(piece) = &piece
                && let Some(data) = piece.data_ref()
                && is_expired(data)
            {
                network.shared.counters.add("watches told 410");
            }
            if let (Ok(piece), Some((follower, is_list))) = (&piece, &follower)
                && let Some(data) = piece.data_ref()
            {
                network.note_shown(follower, *is_list, data);
            }
            Some((piece.map_err(Error::from), Some((network, body, random, dead, follower))))
        });
        Response::from_parts(parts, StreamBody::new(pieces).boxed_unsync())
    }

    fn note_shown(&self, (life, name, path): &(Life, &'static str, String), is_list: bool, data: &[u8]) {
        let at = self.shared.clock.now();
        let mut notes = self.shared.notes.lock();
        let follower = (notes.number(life), *name, path.clone());
        let shown = notes.shown.entry(follower).or_default();
        let lines: Vec<&[u8]> = if is_list { vec![data] } else { data.split(|byte| *byte == b'\n').collect() };
        let lines = lines.into_iter().filter_map(|line| Some((line, resource_version(line)?)));
        shown.extend(lines.map(|(line, revision)| {
            let is_whole = is_list || line.starts_with(b"{\"type\":\"BOOKMARK\"");
            Shown { at, revision, is_whole }
        }));
    }

    fn fate(&self, request: &Request<Body>) -> Fate {
        let weather = self.weather();
        let mut random = self.shared.random.lock();
        let mut dice = random.below(1000);
        let mut falls = |chance: u64| {
            let hit = dice < chance;
            dice = dice.wrapping_sub(chance);
            hit
        };
        if falls(weather.request_lost) {
            Fate::RequestLost
        } else if falls(weather.reply_lost) {
            Fate::ReplyLost
        } else if falls(weather.late) && request.method() != Method::GET {
            Fate::Late(Duration::from_millis(1 + random.below(weather.late_millis_max + 1)))
        } else if falls(weather.refused) {
            let conflict = (409, "Conflict");
            let (code, reason) = match *request.method() {
                Method::PUT | Method::PATCH | Method::DELETE => random.pick(&[
                    conflict,
                    (429, "TooManyRequests"),
                    (500, "InternalError"),
                    (503, "ServiceUnavailable"),
                ]),
                _ => random.pick(&[(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")]),
            };
            Fate::Refused(code, reason)
        } else {
            Fate::Delivered
        }
    }

    fn latency(&self) -> Duration {
        let most = self.weather().latency_millis_max;
        match most {
            0 => Duration::ZERO,
            _ => Duration::from_millis(self.shared.random.lock().below(most + 1)),
        }
    }

    fn count(&self, fate: &Fate, label: &str) {
        let counters = &self.shared.counters;
        counters.add("calls");
        match fate {
            Fate::Delivered => {}
            Fate::RequestLost => counters.add("requests lost"),
            Fate::ReplyLost => counters.add(&format!("reply lost: {label}")),
            Fate::Late(_) => counters.add(&format!("landed late: {label}")),
            Fate::Refused(code, _) => counters.add(&format!("refused with {code}")),
        }
    }
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}

/// Virtual seconds since the clock of this thread's run began, for traces.
fn elapsed() -> f64 {
    crate::run::elapsed().as_secs_f64()
}

/// The method, and what kind of thing it is about: `PATCH pods/status`.
fn label(request: &Request<Body>) -> String {
    let path = request.uri().path();
    let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let skip = match segments.first() {
        Some(&"api") => 2,
        _ => 3.min(segments.len()),
    };
    segments.drain(..skip.min(segments.len()));
    if segments.first() == Some(&"namespaces") && segments.len() > 2 {
        segments.drain(..2);
    }
    let kind = segments.first().copied().unwrap_or("discovery");
    match segments.get(2) {
        Some(part) => format!("{} {kind}/{part}", request.method()),
        None => format!("{} {kind}", request.method()),
    }
}

/// The body of a request, which stays whole.
fn peek(request: &Request<Body>) -> Bytes {
    let whole = request.body().try_clone().and_then(|body| body.collect_bytes().now_or_never());
    whole.and_then(Result::ok).unwrap_or_default()
}

/// The path of a call that follows all objects of a kind, if it is one of those the judge knows.
fn follows(request: &Request<Body>) -> Option<String> {
    const KINDS: [&str; 3] = ["/api/v1/pods", "/apis/batch/v1/jobs", "/apis/batch/v1/cronjobs"];
    let path = request.uri().path();
    let is_chosen = request.uri().query().is_some_and(|query| query.contains("Selector="));
    (*request.method() == Method::GET && KINDS.contains(&path) && !is_chosen).then(|| path.to_owned())
}

/// The first that is mentioned, which is the object's own.
fn resource_version(json: &[u8]) -> Option<u64> {
    const FIELD: &[u8] = b"\"resourceVersion\":\"";
    let start = json.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let digits = json[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&json[start..start + digits]).ok()?.parse().ok()
}

fn is_expired(data: &Bytes) -> bool {
    data.starts_with(b"{\"type\":\"ERROR\"") && data.windows(10).any(|window| window == b"\"code\":410")
}

fn refusal(code: u16, reason: &str) -> Response<Pieces> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the simulation says no", "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(Error::from);
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).expect("one of the codes above");
    response
}
