//! TTL and CronJobs (INV-33…INV-39).

use super::*;

#[test]
fn inv_33_ttl_is_safe() {
    let finished = |ttl: Value| {
        let done = completed().pop().unwrap().3;
        with(done, "/spec/ttlSecondsAfterFinished", ttl)
    };
    let gone = |seconds| ("ttl", START + seconds, "Job a", Value::Null);
    keeps(vec![("world", START, "Job", without_counts(finished(json!(100)))), gone(100)]);
    breaks("INV-33", vec![("world", START, "Job", finished(json!(100))), gone(99)]);
    breaks("INV-33", vec![("world", START, "Job", finished(Value::Null)), gone(100)]);
    breaks("INV-33", vec![("world", START, "Job", job(json!({"ttlSecondsAfterFinished": 0}), json!({}))), gone(0)]);
}

#[test]
fn inv_33_goes_by_the_clock_as_it_is_set() {
    let job = || with(completed().pop().unwrap().3, "/spec/ttlSecondsAfterFinished", json!(100));
    let judged_at = |seconds: i64, clock_jumps: &[(i64, i64)]| {
        let steps = [("world", START, "Job", without_counts(job())), ("ttl", START + seconds, "Job a", Value::Null)];
        let jump =
            |(at, by): &(i64, i64)| (Timestamp::from_second(START + at).unwrap(), SignedDuration::from_secs(*by));
        let clock_jumps = clock_jumps.iter().map(jump).collect();
        invariants(&judge(&History { clock_jumps, ..History::of(&steps) }, Tolerance::default()))
    };
    assert_eq!(judged_at(50, &[]), ["INV-33"]);
    assert_eq!(judged_at(50, &[(20, 60)]), [""; 0], "by the clock its time is over");
    assert_eq!(judged_at(50, &[(51, 60)]), ["INV-33"], "it was set too late");
    assert_eq!(judged_at(110, &[(20, -60)]), ["INV-33"], "by the clock there is time left");
    assert_eq!(judged_at(101, &[(100, -60)]), [""; 0], "the decision was taken before it was set back");
    assert_eq!(judged_at(105, &[(100, -60)]), ["INV-33"], "too long ago for that");
}

/// A finished Job whose pods the history does not show.
fn without_counts(job: Value) -> Value {
    with(with(job, "/status/succeeded", json!(0)), "/spec/completions", json!(0))
}

fn cron_job(policy: &str, status: Value) -> Value {
    json!({"metadata": {"name": "c", "uid": "c"}, "spec": {"concurrencyPolicy": policy}, "status": status})
}

fn started(name: &str, scheduled: i64) -> Value {
    let mut job = job(json!({}), json!({}));
    job["metadata"] = json!({"name": name, "uid": name,
        "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": at(scheduled)},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "uid": "c", "controller": true}]});
    job
}

#[test]
fn inv_35_and_36_jobs_by_the_clock() {
    let begun = |policy| {
        vec![("world", START, "CronJob", cron_job(policy, json!({}))), ("cronjob", START, "Job", started("x", 0))]
    };
    keeps(and(begun("Allow"), vec![("cronjob", START, "Job", started("y", 60))]));
    breaks("INV-35", and(begun("Allow"), vec![("cronjob", START, "Job", started("y", 0))]));
    let after = |seconds| {
        vec![
            ("world", START, "CronJob c", Value::Null),
            ("gc", START, "Job x", Value::Null),
            ("cronjob", START + seconds, "Job", started("y", 0)),
        ]
    };
    let is_second = |seconds| invariants(&judged(&and(begun("Allow"), after(seconds)))).contains(&"INV-35");
    assert!(!is_second(1), "the CronJob has just gone, and its Job with it");
    assert!(is_second(600), "that is known by now");
    breaks("INV-36", and(begun("Forbid"), vec![("cronjob", START, "Job", started("y", 60))]));
    breaks("INV-36", and(begun("Replace"), vec![("cronjob", START, "Job", started("y", 60))]));
    let replaced = vec![("cronjob", START, "Job x", Value::Null), ("cronjob", START, "Job", started("y", 60))];
    keeps(and(begun("Replace"), replaced));
    // One that is still going has been replaced, and is not over.
    let beside =
        || vec![("world", START, "Job", deleting(started("x", 0))), ("cronjob", START, "Job", started("y", 60))];
    keeps(and(begun("Replace"), beside()));
    breaks("INV-36", and(begun("Forbid"), beside()));
    breaks("INV-39", and(begun("Forbid"), vec![("cronjob", START, "Job x", Value::Null)]));
}

#[test]
fn inv_38_cron_job_status_is_truthful() {
    let with_status = |status: Value| ("cronjob", START, "CronJob", cron_job("Allow", status));
    let last = |seconds| with_status(json!({"lastScheduleTime": at(seconds)}));
    breaks("INV-38", vec![last(60), last(0)]);
    let by_hand = ("world", START, "CronJob", cron_job("Allow", json!({"lastScheduleTime": at(0)})));
    keeps(vec![last(60), by_hand.clone(), last(60)]);
    breaks("INV-38", vec![by_hand, last(60), last(0)]);
    breaks("INV-38", vec![last(0), with_status(json!({"lastScheduleTime": at(0), "lastSuccessfulTime": at(5)}))]);
    let rest = vec![last(0), ("cronjob", START, "Job", started("x", 0))];
    assert_eq!(invariants(&judge(&History::of(&rest), Tolerance::default())), ["INV-38"]);
}

/// With `Orphan` the Jobs of a CronJob are let go before it is gone.
#[test]
fn inv_38_a_job_may_be_listed_by_a_cronjob_that_does_not_know_that_it_lost_it() {
    let status = |last: i64| json!({"lastScheduleTime": at(last), "active": [{"uid": "x"}]});
    let let_go = |name: &'static str| with(started(name, 0), "/metadata/ownerReferences", json!([]));
    let begun = vec![
        ("world", START, "CronJob", cron_job("Allow", json!({}))),
        ("cronjob", START, "Job", started("x", 0)),
        ("cronjob", START, "CronJob", cron_job("Allow", status(0))),
        ("gc", START, "Job", let_go("x")),
    ];
    let edited = with(cron_job("Allow", status(0)), "/spec/concurrencyPolicy", json!("Forbid"));
    keeps(and(begun.clone(), vec![("world", START + 100, "CronJob", edited)]));
    let listed_again = |seconds| ("cronjob", START + seconds, "CronJob", cron_job("Allow", status(60)));
    keeps(and(begun.clone(), vec![listed_again(1)]));
    breaks("INV-38", and(begun, vec![listed_again(100)]));
    let never_its_own = vec![
        ("world", START, "CronJob", cron_job("Allow", json!({}))),
        ("world", START, "Job", let_go("x")),
        ("cronjob", START, "CronJob", cron_job("Allow", status(0))),
    ];
    breaks("INV-38", never_its_own);
}

/// However lately it was let go: the version that a deletion is bound to tells.
#[test]
fn inv_39_a_job_that_was_let_go_is_not_deleted() {
    let begun =
        vec![("world", START, "CronJob", cron_job("Replace", json!({}))), ("cronjob", START, "Job", started("x", 0))];
    let deleted = vec![("cronjob", START, "Job x", Value::Null)];
    let let_go = vec![("gc", START, "Job", with(started("x", 0), "/metadata/ownerReferences", json!([])))];
    keeps(and(begun.clone(), deleted.clone()));
    breaks("INV-39", and(and(begun, let_go), deleted));
}

/// The oldest go first, down to the limit and no further.
#[test]
fn inv_39_history_is_exact() {
    let limited = |limit: u32| {
        let mut cron_job = cron_job("Allow", json!({}));
        cron_job["spec"]["successfulJobsHistoryLimit"] = json!(limit);
        ("world", START, "CronJob", cron_job)
    };
    let finished = |name: &'static str, minute: i64| {
        let done = completed().pop().unwrap().3;
        let job = with(started(name, minute), "/status", done["status"].clone());
        ("world", START, "Job", without_counts(with(job, "/status/startTime", json!(at(-minute)))))
    };
    let begun = |limit| vec![limited(limit), finished("x", 3), finished("y", 2), finished("z", 1)];
    let deleted = |name: &'static str| ("cronjob", START, name, Value::Null);
    keeps(and(begun(2), vec![deleted("Job x")]));
    breaks("INV-39", and(begun(2), vec![deleted("Job y")]));
    breaks("INV-39", and(begun(2), vec![deleted("Job x"), deleted("Job y")]));
    breaks("INV-39", and(begun(3), vec![deleted("Job x")]));
    keeps(and(begun(3), vec![limited(2), deleted("Job x")]));
    // One that somebody else took away may still have been among the newer ones.
    let taken = |seconds| {
        let taken = ("world", START, "Job z", Value::Null);
        let steps = and(begun(2), vec![taken, ("cronjob", START + seconds, "Job x", Value::Null)]);
        !invariants(&judged(&steps)).contains(&"INV-39")
    };
    assert!(taken(1) && !taken(600));
    let rests = |steps: Steps| invariants(&judge(&History::of(&steps), Tolerance::default()));
    assert_eq!(rests(begun(3)), [""; 0]);
    assert_eq!(rests(begun(2)), ["INV-39"]);
}
