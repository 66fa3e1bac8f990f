//! `cargo xtask prove`: every fault enumerated, the small worlds model-checked, the whole system simulated, and proof
//! that all of it can fail. docs/reliability.md says what that shows and what it does not.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::counts::Counts;
use crate::project::{self, Profile, cargo};
use crate::stage::{Outcome, Stages, counted};

/// One of the programs, and what it is told.
struct Proof {
    name: &'static str,
    program: &'static str,
    per_commit: &'static [&'static str],
    nightly: &'static [&'static str],
}

/// Together within five minutes on two cores, once built.
const PROOFS: [Proof; 4] = [
    Proof {
        name: "faults",
        program: "enumerate",
        per_commit: &["--pairs", "--seconds", "90"],
        nightly: &["--pairs", "--seconds", "14400"],
    },
    Proof {
        name: "model",
        program: "model",
        per_commit: &["--seconds", "90", "--at-least", "5000000"],
        nightly: &["--nightly", "--at-least", "100000000"],
    },
    Proof { name: "simulation", program: "sim", per_commit: &["--seeds", "1000"], nightly: &["--seeds", "20000"] },
    Proof { name: "teeth", program: "teeth", per_commit: &[], nightly: &[] },
];

/// With a seed: the simulation of it again, told in full.
pub(crate) fn run(seed: Option<u64>, nightly: bool) -> Result<bool> {
    if let Some(seed) = seed {
        build()?;
        let mut command = Command::new(project::built("sim", Profile::Prove));
        command.args(["--seed", &seed.to_string(), "--trace"]);
        return Ok(matches!(counted(&mut command)?, Outcome::Passed(_)));
    }
    let mut stages = Stages::default();
    if stages.run("build", || build().map(|()| Outcome::Passed(Counts::default()))) {
        prove(&mut stages, nightly);
    }
    println!("{}", stages.summary());
    Ok(stages.passed())
}

/// The stages of `cargo xtask test`, too.
pub(crate) fn prove(stages: &mut Stages, nightly: bool) {
    for proof in &PROOFS {
        stages.run(proof.name, || {
            let mut command = Command::new(project::built(proof.program, Profile::Prove));
            command.current_dir(project::root()).args(if nightly { proof.nightly } else { proof.per_commit });
            counted(&mut command)
        });
    }
}

pub(crate) fn build() -> Result<()> {
    let packages = ["--package", "testkit", "--package", "model", "--package", "sim", "--bins"];
    let mut command = cargo(&["build", "--quiet", "--profile", "prove"]);
    ensure!(command.args(packages).status()?.success(), "the build failed");
    Ok(())
}
