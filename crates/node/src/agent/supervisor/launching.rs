//! Puts volumes in place and starts processes.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Entry, Message, Supervisor, Uid};
use crate::launch::downward::PodFacts;
use crate::launch::sources::Sources;
use crate::launch::{self, Surroundings, volumes};
use crate::lifecycle::{Index, Input, StartFailure};
use crate::nursery::protocol::{Abilities, Launch, Request};
use crate::pod::PodSpec;

/// The volumes of one pod, to be worked on beside the loop.
struct PodVolumes {
    directory: PathBuf,
    facts: Arc<PodFacts>,
    spec: Arc<PodSpec>,
    surroundings: Arc<Surroundings>,
    abilities: Abilities,
    sources: Sources,
}

impl PodVolumes {
    async fn prepare(&self) -> Result<(), String> {
        let api_server = self.surroundings.api_server();
        volumes::prepare(&self.directory, self.inputs(api_server.as_deref()), &self.sources).await
    }

    /// Only what was put in place before; a pod may be cleaned up meanwhile.
    async fn refresh(&self) {
        let api_server = self.surroundings.api_server();
        if self.directory.is_dir() {
            volumes::refresh(&self.directory, self.inputs(api_server.as_deref()), &self.sources).await;
        }
    }

    fn inputs<'a>(&'a self, api_server: Option<&'a str>) -> volumes::Inputs<'a> {
        let Self { facts, spec, surroundings, abilities, .. } = self;
        let Surroundings { allocatable, .. } = &**surroundings;
        volumes::Inputs { facts, spec, allocatable, api_server, can_change_group: abilities.users }
    }
}

impl Supervisor {
    pub(super) fn prepare(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.has_directory = true;
        let Some(entry) = self.pods.get(uid) else { return };
        let (volumes, uid) = (self.volumes(uid, entry), Arc::clone(uid));
        self.spawn_call(async move { Message::Input { uid, input: Input::Prepared(volumes.prepare().await) } });
    }

    /// Files of ConfigMaps, Secrets and the downward API follow their sources while the pod runs.
    pub(super) fn refresh_volumes(&self) {
        for (uid, entry) in &self.pods {
            let spec = entry.life.spec();
            if entry.life.has_ended() || !spec.volumes.iter().any(volumes::is_refreshed) {
                continue;
            }
            let volumes = self.volumes(uid, entry);
            self.spawn_call(async move {
                volumes.refresh().await;
                Message::Nothing
            });
        }
    }

    fn volumes(&self, uid: &Uid, entry: &Entry) -> PodVolumes {
        PodVolumes {
            directory: launch::volumes_directory(&self.surroundings.layout, uid),
            facts: Arc::clone(&entry.facts),
            spec: Arc::clone(entry.life.spec()),
            surroundings: Arc::clone(&self.surroundings),
            abilities: self.abilities,
            sources: self.sources.clone(),
        }
    }

    pub(super) async fn start(&mut self, uid: &Uid, container: Index, attempt: u32) {
        let Some(entry) = self.pods.get(uid) else { return };
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (surroundings, abilities) = (Arc::clone(&self.surroundings), self.abilities);
        let is_self_contained = launch::is_self_contained(entry.life.container_spec(container));
        let sources = self.sources.clone();
        let own_uid = Arc::clone(uid);
        let made = async move {
            let inputs = launch::Inputs {
                facts: &facts,
                spec: &spec,
                container: spec.container(container),
                surroundings: &surroundings,
                attempt,
                abilities,
            };
            match is_self_contained {
                true => launch::launch_self_contained(inputs),
                false => launch::launch(inputs, &sources).await,
            }
            .map(Box::new)
        };
        if is_self_contained {
            // Nothing to wait for.
            let launch = made.await;
            Box::pin(self.launch(uid, container, attempt, launch)).await;
        } else {
            self.spawn_call(async move {
                let launch = made.await;
                Message::Launch { uid: own_uid, container, attempt, launch }
            });
        }
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
}
