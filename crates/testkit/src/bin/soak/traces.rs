//! What pods and their node can leave on the machine: processes, mounts, control groups, files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Whatever is left of pods while the node still runs.
pub(crate) fn of_pods(data: &Path) -> Vec<String> {
    let node = data.join("node");
    let mut found = Vec::new();
    found.extend(processes().filter(|it| it.is_container_of(&node)).map(|it| format!("process {}", it.pid)));
    found.extend(mounts_below(data));
    found.extend(control_groups().into_iter().map(|path| format!("control group {}", path.display())));
    for directory in ["pods", "logs"] {
        found.extend(entries(&node.join(directory)).map(|path| format!("file {}", path.display())));
    }
    // Working directories are handed on, but only empty ones.
    let work = entries(&node.join("work")).flat_map(|directory| entries(&directory));
    found.extend(work.map(|path| format!("file {}", path.display())));
    found
}

/// Whatever is left after the server was stopped.
pub(crate) fn of_nursery(data: &Path) -> Vec<String> {
    let mut found = of_pods(data);
    found.extend(nurseries(data).map(|it| format!("nursery {}", it.pid)));
    found
}

/// Kills the process that owns the containers; they die with it.
pub(crate) fn kill_nursery(data: &Path) -> Result<()> {
    for nursery in nurseries(data) {
        let pid = Pid::from_raw(nursery.pid).context("a process without a number")?;
        match kill_process(pid, Signal::KILL) {
            // It ends by itself when nothing runs.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).context("kill the nursery"),
        }
    }
    Ok(())
}

struct Process {
    pid: i32,
    directory: PathBuf,
}

impl Process {
    /// By the mark in its environment. Processes of other nodes have it too; those of the soak work where it does.
    fn is_container_of(&self, node: &Path) -> bool {
        let environment = fs::read(self.directory.join("environ")).unwrap_or_default();
        let is_marked = environment.split(|byte| *byte == 0).any(|it| it.starts_with(b"TALLY_INSTANCE="));
        let scratch = node.parent().and_then(Path::parent);
        is_marked
            && fs::read_link(self.directory.join("cwd")).is_ok_and(|cwd| scratch.is_some_and(|it| cwd.starts_with(it)))
    }
}

fn processes() -> impl Iterator<Item = Process> {
    entries(Path::new("/proc")).filter_map(|directory| {
        let pid = directory.file_name()?.to_str()?.parse().ok()?;
        Some(Process { pid, directory })
    })
}

fn nurseries(data: &Path) -> impl Iterator<Item = Process> {
    let node = data.join("node").into_os_string().into_encoded_bytes();
    processes().filter(move |process| {
        let line = fs::read(process.directory.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == node)
    })
}

fn mounts_below(data: &Path) -> impl Iterator<Item = String> {
    let data = data.display().to_string();
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let lines: Vec<String> = text.lines().filter(|line| line.contains(&data)).map(|it| format!("mount {it}")).collect();
    lines.into_iter()
}

/// Groups of containers: `tally-NODE/UID.CONTAINER.ATTEMPT`, in the one hierarchy or in the one beside the old ones.
fn control_groups() -> Vec<PathBuf> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let parents = roots.into_iter().flat_map(entries).filter(|path| name_starts_with(path, "tally-"));
    parents.flat_map(|parent| entries(&parent)).filter(|path| path.is_dir() && !path.ends_with("shared")).collect()
}

fn name_starts_with(path: &Path, prefix: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
