//! What must come of any state once nothing goes wrong any more (INV-13, INV-29, INV-30).
//!
//! No faults, no users, fair nodes, watches that deliver: the Job ends or is gone, nothing that has ended or is being
//! deleted is tracked, nothing is under way. stateright's own "eventually" looks at ends of paths only and mixes up paths
//! that meet; this asks of a state itself.

use batch_plan::job::Phase;

use crate::actions::{Action, Around};
use crate::coverage::Coverage;
use crate::job::Clock;
use crate::pod::Exit;
use crate::state::{Budget, State};

/// More rounds than any small world needs.
const ROUNDS: usize = 60;

/// Why a state does not settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsettled {
    /// The Job neither ends nor goes.
    Unfinished,
    /// A pod that has ended or is being deleted still has its finalizer.
    Tracked,
    /// A promise is broken on the way.
    Broken,
    /// The controller does the same again and again.
    Restless,
}

pub(crate) fn settles(around: &Around<'_>, from: &State) -> Result<(), Unsettled> {
    if from.judge.broken.is_some() {
        return Ok(());
    }
    // Situations on the way here prove nothing about the search.
    let unheard = Coverage::default();
    let around = Around { config: around.config, met: &unheard };
    let mut state = State { budget: Budget::default(), ..*from };
    around.apply(&mut state, Action::Land);
    around.finish_sync(&mut state);
    // Everything that is waited for has timed out by now.
    state.clock = Clock::MuchLater;
    if state.job.exists && !state.job.is_finished() {
        state.job.suspend = false;
        state.job.parallelism = state.job.parallelism.max(1);
        state.judge.parallelism_max = state.judge.parallelism_max.max(1);
        state.job_changed();
    }
    for round in 0..ROUNDS {
        let before = state;
        around.catch_up(&mut state)?;
        if state.judge.broken.is_some() {
            return Err(Unsettled::Broken);
        }
        if round > 0 && state == before {
            break;
        }
        around.serve(&mut state);
    }
    let over = !state.job.exists || state.job.is_finished();
    let stuck = state.count(|pod| pod.is_tracked() && (pod.is_terminal() || pod.is_deleting()));
    match (over, stuck) {
        (false, _) => Err(Unsettled::Unfinished),
        (true, 0) => Ok(()),
        (true, _) => Err(Unsettled::Tracked),
    }
}

impl Around<'_> {
    fn apply(&self, state: &mut State, action: Action) {
        if action == Action::Land && state.late.is_none() {
            return;
        }
        if let Some(next) = self.next(state, action) {
            *state = next;
        }
    }

    fn finish_sync(&self, state: &mut State) {
        while state.sync.is_some() {
            self.apply(state, Action::Answered);
        }
    }

    /// Delivers and syncs until the controller has nothing more to do.
    fn catch_up(&self, state: &mut State) -> Result<(), Unsettled> {
        for _ in 0..ROUNDS {
            let before = *state;
            self.apply(state, Action::SeeJob);
            self.apply(state, Action::SeePods);
            let mut actions = Vec::new();
            self.actions(state, &mut actions);
            for action in actions.into_iter().filter(|action| matches!(action, Action::ReleaseOrphan(_))) {
                self.apply(state, action);
            }
            self.apply(state, Action::Begin);
            self.finish_sync(state);
            if *state == before {
                return Ok(());
            }
        }
        Err(Unsettled::Restless)
    }

    /// Nodes and the garbage collector do their part; pods that may go on succeed.
    fn serve(&self, state: &mut State) {
        for slot in state.slots() {
            let number = slot as u8;
            if state.pods[slot].is_active() && state.pods[slot].phase() == Phase::Pending {
                self.apply(state, Action::Run(number));
            }
            let pod = state.pods[slot];
            let running = pod.exists() && pod.phase() == Phase::Running;
            match pod.is_deleting() {
                true if pod.is_live() => self.apply(state, Action::Stop(number, Exit::Plain)),
                false if running => self.apply(state, Action::End(number, Exit::Success)),
                _ => {}
            }
            let job = state.job;
            let orphaned = !job.exists || job.generation != pod.name().generation || job.deleting;
            if pod.is_owned() && orphaned && !pod.is_deleting() {
                self.apply(state, Action::CollectPod(number));
            }
        }
        let job = state.job;
        if job.exists && job.deleting && state.count(|pod| pod.belongs_to(job.generation)) == 0 {
            self.apply(state, Action::CollectJob);
        }
    }
}
