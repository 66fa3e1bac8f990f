//! Limits by control groups (version 2), where the machine has them and lets us.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::geteuid;

use super::protocol::{InstanceId, Limits};

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Time over which a limit of processor time is meant, in microseconds, as container runtimes set it.
const CPU_PERIOD: u64 = 100_000;

/// All containers of a node together may have this many processes: a fork bomb must not take the machine with it.
const PIDS_MAX: u64 = 16_384;

/// The group of the nursery and of all containers without limits of their own.
const SHARED: &str = "shared";

/// The parent of all groups of one nursery.
#[derive(Debug)]
pub(super) struct ControlGroups {
    parent: PathBuf,
}

/// The group of one container. Removed by [`Self::remove`].
#[derive(Debug)]
pub(super) struct ControlGroup {
    path: PathBuf,
}

impl ControlGroups {
    /// `name` tells the groups of different nodes on one machine apart.
    pub(super) fn open(name: &str) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let mount = mount_point(&mounts).ok_or("no control groups of version 2 are mounted")?;
        let home = match geteuid().is_root() {
            true => mount,
            false => {
                let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
                let own = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or("no control group")?;
                mount.join(own)
            }
        };
        let available = fs::read_to_string(home.join("cgroup.controllers")).map_err(|error| error.to_string())?;
        if let Some(missing) = CONTROLLERS.iter().find(|wanted| !available.split_whitespace().any(|it| it == **wanted))
        {
            return Err(format!("the control groups at {} have no controller `{missing}`", home.display()));
        }
        let parent = home.join(format!("tally-{name}"));
        let groups = Self { parent };
        let made = enable(&home).and_then(|()| groups.prepare());
        made.map_err(|error| format!("use control groups at {}: {error}", groups.parent.display()))?;
        groups.remove_leftovers();
        groups.join_shared().map_err(|error| format!("join a control group: {error}"))?;
        Ok(groups)
    }

    /// The limit is that of all groups below: those of containers with limits of their own must not escape it.
    fn prepare(&self) -> io::Result<()> {
        make(&self.parent)?;
        let all = ControlGroup { path: self.parent.clone() };
        all.limit(Limits { pids: Some(PIDS_MAX), ..Limits::default() })?;
        enable(&self.parent)
    }

    /// The nursery moves once, so that its children need not: a move takes the kernel milliseconds.
    fn join_shared(&self) -> io::Result<()> {
        let shared = self.parent.join(SHARED);
        make(&shared)?;
        fs::write(shared.join("cgroup.procs"), "0")
    }

    pub(super) fn create(&self, id: &InstanceId, limits: Limits) -> io::Result<ControlGroup> {
        let path = self.parent.join(format!("{}.{}.{}", id.pod, id.container, id.attempt));
        make(&path)?;
        let group = ControlGroup { path };
        let written = group.limit(limits);
        if written.is_err() {
            let _ = fs::remove_dir(&group.path);
        }
        written.map(|()| group)
    }

    /// Groups of an earlier nursery: nothing of them may go on.
    fn remove_leftovers(&self) {
        let entries = fs::read_dir(&self.parent).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let group = ControlGroup { path: entry.path() };
            group.kill();
            group.remove();
        }
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        // The nursery is about to end; until then it needs a place. What is left empty goes with the next one.
        if let Some(home) = self.parent.parent()
            && fs::write(home.join("cgroup.procs"), "0").is_ok()
        {
            let _ = fs::remove_dir(self.parent.join(SHARED));
            let _ = fs::remove_dir(&self.parent);
        }
    }
}

impl ControlGroup {
    fn limit(&self, limits: Limits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            fs::write(self.path.join("memory.max"), bytes.to_string())?;
            // All or nothing: a container whose child was killed is not left half alive.
            let _ = fs::write(self.path.join("memory.oom.group"), "1");
            let _ = fs::write(self.path.join("memory.swap.max"), "0");
        }
        if let Some(millis) = limits.cpu_millis {
            let quota = (millis * CPU_PERIOD / 1000).max(1000);
            fs::write(self.path.join("cpu.max"), format!("{quota} {CPU_PERIOD}"))?;
        }
        if let Some(pids) = limits.pids {
            fs::write(self.path.join("pids.max"), pids.to_string())?;
        }
        Ok(())
    }

    /// A child that writes `0` to this joins the group.
    pub(super) fn processes(&self) -> Result<OwnedFd, String> {
        let path = self.path.join("cgroup.procs");
        openat(CWD, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| format!("open {}: {error}", path.display()))
    }

    pub(super) fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }

    pub(super) fn was_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        oom_kills(&events) > 0
    }

    /// Kills what is left in it first. The kernel needs a moment for that; leftovers go with the next nursery.
    pub(super) fn remove(self) {
        self.kill();
        for _ in 0..10 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn enable(path: &Path) -> io::Result<()> {
    let enabled = fs::read_to_string(path.join("cgroup.subtree_control"))?;
    if CONTROLLERS.iter().all(|wanted| enabled.split_whitespace().any(|it| it == *wanted)) {
        return Ok(());
    }
    fs::write(path.join("cgroup.subtree_control"), "+cpu +memory +pids")
}

/// Where version 2 is mounted, from `/proc/self/mountinfo`.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').next() == Some("cgroup2")).then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

fn oom_kills(events: &str) -> u64 {
    events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Plain files stand in for the kernel's.
    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let parent = TempDir::new().unwrap();
        let groups = ControlGroups { parent: parent.path().join("tally-x") };
        fs::create_dir(&groups.parent).unwrap();
        let id = InstanceId { pod: "u".to_owned(), container: "c".to_owned(), attempt: 2 };
        let limits = Limits { memory_bytes: Some(1 << 20), cpu_millis: Some(1500), pids: Some(7) };
        let group = groups.create(&id, limits).unwrap();
        let read = |name: &str| fs::read_to_string(groups.parent.join("u.c.2").join(name)).unwrap();
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("pids.max"), "7");
        assert!(!group.was_out_of_memory());
        fs::write(group.path.join("memory.events"), "oom 1\noom_kill 1\n").unwrap();
        assert!(group.was_out_of_memory());
    }

    /// BI-107: also those that have a group of their own.
    #[test]
    fn all_containers_together_have_a_limit_of_processes() {
        let home = TempDir::new().unwrap();
        let groups = ControlGroups { parent: home.path().join("tally-x") };
        fs::create_dir(&groups.parent).unwrap();
        // The kernel's file is there from the beginning.
        fs::write(groups.parent.join("cgroup.subtree_control"), "").unwrap();
        groups.prepare().unwrap();
        groups.join_shared().unwrap();
        let read = |name: &str| fs::read_to_string(groups.parent.join(name)).unwrap();
        assert_eq!(read("pids.max"), "16384");
        assert_eq!(read("cgroup.subtree_control"), "+cpu +memory +pids");
        assert_eq!(read("shared/cgroup.procs"), "0");
    }

    #[test]
    fn the_mount_point_is_found() {
        let text = "24 1 0:22 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(text), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point("31 24 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n"), None);
    }

    #[test]
    fn out_of_memory_is_counted() {
        assert_eq!(oom_kills("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"), 2);
        assert_eq!(oom_kills(""), 0);
    }
}
