//! The tables of the specification's appendix A that are about whole syncs. Tables about one function are tested beside
//! that function.

use batch_types::gates::Gates;
use expect_test::expect;

use super::super::*;
use super::text::{check, check_with};

fn failing(what: &'static str) -> impl Fn(&str) -> CallOutcome {
    move |call| match call.starts_with(what) {
        true => CallOutcome::Failed("no".to_owned()),
        false => CallOutcome::Done,
    }
}

// V-2 and V-3: failed indexes and retained pods.

#[test]
fn v2_indexes_fail_when_their_pods_have_failed_too_often() {
    let job = "job Indexed parallelism=0 completions=2 failedIndexes=";
    check(
        &format!("{job} backoffLimitPerIndex=1 | pods 0F[0] 1F[1]"),
        expect![[r#"
        status  failedIndexes=1 uncounted.failed=[p001]
        release p001
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(&format!("{job} backoffLimitPerIndex=0 | pods 0F[0]-"), expect![[""]]);
    check(&format!("{job} backoffLimitPerIndex=0 | pods 3F[0]"), expect!["release p000"]);
    check(
        &format!("{job}0 backoffLimitPerIndex=0 | pods 1F[0]"),
        expect![[r#"
        status  failedIndexes=0,1 uncounted.failed=[p000] conditions=[FailureTarget/FailedIndexes]
        release p000
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/FailedIndexes,Failed/FailedIndexes]
        event   Warning FailedIndexes: Job has failed indexes"#]],
    );
    check(
        &format!("{job}9 backoffLimitPerIndex=0 | pods 1F[0]"),
        expect![[r#"
        status  failedIndexes=1 uncounted.failed=[p000]
        release p000
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        &format!("{job} backoffLimitPerIndex=1 rules=FailIndex:In:42 | pods 0F[0]#42"),
        expect![[r#"
        status  failedIndexes=0 uncounted.failed=[p000]
        release p000
        status  failed=1 uncounted.failed=[]"#]],
    );
}

#[test]
fn v3_one_failed_pod_is_retained_until_its_replacement_is_there() {
    let job = "job Indexed parallelism=0 completions=4 failedIndexes= backoffLimitPerIndex=1";
    check(
        &format!("{job} | pods a:0F[0] b:1F[1] c:2F[0]"),
        expect![[r#"
        status  failedIndexes=1 uncounted.failed=[b]
        release b
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(&format!("{job} | pods a:0F[0]-"), expect![[""]]);
    check(&format!("{job} | pods a:0F[0]="), expect![[""]]);
    check(&format!("{job} | pods a:4F[0]"), expect!["release a"]);
    check(
        &format!("{job} parallelism=1 | pods a1:0F[0] a2:0R[1]"),
        expect![[r#"
        status  uncounted.failed=[a1]
        release a1
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        &format!("{job} | pods a1:0F[0] a2:0S[1]"),
        expect![[r#"
        status  succeeded=1 completedIndexes=0 uncounted.failed=[a1]
        release a2 a1
        status  failed=1 uncounted.failed=[]"#]],
    );
    let job = "job Indexed parallelism=0 completions=4 failedIndexes= backoffLimitPerIndex=4";
    check(
        &format!("{job} | pods a1:0F[0] a3:0F[2] a2:0F[1]"),
        expect![[r#"
        status  uncounted.failed=[a1,a2]
        release a1 a2
        status  failed=2 uncounted.failed=[]"#]],
    );
    check(
        &format!("{job} | pods a1:0F[0]@1 a2:0F[0]@0 a3:0F[0]@2"),
        expect![[r#"
        status  uncounted.failed=[a1,a3]
        release a1 a3
        status  failed=2 uncounted.failed=[]"#]],
    );
}

#[test]
fn v3_replacements_carry_the_counts_on() {
    let job = "job Indexed parallelism=1 completions=1 failedIndexes= backoffLimitPerIndex=5";
    check(
        job,
        expect![[r#"
        create  0[0]
        status  active=1"#]],
    );
    check(
        &format!("{job} | pods 0F[0]"),
        expect![[r#"
        create  0[1]
        status  active=1"#]],
    );
    check(
        &format!("{job} | pods 0F[3]"),
        expect![[r#"
        create  0[4]
        status  active=1"#]],
    );
    check(
        &format!("{job} rules=Ignore:In:7 | pods 0F[3]#7"),
        expect![[r#"
        create  0[3+1]
        status  active=1"#]],
    );
}

// V-5: which active pods of an Indexed Job go whatever their number.

#[test]
fn v5_pods_without_a_valid_index_and_duplicates_go() {
    let job = "job Indexed parallelism=6 completions=6";
    check(
        &format!("{job} | pods x:P a:2P b:5R c:6R"),
        expect![[r#"
        remove  c x
        status  active=2 terminating=2"#]],
    );
    check(
        &format!("{job} | pods a:5P b:0R c:3P d:0R e:3R f:0P g:6R h:6P"),
        expect![[r#"
        remove  b c f g h
        status  active=3 terminating=5"#]],
    );
    check(
        &format!("{job} | pods x:P y:R z:R a:0P b:1P c:1P d:1R"),
        expect![[r#"
        remove  b c x y z
        status  active=2 terminating=5"#]],
    );
}

// V-8, last paragraph: which indexes wait.

#[test]
fn v8_indexes_wait_for_their_own_failures_only() {
    let job = "job Indexed parallelism=4 completions=4 failedIndexes= backoffLimitPerIndex=6";
    check(
        &format!("{job} | pods 0R 2R"),
        expect![[r#"
        create  1[0] 3[0]
        status  active=4"#]],
    );
    check(
        &format!("{job} | pods 0R 2R 1F[0]@0"),
        expect![[r#"
        create  3[0]
        status  active=3
        wake    10s"#]],
    );
    check(
        &format!("{job} | pods 0R 2R 1F[0]@0 3F[0]@10"),
        expect![[r#"
        create  3[1]
        status  active=3
        wake    10s"#]],
    );
    check(&format!("{job} | pods 0R 1F[1]@0 2F[0]@0 3F[2]@0"), expect!["wake    10s"]);
    check(&format!("{job} | pods 0R 1F[1]@1 2F[0]@1 3F[2]@1"), expect!["wake    9s"]);
    check(&format!("{job} | pods 0R 2R 3R 1F[1+1]@0"), expect!["wake    40s"]);
}

// V-10: tracking.

#[test]
fn v10_1_nothing_to_track() {
    check("job parallelism=0", expect![[""]]);
}

#[test]
fn v10_2_ended_and_deleted_pods_are_recorded_then_counted() {
    check(
        "job parallelism=2 completions=9 | pods a:S b:F c:S! d:F! e:P! f:P g:R",
        expect![[r#"
        status  uncounted.succeeded=[a,c] uncounted.failed=[b,d,e]
        release a c b d e
        status  succeeded=2 failed=3 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_3_pods_on_record_are_counted_when_they_are_released() {
    check(
        "job parallelism=1 completions=9 succeeded=2 failed=3 uncounted.succeeded=[a,e] uncounted.failed=[b,f]
         pods e:S- x:F- y:P- a:S b:F c:S d:F",
        expect![[r#"
            status  succeeded=3 failed=4 uncounted.succeeded=[a,c] uncounted.failed=[b,d]
            release a b c d
            status  succeeded=5 failed=6 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_4_pods_that_we_have_released_are_not_seen_as_tracked() {
    check(
        "job parallelism=0 completions=9 succeeded=2 failed=3 uncounted.succeeded=[a,g] uncounted.failed=[b,h]
         pods a:S b:F c:S= d:F= e:S f:F g:S= h:F=",
        expect![[r#"
            status  succeeded=3 failed=4 uncounted.succeeded=[a,e] uncounted.failed=[b,f]
            release a b e f
            status  succeeded=5 failed=6 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_5_success_releases_all_and_counts_only_ended_pods() {
    check(
        "job parallelism=1 completions=1 | pods a:S b:F",
        expect![[r#"
        status  uncounted.succeeded=[a] uncounted.failed=[b] conditions=[SuccessCriteriaMet/CompletionsReached]
        release a b
        status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[] completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    check(
        "job parallelism=1 completions=1 SuccessCriteriaMet=True | pods a:S b:F c:P",
        expect![[r#"
        end     c
        status  active=0 terminating=1 uncounted.succeeded=[a] uncounted.failed=[b]
        release a b c
        status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_6_failure_counts_all_that_have_not_succeeded() {
    check(
        "job parallelism=1 completions=9 FailureTarget=True | pods a:S b:F c:R!",
        expect![[r#"
        status  uncounted.succeeded=[a] uncounted.failed=[b,c]
        release a b c
        status  succeeded=1 failed=2 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=1 completions=9 FailureTarget=True | pods a:S b:F c:R",
        expect![[r#"
        end     c
        status  active=0 terminating=1 uncounted.succeeded=[a] uncounted.failed=[b,c]
        release a b c
        status  succeeded=1 failed=2 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_7_a_job_that_is_deleted_releases_all_pods() {
    check(
        "job deleting parallelism=1 completions=9 | pods a:S b:F c:R",
        expect![[r#"
        status  uncounted.succeeded=[a] uncounted.failed=[b]
        release a b c
        status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_9_nothing_is_counted_while_finalizers_stay() {
    check_with(
        "job parallelism=0 completions=9 | pods a:S b:F",
        Settings::default(),
        failing("release"),
        expect![[r#"
        status  uncounted.succeeded=[a] uncounted.failed=[b]
        release a b"#]],
    );
}

#[test]
fn v10_10_partial_progress_is_kept() {
    check_with(
        "job parallelism=0 completions=9 uncounted.succeeded=[a] uncounted.failed=[b] | pods a:S- c:S d:F",
        Settings::default(),
        failing("release"),
        expect![[r#"
            status  succeeded=1 failed=1 uncounted.succeeded=[c] uncounted.failed=[d]
            release c d"#]],
    );
    check_with(
        "job parallelism=0 completions=9 | pods a:S b:F",
        Settings::default(),
        failing("release a"),
        expect![[r#"
        status  uncounted.succeeded=[a] uncounted.failed=[b]
        release a b
        status  failed=1 uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_11_indexes_are_counted_once_and_in_one_write() {
    check(
        "job Indexed parallelism=1 completions=6 | pods 1S 3S 3S 5R x:S",
        expect![[r#"
        status  succeeded=2 completedIndexes=1,3
        release x p000 p001 p002"#]],
    );
}

#[test]
fn v10_12_indexes_out_of_range_are_forgotten() {
    let job = "job Indexed parallelism=2 completions=2 succeeded=1 completedIndexes=3";
    check(&format!("{job} | pods 0R 1R"), expect!["status  succeeded=0 completedIndexes="]);
    check(
        &format!("{job} | pods 0R 1S"),
        expect![[r#"
        status  completedIndexes=1
        release p001"#]],
    );
}

#[test]
fn v10_14_failed_pods_of_indexes_count_each() {
    check(
        "job Indexed parallelism=1 completions=6 | pods a:1F b:3F c:3F d:5R e:F",
        expect![[r#"
        status  uncounted.failed=[a,b,c]
        release e a b c
        status  failed=3 uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_15_old_and_new_indexes_join() {
    check(
        "job Indexed parallelism=0 completions=7 succeeded=5 failed=2 completedIndexes=0-2,4,6,7
         pods 0S- 1F- 1S 3S a:2F b:5F",
        expect![[r#"
            status  succeeded=6 completedIndexes=0-4,6 uncounted.failed=[a,b]
            release p002 a p003 b
            status  failed=4 uncounted.failed=[]"#]],
    );
}

/// Upstream leaves `b` for the next sync; pods that are on record already do not count against the bound here.
#[test]
fn v10_16_the_number_of_pods_on_record_is_bounded() {
    let settings = Settings { uncounted_pods_max: 5, ..Settings::default() };
    check_with(
        "job parallelism=0 completions=99 uncounted.failed=[a,b] | pods 5xS b:F",
        settings,
        |_| CallOutcome::Done,
        expect![[r#"
            status  failed=1 uncounted.succeeded=[p000,p001,p002,p003] uncounted.failed=[b]
            wake    0s
            release b p000 p001 p002 p003
            status  succeeded=4 failed=2 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v10_16_releases_are_bounded_though_completed_indexes_are_not() {
    let settings = Settings { uncounted_pods_max: 3, releases_max: 3, ..Settings::default() };
    let pods = "pods 0S 1S 2S 3S 4S";
    check_with(
        &format!("job Indexed parallelism=5 completions=5 | {pods}"),
        settings.clone(),
        |_| CallOutcome::Done,
        expect![[r#"
        status  succeeded=5 completedIndexes=0-4 conditions=[SuccessCriteriaMet/CompletionsReached]
        wake    0s
        release p000 p001 p002"#]],
    );
    let job = "job Indexed parallelism=5 completions=5 succeeded=5 completedIndexes=0-4 SuccessCriteriaMet=True";
    check_with(
        &format!("{job} | {pods}"),
        settings,
        |_| CallOutcome::Done,
        expect![[r#"
        wake    0s
        release p000 p001 p002"#]],
    );
}

#[test]
fn v10_17_a_pod_on_record_as_failed_stays_failed() {
    check(
        "job FailureTarget=True uncounted.failed=[a,b] | pods a:F b:S",
        expect![[r#"
        release a b
        status  failed=2 uncounted.failed=[] conditions=[FailureTarget/Because,Failed/Because]
        event   Warning Because: Said before"#]],
    );
}

#[test]
fn v10_18_the_end_waits_for_terminating_pods() {
    check("job FailureTarget=True uncounted.failed=[a] | pods a:R!-", expect!["status  failed=1 uncounted.failed=[]"]);
    check(
        "job SuccessCriteriaMet=True uncounted.succeeded=[b] uncounted.failed=[a] | pods a:R!-",
        expect!["status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[]"],
    );
}

#[test]
fn v10_20_retained_pods_are_not_counted_yet() {
    let job = "job new Indexed completions=3 backoffLimitPerIndex=1";
    check(
        &format!("{job} parallelism=0 | pods a:1F[0]"),
        expect!["status  ready=0 terminating=0 failedIndexes= startTime=now"],
    );
    check(
        &format!("{job} parallelism=1 | pods a1:1F[0] a2:1R[1]"),
        expect![[r#"
        status  active=1 ready=0 terminating=0 failedIndexes= uncounted.failed=[a1] startTime=now
        release a1
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        &format!("{job} parallelism=0 | pods a:1F[1]"),
        expect![[r#"
        status  ready=0 terminating=0 failedIndexes=1 uncounted.failed=[a] startTime=now
        release a
        status  failed=1 uncounted.failed=[]"#]],
    );
}

// V-11: one sync.

#[test]
fn v11_first_pods() {
    check(
        "job new parallelism=2 completions=5",
        expect![[r#"
        create  2 pods
        status  active=2 ready=0 terminating=0 startTime=now"#]],
    );
    check(
        "job new parallelism=2",
        expect![[r#"
        create  2 pods
        status  active=2 ready=0 terminating=0 startTime=now"#]],
    );
    check(
        "job new Indexed parallelism=2 completions=5",
        expect![[r#"
        create  0 1
        status  active=2 ready=0 terminating=0 startTime=now"#]],
    );
    check(
        "job new completions=0",
        expect![[r#"
        status  ready=0 terminating=0 startTime=now conditions=[SuccessCriteriaMet/CompletionsReached]
        status  completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
}

#[test]
fn v11_enough_pods() {
    check("job parallelism=3 completions=5 active=3 ready=0 | pods R* R* R", expect!["status  ready=2"]);
    check("job parallelism=3 completions=5 | pods R* R* R", expect![[""]]);
}

#[test]
fn v11_too_few_active_pods() {
    check(
        "job parallelism=2 completions=5 | pods a:R b:S",
        expect![[r#"
        create  1 pod
        status  active=2 uncounted.succeeded=[b]
        release b
        status  succeeded=1 uncounted.succeeded=[]"#]],
    );
    check(
        "job parallelism=2 completions=5 | pods a:R b:S c:F",
        expect![[r#"
        create  1 pod
        status  active=2 uncounted.succeeded=[b] uncounted.failed=[c]
        release b c
        status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[]"#]],
    );
}

#[test]
fn v11_terminating_pods_are_replaced_according_to_policy() {
    check(
        "job parallelism=1 replace=Failed | pods a:R b:F c:R!",
        expect![[r#"
        status  uncounted.failed=[b]
        release b
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=1 completions=1 | pods a:R b:F c:R!",
        expect![[r#"
        status  uncounted.failed=[b,c]
        release b c
        status  failed=2 uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=1 completions=1 replace=Failed | pods a:R b:R 4xR!",
        expect![[r#"
        remove  a
        status  active=1 terminating=5"#]],
    );
    check(
        "job parallelism=1 completions=1 rules= | pods a:R b:R 4xR!",
        expect![[r#"
        remove  a
        status  active=1 terminating=5"#]],
    );
    check(
        "job Indexed parallelism=2 completions=5 replace=Failed | pods x:R!",
        expect![[r#"
        create  0
        status  active=1"#]],
    );
    check(
        "job Indexed parallelism=2 completions=5 | pods x:R!",
        expect![[r#"
        create  0 1
        status  active=2
        release x"#]],
    );
}

#[test]
fn v11_replacements_wait() {
    check(
        "job parallelism=1 completions=1 | pods F@0",
        expect![[r#"
        status  uncounted.failed=[p000]
        wake    10s
        release p000
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=2 completions=2 active=2 ready=2 | pods R* F@0",
        expect![[r#"
        status  active=1 ready=1 uncounted.failed=[p001]
        wake    10s
        release p001
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        "job parallelism=2 completions=2 | pods R* F@4 F@12",
        expect![[r#"
        status  uncounted.failed=[p001,p002]
        wake    16s
        release p001 p002
        status  failed=2 uncounted.failed=[]"#]],
    );
}

#[test]
fn v11_too_many_active_pods() {
    check(
        "job parallelism=2 completions=5 | pods a:R* b:R* c:R",
        expect![[r#"
        remove  c
        status  active=2 terminating=1"#]],
    );
    check(
        "job parallelism=2 completions=5 | pods 10xR",
        expect![[r#"
        remove  p000 p001 p002 p003 p004 p005 p006 p007
        status  active=2 terminating=8"#]],
    );
    check(
        "job parallelism=3 completions=4 | pods a:R b:R c:R d:S e:S",
        expect![[r#"
        remove  a
        status  active=2 terminating=1 uncounted.succeeded=[d,e]
        release d e
        status  succeeded=2 uncounted.succeeded=[]"#]],
    );
}

#[test]
fn v11_enough_successes() {
    check(
        "job parallelism=2 completions=5 | pods 5xS",
        expect![[r#"
        status  uncounted.succeeded=[p000,p001,p002,p003,p004] conditions=[SuccessCriteriaMet/CompletionsReached]
        release p000 p001 p002 p003 p004
        status  succeeded=5 uncounted.succeeded=[] completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    check(
        "job parallelism=2 | pods R S",
        expect![[r#"
        status  uncounted.succeeded=[p001]
        release p001
        status  succeeded=1 uncounted.succeeded=[]"#]],
    );
    check(
        "job parallelism=2 | pods S S",
        expect![[r#"
        status  uncounted.succeeded=[p000,p001] conditions=[SuccessCriteriaMet/CompletionsReached]
        release p000 p001
        status  succeeded=2 uncounted.succeeded=[] completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    check(
        "job parallelism=2 | pods S F",
        expect![[r#"
        status  uncounted.succeeded=[p000] uncounted.failed=[p001] conditions=[SuccessCriteriaMet/CompletionsReached]
        release p000 p001
        status  succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[] completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    check(
        "job parallelism=2 completions=2 | pods S S S",
        expect![[r#"
        status  uncounted.succeeded=[p000,p001,p002] conditions=[SuccessCriteriaMet/CompletionsReached]
        release p000 p001 p002
        status  succeeded=3 uncounted.succeeded=[] completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Warning TooManySucceededPods: Too many succeeded pods running after completion count reached
        event   Normal Completed: Job completed"#]],
    );
}

#[test]
fn v11_a_job_that_is_deleted_starts_nothing() {
    check(
        "job deleting parallelism=2 completions=5 | pods a:P b:R c:S",
        expect![[r#"
        status  uncounted.succeeded=[c]
        release c a b
        status  succeeded=1 uncounted.succeeded=[]"#]],
    );
    check("job deleting suspend parallelism=2 completions=5 | pods a:R b:R", expect!["release a b"]);
}

#[test]
fn v11_calls_that_fail() {
    check_with(
        "job parallelism=2 completions=5 | pods a:R b:S",
        Settings::default(),
        failing(""),
        expect![[r#"
        create  1 pod
        event   Warning FailedCreate: Error creating: no
        status  uncounted.succeeded=[b]
        release b"#]],
    );
    check_with(
        "job parallelism=1 completions=5 | pods a:R b:R",
        Settings::default(),
        failing("a"),
        expect![[r#"
        remove  a
        event   Warning FailedDelete: Error deleting: no"#]],
    );
    check_with(
        "job FailureTarget=True parallelism=2 | pods a:R b:R",
        Settings::default(),
        failing("a"),
        expect![[r#"
        end     a b
        event   Warning FailedDelete: Error deleting: no
        status  active=1 terminating=1"#]],
    );
}

#[test]
fn v11_the_first_failure_of_a_job_without_retries() {
    check(
        "job backoffLimit=0 | pods a:F",
        expect![[r#"
        status  uncounted.failed=[a] conditions=[FailureTarget/BackoffLimitExceeded]
        release a
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded]
        event   Warning BackoffLimitExceeded: Job has reached the specified backoff limit"#]],
    );
    check(
        "job backoffLimit=0 | pods a:F | unseen b",
        expect![[r#"
        status  active=1 uncounted.failed=[a]
        wake    300s
        release a
        status  failed=1 uncounted.failed=[]"#]],
    );
}

#[test]
fn v11_indexed() {
    check(
        "job Indexed parallelism=2 completions=3 | pods 0S 1F 1S 2S",
        expect![[r#"
        status  succeeded=3 completedIndexes=0-2 uncounted.failed=[p001] conditions=[SuccessCriteriaMet/CompletionsReached]
        release p000 p002 p001 p003
        status  failed=1 uncounted.failed=[] completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    check(
        "job Indexed parallelism=2 completions=3 backoffLimit=0 | pods 0S 1F 2R",
        expect![[r#"
        end     p002
        status  active=0 terminating=1 succeeded=1 completedIndexes=0 uncounted.failed=[p001,p002] conditions=[FailureTarget/BackoffLimitExceeded]
        release p000 p001 p002
        status  failed=2 uncounted.failed=[]"#]],
    );
    check(
        "job Indexed parallelism=2 completions=3 | pods 0S 1S 1S",
        expect![[r#"
        create  2
        status  active=1 succeeded=2 completedIndexes=0,1
        release p000 p001 p002"#]],
    );
    check(
        "job Indexed parallelism=8 completions=20 | pods 0R 2S 3P 4S 5S 7S 8S 9S",
        expect![[r#"
        create  1 6 10 11 12 13
        status  active=8 succeeded=6 completedIndexes=2,4,5,7-9
        release p001 p003 p004 p005 p006 p007"#]],
    );
    check(
        "job Indexed parallelism=3 completions=4 | pods 0F 1P 2F",
        expect![[r#"
        create  0 2
        status  active=3 uncounted.failed=[p000,p002]
        release p000 p002
        status  failed=2 uncounted.failed=[]"#]],
    );
    check(
        "job Indexed parallelism=2 completions=5 | pods R S F 0S 1R 2R",
        expect![[r#"
        remove  p000
        status  active=2 terminating=1 succeeded=1 completedIndexes=0
        release p001 p002 p003"#]],
    );
    check(
        "job Indexed parallelism=5 completions=5 | pods S F x:R 0S 1R y:2R z:2P",
        expect![[r#"
        remove  x z
        status  active=2 terminating=2 succeeded=1 completedIndexes=0
        release p000 p001 p003"#]],
    );
    check(
        "job Indexed parallelism=2 completions=5 | pods 0S 5R 6S 7P 8F",
        expect![[r#"
        remove  p001 p003
        status  active=0 terminating=2 succeeded=1 completedIndexes=0
        release p000 p002 p004"#]],
    );
}

#[test]
fn v11_suspending_and_resuming() {
    check(
        "job suspend parallelism=2 completions=4 | pods a:R b:R",
        expect![[r#"
        remove  a b
        event   Normal Suspended: Job suspended
        status  active=0 terminating=2 startTime=null conditions=[Suspended/JobSuspended]"#]],
    );
    check(
        "job suspend parallelism=2 completions=4 | pods a:R b:R c:R | unseen d",
        expect![[r#"
        status  active=4
        wake    300s"#]],
    );
    check(
        "job new suspend parallelism=2 completions=4",
        expect![[r#"
        event   Normal Suspended: Job suspended
        status  ready=0 terminating=0 conditions=[Suspended/JobSuspended]"#]],
    );
    check(
        "job new suspend completions=0",
        expect![[r#"
        status  ready=0 terminating=0 conditions=[SuccessCriteriaMet/CompletionsReached]
        status  completionTime=now conditions=[SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached]
        event   Normal Completed: Job completed"#]],
    );
    check(
        "job parallelism=2 completions=4 Suspended=True/JobSuspended",
        expect![[r#"
        create  2 pods
        event   Normal Resumed: Job resumed
        status  active=2 startTime=now conditions=[Suspended=False/JobResumed]"#]],
    );
    check(
        "job suspend FailureTarget=True | pods a:R",
        expect![[r#"
        end     a
        status  active=0 terminating=1 uncounted.failed=[a]
        release a
        status  failed=1 uncounted.failed=[]"#]],
    );
}

#[test]
fn v11_interim_conditions_that_are_not_true_mean_nothing() {
    check("job completions=1 FailureTarget=False | pods R", expect![[""]]);
    check("job completions=1 SuccessCriteriaMet=False | pods R", expect![[""]]);
}

// V-12: deadline and restarts.

#[test]
fn v12_deadline() {
    check(
        "job deadline=10 started=15 completions=1 | pods a:R",
        expect![[r#"
        end     a
        status  active=0 terminating=1 uncounted.failed=[a] conditions=[FailureTarget/DeadlineExceeded]
        release a
        status  failed=1 uncounted.failed=[]"#]],
    );
    check(
        "job deadline=10 started=10 completions=1 parallelism=0",
        expect![[r#"
        status  conditions=[FailureTarget/DeadlineExceeded]
        status  conditions=[FailureTarget/DeadlineExceeded,Failed/DeadlineExceeded]
        event   Warning DeadlineExceeded: Job was active longer than specified deadline"#]],
    );
    check("job deadline=10 started=4 completions=1 | pods a:R", expect!["wake    6s"]);
    check(
        "job deadline=10 started=15 suspend completions=1",
        expect![[r#"
        event   Normal Suspended: Job suspended
        status  startTime=null conditions=[Suspended/JobSuspended]"#]],
    );
    check(
        "job deadline=10 started=15 completions=1 backoffLimit=0 | pods a:F",
        expect![[r#"
        status  uncounted.failed=[a] conditions=[FailureTarget/BackoffLimitExceeded]
        release a
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded]
        event   Warning BackoffLimitExceeded: Job has reached the specified backoff limit"#]],
    );
    check("job deadline=9223372036854775807 completions=1 | pods a:R", expect!["wake    86400s"]);
}

#[test]
fn v12_restarts_in_place_count() {
    let exceeded = |limit: u32, pods: &str| {
        let case = super::text::Case::new(
            &format!("job onFailure parallelism=2 completions=2 backoffLimit={limit} | pods {pods}"),
            Settings::default(),
        );
        super::text::account(&case, |_| CallOutcome::Done).contains("BackoffLimitExceeded")
    };
    let cases = [
        (0, "R^0", false),
        (0, "R^1", true),
        (1, "R^0", false),
        (1, "R^1", true),
        (1, "P^1", true),
        (2, "R^2", true),
        (2, "R^1 R^1", true),
        (3, "R^1 R^1", false),
        (3, "R^2! R^1", true),
        (1, "S^5 S^5", false),
        (1, "U^5 R", false),
    ];
    for (limit, pods, expected) in cases {
        assert_eq!(exceeded(limit, pods), expected, "limit {limit}, {pods}");
    }
}

#[test]
fn v12_failed_pods_count_against_the_limit() {
    for (limit, failed, expected) in [(0, 0, false), (1, 1, false), (1, 2, true), (6, 6, false), (6, 7, true)] {
        let text = format!("job parallelism=1 completions=1 backoffLimit={limit} | pods {failed}xF");
        let case = super::text::Case::new(&text, Settings::default());
        let exceeded = super::text::account(&case, |_| CallOutcome::Done).contains("BackoffLimitExceeded");
        assert_eq!(exceeded, expected, "limit {limit}, {failed} failed");
    }
}

// V-13: pod failure policy, the rows that are about the Job.

#[test]
fn v13_rules_decide_what_a_failure_means() {
    check(
        "job rules=FailJob:In:42 | pods a:F#42",
        expect![[r#"
        status  uncounted.failed=[a] conditions=[FailureTarget/PodFailurePolicy]
        release a
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy]
        event   Warning PodFailurePolicy: Container main for pod ns/a failed with exit code 42 matching FailJob rule at index 0"#]],
    );
    check(
        "job rules=FailJob:In:-1073741510,137 | pods a:F#-1073741510",
        expect![[r#"
        status  uncounted.failed=[a] conditions=[FailureTarget/PodFailurePolicy]
        release a
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy]
        event   Warning PodFailurePolicy: Container main for pod ns/a failed with exit code -1073741510 matching FailJob rule at index 0"#]],
    );
    check(
        "job rules=FailJob:In:5 parallelism=2 | pods a:F#5- b:R",
        expect![[r#"
        end     b
        status  active=0 terminating=1 uncounted.failed=[b] conditions=[FailureTarget/PodFailurePolicy]
        release b
        status  failed=1 uncounted.failed=[]"#]],
    );
    check("job rules=FailJob:In:5 | pods a:R#5", expect![[""]]);
    check(
        "job rules=Ignore:DisruptionTarget backoffLimit=0 | pods a:F%DisruptionTarget@0",
        expect![[r#"
        wake    10s
        release a"#]],
    );
    check(
        "job rules=Ignore:DisruptionTarget backoffLimit=0 | pods a:F%DisruptionTarget",
        expect![[r#"
        create  1 pod
        status  active=1
        release a"#]],
    );
    check(
        "job rules=Count:In:10;FailJob:In:10 | pods a:F#10",
        expect![[r#"
        create  1 pod
        status  active=1 uncounted.failed=[a]
        release a
        status  failed=1 uncounted.failed=[]"#]],
    );
    check("job rules=Ignore:In:1 | pods a:R!", expect![[""]]);
    check(
        "job rules=FailJob:In:5 FailureTarget=True/PodFailurePolicy failed=1",
        expect![[r#"
        status  conditions=[FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy]
        event   Warning PodFailurePolicy: Said before"#]],
    );
}

/// Q-6: the pod that justifies the verdict stays until the verdict is written.
#[test]
fn v13_a_fail_job_verdict_that_cannot_be_written_yet_keeps_its_pod() {
    check_with(
        "job rules=FailJob:In:5 parallelism=2 completions=9 | pods a:F#5 b:R c:F",
        Settings::default(),
        failing("b"),
        expect![[r#"
            end     b
            event   Warning FailedDelete: Error deleting: no
            status  uncounted.failed=[c]
            release c
            status  failed=1 uncounted.failed=[]"#]],
    );
}

// V-14: precedence.

#[test]
fn v14_failure_beats_the_success_policy_and_nothing_beats_what_is_written() {
    let job = "job Indexed parallelism=3 completions=3 success=*#1";
    check(
        &format!("{job} backoffLimit=0 | pods 0S 1F"),
        expect![[r#"
        status  succeeded=1 completedIndexes=0 uncounted.failed=[p001] conditions=[FailureTarget/BackoffLimitExceeded]
        release p000 p001
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded]
        event   Warning BackoffLimitExceeded: Job has reached the specified backoff limit"#]],
    );
    check(
        &format!("{job} rules=FailJob:In:5 | pods 0S 1F#5"),
        expect![[r#"
        status  succeeded=1 completedIndexes=0 uncounted.failed=[p001] conditions=[FailureTarget/PodFailurePolicy]
        release p000 p001
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy]
        event   Warning PodFailurePolicy: Container main for pod ns/p001 failed with exit code 5 matching FailJob rule at index 0"#]],
    );
    check(
        &format!("{job} backoffLimitPerIndex=0 maxFailedIndexes=0 failedIndexes= | pods 0S 1F[0]"),
        expect![[r#"
        status  succeeded=1 completedIndexes=0 failedIndexes=1 uncounted.failed=[p001] conditions=[FailureTarget/MaxFailedIndexesExceeded]
        release p000 p001
        status  failed=1 uncounted.failed=[] conditions=[FailureTarget/MaxFailedIndexesExceeded,Failed/MaxFailedIndexesExceeded]
        event   Warning MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes"#]],
    );
    let met = "SuccessCriteriaMet=True/SuccessPolicy succeeded=1 completedIndexes=0";
    check(
        &format!("{job} backoffLimitPerIndex=0 failedIndexes= {met} | pods 0S- 1F[0]"),
        expect![[r#"
        status  failedIndexes=1 uncounted.failed=[p001]
        release p001
        status  failed=1 uncounted.failed=[] completionTime=now conditions=[SuccessCriteriaMet/SuccessPolicy,Complete/SuccessPolicy]
        event   Normal Completed: Job completed"#]],
    );
    check(
        &format!("{job} FailureTarget=True/PodFailurePolicy | pods 0S 1F-"),
        expect![[r#"
        status  succeeded=1 completedIndexes=0
        release p000
        status  conditions=[FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy]
        event   Warning PodFailurePolicy: Said before"#]],
    );
    let job = "job Indexed parallelism=3 completions=3 success=0,1#1";
    check(
        &format!("{job} | pods a:0F b:0R c:1S d:2R"),
        expect![[r#"
        end     b d
        status  active=0 terminating=2 succeeded=1 completedIndexes=1 uncounted.failed=[a] conditions=[SuccessCriteriaMet/SuccessPolicy]
        release a b c d
        status  failed=1 uncounted.failed=[]"#]],
    );
}

// V-17: what we released, until the cache shows it.

#[test]
fn v17_released_pods_are_remembered_until_seen() {
    use super::text::{Case, account, now};
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
fn pods_of_finished_jobs_are_released() {
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
    check("job parallelism=2 completions=9 | pods a:R!+ b:R c:R", expect!["release a"]);
    check("job parallelism=2 completions=9 backoffLimit=0 | pods a:F!+ b:R c:R", expect!["release a"]);
    check(
        "job parallelism=2 completions=9 | pods a:S!+ b:R c:R",
        expect![[r#"
        status  uncounted.succeeded=[a]
        release a
        status  succeeded=1 uncounted.succeeded=[]"#]],
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
    let case = super::text::Case::new(text, Settings::default());
    let Plan::Act(act) = plan(&case.snapshot()) else { panic!("nothing to do") };
    let record = act.record(&[CallOutcome::Done, CallOutcome::Failed("no".to_owned())]);
    let mut all = record.creations.clone();
    all.extend(record.metrics.clone());
    all.extend(record.close(&ReleaseOutcome::default()).metrics);
    all.iter().map(|metric| format!("{metric:?}\n")).collect()
}

#[test]
fn pods_and_jobs_are_counted_when_they_are_over() {
    expect![[""]].assert_eq(&metrics("job parallelism=2 completions=2 | pods S S F"));
    expect![[""]].assert_eq(&metrics("job completions=9 parallelism=0 uncounted.failed=[a] | pods S"));
    expect![[""]]
        .assert_eq(&metrics("job Indexed parallelism=0 completions=3 completedIndexes=0 succeeded=1 | pods 1S 2F"));
    expect![[""]].assert_eq(&metrics(
        "job Indexed parallelism=0 completions=3 backoffLimitPerIndex=0 failedIndexes= | pods 1S 2F[0]",
    ));
    // Indexes that a smaller Job forgot do not count backwards.
    expect![[""]]
        .assert_eq(&metrics("job Indexed parallelism=2 completions=2 completedIndexes=5-9 succeeded=5 | pods 0S 1R"));
    expect![[""]]
        .assert_eq(&metrics("job parallelism=0 completions=9 rules=Ignore:In:1;Count:In:2 | pods F#1 F#2 F#3"));
}

/// JC-2209.
#[test]
fn creations_are_counted_by_reason() {
    expect![[""]].assert_eq(&metrics("job parallelism=2 completions=2"));
    expect![[""]].assert_eq(&metrics("job parallelism=2 completions=2 failed=1"));
    expect![[""]].assert_eq(&metrics("job parallelism=2 completions=2 | pods a:R!-"));
    expect![[""]].assert_eq(&metrics("job parallelism=2 completions=2 failed=1 replace=Failed"));
}
