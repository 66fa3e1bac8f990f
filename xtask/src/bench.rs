//! `cargo xtask bench`: the figures of docs/benchmarks.md on this machine.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::project::{self, Profile, cargo};

pub(crate) fn run() -> Result<bool> {
    project::build(Profile::Release)?;
    let mut passed = true;
    for package in ["store", "apiserver"] {
        println!("\n=== {package}, in process");
        let mut command = cargo(&["run", "--quiet", "--release", "--package", package, "--example", "bench"]);
        passed &= command.status().context("run a benchmark")?.success();
    }
    println!("\n=== tally up, over HTTPS");
    let mut command = Command::new(project::built("figures", Profile::Release));
    command.arg("--binary").arg(project::built("tally", Profile::Release));
    passed &= command.status().context("measure the server")?.success();
    Ok(passed)
}
