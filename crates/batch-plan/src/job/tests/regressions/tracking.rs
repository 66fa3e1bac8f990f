//! REG-A: pods are counted exactly once, and no finalizer outlives its purpose.

use std::collections::BTreeSet;

use expect_test::expect;
use serde_json::{Value, json};

use super::super::super::*;
use super::super::scenarios::summary;
use super::super::shell::Controller;
use super::super::text::{Case, check, now, pod_view};
use super::super::world::{Fault, World, is_deleting, is_owned, is_tracked};
use super::{finish_all, started};

/// First alive, then deleted, whatever its end.
#[test]
fn reg_a03_a_pod_that_turns_up_after_the_end_is_released() {
    for end in ["Complete=True SuccessCriteriaMet=True succeeded=1", "Failed=True FailureTarget=True failed=1"] {
        for pod in ["a:P", "a:R", "a:R!", "a:S", "a:F!"] {
            check(&format!("job {end} | pods {pod}"), expect!["release a"]);
        }
        check(&format!("job {end} | pods a:R="), expect!["skip    Finished"]);
    }
}

/// The same through the whole: the counters stay as they were.
#[test]
fn reg_a03_counters_of_a_finished_job_stay() {
    let (mut world, mut controller) = started(json!({"completions": 1}));
    let late = world.pods.values().next().unwrap().clone();
    finish_all(&mut world, 0);
    controller.settle(&mut world);
    let before = world.status().clone();
    let mut late = late;
    late["metadata"]["name"] = json!("late");
    world.add_pod(late);
    controller.settle(&mut world);
    world.delete("late");
    controller.settle(&mut world);
    assert_eq!((world.status(), world.pods.contains_key("late")), (&before, false));
    world.assert_settled();
}

/// INV-1, INV-5: so many pods end before one sync, every third of them failing, and the first release of each is refused.
#[test]
fn reg_a05_bounds_and_failing_releases_keep_totals_exact() {
    let cap = Settings::default().uncounted_pods_max;
    for count in [500, 501, 1000, 1001] {
        let failed = count / 3;
        let spec = json!({"parallelism": 1, "completions": count - failed + 1, "backoffLimit": count});
        let (mut world, mut controller) = started(spec);
        let pod = world.pods.values().next().unwrap().clone();
        // Those of a time when parallelism was higher. One success more is wanted, so there is nothing but counting.
        for number in 1..count {
            let mut pod = pod.clone();
            pod["metadata"]["name"] = json!(format!("a-{number}"));
            world.add_pod(pod);
        }
        world.edit_spec(|spec| spec["parallelism"] = json!(0));
        for (number, name) in world.active().into_iter().enumerate() {
            world.finish(&name, if number % 3 == 2 { 1 } else { 0 });
        }
        world.aimed.first_releases_refused = true;
        for _ in 0..20 {
            controller.watch(&world, 0);
            controller.sync(&mut world);
            let lists = world.status().uncounted_terminated_pods.clone().unwrap_or_default();
            let listed = lists.succeeded.map_or(0, |list| list.len()) + lists.failed.map_or(0, |list| list.len());
            assert!(listed <= cap, "{count} pods: {listed} are listed");
        }
        let status = world.status();
        assert_eq!((status.succeeded, status.failed), (Some(count - failed), Some(failed)), "{count} pods");
        assert_eq!(world.names(is_tracked), [""; 0], "{count} pods");

        world.edit_spec(|spec| spec["parallelism"] = json!(1));
        controller.settle(&mut world);
        finish_all(&mut world, 0);
        controller.settle(&mut world);
        assert!(world.is_finished(), "{count} pods");
        assert_eq!(world.names(is_tracked), [""; 0], "{count} pods");
    }
}

#[test]
fn reg_a06_a_release_that_the_cache_does_not_show_is_not_repeated() {
    let (mut world, mut controller) = started(json!({"parallelism": 2, "completions": 2}));
    let name = world.active().remove(0);
    world.finish(&name, 0);
    controller.watch(&world, 0);
    let seen = world.log.len();
    controller.sync(&mut world);
    // The Job's updates arrive, the pod's do not.
    for _ in 0..2 {
        controller.watch_each(&world, [0, world.log.len() - seen]);
        controller.sync(&mut world);
    }
    controller.watch(&world, 0);
    controller.sync(&mut world);
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
    // DELETE, status, two releases, the status write that counts: one of the last three fails.
    for failing in 3..=5 {
        let (mut world, mut controller) = started(json!({"parallelism": 2, "completions": 2, "backoffLimit": 0}));
        for name in world.active() {
            world.run(&name);
        }
        controller.settle(&mut world);
        let name = world.active().remove(0);
        world.finish(&name, 1);
        controller.watch(&world, 0);
        world.faults.insert(world.calls + failing, Fault::Refused);
        controller.sync(&mut world);
        for name in world.names(is_deleting) {
            world.finish(&name, 0);
        }
        controller.settle(&mut world);
        expect!["failed=2 pods=2 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded"]
            .assert_eq(&summary(&mut world));
    }
}

/// P-15: a node takes back what it said of a pod's end, in the middle of the protocol, and says it again.
#[test]
fn a_pod_that_runs_again_after_its_end_counts_once() {
    let mut moments = BTreeSet::new();
    // The status write that lists, the release, the status write that counts, the creation that follows: one fails, or none.
    for failing in 1..=5 {
        for (exit_code, phase) in [(0, "Succeeded"), (1, "Failed")] {
            let (mut world, mut controller) = started(json!({"parallelism": 1, "completions": 2}));
            let name = world.active().remove(0);
            world.run(&name);
            controller.settle(&mut world);
            world.finish(&name, exit_code);
            controller.watch(&world, 0);
            world.faults.insert(world.calls + failing, Fault::Refused);
            controller.sync(&mut world);
            let lists = world.status().uncounted_terminated_pods.clone().unwrap_or_default();
            let is_listed = lists.succeeded.or(lists.failed).is_some_and(|list| !list.is_empty());
            moments.insert((is_listed, world.names(is_tracked).contains(&name)));
            for phase in ["Running", phase] {
                world.edit_pod(&name, |pod| pod["status"]["phase"] = json!(phase));
                controller.settle(&mut world);
            }
            for _ in 0..3 {
                world.advance(60);
                controller.settle(&mut world);
                finish_all(&mut world, 0);
                controller.settle(&mut world);
            }
            let counted = (world.status().succeeded, world.status().failed);
            assert_eq!(counted, (Some(2), (exit_code != 0).then_some(1)), "{phase}, call {failing} fails");
            assert!(world.is_finished());
            world.assert_settled();
        }
    }
    let each = [(false, true), (true, true), (true, false), (false, false)];
    assert_eq!(moments, BTreeSet::from(each), "it is listed, it is tracked");
}

/// INV-1, INV-23: a Job is suspended and resumed, or scaled down and up again. A crash hits every call of the removal; the
/// pod then succeeds, or stops as it was told to.
#[test]
fn reg_a17_a_crash_while_removing_a_pod_leaves_nothing_untracked_behind() {
    for (field, down, up) in [("suspend", json!(true), json!(false)), ("parallelism", json!(0), json!(1))] {
        for (crash_at, exit_code) in [(1, 0), (2, 0), (3, 0), (1, 143), (2, 143), (3, 143)] {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let about = format!("{field}, {fault:?} at {crash_at}, exit code {exit_code}");
                crash_while_removing((field, &down, &up), crash_at, fault, exit_code, &about);
            }
        }
    }
}

fn crash_while_removing(edit: (&str, &Value, &Value), crash_at: usize, fault: Fault, exit_code: i32, about: &str) {
    let (field, down, up) = edit;
    let deleted = crash_at == 3 || (crash_at, fault) == (2, Fault::CrashAfter);
    let (mut world, mut controller) = started(json!({"parallelism": 1, "completions": 2}));
    let name = world.active().remove(0);
    let uid = world.pods[&name]["metadata"]["uid"].clone();
    world.run(&name);
    controller.settle(&mut world);
    world.edit_spec(|spec| spec[field] = down.clone());
    controller.watch(&world, 0);
    world.faults.insert(world.calls + crash_at, fault);
    controller.sync(&mut world);
    world.finish(&name, exit_code);
    world.edit_spec(|spec| spec[field] = up.clone());
    controller.settle(&mut world);
    world.stop_deleted_pods();
    controller.settle(&mut world);
    let status = world.status().clone();
    let counted = match exit_code {
        0 => status.succeeded == Some(1) && status.failed.is_none(),
        // It failed by itself, unless it was deleted before.
        _ => status.failed == Some(1) && !deleted,
    };
    let is_there = !world.names(|pod| pod["metadata"]["uid"] == uid).is_empty();
    let removed = !is_there && status.succeeded.is_none() && status.failed.is_none();
    assert!(counted || removed, "{about}: {status:#?}");
    let untracked = world.names(|pod| {
        pod["status"]["phase"] == "Running" && pod["metadata"]["finalizers"] == json!([]) && !is_deleting(pod)
    });
    assert_eq!(untracked, [""; 0], "{about}");
}

/// INV-29: however many pods end at once, and whether or not they have to be counted, a sync releases a bounded number, and
/// the next one goes on at once.
#[test]
fn reg_a16_a_sync_of_a_huge_job_releases_a_bounded_number_of_pods() {
    for (about, pod) in [
        ("job completions=9999", "a:S"),
        ("job completions=9999 backoffLimit=9999", "a:F"),
        ("job completions=9999 rules=Ignore:In:1", "a:F"),
        ("job Indexed completions=9999", "a:0S"),
        // Indexes that the Job has no longer, not counted any more.
        ("job Indexed completions=1", "a:0S"),
        ("job deleting completions=9999", "a:R"),
        ("job SuccessCriteriaMet=True completions=1 succeeded=1", "a:R!"),
        ("job FailureTarget=True completions=1 failed=1", "a:R!"),
        ("job Complete=True SuccessCriteriaMet=True completions=1 succeeded=1", "a:S"),
    ] {
        let mut case = Case::new(about, Settings::default());
        let one = pod_view(pod);
        for number in 1..=3000_u32 {
            let (name, uid) = (format!("a-{number}"), Uid::new(&format!("uid-{number}")));
            let index = one.index.map(|_| number);
            case.tally.observe_pod(&PodView { name, uid, index, ..one.clone() }, now());
        }
        let record = match plan(&case.snapshot()) {
            Plan::Release(pods) => {
                assert_eq!(pods.len(), 500, "{about}");
                continue;
            }
            Plan::Act(act) => {
                let calls = match &act.action {
                    PodAction::None => 0,
                    PodAction::Create { pods, .. } => pods.len(),
                    PodAction::Remove(pods) | PodAction::End(pods) => pods.len(),
                };
                assert!(calls <= 500, "{about}: {calls} calls");
                act.record(&vec![CallOutcome::Done; calls])
            }
            other => panic!("{about}: {other:?}"),
        };
        let released = record.release.len() + record.let_go.len();
        assert_eq!((released, record.wake_after), (500, Some(std::time::Duration::ZERO)), "{about}");
    }
}

/// What is on record but not yet counted keeps its delay, its validity and its place (upstream wrote `active: 0`, which
/// the API refused while a pod was ready).
#[test]
fn reg_a18_a_delay_does_not_hold_up_counting() {
    check(
        "job parallelism=2 completions=5 active=2 | pods a:R* b:F@1",
        expect![[r#"
        status  active=1 uncounted.failed=[b]
        wake    9s
        release b
        status  failed=1 uncounted.failed=[]"#]],
    );
    check("job parallelism=2 completions=5 failed=1 | pods a:R* b:F-@1", expect!["wake    9s"]);
}

/// INV-13: foreground deletion waits for the pods, and the pod whose labels were changed waits for its finalizer.
#[test]
fn inv_13_a_job_that_is_being_deleted_releases_pods_that_match_no_more_once_they_are_over() {
    check(
        "job deleting parallelism=2 completions=5 active=0 terminating=0 | pods a:R~ b:R!~ c:S~ d:F~- e:R!~=",
        expect!["release b c"],
    );
    check("job Complete=True SuccessCriteriaMet=True succeeded=5 | pods a:R~ b:R!~ c:S~", expect!["release b c"]);
}

/// INV-1: the same where the Job fails: the pod is not put on record as failed, but when the cache shows how it ended.
#[test]
fn inv_1b_a_pod_that_succeeded_unseen_is_not_taken_for_failed() {
    let case = Case::new("job parallelism=2 completions=2 backoffLimit=0 | pods a:F b:R", Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
    assert!(matches!(&act.action, PodAction::End(pods) if pods.len() == 1), "{:?}", act.action);
    let record = act.record(&[CallOutcome::HadEnded]);
    let released: Vec<&str> = record.release.iter().map(|pod| &*pod.name).collect();
    let uncounted = record.status.clone().and_then(|status| status.uncounted_terminated_pods).unwrap_or_default();
    assert_eq!((released, uncounted.failed), (vec!["a"], Some(vec!["a".to_owned()])));
    assert!(!record.close(&ReleaseOutcome::default()).finished);
}

/// INV-1: a pod succeeds unseen while a sync takes it for running and ends it with the Job, or removes it as surplus. It
/// counts all the same. Upstream releases it uncounted.
#[test]
fn inv_1b_a_pod_that_succeeded_unseen_counts_although_it_was_deleted() {
    let rules = json!({"rules": [{"succeededIndexes": "0"}]});
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "successPolicy": rules});
    let (mut world, mut controller) = started(spec);
    let names = world.active();
    world.finish(&names[0], 0);
    world.finish(&names[1], 0);
    controller.watch(&world, 1);
    controller.sync(&mut world);
    assert!(!world.is_finished(), "it is known by now that one pod has ended otherwise than it seemed");
    controller.settle(&mut world);
    world.stop_deleted_pods();
    controller.settle(&mut world);
    let status = world.status();
    assert_eq!((status.succeeded, status.completed_indexes.as_deref(), status.failed), (Some(2), Some("0,1"), None));
    assert!(world.is_finished());
    world.assert_settled();

    let (mut world, mut controller) = started(json!({"completions": 3, "parallelism": 2}));
    let names = world.active();
    world.edit_spec(|spec| spec["parallelism"] = json!(0));
    world.finish(&names[0], 0);
    controller.watch(&world, 1);
    controller.sync(&mut world);
    controller.settle(&mut world);
    assert_eq!((world.status().succeeded, world.status().failed), (Some(1), None));
    world.assert_settled();
}

/// Somebody takes the owner off a pod that was counted. The Job takes the pod back, and does not count it again. Upstream
/// does; what it also does, and must be kept, is to count a pod that was never one of the Job's (`adoption/*`).
#[test]
fn inv_1c_a_counted_pod_that_lost_its_owner_is_taken_back_uncounted() {
    for mode in ["NonIndexed", "Indexed"] {
        let (mut world, mut controller) = started(json!({"completions": 3, "completionMode": mode}));
        let name = world.active().remove(0);
        world.finish(&name, 1);
        controller.settle(&mut world);
        assert_eq!(world.status().failed, Some(1));
        world.edit_pod(&name, |pod| pod["metadata"]["ownerReferences"] = json!([]));
        // Also if nobody remembers that it was.
        for mut controller in [controller, Controller::start(&world)] {
            controller.settle(&mut world);
            assert_eq!(world.status().failed, Some(1), "{mode}");
        }
        assert!(is_owned(&world.pods[&name]), "it goes when the Job goes");
    }
}

/// INV-1: the same, but the cache shows that the owner was taken away and not yet that the pod was released. It is not
/// adopted as it was then.
#[test]
fn a_pod_that_loses_its_owner_while_it_is_counted_is_not_adopted_as_it_was() {
    let (mut world, mut controller) = started(json!({"completions": 3}));
    let name = world.active().remove(0);
    world.finish(&name, 0);
    controller.watch(&world, 0);
    world.edit_pod(&name, |pod| pod["metadata"]["ownerReferences"] = json!([]));
    controller.sync(&mut world);
    assert_eq!(world.status().succeeded, Some(1), "it was counted by an older cache");
    controller.watch_each(&world, [1, 0]);
    controller.sync(&mut world);
    assert!(!is_owned(&world.pods[&name]));
    controller.settle(&mut world);
    assert_eq!(world.status().succeeded, Some(1));
    assert!(is_owned(&world.pods[&name]), "it was taken back uncounted");
}

/// INV-1: a Job has succeeded, and somebody has deleted a pod that is not done yet. It counts as nothing any more, but it may
/// just be ending, and would have to count then; so it is let go as a live one, or not at all.
#[test]
fn inv_1d_a_pod_that_no_longer_counts_is_let_go_only_while_it_is_live() {
    let text = "job parallelism=3 backoffLimit=1 replace=Failed | pods a:S b:R!";
    let case = Case::new(text, Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
    let record = act.record(&[]);
    let names = |pods: &[PodRef]| pods.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>();
    assert_eq!((names(&record.let_go), names(&record.release)), (vec!["b".to_owned()], vec!["a".to_owned()]));
    let ended = ReleaseOutcome { failed: [(record.let_go[0].uid.clone(), "it has ended".to_owned())].into() };
    assert!(!record.close(&ended).finished);
}

/// INV-1: somebody deleted a pod, and then it was marked as surplus and removed, but the answer to its release got lost. The
/// cache shows the deletion first, which alone would count as a failure.
#[test]
fn a_pod_that_was_marked_as_surplus_does_not_fail_by_an_older_deletion() {
    let removed = |outcome: CallOutcome| {
        let mut case = Case::new("job suspend parallelism=1 completions=2 | pods a:R", Settings::default());
        let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
        assert!(matches!(&act.action, PodAction::Remove(pods) if pods.len() == 1));
        case.tally.note_action(&act.action, &[outcome], now());
        case.observe("a:R!");
        case
    };
    let counts = |case: &Case| {
        let Plan::Act(act) = plan(&case.snapshot()) else { panic!("the Job is not finished") };
        let status = act.record(&[]).status.and_then(|status| status.uncounted_terminated_pods);
        status.and_then(|uncounted| uncounted.failed).is_some_and(|failed| !failed.is_empty())
    };
    let lost = || "lost".to_owned();
    for after_the_mark in [CallOutcome::ReleaseFailed(lost()), CallOutcome::Unanswered(lost()), CallOutcome::HadEnded] {
        let mut case = removed(after_the_mark);
        assert!(!counts(&case));
        case.observe("a:R!+");
        assert!(!counts(&case), "the cache shows the mark");
        case.observe("a:R!-");
        assert!(!counts(&case), "and that it was released");
    }
    assert!(counts(&removed(CallOutcome::MarkFailed(lost()))), "nobody has marked it");
}
