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
    enumeration::{
        self, Baseline, Coverage, Outcome, PairPlanner, Rotation, Scenario, is_harmful, parse_points, replay_line,
    },
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
    /// One in so many pairs of which the second fault strikes where the world was before: run all the same, and compared.
    #[arg(long, default_value_t = 100)]
    known_one_in: u64,
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

/// What is run.
struct Case {
    /// The number of the scenario.
    scenario: usize,
    points: Vec<Point>,
    /// What it must go on like.
    like: Option<Vec<Point>>,
}

/// All cases, and what came of them.
struct Enumeration<'a> {
    arguments: &'a Arguments,
    scenarios: Vec<(Scenario, Baseline)>,
    tallies: Mutex<BTreeMap<&'static str, Tally>>,
    planners: Vec<Mutex<PairPlanner>>,
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
    /// Pairs that strike where the world was before, and how many of them were run all the same.
    known: usize,
    known_run: usize,
    /// How many of those went on in another way than the world did then.
    unlike: usize,
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
            planners: scenarios.iter().map(|_| Mutex::default()).collect(),
            scenarios,
            tallies: Mutex::new(tallies),
            coverage: Mutex::new(coverage),
            broken_scenarios,
            rotation: Rotation {
                turn: arguments.turn,
                watches_one_in: arguments.watches_one_in,
                pairs_one_in: arguments.pairs_one_in,
                known_one_in: arguments.known_one_in,
            },
            started: Instant::now(),
        })
    }

    fn run(mut self) -> ExitCode {
        let mut singles = self.singles();
        let mut complete = self.work_off(&mut singles.drain(..).step_by(self.arguments.every.max(1)));
        if self.arguments.pairs {
            let mut pairs = self.pairs().into_iter();
            complete &= self.work_off(&mut pairs);
        }
        self.report(complete)
    }

    /// Every fault whose turn it is, and those that pairs begin with.
    fn singles(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (scenario, (_, baseline)) in self.scenarios.iter().enumerate() {
            let begins_pairs = |points: &[Point]| {
                self.arguments.pairs
                    && PairPlanner::takes(baseline)
                    && points.iter().all(|(_, fault)| is_harmful(fault))
            };
            for (number, points) in enumeration::singles(baseline).into_iter().enumerate() {
                if self.rotation.includes_single(number, &points) || begins_pairs(&points) {
                    cases.push(Case { scenario, points, like: None });
                }
            }
        }
        cases
    }

    /// Every pair whose turn it is.
    fn pairs(&mut self) -> Vec<Case> {
        let tallies = self.tallies.get_mut().expect("no worker panics with it");
        let mut cases = Vec::new();
        let planners = std::mem::take(&mut self.planners);
        for (scenario, planner) in planners.into_iter().enumerate() {
            let (Scenario { name, .. }, baseline) = &self.scenarios[scenario];
            let tally = tallies.entry(name).or_default();
            let pairs = planner.into_inner().expect("no worker panics with it").pairs(baseline);
            for (number, pair) in pairs.enumerate() {
                tally.known += usize::from(pair.like.is_some());
                if self.rotation.includes_pair(number, &pair) {
                    cases.push(Case { scenario, points: pair.points, like: pair.like });
                }
            }
        }
        cases
    }

    /// Says whether all of them were run.
    fn work_off(&self, cases: &mut (dyn Iterator<Item = Case> + Send)) -> bool {
        let cases = Mutex::new(cases);
        let done = AtomicUsize::new(0);
        let limit = self.arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
        std::thread::scope(|scope| {
            for _ in 0..self.arguments.threads.max(1) {
                scope.spawn(|| {
                    let mut coverage = Coverage::default();
                    while self.started.elapsed() <= limit {
                        let Some(case) = cases.lock().expect("no worker panics with it").next() else {
                            break;
                        };
                        let outcome = self.try_out(&case);
                        coverage.add(&outcome);
                        self.note(&case, &outcome);
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

    fn try_out(&self, case: &Case) -> Outcome {
        let (scenario, baseline) = &self.scenarios[case.scenario];
        let outcome = enumeration::run(scenario, &case.points, Some(baseline));
        if let Some(planner) = self.planners.get(case.scenario)
            && self.arguments.pairs
        {
            planner.lock().expect("no worker panics with it").add(baseline, &case.points, &outcome);
        }
        outcome
    }

    /// Whether a case goes on as the one that it is like.
    fn is_like(&self, case: &Case, outcome: &Outcome) -> bool {
        let Some(like) = &case.like else { return true };
        let (scenario, baseline) = &self.scenarios[case.scenario];
        let from_last = |points: &[Point], outcome: &Outcome| {
            let (call, _) = points.last()?;
            outcome.chronicle().juncture(*call, points)
        };
        from_last(&case.points, outcome) == from_last(like, &enumeration::run(scenario, like, Some(baseline)))
    }

    fn note(&self, case: &Case, outcome: &Outcome) {
        let is_like = self.is_like(case, outcome);
        let name = self.scenarios[case.scenario].0.name;
        let mut tallies = self.tallies.lock().expect("no worker panics with it");
        let tally = tallies.entry(name).or_default();
        match (case.points.len(), &case.like) {
            (0 | 1, _) => tally.singles += 1,
            (_, None) => tally.pairs += 1,
            (_, Some(_)) => tally.known_run += 1,
        }
        tally.unlike += usize::from(!is_like);
        if outcome.violations.is_empty() {
            return;
        }
        tally.failing += 1;
        for violation in &outcome.violations {
            let times = tally.violations.entry(violation.invariant).or_default();
            *times += 1;
            if *times == 1 || tally.examples.len() < self.arguments.show {
                tally.examples.push(format!("{violation}\n    {}", replay_line(name, &case.points)));
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
        let heads =
            ["calls", "singles", "pairs", "known", "run too", "unlike", "failing"].map(|head| format!("{head:>10}"));
        let _ = writeln!(out, "{:<28}{}", "scenario", heads.concat());
        for (name, tally) in &tallies {
            runs += tally.singles + tally.pairs + tally.known_run;
            failing += tally.failing;
            let violations: Vec<String> =
                tally.violations.iter().map(|(name, times)| format!("{name}×{times}")).collect();
            let Tally { calls, singles, pairs, known, known_run, unlike, failing, .. } = tally;
            let numbers = [calls, singles, pairs, known, known_run, unlike, failing];
            let numbers = numbers.map(|number| format!("{number:>10}")).concat();
            let _ = writeln!(out, "{name:<28}{numbers}  {}", violations.join(" "));
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
        let sum = |part: fn(&Tally) -> usize| tallies.values().map(part).sum::<usize>();
        for (what, number) in [
            ("single faults enumerated", sum(|tally| tally.singles)),
            ("pairs of faults enumerated", sum(|tally| tally.pairs)),
            ("pairs that strike where the world was before", sum(|tally| tally.known)),
            ("of these, run all the same", sum(|tally| tally.known_run)),
            ("of these, gone on in another way", sum(|tally| tally.unlike)),
        ] {
            let _ = writeln!(out, "measured: {what} = {number}");
        }
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
