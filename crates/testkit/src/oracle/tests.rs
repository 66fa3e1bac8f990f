//! Teeth: for every check a history, made by hand, that breaks the promise, beside one that keeps it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::faults::{Announcement, Call, Fault, Read};

type Steps = Vec<(&'static str, i64, &'static str, Value)>;

/// 2026-01-05T10:00:00Z, where worlds begin.
const START: i64 = 1_767_607_200;

fn at(seconds: i64) -> String {
    Timestamp::from_second(START + seconds).unwrap().to_string()
}

/// A Job `a` with the uid `j`.
fn job(spec: Value, status: Value) -> Value {
    let mut full = json!({"parallelism": 2, "completions": 2, "backoffLimit": 6});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": "a", "uid": "j"}, "spec": full, "status": status})
}

fn indexed(status: Value) -> Value {
    job(json!({"completionMode": "Indexed"}), status)
}

/// A tracked pod of the Job `j` whose uid is its name.
fn pod(name: &str, phase: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "uid": "j", "controller": true}]},
        "status": {"phase": phase}})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn untracked(name: &str, phase: &str) -> Value {
    with(pod(name, phase), "/metadata/finalizers", json!([]))
}

fn of_index(name: &str, phase: &str, index: u32) -> Value {
    with(
        pod(name, phase),
        "/metadata/annotations",
        json!({"batch.kubernetes.io/job-completion-index": index.to_string()}),
    )
}

fn deleting(object: Value) -> Value {
    with(object, "/metadata/deletionTimestamp", json!(at(0)))
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at(0)})
}

fn uncounted(succeeded: &[&str], failed: &[&str]) -> Value {
    json!({"succeeded": succeeded, "failed": failed})
}

fn invariants(findings: &Findings) -> Vec<&'static str> {
    let mut found: Vec<&str> = findings.violations.iter().map(|violation| violation.invariant).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Judges steps that do not have to come to rest.
fn judged(steps: &Steps) -> Findings {
    judge(&History::of(steps), Tolerance { settled: false, ..Tolerance::default() })
}

#[track_caller]
fn breaks(invariant: &str, steps: Steps) {
    let findings = judged(&steps);
    let found = invariants(&findings);
    assert!(found.contains(&invariant), "{invariant} is not among {found:?}: {:#?}", findings.violations);
}

#[track_caller]
fn keeps(steps: Steps) {
    let findings = judged(&steps);
    assert!(findings.violations.is_empty(), "{:#?}", findings.violations);
}

/// A Job and two pods of it that run.
fn begun() -> Steps {
    vec![
        ("world", START, "Job", job(json!({}), json!({}))),
        ("job", START, "Pod", pod("p", "Pending")),
        ("job", START, "Pod", pod("q", "Pending")),
        ("job", START, "Job", job(json!({}), json!({"startTime": at(0), "active": 2}))),
    ]
}

fn and(mut steps: Steps, more: Steps) -> Steps {
    steps.extend(more);
    steps
}

/// W1, R and W2 of the two pods, both succeeded, and the end.
fn completed() -> Steps {
    let met = condition("SuccessCriteriaMet", "CompletionsReached");
    let listed =
        json!({"startTime": at(0), "conditions": [met], "uncountedTerminatedPods": uncounted(&["p", "q"], &[])});
    let done = json!({"startTime": at(0), "completionTime": at(5), "succeeded": 2,
        "conditions": [met, condition("Complete", "CompletionsReached")]});
    and(
        begun(),
        vec![
            ("world", START + 5, "Pod", pod("p", "Succeeded")),
            ("world", START + 5, "Pod", pod("q", "Succeeded")),
            ("job", START + 5, "Job", job(json!({}), listed)),
            ("job", START + 5, "Pod", untracked("p", "Succeeded")),
            ("job", START + 5, "Pod", untracked("q", "Succeeded")),
            ("job", START + 5, "Job", job(json!({}), done)),
        ],
    )
}

fn status(status: Value) -> (&'static str, i64, &'static str, Value) {
    ("job", START + 6, "Job", job(json!({}), status))
}

/// A call of the Job controller.
fn call(life: u32, kind: &str, fault: Option<Fault>) -> Call {
    Call {
        life,
        controller: "job",
        kind: kind.to_owned(),
        path: String::new(),
        fault,
        code: 200,
        seen: 0,
        revision: 0,
        at: jiff::Timestamp::UNIX_EPOCH,
        unseen_pods: 0,
        uncounted: None,
        took_effect: false,
    }
}

#[test]
fn a_job_that_runs_as_it_should_is_clean() {
    keeps(completed());
    let findings = judge(&History::of(&completed()), Tolerance::default());
    assert!(findings.violations.is_empty(), "{:#?}", findings.violations);
}

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
    let mut steps = completed();
    steps.insert(4, ("job", START, "Pod", pod("r", "Pending")));
    steps.insert(5, ("world", START, "Pod", untracked("r", "Failed")));
    steps.pop();
    steps.push(status(lost));
    breaks("INV-1", steps);
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

/// Which of the routes a pod that nobody counts is released by.
#[test]
fn orphans_are_told_apart() {
    let released = |steps: Steps| {
        let release = ("job", START + 6, "Pod", untracked("r", "Failed"));
        judged(&and(and(steps, vec![("world", START + 6, "Pod", pod("r", "Failed"))]), vec![release])).met
    };
    let routes = |met: &BTreeMap<&'static str, u64>| -> Vec<&'static str> {
        met.keys().filter(|one| one.starts_with("orphan")).copied().collect()
    };
    let gone = || and(begun(), vec![("world", START, "Job a", Value::Null)]);
    let other = with(job(json!({}), json!({})), "/metadata/uid", json!("other"));
    assert_eq!(routes(&released(gone())), ["orphan released: Job gone"]);
    assert_eq!(routes(&released(and(gone(), vec![("world", START, "Job", other)]))), ["orphan released: namesake"]);
    assert_eq!(routes(&released(completed())), ["orphan released: Job finished"]);
    let going = ("world", START, "Job", deleting(job(json!({}), json!({}))));
    assert_eq!(routes(&released(and(begun(), vec![going]))), ["orphan released: Job being deleted"]);
}

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
}

#[test]
fn inv_13_no_finalizer_outlives_its_purpose() {
    let rest = |steps: Steps| invariants(&judge(&History::of(&steps), Tolerance::default()));
    let orphan = with(pod("p", "Failed"), "/metadata/ownerReferences", json!([]));
    assert_eq!(rest(vec![("world", START, "Pod", orphan)]), ["INV-13"]);
    assert_eq!(rest(vec![("world", START, "Pod", pod("p", "Failed"))]), ["INV-13"], "its Job is gone");
    let finished = with(completed().pop().unwrap().3, "/metadata/uid", json!("j"));
    let late = vec![("world", START, "Job", finished), ("world", START, "Pod", pod("p", "Failed"))];
    assert!(rest(late).contains(&"INV-13"));
    assert_eq!(rest(vec![("world", START, "Pod", pod("p", "Running"))]), [""; 0], "it may still run");
}

#[test]
fn inv_14_hands_off() {
    let foreign = |finalizers: Value| {
        let owner = json!([{"apiVersion": "example.com/v1", "kind": "Train", "uid": "t", "controller": true}]);
        with(with(pod("p", "Failed"), "/metadata/ownerReferences", owner), "/metadata/finalizers", finalizers)
    };
    let tracked = || foreign(json!(["batch.kubernetes.io/job-tracking"]));
    breaks("INV-14", vec![("world", START, "Pod", tracked()), ("job", START, "Pod", foreign(json!([])))]);
    breaks("INV-14", vec![("world", START, "Pod", tracked()), ("job", START, "Pod", deleting(tracked()))]);
    let stray = |object: Value| with(object, "/metadata/ownerReferences", json!([]));
    keeps(vec![
        ("world", START, "Pod", stray(pod("p", "Failed"))),
        ("job", START, "Pod", stray(untracked("p", "Failed"))),
    ]);
    // One that was the Job's until a moment ago.
    let touched = |seconds| {
        let lost = ("world", START, "Pod", stray(pod("p", "Running")));
        let steps = and(begun(), vec![lost, ("job", START + seconds, "Pod", deleting(stray(pod("p", "Running"))))]);
        invariants(&judged(&steps)).contains(&"INV-14")
    };
    assert!(!touched(1) && touched(600));
    breaks(
        "INV-14",
        vec![
            ("world", START, "Pod", stray(pod("p", "Failed"))),
            ("job", START, "Pod", deleting(stray(pod("p", "Failed")))),
        ],
    );
}

#[test]
fn inv_15_delegated_jobs_are_untouched() {
    let foreign = |status: Value| job(json!({"managedBy": "example.com/queue"}), status);
    let begun = || vec![("world", START, "Job", foreign(json!({})))];
    breaks("INV-15", and(begun(), vec![("job", START, "Job", foreign(json!({"active": 1})))]));
    breaks("INV-15", and(begun(), vec![("job", START, "Pod", pod("p", "Pending"))]));
    let theirs = || and(begun(), vec![("world", START, "Pod", pod("p", "Failed"))]);
    breaks("INV-15", and(theirs(), vec![("job", START, "Pod", untracked("p", "Failed"))]));
    let stray = with(untracked("p", "Running"), "/metadata/ownerReferences", json!([]));
    breaks("INV-15", and(begun(), vec![("world", START, "Pod", stray), ("job", START, "Pod", pod("p", "Running"))]));
}

#[test]
fn inv_16_adoption_needs_a_live_owner() {
    let steps = vec![
        ("world", START, "Job", job(json!({}), json!({}))),
        ("world", START, "Pod", with(untracked("p", "Running"), "/metadata/ownerReferences", json!([]))),
        ("world", START, "Job", deleting(job(json!({}), json!({})))),
        ("job", START, "Pod", pod("p", "Running")),
    ];
    let judged = |revision| {
        let path = "/apis/batch/v1/namespaces/default/jobs/a".to_owned();
        let reads = vec![Read { by: "job", life: None, path, revision }];
        let history = History { reads, ..History::of(&steps) };
        invariants(&judge(&history, Tolerance { settled: false, ..Tolerance::default() }))
    };
    assert_eq!(judged(2), [""; 0], "it was asked before the deletion");
    assert_eq!(judged(3), ["INV-16"], "and after it");
    breaks("INV-16", steps);
}

/// The question is asked by the process that adopts, when there is something to adopt.
#[test]
fn inv_16_adoption_asks_first() {
    let stray =
        |by: &'static str| (by, START, "Pod", with(untracked("p", "Running"), "/metadata/ownerReferences", json!([])));
    let adopted = |by: &'static str, life, revision| {
        let steps = vec![
            ("world", START, "Job", job(json!({}), json!({}))),
            ("world", START, "Job", job(json!({}), json!({"active": 0}))),
            stray("world"),
            ("job", START, "Pod", pod("p", "Running")),
        ];
        let path = "/apis/batch/v1/namespaces/default/jobs/a".to_owned();
        let reads = vec![Read { by, life: Some(life), path, revision }];
        let (calls, writes) = (vec![call(1, "PATCH pods", None)], [(4, 0)].into());
        let history = History { reads, calls, writes, ..History::of(&steps) };
        invariants(&judge(&history, Tolerance { settled: false, ..Tolerance::default() }))
    };
    assert_eq!(adopted("job", 1, 3), [""; 0]);
    assert_eq!(adopted("job", 1, 2), ["INV-16"], "there was nothing to adopt then");
    assert_eq!(adopted("job", 0, 3), ["INV-16"], "that was another process");
    assert_eq!(adopted("gc", 1, 3), ["INV-16"], "that was another controller");
}

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
    keeps(and(begun(), vec![suspended, ("job", START, "Pod", surplus(pod("p", "Running")))]));
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

#[test]
fn inv_48_a_node_tells_of_the_end_once() {
    let told = |phase: &str, code: i32| {
        let end = json!([{"name": "main", "state": {"terminated": {"exitCode": code}}}]);
        let state = if phase == "Running" { json!([]) } else { end };
        ("node", START, "Pod", with(untracked("p", phase), "/status/containerStatuses", state))
    };
    let untold = || vec![("world", START, "Pod", untracked("p", "Pending"))];
    keeps(and(untold(), vec![told("Running", 0), told("Failed", 1), told("Failed", 1)]));
    breaks("INV-48", and(untold(), vec![told("Failed", 1), told("Running", 0)]));
    breaks("INV-48", and(untold(), vec![told("Failed", 1), told("Succeeded", 0)]));
    breaks("INV-48", and(untold(), vec![told("Failed", 1), told("Failed", 2)]));
    breaks("INV-48", and(untold(), vec![told("Running", 0), ("node", START, "Pod", untracked("p", "Pending"))]));
}

#[test]
fn inv_41_an_end_is_kept() {
    let ready = || with(untracked("p", "Running"), "/status/conditions", json!([condition("Ready", "")]));
    let disrupted = |mut pod: Value| {
        pod["status"]["conditions"].as_array_mut().unwrap().push(condition("DisruptionTarget", "DeletionByPodGC"));
        pod
    };
    let ended = |pod: Value, phase: &str| with(pod, "/status/phase", json!(phase));
    let by_podgc = |pod: Value| ("podgc", START, "Pod", pod);
    let live = || vec![("world", START, "Pod", ready())];
    keeps(and(live(), vec![by_podgc(ended(disrupted(ready()), "Failed"))]));
    breaks("INV-41", and(live(), vec![by_podgc(with(ended(ready(), "Failed"), "/status/conditions", json!([])))]));
    let over = || vec![("world", START, "Pod", ended(ready(), "Succeeded"))];
    breaks("INV-41", and(over(), vec![by_podgc(ended(disrupted(ready()), "Succeeded"))]));
    breaks("INV-41", and(over(), vec![by_podgc(ended(ready(), "Failed"))]));
    breaks("INV-41", and(over(), vec![by_podgc(ready())]));
}

#[test]
fn inv_40_and_41_collectors() {
    breaks("INV-40", and(begun(), vec![("gc", START, "Pod p", Value::Null)]));
    keeps(vec![("world", START, "Pod", untracked("p", "Failed")), ("gc", START, "Pod p", Value::Null)]);
    breaks("INV-41", vec![("world", START, "Pod", untracked("p", "Running")), ("podgc", START, "Pod p", Value::Null)]);
    keeps(vec![("world", START, "Pod", untracked("p", "Failed")), ("podgc", START, "Pod p", Value::Null)]);
}
