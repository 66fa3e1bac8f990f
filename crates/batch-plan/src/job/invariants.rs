//! What no status of ours may do, whatever has led to it.
//!
//! The plan and its tests see to that; this is the last look before a status is sent, in every build (invariants 3.10). What
//! was wrong before, because somebody else wrote it, is not held against us: otherwise nothing could go on.

use std::collections::HashSet;

use batch_types::constants::condition;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

/// A promise that a status would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    pub invariant: &'static str,
    pub what: &'static str,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

type Test = fn(&JobStatus) -> bool;

/// What can be wrong with a status in itself.
const ALONE: [(Test, Broken); 4] = [
    (has_odd_lists, Broken { invariant: "INV-5", what: "the lists of uncounted pods repeat a pod" }),
    (has_both_ends, Broken { invariant: "INV-7", what: "the Job is complete and failed" }),
    (repeats_conditions, Broken { invariant: "INV-7", what: "a condition is there twice" }),
    (is_busy_at_its_end, Broken { invariant: "INV-9", what: "the Job is finished with active or uncounted pods" }),
];

/// The promise that a status would break in the place of another one.
pub fn broken_by(before: &JobStatus, after: &JobStatus) -> Option<Broken> {
    let count = |count: Option<i32>| count.unwrap_or(0);
    if count(after.failed) < count(before.failed) {
        return Some(Broken { invariant: "INV-3", what: "the number of failed pods falls" });
    }
    // Of an Indexed Job it falls with `completions`.
    let is_indexed = before.completed_indexes.is_some() || after.completed_indexes.is_some();
    if !is_indexed && count(after.succeeded) < count(before.succeeded) {
        return Some(Broken { invariant: "INV-3", what: "the number of succeeded pods falls" });
    }
    let ends = [condition::COMPLETE, condition::FAILED];
    if ends.iter().any(|end| is_true(before, end) && !is_true(after, end)) {
        return Some(Broken { invariant: "INV-7", what: "the end of the Job is taken back" });
    }
    let new = ALONE.iter().find(|(is_wrong, _)| is_wrong(after) && !is_wrong(before));
    new.map(|(_, broken)| *broken)
}

fn has_odd_lists(status: &JobStatus) -> bool {
    let mut seen = HashSet::new();
    uncounted(status).any(|uid| uid.is_empty() || !seen.insert(uid))
}

fn has_both_ends(status: &JobStatus) -> bool {
    is_true(status, condition::COMPLETE) && is_true(status, condition::FAILED)
}

fn repeats_conditions(status: &JobStatus) -> bool {
    let types = || conditions(status).map(|condition| &condition.type_);
    types().enumerate().any(|(position, kind)| types().take(position).any(|earlier| earlier == kind))
}

fn is_busy_at_its_end(status: &JobStatus) -> bool {
    let finished = is_true(status, condition::COMPLETE) || is_true(status, condition::FAILED);
    finished && (status.active.unwrap_or(0) > 0 || uncounted(status).next().is_some())
}

fn is_true(status: &JobStatus, kind: &str) -> bool {
    conditions(status).any(|condition| condition.type_ == kind && condition.status == "True")
}

fn conditions(status: &JobStatus) -> impl Iterator<Item = &JobCondition> {
    status.conditions.iter().flatten()
}

fn uncounted(status: &JobStatus) -> impl Iterator<Item = &String> {
    let lists = status.uncounted_terminated_pods.iter();
    lists.flat_map(|lists| lists.succeeded.iter().flatten().chain(lists.failed.iter().flatten()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn broken(before: Value, after: Value) -> Option<&'static str> {
        let status = |value| serde_json::from_value::<JobStatus>(value).unwrap();
        broken_by(&status(before), &status(after)).map(|broken| broken.invariant)
    }

    fn ended(kinds: &[&str]) -> Value {
        json!(kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect::<Vec<_>>())
    }

    #[test]
    fn counters_and_ends_are_not_taken_back() {
        assert_eq!(broken(json!({"failed": 2}), json!({"failed": 1})), Some("INV-3"));
        assert_eq!(broken(json!({"succeeded": 2}), json!({})), Some("INV-3"));
        let indexed = |indexes: &str, succeeded| json!({"succeeded": succeeded, "completedIndexes": indexes});
        assert_eq!(broken(indexed("0-4", 5), indexed("0", 1)), None, "made smaller");
        assert_eq!(broken(indexed("2", 1), json!({"succeeded": 0})), None, "and nothing is left");
        let complete = || json!({"conditions": ended(&["Complete"])});
        assert_eq!(broken(complete(), json!({})), Some("INV-7"));
        assert_eq!(broken(complete(), complete()), None);
    }

    #[test]
    fn a_status_is_sound_in_itself() {
        let cases = [
            (json!({"uncountedTerminatedPods": {"failed": ["a", "b"], "succeeded": ["a"]}}), "INV-5"),
            (json!({"uncountedTerminatedPods": {"failed": [""]}}), "INV-5"),
            (json!({"conditions": ended(&["Complete", "Failed"])}), "INV-7"),
            (json!({"conditions": ended(&["Suspended", "Suspended"])}), "INV-7"),
            (json!({"conditions": ended(&["Failed"]), "active": 1}), "INV-9"),
            (json!({"conditions": ended(&["Failed"]), "uncountedTerminatedPods": {"failed": ["a"]}}), "INV-9"),
        ];
        for (status, invariant) in cases {
            assert_eq!(broken(json!({}), status.clone()), Some(invariant), "{status}");
            assert_eq!(broken(status.clone(), status), None, "somebody else's");
        }
    }
}
