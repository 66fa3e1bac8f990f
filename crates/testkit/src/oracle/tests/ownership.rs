//! Finalizers and ownership (INV-13…INV-16).

use super::*;

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
    let sent_at = |seen| {
        let path = "/apis/batch/v1/namespaces/default/jobs/a".to_owned();
        let read = |revision| Read { by: "job", life: None, path: path.clone(), revision };
        let calls = vec![Call { seen, ..call(0, "PATCH pods", Some(Fault::Late(1))) }];
        let history = History { reads: vec![read(2), read(3)], calls, writes: [(4, 0)].into(), ..History::of(&steps) };
        invariants(&judge(&history, Tolerance { settled: false, ..Tolerance::default() }))
    };
    assert_eq!(sent_at(2), [""; 0], "it was on its way when it was asked again");
    assert_eq!(sent_at(3), ["INV-16"], "it was sent all the same");
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
        let (calls, writes) = (vec![Call { seen: 3, ..call(1, "PATCH pods", None) }], [(4, 0)].into());
        let history = History { reads, calls, writes, ..History::of(&steps) };
        invariants(&judge(&history, Tolerance { settled: false, ..Tolerance::default() }))
    };
    assert_eq!(adopted("job", 1, 3), [""; 0]);
    assert_eq!(adopted("job", 1, 2), ["INV-16"], "there was nothing to adopt then");
    assert_eq!(adopted("job", 0, 3), ["INV-16"], "that was another process");
    assert_eq!(adopted("gc", 1, 3), ["INV-16"], "that was another controller");
}
