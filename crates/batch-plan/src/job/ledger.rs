//! The pods of all Jobs: which event concerns which Job, and what has to be looked at because of it (JC section 2).
//!
//! The shell feeds it both watches. It remembers where each pod is, so that a pod that changes owner leaves the old tally,
//! and it offers pods without an owner to the Jobs whose selector matches them, once, when either of them appears.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use batch_types::gates::Gates;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::{PodRef, PodView, Tally, Uid};

/// Everything known about pods.
#[derive(Debug)]
pub struct Ledger {
    gates: Gates,
    jobs: HashMap<Uid, JobPods>,
    /// Unfinished and finished Jobs by namespace.
    namespaces: HashMap<String, BTreeSet<Uid>>,
    /// Pods that no known Job controls and that may concern one: without controller, or with a Job that is not there.
    strays: BTreeMap<Uid, PodView>,
    /// Where each pod is: in the tally of that Job, or among the strays.
    homes: HashMap<Uid, Home>,
}

#[derive(Debug)]
struct JobPods {
    namespace: String,
    tally: Tally,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Home {
    Job(Uid),
    Stray,
}

/// What a pod event calls for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Jobs to sync soon.
    pub jobs: Vec<Uid>,
    /// The pod may be an [orphan](super::is_orphan): ask, and release it if so.
    pub orphan: bool,
    /// Add this to `terminated_pods_tracking_finalizer_total`, label `event` (JC-2208).
    pub ended_with_finalizer: Option<Change>,
}

/// Label `event` of `terminated_pods_tracking_finalizer_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Add,
    Delete,
}

impl Ledger {
    pub fn new(gates: Gates) -> Self {
        Self { gates, jobs: HashMap::new(), namespaces: HashMap::new(), strays: BTreeMap::new(), homes: HashMap::new() }
    }

    /// A Job is new or has changed. Call it before planning for the Job.
    pub fn observe_job(&mut self, job: &Job, now: Timestamp) {
        let uid = Uid::new(job.metadata.uid.as_deref().unwrap_or(""));
        if let Some(known) = self.jobs.get_mut(&uid) {
            known.tally.observe_job(job, self.gates);
            return;
        }
        let namespace = job.metadata.namespace.clone().unwrap_or_default();
        let mut tally = Tally::new(job, self.gates);
        let nearby = self.strays.values().filter(|pod| pod.namespace == namespace);
        let (own, others): (Vec<_>, Vec<_>) =
            nearby.partition(|pod| pod.controller.as_ref().is_some_and(|owner| owner.uid == uid));
        for pod in &own {
            tally.observe_pod(pod, now);
        }
        for pod in others.into_iter().filter(|pod| pod.controller.is_none()) {
            tally.observe_stray(pod);
        }
        let own: Vec<Uid> = own.into_iter().map(|pod| pod.uid.clone()).collect();
        for pod in own {
            self.strays.remove(&pod);
            self.homes.insert(pod, Home::Job(uid.clone()));
        }
        self.namespaces.entry(namespace.clone()).or_default().insert(uid.clone());
        self.jobs.insert(uid, JobPods { namespace, tally });
    }

    /// The Job is gone. Returns its pods that are still tracked: nobody else will release them (JC-206).
    pub fn forget_job(&mut self, uid: &Uid) -> Vec<PodRef> {
        let Some(JobPods { namespace, tally }) = self.jobs.remove(uid) else { return Vec::new() };
        if let Some(jobs) = self.namespaces.get_mut(&namespace) {
            jobs.remove(uid);
            if jobs.is_empty() {
                self.namespaces.remove(&namespace);
            }
        }
        let tracked = tally.tracked().map(|(_, pod)| tally.pod_ref(pod)).collect();
        for pod in tally.pods.keys() {
            self.homes.remove(pod);
        }
        tracked
    }

    /// A pod is new or has changed.
    pub fn observe_pod(&mut self, pod: PodView, now: Timestamp) -> Noticed {
        let uid = pod.uid.clone();
        let ended_before = self.ended_with_finalizer(&uid);
        let mut noticed = Noticed::default();
        let home = self.home(&pod);
        let before = match &home {
            Some(home) => self.homes.insert(uid.clone(), home.clone()),
            None => self.homes.remove(&uid),
        };
        if let Some(Home::Job(job)) = before.filter(|before| Some(before) != home.as_ref()) {
            self.tally_mut(&job).map(|tally| tally.forget_pod(&uid));
            noticed.jobs.push(job);
        }
        match home {
            Some(Home::Job(job)) => {
                self.withdraw(&uid);
                self.tally_mut(&job).map(|tally| tally.observe_pod(&pod, now));
                noticed.jobs.push(job);
            }
            Some(Home::Stray) => {
                noticed.orphan = pod.finalizer && (pod.controller.is_none() || pod.deleting);
                self.offer(pod, &mut noticed);
            }
            None => self.withdraw(&uid),
        }
        noticed.ended_with_finalizer = change(ended_before, self.ended_with_finalizer(&uid));
        noticed
    }

    /// A pod is gone.
    pub fn forget_pod(&mut self, uid: &Uid) -> Noticed {
        let ended = self.ended_with_finalizer(uid);
        let mut noticed = Noticed { ended_with_finalizer: change(ended, false), ..Noticed::default() };
        match self.homes.remove(uid) {
            Some(Home::Job(job)) => {
                self.tally_mut(&job).map(|tally| tally.forget_pod(uid));
                noticed.jobs.push(job);
            }
            Some(Home::Stray) => self.withdraw(uid),
            None => {}
        }
        noticed
    }

    /// The pods of a Job, for planning.
    pub fn tally(&self, job: &Uid) -> Option<&Tally> {
        self.jobs.get(job).map(|known| &known.tally)
    }

    /// The same, to tell it what became of our calls.
    pub fn tally_mut(&mut self, job: &Uid) -> Option<&mut Tally> {
        self.jobs.get_mut(job).map(|known| &mut known.tally)
    }

    /// A pod that no known Job controls.
    pub fn stray_pod(&self, uid: &Uid) -> Option<&PodView> {
        self.strays.get(uid)
    }

    /// Whether nothing is known of any pod or Job (REG-A14).
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.namespaces.is_empty() && self.strays.is_empty() && self.homes.is_empty()
    }

    /// Where a pod belongs. Nowhere if another kind controls it; a cluster has many such pods.
    fn home(&self, pod: &PodView) -> Option<Home> {
        match &pod.controller {
            None => Some(Home::Stray),
            Some(owner) if owner.kind != "Job" => None,
            Some(owner) if self.jobs.contains_key(&owner.uid) => Some(Home::Job(owner.uid.clone())),
            Some(_) => Some(Home::Stray),
        }
    }

    /// Offers a pod that no known Job controls to every Job that could adopt it.
    fn offer(&mut self, pod: PodView, noticed: &mut Noticed) {
        self.withdraw(&pod.uid);
        if pod.controller.is_none() {
            for job in self.namespaces.get(&pod.namespace).into_iter().flatten() {
                if self.jobs.get_mut(job).is_some_and(|known| known.tally.observe_stray(&pod)) {
                    noticed.jobs.push(job.clone());
                }
            }
        }
        self.strays.insert(pod.uid.clone(), pod);
    }

    /// The pod is not a stray any more: no Job can adopt it.
    fn withdraw(&mut self, uid: &Uid) {
        let Some(pod) = self.strays.remove(uid) else { return };
        for job in self.namespaces.get(&pod.namespace).into_iter().flatten() {
            if let Some(known) = self.jobs.get_mut(job) {
                known.tally.withdraw_stray(uid);
            }
        }
    }

    fn ended_with_finalizer(&self, uid: &Uid) -> bool {
        match self.homes.get(uid) {
            Some(Home::Job(job)) => self.tally(job).is_some_and(|tally| tally.has_ended_with_finalizer(uid)),
            Some(Home::Stray) => self.strays.get(uid).is_some_and(|pod| pod.phase.is_terminal() && pod.finalizer),
            None => false,
        }
    }
}

fn change(before: bool, after: bool) -> Option<Change> {
    match (before, after) {
        (false, true) => Some(Change::Add),
        (true, false) => Some(Change::Delete),
        _ => None,
    }
}
