//! Objects of any shape get an answer.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::objects::now;
use crate::{Kind, Snapshot, explain};

/// Texts that mean something to the code, and others.
fn text() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "True",
        "False",
        "Failed",
        "Running",
        "Pending",
        "Succeeded",
        "Complete",
        "FailureTarget",
        "SuccessCriteriaMet",
        "Suspended",
        "PodScheduled",
        "Ready",
        "FailedCreate",
        "FailedScheduling",
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "2026-11-15T10:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "* * * * *",
        "0 0 31 2 *",
        "@every 1h",
        "n",
        "Indexed",
        "0-3,5",
        "PodFailurePolicy",
        "rule at index 99999999999999999999",
        "back-off 9223372036854775807s x",
        "Job",
        "Pod",
        "CronJob",
        "exceeded quota: ",
        "admission webhook \"",
        "a.b/c",
        "Local",
        "TZ=UTC * * * * *",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "finalizers",
        "ownerReferences",
        "controller",
        "kind",
        "annotations",
        "labels",
        "batch.kubernetes.io/job-completion-index",
        "conditions",
        "type",
        "reason",
        "message",
        "lastTransitionTime",
        "phase",
        "containerStatuses",
        "initContainerStatuses",
        "state",
        "lastState",
        "waiting",
        "terminated",
        "running",
        "exitCode",
        "finishedAt",
        "startedAt",
        "restartCount",
        "nodeName",
        "schedulingGates",
        "schedule",
        "timeZone",
        "startingDeadlineSeconds",
        "concurrencyPolicy",
        "suspend",
        "active",
        "succeeded",
        "failed",
        "failedIndexes",
        "completedIndexes",
        "completions",
        "parallelism",
        "backoffLimit",
        "backoffLimitPerIndex",
        "completionMode",
        "managedBy",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "startTime",
        "lastScheduleTime",
        "rules",
        "podFailurePolicy",
        "successPolicy",
        "podReplacementPolicy",
        "involvedObject",
        "regarding",
        "lastTimestamp",
        "count",
        "hard",
        "used",
        "renewTime",
        "leaseDurationSeconds",
        "taints",
        "key",
        "effect",
        "jobTemplate",
    ])
    .prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => text().prop_map(Value::from),
        2 => prop::sample::select(vec![i64::MIN, -1, 0, 1, 3, 60, i64::from(i32::MAX), i64::MAX]).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<f64>().prop_map(Value::from),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            4 => prop::collection::vec((key(), inner.clone()), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array),
        ]
    })
}

/// What looks like an object reaches further into the code than noise does.
fn object() -> impl Strategy<Value = Value> {
    let part = || prop::collection::vec((key(), any_json()), 0..12);
    (part(), part(), part()).prop_map(|(metadata, spec, status)| {
        let map = |members: Vec<(String, Value)>| Value::Object(members.into_iter().collect());
        let mut object = Map::new();
        object.insert("metadata".to_owned(), map(metadata));
        object.insert("spec".to_owned(), map(spec));
        object.insert("status".to_owned(), map(status));
        Value::Object(object)
    })
}

fn objects() -> impl Strategy<Value = Option<Vec<Value>>> {
    prop::option::of(prop::collection::vec(prop_oneof![object(), any_json()], 0..4))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_objects_get_an_answer(
        object in prop_oneof![4 => object(), 1 => any_json()],
        lists in (objects(), objects(), objects(), objects(), objects(), objects()),
    ) {
        let (pods, jobs, events, nodes, leases, quotas) = lists;
        for kind in [Kind::Job, Kind::CronJob, Kind::Pod] {
            let snapshot = Snapshot {
                pods: pods.clone(), jobs: jobs.clone(), events: events.clone(), nodes: nodes.clone(),
                leases: leases.clone(), quotas: quotas.clone(),
                ..Snapshot::new(kind, object.clone(), now())
            };
            let answer = explain(&snapshot);
            prop_assert!(!answer.summary.is_empty());
            prop_assert!(answer.text().len() < 64 << 10);
            serde_json::to_string(&answer).unwrap();
        }
    }
}
