//! What can be chosen about a node that runs processes.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::history::HistorySink;
use crate::logs::Bounds;

#[derive(Clone, Debug)]
pub struct Options {
    /// The Node's name.
    pub name: String,
    /// Where pods, logs and the nursery's memory are kept. Only this node may use it.
    pub directory: PathBuf,
    /// How to start the nursery: program and arguments, to which the directory is added.
    pub nursery_command: Vec<OsString>,
    /// The address that pods and node share.
    pub address: IpAddr,
    /// Environment that processes have before the pod says anything.
    pub environment: Vec<(String, String)>,
    pub capacity: Capacity,
    pub log: Bounds,
    /// A container with more processes is killed, where there are no control groups to keep it from starting them.
    pub processes_max: usize,
    /// Who hears of the end of every container before it is reported.
    pub history: Option<Arc<dyn HistorySink>>,
}

/// What the scheduler may give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub cpu_millis: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
    pub pods: i64,
}

impl Capacity {
    /// What this machine has, and the file system of `directory`, where volumes and logs are. The number of pods is a
    /// thousand, not a kubelet's 110: processes are cheaper than containers.
    pub fn of_machine(directory: &Path) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            cpu_millis: i64::try_from(cpus).unwrap_or(1) * 1000,
            memory_bytes: memory_total(),
            ephemeral_storage_bytes: storage_total(directory),
            pods: 1000,
        }
    }
}

/// The size of a directory's file system. The directory need not be there yet; what is made has the file system of what
/// it is made in.
fn storage_total(directory: &Path) -> i64 {
    let nearest = directory.ancestors().chain([Path::new(".")]).find_map(|path| rustix::fs::statvfs(path).ok());
    nearest.map_or(0, |found| i64::try_from(found.f_blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
}

fn memory_total() -> i64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    info.lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<i64>().ok())
        .map_or(1 << 30, |kib| kib * 1024)
}

/// What is recommended for pods of a kubelet. The kernel has numbers for 32,768 processes, unless told otherwise.
const PROCESSES_MAX: usize = 4096;

impl Options {
    /// For the program that is running, which must understand [`crate::nursery::SUBCOMMAND`].
    pub fn new(name: &str, directory: PathBuf) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        Ok(Self {
            name: name.to_owned(),
            capacity: Capacity::of_machine(&directory),
            directory,
            nursery_command: vec![program.into(), crate::nursery::SUBCOMMAND.into()],
            address: IpAddr::from([127, 0, 0, 1]),
            environment: Vec::new(),
            log: Bounds::default(),
            processes_max: PROCESSES_MAX,
            history: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_to_be_made_has_the_storage_of_the_one_around_it() {
        let directory = tempfile::tempdir().unwrap();
        let whole = storage_total(directory.path());
        assert!(whole > 0);
        assert_eq!(storage_total(&directory.path().join("data/node")), whole);
        assert!(storage_total(Path::new("not-there")) > 0, "also below the working directory");
    }
}
