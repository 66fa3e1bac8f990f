//! REG-D: limits and delays are exact.

use std::time::Duration;

use expect_test::expect;
use jiff::SignedDuration;
use serde_json::json;

use super::super::super::*;
use super::super::shell::Controller;
use super::super::text::{Case, now};
use super::super::world::{Change, World};
use super::{conditions, finish_all, started};

/// INV-24: pods that always fail.
#[test]
fn reg_d01_and_d03_the_limit_is_exact() {
    for limit in [0, 1, 6] {
        let (mut world, mut controller) = started(json!({"completions": 1, "backoffLimit": limit}));
        for _ in 0..10 {
            finish_all(&mut world, 1);
            controller.settle(&mut world);
            // Other events in between change nothing.
            world.touch_job();
            controller.settle(&mut world);
        }
        assert_eq!((world.status().failed, world.created), (Some(limit + 1), limit as usize + 1));
        expect!["FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded"].assert_eq(&reasons(&world));
    }
}

fn reasons(world: &World) -> String {
    let all = world.status().conditions.iter().flatten();
    let texts = all.map(|item| format!("{}/{}", item.type_, item.reason.as_deref().unwrap_or("")));
    texts.collect::<Vec<_>>().join(",")
}

/// INV-24: a pod that is Pending because its init container crashes again and again.
#[test]
fn reg_d05_restarts_of_init_containers_count() {
    for (limit, restarts, fails) in [(2, 1, false), (2, 2, true), (0, 0, false), (0, 1, true)] {
        let mut case = Case::new(&format!("job onFailure completions=1 backoffLimit={limit}"), Settings::default());
        let pod: PodView = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "p", "labels": {"job": "a"},
                         "finalizers": ["batch.kubernetes.io/job-tracking"]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "init", "restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        }))
        .unwrap();
        case.tally.observe_pod(&pod, now());
        let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
        let ends = matches!(act.action, PodAction::End(_));
        let status = act.record(&[CallOutcome::Done]).status.unwrap_or_default();
        assert_eq!(
            (ends, conditions(&status).contains(&"FailureTarget".to_owned())),
            (fails, fails),
            "{restarts}/{limit}"
        );
    }
}

/// INV-25.
#[test]
fn reg_d07_delays_double_up_to_ten_minutes() {
    let (mut world, mut controller) = started(json!({"completions": 1, "backoffLimit": 100}));
    let mut gaps = Vec::new();
    for _ in 0..9 {
        finish_all(&mut world, 1);
        let failed_at = world.now;
        controller.settle(&mut world);
        gaps.push(world.now.duration_since(failed_at).as_secs());
    }
    assert_eq!(gaps, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
}

/// INV-25, INV-30: five failures, then a success while the delay of the fifth runs. A success ends the delay, unless it
/// came before the failures by the clock of its node.
#[test]
fn reg_d09_a_success_is_counted_at_once_however_long_the_delay() {
    for clock_behind_secs in [0, 3600] {
        let (mut world, mut controller) = started(json!({"completions": 3, "parallelism": 2}));
        for _ in 0..4 {
            let name = world.active().remove(0);
            world.finish(&name, 1);
            controller.settle(&mut world);
        }
        let names = world.active();
        world.finish(&names[0], 1);
        controller.watch(&world, 0);
        controller.sync(&mut world);
        world.advance(20);
        let delay_ends = controller.wake_at.expect("a delay runs");
        assert_eq!(delay_ends.duration_since(world.now).as_secs(), 140);

        let succeeded_at = world.now;
        let by_its_clock = succeeded_at - SignedDuration::from_secs(clock_behind_secs);
        world.finish_at(&names[1], 0, &json!(by_its_clock.to_string()));
        controller.watch(&world, 0);
        controller.sync(&mut world);
        assert_eq!(world.status().succeeded, Some(1), "the success is {clock_behind_secs} s behind");
        assert!(world.now.duration_since(succeeded_at).as_secs() <= 1);
        let delayed = controller.wake_at.is_some_and(|at| at == delay_ends);
        let still_delayed = clock_behind_secs > 0;
        assert_eq!((delayed, world.active().len()), (still_delayed, if still_delayed { 0 } else { 2 }));
    }
}

#[test]
fn reg_d11_ignored_failures_still_delay() {
    let rules = json!([{"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [0]}}]);
    let (mut world, mut controller) =
        started(json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}}));
    let mut gaps = Vec::new();
    for _ in 0..4 {
        finish_all(&mut world, 1);
        let failed_at = world.now;
        controller.settle(&mut world);
        gaps.push(world.now.duration_since(failed_at).as_secs());
    }
    assert_eq!((gaps, world.status().failed), (vec![10, 20, 40, 80], None));
}

/// INV-25: nodes say when their pods ended, and may be wrong, or say nothing.
#[test]
fn reg_d13_whatever_clock_says_when_a_pod_failed_its_replacement_comes_within_the_limit() {
    let per_index = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 20,
                           "backoffLimit": 20});
    let limit = Settings::default().pod_failure_backoff_max.as_secs() as i64;
    for spec in [json!({"completions": 1, "backoffLimit": 20}), per_index] {
        for clock in ["ahead", "behind", "zero", "null"] {
            let (mut world, mut controller) = started(spec.clone());
            for failure in 1..=8 {
                world.advance(5);
                let finished_at = match clock {
                    "ahead" => json!((world.now + SignedDuration::from_hours(1)).to_string()),
                    "behind" => json!((world.now - SignedDuration::from_hours(1)).to_string()),
                    "zero" => json!("0001-01-01T00:00:00Z"),
                    _ => json!(null),
                };
                let (name, failed_at) = (world.active().remove(0), world.now);
                world.finish_at(&name, 1, &finished_at);
                controller.settle(&mut world);
                assert_eq!(world.active().len(), 1, "{clock}, failure {failure}: {spec}");
                let waited = world.now.duration_since(failed_at).as_secs();
                assert!((0..=limit).contains(&waited), "{clock}, failure {failure}: {waited} s, {spec}");
            }
        }
    }
}

/// INV-25, P-11: by the clock of an hour ago the failure is yet to come; its replacement does not wait for that.
#[test]
fn a_clock_that_is_set_back_begins_the_delay_again_once() {
    let per_index = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 5});
    for spec in [json!({"completions": 1}), per_index] {
        let (mut world, mut controller) = started(spec);
        finish_all(&mut world, 1);
        controller.watch(&world, 0);
        controller.sync(&mut world);
        world.advance(-3600);
        let set_back = world.now;
        controller.wake_at = None;
        controller.settle(&mut world);
        assert_eq!((world.active().len(), world.now.duration_since(set_back).as_secs()), (1, 10));
    }
}

/// INV-9, P-11: neither does the end of a Job that a creation without an answer holds back.
#[test]
fn a_clock_that_is_set_back_begins_a_timeout_again_once() {
    let (mut case, timeout) = (Case::new("job completions=1", Settings::default()), Duration::from_secs(300));
    let hour_ago = now() - SignedDuration::from_hours(1);
    case.tally.in_flight.created(&"a-x".into(), now());
    case.tally.in_flight.creation_unanswered(&"a-y".into(), None, now());
    case.tally.note_action(&PodAction::None, &[], now());
    case.tally.tell_time(hour_ago);
    let in_flight = &case.tally.in_flight;
    let later = hour_ago + timeout;
    assert_eq!((in_flight.waiting(hour_ago, timeout), in_flight.waiting(later, timeout)), (Some(timeout), None));
    assert_eq!(in_flight.uncertain_for(later, timeout), None);
}

/// INV-25: the failed pods are still there after a restart, and so is the delay.
#[test]
fn a_restart_does_not_shorten_the_delay() {
    let (mut world, mut controller) = started(json!({"completions": 1}));
    finish_all(&mut world, 1);
    controller.settle(&mut world);
    finish_all(&mut world, 1);
    controller.watch(&world, 0);
    controller.sync(&mut world);
    let failed_at = world.now;
    controller = Controller::start(&world);
    controller.settle(&mut world);
    assert_eq!(world.now.duration_since(failed_at).as_secs(), 20);
    assert_eq!(world.active().len(), 1);
}

/// INV-26: nothing happens after the restart but what the controller has set a timer for.
#[test]
fn reg_d15_the_deadline_survives_a_restart_at_any_second() {
    for second in 0..60 {
        let (mut world, _) = started_and_left_running();
        let begin = world.now;
        world.advance(second);
        let mut controller = Controller::start(&world);
        controller.settle(&mut world);
        let ended = world.now.duration_since(begin).as_secs();
        assert_eq!((reasons(&world).as_str(), ended), (DEADLINE_EXCEEDED, 60), "restarted after {second} s");
    }
}

/// INV-26: the same with a restart every second, each of which makes a sync.
#[test]
fn a_deadline_survives_a_restart_every_second() {
    let (mut world, mut controller) = started_and_left_running();
    for second in 1..=60 {
        world.advance(1);
        controller = Controller::start(&world);
        controller.watch(&world, 0);
        controller.sync(&mut world);
        assert_eq!(!conditions(world.status()).is_empty(), second == 60, "after {second} s");
    }
    controller.settle(&mut world);
    assert_eq!(reasons(&world), DEADLINE_EXCEEDED);
}

const DEADLINE_EXCEEDED: &str = "FailureTarget/DeadlineExceeded,Failed/DeadlineExceeded";

/// A Job with a deadline of a minute that has just begun.
fn started_and_left_running() -> (World, Controller) {
    let mut world = World::new(json!({"completions": 1, "activeDeadlineSeconds": 60}));
    let mut controller = Controller::start(&world);
    controller.watch(&world, 0);
    controller.sync(&mut world);
    (world, controller)
}

/// INV-29: pods that end as soon as they are created. Two status writes settle all of those that have ended together.
#[test]
fn reg_d18_status_writes_per_pod_are_bounded() {
    status_writes_are_bounded("NonIndexed");
}

/// INV-29: the same. Successes are counted by index here, whether or not their pods are released.
#[test]
fn status_writes_per_pod_of_an_indexed_job_are_bounded() {
    status_writes_are_bounded("Indexed");
}

fn status_writes_are_bounded(mode: &str) {
    let (completions, parallelism) = (5000, 50);
    let mut world = World::new(json!({"completionMode": mode, "parallelism": parallelism, "completions": completions}));
    let mut controller = Controller::start(&world);
    // Each write is a version of the Job, the first excepted; the last two rounds have pods of their own to await.
    let writes_max = 2 * (completions / parallelism) as usize + 4;
    for _ in 0..writes_max {
        controller.watch(&world, 0);
        controller.sync(&mut world);
        finish_all(&mut world, 0);
        let writes = world.log.iter().filter(|change| matches!(change, Change::Job(_))).count() - 1;
        let succeeded = world.status().succeeded;
        assert!(writes <= writes_max, "{mode}: {writes} status writes, and {succeeded:?} of {completions} counted");
        if world.is_finished() {
            break;
        }
    }
    assert_eq!((world.is_finished(), world.status().succeeded), (true, Some(completions)));
}
