//! How punctual the CronJob controller is, and what it costs when nothing is due: many schedules, spread over an hour.
//!
//! `cargo run --release -p controllers --example cronjob_bench [-- CRONJOBS MINUTES]`
//!
//! The API server on a durable store and the controller are in one process and go by one clock, which is set to shortly
//! before each full minute, so that an hour takes a few minutes.

mod common;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use apiserver::{ApiServer, Environment as ServerEnvironment, Options, storage::ObjectStore};
use batch_types::gates::Gates;
use controllers::{
    cronjob,
    runtime::{
        ControllerContext, Environment, Metrics, Resource, Shutdown,
        requests::{self, Ignored},
    },
};
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use self::common::Clock;

const NAMESPACE: &str = "default";
/// A full hour.
const BEGIN: Timestamp = Timestamp::constant(1_900_000_800, 0);

/// As in the `tally` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let cron_jobs = numbers.next().unwrap_or(10_000);
    let minutes = numbers.next().unwrap_or(20).min(60);
    let clock = Clock::default();
    clock.set(BEGIN - SignedDuration::from_secs(30));
    let folder = tempfile::tempdir().expect("a folder");
    let attributes = apiserver::storage::attributes();
    let store = ObjectStore::open_directory(folder.path(), store::Options::default(), attributes);
    let (now, random) = (clock.clone(), || uuid::Uuid::new_v4().as_u128());
    let environment = ServerEnvironment::new(move || now.now(), random);
    let options = Options { admin_token: None, gates: Gates::DEFAULT, environment };
    let server = ApiServer::new(store.expect("a store"), options).await.expect("a server");

    let filling = Instant::now();
    let fill = |number: usize| make(server.client(), number);
    stream::iter((0..cron_jobs).map(fill)).buffer_unordered(64).collect::<Vec<()>>().await;
    println!("{cron_jobs} CronJobs made in {:.1} s", filling.elapsed().as_secs_f64());

    let skew = Arc::new(Skew { clock: clock.clone(), seconds: Mutex::default() });
    let (shutdown, now) = (Shutdown::new(), clock.clone());
    let environment = Environment::new(move || now.now(), || 0);
    let client = skew.clone().measured(server.client());
    let (context, events) = ControllerContext::new(client, Metrics::new(), environment, shutdown.clone());
    tokio::spawn(events.run(shutdown.clone()));
    clock.set(BEGIN - SignedDuration::from_secs(30));
    let options = cronjob::Options { clock_check: Duration::from_millis(500), ..cronjob::Options::default() };
    let running = tokio::spawn(cronjob::run(context, options));
    tokio::time::sleep(Duration::from_secs(10)).await;

    // Far from every minute: in the middle of one, with a clock that is looked at twice a second.
    let (idle, used) = (Duration::from_secs(10), cpu());
    tokio::time::sleep(idle).await;
    println!("idle: {:.2} % of a core", (cpu() - used).as_secs_f64() / idle.as_secs_f64() * 100.0);

    let mut expected = 0;
    for minute in 0..minutes {
        clock.set(BEGIN + SignedDuration::from_secs(minute as i64 * 60 - 2));
        expected += (0..cron_jobs).filter(|number| number % 60 == minute).count();
        let started = Instant::now();
        while skew.seconds.lock().expect("no panic").len() < expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(started.elapsed() < Duration::from_secs(60), "Jobs are missing in minute {minute}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut seconds = std::mem::take(&mut *skew.seconds.lock().expect("no panic"));
    assert_eq!(seconds.len(), expected, "a time was served twice");
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds[((seconds.len() - 1) as f64 * share) as usize] * 1e3;
    println!(
        "{expected} Jobs, {} a minute, started late by: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
        expected / minutes,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    shutdown.cancel();
    running.await.expect("no panic");
    server.stop();
}

/// A CronJob for one minute of every hour.
async fn make(client: Client, number: usize) {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": format!("cron-{number}")},
        "spec": {"schedule": format!("{} * * * *", number % 60), "jobTemplate": {"spec": {"template": template}}}});
    let collection = Resource::CRON_JOBS.collection(Some(NAMESPACE));
    requests::create::<Ignored>(&client, &collection, &cron_job).await.expect("create a CronJob");
}

/// How late each Job was, when its creation was answered.
struct Skew {
    clock: Clock,
    seconds: Mutex<Vec<f64>>,
}

impl Skew {
    fn measured(self: Arc<Self>, client: Client) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, skew) = (client.clone(), self.clone());
            async move {
                if *request.method() != Method::POST || !request.uri().path().ends_with("/jobs") {
                    return client.send(request).await;
                }
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let scheduled = scheduled(&body);
                let response = client.send(Request::from_parts(parts, Body::from(body.to_vec()))).await?;
                if response.status().is_success() {
                    let late = skew.clock.now().duration_since(scheduled).as_secs_f64();
                    skew.seconds.lock().expect("no panic").push(late);
                }
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, NAMESPACE)
    }
}

fn scheduled(job: &[u8]) -> Timestamp {
    let job: Value = serde_json::from_slice(job).expect("a Job");
    let text = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str();
    text.expect("a scheduled time").parse().expect("a time")
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
