//! Every scenario with every fault at every call (invariants, section 3: exhaustive fault enumeration).
//!
//! A scenario is run once undisturbed, to learn which calls the controllers make and how it ends. Then it is run once for
//! every call and every fault that can happen to it, and, if it is short, for pairs of them. Each time the world must come
//! to rest, in the same end as the undisturbed one; a restart must find nothing left to do; and the oracle must find no
//! promise broken on the way.

mod coverage;
mod fork;
mod juncture;
mod pairs;
mod parting;
mod plan;
mod run;
mod same;
mod scenarios;
mod summary;
mod worker;

pub use coverage::Coverage;
pub use juncture::{Chronicle, Juncture};
pub use pairs::{Forms, Moment, Pair, PairPlanner};
pub use parting::Manner;
pub use plan::{Rotation, singles};
pub use run::{Baseline, Outcome, baseline, baseline_of, run, run_within};
pub use scenarios::{Scenario, all as scenarios};
pub use worker::{Answer, Asked, Report, Unit, serve};

use crate::faults::Point;

/// How to run one case again.
pub fn replay_line(scenario: &str, points: &[Point]) -> String {
    let points = shown(points);
    format!("cargo run --profile prove -p testkit --bin enumerate -- --only {scenario} --replay '{points}'")
}

/// The same for a run over real processes.
pub fn replay_line_through_proxy(scenario: &str, points: &[Point]) -> String {
    format!("cargo run -p testkit --bin fault-proxy -- --only {scenario} --replay '{}'", shown(points))
}

/// `12:crash-after,14:refused-409`.
pub fn shown(points: &[Point]) -> String {
    let points: Vec<String> = points.iter().map(|(call, fault)| format!("{call}:{fault}")).collect();
    points.join(",")
}

/// Reads what [`shown`] wrote.
pub fn parse_points(text: &str) -> Result<Vec<Point>, String> {
    let point = |part: &str| {
        let (call, fault) = part.split_once(':').ok_or_else(|| format!("`{part}` is not `call:fault`"))?;
        let call = call.parse().map_err(|_| format!("`{call}` is not the number of a call"))?;
        Ok((call, fault.parse()?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(point).collect()
}
