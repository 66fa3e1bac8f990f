//! `cargo xtask test`: everything that must pass before a change lands.

use anyhow::Result;

use crate::counts::Counts;
use crate::project::{self, Profile, cargo};
use crate::stage::{Outcome, Stages, counted};
use crate::{behaviour, conformance, e2e, setup, soak};

/// Enough kills to notice a broken promise, few enough for every change; `cargo xtask soak` does more.
const SOAK_ROUNDS: u32 = 8;

pub(crate) fn run() -> Result<bool> {
    let mut stages = Stages::default();
    let mut python = None;
    stages.run("set-up", || {
        python = Some(setup::clients()?);
        Ok(Outcome::Passed(Counts::default()))
    });
    stages.run("format", || counted(&mut cargo(&["fmt", "--all", "--check"])));
    stages.run("lints", || {
        counted(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    stages.run("tests", tests);
    stages.run("doc tests", || counted(&mut cargo(&["test", "--quiet", "--workspace", "--doc"])));
    let built = stages.run("build", || {
        project::build(Profile::Debug)?;
        Ok(Outcome::Passed(Counts::default()))
    });
    let needs_build = || Ok(Outcome::Skipped("the build failed".to_owned()));
    stages.run("e2e", || match &python {
        Some(python) if built => e2e::against_server(python, None),
        Some(_) => needs_build(),
        None => Ok(Outcome::Skipped("the set-up failed".to_owned())),
    });
    stages.run("conformance", || if built { conformance::against_server() } else { needs_build() });
    stages.run("behaviour", || if built { behaviour::against_controllers(&[]) } else { needs_build() });
    stages.run("soak", || if built { soak::rounds_of(Profile::Debug, SOAK_ROUNDS, None) } else { needs_build() });
    println!("{}", stages.summary());
    Ok(stages.passed())
}

fn tests() -> Result<Outcome> {
    let arguments: &[&str] = if setup::runs("cargo", &["nextest", "--version"]) {
        &["nextest", "run", "--workspace", "--no-fail-fast", "--status-level", "fail"]
    } else {
        &["test", "--quiet", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]
    };
    counted(&mut cargo(arguments))
}
