//! Which processes come from a container: its first process and everything that descends from it.
//!
//! A process may leave its group and its session, but not its parent. Where the parent ends first, the nursery becomes
//! the parent, see [`Kinship::orphans`].

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use rustix::process::{Pid, getpid};

use super::process;

/// As many processes of one container are looked at, which is more than it may have.
const FAMILY_MAX: usize = 1 << 16;

/// Who is whose child, at this moment.
pub(super) struct Kinship {
    /// Kernels can be built without lists of children. Then all processes are asked for their parents.
    table: Option<HashMap<Pid, Vec<Pid>>>,
}

/// What is left of families whose first process, or the one in between, has ended: children of the nursery that it did
/// not start itself.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) pid: Pid,
    /// The first process of its session. A container starts with a session of its own.
    session: Option<Pid>,
    /// The instance that its environment names.
    mark: Option<String>,
}

impl Orphan {
    /// The session is the better witness: a process may write over its environment.
    pub(super) fn belongs_to(&self, leader: Pid, instance: &str) -> bool {
        self.session == Some(leader) || self.mark.as_deref() == Some(instance)
    }
}

impl Kinship {
    pub(super) fn read() -> Self {
        let own = getpid();
        let is_listed = Path::new(&format!("/proc/self/task/{own}/children")).exists();
        Self { table: (!is_listed).then(table) }
    }

    /// `started` are children that the nursery knows as what they are.
    pub(super) fn orphans(&self, started: &HashSet<Pid>) -> Vec<Orphan> {
        let children = self.children_of(getpid()).into_iter().filter(|pid| !started.contains(pid));
        let orphan = |pid| Orphan { pid, session: process::session(pid), mark: process::instance_of(pid) };
        children.map(orphan).collect()
    }

    /// The given processes and all that descend from them.
    pub(super) fn family(&self, first: impl IntoIterator<Item = Pid>) -> Vec<Pid> {
        descend(first, |pid| self.children_of(pid))
    }

    fn children_of(&self, pid: Pid) -> Vec<Pid> {
        match &self.table {
            Some(table) => table.get(&pid).cloned().unwrap_or_default(),
            None => listed(pid),
        }
    }
}

/// Everything that can be reached. Numbers change hands while we look, so what is read may even go in circles.
fn descend(first: impl IntoIterator<Item = Pid>, children_of: impl Fn(Pid) -> Vec<Pid>) -> Vec<Pid> {
    let mut found: Vec<Pid> = Vec::new();
    let mut seen: HashSet<Pid> = HashSet::new();
    found.extend(first.into_iter().filter(|pid| seen.insert(*pid)));
    let mut next = 0;
    while let Some(pid) = found.get(next).copied().filter(|_| found.len() < FAMILY_MAX) {
        found.extend(children_of(pid).into_iter().filter(|pid| seen.insert(*pid)));
        next += 1;
    }
    found.truncate(FAMILY_MAX);
    found
}

/// As the kernel lists them: apart for each thread that has started some.
fn listed(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(process::parse_pid).collect::<Vec<_>>()).collect()
}

fn table() -> HashMap<Pid, Vec<Pid>> {
    let mut table: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in process::all().unwrap_or_default() {
        if let Some(parent) = process::parent(pid) {
            table.entry(parent).or_default().push(pid);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn numbers(found: &[Pid]) -> Vec<i32> {
        found.iter().map(|pid| pid.as_raw_nonzero().get()).collect()
    }

    #[test]
    fn a_family_is_everything_that_can_be_reached_once() {
        let children = |of: Pid| match of.as_raw_nonzero().get() {
            1 => vec![pid(2), pid(3)],
            3 => vec![pid(4), pid(1)],
            7 => vec![pid(3)],
            _ => Vec::new(),
        };
        assert_eq!(numbers(&descend([pid(1)], children)), [1, 2, 3, 4]);
        assert_eq!(numbers(&descend([pid(7), pid(2)], children)), [7, 2, 3, 4, 1]);
    }

    #[test]
    fn a_family_without_end_is_not_followed_for_ever() {
        let next = |of: Pid| vec![pid(of.as_raw_nonzero().get() + 1)];
        assert_eq!(descend([pid(1)], next).len(), FAMILY_MAX);
    }

    #[test]
    fn grandchildren_are_found_however_the_kernel_tells() {
        let (mut child, grandchild) = shell_with_a_child();
        let pid = Pid::from_child(&child);
        assert!(Kinship::read().family([pid]).contains(&grandchild));
        assert!(Kinship { table: Some(table()) }.family([pid]).contains(&grandchild));
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    fn shell_with_a_child() -> (Child, Pid) {
        use std::io::{BufRead as _, BufReader};
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, process::parse_pid(line.trim()).unwrap())
    }

    #[test]
    fn an_orphan_is_told_by_its_session_or_its_mark() {
        let orphan = |session: i32, mark: &str| Orphan {
            pid: pid(9),
            session: Some(pid(session)),
            mark: (!mark.is_empty()).then(|| mark.to_owned()),
        };
        for (orphan, expected) in
            [(orphan(5, ""), true), (orphan(9, "u/c/0"), true), (orphan(9, "u/c/1"), false), (orphan(9, ""), false)]
        {
            assert_eq!(orphan.belongs_to(pid(5), "u/c/0"), expected, "{orphan:?}");
        }
    }
}
