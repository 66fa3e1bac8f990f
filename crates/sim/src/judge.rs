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
        late_landings: false,
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
    let (excused, broken): (Vec<_>, Vec<_>) = findings.violations.iter().partition(|one| excuses.excuse(one));
    excused.iter().for_each(|one| counters.add(&format!("excused: {}", one.invariant)));
    broken.iter().map(ToString::to_string).collect()
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
            "INV-9" | "INV-11" | "INV-17" | "INV-18" | "INV-19" | "INV-21" | "INV-23" | "INV-35" | "INV-36"
                if unfenced() =>
            {
                true
            }
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

/// Objects that a call wrote to which its sender did not count on any more (P-1, P-4, P-12): two processes, or one and
/// what is left of another, work on them without knowing of each other.
#[derive(Default)]
struct Unfenced {
    /// By uid, since when.
    since: BTreeMap<String, u64>,
    /// All that ever controlled an object, by uid.
    owners: BTreeMap<String, BTreeSet<String>>,
    /// Name and uid of what a revision is about.
    subjects: BTreeMap<u64, (String, String)>,
}

impl Unfenced {
    fn of(changes: &[Change], notes: &Notes) -> Self {
        let mut all = Self::default();
        for change in changes {
            let kind = change.key.split('/').next();
            if !matches!(kind, Some("pods" | "jobs.batch" | "cronjobs.batch")) {
                continue;
            }
            let object: serde_json::Value = serde_json::from_slice(&change.bytes).unwrap_or_default();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let (name, uid) = (text(&object["metadata"]["name"]), text(&object["metadata"]["uid"]));
            if let Some(owner) = object["metadata"]["ownerReferences"][0]["uid"].as_str() {
                all.owners.entry(uid.clone()).or_default().insert(owner.to_owned());
            }
            if notes.unfenced.contains(&change.revision) {
                all.since.entry(uid.clone()).or_insert(change.revision);
            }
            all.subjects.insert(change.revision, (name, uid));
        }
        all
    }

    /// Whether the pod or Job that is complained of was concerned by then. What concerns a pod concerns its Job and all
    /// pods of that; what concerns a Job, the other Jobs of its CronJob only as far as its schedule goes.
    fn concerns(&self, violation: &Violation) -> bool {
        let name = violation.object.rsplit(' ').next().unwrap_or_default();
        let is_schedule = matches!(violation.invariant, "INV-35" | "INV-36");
        let goes_up = is_schedule || violation.object.starts_with("pod ");
        self.uids(violation, name).into_iter().any(|uid| {
            let above = self.owners.get(uid).filter(|_| goes_up).into_iter().flatten().map(String::as_str);
            let heads: BTreeSet<&str> = above.chain((!is_schedule).then_some(uid)).collect();
            let is_below = |owners: &BTreeSet<String>| owners.iter().any(|owner| heads.contains(&**owner));
            let below = self.owners.iter().filter(|(_, owners)| is_below(owners)).map(|(uid, _)| &**uid);
            let mut family = below.chain(heads.iter().copied());
            family.any(|uid| self.since.get(uid).is_some_and(|since| *since <= violation.revision))
        })
    }

    /// What a complaint is about: what was written then, or, if that is something else, all of that name.
    fn uids(&self, violation: &Violation, name: &str) -> Vec<&str> {
        let subject = self.subjects.get(&violation.revision).filter(|(of, _)| of == name);
        let mut uids: Vec<&str> = match subject {
            Some((_, uid)) => vec![uid],
            None => self.subjects.values().filter(|(of, _)| of == name).map(|(_, uid)| &**uid).collect(),
        };
        uids.sort_unstable();
        uids.dedup();
        uids
    }
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
