//! Jobs that are made larger and smaller while they run.

use serde_json::json;

use super::{Scenario, start, then};
use crate::world::{Behaviour, When, edit};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::job(
        "parallelism-down-and-up",
        |pod| Behaviour { stop_ms: 2_000, ..Behaviour::ends(0, if pod.ordinal < 3 { 20_000 } else { 1_000 }) },
        || {
            let down = edit(When::Pods("Running", 3), "a", json!({"spec": {"parallelism": 1}}));
            let up = edit(When::Pods("Running", 1), "a", json!({"spec": {"parallelism": 3}}));
            then(start(json!({"completions": 3, "parallelism": 3})), [down, up])
        },
        "succeeded=3 failed=0 | live=0 tracked=0",
    ),
    Scenario::job(
        "parallelism-zero",
        |_| Behaviour { stop_ms: 2_000, ..Behaviour::ends(0, 5_000) },
        || {
            let down = edit(When::Pods("Running", 2), "a", json!({"spec": {"parallelism": 0}}));
            let up = edit(When::Pods("Running", 0), "a", json!({"spec": {"parallelism": 2}}));
            then(start(json!({"completions": 2, "parallelism": 2})), [down, up])
        },
        "succeeded=2 failed=0 | live=0 tracked=0",
    ),
    // Elastic: index 2 is completed when the Job shrinks, and runs again when it has grown (REG-C15).
    Scenario::job(
        "elastic",
        |pod| match pod.index {
            Some(2) => Behaviour::ends(0, 1_000),
            // Longer than any cache lies.
            _ => Behaviour { stop_ms: 1_000, ..Behaviour::ends(0, 150_000) },
        },
        || {
            let completed = When::Status("a", "completedIndexes", json!("2"));
            let down = edit(completed, "a", json!({"spec": {"completions": 1, "parallelism": 1}}));
            let up = edit(When::Pods("Running", 1), "a", json!({"spec": {"completions": 3, "parallelism": 3}}));
            then(start(json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"})), [down, up])
        },
        "succeeded=3 failed=0 completedIndexes=0-2 | live=0 tracked=0",
    ),
    // Down to what is done already.
    Scenario::job(
        "elastic-to-the-end",
        |pod| match pod.index {
            Some(0) => Behaviour::ends(0, 1_000),
            _ => Behaviour { stop_ms: 2_000, ..Behaviour::runs() },
        },
        || {
            let completed = When::Status("a", "completedIndexes", json!("0"));
            let down = edit(completed, "a", json!({"spec": {"completions": 1, "parallelism": 1}}));
            then(start(json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"})), [down])
        },
        "Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) active=0 ready=0 terminating=0 succeeded=1",
    ),
];
