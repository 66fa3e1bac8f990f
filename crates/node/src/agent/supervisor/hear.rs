//! What the nursery says about processes.

use std::collections::{BTreeSet, HashMap};

use super::past::Ending;
use super::{Supervisor, Uid};
use crate::lifecycle::{Exit, Index, Input, StartFailure};
use crate::nursery::protocol::{Cause, End, InstanceId, Known, Report, Request, Welcome};

impl Supervisor {
    pub(super) async fn report(&mut self, report: Report) {
        if self.is_news_of_found(&report) {
            return;
        }
        match report {
            Report::Welcome(welcome) => self.welcomed_again(welcome).await,
            Report::Started { id, at } => {
                self.running.insert(&id.pod, &id.container, id.attempt);
                self.instance_input(&id, |container, attempt| Input::Started { container, attempt, at }).await;
            }
            Report::NotStarted { id, message, at } => self.ended(id, Ending::NotStarted { message, at }).await,
            Report::Exited { id, end } => self.exited(id, end).await,
            Report::ExecFinished { token, outcome } => self.exec_finished(token, outcome).await,
        }
    }

    /// News of an instance whose pod has not been listed yet are kept for when it is: nobody else would remember that it
    /// has started or ended since the nursery was connected (INV-50).
    fn is_news_of_found(&mut self, report: &Report) -> bool {
        let (Report::Started { id, .. } | Report::NotStarted { id, .. } | Report::Exited { id, .. }) = report else {
            return false;
        };
        let Some(known) = self.found.get_mut(&id.pod).and_then(|all| all.iter_mut().find(|known| known.id == *id))
        else {
            return false;
        };
        match report {
            Report::Started { at, .. } => known.started_at = Some(*at),
            Report::Exited { end, .. } => known.end = Some(end.clone()),
            Report::NotStarted { message, at, .. } => known.end = Some(End::not_started(message.clone(), *at)),
            Report::Welcome(_) | Report::ExecFinished { .. } => {}
        }
        true
    }

    async fn exited(&mut self, id: InstanceId, end: End) {
        self.running.remove(&id.pod, &id.container, id.attempt);
        if self.pods.contains_key(&*id.pod) {
            self.ended(id, Ending::Exited(end)).await;
        } else {
            self.nursery.send(Request::Forget(vec![id])).await;
        }
    }

    pub(super) async fn instance_input(&mut self, id: &InstanceId, input: impl FnOnce(Index, u32) -> Input) {
        let uid = Uid::from(id.pod.as_str());
        let index = self.pods.get(&uid).and_then(|entry| entry.life.index_of(&id.container));
        if let Some(index) = index {
            self.input(&uid, input(index, id.attempt)).await;
        }
    }

    /// What to ask about when its pod is listed.
    pub(super) fn remember(&mut self, instances: impl Iterator<Item = Known>) {
        for known in instances {
            self.found.entry(known.id.pod.clone()).or_default().push(known);
        }
    }

    /// Instances of pods that do not exist any more (PL-139).
    pub(super) async fn dismiss(&mut self, strangers: Vec<Known>) {
        for known in strangers.iter().filter(|known| known.end.is_none()) {
            self.nursery.send(Request::Kill(known.id.clone())).await;
        }
        let ended = strangers.into_iter().filter(|known| known.end.is_some()).map(|known| known.id).collect();
        self.nursery.send(Request::Forget(ended)).await;
    }

    /// The nursery was lost and is back, or another one took its place: what it knows is the truth.
    async fn welcomed_again(&mut self, welcome: Welcome) {
        self.abilities = welcome.abilities;
        let (own, others): (Vec<Known>, Vec<Known>) =
            welcome.instances.into_iter().partition(|known| self.pods.contains_key(&*known.id.pod));
        let known: HashMap<InstanceId, Known> = own.into_iter().map(|known| (known.id.clone(), known)).collect();
        if self.has_listed {
            self.dismiss(others).await;
        } else {
            self.found.clear();
            self.remember(others.into_iter());
        }
        let all: Vec<(InstanceId, Option<Known>)> = self
            .pods
            .values()
            .flat_map(|entry| &entry.instances)
            .map(|id| (id.clone(), known.get(id).cloned()))
            .collect();
        for uid in self.pods_without_sandbox(&all) {
            self.input(&uid, Input::SandboxLost).await;
        }
        self.disappoint_all().await;
        for (id, known) in all {
            match known {
                Some(Known { end: Some(end), .. }) => self.exited(id, end).await,
                Some(Known { started_at: Some(at), .. }) => {
                    self.instance_input(&id, |container, attempt| Input::Started { container, attempt, at }).await;
                }
                Some(_) => {}
                None => self.unheard_of(&id).await,
            }
        }
    }

    /// Pods of which something ran under a nursery that is gone.
    fn pods_without_sandbox(&self, instances: &[(InstanceId, Option<Known>)]) -> BTreeSet<Uid> {
        let is_lost = |id: &InstanceId, known: Option<&Known>| {
            let life = &self.pods.get(&*id.pod)?.life;
            let index = life.index_of(&id.container)?;
            Some(match known {
                Some(known) => {
                    let is_unseen = known.end.as_ref().is_some_and(|end| end.cause == Cause::Unseen);
                    is_unseen && life.is_current(index, id.attempt)
                }
                None => life.running_since(index, id.attempt).is_some(),
            })
        };
        let lost = instances.iter().filter(|(id, known)| is_lost(id, known.as_ref()) == Some(true));
        lost.map(|(id, _)| Uid::from(id.pod.as_str())).collect()
    }

    /// The nursery knows nothing of an instance: it ran and the journal is lost, or the order to start it did not arrive
    /// and is repeated.
    async fn unheard_of(&mut self, id: &InstanceId) {
        let life = self.pods.get(&*id.pod).map(|entry| &entry.life);
        let since = life.and_then(|life| life.running_since(life.index_of(&id.container)?, id.attempt));
        if since.is_some() {
            self.running.remove(&id.pod, &id.container, id.attempt);
            let exit = Exit::unseen(since, self.clock.now().wall);
            self.instance_input(id, |container, attempt| Input::Exited { container, attempt, exit }).await;
        } else {
            let failure = StartFailure::Config("the node's nursery was restarted".to_owned());
            self.instance_input(id, |container, attempt| Input::NotStarted { container, attempt, failure }).await;
        }
    }
}
