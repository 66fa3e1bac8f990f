//! V-2, V-3, V-5 and V-8: what the pods of an index mean, which go, and which indexes wait.

use expect_test::expect;

use super::super::text::check;

// V-2 and V-3: failed indexes and retained pods.

/// INV-24.
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
