//! Pods whose volumes have grown over their limits are evicted (PL-67).

use std::path::PathBuf;
use std::sync::Arc;

use super::{Message, Supervisor, Uid};
use crate::launch::{self, space};
use crate::lifecycle::Input;
use crate::pod::PodSpec;

impl Supervisor {
    /// Looks at the volumes of all pods, one after the other and beside the loop. A look that takes longer than the time
    /// between two delays the next.
    pub(super) fn measure_volumes(&mut self) {
        if self.is_measuring {
            return;
        }
        let limited = self.pods.iter().filter(|(_, entry)| !entry.life.has_ended() && entry.has_directory);
        let limited: Vec<(Uid, PathBuf, Arc<PodSpec>)> = limited
            .filter(|(_, entry)| space::is_limited(entry.life.spec()))
            .map(|(uid, entry)| {
                let directory = launch::volumes_directory(&self.surroundings.layout, uid);
                (Arc::clone(uid), directory, Arc::clone(entry.life.spec()))
            })
            .collect();
        if limited.is_empty() {
            return;
        }
        self.is_measuring = true;
        let messages = self.messages.clone();
        tokio::task::spawn_blocking(move || {
            for (uid, directory, spec) in limited {
                if let Some(message) = space::exceeded(&directory, &spec) {
                    let _ = messages.blocking_send(Message::Input { uid, input: Input::Evicted { message } });
                }
            }
            let _ = messages.blocking_send(Message::Measured);
        });
    }
}
