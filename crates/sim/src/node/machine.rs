//! Containers as processes on paper: when they started, when and how they will end.
//!
//! How a process behaves is in its arguments: `run=MILLIS` at most, `fail=PERMILLE`, `codes=1,42`, `term=MILLIS` to stop.
//! Everything else follows from the identity of the instance, so that the same pod does the same whenever it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use node::lifecycle::{Exit, Record};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::Uid;
use crate::clock::Clock;
use crate::random::Random;

/// Codes of processes that were stopped.
const TERMINATED: i32 = 143;
const KILLED: i32 = 137;

/// One start of one container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instance {
    pub(crate) pod: Uid,
    pub(crate) container: String,
    pub(crate) attempt: u32,
}

/// Clones are the same machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    processes: Arc<Mutex<Processes>>,
    clock: Clock,
    seed: u64,
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

/// How a container's arguments say it behaves.
struct Behaviour {
    run_millis_max: u64,
    fail_permille: u64,
    codes: Vec<i32>,
    stop_millis: u64,
}

impl Machine {
    pub(crate) fn new(clock: Clock, seed: u64) -> Self {
        Self { processes: Arc::default(), clock, seed }
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.processes.lock().violations.clone()
    }

    /// Starts a process; the answer is when.
    pub(crate) fn start(&self, instance: &Instance, arguments: &[String]) -> Timestamp {
        let mut processes = self.processes.lock();
        if !processes.started.insert(instance.clone()) {
            let twice = format!("INV-49: {instance:?} was started twice");
            processes.violations.push(twice);
        }
        let behaviour = Behaviour::of(arguments);
        let purpose = format!("{}/{}/{}", instance.pod, instance.container, instance.attempt);
        let mut random = Random::of(self.seed, &purpose);
        let runs = Duration::from_millis(random.below(behaviour.run_millis_max + 1));
        let code = if random.chance(behaviour.fail_permille) { random.pick(&behaviour.codes) } else { 0 };
        let started_at = self.clock.now();
        let process = Process {
            started_at,
            ends_at: Instant::now() + runs,
            code,
            stop_takes: Duration::from_millis(behaviour.stop_millis),
            exit: None,
            is_seen: false,
        };
        processes.known.insert(instance.clone(), process);
        started_at
    }

    /// Asks a process to end, or ends it.
    pub(crate) fn stop(&self, instance: &Instance, kill: bool) {
        let mut processes = self.processes.lock();
        let Some(process) = processes.known.get_mut(instance).filter(|process| process.exit.is_none()) else { return };
        let ends_at = Instant::now() + if kill { Duration::ZERO } else { process.stop_takes };
        if ends_at < process.ends_at {
            process.ends_at = ends_at;
            process.code = if kill { KILLED } else { TERMINATED };
        }
    }

    /// The machine's power goes: nobody sees how anything ended.
    pub(crate) fn reboot(&self) {
        let mut processes = self.ended();
        for process in processes.known.values_mut().filter(|process| process.exit.is_none()) {
            process.exit = Some(Exit { started_at: Some(process.started_at), has_instance: true, ..Exit::lost() });
            process.ends_at = Instant::now();
        }
    }

    /// Instances that have ended since this was last asked, and how.
    pub(crate) fn see_ends(&self) -> Vec<(Instance, Exit)> {
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
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let processes = self.processes.lock();
        processes.known.values().filter(|process| !process.is_seen).map(|process| process.ends_at).min()
    }

    /// What is known of a pod's containers.
    pub(crate) fn records(&self, pod: &Uid) -> Vec<Record> {
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
    pub(crate) fn forget(&self, pod: &Uid) {
        self.processes.lock().known.retain(|instance, _| instance.pod != *pod);
    }

    /// The processes, with those ended whose time has come.
    fn ended(&self) -> MutexGuard<'_, Processes> {
        let now = Instant::now();
        let mut processes = self.processes.lock();
        for process in processes.known.values_mut() {
            if process.exit.is_none() && process.ends_at <= now {
                let finished_at = self.clock.at(process.ends_at);
                process.exit = Some(Exit::with_code(process.code, Some(process.started_at), finished_at));
            }
        }
        processes
    }

    /// The pods that anything is known of.
    pub(crate) fn pods(&self) -> BTreeSet<Uid> {
        self.processes.lock().known.keys().map(|instance| instance.pod.clone()).collect()
    }

    /// The pods with a process that runs.
    pub(crate) fn running(&self) -> BTreeSet<Uid> {
        let processes = self.ended();
        let running = processes.known.iter().filter(|(_, process)| process.exit.is_none());
        running.map(|(instance, _)| instance.pod.clone()).collect()
    }
}

impl Behaviour {
    fn of(arguments: &[String]) -> Self {
        let value = |name: &str| arguments.iter().find_map(|text| text.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| value(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let codes: Vec<i32> =
            value("codes").into_iter().flat_map(|text| text.split(',')).flat_map(str::parse).collect();
        Self {
            run_millis_max: number("run"),
            fail_permille: number("fail"),
            codes: if codes.is_empty() { vec![1] } else { codes },
            stop_millis: number("term"),
        }
    }
}
