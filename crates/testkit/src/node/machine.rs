//! Containers as processes on paper: when they started, when and how they will end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use node::lifecycle::{Exit, Record};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{Uid, Walls};

/// Codes of processes that were stopped.
const TERMINATED: i32 = 143;
const KILLED: i32 = 137;

/// One start of one container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    pub pod: Uid,
    pub container: String,
    pub attempt: u32,
}

/// What will become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// How long it runs if nobody stops it.
    pub runs: Duration,
    pub code: i32,
    /// How long it takes to end when it is asked to.
    pub stop_takes: Duration,
}

/// Decides by a container's arguments what becomes of its processes; the same every time it is asked.
pub type Fates = Arc<dyn Fn(&Instance, &[String]) -> Fate + Send + Sync>;

/// Clones are the same machine.
#[derive(Clone)]
pub struct Machine {
    processes: Arc<Mutex<Processes>>,
    walls: Walls,
    fates: Fates,
}

#[derive(Debug, Default)]
struct Processes {
    known: BTreeMap<Instance, Process>,
    /// Everything that was ever started, to see that nothing is started twice (INV-49).
    started: BTreeSet<Instance>,
    violations: Vec<String>,
}

#[derive(Clone, Debug)]
struct Process {
    started_at: Timestamp,
    ends_at: Instant,
    code: i32,
    stop_takes: Duration,
    exit: Option<Exit>,
    /// Somebody was told of the end.
    is_seen: bool,
}

impl Machine {
    pub fn new(walls: Walls, fates: Fates) -> Self {
        Self { processes: Arc::default(), walls, fates }
    }

    /// Promises that were broken here.
    pub fn violations(&self) -> Vec<String> {
        self.processes.lock().violations.clone()
    }

    /// Starts a process; the answer is when.
    pub(super) fn start(&self, instance: &Instance, arguments: &[String]) -> Timestamp {
        let mut processes = self.processes.lock();
        if !processes.started.insert(instance.clone()) {
            let twice = format!("INV-49: {instance:?} was started twice");
            processes.violations.push(twice);
        }
        let Fate { runs, code, stop_takes } = (self.fates)(instance, arguments);
        let now = Instant::now();
        let started_at = (self.walls)(now);
        let process = Process { started_at, ends_at: now + runs, code, stop_takes, exit: None, is_seen: false };
        processes.known.insert(instance.clone(), process);
        started_at
    }

    /// Asks a process to end, or ends it.
    pub(super) fn stop(&self, instance: &Instance, kill: bool) {
        let mut processes = self.processes.lock();
        let Some(process) = processes.known.get_mut(instance).filter(|process| process.exit.is_none()) else { return };
        let ends_at = Instant::now() + if kill { Duration::ZERO } else { process.stop_takes };
        if ends_at < process.ends_at {
            process.ends_at = ends_at;
            process.code = if kill { KILLED } else { TERMINATED };
        }
    }

    /// The machine's power goes: nobody sees how anything ended.
    pub fn reboot(&self) {
        let mut processes = self.ended();
        for process in processes.known.values_mut().filter(|process| process.exit.is_none()) {
            process.exit = Some(Exit { started_at: Some(process.started_at), has_instance: true, ..Exit::lost() });
            process.ends_at = Instant::now();
        }
    }

    /// Instances that have ended since this was last asked, and how.
    pub(super) fn see_ends(&self) -> Vec<(Instance, Exit)> {
        let mut processes = self.ended();
        let unseen = processes.known.iter_mut().filter(|(_, process)| !process.is_seen);
        unseen
            .filter_map(|(instance, process)| {
                let exit = process.exit.clone()?;
                process.is_seen = true;
                Some((instance.clone(), exit))
            })
            .collect()
    }

    /// When the next process ends, or has ended unseen.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let processes = self.processes.lock();
        processes.known.values().filter(|process| !process.is_seen).map(|process| process.ends_at).min()
    }

    /// What is known of a pod's containers.
    pub(super) fn records(&self, pod: &Uid) -> Vec<Record> {
        let processes = self.ended();
        let own = processes.known.iter().filter(|(instance, _)| instance.pod == *pod);
        own.map(|(instance, process)| Record {
            container: instance.container.clone(),
            attempt: instance.attempt,
            started_at: Some(process.started_at),
            exit: process.exit.clone(),
        })
        .collect()
    }

    /// Forgets a pod; what still runs of it is killed.
    pub(super) fn forget(&self, pod: &Uid) {
        self.processes.lock().known.retain(|instance, _| instance.pod != *pod);
    }

    /// The processes, with those ended whose time has come.
    fn ended(&self) -> MutexGuard<'_, Processes> {
        let now = Instant::now();
        let mut processes = self.processes.lock();
        for process in processes.known.values_mut() {
            if process.exit.is_none() && process.ends_at <= now {
                let finished_at = (self.walls)(process.ends_at);
                process.exit = Some(Exit::with_code(process.code, Some(process.started_at), finished_at));
            }
        }
        processes
    }

    /// The pods that anything is known of.
    pub(super) fn pods(&self) -> BTreeSet<Uid> {
        self.processes.lock().known.keys().map(|instance| instance.pod.clone()).collect()
    }

    /// The pods with a process that runs.
    pub fn running(&self) -> BTreeSet<Uid> {
        let processes = self.ended();
        let running = processes.known.iter().filter(|(_, process)| process.exit.is_none());
        running.map(|(instance, _)| instance.pod.clone()).collect()
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("processes", &self.processes).finish_non_exhaustive()
    }
}
