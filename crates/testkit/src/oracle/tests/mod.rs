//! Teeth: for every check a history, made by hand, that breaks the promise, beside one that keeps it.

mod counting;
mod ownership;
mod pods;
mod population;
mod schedules;
mod verdicts;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::faults::{Announcement, Call, Fault, Read};

type Steps = Vec<(&'static str, i64, &'static str, Value)>;

/// 2026-01-05T10:00:00Z, where worlds begin.
const START: i64 = 1_767_607_200;

fn at(seconds: i64) -> String {
    Timestamp::from_second(START + seconds).unwrap().to_string()
}

/// A Job `a` with the uid `j`.
fn job(spec: Value, status: Value) -> Value {
    let mut full = json!({"parallelism": 2, "completions": 2, "backoffLimit": 6});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": "a", "uid": "j"}, "spec": full, "status": status})
}

fn indexed(status: Value) -> Value {
    job(json!({"completionMode": "Indexed"}), status)
}

/// A tracked pod of the Job `j` whose uid is its name.
fn pod(name: &str, phase: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "uid": "j", "controller": true}]},
        "status": {"phase": phase}})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn untracked(name: &str, phase: &str) -> Value {
    with(pod(name, phase), "/metadata/finalizers", json!([]))
}

fn of_index(name: &str, phase: &str, index: u32) -> Value {
    with(
        pod(name, phase),
        "/metadata/annotations",
        json!({"batch.kubernetes.io/job-completion-index": index.to_string()}),
    )
}

fn deleting(object: Value) -> Value {
    with(object, "/metadata/deletionTimestamp", json!(at(0)))
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at(0)})
}

fn uncounted(succeeded: &[&str], failed: &[&str]) -> Value {
    json!({"succeeded": succeeded, "failed": failed})
}

fn invariants(findings: &Findings) -> Vec<&'static str> {
    let mut found: Vec<&str> = findings.violations.iter().map(|violation| violation.invariant).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Judges steps that do not have to come to rest.
fn judged(steps: &Steps) -> Findings {
    judge(&History::of(steps), Tolerance { settled: false, ..Tolerance::default() })
}

#[track_caller]
fn breaks(invariant: &str, steps: Steps) {
    let findings = judged(&steps);
    let found = invariants(&findings);
    assert!(found.contains(&invariant), "{invariant} is not among {found:?}: {:#?}", findings.violations);
}

#[track_caller]
fn keeps(steps: Steps) {
    let findings = judged(&steps);
    assert!(findings.violations.is_empty(), "{:#?}", findings.violations);
}

/// A Job and two pods of it that run.
fn begun() -> Steps {
    vec![
        ("world", START, "Job", job(json!({}), json!({}))),
        ("job", START, "Pod", pod("p", "Pending")),
        ("job", START, "Pod", pod("q", "Pending")),
        ("job", START, "Job", job(json!({}), json!({"startTime": at(0), "active": 2}))),
    ]
}

fn and(mut steps: Steps, more: Steps) -> Steps {
    steps.extend(more);
    steps
}

/// W1, R and W2 of the two pods, both succeeded, and the end.
fn completed() -> Steps {
    let met = condition("SuccessCriteriaMet", "CompletionsReached");
    let listed =
        json!({"startTime": at(0), "conditions": [met], "uncountedTerminatedPods": uncounted(&["p", "q"], &[])});
    let done = json!({"startTime": at(0), "completionTime": at(5), "succeeded": 2,
        "conditions": [met, condition("Complete", "CompletionsReached")]});
    and(
        begun(),
        vec![
            ("world", START + 5, "Pod", pod("p", "Succeeded")),
            ("world", START + 5, "Pod", pod("q", "Succeeded")),
            ("job", START + 5, "Job", job(json!({}), listed)),
            ("job", START + 5, "Pod", untracked("p", "Succeeded")),
            ("job", START + 5, "Pod", untracked("q", "Succeeded")),
            ("job", START + 5, "Job", job(json!({}), done)),
        ],
    )
}

fn status(status: Value) -> (&'static str, i64, &'static str, Value) {
    ("job", START + 6, "Job", job(json!({}), status))
}

/// A call of the Job controller.
fn call(life: u32, kind: &str, fault: Option<Fault>) -> Call {
    Call {
        life,
        controller: "job",
        kind: kind.to_owned(),
        path: String::new(),
        fault,
        code: 200,
        seen: 0,
        revision: 0,
        at: jiff::Timestamp::UNIX_EPOCH,
        unseen_pods: 0,
        uncounted: None,
        took_effect: false,
    }
}

#[test]
fn a_job_that_runs_as_it_should_is_clean() {
    keeps(completed());
    let findings = judge(&History::of(&completed()), Tolerance::default());
    assert!(findings.violations.is_empty(), "{:#?}", findings.violations);
}
