//! REG-D: limits and delays are exact.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::super::super::*;
use super::super::shell::Controller;
use super::super::text::{Case, now};
use super::super::world::{Change, World};
use super::{conditions, finish_all, started};

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
        assert_eq!(world.status().failed, Some(limit + 1));
    }
}

/// A pod that is Pending because its init container crashes again and again.
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

#[test]
fn reg_d09_a_success_is_counted_at_once_however_long_the_delay() {
    let (mut world, mut controller) = started(json!({"completions": 2, "parallelism": 2}));
    for _ in 0..3 {
        let name = world.active().remove(0);
        world.finish(&name, 1);
        controller.settle(&mut world);
    }
    let before = world.now;
    let names = world.active();
    // The failure comes last, so that its delay runs.
    world.finish(&names[1], 0);
    world.advance(1);
    world.finish(&names[0], 1);
    controller.watch(&world, 0);
    controller.sync(&mut world);
    assert_eq!(world.status().succeeded, Some(1));
    assert_eq!(world.now.duration_since(before).as_secs(), 1);
    assert!(controller.wake_at.is_some_and(|at| at > world.now), "a delay runs");
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

#[test]
fn reg_d15_the_deadline_survives_restarts() {
    let mut world = World::new(json!({"completions": 1, "activeDeadlineSeconds": 60}));
    let mut controller = Controller::start(&world);
    controller.watch(&world, 0);
    controller.sync(&mut world);
    for second in 1..=60 {
        world.advance(1);
        controller = Controller::start(&world);
        controller.watch(&world, 0);
        controller.sync(&mut world);
        let failing = !world.status().conditions.clone().unwrap_or_default().is_empty();
        assert_eq!(failing, second == 60, "after {second} seconds");
    }
    controller.settle(&mut world);
    assert!(world.is_finished());
}

/// Pods that end as soon as they are created: two status writes settle all of them together.
#[test]
fn reg_d18_status_writes_per_pod_are_bounded() {
    for mode in ["Indexed", "NonIndexed"] {
        let completions = 500;
        let mut world = World::new(json!({"completionMode": mode, "parallelism": 50, "completions": completions}));
        let mut controller = Controller::start(&world);
        while !world.is_finished() {
            controller.watch(&world, 0);
            controller.sync(&mut world);
            finish_all(&mut world, 0);
        }
        assert_eq!(world.status().succeeded, Some(completions));
        let writes = world.log.iter().filter(|change| matches!(change, Change::Job(_))).count();
        assert!(writes <= 30, "{mode}: {writes} versions of the Job for {completions} pods");
    }
}
