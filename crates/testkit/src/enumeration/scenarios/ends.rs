//! The ways in which a Job ends before its time.

use serde_json::json;

use super::{Scenario, start, then};
use crate::world::{Behaviour, JOBS, Step, What, When, edit};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::job(
        "backoff-limit",
        |pod| match pod.ordinal {
            1 => Behaviour { stop_ms: 5_000, ..Behaviour::runs() },
            _ => Behaviour::ends(1, 1_000),
        },
        || start(json!({"completions": 2, "parallelism": 2, "backoffLimit": 1})),
        "Failed(BackoffLimitExceeded) FailureTarget(BackoffLimitExceeded) active=0 ready=0 terminating=0 succeeded=0 failed=3",
    ),
    Scenario {
        // The deadline passes before the first pod is made.
        stalls_matter: true,
        ..Scenario::job(
            "deadline",
            |_| Behaviour { stop_ms: 5_000, ..Behaviour::runs() },
            || start(json!({"completions": 2, "parallelism": 2, "activeDeadlineSeconds": 20})),
            "Failed(DeadlineExceeded) FailureTarget(DeadlineExceeded) active=0 ready=0 terminating=0 succeeded=0 failed=2",
        )
    },
    Scenario {
        // It ends before its resumption is written down, and keeps the condition.
        stalls_matter: true,
        suspended_varies: true,
        ..Scenario::job(
            "suspend-running",
            // They run for longer than any cache lies.
            |pod| Behaviour { stop_ms: 3_000, ..Behaviour::ends(0, if pod.ordinal < 2 { 150_000 } else { 6_000 }) },
            || {
                let suspend = edit(When::Pods("Running", 2), "a", json!({"spec": {"suspend": true}}));
                let resume = edit(When::Condition("a", "Suspended"), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 2, "parallelism": 2})), [suspend, resume])
            },
            "succeeded=2 failed=0 | live=0 tracked=0",
        )
    },
    Scenario {
        // It ends before its resumption is written down, and keeps the condition.
        stalls_matter: true,
        suspended_varies: true,
        ..Scenario::job(
            "suspend-pending",
            // They need longer to start than any refused creation needs to be repeated.
            |pod| Behaviour { start_ms: Some(if pod.ordinal < 2 { 90_000 } else { 200 }), ..Behaviour::ends(0, 1_000) },
            || {
                let suspend = edit(When::Pods("Pending", 2), "a", json!({"spec": {"suspend": true}}));
                let resume = edit(When::Condition("a", "Suspended"), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 2, "parallelism": 2})), [suspend, resume])
            },
            "succeeded=2 failed=0 | live=0 tracked=0",
        )
    },
    // One pod ends in the moment in which the other is taken away.
    Scenario {
        // It ends before its resumption is written down, and keeps the condition.
        stalls_matter: true,
        suspended_varies: true,
        ..Scenario::job(
            "suspend-ending",
            // One whose removal fails is still there when the Job is resumed, and ends some day.
            |pod| if pod.ordinal < 2 { Behaviour::ends(0, 60_000) } else { Behaviour::ends(0, 1_000) },
            || {
                let end = Step::new(When::Pods("Running", 2), What::EndPods(1, 0));
                let suspend = edit(When::After(0), "a", json!({"spec": {"suspend": true}}));
                let resume = edit(When::Condition("a", "Suspended"), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 2, "parallelism": 2})), [end, suspend, resume])
            },
            "succeeded=2 failed=0 | live=0 tracked=0",
        )
    },
    Scenario {
        // The pod that a user deletes counts as failed, unless it is taken for surplus before that is seen.
        failed_varies: true,
        suspended_varies: true,
        ..Scenario::job(
            "suspend-terminating",
            |pod| match pod.ordinal {
                0 | 1 => Behaviour { stop_ms: 4_000, ..Behaviour::ends(0, 60_000) },
                _ => Behaviour::ends(0, 1_000),
            },
            || {
                let delete = Step::new(When::Pods("Running", 2), What::DeletePods(1));
                let suspend = edit(When::After(0), "a", json!({"spec": {"suspend": true}}));
                let resume = edit(When::Condition("a", "Suspended"), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 2, "parallelism": 2})), [delete, suspend, resume])
            },
            "succeeded=2",
        )
    },
    Scenario {
        suspended_varies: true,
        ..Scenario::job(
            "suspended-from-the-start",
            |_| Behaviour::ends(0, 1_000),
            || {
                let resume = edit(When::Condition("a", "Suspended"), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 1, "suspend": true})), [resume])
            },
            "succeeded=1 failed=0 | live=0 tracked=0",
        )
    },
    // Before any controller has seen it.
    Scenario {
        suspended_varies: true,
        ..Scenario::job(
            "suspend-at-once",
            |_| Behaviour::ends(0, 1_000),
            || {
                let suspend = edit(When::After(0), "a", json!({"spec": {"suspend": true}}));
                let resume = edit(When::After(30_000), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 1})), [suspend, resume])
            },
            "succeeded=1 failed=0 | live=0 tracked=0",
        )
    },
    Scenario::job(
        "deleted-while-ending",
        |_| Behaviour::ends(0, 1_000),
        || {
            let end = Step::new(When::Pods("Running", 2), What::EndPods(1, 0));
            let delete = Step::new(When::After(0), What::Delete(JOBS, "a", "Background"));
            then(start(json!({"completions": 2, "parallelism": 2})), [end, delete])
        },
        "live=0 tracked=0",
    ),
    // Deleted, and another one made under the name, while its pods run (REG-C10, REG-C13).
    Scenario {
        // The deadline passes before the end of the pod is seen.
        stalls_matter: true,
        ..Scenario::job(
            "made-again",
            |_| Behaviour::ends(0, 2_000),
            || {
                let delete = Step::new(When::Pods("Running", 1), What::Delete(JOBS, "a", "Background"));
                let again = start(json!({"completions": 1, "activeDeadlineSeconds": 60}));
                then(then(start(json!({"completions": 1, "activeDeadlineSeconds": 60})), [delete]), again)
            },
            "succeeded=1 failed=0 | live=0 tracked=0",
        )
    },
];
