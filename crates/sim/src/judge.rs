//! Hands the history of a run to the oracle, and says what of it can be judged under this scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apiserver::storage::{ObjectStore, attributes};
use store::{Options, Transaction, Value, Writing};
use testkit::faults::{Authored, Read};
use testkit::oracle::{self, History, Tolerance, Violation};

use crate::counters::Counters;
use crate::history::Change;
use crate::network::Notes;
use crate::scenario::{Fault, Scenario, What};
use crate::weather::Weather;

/// How long controllers may not know of an edit when nothing is wrong.
const WINDOW: Duration = Duration::from_secs(5);
/// And when watches lag and servers are down: for the whole run.
const WINDOW_IN_TROUBLE: Duration = Duration::from_secs(1_000_000);

/// What the history says that must not be.
pub(crate) async fn judge(changes: &[Change], notes: Notes, scenario: &Scenario, counters: &Counters) -> Vec<String> {
    let faults: Vec<&Fault> = scenario.steps.iter().filter_map(|step| fault_of(&step.what)).collect();
    let is_quiet =
        faults.is_empty() && Weather { latency_millis_max: 0, ..scenario.weather } == quiet(&scenario.weather);
    let tolerance = Tolerance {
        window: if is_quiet { WINDOW } else { WINDOW_IN_TROUBLE },
        settled: true,
        late_landings: !is_quiet,
    };
    let history = history(changes, notes).await;
    let findings = oracle::judge(&history, tolerance);
    for (situation, many) in &findings.met {
        counters.add_many(&format!("met: {situation}"), *many);
    }
    let excuses = Excuses::of(scenario, &faults);
    let disowned = disowned(changes);
    let named = |one: &Violation| disowned.iter().any(|name| one.object.contains(name) || one.what.contains(name));
    let broken = findings.violations.iter().filter(|one| !excuses.excuse(one) && !named(one));
    broken.map(ToString::to_string).collect()
}

/// What a scenario contains that no controller can make up for.
struct Excuses {
    /// Two processes, or what one sent before it died, work at the same time without knowing of each other.
    unfenced: bool,
    gates: bool,
    clocks: bool,
}

impl Excuses {
    fn of(scenario: &Scenario, faults: &[&Fault]) -> Self {
        let any = |is: fn(&Fault) -> bool| faults.iter().any(|fault| is(fault));
        Self {
            unfenced: scenario.weather.late > 0
                || any(|fault| matches!(fault, Fault::SecondManager { .. } | Fault::ManagerCrash { .. })),
            gates: any(|fault| matches!(fault, Fault::Gates { .. })),
            clocks: any(|fault| matches!(fault, Fault::ClockJump { .. } | Fault::NodeClockJump { .. })),
        }
    }

    fn excuse(&self, violation: &Violation) -> bool {
        match violation.invariant {
            // A pod or a Job that is made by a call from the past, and what follows from it.
            "INV-9" | "INV-11" | "INV-17" | "INV-18" | "INV-19" | "INV-23" | "INV-35" | "INV-36" if self.unfenced => {
                true
            }
            "INV-1" if self.unfenced => violation.what.contains("finished without counting"),
            // Without their gates there are no delegated Jobs, no replacement policy, and no interim conditions.
            "INV-8" | "INV-9" | "INV-11" | "INV-15" | "INV-18" | "INV-23" if self.gates => true,
            // The oracle compares times in objects with a clock that nobody sets.
            "INV-33" => self.clocks,
            // A success may end a delay before the oracle believes that it was seen.
            "INV-21" => violation.what.contains("after the last of"),
            // Who deleted a Job with finalizers is not always known: the answer may name an older revision.
            "INV-40" => violation.object.starts_with("job "),
            _ => false,
        }
    }
}

/// Names of pods whose owners were taken away by a user: whose they are then, and whether they count, depends on who was
/// quicker.
fn disowned(changes: &[Change]) -> BTreeSet<String> {
    let mut owned: BTreeMap<&str, bool> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for change in changes.iter().filter(|change| change.key.starts_with("pods/")) {
        let pod: serde_json::Value = serde_json::from_slice(&change.bytes).unwrap_or_default();
        let has_owner = pod["metadata"]["ownerReferences"].is_array();
        if owned.insert(&change.key, has_owner) == Some(true) && !has_owner {
            names.extend(change.key.rsplit('/').next().map(str::to_owned));
        }
    }
    names
}

fn fault_of(what: &What) -> Option<&Fault> {
    match what {
        What::Fault(fault) => Some(fault),
        What::User(_) => None,
    }
}

/// This weather with everything quiet but what can only happen to quiet weather too.
fn quiet(weather: &Weather) -> Weather {
    Weather {
        late_millis_max: weather.late_millis_max,
        watch_lag_millis_max: weather.watch_lag_millis_max,
        sync_millis_max: weather.sync_millis_max,
        latency_millis_max: 0,
        ..Weather::CALM
    }
}

/// The oracle reads a store that has everything. The one of the run has forgotten some of it, so it is played again.
async fn history(changes: &[Change], notes: Notes) -> History {
    let options = Options { writing: Writing::Inline, ..Options::default() };
    let store = ObjectStore::open_in_memory(options, attributes()).expect("a store in memory opens");
    for change in changes {
        let value = Value::plain(change.bytes.clone());
        let transaction = match change.is_delete {
            true => Transaction::new().delete(change.key.as_str(), value),
            false => Transaction::new().put(change.key.as_str(), value),
        };
        store.commit(transaction).await.expect("what was possible once is possible again");
    }
    let authored: Vec<Authored> =
        notes.authors.into_iter().map(|(revision, (name, at))| Authored { revision, by: author(name), at }).collect();
    let mut history = History::read(&store, &authored);
    history.reads =
        notes.reads.into_iter().map(|(name, path, revision)| Read { by: author(name), path, revision }).collect();
    history
}

/// Users and nodes are the world to the oracle.
fn author(name: &'static str) -> &'static str {
    match name {
        "users" | "node" => "world",
        controller => controller,
    }
}
