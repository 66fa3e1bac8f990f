//! `cargo xtask prove`: every fault enumerated, the small worlds model-checked, the whole system simulated, and proof
//! that all of it can fail. docs/reliability.md says what that shows and what it does not.
//!
//! The programs tell what they did in lines of the form `measured: WHAT = NUMBER` and `situation: TIMES WHAT`; they end
//! with an error if a promise was broken or a situation never met. Here the numbers are compared with what is asked of a
//! run (invariants, section 4) and printed as one table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::counts::Counts;
use crate::project::{self, Profile, cargo};
use crate::stage::{Outcome, Stages, counted, counted_and_heard};

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What can be waited for: five minutes on two cores, once built.
    Part,
    /// What every change must pass: every single fault and every pair. Some twenty minutes.
    All,
    /// Hours.
    Night,
}

/// One of the programs, and what it is told. It has no part where it is told nothing.
struct Proof {
    name: &'static str,
    program: &'static str,
    part: Option<&'static [&'static str]>,
    all: &'static [&'static str],
    night: &'static [&'static str],
}

const PROOFS: [Proof; 4] = [
    Proof {
        name: "faults",
        program: "enumerate",
        // Every fault of a call itself; of the others always the same ones, so that a change is judged by itself.
        part: Some(&["--watches-one-in", "8", "--pairs", "--pairs-one-in", "12", "--known-one-in", "5000"]),
        all: &["--pairs", "--known-one-in", "500"],
        night: &["--pairs", "--known-one-in", "50"],
    },
    Proof {
        name: "model",
        program: "model",
        part: Some(&["--states", "500000", "--at-least", "5000000"]),
        all: &["--states", "500000", "--at-least", "5000000"],
        night: &["--nightly", "--states", "20000000", "--at-least", "100000000"],
    },
    Proof {
        name: "simulation",
        program: "sim",
        part: Some(&["--seeds", "1000", "--repeat-one-in", "200", "--times", "5"]),
        all: &["--seeds", "1000", "--repeat-one-in", "200", "--times", "100"],
        night: &["--seeds", "20000", "--repeat-one-in", "200", "--times", "100"],
    },
    Proof { name: "teeth", program: "teeth", part: None, all: &[], night: &[] },
];

/// What is measured, and how much of it there must be in a part, in all and at night.
const MEASURES: [(&str, [u64; 3]); 10] = [
    ("single faults enumerated", [22_000, 70_000, 70_000]),
    ("pairs of faults enumerated", [10_000, 100_000, 100_000]),
    ("pairs that strike where the world was before", [400_000; 3]),
    ("of these, run all the same", [60, 300, 6_000]),
    ("distinct states model-checked", [5_000_000, 5_000_000, 100_000_000]),
    ("seeds simulated", [1_000, 1_000, 20_000]),
    ("seeds simulated again, same bytes", [5, 5, 100]),
    ("runs of each of these", [5, 100, 100]),
    ("times real time, each thread", [1_000; 3]),
    ("old bugs brought back and caught", [0, 76, 76]),
];

impl Extent {
    fn arguments(self, proof: &Proof) -> Option<&'static [&'static str]> {
        match self {
            Self::Part => proof.part,
            Self::All => Some(proof.all),
            Self::Night => Some(proof.night),
        }
    }

    fn at_least(self, [part, all, night]: [u64; 3]) -> u64 {
        match self {
            Self::Part => part,
            Self::All => all,
            Self::Night => night,
        }
    }
}

/// What the programs have told.
#[derive(Debug, Default)]
struct Told {
    measured: BTreeMap<String, u64>,
    situations: BTreeMap<String, u64>,
}

/// The simulation of a seed again, told in full.
pub(crate) fn again(seed: u64) -> Result<bool> {
    build()?;
    let mut command = Command::new(project::built("sim", Profile::Prove));
    command.args(["--seed", &seed.to_string(), "--trace"]);
    Ok(matches!(counted(&mut command)?, Outcome::Passed(_)))
}

pub(crate) fn run(extent: Extent) -> Result<bool> {
    let mut stages = Stages::default();
    prove(&mut stages, extent);
    println!("{}", stages.summary());
    Ok(stages.passed())
}

/// The programs one after the other, and the table of what they did.
pub(crate) fn prove(stages: &mut Stages, extent: Extent) {
    if !stages.run("proof, build", || build().map(|()| Outcome::Passed(Counts::default()))) {
        return;
    }
    let mut told = Told::default();
    for proof in &PROOFS {
        let Some(arguments) = extent.arguments(proof) else { continue };
        stages.run(proof.name, || {
            let mut command = Command::new(project::built(proof.program, Profile::Prove));
            command.current_dir(project::root()).args(arguments);
            counted_and_heard(&mut command, |line| told.hear(line))
        });
    }
    stages.run("proof", || {
        let (table, enough) = told.table(extent);
        println!("{table}");
        Ok(if enough { Outcome::Passed(Counts::default()) } else { Outcome::Failed(Counts::default()) })
    });
}

fn build() -> Result<()> {
    let mut command = cargo(&["build", "--quiet", "--profile", "prove"]);
    for package in ["testkit", "model", "sim"] {
        command.args(["--package", package]);
    }
    for proof in &PROOFS {
        command.args(["--bin", proof.program]);
    }
    ensure!(command.status()?.success(), "the build failed");
    Ok(())
}

impl Told {
    fn hear(&mut self, line: &str) {
        if let Some((what, number)) = line.strip_prefix("measured: ").and_then(|rest| rest.split_once(" = ")) {
            *self.measured.entry(what.to_owned()).or_default() += number.parse().unwrap_or(0);
        }
        if let Some((times, what)) = line.strip_prefix("situation: ").and_then(|rest| rest.split_once(' ')) {
            *self.situations.entry(what.to_owned()).or_default() += times.parse().unwrap_or(0);
        }
    }

    /// Everything in one table, and whether there was enough of everything.
    fn table(&self, extent: Extent) -> (String, bool) {
        let mut text = format!("{:<60}{:>12}{:>14}\n", "measure", "at least", "this run");
        let mut enough = true;
        for (what, least) in MEASURES {
            let least = extent.at_least(least);
            let measured = self.measured.get(what).copied().unwrap_or(0);
            let mark = if measured < least { "  TOO FEW" } else { "" };
            enough &= measured >= least;
            let _ = writeln!(text, "{what:<60}{least:>12}{measured:>14}{mark}");
        }
        for (what, times) in &self.situations {
            let mark = if *times == 0 { "  NEVER" } else { "" };
            enough &= *times > 0;
            let _ = writeln!(text, "{what:<60}{:>12}{times:>14}{mark}", 1);
        }
        (text, enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_that_is_too_small_or_a_situation_never_met_fails_the_run() {
        let mut told = Told::default();
        for (what, least) in MEASURES {
            told.hear(&format!("measured: {what} = {}", Extent::All.at_least(least)));
        }
        told.hear("situation: 3 relist after 410");
        told.hear("anything else");
        let (table, enough) = told.table(Extent::All);
        assert!(enough && told.table(Extent::Part).1, "{table}");
        assert!(!told.table(Extent::Night).1, "at night more is asked for");
        told.hear("situation: 0 W2 lost");
        let (table, enough) = told.table(Extent::All);
        assert!(!enough && table.contains("NEVER"), "{table}");
        assert!(!Told::default().table(Extent::Part).1);
    }
}
