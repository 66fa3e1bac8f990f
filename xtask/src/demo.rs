//! `cargo xtask demo`: a server, a Job, and what kubectl shows of it.

use anyhow::{Context as _, Result};

use crate::project::{self, Profile};
use crate::setup;

const SCRIPT: &str = "
set -ex
kubectl create -f examples/job.yaml
kubectl wait --for=condition=complete --timeout=60s job/hello
kubectl get jobs,pods --output=wide
kubectl logs --selector=job-name=hello
";

pub(crate) fn run() -> Result<bool> {
    setup::kubectl()?;
    project::build(Profile::Debug)?;
    let scratch = tempfile::tempdir().context("make a folder for the kubeconfig")?;
    let mut command = project::with_whole_tally(Profile::Debug, &scratch.path().join("kubeconfig"), &[]);
    Ok(command.args(["sh", "-c", SCRIPT]).status().context("run kubectl")?.success())
}
