//! Hands the history of a run to the oracle, and says what of it can be judged under this scenario.

use std::collections::BTreeMap;
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
        late_among_others: false,
    };
    let unfenced = Unfenced::of(changes, &notes);
    let history = history(changes, notes).await;
    let findings = oracle::judge(&history, tolerance);
    for (situation, many) in &findings.met {
        counters.add_many(&format!("met: {situation}"), *many);
    }
    count_summer_time(changes, scenario, counters);
    let excuses = Excuses::of(&faults, unfenced);
    let broken = findings.violations.iter().filter(|one| !excuses.excuse(one));
    broken.map(ToString::to_string).collect()
}

/// What happened that no controller can make up for.
struct Excuses {
    unfenced: Unfenced,
    gates: bool,
    clocks: bool,
}

impl Excuses {
    fn of(faults: &[&Fault], unfenced: Unfenced) -> Self {
        let any = |is: fn(&Fault) -> bool| faults.iter().any(|fault| is(fault));
        Self {
            unfenced,
            gates: any(|fault| matches!(fault, Fault::Gates { .. })),
            clocks: any(|fault| matches!(fault, Fault::ClockJump { .. } | Fault::NodeClockJump { .. })),
        }
    }

    fn excuse(&self, violation: &Violation) -> bool {
        let unfenced = || self.unfenced.concerns(violation);
        match violation.invariant {
            // A pod or a Job that is made or deleted by a call from the past, and what follows from it.
            "INV-9" | "INV-11" | "INV-17" | "INV-18" | "INV-19" | "INV-23" | "INV-35" | "INV-36" if unfenced() => true,
            "INV-1" if unfenced() => violation.what.contains("finished without counting"),
            // Without their gates there are no delegated Jobs, no replacement policy, and no interim conditions.
            "INV-8" | "INV-9" | "INV-11" | "INV-15" | "INV-18" | "INV-23" if self.gates => true,
            // The oracle compares times in objects with a clock that nobody sets.
            "INV-33" => self.clocks,
            "INV-10" => self.clocks && violation.what.contains("DeadlineExceeded"),
            // A success may end a delay before the oracle believes that it was seen.
            "INV-21" => violation.what.contains("after the last of"),
            // Who deleted a Job with finalizers is not always known: the answer may name an older revision.
            "INV-40" => violation.object.starts_with("job "),
            _ => false,
        }
    }
}

/// Jobs, CronJobs and their dependents that a call wrote to which its sender did not count on any more (P-1, P-4, P-12):
/// two processes, or one and what is left of another, work on them without knowing of each other.
#[derive(Default)]
struct Unfenced {
    /// By name, since when.
    names: BTreeMap<String, u64>,
}

impl Unfenced {
    fn of(changes: &[Change], notes: &Notes) -> Self {
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for change in changes {
            let Some((kind, name)) = named(&change.key) else { continue };
            let object: serde_json::Value = serde_json::from_slice(&change.bytes).unwrap_or_default();
            if let Some(owner) = object["metadata"]["ownerReferences"][0]["name"].as_str() {
                owners.insert(name.to_owned(), owner.to_owned());
            }
            if notes.unfenced.contains(&change.revision) && matches!(kind, "pods" | "jobs.batch" | "cronjobs.batch") {
                names.entry(name.to_owned()).or_insert(change.revision);
            }
        }
        // What concerns a pod concerns its Job and all pods of that, and so on upwards.
        for _ in 0..2 {
            for (name, owner) in &owners {
                if let Some(since) = names.get(name).copied() {
                    let known = names.entry(owner.clone()).or_insert(since);
                    *known = since.min(*known);
                }
            }
        }
        for _ in 0..2 {
            for (name, owner) in &owners {
                if let Some(since) = names.get(owner).copied() {
                    names.entry(name.clone()).or_insert(since);
                }
            }
        }
        Self { names }
    }

    fn concerns(&self, violation: &Violation) -> bool {
        let name = violation.object.rsplit(' ').next().unwrap_or_default();
        self.names.get(name).is_some_and(|since| violation.revision == 0 || *since <= violation.revision)
    }
}

/// Kind and name of what a key stands for.
fn named(key: &str) -> Option<(&str, &str)> {
    Some((key.split('/').next()?, key.rsplit('/').next()?))
}

/// Worlds that begin shortly before a change of summer time: whether the CronJobs of that zone got past it.
fn count_summer_time(changes: &[Change], scenario: &Scenario, counters: &Counters) {
    let (offset, counter) = match &scenario.began[..7] {
        "2026-03" => ("+02:00", "a Job started by the clock after clocks went forward"),
        "2026-10" => ("+01:00", "a Job started by the clock after clocks went back"),
        _ => return,
    };
    let is_after = |change: &&Change| {
        let job: serde_json::Value = serde_json::from_slice(&change.bytes).unwrap_or_default();
        let scheduled = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
        scheduled.as_str().is_some_and(|time| time.ends_with(offset))
    };
    let mut jobs = changes.iter().filter(|change| change.key.starts_with("jobs.batch/"));
    if jobs.any(|change| is_after(&change)) {
        counters.add(counter);
    }
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
    history.unheard = Some(notes.unheard);
    let read = |(name, path, revision)| Read { by: author(name), life: None, path, revision };
    history.reads = notes.reads.into_iter().map(read).collect();
    history
}

/// Users and nodes are the world to the oracle.
fn author(name: &'static str) -> &'static str {
    match name {
        "users" | "node" => "world",
        controller => controller,
    }
}
