//! What to do next: looks at the whole pod after every input, so that the order of inputs does not matter.

use std::sync::Arc;
use std::time::Duration;

use super::container::{Container, Exit, Kind, State};
use super::stop::{Step, Stop};
use super::{Action, Hook, Index, PodLifecycle, Preparation, Stage, conditions, has_hook, normal, phase};
use crate::moment::Moment;
use crate::pod::{self, Phase, RestartPolicy};

impl PodLifecycle {
    /// Looks at the whole pod and orders what is missing.
    pub(super) fn advance(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.stage == Stage::Working {
            self.check_final_stop(now, actions);
        }
        if self.stage == Stage::Working {
            self.prepare(now, actions);
        }
        if self.stage == Stage::Working && self.is_sandbox_lost {
            self.begin_anew();
        }
        if self.stage == Stage::Working && self.preparation == Preparation::Done && !self.is_sandbox_lost {
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
        } else if self.active_deadline.is_some_and(|deadline| now.elapsed >= deadline.at) {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            actions.push(normal("DeadlineExceeded", message.clone(), None));
            self.force_end("DeadlineExceeded", &message);
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

    /// The sandbox is gone with all that ran in it. Once the end of everything is known the pod begins anew, init
    /// containers first (PL-28).
    fn begin_anew(&mut self) {
        if self.containers.iter().any(Container::is_live) {
            return;
        }
        self.is_sandbox_lost = false;
        let regular = || phase::of_kind(&self.containers, Kind::Regular);
        if self.spec.restart_policy == RestartPolicy::Never || regular().all(Container::is_over) {
            return;
        }
        let waiting = self.spec.first_waiting_reason();
        for container in self.containers.iter_mut().filter(|container| !container.never_ran()) {
            container.begin_anew(waiting);
        }
    }

    /// Init containers one at a time, then the regular ones together (PL-23, PL-24).
    fn start_containers(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let init_count = self.spec.init_containers.len();
        let (init, regular) = self.containers.split_at(init_count);
        let past_init = regular.iter().any(Container::has_run_here);
        // Whatever sidecars do meanwhile (PL-5, PL-6).
        if !past_init && phase::of_kind(init, Kind::Init).any(phase::failed_for_good) {
            return self.begin_stop(self.default_grace(), now);
        }
        for index in 0..init_count {
            let container = &self.containers[index];
            if container.lets_next_start() || (container.kind == Kind::Init && past_init) {
                continue;
            }
            // A sidecar that has let others start is restarted beside them.
            let is_passed = container.kind == Kind::Sidecar
                && self.containers[index + 1..].iter().any(|later| later.starting.is_some() || later.has_run_here());
            self.start_if_due(index, now, actions);
            if !is_passed {
                return;
            }
        }
        for index in init_count..self.containers.len() {
            self.start_if_due(index, now, actions);
        }
        if self.containers[init_count..].iter().all(Container::is_over) {
            self.begin_stop(self.default_grace(), now);
        }
    }

    fn start_if_due(&mut self, index: Index, now: Moment, actions: &mut Vec<Action>) {
        let container = &mut self.containers[index];
        if !container.is_wanted() || container.not_before.is_some_and(|at| now.elapsed < at) {
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

    pub(super) fn begin_stop(&mut self, grace: Duration, now: Moment) {
        // Taken before the stage changes: while stopping the phase stays what it was (PL-44).
        self.phase = self.reported_phase();
        self.stage = Stage::Stopping { deadline: now.elapsed + grace.max(Duration::from_secs(1)) };
    }

    pub(super) fn shorten_stop(&mut self, to: Duration) {
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
                let spec = spec.container(index);
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
            // Of those that wait for a restart, which will not come, the last end is the end.
            let last = container.last.take_if(|_| matches!(container.state, State::Waiting { .. }));
            if last.is_some() || (wanted && !matches!(container.state, State::Terminated(_))) {
                container.restartable = false;
                container.state = State::Terminated(last.map_or_else(Exit::lost, |last| *last));
            }
        }
    }

    pub(super) fn final_phase(&self) -> Phase {
        if self.is_rejected || self.is_forced {
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
}

/// Starts to stop one container; `grace` is how long it may take.
pub(super) fn begin_container_stop(
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
