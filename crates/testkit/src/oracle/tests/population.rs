//! How many pods there are (INV-17…INV-28).

use super::*;

#[test]
fn inv_17_never_above_the_wanted_number() {
    breaks("INV-17", and(begun(), vec![("job", START, "Pod", pod("r", "Pending"))]));
    // A success leaves less to do.
    let one_done = || and(begun(), vec![("world", START, "Pod", pod("p", "Succeeded"))]);
    breaks("INV-17", and(one_done(), vec![("job", START, "Pod", pod("r", "Pending"))]));
    // A terminating pod may be replaced, unless the policy says otherwise.
    let deleted = || ("world", START, "Pod", deleting(pod("p", "Running")));
    keeps(and(begun(), vec![deleted(), ("job", START, "Pod", pod("r", "Pending"))]));
    // One that succeeds although it is being deleted leaves less to do as soon as it can be known.
    let late = || and(begun(), vec![deleted(), ("world", START, "Pod", deleting(pod("p", "Succeeded")))]);
    keeps(and(late(), vec![("job", START + 1, "Pod", pod("r", "Pending"))]));
    breaks("INV-17", and(late(), vec![("job", START + 600, "Pod", pod("r", "Pending"))]));
    // One that was let go as surplus, and succeeds then, was not waited for.
    let surplus = |pod: Value| with(deleting(pod), "/metadata/annotations", json!({"tally.dev/surplus": "true"}));
    let let_go = and(
        begun(),
        vec![
            ("job", START, "Pod", surplus(pod("p", "Running"))),
            ("job", START, "Pod", surplus(untracked("p", "Running"))),
            ("world", START, "Pod", surplus(untracked("p", "Succeeded"))),
        ],
    );
    let replaced = judged(&and(let_go, vec![("job", START + 600, "Pod", pod("r", "Pending"))]));
    assert!(!invariants(&replaced).contains(&"INV-17"), "{:#?}", replaced.violations);
    let only_failed = ("world", START, "Job", job(json!({"podReplacementPolicy": "Failed"}), json!({})));
    breaks("INV-18", and(begun(), vec![only_failed, deleted(), ("job", START, "Pod", pod("r", "Pending"))]));
    let rests = |spec: Value, status: Value| {
        let steps = and(begun(), vec![("world", START, "Job", job(spec, status))]);
        invariants(&judge(&History::of(&steps), Tolerance::default()))
    };
    assert!(rests(json!({"parallelism": 1}), json!({"active": 2})).contains(&"INV-17"), "the surplus stays");
    let queue = |parallelism: u32| json!({"parallelism": parallelism, "completions": null});
    assert_eq!(rests(queue(2), json!({"active": 2})), [""; 0]);
    assert!(rests(queue(1), json!({"active": 2})).contains(&"INV-17"), "of a work queue too");
    let suspended = json!({"parallelism": 2, "completions": null, "suspend": true});
    assert!(rests(suspended, json!({"active": 2})).contains(&"INV-17"), "a suspended one wants none");
}

#[test]
fn inv_19_indexes_are_unique() {
    let begun =
        || vec![("world", START, "Job", indexed(json!({}))), ("job", START, "Pod", of_index("p", "Running", 0))];
    breaks("INV-19", and(begun(), vec![("job", START, "Pod", of_index("q", "Pending", 0))]));
    breaks("INV-19", and(begun(), vec![("job", START, "Pod", of_index("q", "Pending", 2))]));
    keeps(and(begun(), vec![("job", START, "Pod", of_index("q", "Pending", 1))]));
    let done = |status: Value| {
        and(
            begun(),
            vec![("world", START, "Pod", of_index("p", "Succeeded", 0)), ("job", START, "Job", indexed(status))],
        )
    };
    keeps(done(json!({"succeeded": 1, "completedIndexes": "0"})));
    breaks("INV-19", done(json!({"succeeded": 2, "completedIndexes": "0"})));
    breaks("INV-19", done(json!({"succeeded": 1, "completedIndexes": "0,0"})));
    breaks("INV-19", done(json!({"succeeded": 1, "completedIndexes": "0", "failedIndexes": "0"})));
    breaks("INV-1", done(json!({"succeeded": 2, "completedIndexes": "0,1"})));
    let again = ("job", START, "Pod", of_index("q", "Pending", 0));
    breaks("INV-19", and(done(json!({"succeeded": 1, "completedIndexes": "0"})), vec![again]));
    breaks("INV-19", and(begun(), vec![("job", START, "Pod", pod("q", "Pending"))]));
}

/// An index is not run again because its success is not on record yet.
#[test]
fn inv_19_a_success_is_waited_for() {
    let again = |pods: Steps, seconds| {
        let begun =
            vec![("world", START, "Job", indexed(json!({}))), ("job", START, "Pod", of_index("p", "Running", 0))];
        let made = ("job", START + seconds, "Pod", of_index("q", "Pending", 0));
        !invariants(&judged(&and(and(begun, pods), vec![made]))).contains(&"INV-19")
    };
    let succeeded = || of_index("p", "Succeeded", 0);
    assert!(!again(vec![("world", START, "Pod", succeeded())], 1));
    // One that was being deleted could be replaced, and has succeeded all the same.
    let late = || {
        vec![
            ("world", START, "Pod", deleting(of_index("p", "Running", 0))),
            ("world", START, "Pod", deleting(succeeded())),
        ]
    };
    assert!(again(late(), 1) && !again(late(), 60));
}

#[test]
fn inv_20_an_index_stays() {
    let begun =
        || vec![("world", START, "Job", indexed(json!({}))), ("job", START, "Pod", of_index("p", "Running", 0))];
    breaks("INV-20", and(begun(), vec![("job", START, "Pod", of_index("p", "Running", 1))]));
}

#[test]
fn inv_21_no_creation_while_forbidden() {
    let edit = |spec: Value| ("world", START, "Job", job(spec, json!({})));
    let one = || {
        and(begun(), vec![("world", START, "Pod", untracked("q", "Pending")), ("world", START, "Pod q", Value::Null)])
    };
    let made_at = |seconds| ("job", START + seconds, "Pod", pod("r", "Pending"));
    breaks("INV-21", and(one(), vec![edit(json!({"suspend": true})), made_at(10)]));
    keeps(and(one(), vec![edit(json!({"suspend": true})), made_at(1)]));
    let deleted = ("world", START, "Job", deleting(job(json!({}), json!({}))));
    breaks("INV-21", and(one(), vec![deleted, made_at(10)]));
    let failed = |seconds| {
        let end = json!([{"name": "main", "state": {"terminated": {"exitCode": 1, "finishedAt": at(seconds)}}}]);
        ("world", START + seconds, "Pod", with(pod("q", "Failed"), "/status/containerStatuses", end))
    };
    breaks("INV-21", and(begun(), vec![failed(0), made_at(5)]));
    keeps(and(begun(), vec![failed(0), made_at(10)]));
    // A success ends the delay, also one that is so young that nobody need know of it.
    let succeeded = |seconds| {
        let end = json!([{"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": at(seconds)}}}]);
        ("world", START + seconds, "Pod", with(pod("p", "Succeeded"), "/status/containerStatuses", end))
    };
    keeps(and(begun(), vec![failed(0), succeeded(4), made_at(5)]));
    // Where indexes have limits of their own, so they have delays (JC-1107).
    let made = |index: u32, seconds| {
        let per_index = json!({"completionMode": "Indexed", "backoffLimitPerIndex": 3});
        let end = json!([{"name": "main", "state": {"terminated": {"exitCode": 1, "finishedAt": at(0)}}}]);
        let steps = vec![
            ("world", START, "Job", job(per_index, json!({}))),
            ("world", START, "Pod", with(of_index("p", "Failed", 0), "/status/containerStatuses", end)),
            ("job", START + seconds, "Pod", of_index("q", "Pending", index)),
        ];
        !invariants(&judged(&steps)).contains(&"INV-21")
    };
    assert!(!made(0, 5) && made(0, 10) && made(1, 5));
}

/// A call that lands late is nobody's fault, for the Job that it writes to, and from then on.
#[test]
fn late_calls_excuse_their_own_job() {
    let other = |status: Value| {
        let job = with(job(json!({}), status), "/metadata/uid", json!("other"));
        ("job", START + 6, "Job", with(job, "/metadata/name", json!("b")))
    };
    let of_other = |name: &str| with(pod(name, "Pending"), "/metadata/ownerReferences/0/uid", json!("other"));
    let found = |made: Value, late: u64| {
        let verdict = json!({"conditions": [condition("SuccessCriteriaMet", "CompletionsReached")]});
        let steps = and(completed(), vec![other(json!({})), other(verdict), ("job", START + 7, "Pod", made)]);
        let last = steps.len() as u64;
        let calls = vec![call(0, "POST pods", Some(Fault::LateAfterRestart)), call(1, "POST pods", None)];
        let writes = (1..=last).map(|revision| (revision, usize::from(revision != last + late - 1))).collect();
        let history = History { calls, writes, ..History::of(&steps) };
        let tolerance = Tolerance { settled: false, late_landings: true, ..Tolerance::default() };
        invariants(&judge(&history, tolerance)).contains(&"INV-11")
    };
    assert!(!found(of_other("r"), 1), "it landed late");
    assert!(!found(of_other("r"), 0), "its Job was written to late");
    assert!(found(pod("r", "Pending"), 0), "another Job was");
}

#[test]
fn inv_23_deletion_is_exact() {
    let surplus = |pod: Value| with(pod, "/metadata/annotations", json!({"tally.dev/surplus": "true"}));
    breaks("INV-23", and(begun(), vec![("job", START, "Pod", surplus(pod("p", "Running")))]));
    breaks("INV-23", and(begun(), vec![("job", START, "Pod", deleting(pod("p", "Running")))]));
    let suspended = ("world", START, "Job", job(json!({"suspend": true}), json!({})));
    keeps(and(begun(), vec![suspended.clone(), ("job", START, "Pod", surplus(pod("p", "Running")))]));
    // What has ended needs no removal, whatever became of its Job.
    let ended = |by_us: Value, seconds| {
        let end = ("world", START, "Pod", pod("p", "Failed"));
        let steps = vec![end, suspended.clone(), ("job", START + seconds, "Pod", by_us)];
        !invariants(&judged(&and(begun(), steps))).contains(&"INV-23")
    };
    assert!(!ended(deleting(pod("p", "Failed")), 60) && ended(deleting(pod("p", "Failed")), 1));
    assert!(!ended(surplus(pod("p", "Failed")), 60));
    // Deleted in expectation of a verdict: the one that comes must be the one that deletes, and no old suspension excuses it.
    let removed = |spec: Value, seconds, status: Value| {
        let resumed = ("world", START + 1, "Job", job(json!({}), json!({})));
        let deleted = ("job", START + seconds, "Pod", deleting(pod("p", "Running")));
        let steps = vec![suspended.clone(), resumed, deleted, ("job", START + seconds, "Job", job(spec, status))];
        !invariants(&judged(&and(begun(), steps))).contains(&"INV-23")
    };
    let verdict = |kind: &str| json!({"conditions": [condition(kind, "DeadlineExceeded")]});
    assert!(removed(json!({}), 60, verdict("FailureTarget")) && !removed(json!({}), 60, verdict("SuccessCriteriaMet")));
    assert!(!removed(json!({}), 60, json!({})) && removed(json!({}), 1, json!({})));
    let succeeded = json!({"conditions": [condition("SuccessCriteriaMet", "CompletionsReached")]});
    let decided =
        vec![("job", START, "Job", job(json!({}), succeeded)), ("job", START, "Pod", surplus(pod("p", "Running")))];
    let found = invariants(&judged(&and(begun(), decided)));
    assert!(!found.contains(&"INV-23"), "the Job has succeeded without it: {found:?}");
    // Of a Job that may succeed without the pod: it has to.
    let rules = json!({"rules": [{"succeededCount": 1}]});
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "successPolicy": rules});
    let removed = |met: Value| {
        vec![
            ("world", START, "Job", job(spec.clone(), json!({}))),
            ("job", START, "Pod", of_index("p", "Running", 0)),
            ("job", START + 5, "Pod", surplus(of_index("p", "Running", 0))),
            ("job", START + 5, "Job", job(spec.clone(), met)),
        ]
    };
    let met = json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"}]});
    let found = invariants(&judge(&History::of(&removed(met)), Tolerance::default())).contains(&"INV-23");
    assert!(!found, "removed because the Job has succeeded");
    let failed = json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}]});
    let found = invariants(&judge(&History::of(&removed(failed)), Tolerance::default())).contains(&"INV-23");
    assert!(!found, "it was about to succeed when it failed");
    breaks("INV-23", removed(json!({})));
}

#[test]
fn inv_23_nobody_lives_on_untracked() {
    let rests = |by: &'static str, state: fn(Value) -> Value| {
        let steps = and(begun(), vec![(by, START, "Pod", state(untracked("p", "Running")))]);
        let found = judge(&History::of(&steps), Tolerance::default()).violations;
        found.iter().any(|one| one.invariant == "INV-23" && one.what.contains("tracks"))
    };
    assert!(rests("job", |pod| pod));
    assert!(!rests("job", deleting), "it goes");
    assert!(!rests("world", |pod| pod), "a user wanted it so");
}

#[test]
fn inv_28_status_is_truthful() {
    breaks("INV-28", and(begun(), vec![status(json!({"active": 1, "ready": 2}))]));
    let rests = |pods: Steps, said: Value| {
        let steps = and(and(begun(), pods), vec![status(said)]);
        invariants(&judge(&History::of(&steps), Tolerance::default())).contains(&"INV-28")
    };
    assert!(rests(vec![], json!({"active": 1})) && !rests(vec![], json!({"active": 2})));
    let ready = || {
        let ready = with(pod("p", "Running"), "/status/conditions", json!([condition("Ready", "")]));
        vec![("world", START, "Pod", ready)]
    };
    assert!(rests(ready(), json!({"active": 2})) && !rests(ready(), json!({"active": 2, "ready": 1})));
    let going = || vec![("world", START, "Pod", deleting(pod("p", "Running")))];
    assert!(rests(going(), json!({"active": 1})) && !rests(going(), json!({"active": 1, "terminating": 1})));
}
