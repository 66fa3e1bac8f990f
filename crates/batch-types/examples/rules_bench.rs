//! How long the rules of one Job take, and reading a long list of indexes.
//!
//! `cargo run --release -p batch-types --example rules_bench`

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use batch_types::{
    gates::Gates,
    index_ranges::IndexSet,
    job::{self, CreateFacts},
};
use k8s_openapi::api::batch::v1::Job;
use serde_json::json;

const ROUNDS: u32 = 2000;

fn main() {
    let mut sent = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pieces", "namespace": "default", "uid": "u"},
        "spec": {"completionMode": "Indexed", "completions": 10, "parallelism": 4, "backoffLimitPerIndex": 2,
            "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox",
                "command": ["sh", "-c", "true"], "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}},
    });
    let defaulted = job::default(&mut sent, &Gates::DEFAULT);
    let facts = CreateFacts { uid: "u", generated_name: false, defaulted, gates: &Gates::DEFAULT };
    job::prepare_for_create(&mut sent, &facts);
    let typed: Job = serde_json::from_value(sent.clone()).expect("a Job");
    assert!(job::validate(&typed).is_empty(), "the Job of this benchmark is valid");
    report("validation of one Job", || drop(black_box(job::validate(black_box(&typed)))));
    report("reading it and validation", || {
        let typed: Job = serde_json::from_value(black_box(sent.clone())).expect("a Job");
        drop(black_box(job::validate(&typed)));
    });
    let even: Vec<String> = (0..100_000).map(|at| (2 * at).to_string()).collect();
    let text = even.join(",");
    report("100,000 indexes parsed", || drop(black_box(IndexSet::parse(black_box(&text), 200_000))));
}

/// The median, which a busy machine disturbs least.
fn report(name: &str, work: impl Fn()) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{name:<28} {:>10.1} µs", times[times.len() / 2].as_secs_f64() * 1e6);
}
