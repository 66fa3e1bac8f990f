//! What must hold whatever happens: random Jobs, random histories, faults at random calls.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use serde_json::{Value, json};

use super::super::*;
use super::shell::Controller;
use super::text::{Case, now};
use super::world::{Fault, World, is_deleting};

/// Something that happens around the controller. Pods are picked by position among those it can happen to.
#[derive(Debug, Clone)]
enum Step {
    /// A sync while the caches of Jobs and of pods lag behind by that many changes.
    Sync {
        lag: [usize; 2],
    },
    Run(usize),
    Succeed(usize),
    Fail(usize),
    Delete(usize),
    StopDeleted,
    Suspend(bool),
    Scale(i32),
    /// Completions and parallelism of an Indexed Job together (JC-1407).
    Resize(i32),
    /// A user changes the labels of a pod, so that the Job has to let it go.
    Relabel(usize),
    Wait(i64),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop::array::uniform2(0_usize..6).prop_map(|lag| Step::Sync { lag }),
        2 => any::<usize>().prop_map(Step::Run),
        4 => any::<usize>().prop_map(Step::Succeed),
        3 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Delete),
        1 => Just(Step::StopDeleted),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => (0_i32..4).prop_map(Step::Scale),
        1 => (1_i32..5).prop_map(Step::Resize),
        1 => any::<usize>().prop_map(Step::Relabel),
        1 => (1_i64..60).prop_map(Step::Wait),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 0..40)
}

fn specs() -> impl Strategy<Value = Value> {
    let mode = prop_oneof![
        (1_i32..5).prop_map(|completions| json!({"completions": completions})),
        Just(json!({})),
        (1_i32..5).prop_map(|completions| json!({"completions": completions, "completionMode": "Indexed"})),
        (1_i32..5).prop_map(|completions| {
            json!({"completions": completions, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
                   "backoffLimit": 1000})
        }),
    ];
    let policy = prop_oneof![
        3 => Just(json!({})),
        2 => Just(json!({"podReplacementPolicy": "Failed"})),
        1 => Just(json!({"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}})),
    ];
    (mode, policy, 1_i32..4, 0_i32..8).prop_map(|(mode, policy, parallelism, backoff_limit)| {
        let mut spec = json!({"parallelism": parallelism, "backoffLimit": backoff_limit});
        for part in [policy, mode] {
            spec.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        spec
    })
}

fn faults() -> impl Strategy<Value = Vec<(usize, Fault)>> {
    let kind = prop::sample::select(vec![
        Fault::Refused,
        Fault::AnswerLost,
        Fault::RequestLost,
        Fault::CrashBefore,
        Fault::CrashAfter,
    ]);
    prop::collection::vec((1_usize..80, kind), 0..8)
}

fn apply(step: &Step, world: &mut World, controller: &mut Controller) {
    let pick = |names: Vec<String>, number: usize| names.get(number % names.len().max(1)).cloned();
    match step {
        Step::Sync { lag } => {
            controller.watch_each(world, *lag);
            controller.sync(world);
        }
        Step::Run(number) => pick(world.active(), *number).into_iter().for_each(|name| world.run(&name)),
        Step::Succeed(number) => pick(world.active(), *number).into_iter().for_each(|name| world.finish(&name, 0)),
        Step::Fail(number) => {
            let code = [1, 7, 42][number % 3];
            let live = world.names(|pod| pod["status"]["phase"] == "Running" || !is_deleting(pod));
            pick(live, *number).into_iter().for_each(|name| world.finish(&name, code));
        }
        Step::Delete(number) => pick(world.active(), *number).into_iter().for_each(|name| world.delete(&name)),
        Step::StopDeleted => world.stop_deleted_pods(),
        Step::Suspend(suspend) if !world.is_finished() => world.edit_spec(|spec| spec["suspend"] = json!(suspend)),
        Step::Scale(parallelism) if !world.is_finished() => {
            world.edit_spec(|spec| spec["parallelism"] = json!(parallelism));
        }
        Step::Resize(size) if !world.is_finished() => world.edit_spec(|spec| {
            if spec["completionMode"] == "Indexed" {
                spec["completions"] = json!(size);
                spec["parallelism"] = json!(size);
            }
        }),
        Step::Relabel(number) => {
            let names = world.names(|_| true);
            pick(names, *number)
                .into_iter()
                .for_each(|name| world.edit_pod(&name, |pod| pod["metadata"]["labels"] = json!({})));
        }
        Step::Wait(secs) => world.advance(*secs),
        Step::Crash => {
            *controller = Controller::start(world);
            controller.watch(world, 0);
        }
        Step::Suspend(_) | Step::Scale(_) | Step::Resize(_) => {}
    }
}

/// Heals everything and lets pods succeed until the Job is over.
fn conclude(world: &mut World, controller: &mut Controller) {
    world.faults.clear();
    if !world.is_finished() {
        world.edit_spec(|spec| {
            spec["suspend"] = json!(false);
            spec["parallelism"] = json!(3);
        });
    }
    for _ in 0..60 {
        controller.settle(world);
        if world.is_finished() {
            break;
        }
        world.stop_deleted_pods();
        for name in world.active() {
            world.finish(&name, 0);
        }
    }
    controller.settle(world);
    assert!(world.is_finished(), "INV-30: the Job does not end: {:#?}", world.status());
    world.assert_settled();
}

/// A number from the environment, or else the given one.
fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// INV-1…13, 17…19, 22, 23, 27, 30: the world judges every write; in the end the Job is over.
///
/// Every run takes other histories. A failure names the seed; `HISTORY_SEED=… HISTORIES=…` repeats that run or makes a
/// longer one.
#[test]
fn every_history_ends_well() {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = from_environment("HISTORY_SEED", clock.as_nanos() as u64 % 1_000_000_000);
    let config = ProptestConfig {
        cases: from_environment("HISTORIES", 300) as u32,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let histories = (specs(), steps(), faults());
    let outcome = TestRunner::new(config).run(&histories, |(spec, steps, faults)| {
        let mut world = World::new(spec);
        world.faults.extend(faults);
        let mut controller = Controller::start(&world);
        controller.watch(&world, 0);
        for step in &steps {
            apply(step, &mut world, &mut controller);
        }
        conclude(&mut world, &mut controller);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("HISTORY_SEED={seed}: {error}");
    }
}

/// P-1, P-2, P-3: each call of a history in turn is refused, loses its answer, or is the last before a crash.
#[test]
fn a_history_cut_short_anywhere_converges() {
    let histories = [
        json!({"parallelism": 2, "completions": 3}),
        json!({"parallelism": 2, "completions": 3, "completionMode": "Indexed"}),
        json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1}),
        json!({"parallelism": 2, "completions": 3, "podReplacementPolicy": "Failed"}),
        json!({"parallelism": 3}),
        json!({"parallelism": 2, "completions": 3, "backoffLimit": 0}),
    ];
    let script = [
        Step::Sync { lag: [0, 0] },
        Step::Run(0),
        Step::Run(1),
        Step::Sync { lag: [0, 0] },
        Step::Fail(0),
        Step::Sync { lag: [0, 1] },
        Step::Sync { lag: [0, 0] },
        Step::Wait(20),
        Step::Sync { lag: [0, 0] },
        Step::Scale(1),
        Step::Sync { lag: [0, 0] },
        Step::Succeed(0),
        Step::Sync { lag: [0, 0] },
        Step::StopDeleted,
        Step::Suspend(true),
        Step::Sync { lag: [0, 0] },
        Step::Suspend(false),
        Step::Sync { lag: [0, 0] },
    ];
    for spec in histories {
        let play = |faults: &[(usize, Fault)]| {
            let mut world = World::new(spec.clone());
            world.faults.extend(faults.iter().copied());
            let mut controller = Controller::start(&world);
            controller.watch(&world, 0);
            script.iter().for_each(|step| apply(step, &mut world, &mut controller));
            conclude(&mut world, &mut controller);
            world.calls
        };
        let calls = play(&[]);
        for call in 1..=calls {
            for fault in [Fault::Refused, Fault::AnswerLost, Fault::CrashBefore, Fault::CrashAfter] {
                play(&[(call, fault)]);
                play(&[(call, fault), (call + 1, fault)]);
            }
        }
    }
}

/// A pod event: which of a few pods, and what it looks like now.
fn pod_events() -> impl Strategy<Value = Vec<(usize, Option<Value>)>> {
    let phase = prop::sample::select(vec!["Pending", "Running", "Unknown", "Succeeded", "Failed"]);
    let flags = (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.9), prop::bool::weighted(0.1));
    let looks = (phase, flags, prop::option::of(0_u32..4), 0_u32..3, prop::sample::select(vec![0, 1, 7, 13, 42]));
    let looks = looks.prop_map(|(phase, (finalizer, deleting, matches, surplus), index, failures, code)| {
        let mut annotations = json!({"batch.kubernetes.io/job-index-failure-count": failures.to_string()});
        if let Some(index) = index {
            annotations["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
        }
        if surplus {
            annotations[SURPLUS_ANNOTATION] = json!("true");
        }
        let finalizers = if finalizer { json!(["batch.kubernetes.io/job-tracking"]) } else { json!([]) };
        let labels = if matches { json!({"job": "a"}) } else { json!({}) };
        let mut pod = json!({"metadata": {"annotations": annotations, "finalizers": finalizers, "labels": labels},
            "status": {"phase": phase, "containerStatuses": [{"name": "main", "restartCount": failures,
                "state": {"terminated": {"exitCode": code, "finishedAt": "2026-11-15T11:00:00Z"}}}]}});
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-15T11:30:00Z");
        }
        pod
    });
    prop::collection::vec((0_usize..6, prop::option::weighted(0.85, looks)), 0..60)
}

fn named(mut looks: Value, name: &str) -> PodView {
    looks["metadata"]["name"] = json!(name);
    looks["metadata"]["uid"] = json!(name);
    serde_json::from_value(looks).unwrap()
}

fn tally_specs() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "job completions=3",
        "job completions=3 replace=Failed",
        "job Indexed completions=3",
        "job Indexed completions=3 replace=Failed",
        "job Indexed completions=3 backoffLimitPerIndex=1",
        "job Indexed completions=3 backoffLimitPerIndex=1 rules=Ignore:In:7;FailIndex:In:13;FailJob:In:42",
    ])
}

proptest! {
    /// The tally after any events is that of a list of the pods there are in the end, in any order.
    #[test]
    fn counting_along_the_way_equals_counting_in_the_end(spec in tally_specs(), events in pod_events()) {
        let Case { job, settings, tally: mut along } = Case::new(spec, Settings::default());
        let mut pods = BTreeMap::new();
        for (number, looks) in events {
            let name = format!("p{number}");
            match looks {
                Some(looks) => {
                    let view = named(looks, &name);
                    along.observe_pod(&view, now());
                    pods.insert(name, view);
                }
                None => {
                    along.forget_pod(&Uid::new(&name));
                    pods.remove(&name);
                }
            }
        }
        let mut fresh = Tally::new(&job, settings.gates);
        pods.values().rev().for_each(|view| fresh.observe_pod(view, now()));
        prop_assert_eq!(along.shape(), fresh.shape());
    }

    /// The size of an elastic Job may change while there are pods.
    #[test]
    fn a_change_of_the_job_sorts_all_pods_anew(events in pod_events(), limited: bool) {
        let job = |size: u32| {
            let limit = if limited { "backoffLimitPerIndex=1" } else { "" };
            Case::new(&format!("job Indexed completions={size} {limit}"), Settings::default()).job
        };
        let settings = Settings::default();
        let mut along = Tally::new(&job(3), settings.gates);
        let mut fresh = Tally::new(&job(2), settings.gates);
        for (number, looks) in events.into_iter().filter_map(|(number, looks)| Some((number, looks?))) {
            let view = named(looks, &format!("p{number}"));
            along.observe_pod(&view, now());
            fresh.observe_pod(&view, now());
        }
        along.observe_job(&job(2), settings.gates);
        prop_assert_eq!(along.shape(), fresh.shape());
        along.observe_job(&job(3), settings.gates);
        along.observe_job(&job(2), settings.gates);
        prop_assert_eq!(along.shape(), fresh.shape());
    }
}

impl Tally {
    /// Everything that plans read, except the history of failures and our own writes.
    fn shape(&self) -> String {
        format!(
            "{:?}",
            (
                (self.active, self.ready, self.terminating, self.restarts, self.failed_counted),
                (&self.succeeded, &self.failed, &self.removed, &self.live),
                (&self.marked, &self.misplaced, &self.fail_job, &self.mismatched, &self.indexes),
            )
        )
    }
}
