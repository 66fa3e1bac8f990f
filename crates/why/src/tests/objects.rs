//! Objects to ask about, and the question.

use expect_test::Expect;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{Kind, Snapshot, explain};

/// When everything is asked.
pub(super) const NOW: &str = "2026-11-15T10:10:00Z";

pub(super) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A time before now, or after it if negative.
pub(super) fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// `base` with everything in `more` added or replaced, members of objects one by one.
pub(super) fn with(mut base: Value, more: Value) -> Value {
    merge(&mut base, more);
    base
}

fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}

/// A Job that was created five minutes ago and that its controller knows.
pub(super) fn job(more: Value) -> Value {
    let base = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "pi", "namespace": "default", "uid": "job-uid", "creationTimestamp": ago(300)},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
                 "podReplacementPolicy": "TerminatingOrFailed",
                 "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "perl"}]}}},
        "status": {"startTime": ago(300), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}},
    });
    with(base, more)
}

/// A Job as its creator left it.
pub(super) fn untouched_job(more: Value) -> Value {
    let mut job = job(more);
    job["status"] = json!({});
    job
}

/// A pod of that Job, running since a minute ago.
pub(super) fn pod(name: &str, more: Value) -> Value {
    let base = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("{name}-uid"), "creationTimestamp": ago(60),
            "labels": {"batch.kubernetes.io/job-name": "pi"}, "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "pi", "uid": "job-uid", "controller": true}],
        },
        "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "main", "image": "perl"}]},
        "status": {
            "phase": "Running", "startTime": ago(60),
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(60)},
                {"type": "Ready", "status": "True", "lastTransitionTime": ago(58)},
            ],
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "image": "perl", "imageID": "",
                                   "state": {"running": {"startedAt": ago(58)}}, "lastState": {}}],
        },
    });
    with(base, more)
}

/// A pod without a node.
pub(super) fn pending(name: &str, more: Value) -> Value {
    let mut pod = pod(name, json!({"spec": {"nodeName": null}}));
    pod["status"] = json!({"phase": "Pending"});
    with(pod, more)
}

/// A pod whose container waits.
pub(super) fn waiting(name: &str, reason: &str, message: &str) -> Value {
    let status = json!({"name": "main", "ready": false, "restartCount": 0,
                        "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {}});
    pod(name, json!({"status": {"phase": "Pending", "containerStatuses": [status]}}))
}

/// A pod that failed so long ago.
pub(super) fn failed(name: &str, seconds_ago: i64, code: i32) -> Value {
    ended(name, "Failed", seconds_ago, code)
}

pub(super) fn ended(name: &str, phase: &str, seconds_ago: i64, code: i32) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    let status = json!({"name": "main", "ready": false, "restartCount": 0, "lastState": {}, "state": {"terminated":
        {"exitCode": code, "reason": reason, "startedAt": ago(seconds_ago + 5), "finishedAt": ago(seconds_ago)}}});
    pod(name, json!({"status": {"phase": phase, "containerStatuses": [status]}}))
}

pub(super) fn indexed(pod: Value, index: u32) -> Value {
    with(pod, json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()}}}))
}

/// Being deleted: the grace period of 30 s ends in so many seconds.
pub(super) fn deleting(pod: Value, ends_in: i64) -> Value {
    with(pod, json!({"metadata": {"deletionTimestamp": ago(-ends_in), "deletionGracePeriodSeconds": 30}}))
}

pub(super) fn event(kind: &str, name: &str, reason: &str, message: &str, seconds_ago: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.1"), "namespace": "default"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "default"},
        "reason": reason, "message": message, "type": "Warning", "count": 3,
        "firstTimestamp": ago(seconds_ago + 60), "lastTimestamp": ago(seconds_ago),
    })
}

pub(super) fn condition(kind: &str, reason: &str, message: &str, seconds_ago: i64) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": ago(seconds_ago)})
}

pub(super) fn node(name: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions":
        [{"type": "Ready", "status": ready, "lastTransitionTime": ago(400)}]}})
}

/// A Job, its pods and events about both; one healthy node.
pub(super) fn about_job(job: Value, pods: Vec<Value>, events: Vec<Value>) -> Snapshot {
    Snapshot {
        pods: Some(pods),
        events: Some(events),
        nodes: Some(vec![node("n1", "True")]),
        leases: Some(Vec::new()),
        quotas: Some(Vec::new()),
        ..Snapshot::new(Kind::Job, job, now())
    }
}

pub(super) fn about_pod(pod: Value, events: Vec<Value>) -> Snapshot {
    Snapshot { events: Some(events), nodes: Some(vec![node("n1", "True")]), ..Snapshot::new(Kind::Pod, pod, now()) }
}

pub(super) fn check(snapshot: &Snapshot, expected: Expect) {
    expected.assert_eq(&explain(snapshot).text());
}
