//! The socket side of the server: accepts connections, speaks TLS and HTTP, and ends in an orderly way.
//!
//! Everything a peer can hold or send is bounded here: connections, handshakes, header sizes and times, idle
//! connections, unread answers, concurrent streams. What a request means is elsewhere: any tower service will do, and
//! programs in the same process call it without passing through this file.
//!
//! Ending: the listener closes first; then idle connections are closed and busy ones finish their requests; whatever is
//! still open at the deadline is cut. Watches have no end of their own: whoever ends the server tells the service to
//! end them, too (AS-68).

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tower::{Service, ServiceExt as _};

use crate::activity::{Activity, InFlight};
use crate::body::BODY_BYTES_MAX;
use crate::host::Hosts;
use crate::leftover::{self, Lent};
use crate::opening::{self, Reopened};

type BoxError = Box<dyn StdError + Send + Sync>;

/// What one peer, and all of them together, may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Further peers wait in the listener's backlog.
    pub connections: usize,
    /// From accepting a connection to the end of its TLS handshake.
    pub handshake: Duration,
    /// From the end of the handshake, later from the first byte of an HTTP/1.1 request, to the end of its headers, and to
    /// the end of the preface of HTTP/2 (BI-15; kube-apiserver gives 32 s). Clients that keep a connection between
    /// requests may do so for longer.
    pub header_read: Duration,
    /// A connection without requests is closed after this. kube-apiserver's value.
    pub idle: Duration,
    /// HTTP/2 peers are asked whether they are alive this often …
    pub ping_interval: Duration,
    /// … and are given this long to answer. Both are kube-apiserver's values.
    pub ping_timeout: Duration,
    /// A request's line and headers together; long label selectors are the reason for more than the usual 16 kB.
    pub header_bytes: u32,
    /// Requests at a time on one HTTP/2 connection. Go clients put all watches of a program on one connection.
    pub streams: u32,
    /// Bytes of one HTTP/2 response that may wait for a slow peer.
    pub send_buffer: usize,
    /// A connection is cut if its peer has not made room for the next part of an answer, some 64 kB, for this long
    /// (BI-85). Whoever does not read a watch for five minutes could not resume it on a Kubernetes with etcd's usual
    /// history either (AS-107). Logs wait: people leave them in a pager.
    pub unread: Duration,
    /// How long the rest of a body that nobody wants is read, so that its sender sees the answer …
    pub leftover: Duration,
    /// … and how much of it.
    pub leftover_bytes: usize,
    /// From the end of `shutdown` until connections are cut.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshake: Duration::from_secs(10),
            header_read: Duration::from_secs(30),
            idle: Duration::from_secs(90),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            header_bytes: 64 << 10,
            streams: 1000,
            send_buffer: 64 << 10,
            unread: Duration::from_secs(300),
            leftover: Duration::from_secs(1),
            leftover_bytes: 4 * BODY_BYTES_MAX,
            drain: Duration::from_millis(1500),
        }
    }
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still open at the deadline.
    pub cut: usize,
}

/// Serves `service` on `listener` until `shutdown` is ready, then drains.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: S,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> Drained
where
    S: Service<Request<Lent>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (drain, draining) = watch::channel(false);
    let permits = Arc::new(Semaphore::new(limits.connections));
    let hosts = Hosts::of(listener.local_addr().ok());
    let acceptor = TlsAcceptor::from(tls);
    let door = Arc::new(Door { acceptor, http: http_settings(&limits), service, hosts, limits });
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => report(ended),
            (stream, permit) = accept(&listener, &permits) => {
                let (door, draining) = (Arc::clone(&door), draining.clone());
                connections.spawn(async move {
                    door.connection(stream, draining).await;
                    drop(permit);
                });
            }
        }
    }
    drop(listener);
    drain.send_replace(true);
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    let _ = timeout(door.limits.drain, all_ended).await;
    let cut = connections.len();
    connections.shutdown().await;
    Drained { cut }
}

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => return (stream, permit),
            // The peer has gone already, or the process is out of file descriptors: neither ends the server, and the
            // second wants some time to pass.
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task died");
    }
}

fn http_settings(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        // hyper counts the time between requests as well, so `header_read` is not for it.
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.header_bytes as usize);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .max_header_list_size(limits.header_bytes)
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(limits.send_buffer);
    http
}

/// What all connections share.
struct Door<S> {
    acceptor: TlsAcceptor,
    http: auto::Builder<TokioExecutor>,
    service: S,
    hosts: Hosts,
    limits: Limits,
}

impl<S, B> Door<S>
where
    S: Service<Request<Lent>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// One connection from its first byte to its last.
    async fn connection(&self, stream: TcpStream, mut draining: watch::Receiver<bool>) {
        // Answers are written whole: waiting for more to send only adds latency.
        let _ = stream.set_nodelay(true);
        let stream = tokio::select! {
            handshake = timeout(self.limits.handshake, self.handshake(stream)) => match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake"),
                Err(_) => return tracing::debug!("TLS handshake took too long"),
            },
            _ = draining.wait_for(|draining| *draining) => return,
        };
        let activity = Arc::new(Activity::new());
        let Some(stream) = self.opened(stream, &activity, &mut draining).await else { return };
        let is_http_1 = !stream.is_http_2();
        let (back, mut unread) = mpsc::unbounded_channel();
        let mut leftovers = FuturesUnordered::new();
        let service = service_fn(|request: Request<Incoming>| {
            let request = request.map(|body| Lent::new(body, &back));
            let refusal = self.hosts.refusal(&request);
            let answer = refusal.is_none().then(|| self.service.clone().oneshot(request));
            let in_flight = InFlight::begin(&activity);
            async move {
                if let Some(refusal) = refusal {
                    return Ok::<_, Infallible>(refusal.map(Either::Right));
                }
                let response = answer.expect("asked unless refused").await?;
                let may_wait = response.extensions().get::<Unhurried>().is_some();
                Ok(response.map(|body| Either::Left(Observed { body: Box::pin(body), in_flight, may_wait })))
            }
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut told_to_end = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error, "connection");
                    }
                    return;
                }
                () = self.time_to_end(&activity, draining.clone()), if !told_to_end => {
                    connection.as_mut().graceful_shutdown();
                    activity.ends();
                    told_to_end = true;
                }
                Some(body) = unread.recv() => {
                    leftovers.push(leftover::forget(body, self.limits.leftover_bytes, self.limits.leftover));
                }
                Some(()) = leftovers.next() => activity.body_ends(),
                () = activity.in_headers_for(self.limits.header_read), if is_http_1 => {
                    return tracing::debug!("the headers of a request took too long");
                }
                () = activity.unread_for(self.limits.unread) => {
                    return tracing::debug!("an answer was not read");
                }
            }
        }
    }

    async fn handshake(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // The first byte of every TLS record that opens a connection (RFC 8446, 5.1).
        const HANDSHAKE: u8 = 22;
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            stream.write_all(PLAIN_HTTP_ANSWER.as_bytes()).await?;
            stream.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        self.acceptor.accept(stream).await
    }

    /// The stream once it has shown which HTTP it speaks; `None` if that is none, or if it shows nothing in time.
    async fn opened(
        &self,
        mut stream: TlsStream<TcpStream>,
        activity: &Arc<Activity>,
        draining: &mut watch::Receiver<bool>,
    ) -> Option<Reopened<TlsStream<TcpStream>>> {
        let reading = opening::read(&mut stream, self.limits.header_bytes as usize);
        let read = tokio::select! {
            read = timeout(self.limits.header_read.min(self.limits.idle), reading) => read.ok()?.ok()?,
            _ = draining.wait_for(|draining| *draining) => return None,
        };
        if opening::is_of_unknown_version(&read) {
            // The peer may be gone; nobody else is concerned.
            let _ = stream.write_all(opening::VERSION_ANSWER.as_bytes()).await;
            let _ = stream.shutdown().await;
            return None;
        }
        Some(Reopened::new(read, stream, Arc::clone(activity)))
    }

    async fn time_to_end(&self, activity: &Activity, mut draining: watch::Receiver<bool>) {
        tokio::select! {
            _ = draining.wait_for(|draining| *draining) => {}
            () = activity.idle_for(self.limits.idle) => tracing::debug!("closing an idle connection"),
        }
    }
}

/// What Go's server says, for people who typed `http://`.
const PLAIN_HTTP_ANSWER: &str = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// An extension of answers that may be left unread for as long as their connection lives.
#[derive(Debug, Clone, Copy)]
pub struct Unhurried;

/// A body that counts as activity of its connection until it ends.
struct Observed<B> {
    body: Pin<Box<B>>,
    in_flight: InFlight,
    may_wait: bool,
}

impl<B: Body> Body for Observed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = self.body.as_mut().poll_frame(cx);
        match &polled {
            Poll::Ready(Some(_)) if !self.may_wait => self.in_flight.gives(),
            _ => self.in_flight.has_given_all(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream as ClientStream;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

    use super::*;
    use crate::tls::{Identity, server_names};

    type TestBody = UnsyncBoxBody<Bytes, Infallible>;

    /// Far longer than anything here takes; a test that needs it has failed.
    const PATIENCE: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(50);

    /// `/hello` answers at once, `/stuck` never, `/slow` when told to; `/watch` sends one line and ends when told to.
    #[derive(Clone)]
    struct Routes {
        go_on: watch::Receiver<bool>,
        started: Arc<Semaphore>,
    }

    impl Routes {
        async fn answer(mut self, request: Request<Lent>) -> Result<Response<TestBody>, Infallible> {
            self.started.add_permits(1);
            let text = |text: &'static str| Full::from(text).boxed_unsync();
            Ok(match request.uri().path() {
                "/stuck" => std::future::pending().await,
                "/slow" => {
                    let _ = self.go_on.wait_for(|go_on| *go_on).await;
                    Response::new(text("slow"))
                }
                "/watch" => {
                    let end = Box::pin(async move { self.go_on.wait_for(|go_on| *go_on).await.map(drop).unwrap() });
                    Response::new(FirstThen { first: Some(Bytes::from("event\n")), end }.boxed_unsync())
                }
                _ => Response::new(text("hello")),
            })
        }
    }

    struct FirstThen {
        first: Option<Bytes>,
        end: Pin<Box<dyn Future<Output = ()> + Send>>,
    }

    impl Body for FirstThen {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.first.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => self.end.as_mut().poll(cx).map(|()| None),
            }
        }
    }

    struct TestServer {
        address: SocketAddr,
        authority: String,
        stop: oneshot::Sender<()>,
        go_on: watch::Sender<bool>,
        started: Arc<Semaphore>,
        serving: JoinHandle<Drained>,
        _dir: tempfile::TempDir,
    }

    impl TestServer {
        async fn start(limits: Limits) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let names = server_names(Ipv4Addr::LOCALHOST.into());
            let identity = Identity::load_or_create(dir.path(), &names, jiff::Timestamp::now()).unwrap();
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let (go_on, going) = watch::channel(false);
            let started = Arc::new(Semaphore::new(0));
            let routes = Routes { go_on: going, started: Arc::clone(&started) };
            let service = tower::service_fn(move |request| routes.clone().answer(request));
            let (stop, stopped) = oneshot::channel();
            let serving = tokio::spawn(serve(listener, identity.tls, service, limits, async {
                let _ = stopped.await;
            }));
            Self { address, authority: identity.authority, stop, go_on, started, serving, _dir: dir }
        }

        async fn connect(&self, alpn: &[&str]) -> ClientStream<TcpStream> {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
            let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
            let stream = TcpStream::connect(self.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
        }

        async fn get(&self, path: &str) -> ClientStream<TcpStream> {
            let mut stream = self.connect(&["http/1.1"]).await;
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
            stream
        }

        /// Waits until the service has been asked once more.
        async fn request_arrived(&self) {
            timeout(PATIENCE, self.started.acquire()).await.unwrap().unwrap().forget();
        }

        async fn stop(self) -> Drained {
            self.stop.send(()).unwrap();
            timeout(PATIENCE, self.serving).await.unwrap().unwrap()
        }
    }

    async fn read_until(stream: &mut ClientStream<TcpStream>, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut buffer = [0; 1024];
            let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect(&text).unwrap();
            assert_ne!(read, 0, "closed after {text:?}");
            text += std::str::from_utf8(&buffer[..read]).unwrap();
        }
        text
    }

    async fn read_to_close(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
        let mut bytes = Vec::new();
        // However the peer closes, with or without TLS's goodbye, what counts is what came before.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("still open");
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn speaks_http_1_and_http_2_as_negotiated() {
        let server = TestServer::start(Limits::default()).await;
        let answer = read_until(&mut server.get("/hello").await, "hello").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");

        let stream = server.connect(&["h2", "http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let request = Request::get("https://localhost/hello").body(Full::<Bytes>::default()).unwrap();
        let body = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "hello");
        drop(sender);
        driver.await.unwrap().unwrap();
        assert_eq!(server.stop().await, Drained { cut: 0 });
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_before_the_end() {
        let server = TestServer::start(Limits { drain: PATIENCE, ..Limits::default() }).await;
        let mut stream = server.get("/slow").await;
        server.request_arrived().await;
        let (address, go_on) = (server.address, server.go_on.clone());
        let stopping = tokio::spawn(server.stop());
        // The listener closes first, so a refused connection shows that draining has begun.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go_on.send_replace(true);
        assert!(read_to_close(&mut stream).await.ends_with("slow"));
        assert_eq!(stopping.await.unwrap(), Drained { cut: 0 });
    }

    #[tokio::test]
    async fn a_watch_that_the_service_ends_is_closed_cleanly() {
        let server = TestServer::start(Limits { drain: PATIENCE, ..Limits::default() }).await;
        let mut stream = server.get("/watch").await;
        assert!(read_until(&mut stream, "event\n\r\n").await.contains("transfer-encoding: chunked"));
        server.go_on.send_replace(true);
        assert_eq!(server.stop().await, Drained { cut: 0 });
        assert_eq!(read_to_close(&mut stream).await, "0\r\n\r\n");
    }

    #[tokio::test]
    async fn what_does_not_end_in_time_is_cut() {
        let server = TestServer::start(Limits { drain: SHORT, ..Limits::default() }).await;
        let mut stream = server.get("/stuck").await;
        server.request_arrived().await;
        assert_eq!(server.stop().await, Drained { cut: 1 });
        assert_eq!(read_to_close(&mut stream).await, "");
    }

    /// INV-54.
    #[tokio::test]
    async fn connections_over_the_limit_wait_for_room() {
        let server = TestServer::start(Limits { connections: 1, ..Limits::default() }).await;
        let mut first = server.get("/watch").await;
        read_until(&mut first, "event\n\r\n").await;
        let second = server.get("/hello");
        tokio::pin!(second);
        assert!(timeout(SHORT, second.as_mut()).await.is_err(), "there is no room yet");
        drop(first);
        let mut second = timeout(PATIENCE, second).await.unwrap();
        assert!(read_until(&mut second, "hello").await.starts_with("HTTP/1.1 200"));
    }

    /// INV-47.
    #[tokio::test]
    async fn silent_peers_are_dropped() {
        let quick = Limits { handshake: SHORT, header_read: SHORT, ..Limits::default() };
        let server = TestServer::start(quick).await;
        let mut before_tls = TcpStream::connect(server.address).await.unwrap();
        assert_eq!(read_to_close(&mut before_tls).await, "");
        let mut before_headers = server.connect(&["http/1.1"]).await;
        before_headers.write_all(b"GET /hello HTTP/1.1\r\nHost: lo").await.unwrap();
        assert_eq!(read_to_close(&mut before_headers).await, "");
        let mut in_the_preface = server.connect(&["h2"]).await;
        in_the_preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM").await.unwrap();
        assert_eq!(read_to_close(&mut in_the_preface).await, "");
    }

    /// BI-15.
    #[tokio::test]
    async fn headers_that_trickle_are_cut_off_and_kept_connections_are_not() {
        // Enough for the first request on a busy machine.
        let header_read = 20 * SHORT;
        let server = TestServer::start(Limits { header_read, ..Limits::default() }).await;
        let mut stream = server.get("/hello").await;
        read_until(&mut stream, "hello").await;
        let mut buffer = [0; 1];
        assert!(timeout(header_read + SHORT, stream.read(&mut buffer)).await.is_err(), "kept, though no headers come");
        stream.write_all(b"GET /hello HTTP/1.1\r\n").await.unwrap();
        let trickle = async {
            while timeout(SHORT, stream.read(&mut buffer)).await.is_err() {
                // It may be closed by now, which the next read shows.
                let _ = stream.write_all(b"X: x\r\n").await;
            }
        };
        timeout(PATIENCE, trickle).await.expect("still open");
    }

    /// BI-15, with the limit of the product.
    #[tokio::test(start_paused = true)]
    async fn headers_have_30_seconds_from_their_first_byte() {
        let secs = Duration::from_secs;
        let limit = Limits::default().header_read;
        let activity = Arc::new(Activity::new());
        let opened = Instant::now();
        activity.in_headers_for(limit).await;
        assert_eq!(opened.elapsed(), secs(30), "of a connection that shows nothing");

        let events = async {
            let request = InFlight::begin(&activity);
            sleep(secs(40)).await;
            activity.heard();
            drop(request);
            sleep(secs(60)).await;
            for _ in 0..5 {
                activity.heard();
                sleep(secs(10)).await;
            }
        };
        let begin = Instant::now();
        tokio::select! {
            biased;
            () = events => panic!("headers went on for 50 s"),
            () = activity.in_headers_for(limit) => {}
        }
        assert_eq!(begin.elapsed(), secs(40 + 60 + 30), "neither requests nor the time between them count");
    }

    #[tokio::test]
    async fn idle_connections_are_closed_and_busy_ones_are_not() {
        let server = TestServer::start(Limits { idle: SHORT, ..Limits::default() }).await;
        let mut watching = server.get("/watch").await;
        read_until(&mut watching, "event\n\r\n").await;
        let mut idle = server.get("/hello").await;
        assert!(read_to_close(&mut idle).await.ends_with("hello"));
        let mut buffer = [0; 1];
        assert!(timeout(2 * SHORT, watching.read(&mut buffer)).await.is_err(), "the watch is still open");
    }

    /// INV-47.
    #[tokio::test]
    async fn headers_beyond_the_limit_are_refused() {
        let server = TestServer::start(Limits::default()).await;
        let mut stream = server.connect(&["http/1.1"]).await;
        let request = format!("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(70 << 10));
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_to_close(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test]
    async fn requests_say_which_http_they_speak_and_to_whom() {
        let server = TestServer::start(Limits::default()).await;
        for (request, code) in [
            ("GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
            ("GET /hello HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
            ("GET /hello HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403),
            ("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        ] {
            let mut stream = server.connect(&["http/1.1"]).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            let answer = read_to_close(&mut stream).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{request}: {answer}");
        }
    }

    /// Tells when it is dropped.
    struct AddPermit(Arc<Semaphore>);

    impl Drop for AddPermit {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }

    /// Announces a body to a service that reads none, and sends its first byte.
    async fn begin_upload(server: &TestServer, length: usize) -> ClientStream<TcpStream> {
        let mut stream = server.connect(&["http/1.1"]).await;
        let head = format!("POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n1");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// BI-15.
    #[tokio::test]
    async fn clients_that_stop_in_a_body_are_answered_and_dropped() {
        let server = TestServer::start(Limits { leftover: SHORT, ..Limits::default() }).await;
        let answer = read_to_close(&mut begin_upload(&server, 10).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
    }

    #[tokio::test]
    async fn streams_that_stop_in_a_body_are_answered_and_reset() {
        let server = TestServer::start(Limits { leftover: SHORT, ..Limits::default() }).await;
        let stream = server.connect(&["h2"]).await;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let dropped = Arc::new(Semaphore::new(0));
        let tells = AddPermit(Arc::clone(&dropped));
        let upload = FirstThen {
            first: Some(Bytes::from("1")),
            end: Box::pin(async move {
                let _tells = tells;
                std::future::pending().await
            }),
        };
        let request = Request::post("https://localhost/hello").body(upload).unwrap();
        let response = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        timeout(PATIENCE, dropped.acquire()).await.expect("the upload goes on").unwrap().forget();
        driver.abort();
    }

    #[tokio::test]
    async fn the_answer_does_not_wait_for_a_body_and_the_connection_goes_on_after_it() {
        let server = TestServer::start(Limits { leftover: 6 * PATIENCE, ..Limits::default() }).await;
        let mut stream = begin_upload(&server, 10).await;
        read_until(&mut stream, "hello").await;
        stream.write_all(b"234567890GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert!(read_until(&mut stream, "hello").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn no_more_than_so_much_is_read_of_a_body_that_nobody_wants() {
        let limits = Limits { leftover: 6 * PATIENCE, leftover_bytes: 10, ..Limits::default() };
        let server = TestServer::start(limits).await;
        let mut stream = begin_upload(&server, 1000).await;
        read_until(&mut stream, "hello").await;
        stream.write_all(&[b'x'; 20]).await.unwrap();
        assert_eq!(read_to_close(&mut stream).await, "");
    }

    #[tokio::test]
    async fn plain_http_is_told_to_use_tls() {
        let server = TestServer::start(Limits::default()).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(read_to_close(&mut stream).await, PLAIN_HTTP_ANSWER);
    }
}
