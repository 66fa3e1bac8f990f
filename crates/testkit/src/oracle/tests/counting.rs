//! Counting (INV-1…INV-6).

use super::*;

#[test]
fn inv_1_counts_are_exact() {
    let ended = || and(begun(), vec![("world", START, "Pod", pod("p", "Succeeded"))]);
    breaks("INV-1", and(ended(), vec![status(json!({"succeeded": 1}))]));
    breaks("INV-1", and(ended(), vec![status(json!({"uncountedTerminatedPods": uncounted(&[], &["p"])}))]));
    breaks("INV-1", and(begun(), vec![status(json!({"uncountedTerminatedPods": uncounted(&["p"], &[])}))]));
    breaks("INV-1", and(begun(), vec![status(json!({"uncountedTerminatedPods": uncounted(&["nobody"], &[])}))]));
    let listed = || and(ended(), vec![status(json!({"uncountedTerminatedPods": uncounted(&["p"], &[])}))]);
    breaks("INV-1", and(listed(), vec![status(json!({"succeeded": 1}))]));
    let released = || and(listed(), vec![("job", START, "Pod", untracked("p", "Succeeded"))]);
    keeps(and(released(), vec![status(json!({"succeeded": 1}))]));
    breaks("INV-1", and(released(), vec![status(json!({"succeeded": 2}))]));
    let counted = || and(released(), vec![status(json!({"succeeded": 1}))]);
    let again = json!({"succeeded": 1, "uncountedTerminatedPods": uncounted(&["p"], &[])});
    breaks("INV-1", and(counted(), vec![status(again)]));
}

/// What succeeds has not failed, unless it was being deleted before, and that so lately that its end may be unknown; where
/// pods are replaced only when they have failed, they count as failed only then (JC-801).
#[test]
fn inv_1_what_is_listed_as_failed_has_failed() {
    let listed = |spec: Value, pods: Steps, seconds| {
        let status = json!({"uncountedTerminatedPods": uncounted(&[], &["p"])});
        let begun = and(begun(), vec![("world", START, "Job", job(spec.clone(), json!({})))]);
        let steps = and(and(begun, pods), vec![("job", START + seconds, "Job", job(spec, status))]);
        !invariants(&judged(&steps)).contains(&"INV-1")
    };
    let at_once = |pod: Value| ("world", START, "Pod", pod);
    let running = || vec![at_once(deleting(pod("p", "Running")))];
    let succeeded = || and(running(), vec![at_once(deleting(pod("p", "Succeeded")))]);
    assert!(listed(json!({}), running(), 60));
    assert!(listed(json!({}), succeeded(), 1) && !listed(json!({}), succeeded(), 60));
    let deleted_later =
        || vec![at_once(pod("p", "Succeeded")), ("world", START + 1, "Pod", deleting(pod("p", "Succeeded")))];
    assert!(!listed(json!({}), deleted_later(), 1));
    let only_failed = || json!({"podReplacementPolicy": "Failed"});
    assert!(!listed(only_failed(), running(), 60));
    // Without the gate of that policy it is as of others.
    let begun = and(begun(), vec![("world", START, "Job", job(only_failed(), json!({})))]);
    let status = json!({"uncountedTerminatedPods": uncounted(&[], &["p"])});
    let steps = and(and(begun, running()), vec![("job", START + 60, "Job", job(only_failed(), status))]);
    let ungated = Tolerance { settled: false, replacement_policy: false, ..Tolerance::default() };
    assert!(!invariants(&judge(&History::of(&steps), ungated)).contains(&"INV-1"));
    assert!(listed(only_failed(), vec![at_once(deleting(pod("p", "Failed")))], 60));
}

/// An index fails when more of its pods have failed than may, or by a rule (JC-1502).
#[test]
fn inv_19_an_index_fails_in_time() {
    let limited = |failed: &str| {
        let rules = json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}}]});
        let spec = json!({"completionMode": "Indexed", "backoffLimitPerIndex": 1, "podFailurePolicy": rules});
        job(spec, json!({"failedIndexes": failed}))
    };
    let exited = |name: &str, code: i32| {
        let containers = json!([{"name": "main", "state": {"terminated": {"exitCode": code}}}]);
        ("world", START, "Pod", with(of_index(name, "Failed", 0), "/status/containerStatuses", containers))
    };
    let fails = |pods: Steps| {
        let begun = vec![("world", START, "Job", limited(""))];
        let steps = and(and(begun, pods), vec![("job", START, "Job", limited("0"))]);
        !invariants(&judged(&steps)).contains(&"INV-19")
    };
    assert!(!fails(vec![]) && !fails(vec![exited("p", 1)]));
    assert!(fails(vec![exited("p", 1), exited("q", 1)]) && fails(vec![exited("p", 3)]));
}

/// A surplus pod counts as nothing, unless its mark has just arrived and its sender has given it up. Where it was
/// written down who was told, that decides; elsewhere, whether calls land late. One that was deleted before may count.
#[test]
fn inv_1_what_is_surplus_does_not_count() {
    let surplus = |pod: Value| with(pod, "/metadata/annotations", json!({"tally.dev/surplus": "true"}));
    let counts_after = |first: Value, seconds, late_landings, unheard: Option<u64>| {
        let steps = vec![
            ("world", START, "Pod", first),
            ("job", START, "Pod", surplus(deleting(pod("p", "Running")))),
            ("job", START + seconds, "Job", job(json!({}), json!({"uncountedTerminatedPods": uncounted(&[], &["p"])}))),
        ];
        let tolerance = Tolerance { settled: false, late_landings, ..Tolerance::default() };
        let unheard = unheard.map(|revision| [revision].into());
        let history = History { unheard, ..History::of(&and(begun(), steps)) };
        !invariants(&judge(&history, tolerance)).contains(&"INV-1")
    };
    let counts = |seconds, late, unheard| counts_after(pod("p", "Running"), seconds, late, unheard);
    assert!(!counts(0, false, None) && counts(0, true, None) && !counts(600, true, None));
    let (other, mark) = (Some(5), Some(6));
    assert!(counts(0, true, mark) && !counts(0, true, other) && !counts(600, true, mark));
    assert!(counts_after(deleting(pod("p", "Running")), 600, false, None));
}

/// A rule ignores a failure because of a condition; one that comes after the end may not be known yet.
#[test]
fn inv_1_what_a_rule_ignores_does_not_count() {
    let rules =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]});
    let spec = json!({"podFailurePolicy": rules});
    let disrupted = |pod: Value| with(pod, "/status/conditions", json!([condition("DisruptionTarget", "Evicted")]));
    let listed = |before: Steps, seconds| {
        let lists = job(spec.clone(), json!({"uncountedTerminatedPods": uncounted(&[], &["p"])}));
        let steps = and(before, vec![("job", START + seconds, "Job", lists)]);
        invariants(&judged(&and(and(begun(), vec![("world", START, "Job", job(spec.clone(), json!({})))]), steps)))
    };
    let at_once = || vec![("world", START, "Pod", disrupted(pod("p", "Failed")))];
    let later = || and(vec![("world", START, "Pod", pod("p", "Failed"))], at_once());
    assert!(listed(at_once(), 0).contains(&"INV-1"));
    assert!(!listed(later(), 0).contains(&"INV-1"));
    assert!(listed(later(), 600).contains(&"INV-1"));
}

#[test]
fn inv_1_a_double_count_that_ends_in_the_right_number_is_found() {
    let ended = vec![
        ("world", START, "Pod", pod("p", "Succeeded")),
        ("world", START, "Pod", pod("q", "Succeeded")),
        status(json!({"uncountedTerminatedPods": uncounted(&["p"], &[])})),
        ("job", START, "Pod", untracked("p", "Succeeded")),
        status(json!({"succeeded": 1})),
        status(json!({"succeeded": 1, "uncountedTerminatedPods": uncounted(&["p"], &[])})),
        status(json!({"succeeded": 2})),
    ];
    breaks("INV-1", and(begun(), ended));
}

#[test]
fn inv_1_nothing_is_left_uncounted() {
    let lost = json!({"startTime": at(0), "completionTime": at(5), "succeeded": 2, "conditions": [
        condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached")]});
    let stripped_after = |seconds| {
        let mut steps = completed();
        steps.insert(4, ("job", START, "Pod", pod("r", "Pending")));
        steps.insert(5, ("world", START, "Pod", pod("r", "Failed")));
        steps.insert(6, ("world", START + seconds, "Pod", untracked("r", "Failed")));
        steps.pop();
        and(steps, vec![status(lost.clone())])
    };
    breaks("INV-1", stripped_after(4));
    // Its end may not have been seen.
    assert!(!invariants(&judged(&stripped_after(1))).contains(&"INV-1"));
}

#[test]
fn inv_2_the_first_verdict_on_a_pod_sticks() {
    let steps = vec![
        ("world", START, "Pod", deleting(pod("p", "Running"))),
        status(json!({"uncountedTerminatedPods": uncounted(&[], &["p"])})),
        ("world", START, "Pod", deleting(pod("p", "Succeeded"))),
        status(json!({"uncountedTerminatedPods": uncounted(&["p"], &[])})),
    ];
    breaks("INV-2", and(begun(), steps));
}

#[test]
fn inv_3_counters_only_grow() {
    breaks("INV-3", and(completed(), vec![status(json!({"succeeded": 1}))]));
    let failed = |failed: u32| ("job", START, "Job", job(json!({}), json!({"failed": failed})));
    breaks("INV-3", and(begun(), vec![failed(1), failed(0)]));
}

/// A smaller size takes indexes off the record: those beyond it, and not for ever.
#[test]
fn inv_3_and_19_an_index_stays_on_record() {
    let sized = |by: &'static str, seconds, completions: u32, done: &str, succeeded: u32| {
        let status = json!({"completedIndexes": done, "succeeded": succeeded});
        let spec = json!({"completionMode": "Indexed", "completions": completions, "parallelism": completions});
        (by, START + seconds, "Job", job(spec, status))
    };
    let done = || {
        vec![
            sized("world", 0, 3, "", 0),
            ("world", START, "Pod", of_index("p", "Succeeded", 0)),
            ("world", START, "Pod", of_index("q", "Succeeded", 2)),
            sized("job", 0, 3, "0,2", 2),
            sized("world", 0, 1, "0,2", 2),
        ]
    };
    keeps(and(done(), vec![sized("job", 0, 1, "0", 1)]));
    breaks("INV-19", and(done(), vec![sized("job", 0, 1, "2", 1)]));
    breaks("INV-3", and(done(), vec![sized("job", 0, 1, "0", 0)]));
    let grown = |seconds| {
        let steps = and(done(), vec![sized("world", 0, 3, "0,2", 2), sized("job", seconds, 3, "0", 1)]);
        invariants(&judged(&steps)).contains(&"INV-19")
    };
    assert!(!grown(1), "that it has grown again may not be known");
    assert!(grown(600), "a shrink of long ago excuses nothing");
    let failed = |indexes: &str| ("job", START, "Job", indexed(json!({"failedIndexes": indexes})));
    breaks("INV-19", vec![("world", START, "Job", indexed(json!({}))), failed("1"), failed("")]);
}

#[test]
fn inv_4_record_before_release() {
    breaks(
        "INV-4",
        and(
            begun(),
            vec![("world", START, "Pod", pod("p", "Succeeded")), ("job", START, "Pod", untracked("p", "Succeeded"))],
        ),
    );
    breaks("INV-4", and(begun(), vec![("job", START, "Pod", untracked("p", "Running"))]));
    // A surplus pod does not count, and a Job that goes counts no more.
    let surplus = |pod: Value| with(pod, "/metadata/annotations", json!({"tally.dev/surplus": "true"}));
    let smaller = || ("world", START, "Job", job(json!({"parallelism": 1}), json!({})));
    keeps(and(
        begun(),
        vec![
            smaller(),
            ("job", START, "Pod", surplus(pod("p", "Running"))),
            ("job", START, "Pod", surplus(deleting(pod("p", "Running")))),
            ("job", START, "Pod", deleting(untracked("p", "Running"))),
        ],
    ));
    // What is beyond the size of its Job does not count; that it has grown again may not be known yet.
    let grown = |seconds| {
        let sized = |completions: u32| job(json!({"completions": completions, "completionMode": "Indexed"}), json!({}));
        let steps = vec![
            ("world", START, "Job", sized(2)),
            ("world", START, "Pod", of_index("p", "Succeeded", 1)),
            ("world", START, "Job", sized(1)),
            ("world", START, "Job", sized(2)),
            ("job", START + seconds, "Pod", with(of_index("p", "Succeeded", 1), "/metadata/finalizers", json!([]))),
        ];
        invariants(&judged(&steps)).contains(&"INV-4")
    };
    assert!(!grown(1) && grown(600));
    // It counts if it succeeds before it is released, and so does a pod without which the Job has succeeded.
    breaks(
        "INV-4",
        and(
            begun(),
            vec![
                smaller(),
                ("job", START, "Pod", surplus(deleting(pod("p", "Running")))),
                ("world", START, "Pod", surplus(deleting(pod("p", "Succeeded")))),
                ("job", START, "Pod", deleting(untracked("p", "Succeeded"))),
            ],
        ),
    );
    let decided =
        |spec: Value, kind: &str| ("job", START, "Job", job(spec, json!({"conditions": [condition(kind, "Because")]})));
    let released = |phase: &'static str| {
        vec![
            decided(json!({}), "SuccessCriteriaMet"),
            ("world", START, "Pod", deleting(pod("p", phase))),
            ("job", START, "Pod", deleting(untracked("p", phase))),
        ]
    };
    let is_early = |steps: Steps| invariants(&judged(&and(begun(), steps))).contains(&"INV-4");
    assert!(!is_early(released("Running")));
    assert!(is_early(released("Succeeded")));
    // When a Job fails, live pods fail with it, but for those that a rule ignores.
    let ignoring = || {
        let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
        json!({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": disrupted}]}})
    };
    let disrupted = |pod: Value| with(pod, "/status/conditions", json!([condition("DisruptionTarget", "Evicted")]));
    let failing = |change: &dyn Fn(Value) -> Value| {
        vec![
            ("world", START, "Pod", change(pod("p", "Running"))),
            decided(ignoring(), "FailureTarget"),
            ("job", START, "Pod", change(untracked("p", "Running"))),
        ]
    };
    assert!(!is_early(failing(&disrupted)));
    assert!(is_early(failing(&|pod| pod)));
    keeps(and(
        begun(),
        vec![
            ("world", START, "Job", deleting(job(json!({}), json!({})))),
            ("job", START, "Pod", untracked("p", "Running")),
        ],
    ));
    // One whose labels a user has changed is let go, and then it is gone, because it was being deleted.
    let selecting = || ("world", START, "Job", job(json!({"selector": {"matchLabels": {"of": "a"}}}), json!({})));
    let labelled = |of: &str| with(deleting(pod("p", "Running")), "/metadata/labels", json!({"of": of}));
    let let_go =
        |of: &str| vec![selecting(), ("world", START, "Pod", labelled(of)), ("job", START, "Pod p", Value::Null)];
    keeps(and(begun(), let_go("nobody")));
    breaks("INV-4", and(begun(), let_go("a")));
    // The same of one that stays, and whose labels were others until a moment ago.
    let disowned = |of: &'static str, seconds| {
        let labelled = |pod: Value, of: &str| with(pod, "/metadata/labels", json!({"of": of}));
        let free = || with(untracked("p", "Succeeded"), "/metadata/ownerReferences", json!([]));
        let steps = vec![
            selecting(),
            ("world", START, "Pod", labelled(pod("p", "Succeeded"), of)),
            ("job", START + seconds, "Pod", labelled(free(), of)),
        ];
        !invariants(&judged(&and(begun(), steps))).contains(&"INV-4")
    };
    assert!(disowned("nobody", 60) && disowned("a", 1) && !disowned("a", 60));
}

#[test]
fn inv_5_lists_are_well_formed() {
    let ended = || and(begun(), vec![("world", START, "Pod", pod("p", "Failed"))]);
    for lists in [uncounted(&[], &["p", "p"]), uncounted(&["p"], &["p"]), uncounted(&[""], &[])] {
        breaks("INV-5", and(ended(), vec![status(json!({"uncountedTerminatedPods": lists}))]));
    }
    let finished = json!({"startTime": at(0), "uncountedTerminatedPods": uncounted(&[], &["p"]), "conditions": [
        condition("FailureTarget", "BackoffLimitExceeded"), condition("Failed", "BackoffLimitExceeded")]});
    breaks("INV-5", and(ended(), vec![status(finished)]));
    let capped = |uncounted_max| {
        let both = vec![("world", START, "Pod", pod("q", "Failed"))];
        let lists = status(json!({"uncountedTerminatedPods": uncounted(&[], &["p", "q"])}));
        let tolerance = Tolerance { settled: false, uncounted_max, ..Tolerance::default() };
        invariants(&judge(&History::of(&and(ended(), and(both, vec![lists]))), tolerance))
    };
    assert_eq!((capped(2), capped(1)), (vec![], vec!["INV-5"]));
}

#[test]
fn inv_6_what_is_counted_was_seen_being_counted() {
    breaks("INV-6", and(begun(), vec![status(json!({"failed": 1}))]));
}

#[test]
fn inv_6_every_pod_is_accounted_for() {
    let gone = |by: &'static str| (by, START, "Pod p", Value::Null);
    // What has the finalizer does not go; what a user takes it off is nobody's concern.
    for by in ["gc", "podgc", "node", "world"] {
        breaks("INV-6", and(begun(), vec![("world", START, "Pod", pod("p", "Succeeded")), gone(by)]));
    }
    let stripped = ("world", START, "Pod", untracked("p", "Running"));
    keeps(and(begun(), vec![stripped, ("world", START, "Pod", untracked("p", "Failed")), gone("world")]));
    keeps(and(begun(), vec![("world", START, "Pod", deleting(pod("p", "Failed"))), gone("world")]));
    let released = || {
        let surplus = |pod: Value| with(pod, "/metadata/annotations", json!({"tally.dev/surplus": "true"}));
        let smaller = ("world", START, "Job", job(json!({"parallelism": 1}), json!({})));
        let marked = ("job", START, "Pod", surplus(pod("p", "Running")));
        and(begun(), vec![smaller, marked, ("job", START, "Pod", surplus(untracked("p", "Running")))])
    };
    keeps(released());
    // What was let go without being counted stays so.
    let lists = job(json!({"parallelism": 1}), json!({"uncountedTerminatedPods": uncounted(&[], &["p"])}));
    breaks("INV-6", and(released(), vec![("job", START, "Job", lists)]));
    let listed = |status: Value| ("job", START, "Job", indexed(status));
    let index =
        || vec![("world", START, "Job", indexed(json!({}))), ("job", START, "Pod", of_index("p", "Succeeded", 0))];
    let free = || with(of_index("p", "Succeeded", 0), "/metadata/finalizers", json!([]));
    let recorded = listed(json!({"succeeded": 1, "completedIndexes": "0"}));
    keeps(and(index(), vec![recorded, ("job", START, "Pod", free()), ("world", START, "Pod p", Value::Null)]));
    breaks("INV-6", and(index(), vec![("job", START, "Pod", free())]));
}

/// An index that was counted, and that a smaller size has taken off, need not be on record again: the verdict came first.
#[test]
fn inv_1_what_was_counted_by_its_index_stays_counted() {
    let sized = |size: u32, status: Value| {
        job(json!({"completionMode": "Indexed", "completions": size, "parallelism": size}), status)
    };
    let met = || json!([condition("SuccessCriteriaMet", "CompletionsReached")]);
    let over =
        || json!([condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached")]);
    let free = |name: &str, index| with(of_index(name, "Succeeded", index), "/metadata/finalizers", json!([]));
    let history = |recorded: bool| {
        let first = json!({"succeeded": 1, "completedIndexes": "1", "startTime": at(0)});
        let one = |conditions: Value| json!({"succeeded": 1, "completedIndexes": "0", "startTime": at(0), "conditions": conditions});
        let mut steps = vec![
            ("world", START, "Job", sized(2, json!({"startTime": at(0)}))),
            ("job", START, "Pod", of_index("p", "Succeeded", 1)),
        ];
        if recorded {
            steps.extend([("job", START, "Job", sized(2, first)), ("job", START, "Pod", free("p", 1))]);
        }
        steps.extend([
            ("world", START, "Job", sized(1, json!({"startTime": at(0)}))),
            ("job", START, "Pod", of_index("q", "Succeeded", 0)),
            ("job", START, "Job", sized(1, one(met()))),
            ("job", START, "Pod", free("q", 0)),
            ("world", START, "Job", sized(2, one(met()))),
            ("job", START, "Job", sized(2, one(over()))),
        ]);
        judged(&steps)
    };
    let uncounted = |recorded| {
        let findings = history(recorded);
        findings.violations.into_iter().any(|violation| violation.what.contains("without counting"))
    };
    assert!(!uncounted(true));
    assert!(uncounted(false));
}
