//! What a service leaves unread of a request's body.
//!
//! A client that is still sending sees the answer instead of a reset only if somebody reads on and forgets. That is the
//! business of the connection: no answer waits for it, and a client that stops sending is not waited for either
//! (BI-15). What is still unread then is dropped, upon which hyper closes the connection, or its stream of HTTP/2.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{sync::mpsc::UnboundedSender, time::timeout};

/// A request's body while a service has it. Dropped before its end, it goes back to its connection.
#[derive(Debug)]
pub struct Lent {
    body: Option<Incoming>,
    /// Its receiver runs with the connection, so no more wait here than the connection has let in since.
    back: UnboundedSender<Incoming>,
}

impl Lent {
    pub(crate) fn new(body: Incoming, back: &UnboundedSender<Incoming>) -> Self {
        Self { body: Some(body), back: back.clone() }
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            // Nobody takes it back if the connection has ended.
            let _ = self.back.send(body);
        }
    }
}

/// Reads on and forgets, within both bounds.
pub(crate) async fn forget(mut body: Incoming, bytes_max: usize, limit: Duration) {
    let mut left = bytes_max;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = timeout(limit, reading).await;
}
