//! A client that fails at one chosen call, for tests that try every one of them (spec/invariants: exhaustive faults).
//!
//! A scenario is run once to count the calls, then once for every call and fault; whatever happens, it must end the
//! same. Lists, watches and events are not counted: nothing is decided by their order.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use kube::{Client, Error, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    runtime::ControllerContext,
    testing::{PATIENCE, World},
};

/// What goes wrong.
#[derive(Clone)]
pub(crate) enum Fault {
    /// The process ends when the call has been carried out, before anybody hears of it.
    Crash,
    /// The call is carried out, and its answer gets lost.
    AnswerLost,
    /// The call never arrives.
    RequestLost,
    /// The server says no.
    Refused(u16, &'static str),
    /// Somebody is quicker.
    Interference(Arc<dyn Fn(Client) -> BoxFuture<'static, ()> + Send + Sync>),
}

/// The faults that a process must survive wherever they happen.
pub(crate) const EVERYWHERE: [Fault; 3] = [Fault::Crash, Fault::AnswerLost, Fault::RequestLost];

/// Cheap to clone; all clones count the same calls.
#[derive(Clone)]
pub(crate) struct Faults {
    state: Arc<Mutex<State>>,
    crashed: watch::Sender<bool>,
}

struct State {
    calls: Vec<Call>,
    /// The fault comes at the first call that this is true of.
    fault: Option<(Where, Fault)>,
}

type Where = Box<dyn Fn(usize, &Call) -> bool + Send>;

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

    /// The fault comes at the call of this number.
    pub(crate) fn at(number: usize, fault: Fault) -> Self {
        Self::new(Some((Box::new(move |this, _| this == number), fault)))
    }

    /// The fault comes at the first call of this kind.
    pub(crate) fn at_first(method: Method, part_of_path: &'static str, fault: Fault) -> Self {
        Self::new(Some((Box::new(move |_, call| call.method == method && call.path.contains(part_of_path)), fault)))
    }

    fn new(fault: Option<(Where, Fault)>) -> Self {
        Self { state: Arc::new(Mutex::new(State { calls: Vec::new(), fault })), crashed: watch::Sender::new(false) }
    }

    /// Every call so far, those of earlier lives included.
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

    /// Runs a controller in a world until it ends, and starts it anew when it has crashed.
    pub(crate) async fn run<F: Future<Output = ()>>(
        self,
        context: ControllerContext,
        controller: impl Fn(ControllerContext) -> F,
    ) {
        let client = self.client(context.client.clone());
        let context = ControllerContext { client, ..context };
        let mut crashed = self.crashed.subscribe();
        tokio::select! {
            () = controller(context.clone()) => return,
            _ = crashed.wait_for(|crashed| *crashed) => {}
        }
        self.crashed.send_replace(false);
        controller(context).await;
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
        if !is_counted(&request) {
            return client.send(request).await;
        }
        let (number, fault) = self.note(&request);
        match fault {
            None => self.forward(client, request, number).await,
            Some(Fault::RequestLost) => Err(lost()),
            Some(Fault::AnswerLost) => {
                self.forward(client, request, number).await?;
                Err(lost())
            }
            Some(Fault::Crash) => {
                let _ = self.forward(client, request, number).await;
                self.crashed.send_replace(true);
                std::future::pending().await
            }
            Some(Fault::Refused(code, message)) => Ok(refusal(code, message)),
            Some(Fault::Interference(interfere)) => {
                interfere(client.clone()).await;
                self.forward(client, request, number).await
            }
        }
    }

    fn note(&self, request: &Request<Body>) -> (usize, Option<Fault>) {
        let mut state = self.state.lock();
        let number = state.calls.len();
        let call = Call { method: request.method().clone(), path: request.uri().path().to_owned(), code: 0 };
        let hit = state.fault.as_ref().is_some_and(|(here, _)| here(number, &call));
        state.calls.push(call);
        (number, if hit { state.fault.take().map(|(_, fault)| fault) } else { None })
    }

    async fn forward(&self, client: &Client, request: Request<Body>, number: usize) -> Result<Response<Body>, Error> {
        let response = client.send(request).await?;
        self.state.lock().calls[number].code = response.status().as_u16();
        Ok(response)
    }
}

/// Tries every fault at every call. `scenario` gets a world of its own each time, and must check how it ended.
pub(crate) async fn everywhere<F: Future<Output = ()>>(scenario: impl Fn(Faults) -> F) -> usize {
    let faults = Faults::none();
    scenario(faults.clone()).await;
    let calls = faults.calls().len();
    let mut missed = 0;
    for number in 0..calls {
        for fault in EVERYWHERE {
            let faults = Faults::at(number, fault);
            scenario(faults.clone()).await;
            missed += usize::from(faults.state.lock().fault.is_some());
        }
    }
    // A race can make a call or two unnecessary; faults that rarely happen would prove nothing.
    assert!(missed * 10 <= calls * EVERYWHERE.len(), "{missed} of {} faults never happened", calls * EVERYWHERE.len());
    calls
}

/// Starts a controller whose calls can fail.
pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
    world: &mut World,
    faults: &Faults,
    controller: impl Fn(ControllerContext) -> F + Send + 'static,
) {
    world.spawn("controller", faults.clone().run(world.context.clone(), controller));
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
