//! What the watches of Jobs and pods show, and what follows from it (JC section 2).
//!
//! Handlers only note the change and queue what has to be looked at; they run in the watches' own tasks.

use batch_plan::job::{Noticed, PodView, Uid};
use batch_types::job::is_finished;
use k8s_openapi::api::batch::v1::Job;
use serde::Deserialize;
use teeth::{Mutation, is};

use super::{
    orphans::Orphan,
    pacing::News,
    shared::{Entry, Shared, State, uid_of, version_of},
};
use crate::runtime::{Change, Mirrored};

/// A pod as the watch hands it on.
#[derive(Debug, Deserialize)]
#[serde(from = "PodView")]
pub(super) struct WatchedPod {
    uid: Box<str>,
    pub(super) view: PodView,
}

impl From<PodView> for WatchedPod {
    fn from(view: PodView) -> Self {
        Self { uid: view.uid.to_string().into(), view }
    }
}

impl Mirrored for WatchedPod {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.view.resource_version
    }
}

impl Mirrored for Job {
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or("")
    }

    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or("")
    }
}

impl Shared {
    pub(super) fn job_changed(&self, change: Change<Job>) {
        match change {
            Change::Applied(job) => self.job_applied(job),
            Change::Deleted(job) => self.job_gone(&uid_of(&job)),
            Change::Vanished { uid } => self.job_gone(&Uid::new(&uid)),
            Change::Synced => self.state.lock().listed = true,
        }
    }

    pub(super) fn pod_changed(&self, change: Change<WatchedPod>) {
        let now = self.environment.now();
        let mut state = self.state.lock();
        let (uid, noticed) = match change {
            Change::Applied(pod) => (pod.view.uid.clone(), state.ledger.observe_pod(pod.view, now)),
            Change::Deleted(pod) => (pod.view.uid.clone(), state.ledger.forget_pod(&pod.view.uid)),
            Change::Vanished { uid } => {
                let uid = Uid::new(&uid);
                let noticed = state.ledger.forget_pod(&uid);
                (uid, noticed)
            }
            Change::Synced => return,
        };
        self.follow(&mut state, &uid, &noticed);
    }

    /// JC-201…205.
    fn job_applied(&self, mut job: Job) {
        // Nothing here reads it, and it is half of a Job's size.
        job.metadata.managed_fields = None;
        let uid = uid_of(&job);
        let mut state = self.state.lock();
        let may_be_known = self.may_be_known(&state, &job);
        let news = match state.jobs.get_mut(&uid) {
            None => {
                self.count_external(&job);
                state.jobs.insert(uid.clone(), Entry::new(job, may_be_known));
                News::Now
            }
            Some(known) => {
                let (old, new) = (version_of(&known.job), version_of(&job));
                let is_echo = new != 0 && new <= old;
                let same_spec = known.job.metadata.generation == job.metadata.generation;
                if is_echo {
                    // Our own write, which the answer to it had shown before.
                    if new == old {
                        known.job = job.into();
                    }
                    return;
                }
                known.show(job);
                if same_spec && !is_finished(&known.job) { News::Status } else { News::Now }
            }
        };
        self.observe(&mut state, &uid);
        self.notice(&mut state, &uid, news);
    }

    /// JC-206. Nothing of the Job is remembered, so a namesake starts from nothing (INV-31).
    fn job_gone(&self, uid: &Uid) {
        let mut state = self.state.lock();
        if is(Mutation::C13) {
            return;
        }
        let Some(entry) = state.jobs.remove(uid) else { return };
        self.jobs.discard(uid);
        let namespace = entry.job.metadata.namespace.clone().unwrap_or_default();
        for pod in state.ledger.forget_job(uid) {
            self.orphans.add(Orphan { namespace: namespace.clone(), name: pod.name, uid: pod.uid, job_is_gone: true });
        }
    }

    /// What a pod event calls for.
    fn follow(&self, state: &mut State, pod: &Uid, noticed: &Noticed) {
        if let Some(change) = noticed.ended_with_finalizer {
            self.metrics.ended_with_finalizer(change);
        }
        if noticed.orphan
            && let Some(stray) = state.ledger.stray_pod(pod)
        {
            let name = stray.name.as_str().into();
            let namespace = stray.namespace.clone();
            self.orphans.add(Orphan { namespace, name, uid: pod.clone(), job_is_gone: false });
        }
        for job in &noticed.jobs {
            self.notice(state, job, News::Soon);
        }
    }

    /// JC-201, JC-2503: when a Job is first seen, never on updates.
    fn count_external(&self, job: &Job) {
        let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
        if let Some(name) = managed_by.filter(|_| !batch_plan::job::owns(job, &self.settings)) {
            self.metrics.external_job(name);
        }
    }
}
