//! An answer, for people and for programs.
//!
//! As JSON its field names and the names of states are stable: fields may be added, never renamed (docs/why.md).

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::snapshot::Snapshot;
use crate::words::{instant, relative};

/// What an object is waiting for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub state: State,
    /// The answer in one or two sentences.
    pub summary: String,
    /// Since when the state holds.
    #[serde(serialize_with = "whole_seconds", skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What happens next without anybody doing anything, soonest first.
    pub next: Vec<Next>,
    /// What the user can do; commands where there is one.
    pub actions: Vec<String>,
    /// What the answer rests on.
    pub evidence: Vec<Evidence>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
    /// When the question was asked.
    #[serde(serialize_with = "whole_second")]
    pub now: Timestamp,
}

/// Something that will happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    pub what: String,
    /// `None` if only the order is known, not the time.
    #[serde(serialize_with = "whole_seconds", skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The object that shows it, as `kind/name`.
    pub about: String,
    pub text: String,
    #[serde(serialize_with = "whole_seconds", skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// In one word, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum State {
    // Any kind.
    Deleting,
    Suspended,
    Running,
    Failed,
    // Jobs.
    Complete,
    /// Success is decided; pods are still ending.
    Completing,
    /// Failure is decided; pods are still ending.
    Failing,
    /// Nobody works on the object.
    NoController,
    /// The API refuses the Job's pods: quota, webhook, policy.
    PodsRefused,
    /// Replacements wait until old pods have ended.
    WaitingForTerminatingPods,
    BackingOff,
    /// Between two steps of its controller.
    Starting,
    // Pods, and Jobs whose pods are all like that.
    Unschedulable,
    SchedulingGated,
    CannotStart,
    Restarting,
    NodeLost,
    Succeeded,
    // CronJobs.
    Scheduled,
    Blocked,
    Overdue,
    InvalidSchedule,
    NeverScheduled,
    DeadlineTooShort,
}

impl Answer {
    pub(crate) fn new(snapshot: &Snapshot, state: State, summary: impl Into<String>) -> Self {
        let object = snapshot.subject();
        Self {
            kind: snapshot.kind.as_str(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            state,
            summary: summary.into(),
            since: None,
            next: Vec::new(),
            actions: Vec::new(),
            evidence: Vec::new(),
            unseen: snapshot.unseen.clone(),
            now: snapshot.now,
        }
    }

    pub(crate) fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }

    pub(crate) fn next(mut self, what: impl Into<String>, at: Option<Timestamp>) -> Self {
        self.next.push(Next { what: what.into(), at });
        self
    }

    pub(crate) fn action(mut self, action: impl Into<String>) -> Self {
        let action = action.into();
        if !self.actions.contains(&action) {
            self.actions.push(action);
        }
        self
    }

    pub(crate) fn evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        for item in evidence {
            if !self.evidence.contains(&item) {
                self.evidence.push(item);
            }
        }
        self
    }

    /// What comes soonest is said first; what has no time keeps its place after it.
    pub(crate) fn in_order(mut self) -> Self {
        self.next.sort_by_key(|next| (next.at.is_none(), next.at));
        self
    }

    /// The answer for people: the answer itself, then details, then evidence.
    pub fn text(&self) -> String {
        let mut text = format!("{}/{}: {}\n", self.kind.to_lowercase(), self.name, self.summary);
        let mut lines = Lines { text: &mut text, label: "" };
        lines.label = "since";
        if let Some(since) = self.since {
            lines.push(&format!("{} ({})", instant(since), relative(since, self.now)));
        }
        lines.label = "next";
        for next in &self.next {
            lines.push(&match next.at {
                Some(at) => format!("{}: {} ({})", instant(at), next.what, relative(at, self.now)),
                None => next.what.clone(),
            });
        }
        lines.label = "do";
        for action in &self.actions {
            lines.push(action);
        }
        if !self.evidence.is_empty() {
            text.push_str("\nevidence:\n");
        }
        for Evidence { about, text: fact, at } in &self.evidence {
            let age = at.map(|at| format!(" ({})", relative(at, self.now))).unwrap_or_default();
            let _ = writeln!(text, "  {about}: {fact}{age}");
        }
        if !self.unseen.is_empty() {
            text.push_str("\ncould not see:\n");
        }
        for unseen in &self.unseen {
            let _ = writeln!(text, "  {unseen}");
        }
        text
    }
}

/// Lines under one label, which is written once.
struct Lines<'a> {
    text: &'a mut String,
    label: &'static str,
}

impl Lines<'_> {
    fn push(&mut self, line: &str) {
        let label = std::mem::take(&mut self.label);
        let _ = writeln!(self.text, "  {label:<6} {line}");
    }
}

impl Evidence {
    pub(crate) fn new(about: impl Into<String>, text: impl Into<String>, at: Option<Timestamp>) -> Self {
        Self { about: about.into(), text: text.into(), at }
    }
}

fn whole_second<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&instant(*time))
}

fn whole_seconds<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => whole_second(time, serializer),
        None => serializer.serialize_none(),
    }
}
