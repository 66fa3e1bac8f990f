//! The shell of the plan tests: caches that lag, calls that fail, a controller that crashes and starts again.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::super::*;
use super::world::{Change, Fault, Trouble, World, is_owned, is_terminal};

struct Crashed;

/// The shell: caches, timers and calls.
pub(super) struct Controller {
    ledger: Ledger,
    job: Option<Job>,
    /// How much of the log the caches of Jobs and of pods have seen.
    seen: [usize; 2],
    /// The newest version of the Job that we wrote (JC-411).
    pub(super) wrote: Option<String>,
    /// A status write has no answer: the Job is read afresh before the next plan, or a verdict could be overlooked that
    /// the write has stored (INV-11).
    unsure: bool,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) syncs: usize,
}

impl Controller {
    pub(super) fn start(world: &World) -> Self {
        let ledger = Ledger::new(world.settings.gates);
        Self { ledger, job: None, seen: [0; 2], wrote: None, unsure: false, wake_at: None, syncs: 0 }
    }

    /// Lets the caches catch up, that of pods with all but the last `lag` changes.
    pub(super) fn watch(&mut self, world: &World, lag: usize) {
        self.watch_each(world, [0, lag]);
    }

    /// The same with a lag for each cache: Jobs and pods (P-6, P-8).
    pub(super) fn watch_each(&mut self, world: &World, lag: [usize; 2]) {
        for (cache, lag) in lag.into_iter().enumerate() {
            let until = world.log.len().saturating_sub(lag).max(self.seen[cache]);
            for change in &world.log[self.seen[cache]..until] {
                match change {
                    Change::Job(job) if cache == 0 => {
                        self.ledger.observe_job(job, world.now);
                        self.job = Some((**job).clone());
                    }
                    Change::Pod(pod) if cache == 1 => drop(self.ledger.observe_pod(view(pod), world.now)),
                    Change::PodGone(uid) if cache == 1 => drop(self.ledger.forget_pod(&Uid::new(uid))),
                    _ => {}
                }
            }
            self.seen[cache] = until;
        }
    }

    /// Everything that the caches show, by the version of the Job, as text. That we released a pod is our own knowledge, which
    /// is kept beside what the cache shows of it.
    pub(super) fn shown(&self) -> (Option<String>, String) {
        let version = self.job.as_ref().and_then(|job| job.metadata.resource_version.clone());
        let tally = self.ledger.tally(&Uid::new("job"));
        let pods: Vec<_> = tally.into_iter().flat_map(|tally| &tally.pods).collect();
        let adoptable = tally.map(|tally| &tally.adoptable);
        let text = format!("{:?} {pods:?} {adoptable:?}", self.job);
        (version, text.replace("released: true", "released: false").replace("marked: true", "marked: false"))
    }

    /// One sync. Says whether it went through; a crash makes the controller forget everything.
    pub(super) fn sync(&mut self, world: &mut World) -> bool {
        self.syncs += 1;
        match self.try_sync(world) {
            Ok(done) => done,
            Err(Crashed) => {
                *self = Self { syncs: self.syncs, ..Self::start(world) };
                self.watch(world, 0);
                false
            }
        }
    }

    fn try_sync(&mut self, world: &mut World) -> Result<bool, Crashed> {
        let uid = Uid::new("job");
        if std::mem::take(&mut self.unsure) {
            self.ledger.observe_job(&world.job, world.now);
            self.job = Some(world.job.clone());
        }
        let Some(job) = self.job.clone() else { return Ok(true) };
        let version = |version: &Option<String>| version.as_ref().map_or(0, |text| text.parse::<u64>().unwrap());
        if version(&job.metadata.resource_version) < version(&self.wrote) {
            return Ok(false);
        }
        let settings = world.settings.clone();
        self.ledger.tally_mut(&uid).unwrap().tell_time(world.now);
        let snapshot =
            Snapshot { job: &job, tally: self.ledger.tally(&uid).unwrap(), now: world.now, settings: &settings };
        let act = match plan(&snapshot) {
            Plan::Skip(_) => {
                self.wake_at = None;
                return Ok(true);
            }
            Plan::Claim(claims) => return self.claim(world, &claims).map(|()| false),
            Plan::Release(pods) => return self.release(world, &pods).map(|outcome| outcome.failed.is_empty()),
            Plan::Act(act) => act,
        };
        let action = act.action.clone();
        self.ledger.tally_mut(&uid).unwrap().note_verdict(&job, &act);
        let outcomes = self.perform(world, &job, &action)?;
        let now = world.now;
        let tally = self.ledger.tally_mut(&uid).unwrap();
        tally.note_action(&action, &outcomes, now);
        let mut fine = outcomes.iter().all(|outcome| outcome.error().is_none());
        let record = act.record(&outcomes);
        self.wake_at = record.wake_after.map(|wait| now + wait.max(Duration::from_secs(1)));
        world.emit(&record.events);
        world.metrics.extend(record.creations.iter().cloned());
        let mut at = job.metadata.resource_version.clone();
        if let Some(status) = &record.status {
            match world.call(|world| world.put_status(&at, status)) {
                Ok(()) => at = world.job.metadata.resource_version.clone(),
                Err(Trouble::Crash) => return Err(Crashed),
                Err(trouble) => {
                    self.unsure = matches!(trouble, Trouble::AnswerLost);
                    return Ok(false);
                }
            }
            self.wrote = at.clone();
        }
        world.metrics.extend(record.metrics.iter().cloned());
        let mut outcome = self.let_go(world, &record.let_go)?;
        outcome.failed.extend(self.release(world, &record.release)?.failed);
        fine &= outcome.failed.is_empty();
        let close = record.close(&outcome);
        if let Some(status) = &close.status {
            match world.call(|world| world.put_status(&at, status)) {
                Ok(()) => self.wrote = world.job.metadata.resource_version.clone(),
                Err(Trouble::Crash) => return Err(Crashed),
                Err(trouble) => {
                    self.unsure = matches!(trouble, Trouble::AnswerLost);
                    return Ok(false);
                }
            }
            world.emit(&close.events);
            world.metrics.extend(close.metrics);
            if close.finished {
                self.ledger.tally_mut(&uid).unwrap().note_finished();
            }
        }
        Ok(fine)
    }

    fn perform(&mut self, world: &mut World, job: &Job, action: &PodAction) -> Result<Vec<CallOutcome>, Crashed> {
        match action {
            PodAction::None => Ok(Vec::new()),
            PodAction::End(pods) => pods.iter().map(|pod| delete(world, pod)).collect(),
            PodAction::Remove(pods) => pods.iter().map(|pod| remove(world, pod)).collect(),
            PodAction::Create { pods, batches } => {
                let stencil = PodStencil::new(job).unwrap();
                let mut outcomes = Vec::new();
                let mut rest = pods.as_slice();
                for size in batches {
                    let (batch, later) = rest.split_at(*size);
                    rest = later;
                    for pod in batch {
                        outcomes.push(create(world, &stencil, pod)?);
                    }
                    if outcomes.iter().any(|outcome| outcome.error().is_some()) {
                        break;
                    }
                }
                outcomes.resize(pods.len(), CallOutcome::Skipped);
                Ok(outcomes)
            }
        }
    }

    fn claim(&mut self, world: &mut World, claims: &Claims) -> Result<(), Crashed> {
        let job = Uid::new("job");
        for Adoption { pod, version } in &claims.adopt {
            let patch = patches::at_version(patches::adopt(&pod.uid, "a", &job), version);
            outcome(world.call(|world| world.patch_pod(&pod.name, &patch)))?;
        }
        for pod in &claims.reclaim {
            let patch = patches::reclaim(&pod.uid, "a", &job);
            outcome(world.call(|world| world.patch_pod(&pod.name, &patch)))?;
        }
        for pod in &claims.disown {
            let patch = patches::disown(&pod.uid, &job);
            outcome(world.call(|world| world.patch_pod(&pod.name, &patch)))?;
        }
        Ok(())
    }

    /// Live pods only: one that has ended since has another version.
    fn let_go(&mut self, world: &mut World, pods: &[PodRef]) -> Result<ReleaseOutcome, Crashed> {
        let has_ended = |pod: &PodRef| {
            world
                .pods
                .get(&*pod.name)
                .is_some_and(|found| found["metadata"]["uid"] == json!(pod.uid) && is_terminal(found))
        };
        let (ended, live): (Vec<PodRef>, Vec<PodRef>) = pods.iter().cloned().partition(has_ended);
        let mut outcome = self.release(world, &live)?;
        outcome.failed.extend(ended.into_iter().map(|pod| (pod.uid, "it has ended".to_owned())));
        Ok(outcome)
    }

    fn release(&mut self, world: &mut World, pods: &[PodRef]) -> Result<ReleaseOutcome, Crashed> {
        let mut result = ReleaseOutcome::default();
        for pod in pods {
            let patch = patches::release(&pod.uid);
            let call = outcome(world.call(|world| world.patch_pod(&pod.name, &patch)))?;
            if let Some(error) = call.error() {
                result.failed.insert(pod.uid.clone(), error.to_owned());
            }
        }
        self.ledger.tally_mut(&Uid::new("job")).unwrap().note_release(pods, &result);
        Ok(result)
    }

    /// Watches and syncs until nothing changes any more, letting time pass where a timer is set.
    pub(super) fn settle(&mut self, world: &mut World) {
        for _ in 0..400 {
            self.watch(world, 0);
            let (before, calls) = (world.log.len(), world.calls);
            let fine = self.sync(world);
            if world.log.len() != before {
                continue;
            }
            assert!(!fine || world.calls == calls, "INV-29: calls that change nothing");
            match self.wake_at {
                _ if !fine => world.advance(1),
                Some(at) if at > world.now && at.duration_since(world.now).as_secs() < 3600 => world.now = at,
                _ => return,
            }
        }
        panic!("INV-30: it does not settle:\n{:#?}", world.status());
    }
}

fn create(world: &mut World, stencil: &PodStencil, pod: &Creation) -> Result<CallOutcome, Crashed> {
    if world.faults.get(&(world.calls + 1)) == Some(&Fault::LandsLate) {
        world.under_way.push(stencil.body(pod));
    }
    match world.call(|world| world.create_pod(&stencil.body(pod))) {
        Err(Trouble::Exists) => {
            let ours = world.pods.get(&*pod.name).is_some_and(is_owned);
            Ok(if ours { CallOutcome::Done } else { CallOutcome::NameTaken })
        }
        other => outcome(other),
    }
}

/// Marks, deletes, releases.
fn remove(world: &mut World, pod: &PodRef) -> Result<CallOutcome, Crashed> {
    let mark = patches::mark_surplus(&pod.uid);
    match outcome(world.call(|world| world.patch_pod(&pod.name, &mark)))? {
        CallOutcome::Done => {}
        CallOutcome::Gone => return Ok(CallOutcome::Gone),
        _ => return Ok(CallOutcome::MarkFailed("no".to_owned())),
    }
    let deleted = delete(world, pod)?;
    if deleted != CallOutcome::Done {
        return Ok(deleted);
    }
    let release = patches::release_surplus(&pod.uid);
    let released = outcome(world.call(|world| world.patch_pod(&pod.name, &release)))?;
    Ok(if released == CallOutcome::Gone { CallOutcome::Done } else { released })
}

fn delete(world: &mut World, pod: &PodRef) -> Result<CallOutcome, Crashed> {
    let had_ended = world.pods.get(&*pod.name).is_some_and(is_terminal);
    let deleted = outcome(world.call(|world| world.delete_pod(&pod.name, Some(&pod.uid))))?;
    Ok(if deleted == CallOutcome::Done && had_ended { CallOutcome::HadEnded } else { deleted })
}

fn outcome(result: Result<(), Trouble>) -> Result<CallOutcome, Crashed> {
    Ok(match result {
        Ok(()) => CallOutcome::Done,
        Err(Trouble::NotFound | Trouble::Conflict) => CallOutcome::Gone,
        Err(Trouble::Exists) => CallOutcome::NameTaken,
        Err(Trouble::Refused) => CallOutcome::Failed("refused".to_owned()),
        Err(Trouble::AnswerLost) => CallOutcome::Unanswered("timeout".to_owned()),
        Err(Trouble::Crash) => return Err(Crashed),
    })
}

fn view(pod: &Value) -> PodView {
    PodView::deserialize(pod).unwrap()
}
