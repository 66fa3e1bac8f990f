//! The kill -9 soak of `testkit`.

use std::process::Command;

use anyhow::Result;

use crate::project::{self, Profile};
use crate::stage::{Outcome, counted};

/// What goes on while the server is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    Writes,
    /// Jobs of this many pods.
    Pods(u32),
}

impl Load {
    /// A night's worth, and what the figures of docs/benchmarks.md are from.
    fn rounds_default(self) -> u32 {
        match self {
            Self::Writes => 200,
            Self::Pods(_) => 20,
        }
    }
}

/// With the release build: it does more between two kills.
pub(crate) fn run(load: Load, rounds: Option<u32>, seed: Option<u64>) -> Result<bool> {
    project::build(Profile::Release)?;
    let rounds = rounds.unwrap_or(load.rounds_default());
    Ok(matches!(rounds_of(Profile::Release, load, rounds, seed)?, Outcome::Passed(_)))
}

/// The stage of `cargo xtask test`, shorter and on what is built already.
pub(crate) fn rounds_of(profile: Profile, load: Load, rounds: u32, seed: Option<u64>) -> Result<Outcome> {
    let mut command = Command::new(project::built("soak", profile));
    command.arg("--binary").arg(project::built("tally", profile)).args(["--rounds", &rounds.to_string()]);
    if let Load::Pods(completions) = load {
        command.args(["--pods", &completions.to_string()]);
    }
    if let Some(seed) = seed {
        command.args(["--seed", &seed.to_string()]);
    }
    counted(&mut command)
}
