//! The life of one pod on its node, as a state machine without clock or IO.
//!
//! ```text
//!            Prepare                Start …               all over, deleted,
//!            volumes                                      deadline, rejected
//!  Preparing ───────► Working: init 1 → init 2 → regular ──────────────────► Stopping ──► Stopped ──► Delete, Forget
//!     │                  ▲ │                             preStop, TERM, KILL    │   no process left:
//!     │                  └─┘ restarts with back-off                             │   CleanUp, final status
//!     └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`PodLifecycle::step`] takes what happened and the time and says what to do; the caller does it and reports back as
//! further inputs. Decisions are level-triggered: after every input the whole pod is looked at again, so the order of
//! inputs does not matter and a repeated input does no harm. How things are done is in `agent` and `nursery`; what the
//! status looks like in `status`.

mod adopt;
mod conditions;
mod container;
mod phase;
mod probe;
mod restart;
mod status;
mod stop;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

pub use adopt::Record;
use conditions::Transitions;
pub use container::Exit;
use container::{Container, Kind, START_ERROR_CODE, State};
pub use probe::ProbeKind;
use probe::{Probes, Verdict};
pub use status::container_id;
use stop::{Step, Stop};

use crate::moment::Moment;
use crate::pod::{self, Phase, Pod, PodSpec};

/// Failing to prepare volumes or to make out the configuration is tried again after 1 s, doubling up to this (PL-23).
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Position of a container in its pod: init containers in the order of the spec, then regular ones.
pub type Index = usize;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The watch showed the pod.
    Observed(Observed),
    /// The pod's object does not exist any more.
    Gone,
    /// Volumes are in place, or why not.
    Prepared(Result<(), String>),
    Started {
        container: Index,
        attempt: u32,
        at: Timestamp,
    },
    NotStarted {
        container: Index,
        attempt: u32,
        failure: StartFailure,
    },
    Exited {
        container: Index,
        attempt: u32,
        exit: Exit,
    },
    HookFinished {
        container: Index,
        attempt: u32,
        hook: Hook,
        result: Result<(), String>,
    },
    Probed {
        container: Index,
        attempt: u32,
        probe: ProbeKind,
        result: Result<(), String>,
    },
    /// Volumes and directories are gone.
    CleanedUp,
    /// The API has the status with this phase.
    Reported(Phase),
    /// Nothing but time.
    Tick,
}

/// What may change about a pod while it is on a node.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Set once the pod is being deleted: the grace that the API granted.
    pub deletion_grace_seconds: Option<i64>,
    pub generation: Option<i64>,
    /// A terminal one that somebody else wrote stops the pod (PL-38).
    pub phase: Phase,
    pub unmet_gates: Option<String>,
}

impl Observed {
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        Self {
            deletion_grace_seconds: meta
                .deletion_timestamp
                .as_ref()
                .map(|_| meta.deletion_grace_period_seconds.unwrap_or_else(|| pod.spec.grace_seconds())),
            generation: meta.generation,
            phase: pod.status.phase,
            unmet_gates: unmet_gates(pod),
        }
    }
}

/// Why a container did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartFailure {
    /// Something the container refers to is missing or wrong; it is tried again (PL-108).
    Config(String),
    /// The process could not be started; this is an exit with code 128 (PL-53).
    Start { message: String, at: Timestamp },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    PostStart,
    PreStop,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put the volumes in place; answered by [`Input::Prepared`].
    Prepare,
    /// Answered by [`Input::Started`] or [`Input::NotStarted`].
    Start {
        container: Index,
        attempt: u32,
    },
    /// Send the stop signal.
    Terminate {
        container: Index,
        attempt: u32,
    },
    /// Send SIGKILL to everything of the container.
    Kill {
        container: Index,
        attempt: u32,
    },
    /// Answered by [`Input::HookFinished`].
    RunHook {
        container: Index,
        attempt: u32,
        hook: Hook,
    },
    /// Answered by [`Input::Probed`].
    Probe {
        container: Index,
        attempt: u32,
        probe: ProbeKind,
    },
    Event(Event),
    /// No process is left: remove volumes and directories. Answered by [`Input::CleanedUp`].
    CleanUp,
    /// Send the final DELETE (PL-47).
    Delete,
    /// Nothing is left to do for this pod.
    Forget,
}

/// An event about the pod or one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub container: Option<Index>,
}

/// The state of one pod.
#[derive(Debug)]
pub struct PodLifecycle {
    spec: Arc<PodSpec>,
    namespace: String,
    name: String,
    uid: String,
    generation: Option<i64>,
    start_time: Timestamp,
    containers: Vec<Container>,
    preparation: Preparation,
    stage: Stage,
    /// The phase the API was last told, or told us.
    phase: Phase,
    reason: Option<String>,
    message: Option<String>,
    transitions: Transitions,
    unmet_gates: Option<String>,
    deletion_grace: Option<Duration>,
    /// When `activeDeadlineSeconds` is over.
    active_deadline: Option<Duration>,
    is_rejected: bool,
    is_gone: bool,
    has_reported_end: bool,
    is_delete_sent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preparation {
    Wanted { failures: u32, not_before: Duration },
    UnderWay { failures: u32 },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    Stopping { deadline: Duration },
    Stopped { is_clean: bool, is_clean_up_asked: bool },
}

impl PodLifecycle {
    /// A pod that the node has never seen.
    pub fn new(pod: &Pod, now: Moment) -> Self {
        Self::adopt(pod, &[], now)
    }

    /// A pod that the node refuses (PL-22): Failed at once, without container statuses.
    pub fn rejected(pod: &Pod, reason: &'static str, text: &str, now: Moment) -> (Self, Event) {
        let mut rejected = Self::new(pod, now);
        let message = format!("Pod was rejected: {text}");
        rejected.is_rejected = true;
        rejected.reason = Some(reason.to_owned());
        rejected.message = Some(message.clone());
        rejected.stage = Stage::Stopped { is_clean: true, is_clean_up_asked: true };
        let event = Event { is_warning: true, reason, message, container: None };
        (rejected, event)
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn spec(&self) -> &Arc<PodSpec> {
        &self.spec
    }

    /// The spec of a container by its position.
    pub fn container_spec(&self, index: Index) -> &pod::Container {
        let init = &self.spec.init_containers;
        init.get(index).unwrap_or_else(|| &self.spec.containers[index - init.len()])
    }

    /// The status to send, as a strategic merge patch.
    pub fn status_patch(&mut self, host_ip: &str, now: Moment) -> Value {
        status::patch(self, host_ip, now)
    }

    /// The phase that the next status will carry. A terminal one waits until nothing runs any more (PL-8).
    pub fn reported_phase(&self) -> Phase {
        if self.phase.is_terminal() {
            return self.phase;
        }
        match self.stage {
            Stage::Stopped { .. } => self.final_phase(),
            Stage::Stopping { .. } => self.phase,
            Stage::Working => {
                let ran = self.containers.iter().any(|it| it.kind == Kind::Regular && !it.never_ran());
                match phase::phase_of(&self.containers, false) {
                    phase if !phase.is_terminal() => phase,
                    _ if ran => Phase::Running,
                    _ => self.phase,
                }
            }
        }
    }

    /// Has the pod ended, with nothing left to report but the end?
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Stopped { .. })
    }

    /// When [`Input::Tick`] is due.
    pub fn wake(&self) -> Option<Duration> {
        let preparation = match self.preparation {
            Preparation::Wanted { not_before, .. } if self.stage == Stage::Working => Some(not_before),
            _ => None,
        };
        let deadline = self.active_deadline.filter(|_| self.stage == Stage::Working);
        let containers = self.containers.iter().filter_map(|container| self.container_wake(container));
        preparation.into_iter().chain(deadline).chain(containers).min()
    }

    fn container_wake(&self, container: &Container) -> Option<Duration> {
        let stop = container.stop.as_ref().and_then(Stop::wake).filter(|_| container.is_live());
        let start = container.not_before.filter(|_| self.stage == Stage::Working && !container.is_live());
        let probe = match container.is_running() {
            true => container.probes.wake(self.is_stopping() || container.stop.is_some()),
            false => None,
        };
        [stop, start, probe].into_iter().flatten().min()
    }

    /// Takes what happened, says what to do.
    pub fn step(&mut self, input: Input, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        self.take(input, now, &mut actions);
        self.advance(now, &mut actions);
        actions
    }

    fn take(&mut self, input: Input, now: Moment, actions: &mut Vec<Action>) {
        match input {
            Input::Observed(observed) => self.observed(observed, now),
            Input::Gone => self.is_gone = true,
            Input::Prepared(result) => self.prepared(result, now, actions),
            Input::Started { container, attempt, at } => self.started(container, attempt, at, now, actions),
            Input::NotStarted { container, attempt, failure } => {
                self.not_started(container, attempt, failure, now, actions);
            }
            Input::Exited { container, attempt, exit } => self.exited(container, attempt, exit, now, actions),
            Input::HookFinished { container, attempt, hook, result } => {
                self.hook_finished(container, attempt, hook, result, now, actions);
            }
            Input::Probed { container, attempt, probe, result } => {
                self.probed(container, attempt, probe, result, now, actions);
            }
            Input::CleanedUp => {
                if let Stage::Stopped { is_clean, .. } = &mut self.stage {
                    *is_clean = true;
                }
            }
            Input::Reported(phase) => {
                self.phase = phase;
                self.has_reported_end |= phase.is_terminal();
            }
            Input::Tick => {}
        }
    }

    fn observed(&mut self, observed: Observed, now: Moment) {
        self.generation = observed.generation.or(self.generation);
        self.unmet_gates = observed.unmet_gates;
        if let Some(seconds) = observed.deletion_grace_seconds {
            let grace = whole_seconds(seconds);
            if self.deletion_grace.is_none_or(|before| grace < before) {
                self.deletion_grace = Some(grace);
                self.shorten_stop(now.elapsed + grace.max(Duration::from_secs(1)));
            }
        }
        if observed.phase.is_terminal() && !self.has_ended() {
            self.phase = observed.phase;
            self.has_reported_end = true;
            self.begin_stop(self.default_grace(), now);
        }
    }

    fn prepared(&mut self, result: Result<(), String>, now: Moment, actions: &mut Vec<Action>) {
        let Preparation::UnderWay { failures } = self.preparation else { return };
        self.preparation = match result {
            Ok(()) => Preparation::Done,
            Err(message) => {
                actions.push(warning("FailedMount", message, None));
                Preparation::Wanted { failures: failures + 1, not_before: now.elapsed + retry_after(failures) }
            }
        };
    }

    fn started(&mut self, index: Index, attempt: u32, at: Timestamp, now: Moment, actions: &mut Vec<Action>) {
        let spec = Arc::clone(&self.spec);
        let Some(container) = self.containers.get_mut(index).filter(|it| it.starting == Some(attempt)) else { return };
        let spec = spec_at(&spec, index);
        container.set_running(attempt, at);
        container.probes = Probes::start(spec, now.elapsed);
        actions.push(normal("Started", "Container started".to_owned(), Some(index)));
        if has_hook(spec, Hook::PostStart) && self.stage == Stage::Working {
            container.post_start_pending = true;
            actions.push(Action::RunHook { container: index, attempt, hook: Hook::PostStart });
        }
    }

    fn not_started(
        &mut self,
        index: Index,
        attempt: u32,
        failure: StartFailure,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(container) = self.containers.get_mut(index).filter(|it| it.starting == Some(attempt)) else { return };
        match failure {
            StartFailure::Config(message) => {
                container.starting = None;
                container.not_before = Some(now.elapsed + retry_after(container.config_failures));
                container.config_failures = container.config_failures.saturating_add(1);
                actions.push(warning("Failed", format!("Error: {message}"), Some(index)));
                container.set_waiting("CreateContainerConfigError", Some(message));
            }
            StartFailure::Start { message, at } => {
                actions.push(warning("Failed", format!("Error: {message}"), Some(index)));
                let exit = Exit {
                    code: START_ERROR_CODE,
                    reason: "StartError".into(),
                    message: Some(message),
                    started_at: Some(Timestamp::UNIX_EPOCH),
                    finished_at: Some(at),
                    has_instance: true,
                };
                self.ended(index, attempt, exit, now, actions);
            }
        }
    }

    fn exited(&mut self, index: Index, attempt: u32, exit: Exit, now: Moment, actions: &mut Vec<Action>) {
        let Some(container) = self.containers.get(index) else { return };
        let is_current = container.starting == Some(attempt)
            || (container.starting.is_none() && container.is_running() && container.attempt == attempt);
        if is_current {
            self.ended(index, attempt, exit, now, actions);
        }
    }

    fn ended(&mut self, index: Index, attempt: u32, exit: Exit, now: Moment, actions: &mut Vec<Action>) {
        let policy = self.spec.restart_policy;
        let spec = Arc::clone(&self.spec);
        let spec = spec_at(&spec, index);
        let container = &mut self.containers[index];
        let by_probe = container.stop.is_some_and(|stop| stop.by_probe);
        container.restartable = match container.kind {
            Kind::Sidecar => true,
            _ if by_probe => restart::restarts_after_probe(spec, policy),
            _ => restart::restarts_after_exit(spec, policy, exit.code),
        };
        container.attempt = attempt;
        container.ended_at = now.elapsed;
        container.not_before = None;
        container.set_terminated(exit);
        let wait = container.backoff.wait_after(now.elapsed).filter(|_| container.restartable);
        if let (Stage::Working, Some((at, wait))) = (self.stage, wait) {
            self.back_off(index, at, wait, actions);
        }
    }

    fn back_off(&mut self, index: Index, until: Duration, wait: Duration, actions: &mut Vec<Action>) {
        let container_name = self.container_spec(index).name.clone();
        let pod = format!("{}_{}({})", self.name, self.namespace, self.uid);
        let wait = restart::go_seconds(wait);
        let container = &mut self.containers[index];
        container.not_before = Some(until);
        let message = format!("back-off {wait} restarting failed container={container_name} pod={pod}");
        container.set_waiting("CrashLoopBackOff", Some(message));
        let message = format!("Back-off restarting failed container {container_name} in pod {pod}");
        actions.push(warning("BackOff", message, Some(index)));
    }

    fn hook_finished(
        &mut self,
        index: Index,
        attempt: u32,
        hook: Hook,
        result: Result<(), String>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let grace = self.default_grace();
        let Some(container) = self.containers.get_mut(index).filter(|it| it.is_running() && it.attempt == attempt)
        else {
            return;
        };
        match (hook, result) {
            (Hook::PostStart, Ok(())) => container.post_start_pending = false,
            (Hook::PostStart, Err(_)) => {
                actions.push(warning("FailedPostStartHook", "PostStartHook failed".to_owned(), Some(index)));
                if container.stop.is_none() {
                    container.stop = Some(Stop::begin(now.elapsed, grace, false, false));
                }
            }
            (Hook::PreStop, result) => {
                if result.is_err() {
                    actions.push(warning("FailedPreStopHook", "PreStopHook failed".to_owned(), Some(index)));
                }
                if let Some(stop) = &mut container.stop {
                    stop.hook_finished();
                }
            }
        }
    }

    fn probed(
        &mut self,
        index: Index,
        attempt: u32,
        probe: ProbeKind,
        result: Result<(), String>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let policy = self.spec.restart_policy;
        let spec = Arc::clone(&self.spec);
        let pod_grace = self.default_grace();
        let Some(container) = self.containers.get_mut(index).filter(|it| it.is_running() && it.attempt == attempt)
        else {
            return;
        };
        if let Err(message) = &result {
            actions.push(warning("Unhealthy", format!("{} probe failed: {message}", probe.title()), Some(index)));
        }
        let verdict = container.probes.answered(probe, result.is_ok(), now.elapsed);
        if verdict == Verdict::Condemned && container.stop.is_none() {
            let spec = spec_at(&spec, index);
            let restarts = container.kind == Kind::Sidecar || restart::restarts_after_probe(spec, policy);
            let suffix = if restarts { ", will be restarted" } else { "" };
            let message = format!("Container {} failed {} probe{suffix}", spec.name, probe.lower());
            actions.push(normal("Killing", message, Some(index)));
            let own_grace = probe.of(spec).and_then(|probe| probe.termination_grace_period_seconds);
            let grace = own_grace.map_or(pod_grace, whole_seconds);
            begin_container_stop(container, spec, index, grace, now, actions);
            if let Some(stop) = &mut container.stop {
                stop.by_probe = true;
            }
        }
    }

    /// Looks at the whole pod and orders what is missing.
    fn advance(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.stage == Stage::Working {
            self.check_final_stop(now, actions);
        }
        if self.stage == Stage::Working {
            self.prepare(now, actions);
        }
        if self.stage == Stage::Working && self.preparation == Preparation::Done {
            self.start_containers(now, actions);
        }
        if self.is_stopping() {
            self.stop_containers(now, actions);
        } else {
            self.stop_condemned(now, actions);
        }
        self.probe(now, actions);
        self.finish(actions);
    }

    fn check_final_stop(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if let Some(grace) = self.deletion_grace {
            self.begin_stop(grace, now);
        } else if self.is_gone {
            self.begin_stop(Duration::ZERO, now);
        } else if self.active_deadline.is_some_and(|deadline| now.elapsed >= deadline) {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            actions.push(normal("DeadlineExceeded", message.clone(), None));
            self.reason = Some("DeadlineExceeded".to_owned());
            self.message = Some(message);
            self.begin_stop(self.default_grace(), now);
        }
    }

    fn prepare(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if let Preparation::Wanted { failures, not_before } = self.preparation
            && now.elapsed >= not_before
        {
            self.preparation = Preparation::UnderWay { failures };
            actions.push(Action::Prepare);
        }
    }

    /// Init containers one at a time, then the regular ones together (PL-23, PL-24).
    fn start_containers(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let init_count = self.spec.init_containers.len();
        let past_init = self.containers[init_count..].iter().any(|container| !container.never_ran());
        for index in 0..init_count {
            let container = &self.containers[index];
            if container.kind == Kind::Init && past_init {
                continue;
            }
            if phase::failed_for_good(container) && container.kind == Kind::Init {
                self.begin_stop(self.default_grace(), now);
                return;
            }
            if !container.lets_next_start() {
                self.start_if_due(index, now, actions);
                if !past_init {
                    return;
                }
            }
        }
        for index in init_count..self.containers.len() {
            self.start_if_due(index, now, actions);
        }
        let is_over = |container: &Container| {
            container.starting.is_none() && container.newest_exit().is_some() && !container.restartable
        };
        if self.containers[init_count..].iter().all(is_over) {
            self.begin_stop(self.default_grace(), now);
        }
    }

    fn start_if_due(&mut self, index: Index, now: Moment, actions: &mut Vec<Action>) {
        let container = &mut self.containers[index];
        let wants = !container.is_live() && (container.newest_exit().is_none() || container.restartable);
        if !wants || container.not_before.is_some_and(|at| now.elapsed < at) {
            return;
        }
        let attempt = container.next_attempt();
        if container.newest_exit().is_some() && container.config_failures == 0 {
            container.backoff.restarted(container.ended_at, now.elapsed);
        }
        container.starting = Some(attempt);
        container.not_before = None;
        actions.push(Action::Start { container: index, attempt });
    }

    /// Containers that a probe or a hook condemned while the pod goes on.
    fn stop_condemned(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for (index, container) in self.containers.iter_mut().enumerate() {
            step_stop(container, index, true, now, actions);
        }
    }

    fn begin_stop(&mut self, grace: Duration, now: Moment) {
        // Taken before the stage changes: while stopping the phase stays what it was (PL-44).
        self.phase = self.reported_phase();
        self.stage = Stage::Stopping { deadline: now.elapsed + grace.max(Duration::from_secs(1)) };
    }

    fn shorten_stop(&mut self, to: Duration) {
        if let Stage::Stopping { deadline } = &mut self.stage {
            *deadline = (*deadline).min(to);
            for stop in self.containers.iter_mut().filter_map(|container| container.stop.as_mut()) {
                stop.shorten(to);
            }
        }
    }

    fn stop_containers(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let Stage::Stopping { deadline } = self.stage else { return };
        let spec = Arc::clone(&self.spec);
        // From the back: a sidecar's turn comes when everything after it has ended (PL-42).
        let mut later_is_live = false;
        for index in (0..self.containers.len()).rev() {
            let container = &mut self.containers[index];
            if container.is_running() && container.stop.is_none() {
                let spec = spec_at(&spec, index);
                actions.push(normal("Killing", format!("Stopping container {}", spec.name), Some(index)));
                let grace = deadline.saturating_sub(now.elapsed);
                begin_container_stop(container, spec, index, grace, now, actions);
            }
            if let Some(stop) = &mut container.stop {
                stop.shorten(deadline);
            }
            let its_turn = container.kind != Kind::Sidecar || !later_is_live;
            step_stop(container, index, its_turn, now, actions);
            later_is_live |= container.is_live();
        }
        if !later_is_live && !matches!(self.preparation, Preparation::UnderWay { .. }) {
            self.stopped();
        }
    }

    /// No process is left, and none will come.
    fn stopped(&mut self) {
        self.stage = Stage::Stopped { is_clean: false, is_clean_up_asked: false };
        self.fill_missing_ends();
    }

    /// Containers that never ended get an end nobody saw (PL-16, PL-46).
    fn fill_missing_ends(&mut self) {
        let past_init = conditions::is_past_init(&self.containers);
        let init_failed = self.containers.iter().any(|it| it.kind == Kind::Init && phase::failed_for_good(it));
        let last_init_touched =
            self.containers.iter().rposition(|it| it.kind != Kind::Regular && !it.never_ran()).unwrap_or(0);
        for (index, container) in self.containers.iter_mut().enumerate() {
            let wanted = match container.kind {
                Kind::Regular => past_init && !init_failed,
                Kind::Init | Kind::Sidecar => past_init || (index <= last_init_touched && !init_failed),
            };
            if wanted && !matches!(container.state, State::Terminated(_)) {
                container.restartable = false;
                let exit = match (&container.state, container.last.take()) {
                    // Waiting for a restart that will not come: the last end is the end.
                    (State::Waiting { reason: "CrashLoopBackOff", .. }, Some(last)) => *last,
                    (_, last) => {
                        container.last = last;
                        Exit::lost()
                    }
                };
                container.state = State::Terminated(exit);
            }
        }
    }

    fn final_phase(&self) -> Phase {
        if self.is_rejected || self.reason.as_deref() == Some("DeadlineExceeded") {
            return Phase::Failed;
        }
        match phase::phase_of(&self.containers, true) {
            Phase::Succeeded => Phase::Succeeded,
            // Whatever is not over by now is over with a failure (PL-46).
            _ => Phase::Failed,
        }
    }

    fn probe(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let stopping = self.is_stopping();
        for (index, container) in self.containers.iter_mut().enumerate().filter(|(_, it)| it.is_running()) {
            let attempt = container.attempt;
            let due = container.probes.due(now.elapsed, stopping || container.stop.is_some());
            actions.extend(due.into_iter().map(|probe| Action::Probe { container: index, attempt, probe }));
        }
    }

    fn finish(&mut self, actions: &mut Vec<Action>) {
        let Stage::Stopped { is_clean, is_clean_up_asked } = &mut self.stage else { return };
        if !*is_clean_up_asked {
            *is_clean_up_asked = true;
            actions.push(Action::CleanUp);
        }
        if !*is_clean {
            return;
        }
        if self.is_gone || (self.has_reported_end && self.deletion_grace.is_none()) {
            actions.push(Action::Forget);
        } else if self.has_reported_end && !self.is_delete_sent {
            self.is_delete_sent = true;
            actions.push(Action::Delete);
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping { .. })
    }

    fn has_prepared(&self) -> bool {
        self.preparation == Preparation::Done
    }

    fn has_sandbox(&self) -> bool {
        self.has_prepared() && !self.has_ended()
    }

    fn default_grace(&self) -> Duration {
        self.deletion_grace.unwrap_or_else(|| whole_seconds(self.spec.grace_seconds()))
    }

    fn with_specs(&self) -> impl Iterator<Item = (&Container, &pod::Container)> {
        self.containers.iter().zip(self.spec.init_containers.iter().chain(&self.spec.containers))
    }
}

fn begin_container_stop(
    container: &mut Container,
    spec: &pod::Container,
    index: Index,
    grace: Duration,
    now: Moment,
    actions: &mut Vec<Action>,
) {
    let runs_hook = has_hook(spec, Hook::PreStop) && grace > Duration::ZERO;
    container.stop = Some(Stop::begin(now.elapsed, grace, runs_hook, false));
    if runs_hook {
        actions.push(Action::RunHook { container: index, attempt: container.attempt, hook: Hook::PreStop });
    }
}

fn step_stop(container: &mut Container, index: Index, its_turn: bool, now: Moment, actions: &mut Vec<Action>) {
    if !container.is_running() {
        return;
    }
    let attempt = container.attempt;
    match container.stop.as_mut().and_then(|stop| stop.step(now.elapsed, its_turn)) {
        Some(Step::Terminate) => actions.push(Action::Terminate { container: index, attempt }),
        Some(Step::Kill) => actions.push(Action::Kill { container: index, attempt }),
        None => {}
    }
}

fn spec_at(spec: &PodSpec, index: Index) -> &pod::Container {
    spec.init_containers.get(index).unwrap_or_else(|| &spec.containers[index - spec.init_containers.len()])
}

fn has_hook(spec: &pod::Container, hook: Hook) -> bool {
    spec.lifecycle.as_ref().is_some_and(|lifecycle| match hook {
        Hook::PostStart => lifecycle.post_start.is_some(),
        Hook::PreStop => lifecycle.pre_stop.is_some(),
    })
}

/// A number of seconds of the API; negative ones cannot be stored and count as none.
fn whole_seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn retry_after(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.min(4)).min(RETRY_MAX)
}

fn unmet_gates(pod: &Pod) -> Option<String> {
    pod.spec.readiness_gates.iter().find_map(|gate| {
        let kind = &gate.condition_type;
        match pod.status.conditions.iter().find(|condition| condition.type_ == *kind) {
            None => Some(format!("corresponding condition of pod readiness gate \"{kind}\" does not exist.")),
            Some(condition) if condition.status != "True" => {
                Some(format!("the status of pod readiness gate \"{kind}\" is not \"True\", but {}", condition.status))
            }
            Some(_) => None,
        }
    })
}

fn normal(reason: &'static str, message: String, container: Option<Index>) -> Action {
    Action::Event(Event { is_warning: false, reason, message, container })
}

fn warning(reason: &'static str, message: String, container: Option<Index>) -> Action {
    Action::Event(Event { is_warning: true, reason, message, container })
}
