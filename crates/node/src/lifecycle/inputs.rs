//! What happened, taken into the state of the pod. What follows from it is decided in `progress`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::container::{Exit, Kind, START_ERROR_CODE};
use super::probe::{ProbeKind, Probes, Verdict};
use super::progress::begin_container_stop;
use super::{
    Action, ActiveDeadline, Hook, Index, Input, Observed, PodLifecycle, Preparation, Stage, StartFailure, has_hook,
    normal, restart, retry_after, warning, whole_seconds,
};
use crate::moment::Moment;

/// However much the pod asks for (PL-67).
const EVICTION_GRACE: Duration = Duration::from_secs(1);

impl PodLifecycle {
    pub(super) fn take(&mut self, input: Input, now: Moment, actions: &mut Vec<Action>) {
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
            Input::Reported { phase, is_end } => {
                if !self.phase.is_terminal() {
                    self.phase = phase;
                }
                self.has_reported_end |= is_end;
            }
            Input::Shutdown { grace_max } => self.shut_down(grace_max, now),
            Input::SandboxLost => self.is_sandbox_lost = true,
            Input::Evicted { message } => self.evict(&message, now, actions),
            Input::Tick => {}
        }
    }

    fn shut_down(&mut self, grace_max: Duration, now: Moment) {
        if self.stage == Stage::Working {
            let message = "Pod was terminated in response to imminent node shutdown.";
            self.force_end("Terminated", message);
            self.is_disrupted = true;
            self.begin_stop(self.default_grace().min(grace_max), now);
        } else {
            self.shorten_stop(now.elapsed + grace_max);
        }
    }

    /// By its own limits, not for the sake of others: there is no DisruptionTarget (PL-63).
    fn evict(&mut self, message: &str, now: Moment, actions: &mut Vec<Action>) {
        if self.stage == Stage::Working {
            actions.push(warning("Evicted", message.to_owned(), None));
            self.force_end("Evicted", message);
            self.begin_stop(EVICTION_GRACE, now);
        }
    }

    /// Whatever the exit codes, the pod will have failed for this reason.
    pub(super) fn force_end(&mut self, reason: &str, message: &str) {
        self.is_forced = true;
        self.reason = Some(reason.to_owned());
        self.message = Some(message.to_owned());
    }

    fn observed(&mut self, observed: Observed, now: Moment) {
        self.generation = observed.generation.or(self.generation);
        self.unmet_gates = observed.unmet_gates;
        let seconds = observed.active_deadline_seconds;
        if seconds != self.active_deadline.map(|deadline| deadline.seconds) {
            self.active_deadline = seconds.map(|seconds| ActiveDeadline::new(seconds, self.start_time, now));
        }
        if let Some(seconds) = observed.deletion_grace_seconds {
            let grace = whole_seconds(seconds);
            if self.deletion_grace.is_none_or(|before| grace < before) {
                self.deletion_grace = Some(grace);
                self.shorten_stop(now.elapsed + grace.max(Duration::from_secs(1)));
            }
        }
        if observed.phase.is_terminal() && !self.phase.is_terminal() {
            // Whoever wrote it, it stays. How the containers end is still to be reported (PL-8, PL-38).
            self.phase = observed.phase;
            self.reason = observed.reason;
            self.message = observed.message;
            if self.stage == Stage::Working {
                self.begin_stop(self.default_grace(), now);
            }
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
        let spec = spec.container(index);
        container.set_running(attempt, at);
        container.probes = Probes::start(spec, now.elapsed);
        // It was under way when all else was lost, and too far to begin anew without it.
        self.is_sandbox_lost = false;
        actions.push(created(index));
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
                actions.push(created(index));
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
        if self.is_current(index, attempt) {
            self.ended(index, attempt, exit, now, actions);
        }
    }

    fn ended(&mut self, index: Index, attempt: u32, exit: Exit, now: Moment, actions: &mut Vec<Action>) {
        let policy = self.spec.restart_policy;
        let spec = Arc::clone(&self.spec);
        let spec = spec.container(index);
        let container = &mut self.containers[index];
        let by_probe = container.stop.is_some_and(|stop| stop.by_probe);
        container.restartable = match container.kind {
            Kind::Init | Kind::Regular if by_probe => restart::restarts_after_probe(spec, policy),
            kind => restart::restarts(kind, spec, policy, exit.code),
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
        let spec = Arc::clone(&self.spec);
        let Some(container) = self.containers.get_mut(index).filter(|it| it.is_running() && it.attempt == attempt)
        else {
            return;
        };
        match (hook, result) {
            (Hook::PostStart, Ok(())) => container.post_start_pending = false,
            (Hook::PostStart, Err(_)) => {
                actions.push(warning("FailedPostStartHook", "PostStartHook failed".to_owned(), Some(index)));
                if container.stop.is_none() {
                    actions.push(normal("Killing", "FailedPostStartHook".to_owned(), Some(index)));
                    begin_container_stop(container, spec.container(index), index, grace, now, actions);
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
        let verdict = container.probes.answered(probe, result.is_ok());
        if verdict == Verdict::Condemned && container.stop.is_none() {
            let spec = spec.container(index);
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
}

/// Said before whether it also starts (PL-25).
fn created(index: Index) -> Action {
    normal("Created", "Container created".to_owned(), Some(index))
}
