//! Whose pods they are: adoption, disowning, orphans, Jobs of other controllers.

use serde_json::{Value, json};

use super::{Scenario, pod_spec, start, then};
use crate::faults::{Fault, Watched};
use crate::world::{Behaviour, Controllers, JOBS, PODS, Step, What, When};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        keep_metrics: true,
        // Nothing in a Job says that it has adopted a pod: after a restart on a list from before that, it is missing.
        unknowable: |fault| matches!(fault, Fault::Past(past) if past.what != Watched::Jobs),
        ..Scenario::job(
            "adoption",
            |pod| Behaviour::ends(0, if pod.job.is_empty() { 3_000 } else { 2_000 }),
            || {
                let mut steps = vec![Step::new(When::After(0), What::Create(PODS, stray("stray", json!([]))))];
                steps.extend(selecting(2));
                steps
            },
            "succeeded=2 failed=0 | live=0 tracked=0",
        )
    },
    // The Job is deleted in the moment in which it would adopt (REG-C19).
    Scenario {
        // Whether it is complete before it is known to be deleted is a matter of time.
        lag_matters: true,
        // The pod that would have been adopted ends before.
        stalls_matter: true,
        ..Scenario::job(
            "adoption-refused",
            |_| Behaviour::ends(0, 3_000),
            || {
                let delete = Step::new(When::Pods("Running", 1), What::Delete(JOBS, "a", "Orphan"));
                let stray = Step::new(When::After(0), What::Create(PODS, stray("stray", json!([]))));
                then(selecting(1), [delete, stray])
            },
            "live=0",
        )
    },
    // A pod's labels change: its Job lets it go and makes another.
    Scenario::job(
        "disowned",
        |pod| Behaviour::ends(0, if pod.ordinal == 0 { 60_000 } else { 1_000 }),
        || {
            let relabel = What::PatchPods(1, json!({"metadata": {"labels": {"of": "nobody"}}}));
            then(selecting(1), [Step::new(When::Pods("Running", 1), relabel)])
        },
        "succeeded=1 failed=0 | live=0 tracked=0",
    ),
    // Pods that were left behind with the finalizer: nobody's, and of a Job that is long gone (REG-A12).
    Scenario::job(
        "orphans",
        |_| Behaviour::ends(0, 1_000),
        || {
            let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "controller": true,
                "uid": "00000000-0000-4000-8000-00000000dead"}]);
            let of_nobody = Step::new(When::After(0), What::Create(PODS, tracked("nobodys", json!([]))));
            let of_gone = Step::new(When::After(0), What::Create(PODS, tracked("gones", owner)));
            then(vec![of_nobody, of_gone], start(json!({"completions": 1})))
        },
        "pod gones live=0 tracked=0\npod nobodys live=0 tracked=0",
    ),
    // A tracked pod turns up when its Job has its verdict (REG-A03).
    Scenario::job(
        "late-pod",
        |_| Behaviour::ends(0, 1_000),
        || {
            let mut late = tracked("late", json!([]));
            late["metadata"]["labels"] = json!({"of": "a"});
            let late = Step::new(When::Condition("a", "Complete"), What::CreatePodOf("a", late));
            then(selecting(1), [late])
        },
        "succeeded=1 failed=0 | live=0 tracked=0",
    ),
    // The owner reference is taken off a running pod.
    Scenario::job(
        "stripped",
        |pod| Behaviour::ends(0, if pod.ordinal == 0 { 5_000 } else { 2_000 }),
        || {
            let strip = What::PatchPods(
                1,
                json!({"metadata": {"ownerReferences": null, "labels": {
                "controller-uid": null, "batch.kubernetes.io/controller-uid": null}}}),
            );
            then(start(json!({"completions": 1})), [Step::new(When::Pods("Running", 1), strip)])
        },
        "succeeded=1 failed=0 | live=0 tracked=0",
    ),
    // Another controller's Job is left alone, and so are a pod of it that has ended and one that it could adopt (INV-15).
    Scenario::job(
        "foreign",
        |_| Behaviour::ends(0, 1_000),
        || {
            let labels = json!({"of": "a"});
            let foreign = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "foreign"},
                "spec": {"managedBy": "example.com/queue", "manualSelector": true, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod_spec("Never")}}});
            let make = Step::new(When::After(0), What::Create(JOBS, foreign));
            let mut owned = tracked("owned", json!([]));
            owned["metadata"]["labels"] = labels;
            let owned = Step::new(When::After(0), What::CreatePodOf("foreign", owned));
            let stray = Step::new(When::After(0), What::Create(PODS, stray("stray", json!([]))));
            then(vec![make, owned, stray], start(json!({"completions": 1})))
        },
        "job foreign  active=0 ready=0 terminating=0 succeeded=0 failed=0 | live=0 tracked=1",
    ),
    Scenario { controllers: WITH_GC, ..deletion("delete-background", DELETE_BACKGROUND) },
    Scenario { controllers: WITH_GC, ..deletion("delete-foreground", DELETE_FOREGROUND) },
    Scenario {
        controllers: WITH_GC,
        ends: "live=0 tracked=0",
        // A dependent that the collector has not been shown for seconds loses its owner before it is told to forget it.
        lag_matters: true,
        ..deletion("delete-orphan", DELETE_ORPHAN)
    },
];

const WITH_GC: Controllers = Controllers { gc: true, ..Controllers::JOB };
const DELETE_BACKGROUND: fn() -> Vec<Step> = || deleted("Background");
const DELETE_FOREGROUND: fn() -> Vec<Step> = || deleted("Foreground");
const DELETE_ORPHAN: fn() -> Vec<Step> = || deleted("Orphan");

const fn deletion(name: &'static str, script: fn() -> Vec<Step>) -> Scenario {
    Scenario::job(name, |_| Behaviour { stop_ms: 1_000, ..Behaviour::ends(0, 9_000) }, script, "")
}

fn deleted(policy: &'static str) -> Vec<Step> {
    let delete = Step::new(When::Pods("Running", 2), What::Delete(JOBS, "a", policy));
    then(start(json!({"completions": 2, "parallelism": 2})), [delete])
}

/// A Job that takes what has the label `of: a`.
fn selecting(completions: u32) -> Vec<Step> {
    start(json!({"completions": completions, "parallelism": completions, "manualSelector": true,
        "selector": {"matchLabels": {"of": "a"}},
        "template": {"metadata": {"labels": {"of": "a"}}, "spec": pod_spec("Never")}}))
}

fn stray(name: &str, owners: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"of": "a"}, "ownerReferences": owners}, "spec": pod_spec("Never")})
}

fn tracked(name: &str, owners: Value) -> Value {
    let mut pod = stray(name, owners);
    pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    pod["metadata"]["labels"] = json!({});
    pod
}
