//! The pods of all Jobs: which event concerns which Job, and what has to be looked at because of it (JC section 2).
//!
//! The shell feeds it both watches. It remembers where each pod is, so that a pod that changes owner leaves the old tally,
//! and it offers pods without an owner to the Jobs whose selector matches them, once, when either of them appears.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use batch_types::gates::Gates;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::{Controller, PodRef, PodView, Tally, Uid};
use teeth::{Mutation, is};

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
    /// The pod may be an [orphan](super::is_orphan): ask, and release it if so. A Job that is not in the cache may only be
    /// late, so read it afresh before believing that it is gone.
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
        let (own, others): (Vec<_>, Vec<_>) = nearby.partition(|pod| {
            pod.controller.as_ref().is_some_and(|owner| owner.uid == uid && tally.is_named(&owner.name))
        });
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
        if is(Mutation::C10)
            && let name = job.metadata.name.as_deref().unwrap_or_default()
            && let Some(first) = self.jobs.values().find(|known| known.tally.is_named(name))
        {
            tally.in_flight = first.tally.in_flight.clone();
        }
        self.namespaces.entry(namespace.clone()).or_default().insert(uid.clone());
        self.jobs.insert(uid, JobPods { namespace, tally });
    }

    /// The Job is gone. Returns its pods that are still tracked: nobody else will release them (JC-206).
    pub fn forget_job(&mut self, uid: &Uid) -> Vec<PodRef> {
        if is(Mutation::C10) {
            return Vec::new();
        }
        let Some(JobPods { namespace, tally }) = self.jobs.remove(uid) else { return Vec::new() };
        if let Some(jobs) = self.namespaces.get_mut(&namespace) {
            jobs.remove(uid);
            if jobs.is_empty() && !is(Mutation::A14) {
                self.namespaces.remove(&namespace);
            }
        }
        let held = tally.held().map(|pod| tally.pod_ref(pod)).collect();
        for pod in tally.pods.keys() {
            self.homes.remove(pod);
        }
        held
    }

    /// A pod is new or has changed.
    pub fn observe_pod(&mut self, pod: PodView, now: Timestamp) -> Noticed {
        let uid = pod.uid.clone();
        let ended_before = self.ended_with_finalizer(&uid);
        let mut noticed = Noticed::default();
        let home = self.home(&pod);
        // The watch is behind, and is about to tell that it is gone.
        if let Some(Home::Job(job)) = &home
            && self.tally(job).is_some_and(|tally| tally.is_past(&pod))
        {
            return noticed;
        }
        let before = match &home {
            Some(home) => self.homes.insert(uid.clone(), home.clone()),
            None => self.homes.remove(&uid),
        };
        if let Some(Home::Job(job)) = before.filter(|before| Some(before) != home.as_ref()) {
            if let Some(tally) = self.tally_mut(&job) {
                tally.forget_pod(&uid);
            }
            noticed.jobs.push(job);
        }
        match home {
            Some(Home::Job(job)) => {
                self.withdraw(&uid);
                if let Some(tally) = self.tally_mut(&job) {
                    tally.observe_pod(&pod, now);
                }
                noticed.jobs.push(job);
            }
            Some(Home::Stray) => {
                let over = (pod.deleting || pod.phase.is_terminal()) && !is(Mutation::A01);
                noticed.orphan = pod.finalizer && (pod.controller.is_none() || over);
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
                if let Some(tally) = self.tally_mut(&job) {
                    tally.forget_pod(uid);
                }
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

    /// Jobs that could adopt a pod.
    pub fn adopters(&self, pod: &PodView) -> impl Iterator<Item = &Uid> {
        let nearby = self.namespaces.get(&pod.namespace).into_iter().flatten();
        nearby.filter(|job| self.tally(job).is_some_and(|tally| tally.adopts(&pod.uid)))
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
            Some(owner) if self.controls(owner, pod) => Some(Home::Job(owner.uid.clone())),
            Some(_) => Some(Home::Stray),
        }
    }

    /// Whether a reference of a pod is one to a known Job: by UID, name and namespace (JC-601). Anybody can write a UID into
    /// a pod of a namespace of their own.
    fn controls(&self, owner: &Controller, pod: &PodView) -> bool {
        let job = self.jobs.get(&owner.uid);
        job.is_some_and(|job| job.namespace == pod.namespace && job.tally.is_named(&owner.name))
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
        // One whose Job is gone was offered to nobody, and there may be as many of these as Jobs.
        let Some(pod) = self.strays.remove(uid).filter(|pod| pod.controller.is_none()) else { return };
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{CallOutcome, Census, Plan, PodAction, Settings, Snapshot, plan};
    use super::*;

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn job(uid: &str) -> Job {
        let selector = json!({"matchLabels": {"of": uid}});
        let metadata = json!({"namespace": "ns", "name": "a", "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": selector, "template": {}}})).unwrap()
    }

    fn pod(name: &str, labels: &str, owner: Option<(&str, &str)>, phase: &str) -> PodView {
        let owners: Vec<Value> = owner
            .iter()
            .map(|(kind, uid)| json!({"apiVersion": "batch/v1", "kind": kind, "name": "a", "uid": uid, "controller": true}))
            .collect();
        let finalizers = json!(["batch.kubernetes.io/job-tracking"]);
        let metadata = json!({"namespace": "ns", "name": name, "uid": name, "labels": {"of": labels},
                              "ownerReferences": owners, "finalizers": finalizers});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    fn uids(uids: &[&str]) -> Vec<Uid> {
        uids.iter().map(|uid| Uid::new(uid)).collect()
    }

    fn ledger(jobs: &[&str]) -> Ledger {
        let mut ledger = Ledger::new(Gates::DEFAULT);
        jobs.iter().for_each(|uid| ledger.observe_job(&job(uid), now()));
        ledger
    }

    fn active(ledger: &Ledger, job: &str) -> u32 {
        ledger.tally(&Uid::new(job)).map_or(0, |tally| tally.active)
    }

    /// JC-207, JC-208.
    #[test]
    fn pods_go_to_the_job_that_controls_them() {
        let mut ledger = ledger(&["j", "k"]);
        let noticed = ledger.observe_pod(pod("p", "j", Some(("Job", "j")), "Running"), now());
        assert_eq!(noticed, Noticed { jobs: uids(&["j"]), ..Noticed::default() });
        assert_eq!((active(&ledger, "j"), active(&ledger, "k")), (1, 0));
        let noticed = ledger.observe_pod(pod("p", "k", Some(("Job", "k")), "Running"), now());
        assert_eq!(noticed.jobs, uids(&["j", "k"]), "both are concerned when the owner changes");
        assert_eq!((active(&ledger, "j"), active(&ledger, "k")), (0, 1));
        assert_eq!(ledger.forget_pod(&Uid::new("p")).jobs, uids(&["k"]));
        assert_eq!(active(&ledger, "k"), 0);
    }

    /// INV-13: its labels do not match any more, and its Job went before it could let it go.
    #[test]
    fn a_job_that_goes_leaves_no_pod_to_hold_its_finalizer() {
        let mut ledger = ledger(&["j"]);
        ledger.observe_pod(pod("p", "j", Some(("Job", "j")), "Running"), now());
        ledger.observe_pod(pod("relabelled", "k", Some(("Job", "j")), "Failed"), now());
        let names = |pods: Vec<PodRef>| pods.into_iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(ledger.forget_job(&Uid::new("j"))), ["p", "relabelled"]);
    }

    /// P-9: the server has named the pods of a Job, and the watch still shows earlier ones.
    #[test]
    fn pods_of_the_past_do_not_come_back() {
        let mut ledger = ledger(&["j"]);
        let job = Uid::new("j");
        let at = |version: u64, name: &str, labels: &str| PodView {
            resource_version: version.to_string(),
            ..pod(name, labels, Some(("Job", "j")), "Running")
        };
        ledger.observe_pod(at(12, "there", "j"), now());
        let census = Census { at: 20, pods: [(Uid::new("there"), 15)].into() };
        ledger.tally_mut(&job).unwrap().take_census(census);
        assert_eq!(ledger.observe_pod(at(13, "gone", "j"), now()), Noticed::default());
        ledger.observe_pod(at(15, "there", "j"), now());
        assert_eq!(active(&ledger, "j"), 1);
        ledger.observe_pod(at(16, "relabelled", "k"), now());
        let known = ledger.tally(&job).unwrap().len();
        assert_eq!(known, 2, "its labels do not match, so nobody asked for it");
        ledger.observe_pod(at(21, "new", "j"), now());
        assert_eq!(active(&ledger, "j"), 2);
        ledger.tally_mut(&job).unwrap().cache_reached(20);
        ledger.observe_pod(at(14, "other", "j"), now());
        assert_eq!(active(&ledger, "j"), 3, "a list that came later is believed");
    }

    /// JC-101, JC-601: a reference from another namespace, or to another name, is none to the Job.
    #[test]
    fn nobody_gives_a_job_pods_by_its_uid_alone() {
        let elsewhere = |pod: PodView| PodView { namespace: "other".to_owned(), ..pod };
        let misnamed = |mut pod: PodView| {
            pod.controller.as_mut().unwrap().name = "b".to_owned();
            pod
        };
        for foreign in [&elsewhere as &dyn Fn(PodView) -> PodView, &misnamed] {
            for labels in ["j", "k"] {
                for job_first in [true, false] {
                    let mut ledger = ledger(if job_first { &["j"] } else { &[] });
                    let noticed = ledger.observe_pod(foreign(pod("p", labels, Some(("Job", "j")), "Running")), now());
                    assert_eq!(noticed, Noticed::default());
                    ledger.observe_job(&job("j"), now());
                    assert!(ledger.tally(&Uid::new("j")).unwrap().is_empty(), "{labels}");
                    let ended = foreign(pod("p", labels, Some(("Job", "j")), "Failed"));
                    assert!(ledger.observe_pod(ended, now()).orphan, "it is nobody's, and is let go");
                }
            }
        }
    }

    #[test]
    fn pods_may_come_before_their_job() {
        let mut ledger = ledger(&[]);
        let noticed = ledger.observe_pod(pod("p", "j", Some(("Job", "j")), "Running"), now());
        assert_eq!(noticed, Noticed::default());
        ledger.observe_job(&job("j"), now());
        assert_eq!(active(&ledger, "j"), 1);
        assert!(ledger.strays.is_empty());
    }

    /// JC-101, JC-604: every Job whose selector matches is told, and none any more once the pod has an owner.
    #[test]
    fn strays_are_offered_for_adoption() {
        let mut ledger = ledger(&["j", "k"]);
        let noticed = ledger.observe_pod(pod("p", "j", None, "Running"), now());
        assert_eq!((noticed.jobs, noticed.orphan), (uids(&["j"]), true));
        let adoptable = |ledger: &Ledger, job: &str| ledger.tally(&Uid::new(job)).unwrap().adoptable.len();
        assert_eq!((adoptable(&ledger, "j"), adoptable(&ledger, "k")), (1, 0));
        ledger.observe_pod(pod("p", "k", None, "Running"), now());
        assert_eq!((adoptable(&ledger, "j"), adoptable(&ledger, "k")), (0, 1));
        ledger.observe_pod(pod("p", "k", Some(("Job", "k")), "Running"), now());
        assert_eq!((adoptable(&ledger, "k"), active(&ledger, "k")), (0, 1));

        ledger.observe_pod(pod("q", "new", None, "Running"), now());
        ledger.observe_job(&job("new"), now());
        assert_eq!(adoptable(&ledger, "new"), 1);
        ledger.forget_pod(&Uid::new("q"));
        assert_eq!(adoptable(&ledger, "new"), 0);
    }

    /// A cluster has many pods that are none of our business.
    #[test]
    fn pods_of_other_kinds_are_not_kept() {
        let mut ledger = ledger(&["j"]);
        ledger.observe_pod(pod("p", "j", None, "Running"), now());
        let noticed = ledger.observe_pod(pod("p", "j", Some(("ReplicaSet", "r")), "Running"), now());
        assert_eq!(noticed, Noticed::default());
        assert!(ledger.strays.is_empty() && ledger.homes.is_empty());
        assert!(ledger.tally(&Uid::new("j")).unwrap().adoptable.is_empty());
    }

    /// REG-A01, JC-209: with the Job gone, a deleted pod is an orphan in whatever order the news arrives.
    #[test]
    fn reg_a01_tracked_pods_of_a_deleted_job_are_noticed() {
        let mut late = pod("p", "j", Some(("Job", "j")), "Succeeded");
        late.deleting = true;

        let mut job_first = ledger(&["j"]);
        job_first.observe_pod(pod("p", "j", Some(("Job", "j")), "Running"), now());
        let left = job_first.forget_job(&Uid::new("j"));
        assert_eq!(left.iter().map(|pod| pod.uid.clone()).collect::<Vec<_>>(), uids(&["p"]));
        assert!(job_first.observe_pod(late.clone(), now()).orphan);

        let mut pod_first = ledger(&["j"]);
        pod_first.observe_pod(late.clone(), now());
        assert_eq!(pod_first.forget_job(&Uid::new("j")).len(), 1);

        let mut stripped = ledger(&["j"]);
        late.controller = None;
        assert!(stripped.observe_pod(late, now()).orphan, "also when the owner reference went first");
    }

    /// JC-2208.
    #[test]
    fn ended_pods_with_finalizer_are_counted_in_and_out() {
        let mut ledger = ledger(&["j"]);
        for owner in [Some(("Job", "j")), None, Some(("Job", "gone"))] {
            let noticed = ledger.observe_pod(pod("p", "x", owner, "Running"), now());
            assert_eq!(noticed.ended_with_finalizer, None);
            let noticed = ledger.observe_pod(pod("p", "x", owner, "Failed"), now());
            assert_eq!(noticed.ended_with_finalizer, Some(Change::Add));
            let noticed = ledger.observe_pod(pod("p", "x", owner, "Failed"), now());
            assert_eq!(noticed.ended_with_finalizer, None);
            let released = PodView { finalizer: false, ..pod("p", "x", owner, "Failed") };
            assert_eq!(ledger.observe_pod(released, now()).ended_with_finalizer, Some(Change::Delete));
            ledger.observe_pod(pod("p", "x", owner, "Failed"), now());
            assert_eq!(ledger.forget_pod(&Uid::new("p")).ended_with_finalizer, Some(Change::Delete));
        }
    }

    /// INV-31: a pod was created for the first Job and is not seen yet. The next Job of that name does not wait for it, nor
    /// take it for its own when it comes.
    #[test]
    fn reg_c10_a_namesake_waits_for_nothing_of_its_predecessor() {
        let mut ledger = ledger(&["j"]);
        let settings = Settings::default();
        let planned = |ledger: &Ledger, uid: &str| {
            let (job, tally) = (job(uid), ledger.tally(&Uid::new(uid)).unwrap());
            match plan(&Snapshot { job: &job, tally, now: now(), settings: &settings }) {
                Plan::Act(act) => act.action,
                other => panic!("{uid} is not finished: {other:?}"),
            }
        };
        let first = planned(&ledger, "j");
        assert_eq!(creations(&first), 1);
        ledger.tally_mut(&Uid::new("j")).unwrap().note_action(&first, &[CallOutcome::Done], now());
        assert_eq!(planned(&ledger, "j"), PodAction::None, "its pod is awaited");

        ledger.forget_job(&Uid::new("j"));
        ledger.observe_job(&job("k"), now());
        assert_eq!(creations(&planned(&ledger, "k")), 1, "nothing of the first Job is awaited");
        ledger.observe_pod(pod("late", "j", Some(("Job", "j")), "Running"), now());
        assert_eq!(creations(&planned(&ledger, "k")), 1);
    }

    fn creations(action: &PodAction) -> usize {
        match action {
            PodAction::Create { pods, .. } => pods.len(),
            _ => 0,
        }
    }

    /// INV-32: ten thousand Jobs. Their pods go before them or after them, are heard of when they are gone, change hands, or
    /// were nobody's.
    #[test]
    fn reg_a14_nothing_is_left_of_what_is_gone() {
        const JOBS: usize = 10_000;
        let (job, mut ledger) = (job("j"), ledger(&[]));
        let (owned, stray) = (pod("p", "j", Some(("Job", "j")), "Running"), pod("q", "j", None, "Running"));
        let uid = |kind: &str, number: usize| Uid::new(&format!("{kind}-{number}"));
        let pod_of = |kind: &str, number: usize, job: usize| {
            let mut pod = PodView { uid: uid(kind, number), name: format!("{kind}-{number}"), ..owned.clone() };
            pod.controller.as_mut().unwrap().uid = uid("j", job);
            pod
        };
        for number in 0..JOBS {
            let mut job = job.clone();
            job.metadata.uid = Some(format!("j-{number}"));
            ledger.observe_job(&job, now());
            ledger.observe_pod(pod_of("p", number, number), now());
            if number.is_multiple_of(1000) {
                ledger.observe_pod(PodView { uid: uid("q", number), ..stray.clone() }, now());
            }
        }
        for number in 0..JOBS {
            let (job, pod) = (uid("j", number), uid("p", number));
            match number % 4 {
                0 => drop(ledger.forget_pod(&pod)),
                1 => drop(ledger.observe_pod(pod_of("p", number, (number + 1) % JOBS), now())),
                2 => drop(ledger.observe_pod(PodView { deleting: true, ..pod_of("p", number, number) }, now())),
                _ => {}
            }
            ledger.forget_job(&job);
            if number % 4 == 2 {
                ledger.observe_pod(PodView { deleting: true, finalizer: false, ..pod_of("p", number, number) }, now());
            }
            ledger.forget_pod(&pod);
            ledger.forget_pod(&uid("q", number));
        }
        assert!(ledger.is_empty(), "{} Jobs, {} pods", ledger.jobs.len(), ledger.homes.len());
    }
}
