//! Where the node keeps its files. Everything is below one directory that only its user can enter.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Makes the directories that are always there.
    pub(crate) fn create(&self) -> io::Result<()> {
        for directory in [&self.root, &self.logs(), &self.pods(), &self.nursery(), &self.new_root()] {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        Ok(())
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Volumes and termination messages, by the pod's uid.
    pub(crate) fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// Where containers without a working directory of their own start.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub(crate) fn nursery(&self) -> PathBuf {
        self.root.join("nursery")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.nursery().join("journal")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.nursery().join("lock")
    }

    /// What the nursery has to say when nobody listens.
    pub(crate) fn errors(&self) -> PathBuf {
        self.nursery().join("errors")
    }

    /// The name of the socket inside [`Self::nursery`]: whole paths may be too long for an address.
    pub(crate) const SOCKET: &str = "socket";

    pub(crate) fn new_root(&self) -> PathBuf {
        self.nursery().join("root")
    }

    /// What is kept of pods, by directories that are named by their uids.
    pub(crate) fn directories_of_pods(&self) -> Vec<PathBuf> {
        let entries = [self.pods(), self.logs()].into_iter().filter_map(|directory| fs::read_dir(directory).ok());
        entries.flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Removes everything of a pod but its logs.
    pub(crate) fn remove_pod(&self, uid: &str) -> io::Result<()> {
        remove(&self.pod(uid))
    }

    pub(crate) fn remove_logs(&self, uid: &str) -> io::Result<()> {
        remove(&self.logs().join(uid))
    }
}

/// A pod's uid becomes the name of a directory, so it may not be more than a name (INV-52).
pub(crate) fn is_safe_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.len() <= 128 && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
