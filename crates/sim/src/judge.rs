//! Hands the history of a run to the oracle, and says what of it can be judged under this scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apiserver::storage::{ObjectStore, attributes};
use jiff::{SignedDuration, Timestamp};
use store::{Options, Transaction, Value, Writing};
use testkit::faults::{Announcement, Authored, Read};
use testkit::oracle::{self, History, Tolerance, Violation};

use crate::counters::Counters;
use crate::history::Change;
use crate::network::Notes;
use crate::scenario::{Fault, Scenario, What};

/// How long controllers may act on what they were shown before something else was.
const WINDOW: Duration = Duration::from_secs(5);

/// What the history says that must not be.
pub(crate) async fn judge(changes: &[Change], notes: Notes, scenario: &Scenario, counters: &Counters) -> Vec<String> {
    let faults: Vec<&Fault> = scenario.steps.iter().filter_map(|step| fault_of(&step.what)).collect();
    let lag = longest_lag(changes, &notes);
    counters.add(match lag.as_secs() {
        0..2 => "controllers up to 2 s behind",
        2..60 => "controllers up to a minute behind",
        _ => "controllers more than a minute behind",
    });
    let replacement_policy =
        !faults.iter().any(|fault| matches!(fault, Fault::Gates { replacement_policy: false, .. }));
    let tolerance = Tolerance { window: WINDOW + lag, replacement_policy, ..Tolerance::default() };
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
}

impl Excuses {
    fn of(faults: &[&Fault], unfenced: Unfenced) -> Self {
        let any = |is: fn(&Fault) -> bool| faults.iter().any(|fault| is(fault));
        Self { unfenced, gates: any(|fault| matches!(fault, Fault::Gates { .. })) }
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

/// Whose knowledge the oracle's window is about.
const FOLLOWERS: [&str; 3] = ["job", "cronjob", "ttl"];

/// For how long, at most, something had changed and a controller was not shown it: as long as the watch was late, or
/// broken and not yet followed by a list, or until the process ended.
fn longest_lag(changes: &[Change], notes: &Notes) -> Duration {
    let changed_at = |revision: u64| notes.authors.get(&revision).map(|(_, at)| *at);
    let lag_of = |revision: u64, shown: Timestamp| changed_at(revision).map(|at| shown.duration_since(at));
    let mut longest = SignedDuration::ZERO;
    for ((life, _, path), shown) in notes.shown.iter().filter(|((_, name, _), _)| FOLLOWERS.contains(name)) {
        let prefix = match path.rsplit('/').next() {
            Some("pods") => "pods/",
            Some(batch) => &format!("{batch}.batch/"),
            None => continue,
        };
        // The oldest change after a revision that the follower does not know yet.
        let first_after = |revision: u64, up_to: u64| {
            let start = changes.partition_point(|change| change.revision <= revision);
            let later = changes[start..].iter().take_while(|change| change.revision <= up_to);
            later.filter(|change| change.key.starts_with(prefix)).map(|change| change.revision).next()
        };
        let mut known: Option<u64> = None;
        for one in shown {
            let news = match (one.is_whole, known) {
                (false, _) => Some(one.revision),
                (true, Some(known)) => first_after(known, one.revision),
                (true, None) => None,
            };
            let is_news = known.is_none_or(|known| one.revision > known);
            longest = longest.max(news.filter(|_| is_news).and_then(|news| lag_of(news, one.at)).unwrap_or_default());
            known = known.max(Some(one.revision));
        }
        if let (Some(end), Some(known)) = (notes.ends.get(life), known) {
            let unknown = first_after(known, u64::MAX);
            longest = longest.max(unknown.and_then(|unknown| lag_of(unknown, *end)).unwrap_or_default());
        }
    }
    longest.try_into().unwrap_or_default()
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
    history.clock_jumps =
        notes.jumps.into_iter().map(|(at, millis)| (at, SignedDuration::from_millis(millis))).collect();
    let announced = notes.announcements.into_iter().map(|one| Announcement {
        life: u32::try_from(one.life).unwrap_or(u32::MAX),
        reason: one.reason,
        uid: one.uid,
        revision: one.revision,
    });
    history.announcements = announced.collect();
    let read = |(name, path, revision)| Read { by: author(name), life: None, path, revision };
    history.reads = notes.reads.into_iter().map(read).collect();
    history
}

/// Users are the world to the oracle.
fn author(name: &'static str) -> &'static str {
    match name {
        "users" => "world",
        controller => controller,
    }
}
