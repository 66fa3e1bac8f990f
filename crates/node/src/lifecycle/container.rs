//! One container of a pod: which instance is current, what it does, what became of the one before.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use super::probe::Probes;
use super::restart::Backoff;
use super::stop::Stop;
use crate::pod;

/// The code of processes that could not be started (PL-53).
pub(crate) const START_ERROR_CODE: i32 = 128;
/// The code of containers whose end nobody saw (PL-16).
const LOST_CODE: i32 = 137;
const LOST_REASON: &str = "ContainerStatusUnknown";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Init,
    /// An init container with restartPolicy Always (PL-24).
    Sidecar,
    Regular,
}

impl Kind {
    pub(crate) fn of_init(container: &pod::Container) -> Self {
        match container.restart_policy {
            Some(pod::RestartPolicy::Always) => Self::Sidecar,
            _ => Self::Init,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Waiting { reason: &'static str, message: Option<String> },
    Running { since: Timestamp },
    Terminated(Exit),
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub reason: Cow<'static, str>,
    pub message: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Whether there ever was an instance, and so a container id.
    pub has_instance: bool,
}

impl Exit {
    /// The process ended with this code: `Completed` or `Error`.
    pub fn with_code(code: i32, started_at: Option<Timestamp>, finished_at: Timestamp) -> Self {
        let reason = if code == 0 { "Completed" } else { "Error" };
        Self {
            code,
            reason: reason.into(),
            message: None,
            started_at,
            finished_at: Some(finished_at),
            has_instance: true,
        }
    }

    /// The container never began, or nothing is known of it (PL-16).
    pub fn lost() -> Self {
        Self {
            code: LOST_CODE,
            reason: LOST_REASON.into(),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            started_at: None,
            finished_at: None,
            has_instance: false,
        }
    }

    /// Nobody saw how the container ended; that it had was noticed then. One that had started keeps its id, by which its
    /// log is found (PL-124).
    pub fn unseen(started_at: Option<Timestamp>, noticed_at: Timestamp) -> Self {
        let has_instance = started_at.is_some();
        Self { started_at, finished_at: Some(noticed_at), has_instance, ..Self::lost() }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.reason == LOST_REASON
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) kind: Kind,
    pub(crate) state: State,
    /// The end of the previous instance.
    pub(crate) last: Option<Box<Exit>>,
    /// Number of the newest instance, counted from 0.
    pub(crate) attempt: u32,
    /// The attempt that was ordered and whose start has not been reported.
    pub(crate) starting: Option<u32>,
    /// When the newest instance ended, to measure back-off from.
    pub(crate) ended_at: Duration,
    /// The rules want this terminated container started again.
    pub(crate) restartable: bool,
    /// What it did, it did in a sandbox that was lost; in the present one it has not run (PL-28).
    pub(crate) is_of_past: bool,
    /// The last end, and its attempt, of an init container that was done once. The API does not let it leave that end
    /// (AS-176), so if it runs again this is shown until there is another.
    pub(crate) done_before: Option<Box<(Exit, u32)>>,
    /// No start before this moment.
    pub(crate) not_before: Option<Duration>,
    /// Starts in a row that failed for want of configuration.
    pub(crate) config_failures: u32,
    /// A postStart hook has not ended yet.
    pub(crate) post_start_pending: bool,
    pub(crate) probes: Probes,
    pub(crate) backoff: Backoff,
    pub(crate) stop: Option<Stop>,
}

impl Container {
    pub(crate) fn new(kind: Kind, waiting_reason: &'static str) -> Self {
        Self {
            kind,
            state: State::Waiting { reason: waiting_reason, message: None },
            last: None,
            attempt: 0,
            starting: None,
            ended_at: Duration::ZERO,
            restartable: false,
            is_of_past: false,
            done_before: None,
            not_before: None,
            config_failures: 0,
            post_start_pending: false,
            probes: Probes::default(),
            backoff: Backoff::default(),
            stop: None,
        }
    }

    /// May a process of this container exist?
    pub(crate) fn is_live(&self) -> bool {
        self.starting.is_some() || self.is_running()
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// The end of the newest instance, if that has ended: current, or last while waiting to start again.
    pub(crate) fn newest_exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Terminated(exit) => Some(exit),
            State::Waiting { .. } => self.last.as_deref(),
            State::Running { .. } => None,
        }
    }

    /// "waiting" of PL-5: not running and never ran.
    pub(crate) fn never_ran(&self) -> bool {
        matches!(self.state, State::Waiting { .. }) && self.last.is_none()
    }

    /// Has it run in the sandbox that the pod has now?
    pub(crate) fn has_run_here(&self) -> bool {
        !self.never_ran() && !self.is_of_past
    }

    /// Is it to be started as soon as its turn and its back-off allow?
    pub(crate) fn is_wanted(&self) -> bool {
        let begins_anew = self.is_of_past && matches!(self.state, State::Waiting { .. });
        !self.is_live() && (begins_anew || self.restartable || self.newest_exit().is_none())
    }

    /// Nothing of it runs, and nothing of it will.
    pub(crate) fn is_over(&self) -> bool {
        self.starting.is_none() && self.newest_exit().is_some() && !self.restartable
    }

    /// The API's restartCount (PL-29). An instance that was lost counts as restarted as soon as that is noticed, and not
    /// again when it is (PL-16).
    pub(crate) fn restart_count(&self) -> u32 {
        self.attempt + u32::from(self.was_lost())
    }

    /// Whether the newest instance ran and nobody saw its end.
    pub(crate) fn was_lost(&self) -> bool {
        self.newest_exit().is_some_and(|exit| exit.is_lost() && exit.has_instance)
    }

    pub(crate) fn next_attempt(&self) -> u32 {
        if self.never_ran() { self.attempt } else { self.attempt + 1 }
    }

    /// Running, startup probe passed, postStart hook done (PL-58).
    pub(crate) fn is_started(&self) -> bool {
        self.is_running() && !self.post_start_pending && self.probes.has_started()
    }

    pub(crate) fn is_ready(&self) -> bool {
        match (&self.state, self.kind) {
            (State::Terminated(exit), Kind::Init) => exit.code == 0,
            (State::Running { .. }, Kind::Sidecar | Kind::Regular) => self.is_started() && self.probes.is_ready(),
            _ => false,
        }
    }

    /// A plain init container that is over and done with, or a sidecar that others may rely on.
    pub(crate) fn lets_next_start(&self) -> bool {
        match self.kind {
            Kind::Init => matches!(&self.state, State::Terminated(exit) if exit.code == 0),
            Kind::Sidecar => self.is_started(),
            Kind::Regular => false,
        }
    }

    pub(crate) fn set_waiting(&mut self, reason: &'static str, message: Option<String>) {
        if let State::Terminated(exit) = &self.state {
            self.last = Some(Box::new(exit.clone()));
        }
        self.state = State::Waiting { reason, message };
    }

    /// The sandbox in which it ended was lost. It is started again when its turn comes, unless it is a regular container
    /// that is done (PL-28).
    pub(crate) fn begin_anew(&mut self, waiting_reason: &'static str) {
        self.is_of_past = true;
        self.keep_done();
        if self.kind != Kind::Regular || !self.is_over() {
            self.set_waiting(waiting_reason, None);
        }
    }

    /// Remembers the end of an init container that was done, before it is started again.
    pub(crate) fn keep_done(&mut self) {
        let done = self.newest_exit().filter(|exit| exit.code == 0 && self.kind == Kind::Init).cloned();
        self.done_before = done.map(|exit| Box::new((exit, self.attempt))).or_else(|| self.done_before.take());
    }

    pub(crate) fn set_running(&mut self, attempt: u32, since: Timestamp) {
        if let State::Terminated(exit) = &self.state {
            self.last = Some(Box::new(exit.clone()));
        }
        self.attempt = attempt;
        self.starting = None;
        self.is_of_past = false;
        self.not_before = None;
        self.config_failures = 0;
        self.state = State::Running { since };
    }

    pub(crate) fn set_terminated(&mut self, exit: Exit) {
        if let State::Terminated(previous) = &self.state {
            self.last = Some(Box::new(previous.clone()));
        }
        self.starting = None;
        self.is_of_past = false;
        self.post_start_pending = false;
        self.stop = None;
        if let Some(done) = &mut self.done_before {
            **done = (exit.clone(), self.attempt);
        }
        self.state = State::Terminated(exit);
    }
}
