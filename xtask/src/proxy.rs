//! The scenarios of `testkit` over real sockets and processes, through a proxy that deals out faults.

use std::process::Command;

use anyhow::Result;

use crate::project::{self, Profile};
use crate::stage::{Outcome, counted};

/// Three scenarios, some half a minute. More of them by hand: calls that are made at once come in another order each time.
const PER_CHANGE: [&str; 4] = ["--only", "indexed", "--runs", "8"];

pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    project::build(Profile::Debug)?;
    let mut command = program();
    command.args(arguments);
    Ok(matches!(counted(&mut command)?, Outcome::Passed(_)))
}

/// The stage of `cargo xtask test`; everything is built.
pub(crate) fn some() -> Result<Outcome> {
    counted(program().args(PER_CHANGE))
}

fn program() -> Command {
    let mut command = Command::new(project::built("fault-proxy", Profile::Debug));
    command.arg("--binary").arg(project::built("tally", Profile::Debug));
    command
}
