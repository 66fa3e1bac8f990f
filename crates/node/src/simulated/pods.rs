//! A simulated pod in as few bytes as possible, and its status when one is needed.
//!
//! A pod that "runs" is only a time at which it ends. For the moment of a report it becomes a
//! [`PodLifecycle`](crate::lifecycle::PodLifecycle), so that statuses look exactly like those of real pods.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

use super::behaviour::Behaviour;
use crate::lifecycle::{Exit, Input, PodLifecycle, Record};
use crate::moment::Moment;
use crate::pod::{Container, Phase, Pod, PodSpec, PodStatus, RestartPolicy};

/// The same for all pods of a Job.
pub(super) type Shape = Arc<PodSpec>;

/// Keeps one copy of each shape.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: HashMap<String, Shape>,
}

impl Shapes {
    /// Shapes that nobody uses are dropped when there are more than this.
    const KNOWN_MAX: usize = 1024;

    pub(super) fn of(&mut self, spec: &PodSpec) -> Shape {
        let key = key(spec);
        if let Some(shape) = self.known.get(&key) {
            return Arc::clone(shape);
        }
        if self.known.len() >= Self::KNOWN_MAX {
            self.known.retain(|_, shape| Arc::strong_count(shape) > 1);
        }
        let shape = Arc::new(slim(spec));
        self.known.insert(key, Arc::clone(&shape));
        shape
    }
}

fn key(spec: &PodSpec) -> String {
    let mut key = format!("{:?}", spec.restart_policy);
    for container in spec.init_containers.iter().chain([&Container::default()]).chain(&spec.containers) {
        let Container { name, image, restart_policy, .. } = container;
        key.push_str(&format!("|{name}={}/{restart_policy:?}", image.as_deref().unwrap_or_default()));
    }
    key
}

/// What a status needs: names, images, policies.
fn slim(spec: &PodSpec) -> PodSpec {
    let slim = |container: &Container| Container {
        name: container.name.clone(),
        image: container.image.clone(),
        restart_policy: container.restart_policy,
        ..Container::default()
    };
    PodSpec {
        restart_policy: spec.restart_policy,
        init_containers: spec.init_containers.iter().map(slim).collect(),
        containers: spec.containers.iter().map(slim).collect(),
        ..PodSpec::default()
    }
}

#[derive(Debug)]
pub(super) struct SimulatedPod {
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    pub(super) behaviour: Behaviour,
    pub(super) start_time: Timestamp,
    pub(super) attempt: u32,
    pub(super) generation: Option<i64>,
    pub(super) is_deleted: bool,
}

/// What to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Running,
    /// All containers have ended with this code.
    Ended(i32),
    /// Deleted before it ran.
    NeverRan,
}

impl SimulatedPod {
    /// A failed run is followed by another one if the policy says so.
    pub(super) fn restarts_after(&self, code: i32) -> bool {
        match self.shape.restart_policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        }
    }

    /// The status patch and the phase in it.
    pub(super) fn report(&self, uid: &str, outcome: Outcome, host_ip: &str, now: Moment) -> (Value, Phase) {
        let records = self.records(outcome, now);
        let mut life = PodLifecycle::adopt(&self.pod(uid, outcome), &records, now);
        life.step(Input::Tick, now);
        let patch = life.status_patch(host_ip, now);
        (patch, life.reported_phase())
    }

    fn pod(&self, uid: &str, outcome: Outcome) -> Pod {
        let was_running = matches!(outcome, Outcome::Ended(_));
        let true_conditions: &[&str] = match was_running {
            true => &["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"],
            false => &["PodScheduled"],
        };
        let condition = |kind: &&str| PodCondition {
            type_: (*kind).to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(self.start_time)),
            ..PodCondition::default()
        };
        // Nothing starts again after the end, sidecars neither.
        let must_stop = outcome != Outcome::Running;
        Pod {
            metadata: ObjectMeta {
                name: Some(self.name.to_string()),
                namespace: Some(self.namespace.to_string()),
                uid: Some(uid.to_owned()),
                generation: self.generation,
                deletion_timestamp: must_stop.then_some(Time(self.start_time)),
                deletion_grace_period_seconds: must_stop.then_some(0),
                ..ObjectMeta::default()
            },
            spec: (*self.shape).clone(),
            status: PodStatus {
                phase: if was_running { Phase::Running } else { Phase::Pending },
                start_time: Some(Time(self.start_time)),
                conditions: true_conditions.iter().map(condition).collect(),
                ..PodStatus::default()
            },
        }
    }

    fn records(&self, outcome: Outcome, now: Moment) -> Vec<Record> {
        let started_at = Some(self.start_time);
        let ended = |code| Some(Exit::with_code(code, started_at, now.wall));
        let code = match outcome {
            Outcome::NeverRan => return Vec::new(),
            Outcome::Running => None,
            Outcome::Ended(code) => Some(code),
        };
        let mut records = Vec::new();
        let mut push = |container: &Container, attempt, exit| {
            records.push(Record { container: container.name.clone(), attempt, started_at, exit });
        };
        for container in &self.shape.init_containers {
            let is_sidecar = container.restart_policy == Some(RestartPolicy::Always);
            let exit = if is_sidecar { code.and_then(|_| ended(0)) } else { ended(0) };
            push(container, 0, exit);
        }
        for container in &self.shape.containers {
            if let Some(previous) = self.attempt.checked_sub(1) {
                push(container, previous, ended(self.behaviour.exit_code));
            }
            push(container, self.attempt, code.and_then(ended));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn pod(spec: Value, attempt: u32) -> SimulatedPod {
        SimulatedPod {
            namespace: "ns".into(),
            name: "p".into(),
            shape: Shapes::default().of(&serde_json::from_value(spec).unwrap()),
            behaviour: Behaviour { exit_code: 1, ..Behaviour::default() },
            start_time: Timestamp::from_second(100).unwrap(),
            attempt,
            generation: Some(1),
            is_deleted: false,
        }
    }

    fn now() -> Moment {
        Moment { wall: Timestamp::from_second(200).unwrap(), elapsed: Duration::from_secs(1) }
    }

    #[test]
    fn reports_look_like_those_of_real_pods() {
        let spec = json!({
            "restartPolicy": "Never",
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "x"}],
        });
        let pod = pod(spec, 0);
        for (outcome, phase) in [
            (Outcome::Running, Phase::Running),
            (Outcome::Ended(0), Phase::Succeeded),
            (Outcome::Ended(3), Phase::Failed),
            (Outcome::NeverRan, Phase::Failed),
        ] {
            let (patch, reported) = pod.report("u", outcome, "10.0.0.1", now());
            assert_eq!(reported, phase, "{outcome:?}");
            assert_eq!(patch["status"]["phase"], phase.as_str());
            assert_eq!(patch["metadata"]["uid"], "u");
        }
        let (patch, _) = pod.report("u", Outcome::Ended(3), "10.0.0.1", now());
        let terminated = &patch["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(terminated["exitCode"], 3);
        assert_eq!(terminated["startedAt"], "1970-01-01T00:01:40Z");
        assert_eq!(terminated["finishedAt"], "1970-01-01T00:03:20Z");
    }

    #[test]
    fn restarts_are_counted() {
        let pod = pod(json!({"restartPolicy": "OnFailure", "containers": [{"name": "c"}]}), 2);
        let (patch, phase) = pod.report("u", Outcome::Running, "10.0.0.1", now());
        assert_eq!(phase, Phase::Running);
        let status = &patch["status"]["containerStatuses"][0];
        assert_eq!(status["restartCount"], 2);
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    }

    #[test]
    fn pods_of_one_template_share_their_shape() {
        let mut shapes = Shapes::default();
        let spec: PodSpec =
            serde_json::from_value(json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}))
                .unwrap();
        let other: PodSpec = serde_json::from_value(json!({"containers": [{"name": "d"}]})).unwrap();
        assert!(Arc::ptr_eq(&shapes.of(&spec), &shapes.of(&spec)));
        assert!(!Arc::ptr_eq(&shapes.of(&spec), &shapes.of(&other)));
        for number in 0..5000 {
            let spec = PodSpec {
                containers: vec![Container { name: number.to_string(), ..Container::default() }],
                ..PodSpec::default()
            };
            shapes.of(&spec);
        }
        assert!(shapes.known.len() <= Shapes::KNOWN_MAX);
    }
}
