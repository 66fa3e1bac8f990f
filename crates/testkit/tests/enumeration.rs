//! The part of the enumeration that is quick enough for every test run. All of it: the binary `enumerate`.

use testkit::{
    enumeration::{baseline, parse_points, replay_line, run, scenarios, singles},
    faults::{Fault, Point},
};

/// Every scenario comes to rest undisturbed, as its author says, and the oracle is content.
#[test]
fn undisturbed_worlds_are_clean() {
    for scenario in scenarios() {
        let outcome = baseline(&scenario);
        assert!(outcome.is_ok(), "{}: {:#?}", scenario.name, outcome.err());
    }
}

/// Two runs of one case are the same to the last call and the last millisecond.
#[test]
fn the_same_case_is_the_same_every_time() {
    for (number, scenario) in scenarios().iter().enumerate() {
        let cases = baseline(scenario).map(|baseline| singles(&baseline)).unwrap_or_default();
        let none = Vec::new();
        let case = cases.get((number * 37) % cases.len().max(1)).unwrap_or(&none);
        let trace = || {
            let outcome = run(scenario, case, None);
            let calls: Vec<String> = outcome.calls.iter().map(|call| format!("{call:?}")).collect();
            (calls, outcome.ends, outcome.revisions, outcome.virtual_ms)
        };
        assert_eq!(trace(), trace(), "{} with {case:?}", scenario.name);
    }
}

/// One case in so many, spread over calls and faults.
const SAMPLE: usize = 199;

#[test]
fn a_sample_of_all_faults_at_all_calls() {
    let mut failing = Vec::new();
    for scenario in scenarios() {
        let Ok(baseline) = baseline(&scenario) else { continue };
        for points in singles(&baseline).iter().step_by(SAMPLE) {
            let outcome = run(&scenario, points, Some(&baseline));
            if let Some(violation) = outcome.violations.first() {
                failing.push(format!("{violation}\n    {}", replay_line(scenario.name, points)));
            }
        }
    }
    assert!(failing.is_empty(), "{}", failing.join("\n"));
}

/// A stop before and after every single call, and every answer lost, in the scenarios whose names begin so.
fn crash_everywhere(names: &[&str], cases_min: usize) {
    let crashes = |(_, fault): &Point| matches!(fault, Fault::CrashBefore | Fault::CrashAfter | Fault::ReplyLost);
    let mut tried = 0;
    let mut failing = Vec::new();
    for scenario in scenarios().into_iter().filter(|it| names.iter().any(|name| it.name.starts_with(name))) {
        let baseline = baseline(&scenario).unwrap_or_else(|error| panic!("{}: {error:#?}", scenario.name));
        for points in singles(&baseline).iter().filter(|points| points.iter().all(crashes)) {
            tried += 1;
            let outcome = run(&scenario, points, Some(&baseline));
            if let Some(violation) = outcome.violations.first() {
                failing.push(format!("{violation}\n    {}", replay_line(scenario.name, points)));
            }
        }
    }
    assert!(failing.is_empty(), "{} of {tried}: {}", failing.len(), failing.join("\n"));
    assert!(tried >= cases_min, "only {tried} cases");
}

/// Nothing is run twice or not at all, and nothing is deleted that should stay.
#[test]
fn no_crash_doubles_loses_or_deletes_wrongly() {
    crash_everywhere(&["cron-", "ttl"], 300);
}

/// Every pod counts once, and the Job ends as it would have.
#[test]
fn no_crash_miscounts() {
    crash_everywhere(&["nonindexed", "indexed", "per-index", "work-queue"], 150);
}

#[test]
fn no_crash_changes_a_verdict() {
    crash_everywhere(
        &["policy-fail-job", "success-policy", "suspend-running", "delete-background", "replacement-"],
        200,
    );
}

#[test]
fn cases_can_be_written_down_and_read_back() {
    let points: Vec<Point> = parse_points("3:crash-after,7:held-pods-3000-2").unwrap();
    let line = replay_line("indexed", &points);
    assert!(line.ends_with("--only indexed --replay '3:crash-after,7:held-pods-3000-2'"), "{line}");
    assert!(parse_points("3").is_err() && parse_points("x:unsent").is_err());
}
