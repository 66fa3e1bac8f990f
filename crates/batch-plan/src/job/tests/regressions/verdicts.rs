//! REG-B: a Job ends once, for the right reason, and not before its pods.

use expect_test::expect;
use serde_json::json;

use super::super::super::*;
use super::super::scenarios::summary;
use super::super::shell::Controller;
use super::super::text::{Case, account, check};
use super::super::world::{Fault, World};
use super::{conditions, finish_all, started};

/// Each reason to fail, with a pod that takes its time to stop.
#[test]
fn reg_b01_the_interim_condition_comes_at_once_and_the_terminal_one_when_all_is_quiet() {
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    let specs = [
        json!({"backoffLimit": 0}),
        json!({"activeDeadlineSeconds": 60}),
        json!({"podFailurePolicy": {"rules": rules}}),
    ];
    for mut spec in specs {
        spec["parallelism"] = json!(2);
        spec["completions"] = json!(2);
        let has_deadline = spec.get("activeDeadlineSeconds").is_some();
        let mut world = World::new(spec);
        let mut controller = Controller::start(&world);
        controller.watch(&world, 0);
        controller.sync(&mut world);
        world.active().iter().for_each(|name| world.run(name));
        match has_deadline {
            true => world.advance(60),
            false => world.finish(&world.active()[0], 42),
        }
        controller.settle(&mut world);
        assert_eq!(conditions(world.status()), ["FailureTarget"]);
        world.advance(30);
        controller.settle(&mut world);
        assert_eq!(conditions(world.status()), ["FailureTarget"], "pods are still terminating");
        world.stop_deleted_pods();
        controller.settle(&mut world);
        assert_eq!(conditions(world.status()), ["FailureTarget", "Failed"]);
    }
}

/// Each type at False and at Unknown, as a user may have written it.
#[test]
fn reg_b02_and_b04_every_condition_type_occurs_once() {
    let ends =
        [("completions=1 | pods a:S", "Complete"), ("backoffLimit=0 | pods a:F", "Failed"), ("suspend", "Suspended")];
    for (situation, expected) in ends {
        for seeded in ["Suspended", "FailureTarget", "SuccessCriteriaMet", "Complete", "Failed"] {
            for state in ["False", "Unknown"] {
                let case = Case::new(&format!("job {seeded}={state} {situation}"), Settings::default());
                let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
                let record = act.record(&[]);
                let written = record.status.clone();
                let status = record.close(&ReleaseOutcome::default()).status.or(written).unwrap();
                let mut kinds: Vec<&str> = status.conditions.iter().flatten().map(|item| &*item.type_).collect();
                let all = kinds.len();
                kinds.sort_unstable();
                kinds.dedup();
                assert_eq!(kinds.len(), all, "{seeded}={state}, {situation}: {:?}", conditions(&status));
                let found = conditions(&status);
                assert!(found.iter().any(|kind| kind == expected), "{seeded}={state}, {situation}: {found:?}");
            }
        }
    }
}

#[test]
fn reg_b06_surplus_pods_go_before_the_job_is_complete() {
    check(
        "job parallelism=3 completions=2 | pods a:S b:S c:R d:R",
        expect![[r#"
            remove  c d
            status  active=0 terminating=2 uncounted.succeeded=[a,b] conditions=[SuccessCriteriaMet/CompletionsReached]
            release a b
            status  succeeded=2 uncounted.succeeded=[]"#]],
    );
    check("job parallelism=3 completions=2 succeeded=2 SuccessCriteriaMet=True | pods c:R!- d:R!-", expect![""]);
    check(
        "job parallelism=3 completions=2 succeeded=2 SuccessCriteriaMet=True terminating=2",
        expect![[r#"
        status  terminating=0
        status  completionTime=now conditions=[SuccessCriteriaMet/Because,Complete/Because]
        event   Normal Completed: Job completed"#]],
    );
}

/// INV-11: both outcomes. The Job ends; the cache of pods shows all of it, that of Jobs still what was before.
#[test]
fn reg_b07_a_job_that_we_finished_gets_no_more_pods_however_late_the_news() {
    for (exit_code, end) in [(0, "Complete"), (1, "Failed")] {
        let (mut world, mut controller) = started(json!({"completions": 1, "backoffLimit": 0}));
        finish_all(&mut world, exit_code);
        controller.watch(&world, 0);
        let shown = world.log.len();
        controller.sync(&mut world);
        assert!(conditions(world.status()).contains(&end.to_owned()));
        // Versions would tell that the Job is old; they are not what this rests on (JC-410).
        controller.wrote = None;
        let (calls, finished) = (world.calls, world.status().clone());
        for _ in 0..3 {
            controller.watch_each(&world, [world.log.len() - shown, 0]);
            controller.sync(&mut world);
            world.advance(3600);
        }
        assert_eq!((world.created, world.calls), (1, calls), "{end}: pods created, calls");
        controller.settle(&mut world);
        assert_eq!((world.created, world.status()), (1, &finished), "{end}");
    }
}

/// INV-27: a refused write would be a panic of the world's.
#[test]
fn reg_b09_suspended_and_resumed_three_times() {
    let (mut world, mut controller) = started(json!({"completions": 2}));
    let start = |world: &World| world.status().start_time.as_ref().map(|start| start.0);
    assert_eq!(start(&world), Some(world.now));
    for round in 1..=3 {
        world.advance(5);
        world.edit_spec(|spec| spec["suspend"] = json!(true));
        controller.settle(&mut world);
        let suspended = start(&world);
        world.advance(5);
        world.edit_spec(|spec| spec["suspend"] = json!(false));
        controller.settle(&mut world);
        assert_eq!((start(&world), suspended), (Some(world.now), None), "resumed, suspended: round {round}");
    }
}

/// INV-12: both outcomes.
#[test]
fn reg_b12_a_job_is_announced_once_however_often_the_last_write_fails() {
    let failed = "Warning BackoffLimitExceeded: Job has reached the specified backoff limit";
    let ends = [(0, "Normal Completed: Job completed", Ended::Succeeded), (1, failed, Ended::Failed)];
    for (exit_code, event, result) in ends {
        for failures in 0..4 {
            let (mut world, mut controller) = started(json!({"completions": 1, "backoffLimit": 0}));
            world.events.clear();
            finish_all(&mut world, exit_code);
            world.aimed.ends_refused = failures;
            controller.settle(&mut world);
            assert!(world.is_finished());
            let is_end = |metric: &&Metric| matches!(metric, Metric::JobFinished { .. });
            let counted: Vec<&Metric> = world.metrics.iter().filter(is_end).collect();
            assert_eq!((&*world.events, counted.len()), (&[event.to_owned()][..], 1), "{failures} failures");
            assert!(matches!(counted[0], Metric::JobFinished { result: found, .. } if *found == result), "{counted:?}");
        }
    }
}

#[test]
fn reg_b14_a_deleted_pod_is_judged_by_its_exit_code_once() {
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    let (mut world, mut controller) = started(json!({"completions": 1, "podFailurePolicy": {"rules": rules}}));
    let name = world.active().remove(0);
    world.run(&name);
    world.delete(&name);
    controller.settle(&mut world);
    expect!["terminating=1 pods=1"].assert_eq(&summary(&mut world));
    world.finish(&name, 42);
    controller.settle(&mut world);
    expect!["failed=1 pods=1 conditions=FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy !PodFailurePolicy"]
        .assert_eq(&summary(&mut world));
}

/// INV-9: the answer to a creation is lost, then an earlier failure is seen, of which the Job dies. The pod that nobody
/// knows of must be found and stopped before the Job is over.
#[test]
fn inv_9_a_job_does_not_finish_while_a_creation_is_unanswered() {
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        let (mut world, mut controller) =
            started(json!({"completionMode": "Indexed", "parallelism": 2, "completions": 3, "backoffLimit": 0}));
        let names = world.active();
        names.iter().for_each(|name| world.run(name));
        world.finish(&names[1], 0);
        controller.watch(&world, 0);
        world.finish(&names[0], 1);
        let seen = world.log.len();
        world.faults.insert(world.calls + 1, fault);
        controller.sync(&mut world);
        let lag = world.log.len() - seen;
        controller.watch_each(&world, [0, lag]);
        controller.sync(&mut world);
        assert_eq!(conditions(world.status()), ["FailureTarget"], "{fault:?}");
        let before = world.now;
        for _ in 0..2 {
            controller.settle(&mut world);
            world.stop_deleted_pods();
        }
        controller.settle(&mut world);
        assert_eq!(conditions(world.status()), ["FailureTarget", "Failed"], "{fault:?}");
        let waited = world.now.duration_since(before).as_secs();
        assert_eq!(waited > 0, fault == Fault::RequestLost, "only a pod that never comes is waited for");
        world.assert_settled();
    }
}

/// INV-11: the write of the verdict lands, its answer is lost, and the pod that it was about turns out to have succeeded
/// after all. Going by the Job of before, there would be no reason to end.
#[test]
fn inv_11_a_verdict_whose_write_was_not_answered_stands() {
    let (mut world, mut controller) =
        started(json!({"completionMode": "Indexed", "parallelism": 1, "completions": 2, "backoffLimit": 0}));
    let name = world.active().remove(0);
    world.run(&name);
    world.delete(&name);
    controller.watch(&world, 0);
    world.faults.insert(world.calls + 1, Fault::AnswerLost);
    controller.sync(&mut world);
    assert_eq!(conditions(world.status()), ["FailureTarget"]);
    world.finish(&name, 0);
    // Pods arrive, the Job does not.
    controller.watch_each(&world, [usize::MAX, 0]);
    controller.sync(&mut world);
    assert_eq!(world.created, 1);
    controller.settle(&mut world);
    assert_eq!(conditions(world.status()), ["FailureTarget", "Failed"]);
}

/// INV-10: a Job fails, its pods are deleted, and then its status cannot be written, or one of them cannot be deleted. The
/// deleted ones count as failed, which is a reason of its own, and comes before a deadline (JC-901); ones that were restarted
/// too often run no more, which is a reason less (JC-903).
#[test]
fn a_job_fails_for_the_reason_for_which_its_pods_were_ended() {
    let reason = |text: &str, then: &str, is_noted: bool, is_edited: bool| {
        let mut case = Case::new(text, Settings::default());
        let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
        assert!(matches!(act.action, PodAction::End(_)), "{text}");
        if is_noted {
            case.tally.note_verdict(&case.job, &act);
        }
        if is_edited {
            case.job.metadata.generation = Some(2);
        }
        case.observe(then);
        let account = account(&case, |_| CallOutcome::Done);
        ["DeadlineExceeded", "BackoffLimitExceeded"].into_iter().find(|reason| account.contains(reason))
    };
    let late = "job completions=1 backoffLimit=0 deadline=30 | pods a:R";
    assert_eq!(reason(late, "a:R!", true, false), Some("DeadlineExceeded"));
    assert_eq!(reason(late, "a:R!", false, false), Some("BackoffLimitExceeded"), "a new process cannot know");
    assert_eq!(reason(late, "a:R!", true, true), Some("BackoffLimitExceeded"), "the Job is another one");
    let restarted = "job onFailure completions=1 backoffLimit=2 replace=Failed | pods a:R^2";
    assert_eq!(reason(restarted, "a:S", true, false), Some("BackoffLimitExceeded"));
    assert_eq!(reason(restarted, "a:S", false, false), None, "a new process cannot know");
}
