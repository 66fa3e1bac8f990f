//! A client that notes every request with its moment, and whose server can be out of order for a while.
//!
//! For tests of how often and when something is asked, in virtual time. One fault at one call is in `faults`.

use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyStream, StreamBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use crate::{
    runtime::{ControllerContext, Metrics},
    testing::World,
};

/// Cheap to clone; all clones are one wire.
#[derive(Clone)]
pub(crate) struct Wire {
    healthy: Arc<watch::Sender<bool>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The server breaks down at the first request that this is true of.
    breaks_at: Arc<Mutex<Option<Moment>>>,
}

type Moment = Box<dyn Fn(&Asked) -> bool + Send>;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// A list or a watch, as mirrors ask for; not what a decision leads to.
    pub(crate) mirrors: bool,
}

impl Asked {
    pub(crate) fn is(&self, method: &Method, end_of_path: &str) -> bool {
        !self.mirrors && self.method == *method && self.path.ends_with(end_of_path)
    }
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self { healthy: Arc::new(watch::Sender::new(true)), asked: Arc::default(), breaks_at: Arc::default() }
    }

    /// The server answers nothing but 500 from the first such request on, and what it had begun to answer breaks off.
    pub(crate) fn break_at(&self, is_it: impl Fn(&Asked) -> bool + Send + 'static) {
        *self.breaks_at.lock() = Some(Box::new(is_it));
    }

    /// Waits until the server has broken down.
    pub(crate) async fn broken(&self) {
        self.healthy.subscribe().wait_for(|healthy| !*healthy).await.unwrap();
    }

    pub(crate) fn heal(&self) {
        self.healthy.send_replace(true);
    }

    /// Everything that was asked for so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// What a controller is given whose every request, those about events too, goes this way.
    pub(crate) fn context(&self, world: &mut World) -> ControllerContext {
        let context = &world.context;
        let (environment, shutdown) = (context.environment.clone(), context.shutdown.clone());
        let client = self.client(world.client.clone());
        let (context, sender) = ControllerContext::new(client, Metrics::new(), environment, shutdown.clone());
        world.spawn("events", sender.run(shutdown));
        context
    }

    fn client(&self, client: Client) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, wire) = (client.clone(), wire.clone());
            async move {
                wire.note(&request);
                let (is_healthy, mut health) = (*wire.healthy.borrow(), wire.healthy.subscribe());
                // An answer that was begun in good health ends with it.
                let end = async move { drop(health.wait_for(|healthy| is_healthy && !*healthy).await) }.boxed();
                let response = if is_healthy { client.send(request).await? } else { refusal() };
                Ok::<_, kube::Error>(response.map(|body| StreamBody::new(BodyStream::new(body).take_until(end))))
            }
        });
        Client::new(service, "default")
    }

    fn note(&self, request: &Request<Body>) {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let mirrors = method == Method::GET && request.uri().query().is_some();
        let asked = Asked { at: Instant::now(), method, path, mirrors };
        let mut breaks_at = self.breaks_at.lock();
        if breaks_at.as_ref().is_some_and(|is_it| is_it(&asked)) {
            *breaks_at = None;
            self.healthy.send_replace(false);
        }
        self.asked.lock().push(asked);
    }
}

fn refusal() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "no"});
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
