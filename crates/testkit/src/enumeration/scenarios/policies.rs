//! Failure policies, success policies, limits per index, replacement policies.

use serde_json::{Value, json};

use super::{Scenario, start, then};
use crate::world::{Behaviour, PodFacts, Reports, Step, What, When};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::job(
        "per-index",
        |pod| Behaviour::ends(i32::from(pod.index == Some(1)), 1_000),
        || start(json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1})),
        "Failed(FailedIndexes) FailureTarget(FailedIndexes) active=0 ready=0 terminating=0 succeeded=1 failed=2 \
         completedIndexes=0 failedIndexes=1 | live=0 tracked=0",
    ),
    Scenario {
        // The index that still runs is failed too if it ends before the verdict is on record.
        failed_varies: true,
        ..Scenario::job(
            "max-failed-indexes",
            |pod| match pod.index {
                Some(0) => Behaviour::ends(1, 1_000),
                _ => Behaviour { stop_ms: 3_000, ..Behaviour::runs() },
            },
            || {
                start(json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed",
                    "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}))
            },
            "Failed(MaxFailedIndexesExceeded)",
        )
    },
    Scenario {
        // The second pod is not made any more if the first one has failed by then.
        failed_varies: true,
        ..Scenario::job(
            "policy-fail-job",
            |pod| match pod.ordinal {
                0 => Behaviour::ends(42, 1_000),
                _ => Behaviour { stop_ms: 3_000, ..Behaviour::runs() },
            },
            || start(json!({"completions": 2, "parallelism": 2, "podFailurePolicy": policy("FailJob")})),
            "Failed(PodFailurePolicy) FailureTarget(PodFailurePolicy) active=0 ready=0 terminating=0 succeeded=0 failed=2",
        )
    },
    Scenario::job(
        "policy-ignore",
        first_exits_42,
        || start(json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": policy("Ignore")})),
        "succeeded=1 failed=0 | live=0 tracked=0",
    ),
    Scenario::job(
        "policy-count",
        first_exits_42,
        || start(json!({"completions": 1, "podFailurePolicy": policy("Count")})),
        "succeeded=1 failed=1 | live=0 tracked=0",
    ),
    Scenario::job(
        "policy-fail-index",
        |pod| match pod.index {
            Some(0) => Behaviour::ends(42, 1_000),
            _ => Behaviour::ends(0, 2_000),
        },
        || {
            start(json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3,
                "podFailurePolicy": policy("FailIndex")}))
        },
        "succeeded=1 failed=1 completedIndexes=1 failedIndexes=0 | live=0 tracked=0",
    ),
    // A failure without an exit code matches no rule about exit codes, and counts for its index (P-15).
    Scenario::job(
        "odd-pods-policy",
        |pod| match (pod.index, pod.attempt) {
            (Some(0), 0) => Behaviour { reports: Reports::Bare, ..Behaviour::ends(42, 1_000) },
            (Some(0), _) => Behaviour { reports: Reports::Timeless, ..Behaviour::ends(42, 1_000) },
            _ => Behaviour { reports: Reports::Bare, ..Behaviour::ends(0, 2_000) },
        },
        || {
            start(json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3,
                "podFailurePolicy": policy("FailIndex")}))
        },
        "succeeded=1 failed=2 completedIndexes=1 failedIndexes=0 | live=0 tracked=0",
    ),
    Scenario {
        failed_varies: true,
        ..Scenario::job(
            "success-policy",
            |pod| match pod.index {
                Some(0) => Behaviour::ends(0, 1_000),
                _ => Behaviour { stop_ms: 3_000, ..Behaviour::runs() },
            },
            || {
                start(json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed",
                    "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}))
            },
            "Complete(SuccessPolicy) SuccessCriteriaMet(SuccessPolicy) active=0 ready=0 terminating=0 succeeded=1",
        )
    },
    // A deleted pod takes long to stop; its replacement waits for it (REG-C01).
    Scenario::job(
        "replacement-failed",
        first_is_slow,
        || {
            let delete = Step::new(When::Pods("Running", 2), What::DeletePods(1));
            then(start(json!({"completions": 2, "parallelism": 2, "podReplacementPolicy": "Failed"})), [delete])
        },
        "succeeded=2 failed=1 | live=0 tracked=0",
    ),
    Scenario::job(
        "replacement-terminating",
        first_is_slow,
        || {
            let delete = Step::new(When::Pods("Running", 2), What::DeletePods(1));
            then(start(json!({"completions": 2, "parallelism": 2})), [delete])
        },
        "succeeded=2 failed=1 | live=0 tracked=0",
    ),
    Scenario::job(
        "replacement-failed-indexed",
        first_is_slow,
        || {
            let delete = Step::new(When::Pods("Running", 2), What::DeletePods(1));
            let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed",
                "podReplacementPolicy": "Failed"});
            then(start(spec), [delete])
        },
        "succeeded=2 failed=1 completedIndexes=0,1 | live=0 tracked=0",
    ),
];

/// Exit code 42 leads to this.
fn policy(action: &str) -> Value {
    json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]})
}

fn first_exits_42(pod: &PodFacts) -> Behaviour {
    Behaviour::ends(if pod.ordinal == 0 { 42 } else { 0 }, 1_000)
}

/// The first two run until they are deleted, or for long.
fn first_is_slow(pod: &PodFacts) -> Behaviour {
    match pod.ordinal {
        0 | 1 => Behaviour { stop_ms: 4_000, ..Behaviour::ends(0, 30_000) },
        _ => Behaviour::ends(0, 1_000),
    }
}
