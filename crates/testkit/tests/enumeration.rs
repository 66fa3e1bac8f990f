//! The part of the enumeration that is quick enough for every test run. All of it: the binary `enumerate`.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use testkit::{
    enumeration::{
        Answer, Asked, Baseline, Forms, Report, Scenario, Unit, baseline, parse_points, replay_line, run, scenarios,
        singles,
    },
    faults::{Call, Fault, Point},
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

fn named(name: &str) -> (Scenario, Baseline) {
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("there is such a scenario");
    let baseline = baseline(&scenario).expect("it is clean");
    (scenario, baseline)
}

/// What a process says that was told to run this.
fn run_together(unit: &Unit) -> anyhow::Result<Vec<Report>> {
    run_together_by(&["--worker"], unit)
}

fn run_together_by(arguments: &[&str], unit: &Unit) -> anyhow::Result<Vec<Report>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_enumerate"));
    let mut worker = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    writeln!(worker.stdin.take().context("no input")?, "{}", serde_json::to_string(unit)?)?;
    let output = worker.wait_with_output()?;
    ensure!(output.status.success(), "{:?}", output.status);
    let answers = String::from_utf8(output.stdout)?;
    let mut answers = answers.lines().map(serde_json::from_str).collect::<Result<Vec<Answer>, _>>()?;
    ensure!(matches!(answers.pop(), Some(Answer::Done)), "it does not say that it is done");
    let report = |answer| match answer {
        Answer::Ran(report) => Ok(*report),
        Answer::Done => bail!("more after the end"),
    };
    answers.into_iter().map(report).collect()
}

/// Pairs that have found something: a bug, or a judge that was wrong.
#[test]
fn pairs_that_once_broke_a_promise_keep_it() {
    for (name, points) in [
        // A pod of a name that was free again was made beside the one that the first list did not show.
        ("elastic", "0:twice-pods-3000,15:past-all-3000-3"),
        // The same when all pods were gone that the watch was still to show.
        ("suspend-pending", "7:late-1,8:past-pods-3000-8"),
        // A pod that was let go as surplus was counted by an older deletion.
        ("suspend-terminating", "0:past-pods-3000-8,12:reply-lost"),
        // A delay was cut short by a first list without the failed pod.
        ("nonindexed", "1:past-all-3000-3,17:past-pods-3000-8"),
        // A pod that was made by a call from the past, just before the end, is no pod that was forgotten.
        ("work-queue", "1:past-pods-3000-8,3:late-after-restart"),
        // An index that was counted was taken off by a smaller size, which was undone after the verdict.
        ("elastic", "1:namesake,2:namesake"),
        // A call that was refused was held to be the author of what another one wrote.
        ("adoption-refused", "4:namesake,5:namesake"),
    ] {
        let (scenario, baseline) = named(name);
        let outcome = run(&scenario, &parse_points(points).unwrap(), Some(&baseline));
        assert!(outcome.violations.is_empty(), "{name} {points}: {:#?}", outcome.violations);
    }
}

/// Faults, situations, everything stored, every call and every delay from the last fault on, and all moments after it.
#[test]
fn runs_that_part_from_one_another_are_as_if_run_alone() {
    let (scenario, baseline) = named("indexed");
    let asked = Asked { moments: Some(Forms::All), juncture: true };
    for first in ["", "2:reply-lost", "1:held-pods-3000-3"].map(|points| parse_points(points).unwrap()) {
        let after = first.last().map_or(0, |(call, _)| call + 1);
        // Before the last calls, which may not come after the first fault.
        let all = singles(&baseline).into_iter().flatten().filter(|(call, _)| (after..15).contains(call));
        let branches: Vec<Point> = all.step_by(41).collect();
        assert!(branches.len() >= 20, "{}", branches.len());
        let unit = Unit { scenario: scenario.name.to_owned(), first: first.clone(), branches: branches.clone(), asked };
        let alone = branches.iter().map(|branch| {
            let points = [&first[..], &[*branch]].concat();
            let outcome = run(&scenario, &points, Some(&baseline));
            Report::new(&baseline, points, &outcome, asked)
        });
        let text = |report: Report| serde_json::to_string(&report).unwrap();
        let alone: Vec<String> = alone.map(text).collect();
        // In one process that goes back in time, and each in one of its own.
        for arguments in [&["--worker"][..], &["--worker", "--fork"][..]] {
            let together: Vec<String> = run_together_by(arguments, &unit).unwrap().into_iter().map(text).collect();
            assert_eq!(together, alone, "{arguments:?}");
        }
    }
}

/// The runs that are left out because they would be the same as others are: every call, answer, moment and revision.
#[test]
fn runs_that_are_left_out_are_the_same_as_others() {
    let (scenario, baseline) = named("suspend-pending");
    let all = singles(&baseline).into_iter().flatten();
    let mostly_same = |(_, fault): &Point| matches!(fault, Fault::Lag(_) | Fault::CrashBefore | Fault::CrashAfter);
    let branches: Vec<Point> = all.filter(mostly_same).filter(|(call, _)| *call < 9).collect();
    for first in ["", "0:late-3"].map(|points| parse_points(points).unwrap()) {
        let after = first.last().map_or(0, |(call, _)| call + 1);
        let unit = Unit {
            scenario: scenario.name.to_owned(),
            first,
            branches: branches.iter().filter(|(call, _)| *call >= after).copied().collect(),
            asked: Asked::default(),
        };
        let left_out: Vec<_> =
            run_together(&unit).unwrap().into_iter().filter(|report| report.same.is_some()).collect();
        let crash = |points: &[Point]| points.last().is_some_and(|(_, fault)| *fault == Fault::CrashBefore);
        // Of those that lag some are enough; there are few others.
        let (crashes, lags): (Vec<_>, Vec<_>) = left_out.into_iter().partition(|report| crash(&report.points));
        assert!(!crashes.is_empty() && lags.len() >= 60, "{} and {}", crashes.len(), lags.len());
        for Report { points, same, .. } in crashes.into_iter().chain(lags.into_iter().step_by(23)) {
            let same = same.unwrap();
            let story = |points: &[Point]| {
                let outcome = run(&scenario, points, Some(&baseline));
                // A call that was never sent is no difference, nor is where a fault that strikes later was laid.
                let sent = |call: &&Call| !(crash(points) && call.fault == Some(Fault::CrashBefore));
                let call = |call: &Call| (call.life, call.path.clone(), call.code, call.revision, call.at);
                let calls: Vec<_> = outcome.calls.iter().filter(sent).map(call).collect();
                (calls, outcome.ends, outcome.revisions, outcome.virtual_ms)
            };
            let (left_out, run) = (story(&points), story(&same));
            assert_eq!(left_out, run, "{points:?} and {same:?}");
        }
    }
}

#[test]
fn a_fault_at_a_call_that_never_comes_is_told() {
    let unit = Unit {
        scenario: "indexed".to_owned(),
        first: Vec::new(),
        branches: parse_points("1:unsent,999:unsent").unwrap(),
        asked: Asked::default(),
    };
    let violations: Vec<_> =
        run_together(&unit).unwrap().into_iter().map(|report| (report.points, report.violations)).collect();
    let [(first, clean), (none, told)] = &violations[..] else { panic!("{violations:?}") };
    assert_eq!((first.len(), clean.len(), none.len(), told.len()), (1, 0, 0, 1), "{violations:?}");
}

#[test]
fn cases_can_be_written_down_and_read_back() {
    let points: Vec<Point> = parse_points("3:crash-after,7:held-pods-3000-2").unwrap();
    let line = replay_line("indexed", &points);
    assert!(line.ends_with("--only indexed --replay '3:crash-after,7:held-pods-3000-2'"), "{line}");
    assert!(parse_points("3").is_err() && parse_points("x:unsent").is_err());
}
