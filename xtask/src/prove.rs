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
    /// All that section 4 asks of a change: five minutes on two cores, once built.
    Commit,
    /// What every change must pass: pairs of more forms of faults, in longer scenarios too, and proof that all of it can fail.
    All,
    /// The same with far more states and seeds: about an hour.
    Night,
}

/// One of the programs, and what it is told.
struct Proof {
    name: &'static str,
    program: &'static str,
    arguments: Each<&'static [&'static str]>,
}

/// Something for each extent, in their order.
type Each<T> = [T; 3];

const PROOFS: [Proof; 4] = [
    Proof {
        name: "faults",
        program: "enumerate",
        arguments: [
            &["--pairs", "--known-one-in", "500"],
            &["--pairs", "--all-forms", "--known-one-in", "500", "--pairs-calls-max", "40"],
            &["--pairs", "--all-forms", "--known-one-in", "50", "--pairs-calls-max", "40"],
        ],
    },
    Proof {
        name: "model",
        program: "model",
        arguments: [
            &["--states", "420000", "--at-least", "5000000"],
            &["--states", "420000", "--at-least", "5000000"],
            &["--nightly", "--states", "20000000", "--at-least", "100000000"],
        ],
    },
    Proof {
        name: "simulation",
        program: "sim",
        arguments: [
            &["--seeds", "1000", "--repeat-one-in", "500", "--times", "100"],
            &["--seeds", "1000", "--repeat-one-in", "200", "--times", "100"],
            &["--seeds", "20000", "--repeat-one-in", "200", "--times", "100"],
        ],
    },
    Proof { name: TEETH, program: "teeth", arguments: [&[], &[], &[]] },
];

/// The one that says something about the others.
const TEETH: &str = "teeth";

/// What is measured, and how much of it there must be.
const MEASURES: [(&str, Each<u64>); 9] = [
    ("single faults enumerated", [100_000; 3]),
    ("pairs of faults enumerated", [110_000, 240_000, 240_000]),
    ("pairs that strike where the world was before", [200_000, 550_000, 550_000]),
    ("of these, run all the same", [300, 800, 8_000]),
    ("distinct states model-checked", [5_000_000, 5_000_000, 100_000_000]),
    ("seeds simulated", [1_000, 1_000, 20_000]),
    ("seeds simulated again, same bytes", [2, 5, 100]),
    ("runs of each of these", [100; 3]),
    ("times real time, each thread", [1_000; 3]),
];

/// The same of the teeth.
const OLD_BUGS: (&str, u64) = ("old bugs brought back and caught", 76);

impl Extent {
    fn proofs(self) -> impl Iterator<Item = &'static Proof> {
        PROOFS.iter().filter(move |proof| self != Self::Commit || proof.name != TEETH)
    }

    /// What there is for it.
    fn of<T: Copy>(self, each: &Each<T>) -> T {
        each[self as usize]
    }

    /// What is measured, and how much of it there must be.
    fn measures(self) -> impl Iterator<Item = (&'static str, u64)> {
        let measures = MEASURES.iter().map(move |(what, least)| (*what, self.of(least)));
        measures.chain((self != Self::Commit).then_some(OLD_BUGS))
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
    for proof in extent.proofs() {
        stages.run(proof.name, || {
            let mut command = Command::new(project::built(proof.program, Profile::Prove));
            command.current_dir(project::root()).args(extent.of(&proof.arguments));
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
        for (what, least) in extent.measures() {
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
        for (what, least) in Extent::All.measures() {
            told.hear(&format!("measured: {what} = {least}"));
        }
        told.hear("situation: 3 relist after 410");
        told.hear("anything else");
        let (table, enough) = told.table(Extent::All);
        assert!(enough && told.table(Extent::Commit).1, "{table}");
        assert!(!told.table(Extent::Night).1, "at night more is asked for");
        told.hear("situation: 0 W2 lost");
        let (table, enough) = told.table(Extent::All);
        assert!(!enough && table.contains("NEVER"), "{table}");
        assert!(!Told::default().table(Extent::Commit).1);
    }
}
