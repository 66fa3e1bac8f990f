//! The controllers' own HTTP endpoint: `/metrics`, `/healthz`, `/livez`, `/readyz` (design D8).
//!
//! Only for `--bind-address` of a controller process; the embedded server has its own.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use super::{
    metrics::{Exposition, Metrics},
    supervise::Shutdown,
};

/// Scrapers and probes need a handful of connections.
const CONNECTIONS_MAX: usize = 64;
/// A client that has not sent its request by then is not going to.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What `/readyz` asks before it says yes. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Arc<Mutex<Vec<Check>>>,
}

struct Check {
    name: &'static str,
    holds: Box<dyn Fn() -> bool + Send>,
}

impl Readiness {
    /// Adds something that must hold. `holds` must not block.
    pub fn check(&self, name: &'static str, holds: impl Fn() -> bool + Send + 'static) {
        self.checks.lock().push(Check { name, holds: Box::new(holds) });
    }

    /// What does not hold.
    pub fn failing(&self) -> Vec<&'static str> {
        self.checks.lock().iter().filter(|check| !(check.holds)()).map(|check| check.name).collect()
    }
}

/// Serves until shutdown.
pub async fn serve(listener: TcpListener, metrics: Metrics, readiness: Readiness, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            Some(_) = connections.join_next() => continue,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, slot)) => {
                let serving = connection(stream, metrics.clone(), readiness.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(slot);
                });
            }
            // Out of descriptors, most likely: others must let go of some first.
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // Answers are written at once; whoever keeps a connection open loses it.
    connections.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

async fn connection(stream: TcpStream, metrics: Metrics, readiness: Readiness) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request, &metrics, &readiness);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "serve a connection");
    }
}

fn answer<B>(request: &Request<B>, metrics: &Metrics, readiness: &Readiness) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "Method Not Allowed\n".to_owned());
    }
    match request.uri().path() {
        "/metrics" => {
            let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
            let exposition = Exposition::accepted(accept);
            text(StatusCode::OK, exposition.content_type(), metrics.encode(exposition))
        }
        "/healthz" | "/livez" => health(&[], "healthz"),
        "/readyz" => health(&readiness.failing(), "readyz"),
        _ => text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
    }
}

/// The words of k8s.io/apiserver's healthz handlers.
fn health(failing: &[&str], name: &str) -> Response<Full<Bytes>> {
    if failing.is_empty() {
        return text(StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned());
    }
    let lines: String = failing.iter().map(|check| format!("[-]{check} failed: reason withheld\n")).collect();
    let body = format!("{lines}{name} check failed\n");
    text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", body)
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("failing", &self.failing()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn health_readiness_and_metrics_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let readiness = Readiness::default();
        let synced = Arc::new(AtomicBool::new(false));
        let check = synced.clone();
        readiness.check("informer-sync", move || check.load(Ordering::Relaxed));
        let server = tokio::spawn(serve(listener, Metrics::new(), readiness, shutdown.clone()));

        let get = |path: &'static str| async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
        };
        assert_eq!(get("/healthz").await, ("200".to_owned(), "ok".to_owned()));
        let (code, body) = get("/readyz").await;
        assert_eq!(code, "500");
        assert_eq!(body, "[-]informer-sync failed: reason withheld\nreadyz check failed\n");
        synced.store(true, Ordering::Relaxed);
        assert_eq!(get("/readyz").await, ("200".to_owned(), "ok".to_owned()));
        assert_eq!(get("/metrics").await.0, "200");
        assert_eq!(get("/x").await.0, "404");
        shutdown.cancel();
        server.await.unwrap();
    }
}
