//! A pod's state rebuilt from what the API says and what is found on the machine (PL-16, PL-29, PL-139).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;
use teeth::{Mutation, is};

use super::conditions::Transitions;
use super::container::{Container, Exit, Kind, State};
use super::probe::Probes;
use super::{ActiveDeadline, Index, Observed, PodLifecycle, Preparation, Stage, restart, whole_seconds};
use crate::moment::Moment;
use crate::pod::{self, Pod};

/// What the machine knows about one instance of a container of the pod.
#[derive(Clone, Debug)]
pub struct Record {
    pub container: String,
    pub attempt: u32,
    /// `None` if it never got as far.
    pub started_at: Option<Timestamp>,
    /// `None` while it runs.
    pub exit: Option<Exit>,
}

impl PodLifecycle {
    /// A pod that may have run here before. `records` are all instances that the machine still knows of.
    pub fn adopt(pod: &Pod, records: &[Record], now: Moment) -> Self {
        let start_time = pod.status.start_time.as_ref().map_or(now.wall, |time| time.0);
        let mut transitions = Transitions::default();
        for condition in &pod.status.conditions {
            if let Some(time) = &condition.last_transition_time {
                transitions.restore(&condition.type_, condition.status == "True", time.0);
            }
        }
        let observed = Observed::of(pod);
        let is_terminal = pod.status.phase.is_terminal();
        let started_before = !records.is_empty();
        let needs_preparation = !pod.spec.volumes.is_empty() && !is_terminal;
        let preparation = match needs_preparation {
            // Volumes of a pod that runs are in place; making them again would take them from under it.
            true if !started_before => Preparation::Wanted { failures: 0, not_before: Duration::ZERO },
            _ => Preparation::Done,
        };
        let containers = containers(pod, records, now);
        let deletion_grace = observed.deletion_grace_seconds.map(whole_seconds);
        // A phase that somebody else wrote says nothing about the containers.
        let is_end_known = !pod.status.says_running() && !containers.iter().any(Container::is_live);
        let stage = match is_terminal {
            true if is_end_known => Stage::Stopped { is_clean: false, is_clean_up_asked: false },
            true => {
                let grace = deletion_grace.unwrap_or_else(|| whole_seconds(pod.spec.grace_seconds()));
                Stage::Stopping { deadline: now.elapsed + grace.max(Duration::from_secs(1)) }
            }
            false => Stage::Working,
        };
        Self {
            spec: Arc::new(pod.spec.clone()),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            generation: pod.metadata.generation,
            start_time,
            containers,
            preparation,
            stage,
            is_sandbox_lost: false,
            phase: pod.status.phase,
            reason: observed.reason,
            message: observed.message,
            transitions,
            unmet_gates: observed.unmet_gates,
            deletion_grace,
            active_deadline: observed
                .active_deadline_seconds
                .map(|seconds| ActiveDeadline::new(seconds, start_time, now)),
            is_rejected: false,
            is_forced: false,
            is_disrupted: false,
            is_gone: false,
            has_reported_end: is_terminal && is_end_known,
            is_delete_sent: false,
        }
    }

    /// The position of a container by its name.
    pub fn index_of(&self, name: &str) -> Option<Index> {
        self.with_specs().position(|(_, spec)| spec.name == name)
    }
}

fn containers(pod: &Pod, records: &[Record], now: Moment) -> Vec<Container> {
    let waiting = pod.spec.first_waiting_reason();
    let init = pod.spec.init_containers.iter().map(|spec| (Kind::of_init(spec), spec));
    let regular = pod.spec.containers.iter().map(|spec| (Kind::Regular, spec));
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let mut containers: Vec<Container> = init
        .chain(regular)
        .map(|(kind, spec)| {
            let mut container = Container::new(kind, waiting);
            let status = statuses.clone().find(|status| status.name == spec.name);
            if let Some(status) = status {
                restore(&mut container, status);
            }
            let mut own: Vec<&Record> = records.iter().filter(|record| record.container == spec.name).collect();
            own.sort_by_key(|record| record.attempt);
            let is_known = own.last().is_some_and(|newest| newest.attempt >= container.attempt);
            for record in own {
                found(&mut container, spec, status, record, now);
            }
            if !is_known {
                lose(&mut container, now);
            }
            if let Some(exit) = container.newest_exit() {
                container.restartable = restart::restarts(kind, spec, pod.spec.restart_policy, exit.code);
                container.ended_at = now.elapsed;
            }
            container
        })
        .collect();
    if pod.spec.restart_policy != pod::RestartPolicy::Never && !pod.status.phase.is_terminal() {
        tell_past(&mut containers, records, waiting);
    }
    containers
}

/// Whoever was not seen to end ended with the sandbox, and so did all that had ended by then. If no regular container
/// was started since, the pod begins anew, or goes on with that (PL-28).
fn tell_past(containers: &mut [Container], records: &[Record], waiting: &'static str) {
    let known = records.iter().filter_map(|record| record.exit.as_ref());
    let noticed = containers.iter().filter_map(Container::newest_exit).chain(known).filter(|exit| exit.is_lost());
    let Some(lost_at) = noticed.filter_map(|exit| exit.finished_at).max() else { return };
    let is_past = |container: &Container| {
        let ended = container.newest_exit().and_then(|exit| exit.finished_at);
        ended.is_some_and(|ended| ended <= lost_at)
    };
    let mut regular = containers.iter().filter(|container| container.kind == Kind::Regular);
    let has_run_since =
        regular.clone().any(|container| container.is_live() || (!container.never_ran() && !is_past(container)));
    if has_run_since || regular.all(Container::is_over) {
        return;
    }
    for container in containers.iter_mut().filter(|container| is_past(container)) {
        container.begin_anew(waiting);
    }
}

/// What the API was told before.
fn restore(container: &mut Container, status: &api::ContainerStatus) {
    container.attempt = u32::try_from(status.restart_count).unwrap_or(0);
    let exit = |state: &Option<api::ContainerState>| state.as_ref()?.terminated.as_ref().map(exit_of);
    container.last = exit(&status.last_state).map(Box::new);
    if let Some(exit) = exit(&status.state) {
        container.state = State::Terminated(exit);
    } else if let Some(running) = status.state.as_ref().and_then(|state| state.running.as_ref()) {
        let since = running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        container.state = State::Running { since };
    }
    // Its loss was counted when it was told.
    container.attempt -= u32::from(container.was_lost() && container.attempt > 0);
    if matches!(container.state, State::Terminated(_)) {
        container.keep_done();
    }
}

/// What the machine knows is newer than, or the same as, what the API knows.
fn found(
    container: &mut Container,
    spec: &pod::Container,
    status: Option<&api::ContainerStatus>,
    record: &Record,
    now: Moment,
) {
    let is_known_end = matches!(container.state, State::Terminated(_)) && record.attempt <= container.attempt;
    let is_older = record.attempt < container.attempt;
    if is_older || is_known_end {
        if let (State::Terminated(known), Some(exit)) = (&mut container.state, &record.exit)
            && !is_older
        {
            // The API's times are whole seconds.
            (known.started_at, known.finished_at) = (exit.started_at, exit.finished_at);
        }
        return;
    }
    match (record.exit.as_ref().filter(|_| !is(Mutation::H08)), record.started_at) {
        (Some(exit), _) => {
            container.attempt = record.attempt;
            container.set_terminated(exit.clone());
        }
        (None, Some(started_at)) => {
            // What was said about an earlier instance says nothing about this one.
            let status = status.filter(|_| container.is_running() && container.attempt == record.attempt);
            container.set_running(record.attempt, started_at);
            container.probes = Probes::start(spec, now.elapsed);
            if let Some(status) = status.filter(|status| status.started.unwrap_or(status.ready)) {
                container.probes.assume_started(status.ready);
            }
        }
        // Ordered by an agent that is gone; whether it starts is still to be heard.
        (None, None) => container.starting = Some(record.attempt),
    }
}

/// Said to run, and the machine knows nothing of it.
fn lose(container: &mut Container, now: Moment) {
    if let State::Running { since } = container.state {
        container.set_terminated(Exit::unseen(Some(since), now.wall));
    }
}

fn exit_of(state: &api::ContainerStateTerminated) -> Exit {
    Exit {
        code: state.exit_code,
        reason: state.reason.clone().unwrap_or_default().into(),
        message: state.message.clone(),
        started_at: state.started_at.as_ref().map(|time| time.0),
        finished_at: state.finished_at.as_ref().map(|time| time.0),
        has_instance: state.container_id.is_some(),
    }
}
