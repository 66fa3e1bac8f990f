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
#[cfg(test)]
mod histories;
mod inputs;
mod phase;
mod probe;
mod progress;
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
pub(crate) use container::START_ERROR_CODE;
use container::{Container, Kind, State};
pub use probe::ProbeKind;
pub use status::container_id;
use stop::Stop;

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
    Reported {
        phase: Phase,
        /// It was made after the pod had ended: nothing is left to report.
        is_end: bool,
    },
    /// The node goes down and takes its pods with it; they get at most this much grace (PL-62).
    Shutdown {
        grace_max: Duration,
    },
    /// All that ran of the pod is gone, with the machine or the nursery. The ends of the containers are still to be told
    /// (PL-28).
    SandboxLost,
    /// The pod uses more than it said it would and must go (PL-67).
    Evicted {
        message: String,
    },
    /// Nothing but time.
    Tick,
}

/// What may change about a pod while it is on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Set once the pod is being deleted: the grace that the API granted.
    pub deletion_grace_seconds: Option<i64>,
    pub generation: Option<i64>,
    /// A terminal one that somebody else wrote stops the pod (PL-38).
    pub phase: Phase,
    /// That of a terminal phase.
    pub reason: Option<String>,
    pub message: Option<String>,
    /// May be set, and made shorter, while the pod runs.
    pub active_deadline_seconds: Option<i64>,
    pub unmet_gates: Option<String>,
}

impl Observed {
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let of_end = |text: &Option<String>| text.clone().filter(|_| pod.status.phase.is_terminal());
        Self {
            deletion_grace_seconds: meta
                .deletion_timestamp
                .as_ref()
                .map(|_| meta.deletion_grace_period_seconds.unwrap_or_else(|| pod.spec.grace_seconds())),
            generation: meta.generation,
            phase: pod.status.phase,
            reason: of_end(&pod.status.reason),
            message: of_end(&pod.status.message),
            active_deadline_seconds: pod.spec.active_deadline_seconds,
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
    /// Nothing starts before the end of everything is known; then the pod begins anew.
    is_sandbox_lost: bool,
    /// The phase the API was last told, or told us; a terminal one stays (PL-2).
    phase: Phase,
    /// Those of the end, reported with it.
    reason: Option<String>,
    message: Option<String>,
    transitions: Transitions,
    unmet_gates: Option<String>,
    deletion_grace: Option<Duration>,
    active_deadline: Option<ActiveDeadline>,
    is_rejected: bool,
    /// Failed whatever its containers did.
    is_forced: bool,
    /// The end is the node's doing, not the pod's: DisruptionTarget.
    is_disrupted: bool,
    is_gone: bool,
    /// The API knows how all containers ended.
    has_reported_end: bool,
    is_delete_sent: bool,
}

/// `activeDeadlineSeconds` and when they are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActiveDeadline {
    seconds: i64,
    at: Duration,
}

impl ActiveDeadline {
    /// Counted from when the node first saw the pod (PL-57).
    fn new(seconds: i64, start_time: Timestamp, now: Moment) -> Self {
        let left = whole_seconds(seconds).saturating_sub(now.since_wall(start_time));
        Self { seconds, at: now.elapsed + left }
    }
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
        let message = match reason {
            // The one text that says so already.
            "NodeShutdown" => text.to_owned(),
            _ => format!("Pod was rejected: {text}"),
        };
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
        self.spec.container(index)
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

    /// Does the API know how the pod ended?
    pub fn has_reported_end(&self) -> bool {
        self.has_reported_end
    }

    /// Why the pod as a whole ends or has ended, if it is not by its containers.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Since when this instance runs, if it does.
    pub fn running_since(&self, index: Index, attempt: u32) -> Option<Timestamp> {
        match self.containers.get(index)?.state {
            State::Running { since } if self.is_current(index, attempt) => Some(since),
            _ => None,
        }
    }

    /// May this instance run, as far as the pod knows?
    pub fn is_current(&self, index: Index, attempt: u32) -> bool {
        self.containers.get(index).is_some_and(|container| match container.starting {
            Some(starting) => starting == attempt,
            None => container.is_running() && container.attempt == attempt,
        })
    }

    /// Has the pod's object gone?
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// When [`Input::Tick`] is due.
    pub fn wake(&self) -> Option<Duration> {
        let preparation = match self.preparation {
            Preparation::Wanted { not_before, .. } if self.stage == Stage::Working => Some(not_before),
            _ => None,
        };
        let deadline = self.active_deadline.map(|deadline| deadline.at).filter(|_| self.stage == Stage::Working);
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
