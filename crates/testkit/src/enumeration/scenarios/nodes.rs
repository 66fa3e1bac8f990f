//! The node's own calls: what it reports of its pods, and that they are gone.

use serde_json::{Value, json};

use super::{Scenario, start, then};
use crate::faults::Fault;
use crate::world::{Behaviour, Controllers, NODE, Step, When, edit};

pub(super) const SCENARIOS: &[Scenario] = &[
    node(
        "node-success",
        || start(json!({"completions": 2, "parallelism": 2, "template": {"spec": pod_spec("Never", &["run=1000"])}})),
        "Complete(CompletionsReached) SuccessCriteriaMet(CompletionsReached) active=0 ready=0 terminating=0 \
         succeeded=2 failed=0 | live=0 tracked=0",
    ),
    node(
        "node-restart-in-place",
        || start(json!({"completions": 1, "template": {"spec": pod_spec("OnFailure", &["run=1000", "fails=1"])}})),
        "succeeded=1 failed=0 | live=0 tracked=0",
    ),
    Scenario {
        suspended_varies: true,
        ..node(
            "node-stop",
            || {
                let template = json!({"spec": pod_spec("Never", &["run=20000"])});
                let suspend = edit(When::Pods("Running", 1), "a", json!({"spec": {"suspend": true}}));
                let resume = edit(When::Condition("a", "Suspended"), "a", json!({"spec": {"suspend": false}}));
                then(start(json!({"completions": 1, "template": template})), [suspend, resume])
            },
            "succeeded=1 failed=0 | live=0 tracked=0",
        )
    },
];

const fn node(name: &'static str, script: fn() -> Vec<Step>, ends: &'static str) -> Scenario {
    let controllers = Controllers { node: true, ..Controllers::JOB };
    Scenario {
        controllers,
        unknowable: beyond_a_node,
        // Not asked: there is no stand-in.
        ..Scenario::job(name, |_| Behaviour::pends(), script, ends)
    }
}

/// A node takes "not found" at its word (PL-141), and what its first list does not show has ceased to be (PL-139).
fn beyond_a_node(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(404) | Fault::Past(_))
}

fn pod_spec(restart_policy: &str, arguments: &[&str]) -> Value {
    json!({"restartPolicy": restart_policy, "nodeName": NODE,
        "containers": [{"name": "main", "image": "busybox", "args": arguments}]})
}
