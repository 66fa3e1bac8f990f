//! What real Kubernetes' controllers made of Jobs over time, replayed by the kit that lies beside the checkout.
//!
//! The controllers run in a process of their own, so that the kit can kill and restart them while the API goes on.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::project::{self, Profile};
use crate::stage::{Outcome, counted};

pub(crate) fn run(only: &[String]) -> Result<bool> {
    project::build(Profile::Debug)?;
    let outcome = against_controllers(only)?;
    if let Outcome::Skipped(why) = &outcome {
        println!("skipped: {why}");
    }
    Ok(!matches!(outcome, Outcome::Failed(_)))
}

/// The stage of `cargo xtask test`; everything is built.
pub(crate) fn against_controllers(only: &[String]) -> Result<Outcome> {
    let kit = project::root().join("../shared/conformance");
    if !kit.exists() {
        return Ok(Outcome::Skipped("there is no conformance kit beside the checkout".to_owned()));
    }
    let scratch = tempfile::tempdir().context("make a folder for the processes")?;
    let (kubeconfig, state) = (scratch.path().join("kubeconfig"), scratch.path().join("controllers"));
    let hook = hook(&kubeconfig, &state);
    let mut command: Command = project::with_tally(Profile::Debug, &kubeconfig);
    command.args(&hook).args(["around", "--", "python3"]).arg(kit.join("run"));
    command.args(["behaviour", "--jobs", "12", "--kubeconfig"]).arg(&kubeconfig);
    command.arg("--restart-controller").arg(hook.join(" "));
    for glob in only {
        command.args(["--only", glob]);
    }
    counted(&mut command)
}

/// The program that starts and stops the controllers. Paths of temporary folders and of cargo's need no quotes.
fn hook(kubeconfig: &Path, state: &Path) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    let program = text(&project::built("controller-hook", Profile::Debug));
    let binary = text(&project::built("tally", Profile::Debug));
    let flags = ["--binary", &binary, "--kubeconfig", &text(kubeconfig), "--state", &text(state)];
    std::iter::once(program).chain(flags.map(str::to_owned)).collect()
}
