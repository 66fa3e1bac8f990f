//! Runs simulations: many seeds, or one again.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use parking_lot::Mutex;
use sim::counters::Counters;
use sim::run::{Outcome, Verdict, run};
use sim::scenario::Scenario;
use sim::shrink::shrink;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many times faster than real time the simulation has to be.
const SPEED_MIN: f64 = 1000.0;

/// So many seeds are enough for everything that can happen to have happened.
const COVERING: u64 = 500;

/// What must have happened in so many seeds, or they prove nothing about it (invariants, section 4).
const REQUIRED: [&str; 24] = [
    "recoveries with a torn tail",
    "recoveries with unsynced data",
    "history compacted under a watcher",
    "watches told 410",
    "a Job started by the clock after clocks went forward",
    "a Job started by the clock after clocks went back",
    "fault: controllers crash",
    "fault: controllers run twice",
    "fault: API server crashes",
    "fault: a write to disk fails",
    "fault: a sync fails",
    "fault: a sync succeeds unheard",
    "fault: the disk fills up",
    "fault: the disk cannot be read",
    "fault: the clock is set",
    "fault: a node's clock is set",
    "fault: a node's process crashes",
    "fault: a machine reboots",
    "fault: a machine is lost",
    "fault: gates are switched",
    "user: replace a Job by a namesake",
    "user: take a pod's owners away",
    "user: delete a namespace",
    "user: evict a pod",
];

/// Simulates the whole system under faults, seed by seed.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Stop after this many seconds, however many seeds are left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run this one again, and shrink it if it fails.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With --seed: tell of every call.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run one seed in so many again and compare the bytes.
    #[arg(long, value_name = "N")]
    repeat_one_in: Option<u64>,
    /// How often those are run in all.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "repeat_one_in", value_parser = clap::value_parser!(u64).range(2..))]
    times: u64,
    /// Do not look for a smaller scenario that fails.
    #[arg(long)]
    no_shrink: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let is_sound = match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    };
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, arguments: &Arguments) -> bool {
    let scenario = Scenario::of(seed);
    println!("{scenario}");
    let begin = Instant::now();
    let outcome = run(&scenario, arguments.trace);
    println!("{}", outcome.counters);
    println!(
        "digest {:016x}, {} revisions, {:.0?} simulated in {:.2?}",
        outcome.digest,
        outcome.revisions,
        outcome.simulated,
        begin.elapsed()
    );
    let repeats = arguments.repeat_one_in.is_none() || repeats(&scenario, &outcome, arguments.times);
    report(&scenario, &outcome, !arguments.no_shrink) && repeats
}

/// What all threads work on.
struct Shared {
    next: AtomicU64,
    end: u64,
    deadline: Option<Instant>,
    done: AtomicU64,
    repeated: AtomicU64,
    sound: AtomicBool,
    simulated: Mutex<Duration>,
    busy: Mutex<Duration>,
    slowest: Mutex<(Duration, u64)>,
    failed: Mutex<Vec<u64>>,
    revisions: AtomicU64,
    counters: Counters,
}

fn many(arguments: &Arguments) -> bool {
    let begin = Instant::now();
    let shared = Shared {
        next: AtomicU64::new(arguments.from),
        end: arguments.from + arguments.seeds,
        deadline: arguments.seconds.map(|seconds| begin + Duration::from_secs(seconds)),
        done: AtomicU64::new(0),
        repeated: AtomicU64::new(0),
        sound: AtomicBool::new(true),
        simulated: Mutex::default(),
        busy: Mutex::default(),
        slowest: Mutex::default(),
        failed: Mutex::default(),
        revisions: AtomicU64::new(0),
        counters: Counters::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| work(&shared, arguments));
        }
    });
    let (simulated, busy) = (*shared.simulated.lock(), *shared.busy.lock());
    let speed = simulated.as_secs_f64() / busy.as_secs_f64().max(1e-9);
    let (slowest, slowest_seed) = *shared.slowest.lock();
    println!("{}", shared.counters);
    println!(
        "seeds {} from {}; {:.1} h simulated in {:.1?} (each thread {speed:.0} times real time); {} revisions; \
         slowest seed {slowest_seed} {slowest:.2?}",
        shared.done.load(Ordering::Relaxed),
        arguments.from,
        simulated.as_secs_f64() / 3600.0,
        begin.elapsed(),
        shared.revisions.load(Ordering::Relaxed),
    );
    let failed = shared.failed.lock();
    if !failed.is_empty() {
        println!("failed: {failed:?}");
    }
    let done = shared.done.load(Ordering::Relaxed);
    println!("measured: seeds simulated = {done}");
    println!("measured: seeds simulated again, same bytes = {}", shared.repeated.load(Ordering::Relaxed));
    println!("measured: runs of each of these = {}", arguments.times);
    println!("measured: times real time, each thread = {speed:.0}");
    let missing: Vec<&str> = REQUIRED.iter().copied().filter(|what| shared.counters.get(what) == 0).collect();
    for what in REQUIRED {
        println!("situation: {} {what}", shared.counters.get(what));
    }
    let is_complete = done < COVERING || missing.is_empty();
    if !is_complete {
        println!("never happened: {}", missing.join(", "));
    }
    let is_quick = done < COVERING || speed >= SPEED_MIN;
    if !is_quick {
        println!("slower than {SPEED_MIN} times real time");
    }
    println!("{} passed, {} failed", done - failed.len() as u64, failed.len());
    shared.sound.load(Ordering::Relaxed) && is_complete && is_quick
}

fn work(shared: &Shared, arguments: &Arguments) {
    loop {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        if seed >= shared.end || shared.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return;
        }
        let scenario = Scenario::of(seed);
        let begin = Instant::now();
        let outcome = run(&scenario, false);
        let took = begin.elapsed();
        *shared.simulated.lock() += outcome.simulated;
        *shared.busy.lock() += took;
        let mut slowest = shared.slowest.lock();
        if took > slowest.0 {
            *slowest = (took, seed);
        }
        drop(slowest);
        shared.done.fetch_add(1, Ordering::Relaxed);
        shared.revisions.fetch_add(outcome.revisions, Ordering::Relaxed);
        shared.counters.absorb(&outcome.counters);
        let is_repeated = arguments.repeat_one_in.is_some_and(|one_in| seed.is_multiple_of(one_in.max(1)));
        let repeats = !is_repeated || repeats(&scenario, &outcome, arguments.times);
        shared.repeated.fetch_add(u64::from(is_repeated), Ordering::Relaxed);
        // The first failure is shrunk; the others are only told, since they are often the same.
        let is_first = shared.sound.load(Ordering::Relaxed);
        if !report(&scenario, &outcome, is_first && !arguments.no_shrink) || !repeats {
            shared.sound.store(false, Ordering::Relaxed);
            shared.failed.lock().push(seed);
        }
    }
}

fn repeats(scenario: &Scenario, first: &Outcome, times: u64) -> bool {
    (1..times).all(|_| {
        let again = run(scenario, false);
        let same = (first.digest, first.revisions) == (again.digest, again.revisions);
        if !same {
            println!(
                "seed {}: the same seed gave {:016x} ({} revisions), then {:016x} ({} revisions)",
                scenario.seed, first.digest, first.revisions, again.digest, again.revisions
            );
        }
        same
    })
}

/// Tells what is wrong, if anything is.
fn report(scenario: &Scenario, outcome: &Outcome, shrinks: bool) -> bool {
    let Verdict::Broken(broken) = &outcome.verdict else { return true };
    let mut text = format!("seed {} failed:\n", scenario.seed);
    for one in broken.iter().take(20) {
        text += &format!("  {one}\n");
    }
    text += &format!("again: cargo run --profile prove -p sim -- --seed {}\n", scenario.seed);
    if shrinks {
        let (smaller, broken) = shrink(scenario, broken);
        text += &format!("shrunk to {} of {} steps:\n{smaller}", smaller.steps.len(), scenario.steps.len());
        for one in broken.iter().take(20) {
            text += &format!("  {one}\n");
        }
    }
    println!("{text}");
    false
}
