//! One sync of the controller, as far as its calls are answered.
//!
//! The plan is pure, so a sync is its snapshot plus the answers so far: to find the next call, everything is planned
//! again and the answers are given in order. Order and meaning of the calls are those of `controllers::job`.

use batch_plan::job::{
    Act, CallOutcome, Creation, FailureCounts, Plan, PodAction, PodRef, ReleaseOutcome, Snapshot, SyncAction, Tally,
    plan,
};
use k8s_openapi::api::batch::v1::Job;

use crate::config::Config;
use crate::coverage::{Coverage, Row};
use crate::job::{Clock, JobState, Status, number_of, pod_name, slots};
use crate::pod::{NO_INDEX, NUMBERS, Name, Pod, pod_ref, view};
use crate::state::{Answer, Answers, Call, Mind};

/// What a sync does next.
#[derive(Debug)]
pub(crate) enum Next {
    Call(Call),
    Over,
}

/// Finds the next call of a sync that saw `seen`.
pub(crate) fn next_call(config: &Config, seen: &Mind, clock: Clock, answers: &Answers, met: &Coverage) -> Next {
    if !seen.job.exists {
        return Next::Over;
    }
    let job = seen.job.object(&config.base, config.is_per_index());
    let tally = tally(config, seen, &job);
    let snapshot = Snapshot { job: &job, tally: &tally, now: clock.now(), settings: &config.settings };
    let mut replay = Replay { seen, answers, given: 0 };
    let next = match plan(&snapshot) {
        Plan::Skip(_) => None,
        Plan::Claim(claims) => {
            // Pods of the model have no `generateName`, so none is reclaimed.
            let adopt = claims.adopt.iter().map(|adoption| Call::Adopt(replay.slot(&adoption.pod)));
            let disown = claims.disown.iter().map(|pod| Call::Disown(replay.slot(pod)));
            let calls: Vec<Call> = adopt.chain(disown).collect();
            calls.into_iter().find(|_| replay.answer().is_none())
        }
        Plan::Release(pods) => {
            met.note(Row::LeftoverOfFinishedJob);
            replay.release(&pods, Call::Release).err()
        }
        Plan::Act(act) => {
            note_plan(seen, &act, met);
            replay.act(*act).err()
        }
    };
    next.map_or(Next::Over, Next::Call)
}

fn note_plan(seen: &Mind, act: &Act, met: &Coverage) {
    let ends = match act.action {
        PodAction::End(_) => true,
        // Not because there are too many, but because the Job has succeeded without them.
        PodAction::Remove(_) => act.label == SyncAction::Reconciling,
        PodAction::None | PodAction::Create { .. } => false,
    };
    if ends && seen.expected != 0 {
        met.note(Row::VerdictWhileUnobserved);
    }
    if seen.job.has_verdict() && seen.uncertain.iter().flatten().next().is_some() {
        met.note(Row::VerdictWhileUnanswered);
    }
    if ends && seen.job.status.completed != 0 {
        met.note(Row::SuccessWithPodsRunning);
    }
}

/// What the controller knows, in the form it keeps it in.
fn tally(config: &Config, seen: &Mind, job: &Job) -> Tally {
    let mut tally = Tally::new(job, config.settings.gates);
    let generation = seen.job.generation;
    for (slot, pod) in seen.pods.iter().enumerate().filter(|(_, pod)| pod.exists()) {
        if pod.belongs_to(generation) {
            tally.observe_pod(&view(slot, *pod), Clock::Early.now());
        } else if !pod.is_owned() {
            tally.observe_stray(&view(slot, *pod));
        }
    }
    let refs = |mask: u8| -> Vec<PodRef> { slots(mask).map(|slot| pod_ref(slot, seen.pods[slot])).collect() };
    tally.note_release(&refs(seen.released), &ReleaseOutcome::default());
    let removed = refs(seen.deletions);
    let done = vec![CallOutcome::Done; removed.len()];
    tally.note_action(&PodAction::Remove(removed), &done, Clock::Early.now());
    let expected = slots(seen.expected).map(|slot| (seen.pods[slot].name(), CallOutcome::Done));
    let lost = || CallOutcome::Unanswered(String::new());
    let uncertain = seen.uncertain.iter().flatten().map(|creation| (creation.name, lost()));
    // Names of pods that were let go are refused once and remembered; here they are known from the start.
    let strangers = seen.pods.iter().filter(|pod| pod.exists() && !pod.is_owned());
    let taken = strangers.map(|pod| (pod.name(), CallOutcome::NameTaken));
    let (pods, outcomes): (Vec<Creation>, Vec<CallOutcome>) =
        expected.chain(uncertain).chain(taken).map(|(name, outcome)| (creation(name), outcome)).unzip();
    if !pods.is_empty() {
        tally.note_action(&PodAction::Create { pods, batches: Vec::new() }, &outcomes, Clock::Early.now());
    }
    if seen.finished {
        tally.note_finished();
    }
    tally
}

fn creation(name: Name) -> Creation {
    Creation { name: pod_name(name), index: name.index(), failure_counts: None }
}

struct Replay<'a> {
    seen: &'a Mind,
    answers: &'a Answers,
    given: u8,
}

/// `Err` is the call that has no answer yet.
impl Replay<'_> {
    fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.get(self.given);
        self.given += 1;
        answer
    }

    fn call(&mut self, call: Call) -> Result<Answer, Call> {
        self.answer().ok_or(call)
    }

    fn slot(&self, pod: &PodRef) -> u8 {
        crate::pod::slot_of(&pod.uid.to_string()) as u8
    }

    fn act(&mut self, act: Act) -> Result<(), Call> {
        let outcomes = match &act.action {
            PodAction::None => Vec::new(),
            PodAction::Create { pods, batches } => self.create(pods, batches)?,
            PodAction::Remove(pods) => pods.iter().map(|pod| self.remove(pod)).collect::<Result<_, _>>()?,
            PodAction::End(pods) => {
                let delete =
                    |pod: &PodRef| Ok(outcome(self.call(Call::Delete { slot: self.slot(pod), surplus: false })?));
                pods.iter().map(delete).collect::<Result<_, _>>()?
            }
        };
        let record = act.record(&outcomes);
        if let Some(status) = &record.status {
            let put = Call::Put { status: Status::read(status), second: false, finishes: false };
            if self.call(put)? != Answer::Done {
                return Ok(());
            }
        }
        let mut released = self.release(&record.let_go, Call::LetGo)?;
        released.failed.extend(self.release(&record.release, Call::Release)?.failed);
        let close = record.close(&released);
        if let Some(status) = &close.status {
            self.call(Call::Put { status: Status::read(status), second: true, finishes: close.finished })?;
        }
        Ok(())
    }

    fn create(&mut self, pods: &[Creation], batches: &[usize]) -> Result<Vec<CallOutcome>, Call> {
        let mut outcomes = Vec::with_capacity(pods.len());
        let mut rest = pods;
        for size in batches {
            let (batch, later) = rest.split_at((*size).min(rest.len()));
            rest = later;
            for pod in batch {
                outcomes.push(outcome(self.call(self.creation_call(pod))?));
            }
            if outcomes.iter().any(|outcome| outcome.error().is_some()) {
                break;
            }
        }
        outcomes.resize(pods.len(), CallOutcome::Skipped);
        Ok(outcomes)
    }

    fn creation_call(&self, pod: &Creation) -> Call {
        let generation = self.seen.job.generation;
        let index = pod.index.map_or(NO_INDEX, |index| index as u8);
        // A plan that draws names at random (see `teeth`) has names that are on no list.
        let drawn = || NUMBERS - 1 - self.given % (NUMBERS / 2);
        let number = number_of(generation, pod.index, &pod.name).unwrap_or_else(drawn);
        let FailureCounts { counted, ignored } = pod.failure_counts.unwrap_or_default();
        Call::Create { name: Name { generation, index, number }, counted: counted as u8, ignored: ignored as u8 }
    }

    /// Marks, deletes, releases.
    fn remove(&mut self, pod: &PodRef) -> Result<CallOutcome, Call> {
        let slot = self.slot(pod);
        match self.call(Call::MarkSurplus(slot))? {
            Answer::Done => {}
            Answer::Gone => return Ok(CallOutcome::Gone),
            _ => return Ok(CallOutcome::MarkFailed(String::new())),
        }
        match outcome(self.call(Call::Delete { slot, surplus: true })?) {
            CallOutcome::Done => {}
            other => return Ok(other),
        }
        Ok(match self.call(Call::ReleaseSurplus(slot))? {
            Answer::Done | Answer::Gone => CallOutcome::Done,
            Answer::HadEnded => CallOutcome::HadEnded,
            _ => CallOutcome::ReleaseFailed(String::new()),
        })
    }

    fn release(&mut self, pods: &[PodRef], call: fn(u8) -> Call) -> Result<ReleaseOutcome, Call> {
        let mut outcome = ReleaseOutcome::default();
        for pod in pods {
            let answer = self.call(call(self.slot(pod)))?;
            if !matches!(answer, Answer::Done | Answer::Gone) {
                outcome.failed.insert(pod.uid.clone(), String::new());
            }
        }
        Ok(outcome)
    }
}

fn outcome(answer: Answer) -> CallOutcome {
    match answer {
        Answer::Done => CallOutcome::Done,
        Answer::Gone => CallOutcome::Gone,
        Answer::HadEnded => CallOutcome::HadEnded,
        Answer::NameTaken => CallOutcome::NameTaken,
        Answer::Unanswered => CallOutcome::Unanswered(String::new()),
        Answer::Refused | Answer::Conflict => CallOutcome::Failed(String::new()),
    }
}

impl Mind {
    /// Takes in the answer to a call of its own, as the shell does.
    pub(crate) fn note(&mut self, call: Call, answer: Answer, slot: Option<usize>, job: &JobState) {
        match (call, answer) {
            (Call::Create { name, .. }, Answer::Done) => {
                self.forget_uncertain(name);
                if let Some(slot) = slot.filter(|slot| !self.pods[*slot].exists()) {
                    self.pods[slot] = Pod::only_name(name);
                    self.expected |= 1 << slot;
                }
            }
            (Call::Create { name, .. }, Answer::NameTaken) => self.forget_uncertain(name),
            (Call::Create { name, .. }, Answer::Unanswered) => self.note_unanswered(name, slot.is_some()),
            (Call::ReleaseSurplus(slot), Answer::Done | Answer::Gone) => {
                self.deletions |= 1 << slot;
                self.released |= 1 << slot;
            }
            (Call::Release(slot) | Call::LetGo(slot), Answer::Done | Answer::Gone) => self.released |= 1 << slot,
            (Call::Put { finishes, .. }, Answer::Done) => {
                self.finished |= finishes;
                // The answer is the newest version there is.
                self.job = *job;
            }
            (Call::Put { .. }, Answer::Unanswered) => self.unsure = true,
            (Call::Adopt(_) | Call::Disown(_), Answer::Done) => self.behind = true,
            _ => {}
        }
        self.normalise();
    }

    fn forget_uncertain(&mut self, name: Name) {
        for entry in &mut self.uncertain {
            *entry = entry.filter(|creation| creation.name != name);
        }
        self.uncertain.sort_unstable_by_key(|entry| entry.is_none());
    }

    fn note_unanswered(&mut self, name: Name, landed: bool) {
        let is_shown = self.pods.iter().any(|pod| pod.exists() && pod.name() == name);
        if is_shown {
            return;
        }
        self.forget_uncertain(name);
        let free = self.uncertain.iter_mut().find(|entry| entry.is_none());
        *free.expect("not more lost answers than there is room for") = Some(crate::state::Unanswered { name, landed });
    }
}
