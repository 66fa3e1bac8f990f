//! Measures the store on a real directory: durable writes, opening, watch fan-out, and what a sync costs here.
//!
//! `cargo run --release -p store --example store_bench -- [seconds] [directory]`

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{ListQuery, Options, Store, Transaction, Value};

const WRITERS: usize = 64;
const OBJECTS: usize = 100_000;
const OBJECT_BYTES: usize = 2048;
const WATCHERS: usize = 100;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let directory = parent.join(format!("store-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let outcome = run(&directory, Duration::from_secs(seconds)).await;
    std::fs::remove_dir_all(&directory)?;
    outcome
}

async fn run(directory: &Path, duration: Duration) -> Outcome<()> {
    let each = sync_cost(&directory.join("sync"))?;
    println!("sync of one 2 KB write: {each:?}");

    let path = directory.join("empty");
    let start = Instant::now();
    let store = open(&path)?;
    println!("create: {:?}, resident {} MB", start.elapsed(), resident_mb());
    store.commit(Transaction::new().put("pods/bench/0", object(0))).await?;
    drop(store);
    for what in ["open with one object", "open with one object again"] {
        let start = Instant::now();
        drop(open(&path)?);
        println!("{what}: {:?}", start.elapsed());
    }

    let path = directory.join("writes");
    let store = open(&path)?;
    let (writes, latencies) = write_for(&store, duration).await;
    let rate = writes as f64 / duration.as_secs_f64();
    println!("durable writes, {WRITERS} writers of 2 KB: {rate:.0}/s, p50 {:?}, p99 {:?}", latencies.0, latencies.1);
    println!("{:?}, resident {} MB", store.stats(), resident_mb());
    drop(store);
    let start = Instant::now();
    let store = open(&path)?;
    println!("open after that: {:?}, {} keys", start.elapsed(), store.stats().keys);
    drop(store);

    let path = directory.join("open");
    let store = open(&path)?;
    fill(&store).await;
    println!("with {OBJECTS} objects of 2 KB: resident {} MB", resident_mb());
    drop(store);
    let start = Instant::now();
    let store = open(&path)?;
    println!("open with {OBJECTS} objects of 2 KB: {:?}", start.elapsed());
    let start = Instant::now();
    let listed = store.list(&ListQuery::new("pods/"))?.entries.len();
    println!("list of {listed} entries: {:?}", start.elapsed());

    let (events, took) = fan_out(&store, Duration::from_secs(2)).await;
    println!("fan-out to {WATCHERS} watchers: {:.0} events/s delivered", events as f64 / took.as_secs_f64());
    Ok(())
}

fn open(path: &Path) -> Outcome<Store<()>> {
    Ok(Store::open_directory(path, Options::default(), Arc::new(|_, _| ()))?)
}

/// Something like an object: 2 KB that compress somewhat.
fn object(seed: u64) -> Value {
    let mut body = String::with_capacity(OBJECT_BYTES);
    let mut state = seed;
    while body.len() < OBJECT_BYTES - 40 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        body.push_str(&format!(r#""field":"{:08x}","#, state >> 32));
    }
    Value::stamped(r#"{"metadata":{"resourceVersion":""#, format!(r#""}},{body}"#))
}

async fn write_for(store: &Store<()>, duration: Duration) -> (u64, (Duration, Duration)) {
    let deadline = Instant::now() + duration;
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let value = object(writer as u64);
            let mut latencies = Vec::new();
            while Instant::now() < deadline {
                let key = format!("pods/bench/{writer}-{}", latencies.len() % 200);
                let start = Instant::now();
                store.commit(Transaction::new().put(key, value.clone())).await.expect("the disk works");
                latencies.push(start.elapsed());
            }
            latencies
        })
    });
    let mut latencies = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        latencies.extend(writer.await.expect("writers do not panic"));
    }
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 100];
    (latencies.len() as u64, (at(50), at(99)))
}

async fn fill(store: &Store<()>) {
    let tasks = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in (writer..OBJECTS).step_by(WRITERS) {
                let put = Transaction::new().put(format!("pods/bench/{number:06}"), object(number as u64));
                store.commit(put).await.expect("the disk works");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("writers do not panic");
    }
}

async fn fan_out(store: &Store<()>, duration: Duration) -> (u64, Duration) {
    let delivered = Arc::new(AtomicU64::new(0));
    let from = store.revision();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| {
            let mut watch = store.watch("pods/", from).expect("the revision is current");
            let delivered = delivered.clone();
            tokio::spawn(async move {
                while let Ok(events) = watch.next_batch(500).await {
                    for event in &events {
                        event.frame(|event| event.entry.value());
                    }
                    delivered.fetch_add(events.len() as u64, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let start = Instant::now();
    let (writes, _) = write_for(store, duration).await;
    while delivered.load(Ordering::Relaxed) < writes * WATCHERS as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = start.elapsed();
    watchers.iter().for_each(|watcher| watcher.abort());
    (delivered.load(Ordering::Relaxed), took)
}

fn sync_cost(path: &Path) -> Outcome<Duration> {
    const ROUNDS: u32 = 200;
    let mut file = File::create(path)?;
    file.write_all(&vec![0; 4 << 20])?;
    file.sync_all()?;
    let start = Instant::now();
    for round in 0..ROUNDS {
        file.write_all_at(&[1; OBJECT_BYTES], u64::from(round) * OBJECT_BYTES as u64)?;
        file.sync_data()?;
    }
    Ok(start.elapsed() / ROUNDS)
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
