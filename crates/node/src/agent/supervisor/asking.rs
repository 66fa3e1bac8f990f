//! Probes and hooks: asked beside the loop, answered as inputs. Commands are run by the nursery, the rest from here.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, SleepAction, TCPSocketAction};

use super::{Message, Supervisor, Uid};
use crate::agent::probing;
use crate::lifecycle::{Event, Hook, Index, Input, ProbeKind};
use crate::nursery::protocol::{Exec, ExecOutcome, Request};

/// A hook without a limit of its own is cut off after this; a stop never waits longer anyway.
const HOOK_TIMEOUT: Duration = Duration::from_secs(3600);

/// What an answer is for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    uid: Uid,
    container: Index,
    attempt: u32,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Hook(Hook),
    Probe(ProbeKind),
}

/// The actions that probes and hooks have between them.
#[derive(Debug, Default)]
struct Question {
    exec: Option<ExecAction>,
    http_get: Option<HTTPGetAction>,
    tcp_socket: Option<TCPSocketAction>,
    sleep: Option<SleepAction>,
}

impl Asked {
    /// A probe that passed, though not as it should.
    fn warning(&self, kind: ProbeKind, text: &str) -> Event {
        let message = format!("{} probe warning: {text}", kind.title());
        Event { is_warning: true, reason: "ProbeWarning", message, container: Some(self.container) }
    }

    fn answer(self, result: Result<(), String>) -> (Uid, Input) {
        let Self { uid, container, attempt, purpose } = self;
        let input = match purpose {
            Purpose::Hook(hook) => Input::HookFinished { container, attempt, hook, result },
            Purpose::Probe(probe) => Input::Probed { container, attempt, probe, result },
        };
        (uid, input)
    }
}

impl Supervisor {
    pub(super) async fn run_hook(&mut self, uid: &Uid, container: Index, attempt: u32, hook: Hook) {
        let Some(entry) = self.pods.get(uid) else { return };
        let lifecycle = entry.life.container_spec(container).lifecycle.as_deref();
        let handler = lifecycle.and_then(|lifecycle| match hook {
            Hook::PostStart => lifecycle.post_start.clone(),
            Hook::PreStop => lifecycle.pre_stop.clone(),
        });
        let Some(handler) = handler else { return };
        let question = Question {
            exec: handler.exec,
            http_get: handler.http_get,
            tcp_socket: handler.tcp_socket,
            sleep: handler.sleep,
        };
        let asked = Asked { uid: Arc::clone(uid), container, attempt, purpose: Purpose::Hook(hook) };
        self.ask(asked, question, HOOK_TIMEOUT).await;
    }

    pub(super) async fn probe(&mut self, uid: &Uid, container: Index, attempt: u32, kind: ProbeKind) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(probe) = kind.of(entry.life.container_spec(container)).cloned() else { return };
        let seconds = probe.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(1).max(1);
        let question =
            Question { exec: probe.exec, http_get: probe.http_get, tcp_socket: probe.tcp_socket, sleep: None };
        let asked = Asked { uid: Arc::clone(uid), container, attempt, purpose: Purpose::Probe(kind) };
        self.ask(asked, question, Duration::from_secs(seconds)).await;
    }

    async fn ask(&mut self, asked: Asked, question: Question, limit: Duration) {
        if let Some(exec) = question.exec {
            return self.exec(asked, exec.command.unwrap_or_default(), limit).await;
        }
        let Some(entry) = self.pods.get(&asked.uid) else { return };
        let ports = entry.life.container_spec(asked.container).ports.clone();
        // Answers may take long: they do not take a permit from status writes.
        let (messages, address) = (self.messages.clone(), self.address);
        tokio::spawn(async move {
            let result = if let Some(sleep) = question.sleep {
                tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
                Ok(())
            } else if let Some(get) = question.http_get {
                match asked.purpose {
                    Purpose::Probe(kind) => {
                        let result = probing::http(&get, &ports, address, limit).await;
                        if let Ok(Some(warning)) = &result {
                            let (uid, event) = (Arc::clone(&asked.uid), asked.warning(kind, warning));
                            let _ = messages.send(Message::Event { uid, event }).await;
                        }
                        result.map(drop)
                    }
                    Purpose::Hook(_) => probing::http_hook(&get, &ports, address, limit).await,
                }
            } else if let Some(tcp) = question.tcp_socket {
                probing::tcp(&tcp, &ports, address, limit).await
            } else {
                Err("this node has no probes or hooks of this kind".to_owned())
            };
            let (uid, input) = asked.answer(result);
            let _ = messages.send(Message::Input { uid, input }).await;
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

    pub(super) async fn exec_finished(&mut self, token: u64, outcome: ExecOutcome) {
        let Some(asked) = self.asked.remove(&token) else { return };
        let result = match outcome {
            ExecOutcome::Exited { code: 0, .. } => Ok(()),
            ExecOutcome::Exited { output, .. } => Err(output),
            ExecOutcome::TimedOut { .. } => Err("command timed out".to_owned()),
            ExecOutcome::Failed(reason) => Err(reason),
        };
        let (uid, input) = asked.answer(result);
        self.input(&uid, input).await;
    }

    /// Answers that were under way are lost with the nursery that was to give them.
    pub(super) async fn disappoint_all(&mut self) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            let (uid, input) = asked.answer(Err("the node's nursery was restarted".to_owned()));
            self.input(&uid, input).await;
        }
    }
}
