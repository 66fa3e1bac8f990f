//! Runs that begin alike, run together.
//!
//! All runs of a scenario are the same up to the first fault, and all with the same first fault up to the second. So the
//! beginning is run once, and at every call at which some of them part from it each of these is tried: it meets its fault,
//! goes on to the end and reports, and then the world is again as it was at that call ([`super::parting`]). Everything is
//! in memory and virtual time stands still meanwhile, so such a run is the one it would have been alone.
//!
//! Only a process with one thread can do that. So it is done by processes of their own, which are told what to run line by
//! line and answer line by line.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufRead, Write},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{
    faults::{Approach, Fault, Point},
    world,
};

use super::{
    coverage::Coverage,
    juncture::Juncture,
    pairs::{Forms, Moment},
    parting::{self, Manner, Parting, Road},
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
    /// Where a second fault can strike, and of which forms.
    pub moments: Option<Forms>,
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
            moments: asked.moments.map(|forms| forms.moments(baseline, &points, outcome)).unwrap_or_default(),
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
pub fn serve(scenarios: &[Scenario], input: impl BufRead, manner: Manner) -> io::Result<()> {
    world::prepare();
    let road = Road::prepare(manner)?;
    let mut baselines: HashMap<&str, Baseline> = HashMap::new();
    for line in input.lines() {
        let unit: Unit = serde_json::from_str(&line?)?;
        let scenario = scenarios.iter().find(|scenario| scenario.name == unit.scenario);
        let scenario = scenario.ok_or_else(|| io::Error::other(format!("there is no scenario {}", unit.scenario)))?;
        if !baselines.contains_key(scenario.name) {
            let undisturbed = baseline(scenario).map_err(|_| io::Error::other("it fails undisturbed"))?;
            baselines.insert(scenario.name, undisturbed);
        }
        // It parts from this as well, because what is left when the last run has parted is of no use to anybody.
        match road.part()? {
            Parting::Off => run_unit(scenario, &baselines[scenario.name], unit, road),
            Parting::Over(Ok(_)) => {}
            Parting::Over(Err(how)) => say(&Answer::Ran(Box::new(Report::died(unit.first, how))))?,
        }
        say(&Answer::Done)?;
    }
    Ok(())
}

/// Runs the common beginning, and what parts from it.
fn run_unit(scenario: &Scenario, baseline: &Baseline, unit: Unit, road: Road) -> ! {
    let Unit { first, branches, asked, .. } = unit;
    let taken: Arc<Mutex<Option<Point>>> = Arc::default();
    let mut crossing = Crossing {
        first: first.clone(),
        branches: branches.into(),
        // What is to be compared is run.
        parted: (!asked.juncture).then(Parted::default),
        taken: taken.clone(),
        road,
    };
    let choice = Box::new(move |approach: &Approach| crossing.choose(approach));
    let chosen = || taken.lock().iter().copied().collect();
    let to_its_end = || {
        run_choosing(scenario, &first, baseline, choice, chosen, |points, outcome| {
            let mut report = Report::new(baseline, points, &outcome, asked);
            if taken.lock().is_none() {
                report.violations.push(("scenario".to_owned(), "it ended before all faults had come".to_owned()));
            }
            finish(say(&Answer::Ran(Box::new(report))), outcome.held_most)
        })
    };
    // It only comes back if something in it has panicked, and has said so.
    let Err(_) = panic::catch_unwind(AssertUnwindSafe(to_its_end));
    let points = first.iter().chain(taken.lock().iter()).copied().collect();
    finish(say(&Answer::Ran(Box::new(Report::died(points, "it panicked".to_owned())))), 0)
}

/// Decides at every call whether runs part there.
struct Crossing {
    first: Vec<Point>,
    branches: VecDeque<Point>,
    /// What has parted so far, if those that would be the same are left out.
    parted: Option<Parted>,
    /// What parted here, if this is not the common beginning any more.
    taken: Arc<Mutex<Option<Point>>>,
    road: Road,
}

impl Crossing {
    fn choose(&mut self, approach: &Approach) -> Option<Fault> {
        let call = approach.call;
        while let Some((_, fault)) = self.branches.pop_front_if(|(at, _)| *at == call) {
            if let Some(same) = self.parted.as_ref().and_then(|parted| parted.same(approach, fault)) {
                let same = Some(self.points(same));
                self.tell(Report { points: self.points((call, fault)), same, ..Report::default() });
            } else {
                match self.road.part() {
                    Ok(Parting::Off) => {
                        self.branches.clear();
                        *self.taken.lock() = Some((call, fault));
                        return Some(fault);
                    }
                    Ok(Parting::Over(Ok(held_most))) => {
                        if let Some(parted) = &mut self.parted {
                            parted.note(approach, fault, held_most);
                        }
                    }
                    Ok(Parting::Over(Err(how))) => self.tell(Report::died(self.points((call, fault)), how)),
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

/// Writes a line at once: nothing may be left for two processes to write.
fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn finish(said: io::Result<()>, held_most: usize) -> ! {
    parting::finish(said.map(|()| held_most))
}
