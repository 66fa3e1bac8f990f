//! Carries out what a pod's lifecycle decides: signals, events, removal. Starting is in `launching`, probes and hooks
//! are in `asking`.

use std::sync::Arc;
use std::time::Duration;

use super::{Message, Supervisor, Uid};
use crate::agent::events::Subject;
use crate::calls;
use crate::lifecycle::{Action, Event, Index, Input};
use crate::nursery::protocol::{InstanceId, Request};

impl Supervisor {
    pub(super) async fn act(&mut self, uid: &Uid, action: Action) {
        match action {
            Action::Prepare => self.prepare(uid),
            Action::Start { container, attempt } => self.start(uid, container, attempt).await,
            Action::Terminate { container, attempt } => {
                if let Some(id) = self.instance(uid, container, attempt) {
                    self.nursery.send(Request::Terminate(id)).await;
                }
            }
            Action::Kill { container, attempt } => {
                if let Some(id) = self.instance(uid, container, attempt) {
                    self.nursery.send(Request::Kill(id)).await;
                }
            }
            Action::RunHook { container, attempt, hook } => self.run_hook(uid, container, attempt, hook).await,
            Action::Probe { container, attempt, probe } => self.probe(uid, container, attempt, probe).await,
            Action::Event(event) => self.event(uid, event),
            Action::CleanUp => self.clean_up(uid).await,
            Action::Delete => self.delete(uid, Duration::ZERO),
            Action::Forget => self.forget(uid).await,
        }
    }

    pub(super) fn instance(&self, uid: &Uid, container: Index, attempt: u32) -> Option<InstanceId> {
        let container = self.pods.get(uid)?.life.container_spec(container).name.clone();
        Some(InstanceId { pod: uid.to_string(), container, attempt })
    }

    pub(super) fn event(&mut self, uid: &Uid, event: Event) {
        let Some(entry) = self.pods.get(uid) else { return };
        let field_path = event.container.map(|index| {
            let list = if index < entry.life.spec().init_containers.len() { "initContainers" } else { "containers" };
            format!("spec.{list}{{{}}}", entry.life.container_spec(index).name)
        });
        let subject = Subject {
            namespace: entry.facts.namespace.clone(),
            name: entry.facts.name.clone(),
            uid: uid.to_string(),
            field_path,
        };
        self.recorder.record(subject, event.is_warning, event.reason, event.message);
    }

    async fn clean_up(&mut self, uid: &Uid) {
        let has_directory = self.pods.get(uid).is_some_and(|entry| entry.has_directory);
        if !has_directory {
            return Box::pin(self.input(uid, Input::CleanedUp)).await;
        }
        let (surroundings, messages, uid) = (Arc::clone(&self.surroundings), self.messages.clone(), Arc::clone(uid));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = surroundings.layout.remove_pod(&uid) {
                tracing::warn!(%error, pod = &*uid, "the pod's directory cannot be removed");
            }
            let _ = messages.blocking_send(Message::Input { uid, input: Input::CleanedUp });
        });
    }

    pub(super) fn delete_later(&self, uid: &Uid) {
        self.delete(uid, Duration::from_secs(1));
    }

    fn delete(&self, uid: &Uid, after: Duration) {
        let Some(entry) = self.pods.get(uid) else { return };
        let (client, facts, uid) = (self.client.clone(), Arc::clone(&entry.facts), Arc::clone(uid));
        self.spawn_call(async move {
            tokio::time::sleep(after).await;
            let answer = calls::delete_pod(&client, &facts.namespace, &facts.name, &facts.uid).await;
            Message::DeleteSent { uid, answer }
        });
    }

    async fn forget(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.remove(uid) else { return };
        if let Some(at) = entry.wake {
            self.timers.remove(&(at, Arc::clone(uid)));
        }
        if !entry.instances.is_empty() {
            self.nursery.send(Request::Forget(entry.instances.into_iter().collect())).await;
        }
        if entry.life.is_gone() {
            self.remove_logs(uid);
        } else {
            self.finished.insert(Arc::clone(uid));
        }
    }
}
