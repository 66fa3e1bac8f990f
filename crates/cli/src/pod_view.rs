//! What the commands read of a pod: a slim projection, since there may be a hundred thousand of them.

use std::borrow::Cow;

use batch_types::constants::{annotation, label};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

/// A pod as a list or a watch is decoded.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodObject {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) init_containers: Vec<Named>,
    pub(crate) containers: Vec<Named>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    pub(crate) state: ContainerState,
    pub(crate) last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<Waiting>,
    pub(crate) running: Option<Running>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Running {
    pub(crate) started_at: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started_at: Option<Time>,
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
}

impl kube::Resource for PodObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// `pods/log` of this projection is that of pods.
impl kube::api::Log for PodObject {}

/// Every container waits for these at first; they say nothing about what is wrong.
const BEGINNING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

/// One run of a container, with a log of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance<'a> {
    /// Unique on its cluster.
    pub(crate) id: &'a str,
    pub(crate) container: &'a str,
    /// The one before the current; `pods/log` has to be asked for it.
    pub(crate) is_previous: bool,
    pub(crate) is_running: bool,
    pub(crate) started_at: Option<&'a Time>,
}

/// Why a pod failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodFailure {
    /// The container, if the pod has several.
    pub(crate) container: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl PodObject {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The uid and name of the Job that controls this pod.
    pub(crate) fn job(&self) -> Option<(&str, &str)> {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "Job")?;
        Some((&owner.uid, &owner.name))
    }

    pub(crate) fn index(&self) -> Option<u32> {
        let text =
            |map: &Option<std::collections::BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
        text(&self.metadata.annotations, annotation::COMPLETION_INDEX)
            .or_else(|| text(&self.metadata.labels, label::COMPLETION_INDEX))?
            .parse()
            .ok()
    }

    /// What tells this pod from the others of its Job: the index, or the end of its name.
    pub(crate) fn label(&self) -> String {
        match (self.index(), self.job()) {
            (Some(index), _) => index.to_string(),
            (None, Some((_, job))) => {
                let name = self.name();
                name.strip_prefix(job).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name).to_owned()
            }
            (None, None) => self.name().to_owned(),
        }
    }

    pub(crate) fn has_several_containers(&self) -> bool {
        self.spec.init_containers.len() + self.spec.containers.len() > 1
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.status.phase == "Failed"
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Failed" | "Succeeded")
    }

    /// A container of it has begun, whatever became of it.
    pub(crate) fn has_started(&self) -> bool {
        let mut statuses = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        statuses.any(|status| status.state.running.is_some() || status.state.terminated.is_some())
    }

    /// Why it does not run: no node takes it, or a container cannot be started there.
    pub(crate) fn held_up_by(&self) -> Option<String> {
        if let Some(why) = self.unschedulable() {
            return Some(why.to_owned());
        }
        let statuses = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let mut waiting = statuses.filter_map(|status| status.state.waiting.as_ref());
        let Waiting { reason, message } = waiting.find(|it| !BEGINNING.contains(&it.reason.as_str()))?;
        Some(if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") })
    }

    fn unschedulable(&self) -> Option<&str> {
        let is_it = |it: &&Condition| it.r#type == "PodScheduled" && it.status == "False" && !it.message.is_empty();
        self.status.conditions.iter().find(is_it).map(|condition| condition.message.as_str())
    }

    /// Runs of its containers whose logs can be read, oldest first within each container.
    pub(crate) fn instances(&self) -> impl Iterator<Item = Instance<'_>> {
        let statuses = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        statuses.flat_map(|status| [previous(status), current(status)]).flatten().filter(|it| !it.id.is_empty())
    }

    /// The container that failed, or what the pod says of itself.
    pub(crate) fn failure(&self) -> Option<PodFailure> {
        if !self.has_failed() {
            return None;
        }
        let statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let mut ended = statuses.filter_map(|status| Some((status, status.state.terminated.as_ref()?)));
        let (reason, message) = (self.status.reason.clone(), self.status.message.clone());
        let Some((status, end)) = ended.find(|(_, end)| end.exit_code != 0) else {
            return Some(PodFailure { container: None, exit_code: None, reason, message });
        };
        Some(PodFailure {
            container: self.has_several_containers().then(|| status.name.clone()),
            exit_code: Some(end.exit_code),
            // Evicted, DeadlineExceeded: the pod's own reason says more than the signal that ended the container.
            reason: if reason.is_empty() { end.reason.clone() } else { reason },
            message: if message.is_empty() { end.message.clone() } else { message },
        })
    }
}

fn previous(status: &ContainerStatus) -> Option<Instance<'_>> {
    let end = status.last_state.terminated.as_ref()?;
    let started_at = end.started_at.as_ref();
    Some(Instance { id: &end.container_id, container: &status.name, is_previous: true, is_running: false, started_at })
}

fn current(status: &ContainerStatus) -> Option<Instance<'_>> {
    let container = status.name.as_str();
    if let Some(running) = &status.state.running {
        let (id, started_at) = (status.container_id.as_str(), running.started_at.as_ref());
        return Some(Instance { id, container, is_previous: false, is_running: true, started_at });
    }
    let end = status.state.terminated.as_ref()?;
    let (id, started_at) = (end.container_id.as_str(), end.started_at.as_ref());
    Some(Instance { id, container, is_previous: false, is_running: false, started_at })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> PodObject {
        serde_json::from_value(json!({
            "metadata": {"name": "a-b-7-xyz", "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "a-b", "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c"}]},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn pods_are_told_apart_by_index_or_by_the_end_of_their_name() {
        let mut pod = pod(json!({}));
        assert_eq!((pod.label().as_str(), pod.index()), ("7-xyz", None));
        pod.metadata.annotations = Some([(annotation::COMPLETION_INDEX.to_owned(), "7".to_owned())].into());
        assert_eq!((pod.label().as_str(), pod.index()), ("7", Some(7)));
        assert_eq!(pod.job(), Some(("u", "a-b")));
    }

    /// A container that restarts has two logs at a time, and a waiting one has only the last.
    #[test]
    fn each_run_of_a_container_is_one_instance() {
        let ids = |status: Value| -> Vec<(String, bool, bool)> {
            let pod = pod(json!({"containerStatuses": [status]}));
            pod.instances().map(|it| (it.id.to_owned(), it.is_previous, it.is_running)).collect()
        };
        let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        assert_eq!(ids(json!({"name": "c", "state": {"waiting": {}}})), []);
        let first = json!({"name": "c", "containerID": "x://1", "state": {"running": {}}});
        assert_eq!(ids(first), [("x://1".to_owned(), false, true)]);
        let again = json!({"name": "c", "containerID": "x://2", "state": {"running": {}}, "lastState": ended("x://1")});
        assert_eq!(ids(again), [("x://1".to_owned(), true, false), ("x://2".to_owned(), false, true)]);
        let waits = json!({"name": "c", "state": {"waiting": {}}, "lastState": ended("x://2")});
        assert_eq!(ids(waits), [("x://2".to_owned(), true, false)]);
        assert_eq!(ids(json!({"name": "c", "state": ended("x://3")})), [("x://3".to_owned(), false, false)]);
    }

    #[test]
    fn a_failed_pod_says_why() {
        let failed = pod(json!({"phase": "Failed", "containerStatuses": [
            {"name": "c", "state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "m"}}}]}));
        let failure = failed.failure().unwrap();
        assert_eq!((failure.exit_code, failure.reason.as_str(), failure.message.as_str()), (Some(3), "Error", "m"));
        assert_eq!(failure.container, None);
        let refused = pod(json!({"phase": "Failed", "reason": "CommandRequired", "message": "no command"}));
        let failure = refused.failure().unwrap();
        assert_eq!((failure.exit_code, failure.reason.as_str()), (None, "CommandRequired"));
        assert_eq!(pod(json!({"phase": "Running"})).failure(), None);
    }
}
