//! Where the node of a run, and with `--data` the store, keep their files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io, thread};

use anyhow::anyhow;
use tempfile::TempDir;

use crate::data_dir;
use crate::failure::Failure;
use crate::server::Place;

/// Every pod leaves a log behind, and removing files one after the other is mostly waiting.
const REMOVERS: usize = 8;

pub(super) enum Home {
    Kept(PathBuf),
    /// Removed when it is dropped.
    Temporary(TempDir),
}

impl Home {
    /// The directory that was asked for, else one for this run alone.
    pub(super) fn choose(data: Option<&Path>) -> Result<Self, Failure> {
        if let Some(data) = data {
            let data = data_dir::absolute(data)?;
            data_dir::prepare(&data)?;
            return Ok(Self::Kept(data));
        }
        let made = tempfile::Builder::new().prefix("tally-run-").tempdir();
        let hint = "set `TMPDIR` to a directory you may write to, or pass one with `--data DIR`";
        let failure = |error: io::Error| Failure::new(anyhow!(error).context("make a temporary directory")).hint(hint);
        Ok(Self::Temporary(made.map_err(failure)?))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }

    pub(super) fn place(&self) -> Place<'_> {
        match self {
            Self::Kept(path) => Place::Directory(path),
            Self::Temporary(_) => Place::Memory,
        }
    }

    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Temporary(_))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Self::Temporary(directory) = self {
            remove(directory.path());
        }
    }
}

/// Removes a run's directory with everything in it, as far as that can be removed.
pub(super) fn remove(home: &Path) {
    let logs = fs::read_dir(home.join("node/logs")).into_iter().flatten().flatten();
    let logs: Vec<PathBuf> = logs.map(|entry| entry.path()).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..REMOVERS.min(logs.len()) {
            scope.spawn(|| {
                while let Some(path) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = fs::remove_dir_all(path);
                }
            });
        }
    });
    let _ = fs::remove_dir_all(home);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_temporary_is_gone_with_everything_in_it() {
        let home = Home::choose(None).unwrap();
        let path = home.path().to_owned();
        for pod in 0..50 {
            let log = path.join(format!("node/logs/{pod}/main"));
            fs::create_dir_all(&log).unwrap();
            fs::write(log.join("0.log"), "said").unwrap();
        }
        fs::write(path.join("node/other"), "").unwrap();
        drop(home);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_kept_stays() {
        let data = tempfile::tempdir().unwrap();
        drop(Home::choose(Some(data.path())).unwrap());
        assert!(data.path().exists());
    }
}
