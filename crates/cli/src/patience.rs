//! How long an answer is waited for. A server can accept a connection and never say a word; whoever typed a command
//! should hear of that before they lose patience themselves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::time::timeout;

/// What has not begun to be answered by then, or goes on not for so long, is given up.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A server that has not answered in time.
#[derive(Debug)]
pub(crate) struct Silent {
    server: Arc<str>,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has not answered within {} s", self.server, ANSWER_MAX.as_secs())
    }
}

impl std::error::Error for Silent {}

/// What of an answer may take its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Nothing.
    Prompt,
    /// What happens is told when it happens; that it will be is told at once.
    Watched,
    /// Everything: kubelets say nothing at all before there is a first line.
    Followed,
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// A client like `client` that gives up on answers that do not come. Watches and logs that are followed may be silent for
/// as long as they like.
pub(crate) fn limited(client: Client, server: &str) -> Client {
    let namespace = client.default_namespace().to_owned();
    let server: Arc<str> = server.into();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, server) = (client.clone(), server.clone());
        async move {
            let pace = pace(request.uri());
            let answer = in_time_if(pace != Pace::Followed, &server, client.send(request)).await??;
            // Only time that somebody waits for the rest counts: whoever shows a log may be slower than the server.
            Ok::<_, BoxedError>(answer.map(|body| {
                StreamBody::new(stream::unfold(Some((body, server)), move |rest| async move {
                    let (mut body, server) = rest?;
                    match in_time_if(pace == Pace::Prompt, &server, body.frame()).await {
                        Ok(frame) => Some((frame?.map_err(BoxedError::from), Some((body, server)))),
                        Err(silent) => Some((Err(silent.into()), None)),
                    }
                }))
            }))
        }
    });
    Client::new(service, namespace)
}

/// Waits for something of a server's, but not for ever.
pub(crate) async fn in_time<T>(server: &str, answer: impl Future<Output = T>) -> Result<T, Silent> {
    timeout(ANSWER_MAX, answer).await.map_err(|_| Silent { server: server.into() })
}

async fn in_time_if<T>(is_limited: bool, server: &str, answer: impl Future<Output = T>) -> Result<T, Silent> {
    if is_limited { in_time(server, answer).await } else { Ok(answer.await) }
}

fn pace(uri: &Uri) -> Pace {
    let parameters = || uri.query().unwrap_or_default().split('&');
    let asks = |name: &str| parameters().any(|one| one.strip_prefix(name).is_some_and(|value| value == "=true"));
    match (asks("watch"), asks("follow")) {
        (_, true) => Pace::Followed,
        (true, false) => Pace::Watched,
        (false, false) => Pace::Prompt,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::StreamExt as _;
    use http::Response;
    use http_body_util::{BodyStream, Full};
    use kube::api::ListParams;
    use kube::{Api, Error};
    use tokio::time::Instant;

    use super::*;
    use crate::pod_view::PodObject;

    /// A server that says nothing, or begins to answer and then says nothing more.
    fn silent(begins: bool) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            if !begins {
                std::future::pending::<()>().await;
            }
            let frames = BodyStream::new(Full::from("never")).then(|frame| async {
                std::future::pending::<()>().await;
                frame
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        limited(Client::new(service, "default"), "https://example.com")
    }

    fn words(error: &Error) -> String {
        let mut chain = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
        chain.find_map(|error| error.downcast_ref::<Silent>()).map(ToString::to_string).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_is_waited_for_without_end() {
        for begins in [false, true] {
            let pods: Api<PodObject> = Api::default_namespaced(silent(begins));
            let started = Instant::now();
            let error = pods.list(&ListParams::default()).await.unwrap_err();
            assert_eq!(words(&error), "https://example.com has not answered within 30 s", "{begins}: {error:?}");
            assert_eq!(started.elapsed(), ANSWER_MAX);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_and_followed_logs_may_be_silent() {
        let long = ANSWER_MAX * 100;
        let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
        let followed = "/api/v1/namespaces/n/pods/p/log?&container=c&follow=true";
        assert!(timeout(long, silent(false).send(get(followed))).await.is_err(), "it is still waited for");
        for path in ["/api/v1/pods?&watch=true&resourceVersion=0", followed] {
            let mut body = silent(true).send(get(path)).await.unwrap().into_body();
            assert!(timeout(long, body.frame()).await.is_err(), "{path} is still waited for");
        }
        assert!(silent(false).send(get("/api/v1/pods?watch=true")).await.is_err(), "a watch is opened at once");
    }

    #[test]
    fn what_may_take_its_time_is_known_by_its_address() {
        for (uri, expected) in [
            ("/api/v1/pods", Pace::Prompt),
            ("/api/v1/pods?labelSelector=watch%3Dtrue&limit=5", Pace::Prompt),
            ("/api/v1/pods?watch=false", Pace::Prompt),
            ("/api/v1/pods?limit=5&watch=true", Pace::Watched),
            ("/api/v1/namespaces/n/pods/p/log?follow=true", Pace::Followed),
            ("/api/v1/namespaces/n/pods/p/log?previous=true", Pace::Prompt),
        ] {
            assert_eq!(pace(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
