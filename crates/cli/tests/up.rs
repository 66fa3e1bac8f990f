//! `tally up` as a person meets it: what it prints, how it fails, how it ends.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::storage::{self, ObjectStore};
use apiserver::{ApiServer, Environment, Options};
use expect_test::{Expect, expect};
use futures_util::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use rustix::process::Signal;
use testkit::Tally;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What `tally up` promises.
const STOPS_WITHIN: Duration = Duration::from_secs(2);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tally"))
}

fn tally(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).env_remove("RUST_LOG").output().expect("run tally")
}

/// Checks the exit code and stderr, with the temporary directory and process ids filtered.
fn check_failure(output: &Output, dir: &Path, code: i32, stderr: Expect) {
    let mut text = String::from_utf8_lossy(&output.stderr).replace(&dir.display().to_string(), "DIR");
    if let Some((before, after)) = text.split_once("process ") {
        text = format!("{before}process {}", after.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    stderr.assert_eq(&text);
    assert_eq!(output.status.code(), Some(code));
    assert!(output.stdout.is_empty(), "failures print nothing on stdout");
}

#[test]
fn version_names_tally_and_kubernetes() {
    let output = tally(&["version"]);
    expect![[r"
        tally v0.1.0
        Kubernetes v1.36.4
    "]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
    let json = tally(&["version", "--output", "json"]).stdout;
    assert_eq!(String::from_utf8_lossy(&json), "{\"version\":\"v0.1.0\",\"kubernetesVersion\":\"v1.36.4\"}\n");
}

#[tokio::test]
async fn the_ready_line_can_be_pasted_and_the_kubeconfig_works() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), &dir.path().join("data"), &[]).unwrap();
    let kubeconfig = dir.path().join("data/kubeconfig");
    let line = server.ready_line();
    assert!(line.starts_with(&format!("export KUBECONFIG={} # tally v0.1.0 ", kubeconfig.display())), "{line}");
    assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(dir.path().join("data")).unwrap().permissions().mode() & 0o777, 0o700);

    let version = server.client().await.unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.36.4", "as `tally version` says");
    let token = fs::read_to_string(dir.path().join("data/token")).unwrap();
    assert!(!server.stderr().contains(token.trim()), "the token is never logged");
}

#[tokio::test]
async fn objects_credentials_and_authority_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let quiet = ["--controllers", "none"];
    let mut first = Tally::start(binary(), dir.path(), &quiet).unwrap();
    let jobs: Api<Job> = Api::default_namespaced(first.client().await.unwrap());
    let created = jobs.create(&PostParams::default(), &testkit::job("kept")).await.unwrap();
    let before = fs::read_to_string(first.kubeconfig()).unwrap();
    assert!(first.stop(STOPS_WITHIN).unwrap().success());

    let second = Tally::start(binary(), dir.path(), &quiet).unwrap();
    let jobs: Api<Job> = Api::default_namespaced(second.client().await.unwrap());
    assert_eq!(jobs.get("kept").await.unwrap(), created);
    // The port is another one; everything else a client holds is the same.
    let without_server = |text: &str| text.lines().filter(|line| !line.contains("server:")).collect::<String>();
    assert_eq!(without_server(&before), without_server(&fs::read_to_string(second.kubeconfig()).unwrap()));
}

#[tokio::test]
async fn signals_end_it_in_time_with_a_watch_open() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Tally::start(binary(), dir.path(), &[]).unwrap();
        let namespaces: Api<Namespace> = Api::all(server.client().await.unwrap());
        let listed = namespaces.list(&ListParams::default()).await.unwrap();
        let version = listed.metadata.resource_version.unwrap();
        let _watch = namespaces.watch(&WatchParams::default(), &version).await.unwrap();
        let begin = Instant::now();
        server.signal(signal).unwrap();
        let status = server.wait(STOPS_WITHIN).unwrap();
        assert_eq!(status.code(), Some(0), "{signal:?} after {:?}", begin.elapsed());
        assert_eq!(server.stderr().matches("error").count(), 0, "{}", server.stderr());
    }
}

/// A request whose body never ends, sent by hand because clients do not stall on purpose.
async fn stalled_upload(server: &Tally, data: &Path) -> TlsStream<TcpStream> {
    let pem = fs::read(data.join("pki/ca.crt")).expect("the authority's certificate");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).expect("a certificate")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (_, address) = server.ready_line().split_once("https://").expect("an address");
    let address = address.split(',').next().expect("the first part");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
    let token = fs::read_to_string(data.join("token")).expect("the token");
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
        token.trim()
    );
    stream.write_all(head.as_bytes()).await.expect("a request");
    // The server asks for the body, so the request is under way.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream
}

#[tokio::test]
async fn a_stalled_request_does_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Tally::start(binary(), dir.path(), &[]).unwrap();
    let _stalled = stalled_upload(&server, dir.path()).await;
    assert_eq!(server.stop(STOPS_WITHIN).unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Tally::start(binary(), dir.path(), &["-v"]).unwrap();
        let _stalled = stalled_upload(&server, dir.path()).await;
        server.signal(signal).unwrap();
        // Two signals at once would be one; the log says when the first has arrived.
        let first = Instant::now();
        while !server.stderr().contains("stopping") {
            assert!(first.elapsed() < STOPS_WITHIN, "{signal:?} is not heard: {}", server.stderr());
            tokio::task::yield_now().await;
        }
        let begin = Instant::now();
        server.signal(signal).unwrap();
        assert_eq!(server.wait(STOPS_WITHIN).unwrap().code(), Some(code));
        assert!(begin.elapsed() < Duration::from_secs(1), "after {:?}", begin.elapsed());
    }
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let first = Tally::start(binary(), dir.path(), &[]).unwrap();
    let refused = tally(&["up", "--data", data, "--listen", "127.0.0.1:0"]);
    let named = format!("is in use by process {}\n", first.pid());
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&named), "BI-121: {refused:?}");
    check_failure(
        &refused,
        dir.path(),
        1,
        expect![[r"
        error: open the store in `DIR/store`
          caused by: `DIR/store` is in use by process 

        hint: another tally has it: `tally down --data DIR` ends that process, `--data DIR` takes another directory
    "]],
    );
}

#[test]
fn a_busy_port_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut output = tally(&["up", "--data", data, "--listen", &address]);
    output.stderr = String::from_utf8_lossy(&output.stderr).replace(&address, "127.0.0.1:PORT").into_bytes();
    check_failure(
        &output,
        dir.path(),
        1,
        expect![[r"
        error: listen on `127.0.0.1:PORT`
          caused by: Address already in use

        hint: end the program that uses the port, or take any free one with `--listen 127.0.0.1:0`
    "]],
    );
}

#[test]
fn an_unusable_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // A file in the way refuses everybody; permissions would not refuse root.
    fs::write(dir.path().join("file"), "").unwrap();
    let data = dir.path().join("file/data");
    check_failure(
        &tally(&["up", "--data", data.to_str().unwrap()]),
        dir.path(),
        1,
        expect![[r"
        error: use the data directory `DIR/file/data`
          caused by: Not a directory

        hint: pass a directory you may write to with `--data DIR`
    "]],
    );
}

#[test]
fn somebody_elses_kubeconfig_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    fs::write(&config, "kind: Config\n").unwrap();
    let (data, config) = (dir.path().join("data"), config.to_str().unwrap());
    let data = data.to_str().unwrap();
    let output = tally(&["up", "--data", data, "--listen", "127.0.0.1:0", "--kubeconfig-out", config]);
    check_failure(
        &output,
        dir.path(),
        1,
        expect![[r"
        error: `DIR/config` exists and was not written by tally

        hint: pass a new file; `KUBECONFIG=one:two` makes kubectl read several
    "]],
    );
}

#[test]
fn values_that_mean_nothing_are_refused() {
    for wrong in
        [["--controllers", "jobs"], ["--node", "cloud"], ["--feature-gates", "Nope=true"], ["--listen", "6443"]]
    {
        let output = tally(&["up", wrong[0], wrong[1]]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: invalid value"), "{wrong:?}");
    }
}

#[test]
fn without_a_home_the_data_directory_must_be_named() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(binary()).arg("up").env_remove("HOME").env_remove("XDG_DATA_HOME").output().unwrap();
    check_failure(
        &output,
        dir.path(),
        2,
        expect![[r"
            error: there is no user's data directory: `HOME` is not set

            hint: pass one with `--data DIR`
        "]],
    );
}

async fn metrics(client: &kube::Client) -> kube::Result<String> {
    client.request_text(http::Request::get("/metrics").body(Vec::new()).expect("a request")).await
}

/// Names that dashboards and alerts for kube-apiserver and kube-controller-manager look for.
#[tokio::test]
async fn metrics_have_the_names_of_kubernetes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &["--node", "simulated"]).unwrap();
    let client = server.client().await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &testkit::job("pi")).await.unwrap();
    let text = loop {
        // Counted when the Job's end is written.
        let text = metrics(&client).await.unwrap();
        if text.contains("\njob_controller_jobs_finished_total{") {
            break text;
        }
        tokio::task::yield_now().await;
    };
    let created = "apiserver_request_total{verb=\"POST\",dry_run=\"\",group=\"batch\",version=\"v1\",resource=\"jobs\",\
                   subresource=\"\",scope=\"resource\",component=\"apiserver\",code=\"201\"} 1\n";
    assert!(text.contains(created), "{text}");
    for line in [
        "\n# TYPE apiserver_request_total counter\n",
        "\n# TYPE apiserver_request_duration_seconds histogram\n",
        "\napiserver_current_inflight_requests{request_kind=\"readOnly\"} ",
        "\nworkqueue_depth{name=\"job\"} ",
        "\njob_controller_job_syncs_total{",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them_and_stay_few() {
    let dir = tempfile::tempdir().unwrap();
    let server = Tally::start(binary(), dir.path(), &["--node", "none", "--controllers", "none"]).unwrap();
    let client = server.client().await.unwrap();
    let own = fs::read_to_string(server.kubeconfig()).unwrap();
    let anonymous = dir.path().join("anonymous");
    let without_token: String =
        own.lines().filter(|line| !line.contains("token:")).map(|it| format!("{it}\n")).collect();
    fs::write(&anonymous, without_token.replace("user:\n", "user: {}\n")).unwrap();
    let nobody = testkit::client_for(&anonymous).await.unwrap();
    let refused = metrics(&nobody).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");

    let series = async || metrics(&client).await.unwrap().lines().filter(|line| !line.starts_with('#')).count();
    let get = async |path: String| {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let _ = client.request_text(request).await;
    };
    get("/nothing".to_owned()).await;
    get("/api/v1/namespaces/default/pods/none".to_owned()).await;
    series().await;
    let before = series().await;
    for number in 0..50 {
        get(format!("/nothing/{number}")).await;
        get(format!("/apis/group-{number}/v1/things")).await;
        get(format!("/api/v1/namespaces/n-{number}/pods/p-{number}")).await;
    }
    assert_eq!(series().await, before, "names of clients' choosing are no labels");
}

/// AS-219: also those that were written before it was started.
#[test]
fn events_of_hours_ago_are_gone_soon() {
    let dir = tempfile::tempdir().unwrap();
    for (age, name) in [(SignedDuration::from_hours(2), "old"), (SignedDuration::from_mins(10), "young")] {
        // With the runtime go all clients, and with them the store.
        tokio::runtime::Runtime::new().unwrap().block_on(write_event(dir.path(), age, name));
    }
    tokio::runtime::Runtime::new().unwrap().block_on(only_young_events_stay(dir.path()));
}

async fn only_young_events_stay(data: &Path) {
    let server = Tally::start(binary(), data, &["--node", "none", "--controllers", "none"]).expect("a server");
    let events: Api<Event> = Api::default_namespaced(server.client().await.expect("a client"));
    let found = events.list(&ListParams::default()).await.expect("events");
    let mut names: Vec<String> = found.items.into_iter().filter_map(|event| event.metadata.name).collect();
    if names.len() > 1 {
        let version = found.metadata.resource_version.expect("a version");
        let watch = events.watch(&WatchParams::default().timeout(60), &version).await.expect("a watch");
        let mut watch = std::pin::pin!(watch);
        while let Some(event) = watch.try_next().await.expect("an event") {
            if let WatchEvent::Deleted(event) = event {
                names.retain(|name| Some(name) != event.metadata.name.as_ref());
                break;
            }
        }
    }
    assert_eq!(names, ["young"]);
}

/// Leaves an event in a data directory, as of a former process.
async fn write_event(data: &Path, age: SignedDuration, name: &str) {
    let (options, attributes) = (store::Options::default(), storage::attributes());
    let store = ObjectStore::open_directory(&data.join("store"), options, attributes).expect("open the store");
    let random = || uuid::Uuid::new_v4().as_u128();
    let environment = Environment::new(move || Timestamp::now() - age, random);
    let options = Options { admin_token: None, gates: Default::default(), environment };
    let server = ApiServer::new(store, options).await.expect("a server");
    let events: Api<Event> = Api::default_namespaced(server.client());
    let mut event = Event::default();
    event.metadata.name = Some(name.to_owned());
    event.involved_object.namespace = Some("default".to_owned());
    events.create(&PostParams::default(), &event).await.expect("write the event");
}
