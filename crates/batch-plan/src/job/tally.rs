//! The pods of one Job, counted and sorted as they change.
//!
//! A sync of a Job with 100,000 pods must not look at 100,000 pods. So every pod event moves one pod between the sets
//! below, in O(log n), and a plan reads counts and the pods there is something to do about. The sets hold exactly what
//! JC sections 7 and 8 derive from a list of all pods; a property test compares the two.
//!
//! What is kept per completion index is in `index_tally`; pods without or with another controller are in `ledger`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use batch_types::gates::Gates;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::Uid;
use super::action::{CallOutcome, PodAction, PodRef, ReleaseOutcome};
use super::backoff::FailureHistory;
use super::census::Census;
use super::failure_policy::{PolicyAction, PolicyMatch};
use super::in_flight::InFlight;
use super::index_tally::IndexTally;
use super::pod_view::{FailureCounts, Phase, PodView};
use super::rules::Rules;
use super::stages::Act;
use super::verdict::Decision;
use teeth::{Mutation, is};

/// All pods that a Job controls, plus what we did to them that the cache does not show yet.
///
/// The shell keeps one per Job, feeds it every event of those pods and every outcome of its own calls, and throws it
/// away with the Job.
#[derive(Debug, Clone)]
pub struct Tally {
    pub(super) rules: Rules,
    pub(super) pods: BTreeMap<Uid, Entry>,
    names: HashMap<Arc<str>, Uid>,

    pub(super) active: u32,
    pub(super) ready: u32,
    pub(super) terminating: u32,
    /// Container restarts of pods that are Running or Pending (JC-903).
    pub(super) restarts: u64,
    /// Tracked pods that have failed and count, retained ones included (JC-803).
    pub(super) failed_counted: u32,

    /// Tracked pods by what becomes of them, in the order in which they are worked off.
    pub(super) succeeded: BTreeSet<Key>,
    /// Without the pods that are retained for their index (JC-1506).
    pub(super) failed: BTreeSet<Key>,
    /// Removed by us as surplus: released without being counted.
    pub(super) removed: BTreeSet<Key>,
    pub(super) live: BTreeSet<Key>,

    /// Active pods that were marked as surplus before a crash; their removal goes on.
    pub(super) marked: BTreeSet<Uid>,
    /// Active pods of an Indexed Job without a valid index.
    pub(super) misplaced: BTreeSet<Uid>,
    /// Ended pods that match a FailJob rule, tracked or not (JC-901 #3).
    pub(super) fail_job: BTreeSet<Uid>,
    /// Pods whose labels no longer match the selector; they belong to nobody until released (JC-603).
    pub(super) mismatched: BTreeSet<Uid>,
    /// Pods without controller that match the selector and are not being deleted (JC-604).
    pub(super) adoptable: BTreeMap<Uid, Stray>,

    pub(super) indexes: IndexTally,
    pub(super) history: FailureHistory,
    pub(super) in_flight: InFlight,
    /// What the server has said of the pods, if the cache is older.
    census: Option<Census>,
    /// Why the Job fails, if pods were ended for that, and which generation of its spec it was about.
    verdict: Option<(Option<i64>, Decision)>,
    /// The latest time that anything here was noted at.
    noted: Timestamp,
}

/// Where a pod comes in the work order: by index, pods without one first (JC-1302).
pub(super) type Key = (Option<u32>, Uid);

/// A pod to adopt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stray {
    pub(super) name: Arc<str>,
    pub(super) version: Arc<str>,
    /// Whether it was one of the Job's before and is settled (see [`Rules::has_settled`]).
    pub(super) settled: bool,
}

/// What is kept of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) index: Option<u32>,
    pub(super) failure_counts: FailureCounts,
    pub(super) phase: Phase,
    finalizer: bool,
    /// We removed the finalizer; the cache may still show it (JC-407).
    released: bool,
    pub(super) deleting: bool,
    surplus: bool,
    /// We marked it as surplus, and the cache has not shown that yet.
    marked: bool,
    matches: bool,
    pub(super) assigned: bool,
    pub(super) ready: bool,
    /// Whether its end is part of the failure history.
    recorded: bool,
    /// Whether it had ended when we first heard of it.
    found_ended: bool,
    pub(super) ready_since: Option<Timestamp>,
    pub(super) created: Option<Timestamp>,
    /// Never later than the moment we heard of it.
    pub(super) finished: Timestamp,
    restarts_sum: u64,
    pub(super) container_restarts_max: i32,
    pub(super) sidecar_restarts_max: i32,
    pub(super) matched: Option<Box<PolicyMatch>>,
}

/// What becomes of a tracked pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    Succeeded,
    Failed,
    Removed,
    Live,
}

/// How a pod is sorted, given the Job's rules. Filing and unfiling a pod use the same value, so they cannot disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    matches: bool,
    pub(super) index: Option<u32>,
    pub(super) index_valid: bool,
    pub(super) active: bool,
    pub(super) ready: bool,
    pub(super) terminating: bool,
    restarts: u64,
    /// Nothing if the pod is not tracked.
    pub(super) fate: Option<Fate>,
    ignored: bool,
    pub(super) fails_index: bool,
    fails_job: bool,
    marked: bool,
}

impl Tally {
    pub fn new(job: &Job, gates: Gates) -> Self {
        Self {
            rules: Rules::new(job, gates),
            pods: BTreeMap::new(),
            names: HashMap::new(),
            active: 0,
            ready: 0,
            terminating: 0,
            restarts: 0,
            failed_counted: 0,
            succeeded: BTreeSet::new(),
            failed: BTreeSet::new(),
            removed: BTreeSet::new(),
            live: BTreeSet::new(),
            marked: BTreeSet::new(),
            misplaced: BTreeSet::new(),
            fail_job: BTreeSet::new(),
            mismatched: BTreeSet::new(),
            adoptable: BTreeMap::new(),
            indexes: IndexTally::default(),
            history: FailureHistory::default(),
            in_flight: InFlight::default(),
            census: None,
            verdict: None,
            noted: Timestamp::MIN,
        }
    }

    /// Tells the time before a plan. Where the clock was set back, what lies in the future by now counts as of now: delays
    /// and timeouts begin again, once, and do not last until the clock has caught up (INV-25, P-11).
    pub fn tell_time(&mut self, now: Timestamp) {
        self.history.next_sync();
        if self.noted <= now {
            return;
        }
        self.noted = now;
        self.history.set_back(now);
        self.in_flight.set_back(now);
        let ahead: Vec<Uid> =
            self.pods.iter().filter(|(_, pod)| pod.finished > now).map(|(uid, _)| uid.clone()).collect();
        for uid in ahead {
            if let Some(mut entry) = self.take(&uid) {
                entry.finished = now;
                self.put(uid, entry);
            }
        }
    }

    /// The Job has changed. Costs nothing unless a field changed that pods are sorted by, such as `completions`.
    pub fn observe_job(&mut self, job: &Job, gates: Gates) {
        let rules = Rules::new(job, gates);
        if rules == self.rules {
            return;
        }
        let uids: Vec<Uid> = self.pods.keys().cloned().collect();
        let old: Vec<Standing> = uids.iter().map(|uid| self.standing(&self.pods[uid])).collect();
        for (uid, standing) in uids.iter().zip(old) {
            self.file(uid, standing, false);
        }
        self.rules = rules;
        for uid in &uids {
            self.file(uid, self.standing(&self.pods[uid]), true);
            self.note_end(uid);
        }
    }

    /// The server has named all pods, and the cache shows none that is not among them. What it shows from now on of others
    /// is of the past.
    pub fn take_census(&mut self, census: Census) {
        self.census = Some(census);
    }

    /// The cache has come so far.
    pub fn cache_reached(&mut self, version: u64) {
        self.census.take_if(|census| census.at <= version);
    }

    /// Whether a pod that the watch shows is gone. One whose labels do not match was not asked for.
    pub(super) fn is_past(&self, pod: &PodView) -> bool {
        self.census.as_ref().is_some_and(|census| census.is_past(pod)) && self.rules.keeps(&pod.labels)
    }

    /// A pod that the Job controls is new or has changed.
    pub fn observe_pod(&mut self, pod: &PodView, now: Timestamp) {
        self.noted = self.noted.max(now);
        self.in_flight.pod_seen(&pod.name);
        self.adoptable.remove(&pod.uid);
        if pod.deleting {
            self.in_flight.deletion_seen(&pod.uid);
        }
        if let Some(namesake) = self.names.get(pod.name.as_str()).filter(|uid| **uid != pod.uid).cloned() {
            self.forget_pod(&namesake);
        }
        let old = self.take(&pod.uid);
        let entry = self.entry(pod, old, now);
        self.put(pod.uid.clone(), entry);
        self.note_end(&pod.uid);
    }

    /// The pod is gone, or the Job no longer controls it. Says whether it was there.
    pub fn forget_pod(&mut self, uid: &Uid) -> bool {
        self.in_flight.deletion_seen(uid);
        self.adoptable.remove(uid);
        let entry = self.take(uid);
        if let Some(entry) = &entry {
            self.names.remove(&entry.name);
        }
        entry.is_some()
    }

    /// A pod without controller has appeared or changed; says whether it is one to adopt.
    pub fn observe_stray(&mut self, pod: &PodView) -> bool {
        let adoptable = !pod.deleting && self.rules.adopts(&pod.labels);
        let stray = || Stray {
            name: pod.name.as_str().into(),
            version: pod.resource_version.as_str().into(),
            settled: self.rules.has_settled(pod),
        };
        match adoptable {
            true => self.adoptable.insert(pod.uid.clone(), stray()),
            false => self.adoptable.remove(&pod.uid),
        };
        adoptable
    }

    /// A pod without controller has got one, or is gone.
    pub fn withdraw_stray(&mut self, uid: &Uid) {
        self.adoptable.remove(uid);
    }

    /// Whether it is one to adopt.
    pub fn adopts(&self, uid: &Uid) -> bool {
        self.adoptable.contains_key(uid)
    }

    /// Whether this is the name of the Job.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.rules.job_name == name
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.adoptable.is_empty()
    }

    /// How many pods the Job controls.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Every pod that the Job controls.
    pub fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.pods.keys()
    }

    /// Whether nothing more is to be heard soon: no pod is active, and none was created that has not been seen yet.
    pub fn is_quiet(&self) -> bool {
        self.active == 0 && !self.in_flight.expects_pods()
    }

    /// How many pods have ended and are not yet released.
    pub fn ended(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    /// Whether the Job controls a pod of that name.
    pub fn has_pod_named(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// How the pod's phase and finalizer stand for the metric of JC-2208: ended and still tracked in the cache.
    pub fn has_ended_with_finalizer(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|entry| entry.phase.is_terminal() && entry.finalizer)
    }

    /// The calls of a [`PodAction`] have been made.
    pub fn note_action(&mut self, action: &PodAction, outcomes: &[CallOutcome], now: Timestamp) {
        self.noted = self.noted.max(now);
        match action {
            PodAction::None | PodAction::End(_) => {}
            PodAction::Create { pods, .. } => {
                for (pod, outcome) in pods.iter().zip(outcomes) {
                    self.note_creation(&pod.name, pod.index, outcome, now);
                }
            }
            PodAction::Remove(pods) => {
                for (pod, outcome) in pods.iter().zip(outcomes) {
                    match outcome {
                        CallOutcome::Done => self.note_removal(pod, now),
                        CallOutcome::Gone | CallOutcome::MarkFailed(_) => {}
                        _ => self.note_mark(&pod.uid),
                    }
                }
            }
        }
    }

    /// Pods are about to be ended because the Job fails. Until its status says so, it fails for this reason and no other: the
    /// pods count as failed by their end, and what they did counts no more, so that another look could find more failures
    /// than may be, or no reason at all (INV-10, INV-23). Upstream looks again. A spec that has changed is looked at anew.
    pub fn note_verdict(&mut self, job: &Job, act: &Act) {
        if let (PodAction::End(_), Some(decision)) = (&act.action, &act.context.decision) {
            self.verdict = Some((job.metadata.generation, decision.clone()));
        }
    }

    /// Tracking finalizers have been removed, except from the pods where that failed (JC-407).
    pub fn note_release(&mut self, pods: &[PodRef], outcome: &ReleaseOutcome) {
        for pod in pods.iter().filter(|pod| !outcome.failed.contains_key(&pod.uid)) {
            self.mark_released(&pod.uid);
        }
    }

    /// The write that finished the Job went through; until the cache shows it, nothing more is done (JC-410).
    pub fn note_finished(&mut self) {
        self.in_flight.finish();
    }

    fn note_creation(&mut self, name: &Arc<str>, index: Option<u32>, outcome: &CallOutcome, now: Timestamp) {
        match outcome {
            _ if self.names.contains_key(name) => self.in_flight.pod_seen(name),
            CallOutcome::Done => self.in_flight.created(name, now),
            CallOutcome::Unanswered(_) => self.in_flight.creation_unanswered(name, index, now),
            CallOutcome::NameTaken => self.in_flight.name_taken(name),
            CallOutcome::NamespaceTerminating if !is(Mutation::I10) => self.in_flight.namespace_terminates(),
            CallOutcome::Failed(_) if is(Mutation::A08) => self.in_flight.created(name, now),
            // An earlier attempt without an answer may have landed all the same.
            _ => {}
        }
    }

    fn note_removal(&mut self, pod: &PodRef, now: Timestamp) {
        if self.pods.get(&pod.uid).is_some_and(|entry| !entry.deleting) {
            self.in_flight.deleted(&pod.uid, now);
        }
        self.mark_released(&pod.uid);
    }

    /// It is marked, and perhaps let go already, whatever the cache shows: if that is older, it shows a pod that somebody
    /// deleted, and that would count as failed (INV-1).
    fn note_mark(&mut self, uid: &Uid) {
        if let Some(mut entry) = self.take(uid) {
            entry.marked = true;
            self.put(uid.clone(), entry);
        }
    }

    fn mark_released(&mut self, uid: &Uid) {
        if let Some(mut entry) = self.take(uid) {
            entry.released = !is(Mutation::A06);
            self.put(uid.clone(), entry);
        }
    }
}

/// What plans ask for.
impl Tally {
    pub(super) fn pod_ref(&self, uid: &Uid) -> PodRef {
        PodRef { name: self.pods[uid].name.clone(), uid: uid.clone() }
    }

    /// The verdict for which pods were ended already.
    pub(super) fn verdict(&self, job: &Job) -> Option<&Decision> {
        let (generation, decision) = self.verdict.as_ref()?;
        (*generation == job.metadata.generation).then_some(decision)
    }

    /// Whether the pod still has to be released.
    pub(super) fn is_tracked(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|entry| self.standing(entry).fate.is_some())
    }

    /// Whether the pod has not ended, as far as is known.
    pub(super) fn is_live(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|entry| !entry.phase.is_terminal())
    }

    pub(super) fn fate(&self, uid: &Uid) -> Option<Fate> {
        self.pods.get(uid).and_then(|entry| self.standing(entry).fate)
    }

    /// Whether the pod is one of [`failed_counted`](Self::failed_counted).
    pub(super) fn counts_as_failed(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|entry| self.standing(entry).counts_as_failed())
    }

    /// Whether a pod of the Job has that name, or one of somebody else that was in our way.
    pub(super) fn name_taken(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.in_flight.is_blocked(name)
    }

    /// Every active pod. Linear unless there are none, so only for the rare moments when many of them have to go.
    pub(super) fn active_pods(&self) -> impl Iterator<Item = (&Uid, &Entry)> {
        self.pods.iter().filter(|(_, entry)| entry.is_active()).take(self.active as usize)
    }

    /// Every pod that still has to be released, whatever its state; for Jobs that are finished.
    pub(super) fn tracked(&self) -> impl Iterator<Item = &Key> {
        let retained = self.indexes.retained_keys();
        self.succeeded.iter().chain(&self.failed).chain(&self.removed).chain(&self.live).chain(retained)
    }

    /// Every pod that still has its finalizer, whether or not its labels match; for Jobs that are gone.
    pub(super) fn held(&self) -> impl Iterator<Item = &Uid> {
        self.pods.iter().filter(|(_, entry)| entry.finalizer && !entry.released).map(|(uid, _)| uid)
    }

    /// Pods that are over, hold their finalizer and match the Job no more. A Job that is being deleted disowns nobody
    /// (JC-603), and in foreground deletion waits for them, so it has to let them go; so has one that is finished
    /// (INV-13).
    pub(super) fn stranded(&self) -> impl Iterator<Item = &Uid> {
        self.mismatched.iter().filter(|uid| {
            let entry = &self.pods[*uid];
            entry.finalizer && !entry.released && (entry.deleting || entry.phase.is_terminal())
        })
    }

    pub(super) fn standing(&self, entry: &Entry) -> Standing {
        let rules = &self.rules;
        let index = entry.index.filter(|_| rules.indexed);
        let live = !entry.phase.is_terminal();
        let active = entry.is_active();
        let action = entry.matched.as_ref().map(|found| found.action);
        let ignored = action == Some(PolicyAction::Ignore);
        let fate = match entry.phase {
            _ if !entry.is_tracked() => None,
            Phase::Succeeded => Some(Fate::Succeeded),
            _ if entry.is_surplus() && entry.deleting && !is(Mutation::A17) => Some(Fate::Removed),
            Phase::Failed => Some(Fate::Failed),
            _ if entry.deleting && !rules.replace_only_failed => Some(Fate::Failed),
            _ => Some(Fate::Live),
        };
        let over_limit = rules.index_limit.is_some_and(|limit| entry.failure_counts.counted >= limit);
        Standing {
            matches: entry.matches,
            index,
            index_valid: rules.index_valid(index),
            active,
            ready: active && entry.ready,
            terminating: live && entry.deleting && entry.matches,
            restarts: match entry.phase {
                Phase::Running => entry.restarts_sum,
                Phase::Pending if !is(Mutation::D05) => entry.restarts_sum,
                _ => 0,
            },
            fate,
            ignored,
            fails_index: fate == Some(Fate::Failed)
                && rules.index_limit.is_some()
                && (action == Some(PolicyAction::FailIndex) || (!ignored && over_limit)),
            fails_job: entry.phase == Phase::Failed && action == Some(PolicyAction::FailJob),
            marked: active && entry.is_surplus(),
        }
    }
}

/// Moving pods between the sets.
impl Tally {
    fn entry(&self, pod: &PodView, old: Option<Entry>, now: Timestamp) -> Entry {
        let found_ended = old.is_none() && pod.phase.is_terminal() && !pod.deleting;
        let (released, marked, recorded, name, finished) = match old {
            Some(old) => (old.released, old.marked, old.recorded, old.name, old.finished),
            None => (false, false, false, pod.name.as_str().into(), now),
        };
        // The mark goes with the finalizer.
        let marked = marked && pod.finalizer && !pod.surplus;
        let matched = self.rules.policy.as_ref().and_then(|policy| policy.judge(pod)).map(Box::new);
        Entry {
            name,
            index: pod.index,
            failure_counts: pod.failure_counts,
            phase: pod.phase,
            finalizer: pod.finalizer,
            released: released && pod.finalizer,
            deleting: pod.deleting,
            surplus: pod.surplus,
            marked,
            matches: self.rules.keeps(&pod.labels),
            assigned: pod.assigned,
            ready: pod.ready,
            recorded,
            found_ended,
            ready_since: pod.ready_since,
            created: pod.created,
            finished: match pod.finished {
                Some(at) if at <= now || is(Mutation::D13) => at,
                // It does not tell, or the clock of its node is ahead: when we first heard of its end is as good.
                _ if recorded => finished,
                _ => now,
            },
            restarts_sum: pod.restarts.sum,
            container_restarts_max: pod.restarts.container_max,
            sidecar_restarts_max: pod.restarts.sidecar_max,
            matched,
        }
    }

    /// Enters the pod's end into the failure history, where each pod is noted once, by the first word on when it ended
    /// (JC-1102).
    fn note_end(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get(uid) else { return };
        if entry.recorded || !self.counts_for_backoff(entry) {
            return;
        }
        match entry.phase {
            Phase::Succeeded => self.history.succeeded(entry.finished),
            _ => self.history.failed(entry.finished),
        }
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.recorded = true;
        }
    }

    /// Pods that were released before we came to know them still count, unless they were being deleted: those may be
    /// pods that we removed ourselves.
    fn counts_for_backoff(&self, entry: &Entry) -> bool {
        let standing = self.standing(entry);
        let ended = matches!(standing.fate, Some(Fate::Succeeded | Fate::Failed)) || entry.found_ended;
        ended && standing.matches && standing.index_valid && !(is(Mutation::D11) && standing.ignored)
    }

    fn take(&mut self, uid: &Uid) -> Option<Entry> {
        let standing = self.standing(self.pods.get(uid)?);
        self.file(uid, standing, false);
        self.pods.remove(uid)
    }

    fn put(&mut self, uid: Uid, entry: Entry) {
        let standing = self.standing(&entry);
        self.names.insert(entry.name.clone(), uid.clone());
        self.pods.insert(uid.clone(), entry);
        self.file(&uid, standing, true);
    }

    /// Enters the pod everywhere it belongs, or takes it out of there.
    fn file(&mut self, uid: &Uid, standing: Standing, enter: bool) {
        if !standing.matches {
            set(&mut self.mismatched, uid.clone(), enter);
            return;
        }
        add(&mut self.active, u32::from(standing.active), enter);
        add(&mut self.ready, u32::from(standing.ready), enter);
        add(&mut self.terminating, u32::from(standing.terminating), enter);
        self.restarts = if enter { self.restarts + standing.restarts } else { self.restarts - standing.restarts };
        add(&mut self.failed_counted, u32::from(standing.counts_as_failed()), enter);

        let key = (standing.index, uid.clone());
        match standing.fate {
            Some(Fate::Succeeded) => set(&mut self.succeeded, key, enter),
            Some(Fate::Failed) => set(&mut self.failed, key, enter),
            Some(Fate::Removed) => set(&mut self.removed, key, enter),
            Some(Fate::Live) => set(&mut self.live, key, enter),
            None => {}
        }
        if standing.marked {
            set(&mut self.marked, uid.clone(), enter);
        }
        if standing.active && !standing.index_valid {
            set(&mut self.misplaced, uid.clone(), enter);
        }
        if standing.fails_job {
            set(&mut self.fail_job, uid.clone(), enter);
        }
        if let Some(index) = standing.index.filter(|_| standing.index_valid) {
            self.file_index(uid, index, standing, enter);
        }
    }
}

impl Standing {
    fn counts_as_failed(self) -> bool {
        self.fate == Some(Fate::Failed) && self.index_valid && !self.ignored
    }
}

impl Entry {
    fn is_active(&self) -> bool {
        self.matches && !self.phase.is_terminal() && !self.deleting
    }

    fn is_surplus(&self) -> bool {
        self.surplus || self.marked
    }

    fn is_tracked(&self) -> bool {
        self.matches && self.finalizer && !self.released
    }
}

fn set<T: Ord>(members: &mut BTreeSet<T>, member: T, enter: bool) {
    match enter {
        true => members.insert(member),
        false => members.remove(&member),
    };
}

fn add(count: &mut u32, by: u32, enter: bool) {
    *count = if enter { *count + by } else { *count - by };
}
