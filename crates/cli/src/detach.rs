//! `tally up --detach`: the same program once more, in a session of its own.
//!
//! The first process passes on the ready line and ends. Until then the second one shares its stderr, so that what goes
//! wrong during start-up is read where it was asked for; from then on it writes to a log file.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{self, Command, Stdio};

use anyhow::Context as _;
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdout};

use crate::failure::Failure;

/// The log's name in the data directory.
const LOG: &str = "tally.log";

/// Starts the second process and waits until it is ready. If it fails it has said why, and this one ends as it did.
pub(crate) fn start() -> Result<(), Failure> {
    let program = std::env::current_exe().context("find this program's own file")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--in-background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start tally in the background")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("wait for tally to be ready")?;
    }
    if line.is_empty() {
        let status = child.wait().context("wait for tally to be ready")?;
        process::exit(status.code().unwrap_or(1));
    }
    let mut stdout = std::io::stdout().lock();
    // The server runs, whether or not somebody reads this.
    let _ = stdout.write_all(line.as_bytes());
    let _ = stdout.flush();
    Ok(())
}

/// Leaves the terminal, in the second process, once there is nothing more to say to it.
pub(crate) fn let_go(data: &Path) -> Result<(), Failure> {
    let path = data.join(LOG);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
    let hint = "make the file one you may write to, or remove it";
    let log = log.with_context(|| format!("open the log `{}`", path.display()));
    let log = log.map_err(|error| Failure::new(error).hint(hint))?;
    // Fails only for the leader of a group, which then has no terminal to lose.
    let _ = setsid();
    redirect(&log).with_context(|| format!("write to the log `{}`", path.display()))?;
    Ok(())
}

fn redirect(log: &File) -> rustix::io::Result<()> {
    dup2_stdout(log)?;
    dup2_stderr(log)
}
