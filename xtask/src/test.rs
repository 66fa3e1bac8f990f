//! `cargo xtask test`: everything that must pass before a change lands.

use std::path::Path;

use anyhow::Result;

use crate::counts::Counts;
use crate::project::{self, Profile, cargo};
use crate::prove::Extent;
use crate::soak::Load;
use crate::stage::{Outcome, Stages, counted};
use crate::{behaviour, conformance, e2e, prove, proxy, setup, soak, supply};

/// Enough kills to notice a broken promise, few enough for every change; `cargo xtask soak` does more.
const SOAK_ROUNDS: u32 = 8;
/// Jobs of 100 pods; the fifth round kills the nursery too.
const SOAK_PODS: u32 = 100;
const SOAK_PODS_ROUNDS: u32 = 5;

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
    stages.run("supply", supply::check);
    stages.run("tests", tests);
    stages.run("doc tests", || counted(&mut cargo(&["test", "--quiet", "--workspace", "--doc"])));
    let built = stages.run("build", || {
        project::build(Profile::Debug)?;
        Ok(Outcome::Passed(Counts::default()))
    });
    let needs_build = || Ok(Outcome::Skipped("the build failed".to_owned()));
    let mut clients = |name, cases: &dyn Fn(&Path) -> Result<Outcome>| {
        stages.run(name, || match &python {
            Some(python) if built => cases(python),
            Some(_) => needs_build(),
            None => Ok(Outcome::Skipped("the set-up failed".to_owned())),
        })
    };
    clients("e2e", &|python| e2e::against_server(python, None));
    clients("pods", &|python| e2e::against_whole_server(python, None));
    clients("pods, no root", &e2e::against_ordinary_user);
    stages.run("conformance", || if built { conformance::against_server() } else { needs_build() });
    stages.run("behaviour", || if built { behaviour::against_controllers(&[]) } else { needs_build() });
    let mut soak = |name, load, rounds| {
        stages.run(name, || if built { soak::rounds_of(Profile::Debug, load, rounds, None) } else { needs_build() })
    };
    soak("soak", Load::Writes, SOAK_ROUNDS);
    soak("soak of pods", Load::Pods(SOAK_PODS), SOAK_PODS_ROUNDS);
    stages.run("proxy", || if built { proxy::some() } else { needs_build() });
    prove::prove(&mut stages, Extent::All);
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
