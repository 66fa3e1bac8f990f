//! One run of a scenario, and what there is to say about it.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use anyhow::Result;
use apiserver::storage::ObjectStore;
use jiff::Timestamp;
use serde_json::Value;
use store::ListQuery;

use crate::{
    cluster::Cluster,
    faults::{Call, Choice, Fault, Point},
    oracle::{self, History, Record, Tolerance, Violation},
    world::{Setting, Unrest, World, in_virtual_time},
};

use super::{
    juncture::{Chronicle, Juncture},
    scenarios::Scenario,
    summary::summary,
};

/// Where every world's random numbers begin.
const SEED: u64 = 36;

/// An undisturbed run.
#[derive(Debug, Clone)]
pub struct Baseline {
    pub calls: Vec<Call>,
    pub ends: String,
    /// The moments of its calls.
    pub(super) junctures: Vec<Juncture>,
    /// Faults that are not tried.
    pub(super) unknowable: fn(&Fault) -> bool,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    pub calls: Vec<Call>,
    /// How it ended.
    pub ends: String,
    /// Situations that were met.
    pub met: BTreeMap<&'static str, u64>,
    pub revisions: u64,
    pub virtual_ms: u64,
    /// The most events that a lagging watch held because they were not too many.
    pub(super) held_most: usize,
    records: Vec<Record>,
}

impl Outcome {
    /// What was stored, revision by revision.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The run in a form in which its moments can be compared with those of others.
    pub fn chronicle(&self) -> Chronicle {
        Chronicle::of(&self.records, &self.calls)
    }
}

/// Runs a scenario undisturbed. It must be clean and end as its author says.
pub fn baseline(scenario: &Scenario) -> Result<Baseline, Vec<Violation>> {
    baseline_of(scenario, run(scenario, &[], None))
}

/// The same, of a run that was made already.
pub fn baseline_of(scenario: &Scenario, outcome: Outcome) -> Result<Baseline, Vec<Violation>> {
    let mut violations = outcome.violations.clone();
    if !outcome.ends.contains(scenario.ends) {
        violations.push(violation("scenario", format!("ends with\n{}and not with\n{}", outcome.ends, scenario.ends)));
    }
    if !violations.is_empty() {
        return Err(violations);
    }
    let chronicle = outcome.chronicle();
    let junctures = (0..outcome.calls.len()).filter_map(|call| chronicle.juncture(call, &[])).collect();
    Ok(Baseline { calls: outcome.calls, ends: outcome.ends, junctures, unknowable: scenario.unknowable })
}

/// Runs a scenario with faults and judges it. Without a baseline to compare with, its end is not judged.
pub fn run(scenario: &Scenario, points: &[Point], baseline: Option<&Baseline>) -> Outcome {
    in_virtual_time(Box::pin(async {
        let mut world = begin(scenario, points, baseline).await;
        let rest = world.play().await;
        judge(&mut world, rest, scenario, points, baseline).await
    }))
}

/// The same with faults that are chosen on the way: `choice` is asked at every call, and `chosen` in the end for them. The
/// process ends with it, and nobody tidies up.
pub(super) fn run_choosing(
    scenario: &Scenario,
    points: &[Point],
    baseline: &Baseline,
    choice: Choice,
    chosen: impl FnOnce() -> Vec<Point>,
    then: impl FnOnce(Vec<Point>, Outcome) -> Infallible,
) -> Infallible {
    in_virtual_time(Box::pin(async {
        let mut world = begin(scenario, points, Some(baseline)).await;
        world.wire.ask(choice);
        let rest = world.play().await;
        let points = [points, &chosen()].concat();
        let outcome = judge(&mut world, rest, scenario, &points, Some(baseline)).await;
        then(points, outcome)
    }))
}

/// Runs a scenario in a cluster and in real time, and judges it. Also says whether all faults have come: with fewer calls
/// than in another run, one may have none to strike.
pub async fn run_within(
    cluster: &Cluster,
    scenario: &Scenario,
    points: &[Point],
    baseline: Option<&Baseline>,
) -> Result<(Outcome, bool)> {
    let world = World::within(cluster, setting(scenario)).await?;
    let mut world = prepared(world, scenario, points, baseline);
    let rest = world.play().await;
    let all_came = world.wire.all_happened();
    Ok((judge(&mut world, rest, scenario, points, baseline).await, all_came))
}

async fn begin(scenario: &Scenario, points: &[Point], baseline: Option<&Baseline>) -> World {
    prepared(World::new(setting(scenario)).await, scenario, points, baseline)
}

fn setting(scenario: &Scenario) -> Setting {
    Setting {
        controllers: scenario.controllers,
        behaviours: scenario.behaviours,
        script: (scenario.script)(),
        seed: SEED,
    }
}

fn prepared(mut world: World, scenario: &Scenario, points: &[Point], baseline: Option<&Baseline>) -> World {
    world.calls_max = baseline.map_or(1_000, |baseline| 300 + 10 * baseline.calls.len());
    world.keep_metrics = scenario.keep_metrics;
    world.wire.expect(points);
    world
}

/// What came of a world that has come to rest, or has not.
async fn judge(
    world: &mut World,
    mut rest: Result<(), Unrest>,
    scenario: &Scenario,
    points: &[Point],
    baseline: Option<&Baseline>,
) -> Outcome {
    let mut outcome = Outcome { ends: summary(&world.store), ..Outcome::default() };
    let played = world.has_played();
    if !played && points.is_empty() {
        outcome.violations.push(violation("scenario", "its users wait in vain".to_owned()));
    }
    // Users who waited in vain for what a fault made impossible have not done the same.
    outcome.calls = world.wire.calls();
    let comparable = played && comparable(scenario, points) && !makes_too_many(points, &outcome.calls);
    let revision = world.store.revision();
    if rest.is_ok() {
        // What has not happened by now is not to happen during the last restart, which must find nothing to do.
        world.wire.expect(&[]);
        rest = world.restart().await;
        // Whatever the end is, it is one; users who wait in vain may go on when something moves, and the next time of a
        // CronJob that nobody has suspended may have come.
        if world.store.revision() != revision && played && !(namesake(points) && has_time_to_come(&world.store)) {
            let what = format!("a restart found something left to do; it ended with\n{}", outcome.ends);
            outcome.violations.push(violation("INV-30", what));
        }
    }
    match rest {
        Ok(()) => {}
        Err(Unrest::Horizon) => outcome.violations.push(violation("INV-30", "it never comes to rest".to_owned())),
        Err(Unrest::Calls(calls)) => outcome.violations.push(violation("INV-29", format!("{calls} calls were made"))),
    }
    if let Some(baseline) = baseline
        && comparable
        && scenario.comparable(&baseline.ends) != scenario.comparable(&outcome.ends)
    {
        let what = format!("it ends with\n{}and undisturbed with\n{}", outcome.ends, baseline.ends);
        outcome.violations.push(violation("INV-30", what));
    }
    if let Some(baseline) = baseline
        && world.is_repeatable()
        && concerns_events_alone(points, &outcome.calls)
        && !other_than_events(&outcome.calls).eq(other_than_events(&baseline.calls))
    {
        let what = "what became of an Event changed what else was done".to_owned();
        outcome.violations.push(violation("INV-29", what));
    }
    let containers = world.container_violations().into_iter();
    outcome.violations.extend(containers.map(|what| violation("INV-49", what)));
    let complaints = world.process_complaints().into_iter();
    outcome.violations.extend(complaints.map(|what| violation("process", what)));
    outcome.records = world.records();
    let mut history = History::of_records(&outcome.records);
    history.announcements = world.wire.announcements();
    history.reads = world.wire.reads();
    history.calls = world.wire.calls();
    history.writes = world.wire.writes();
    invalid_writes(&history.calls, &outcome.records, &mut outcome.violations);
    let findings = oracle::judge(&history, tolerance(scenario, points, rest == Ok(())));
    outcome.violations.extend(findings.violations);
    outcome.met = findings.met;
    if world.wire.relists() > 0 {
        outcome.met.insert("relist after 410", 1);
    }
    if world.metrics.iter().any(|text| was_stale(text)) {
        outcome.met.insert("stale cache refused", 1);
    }
    outcome.revisions = revision;
    outcome.virtual_ms = world.clock.millis();
    outcome.held_most = world.wire.held_most();
    outcome
}

impl Scenario {
    /// What of an end must be the same in all runs.
    fn comparable(&self, ends: &str) -> String {
        let varies = |word: &&str| {
            self.failed_varies && word.starts_with("failed") || self.suspended_varies && word.starts_with("Suspended(")
        };
        ends.split(' ').filter(|word| !varies(word)).collect::<Vec<_>>().join(" ")
    }
}

/// INV-27: what we send is valid.
fn invalid_writes(calls: &[Call], records: &[Record], violations: &mut Vec<Violation>) {
    let refused = |call: &&Call| call.kind.ends_with("/status") && matches!(call.code, 400 | 422);
    // A node says which pod its report is about, and a namesake refuses it.
    let of_another = |call: &&Call| call.controller == "node" && has_namesake(call, records);
    for call in calls.iter().filter(refused).filter(|call| !of_another(call)) {
        let what = format!("{} was answered with {}", call.kind, call.code);
        violations.push(Violation { revision: call.revision, object: call.path.clone(), ..violation("INV-27", what) });
    }
}

/// Whether the name in a call's address had been given to another object by then.
fn has_namesake(call: &Call, records: &[Record]) -> bool {
    let name = call.path.trim_end_matches("/status").rsplit('/').next();
    let so_far = records.iter().take_while(|record| record.revision <= call.revision);
    let mut of_name = so_far.filter(|record| record.key.rsplit('/').next() == name);
    of_name.any(|record| record.value.is_none()) && of_name.any(|record| record.value.is_some())
}

fn namesake(points: &[Point]) -> bool {
    points.iter().any(|(_, fault)| *fault == Fault::Namesake)
}

/// Whether there is a CronJob that goes on starting Jobs: a namesake that its users know nothing of.
fn has_time_to_come(store: &ObjectStore) -> bool {
    let Ok(list) = store.list(&ListQuery::new("cronjobs.batch/")) else { return false };
    let parsed = |entry: &[u8]| serde_json::from_slice::<Value>(entry).unwrap_or_default();
    list.entries.iter().any(|entry| parsed(&entry.value())["spec"]["suspend"] != true)
}

/// Whether nothing went wrong but with an Event on its way, or with the answer to it.
fn concerns_events_alone(points: &[Point], calls: &[Call]) -> bool {
    let on_its_way = |fault: &Fault| !fault.is_crash() && !fault.is_of_watches();
    let strikes_event = |number: &usize| calls.get(*number).is_some_and(Call::is_event);
    !points.is_empty() && points.iter().all(|(call, fault)| on_its_way(fault) && strikes_event(call))
}

/// What else was done, and when; names depend on how often chance was asked.
fn other_than_events(calls: &[Call]) -> impl Iterator<Item = (u32, Timestamp, &str, &str, u16)> {
    let others = calls.iter().filter(|call| !call.is_event());
    others.map(|call| (call.life, call.at, call.controller, &*call.kind, call.code))
}

/// A world in which an object was replaced by a namesake has another end.
fn comparable(scenario: &Scenario, points: &[Point]) -> bool {
    points.iter().all(|(_, fault)| match fault {
        _ if fault.stalls() && scenario.stalls_matter => false,
        Fault::Namesake => false,
        Fault::Lag(_) | Fault::Past(_) | Fault::Outage(_) => !scenario.lag_matters,
        _ => true,
    })
}

/// After another fault, a pod that is made when its maker is dead can be one too many, and can succeed too.
fn makes_too_many(points: &[Point], calls: &[Call]) -> bool {
    let creates = |number: &usize| calls.get(*number).is_some_and(|call| call.kind == "POST pods");
    points.len() > 1 && points.iter().any(|(call, fault)| *fault == Fault::LateAfterRestart && creates(call))
}

fn tolerance(scenario: &Scenario, points: &[Point], settled: bool) -> Tolerance {
    let patience = points.iter().map(|(_, fault)| match fault {
        Fault::Lag(lag) => lag.patience_ms,
        Fault::Past(past) => past.patience_ms,
        Fault::Outage(outage) => outage.blinds_for_ms(),
        _ => 0,
    });
    let window = Duration::from_secs(2) + 2 * Duration::from_millis(u64::from(patience.max().unwrap_or(0)));
    let late = |(_, fault): &Point| matches!(fault, Fault::Late(_) | Fault::LateAfterRestart);
    let late_landings = points.iter().any(late);
    Tolerance {
        window,
        settled,
        late_landings,
        late_among_others: late_landings && points.len() > 1,
        uncounted_max: scenario.controllers.job_options().settings.uncounted_pods_max,
        ..Tolerance::default()
    }
}

fn was_stale(metrics: &str) -> bool {
    let line = metrics.lines().find(|line| line.starts_with("job_controller_stale_sync_skips_total{"));
    line.is_some_and(|line| !line.ends_with(" 0"))
}

fn violation(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, revision: 0, object: "world".to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(controller: &'static str, kind: &str, path: &str, code: u16) -> Call {
        Call {
            life: 0,
            controller,
            kind: kind.to_owned(),
            path: path.to_owned(),
            fault: None,
            code,
            seen: 9,
            revision: 9,
            at: jiff::Timestamp::UNIX_EPOCH,
            unseen_pods: 0,
            uncounted: None,
            took_effect: false,
        }
    }

    #[test]
    fn only_a_pod_made_by_the_dead_after_another_fault_can_be_one_too_many() {
        let calls = ["PUT jobs/status", "POST pods", "PATCH pods"].map(|kind| call("job", kind, "", 0));
        let first = (0, Fault::Refused(409));
        assert!(makes_too_many(&[first, (1, Fault::LateAfterRestart)], &calls));
        assert!(!makes_too_many(&[(1, Fault::LateAfterRestart)], &calls), "alone it is compared");
        assert!(!makes_too_many(&[first, (2, Fault::LateAfterRestart)], &calls), "nothing is made");
        assert!(!makes_too_many(&[first, (1, Fault::CrashAfter)], &calls), "it is made in time");
    }

    #[test]
    fn a_report_about_a_pod_whose_name_another_one_has_is_rightly_refused() {
        let record = |revision, value: Option<&'static [u8]>| Record {
            revision,
            by: "world",
            at: None,
            key: "pods/default/a".to_owned(),
            value: value.map(Into::into),
        };
        let (made, gone) = (Some(&b"{}"[..]), None);
        let blames = |by, code, records: &[Record]| {
            let mut violations = Vec::new();
            let path = "/api/v1/namespaces/default/pods/a/status";
            invalid_writes(&[call(by, "PATCH pods/status", path, code)], records, &mut violations);
            !violations.is_empty()
        };
        let anew = [record(1, made), record(2, gone), record(3, made)];
        assert!(!blames("node", 422, &anew) && blames("job", 422, &anew));
        assert!(blames("node", 422, &anew[..2]), "nobody has its name");
        assert!(blames("node", 422, &[record(1, made), record(2, gone), record(10, made)]), "nobody had it yet");
        assert!(!blames("node", 409, &anew[..1]), "a conflict is no fault of the writer's");
    }
}
