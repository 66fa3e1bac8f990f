//! V-10: how ended pods are put on record, released and counted.

use expect_test::expect;

use super::super::super::*;
use super::super::text::{check, check_with};
use super::failing;

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
            remove  c
            status  active=0 terminating=1 uncounted.succeeded=[a] uncounted.failed=[b]
            release a b
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
