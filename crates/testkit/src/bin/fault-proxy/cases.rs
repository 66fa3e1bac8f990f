//! Which scenarios can be run in real time, and which of their faults are tried.

use testkit::{
    enumeration::{Baseline, Scenario, scenarios, singles},
    faults::{Fault, OutageKind, Point},
};

/// Caches may lie for so long here.
const PATIENCE_MS_MAX: u32 = 3_000;

/// Their pods run for minutes.
const TOO_LONG: [&str; 2] = ["elastic", "disowned"];

/// Those of the Job controller alone, with options that every such controller has.
pub(crate) fn eligible() -> Vec<Scenario> {
    let alone = |scenario: &Scenario| {
        let all = &scenario.controllers;
        all.job && all.tune.is_none() && !(all.ttl || all.cron_job || all.gc || all.pod_gc || all.node)
    };
    let here = |scenario: &Scenario| alone(scenario) && !TOO_LONG.contains(&scenario.name);
    scenarios().into_iter().filter(here).collect()
}

/// So many of all faults, spread over calls and kinds. The next turn has the next ones.
pub(crate) fn chosen(baseline: &Baseline, runs: usize, turn: usize) -> Vec<Vec<Point>> {
    let bearable = |points: &Vec<Point>| {
        points.iter().all(|(_, fault)| match fault {
            Fault::Lag(lag) => lag.patience_ms <= PATIENCE_MS_MAX,
            // Controllers wait for an answer, or for a watch to say something, for more than a minute.
            Fault::Silence | Fault::SilenceAfter => false,
            Fault::Outage(outage) => outage.how == OutageKind::Refused,
            _ => true,
        })
    };
    let of_watches = |points: &Vec<Point>| points.iter().any(|(_, fault)| fault.is_of_watches());
    // What is asked before anything begins, and has nothing to do with Jobs.
    let of_reviews =
        |points: &Vec<Point>| points.iter().any(|(call, _)| baseline.calls[*call].kind.contains("accessreviews"));
    let (reviews, rest): (Vec<_>, Vec<_>) = singles(baseline).into_iter().filter(bearable).partition(of_reviews);
    let (watches, calls): (Vec<_>, Vec<_>) = rest.into_iter().partition(of_watches);
    // There are several times as many faults of watches, and more ways in which calls can go wrong.
    let (few, fewest) = (runs / 4, runs / 8);
    let of_calls = spread(calls, runs - few - fewest, turn);
    [of_calls, spread(watches, few, turn), spread(reviews, fewest, turn)].concat()
}

fn spread<T: Clone>(all: Vec<T>, count: usize, turn: usize) -> Vec<T> {
    let count = count.min(all.len());
    (0..count).map(|number| all[(number * all.len() / count + turn) % all.len()].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_turn() {
        let all: Vec<usize> = (0..10).collect();
        assert_eq!(spread(all.clone(), 4, 0), [0, 2, 5, 7]);
        assert_eq!(spread(all.clone(), 4, 1), [1, 3, 6, 8]);
        assert_eq!(spread(all, 20, 0).len(), 10);
        assert!(spread(Vec::<usize>::new(), 4, 0).is_empty());
        assert!(eligible().iter().any(|scenario| scenario.name == "indexed"));
    }
}
