//! Where things are, and how cargo is called.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A program that cargo has built.
pub(crate) fn built(name: &str, profile: Profile) -> PathBuf {
    target().join(profile.folder()).join(name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
    /// Of programs that compute for minutes.
    Prove,
}

impl Profile {
    fn folder(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
            Self::Prove => "prove",
        }
    }
}

/// A cargo command in the workspace's root, with the toolchain that runs this.
///
/// What cargo tells this program about its package is not passed on: build scripts that ask for it would run again, and
/// half of the workspace be compiled once for the shell and once for here.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        command.env_remove(name);
    }
    command.current_dir(root()).args(arguments);
    command
}

/// The server and the programs that drive it.
pub(crate) fn build(profile: Profile) -> Result<()> {
    let mut command = cargo(&["build", "--quiet", "--package", "cli", "--package", "testkit", "--bins"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    ensure!(command.status()?.success(), "the build failed");
    Ok(())
}

/// A command run by `with-tally`, so with a server of its own whose kubeconfig is `kubeconfig`.
pub(crate) fn with_tally(profile: Profile, kubeconfig: &Path) -> Command {
    let mut command = Command::new(built("with-tally", profile));
    command.current_dir(root()).arg("--binary").arg(built("tally", profile));
    command.arg("--kubeconfig").arg(kubeconfig).arg("--");
    command
}

/// The same with controllers and a node, so that Jobs run; `flags` are more of `with-tally`'s.
pub(crate) fn with_whole_tally(profile: Profile, kubeconfig: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(built("with-tally", profile));
    command.current_dir(root()).arg("--binary").arg(built("tally", profile));
    command.arg("--kubeconfig").arg(kubeconfig).arg("--whole").args(flags).arg("--");
    command
}
