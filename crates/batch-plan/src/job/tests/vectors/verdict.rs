//! V-13 and V-14: what a pod failure policy makes of failures, and which verdict wins.

use expect_test::expect;

use super::super::super::*;
use super::super::text::{check, check_with};
use super::failing;

// V-13: pod failure policy, the rows that are about the Job.

/// INV-10.
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

/// INV-10.
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
            remove  b d
            status  active=0 terminating=2 succeeded=1 completedIndexes=1 uncounted.failed=[a] conditions=[SuccessCriteriaMet/SuccessPolicy]
            release a c
            status  failed=1 uncounted.failed=[]"#]],
    );
}
