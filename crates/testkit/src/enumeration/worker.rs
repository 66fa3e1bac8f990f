//! Runs that begin alike, run together.
//!
//! All runs of a scenario are the same up to the first fault, and all with the same first fault up to the second. So the
//! beginning is run once, and at every call at which some of them part from it the process is forked for each of these:
//! the child meets its fault, goes on to the end and reports; the parent waits for it and goes on without. Everything is
//! in memory and virtual time stands still meanwhile, so the child's run is the one it would have been alone.
//!
//! Only a process with one thread can be forked. So this is done by processes of their own, which are told what to run
//! line by line and answer line by line.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufRead, Write},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use crate::faults::{Approach, Fault, Point};

use super::{
    coverage::Coverage,
    fork::{Forked, fork, leave},
    juncture::Juncture,
    pairs::{Moment, PairPlanner},
    run::{Baseline, Outcome, baseline, run_choosing},
    same::Parted,
    scenarios::Scenario,
};

/// Some runs with the same beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// The name of a scenario.
    pub scenario: String,
    /// The faults of all of them.
    pub first: Vec<Point>,
    /// The last fault of each, in the order of the calls.
    pub branches: Vec<Point>,
    pub asked: Asked,
}

/// What is to be told of a run, beside what is wrong with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked {
    /// Where a second fault can strike.
    pub moments: bool,
    /// How it went on from its last fault.
    pub juncture: bool,
}

/// What came of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    pub points: Vec<Point>,
    /// Those of a run that this one would have been the same as. Nothing else is told of it then.
    pub same: Option<Vec<Point>>,
    /// Broken invariants, each with all there is to say.
    pub violations: Vec<(String, String)>,
    pub coverage: Coverage,
    pub moments: Vec<Moment>,
    pub juncture: Option<Juncture>,
}

/// A line of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    Ran(Box<Report>),
    /// No more runs of this unit.
    Done,
}

impl Report {
    pub fn new(baseline: &Baseline, points: Vec<Point>, outcome: &Outcome, asked: Asked) -> Self {
        let mut coverage = Coverage::default();
        coverage.add(outcome);
        let named = |violation: &crate::oracle::Violation| (violation.invariant.to_owned(), violation.to_string());
        Self {
            violations: outcome.violations.iter().map(named).collect(),
            coverage,
            moments: if asked.moments { PairPlanner::moments(baseline, &points, outcome) } else { Vec::new() },
            juncture: points
                .last()
                .filter(|_| asked.juncture)
                .and_then(|(call, _)| outcome.chronicle().juncture(*call, &points)),
            points,
            same: None,
        }
    }

    /// A run that did not come to its end.
    fn died(points: Vec<Point>, how: String) -> Self {
        Self { points, violations: vec![("process".to_owned(), how)], ..Self::default() }
    }
}

/// Does what it is told on `input` until there is nothing more to read.
pub fn serve(scenarios: &[Scenario], input: impl BufRead) -> io::Result<()> {
    let mut baselines: HashMap<&str, Baseline> = HashMap::new();
    for line in input.lines() {
        let unit: Unit = serde_json::from_str(&line?)?;
        let scenario = scenarios.iter().find(|scenario| scenario.name == unit.scenario);
        let scenario = scenario.ok_or_else(|| io::Error::other(format!("there is no scenario {}", unit.scenario)))?;
        if !baselines.contains_key(scenario.name) {
            let undisturbed = baseline(scenario).map_err(|_| io::Error::other("it fails undisturbed"))?;
            baselines.insert(scenario.name, undisturbed);
        }
        // In a process of its own, because what is left when the last run has parted is of no use to anybody.
        match fork()? {
            Forked::Child => run_unit(scenario, &baselines[scenario.name], unit),
            Forked::Ended(status) => {
                if let Err(how) = held_most(status) {
                    say(&Answer::Ran(Box::new(Report::died(unit.first, how))))?;
                }
            }
        }
        say(&Answer::Done)?;
    }
    Ok(())
}

/// Runs the common beginning, and in processes of their own what parts from it.
fn run_unit(scenario: &Scenario, baseline: &Baseline, unit: Unit) -> ! {
    let Unit { first, branches, asked, .. } = unit;
    let taken: Arc<Mutex<Option<Point>>> = Arc::default();
    let mut crossing = Crossing {
        first: first.clone(),
        branches: branches.into(),
        // What is to be compared is run.
        parted: (!asked.juncture).then(Parted::default),
        taken: taken.clone(),
    };
    let choice = Box::new(move |approach: &Approach| crossing.choose(approach));
    let chosen = || taken.lock().iter().copied().collect();
    match run_choosing(scenario, &first, baseline, choice, chosen, |points, outcome| {
        let mut report = Report::new(baseline, points, &outcome, asked);
        if taken.lock().is_none() {
            report.violations.push(("scenario".to_owned(), "it ended before all faults had come".to_owned()));
        }
        finish(say(&Answer::Ran(Box::new(report))), outcome.held_most)
    }) {}
}

/// Decides at every call whether runs part there.
struct Crossing {
    first: Vec<Point>,
    branches: VecDeque<Point>,
    /// What has parted so far, if those that would be the same are left out.
    parted: Option<Parted>,
    /// What this process has parted with.
    taken: Arc<Mutex<Option<Point>>>,
}

impl Crossing {
    fn choose(&mut self, approach: &Approach) -> Option<Fault> {
        let call = approach.call;
        while let Some((_, fault)) = self.branches.pop_front_if(|(at, _)| *at == call) {
            if let Some(same) = self.parted.as_ref().and_then(|parted| parted.same(approach, fault)) {
                let same = Some(self.points(same));
                self.tell(Report { points: self.points((call, fault)), same, ..Report::default() });
            } else {
                match fork() {
                    Ok(Forked::Child) => {
                        self.branches.clear();
                        *self.taken.lock() = Some((call, fault));
                        return Some(fault);
                    }
                    Ok(Forked::Ended(status)) => match (held_most(status), &mut self.parted) {
                        (Ok(held_most), Some(parted)) => parted.note(approach, fault, held_most),
                        (Ok(_), None) => {}
                        (Err(how), _) => self.tell(Report::died(self.points((call, fault)), how)),
                    },
                    Err(error) => self.tell(Report::died(self.points((call, fault)), error.to_string())),
                }
            }
            if self.branches.is_empty() {
                finish(Ok(()), 0);
            }
        }
        None
    }

    /// All faults of a run whose last one is this.
    fn points(&self, last: Point) -> Vec<Point> {
        [&self.first[..], &[last]].concat()
    }

    /// Says of a run what it cannot say itself.
    fn tell(&self, report: Report) {
        if let Err(error) = say(&Answer::Ran(Box::new(report))) {
            finish(Err(error), 0);
        }
    }
}

/// A process that ran to its end says with its code how many events a watch held at most; all codes beyond this are other
/// ends.
const HELD_MAX: usize = 64;
/// What could be said could not be heard.
const UNHEARD: i32 = 70;

/// What a process said with its code, or how else it ended.
fn held_most(status: WaitStatus) -> Result<usize, String> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => match usize::try_from(code) {
            Ok(held_most) if held_most <= HELD_MAX => Ok(held_most),
            _ => Err(format!("the process ended with {code}")),
        },
        (_, Some(signal)) => Err(format!("the process was ended by signal {signal}")),
        _ => Err("the process ended".to_owned()),
    }
}

/// Writes a line at once: nothing may be left for two processes to write.
fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn finish(said: io::Result<()>, held_most: usize) -> ! {
    leave(match said {
        Ok(()) => held_most.min(HELD_MAX) as i32,
        Err(_) => UNHEARD,
    })
}
