//! The kill -9 soak of `testkit`.

use std::process::Command;

use anyhow::Result;

use crate::project::{self, Profile};
use crate::stage::{Outcome, counted};

/// With the release build: it writes more between two kills.
pub(crate) fn run(rounds: u32, seed: Option<u64>) -> Result<bool> {
    project::build(Profile::Release)?;
    Ok(matches!(rounds_of(Profile::Release, rounds, seed)?, Outcome::Passed(_)))
}

/// The stage of `cargo xtask test`, shorter and on what is built already.
pub(crate) fn rounds_of(profile: Profile, rounds: u32, seed: Option<u64>) -> Result<Outcome> {
    let mut command = Command::new(project::built("soak", profile));
    command.arg("--binary").arg(project::built("tally", profile)).args(["--rounds", &rounds.to_string()]);
    if let Some(seed) = seed {
        command.args(["--seed", &seed.to_string()]);
    }
    counted(&mut command)
}
