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

/// One of the programs, and what it is told.
struct Proof {
    name: &'static str,
    program: &'static str,
    per_commit: &'static [&'static str],
    nightly: &'static [&'static str],
}

/// Together about a quarter of an hour on two cores, once built.
const PROOFS: [Proof; 4] = [
    Proof {
        name: "faults",
        program: "enumerate",
        // Every single fault. Of the pairs always the same ones, so that a change is judged by itself; all come at night.
        per_commit: &["--pairs", "--pairs-one-in", "4", "--known-one-in", "500"],
        nightly: &["--pairs", "--known-one-in", "50"],
    },
    Proof {
        name: "model",
        program: "model",
        per_commit: &["--states", "500000", "--at-least", "5000000"],
        nightly: &["--nightly", "--at-least", "100000000"],
    },
    Proof {
        name: "simulation",
        program: "sim",
        per_commit: &["--seeds", "1000", "--repeat-one-in", "200", "--times", "100"],
        nightly: &["--seeds", "20000", "--repeat-one-in", "200", "--times", "100"],
    },
    Proof { name: "teeth", program: "teeth", per_commit: &[], nightly: &[] },
];

/// What is measured, and how much of it there must be in a run per commit and at night.
const MEASURES: [(&str, u64, u64); 10] = [
    ("single faults enumerated", 60_000, 60_000),
    ("pairs of faults enumerated", 25_000, 100_000),
    ("pairs that strike where the world was before", 400_000, 400_000),
    ("of these, run all the same", 300, 6_000),
    ("distinct states model-checked", 5_000_000, 100_000_000),
    ("seeds simulated", 1_000, 20_000),
    ("seeds simulated again, same bytes", 5, 100),
    ("runs of each of these", 100, 100),
    ("times real time, each thread", 1_000, 1_000),
    ("old bugs brought back and caught", 52, 52),
];

/// What the programs have told.
#[derive(Debug, Default)]
struct Told {
    measured: BTreeMap<String, u64>,
    situations: BTreeMap<String, u64>,
}

/// With a seed: the simulation of it again, told in full.
pub(crate) fn run(seed: Option<u64>, nightly: bool) -> Result<bool> {
    if let Some(seed) = seed {
        build()?;
        let mut command = Command::new(project::built("sim", Profile::Prove));
        command.args(["--seed", &seed.to_string(), "--trace"]);
        return Ok(matches!(counted(&mut command)?, Outcome::Passed(_)));
    }
    let mut stages = Stages::default();
    prove(&mut stages, nightly);
    println!("{}", stages.summary());
    Ok(stages.passed())
}

/// All four, and the table of what they did.
pub(crate) fn prove(stages: &mut Stages, nightly: bool) {
    if !stages.run("proof, build", || build().map(|()| Outcome::Passed(Counts::default()))) {
        return;
    }
    let mut told = Told::default();
    for proof in &PROOFS {
        stages.run(proof.name, || {
            let mut command = Command::new(project::built(proof.program, Profile::Prove));
            command.current_dir(project::root()).args(if nightly { proof.nightly } else { proof.per_commit });
            counted_and_heard(&mut command, |line| told.hear(line))
        });
    }
    stages.run("proof", || {
        let (table, enough) = told.table(nightly);
        println!("{table}");
        Ok(if enough { Outcome::Passed(Counts::default()) } else { Outcome::Failed(Counts::default()) })
    });
}

/// Two builds: the one with the feature `teeth` knows how to bring old bugs back, and must not be the one that proves.
fn build() -> Result<()> {
    let packages = ["--package", "testkit", "--package", "model", "--package", "sim"];
    let proving = [&packages[..], &["--bin", "enumerate", "--bin", "model", "--bin", "sim"]].concat();
    let biting = ["--package", "model", "--features", "teeth", "--bin", "teeth"];
    for packages in [&proving[..], &biting[..]] {
        let mut command = cargo(&["build", "--quiet", "--profile", "prove"]);
        ensure!(command.args(packages).status()?.success(), "the build failed");
    }
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
    fn table(&self, nightly: bool) -> (String, bool) {
        let mut text = format!("{:<60}{:>12}{:>14}\n", "measure", "at least", "this run");
        let mut enough = true;
        for (what, per_commit, at_night) in MEASURES {
            let least = if nightly { at_night } else { per_commit };
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
        for (what, per_commit, _) in MEASURES {
            told.hear(&format!("measured: {what} = {per_commit}"));
        }
        told.hear("situation: 3 relist after 410");
        told.hear("anything else");
        let (table, enough) = told.table(false);
        assert!(enough, "{table}");
        assert!(!told.table(true).1, "at night more is asked for");
        told.hear("situation: 0 W2 lost");
        let (table, enough) = told.table(false);
        assert!(!enough && table.contains("NEVER"), "{table}");
        assert!(!Told::default().table(false).1);
    }
}
