//! Verdicts (INV-7…INV-12).

use super::*;

#[test]
fn inv_7_terminal_is_for_ever() {
    let done = |conditions: Value| {
        status(json!({"startTime": at(0), "completionTime": at(5), "succeeded": 2,
        "conditions": conditions}))
    };
    let (met, complete) =
        (condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached"));
    breaks("INV-7", and(completed(), vec![done(json!([met]))]));
    breaks("INV-7", and(completed(), vec![done(json!([met, complete, complete]))]));
    let failed = condition("Failed", "BackoffLimitExceeded");
    breaks("INV-7", and(completed(), vec![done(json!([met, complete, failed]))]));
    breaks("INV-8", and(completed(), vec![done(json!([complete]))]));
}

#[test]
fn inv_8_interim_before_terminal() {
    let failed = json!({"startTime": at(0), "conditions": [condition("Failed", "DeadlineExceeded")]});
    breaks("INV-8", and(begun(), vec![status(failed)]));
    let other = json!({"startTime": at(0), "conditions": [condition("FailureTarget", "BackoffLimitExceeded"),
        condition("Failed", "DeadlineExceeded")]});
    breaks("INV-8", and(begun(), vec![status(other)]));
    let both = json!({"startTime": at(0), "conditions": [condition("FailureTarget", "DeadlineExceeded"),
        condition("Failed", "DeadlineExceeded")]});
    breaks("INV-8", and(begun(), vec![status(both)]));
}

/// The end has the reason and the message of the interim condition, and neither changes.
#[test]
fn inv_8_a_verdict_stands() {
    let told = |kind: &str, reason: &str, message: &str| with(condition(kind, reason), "/message", json!(message));
    let ends = |first: Value, then: Value| {
        let write = |conditions: Value| {
            let status = json!({"startTime": at(0), "conditions": conditions});
            ("job", START + 60, "Job", job(json!({"activeDeadlineSeconds": 9}), status))
        };
        let gone = vec![("world", START, "Pod p", Value::Null), ("world", START, "Pod q", Value::Null)];
        let steps = and(and(begun(), gone), vec![write(json!([first])), write(then)]);
        invariants(&judged(&steps)).contains(&"INV-8")
    };
    let target = |reason: &str, message: &str| told("FailureTarget", reason, message);
    let failed = |reason: &str, message: &str| told("Failed", reason, message);
    let first = || target("DeadlineExceeded", "too long");
    assert!(!ends(first(), json!([first(), failed("DeadlineExceeded", "too long")])));
    assert!(ends(first(), json!([first(), failed("DeadlineExceeded", "whatever")])), "another message");
    assert!(ends(first(), json!([first(), failed("BackoffLimitExceeded", "too long")])), "another reason");
    assert!(ends(first(), json!([target("BackoffLimitExceeded", "too long")])), "judged anew");
    assert!(ends(first(), json!([target("DeadlineExceeded", "still too long")])), "told anew");
}

#[test]
fn inv_9_terminal_means_quiet() {
    let conditions = json!([condition("FailureTarget", "x"), condition("Failed", "x")]);
    let failed = |fields: Value| {
        let mut full = json!({"startTime": at(0), "conditions": conditions});
        full.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        status(full)
    };
    breaks("INV-9", and(begun(), vec![failed(json!({}))]));
    let gone = || and(begun(), vec![("world", START, "Pod p", Value::Null), ("world", START, "Pod q", Value::Null)]);
    let quiet = |steps: Steps| !invariants(&judged(&steps)).contains(&"INV-9");
    assert!(quiet(and(gone(), vec![failed(json!({}))])));
    for loud in
        [json!({"active": 1}), json!({"terminating": 1}), json!({"completionTime": at(1)}), json!({"startTime": null})]
    {
        breaks("INV-9", and(gone(), vec![failed(loud)]));
    }
    let moved = json!({"startTime": at(0), "completionTime": at(9), "succeeded": 2, "conditions": [
        condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached")]});
    breaks("INV-9", and(completed(), vec![status(moved)]));
    let stray = |pod: Value| with(pod, "/metadata/ownerReferences", json!([]));
    let adopts = |phase: &str| {
        let found = ("world", START + 9, "Pod", stray(untracked("r", phase)));
        let steps = and(completed(), vec![found, ("job", START + 9, "Pod", pod("r", phase))]);
        invariants(&judged(&steps)).contains(&"INV-9")
    };
    assert!(adopts("Running") && !adopts("Failed"));
}

#[test]
fn inv_10_verdicts_have_reasons() {
    let verdict =
        |kind: &str, reason: &str| status(json!({"startTime": at(0), "conditions": [condition(kind, reason)]}));
    for reason in ["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes", "Whim"] {
        breaks("INV-10", and(begun(), vec![verdict("FailureTarget", reason)]));
    }
    for reason in ["CompletionsReached", "SuccessPolicy"] {
        breaks("INV-10", and(begun(), vec![verdict("SuccessCriteriaMet", reason)]));
    }
}

/// What fails because of a verdict is no reason for it.
#[test]
fn inv_10_a_back_off_limit_is_exceeded_by_what_failed_before() {
    let exceeded = |first: fn(&'static str) -> Value| {
        let spec = json!({"backoffLimit": 0});
        let verdict = json!({"startTime": at(0), "uncountedTerminatedPods": uncounted(&[], &["p", "q"]),
            "conditions": [condition("FailureTarget", "BackoffLimitExceeded")]});
        let steps = vec![
            ("world", START, "Pod", first("p")),
            ("job", START, "Pod", deleting(pod("q", "Running"))),
            ("job", START, "Job", job(spec, verdict)),
        ];
        !invariants(&judged(&and(begun(), steps))).contains(&"INV-10")
    };
    assert!(exceeded(|name| pod(name, "Failed")));
    assert!(exceeded(|name| deleting(pod(name, "Running"))), "deleted by a user");
    assert!(!exceeded(|name| pod(name, "Running")));
}

/// A work queue is done when one of its pods has succeeded and none works any more (JC-1004).
#[test]
fn inv_10_a_work_queue_waits_for_its_workers() {
    let done = |seconds, other: Value| {
        let spec = || json!({"completions": null});
        let met = json!({"startTime": at(0), "uncountedTerminatedPods": uncounted(&["p"], &[]),
            "conditions": [condition("SuccessCriteriaMet", "CompletionsReached")]});
        let steps = vec![
            ("world", START, "Job", job(spec(), json!({}))),
            ("world", START, "Pod", pod("p", "Succeeded")),
            ("world", START, "Pod", other),
            ("job", START + seconds, "Job", job(spec(), met)),
        ];
        !invariants(&judged(&and(begun(), steps))).contains(&"INV-10")
    };
    assert!(done(60, pod("q", "Failed")) && done(60, deleting(pod("q", "Running"))));
    assert!(!done(60, pod("q", "Running")));
    assert!(done(1, pod("q", "Running")), "it may not be known that there is one");
}

#[test]
fn inv_10_deadlines_go_by_the_clock_as_it_is_set() {
    let met = |clock_jumps: Vec<(Timestamp, SignedDuration)>| {
        let status = json!({"startTime": at(0), "conditions": [condition("FailureTarget", "DeadlineExceeded")]});
        let steps = [("job", START + 10, "Job", job(json!({"activeDeadlineSeconds": 60}), status))];
        let tolerance = Tolerance { settled: false, ..Tolerance::default() };
        invariants(&judge(&History { clock_jumps, ..History::of(&steps) }, tolerance))
    };
    let start = Timestamp::from_second(START).unwrap();
    assert_eq!(met(vec![]), ["INV-10"]);
    assert_eq!(met(vec![(start, SignedDuration::from_secs(50))]), [""; 0]);
}

/// Restarts in place count while their pods live, and all at one moment; a controller may be a moment behind (JC-903).
#[test]
fn inv_10_restarts_in_place_are_those_of_one_moment() {
    const LATER: i64 = 600;
    let spec = |limit: u64| json!({"backoffLimit": limit, "template": {"spec": {"restartPolicy": "OnFailure"}}});
    let restarted = |name: &str, phase: &str, restarts: u64| {
        let containers = json!([{"name": "main", "restartCount": restarts}]);
        ("world", START + 1, "Pod", with(pod(name, phase), "/status/containerStatuses", containers))
    };
    let is_right = |limit: u64, steps: Steps, seconds: i64| {
        let verdict = json!({"startTime": at(0), "conditions": [condition("FailureTarget", "BackoffLimitExceeded")]});
        let begun = vec![("world", START, "Job", job(spec(limit), json!({"startTime": at(0)})))];
        let verdict = vec![("job", START + 1 + seconds, "Job", job(spec(limit), verdict))];
        !invariants(&judged(&and(begun, and(steps, verdict)))).contains(&"INV-10")
    };
    let running = |p, q| vec![restarted("p", "Running", p), restarted("q", "Running", q)];
    assert!(is_right(2, running(1, 1), LATER) && !is_right(3, running(1, 1), LATER));
    assert!(is_right(0, running(1, 0), LATER) && !is_right(0, running(0, 0), LATER));

    let init = json!([{"name": "init", "restartCount": 2}]);
    let init = vec![("world", START, "Pod", with(pod("p", "Pending"), "/status/initContainerStatuses", init))];
    assert!(is_right(2, init.clone(), LATER) && !is_right(3, init, LATER));

    // An old report that overtakes a newer one, an end, and a removal are known soon.
    let gone = || vec![restarted("p", "Succeeded", 2), ("world", START + 1, "Pod p", Value::Null)];
    for news in [vec![restarted("p", "Running", 0)], vec![restarted("p", "Succeeded", 2)], gone()] {
        let steps = and(running(2, 0), news);
        assert!(is_right(2, steps.clone(), 1) && !is_right(2, steps.clone(), LATER) && !is_right(3, steps, 1));
    }
    // Once pods were ended for it, what they did before stands.
    let containers = json!([{"name": "main", "restartCount": 2}]);
    let ended = with(deleting(pod("p", "Running")), "/status/containerStatuses", containers);
    let steps = and(running(2, 0), vec![("job", START + 1, "Pod", ended), restarted("p", "Succeeded", 2)]);
    assert!(is_right(2, steps.clone(), LATER) && !is_right(3, steps, LATER));
    // Two that never ran at the same time do not add up.
    let in_turn = vec![restarted("p", "Running", 1), restarted("p", "Succeeded", 1), restarted("q", "Running", 1)];
    assert!(is_right(1, in_turn.clone(), 1) && !is_right(2, in_turn, 1));
}

#[test]
fn inv_11_nothing_after_the_verdict() {
    breaks("INV-11", and(completed(), vec![("job", START + 9, "Pod", pod("r", "Pending"))]));
}

#[test]
fn inv_12_announced_once_and_not_too_early() {
    let told = |revision| Announcement { life: 0, reason: "Completed".to_owned(), uid: "j".to_owned(), revision };
    let judged = |announcements: Vec<Announcement>| {
        let history = History { announcements, ..History::of(&completed()) };
        invariants(&judge(&history, Tolerance::default()))
    };
    assert_eq!(judged(vec![told(10)]), [""; 0]);
    assert_eq!(judged(vec![told(9)]), ["INV-12"]);
    assert_eq!(judged(vec![told(10), told(10)]), ["INV-12"]);
    let in_another_life = Announcement { life: 1, ..told(10) };
    assert_eq!(judged(vec![told(10), in_another_life]), [""; 0]);
    let another = Announcement { reason: "DeadlineExceeded".to_owned(), ..told(10) };
    assert_eq!(judged(vec![another]), ["INV-12"], "that was not the end");
}
