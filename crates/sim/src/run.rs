//! One run of one scenario, from nothing to a verdict.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::counters::Counters;
use crate::history;
use crate::scenario::Scenario;
use crate::world::World;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Virtual time since the run of this thread began.
pub fn elapsed() -> Duration {
    START.get().map_or(Duration::ZERO, |start| start.elapsed())
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    /// How much time passed in the simulation.
    pub simulated: Duration,
    /// Tells runs apart by the bytes on the disk.
    pub digest: u64,
    pub revisions: u64,
    pub counters: Counters,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Sound,
    /// What was promised and not kept.
    Broken(Vec<String>),
}

/// Runs a scenario on this thread. `trace` tells of every call on stderr.
pub fn run(scenario: &Scenario, trace: bool) -> Outcome {
    let runtime = paused_runtime();
    let counters = Counters::default();
    let played = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(scenario, &counters, trace))));
    START.set(None);
    played.unwrap_or_else(|panic| {
        let what =
            panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|&it| it.into()));
        let broken = vec![format!("panic: {}", what.unwrap_or_default())];
        Outcome { verdict: Verdict::Broken(broken), simulated: Duration::ZERO, digest: 0, revisions: 0, counters }
    })
}

fn paused_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing that can fail")
}

async fn play(scenario: &Scenario, counters: &Counters, trace: bool) -> Outcome {
    let start = Instant::now();
    START.set(Some(start));
    let mut world = World::new(scenario, counters.clone(), trace);
    world.trouble(scenario).await;
    if trace {
        eprintln!("{:>10.3} -- healing", elapsed().as_secs_f64());
    }
    world.heal().await;
    world.settle().await;
    let history = history::read(world.disk());
    let notes = world.take_notes();
    if trace {
        history.iter().for_each(|change| eprintln!("{}", change.line(&notes)));
    }
    let mut broken = std::mem::take(&mut world.violations);
    broken.extend(history::gap(&history));
    broken.extend(crate::judge::judge(&history, notes, scenario, counters).await);
    Outcome {
        verdict: if broken.is_empty() { Verdict::Sound } else { Verdict::Broken(broken) },
        simulated: start.elapsed(),
        digest: world.disk().digest(),
        revisions: history.last().map_or(0, |change| change.revision),
        counters: counters.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers and controllers have the clock, clients and stores whose syncs take time the network: whatever is left of
    /// them has one of the two.
    #[test]
    fn nothing_of_a_run_stays_in_memory() {
        for slow_syncs in [false, true] {
            let mut scenarios = (1..).map(Scenario::of);
            let scenario = scenarios.find(|one| (one.weather.sync_millis_max > 0) == slow_syncs);
            let scenario = scenario.expect("there are seeds of either kind");
            let runtime = paused_runtime();
            let (clock, network) = runtime.block_on(async {
                let mut world = World::new(&scenario, Counters::default(), false);
                world.trouble(&scenario).await;
                world.held_by_all()
            });
            drop(runtime);
            assert!(clock.is_last() && network.is_last(), "something of seed {} is left", scenario.seed);
        }
    }
}
