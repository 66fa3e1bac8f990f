//! Real bugs of the past, told as stories that must end well (REG-…). Those that are one row of a table are in `vectors`.

use expect_test::expect;
use serde_json::{Value, json};

use super::super::*;
use super::scenarios::summary;
use super::shell::Controller;
use super::text::{Case, account, now};
use super::world::{Fault, World, is_deleting};

fn started(spec: Value) -> (World, Controller) {
    started_with(spec, Settings::default())
}

fn started_with(spec: Value, settings: Settings) -> (World, Controller) {
    let mut world = World::with_settings(spec, settings);
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    (world, controller)
}

fn finish_all(world: &mut World, exit_code: i32) {
    for name in world.active() {
        world.finish(&name, exit_code);
    }
}

/// Every release fails once.
#[test]
fn reg_a05_bounds_and_failing_releases_keep_totals_exact() {
    for count in [5, 6, 10, 11] {
        let settings = Settings { uncounted_pods_max: 5, releases_max: 5, ..Settings::default() };
        let (mut world, mut controller) =
            started_with(json!({"parallelism": count, "completions": count + 1}), settings);
        finish_all(&mut world, 0);
        for _ in 0..4 {
            // The first call of the sync is a creation or the status write; releases follow.
            let next = world.calls + 1;
            world.faults.extend((next + 2..next + 7).map(|call| (call, Fault::Refused)));
            controller.watch(&world, 0);
            controller.sync(&mut world);
            world.faults.clear();
        }
        controller.settle(&mut world);
        assert_eq!(world.status().succeeded, Some(count));
        finish_all(&mut world, 0);
        controller.settle(&mut world);
        assert!(world.is_finished());
        world.assert_settled();
    }
}

#[test]
fn reg_a06_a_release_that_the_cache_does_not_show_is_not_repeated() {
    let (mut world, mut controller) = started(json!({"parallelism": 2, "completions": 2}));
    let name = world.active().remove(0);
    world.finish(&name, 0);
    controller.watch(&world, 0);
    controller.sync(&mut world);
    // The Job's updates arrive, the pod's do not.
    for lag in [1, 1, 0] {
        controller.watch(&world, lag);
        controller.sync(&mut world);
    }
    assert_eq!(world.status().succeeded, Some(1));
}

#[test]
fn reg_a08_a_refused_creation_is_repeated_soon() {
    let mut world = World::new(json!({"parallelism": 3, "completions": 3}));
    world.faults.insert(1, Fault::Refused);
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    assert_eq!(world.now.duration_since(now()).as_secs(), 0);
    expect!["active=3 pods=3 !FailedCreate"].assert_eq(&summary(&mut world));
}

#[test]
fn reg_a09_a_pod_listed_as_failed_that_exits_0_counts_as_failed_once() {
    let (mut world, mut controller) = started(json!({"parallelism": 2, "completions": 2, "backoffLimit": 0}));
    for name in world.active() {
        world.run(&name);
    }
    controller.settle(&mut world);
    let name = world.active().remove(0);
    world.finish(&name, 1);
    controller.watch(&world, 0);
    // DELETE, status, two releases; then the status write that counts fails.
    world.faults.insert(world.calls + 5, Fault::Refused);
    controller.sync(&mut world);
    for name in world.names(is_deleting) {
        world.finish(&name, 0);
    }
    controller.settle(&mut world);
    expect!["failed=2 pods=2 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded"]
        .assert_eq(&summary(&mut world));
}

/// The crash hits every call of the removal; the pod then succeeds.
#[test]
fn reg_a17_a_crash_while_removing_a_pod_leaves_nothing_untracked_behind() {
    for crash_at in 1..=3 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let (mut world, mut controller) = started(json!({"parallelism": 1, "completions": 2}));
            let name = world.active().remove(0);
            let uid = world.pods[&name]["metadata"]["uid"].clone();
            world.run(&name);
            controller.settle(&mut world);
            world.edit_spec(|spec| spec["suspend"] = json!(true));
            controller.watch(&world, 0);
            world.faults.insert(world.calls + crash_at, fault);
            controller.sync(&mut world);
            world.finish(&name, 0);
            world.edit_spec(|spec| spec["suspend"] = json!(false));
            controller.settle(&mut world);
            world.stop_deleted_pods();
            controller.settle(&mut world);
            let status = world.status().clone();
            let counted = status.succeeded == Some(1) && status.failed.is_none();
            let is_there = !world.names(|pod| pod["metadata"]["uid"] == uid).is_empty();
            let removed = !is_there && status.succeeded.is_none() && status.failed.is_none();
            assert!(counted || removed, "{fault:?} at {crash_at}: {status:#?}");
            let untracked = world.names(|pod| {
                pod["status"]["phase"] == "Running" && pod["metadata"]["finalizers"] == json!([]) && !is_deleting(pod)
            });
            assert_eq!(untracked, [""; 0]);
        }
    }
}

#[test]
fn reg_b09_suspended_and_resumed_three_times() {
    let (mut world, mut controller) = started(json!({"completions": 2}));
    for _ in 0..3 {
        world.advance(5);
        world.edit_spec(|spec| spec["suspend"] = json!(true));
        controller.settle(&mut world);
        assert_eq!(world.status().start_time, None);
        world.advance(5);
        world.edit_spec(|spec| spec["suspend"] = json!(false));
        controller.settle(&mut world);
        assert_eq!(world.status().start_time.as_ref().map(|start| start.0), Some(world.now));
    }
}

#[test]
fn reg_b12_a_job_is_announced_once_however_often_the_last_write_fails() {
    for failures in 0..4 {
        let (mut world, mut controller) = started(json!({"completions": 1}));
        summary(&mut world);
        finish_all(&mut world, 0);
        // Status, release, status: the third call and its repetitions. Later syncs write once.
        controller.watch(&world, 0);
        let first = world.calls + 3;
        world.faults.extend((first..first + failures).map(|call| (call, Fault::Refused)));
        controller.settle(&mut world);
        assert!(world.is_finished());
        assert_eq!(world.events, ["Normal Completed: Job completed"], "{failures} failures");
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

/// Each field of a full Job is taken away in turn, then each pair of status fields.
#[test]
fn reg_c03_jobs_that_lack_fields_do_no_harm() {
    let full = Case::new(
        "job Indexed parallelism=2 completions=3 backoffLimit=2 deadline=90 backoffLimitPerIndex=1 maxFailedIndexes=2
         job replace=Failed rules=Ignore:In:7 success=0 succeeded=1 failed=1 completedIndexes=1 failedIndexes=
         job uncounted.failed=[a] Suspended=False
         pods a:0F[0] 1S 2R",
        Settings::default(),
    );
    let job = serde_json::to_value(&full.job).unwrap();
    let mut broken = vec![json!({}), json!({"spec": null}), json!({"metadata": {}, "spec": {"template": {}}})];
    for part in ["metadata", "spec", "status"] {
        for key in job[part].as_object().unwrap().keys() {
            let mut without = job.clone();
            without[part].as_object_mut().unwrap().remove(key);
            broken.push(without);
        }
    }
    for job in broken {
        let Ok(job) = serde_json::from_value::<k8s_openapi::api::batch::v1::Job>(job) else { continue };
        let mut tally = full.tally.clone();
        tally.observe_job(&job, full.settings.gates);
        let snapshot = Snapshot { job: &job, tally: &tally, now: now(), settings: &full.settings };
        if let Plan::Act(act) = plan(&snapshot) {
            let outcomes = vec![CallOutcome::Done; 10];
            act.record(&outcomes).close(&ReleaseOutcome::default());
        }
        let _ = PodStencil::new(&job);
    }
}

/// The answer to each creation is lost once or twice, and pod events are late.
#[test]
fn reg_c09_lost_answers_never_yield_a_second_pod() {
    for mode in ["Indexed", "NonIndexed"] {
        for policy in ["Failed", "TerminatingOrFailed"] {
            for parallelism in [1, 3] {
                let mut world = World::new(json!({"completionMode": mode, "podReplacementPolicy": policy,
                                                  "parallelism": parallelism, "completions": 4}));
                world.faults.extend((1..20).filter(|call| call % 3 != 0).map(|call| (call, Fault::AnswerLost)));
                let mut controller = Controller::start(&world);
                for lag in [0, 5, 4, 3, 2, 1, 0, 0] {
                    controller.watch(&world, lag);
                    controller.sync(&mut world);
                }
                controller.settle(&mut world);
                assert_eq!(world.created, parallelism, "{mode} {policy} {parallelism}");
            }
        }
    }
}

/// P-4: a creation lands after the crash of its controller, and after the next one has repeated it.
#[test]
fn reg_c09_late_landings_never_yield_a_second_pod() {
    for mode in ["Indexed", "NonIndexed"] {
        for call in 1..=4 {
            let mut world = World::new(json!({"completionMode": mode, "parallelism": 3, "completions": 9}));
            world.faults.insert(call, Fault::LandsLate);
            let mut controller = Controller::start(&world);
            controller.settle(&mut world);
            world.land();
            controller.settle(&mut world);
            assert_eq!(world.created, 3, "{mode}, call {call}");

            // The same for a replacement whose predecessor is gone by then.
            let name = world.active().remove(0);
            world.finish(&name, 0);
            controller.watch(&world, 0);
            world.faults.insert(world.calls + 1, Fault::LandsLate);
            controller.sync(&mut world);
            controller.settle(&mut world);
            world.land();
            controller.settle(&mut world);
            assert_eq!(world.created, 4, "{mode}, call {call}");
        }
    }
}

#[test]
fn reg_c08_late_events_never_yield_a_pod_too_many() {
    for lag in 0..6 {
        let mut world = World::new(json!({"parallelism": 3, "completions": 6}));
        let mut controller = Controller::start(&world);
        for _ in 0..12 {
            controller.watch(&world, lag);
            controller.sync(&mut world);
            if let Some(name) = world.active().first().cloned() {
                world.finish(&name, 0);
            }
        }
        controller.settle(&mut world);
        assert!(world.created <= 9, "{} pods for 6 completions", world.created);
    }
}

#[test]
fn reg_c15_indexes_come_and_go_with_the_size() {
    let (mut world, mut controller) =
        started(json!({"completionMode": "Indexed", "parallelism": 10, "completions": 10}));
    for name in world.active() {
        if ["a-0-", "a-6-", "a-9-"].iter().any(|prefix| name.starts_with(prefix)) {
            world.finish(&name, 0);
        }
    }
    controller.settle(&mut world);
    expect!["active=7 succeeded=3 completed=0,6,9 pods=10 indexes=1,2,3,4,5,7,8"].assert_eq(&summary(&mut world));
    for (size, expected) in [
        (5, expect!["active=4 succeeded=1 completed=0 pods=10 indexes=1,2,3,4"]),
        (8, expect!["active=7 succeeded=1 completed=0 pods=13 indexes=1,2,3,4,5,6,7"]),
    ] {
        world.edit_spec(|spec| {
            spec["parallelism"] = json!(size);
            spec["completions"] = json!(size);
        });
        controller.settle(&mut world);
        expected.assert_eq(&summary(&mut world));
    }
}

#[test]
fn reg_d01_and_d03_the_limit_is_exact() {
    for limit in [0, 1, 6] {
        let (mut world, mut controller) = started(json!({"completions": 1, "backoffLimit": limit}));
        while !world.is_finished() {
            finish_all(&mut world, 1);
            controller.settle(&mut world);
            // Other events in between change nothing.
            world.touch_job();
            controller.settle(&mut world);
        }
        assert_eq!(world.status().failed, Some(limit + 1));
    }
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
    world.finish(&names[0], 1);
    world.advance(1);
    world.finish(&names[1], 0);
    controller.watch(&world, 0);
    controller.sync(&mut world);
    assert_eq!(world.status().succeeded, Some(1));
    assert_eq!(world.now.duration_since(before).as_secs(), 1);
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

/// REG-A16, INV-29: a sync of a huge Job is bounded, and 100,000 pods do not make it slow.
#[test]
fn reg_a16_a_sync_of_a_huge_job_does_a_bounded_number_of_things() {
    let pods = "pods 2000xS";
    let case = Case::new(&format!("job parallelism=2000 completions=4000 | {pods}"), Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("there are pods to count") };
    let PodAction::Create { pods, .. } = &act.action else { panic!("there are pods to create") };
    assert_eq!(pods.len(), 500);
    let record = act.record(&vec![CallOutcome::Done; 500]);
    assert_eq!((record.release.len(), record.wake_after), (500, Some(std::time::Duration::ZERO)));
    assert!(account(&case, |_| CallOutcome::Done).lines().count() < 10);
}
