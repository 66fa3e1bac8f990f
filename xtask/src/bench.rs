//! `cargo xtask bench`: the figures of docs/benchmarks.md on this machine.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::project::{self, Profile, cargo};

/// Packages that measure themselves, and the example that does it.
const IN_PROCESS: [(&str, &str); 3] =
    [("store", "store_bench"), ("api-schema", "codec_bench"), ("apiserver", "api_bench")];

pub(crate) fn run() -> Result<bool> {
    project::build(Profile::Release)?;
    let mut passed = true;
    for (package, example) in IN_PROCESS {
        println!("\n=== {package}, in process");
        let mut command = cargo(&["run", "--quiet", "--release", "--package", package, "--example", example]);
        passed &= command.status().context("run a benchmark")?.success();
    }
    println!("\n=== tally up, over HTTPS");
    let mut command = Command::new(project::built("figures", Profile::Release));
    command.arg("--binary").arg(project::built("tally", Profile::Release));
    passed &= command.status().context("measure the server")?.success();
    Ok(passed)
}
