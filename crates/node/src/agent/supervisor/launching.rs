//! Puts volumes in place and starts processes.

use std::sync::Arc;

use super::{Message, Supervisor, Uid};
use crate::launch::{self, volumes};
use crate::lifecycle::{Index, Input, StartFailure};
use crate::nursery::protocol::{Launch, Request};

impl Supervisor {
    pub(super) fn prepare(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.has_directory = true;
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (surroundings, sources, uid) = (Arc::clone(&self.surroundings), self.sources.clone(), Arc::clone(uid));
        self.spawn_call(async move {
            let directory = launch::volumes_directory(&surroundings.layout, &uid);
            let api_server = surroundings.api_server();
            let inputs = volumes::Inputs {
                facts: &facts,
                spec: &spec,
                allocatable: &surroundings.allocatable,
                api_server: api_server.as_deref(),
            };
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
            let directory = launch::volumes_directory(&self.surroundings.layout, uid);
            let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(spec));
            let (surroundings, sources) = (Arc::clone(&self.surroundings), self.sources.clone());
            self.spawn_call(async move {
                let api_server = surroundings.api_server();
                let inputs = volumes::Inputs {
                    facts: &facts,
                    spec: &spec,
                    allocatable: &surroundings.allocatable,
                    api_server: api_server.as_deref(),
                };
                // Only what was put in place before; a pod may be cleaned up meanwhile.
                if directory.is_dir() {
                    volumes::refresh(&directory, inputs, &sources).await;
                }
                Message::Nothing
            });
        }
    }

    pub(super) async fn start(&mut self, uid: &Uid, container: Index, attempt: u32) {
        let Some(entry) = self.pods.get(uid) else { return };
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (surroundings, can_mount) = (Arc::clone(&self.surroundings), self.abilities.mounts);
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
                can_mount,
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
