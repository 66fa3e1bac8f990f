//! Real clients against a real server: `e2e/run` under `with-tally`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::project::{self, Profile};
use crate::setup;
use crate::stage::{Outcome, counted};

pub(crate) fn run(only: Option<&str>) -> Result<bool> {
    let python = setup::clients()?;
    project::build(Profile::Debug)?;
    let outcomes = [against_server(&python, only)?, against_whole_server(&python, only)?];
    // A choice may leave one of the two without any case.
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(counts) if only.is_none() || counts.failed > 0);
    Ok(!outcomes.iter().any(failed) && outcomes.iter().any(|outcome| matches!(outcome, Outcome::Passed(_))))
}

/// The stage of `cargo xtask test`; server and clients are there.
pub(crate) fn against_server(python: &Path, only: Option<&str>) -> Result<Outcome> {
    let scratch = tempfile::tempdir().context("make a folder for the kubeconfig")?;
    let mut command: Command = project::with_tally(Profile::Debug, &scratch.path().join("kubeconfig"));
    command.arg(python).arg("e2e/run");
    cases(command, only)
}

/// The same for a server with controllers and a node: pods run.
pub(crate) fn against_whole_server(python: &Path, only: Option<&str>) -> Result<Outcome> {
    running_pods(python, only, &[QUICK_BACKOFF])
}

/// Pods of a server that an ordinary user runs.
pub(crate) fn against_ordinary_user(python: &Path) -> Result<Outcome> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Outcome::Skipped("whoever runs this is an ordinary user already".to_owned()));
    }
    running_pods(python, Some("pods/"), &[QUICK_BACKOFF, "--user", NOBODY])
}

/// Failed pods are replaced sooner than people would wait for.
const QUICK_BACKOFF: &str = "--flag=--pod-failure-backoff=1s";
const NOBODY: &str = "65534";

fn running_pods(python: &Path, only: Option<&str>, flags: &[&str]) -> Result<Outcome> {
    let scratch = tempfile::tempdir().context("make a folder for the kubeconfig")?;
    let mut command = project::with_whole_tally(Profile::Debug, &scratch.path().join("kubeconfig"), flags);
    command.arg(python).args(["e2e/run", "--whole"]);
    cases(command, only)
}

fn cases(mut command: Command, only: Option<&str>) -> Result<Outcome> {
    if let Some(only) = only {
        command.args(["--only", only]);
    }
    counted(&mut command)
}
