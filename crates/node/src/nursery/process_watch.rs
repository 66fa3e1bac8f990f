//! A limit on the number of processes where there are no control groups: the nursery counts itself (BI-107).
//!
//! Counting a family means walking through `/proc`. It is done only while the whole machine has more tasks than one
//! container may have, which a file tells that costs next to nothing to read. The processes of a container over its limit
//! are stopped before they are killed: what is stopped starts nothing, so that there is an end to it however fast it forks.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::family::Kinship;
use super::process;
use super::protocol::InstanceId;

/// A shell that only forks makes some hundreds of processes in this time.
const INTERVAL: Duration = Duration::from_millis(100);
/// A look that takes long is not repeated at once: this many times as long belongs to others.
const REST: u32 = 20;
/// Even then.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// A family grows while it is being stopped, by fewer each time. Whoever is left after so many times is found by the next
/// look.
const SEARCHES_MAX: usize = 100;

/// The containers whose processes are counted.
#[derive(Debug, Default)]
pub(super) struct ProcessWatch {
    watched: HashMap<InstanceId, Watched>,
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Watched {
    leader: Pid,
    processes_max: usize,
    was_over: bool,
}

impl ProcessWatch {
    /// `leader` must not be waited for before [`Self::remove`]: until then its number is its own.
    pub(super) fn add(&mut self, id: &InstanceId, leader: Pid, processes_max: usize) {
        self.watched.insert(id.clone(), Watched { leader, processes_max, was_over: false });
        self.next_look.get_or_insert_with(|| Instant::now() + INTERVAL);
    }

    /// What the container had too much of, if it was killed for that.
    pub(super) fn remove(&mut self, id: &InstanceId) -> Option<String> {
        let removed = self.watched.remove(id)?;
        if self.watched.is_empty() {
            self.next_look = None;
        }
        let Watched { processes_max, was_over, .. } = removed;
        was_over.then(|| format!("killed: more than {processes_max} processes"))
    }

    /// How long until the next look.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        Some(self.next_look?.saturating_duration_since(now))
    }

    /// Ends containers with too many processes, if it is time to look. The first process of each is left for its owner to
    /// kill.
    pub(super) fn look(&mut self, started: &HashSet<Pid>) -> Vec<InstanceId> {
        let begin = Instant::now();
        if self.next_look.is_none_or(|next| begin < next) {
            return Vec::new();
        }
        let tasks = machine_tasks();
        let mut ended = Vec::new();
        for (id, watched) in self.watched.iter_mut().filter(|(_, watched)| tasks > watched.processes_max) {
            if family(id, watched.leader, started).len() > watched.processes_max {
                watched.was_over = true;
                end(id, watched.leader, started);
                ended.push(id.clone());
            }
        }
        let now = Instant::now();
        self.next_look = Some(now + (now - begin).saturating_mul(REST).clamp(INTERVAL, INTERVAL_MAX));
        ended
    }
}

/// Everything that the container has started and that is still there.
fn family(id: &InstanceId, leader: Pid, started: &HashSet<Pid>) -> Vec<Pid> {
    let (kinship, instance) = (Kinship::read(), id.to_string());
    let orphans = kinship.orphans(started).into_iter().filter(|orphan| orphan.belongs_to(leader, &instance));
    let first: Vec<Pid> = std::iter::once(leader).chain(orphans.map(|orphan| orphan.pid)).collect();
    kinship.family(first)
}

fn end(id: &InstanceId, leader: Pid, started: &HashSet<Pid>) {
    let mut stopped = HashSet::new();
    for _ in 0..SEARCHES_MAX {
        let mut new = family(id, leader, started);
        new.retain(|pid| stopped.insert(*pid));
        if new.is_empty() {
            break;
        }
        process::signal_marked(&new, id, Signal::STOP);
    }
    stopped.remove(&leader);
    process::signal_marked(&stopped.into_iter().collect::<Vec<_>>(), id, Signal::KILL);
}

/// Processes and threads of the whole machine. If nobody tells, everything is counted.
fn machine_tasks() -> usize {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    tasks(&load).unwrap_or(usize::MAX)
}

/// The fourth field is `runnable/all`.
fn tasks(load: &str) -> Option<usize> {
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_machine_tells_how_many_tasks_it_has() {
        assert_eq!(tasks("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(tasks(""), None);
        assert!((1..1 << 22).contains(&machine_tasks()));
    }

    #[test]
    fn nothing_is_looked_at_before_its_time_or_below_its_limit() {
        let id = InstanceId { pod: "u".to_owned(), container: "c".to_owned(), attempt: 0 };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let leader = Pid::from_child(&child);
        let started = HashSet::from([leader]);
        let mut watch = ProcessWatch::default();
        assert_eq!(watch.wait(Instant::now()), None);
        watch.add(&id, leader, 1);
        assert!(watch.wait(Instant::now()).is_some_and(|wait| wait <= INTERVAL));
        assert!(watch.look(&started).is_empty(), "it is not time yet");
        watch.next_look = Some(Instant::now());
        assert!(watch.look(&started).is_empty(), "one is as many as it may have");
        assert_eq!(watch.remove(&id), None);
        watch.add(&id, leader, 0);
        watch.next_look = Some(Instant::now());
        assert_eq!(watch.look(&started), std::slice::from_ref(&id));
        assert_eq!(watch.remove(&id).as_deref(), Some("killed: more than 0 processes"));
        assert_eq!(watch.wait(Instant::now()), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
