//! A configuration as a stateright model, and what came of checking it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use stateright::{Checker, Model, Property};

use crate::actions::{Action, Around};
use crate::config::Config;
use crate::coverage::{Coverage, Row};
use crate::settle::settles;
use crate::state::{Invariant, State};

/// Which states are looked at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The near ones, so that the way to a broken promise is a short one. What is still to be looked at fills the memory.
    Breadth,
    /// The far ones, which takes a few bytes a state: for hundreds of millions.
    Depth,
}

/// How far a search goes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub order: Order,
    pub threads: usize,
    /// Distinct states of one configuration; the search is then cut off.
    pub states: Option<u64>,
    pub time: Option<Duration>,
    /// From one in how many states it is demanded that everything settles. A settling run costs as much as a hundred
    /// transitions.
    pub settle_one_in: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { order: Order::Breadth, threads: 2, states: None, time: None, settle_one_in: 16 }
    }
}

/// What a search found.
#[derive(Debug)]
pub struct Report {
    pub name: &'static str,
    pub states: u64,
    pub generated: u64,
    pub depth: usize,
    pub properties: usize,
    pub settled: u64,
    pub took: Duration,
    /// Whether every state was looked at.
    pub complete: bool,
    /// Promises that were broken, each with a way there.
    pub broken: Vec<(String, String)>,
    /// How often each situation was met.
    pub met: Vec<(Row, u64)>,
}

/// Looks at every state of a configuration, within the limits.
pub fn check(config: Config, limits: Limits) -> Report {
    let shared = Arc::new(Shared { limits, ..Shared::default() });
    let search = SmallWorld { config, shared: shared.clone() }.checker().threads(limits.threads.max(1));
    match limits.order {
        Order::Breadth => report(&search.spawn_bfs().join(), &shared),
        Order::Depth => report(&search.spawn_dfs().join(), &shared),
    }
}

/// What a search that is over has found.
fn report(checker: &impl Checker<SmallWorld>, shared: &Shared) -> Report {
    shared.is_over.store(true, Ordering::Relaxed);
    let sometimes: Vec<&str> = Row::ALL.iter().map(|row| row.text()).collect();
    let discoveries = checker.discoveries();
    let broken = discoveries.into_iter().filter(|(name, _)| !sometimes.contains(name));
    let model = checker.model();
    let broken = broken.map(|(name, path)| {
        let unsettled = settles(&model.around(), path.last_state()).err();
        let reason = unsettled.map_or(String::new(), |reason| format!("\nbecause {reason:?}"));
        let steps: Vec<String> = path.into_vec().into_iter().map(describe).collect();
        (name.to_owned(), steps.join("\n") + &reason)
    });
    Report {
        name: model.config.name,
        states: checker.unique_state_count() as u64,
        generated: checker.state_count() as u64,
        depth: checker.max_depth(),
        properties: model.properties().len(),
        settled: shared.settled.load(Ordering::Relaxed),
        took: shared.started.elapsed(),
        complete: shared.cut_off.get().is_none(),
        broken: broken.collect(),
        met: Row::ALL.iter().map(|row| (*row, shared.coverage.count(*row))).collect(),
    }
}

fn describe((state, action): (State, Option<Action>)) -> String {
    let State { job, pods, mind, sync, .. } = state;
    let shown = |pods: &[crate::pod::Pod]| format!("{:?}", &pods[..usize::from(state.created)]);
    let action = action.map_or("end".to_owned(), |action| format!("{action:?}"));
    let next = sync.map_or(String::new(), |sync| format!("\n    next {:?}", sync.next));
    let seen = if mind.job == job { String::new() } else { format!("\n    seen {:?}", mind.job) };
    format!("  {job:?}{seen}\n    pods {}\n    seen {}{next}\n→ {action}", shown(&pods), shown(&mind.pods))
}

/// What the threads of a search share besides the states.
#[derive(Debug)]
struct Shared {
    limits: Limits,
    started: Instant,
    coverage: Coverage,
    expanded: AtomicU64,
    settled: AtomicU64,
    cut_off: OnceLock<()>,
    is_over: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            started: Instant::now(),
            coverage: Coverage::default(),
            expanded: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            cut_off: OnceLock::new(),
            is_over: AtomicBool::new(false),
        }
    }
}

#[derive(Debug)]
struct SmallWorld {
    config: Config,
    shared: Arc<Shared>,
}

impl SmallWorld {
    fn around(&self) -> Around<'_> {
        Around { config: &self.config, met: &self.shared.coverage }
    }

    fn settles(&self, state: &State) -> bool {
        // The choice depends on the state alone, so that every run makes the same.
        if !fingerprint(state).is_multiple_of(self.shared.limits.settle_one_in.max(1)) {
            return true;
        }
        self.shared.settled.fetch_add(1, Ordering::Relaxed);
        settles(&self.around(), state).is_ok()
    }

    fn has_time(&self) -> bool {
        // When a path is told again there is no limit.
        if self.shared.is_over.load(Ordering::Relaxed) {
            return true;
        }
        let Limits { states, time, .. } = self.shared.limits;
        let expanded = self.shared.expanded.fetch_add(1, Ordering::Relaxed);
        let late = time.is_some_and(|time| expanded.is_multiple_of(64) && self.shared.started.elapsed() > time);
        if late || states.is_some_and(|states| expanded >= states) {
            let _ = self.shared.cut_off.set(());
        }
        self.shared.cut_off.get().is_none()
    }
}

impl Model for SmallWorld {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.config)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.has_time() {
            self.around().actions(state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.around().next(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = promises();
        properties
            .push(Property::always("INV-13, 29, 30: without faults everything settles", |model: &Self, state| {
                model.settles(state)
            }));
        properties.extend(situations());
        properties
    }
}

fn fingerprint(state: &State) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// One property for each promise, so that the report says which was broken.
fn promises() -> Vec<Property<SmallWorld>> {
    macro_rules! promises {
        ($($invariant:ident $text:literal)*) => {
            vec![$(Property::always($text, |_: &SmallWorld, state: &State| {
                state.judge.broken != Some(Invariant::$invariant)
            })),*]
        };
    }
    promises! {
        ExactlyOnce "INV-1: every pod is counted exactly once"
        FirstVerdictSticks "INV-2: the first verdict on a pod sticks"
        CountersGrow "INV-3: counters only grow"
        RecordBeforeRelease "INV-4: record before release"
        ListsWellFormed "INV-5: uncounted lists are bounded"
        TerminalForEver "INV-7: terminal is for ever"
        InterimFirst "INV-8: interim before terminal"
        TerminalIsQuiet "INV-9: terminal means quiet"
        NothingAfterVerdict "INV-11: nothing is created after the verdict"
        NeverAboveWanted "INV-17: never above the wanted number"
        StrictCap "INV-18: strict cap"
        IndexUnique "INV-19: one pod an index, completed once"
        ValidWrites "INV-27: the API accepts every status"
    }
}

fn situations() -> Vec<Property<SmallWorld>> {
    macro_rules! situations {
        ($($row:ident)*) => {
            vec![$(Property::sometimes(Row::$row.text(), |model: &SmallWorld, _: &State| {
                model.shared.coverage.is_news(Row::$row)
            })),*]
        };
    }
    situations! {
        CrashBeforeFirstWrite CrashBeforeReleases CrashAmongReleases CrashBeforeSecondWrite CrashAfterSync
        CrashAfterVerdict CrashWhileCreating CrashWhileRemoving FirstWriteConflict SecondWriteConflict WriteToNamesake
        WriteToNobody CreationForNobody LostCreate LostDelete LostMark LostRelease LostFirstWrite LostSecondWrite
        LateCreate LateDelete LateRelease LateWrite Refused CapReached VerdictWhileUnobserved VerdictWhileUnanswered
        SuccessWithPodsRunning LeftoverOfFinishedJob OrphanOfGoneJob OrphanOfNamesake ReleaseWhileJobGoes
        AdoptionRefused Adopted Disowned Namesake NamesakeDuringSync GrownWithForgottenIndex ShrunkBelowCompleted
        SuspendedWithActivePods SuspendedWithEndedPods SuspendedAfterVerdict PolicyIgnore PolicyFailJob PolicyFailIndex
        PolicyCount DeadlineExceeded BackoffLimitExceeded FailedIndexes Completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest world, every state of it; the larger ones are for `cargo run --release -p model`.
    #[test]
    fn no_history_of_the_smallest_world_breaks_a_promise() {
        let [near, far] = [Order::Breadth, Order::Depth].map(|order| {
            let report = check(crate::config::smallest(), Limits { order, settle_one_in: 4, ..Limits::default() });
            let broken: Vec<String> = report.broken.iter().map(|(name, path)| format!("{name}\n{path}")).collect();
            assert!(broken.is_empty(), "{}", broken.join("\n\n"));
            assert!(report.complete && report.states > 1_000, "{} states", report.states);
            report.states
        });
        assert_eq!(near, far, "the same states in another order");
    }
}
