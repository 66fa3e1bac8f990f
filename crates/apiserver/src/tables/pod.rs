//! Pods (AS-166; upstream's `printPod`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Column, Printer, Row,
    age::{age, since},
};
use crate::resources::values::{condition_is_true, flag, items, number, or, text, time};

pub(super) static PRINTER: Printer = Printer {
    columns: &[
        Column::name("Name of the pod, unique in its namespace"),
        Column::text("Ready", "Containers that are ready, of all that should be"),
        Column::text("Status", "What the pod's containers are doing, in one word"),
        Column::text("Restarts", "How often containers were restarted, and how long ago the last time"),
        Column::age(),
        Column::text("IP", "First address of the pod").wide(),
        Column::text("Node", "Node the pod is bound to").wide(),
        Column::text("Nominated Node", "Node on which room is being made for the pod").wide(),
        Column::text("Readiness Gates", "Gates that are open, of all the pod names").wide(),
    ],
    row,
};

fn row(pod: &Value, now: Timestamp) -> Row {
    let summary = summarize(pod);
    let cells = vec![
        json!(text(pod, "/metadata/name")),
        json!(format!("{}/{}", summary.ready, containers_total(pod))),
        json!(summary.reason),
        json!(summary.restarts.shown(now)),
        json!(age(pod, now)),
        json!(or(ip(pod), "<none>")),
        json!(or(text(pod, "/spec/nodeName"), "<none>")),
        json!(or(text(pod, "/status/nominatedNodeName"), "<none>")),
        json!(readiness_gates(pod)),
    ];
    Row { cells, conditions: row_conditions(pod) }
}

/// What the container statuses add up to.
struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

/// Restarts, and the end of the run before the latest one.
#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

/// How far the init containers have come.
struct Initialization {
    /// Why the pod is not initialized yet; none when it is.
    pending: Option<String>,
    /// Sidecars that are ready.
    ready: usize,
    /// Of all init containers up to the pending one.
    restarts: Restarts,
    /// Of the sidecars among them: these still count once the pod is initialized.
    sidecar_restarts: Restarts,
}

fn summarize(pod: &Value) -> Summary {
    let init = initialization(pod);
    let mut summary = Summary { reason: starting_reason(pod).to_owned(), ready: init.ready, restarts: init.restarts };
    let initializing = init.pending.is_some();
    if let Some(pending) = init.pending {
        summary.reason = pending;
    }
    if !initializing || condition_is_true(pod, "Initialized") {
        summary.restarts = init.sidecar_restarts;
        count_containers(pod, &mut summary);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if text(pod, "/status/reason") == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

/// The word for a pod none of whose containers says more.
fn starting_reason(pod: &Value) -> &str {
    let gated = |condition: &Value| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    };
    if items(pod, "/status/conditions").iter().any(gated) {
        return "SchedulingGated";
    }
    or(text(pod, "/status/reason"), text(pod, "/status/phase"))
}

fn initialization(pod: &Value) -> Initialization {
    let mut init = Initialization {
        pending: None,
        ready: 0,
        restarts: Restarts::default(),
        sidecar_restarts: Restarts::default(),
    };
    for (at, status) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        let sidecar = is_sidecar(pod, text(status, "/name"));
        init.restarts.add(status);
        if sidecar {
            init.sidecar_restarts.add(status);
        }
        let terminated = status.pointer("/state/terminated");
        if terminated.is_some_and(|terminated| number(terminated, "/exitCode") == 0) {
            continue;
        }
        if sidecar && flag(status, "/started") {
            init.ready += usize::from(flag(status, "/ready"));
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        init.pending = Some(match terminated {
            Some(terminated) => format!("Init:{}", termination_reason(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{at}/{}", items(pod, "/spec/initContainers").len()),
        });
        break;
    }
    init
}

/// From the last container to the first, so that the first one's word is the one that stays.
fn count_containers(pod: &Value, summary: &mut Summary) {
    let mut has_running = false;
    let mut error_reason = None;
    for status in items(pod, "/status/containerStatuses").iter().rev() {
        summary.restarts.add(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if let Some(terminated) = status.pointer("/state/terminated") {
            summary.reason = termination_reason(terminated);
            if number(terminated, "/exitCode") != 0 {
                error_reason = Some(summary.reason.clone());
            }
        } else if flag(status, "/ready") && status.pointer("/state/running").is_some() {
            has_running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        if has_running && condition_holds_anywhere(pod, "Ready") {
            summary.reason = "Running".to_owned();
        } else if let Some(error_reason) = error_reason {
            summary.reason = error_reason;
        } else if has_running {
            summary.reason = "NotReady".to_owned();
        }
    }
}

fn termination_reason(terminated: &Value) -> String {
    match (text(terminated, "/reason"), number(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// An init container that keeps running beside the others.
fn is_sidecar(pod: &Value, name: &str) -> bool {
    // The last of equal names counts; valid pods have no equal names.
    items(pod, "/spec/initContainers")
        .iter()
        .rfind(|container| text(container, "/name") == name)
        .is_some_and(|container| text(container, "/restartPolicy") == "Always")
}

fn containers_total(pod: &Value) -> usize {
    let sidecars = items(pod, "/spec/initContainers")
        .iter()
        .filter(|container| text(container, "/restartPolicy") == "Always")
        .count();
    items(pod, "/spec/containers").len() + sidecars
}

/// Unlike other readers of conditions, the Ready check is satisfied by any entry of the type.
fn condition_holds_anywhere(pod: &Value, condition_type: &str) -> bool {
    items(pod, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == condition_type && text(condition, "/status") == "True")
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += number(status, "/restartCount");
        self.last = self.last.max(time(status, "/lastState/terminated/finishedAt"));
    }

    /// `4`, or `4 (3m ago)` when the end of the previous run is known.
    fn shown(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, since(Some(last), now)),
            _ => self.count.to_string(),
        }
    }
}

/// `podIP` alone is what very old writers leave.
fn ip(pod: &Value) -> &str {
    or(text(pod, "/status/podIPs/0/ip"), text(pod, "/status/podIP"))
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| condition_is_true(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2024-05-01T10:10:00Z".parse().expect("a time")
    }

    fn running(ready: bool) -> Value {
        json!({"name": "main", "ready": ready, "restartCount": 0, "state": {"running": {}}})
    }

    fn terminated(exit_code: i32, reason: &str) -> Value {
        json!({"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": exit_code, "reason": reason}}})
    }

    fn init(name: &str, state: Value) -> Value {
        json!({"name": name, "ready": false, "restartCount": 1, "state": state})
    }

    /// Ready, Status and Restarts of a pod with one container and, in the third argument, its init containers.
    fn short(metadata: Value, status: Value, init_containers: Value) -> String {
        let spec = json!({"containers": [{"name": "main"}], "initContainers": init_containers});
        let pod = json!({"metadata": metadata, "spec": spec, "status": status});
        let cells = row(&pod, now()).cells;
        let text = |at: usize| cells[at].as_str().expect("text").to_owned();
        format!("{} {} {}", text(1), text(2), text(3))
    }

    /// AS-166, main containers.
    #[test]
    fn status_of_main_containers() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        let waiting =
            |reason: &str| json!({"name": "main", "restartCount": 4, "state": {"waiting": {"reason": reason}}});
        let signal =
            json!({"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": 137, "signal": 9}}});
        let restarted = json!({
            "name": "main", "ready": true, "restartCount": 2, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2024-05-01T10:07:00Z"}},
        });
        let cases = [
            (json!({"phase": "Pending"}), "0/1 Pending 0"),
            (json!({"phase": "Pending", "conditions": gated}), "0/1 SchedulingGated 0"),
            (
                json!({"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}),
                "0/1 ContainerCreating 4",
            ),
            (json!({"phase": "Running", "containerStatuses": [running(true)]}), "1/1 Running 0"),
            (json!({"phase": "Running", "containerStatuses": [running(false)]}), "0/1 Running 0"),
            (json!({"phase": "Running", "containerStatuses": [restarted]}), "1/1 Running 2 (3m ago)"),
            (json!({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}), "0/1 CrashLoopBackOff 4"),
            (json!({"phase": "Failed", "containerStatuses": [signal]}), "0/1 Signal:9 0"),
            (json!({"phase": "Failed", "containerStatuses": [terminated(3, "")]}), "0/1 ExitCode:3 0"),
            (json!({"phase": "Failed", "containerStatuses": [terminated(1, "Error")]}), "0/1 Error 0"),
            (json!({"phase": "Failed", "reason": "Evicted"}), "0/1 Evicted 0"),
            (json!({"phase": "Succeeded", "containerStatuses": [terminated(0, "Completed")]}), "0/1 Completed 0"),
            (
                json!({"phase": "Running", "conditions": ready,
                       "containerStatuses": [terminated(0, "Completed"), running(true)]}),
                "1/1 Running 0",
            ),
            (
                json!({"phase": "Running", "containerStatuses": [terminated(0, "Completed"), running(true)]}),
                "1/1 NotReady 0",
            ),
            (
                json!({"phase": "Running", "containerStatuses": [terminated(0, "Completed"), terminated(1, "Error")]}),
                "0/1 Error 0",
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(short(json!({}), status.clone(), json!([])), expected, "{status}");
        }
    }

    /// AS-166, init containers and sidecars.
    #[test]
    fn status_of_init_containers() {
        let two = json!([{"name": "one"}, {"name": "two"}]);
        let sidecar = json!([{"name": "one", "restartPolicy": "Always"}, {"name": "two"}]);
        let done = json!({"terminated": {"exitCode": 0}});
        let run = json!({"running": {}});
        let started =
            json!({"name": "one", "started": true, "ready": true, "restartCount": 3, "state": {"running": {}}});
        let cases = [
            (two.clone(), json!([init("one", run.clone())]), "0/1 Init:0/2 1"),
            (two.clone(), json!([init("one", done.clone()), init("two", run.clone())]), "0/1 Init:1/2 2"),
            (
                two.clone(),
                json!([init("one", json!({"terminated": {"exitCode": 1, "reason": "Error"}}))]),
                "0/1 Init:Error 1",
            ),
            (two.clone(), json!([init("one", json!({"terminated": {"exitCode": 1}}))]), "0/1 Init:ExitCode:1 1"),
            (
                two.clone(),
                json!([init("one", json!({"terminated": {"exitCode": 1, "signal": 9}}))]),
                "0/1 Init:Signal:9 1",
            ),
            (
                two.clone(),
                json!([init("one", json!({"waiting": {"reason": "ImagePullBackOff"}}))]),
                "0/1 Init:ImagePullBackOff 1",
            ),
            (two.clone(), json!([init("one", json!({"waiting": {"reason": "PodInitializing"}}))]), "0/1 Init:0/2 1"),
            (two, json!([init("one", done.clone()), init("two", done.clone())]), "0/1 Pending 0"),
            (sidecar.clone(), json!([started.clone(), init("two", run)]), "1/2 Init:1/2 4"),
            (sidecar, json!([started, init("two", done)]), "1/2 Pending 3"),
        ];
        for (spec, statuses, expected) in cases {
            let status = json!({"phase": "Pending", "initContainerStatuses": statuses});
            assert_eq!(short(json!({}), status.clone(), spec), expected, "{status}");
        }
    }

    #[test]
    fn deletion_shows_until_the_pod_has_ended() {
        let deleted = json!({"deletionTimestamp": "2024-05-01T10:00:00Z"});
        let cases = [
            (json!({"phase": "Running", "containerStatuses": [running(true)]}), "1/1 Terminating 0"),
            (json!({"phase": "Failed"}), "0/1 Failed 0"),
            (json!({"phase": "Running", "reason": "NodeLost"}), "0/1 Unknown 0"),
        ];
        for (status, expected) in cases {
            assert_eq!(short(deleted.clone(), status.clone(), json!([])), expected, "{status}");
        }
    }

    #[test]
    fn wide_cells() {
        let pod = json!({
            "metadata": {"name": "demo", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "spec": {
                "nodeName": "node-1",
                "readinessGates": [{"conditionType": "example.com/Go"}, {"conditionType": "example.com/Stop"}],
            },
            "status": {
                "phase": "Succeeded",
                "podIP": "10.2.0.1",
                "podIPs": [{"ip": "10.2.0.1"}],
                "nominatedNodeName": "node-2",
                "conditions": [{"type": "example.com/Go", "status": "True"}],
            },
        });
        let Row { cells, conditions } = row(&pod, now());
        let expected = json!(["demo", "0/0", "Succeeded", "0", "10m", "10.2.0.1", "node-1", "node-2", "1/2"]);
        assert_eq!(Value::from(cells), expected);
        let completed = json!({
            "type": "Completed", "status": "True", "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        });
        assert_eq!(conditions, [completed]);
    }
}
