//! The scenario catalogue of the specification's appendix B, as stories that a Job goes through.
//!
//! Left out are scenarios for gates that are off, for the API server, and for the optional gang scheduling. A story is a
//! list of actions; after each of them everything settles, and one line tells what the Job looks like then.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use k8s_openapi::api::batch::v1::JobCondition;
use serde_json::{Value, json};

use super::super::*;
use super::shell::Controller;
use super::text::Case;
use super::world::{World, is_deleting};

fn story(spec: Value, script: &str, expected: Expect) {
    story_with(spec, Settings::default(), script, expected);
}

fn story_with(spec: Value, settings: Settings, script: &str, expected: Expect) {
    let mut world = World::with_settings(spec, settings);
    let mut controller = Controller::start(&world);
    let mut out = String::new();
    for action in script.split(';').map(str::trim) {
        perform(action, &mut world, &mut controller);
        controller.settle(&mut world);
        writeln!(out, "{action:<16}{}", summary(&mut world)).unwrap();
    }
    world.assert_settled();
    expected.assert_eq(out.trim_end());
}

/// `succeed 2` is about two pods of a NonIndexed Job and about index 2 of an Indexed one.
fn perform(action: &str, world: &mut World, controller: &mut Controller) {
    let words: Vec<&str> = action.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<i32>().ok());
    match words[0] {
        "start" => {}
        "run" | "succeed" | "fail" | "delete" | "disrupt" => {
            let code = number(2).unwrap_or(1);
            for name in chosen(world, words[1]) {
                match words[0] {
                    "run" => world.run(&name),
                    "succeed" => world.finish(&name, 0),
                    "fail" => world.finish(&name, code),
                    "delete" => world.delete(&name),
                    _ => {
                        world.finish(&name, 137);
                        let condition = json!([{"type": "DisruptionTarget", "status": "True"}]);
                        world.edit_pod(&name, |pod| pod["status"]["conditions"] = condition);
                    }
                }
            }
        }
        "stop" => world.stop_deleted_pods(),
        "end-deleted" => {
            for name in world.names(is_deleting) {
                world.finish(&name, number(1).unwrap_or(143));
            }
        }
        "restart" => *controller = Controller::start(world),
        "suspend" => world.edit_spec(|spec| spec["suspend"] = json!(true)),
        "resume" => world.edit_spec(|spec| spec["suspend"] = json!(false)),
        "parallelism" => world.edit_spec(|spec| spec["parallelism"] = json!(number(1))),
        "resize" => world.edit_spec(|spec| {
            spec["parallelism"] = json!(number(1));
            spec["completions"] = json!(number(1));
        }),
        "delete-job" => world.delete_job(),
        "wait" => world.advance(i64::from(number(1).unwrap())),
        "relabel" => {
            for name in chosen(world, words[1]) {
                world.edit_pod(&name, |pod| pod["metadata"]["labels"] = json!({"job": "other"}));
            }
        }
        "stray" => {
            let labels = json!({"job": "a"});
            let phase = words[1];
            world
                .add_pod(json!({"metadata": {"namespace": "ns", "name": "stray", "labels": labels, "annotations": {}},
                                 "spec": {}, "status": {"phase": phase}}));
        }
        _ => panic!("`{action}` is no action"),
    }
}

fn chosen(world: &World, which: &str) -> Vec<String> {
    let active = world.active();
    if which == "all" {
        return active;
    }
    let indexed = world.job.spec.as_ref().unwrap().completion_mode.as_deref() == Some("Indexed");
    if indexed {
        let key = "batch.kubernetes.io/job-completion-index";
        let of_index = |name: &String| world.pods[name]["metadata"]["annotations"][key] == which;
        return active.into_iter().filter(of_index).collect();
    }
    active.into_iter().take(which.parse().unwrap()).collect()
}

/// The status without what is zero, how many pods there ever were, the indexes that are active with their failures, and
/// the events since the last summary.
pub(super) fn summary(world: &mut World) -> String {
    let status = world.status();
    let count = |value: Option<i32>| value.filter(|value| *value != 0).map(|value| value.to_string());
    let conditions: Vec<String> = status.conditions.iter().flatten().map(condition_text).collect();
    let indexes = active_indexes(world);
    let fields = [
        ("active", count(status.active)),
        ("ready", count(status.ready)),
        ("terminating", count(status.terminating)),
        ("succeeded", count(status.succeeded)),
        ("failed", count(status.failed)),
        ("completed", status.completed_indexes.clone()),
        ("failedIndexes", status.failed_indexes.clone()),
        ("pods", Some(world.created.to_string())),
        ("conditions", (!conditions.is_empty()).then(|| conditions.join(","))),
        ("indexes", (!indexes.is_empty() && indexes.len() <= 10).then(|| indexes.join(","))),
    ];
    let fields = fields.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
    let mut words: Vec<String> = fields.collect();
    for event in std::mem::take(&mut world.events) {
        let reason = event.split_whitespace().nth(1).unwrap().trim_end_matches(':').to_owned();
        if !matches!(&*reason, "SuccessfulCreate" | "SuccessfulDelete") {
            words.push(format!("!{reason}"));
        }
    }
    words.join(" ")
}

fn condition_text(condition: &JobCondition) -> String {
    match condition.status.as_str() {
        "True" => format!("{}/{}", condition.type_, condition.reason.as_deref().unwrap_or("")),
        other => format!("{}={other}", condition.type_),
    }
}

fn active_indexes(world: &World) -> Vec<String> {
    let active = world.active();
    let annotations = active.iter().map(|name| &world.pods[name]["metadata"]["annotations"]);
    annotations
        .filter_map(|annotations| {
            let index = annotations["batch.kubernetes.io/job-completion-index"].as_str()?;
            Some(match annotations["batch.kubernetes.io/job-index-failure-count"].as_str() {
                Some(failures) if failures != "0" => format!("{index}({failures})"),
                _ => index.to_owned(),
            })
        })
        .collect()
}

fn rules() -> Value {
    json!({"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [10]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [5, 6, 7]}},
    ]}, "completions": 1})
}

// B.1 Pod failure policy

#[test]
fn sc1_a_fail_job_verdict_survives_a_restart_and_the_loss_of_the_pod() {
    let mut spec = rules();
    spec["parallelism"] = json!(3);
    spec["completions"] = json!(3);
    story(
        spec,
        "start; run all; fail 1 5; restart; stop",
        expect![[r#"
        start           active=3 pods=3
        run all         active=3 ready=3 pods=3
        fail 1 5        terminating=2 failed=3 pods=3 conditions=FailureTarget/PodFailurePolicy
        restart         terminating=2 failed=3 pods=3 conditions=FailureTarget/PodFailurePolicy
        stop            failed=3 pods=3 conditions=FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy !PodFailurePolicy"#]],
    );
}

#[test]
fn sc2_to_6_rules_decide() {
    story(
        rules(),
        "start; fail 1 5",
        expect![[r#"
        start           active=1 pods=1
        fail 1 5        failed=1 pods=1 conditions=FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy !PodFailurePolicy"#]],
    );
    story(
        rules(),
        "start; disrupt 1; succeed 1",
        expect![[r#"
        start           active=1 pods=1
        disrupt 1       active=1 pods=2
        succeed 1       succeeded=1 pods=2 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        rules(),
        "start; fail 1 10; succeed 1",
        expect![[r#"
        start           active=1 pods=1
        fail 1 10       active=1 failed=1 pods=2
        succeed 1       succeeded=1 failed=1 pods=2 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        rules(),
        "start; fail 1 1; succeed 1",
        expect![[r#"
        start           active=1 pods=1
        fail 1 1        active=1 failed=1 pods=2
        succeed 1       succeeded=1 failed=1 pods=2 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

#[test]
fn sc3_the_controller_is_away_when_the_pod_fails() {
    let mut world = World::new(rules());
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    let name = world.active().remove(0);
    world.finish(&name, 5);
    controller = Controller::start(&world);
    controller.settle(&mut world);
    expect!["failed=1 pods=1 conditions=FailureTarget/PodFailurePolicy,Failed/PodFailurePolicy !PodFailurePolicy"]
        .assert_eq(&summary(&mut world));
}

// B.2 Success policy

fn indexed(size: i32) -> Value {
    json!({"completionMode": "Indexed", "completions": size, "parallelism": size})
}

#[test]
fn sc8_to_12_success_policy() {
    let indexed = |size: i32, rule: Value| {
        let mut spec = indexed(size);
        spec["successPolicy"] = json!({"rules": [rule]});
        spec
    };
    story(
        indexed(1, json!({"succeededIndexes": "0"})),
        "start; succeed 0",
        expect![[r#"
        start           active=1 pods=1 indexes=0
        succeed 0       succeeded=1 completed=0 pods=1 conditions=SuccessCriteriaMet/SuccessPolicy,Complete/SuccessPolicy !Completed"#]],
    );
    story(
        indexed(2, json!({"succeededIndexes": "1"})),
        "start; succeed 1",
        expect![[r#"
        start           active=2 pods=2 indexes=0,1
        succeed 1       succeeded=1 completed=1 pods=2 conditions=SuccessCriteriaMet/SuccessPolicy,Complete/SuccessPolicy !Completed"#]],
    );
    story(
        indexed(2, json!({"succeededCount": 1})),
        "start; succeed 1",
        expect![[r#"
        start           active=2 pods=2 indexes=0,1
        succeed 1       succeeded=1 completed=1 pods=2 conditions=SuccessCriteriaMet/SuccessPolicy,Complete/SuccessPolicy !Completed"#]],
    );
    story(
        self::indexed(1),
        "start; succeed 0",
        expect![[r#"
            start           active=1 pods=1 indexes=0
            succeed 0       succeeded=1 completed=0 pods=1 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

#[test]
fn sc13_failed_indexes_beat_the_success_policy() {
    story(
        json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0,
               "successPolicy": {"rules": [{"succeededCount": 1}]}}),
        "start; fail 0; succeed 1",
        expect![[r#"
            start           active=2 failedIndexes= pods=2 indexes=0,1
            fail 0          active=1 failed=1 failedIndexes=0 pods=2 indexes=1
            succeed 1       succeeded=1 failed=1 completed=1 failedIndexes=0 pods=2 conditions=FailureTarget/FailedIndexes,Failed/FailedIndexes !FailedIndexes"#]],
    );
}

// B.3 backoffLimitPerIndex

fn per_index(size: i32, limit: i32) -> Value {
    json!({"completionMode": "Indexed", "completions": size, "parallelism": size, "backoffLimitPerIndex": limit,
           "backoffLimit": 2_147_483_647})
}

#[test]
fn sc15_a_failed_and_deleted_pod_still_hands_its_count_over() {
    let mut world = World::new(per_index(1, 1));
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    let name = world.active().remove(0);
    world.finish(&name, 1);
    world.delete(&name);
    controller.settle(&mut world);
    expect!["active=1 failed=1 failedIndexes= pods=2 indexes=0(1)"].assert_eq(&summary(&mut world));
    let name = world.active().remove(0);
    world.finish(&name, 0);
    controller.settle(&mut world);
    expect!["succeeded=1 failed=1 completed=0 failedIndexes= pods=2 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"].assert_eq(&summary(&mut world));
}

#[test]
fn sc17_to_22_limits_per_index() {
    story(
        per_index(2, 2),
        "start; fail 0; fail 0; fail 1; succeed 0; fail 1; succeed 1",
        expect![[r#"
        start           active=2 failedIndexes= pods=2 indexes=0,1
        fail 0          active=2 failed=1 failedIndexes= pods=3 indexes=0(1),1
        fail 0          active=2 failed=2 failedIndexes= pods=4 indexes=0(2),1
        fail 1          active=2 failed=3 failedIndexes= pods=5 indexes=0(2),1(1)
        succeed 0       active=1 succeeded=1 failed=3 completed=0 failedIndexes= pods=5 indexes=1(1)
        fail 1          active=1 succeeded=1 failed=4 completed=0 failedIndexes= pods=6 indexes=1(2)
        succeed 1       succeeded=2 failed=4 completed=0,1 failedIndexes= pods=6 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        per_index(2, 1),
        "start; fail 0; succeed all",
        expect![[r#"
        start           active=2 failedIndexes= pods=2 indexes=0,1
        fail 0          active=2 failed=1 failedIndexes= pods=3 indexes=0(1),1
        succeed all     succeeded=2 failed=1 completed=0,1 failedIndexes= pods=3 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        per_index(2, 2),
        "start; fail 0; fail 0; fail 0; succeed 1",
        expect![[r#"
        start           active=2 failedIndexes= pods=2 indexes=0,1
        fail 0          active=2 failed=1 failedIndexes= pods=3 indexes=0(1),1
        fail 0          active=2 failed=2 failedIndexes= pods=4 indexes=0(2),1
        fail 0          active=1 failed=3 failedIndexes=0 pods=4 indexes=1
        succeed 1       succeeded=1 failed=3 completed=1 failedIndexes=0 pods=4 conditions=FailureTarget/FailedIndexes,Failed/FailedIndexes !FailedIndexes"#]],
    );
    let mut total = per_index(3, 1);
    total["backoffLimit"] = json!(2);
    story(
        total,
        "start; fail 0; fail 1; fail 2",
        expect![[r#"
        start           active=3 failedIndexes= pods=3 indexes=0,1,2
        fail 0          active=3 failed=1 failedIndexes= pods=4 indexes=0(1),1,2
        fail 1          active=3 failed=2 failedIndexes= pods=5 indexes=0(1),1(1),2
        fail 2          failed=5 failedIndexes= pods=5 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded"#]],
    );
    story(
        per_index(2, 0),
        "start; fail 0; succeed 1",
        expect![[r#"
        start           active=2 failedIndexes= pods=2 indexes=0,1
        fail 0          active=1 failed=1 failedIndexes=0 pods=2 indexes=1
        succeed 1       succeeded=1 failed=1 completed=1 failedIndexes=0 pods=2 conditions=FailureTarget/FailedIndexes,Failed/FailedIndexes !FailedIndexes"#]],
    );
    let mut most = per_index(3, 0);
    most["maxFailedIndexes"] = json!(1);
    story(
        most,
        "start; fail 0; fail 1",
        expect![[r#"
        start           active=3 failedIndexes= pods=3 indexes=0,1,2
        fail 0          active=2 failed=1 failedIndexes=0 pods=3 indexes=1,2
        fail 1          failed=3 failedIndexes=0,1 pods=3 conditions=FailureTarget/MaxFailedIndexesExceeded,Failed/MaxFailedIndexesExceeded !MaxFailedIndexesExceeded"#]],
    );
}

#[test]
fn sc23_fail_index_rules() {
    let mut spec = per_index(2, 1);
    spec["podFailurePolicy"] = json!({"rules": [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [13]}},
        {"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]});
    story(
        spec,
        "start; fail 0 13; disrupt 1",
        expect![[r#"
        start           active=2 failedIndexes= pods=2 indexes=0,1
        fail 0 13       active=1 failed=1 failedIndexes=0 pods=2 indexes=1
        disrupt 1       failed=2 failedIndexes=0,1 pods=2 conditions=FailureTarget/FailedIndexes,Failed/FailedIndexes !FailedIndexes"#]],
    );
}

// B.4 The end waits for terminating pods

#[test]
fn sc25_failed_waits_for_terminating_pods() {
    let spec = json!({"completions": 2, "parallelism": 2, "backoffLimit": 0});
    story(
        spec,
        "start; run all; fail 1; end-deleted 0; stop",
        expect![[r#"
        start           active=2 pods=2
        run all         active=2 ready=2 pods=2
        fail 1          terminating=1 failed=2 pods=2 conditions=FailureTarget/BackoffLimitExceeded
        end-deleted 0   failed=2 pods=2 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded
        stop            failed=2 pods=2 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded"#]],
    );
}

#[test]
fn sc31_complete_waits_for_terminating_pods() {
    story(
        indexed(2),
        "start; run all; succeed 0; resize 1; stop",
        expect![[r#"
        start           active=2 pods=2 indexes=0,1
        run all         active=2 ready=2 pods=2 indexes=0,1
        succeed 0       active=1 ready=1 succeeded=1 completed=0 pods=2 indexes=1
        resize 1        terminating=1 succeeded=1 completed=0 pods=2 conditions=SuccessCriteriaMet/CompletionsReached
        stop            succeeded=1 completed=0 pods=2 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

// B.5 managedBy

#[test]
fn sc32_to_36_delegated_jobs_are_left_alone() {
    story(
        json!({"managedBy": "kubernetes.io/job-controller", "completions": 1}),
        "start",
        expect!["start           active=1 pods=1"],
    );
    story(json!({"managedBy": "example.com/queue"}), "start", expect!["start           pods=0"]);
    story(json!({"managedBy": "example.com/queue", "suspend": true}), "start", expect!["start           pods=0"]);
}

// B.6 Basic life cycle

#[test]
fn sc41_one_pod_and_two_restarts() {
    story(
        json!({"completions": 1}),
        "start; restart; fail 1; restart; succeed 1",
        expect![[r#"
        start           active=1 pods=1
        restart         active=1 pods=1
        fail 1          active=1 failed=1 pods=2
        restart         active=1 failed=1 pods=2
        succeed 1       succeeded=1 failed=1 pods=2 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

#[test]
fn sc42_a_work_queue() {
    story(
        json!({"parallelism": 5}),
        "start; run 2; fail 2; succeed 1; fail 2; succeed 2",
        expect![[r#"
        start           active=5 pods=5
        run 2           active=5 ready=2 pods=5
        fail 2          active=5 failed=2 pods=7
        succeed 1       active=4 succeeded=1 failed=2 pods=7
        fail 2          active=2 succeeded=1 failed=4 pods=7
        succeed 2       succeeded=3 failed=4 pods=7 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

#[test]
fn sc43_parallelism_follows_the_spec() {
    let spec = json!({"parallelism": 5, "backoffLimit": 2});
    story(
        spec,
        "start; parallelism 2; parallelism 4; succeed 4",
        expect![[r#"
        start           active=5 pods=5
        parallelism 2   active=2 pods=5
        parallelism 4   active=4 pods=7
        succeed 4       succeeded=4 pods=7 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

#[test]
fn sc44_many_pods_with_small_bounds() {
    let settings = Settings { uncounted_pods_max: 10, create_delete_max: 10, releases_max: 10, ..Settings::default() };
    let spec = json!({"parallelism": 54, "completions": 56});
    story_with(
        spec,
        settings,
        "start; run 52; fail 2; succeed 53; succeed 3",
        expect![[r#"
        start           active=54 pods=54
        run 52          active=54 ready=52 pods=54
        fail 2          active=54 ready=50 failed=2 pods=56
        succeed 53      active=3 succeeded=53 failed=2 pods=58
        succeed 3       succeeded=56 failed=2 pods=58 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

#[test]
fn sc45_indexes() {
    let spec = json!({"completionMode": "Indexed", "parallelism": 3, "completions": 4});
    story(
        spec,
        "start; succeed 1; fail 2; succeed all",
        expect![[r#"
        start           active=3 pods=3 indexes=0,1,2
        succeed 1       active=3 succeeded=1 completed=1 pods=4 indexes=0,2,3
        fail 2          active=3 succeeded=1 failed=1 completed=1 pods=5 indexes=0,2,3
        succeed all     succeeded=4 failed=1 completed=0-3 pods=5 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

// B.7 podReplacementPolicy

#[test]
fn sc47_to_51_replacement_policies() {
    let spec = |mode: &str, policy: &str| {
        let mut spec = indexed(2);
        spec["completionMode"] = json!(mode);
        spec["podReplacementPolicy"] = json!(policy);
        spec
    };
    let script = "start; run all; delete all; stop";
    story(
        spec("Indexed", "TerminatingOrFailed"),
        script,
        expect![[r#"
        start           active=2 pods=2 indexes=0,1
        run all         active=2 ready=2 pods=2 indexes=0,1
        delete all      active=2 terminating=2 failed=2 pods=4 indexes=0,1
        stop            active=2 failed=2 pods=4 indexes=0,1"#]],
    );
    story(
        spec("NonIndexed", "TerminatingOrFailed"),
        script,
        expect![[r#"
        start           active=2 pods=2
        run all         active=2 ready=2 pods=2
        delete all      active=2 terminating=2 failed=2 pods=4
        stop            active=2 failed=2 pods=4"#]],
    );
    story(
        spec("Indexed", "Failed"),
        script,
        expect![[r#"
        start           active=2 pods=2 indexes=0,1
        run all         active=2 ready=2 pods=2 indexes=0,1
        delete all      terminating=2 pods=2
        stop            active=2 failed=2 pods=4 indexes=0,1"#]],
    );
    story(
        spec("NonIndexed", "Failed"),
        script,
        expect![[r#"
        start           active=2 pods=2
        run all         active=2 ready=2 pods=2
        delete all      terminating=2 pods=2
        stop            active=2 failed=2 pods=4"#]],
    );
}

// B.8 Elastic Indexed Jobs

#[test]
fn sc53_to_56_elastic_jobs() {
    let spec = || indexed(3);
    story(
        spec(),
        "start; resize 4; succeed all",
        expect![[r#"
        start           active=3 pods=3 indexes=0,1,2
        resize 4        active=4 pods=4 indexes=0,1,2,3
        succeed all     succeeded=4 completed=0-3 pods=4 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        spec(),
        "start; succeed 1; fail 2; resize 1; succeed 0",
        expect![[r#"
        start           active=3 pods=3 indexes=0,1,2
        succeed 1       active=2 succeeded=1 completed=1 pods=3 indexes=0,2
        fail 2          active=2 succeeded=1 failed=1 completed=1 pods=4 indexes=0,2
        resize 1        active=1 failed=1 pods=4 indexes=0
        succeed 0       succeeded=1 failed=1 completed=0 pods=4 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        spec(),
        "start; succeed 2; resize 2; resize 3; succeed all",
        expect![[r#"
        start           active=3 pods=3 indexes=0,1,2
        succeed 2       active=2 succeeded=1 completed=2 pods=3 indexes=0,1
        resize 2        active=2 pods=3 indexes=0,1
        resize 3        active=3 pods=4 indexes=0,1,2
        succeed all     succeeded=3 completed=0-2 pods=4 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    story(
        spec(),
        "start; resize 0",
        expect![[r#"
        start           active=3 pods=3 indexes=0,1,2
        resize 0        pods=3 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
}

// B.10 Finalizer hygiene

#[test]
fn sc65_to_69_a_deleted_job_lets_its_pods_go() {
    story(
        json!({"parallelism": 2, "completions": 4}),
        "start; run all; delete-job",
        expect![[r#"
        start           active=2 pods=2
        run all         active=2 ready=2 pods=2
        delete-job      active=2 ready=2 pods=2"#]],
    );
    story(
        json!({"parallelism": 1}),
        "start; delete-job; restart",
        expect![[r#"
        start           active=1 pods=1
        delete-job      active=1 pods=1
        restart         active=1 pods=1"#]],
    );
}

#[test]
fn sc68_a_large_job_fails_with_small_bounds() {
    let settings = Settings { uncounted_pods_max: 50, releases_max: 50, ..Settings::default() };
    let spec = json!({"completionMode": "Indexed", "parallelism": 100, "completions": 100, "backoffLimit": 0});
    story_with(
        spec,
        settings,
        "start; fail 0; stop",
        expect![[r#"
            start           active=100 pods=100
            fail 0          failed=100 pods=100 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded
            stop            failed=100 pods=100 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded"#]],
    );
}

// B.11 Backoff and interruption

#[test]
fn sc70_replacements_wait_longer_each_time() {
    let mut world = World::new(json!({"completions": 1}));
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    let mut gaps = Vec::new();
    for _ in 0..6 {
        let name = world.active().remove(0);
        world.finish(&name, 1);
        let failed_at = world.now;
        controller.settle(&mut world);
        gaps.push(world.now.duration_since(failed_at).as_secs());
    }
    assert_eq!(gaps, [10, 20, 40, 80, 160, 320]);
    let name = world.active().remove(0);
    world.finish(&name, 1);
    controller.settle(&mut world);
    expect!["failed=7 pods=7 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded"].assert_eq(&summary(&mut world));
}

#[test]
fn sc71_failure_and_successes_while_the_controller_is_away() {
    let mut world = World::new(json!({"parallelism": 10, "completions": 10, "backoffLimit": 0}));
    let mut controller = Controller::start(&world);
    controller.settle(&mut world);
    for (position, name) in world.active().into_iter().enumerate() {
        world.run(&name);
        world.finish(&name, i32::from(position == 0));
    }
    controller = Controller::start(&world);
    controller.settle(&mut world);
    expect!["succeeded=9 failed=1 pods=10 conditions=FailureTarget/BackoffLimitExceeded,Failed/BackoffLimitExceeded !BackoffLimitExceeded"].assert_eq(&summary(&mut world));
}

// B.12 and B.14 Suspension

#[test]
fn sc72_to_76_suspending_and_resuming() {
    let spec = || json!({"parallelism": 2, "completions": 4});
    story(
        spec(),
        "start; suspend; resume; succeed 2; suspend; resume; succeed 2",
        expect![[r#"
        start           active=2 pods=2
        suspend         pods=2 conditions=Suspended/JobSuspended !Suspended
        resume          active=2 pods=4 conditions=Suspended=False !Resumed
        succeed 2       active=2 succeeded=2 pods=6 conditions=Suspended=False
        suspend         succeeded=2 pods=6 conditions=Suspended/JobSuspended !Suspended
        resume          active=2 succeeded=2 pods=8 conditions=Suspended=False !Resumed
        succeed 2       succeeded=4 pods=8 conditions=Suspended=False,SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"#]],
    );
    let mut suspended = spec();
    suspended["suspend"] = json!(true);
    story(
        suspended,
        "start; resume",
        expect![[r#"
        start           pods=0 conditions=Suspended/JobSuspended !Suspended
        resume          active=2 pods=2 conditions=Suspended=False !Resumed"#]],
    );
    story(
        json!({"completions": 0, "suspend": true}),
        "start",
        expect![
            "start           pods=0 conditions=SuccessCriteriaMet/CompletionsReached,Complete/CompletionsReached !Completed"
        ],
    );
}

#[test]
fn sc87_pods_of_the_last_run_hold_back_new_ones() {
    let spec = json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed"});
    story(
        spec,
        "start; run all; suspend; resume; stop",
        expect![[r#"
        start           active=2 pods=2
        run all         active=2 ready=2 pods=2
        suspend         terminating=2 pods=2 conditions=Suspended/JobSuspended !Suspended
        resume          terminating=2 pods=2 conditions=Suspended=False !Resumed
        stop            active=2 pods=4 conditions=Suspended=False"#]],
    );
}

// B.13 Delayed Job events

#[test]
fn sc82_and_83_a_finished_job_is_finished_before_the_cache_says_so() {
    for (code, ended) in [(0, "Complete"), (5, "Failed")] {
        let mut world = World::new(json!({"completions": 1, "backoffLimit": 0}));
        let mut controller = Controller::start(&world);
        controller.settle(&mut world);
        let name = world.active().remove(0);
        world.finish(&name, code);
        controller.watch(&world, 0);
        controller.sync(&mut world);
        assert!(world.is_finished());
        for _ in 0..3 {
            controller.sync(&mut world);
        }
        assert_eq!(world.created, 1, "no pod after {ended}");
    }
}

// Adoption and release; recorded as `adoption/*`.

#[test]
fn strays_are_adopted_and_pods_with_other_labels_are_let_go() {
    story(
        json!({"parallelism": 2, "completions": 2}),
        "start; run all; stray Running",
        expect![[r#"
        start           active=2 pods=2
        run all         active=2 ready=2 pods=2
        stray Running   active=2 ready=2 pods=2"#]],
    );
    story(
        json!({"parallelism": 1, "completions": 3}),
        "start; stray Succeeded",
        expect![[r#"
        start           active=1 pods=1
        stray Succeeded active=1 succeeded=1 pods=1"#]],
    );
    story(
        json!({"parallelism": 1, "completions": 1}),
        "start; run all; relabel 1",
        expect![[r#"
        start           active=1 pods=1
        run all         active=1 ready=1 pods=1
        relabel 1       active=1 pods=2"#]],
    );
}

/// What is asked for before a process makes pods that an earlier one may have made.
#[test]
fn plans_know_whether_they_create() {
    let creates = |text: &str| plan(&Case::new(text, Settings::default()).snapshot()).creates();
    assert!(creates("job parallelism=2 completions=2 | pods R"), "one is missing");
    assert!(!creates("job parallelism=2 completions=3 | pods R F@1"), "not yet, because one has failed");
    assert!(!creates("job parallelism=1 completions=2 | pods R R"), "one is too many");
    assert!(!creates("job parallelism=1 completions=2 | pods R"));
    assert!(!creates("job Complete=True SuccessCriteriaMet=True completions=1 succeeded=1 | pods S"));
}
