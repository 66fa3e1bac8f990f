//! The tally that runs on a data directory: which process it is and where it listens.
//!
//! `up` writes a small file when it is ready and removes it when it ends. A process that was killed leaves its file
//! behind, and its number may belong to somebody else by then; so the file also says when the process started, and both
//! must fit.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::Context as _;
use apiserver::tls::write_private;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::version::VERSION;

/// The file's name in the data directory.
const FILE: &str = "tally.json";

/// A running tally, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Instance {
    pub(crate) pid: i32,
    /// When the process started, in the kernel's own ticks since boot.
    started_ticks: u64,
    pub(crate) started_at: Timestamp,
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) version: String,
}

impl Instance {
    /// This process.
    pub(crate) fn here(address: SocketAddr, kubeconfig: &Path) -> Self {
        let pid = i32::try_from(process::id()).expect("Linux keeps process numbers below 2^22");
        Self {
            pid,
            started_ticks: started_ticks(pid).unwrap_or_default(),
            started_at: Timestamp::now(),
            address,
            kubeconfig: kubeconfig.to_owned(),
            version: VERSION.to_owned(),
        }
    }

    /// Says so in the data directory until the answer is dropped. The store's lock makes sure that there is only one.
    pub(crate) fn write(&self, data: &Path) -> anyhow::Result<Held> {
        let path = data.join(FILE);
        let text = serde_json::to_vec_pretty(self).context("describe this process")?;
        write_private(&path, &text).with_context(|| format!("write `{}`", path.display()))?;
        Ok(Held { path })
    }

    /// Whether this very process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.number().is_some() && started_ticks(self.pid) == Some(self.started_ticks)
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        let Some(pid) = self.number().filter(|_| self.is_alive()) else { return Ok(()) };
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// The process, if there is one of this number.
    fn number(&self) -> Option<Pid> {
        Pid::from_raw(self.pid).filter(|pid| test_kill_process(*pid) != Err(rustix::io::Errno::SRCH))
    }
}

/// Removes the file when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The tally that runs on a data directory, if one does.
pub(crate) fn running(data: &Path) -> Result<Option<Instance>, Failure> {
    let path = data.join(FILE);
    read(&path).map_err(|error| {
        let hint = unreadable_hint(&error);
        Failure::new(error).hint(hint)
    })
}

/// What to do about a file that cannot be read or makes no sense.
fn unreadable_hint(error: &anyhow::Error) -> &'static str {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::PermissionDenied) => "it is another user's: ask them, or become that user",
        _ => "the file only says which process runs here: remove it if none does",
    }
}

fn read(path: &Path) -> anyhow::Result<Option<Instance>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("read `{}`", path.display())),
    };
    let instance: Instance =
        serde_json::from_slice(&text).with_context(|| format!("understand `{}`", path.display()))?;
    Ok(Some(instance).filter(Instance::is_alive))
}

/// Field 22 of /proc/PID/stat, which follows the program's name in parentheses.
fn started_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    // Zombies have ended; only their parent does not know yet.
    let state = fields.next()?;
    fields.nth(18)?.parse().ok().filter(|_| state != "Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        Instance::here("127.0.0.1:6443".parse().unwrap(), Path::new("/data/kubeconfig"))
    }

    #[test]
    fn the_file_names_this_process_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(running(dir.path()).unwrap(), None);
        let held = instance().write(dir.path()).unwrap();
        assert_eq!(running(dir.path()).unwrap().map(|it| it.pid), i32::try_from(process::id()).ok());
        drop(held);
        assert_eq!(running(dir.path()).unwrap(), None);
    }

    /// After a crash the number may be somebody else's.
    #[test]
    fn a_number_that_was_given_away_again_is_not_believed() {
        let other_start = Instance { started_ticks: 1, ..instance() };
        assert!(!other_start.is_alive());
        other_start.terminate().expect("nobody is hit");
        // No process has a number this high.
        let nobody = Instance { pid: i32::MAX, ..instance() };
        assert!(!nobody.is_alive());
    }

    /// Root may read everything, so the error is made up.
    #[test]
    fn nobody_is_told_to_remove_what_is_another_users() {
        let denied = anyhow::Error::new(io::Error::from(io::ErrorKind::PermissionDenied)).context("read `/x`");
        assert!(unreadable_hint(&denied).starts_with("it is another user's"));
        assert!(unreadable_hint(&anyhow::anyhow!("no JSON")).contains("remove it"));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(running(dir.path()).unwrap_err().error.to_string().starts_with("understand `"));
    }
}
