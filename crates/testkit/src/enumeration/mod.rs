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
mod plan;
mod run;
mod same;
mod scenarios;
mod summary;
mod worker;

pub use coverage::Coverage;
pub use juncture::{Chronicle, Juncture};
pub use pairs::{Moment, Pair, PairPlanner, is_harmful};
pub use plan::{Rotation, singles};
pub use run::{Baseline, Outcome, baseline, run};
pub use scenarios::{Scenario, all as scenarios};
pub use worker::{Answer, Asked, Report, Unit, serve};

use std::fmt::Write;

use crate::faults::Point;

/// How to run one case again.
pub fn replay_line(scenario: &str, points: &[Point]) -> String {
    let mut line = format!("cargo run --profile prove -p testkit --bin enumerate -- --only {scenario} --replay '");
    for (number, (call, fault)) in points.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(line, "{comma}{call}:{fault}");
    }
    line.push('\'');
    line
}

/// Reads what [`replay_line`] wrote: `12:crash-after,14:refused-409`.
pub fn parse_points(text: &str) -> Result<Vec<Point>, String> {
    let point = |part: &str| {
        let (call, fault) = part.split_once(':').ok_or_else(|| format!("`{part}` is not `call:fault`"))?;
        let call = call.parse().map_err(|_| format!("`{call}` is not the number of a call"))?;
        Ok((call, fault.parse()?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(point).collect()
}
