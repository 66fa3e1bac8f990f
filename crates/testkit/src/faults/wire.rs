//! Everything between the controllers and the server.
//!
//! A process of controllers is a *life*; when it crashes its calls go nowhere any more. Calls are numbered over all lives
//! in the order in which they are made, which is the same in every run because a world has one thread. Beside meeting
//! faults, calls are written down: who wrote which revision, and what was asked and answered.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kube::{Client, Error, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use super::{
    approach::{Approach, Consulted, Standing},
    call::{Call, Manner, Target},
    events::{EventBox, Told},
    fault::{Fault, How, Lag, Outage, OutageKind, Past},
    lag::LaggingWatch,
};
use crate::world::Clock;

/// A fault and the number of the call at which it happens.
pub type Point = (usize, Fault);

/// Who wrote a revision. `world` stands for users and the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authored {
    pub revision: u64,
    pub by: &'static str,
    pub at: Timestamp,
}

/// A controller asked for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub by: &'static str,
    /// Which process asked, if that was written down.
    pub life: Option<u32>,
    pub path: String,
    /// The newest revision then.
    pub revision: u64,
}

/// A controller told the world about something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub life: u32,
    pub reason: String,
    /// The object it is about.
    pub uid: String,
    pub revision: u64,
}

/// What somebody else notes on an object, to have written to it.
pub(crate) const TOUCHED: &str = "example.com/touched";

/// What a time to live is raised to in the last moment.
const TTL_RAISED: u32 = 240;

/// Says which fault a call meets.
pub(crate) type Choice = Box<dyn FnMut(&Approach) -> Option<Fault> + Send>;

/// Cheap to clone; all clones are one wire.
#[derive(Clone)]
pub struct Wire {
    shared: Arc<Shared>,
}

struct Shared {
    server: Client,
    revision: Box<dyn Fn() -> u64 + Send + Sync>,
    chance: Box<dyn Fn() -> u64 + Send + Sync>,
    clock: Clock,
    crashed: Notify,
    /// Lists and watches are not served from now on.
    outage: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    life: u32,
    /// Lives below this one are over.
    alive_from: u32,
    points: BTreeMap<usize, Fault>,
    /// Asked about calls that meet none of those.
    choice: Option<Choice>,
    calls: Vec<Call>,
    late: Vec<Late>,
    lags: Vec<Lag>,
    /// All that there have been, and until when they last.
    outages: Vec<(Outage, Instant)>,
    /// What the next life will see first, and what the present one did.
    past_to_come: Option<Past>,
    past: Option<Past>,
    /// Resources whose first list after the restart has been served from the past.
    travelled: BTreeSet<String>,
    held: BTreeMap<String, usize>,
    /// The most that a watch held because they were not too many.
    held_most: usize,
    consulted: Consulted,
    answered: Option<(usize, Standing)>,
    relists: usize,
    authored: Vec<Authored>,
    /// Which calls wrote which revisions.
    writes: BTreeMap<u64, usize>,
    reads: Vec<Read>,
    announcements: Vec<Announcement>,
    events: EventBox,
    /// What users made, to make it again.
    made: HashMap<String, Value>,
}

/// A request that is still on its way.
struct Late {
    request: Request<Body>,
    by: &'static str,
    /// Of the call.
    number: usize,
    /// How many more calls are answered before it lands. Events do not count.
    calls_left: usize,
}

type Answer = Response<UnsyncBoxBody<Bytes, Error>>;

/// What happens to a call.
enum Fate {
    Passes,
    Struck(Fault),
}

impl Wire {
    /// `revision` is the server's newest, `chance` says where its random numbers go on.
    pub(crate) fn new(
        server: Client,
        revision: impl Fn() -> u64 + Send + Sync + 'static,
        chance: impl Fn() -> u64 + Send + Sync + 'static,
        clock: Clock,
    ) -> Self {
        let state = Mutex::new(State::default());
        let (revision, chance) = (Box::new(revision), Box::new(chance));
        Self {
            shared: Arc::new(Shared {
                server,
                revision,
                chance,
                clock,
                crashed: Notify::new(),
                outage: Notify::new(),
                state,
            }),
        }
    }

    /// Which faults are to come.
    pub(crate) fn expect(&self, points: &[Point]) {
        let mut state = self.state();
        state.points = points.iter().copied().collect();
        state.choice = None;
    }

    /// Who else is asked at every call, until other faults are expected.
    pub(crate) fn ask(&self, choice: Choice) {
        self.state().choice = Some(choice);
    }

    /// A client for the world itself: nothing happens to its requests, and they are written down.
    pub(crate) fn world_client(&self) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let wire = wire.clone();
            async move { wire.forward("world", None, request).await.map(boxed) }
        });
        Client::new(service, "default")
    }

    /// A client for a controller of the present life.
    pub(crate) fn client(&self, controller: &'static str) -> Client {
        let (wire, life) = (self.clone(), self.state().life);
        let service = tower::service_fn(move |request: Request<Body>| {
            let wire = wire.clone();
            async move { wire.send(controller, life, request).await }
        });
        Client::new(service, "default")
    }

    /// Ready when a fault has ended the present life.
    pub(crate) async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    /// Begins the next life; calls of the last one are cut off.
    pub(crate) fn next_life(&self) {
        let mut state = self.state();
        state.life += 1;
        state.alive_from = state.life;
        state.travelled.clear();
        // Each life lists for itself, and only the one after the fault is shown the past.
        state.past = state.past_to_come.take();
        let past = state.past;
        state.lags.retain(|lag| lag.how != How::Held(u8::MAX));
        // What is missing in the first lists comes with the watch, when its time has come.
        state.lags.extend(past.map(|past| Lag {
            what: past.what,
            how: How::Held(u8::MAX),
            patience_ms: past.patience_ms,
        }));
    }

    /// Lets everything land that is still on its way; says whether there was anything.
    pub(crate) async fn land_all(&self) -> bool {
        let all = std::mem::take(&mut self.state().late);
        let landed = !all.is_empty();
        self.arrive(all).await;
        landed
    }

    /// What a user made, so that it can be made again under its name.
    pub(crate) fn note_made(&self, path: String, object: Value) {
        self.state().made.insert(path, object);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub fn call_count(&self) -> usize {
        self.state().calls.len()
    }

    pub fn authored(&self) -> Vec<Authored> {
        self.state().authored.clone()
    }

    /// Revisions that calls have written, and which calls.
    pub fn writes(&self) -> BTreeMap<u64, usize> {
        self.state().writes.clone()
    }

    pub fn reads(&self) -> Vec<Read> {
        self.state().reads.clone()
    }

    pub fn announcements(&self) -> Vec<Announcement> {
        self.state().announcements.clone()
    }

    /// How often a watch was made to expire.
    pub fn relists(&self) -> usize {
        self.state().relists
    }

    /// Whether every fault that was expected has happened.
    pub fn all_happened(&self) -> bool {
        self.state().points.is_empty()
    }

    /// The most events that a watch held because they were not too many for it.
    pub(crate) fn held_most(&self) -> usize {
        self.state().held_most
    }

    pub(super) fn lag_of(&self, plural: &str) -> Option<Lag> {
        let mut state = self.state();
        state.consulted.count(plural);
        state.lags.iter().rev().find(|lag| lag.what.includes(plural)).copied()
    }

    pub(super) fn note_not_too_many(&self, events: usize) {
        let mut state = self.state();
        state.held_most = state.held_most.max(events);
    }

    pub(super) fn note_held(&self, plural: &str, events: usize) {
        let mut state = self.state();
        if events > 0 || state.held.contains_key(plural) {
            state.held.insert(plural.to_owned(), events);
        }
    }

    /// Ready when an outage begins.
    pub(super) async fn outage(&self) {
        self.shared.outage.notified().await;
    }

    pub(super) fn outages_so_far(&self) -> usize {
        self.state().outages.len()
    }

    /// What an outage does to a watch that was opened when there had been so many.
    pub(super) fn outage_of(&self, plural: &str, outages: usize) -> Option<OutageKind> {
        let state = self.state();
        let mut since = state.outages.iter().skip(outages).map(|(outage, _)| outage);
        since.find(|outage| outage.what.includes(plural)).map(|outage| outage.how)
    }

    /// Whether lists and watches are served, and if not, what there is to say to that.
    async fn serves(&self, plural: &str) -> Result<(), Answer> {
        let now = Instant::now();
        let present = |(outage, until): &&(Outage, Instant)| *until > now && outage.what.includes(plural);
        let outage = self.state().outages.iter().find(present).map(|(outage, _)| outage.how);
        match outage {
            None | Some(OutageKind::Deaf) => Ok(()),
            Some(OutageKind::Refused) => Err(refusal(500)),
            Some(OutageKind::Mute) => std::future::pending().await,
        }
    }

    /// A watch was made to expire: once is enough.
    pub(super) fn relisted(&self, plural: &str) {
        let mut state = self.state();
        state.relists += 1;
        state.lags.retain(|lag| !(lag.how == How::Expired && lag.what.includes(plural)));
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    fn is_alive(&self, life: u32) -> bool {
        life >= self.state().alive_from
    }

    async fn send(&self, by: &'static str, life: u32, request: Request<Body>) -> Result<Answer, Error> {
        if !self.is_alive(life) {
            return std::future::pending().await;
        }
        match Manner::of(&request) {
            Manner::Watch(plural) => {
                if let Err(answer) = self.serves(&plural).await {
                    return Ok(answer);
                }
                let (head, body) = self.shared.server.send(request).await?.into_parts();
                let watch = LaggingWatch::new(body, self.clone(), plural).into_stream();
                let frames = watch.map(|line| Ok(http_body::Frame::data(line)));
                Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
            }
            Manner::List(plural) => {
                if let Err(answer) = self.serves(&plural).await {
                    return Ok(answer);
                }
                let request = self.travel(&plural, request);
                self.shared.server.send(request).await.map(boxed)
            }
            Manner::Other => self.shared.server.send(request).await.map(boxed),
            Manner::Call(target) => self.call(by, life, &target, request).await,
        }
    }

    async fn call(
        &self,
        by: &'static str,
        life: u32,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Answer, Error> {
        let (number, fate) = self.note_call(by, life, target, &request);
        let answer = match fate {
            Fate::Passes => self.pass(by, number, request).await,
            Fate::Struck(fault) => self.struck(by, number, fault, target, request).await,
        };
        if !target.is_event() {
            self.land(number).await;
        }
        answer
    }

    async fn pass(&self, by: &'static str, number: usize, request: Request<Body>) -> Result<Answer, Error> {
        let read = (request.method() == Method::GET).then(|| request.uri().path().to_owned());
        let response = self.forward(by, Some(number), request).await?;
        self.note_answer(by, number, read, response.status().as_u16());
        Ok(boxed(response))
    }

    async fn struck(
        &self,
        by: &'static str,
        number: usize,
        fault: Fault,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Answer, Error> {
        match fault {
            Fault::CrashBefore => self.crash().await,
            Fault::Past(past) => {
                self.state().past_to_come = Some(past);
                self.crash().await
            }
            Fault::CrashAfter => {
                self.pass(by, number, request).await?;
                self.crash().await
            }
            Fault::Refused(code) => Ok(refusal(code)),
            Fault::Unsent => Err(lost()),
            Fault::Silence => std::future::pending().await,
            Fault::SilenceAfter => {
                self.pass(by, number, request).await?;
                std::future::pending().await
            }
            Fault::Outage(outage) => {
                let until = Instant::now() + Duration::from_millis(outage.lasts_ms.into());
                self.state().outages.push((outage, until));
                self.shared.outage.notify_waiters();
                self.pass(by, number, request).await
            }
            Fault::ReplyLost => {
                self.pass(by, number, request).await?;
                Err(lost())
            }
            Fault::GatewayTimeout => {
                self.pass(by, number, request).await?;
                Ok(refusal(504))
            }
            Fault::Late(calls) => {
                self.state().late.push(Late { request, by, number, calls_left: calls.into() });
                Err(lost())
            }
            Fault::LateAfterRestart => {
                self.state().late.push(Late { request, by, number, calls_left: 1 });
                self.crash().await
            }
            Fault::Touched => {
                self.touch(by, target, number).await;
                self.pass(by, number, request).await
            }
            Fault::Namesake => {
                let body = peek(&request);
                let made = match target.is_event() {
                    true => self.state().events.make_namesake(request.method(), request.uri().path(), &body),
                    false => self.make_namesake(target, body).await,
                };
                self.state().calls[number].took_effect = made;
                self.pass(by, number, request).await
            }
            Fault::Lag(lag) => {
                self.state().lags.push(lag);
                self.pass(by, number, request).await
            }
        }
    }

    fn note_call(&self, by: &'static str, life: u32, target: &Target, request: &Request<Body>) -> (usize, Fate) {
        let mut state = self.state();
        let number = state.calls.len();
        let approach = Approach {
            call: number,
            standing: self.standing(&state),
            answered: state.answered,
            consulted: state.consulted,
        };
        let fault = match state.points.remove(&number) {
            Some(fault) => Some(fault),
            None => state.choice.as_mut().and_then(|choice| choice(&approach)),
        };
        let kind = target.kind(request.method());
        let uncounted = fault.filter(|_| kind == "PUT jobs/status").map(|_| uncounted(&peek(request)));
        let unseen_pods = state.held.get("pods").copied().unwrap_or(0);
        let seen = (self.shared.revision)();
        state.calls.push(Call {
            life,
            controller: by,
            kind,
            path: request.uri().path().to_owned(),
            fault,
            code: 0,
            seen,
            revision: seen,
            at: self.shared.clock.now(),
            unseen_pods,
            uncounted,
            took_effect: false,
        });
        (number, fault.map_or(Fate::Passes, Fate::Struck))
    }

    fn note_answer(&self, by: &'static str, number: usize, read: Option<String>, code: u16) {
        let mut state = self.state();
        let revision = (self.shared.revision)();
        if let Some(path) = read {
            let life = Some(state.calls[number].life);
            state.reads.push(Read { by, life, path, revision });
        }
        let call = &mut state.calls[number];
        (call.code, call.revision) = (code, revision);
        let unheard = matches!(
            call.fault,
            Some(Fault::CrashAfter | Fault::ReplyLost | Fault::SilenceAfter | Fault::GatewayTimeout)
        );
        call.took_effect |= unheard && is_success(code);
        state.answered = Some((number, self.standing(&state)));
    }

    fn standing(&self, state: &State) -> Standing {
        Standing {
            life: state.life,
            at: self.shared.clock.now(),
            revision: (self.shared.revision)(),
            chance: (self.shared.chance)(),
            late: state.late.len(),
        }
    }

    async fn crash(&self) -> ! {
        {
            let mut state = self.state();
            state.alive_from = state.life + 1;
        }
        self.shared.crashed.notify_one();
        std::future::pending().await
    }

    /// Sends a request on and writes down which revisions it made.
    async fn forward(
        &self,
        by: &'static str,
        call: Option<usize>,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        if let Some(call) = call
            && self.state().calls[call].is_event()
        {
            return Ok(self.announce(call, &request));
        }
        // What comes about during a read is somebody else's.
        let writes = request.method() != Method::GET;
        let before = (self.shared.revision)();
        let response = self.shared.server.send(request).await?;
        let after = (self.shared.revision)();
        // What is refused has written nothing, whatever others did meanwhile.
        if writes && after > before && response.status().is_success() {
            let at = self.shared.clock.now();
            let mut state = self.state();
            state.authored.extend((before + 1..=after).map(|revision| Authored { revision, by, at }));
            state.writes.extend(call.into_iter().flat_map(|call| (before + 1..=after).map(move |one| (one, call))));
        }
        Ok(response)
    }

    /// The call of this number has its answer: what was to be on its way until then arrives now.
    async fn land(&self, number: usize) {
        let due: Vec<Late> = {
            let mut state = self.state();
            for late in state.late.iter_mut().filter(|late| late.number < number) {
                late.calls_left = late.calls_left.saturating_sub(1);
            }
            state.late.extract_if(.., |late| late.calls_left == 0).collect()
        };
        self.arrive(due).await;
    }

    async fn arrive(&self, late: Vec<Late>) {
        for Late { request, by, number, .. } in late {
            // Whatever the answer is, nobody is there to hear it.
            let answer = self.forward(by, Some(number), request).await;
            let landed = answer.is_ok_and(|answer| answer.status().is_success());
            self.state().calls[number].took_effect = landed;
        }
    }

    /// Somebody else writes to an object.
    async fn touch(&self, by: &str, target: &Target, number: usize) {
        let Some(path) = target.object() else { return };
        let patch = match by {
            // The edit that matters most there (REG-G01).
            "ttl" => json!({"spec": {"ttlSecondsAfterFinished": TTL_RAISED}}),
            _ => json!({"metadata": {"annotations": {TOUCHED: number.to_string()}}}),
        };
        self.world_request(Method::PATCH, &path, Some(patch)).await;
    }

    /// Deletes an object for good and makes another one under its name. Of one that is about to be made, somebody else was
    /// faster. Says whether there is one now.
    async fn make_namesake(&self, target: &Target, body: Bytes) -> bool {
        let name = match &target.name {
            Some(name) => Some(name.clone()),
            None => {
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                body["metadata"]["name"].as_str().map(str::to_owned)
            }
        };
        let Some(name) = name else { return false };
        let path = format!("{}/{name}", target.collection);
        let found = self.world_request(Method::GET, &path, None).await;
        self.world_request(Method::PATCH, &path, Some(json!({"metadata": {"finalizers": null}}))).await;
        let options = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
        self.world_request(Method::DELETE, &path, Some(options)).await;
        let made = self.state().made.get(&path).cloned();
        let object = match (made, found, &*target.plural) {
            // Made again as it was: one that had been suspended would start Jobs for ever.
            (Some(mut made), Some(found), "cronjobs") => {
                made["spec"]["suspend"] = found["spec"]["suspend"].clone();
                made
            }
            (Some(made), _, _) => made,
            (None, found, "jobs") => {
                let template = found.map_or(Value::Null, |found| found["spec"]["template"].clone());
                stranger("batch/v1", "Job", &name, &template)
            }
            (None, _, "pods") => stranger("v1", "Pod", &name, &Value::Null),
            _ => return false,
        };
        self.world_request(Method::POST, &target.collection, Some(object)).await.is_some()
    }

    async fn world_request(&self, method: Method, path: &str, body: Option<Value>) -> Option<Value> {
        let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .body(Body::from(bytes))
            .expect("the path was a request's");
        let response =
            self.forward("world", None, request).await.ok().filter(|response| response.status().is_success())?;
        let bytes = response.into_body().collect_bytes().await.ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The first list of a resource after a restart shows the past, if it is to.
    fn travel(&self, plural: &str, request: Request<Body>) -> Request<Body> {
        let mut state = self.state();
        let Some(past) = state.past.filter(|past| past.what.includes(plural)) else { return request };
        if !state.travelled.insert(plural.to_owned()) {
            return request;
        }
        drop(state);
        let at = (self.shared.revision)().saturating_sub(u64::from(past.back)).max(1);
        let (mut head, body) = request.into_parts();
        let uri = format!("{}&resourceVersion={at}&resourceVersionMatch=Exact", head.uri);
        head.uri = uri.parse().expect("it was an address before");
        Request::from_parts(head, body)
    }

    /// The world is told something.
    fn announce(&self, call: usize, request: &Request<Body>) -> Response<Body> {
        let body = peek(request);
        let mut state = self.state();
        let (code, told) = state.events.take(request.method(), request.uri().path(), &body);
        if let Some(Told { reason, uid }) = told {
            let (life, revision) = (state.calls[call].life, (self.shared.revision)());
            state.announcements.push(Announcement { life, reason, uid, revision });
        }
        let text = if is_success(code) { "{}".to_owned() } else { status(code, "AlreadyExists") };
        let mut response = Response::new(Body::from(text.into_bytes()));
        *response.status_mut() = code.try_into().expect("a code of HTTP");
        response
    }
}

/// An object of somebody who happens to use the same name.
fn stranger(api_version: &str, kind: &str, name: &str, template: &Value) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]});
    let spec = match kind {
        "Job" => {
            let spec = if template["spec"].is_object() { template["spec"].clone() } else { pod };
            json!({"suspend": true, "template": {"spec": spec}})
        }
        _ => pod,
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": {"of": "a-stranger"}},
        "spec": spec})
}

/// How many pods a Job lists as uncounted.
fn uncounted(job: &[u8]) -> usize {
    let job: Value = serde_json::from_slice(job).unwrap_or_default();
    let lists = &job["status"]["uncountedTerminatedPods"];
    ["succeeded", "failed"].iter().map(|side| lists[side].as_array().map_or(0, Vec::len)).sum()
}

/// A request's body; requests of controllers are whole in memory.
fn peek(request: &Request<Body>) -> Bytes {
    let whole = request.body().try_clone().and_then(|body| body.collect_bytes().now_or_never());
    whole.and_then(Result::ok).unwrap_or_default()
}

fn is_success(code: u16) -> bool {
    (200..300).contains(&code)
}

fn lost() -> Error {
    Error::Service("the connection was lost".into())
}

fn boxed(response: Response<Body>) -> Answer {
    response.map(BodyExt::boxed_unsync)
}

fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, Error> {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

fn refusal(code: u16) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let mut response = Response::new(full(status(code, reason)));
    *response.status_mut() = code.try_into().expect("a code of HTTP");
    response
}

fn status(code: u16, reason: &str) -> String {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
        "message": "refused for the sake of the test", "code": code});
    status.to_string()
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("calls", &self.call_count()).finish_non_exhaustive()
    }
}
