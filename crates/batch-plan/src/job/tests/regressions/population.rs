//! REG-C: never a pod too many, never one that is not ours.

use expect_test::expect;
use serde_json::json;

use super::super::super::*;
use super::super::scenarios::summary;
use super::super::shell::Controller;
use super::super::text::{Case, check, now};
use super::super::world::{Fault, World};
use super::{finish_all, started};

/// Indexed or not; with a failure policy the same is implied.
#[test]
fn reg_c01_with_policy_failed_a_pod_is_replaced_only_when_it_has_ended() {
    let rules = json!([{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]);
    for mode in ["Indexed", "NonIndexed"] {
        for policy in [json!({"podReplacementPolicy": "Failed"}), json!({"podFailurePolicy": {"rules": rules}})] {
            let mut spec = json!({"completionMode": mode, "parallelism": 2, "completions": 2});
            spec.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
            let (mut world, mut controller) = started(spec);
            world.active().iter().for_each(|name| world.run(name));
            world.delete(&world.active()[0]);
            controller.settle(&mut world);
            world.advance(3600);
            controller.settle(&mut world);
            assert_eq!((world.created, world.status().terminating), (2, Some(1)), "{mode} {policy}");
            world.stop_deleted_pods();
            controller.settle(&mut world);
            assert_eq!((world.created, world.status().failed), (3, Some(1)), "{mode} {policy}");
        }
    }
}

/// Scale-down, suspension, failure, success.
#[test]
fn reg_c05_pods_that_a_sync_deletes_are_terminating_in_the_status_that_it_writes() {
    check(
        "job parallelism=1 completions=5 | pods a:R* b:R*",
        expect![[r#"
        remove  a
        status  active=1 ready=1 terminating=1"#]],
    );
    check(
        "job suspend parallelism=2 completions=5 | pods a:R* b:R",
        expect![[r#"
        remove  a b
        event   Normal Suspended: Job suspended
        status  active=0 ready=0 terminating=2 startTime=null conditions=[Suspended/JobSuspended]"#]],
    );
    check(
        "job parallelism=3 completions=5 backoffLimit=0 | pods a:R* b:R c:F",
        expect![[r#"
        end     a b
        status  active=0 ready=0 terminating=2 uncounted.failed=[c,a,b] conditions=[FailureTarget/BackoffLimitExceeded]
        release c a b
        status  failed=3 uncounted.failed=[]"#]],
    );
    check(
        "job Indexed parallelism=3 completions=3 success=0 | pods 0S 1R* 2R",
        expect![[r#"
            remove  p001 p002
            status  active=0 ready=0 terminating=2 succeeded=1 completedIndexes=0 conditions=[SuccessCriteriaMet/SuccessPolicy]
            release p000"#]],
    );
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

/// Pods that end within the same instant: a work queue is done after the first success; pods that always fail are made
/// as often as the limit says and no sooner than the delay allows.
#[test]
fn reg_c17_creations_are_bounded_by_rule_and_delay() {
    let (mut world, mut controller) = started(json!({"parallelism": 3}));
    for _ in 0..20 {
        finish_all(&mut world, 0);
        controller.settle(&mut world);
    }
    assert_eq!((world.created, world.is_finished()), (3, true));

    let (mut world, mut controller) = started(json!({"parallelism": 3, "backoffLimit": 6}));
    let begin = world.now;
    while !world.is_finished() {
        finish_all(&mut world, 1);
        controller.settle(&mut world);
    }
    // After three failures at once the delay is 40 seconds, after six 320.
    assert_eq!((world.created, world.status().failed), (9, Some(9)));
    assert_eq!(world.now.duration_since(begin).as_secs(), 40 + 320);
}

/// A plan reads; what it reads is the same afterwards.
#[test]
fn reg_c24_planning_changes_nothing_it_was_given() {
    for text in [
        "job parallelism=3 completions=5 | pods a:R* b:S c:F",
        "job Indexed parallelism=2 completions=5 backoffLimitPerIndex=1 | pods 0F[0] 1S 2R",
        "job suspend parallelism=2 completions=5 | pods a:R b:R",
        "job backoffLimit=0 completions=5 uncounted.failed=[a] | pods a:F b:R",
        "job deleting completions=5 | pods a:F b:R",
        "job Complete=True succeeded=1 | pods a:S",
    ] {
        let case = Case::new(text, Settings::default());
        let before = format!("{:?} {:?}", case.job, case.tally);
        let again = format!("{:?}", plan(&case.snapshot()));
        assert_eq!(format!("{:?} {:?}", case.job, case.tally), before, "{text}");
        assert_eq!(format!("{:?}", plan(&case.snapshot())), again, "{text}");
    }
}

/// A restarted controller begins with a list that is up to 100 changes old. It repeats itself, which does no harm: its
/// pods have the same names, its status writes meet newer versions, its deletions name UIDs.
#[test]
fn reg_h09_a_first_list_that_is_old_does_no_harm() {
    for mode in ["Indexed", "NonIndexed"] {
        for lag in [0, 1, 2, 3, 5, 8, 13, 20, 30, 50, 100] {
            let (mut world, mut controller) =
                started(json!({"completionMode": mode, "parallelism": 3, "completions": 6, "backoffLimit": 9}));
            for exit_code in [0, 1, 0] {
                let name = world.active().remove(0);
                world.finish(&name, exit_code);
                controller.settle(&mut world);
            }
            let (created, before) = (world.created, world.status().clone());
            let mut restarted = Controller::start(&world);
            restarted.watch_each(&world, [lag, lag]);
            for _ in 0..3 {
                restarted.sync(&mut world);
            }
            assert_eq!((world.created, world.status()), (created, &before), "{mode}, {lag} changes old");
            restarted.settle(&mut world);
            assert_eq!((world.created, world.status()), (created, &before), "{mode}, {lag} changes old");
        }
    }
}

/// A namespace that is being deleted refuses every pod. That is neither an error nor worth an event; the shell would
/// repeat an error without end.
#[test]
fn reg_c22_a_terminating_namespace_is_no_error() {
    let case = Case::new("job parallelism=3 completions=5 ready=0", Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
    let outcomes = vec![CallOutcome::NamespaceTerminating; 3];
    assert!(outcomes.iter().all(|outcome| outcome.error().is_none()));
    let record = act.record(&outcomes);
    assert_eq!((record.events.len(), record.wake_after), (0, None));
}

/// INV-13, INV-21: a failed pod hands its count to its replacement (JC-1506). Where there can be none it is let go, because
/// the namespace waits for it; and creation is not tried again.
#[test]
fn a_failed_pod_does_not_wait_for_a_replacement_in_a_terminating_namespace() {
    let text = "job Indexed parallelism=2 completions=2 backoffLimitPerIndex=3 | pods 0F 1R";
    let mut case = Case::new(text, Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
    let (action, outcomes) = (act.action.clone(), [CallOutcome::NamespaceTerminating]);
    assert!(matches!(&action, PodAction::Create { pods, .. } if pods.len() == 1), "{action:?}");
    let record = act.record(&outcomes);
    assert_eq!((record.release.len(), record.wake_after), (0, Some(std::time::Duration::ZERO)));

    case.tally.note_action(&action, &outcomes, now());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
    assert_eq!(act.action, PodAction::None);
    let record = act.record(&[]);
    assert_eq!((record.release.len(), record.wake_after), (1, None));
    let uncounted = record.status.and_then(|status| status.uncounted_terminated_pods).unwrap_or_default();
    assert_eq!(uncounted.failed.unwrap_or_default().len(), 1);
}
