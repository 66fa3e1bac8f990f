//! The five conditions that the node owns (PL-19, PL-20).

use jiff::Timestamp;

use super::container::{Container, Kind, State};
use super::phase::of_kind;
use crate::pod::Phase;

/// In the order in which they are reported.
pub(crate) const TYPES: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// One condition as it should be now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: bool,
    pub(crate) reason: Option<&'static str>,
    pub(crate) message: Option<String>,
}

impl Condition {
    fn plain(status: bool) -> Self {
        Self { status, reason: None, message: None }
    }

    fn with_reason(status: bool, reason: &'static str) -> Self {
        Self { status, reason: Some(reason), message: None }
    }
}

/// What conditions are computed from.
pub(crate) struct Facts<'a> {
    pub(crate) phase: Phase,
    pub(crate) containers: &'a [Container],
    /// Names, in the order of `containers`.
    pub(crate) names: &'a [&'a str],
    /// Volumes are there and the containers have not been stopped for good.
    pub(crate) has_sandbox: bool,
    pub(crate) was_initialized: bool,
    /// Says which readiness gate is not met.
    pub(crate) unmet_gates: Option<&'a str>,
    /// The pod never got as far as having containers.
    pub(crate) is_rejected: bool,
}

/// The conditions in the order of [`TYPES`].
pub(crate) fn conditions(facts: &Facts<'_>) -> [Condition; 5] {
    let containers_ready = containers_ready(facts);
    [
        Condition::plain(facts.has_sandbox),
        initialized(facts),
        ready(facts, &containers_ready),
        containers_ready,
        Condition::plain(true),
    ]
}

fn initialized(facts: &Facts<'_>) -> Condition {
    if facts.phase == Phase::Succeeded {
        return Condition::with_reason(true, "PodCompleted");
    }
    let regular_ran = of_kind(facts.containers, Kind::Regular).any(|container| !container.never_ran());
    let incomplete = names_of(facts, |container| container.kind != Kind::Regular && !container.lets_next_start());
    if facts.was_initialized || regular_ran || incomplete.is_empty() {
        return Condition::plain(true);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Condition { status: false, reason: Some("ContainersNotInitialized"), message: Some(message) }
}

fn containers_ready(facts: &Facts<'_>) -> Condition {
    match facts.phase {
        Phase::Succeeded => return Condition::with_reason(false, "PodCompleted"),
        Phase::Failed => return Condition::with_reason(false, "PodFailed"),
        Phase::Pending | Phase::Running => {}
    }
    if facts.is_rejected {
        return Condition::with_reason(false, "UnknownContainerStatuses");
    }
    let unready = names_of(facts, |container| container.kind != Kind::Init && !container.is_ready());
    if unready.is_empty() {
        return Condition::plain(true);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Condition { status: false, reason: Some("ContainersNotReady"), message: Some(message) }
}

fn ready(facts: &Facts<'_>, containers_ready: &Condition) -> Condition {
    match facts.unmet_gates {
        Some(message) if containers_ready.status => {
            Condition { status: false, reason: Some("ReadinessGatesNotReady"), message: Some(message.to_owned()) }
        }
        _ => containers_ready.clone(),
    }
}

fn names_of<'a>(facts: &Facts<'a>, wanted: impl Fn(&Container) -> bool) -> Vec<&'a str> {
    facts.containers.iter().zip(facts.names).filter(|(container, _)| wanted(container)).map(|(_, name)| *name).collect()
}

/// Is every init container done, or did the pod get past them? What PL-16 calls an initialized pod.
pub(crate) fn is_past_init(containers: &[Container]) -> bool {
    let done = |container: &Container| match container.kind {
        Kind::Init => matches!(&container.state, State::Terminated(exit) if exit.code == 0),
        Kind::Sidecar => !container.never_ran(),
        Kind::Regular => true,
    };
    containers.iter().all(done) || of_kind(containers, Kind::Regular).any(|container| !container.never_ran())
}

/// When each condition took its present status.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transitions {
    entries: [Option<(bool, Timestamp)>; 5],
}

impl Transitions {
    /// What the API says about a condition that an earlier run of the node wrote.
    pub(crate) fn restore(&mut self, kind: &str, status: bool, since: Timestamp) {
        if let Some(index) = TYPES.iter().position(|name| *name == kind) {
            self.entries[index] = Some((status, since));
        }
    }

    pub(crate) fn was_true(&self, kind: &str) -> bool {
        let index = TYPES.iter().position(|name| *name == kind);
        index.and_then(|index| self.entries[index]).is_some_and(|(status, _)| status)
    }

    /// The transition times of the present statuses; those that changed take `now`.
    pub(crate) fn update(&mut self, conditions: &[Condition; 5], now: Timestamp) -> [Timestamp; 5] {
        std::array::from_fn(|index| {
            let status = conditions[index].status;
            match self.entries[index] {
                Some((before, since)) if before == status => since,
                _ => {
                    self.entries[index] = Some((status, now));
                    now
                }
            }
        })
    }
}
