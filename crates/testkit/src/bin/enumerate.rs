//! Runs every scenario with every fault at every call, and pairs of faults for as long as there is time.
//!
//! Prints a table and the coverage counters; fails if a promise was broken or something was never tried. A failing case
//! is printed with the line that runs it again.

use std::{
    collections::BTreeMap,
    io::Write,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Parser;
use testkit::{
    enumeration::{self, Baseline, Coverage, Outcome, Rotation, Scenario, parse_points, replay_line},
    faults::Point,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tries every fault at every call of every scenario.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Try pairs of faults too, after all single ones.
    #[arg(long)]
    pairs: bool,
    /// End after about so many seconds, with an error: not everything was tried.
    #[arg(long)]
    seconds: Option<u64>,
    /// Which part of the faults of watches and of the pairs is tried.
    #[arg(long, default_value_t = 0)]
    turn: u64,
    /// One in so many faults of watches; those of calls are always tried.
    #[arg(long, default_value_t = 1)]
    watches_one_in: u64,
    /// One in so many pairs.
    #[arg(long, default_value_t = 1)]
    pairs_one_in: u64,
    /// Run one case: `12:crash-after,14:refused-409`.
    #[arg(long)]
    replay: Option<String>,
    /// How many threads, each with worlds of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only one case in so many, for a first impression.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// How many failing cases to print of each scenario.
    #[arg(long, default_value_t = 3)]
    show: usize,
    /// Do not fail for want of coverage, as for a part of the scenarios.
    #[arg(long)]
    partial: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let scenarios: Vec<Scenario> = enumeration::scenarios()
        .into_iter()
        .filter(|scenario| arguments.only.as_ref().is_none_or(|only| scenario.name.contains(only)))
        .collect();
    if scenarios.is_empty() {
        bail!("no scenario has such a name");
    }
    if let Some(points) = &arguments.replay {
        return replay(&scenarios, points);
    }
    Ok(Enumeration::new(&arguments, scenarios)?.run())
}

/// Runs one case and tells everything about it.
fn replay(scenarios: &[Scenario], points: &str) -> anyhow::Result<ExitCode> {
    let scenario = scenarios.first().context("no scenario")?;
    let points = parse_points(points).map_err(anyhow::Error::msg)?;
    let baseline = enumeration::baseline(scenario).ok();
    let outcome = enumeration::run(scenario, &points, baseline.as_ref().filter(|_| !points.is_empty()));
    for (number, call) in outcome.calls.iter().enumerate() {
        let fault = call.fault.map(|fault| format!("  <- {fault}")).unwrap_or_default();
        println!(
            "{number:>4} {} life {} {:<8} {:<18} {} {} @{}{fault}",
            call.at, call.life, call.controller, call.kind, call.path, call.code, call.revision
        );
    }
    println!("{}", outcome.ends);
    println!("{} revisions, {} s of virtual time", outcome.revisions, outcome.virtual_ms / 1000);
    for violation in &outcome.violations {
        println!("{violation}");
    }
    Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All cases, and what came of them.
struct Enumeration<'a> {
    arguments: &'a Arguments,
    scenarios: Vec<(Scenario, Baseline)>,
    tallies: Mutex<BTreeMap<&'static str, Tally>>,
    coverage: Mutex<Coverage>,
    broken_scenarios: usize,
    rotation: Rotation,
    started: Instant,
}

/// The line of one scenario.
#[derive(Default)]
struct Tally {
    calls: usize,
    singles: usize,
    pairs: usize,
    failing: usize,
    violations: BTreeMap<&'static str, usize>,
    examples: Vec<String>,
}

impl<'a> Enumeration<'a> {
    fn new(arguments: &'a Arguments, all: Vec<Scenario>) -> anyhow::Result<Self> {
        let mut coverage = Coverage::default();
        let mut scenarios = Vec::new();
        let mut tallies = BTreeMap::new();
        let mut broken_scenarios = 0;
        for scenario in all {
            match enumeration::baseline(&scenario) {
                Ok(baseline) => {
                    coverage.add_baseline(&baseline);
                    tallies.insert(scenario.name, Tally { calls: baseline.calls.len(), ..Tally::default() });
                    scenarios.push((scenario, baseline));
                }
                Err(violations) => {
                    broken_scenarios += 1;
                    println!("scenario {} fails undisturbed:", scenario.name);
                    violations.iter().for_each(|violation| println!("  {violation}"));
                }
            }
        }
        Ok(Self {
            arguments,
            scenarios,
            tallies: Mutex::new(tallies),
            coverage: Mutex::new(coverage),
            broken_scenarios,
            rotation: Rotation {
                turn: arguments.turn,
                watches_one_in: arguments.watches_one_in,
                pairs_one_in: arguments.pairs_one_in,
            },
            started: Instant::now(),
        })
    }

    fn run(self) -> ExitCode {
        let cases: Vec<(usize, Vec<Point>)> = self
            .scenarios
            .iter()
            .enumerate()
            .flat_map(|(number, (_, baseline))| {
                let singles = enumeration::singles(baseline).into_iter().enumerate();
                let due = singles.filter(|(case, points)| self.rotation.includes(*case, points));
                due.map(move |(_, points)| (number, points))
            })
            .collect();
        let mut complete = self.work_off(&mut cases.into_iter().step_by(self.arguments.every.max(1)), false);
        if self.arguments.pairs {
            let rotation = self.rotation;
            let due = |(_, baseline): &(Scenario, Baseline)| {
                let pairs = enumeration::pairs(baseline).enumerate();
                pairs.filter(move |(case, points)| rotation.includes(*case, points)).map(|(_, points)| points)
            };
            let mut sources: Vec<_> = self.scenarios.iter().map(due).enumerate().collect();
            // In turns, so that every scenario has its share of the time.
            let mut turn = 0;
            let mut cases = std::iter::from_fn(move || {
                while !sources.is_empty() {
                    turn = if turn + 1 >= sources.len() { 0 } else { turn + 1 };
                    let (number, source) = &mut sources[turn];
                    match source.next() {
                        Some(points) => return Some((*number, points)),
                        None => drop(sources.remove(turn)),
                    }
                    turn = turn.min(sources.len().saturating_sub(1));
                }
                None
            });
            complete &= self.work_off(&mut cases, true);
        }
        self.report(complete)
    }

    /// Says whether all of them were run.
    fn work_off(&self, cases: &mut (dyn Iterator<Item = (usize, Vec<Point>)> + Send), pairs: bool) -> bool {
        let cases = Mutex::new(cases);
        let done = AtomicUsize::new(0);
        let limit = self.arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
        std::thread::scope(|scope| {
            for _ in 0..self.arguments.threads.max(1) {
                scope.spawn(|| {
                    let mut coverage = Coverage::default();
                    while self.started.elapsed() <= limit {
                        let Some((number, points)) = cases.lock().expect("no worker panics with it").next() else {
                            break;
                        };
                        let (scenario, baseline) = &self.scenarios[number];
                        let outcome = enumeration::run(scenario, &points, Some(baseline));
                        coverage.add(&outcome);
                        self.note(scenario, &points, &outcome, pairs);
                        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                        if count.is_multiple_of(20_000) {
                            eprintln!("{count} runs, {:?}", self.started.elapsed());
                        }
                    }
                    self.coverage.lock().expect("no worker panics with it").merge(coverage);
                });
            }
        });
        cases.into_inner().is_ok_and(|cases| cases.next().is_none())
    }

    fn note(&self, scenario: &Scenario, points: &[Point], outcome: &Outcome, pairs: bool) {
        let mut tallies = self.tallies.lock().expect("no worker panics with it");
        let tally = tallies.entry(scenario.name).or_default();
        if pairs {
            tally.pairs += 1;
        } else {
            tally.singles += 1;
        }
        if outcome.violations.is_empty() {
            return;
        }
        tally.failing += 1;
        for violation in &outcome.violations {
            let times = tally.violations.entry(violation.invariant).or_default();
            *times += 1;
            if *times == 1 || tally.examples.len() < self.arguments.show {
                tally.examples.push(format!("{violation}\n    {}", replay_line(scenario.name, points)));
                break;
            }
        }
    }

    fn report(self, complete: bool) -> ExitCode {
        let elapsed = self.started.elapsed();
        let tallies = self.tallies.into_inner().expect("no worker panics with it");
        let coverage = self.coverage.into_inner().expect("no worker panics with it");
        let mut out = std::io::stdout().lock();
        let (mut runs, mut failing) = (0, 0);
        let _ = writeln!(out, "{:<28}{:>6}{:>9}{:>9}{:>9}", "scenario", "calls", "singles", "pairs", "failing");
        for (name, tally) in &tallies {
            runs += tally.singles + tally.pairs;
            failing += tally.failing;
            let violations: Vec<String> =
                tally.violations.iter().map(|(name, times)| format!("{name}×{times}")).collect();
            let Tally { calls, singles, pairs, failing, .. } = tally;
            let _ = writeln!(out, "{name:<28}{calls:>6}{singles:>9}{pairs:>9}{failing:>9}  {}", violations.join(" "));
        }
        let per_second = runs as f64 / elapsed.as_secs_f64();
        let _ = writeln!(out, "{runs} runs in {elapsed:.1?} ({per_second:.0} a second), {failing} failing\n");
        for (name, tally) in tallies.iter().filter(|(_, tally)| !tally.examples.is_empty()) {
            let _ = writeln!(out, "{name}:");
            tally.examples.iter().for_each(|example| {
                let _ = writeln!(out, "  {example}");
            });
        }
        let missing = coverage.missing();
        let _ = write!(out, "{}", coverage.table());
        missing.iter().for_each(|one| {
            let _ = writeln!(out, "never happened: {one}");
        });
        let (singles, pairs) =
            tallies.values().fold((0, 0), |(singles, pairs), tally| (singles + tally.singles, pairs + tally.pairs));
        let _ = writeln!(out, "measured: single faults enumerated = {singles}");
        let _ = writeln!(out, "measured: pairs of faults enumerated = {pairs}");
        let failing = failing + self.broken_scenarios;
        let _ = writeln!(out, "{} passed, {failing} failed", runs + self.broken_scenarios - failing);
        let covered =
            missing.is_empty() || self.arguments.partial || self.arguments.every > 1 || self.arguments.only.is_some();
        if !complete {
            let _ = writeln!(out, "time was up before everything was tried");
        }
        if failing == 0 && covered && complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
