//! REG-C: never a pod too many, never one that is not ours.

use std::collections::BTreeSet;

use batch_types::constants::annotation;
use batch_types::index_ranges::IndexSet;
use expect_test::expect;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use serde_json::{Value, json};

use super::super::super::*;
use super::super::shell::Controller;
use super::super::text::{Case, check, difference, now};
use super::super::world::{Fault, World, is_deleting, is_terminal};
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

/// INV-32: each field of a full Job is taken away in turn.
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

/// INV-32: a Job that lacks a field is treated as if the documented default had been written there.
#[test]
fn reg_c03_absent_fields_mean_their_defaults() {
    let texts = [
        "job parallelism=2 completions=5 | pods a:R b:R! c:S d:F",
        "job parallelism=2 completions=5 failed=6 | pods a:F b:R",
        "job parallelism=2 completions=5 rules=Count:In:1 | pods a:R b:R!",
        "job Indexed parallelism=2 completions=5 backoffLimitPerIndex=3 failed=7 failedIndexes= | pods 0F[0] 1R 2S",
        "job suspend parallelism=2 completions=5 | pods a:R",
    ];
    for text in texts {
        let case = Case::new(text, Settings::default());
        let job = serde_json::to_value(&case.job).unwrap();
        let has = |field: &str| job["spec"].get(field).is_some();
        let policy = if has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        let limit = if has("backoffLimitPerIndex") { i32::MAX } else { 6 };
        let spec = json!({"parallelism": 1, "backoffLimit": limit, "completionMode": "NonIndexed", "suspend": false,
                          "podReplacementPolicy": policy, "managedBy": "kubernetes.io/job-controller"});
        let mut status = json!({"active": 0, "ready": 0, "terminating": 0, "succeeded": 0, "failed": 0,
                                "completedIndexes": "", "uncountedTerminatedPods": {}, "conditions": []});
        if has("backoffLimitPerIndex") {
            status["failedIndexes"] = json!("");
        }
        for (part, fields) in [("spec", spec), ("status", status)] {
            for (field, default) in fields.as_object().unwrap() {
                let (mut with, mut without) = (job.clone(), job.clone());
                with[part][field] = default.clone();
                without[part].as_object_mut().unwrap().remove(field);
                assert_eq!(outcome(&case, without), outcome(&case, with), "{text}: {field} is not there");
            }
        }
    }
}

/// What is done about a Job other than that of the case, and what its status is then.
fn outcome(case: &Case, job: Value) -> String {
    let job: Job = serde_json::from_value(job).unwrap();
    let mut tally = case.tally.clone();
    tally.observe_job(&job, case.settings.gates);
    let snapshot = Snapshot { job: &job, tally: &tally, now: now(), settings: &case.settings };
    let Plan::Act(act) = plan(&snapshot) else { panic!("the Job is not finished") };
    let action = act.action.clone();
    let calls = match &action {
        PodAction::Create { pods, .. } => pods.len(),
        other => other.pods().count(),
    };
    let record = act.record(&vec![CallOutcome::Done; calls]);
    let (first, wake_after) = (record.status.clone(), record.wake_after);
    let last = record.close(&ReleaseOutcome::default()).status.or(first).or(job.status).unwrap_or_default();
    format!("{action:?}\n{}\n{wake_after:?}", difference(&JobStatus::default(), &last))
}

/// INV-18, INV-19, INV-22: the answer to the first attempt at each pod is lost, or to the first two, and pod events are late.
/// A pod that takes long to stop is deleted in between, which is when replacement policies differ.
#[test]
fn reg_c09_lost_answers_never_yield_a_second_pod() {
    let late = |world: &mut World, controller: &mut Controller| {
        for lag in [0, 5, 5, 5, 5, 4, 3, 2, 1, 0] {
            controller.watch(world, lag);
            controller.sync(world);
            // A deleted pod counts as failed, so the next one waits for ten seconds.
            world.advance(5);
        }
        controller.settle(world);
    };
    for mode in ["Indexed", "NonIndexed"] {
        for (policy, replaces_terminating) in [("Failed", 0), ("TerminatingOrFailed", 1)] {
            for (parallelism, lost) in [(1, 1), (1, 2), (3, 1), (3, 2)] {
                let about = format!("{mode} {policy}, parallelism {parallelism}, {lost} answers lost");
                let mut world = World::new(json!({"completionMode": mode, "podReplacementPolicy": policy,
                                                  "parallelism": parallelism, "completions": 4}));
                world.aimed.creation_answers_lost = lost;
                let mut controller = Controller::start(&world);
                late(&mut world, &mut controller);
                assert_eq!(world.created, parallelism, "{about}");

                world.active().iter().for_each(|name| world.run(name));
                world.delete(&world.active()[0]);
                late(&mut world, &mut controller);
                assert_eq!(world.created, parallelism + replaces_terminating, "{about}: one is terminating");
                world.stop_deleted_pods();
                late(&mut world, &mut controller);
                assert_eq!((world.created, world.active().len()), (parallelism + 1, parallelism), "{about}");
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

/// INV-17, INV-22: at every decision the caches of Jobs and of pods lag by zero to five changes each, drawn anew.
#[test]
fn reg_c08_late_events_never_yield_a_pod_too_many() {
    let mut drawn = BTreeSet::new();
    for seed in 0..60 {
        let mut state: u64 = seed;
        let mut draw = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % bound) as usize
        };
        let mut world = World::new(json!({"parallelism": 3, "completions": 6}));
        let mut controller = Controller::start(&world);
        for decision in 0..20 {
            let lag = [draw(6), draw(6)];
            drawn.insert(lag);
            controller.watch_each(&world, lag);
            controller.sync(&mut world);
            let live = world.names(|pod| !is_terminal(pod)).len();
            assert!(live <= 3, "seed {seed}, decision {decision}: {live} live pods");
            if let Some(name) = world.active().into_iter().nth(draw(4)) {
                world.finish(&name, 0);
            }
        }
        for _ in 0..6 {
            controller.settle(&mut world);
            finish_all(&mut world, 0);
        }
        // No pod too many, and none too few.
        assert!(world.is_finished() && world.created <= 8, "seed {seed}: {} pods for 6 completions", world.created);
    }
    assert_eq!(drawn.len(), 36, "every pair of lags");
}

/// INV-19: a Job of ten indexes shrinks to five and grows to eight. Its indexes 0, 6 and 9 complete before it shrinks, before
/// the controller hears of that, when it is small, before the controller hears that it grows, or when it has grown.
#[test]
fn reg_c15_indexes_come_and_go_with_the_size() {
    let moments = (0..5).flat_map(|six| [0, 2, 4].map(|zero| (zero, six)));
    let moments = moments.flat_map(|(zero, six)| [0, 1, 2].map(|nine| [(0, zero), (6, six), (9, nine)]));
    for (number, completes) in moments.enumerate() {
        let lag = number % 4;
        let about = format!("index, moment: {completes:?}, lag {lag}");
        let (mut world, mut controller) =
            started(json!({"completionMode": "Indexed", "parallelism": 10, "completions": 10}));
        let complete = |world: &mut World, at: i32| {
            for (index, _) in completes.iter().filter(|(_, moment)| *moment == at) {
                let of_index = world.names(|pod| index_of(pod) == Some(*index));
                of_index.iter().for_each(|name| world.finish(name, 0));
            }
        };
        world.active().iter().for_each(|name| world.run(name));
        complete(&mut world, 0);
        controller.settle(&mut world);
        for (size, before_heard, after) in [(5, 1, 2), (8, 3, 4)] {
            world.edit_spec(|spec| {
                spec["parallelism"] = json!(size);
                spec["completions"] = json!(size);
            });
            complete(&mut world, before_heard);
            controller.watch_each(&world, [0, lag]);
            controller.sync(&mut world);
            let completed = completed_indexes(&world);
            assert!(completed.iter().all(|index| *index < size), "{about}: {completed:?} of {size}");
            controller.settle(&mut world);
            world.stop_deleted_pods();
            controller.settle(&mut world);
            let active: Vec<u32> = world.active().iter().filter_map(|name| index_of(&world.pods[name])).collect();
            let all: BTreeSet<u32> = completed_indexes(&world).into_iter().chain(active.clone()).collect();
            assert_eq!(all, (0..size).collect(), "{about}: completed or active");
            assert!(size < 8 || [5, 6, 7].iter().all(|index| active.contains(index)), "{about}: {active:?} are active");
            complete(&mut world, after);
            controller.settle(&mut world);
        }
        finish_all(&mut world, 0);
        controller.settle(&mut world);
        let status = world.status();
        assert_eq!((status.completed_indexes.as_deref(), status.succeeded), (Some("0-7"), Some(8)), "{about}");
        assert!(world.is_finished(), "{about}");
    }
}

fn index_of(pod: &Value) -> Option<u32> {
    pod["metadata"]["annotations"][annotation::COMPLETION_INDEX].as_str()?.parse().ok()
}

fn completed_indexes(world: &World) -> Vec<u32> {
    IndexSet::parse(world.status().completed_indexes.as_deref().unwrap_or(""), i32::MAX).iter().collect()
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

/// INV-32: neither does a sync, whatever becomes of its calls: what the caches show before it they show after it, unless the
/// server itself has shown more. Jobs run, are suspended and resumed, resized, adopt, and end, with a call refused here and an
/// answer lost there.
#[test]
fn reg_c24_a_sync_leaves_everything_cached_as_it_was() {
    let policy = json!({"rules": [{"succeededIndexes": "0"}]});
    let mut compared = 0;
    for spec in [
        json!({"parallelism": 3, "completions": 4}),
        json!({"parallelism": 2, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1}),
        json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed", "successPolicy": policy}),
        json!({"parallelism": 2, "completions": 2, "backoffLimit": 0, "podReplacementPolicy": "Failed"}),
    ] {
        for fault in [Fault::Refused, Fault::AnswerLost] {
            for at in 1..=16 {
                let mut world = World::new(spec.clone());
                world.faults.insert(at, fault);
                let mut controller = Controller::start(&world);
                for step in 0..24 {
                    match step {
                        6 => world.active().iter().take(1).for_each(|name| world.finish(name, i32::from(at % 3 == 0))),
                        9 => world.edit_spec(|spec| spec["suspend"] = json!(true)),
                        12 => world.edit_spec(|spec| spec["suspend"] = json!(false)),
                        15 => world.edit_spec(|spec| spec["parallelism"] = json!(1)),
                        18 => finish_all(&mut world, 0),
                        20 => world.delete_job(),
                        _ => world.stop_deleted_pods(),
                    }
                    world.advance(5);
                    controller.watch(&world, step % 2);
                    let before = controller.shown();
                    controller.sync(&mut world);
                    let after = controller.shown();
                    if before.0 == after.0 {
                        assert_eq!(before, after, "{spec} with {fault:?} at {at}, step {step}");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 2000, "{compared} syncs");
}

/// INV-1, INV-17, INV-32: a restarted controller begins with a list that is up to 100 changes old. It repeats itself, which
/// does no harm: its pods have the same names, its status writes meet newer versions, its deletions name UIDs. The Job was
/// suspended and resumed lately, so that some lists show pods to be removed whose names others have by now.
#[test]
fn reg_h09_a_first_list_that_is_old_does_no_harm() {
    for mode in ["Indexed", "NonIndexed"] {
        let (mut world, mut controller) =
            started(json!({"completionMode": mode, "parallelism": 3, "completions": 60, "backoffLimit": 9}));
        for number in 0..40 {
            // In the order in which they were created, as pods that take equally long.
            let oldest =
                |name: &String| world.pods[name]["metadata"]["uid"].as_str().map(|uid| (uid.len(), uid.to_owned()));
            let name = world.active().into_iter().min_by_key(oldest).unwrap();
            world.finish(&name, i32::from(number % 8 == 5));
            controller.settle(&mut world);
        }
        for suspend in [true, false] {
            world.edit_spec(|spec| spec["suspend"] = json!(suspend));
            controller.settle(&mut world);
        }
        assert!(world.log.len() > 150, "{} changes", world.log.len());
        let before = (world.created, world.status().clone(), uids(&world));
        for lag in (0..30).step_by(2).chain([30, 40, 50, 60, 70, 80, 90, 100]) {
            let mut world = world.clone();
            let mut restarted = Controller::start(&world);
            restarted.watch_each(&world, [lag, lag]);
            for _ in 0..3 {
                restarted.sync(&mut world);
            }
            let after = (world.created, world.status().clone(), uids(&world));
            assert_eq!(after, before, "{mode}, {lag} changes old");
            restarted.settle(&mut world);
            let after = (world.created, world.status().clone(), uids(&world));
            assert_eq!(after, before, "{mode}, {lag} changes old, settled");
        }
    }
}

/// The pods that there are, and whether they are being deleted.
fn uids(world: &World) -> Vec<(String, bool)> {
    world.pods.values().map(|pod| (pod["metadata"]["uid"].to_string(), is_deleting(pod))).collect()
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
fn inv_13_a_failed_pod_does_not_wait_for_a_replacement_in_a_terminating_namespace() {
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
