//! V-17, V-18 and what the appendix does not list: claims, skipped Jobs, surplus pods, gates, metrics.

use batch_types::gates::Gates;
use expect_test::expect;

use super::super::super::*;
use super::super::text::{Case, account, check, check_with, now};

// V-17: what we released, until the cache shows it.

#[test]
fn v17_released_pods_are_remembered_until_seen() {
    let mut case = Case::new("job parallelism=0 completions=9 | pods a:S b:S", Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("there are pods to count") };
    let record = act.record(&[]);
    let (a, b) = (record.release[0].clone(), record.release[1].clone());
    let refused = ReleaseOutcome { failed: [(b.uid.clone(), "no".to_owned())].into() };
    case.tally.note_release(&record.release, &refused);
    assert!(!case.tally.is_tracked(&a.uid) && case.tally.is_tracked(&b.uid));

    // Deleted, yet with its finalizer: an old event. Nothing is counted again.
    let mut view: PodView = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "a", "uid": "a", "labels": {"job": "a"},
                     "finalizers": ["batch.kubernetes.io/job-tracking"], "deletionTimestamp": "2026-11-15T11:00:00Z"},
        "status": {"phase": "Succeeded"},
    }))
    .unwrap();
    case.tally.observe_pod(&view, now());
    assert!(!case.tally.is_tracked(&a.uid));
    view.finalizer = false;
    case.tally.observe_pod(&view, now());
    assert!(!case.tally.is_tracked(&a.uid));
    case.tally.forget_pod(&a.uid);
    expect![[r#"
        status  uncounted.succeeded=[b]
        release b
        status  succeeded=1 uncounted.succeeded=[]"#]]
    .assert_eq(&account(&case, |_| CallOutcome::Done));
}

// V-18: claiming.

#[test]
fn v18_pods_whose_labels_stop_matching_are_disowned() {
    check(
        "job parallelism=2 completions=5 | pods a:R b:R~ c:R-",
        expect![[r#"
        adopt   
        disown  b"#]],
    );
    check(
        "job deleting parallelism=2 completions=5 | pods a:R b:R~",
        expect![[r#"
        status  active=1
        release a"#]],
    );
}

// JC-504, JC-505.

#[test]
fn jobs_that_are_not_for_us_are_skipped() {
    check("job managedBy=example.com/queue | pods a:R", expect![[r#"skip    ManagedBy("example.com/queue")"#]]);
    check("job managedBy=kubernetes.io/job-controller completions=1 | pods a:R", expect![[""]]);
    check("job Complete=True SuccessCriteriaMet=True", expect!["skip    Finished"]);
    check(
        "job completionMode=Sorted",
        expect![[
            r#"skip    UnknownCompletionMode(Event { kind: Warning, reason: "UnknownCompletionMode", message: "Skipped Job sync because completion mode is unknown" })"#
        ]],
    );
}

/// REG-A12, INV-13: upstream leaves such pods until they are deleted.
#[test]
fn reg_a12_pods_of_finished_jobs_are_released() {
    check("job Complete=True SuccessCriteriaMet=True succeeded=1 | pods a:S b:R c:F-", expect!["release a b"]);
}

#[test]
fn reg_b04_interim_conditions_are_not_doubled() {
    check(
        "job backoffLimit=0 FailureTarget=False | pods a:F",
        expect![[r#"
        status  uncounted.failed=[a] conditions=[FailureTarget/BackoffLimitExceeded]
        release a
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded]
        event   Warning BackoffLimitExceeded: Job has reached the specified backoff limit"#]],
    );
}

#[test]
fn surplus_pods_that_a_crash_left_behind_are_removed_and_not_counted() {
    check(
        "job parallelism=2 completions=9 | pods a:R+ b:R",
        expect![[r#"
        remove  a
        status  active=1 terminating=1"#]],
    );
    check("job parallelism=2 completions=9 | pods a:R!+ b:R c:R", expect!["let go  a"]);
    check("job parallelism=2 completions=9 backoffLimit=0 | pods a:F!+ b:R c:R", expect!["release a"]);
    check(
        "job parallelism=2 completions=9 | pods a:S!+ b:R c:R",
        expect![[r#"
        status  uncounted.succeeded=[a]
        release a
        status  succeeded=1 uncounted.succeeded=[]"#]],
    );
}

/// INV-1: a removal could not be carried through, and then the Job failed. Whether a crash came between the deletion and the
/// status, or not, the pod counts as nothing.
#[test]
fn surplus_pods_do_not_fail_with_their_job() {
    check(
        "job parallelism=2 completions=9 backoffLimit=0 | pods a:F b:R+ c:R",
        expect![[r#"
        end     b c
        status  active=0 terminating=2 uncounted.failed=[a,c] conditions=[FailureTarget/BackoffLimitExceeded]
        let go  b
        release a c
        status  failed=2 uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=2 completions=9 backoffLimit=0 | pods a:F b:R!+ c:R!",
        expect![[r#"
        status  uncounted.failed=[a,c] conditions=[FailureTarget/BackoffLimitExceeded]
        let go  b
        release a c
        status  failed=2 uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=2 completions=9 backoffLimit=0 | pods a:F b:F+ c:R",
        expect![[r#"
        end     c
        status  active=0 terminating=1 uncounted.failed=[a,b,c] conditions=[FailureTarget/BackoffLimitExceeded]
        release a b c
        status  failed=3 uncounted.failed=[]"#]],
    );
}

// D10: gates that are off.

fn without(managed_by: bool, replacement: bool) -> Settings {
    let gates = Gates { job_managed_by: !managed_by, job_pod_replacement_policy: !replacement, ..Gates::DEFAULT };
    Settings { gates, ..Settings::default() }
}

/// SC-24, SC-27: without both gates nothing announces the end and nothing delays it.
#[test]
fn without_both_gates_the_end_comes_at_once() {
    let failing = "job parallelism=2 completions=2 backoffLimit=0 | pods a:F b:R";
    check_with(
        failing,
        without(true, true),
        |_| CallOutcome::Done,
        expect![[r#"
        end     b
        status  active=0 terminating=null uncounted.failed=[a,b]
        release a b
        status  failed=2 uncounted.failed=[] conditions=[Failed/BackoffLimitExceeded]
        event   Warning BackoffLimitExceeded: Job has reached the specified backoff limit"#]],
    );
    let completing = "job parallelism=2 completions=1 | pods a:S b:R!";
    check_with(
        completing,
        without(true, true),
        |_| CallOutcome::Done,
        expect![[r#"
        status  terminating=null uncounted.succeeded=[a] uncounted.failed=[b]
        release a b
        status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[] completionTime=now conditions=[Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    // Verdicts by policy were announced before those gates came.
    let policy = "job parallelism=2 completions=2 rules=FailJob:In:5 | pods a:F#5 b:R";
    check_with(
        policy,
        without(true, true),
        |_| CallOutcome::Done,
        expect![[r#"
        end     b
        status  active=0 terminating=null uncounted.failed=[a,b] conditions=[FailureTarget/PodFailurePolicy]
        release a b
        status  failed=2 uncounted.failed=[] conditions=[FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy]
        event   Warning PodFailurePolicy: Container main for pod ns/a failed with exit code 5 matching FailJob rule at index 0"#]],
    );
}

/// SC-26: one of the two is enough.
#[test]
fn with_one_gate_the_end_waits() {
    let failing = "job parallelism=2 completions=2 backoffLimit=0 | pods a:F b:R";
    check_with(
        failing,
        without(true, false),
        |_| CallOutcome::Done,
        expect![[r#"
        end     b
        status  active=0 terminating=1 uncounted.failed=[a,b] conditions=[FailureTarget/BackoffLimitExceeded]
        release a b
        status  failed=2 uncounted.failed=[]"#]],
    );
    check_with(
        failing,
        without(false, true),
        |_| CallOutcome::Done,
        expect![[r#"
        end     b
        status  active=0 terminating=null uncounted.failed=[a,b] conditions=[FailureTarget/BackoffLimitExceeded]
        release a b
        status  failed=2 uncounted.failed=[]"#]],
    );
}

/// SC-46, SC-49, SC-52.
#[test]
fn without_the_replacement_gate_terminating_pods_are_replaced_and_not_reported() {
    let deleted = "job parallelism=2 completions=2 replace=Failed | pods a:R! b:R!";
    check_with(
        deleted,
        without(false, true),
        |_| CallOutcome::Done,
        expect![[r#"
        create  2 pods
        status  active=2 terminating=null uncounted.failed=[a,b]
        release a b
        status  failed=2 uncounted.failed=[]"#]],
    );
}

/// SC-34, SC-37.
#[test]
fn without_the_managed_by_gate_every_job_is_ours() {
    let text = "job managedBy=example.com/queue completions=1";
    check_with(
        text,
        without(true, false),
        |_| CallOutcome::Done,
        expect![[r#"
        create  1 pod
        status  active=1"#]],
    );
}

// JC section 22.

fn metrics(text: &str) -> String {
    let case = Case::new(text, Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("nothing to do") };
    let record = act.record(&[CallOutcome::Done, CallOutcome::Failed("no".to_owned())]);
    let mut all = record.creations.clone();
    all.extend(record.metrics.clone());
    all.extend(record.close(&ReleaseOutcome::default()).metrics);
    all.iter().map(|metric| format!("{metric:?}\n")).collect()
}

#[test]
fn pods_and_jobs_are_counted_when_they_are_over() {
    expect![[r#"
        PodsFinished { mode: NonIndexed, result: Succeeded, by: 2 }
        PodsFinished { mode: NonIndexed, result: Failed, by: 1 }
        JobFinished { mode: NonIndexed, result: Succeeded, reason: "CompletionsReached" }
    "#]]
    .assert_eq(&metrics("job parallelism=2 completions=2 | pods S S F"));
    expect![[r#"
        PodsFinished { mode: NonIndexed, result: Failed, by: 1 }
        PodsFinished { mode: NonIndexed, result: Succeeded, by: 1 }
    "#]]
    .assert_eq(&metrics("job completions=9 parallelism=0 uncounted.failed=[a] | pods S"));
    expect![[r#"
        IndexesFinished { status: Succeeded, per_index: false, by: 1 }
        PodsFinished { mode: Indexed, result: Succeeded, by: 1 }
        PodsFinished { mode: Indexed, result: Failed, by: 1 }
    "#]]
    .assert_eq(&metrics("job Indexed parallelism=0 completions=3 completedIndexes=0 succeeded=1 | pods 1S 2F"));
    expect![[r#"
        IndexesFinished { status: Succeeded, per_index: true, by: 1 }
        IndexesFinished { status: Failed, per_index: true, by: 1 }
        PodsFinished { mode: Indexed, result: Succeeded, by: 1 }
        PodsFinished { mode: Indexed, result: Failed, by: 1 }
    "#]]
    .assert_eq(&metrics(
        "job Indexed parallelism=0 completions=3 backoffLimitPerIndex=0 failedIndexes= | pods 1S 2F[0]",
    ));
    // Indexes that a smaller Job forgot do not count backwards.
    expect![[r#"
        IndexesFinished { status: Succeeded, per_index: false, by: 1 }
        PodsFinished { mode: Indexed, result: Succeeded, by: 1 }
    "#]]
    .assert_eq(&metrics("job Indexed parallelism=2 completions=2 completedIndexes=5-9 succeeded=5 | pods 0S 1R"));
    expect![[r#"
        FailuresHandled { action: Ignore, by: 1 }
        FailuresHandled { action: Count, by: 1 }
        PodsFinished { mode: NonIndexed, result: Failed, by: 2 }
    "#]]
    .assert_eq(&metrics("job parallelism=0 completions=9 rules=Ignore:In:1;Count:In:2 | pods F#1 F#2 F#3"));
}

/// JC-2209.
#[test]
fn creations_are_counted_by_reason() {
    expect![[r#"
        PodsCreated { reason: New, status: Succeeded, by: 1 }
        PodsCreated { reason: New, status: Failed, by: 1 }
    "#]]
    .assert_eq(&metrics("job parallelism=2 completions=2"));
    expect![[r#"
        PodsCreated { reason: RecreateTerminatingOrFailed, status: Succeeded, by: 1 }
        PodsCreated { reason: RecreateTerminatingOrFailed, status: Failed, by: 1 }
    "#]]
    .assert_eq(&metrics("job parallelism=2 completions=2 failed=1"));
    expect![[r#"
        PodsCreated { reason: RecreateTerminatingOrFailed, status: Succeeded, by: 1 }
        PodsCreated { reason: RecreateTerminatingOrFailed, status: Failed, by: 1 }
    "#]]
    .assert_eq(&metrics("job parallelism=2 completions=2 | pods a:R!-"));
    expect![[r#"
        PodsCreated { reason: RecreateFailed, status: Succeeded, by: 1 }
        PodsCreated { reason: RecreateFailed, status: Failed, by: 1 }
    "#]]
    .assert_eq(&metrics("job parallelism=2 completions=2 failed=1 replace=Failed"));
}

// JC section 11: what delays a replacement.

/// JC-1107: the delay of an index counts from what its retained pod says now.
#[test]
fn a_later_word_on_when_a_retained_pod_ended_counts() {
    let job = "job Indexed parallelism=1 completions=1 failedIndexes= backoffLimitPerIndex=1";
    let mut case = Case::new(&format!("{job} | pods a:0R@4!"), Settings::default());
    expect!["wake    6s"].assert_eq(&account(&case, |_| CallOutcome::Done));
    case.observe("a:0F@1");
    expect![[r#"
        status  terminating=0
        wake    9s"#]]
    .assert_eq(&account(&case, |_| CallOutcome::Done));
    case.observe("a:0F@3600");
    assert!(account(&case, |_| CallOutcome::Done).starts_with("create  0[1]"));
}

/// JC-1102, JC-703: a pod that counts as failed because the policy changed delays its replacement like any other.
#[test]
fn a_changed_replacement_policy_makes_failures() {
    let mut case = Case::new("job replace=Failed | pods a:R@4!", Settings::default());
    expect![""].assert_eq(&account(&case, |_| CallOutcome::Done));
    case.job.spec.as_mut().unwrap().pod_replacement_policy = Some("TerminatingOrFailed".to_owned());
    case.tally.observe_job(&case.job, Gates::DEFAULT);
    expect![[r#"
        status  uncounted.failed=[a]
        wake    6s
        release a
        status  failed=1 uncounted.failed=[]"#]]
    .assert_eq(&account(&case, |_| CallOutcome::Done));
}

// JC-604, JC-606: pods without a controller.

fn stray(name: &str) -> PodView {
    serde_json::from_value(serde_json::json!({
        "metadata": {"namespace": "ns", "name": name, "generateName": "a-", "uid": name, "labels": {"job": "a"},
                     "creationTimestamp": "2026-11-15T10:00:00Z"},
        "status": {"phase": "Succeeded"},
    }))
    .unwrap()
}

/// JC-604, JA-V33: an empty selector matches every pod of the namespace.
#[test]
fn an_empty_selector_adopts_everything() {
    let mut case = Case::new("job", Settings::default());
    case.job.spec.as_mut().unwrap().selector = Some(Default::default());
    case.tally.observe_job(&case.job, Gates::DEFAULT);
    let unlabelled = PodView { labels: Default::default(), ..stray("p") };
    assert!(case.tally.observe_stray(&unlabelled));
}

/// JC-606: what ended for an earlier Job of the name was never counted for this one.
#[test]
fn a_pod_that_is_older_than_the_job_is_adopted_and_counted() {
    let mut case = Case::new("job", Settings::default());
    let mut reclaimed = |created: &str| {
        case.job.metadata.creation_timestamp = serde_json::from_value(serde_json::json!(created)).unwrap();
        case.tally.observe_job(&case.job, Gates::DEFAULT);
        case.tally.observe_stray(&stray("p"));
        let Plan::Claim(claims) = plan(&case.snapshot()) else { panic!("there is a pod to claim") };
        assert_eq!(claims.adopt.len() + claims.reclaim.len(), 1);
        claims.reclaim.len() == 1
    };
    assert!(!reclaimed("2026-11-15T10:00:01Z"));
    assert!(reclaimed("2026-11-15T10:00:00Z"), "one of its own");
}

/// JC-1205, JC-2101: what cannot be asked for is told to nobody; one attempt stands for all.
#[test]
fn pods_that_cannot_be_made_make_no_events() {
    let case = Case::new("job", Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("there is a pod to make") };
    let record = act.record(&[CallOutcome::Unsent("unable to create pods, no labels".to_owned())]);
    assert_eq!(record.events, []);
}
