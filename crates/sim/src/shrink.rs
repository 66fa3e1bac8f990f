//! Makes a failing scenario smaller: leaves out users' actions, faults and kinds of bad weather for as long as it still
//! fails, so that what is left is worth reading.

use crate::run::{Verdict, run};
use crate::scenario::Scenario;
use crate::weather::Weather;

/// Runs that may be spent on it.
const RUNS_MAX: usize = 300;

/// The smallest scenario found that still fails in the same way, and how it fails.
pub fn shrink(scenario: &Scenario, broken: &[String]) -> (Scenario, Vec<String>) {
    let mut search = Search { wanted: kind(broken), runs_left: RUNS_MAX };
    let mut best = (scenario.clone(), broken.to_vec());
    // Calm weather first: most of what a run does depends on it.
    search.try_one(&mut best, |scenario| scenario.weather = Weather::CALM);
    while search.drop_steps(&mut best) | search.calm_down(&mut best) {}
    best
}

struct Search {
    wanted: String,
    runs_left: usize,
}

type Found = (Scenario, Vec<String>);

impl Search {
    /// Drops steps in ever smaller groups; whether any could be dropped.
    fn drop_steps(&mut self, best: &mut Found) -> bool {
        let mut any = false;
        let mut size = best.0.steps.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < best.0.steps.len() {
                let to = (from + size).min(best.0.steps.len());
                if self.try_one(best, |scenario| drop(scenario.steps.drain(from..to))) {
                    any = true;
                } else {
                    from = to;
                }
            }
            if size == 1 {
                return any;
            }
            size = size.div_ceil(2);
        }
    }

    fn calm_down(&mut self, best: &mut Found) -> bool {
        let mut any = false;
        for milder in best.0.weather.milder() {
            any |= self.try_one(best, |scenario| scenario.weather = milder);
        }
        any
    }

    /// Takes the change over if the scenario still fails with it.
    fn try_one(&mut self, best: &mut Found, change: impl FnOnce(&mut Scenario)) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let mut smaller = best.0.clone();
        change(&mut smaller);
        match run(&smaller, false).verdict {
            Verdict::Broken(broken) if kind(&broken) == self.wanted => {
                *best = (smaller, broken);
                true
            }
            _ => false,
        }
    }
}

/// What kind of failure it is: the first words of the first complaint.
fn kind(broken: &[String]) -> String {
    let first = broken.first().map(String::as_str).unwrap_or_default();
    first.split([':', ' ']).next().unwrap_or_default().to_owned()
}
