//! A pod's status as the strategic merge patch that the node sends (PL-10, PL-11, PL-17, PL-21).

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::PodLifecycle;
use super::conditions::{self, Condition, TYPES};
use super::container::{Container, Exit, Kind, State};
use crate::moment::Moment;
use crate::pod;

/// The scheme of container ids.
pub(crate) const RUNTIME: &str = "tally";

/// All messages of a pod together stay below this (PL-56).
const MESSAGES_MAX: usize = 12_288;

/// The id under which an instance appears in the API.
pub fn container_id(uid: &str, container: &str, attempt: u32) -> String {
    format!("{RUNTIME}://{uid}/{container}/{attempt}")
}

/// The patch for `pods/NAME/status`. `host_ip` is the address of the node, which its pods share.
pub(crate) fn patch(pod: &mut PodLifecycle, host_ip: &str, now: Moment) -> Value {
    let conditions = pod.conditions();
    let since = pod.transitions.update(&conditions, now.wall);
    let mut status = Map::new();
    let generation = pod.generation;
    if let Some(generation) = generation {
        status.insert("observedGeneration".to_owned(), generation.into());
    }
    let phase = pod.reported_phase();
    status.insert("phase".to_owned(), phase.as_str().into());
    // Why the pod ends is said together with its end, and not before (PL-8).
    if phase.is_terminal() {
        status.insert("reason".to_owned(), pod.reason.as_deref().into());
        status.insert("message".to_owned(), pod.message.as_deref().into());
    }
    let own = conditions.iter().zip(TYPES).zip(since);
    let own = own.map(|((condition, kind), since)| condition_value(condition, kind, since, generation));
    let conditions: Vec<Value> = disruption(pod, now).into_iter().chain(own).collect();
    let order = conditions.iter().map(|condition| json!({"type": condition["type"]})).collect();
    status.insert("$setElementOrder/conditions".to_owned(), order);
    status.insert("conditions".to_owned(), conditions.into());
    status.insert("startTime".to_owned(), seconds(pod.start_time));
    if !pod.is_rejected {
        status.insert("hostIP".to_owned(), host_ip.into());
        status.insert("hostIPs".to_owned(), json!([{"ip": host_ip}]));
        if pod.has_prepared() {
            status.insert("podIP".to_owned(), host_ip.into());
            status.insert("podIPs".to_owned(), json!([{"ip": host_ip}]));
        }
        let (init, regular) = container_statuses(pod);
        if !init.is_empty() {
            status.insert("initContainerStatuses".to_owned(), init.into());
        }
        status.insert("containerStatuses".to_owned(), regular.into());
    }
    json!({"metadata": {"uid": pod.uid}, "status": status})
}

/// Said only together with the end it explains (PL-62, PL-66).
fn disruption(pod: &PodLifecycle, now: Moment) -> Option<Value> {
    (pod.is_disrupted && pod.reported_phase().is_terminal()).then(|| {
        let condition = Condition { status: true, reason: Some("TerminationByKubelet"), message: pod.message.clone() };
        condition_value(&condition, "DisruptionTarget", now.wall, pod.generation)
    })
}

fn condition_value(condition: &Condition, kind: &str, since: Timestamp, generation: Option<i64>) -> Value {
    let mut value = json!({
        "type": kind,
        "status": if condition.status { "True" } else { "False" },
        "lastProbeTime": null,
        "lastTransitionTime": seconds(since),
        // Null removes what an earlier status said.
        "reason": condition.reason,
        "message": condition.message,
    });
    if let Some(generation) = generation {
        value["observedGeneration"] = generation.into();
    }
    value
}

/// Init containers in the order of the spec, regular ones by name.
fn container_statuses(pod: &PodLifecycle) -> (Vec<Value>, Vec<Value>) {
    let message_max = MESSAGES_MAX / pod.containers.len().max(1);
    let mut init = Vec::new();
    let mut regular = Vec::new();
    for (container, spec) in pod.with_specs() {
        let shown = shown(container, pod.spec.restart_policy);
        let value = container_value(&shown, spec, &pod.uid, message_max);
        match container.kind {
            Kind::Init | Kind::Sidecar => init.push(value),
            Kind::Regular => regular.push((spec.name.as_str(), value)),
        }
    }
    regular.sort_by_key(|(name, _)| *name);
    (init, regular.into_iter().map(|(_, value)| value).collect())
}

/// A container as the API lets it be shown (AS-176).
fn shown(container: &Container, policy: pod::RestartPolicy) -> Cow<'_, Container> {
    let is_over = matches!(container.state, State::Terminated(_));
    match &container.done_before {
        Some(done) if !is_over && policy != pod::RestartPolicy::Always => {
            let (exit, attempt) = (**done).clone();
            Cow::Owned(Container { attempt, last: None, state: State::Terminated(exit), ..container.clone() })
        }
        _ => Cow::Borrowed(container),
    }
}

fn container_value(container: &Container, spec: &pod::Container, uid: &str, message_max: usize) -> Value {
    let id = |attempt| container_id(uid, &spec.name, attempt);
    // While waiting, `attempt` is the number of the instance in lastState; else of the one in state.
    let previous = match container.state {
        State::Waiting { .. } => container.attempt,
        _ => container.attempt.saturating_sub(1),
    };
    let terminated = |exit: &Exit, attempt| {
        let mut value = json!({
            "exitCode": exit.code,
            "reason": exit.reason,
            "startedAt": exit.started_at.map_or(Value::Null, seconds),
            "finishedAt": exit.finished_at.map_or(Value::Null, seconds),
        });
        if let Some(message) = exit.message.as_deref().filter(|message| !message.is_empty()) {
            value["message"] = cut(message, message_max).into();
        }
        if exit.has_instance {
            value["containerID"] = id(attempt).into();
        }
        json!({"terminated": value})
    };
    let state = match &container.state {
        State::Waiting { reason, message: None } => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
        State::Terminated(exit) => terminated(exit, container.attempt),
    };
    let has_instance = match &container.state {
        State::Running { .. } => true,
        State::Terminated(exit) => exit.has_instance,
        State::Waiting { .. } => container.last.as_ref().is_some_and(|exit| exit.has_instance),
    };
    let mut value = json!({
        "name": spec.name,
        "state": state,
        "lastState": container.last.as_deref().map_or_else(|| json!({}), |exit| terminated(exit, previous)),
        "ready": container.is_ready(),
        "restartCount": container.restart_count(),
        "image": spec.image.as_deref().unwrap_or_default(),
        "imageID": "",
        "started": container.is_started(),
    });
    if has_instance {
        value["containerID"] = id(container.attempt).into();
    }
    value
}

/// A time of the API: whole seconds.
fn seconds(time: Timestamp) -> Value {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string().into()
}

/// At most `bytes_max` bytes, on a character's border.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

impl PodLifecycle {
    fn conditions(&self) -> [Condition; 5] {
        let names: Vec<&str> = self.with_specs().map(|(_, spec)| spec.name.as_str()).collect();
        conditions::conditions(&conditions::Facts {
            phase: self.reported_phase(),
            containers: &self.containers,
            names: &names,
            has_sandbox: self.has_sandbox(),
            was_initialized: self.transitions.was_true("Initialized"),
            unmet_gates: self.unmet_gates.as_deref(),
            is_rejected: self.is_rejected,
        })
    }
}
