//! HTTP on loopback in front of a client: what meets a fault there is met by whoever is connected here. An answer that got
//! lost is a connection that breaks.

use std::{error::Error, sync::Arc};

use http::{HeaderName, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio::{net::TcpListener, sync::Mutex, task::JoinSet};

/// Of a connection, or of the client's own making.
const NOT_PASSED_ON: [HeaderName; 6] = [
    header::HOST,
    header::AUTHORIZATION,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
];
/// As the API server.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Serves until it is dropped, and then breaks all connections.
pub(super) async fn serve(listener: TcpListener, client: Client, turn: Arc<Mutex<()>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let (client, turn) = (client.clone(), turn.clone());
        let service = service_fn(move |request| pass(request, client.clone(), turn.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn pass(
    request: Request<Incoming>,
    client: Client,
    turn: Arc<Mutex<()>>,
) -> Result<Response<Body>, Box<dyn Error + Send + Sync>> {
    let (mut head, body) = request.into_parts();
    for name in NOT_PASSED_ON {
        head.headers.remove(name);
    }
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
    let watches = head.uri.query().is_some_and(|query| query.contains("watch=true"));
    let _turn = if watches { None } else { Some(turn.lock().await) };
    Ok(client.send(Request::from_parts(head, Body::from(body.to_vec()))).await?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::StatusCode;
    use kube::Config;

    use super::*;

    #[tokio::test]
    async fn answers_come_through_and_lost_ones_break_the_connection() {
        let asked = Arc::new(AtomicUsize::new(0));
        let server = tower::service_fn({
            let asked = asked.clone();
            move |request: Request<Body>| {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                async move {
                    assert!(!request.headers().contains_key(header::AUTHORIZATION), "credentials stay here");
                    let path = request.uri().path().to_owned();
                    match number {
                        0 => {
                            Ok(Response::builder().status(409).body(Body::from(path.into_bytes())).expect("an answer"))
                        }
                        _ => Err::<_, Box<dyn Error + Send + Sync>>("lost".into()),
                    }
                }
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let proxy = tokio::spawn(serve(listener, Client::new(server, "default"), Arc::default()));

        let client = Client::try_from(Config::new(format!("http://{address}").parse().expect("an address")));
        let client = client.expect("a client");
        let request = || Request::get("/api/v1/pods").header("authorization", "Bearer x").body(Body::empty());
        let answer = client.send(request().expect("a request")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        let body = answer.into_body().collect_bytes().await.expect("a body");
        assert_eq!(&*body, b"/api/v1/pods");
        assert!(client.send(request().expect("a request")).await.is_err(), "no answer at all");
        assert_eq!(asked.load(Ordering::Relaxed), 2, "nothing was sent again");
        proxy.abort();
    }
}
