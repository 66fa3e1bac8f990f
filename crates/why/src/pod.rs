//! A pod: which of its steps from a node to an end it is stuck on, if it is.
//!
//! [`diagnose`] finds the one thing that holds a pod up. A Job's answer puts the diagnoses of its pods together.

mod ending;
mod exit;
mod placement;
mod start;

use jiff::Timestamp;

use crate::answer::{Answer, Evidence, Next, State};
use crate::events::{self, Event};
use crate::object::Object;
use crate::snapshot::Snapshot;
use crate::words::foreign;

pub(crate) use exit::{failure, remedy};

/// Before this much time has passed, silence means nothing: everybody gets a moment to notice a new object.
pub(crate) const PATIENCE_SECS: i64 = 10;

/// What holds a pod up.
#[derive(Clone, Debug)]
pub(crate) struct Diagnosis {
    pub(crate) state: State,
    /// The cause, as the end of a sentence and the same for all pods that have it.
    pub(crate) cause: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) next: Vec<Next>,
    pub(crate) actions: Vec<String>,
    pub(crate) evidence: Vec<Evidence>,
}

impl Diagnosis {
    fn new(state: State, cause: impl Into<String>) -> Self {
        let (next, actions, evidence) = (Vec::new(), Vec::new(), Vec::new());
        Self { state, cause: cause.into(), since: None, next, actions, evidence }
    }

    fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    fn next(mut self, what: impl Into<String>, at: Option<Timestamp>) -> Self {
        self.next.push(Next { what: what.into(), at });
        self
    }

    fn action(mut self, action: impl Into<String>) -> Self {
        self.actions.push(action.into());
        self
    }

    fn actions(mut self, actions: impl IntoIterator<Item = &'static str>) -> Self {
        self.actions.extend(actions.into_iter().map(str::to_owned));
        self
    }

    fn evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// The state of one pod, or of several, as the beginning of a sentence.
    pub(crate) fn phrase(&self, count: u64) -> &'static str {
        let (one, many) = match self.state {
            State::Deleting => ("is being deleted", "are being deleted"),
            State::Unschedulable => ("has no node", "have no node"),
            State::SchedulingGated => ("is held back from scheduling", "are held back from scheduling"),
            State::CannotStart => ("cannot start", "cannot start"),
            State::Restarting => ("keeps failing and is restarted", "keep failing and are restarted"),
            State::NodeLost => ("is on a node that does not report", "are on nodes that do not report"),
            State::Starting => ("is starting", "are starting"),
            State::Succeeded => ("has succeeded", "have succeeded"),
            State::Failed => ("has failed", "have failed"),
            _ => ("is running", "are running"),
        };
        if count == 1 { one } else { many }
    }
}

/// What a diagnosis looks at.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    snapshot: &'a Snapshot,
    pod: Object<'a>,
    events: &'a [Event<'a>],
    now: Timestamp,
}

impl<'a> Case<'a> {
    fn about(&self) -> String {
        format!("pod/{}", foreign(self.pod.name()))
    }

    fn argument(&self) -> String {
        format!("pod/{}{}", foreign(self.pod.name()), namespace_flag(self.pod))
    }

    /// As `kubectl logs` takes it.
    fn logs_argument(&self) -> String {
        format!("{}{}", foreign(self.pod.name()), namespace_flag(self.pod))
    }

    /// The same for one container, which has to be named if there are others: kubectl would take the first regular one.
    fn logs_argument_of(&self, container: &str) -> String {
        let count = self.pod.list("/spec/initContainers").chain(self.pod.list("/spec/containers")).count();
        let is_init = self.pod.list("/spec/initContainers").any(|it| it.text("/name") == Some(container));
        match is_init || count > 1 {
            true => format!("{} -c {}", self.logs_argument(), foreign(container)),
            false => self.logs_argument(),
        }
    }

    fn age_secs(&self) -> i64 {
        self.pod.created().map_or(0, |created| self.now.duration_since(created).as_secs())
    }

    fn node(&self) -> Option<&'a str> {
        self.pod.text("/spec/nodeName")
    }
}

/// ` -n NAMESPACE` for commands, unless it is the default one.
pub(crate) fn namespace_flag(object: Object<'_>) -> String {
    match object.namespace() {
        "" | "default" => String::new(),
        namespace => format!(" -n {}", foreign(namespace)),
    }
}

/// The one thing that holds a pod up, or what it does.
pub(crate) fn diagnose(snapshot: &Snapshot, pod: Object<'_>) -> Diagnosis {
    let events = events::about(snapshot, "Pod", pod);
    let case = Case { snapshot, pod, events: &events, now: snapshot.now };
    if pod.is_deleting() {
        return ending::diagnose(case);
    }
    match pod.text("/status/phase") {
        Some("Succeeded") => exit::succeeded(case),
        Some("Failed") => exit::failed(case),
        _ if case.node().is_none() => placement::diagnose(case),
        _ => placement::lost_node(case).unwrap_or_else(|| start::diagnose(case)),
    }
}

pub(crate) fn explain(snapshot: &Snapshot) -> Answer {
    let pod = snapshot.subject();
    let diagnosis = diagnose(snapshot, pod);
    let separator = if diagnosis.cause.is_empty() { "" } else { ": " };
    let summary = format!("It {}{separator}{}.", diagnosis.phrase(1), diagnosis.cause);
    let mut answer = Answer::new(snapshot, diagnosis.state, summary).since(diagnosis.since);
    answer.next = diagnosis.next;
    answer = diagnosis.actions.into_iter().fold(answer, Answer::action).evidence(diagnosis.evidence);
    if let Some((kind, name)) = pod.controller() {
        let (kind, name) = (foreign(kind), foreign(name));
        let argument = format!("{}/{name}", kind.to_lowercase());
        let about = format!("pod/{}", foreign(pod.name()));
        answer = answer.evidence([Evidence::new(about, format!("belongs to {argument}"), None)]);
        if kind == "Job" {
            answer = answer.action(format!("tally why {argument}{}", namespace_flag(pod)));
        }
    }
    answer.in_order()
}
