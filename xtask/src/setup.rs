//! Brings what the tests need and a machine may lack: kubectl, and the official Python client in a virtual environment
//! under the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::project;

/// Makes sure that kubectl and the Python client are there; returns the Python that has the client.
pub(crate) fn clients() -> Result<PathBuf> {
    kubectl()?;
    python()
}

pub(crate) fn kubectl() -> Result<()> {
    if runs("kubectl", &["version", "--client"]) {
        return Ok(());
    }
    apt_install(&["kubernetes-client"]).context("install kubectl")?;
    ensure!(runs("kubectl", &["version", "--client"]), "kubectl does not run");
    Ok(())
}

/// A virtual environment, made anew when the requirements change.
fn python() -> Result<PathBuf> {
    let wanted = fs::read_to_string(project::root().join("e2e/requirements.txt")).context("read the requirements")?;
    let home = project::target().join("e2e-python");
    let (python, stamp) = (home.join("bin/python3"), home.join("requirements.txt"));
    if fs::read_to_string(&stamp).ok().as_deref() == Some(&wanted) && runs(path(&python)?, &["--version"]) {
        return Ok(python);
    }
    if home.exists() {
        fs::remove_dir_all(&home).context("remove the old virtual environment")?;
    }
    if !make_environment(&home)? {
        // Debian ships Python without the part that makes environments.
        apt_install(&["python3-venv"]).context("install what makes virtual environments")?;
        ensure!(make_environment(&home)?, "`python3 -m venv` fails");
    }
    println!("installing {}", wanted.trim());
    let requirements = project::root().join("e2e/requirements.txt");
    let pip = Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(requirements)
        .status()
        .context("run pip")?;
    ensure!(pip.success(), "pip failed");
    fs::write(&stamp, wanted).context("note what is installed")?;
    Ok(python)
}

fn make_environment(home: &Path) -> Result<bool> {
    let status = Command::new("python3").args(["-m", "venv"]).arg(home).status().context("run python3")?;
    Ok(status.success())
}

fn apt_install(packages: &[&str]) -> Result<()> {
    if !runs("apt-get", &["--version"]) || !rustix::process::geteuid().is_root() {
        bail!("install `{}` first: only root on Debian can be helped with that", packages.join(" "));
    }
    let apt = |arguments: &[&str]| -> Result<()> {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "Dpkg::Use-Pty=0"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        ensure!(command.status().context("run apt-get")?.success(), "`apt-get {}` failed", arguments.join(" "));
        Ok(())
    };
    apt(&["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(packages);
    apt(&install)
}

/// Whether a program is there and does something as simple as this.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("the target directory's path is not text")
}
