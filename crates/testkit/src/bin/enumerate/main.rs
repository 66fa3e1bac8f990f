//! Runs every scenario with every fault at every call, and pairs of faults for as long as there is time.
//!
//! Prints a table and the coverage counters; fails if a promise was broken or something was never tried. A failing case
//! is printed with the line that runs it again.

mod cases;
mod tally;
mod worker;

use std::{
    collections::HashMap,
    io::Write,
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Parser;
use testkit::{
    enumeration::{
        self, Baseline, Forms, Juncture, Manner, PairPlanner, Report, Rotation, Scenario, Unit, parse_points,
        replay_line,
    },
    faults::Point,
};

use crate::{
    cases::{Batch, Case, Kind},
    tally::Tallies,
    worker::Worker,
};

/// Word is given after every so many runs.
const PROGRESS: usize = 20_000;

#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: testkit::rewind::Arena = testkit::rewind::Arena::new();

/// Tries every fault at every call of every scenario.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Try pairs of faults too, after all single ones.
    #[arg(long)]
    pairs: bool,
    /// Make pairs of all forms of faults that do harm, and not only of one of each class.
    #[arg(long)]
    all_forms: bool,
    /// In scenarios of up to so many calls.
    #[arg(long, default_value_t = 25)]
    pairs_calls_max: usize,
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
    /// Show what was stored as well, revision by revision.
    #[arg(long, requires = "replay")]
    revisions: bool,
    /// How many processes, each with worlds of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Be one of those processes.
    #[arg(long, hide = true)]
    worker: bool,
    /// Have every run of such a process in one of its own, instead of going back in time.
    #[arg(long, hide = true)]
    fork: bool,
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

impl Arguments {
    fn forms(&self) -> Forms {
        if self.all_forms { Forms::All } else { Forms::OneOfEachClass }
    }

    fn manner(&self) -> Manner {
        #[cfg(target_arch = "x86_64")]
        if !self.fork {
            return Manner::Rewinding(&ALLOCATOR);
        }
        Manner::Forking
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.worker {
        enumeration::serve(&enumeration::scenarios(), std::io::stdin().lock(), arguments.manner())?;
        return Ok(ExitCode::SUCCESS);
    }
    let scenarios: Vec<Scenario> = enumeration::scenarios()
        .into_iter()
        .filter(|scenario| arguments.only.as_ref().is_none_or(|only| scenario.name.contains(only)))
        .collect();
    if scenarios.is_empty() {
        bail!("no scenario has such a name");
    }
    if let Some(points) = &arguments.replay {
        return replay(&scenarios, points, arguments.revisions);
    }
    Enumeration::new(&arguments, scenarios).run()
}

/// Runs one case and tells everything about it.
fn replay(scenarios: &[Scenario], points: &str, revisions: bool) -> anyhow::Result<ExitCode> {
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
    if revisions {
        for record in outcome.records() {
            let value = record.value.as_deref().map_or("gone".into(), String::from_utf8_lossy);
            let at = record.at.map(|at| at.to_string()).unwrap_or_default();
            println!("@{} {at} {:<8} {} {value}", record.revision, record.by, record.key);
        }
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
    planners: Vec<PairPlanner>,
    tallies: Tallies,
    /// How cases that are compared went on.
    junctures: HashMap<(usize, Vec<Point>), Juncture>,
    broken_scenarios: usize,
    rotation: Rotation,
    started: Instant,
}

impl<'a> Enumeration<'a> {
    fn new(arguments: &'a Arguments, all: Vec<Scenario>) -> Self {
        let mut tallies = Tallies::new(arguments.show);
        let mut scenarios = Vec::new();
        let mut broken_scenarios = 0;
        for scenario in all {
            match enumeration::baseline(&scenario) {
                Ok(baseline) => {
                    tallies.coverage().add_baseline(&baseline);
                    tallies.add_scenario(scenario.name, baseline.calls.len());
                    scenarios.push((scenario, baseline));
                }
                Err(violations) => {
                    broken_scenarios += 1;
                    println!("scenario {} fails undisturbed:", scenario.name);
                    violations.iter().for_each(|violation| println!("  {violation}"));
                }
            }
        }
        Self {
            arguments,
            planners: scenarios.iter().map(|_| PairPlanner::default()).collect(),
            scenarios,
            tallies,
            junctures: HashMap::new(),
            broken_scenarios,
            rotation: Rotation {
                turn: arguments.turn,
                watches_one_in: arguments.watches_one_in,
                pairs_one_in: arguments.pairs_one_in,
                known_one_in: arguments.known_one_in,
            },
            started: Instant::now(),
        }
    }

    fn run(mut self) -> anyhow::Result<ExitCode> {
        let mut workers: Vec<Worker> = (0..self.arguments.threads.max(1)).map(|_| Worker::default()).collect();
        let singles = self.singles();
        let mut complete = self.work_off(&mut workers, singles)?;
        if self.arguments.pairs {
            let pairs = self.pairs();
            complete &= self.work_off(&mut workers, pairs.clone())?;
            self.compare(&pairs);
        }
        self.report(complete)
    }

    /// Every fault whose turn it is, and those that pairs begin with.
    fn singles(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (scenario, (_, baseline)) in self.scenarios.iter().enumerate() {
            let forms = self.paired(scenario);
            let begins_pairs = |points: &[Point]| forms.is_some_and(|forms| forms.begin(baseline, points));
            for (number, points) in enumeration::singles(baseline).into_iter().enumerate() {
                if self.rotation.includes_single(number, &points) || begins_pairs(&points) {
                    cases.push(Case { scenario, points, kind: Kind::Single });
                }
            }
        }
        cases.into_iter().step_by(self.arguments.every.max(1)).collect()
    }

    /// Every pair whose turn it is.
    fn pairs(&mut self) -> Vec<Case> {
        let mut cases = Vec::new();
        let planners = std::mem::take(&mut self.planners);
        for (scenario, planner) in planners.into_iter().enumerate() {
            let (Scenario { name, .. }, baseline) = &self.scenarios[scenario];
            let mut known = 0;
            for (number, pair) in planner.pairs(baseline).enumerate() {
                known += usize::from(pair.like.is_some());
                if !self.rotation.includes_pair(number, &pair) {
                    continue;
                }
                let kind = match pair.like {
                    Some(like) => {
                        cases.push(Case { scenario, points: like.clone(), kind: Kind::Model });
                        Kind::Known(like)
                    }
                    None => Kind::Pair,
                };
                cases.push(Case { scenario, points: pair.points, kind });
            }
            self.tallies.add_known(name, known);
        }
        cases
    }

    /// Says whether all of them were run.
    fn work_off(&mut self, workers: &mut [Worker], cases: Vec<Case>) -> anyhow::Result<bool> {
        let limit = self.arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
        let started = self.started;
        let batches = Mutex::new(cases::batches(cases).into_iter());
        let next = || batches.lock().ok().filter(|_| started.elapsed() <= limit)?.next();
        let desk = Mutex::new((self, 0_usize));
        let work = |worker: &mut Worker| -> anyhow::Result<()> {
            while let Some(batch) = next() {
                let unit = desk.lock().expect("nobody panics with it").0.unit(&batch);
                let mut reports = Vec::with_capacity(batch.cases.len());
                let ran = worker.run(&unit, |report| reports.push(report));
                // A run that ends its process is the next one that it would have told of.
                ran.with_context(|| match batch.cases.get(reports.len()) {
                    Some(case) => format!("during {}", replay_line(&unit.scenario, &case.points)),
                    None => format!("after all runs of {}", unit.scenario),
                })?;
                let (enumeration, done) = &mut *desk.lock().expect("nobody panics with it");
                let before = *done / PROGRESS;
                *done += reports.len();
                if *done / PROGRESS > before {
                    eprintln!("{done} runs, {:.0?}", started.elapsed());
                }
                enumeration.note(&batch, reports)?;
            }
            Ok(())
        };
        let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|result| result.unwrap_or_else(|_| bail!("a thread has panicked"))).collect()
        });
        results.into_iter().collect::<anyhow::Result<()>>()?;
        Ok(batches.into_inner().is_ok_and(|mut batches| batches.next().is_none()))
    }

    /// What pairs of a scenario are made of, if it is short enough.
    fn paired(&self, scenario: usize) -> Option<Forms> {
        let is_short = self.scenarios[scenario].1.calls.len() <= self.arguments.pairs_calls_max;
        (self.arguments.pairs && is_short).then(|| self.arguments.forms())
    }

    fn unit(&self, batch: &Batch) -> Unit {
        batch.unit(self.scenarios[batch.scenario].0.name, self.paired(batch.scenario))
    }

    fn note(&mut self, batch: &Batch, reports: Vec<Report>) -> anyhow::Result<()> {
        let name = self.scenarios[batch.scenario].0.name;
        // The same cases in the same order, or something is wrong with those who ran them.
        let mut reports = reports.into_iter();
        for case in &batch.cases {
            let Some(mut report) = reports.next().filter(|report| report.points == case.points) else {
                bail!("{name}: nobody told of {}", replay_line(name, &case.points));
            };
            if let Some(planner) = self.planners.get_mut(batch.scenario) {
                planner.add(&case.points, std::mem::take(&mut report.moments));
            }
            if let Some(juncture) = report.juncture {
                self.junctures.insert((batch.scenario, case.points.clone()), juncture);
            }
            self.tallies.note(name, case, report);
        }
        Ok(())
    }

    /// Whether cases go on as those do that they are like.
    fn compare(&mut self, cases: &[Case]) {
        for case in cases {
            let Kind::Known(like) = &case.kind else { continue };
            let juncture = |points: &Vec<Point>| self.junctures.get(&(case.scenario, points.clone()));
            if juncture(&case.points) != juncture(like) {
                self.tallies.add_unlike(self.scenarios[case.scenario].0.name);
            }
        }
    }

    fn report(self, complete: bool) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        let (runs, failing, met) = self.tallies.print(self.started.elapsed(), &mut out)?;
        let failing = failing + self.broken_scenarios;
        writeln!(out, "{} passed, {failing} failed", runs + self.broken_scenarios - failing)?;
        let covered = met || self.arguments.partial || self.arguments.every > 1 || self.arguments.only.is_some();
        if !complete {
            writeln!(out, "time was up before everything was tried")?;
        }
        Ok(if failing == 0 && covered && complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
