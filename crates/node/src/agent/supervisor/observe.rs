//! What the watch says about the pods of this node.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::ends::record;
use super::past::job_of;
use super::{Entry, Message, Supervisor, Uid};
use crate::agent::status::StatusState;
use crate::agent::watch::Change;
use crate::calls;
use crate::launch::admission::{self, Rejection};
use crate::launch::downward::PodFacts;
use crate::launch::fit::{self, Requests, Usage};
use crate::lifecycle::{Event, Input, Observed, PodLifecycle};
use crate::nursery::is_safe_uid;
use crate::nursery::protocol::Known;
use crate::pod::Pod;

/// When the API could not be asked.
const LABELS_RETRY: Duration = Duration::from_secs(1);

/// Has no agent of this node ever seen the pod?
fn is_new(pod: &Pod, known: &[Known]) -> bool {
    known.is_empty() && pod.status.start_time.is_none() && !pod.status.phase.is_terminal()
}

impl Supervisor {
    pub(super) async fn change(&mut self, change: Change) {
        match change {
            Change::Restarted => self.listing = Some(HashSet::new()),
            Change::Applied(pod) => self.applied(&pod).await,
            Change::Deleted(pod) => {
                if let Some(uid) = pod.metadata.uid.as_deref() {
                    self.gone(&Uid::from(uid)).await;
                }
            }
            Change::Listed => self.listed().await,
        }
    }

    async fn applied(&mut self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref().filter(|uid| is_safe_uid(uid)) else {
            tracing::warn!(pod = pod.metadata.name, "a pod with an impossible uid is left alone");
            return;
        };
        let uid = Uid::from(uid);
        if let Some(listing) = &mut self.listing {
            listing.insert(Arc::clone(&uid));
        }
        if self.pods.contains_key(&uid) {
            return self.observed(&uid, pod).await;
        }
        let is_terminal = pod.status.phase.is_terminal();
        if self.finished.contains(&uid) {
            if !is_terminal {
                return;
            }
            self.finished.remove(&uid);
        }
        if let Some(waiting) = self.choosy.get_mut(&uid) {
            waiting.clone_from(pod);
            return;
        }
        let records = self.found.remove(&*uid).unwrap_or_default();
        // A DELETE that came before the end waits for the node to confirm it (PL-48).
        let awaits_delete = pod.metadata.deletion_timestamp.is_some()
            && pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
        // Somebody else ended it while no agent was here to report what became of its containers.
        let is_unreported = !self.has_listed && pod.status.says_running();
        if is_new(pod, &records) && fit::is_choosy(&pod.spec) {
            self.choosy.insert(Arc::clone(&uid), pod.clone());
            self.read_labels(uid, Duration::ZERO);
        } else if !is_terminal || awaits_delete || is_unreported || !records.is_empty() {
            self.adopt(uid, pod, &records, None).await;
        }
    }

    /// Labels are anybody's to change, so they are read when they are needed.
    fn read_labels(&self, uid: Uid, after: Duration) {
        let (client, name) = (self.client.clone(), self.name.clone());
        self.spawn_call(async move {
            tokio::time::sleep(after).await;
            Message::Labels { uid, labels: calls::node_labels(&client, &name).await }
        });
    }

    pub(super) async fn labels_read(&mut self, uid: Uid, labels: Result<BTreeMap<String, String>, String>) {
        match labels {
            Ok(labels) => {
                let Some(pod) = self.choosy.remove(&uid) else { return };
                self.adopt(uid, &pod, &[], Some(&labels)).await;
            }
            Err(reason) if self.choosy.contains_key(&uid) => {
                tracing::warn!(reason, node = self.name, "the labels of the node cannot be read; trying again");
                self.read_labels(uid, LABELS_RETRY);
            }
            Err(_) => {}
        }
    }

    /// What a new pod is refused for. `labels` are those of the node, if it cares.
    fn rejection(&self, pod: &Pod, known: &[Known], labels: Option<&BTreeMap<String, String>>) -> Option<Rejection> {
        if !known.is_empty() || pod.status.phase.is_terminal() {
            return None;
        }
        if self.is_draining {
            return Some(admission::node_shutdown());
        }
        let checked = admission::check(&pod.spec, self.abilities).and_then(|()| {
            // One that was let in before has its place.
            if !is_new(pod, known) {
                return Ok(());
            }
            let wanted = Requests::of(&pod.spec);
            // Most pods ask for nothing; then it is enough to count.
            let is_plain = wanted == Requests::default() && (self.pods.len() as i64) < self.capacity.pods;
            let usage = if is_plain { Usage::default() } else { self.usage() };
            fit::check_room(wanted, usage, self.capacity)?;
            labels.map_or(Ok(()), |labels| fit::check_choice(&pod.spec, &self.name, labels))
        });
        checked.err()
    }

    /// A scheduler takes a pod off its account when the API says that it has ended, or nothing any more. What it sees of
    /// a node is never newer than what the node sees, so that there is room for whatever it has placed.
    fn usage(&self) -> Usage {
        let counts =
            |entry: &&Entry| !entry.life.has_ended() && !entry.life.is_gone() && !entry.observed.phase.is_terminal();
        self.pods.values().filter(counts).map(|entry| entry.requests).collect()
    }

    async fn observed(&mut self, uid: &Uid, pod: &Pod) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let observed = Observed::of(pod);
        let same = |known: &BTreeMap<String, String>, seen: Option<&BTreeMap<String, String>>| match seen {
            Some(seen) => known == seen,
            None => known.is_empty(),
        };
        let meta = &pod.metadata;
        if !same(&entry.facts.labels, meta.labels.as_ref())
            || !same(&entry.facts.annotations, meta.annotations.as_ref())
        {
            entry.facts = Arc::new(PodFacts::of(pod, &self.address.to_string()));
        }
        if entry.observed != observed {
            entry.observed = observed.clone();
            self.input(uid, Input::Observed(observed)).await;
        }
    }

    async fn adopt(&mut self, uid: Uid, pod: &Pod, known: &[Known], labels: Option<&BTreeMap<String, String>>) {
        let now = self.clock.now();
        let rejection = self.rejection(pod, known, labels);
        let life = match &rejection {
            Some(rejection) => {
                let (life, event) = PodLifecycle::rejected(pod, rejection.reason, &rejection.text, now);
                (life, Some(event))
            }
            None => {
                let records: Vec<_> = known.iter().map(record).collect();
                let missing = admission::unenforced(&pod.spec, self.abilities).filter(|_| is_new(pod, known));
                let event = |message| Event { is_warning: true, reason: "LimitsNotEnforced", message, container: None };
                (PodLifecycle::adopt(pod, &records, now), missing.map(event))
            }
        };
        let (life, event) = life;
        for instance in known.iter().filter(|instance| instance.end.is_none()) {
            self.running.insert(&instance.id.pod, &instance.id.container, instance.id.attempt);
        }
        let entry = Entry {
            life,
            facts: Arc::new(PodFacts::of(pod, &self.address.to_string())),
            observed: Observed::of(pod),
            status: StatusState::default(),
            requests: Requests::of(&pod.spec),
            wake: None,
            // One that ran before may have left some.
            has_directory: !known.is_empty(),
            instances: known.iter().map(|known| known.id.clone()).collect(),
            job: job_of(pod),
        };
        self.record_found(&entry, known);
        if let Some(rejection) = &rejection {
            self.record_rejected(&entry, rejection.reason, &rejection.text, now.wall);
        }
        self.pods.insert(Arc::clone(&uid), entry);
        if let Some(event) = event {
            self.event(&uid, event);
        }
        self.input(&uid, Input::Tick).await;
    }

    async fn listed(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let gone: Vec<Uid> = self.pods.keys().filter(|uid| !listing.contains(*uid)).cloned().collect();
        for uid in gone {
            self.gone(&uid).await;
        }
        self.finished.retain(|uid| listing.contains(uid));
        self.choosy.retain(|uid, _| listing.contains(uid));
        if !std::mem::replace(&mut self.has_listed, true) {
            self.sweep(&listing).await;
        }
    }

    pub(super) async fn gone(&mut self, uid: &Uid) {
        self.finished.remove(uid);
        self.choosy.remove(uid);
        if self.pods.contains_key(uid) {
            self.input(uid, Input::Gone).await;
        } else {
            self.remove_logs(uid);
        }
    }

    pub(super) fn remove_logs(&self, uid: &Uid) {
        let (surroundings, uid) = (Arc::clone(&self.surroundings), Arc::clone(uid));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = surroundings.layout.remove_logs(&uid) {
                tracing::warn!(%error, pod = &*uid, "logs cannot be removed");
            }
        });
    }

    /// After the first list: what is left of pods that do not exist any more ends here (PL-139).
    async fn sweep(&mut self, listing: &HashSet<Uid>) {
        let strangers = std::mem::take(&mut self.found).into_values().flatten().collect();
        self.dismiss(strangers).await;
        let is_kept = |path: &Path| path.file_name().and_then(OsStr::to_str).is_some_and(|uid| listing.contains(uid));
        let mut directories = std::mem::take(&mut self.directories);
        directories.retain(|path| !is_kept(path));
        tokio::task::spawn_blocking(move || {
            for path in directories {
                if let Err(error) = std::fs::remove_dir_all(&path) {
                    tracing::warn!(%error, path = %path.display(), "what a pod left behind cannot be removed");
                }
            }
        });
    }
}
