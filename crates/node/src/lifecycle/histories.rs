//! Any history whatsoever: starts, failures, deletions, time, and agents that are killed and come back. Whatever happens,
//! no instance is started twice, a pod does not end while something of it runs, its end never changes, and it comes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Something that may happen; what does not fit the moment does nothing.
#[derive(Clone, Debug)]
enum Step {
    Prepared {
        fails: bool,
    },
    Starts,
    CannotStart,
    IsMisconfigured,
    Exits {
        code: i32,
    },
    Hook {
        fails: bool,
    },
    Passes {
        seconds: u64,
    },
    Deleted {
        grace: i64,
    },
    /// Somebody else sets the phase.
    EndedByOther,
    Reported,
    CleanedUp,
    AgentRestarts,
    /// All processes are gone, and nobody saw how they ended.
    NurseryDies,
    /// The same, and the agent with it.
    MachineRestarts,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<bool>().prop_map(|fails| Step::Prepared { fails }),
        8 => Just(Step::Starts),
        1 => Just(Step::CannotStart),
        1 => Just(Step::IsMisconfigured),
        6 => (0..3).prop_map(|code| Step::Exits { code }),
        2 => any::<bool>().prop_map(|fails| Step::Hook { fails }),
        4 => (0..400_u64).prop_map(|seconds| Step::Passes { seconds }),
        1 => (0..30_i64).prop_map(|grace| Step::Deleted { grace }),
        1 => Just(Step::EndedByOther),
        3 => Just(Step::Reported),
        2 => Just(Step::CleanedUp),
        2 => Just(Step::AgentRestarts),
        1 => Just(Step::NurseryDies),
        1 => Just(Step::MachineRestarts),
    ]
}

fn spec() -> impl Strategy<Value = Value> {
    let policy = prop_oneof![Just("Never"), Just("OnFailure"), Just("Always")];
    (policy, 0..3_usize, 1..3_usize, any::<bool>(), any::<bool>(), proptest::option::of(1..100_i64)).prop_map(
        |(policy, inits, regular, has_sidecar, has_extras, deadline)| {
            let container = |name: String| {
                let mut container = json!({"name": name, "command": ["x"]});
                if has_extras {
                    container["lifecycle"] = json!({"postStart": {"exec": {}}, "preStop": {"exec": {}}});
                }
                container
            };
            let mut init: Vec<Value> = (0..inits).map(|number| container(format!("i{number}"))).collect();
            if let (Some(first), true) = (init.first_mut(), has_sidecar) {
                first["restartPolicy"] = json!("Always");
            }
            let regular: Vec<Value> = (0..regular).map(|number| container(format!("c{number}"))).collect();
            let volumes = if has_extras { json!([{"name": "v", "emptyDir": {}}]) } else { json!([]) };
            json!({
                "restartPolicy": policy, "initContainers": init, "containers": regular, "volumes": volumes,
                "activeDeadlineSeconds": deadline,
            })
        },
    )
}

/// Where an instance on the machine stands.
#[derive(Clone, Debug, PartialEq)]
enum Instance {
    Ordered,
    Running { since: Timestamp },
    Ended(Exit),
}

/// A pod with the machine it runs on and the API it is reported to.
struct World {
    object: Value,
    life: PodLifecycle,
    now: Moment,
    machine: BTreeMap<(Index, u32), Instance>,
    /// Of each init container, the first attempt after everything was lost.
    fresh: BTreeMap<Index, u32>,
    hooks: Vec<(Index, u32, Hook)>,
    is_ended_by_other: bool,
    is_preparing: bool,
    is_clean_up_asked: bool,
    is_forgotten: bool,
    is_delete_sent: bool,
}

impl World {
    fn new(spec: Value) -> Self {
        let now = Moment { wall: Timestamp::from_second(1_000_000).unwrap(), elapsed: Duration::from_secs(1000) };
        let object = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
        let mut world = Self {
            life: PodLifecycle::adopt(&serde_json::from_value(object.clone()).unwrap(), &[], now),
            object,
            now,
            machine: BTreeMap::new(),
            fresh: BTreeMap::new(),
            hooks: Vec::new(),
            is_ended_by_other: false,
            is_preparing: false,
            is_clean_up_asked: false,
            is_forgotten: false,
            is_delete_sent: false,
        };
        world.input(Input::Tick);
        world
    }

    fn input(&mut self, input: Input) {
        for action in self.life.step(input, self.now) {
            match action {
                Action::Prepare => self.is_preparing = true,
                Action::Start { container, attempt } => {
                    assert!(!self.is_deleted(), "PL-30: nothing starts in a pod that is being deleted");
                    assert!(!self.is_ended_by_other, "PL-30: nothing starts in a pod that has ended");
                    let before = self.machine.insert((container, attempt), Instance::Ordered);
                    assert_eq!(before, None, "INV-49: {container}/{attempt} was started before");
                    let earlier = self.machine.range((container, 0)..(container, attempt));
                    assert!(earlier.into_iter().all(|(_, it)| matches!(it, Instance::Ended(_))), "one at a time");
                    self.assert_is_initialized(container);
                }
                Action::Kill { container, attempt } => {
                    if matches!(self.machine.get(&(container, attempt)), Some(Instance::Running { .. })) {
                        self.exit(container, attempt, 137);
                    }
                }
                Action::RunHook { container, attempt, hook } => self.hooks.push((container, attempt, hook)),
                Action::CleanUp => {
                    self.assert_nothing_runs();
                    self.is_clean_up_asked = true;
                }
                Action::Delete => {
                    assert!(self.api_phase().is_terminal(), "PL-47: the end is reported before the final DELETE");
                    self.is_delete_sent = true;
                }
                Action::Forget => self.is_forgotten = true,
                Action::Terminate { .. } | Action::Probe { .. } | Action::Event(_) => {}
            }
        }
    }

    fn assert_nothing_runs(&self) {
        assert!(self.machine.values().all(|it| matches!(it, Instance::Ended(_))), "PL-3: {:?}", self.machine);
    }

    fn is_deleted(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_string()
    }

    fn api_phase(&self) -> Phase {
        serde_json::from_value(self.object["status"]["phase"].clone()).unwrap_or_default()
    }

    fn ordered(&self) -> Option<(Index, u32)> {
        self.machine.iter().find(|(_, state)| **state == Instance::Ordered).map(|(key, _)| *key)
    }

    fn running(&self) -> Option<(Index, u32)> {
        self.machine.iter().find(|(_, state)| matches!(state, Instance::Running { .. })).map(|(key, _)| *key)
    }

    fn start_of(&self, container: Index, attempt: u32) -> Option<Timestamp> {
        match self.machine.get(&(container, attempt))? {
            Instance::Ordered => None,
            Instance::Running { since } => Some(*since),
            Instance::Ended(exit) => exit.started_at,
        }
    }

    /// A regular container starts only after the init containers have run where it is going to run (PL-23, PL-28).
    fn assert_is_initialized(&self, container: Index) {
        let spec = self.life.spec();
        if container < spec.init_containers.len() {
            return;
        }
        let is_plain = |index: Index| spec.init_containers[index].restart_policy.is_none();
        for index in (0..spec.init_containers.len()).filter(|index| is_plain(*index)) {
            let fresh = self.fresh.get(&index).copied().unwrap_or(0);
            let mut runs = self.machine.range((index, fresh)..(index, u32::MAX));
            let has_run = runs.any(|(_, it)| matches!(it, Instance::Ended(exit) if exit.code == 0));
            assert!(has_run, "PL-28: {container} starts before {index}: {:?}", self.machine);
        }
    }

    /// All processes are gone. Answers which, and how they ended.
    fn lose_all(&mut self) -> Vec<(Index, u32, Exit)> {
        let live = self.machine.iter().filter(|(_, state)| !matches!(state, Instance::Ended(_)));
        let live: Vec<(Index, u32)> = live.map(|(key, _)| *key).collect();
        let lost: Vec<(Index, u32, Exit)> = live
            .into_iter()
            .map(|(container, attempt)| {
                let exit = Exit::unseen(self.start_of(container, attempt), self.now.wall);
                (container, attempt, exit)
            })
            .collect();
        self.hooks.clear();
        for (container, attempt, exit) in &lost {
            self.machine.insert((*container, *attempt), Instance::Ended(exit.clone()));
        }
        if !lost.is_empty() && self.life.spec().restart_policy != crate::pod::RestartPolicy::Never {
            self.fresh.clear();
            for (index, attempt) in self.machine.keys() {
                self.fresh.insert(*index, attempt + 1);
            }
        }
        lost
    }

    fn exit(&mut self, container: Index, attempt: u32, code: i32) {
        let exit = Exit::with_code(code, self.start_of(container, attempt), self.now.wall);
        self.machine.insert((container, attempt), Instance::Ended(exit.clone()));
        self.hooks.retain(|(index, _, _)| *index != container);
        self.input(Input::Exited { container, attempt, exit });
    }

    /// Writes the status as it is now to the API.
    fn report(&mut self) {
        let phase = self.life.reported_phase();
        if self.api_phase().is_terminal() {
            assert_eq!(phase, self.api_phase(), "INV-48");
        }
        if phase.is_terminal() && !self.is_ended_by_other {
            self.assert_nothing_runs();
        }
        let is_end = self.life.has_ended();
        let status = self.life.status_patch("10.0.0.1", self.now)["status"].take();
        self.assert_is_taken(&status);
        self.object["status"] = status;
        self.input(Input::Reported { phase, is_end });
    }

    /// The API refuses a status in which a container leaves an end that is final (AS-176).
    fn assert_is_taken(&self, status: &Value) {
        if self.life.spec().restart_policy == crate::pod::RestartPolicy::Always {
            return;
        }
        fn all<'a>(status: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
            status[list].as_array().into_iter().flatten()
        }
        let sidecars: Vec<&Value> = all(&self.object["spec"], "initContainers")
            .filter(|container| container["restartPolicy"] == "Always")
            .map(|container| &container["name"])
            .collect();
        for list in ["initContainerStatuses", "containerStatuses"] {
            for (old, new) in all(&self.object["status"], list).zip(all(status, list)) {
                let is_sidecar = sidecars.contains(&&old["name"]);
                let is_final = old["state"]["terminated"]["exitCode"] == 0 && !is_sidecar;
                assert!(!is_final || !new["state"]["terminated"].is_null(), "AS-176: {old} {new}");
                assert!(old["restartCount"].as_i64() <= new["restartCount"].as_i64(), "PL-34: {old} {new}");
            }
        }
    }

    fn take(&mut self, step: &Step) {
        // Times of the API are whole seconds, by which the agent tells what came first.
        self.now.elapsed += Duration::from_secs(1);
        self.now.wall += Duration::from_secs(1);
        match *step {
            Step::Prepared { fails } if self.is_preparing => {
                self.is_preparing = false;
                self.input(Input::Prepared(if fails { Err("no".to_owned()) } else { Ok(()) }));
            }
            Step::Starts => {
                if let Some((container, attempt)) = self.ordered() {
                    self.machine.insert((container, attempt), Instance::Running { since: self.now.wall });
                    self.input(Input::Started { container, attempt, at: self.now.wall });
                }
            }
            Step::CannotStart => {
                if let Some((container, attempt)) = self.ordered() {
                    let exit = Exit { reason: "StartError".into(), ..Exit::with_code(128, None, self.now.wall) };
                    self.machine.insert((container, attempt), Instance::Ended(exit));
                    let failure = StartFailure::Start { message: "no".to_owned(), at: self.now.wall };
                    self.input(Input::NotStarted { container, attempt, failure });
                }
            }
            Step::IsMisconfigured => {
                if let Some((container, attempt)) = self.ordered() {
                    // The machine never heard of it.
                    self.machine.remove(&(container, attempt));
                    let failure = StartFailure::Config("no".to_owned());
                    self.input(Input::NotStarted { container, attempt, failure });
                }
            }
            Step::Exits { code } => {
                if let Some((container, attempt)) = self.running() {
                    self.exit(container, attempt, code);
                }
            }
            Step::Hook { fails } => {
                if let Some((container, attempt, hook)) = self.hooks.pop() {
                    let result = if fails { Err("no".to_owned()) } else { Ok(()) };
                    self.input(Input::HookFinished { container, attempt, hook, result });
                }
            }
            Step::Passes { seconds } => {
                self.now.elapsed += Duration::from_secs(seconds);
                self.now.wall += Duration::from_secs(seconds);
                self.input(Input::Tick);
            }
            Step::Deleted { grace } => {
                self.object["metadata"]["deletionTimestamp"] = json!("1970-01-12T13:46:40Z");
                self.object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
                self.observe();
            }
            Step::EndedByOther if !self.api_phase().is_terminal() => {
                self.is_ended_by_other = true;
                self.object["status"]["phase"] = json!("Failed");
                self.observe();
            }
            Step::Reported => self.report(),
            Step::CleanedUp if self.is_clean_up_asked => {
                self.is_clean_up_asked = false;
                self.input(Input::CleanedUp);
            }
            Step::AgentRestarts => self.restart_agent(),
            Step::NurseryDies => {
                let lost = self.lose_all();
                if !lost.is_empty() {
                    self.input(Input::SandboxLost);
                }
                for (container, attempt, exit) in lost {
                    self.input(Input::Exited { container, attempt, exit });
                }
            }
            Step::MachineRestarts => {
                self.lose_all();
                self.restart_agent();
            }
            Step::Prepared { .. } | Step::EndedByOther | Step::CleanedUp => {}
        }
    }

    fn observe(&mut self) {
        let pod: Pod = serde_json::from_value(self.object.clone()).unwrap();
        self.input(Input::Observed(Observed::of(&pod)));
    }

    /// Everything but the machine and the API is forgotten. An order that had not reached the machine never will.
    fn restart_agent(&mut self) {
        let pod: Pod = serde_json::from_value(self.object.clone()).unwrap();
        let records: Vec<Record> = self
            .machine
            .iter()
            .map(|((container, attempt), state)| Record {
                container: self.life.container_spec(*container).name.clone(),
                attempt: *attempt,
                started_at: self.start_of(*container, *attempt),
                exit: match state {
                    Instance::Ended(exit) => Some(exit.clone()),
                    _ => None,
                },
            })
            .collect();
        self.life = PodLifecycle::adopt(&pod, &records, self.now);
        (self.is_preparing, self.is_clean_up_asked) = (false, false);
        (self.is_delete_sent, self.is_forgotten) = (false, false);
        self.hooks.clear();
        self.input(Input::Tick);
    }

    /// The API knows the end of everything that ran.
    fn assert_end_is_known(&self) {
        self.assert_nothing_runs();
        assert!(self.api_phase().is_terminal(), "KEP-3939: {:?}", self.object);
        let pod: Pod = serde_json::from_value(self.object.clone()).unwrap();
        assert!(!pod.status.says_running(), "PL-38: {:?}", self.object);
    }

    /// From now on everything goes well: the pod must come to its end.
    fn wind_up(&mut self) {
        self.take(&Step::Deleted { grace: 0 });
        for _ in 0..20 {
            for step in [
                Step::Prepared { fails: false },
                Step::Starts,
                Step::Hook { fails: false },
                Step::Passes { seconds: 10 },
                Step::CleanedUp,
                Step::Reported,
            ] {
                self.take(&step);
            }
        }
        self.assert_end_is_known();
        assert!(self.is_delete_sent, "PL-47: {:?}", self.life);
        self.input(Input::Gone);
        assert!(self.is_forgotten, "{:?}", self.life);
    }
}

proptest! {
    #[test]
    fn every_history_ends_well(spec in spec(), steps in proptest::collection::vec(step(), 0..60)) {
        let mut world = World::new(spec);
        for step in &steps {
            // A pod that is forgotten is over.
            if !world.is_forgotten {
                world.take(step);
            }
        }
        if world.is_forgotten {
            world.assert_end_is_known();
        } else {
            world.wind_up();
        }
    }
}
