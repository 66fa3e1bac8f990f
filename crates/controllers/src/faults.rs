//! A client with which one chosen call goes wrong, for tests of what a controller makes of that.
//!
//! Every fault at every call is tried elsewhere: `testkit`'s enumeration runs whole scenarios in virtual time. Lists,
//! watches and events are not counted: nothing is decided by their order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use kube::{Client, Error, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    runtime::ControllerContext,
    testing::{PATIENCE, World},
};

/// What goes wrong.
#[derive(Clone)]
pub(crate) enum Fault {
    /// The call never arrives.
    RequestLost,
    /// The call is carried out; then this happens, and the answer never comes.
    AnswerLost(Arc<dyn Fn() + Send + Sync>),
    /// The server says no.
    Refused(u16, &'static str),
    /// Somebody is quicker.
    Interference(Arc<dyn Fn(Client) -> BoxFuture<'static, ()> + Send + Sync>),
}

/// Cheap to clone; all clones count the same calls.
#[derive(Clone)]
pub(crate) struct Faults {
    state: Arc<Mutex<State>>,
}

struct State {
    calls: Vec<Call>,
    /// The fault comes at the first call that this is true of.
    fault: Option<(Where, Fault)>,
    /// Watches of what has this in its path show nothing.
    blind: Option<&'static str>,
}

type Where = Box<dyn Fn(&Call) -> bool + Send>;

/// A call that a controller has made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The answer's code; 0 if the server was never asked.
    pub(crate) code: u16,
}

impl Faults {
    pub(crate) fn none() -> Self {
        Self::new(None)
    }

    /// The fault comes at the first call of this kind.
    pub(crate) fn at_first(method: Method, part_of_path: &'static str, fault: Fault) -> Self {
        Self::new(Some((Box::new(Self::is_of(method, part_of_path)), fault)))
    }

    /// The fault comes at the first one after `armed` was set.
    pub(crate) fn when(armed: Arc<AtomicBool>, method: Method, part_of_path: &'static str, fault: Fault) -> Self {
        let is_it = Self::is_of(method, part_of_path);
        Self::new(Some((Box::new(move |call| is_it(call) && armed.load(Ordering::SeqCst)), fault)))
    }

    fn is_of(method: Method, part_of_path: &'static str) -> impl Fn(&Call) -> bool {
        move |call| call.method == method && call.path.contains(part_of_path)
    }

    fn new(fault: Option<(Where, Fault)>) -> Self {
        Self { state: Arc::new(Mutex::new(State { calls: Vec::new(), fault, blind: None })) }
    }

    /// Besides, watches of what has this in its path never show anything.
    pub(crate) fn with_blind_watch(self, part_of_path: &'static str) -> Self {
        self.state.lock().blind = Some(part_of_path);
        self
    }

    /// Every call so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    /// Waits until a call of this kind has been answered with this code.
    pub(crate) async fn wait_answer(&self, method: Method, code: u16) {
        let answered = |call: &Call| call.method == method && call.code == code;
        let found = tokio::time::timeout(PATIENCE, async {
            while !self.state.lock().calls.iter().any(answered) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        assert!(found.is_ok(), "no {method} was answered with {code}: {:#?}", self.calls());
    }

    fn client(&self, client: Client) -> Client {
        let faults = self.clone();
        let service = tower::service_fn(move |request| {
            let (client, faults) = (client.clone(), faults.clone());
            async move { faults.send(&client, request).await }
        });
        Client::new(service, "default")
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
        if self.is_blind(&request) {
            return std::future::pending().await;
        }
        if !is_counted(&request) {
            return client.send(request).await;
        }
        let (number, fault) = self.note(&request);
        match fault {
            None => self.forward(client, request, number).await,
            Some(Fault::RequestLost) => Err(lost()),
            Some(Fault::AnswerLost(then)) => {
                self.forward(client, request, number).await?;
                then();
                Err(lost())
            }
            Some(Fault::Refused(code, message)) => Ok(refusal(code, message)),
            Some(Fault::Interference(interfere)) => {
                interfere(client.clone()).await;
                self.forward(client, request, number).await
            }
        }
    }

    fn is_blind(&self, request: &Request<Body>) -> bool {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        is_watch && self.state.lock().blind.is_some_and(|part| request.uri().path().contains(part))
    }

    fn note(&self, request: &Request<Body>) -> (usize, Option<Fault>) {
        let mut state = self.state.lock();
        let number = state.calls.len();
        let call = Call { method: request.method().clone(), path: request.uri().path().to_owned(), code: 0 };
        let hit = state.fault.as_ref().is_some_and(|(here, _)| here(&call));
        state.calls.push(call);
        (number, if hit { state.fault.take().map(|(_, fault)| fault) } else { None })
    }

    async fn forward(&self, client: &Client, request: Request<Body>, number: usize) -> Result<Response<Body>, Error> {
        let response = client.send(request).await?;
        self.state.lock().calls[number].code = response.status().as_u16();
        Ok(response)
    }
}

/// Starts a controller of whose calls one may fail.
pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
    world: &mut World,
    faults: &Faults,
    controller: impl FnOnce(ControllerContext) -> F,
) {
    let client = faults.client(world.context.client.clone());
    let context = ControllerContext { client, ..world.context.clone() };
    world.spawn("controller", controller(context));
}

fn is_counted(request: &Request<Body>) -> bool {
    let reads_many = request.method() == Method::GET && request.uri().query().is_some();
    !reads_many && !request.uri().path().contains("/events")
}

fn lost() -> Error {
    Error::Service("the connection was lost".into())
}

fn refusal(code: u16, message: &str) -> Response<Body> {
    let status: Value = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
        "message": message, "code": code});
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = code.try_into().unwrap();
    response
}
