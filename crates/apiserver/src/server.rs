//! The server itself: shared state, and the path of one request through it (AS-36).

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use batch_types::{field, gates::Gates, names};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    answer::Answer,
    auth::{
        self, Authenticator, User,
        rbac::PolicyCache,
        token::{IssuerError, TokenIssuer},
    },
    body::{RequestBody, ResponseBody},
    documents,
    environment::Environment,
    logs::LogSource,
    metrics::{Exposition, MetricsSource, Request as Counted, RequestMetrics},
    negotiate::{self, Offer},
    options,
    owners_memo::Memo,
    query::Query,
    quota::Ledger,
    respond::{self, Manner},
    reviews,
    route::{self, Route, Target},
    status::Status,
    storage::ObjectStore,
    verbs,
};

/// Requests that do not stream are cut after this long (AS-12).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A Kubernetes-compatible API server. Cheap to clone; all clones are one server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) state: Arc<State>,
}

pub(crate) struct State {
    pub(crate) store: ObjectStore,
    pub(crate) authenticator: Authenticator,
    pub(crate) policy: PolicyCache,
    pub(crate) tokens: OnceLock<TokenIssuer>,
    pub(crate) gates: Gates,
    pub(crate) environment: Environment,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) logs: OnceLock<Arc<dyn LogSource>>,
    pub(crate) quotas: Ledger,
    pub(crate) requests: RequestMetrics,
    pub(crate) metrics: MetricsSource,
    pub(crate) owners: Memo,
}

impl State {
    /// Who signs ServiceAccount tokens.
    pub(crate) fn issuer(&self) -> Result<&TokenIssuer, IssuerError> {
        if let Some(issuer) = self.tokens.get() {
            return Ok(issuer);
        }
        let ephemeral = TokenIssuer::ephemeral()?;
        Ok(self.tokens.get_or_init(|| ephemeral))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("store", &self.store).field("gates", &self.gates).finish_non_exhaustive()
    }
}

/// What can be chosen about a server.
#[derive(Debug)]
pub struct Options {
    /// The token of the administrator; `None` leaves only in-process callers.
    pub admin_token: Option<String>,
    pub gates: Gates,
    pub environment: Environment,
}

/// One request on its way through the server.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) user: Arc<User>,
    /// Taken by the verb that reads it. Behind a lock only because bodies are not `Sync`.
    pub(crate) body: Mutex<Option<RequestBody>>,
    /// Warnings for the sender, whatever becomes of the request.
    pub(crate) warnings: Vec<String>,
    /// How long it may take, unless it streams.
    pub(crate) limit: Duration,
    /// What it is for, once that is known, as metrics tell it.
    pub(crate) counted: Option<Counted>,
}

impl Call {
    pub(crate) async fn read_body(&mut self) -> Result<Bytes, Status> {
        let body = self.body.get_mut().take();
        match body {
            Some(body) => crate::body::read(body).await,
            None => Ok(Bytes::new()),
        }
    }
}

impl ApiServer {
    /// A server on an open store. Objects that exist from the first second (AS-2) are made if they are missing.
    pub async fn new(store: ObjectStore, options: Options) -> Result<Self, Status> {
        let state = State {
            store,
            authenticator: Authenticator::new(options.admin_token),
            policy: PolicyCache::default(),
            tokens: OnceLock::new(),
            gates: options.gates,
            environment: options.environment,
            stopping: watch::Sender::new(false),
            logs: OnceLock::new(),
            quotas: Ledger::default(),
            requests: RequestMetrics::default(),
            metrics: MetricsSource::default(),
            owners: Memo::default(),
        };
        let server = Self { state: Arc::new(state) };
        crate::bootstrap::run(&server).await?;
        crate::quota::recount_all(&server).await?;
        Ok(server)
    }

    /// Lets `pods/log` read from the node of this process. The first source stays.
    pub fn set_log_source(&self, logs: Arc<dyn LogSource>) {
        let _ = self.state.logs.set(logs);
    }

    /// Lets ServiceAccount tokens outlive the process. Without it, or if it comes after the first token was asked for,
    /// the key that signs them is one that nobody else knows and nothing keeps.
    pub fn set_token_issuer(&self, issuer: TokenIssuer) {
        let _ = self.state.tokens.set(issuer);
    }

    /// Whether the store takes writes; otherwise why not.
    pub fn store_health(&self) -> Result<(), Arc<str>> {
        self.state.store.health()
    }

    /// Ends open watches; new requests are told to come back later (AS-68).
    pub fn stop(&self) {
        self.state.stopping.send_replace(true);
    }

    /// Answers one request of any transport.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = crate::body::request(body);
        let in_process = parts.extensions.get::<crate::client::InProcess>().is_some();
        let query = Query::parse(parts.uri.query());
        let path = parts.uri.path().to_owned();
        let call = Call {
            method: parts.method,
            headers: parts.headers,
            query,
            user: if in_process { User::in_process() } else { User::anonymous() },
            body: Mutex::new(Some(body)),
            warnings: Vec::new(),
            limit: REQUEST_TIMEOUT,
            counted: None,
        };
        self.answer(call, &path, in_process).await
    }

    /// What has been counted about requests.
    pub fn request_metrics(&self) -> RequestMetrics {
        self.state.requests.clone()
    }

    /// Lets `/metrics` answer with all metrics of this process. The first source stays; without one there is no such
    /// path.
    pub fn set_metrics_source(&self, exposition: Arc<Exposition>) {
        self.state.metrics.set(exposition);
    }

    async fn answer(&self, mut call: Call, path: &str, in_process: bool) -> Response<ResponseBody> {
        let (begin, _in_flight) = (Instant::now(), self.state.requests.enter(&call.method));
        let response = self.respond(&mut call, path, in_process).await;
        self.state.requests.answered(call.counted, &call.method, response.status(), begin.elapsed());
        response
    }

    async fn respond(&self, call: &mut Call, path: &str, in_process: bool) -> Response<ResponseBody> {
        let environment = &self.state.environment;
        let mut manner = Manner::of(&call.headers, &call.query, environment);
        manner.representation.encoding = negotiate::encoding_of_refusal(&call.headers);
        if call.query.dropped > 0 {
            tracing::warn!(path, dropped = call.query.dropped, "query parameters that cannot be decoded were ignored");
        }
        let outcome = self.decide(call, path, in_process, &mut manner).await;
        let mut response = match outcome {
            Ok(Outcome::Response(response)) => response,
            Ok(Outcome::Answer(answer)) => {
                respond::respond(Ok(answer), &manner, &call.query, &call.warnings, environment)
            }
            Err(status) => respond::respond(Err(status), &manner, &call.query, &call.warnings, environment),
        };
        respond::add_common_headers(response.headers_mut(), &manner);
        response
    }

    async fn decide(
        &self,
        call: &mut Call,
        path: &str,
        in_process: bool,
        manner: &mut Manner,
    ) -> Result<Outcome, Status> {
        let limit = time_limit(call, path)?;
        self.admit(call, path, in_process)?;
        call.limit = limit;
        self.dispatch(call, path, manner).await
    }

    /// Authentication, impersonation, authorization; all three come before anything else is looked at.
    fn admit(&self, call: &mut Call, path: &str, in_process: bool) -> Result<(), Status> {
        if !in_process {
            call.user = self.state.authenticator.authenticate(&call.headers, &self.state)?;
        }
        let attributes = || route::attributes(&call.method, path, &call.query);
        if let Some(user) = auth::impersonate(&self.state, &call.user, &call.headers, attributes)? {
            call.user = user;
        }
        if !call.user.is_master() {
            self.state.authorize(&call.user, &attributes())?;
        }
        if *self.state.stopping.borrow() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        Ok(())
    }

    async fn dispatch(&self, call: &mut Call, path: &str, manner: &mut Manner) -> Result<Outcome, Status> {
        match route::route(path) {
            Route::NotFound => Ok(Outcome::Response(documents::page_not_found())),
            Route::NoSuchResource => Err(Status::no_such_resource()),
            Route::Other(path) => documents::other(self, call, &path, manner).map(Outcome::Response),
            Route::Discovery(wanted) => documents::discovery(call, wanted, manner).map(Outcome::Response),
            Route::Review(review) => {
                manner.representation = negotiate::accept(&call.headers, Offer::Plain)?;
                let namespace = route::attributes(&call.method, path, &call.query).namespace;
                let limit = call.limit;
                within(limit, reviews::create(&self.state, call, review, &namespace)).await.map(Outcome::Answer)
            }
            Route::Resource(target) => self.resource(call, &target, manner).await.map(Outcome::Answer),
        }
    }

    async fn resource(&self, call: &mut Call, target: &Target, manner: &mut Manner) -> Result<Answer, Status> {
        let verb = verbs::of(call, target)?;
        call.counted = Some(Counted::of(target, verb, &call.headers, &call.query));
        let offer = match verb {
            verbs::Verb::Watch => Offer::Watch,
            verbs::Verb::List => Offer::List,
            _ if target.is_action() => Offer::Plain,
            _ => Offer::Object,
        };
        manner.representation = negotiate::accept(&call.headers, offer)?;
        check_name(target)?;
        let limit = call.limit;
        let work = verbs::run(self, call, target, verb, manner.representation);
        if verb.streams() {
            return work.await;
        }
        within(limit, work).await
    }
}

async fn within(limit: Duration, work: impl Future<Output = Result<Answer, Status>>) -> Result<Answer, Status> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Status::new(504, "Timeout", "Timeout: request did not complete within the requested timeout"))
    })
}

/// Names are checked when they are sought (upstream's `NamespaceKeyFunc`): no object can have one that a path could not.
fn check_name(target: &Target) -> Result<(), Status> {
    let Some(name) = &target.name else { return Ok(()) };
    match names::path_segment(name).as_slice() {
        [] => Ok(()),
        errors => {
            let name = field::quoted(name);
            Err(Status::bad_request(format!("Name parameter invalid: {name}: {}", errors.join(";"))))
        }
    }
}

/// How long a request may take (AS-12). It is settled before it is known who asks; watches and logs have no such limit,
/// so nobody looks at theirs.
fn time_limit(call: &Call, path: &str) -> Result<Duration, Status> {
    if call.query.get("timeout").is_none() {
        return Ok(REQUEST_TIMEOUT);
    }
    let attributes = route::attributes(&call.method, path, &call.query);
    if attributes.verb == "watch" || attributes.subresource == "log" {
        return Ok(REQUEST_TIMEOUT);
    }
    let limit = options::timeout(&call.query)?.filter(|limit| !limit.is_zero());
    Ok(limit.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT))
}

enum Outcome {
    Answer(Answer),
    Response(Response<ResponseBody>),
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
