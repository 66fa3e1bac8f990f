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
    let outcome = against_server(&python, only)?;
    Ok(matches!(outcome, Outcome::Passed(_)))
}

/// The stage of `cargo xtask test`; server and clients are there.
pub(crate) fn against_server(python: &Path, only: Option<&str>) -> Result<Outcome> {
    let scratch = tempfile::tempdir().context("make a folder for the kubeconfig")?;
    let mut command: Command = project::with_tally(Profile::Debug, &scratch.path().join("kubeconfig"));
    command.arg(python).arg("e2e/run");
    if let Some(only) = only {
        command.args(["--only", only]);
    }
    counted(&mut command)
}
