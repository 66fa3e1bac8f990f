//! Pods that collectors and nodes end (INV-40…INV-48).

use super::*;

#[test]
fn inv_48_a_node_tells_of_the_end_once() {
    let told = |phase: &str, code: i32| {
        let end = json!([{"name": "main", "state": {"terminated": {"exitCode": code}}}]);
        let state = if phase == "Running" { json!([]) } else { end };
        ("node", START, "Pod", with(untracked("p", phase), "/status/containerStatuses", state))
    };
    let untold = || vec![("world", START, "Pod", untracked("p", "Pending"))];
    keeps(and(untold(), vec![told("Running", 0), told("Failed", 1), told("Failed", 1)]));
    breaks("INV-48", and(untold(), vec![told("Failed", 1), told("Running", 0)]));
    breaks("INV-48", and(untold(), vec![told("Failed", 1), told("Succeeded", 0)]));
    breaks("INV-48", and(untold(), vec![told("Failed", 1), told("Failed", 2)]));
    breaks("INV-48", and(untold(), vec![told("Running", 0), ("node", START, "Pod", untracked("p", "Pending"))]));
}

#[test]
fn inv_41_an_end_is_kept() {
    let ready = || with(untracked("p", "Running"), "/status/conditions", json!([condition("Ready", "")]));
    let disrupted = |mut pod: Value| {
        pod["status"]["conditions"].as_array_mut().unwrap().push(condition("DisruptionTarget", "DeletionByPodGC"));
        pod
    };
    let ended = |pod: Value, phase: &str| with(pod, "/status/phase", json!(phase));
    let by_podgc = |pod: Value| ("podgc", START, "Pod", pod);
    let live = || vec![("world", START, "Pod", ready())];
    keeps(and(live(), vec![by_podgc(ended(disrupted(ready()), "Failed"))]));
    breaks("INV-41", and(live(), vec![by_podgc(with(ended(ready(), "Failed"), "/status/conditions", json!([])))]));
    let over = || vec![("world", START, "Pod", ended(ready(), "Succeeded"))];
    breaks("INV-41", and(over(), vec![by_podgc(ended(disrupted(ready()), "Succeeded"))]));
    breaks("INV-41", and(over(), vec![by_podgc(ended(ready(), "Failed"))]));
    breaks("INV-41", and(over(), vec![by_podgc(ready())]));
}

#[test]
fn inv_40_and_41_collectors() {
    breaks("INV-40", and(begun(), vec![("gc", START, "Pod p", Value::Null)]));
    keeps(vec![("world", START, "Pod", untracked("p", "Failed")), ("gc", START, "Pod p", Value::Null)]);
    breaks("INV-41", vec![("world", START, "Pod", untracked("p", "Running")), ("podgc", START, "Pod p", Value::Null)]);
    keeps(vec![("world", START, "Pod", untracked("p", "Failed")), ("podgc", START, "Pod p", Value::Null)]);
}
