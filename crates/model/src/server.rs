//! What the API server, nodes and the garbage collector do, and the promises that every write is held to.
//!
//! As much of the server as matters: names are unique, a deleted pod stays until it has stopped and no finalizer holds it,
//! status writes name a version, and the real validation of status writes.

use batch_plan::job::FailureCounts;
use batch_types::job::validate_status_update;

use crate::config::Config;
use crate::job::{COMPLETE, FAILED, FAILURE_TARGET, JobState, SUCCESS_CRITERIA_MET, Status, TWICE, WORK_QUEUE};
use crate::pod::{Exit, NO_INDEX, Name, PODS, Pod};
use crate::state::{Answer, Call, Invariant, LateCall, State};

impl State {
    /// A call arrives, and what the server says to it. `generation` and `is_current` are those of the caller.
    pub(crate) fn arrive(&mut self, config: &Config, call: Call, generation: u8, is_current: bool) -> Answer {
        match call {
            Call::Create { name, counted, ignored } => {
                let failures = FailureCounts { counted: counted.into(), ignored: ignored.into() };
                self.create(config, name, failures)
            }
            Call::Delete { slot, .. } => {
                let had_ended = self.pods[usize::from(slot)].is_terminal();
                match self.change(slot, |pod| pod.delete()) {
                    Answer::Done if had_ended => Answer::HadEnded,
                    answer => answer,
                }
            }
            Call::MarkSurplus(slot) => self.change(slot, |pod| pod.mark_surplus()),
            // Both are tied to a version that shows the pod live.
            Call::ReleaseSurplus(slot) if self.pods[usize::from(slot)].is_terminal() => Answer::HadEnded,
            Call::LetGo(slot) if self.pods[usize::from(slot)].is_terminal() => Answer::Conflict,
            Call::ReleaseSurplus(slot) => self.change(slot, |pod| pod.release_surplus()),
            Call::LetGo(slot) => self.change(slot, |pod| pod.release()),
            Call::Release(slot) => {
                self.judge_release(config, usize::from(slot));
                self.change(slot, |pod| pod.release())
            }
            Call::Disown(slot) => self.change(slot, |pod| pod.disown()),
            // One fresh read decides whether anything is adopted (INV-16).
            Call::Adopt(_) if !self.job.exists || self.job.generation != generation || self.job.deleting => {
                Answer::Refused
            }
            Call::Adopt(slot) => self.change(slot, |pod| pod.adopt()),
            Call::Put { status, .. } => match self.job.exists {
                false => Answer::Gone,
                true if !is_current || self.job.generation != generation => Answer::Conflict,
                true => {
                    self.put(config, status);
                    Answer::Done
                }
            },
        }
    }

    /// A pod changes, if it is still there.
    pub(crate) fn change(&mut self, slot: u8, change: impl FnOnce(&mut Pod)) -> Answer {
        let slot = usize::from(slot);
        if !self.pods[slot].exists() {
            return Answer::Gone;
        }
        change(&mut self.pods[slot]);
        self.collect(slot);
        Answer::Done
    }

    /// A node reports how a pod ended.
    pub(crate) fn end_pod(&mut self, slot: usize, exit: Exit) {
        self.pods[slot].end(exit);
        self.collect(slot);
    }

    /// The slot of the pod with that name.
    pub(crate) fn slot_named(&self, name: Name) -> Option<usize> {
        self.slots().find(|slot| self.pods[*slot].exists() && self.pods[*slot].name() == name)
    }

    /// Removes a deleted pod that nothing holds any more: it was never bound, or has ended, and has no finalizer.
    fn collect(&mut self, slot: usize) {
        let pod = self.pods[slot];
        let stopped = pod.is_terminal() || pod.phase() == batch_plan::job::Phase::Pending;
        if pod.is_deleting() && !pod.is_tracked() && stopped {
            self.pods[slot] = Pod::default();
            // A creation that is still under way does not outlive a pod of its name, which it was refused for while that
            // existed, nor an earlier pod of its index, whose number its name continues (names.rs).
            let name = pod.name();
            let follows = |other: Name| {
                other == name
                    || name.index != NO_INDEX && (other.generation, other.index) == (name.generation, name.index)
            };
            let is_over = |late: &LateCall| matches!(late.call, Call::Create { name, .. } if follows(name));
            self.late = self.late.filter(|late| !is_over(late));
        }
    }

    fn create(&mut self, config: &Config, name: Name, failures: FailureCounts) -> Answer {
        if let Some(slot) = self.slot_named(name) {
            // The name says whose it is, unless it has changed hands.
            return if self.pods[slot].is_owned() { Answer::Done } else { Answer::NameTaken };
        }
        assert!(usize::from(self.created) < PODS, "more than {PODS} pods: the budget is too large");
        self.pods[usize::from(self.created)] = Pod::created(name, failures, config.run_at_once);
        self.created += 1;
        self.judge_creation(config, name);
        Answer::Done
    }

    fn put(&mut self, config: &Config, status: Status) {
        let old = self.job;
        self.job.status = status;
        self.judge_status(config, &old);
    }

    fn breaks(&mut self, invariant: Invariant) {
        self.judge.broken.get_or_insert(invariant);
    }

    fn demand(&mut self, holds: bool, invariant: Invariant) {
        if !holds {
            self.breaks(invariant);
        }
    }

    /// INV-17, INV-18, INV-19. Whoever asked may not have known the newest size, so the largest ever given counts.
    fn judge_creation(&mut self, config: &Config, name: Name) {
        let generation = name.generation;
        let own = |pod: Pod| pod.belongs_to(generation);
        let active = self.count(|pod| own(pod) && pod.is_active());
        let live = self.count(|pod| own(pod) && pod.is_live());
        let bound = usize::from(self.judge.parallelism_max);
        self.demand(active <= bound, Invariant::NeverAboveWanted);
        self.demand(!config.is_strict() || live <= bound, Invariant::StrictCap);
        if self.job.exists && self.job.generation == generation && self.judge.completions_max != WORK_QUEUE {
            let completions = usize::from(self.judge.completions_max);
            self.demand(active + self.successes(config) <= completions, Invariant::NeverAboveWanted);
        }
        if name.index == NO_INDEX {
            return;
        }
        let of_index = |pod: Pod| own(pod) && pod.name().index == name.index;
        let together = self.count(|pod| of_index(pod) && (pod.is_active() || config.is_strict() && pod.is_live()));
        self.demand(together <= 1, Invariant::IndexUnique);
        let completed = self.job.generation == generation && self.job.status.completed >> name.index & 1 == 1;
        self.demand(!completed, Invariant::IndexUnique);
    }

    /// Successes of the Job, recorded or yet to be recorded.
    fn successes(&self, config: &Config) -> usize {
        let status = &self.job.status;
        let generation = self.job.generation;
        if config.is_indexed() {
            return status.completed.count_ones() as usize;
        }
        let listed = self.judge.listed_succeeded | self.judge.listed_failed;
        let unlisted = self.slots().filter(|slot| {
            let pod = self.pods[*slot];
            let unlisted = listed >> slot & 1 == 0;
            // One that succeeds although it was being deleted may have been replaced before.
            let succeeded = pod.is_tracked() && pod.exit() == Exit::Success && !pod.is_deleting();
            pod.belongs_to(generation) && succeeded && unlisted
        });
        usize::from(status.succeeded) + status.uncounted_succeeded.count_ones() as usize + unlisted.count()
    }

    /// INV-4: the finalizer of an ended pod goes only when the status names the pod or its index.
    fn judge_release(&mut self, config: &Config, slot: usize) {
        let pod = self.pods[slot];
        let job = self.job;
        let generation = pod.name().generation;
        if !pod.is_tracked() || !pod.is_terminal() || !pod.belongs_to(generation) {
            return;
        }
        let gone = !job.exists || job.generation != generation || job.deleting;
        // A surplus pod that fails because of its deletion counts as nothing; one that succeeds all the same does count.
        let excused = pod.is_surplus() && pod.exit() != Exit::Success;
        let ignored = config.has_failure_policy() && pod.exit() == Exit::Ignored;
        if gone || excused || ignored {
            return;
        }
        let listed = (self.judge.listed_succeeded | self.judge.listed_failed) >> slot & 1 == 1;
        let index = pod.name().index;
        let by_index =
            index != NO_INDEX && (job.status.completed >> index & 1 == 1 || index >= self.judge.completions_min);
        self.demand(listed || by_index, Invariant::RecordBeforeRelease);
    }

    /// INV-1: what gets on a list has ended in that way, is being deleted and may be replaced, or fails with its Job. Of one
    /// that succeeded meanwhile the sender may not know.
    fn judge_listed(&mut self, config: &Config, before: &Status) {
        let after = self.job.status;
        let seen = self.sync.map(|sync| sync.seen.pods);
        let is_new = |slot: &usize, now: u8, then: u8| (now & !then) >> slot & 1 == 1;
        let right = self.slots().filter(|slot| self.pods[*slot].exists()).all(|slot| {
            let pod = self.pods[slot];
            let unknown = seen.is_none_or(|seen| !seen[slot].is_terminal());
            let falls = after.conditions & (FAILURE_TARGET | FAILED) != 0;
            let may_fail = pod.is_deleting() && !config.is_strict() || falls;
            let failed = match pod.exit() {
                Exit::Success => may_fail && unknown,
                _ => pod.is_terminal() || may_fail,
            };
            (!is_new(&slot, after.uncounted_succeeded, before.uncounted_succeeded) || pod.exit() == Exit::Success)
                && (!is_new(&slot, after.uncounted_failed, before.uncounted_failed) || failed)
        });
        self.demand(right, Invariant::ExactlyOnce);
    }

    /// INV-1, INV-19: an index is on record because a pod of it succeeded, and leaves it only if it is beyond the size that
    /// the Job has, or had when the sync began.
    fn judge_indexes(&mut self, before: &Status) {
        let after = self.job.status;
        let generation = self.job.generation;
        let has = |indexes: u8, index: u8| indexes >> index & 1 == 1;
        let succeeded = |index: u8| {
            let of_index = |pod: Pod| pod.belongs_to(generation) && pod.name().index == index;
            self.count(|pod| of_index(pod) && pod.exit() == Exit::Success) > 0
        };
        let earned = (0..8).all(|index| !has(after.completed & !before.completed, index) || succeeded(index));
        self.demand(earned, Invariant::ExactlyOnce);
        let seen = self.sync.map_or(self.job.completions, |sync| sync.seen.job.completions);
        let size = self.job.completions.min(seen);
        let kept = (0..8).all(|index| !has(before.completed & !after.completed, index) || index >= size);
        self.demand(kept, Invariant::IndexUnique);
    }

    /// INV-1…3, INV-5, INV-7…9, INV-19, INV-27.
    fn judge_status(&mut self, config: &Config, old: &JobState) {
        let (before, after) = (old.status, self.job.status);
        let indexed = config.is_indexed();
        self.demand(before.failed <= after.failed, Invariant::CountersGrow);
        self.demand(indexed || before.succeeded <= after.succeeded, Invariant::CountersGrow);

        let terminal = COMPLETE | FAILED;
        self.demand(!old.is_finished(), Invariant::TerminalForEver);
        self.demand(before.conditions & !after.conditions == 0, Invariant::TerminalForEver);
        self.demand(after.conditions & terminal != terminal, Invariant::TerminalForEver);
        self.demand(after.conditions & TWICE == 0, Invariant::TerminalForEver);
        let needs = |terminal, interim| after.conditions & terminal == 0 || before.conditions & interim != 0;
        self.demand(needs(COMPLETE, SUCCESS_CRITERIA_MET) && needs(FAILED, FAILURE_TARGET), Invariant::InterimFirst);

        self.judge_listed(config, &before);
        self.judge_indexes(&before);
        self.judge.listed_succeeded |= after.uncounted_succeeded;
        self.judge.listed_failed |= after.uncounted_failed;
        let judge = self.judge;
        self.demand(judge.listed_succeeded & judge.listed_failed == 0, Invariant::FirstVerdictSticks);
        let counted = |ever: u8, still: u8| ever.count_ones() - (ever & still).count_ones();
        let failed = counted(judge.listed_failed, after.uncounted_failed);
        self.demand(failed == u32::from(after.failed), Invariant::ExactlyOnce);
        let succeeded = match indexed {
            true => after.completed.count_ones(),
            false => counted(judge.listed_succeeded, after.uncounted_succeeded),
        };
        let invariant = if indexed { Invariant::IndexUnique } else { Invariant::ExactlyOnce };
        self.demand(succeeded == u32::from(after.succeeded), invariant);
        self.demand(after.completed & after.failed_indexes == 0, Invariant::IndexUnique);
        let open = (after.uncounted_succeeded.count_ones() + after.uncounted_failed.count_ones()) as usize;
        self.demand(open <= config.settings.uncounted_pods_max.max(1), Invariant::ListsWellFormed);

        if self.job.is_finished() {
            let generation = self.job.generation;
            // Pods whose labels were changed are the Job's no more (JC-603). One that got them back since the sync began
            // was not its Job's when it decided.
            let seen = self.sync.map_or(self.mind, |sync| sync.seen).pods;
            let was_let_go = |slot: usize| seen[slot].exists() && !seen[slot].matches();
            let is_live = |slot: &usize| {
                let pod = self.pods[*slot];
                pod.belongs_to(generation) && pod.matches() && pod.is_live() && !was_let_go(*slot)
            };
            let live = self.slots().filter(is_live).count();
            self.demand(live == 0 && open == 0 && after.active == 0, Invariant::TerminalIsQuiet);
        }
        let valid = || {
            let per_index = config.is_per_index();
            let (new, old) = (self.job.object(&config.base, per_index), old.object(&config.base, per_index));
            validate_status_update(&new, &old, &config.settings.gates).is_empty()
        };
        let valid = valid();
        self.demand(valid, Invariant::ValidWrites);
    }
}
