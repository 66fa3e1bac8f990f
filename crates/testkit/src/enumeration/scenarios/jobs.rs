//! The plain ways to run pods.

use serde_json::json;

use super::{Scenario, job_spec, pod_spec, start, then};
use crate::world::{Behaviour, Controllers, JOBS, PodFacts, Reports, Step, What, When};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::job(
        "nonindexed",
        second_fails,
        || start(json!({"completions": 3, "parallelism": 2})),
        "job a Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) active=0 ready=0 terminating=0 \
         succeeded=3 failed=1 | live=0 tracked=0",
    ),
    Scenario::job(
        "indexed",
        |pod| {
            if pod.index == Some(1) && pod.attempt == 0 { Behaviour::ends(1, 900) } else { Behaviour::ends(0, 1_000) }
        },
        || start(json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"})),
        "succeeded=3 failed=1 completedIndexes=0-2 | live=0 tracked=0",
    ),
    Scenario {
        // After the first success no pod is made any more, whether or not there were enough.
        lag_matters: true,
        stalls_matter: true,
        ..Scenario::job(
            "work-queue",
            |pod| if pod.ordinal == 0 { Behaviour::ends(0, 2_000) } else { Behaviour::ends(0, 4_000) },
            || start(json!({"parallelism": 2})),
            "succeeded=2 failed=0 | live=0 tracked=0",
        )
    },
    Scenario::job(
        "on-failure",
        |_| Behaviour { restarts: 2, ..Behaviour::ends(0, 2_000) },
        || start(json!({"completions": 1, "backoffLimit": 3, "template": {"spec": pod_spec("OnFailure")}})),
        "Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) active=0 ready=0 terminating=0 succeeded=1 failed=0",
    ),
    Scenario {
        // More pods end at once than one sync may list.
        controllers: Controllers { tune: Some(|options| options.settings.uncounted_pods_max = 2), ..Controllers::JOB },
        ..Scenario::job(
            "cap",
            |_| Behaviour::ends(0, 1_000),
            || start(json!({"completions": 5, "parallelism": 5})),
            "succeeded=5 failed=0 | live=0 tracked=0",
        )
    },
    Scenario::job("two-jobs", |_| Behaviour::ends(0, 1_000), two_jobs, "succeeded=1"),
    Scenario {
        // One worker, so that a Job that fails or waits could hold up the other (P-16).
        controllers: Controllers { tune: Some(|options| options.workers = 1), ..Controllers::JOB },
        ..Scenario::job("one-worker", |_| Behaviour::ends(0, 1_000), two_jobs, "succeeded=1")
    },
    // Pods of which little is told, or too late, or something else than before (P-15).
    Scenario::job(
        "odd-pods",
        |pod| match pod.ordinal {
            0 => Behaviour { reports: Reports::Bare, ..Behaviour::ends(1, 1_000) },
            1 => Behaviour { reports: Reports::Timeless, ..Behaviour::ends(1, 1_000) },
            _ => Behaviour { reports: Reports::Wavering, ..Behaviour::ends(0, 1_000) },
        },
        || start(json!({"completions": 1})),
        "Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) active=0 ready=0 terminating=0 \
         succeeded=1 failed=2 | live=0 tracked=0",
    ),
    // Somebody writes what is not so to the status, twice, and a condition of no Job controller's (P-14, REG-B04).
    Scenario::job(
        "status-edited",
        |pod| Behaviour::ends(i32::from(pod.ordinal == 0), 20_000),
        || {
            let conditions = json!([
                {"type": "FailureTarget", "status": "False", "reason": "ByHand"},
                {"type": "example.com/Seen", "status": "True", "reason": "ByHand"}]);
            let wrong = json!({"status": {"active": 7, "ready": 0, "terminating": 3, "conditions": conditions}});
            let none = json!({"status": {"active": 0, "ready": null, "terminating": null}});
            let edits = [
                Step::new(When::Pods("Running", 2), What::PatchStatus(JOBS, "a", wrong)),
                Step::new(When::After(2_000), What::PatchStatus(JOBS, "a", none)),
            ];
            then(start(json!({"completions": 2, "parallelism": 2})), edits)
        },
        "Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) example.com/Seen(ByHand) active=0 ready=0 \
         terminating=0 succeeded=2 failed=1 | live=0 tracked=0",
    ),
    Scenario::job(
        "nothing-to-do",
        |_| Behaviour::runs(),
        || start(json!({"completions": 0})),
        "Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) active=0",
    ),
];

fn two_jobs() -> Vec<Step> {
    let other = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b"},
        "spec": job_spec(json!({"completions": 1}))});
    then(start(json!({"completions": 1})), [Step::new(When::After(0), What::Create(JOBS, other))])
}

fn second_fails(pod: &PodFacts) -> Behaviour {
    Behaviour::ends(i32::from(pod.ordinal == 1), 1_000)
}
