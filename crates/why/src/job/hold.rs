//! One thing that holds a Job up. An answer puts several together.

use jiff::Timestamp;

use crate::answer::{Answer, Evidence, Next, State};
use crate::snapshot::Snapshot;

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) state: State,
    /// A whole sentence.
    pub(super) sentence: String,
    pub(super) since: Option<Timestamp>,
    pub(super) next: Vec<Next>,
    pub(super) actions: Vec<String>,
    pub(super) evidence: Vec<Evidence>,
}

impl Hold {
    pub(super) fn new(state: State, sentence: impl Into<String>) -> Self {
        let (next, actions, evidence) = (Vec::new(), Vec::new(), Vec::new());
        Self { state, sentence: sentence.into(), since: None, next, actions, evidence }
    }

    pub(super) fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    pub(super) fn next(mut self, what: impl Into<String>, at: Option<Timestamp>) -> Self {
        self.next.push(Next { what: what.into(), at });
        self
    }

    pub(super) fn action(mut self, action: impl Into<String>) -> Self {
        self.actions.push(action.into());
        self
    }

    pub(super) fn actions(mut self, actions: impl IntoIterator<Item = &'static str>) -> Self {
        self.actions.extend(actions.into_iter().map(str::to_owned));
        self
    }

    pub(super) fn evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }
}

/// More reasons than this in one answer are not read.
const HOLDS_MAX: usize = 3;

/// The first one gives the state; `None` if nothing holds the Job up.
pub(super) fn combine(snapshot: &Snapshot, holds: Vec<Hold>) -> Option<Answer> {
    let mut holds = holds.into_iter().take(HOLDS_MAX);
    let first = holds.next()?;
    let mut answer = Answer::new(snapshot, first.state, first.sentence).since(first.since);
    answer.next = first.next;
    answer.actions = first.actions;
    answer.evidence = first.evidence;
    for hold in holds {
        answer.summary.push(' ');
        answer.summary.push_str(&hold.sentence);
        answer.next.extend(hold.next);
        answer = hold.actions.into_iter().fold(answer, Answer::action).evidence(hold.evidence);
    }
    Some(answer)
}
