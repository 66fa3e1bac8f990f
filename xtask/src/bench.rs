//! `cargo xtask bench`: the figures of docs/benchmarks.md on this machine.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::project::{self, Profile, cargo};

/// Packages that measure themselves, and the examples that do it.
const IN_PROCESS: [(&str, &str, &[&str]); 8] = [
    ("batch-types", "rules_bench", &[]),
    ("store", "store_bench", &[]),
    ("api-schema", "codec_bench", &[]),
    ("apiserver", "api_bench", &[]),
    ("controllers", "job_bench", &["10000", "10000", "500"]),
    ("controllers", "job_bench", &["100000", "100000", "1"]),
    ("controllers", "ttl_bench", &[]),
    ("controllers", "cronjob_bench", &[]),
];
/// Programs of `testkit` that measure `tally up`.
const FROM_OUTSIDE: [(&str, &str); 2] =
    [("figures", "tally up, over HTTPS"), ("pod-figures", "tally up, running pods")];

pub(crate) fn run() -> Result<bool> {
    project::build(Profile::Release)?;
    let mut passed = true;
    for (package, example, arguments) in IN_PROCESS {
        println!("\n=== {example} {}", arguments.join(" "));
        let mut command = cargo(&["run", "--quiet", "--release", "--package", package, "--example", example, "--"]);
        passed &= command.args(arguments).status().context("run a benchmark")?.success();
    }
    for (program, title) in FROM_OUTSIDE {
        println!("\n=== {title}");
        let mut command = Command::new(project::built(program, Profile::Release));
        command.arg("--binary").arg(project::built("tally", Profile::Release));
        passed &= command.status().context("measure the server")?.success();
    }
    Ok(passed)
}
