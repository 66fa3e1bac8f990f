//! How punctual the TTL controller is, and how much memory it takes: many finished Jobs with mixed times to live.
//!
//! `cargo run --release -p controllers --example ttl_bench [-- JOBS SECONDS]`
//!
//! Everything is in one process: the API server on a durable store, the garbage collector, and the controller. All Jobs
//! expire within the given seconds, evenly, whatever their time to live. The controller has a clock of its own, so that
//! nothing expires while the Jobs are made.

mod common;

use std::{
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use apiserver::{ApiServer, Environment as ServerEnvironment, Options, storage::ObjectStore};
use batch_types::gates::Gates;
use controllers::{
    gc,
    runtime::{
        ControllerContext, Environment, Metrics, Resource, Shutdown,
        requests::{self, Ignored, PatchType},
    },
    ttl,
};
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use serde_json::json;

use self::common::Clock;

const NAMESPACE: &str = "default";
/// When the first Job expires, by the controller's clock.
const BEGIN: Timestamp = Timestamp::constant(1_900_000_000, 0);
/// Seconds that Jobs live after their finish.
const TTLS: [i64; 5] = [0, 60, 3600, 86_400, 604_800];

/// As in the `tally` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let jobs = numbers.next().unwrap_or(100_000);
    let seconds = numbers.next().unwrap_or(100);
    let folder = tempfile::tempdir().expect("a folder");
    let attributes = apiserver::storage::attributes();
    let store = ObjectStore::open_directory(folder.path(), store::Options::default(), attributes);
    let options = Options { admin_token: None, gates: Gates::DEFAULT, environment: ServerEnvironment::system() };
    let server = ApiServer::new(store.expect("a store"), options).await.expect("a server");

    let expiry = move |job: usize| BEGIN + SignedDuration::from_secs((job % seconds) as i64);
    let filling = Instant::now();
    let fill = |job: usize| make(server.client(), job, expiry(job));
    stream::iter((0..jobs).map(fill)).buffer_unordered(64).collect::<Vec<()>>().await;
    println!("{jobs} finished Jobs made in {:.0} s", filling.elapsed().as_secs_f64());

    let clock = Clock::default();
    clock.set(BEGIN - SignedDuration::from_secs(10));
    let lateness = Arc::new(Lateness { clock: clock.clone(), late: Mutex::default(), expiry: Box::new(expiry) });
    let shutdown = Shutdown::new();
    let context = |client, environment| ControllerContext::new(client, Metrics::new(), environment, shutdown.clone()).0;
    tokio::spawn(gc::run(context(server.client(), Environment::system()), gc::Options::default()));
    tokio::time::sleep(Duration::from_secs(5)).await;

    let before = resident_megabytes();
    clock.set(BEGIN - SignedDuration::from_secs(10));
    let environment = Environment::new(move || clock.now(), || 0);
    let running = tokio::spawn(ttl::run(
        context(lateness.clone().measured(server.client()), environment),
        ttl::Options::default(),
    ));
    tokio::time::sleep(Duration::from_secs(8)).await;
    println!("memory: {before:.0} MB before the controller, {:.0} MB with all Jobs in it", resident_megabytes());
    let (started, mut peak) = (Instant::now(), 0_f64);
    while lateness.late.lock().expect("no panic").len() < jobs {
        tokio::time::sleep(Duration::from_millis(200)).await;
        peak = peak.max(resident_megabytes());
        assert!(started.elapsed() < Duration::from_secs(seconds as u64 + 300), "Jobs are left");
    }
    let mut late = std::mem::take(&mut *lateness.late.lock().expect("no panic"));
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    println!(
        "deletions within {seconds} s, late by: p50 {:.3} s, p99 {:.3} s, most {:.3} s",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    println!("memory of the whole process at most {peak:.0} MB");
    shutdown.cancel();
    running.await.expect("no panic");
    server.stop();
}

/// A Job that finished so that it expires at a given moment.
async fn make(client: Client, number: usize, expiry: Timestamp) {
    let (name, ttl) = (format!("job-{number}"), TTLS[number / 7 % TTLS.len()]);
    let finish = (expiry - SignedDuration::from_secs(ttl)).to_string();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"ttlSecondsAfterFinished": ttl, "template": template}});
    let collection = Resource::JOBS.collection(Some(NAMESPACE));
    requests::create::<Ignored>(&client, &collection, &job).await.expect("create a Job");
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": finish, "lastProbeTime": finish});
    let status = json!({"startTime": finish, "completionTime": finish,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    let path = Resource::JOBS.subresource(NAMESPACE, &name, "status");
    requests::patch::<Ignored>(&client, &path, PatchType::Merge, &json!({"status": status}))
        .await
        .expect("finish a Job");
}

/// How late each deletion was, when it was answered.
struct Lateness {
    clock: Clock,
    late: Mutex<Vec<f64>>,
    expiry: Box<dyn Fn(usize) -> Timestamp + Send + Sync>,
}

impl Lateness {
    fn measured(self: Arc<Self>, client: Client) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, lateness) = (client.clone(), self.clone());
            async move {
                let deleted = Some(request.uri().path().to_owned()).filter(|_| *request.method() == Method::DELETE);
                let response = client.send(request).await?;
                let number = deleted.as_deref().and_then(|path| path.rsplit_once("job-")?.1.parse().ok());
                if let Some(number) = number
                    && response.status().is_success()
                {
                    let late = lateness.clock.now().duration_since((lateness.expiry)(number)).as_secs_f64();
                    lateness.late.lock().expect("no panic").push(late);
                }
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, NAMESPACE)
    }
}

fn resident_megabytes() -> f64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0 / 1e6
}
