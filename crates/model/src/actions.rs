//! What can happen next: a call, a mishap, an event of the world, the delivery of news.

use batch_plan::job::{Phase, is_orphan};

use crate::config::Config;
use crate::controller::{Next, next_call};
use crate::coverage::{Coverage, Row};
use crate::job::{COMPLETE, Clock, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, WORK_QUEUE};
use crate::pod::{Exit, NO_INDEX, Name, PODS, view};
use crate::state::{Answer, Answers, Call, Invariant, LateCall, Mind, State, Sync, ways_to_end};

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The controller looks at the Job and decides.
    Begin,
    /// The next call of the sync lands and is answered.
    Answered,
    /// It lands, and nobody hears of it.
    Lost,
    /// The server refuses it.
    Refused,
    /// The controller dies and starts again; what it had sent is lost on the way, or arrives later.
    Crash,
    CrashWithLateCall,
    Land,
    /// The watches catch up.
    SeeJob,
    SeePods,
    ReleaseOrphan(u8),
    /// Nodes.
    Run(u8),
    End(u8, Exit),
    /// A pod that is being deleted stops, in this way.
    Stop(u8, Exit),
    /// Users.
    DeletePod(u8),
    Relabel(u8),
    Suspend(bool),
    Scale(u8),
    Resize(u8),
    /// With the pods to go first, or later.
    DeleteJob {
        foreground: bool,
    },
    CreateNamesake,
    /// The garbage collector.
    CollectPod(u8),
    CollectJob,
    DeadlinePasses,
}

/// A config, and what was met.
pub(crate) struct Around<'a> {
    pub(crate) config: &'a Config,
    pub(crate) met: &'a Coverage,
}

impl Around<'_> {
    pub(crate) fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.judge.broken.is_some() {
            return;
        }
        let budget = &state.budget;
        let in_sync = state.sync.is_some();
        if in_sync {
            actions.push(Action::Answered);
            actions.extend((budget.lost > 0).then_some(Action::Lost));
            actions.extend((budget.refused > 0).then_some(Action::Refused));
            let creates = state.sync.is_some_and(|sync| matches!(sync.next, Call::Create { .. }));
            let may_be_late = budget.late > 0 && state.late.is_none() && (self.config.late_creations || !creates);
            actions.extend(may_be_late.then_some(Action::CrashWithLateCall));
        } else {
            actions.extend((!state.mind.behind).then_some(Action::Begin));
            actions.extend((state.mind.job != state.job).then_some(Action::SeeJob));
            actions.extend(self.pods_are_news(state).then_some(Action::SeePods));
            actions.extend(self.orphans(state));
        }
        actions.extend((budget.crashes > 0).then_some(Action::Crash));
        actions.extend(state.late.map(|_| Action::Land));
        if !in_sync || budget.interleaved > 0 {
            self.events(state, actions);
        }
    }

    /// What becomes of a state; nothing if the action changes nothing.
    pub(crate) fn next(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        if state.sync.is_some() && action.is_event() {
            state.budget.interleaved -= 1;
        }
        match action {
            Action::Begin => self.begin(&mut state),
            Action::Answered => self.call(&mut state, None),
            Action::Lost => {
                state.budget.lost -= 1;
                self.call(&mut state, Some(Answer::Unanswered));
            }
            Action::Refused => {
                state.budget.refused -= 1;
                self.met.note(Row::Refused);
                self.call(&mut state, Some(Answer::Refused));
            }
            Action::Crash => {
                state.budget.crashes -= 1;
                self.note_crash(&state);
                state.crash();
            }
            Action::CrashWithLateCall => {
                state.budget.late -= 1;
                // A name that continues the numbers of an index depends on the pod before it; without that one the successor
                // chooses another name (names.rs).
                let lands = |sync: &Sync| match sync.next {
                    Call::Create { name, .. } if name.index != NO_INDEX && name.number > 0 => {
                        let before = Name { number: name.number - 1, ..name };
                        state.slot_named(before).is_some_and(|slot| state.pods[slot].belongs_to(name.generation))
                    }
                    _ => true,
                };
                let call = |sync: Sync| LateCall {
                    call: sync.next,
                    generation: sync.seen.job.generation,
                    is_current: sync.is_current,
                };
                state.late = state.sync.filter(lands).map(call);
                state.crash();
            }
            Action::Land => self.land(&mut state),
            Action::SeeJob => state.mind.see_job(state.job),
            Action::SeePods => state.mind.see_pods(&state.pods),
            Action::ReleaseOrphan(slot) => self.release_orphan(&mut state, slot),
            event => self.happen(&mut state, event),
        }
        (state != *last).then_some(state)
    }

    fn pods_are_news(&self, state: &State) -> bool {
        let mind = &state.mind;
        let landed = mind.uncertain.iter().flatten().any(|creation| creation.landed);
        mind.pods != state.pods || mind.expected != 0 || mind.behind || landed
    }

    fn begin(&self, state: &mut State) {
        if state.mind.unsure {
            state.mind.see_job(state.job);
            state.mind.unsure = false;
        }
        let answers = Answers::default();
        let clock = state.clock;
        if let Next::Call(next) = next_call(self.config, &state.mind, clock, &answers, self.met) {
            let is_current = state.mind.job == state.job;
            state.sync = Some(Sync { seen: state.mind, clock, answers, is_current, next });
        }
    }

    /// The next call of the sync. `mishap` replaces the answer; a refused call does not land.
    fn call(&self, state: &mut State, mishap: Option<Answer>) {
        let Some(mut sync) = state.sync else { return };
        let call = sync.next;
        let generation = sync.seen.job.generation;
        self.judge_call(state, call, generation);
        let existed = self.existing(state, call);
        let answer = match mishap {
            Some(Answer::Refused) => Answer::Refused,
            mishap => {
                let answer = state.arrive(self.config, call, generation, sync.is_current);
                self.note_arrival(state, call, answer);
                if answer == Answer::Done && matches!(call, Call::Put { .. }) {
                    state.job_changed();
                }
                mishap.unwrap_or(answer)
            }
        };
        if answer == Answer::Unanswered {
            self.note_lost(call);
        }
        let slot = match call {
            Call::Create { name, .. } => state.slot_named(name),
            _ => None,
        };
        // A pod that was there before is one that the cache may have shown already.
        let slot = slot.filter(|slot| existed.is_none() || !state.mind.pods[*slot].exists());
        let job = state.job;
        state.mind.note(call, answer, slot, &job);
        sync.answers.push(answer);
        if let Call::Put { .. } = call {
            // Our own write is what the next one builds on.
            sync.is_current = answer == Answer::Done;
        }
        state.sync = match next_call(self.config, &sync.seen, sync.clock, &sync.answers, self.met) {
            Next::Call(next) => Some(Sync { next, ..sync }),
            Next::Over => None,
        };
    }

    fn existing(&self, state: &State, call: Call) -> Option<usize> {
        match call {
            Call::Create { name, .. } => state.slot_named(name),
            _ => None,
        }
    }

    /// INV-11, INV-21: what may not even be asked for.
    fn judge_call(&self, state: &mut State, call: Call, generation: u8) {
        let Call::Create { .. } = call else { return };
        if !state.job.exists || state.job.generation != generation {
            self.met.note(Row::CreationForNobody);
        } else if state.job.has_verdict() {
            state.judge.broken.get_or_insert(Invariant::NothingAfterVerdict);
        }
    }

    fn land(&self, state: &mut State) {
        let Some(late) = state.late.take() else { return };
        self.met.note(match late.call {
            Call::Create { .. } => Row::LateCreate,
            Call::Delete { .. } => Row::LateDelete,
            Call::Put { .. } => Row::LateWrite,
            _ => Row::LateRelease,
        });
        let answer = state.arrive(self.config, late.call, late.generation, late.is_current);
        if answer == Answer::Done && matches!(late.call, Call::Put { .. }) {
            state.job_changed();
        }
    }

    /// The orphan queue: pods whose Job is not in the cache, or that have no owner (JC-304). A missing Job is asked for.
    fn orphans(&self, state: &State) -> Vec<Action> {
        let known = state.mind.job;
        let is_stray = |slot: &usize| {
            let pod = state.mind.pods[*slot];
            let stray = pod.is_tracked() && !(known.exists && pod.belongs_to(known.generation));
            let over = pod.is_deleting() || pod.is_terminal() || !pod.is_owned();
            let lives = state.job.exists && pod.belongs_to(state.job.generation);
            stray && over && !lives
        };
        let strays: Vec<usize> = (0..PODS).filter(is_stray).collect();
        if strays.is_empty() {
            return Vec::new();
        }
        let job = known.exists.then(|| known.object(&self.config.base, self.config.is_per_index()));
        let is_orphan =
            |slot: &usize| is_orphan(&view(*slot, state.mind.pods[*slot]), job.as_ref(), &self.config.settings);
        strays.into_iter().filter(is_orphan).map(|slot| Action::ReleaseOrphan(slot as u8)).collect()
    }

    fn release_orphan(&self, state: &mut State, slot: u8) {
        self.met.note(if state.job.exists { Row::OrphanOfNamesake } else { Row::OrphanOfGoneJob });
        state.change(slot, |pod| pod.release());
        // The queue does not repeat what has been done.
        state.mind.pods[usize::from(slot)] = state.pods[usize::from(slot)];
        state.mind.normalise();
    }

    /// Events of the world.
    fn events(&self, state: &State, actions: &mut Vec<Action>) {
        let (job, budget) = (&state.job, &state.budget);
        for slot in state.slots() {
            let (pod, number) = (state.pods[slot], slot as u8);
            let running = pod.exists() && pod.phase() == Phase::Running;
            if pod.is_active() && pod.phase() == Phase::Pending {
                actions.push(Action::Run(number));
            }
            if running && !pod.is_deleting() {
                actions.extend(ways_to_end(self.config, budget).map(|exit| Action::End(number, exit)));
            }
            // By its node, or by pod garbage collection if it never had one.
            if pod.is_live() && pod.is_deleting() {
                actions.push(Action::Stop(number, Exit::Plain));
                actions.extend((budget.failures > 0).then_some(Action::Stop(number, Exit::Success)));
            }
            if pod.is_active() && budget.deletions > 0 {
                actions.push(Action::DeletePod(number));
            }
            // Not of ended pods: one that was counted, let go and adopted again counts again, as upstream's would.
            if pod.is_live() && budget.relabels > 0 {
                actions.push(Action::Relabel(number));
            }
            let orphaned = !job.exists || job.generation != pod.name().generation || job.deleting;
            if pod.is_owned() && orphaned && !pod.is_deleting() {
                actions.push(Action::CollectPod(number));
            }
        }
        if job.exists && job.deleting && state.count(|pod| pod.belongs_to(job.generation)) == 0 {
            actions.push(Action::CollectJob);
        }
        if !job.exists && budget.namesakes > 0 {
            actions.push(Action::CreateNamesake);
        }
        if !job.exists || job.is_finished() || job.deleting {
            return;
        }
        if budget.suspensions > 0 {
            actions.push(Action::Suspend(!job.suspend));
        }
        if budget.scalings > 0 {
            actions.extend((0..=3).filter(|size| *size != job.parallelism).map(Action::Scale));
        }
        if budget.resizes > 0 && job.completions != WORK_QUEUE {
            actions.extend((1..=3).filter(|size| *size != job.completions).map(Action::Resize));
        }
        if budget.job_deletions > 0 {
            actions.extend([true, false].map(|foreground| Action::DeleteJob { foreground }));
        }
        if self.config.has_deadline() && state.clock == Clock::Early {
            actions.push(Action::DeadlinePasses);
        }
    }

    fn happen(&self, state: &mut State, event: Action) {
        match event {
            Action::Run(slot) => drop(state.change(slot, |pod| pod.run())),
            Action::End(slot, exit) => {
                state.budget.failures -= u8::from(exit != Exit::Success);
                self.note_exit(exit);
                state.end_pod(usize::from(slot), exit);
            }
            Action::Stop(slot, exit) => {
                state.budget.failures -= u8::from(exit == Exit::Success);
                state.end_pod(usize::from(slot), exit);
            }
            Action::DeletePod(slot) => {
                state.budget.deletions -= 1;
                state.change(slot, |pod| pod.delete());
            }
            Action::CollectPod(slot) => drop(state.change(slot, |pod| pod.delete())),
            Action::Relabel(slot) => {
                state.budget.relabels -= 1;
                state.change(slot, |pod| pod.relabel());
            }
            Action::Suspend(suspend) => {
                state.budget.suspensions -= 1;
                self.note_suspension(state, suspend);
                state.job.suspend = suspend;
                state.job_changed();
            }
            Action::Scale(parallelism) => {
                state.budget.scalings -= 1;
                state.job.parallelism = parallelism;
                state.judge.parallelism_max = state.judge.parallelism_max.max(parallelism);
                state.job_changed();
            }
            Action::Resize(size) => self.resize(state, size),
            Action::DeleteJob { foreground } => {
                state.budget.job_deletions -= 1;
                state.job.deleting = foreground;
                state.job.exists = foreground;
                state.job_changed();
            }
            Action::CollectJob => {
                state.job.exists = false;
                state.job_changed();
            }
            Action::CreateNamesake => {
                state.budget.namesakes -= 1;
                self.met.note(if state.sync.is_some() { Row::NamesakeDuringSync } else { Row::Namesake });
                state.job = self.config.job(1);
                state.judge.listed_succeeded = 0;
                state.judge.listed_failed = 0;
                state.job_changed();
            }
            Action::DeadlinePasses => state.clock = Clock::Late,
            other => unreachable!("{other:?} is no event of the world"),
        }
    }

    fn resize(&self, state: &mut State, size: u8) {
        state.budget.resizes -= 1;
        let outside = state.job.status.completed >> size != 0;
        if outside {
            self.met.note(Row::ShrunkBelowCompleted);
        }
        if size > state.job.completions && state.judge.completions_max > state.job.completions {
            self.met.note(Row::GrownWithForgottenIndex);
        }
        state.job.parallelism = size;
        state.job.completions = size;
        state.judge.parallelism_max = state.judge.parallelism_max.max(size);
        state.judge.completions_max = state.judge.completions_max.max(size);
        state.judge.completions_min = state.judge.completions_min.min(size);
        state.job_changed();
    }
}

/// What was met.
impl Around<'_> {
    fn note_crash(&self, state: &State) {
        let Some(sync) = &state.sync else {
            if state.mind.finished {
                self.met.note(Row::CrashAfterSync);
            }
            return;
        };
        let written = sync.answers.count > 0;
        self.met.note(match sync.next {
            Call::Create { .. } => Row::CrashWhileCreating,
            Call::MarkSurplus(_) | Call::ReleaseSurplus(_) | Call::Delete { surplus: true, .. } => {
                Row::CrashWhileRemoving
            }
            Call::Put { second: true, .. } => Row::CrashBeforeSecondWrite,
            Call::Release(slot) if written && !self.is_first_release(sync, slot) => Row::CrashAmongReleases,
            Call::Release(_) | Call::LetGo(_) if written => Row::CrashBeforeReleases,
            _ => Row::CrashBeforeFirstWrite,
        });
        if state.job.has_verdict() && !sync.seen.job.has_verdict() {
            self.met.note(Row::CrashAfterVerdict);
        }
    }

    /// Whether no other pod was released in this sync before.
    fn is_first_release(&self, sync: &Sync, slot: u8) -> bool {
        let before = (0..slot).any(|other| {
            let pod = sync.seen.pods[usize::from(other)];
            pod.is_tracked() && pod.is_terminal() && sync.seen.released >> other & 1 == 0
        });
        !before
    }

    fn note_arrival(&self, state: &State, call: Call, answer: Answer) {
        match (call, answer) {
            (Call::Put { .. }, Answer::Gone) => self.met.note(Row::WriteToNobody),
            (Call::Put { .. }, Answer::Conflict)
                if state.sync.is_some_and(|sync| sync.seen.job.generation != state.job.generation) =>
            {
                self.met.note(Row::WriteToNamesake);
            }
            (Call::Put { second, .. }, Answer::Conflict) => {
                self.met.note(if second { Row::SecondWriteConflict } else { Row::FirstWriteConflict });
            }
            (Call::Put { .. }, Answer::Done) => self.note_status(state),
            (Call::Adopt(_), Answer::Refused) => self.met.note(Row::AdoptionRefused),
            (Call::Adopt(_), Answer::Done) => self.met.note(Row::Adopted),
            (Call::Disown(_), Answer::Done) => self.met.note(Row::Disowned),
            (Call::Release(_), Answer::Done) if state.job.deleting => self.met.note(Row::ReleaseWhileJobGoes),
            _ => {}
        }
    }

    fn note_status(&self, state: &State) {
        let status = &state.job.status;
        let open = (status.uncounted_succeeded | status.uncounted_failed).count_ones() as usize;
        if open == self.config.settings.uncounted_pods_max {
            self.met.note(Row::CapReached);
        }
        let verdicts = [(1, Row::BackoffLimitExceeded), (2, Row::DeadlineExceeded), (5, Row::FailedIndexes)];
        let found = verdicts.iter().find(|(reason, _)| *reason == status.reason);
        if let Some((_, row)) = found.filter(|_| status.conditions & (FAILURE_TARGET | FAILED) != 0) {
            self.met.note(*row);
        }
        if status.conditions & (SUCCESS_CRITERIA_MET | COMPLETE) == SUCCESS_CRITERIA_MET | COMPLETE {
            self.met.note(Row::Completed);
        }
    }

    fn note_lost(&self, call: Call) {
        self.met.note(match call {
            Call::Create { .. } => Row::LostCreate,
            Call::Delete { .. } => Row::LostDelete,
            Call::MarkSurplus(_) => Row::LostMark,
            Call::Put { second: false, .. } => Row::LostFirstWrite,
            Call::Put { second: true, .. } => Row::LostSecondWrite,
            Call::Release(_) | Call::LetGo(_) | Call::ReleaseSurplus(_) | Call::Adopt(_) | Call::Disown(_) => {
                Row::LostRelease
            }
        });
    }

    fn note_exit(&self, exit: Exit) {
        if !self.config.has_failure_policy() {
            return;
        }
        match exit {
            Exit::Ignored => self.met.note(Row::PolicyIgnore),
            Exit::FailsJob => self.met.note(Row::PolicyFailJob),
            Exit::FailsIndex => self.met.note(Row::PolicyFailIndex),
            Exit::Plain => self.met.note(Row::PolicyCount),
            Exit::Success => {}
        }
    }

    fn note_suspension(&self, state: &State, suspend: bool) {
        if !suspend {
            return;
        }
        if state.count(|pod| pod.is_active()) > 0 {
            self.met.note(Row::SuspendedWithActivePods);
        }
        if state.count(|pod| pod.is_tracked() && pod.is_terminal()) > 0 {
            self.met.note(Row::SuspendedWithEndedPods);
        }
        if state.job.has_verdict() {
            self.met.note(Row::SuspendedAfterVerdict);
        }
    }
}

impl Action {
    /// Whether it happens in the world, whatever the controller does.
    fn is_event(self) -> bool {
        !matches!(
            self,
            Self::Begin
                | Self::Answered
                | Self::Lost
                | Self::Refused
                | Self::Crash
                | Self::CrashWithLateCall
                | Self::Land
                | Self::SeeJob
                | Self::SeePods
                | Self::ReleaseOrphan(_)
        )
    }
}

impl State {
    /// The controller dies and starts again, with caches filled afresh.
    fn crash(&mut self) {
        self.sync = None;
        self.mind = Mind::fresh(self.job, self.pods);
    }
}

#[cfg(test)]
mod tests {
    use batch_plan::job::FailureCounts;

    use super::*;
    use crate::config::smallest;
    use crate::pod::Pod;

    /// The successor of a dead controller names the next pod of an index by the last one there is. A creation that was named
    /// by a pod which is gone by then is known to make one too many, and no news.
    #[test]
    fn a_late_creation_was_named_by_a_pod_that_is_still_there() {
        let config = smallest();
        let around = Around { config: &config, met: &Coverage::default() };
        let name = |number| Name { generation: 0, index: 1, number };
        let late_after = |there: &[u8]| {
            let mut state = State::first(&config);
            state.budget.late = 1;
            for (slot, number) in there.iter().enumerate() {
                state.pods[slot] = Pod::created(name(*number), FailureCounts::default(), true);
                state.created += 1;
            }
            let next = Call::Create { name: name(2), counted: 0, ignored: 0 };
            let (seen, clock) = (state.mind, state.clock);
            state.sync = Some(Sync { seen, clock, answers: Answers::default(), is_current: true, next });
            around.next(&state, Action::CrashWithLateCall).and_then(|state| state.late).is_some()
        };
        assert!(late_after(&[0, 1]), "the successor chooses the same name, and finds it taken");
        assert!(late_after(&[1]));
        assert!(!late_after(&[0]), "the successor chooses the name of the one that is gone");
        assert!(!late_after(&[]));
    }
}
