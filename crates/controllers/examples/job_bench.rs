//! How fast the Job controller is: one large Indexed Job, small Jobs beside it, and many Jobs of ten pods.
//!
//! `cargo run --release -p controllers --example job_bench [-- COMPLETIONS PARALLELISM JOBS]`
//!
//! Everything is in one process: the API server on a durable store, the controller, and a stand-in for nodes that reports
//! every pod as succeeded as soon as it sees it. All of it is done twice: on one runtime, as in `tally up`, which shows how
//! fast it is; and with the controller on threads of its own, where what the server does on them while the controller calls
//! it is measured and taken off, so that "controller CPU" is the controller's alone.

use std::{
    collections::HashSet,
    fs,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use apiserver::{ApiServer, Environment as ServerEnvironment, Options, storage::ObjectStore};
use batch_types::gates::Gates;
use controllers::{
    job,
    runtime::{
        Change, ControllerContext, Environment, Metrics, Mirrored, Reflector, Resource, Shutdown, Source,
        requests::{self, Ignored, PatchType},
    },
};
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use kube::{Client, client::Body};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{runtime, sync::mpsc};

const NAMESPACE: &str = "default";

/// As in the `tally` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let completions = numbers.next().unwrap_or(10_000);
    let parallelism = numbers.next().unwrap_or(1000);
    let jobs = numbers.next().unwrap_or(500);
    for arrangement in [Arrangement::Together, Arrangement::Apart] {
        measure(arrangement, completions, parallelism, jobs);
    }
}

/// Where the controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrangement {
    /// With everything else, as in `tally up`.
    Together,
    /// On threads of its own, with its calls counted and measured.
    Apart,
}

fn measure(arrangement: Arrangement, completions: usize, parallelism: usize, jobs: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let main = runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let mut apart = runtime::Builder::new_multi_thread();
    let apart = apart.worker_threads(2).thread_name("controller").enable_all().build().expect("a second runtime");
    println!(
        "{}:",
        match arrangement {
            Arrangement::Together => "on one runtime",
            Arrangement::Apart => "the controller on threads of its own",
        }
    );
    main.block_on(async {
        let path = folder.path();
        let store = ObjectStore::open_directory(path, store::Options::default(), apiserver::storage::attributes());
        let options = Options { admin_token: None, gates: Gates::DEFAULT, environment: ServerEnvironment::system() };
        let server = ApiServer::new(store.expect("a store"), options).await.expect("a server");
        let bench = Bench { client: server.client(), calls: Arc::default(), arrangement };
        let shutdown = Shutdown::new();
        let context = |client| ControllerContext::new(client, Metrics::new(), Environment::system(), shutdown.clone());
        let (client, threads) = match arrangement {
            Arrangement::Together => (server.client(), runtime::Handle::current()),
            Arrangement::Apart => (bench.calls.counted(server.client()), apart.handle().clone()),
        };
        let (controller, events) = context(client);
        threads.spawn(events.run(shutdown.clone()));
        let options = job::Options { calls_at_once: job::Options::CALLS_IN_PROCESS, ..job::Options::default() };
        threads.spawn(job::run(controller, options));
        tokio::spawn(stand_in(context(server.client()).0));

        bench.large(completions, parallelism).await;
        bench.small(jobs).await;
        shutdown.cancel();
        server.stop();
    });
    apart.shutdown_background();
}

struct Bench {
    client: Client,
    calls: Arc<Calls>,
    arrangement: Arrangement,
}

impl Bench {
    async fn create(&self, name: &str, spec: Value) {
        let mut full = json!({"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
        }}});
        full.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": full});
        let path = Resource::JOBS.collection(Some(NAMESPACE));
        requests::create::<Ignored>(&self.client, &path, &job).await.expect("create a Job");
    }

    async fn is_complete(&self, name: &str) -> bool {
        let job: Value = requests::get(&self.client, &Resource::JOBS.object(NAMESPACE, name)).await.expect("get a Job");
        job["status"]["completionTime"].is_string()
    }

    async fn wait(&self, name: &str, pause: Duration) {
        while !self.is_complete(name).await {
            tokio::time::sleep(pause).await;
        }
    }

    async fn large(&self, completions: usize, parallelism: usize) {
        let before = self.calls.measure();
        let started = Instant::now();
        let spec = json!({"completions": completions, "parallelism": parallelism, "completionMode": "Indexed"});
        self.create("large", spec).await;
        let mut latencies = Vec::new();
        while !self.is_complete("large").await {
            let name = format!("beside-{}", latencies.len());
            let created = Instant::now();
            self.create(&name, json!({})).await;
            self.wait(&name, Duration::from_millis(1)).await;
            latencies.push(created.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("  one Indexed Job, {completions} completions, parallelism {parallelism}:");
        self.report(&before, started.elapsed(), completions + latencies.len());
        if self.arrangement == Arrangement::Apart {
            // The creation of a pod does not name it in its path.
            let beside = self.calls.beside.load(Ordering::Relaxed) + latencies.len() as u64;
            let own = self.calls.measure().writes - before.writes - beside;
            println!("    writes per pod of the large Job alone {:.3}", own as f64 / completions as f64);
        }
        latencies.sort();
        let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default();
        println!("    {} one-pod Jobs beside it: p50 {:.1?}, p99 {:.1?}", latencies.len(), at(50), at(99));
    }

    async fn small(&self, jobs: usize) {
        let before = self.calls.measure();
        let started = Instant::now();
        let one = |number: usize| async move {
            let name = format!("small-{number}");
            self.create(&name, json!({"completions": 10, "parallelism": 10})).await;
            self.wait(&name, Duration::from_millis(10)).await;
        };
        stream::iter((0..jobs).map(one)).buffer_unordered(50).collect::<Vec<()>>().await;
        println!("  {jobs} Jobs of 10 pods, 50 at a time:");
        self.report(&before, started.elapsed(), jobs * 10);
    }

    fn report(&self, before: &Measure, took: Duration, pods: usize) {
        let after = self.calls.measure();
        let each = |nanos: u64| nanos as f64 / 1e6 / pods as f64;
        let own = (after.threads - before.threads).saturating_sub(after.server - before.server);
        let all = each(after.process - before.process);
        println!("    {:.2} s, {:.0} pods/s", took.as_secs_f64(), pods as f64 / took.as_secs_f64());
        println!("    CPU of the whole process {all:.3} ms per pod");
        if self.arrangement == Arrangement::Apart {
            println!("    controller CPU {:.4} ms per pod", each(own));
            println!("    writes per pod {:.3}", (after.writes - before.writes) as f64 / pods as f64);
        }
    }
}

/// What the controller asks of the server.
#[derive(Default)]
struct Calls {
    writes: AtomicU64,
    /// Those that name one of the Jobs beside the large one, or its pod.
    beside: AtomicU64,
    /// CPU time of the server's work on the controller's threads, in nanoseconds.
    server: AtomicU64,
}

struct Measure {
    writes: u64,
    server: u64,
    threads: u64,
    process: u64,
}

impl Calls {
    fn counted(self: &Arc<Self>, client: Client) -> Client {
        let calls = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_event = request.uri().path().contains("/events");
            if *request.method() != Method::GET && !is_event {
                calls.writes.fetch_add(1, Ordering::Relaxed);
                calls.beside.fetch_add(u64::from(request.uri().path().contains("/beside-")), Ordering::Relaxed);
            }
            let (client, calls) = (client.clone(), calls.clone());
            Timed { inner: Box::pin(async move { client.send(request).await }), calls }
        });
        Client::new(service, NAMESPACE)
    }

    fn measure(&self) -> Measure {
        Measure {
            writes: self.writes.load(Ordering::Relaxed),
            server: self.server.load(Ordering::Relaxed),
            threads: controller_threads(),
            process: nanos(ClockId::ProcessCPUTime),
        }
    }
}

/// A call whose CPU time is the server's.
struct Timed<F> {
    inner: Pin<Box<F>>,
    calls: Arc<Calls>,
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begin = nanos(ClockId::ThreadCPUTime);
        let polled = self.inner.as_mut().poll(context);
        self.calls.server.fetch_add(nanos(ClockId::ThreadCPUTime) - begin, Ordering::Relaxed);
        polled
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of all threads of the controller's runtime.
fn controller_threads() -> u64 {
    let of_one = |task: fs::DirEntry| -> Option<u64> {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        (name.trim() == "controller").then(|| stat.split_whitespace().next()?.parse().ok())?
    };
    let tasks = fs::read_dir("/proc/self/task").expect("the list of threads");
    tasks.filter_map(Result::ok).filter_map(of_one).sum()
}

#[derive(Debug, Deserialize)]
struct Pod {
    metadata: Meta,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    uid: String,
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    phase: String,
}

impl Mirrored for Pod {
    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// Finishes every pod at once.
async fn stand_in(context: ControllerContext) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<String>();
    let client = context.client.clone();
    tokio::spawn(async move {
        let mut batch = Vec::new();
        while receiver.recv_many(&mut batch, 128).await > 0 {
            let finish = |name: String| {
                let client = client.clone();
                async move {
                    let path = Resource::PODS.subresource(NAMESPACE, &name, "status");
                    let patch = json!({"status": {"phase": "Succeeded"}});
                    requests::patch::<Ignored>(&client, &path, PatchType::Merge, &patch).await.expect("finish a pod");
                }
            };
            stream::iter(batch.drain(..).map(finish)).for_each_concurrent(128, |done| done).await;
        }
    });
    let mut seen = HashSet::new();
    let reflector = Reflector::<Pod>::new(&context, Source::all(Resource::PODS));
    let handle = move |change| {
        if let Change::Applied(Pod { metadata, status }) = change
            && status.phase != "Succeeded"
            && seen.insert(metadata.uid)
        {
            let _ = sender.send(metadata.name);
        }
    };
    reflector.run(context.shutdown.clone(), handle).await;
}
