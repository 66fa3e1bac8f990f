//! Carries out what a pod's lifecycle decides.

use std::sync::Arc;
use std::time::Duration;

use super::{Asked, Message, Purpose, Supervisor, Uid};
use crate::agent::events::Subject;
use crate::agent::probing;
use crate::calls;
use crate::launch::{self, volumes};
use crate::lifecycle::{Action, Event, Hook, Index, Input, ProbeKind, StartFailure};
use crate::nursery::protocol::{Exec, InstanceId, Launch, Request};

/// A hook without a limit of its own is cut off after this; a stop never waits longer anyway.
const HOOK_TIMEOUT: Duration = Duration::from_secs(3600);

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

    fn instance(&self, uid: &Uid, container: Index, attempt: u32) -> Option<InstanceId> {
        let container = self.pods.get(uid)?.life.container_spec(container).name.clone();
        Some(InstanceId { pod: uid.to_string(), container, attempt })
    }

    fn prepare(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.has_directory = true;
        let directory = launch::volumes_directory(&self.layout, uid);
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (allocatable, sources, uid) = (Arc::clone(&self.allocatable), self.sources.clone(), Arc::clone(uid));
        self.spawn_call(async move {
            let inputs = volumes::Inputs { facts: &facts, spec: &spec, allocatable: &allocatable };
            let result = volumes::prepare(&directory, inputs, &sources).await;
            Message::Input { uid, input: Input::Prepared(result) }
        });
    }

    /// Files of ConfigMaps, Secrets and the downward API follow their sources while the pod runs.
    pub(super) fn refresh_volumes(&self) {
        for (uid, entry) in &self.pods {
            let spec = entry.life.spec();
            if entry.life.has_ended() || !spec.volumes.iter().any(volumes::is_refreshed) {
                continue;
            }
            let directory = launch::volumes_directory(&self.layout, uid);
            let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(spec));
            let (allocatable, sources) = (Arc::clone(&self.allocatable), self.sources.clone());
            self.spawn_call(async move {
                let inputs = volumes::Inputs { facts: &facts, spec: &spec, allocatable: &allocatable };
                // Only what was put in place before; a pod may be cleaned up meanwhile.
                if directory.is_dir() {
                    volumes::refresh(&directory, inputs, &sources).await;
                }
                Message::Nothing
            });
        }
    }

    async fn start(&mut self, uid: &Uid, container: Index, attempt: u32) {
        let Some(entry) = self.pods.get(uid) else { return };
        let inputs = launch::Inputs {
            facts: &entry.facts,
            spec: entry.life.spec(),
            container: entry.life.container_spec(container),
            allocatable: &self.allocatable,
            base: &self.options.environment,
            layout: &self.layout,
            log: self.options.log,
            attempt,
            can_mount: self.abilities.mounts,
        };
        if launch::is_self_contained(inputs.container) {
            let launch = launch::launch_self_contained(inputs).map(Box::new);
            return Box::pin(self.launch(uid, container, attempt, launch)).await;
        }
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (allocatable, sources, uid) = (Arc::clone(&self.allocatable), self.sources.clone(), Arc::clone(uid));
        let (layout, base, log) = (self.layout.clone(), self.options.environment.clone(), self.options.log);
        let can_mount = self.abilities.mounts;
        self.spawn_call(async move {
            let init = spec.init_containers.len();
            let own = spec.init_containers.get(container).unwrap_or_else(|| &spec.containers[container - init]);
            let inputs = launch::Inputs {
                facts: &facts,
                spec: &spec,
                container: own,
                allocatable: &allocatable,
                base: &base,
                layout: &layout,
                log,
                attempt,
                can_mount,
            };
            let launch = launch::launch(inputs, &sources).await.map(Box::new);
            Message::Launch { uid, container, attempt, launch }
        });
    }

    pub(super) async fn launch(
        &mut self,
        uid: &Uid,
        container: Index,
        attempt: u32,
        launch: Result<Box<Launch>, String>,
    ) {
        match launch {
            Ok(launch) => {
                let Some(entry) = self.pods.get_mut(uid) else { return };
                entry.instances.insert(launch.id.clone());
                entry.has_directory |= !launch.mounts.is_empty();
                self.nursery.send(Request::Start(launch)).await;
            }
            Err(message) => {
                let failure = StartFailure::Config(message);
                Box::pin(self.input(uid, Input::NotStarted { container, attempt, failure })).await;
            }
        }
    }

    async fn run_hook(&mut self, uid: &Uid, container: Index, attempt: u32, hook: Hook) {
        let Some(entry) = self.pods.get(uid) else { return };
        let lifecycle = entry.life.container_spec(container).lifecycle.as_deref();
        let handler = lifecycle.and_then(|lifecycle| match hook {
            Hook::PostStart => lifecycle.post_start.clone(),
            Hook::PreStop => lifecycle.pre_stop.clone(),
        });
        let Some(handler) = handler else { return };
        let asked = Asked { uid: Arc::clone(uid), container, attempt, purpose: Purpose::Hook(hook) };
        let address = self.options.address;
        if let Some(exec) = handler.exec {
            return self.exec(asked, exec.command.unwrap_or_default(), HOOK_TIMEOUT).await;
        }
        // Hooks may last: they do not take a permit from status writes.
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let result = if let Some(sleep) = handler.sleep {
                tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
                Ok(())
            } else if let Some(get) = handler.http_get {
                probing::http(&get, address, HOOK_TIMEOUT).await
            } else if let Some(tcp) = handler.tcp_socket {
                probing::tcp(&tcp, address, HOOK_TIMEOUT).await
            } else {
                Err("the hook has no action".to_owned())
            };
            let _ = messages.send(Message::Input { uid: Arc::clone(&asked.uid), input: answer(&asked, result) }).await;
        });
    }

    async fn probe(&mut self, uid: &Uid, container: Index, attempt: u32, kind: ProbeKind) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(probe) = kind.of(entry.life.container_spec(container)).cloned() else { return };
        let seconds = probe.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(1).max(1);
        let limit = Duration::from_secs(seconds);
        let asked = Asked { uid: Arc::clone(uid), container, attempt, purpose: Purpose::Probe(kind) };
        let address = self.options.address;
        if let Some(exec) = probe.exec {
            return self.exec(asked, exec.command.unwrap_or_default(), limit).await;
        }
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let result = if let Some(get) = probe.http_get {
                probing::http(&get, address, limit).await
            } else if let Some(tcp) = probe.tcp_socket {
                probing::tcp(&tcp, address, limit).await
            } else {
                Err("this node has no probes of this kind".to_owned())
            };
            let _ = messages.send(Message::Input { uid: Arc::clone(&asked.uid), input: answer(&asked, result) }).await;
        });
    }

    async fn exec(&mut self, asked: Asked, command: Vec<String>, limit: Duration) {
        let Some(id) = self.instance(&asked.uid, asked.container, asked.attempt) else { return };
        let token = self.next_token;
        self.next_token += 1;
        self.asked.insert(token, asked);
        let timeout_millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.nursery.send(Request::Exec(Box::new(Exec { token, id, command, timeout_millis }))).await;
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
        let (layout, messages, uid) = (self.layout.clone(), self.messages.clone(), Arc::clone(uid));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = layout.remove_pod(&uid) {
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

/// The input that answers a question.
pub(super) fn answer(asked: &Asked, result: Result<(), String>) -> Input {
    let Asked { container, attempt, .. } = *asked;
    match asked.purpose {
        Purpose::Hook(hook) => Input::HookFinished { container, attempt, hook, result },
        Purpose::Probe(probe) => Input::Probed { container, attempt, probe, result },
    }
}
