//! What the nursery says about processes.

use std::collections::HashMap;
use std::sync::Arc;

use super::act::answer;
use super::ends::exit;
use super::{Supervisor, Uid};
use crate::lifecycle::{Index, Input, StartFailure};
use crate::nursery::protocol::{End, ExecOutcome, InstanceId, Known, Report, Request, Welcome};

impl Supervisor {
    pub(super) async fn report(&mut self, report: Report) {
        match report {
            Report::Welcome(welcome) => self.welcomed_again(welcome).await,
            Report::Started { id, at } => {
                self.running.insert(&id.pod, &id.container, id.attempt);
                self.instance_input(&id, |container, attempt| Input::Started { container, attempt, at }).await;
            }
            Report::NotStarted { id, message, at } => {
                let failure = StartFailure::Start { message, at };
                self.instance_input(&id, |container, attempt| Input::NotStarted { container, attempt, failure }).await;
            }
            Report::Exited { id, end } => self.exited(id, end).await,
            Report::ExecFinished { token, outcome } => self.exec_finished(token, outcome).await,
        }
    }

    async fn exited(&mut self, id: InstanceId, end: End) {
        self.running.remove(&id.pod, &id.container, id.attempt);
        if self.pods.contains_key(&*id.pod) {
            let exit = exit(&end);
            self.instance_input(&id, |container, attempt| Input::Exited { container, attempt, exit }).await;
        } else {
            self.nursery.send(Request::Forget(vec![id])).await;
        }
    }

    async fn instance_input(&mut self, id: &InstanceId, input: impl FnOnce(Index, u32) -> Input) {
        let uid = Uid::from(id.pod.as_str());
        let index = self.pods.get(&uid).and_then(|entry| entry.life.index_of(&id.container));
        if let Some(index) = index {
            self.input(&uid, input(index, id.attempt)).await;
        }
    }

    pub(super) fn remember(&mut self, welcome: Welcome) {
        for known in welcome.instances {
            self.found.entry(known.id.pod.clone()).or_default().push(known);
        }
    }

    /// The nursery was lost and is back, or another one took its place: what it knows is the truth.
    async fn welcomed_again(&mut self, welcome: Welcome) {
        self.abilities = welcome.abilities;
        let known: HashMap<InstanceId, Known> =
            welcome.instances.into_iter().map(|known| (known.id.clone(), known)).collect();
        let all: Vec<(InstanceId, Option<Known>)> = self
            .pods
            .values()
            .flat_map(|entry| &entry.instances)
            .map(|id| (id.clone(), known.get(id).cloned()))
            .collect();
        self.disappoint_all().await;
        for (id, known) in all {
            match known {
                Some(Known { end: Some(end), .. }) => self.exited(id, end).await,
                Some(Known { started_at: Some(at), .. }) => {
                    self.instance_input(&id, |container, attempt| Input::Started { container, attempt, at }).await;
                }
                Some(_) => {}
                // It never heard of the order; the order is repeated.
                None => {
                    let failure = StartFailure::Config("the node's nursery was restarted".to_owned());
                    self.instance_input(&id, |container, attempt| Input::NotStarted { container, attempt, failure })
                        .await;
                }
            }
        }
    }

    /// Answers that were under way are lost with the nursery that was to give them.
    async fn disappoint_all(&mut self) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            let uid = Arc::clone(&asked.uid);
            self.input(&uid, answer(&asked, Err("the node's nursery was restarted".to_owned()))).await;
        }
    }

    async fn exec_finished(&mut self, token: u64, outcome: ExecOutcome) {
        let Some(asked) = self.asked.remove(&token) else { return };
        let result = match outcome {
            ExecOutcome::Exited { code: 0, .. } => Ok(()),
            ExecOutcome::Exited { output, .. } => Err(output),
            ExecOutcome::TimedOut { .. } => Err("command timed out".to_owned()),
            ExecOutcome::Failed(reason) => Err(reason),
        };
        self.input(&asked.uid.clone(), answer(&asked, result)).await;
    }
}
