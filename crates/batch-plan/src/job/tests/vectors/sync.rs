//! V-11 and V-12: one sync from beginning to end; deadlines and restarts.

use expect_test::expect;

use super::super::super::*;
use super::super::text::{Case, account, check, check_with};
use super::failing;

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

/// INV-26.
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

/// INV-24.
#[test]
fn v12_restarts_in_place_count() {
    let exceeded = |limit: u32, pods: &str| {
        let case = Case::new(
            &format!("job onFailure parallelism=2 completions=2 backoffLimit={limit} | pods {pods}"),
            Settings::default(),
        );
        account(&case, |_| CallOutcome::Done).contains("BackoffLimitExceeded")
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

/// INV-24.
#[test]
fn v12_failed_pods_count_against_the_limit() {
    for (limit, failed, expected) in [(0, 0, false), (1, 1, false), (1, 2, true), (6, 6, false), (6, 7, true)] {
        let text = format!("job parallelism=1 completions=1 backoffLimit={limit} | pods {failed}xF");
        let case = Case::new(&text, Settings::default());
        let exceeded = account(&case, |_| CallOutcome::Done).contains("BackoffLimitExceeded");
        assert_eq!(exceeded, expected, "limit {limit}, {failed} failed");
    }
}
