//! The API over its own HTTPS socket: what peers are answered that have fallen behind, and what becomes of those that do
//! not read (BI-84, BI-85).

#![allow(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

mod common;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use apiserver::{
    logs::{LogOptions, LogRefusal, LogSource, LogStream},
    serve::{Drained, Limits, serve},
    tls::{Identity, server_names},
};
use bytes::Bytes;
use common::{Api, CONFIG_MAPS, PODS, TOKEN, config_map};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

/// Far longer than anything here takes; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);
/// More than the kernel keeps for a peer that does not read, on both sides of a loopback connection together.
const MANY: usize = 60;
const LARGE: usize = 500_000;
const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

/// A server behind its door.
struct House {
    api: Api,
    address: SocketAddr,
    connector: TlsConnector,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Drained>,
    _directory: tempfile::TempDir,
}

impl House {
    async fn open(api: Api, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names = server_names(Ipv4Addr::LOCALHOST.into());
        let identity = Identity::load_or_create(directory.path(), &names, jiff::Timestamp::now()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, identity.tls, api.server.clone(), limits, async {
            let _ = stopped.await;
        }));
        let connector = connector(&identity.authority);
        Self { api, address, connector, stop, serving, _directory: directory }
    }

    /// A connection of HTTP/1.1 on which something was asked for.
    async fn get(&self, path: &str) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = self.connector.connect(name, tcp).await.unwrap();
        stream.write_all(request(path).as_bytes()).await.unwrap();
        stream
    }

    /// Where there is room for one connection only, an answer shows that the one before is gone.
    async fn expect_room(&self) {
        let answer = async { read_until(&mut self.get("/livez").await, "ok").await };
        assert!(timeout(PATIENCE, answer).await.expect("no room").starts_with("HTTP/1.1 200 "));
    }

    /// Changes one object many times, for more than anybody's buffers hold.
    async fn write_much(&self) {
        for at in 0..MANY {
            let data = json!({"data": {"a": format!("{at} {}", "x".repeat(LARGE))}});
            self.api.merge(&format!("{CONFIG_MAPS}/a"), data).await.expect(200);
        }
    }

    async fn close(self) -> Drained {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.serving).await.unwrap().unwrap()
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
}

fn connector(authority: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn read_until(stream: &mut TlsStream<TcpStream>, end: &str) -> String {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !bytes.ends_with(end.as_bytes()) {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("nothing more comes").unwrap();
        assert_ne!(read, 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(bytes).unwrap()
}

/// The events in a chunked body of HTTP/1.1. One may be spread over several chunks.
fn events(body: &str) -> Vec<Value> {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let (chunk, after) = after.split_at(usize::from_str_radix(size, 16).unwrap());
        text += chunk;
        rest = after.strip_prefix("\r\n").unwrap();
    }
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A server that forgets soon, as every one does after some time, and by itself.
async fn forgetful() -> (Api, u64) {
    let history = store::History { events_max: 16, ..store::History::default() };
    let api = Api::with(store::Options { history, ..store::Options::default() }).await;
    let first = api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201).version();
    (api, first)
}

async fn until_compacted(api: &Api, beyond: u64) {
    let look = async {
        while api.store.stats().compacted <= beyond {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, look).await.expect("history is never cut");
}

fn assert_is_expired(event: &Value) {
    let Value::Object(status) = &event["object"] else { panic!("{event}") };
    assert_eq!(
        (&event["type"], &status["kind"], &status["code"], &status["reason"]),
        (&json!("ERROR"), &json!("Status"), &json!(410), &json!("Expired"))
    );
}

/// BI-84. The end of the body is in the answer: the connection can be used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_before_the_compaction_is_answered_with_410() {
    let (api, first) = forgetful().await;
    for at in 0..100 {
        api.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"a": format!("x{at}")}})).await.expect(200);
    }
    until_compacted(&api, first).await;
    let house = House::open(api, Limits::default()).await;
    for from in [first.to_string(), "1".to_owned()] {
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
        let mut stream = house.get(&path).await;
        let answer = read_until(&mut stream, LAST_CHUNK).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let [event] = events(body).try_into().unwrap();
        assert_is_expired(&event);
        stream.write_all(request("/livez").as_bytes()).await.unwrap();
        assert!(read_until(&mut stream, "ok").await.starts_with("HTTP/1.1 200 "));
    }
    // Where there is a status to say it with, it is said there.
    let list = format!("{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    let answer = read_until(&mut house.get(&list).await, "}\n").await;
    assert!(answer.starts_with("HTTP/1.1 410 "), "{answer}");
    assert!(answer.contains("\"reason\":\"Expired\""), "{answer}");
    assert_eq!(house.close().await, Drained { cut: 0 });
}

/// BI-84, BI-85: what was sent before is right, and nothing is skipped in silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_not_read_until_history_was_cut_is_told_so() {
    let (api, first) = forgetful().await;
    let house = House::open(api, Limits::default()).await;
    let mut stream = house.get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={first}")).await;
    read_until(&mut stream, "\r\n\r\n").await;
    house.write_much().await;
    until_compacted(&house.api, first + 17).await;
    let events = events(&read_until(&mut stream, LAST_CHUNK).await);
    let (last, seen) = events.split_last().unwrap();
    assert!(!seen.is_empty() && seen.len() < MANY, "{}", seen.len());
    for (at, event) in seen.iter().enumerate() {
        assert_eq!(event["type"], "MODIFIED");
        assert!(event["object"]["data"]["a"].as_str().unwrap().starts_with(&format!("{at} ")), "in order");
    }
    assert_is_expired(last);
    assert_eq!(house.close().await, Drained { cut: 0 });
}

/// BI-85. One that is only quiet stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_never_read_is_cut_off() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let house = House::open(api, Limits { connections: 1, unread: SHORT, ..Limits::default() }).await;
    let mut watch = house.get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", house.api.store.revision())).await;
    read_until(&mut watch, "\r\n\r\n").await;
    let mut buffer = [0; 1];
    assert!(timeout(3 * SHORT, watch.read(&mut buffer)).await.is_err(), "there is nothing to read");
    house.api.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"a": "1"}})).await.expect(200);
    read_until(&mut watch, "}\n\r\n").await;
    house.write_much().await;
    house.expect_room().await;
    drop(watch);
    assert_eq!(house.close().await, Drained { cut: 0 });
}

/// The same for an answer that is over as far as the server is concerned.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_never_read_are_cut_off() {
    let api = Api::new().await;
    let mut large = config_map("a", json!({}));
    large["data"]["a"] = json!("x".repeat(LARGE));
    api.post(CONFIG_MAPS, large).await.expect(201);
    let limits = Limits { connections: 1, idle: SHORT, unread: SHORT, ..Limits::default() };
    let house = House::open(api, limits).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut stream = house.get(&path).await;
    stream.write_all(request(&path).repeat(MANY).as_bytes()).await.unwrap();
    house.expect_room().await;
    drop(stream);
    assert_eq!(house.close().await, Drained { cut: 0 });
}

/// A log without end.
struct Chatter;

impl LogSource for Chatter {
    fn serves(&self, _: &str) -> bool {
        true
    }

    fn read(&self, _: &Value, _: &LogOptions) -> Result<LogStream, LogRefusal> {
        let line = Bytes::from(vec![b'x'; 1 << 16]);
        Ok(Box::pin(futures_util::stream::repeat_with(move || line.clone())))
    }
}

/// People leave logs in a pager, and there is no version to go on from.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_waits_for_its_reader() {
    let api = Api::new().await;
    api.server.set_log_source(Arc::new(Chatter));
    let spec = json!({"nodeName": "here", "containers": [{"name": "main", "image": "app:1"}]});
    api.post(PODS, json!({"metadata": {"name": "p"}, "spec": spec})).await.expect(201);
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let limits = Limits { connections: 2, unread: SHORT, drain: SHORT, ..Limits::default() };
    let house = House::open(api, limits).await;
    let mut stream = house.get(&format!("{PODS}/p/log?follow=true")).await;
    let mut buffer = vec![0; 1 << 16];
    assert!(timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap().unwrap() > 0);
    // A watch that is left alone later is cut first.
    let watch = house.get(&format!("{CONFIG_MAPS}?watch=1")).await;
    house.write_much().await;
    house.expect_room().await;
    drop(watch);
    let mut left = 64 << 20;
    while left > 0 {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("nothing more comes").unwrap();
        assert_ne!(read, 0, "closed with {left} bytes to go");
        left = usize::saturating_sub(left, read);
    }
    assert_eq!(house.close().await, Drained { cut: 1 }, "it has no end of its own");
}
