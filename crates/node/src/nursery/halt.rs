//! Ends a nursery from outside, with everything that runs in it: for somebody who does not want to wait.

use std::path::Path;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::SUBCOMMAND;
use super::family::Kinship;
use super::process;

/// What was killed takes a moment to end, and what forks meanwhile is found by the next look. Processes that not even
/// SIGKILL ends within so many looks are left to the kernel.
const LOOKS_MAX: usize = 2000;
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Nurseries that start nothing more, and in which nothing runs any more. They are killed when this is dropped.
///
/// Until then whoever is connected does not notice, and so does not start another one.
#[derive(Debug)]
#[must_use = "the nursery is killed when this is dropped"]
pub struct Halted {
    nurseries: Vec<OwnedFd>,
}

impl Drop for Halted {
    fn drop(&mut self) {
        for nursery in &self.nurseries {
            let _ = pidfd_send_signal(nursery, Signal::KILL);
        }
    }
}

/// Kills every process of the nursery of a node's directory, however it is descended from it.
///
/// Killed alone, a nursery would take only those along that it started itself (`process::prepare_child`). Stopped, it
/// remains the parent of all that lose theirs, so that they are found.
pub fn halt(root: &Path) -> Halted {
    let mut nurseries = Vec::new();
    for pid in process::all().unwrap_or_default().into_iter().filter(|pid| is_nursery(*pid, root)) {
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            && is_nursery(pid, root)
        {
            let _ = pidfd_send_signal(&handle, Signal::STOP);
            kill_descendants(pid);
            nurseries.push(handle);
        }
    }
    Halted { nurseries }
}

/// It is found by its own command line: the hidden subcommand followed by the node's directory.
fn is_nursery(pid: Pid, root: &Path) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1);
    words.next() == Some(SUBCOMMAND.as_bytes()) && words.next() == Some(root.as_os_str().as_encoded_bytes())
}

fn kill_descendants(nursery: Pid) {
    for _ in 0..LOOKS_MAX {
        // Asked before looking: what it starts before it stops must not be missed.
        let starts_more = process::state(nursery).is_some_and(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'));
        let family = Kinship::read().family([nursery]);
        let runs = |pid: &Pid| process::state(*pid).is_some_and(|state| !matches!(state, 'Z' | 'X'));
        let running: Vec<Pid> = family.iter().copied().filter(|pid| *pid != nursery).filter(runs).collect();
        if running.is_empty() && !starts_more {
            return;
        }
        // All are taken hold of before the first one ends: that changes whose children the others are.
        let hold = |pid: &Pid| {
            let handle = pidfd_open(*pid, PidfdFlags::empty()).ok()?;
            process::parent(*pid).filter(|parent| family.contains(parent)).map(|_| handle)
        };
        let held: Vec<OwnedFd> = running.iter().filter_map(hold).collect();
        for process in &held {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Far longer than a process takes to end that was killed.
    const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

    /// What looks like a nursery: a shell whose child and grandchild do not listen to polite requests.
    #[test]
    fn grandchildren_end_too_and_the_nursery_last() {
        let directory = tempfile::tempdir().unwrap();
        let script = "sh -c 'trap \"\" TERM HUP; sleep 1000 & echo $$ $!; wait' & wait\n";
        std::fs::write(directory.path().join(SUBCOMMAND), script).unwrap();
        let root = directory.path().join("node");
        let mut nursery = Command::new("sh")
            .current_dir(directory.path())
            .arg(SUBCOMMAND)
            .arg(&root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(nursery.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let family: Vec<Pid> = line.split_whitespace().filter_map(process::parse_pid).collect();
        assert_eq!(family.len(), 2, "{line}");
        let handles: Vec<OwnedFd> = family.iter().map(|pid| pidfd_open(*pid, PidfdFlags::empty()).unwrap()).collect();

        drop(halt(&directory.path().join("other")));
        assert!(family.iter().all(|pid| process::state(*pid).is_some()), "those of other directories go on");

        let halted = halt(&root);
        // A shell does not adopt the grandchild when its parent ends first, so that one was killed and not waited for.
        for handle in &handles {
            let mut end = [PollFd::new(handle, PollFlags::IN)];
            assert_eq!(poll(&mut end, Some(&PATIENCE)), Ok(1), "{line}");
        }
        assert!(nursery.try_wait().unwrap().is_none(), "whoever is connected to it does not start another one");
        drop(halted);
        assert_eq!(nursery.wait().unwrap().signal(), Some(9));
    }
}
