//! Stories of pods, told as inputs and the actions they lead to.

mod adoption;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// A pod under test with a clock that only moves when told to.
struct Story {
    pod: PodLifecycle,
    now: Moment,
}

impl Story {
    fn new(spec: Value) -> Self {
        Self::with(
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec}),
            &[],
        )
    }

    fn with(pod: Value, records: &[Record]) -> Self {
        let now = Moment { wall: Timestamp::from_second(1_000_000).unwrap(), elapsed: Duration::from_secs(1000) };
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Self { pod: PodLifecycle::adopt(&pod, records, now), now }
    }

    fn pass(&mut self, seconds: u64) {
        self.now.elapsed += Duration::from_secs(seconds);
        self.now.wall += Duration::from_secs(seconds);
    }

    /// Feeds one input; the answer has one word per action, events left out.
    fn take(&mut self, input: Input) -> String {
        let actions = self.pod.step(input, self.now);
        let words: Vec<String> = actions.iter().filter_map(|action| self.word(action)).collect();
        words.join(" ")
    }

    fn word(&self, action: &Action) -> Option<String> {
        let name = |index: &Index| self.pod.container_spec(*index).name.clone();
        Some(match action {
            Action::Event(_) => return None,
            Action::Start { container, attempt } => format!("start:{}/{attempt}", name(container)),
            Action::Terminate { container, .. } => format!("term:{}", name(container)),
            Action::Kill { container, .. } => format!("kill:{}", name(container)),
            Action::RunHook { container, hook, .. } => format!("{hook:?}:{}", name(container)),
            Action::Probe { container, probe, .. } => format!("probe:{}:{probe:?}", name(container)),
            other => format!("{other:?}").to_lowercase(),
        })
    }

    fn tick(&mut self) -> String {
        self.take(Input::Tick)
    }

    fn started(&mut self, name: &str) -> String {
        let container = self.pod.index_of(name).unwrap();
        let attempt = self.pod.containers[container].starting.expect("nothing is starting");
        self.take(Input::Started { container, attempt, at: self.now.wall })
    }

    fn exited(&mut self, name: &str, code: i32) -> String {
        let container = self.pod.index_of(name).unwrap();
        let attempt = self.pod.containers[container].attempt;
        let exit = Exit::with_code(code, Some(self.now.wall), self.now.wall);
        self.take(Input::Exited { container, attempt, exit })
    }

    fn deleted(&mut self, grace: i64) -> String {
        let observed = Observed { deletion_grace_seconds: Some(grace), generation: Some(2), ..Observed::default() };
        self.take(Input::Observed(observed))
    }

    fn status(&mut self) -> Value {
        self.pod.status_patch("10.0.0.1", self.now)["status"].take()
    }

    fn phase(&self) -> Phase {
        self.pod.reported_phase()
    }

    /// Cleans up and reports the end; answers what comes after.
    fn finish(&mut self) -> String {
        let first = self.take(Input::CleanedUp);
        format!("{first} {}", self.reported()).trim().to_owned()
    }

    /// The API has the status as it is now.
    fn reported(&mut self) -> String {
        self.take(Input::Reported { phase: self.phase(), is_end: self.pod.has_ended() })
    }
}

fn containers(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "command": ["x"]})).collect()
}

fn single(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": containers(&["c"])})
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap()
}

#[test]
fn a_container_that_exits_0_succeeds_the_pod() {
    let mut story = Story::new(single("Never"));
    assert_eq!(story.tick(), "start:c/0");
    assert_eq!(story.status()["containerStatuses"][0]["state"], json!({"waiting": {"reason": "ContainerCreating"}}));
    assert_eq!(story.started("c"), "");
    assert_eq!(story.phase(), Phase::Running);
    let status = story.status();
    assert_eq!(condition(&status, "Ready")["status"], "True");
    assert_eq!(status["containerStatuses"][0]["containerID"], "tally://u/c/0");
    story.pass(1);
    assert_eq!(story.exited("c", 0), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    for (kind, value, reason) in [
        ("Ready", "False", json!("PodCompleted")),
        ("ContainersReady", "False", json!("PodCompleted")),
        ("Initialized", "True", json!("PodCompleted")),
        ("PodReadyToStartContainers", "False", Value::Null),
        ("PodScheduled", "True", Value::Null),
    ] {
        let condition = condition(&status, kind);
        assert_eq!((&condition["status"], &condition["reason"]), (&json!(value), &reason), "{kind}");
    }
    assert_eq!(story.finish(), "forget");
}

#[test]
fn never_keeps_running_until_all_containers_have_ended() {
    let mut story = Story::new(json!({"restartPolicy": "Never", "containers": containers(&["z", "a"])}));
    assert_eq!(story.tick(), "start:z/0 start:a/0");
    story.started("z");
    assert_eq!(story.phase(), Phase::Pending);
    story.started("a");
    assert_eq!(story.exited("z", 3), "");
    assert_eq!(story.phase(), Phase::Running);
    assert_eq!(story.exited("a", 0), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(condition(&status, "Ready")["reason"], "PodFailed");
    let names: Vec<&Value> = status["containerStatuses"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["a", "z"], "statuses are sorted by name (PL-10)");
}

#[test]
fn on_failure_restarts_at_once_and_then_with_back_off() {
    let mut story = Story::new(single("OnFailure"));
    story.tick();
    story.started("c");
    assert_eq!(story.exited("c", 1), "start:c/1");
    story.started("c");
    assert_eq!(story.exited("c", 1), "");
    let status = story.status();
    assert_eq!(status["phase"], "Running");
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    assert_eq!(waiting["message"], "back-off 10s restarting failed container=c pod=p_ns(u)");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["containerID"], "tally://u/c/1");
    assert_eq!(story.pod.wake(), Some(story.now.elapsed + Duration::from_secs(10)));
    story.pass(9);
    assert_eq!(story.tick(), "");
    story.pass(1);
    assert_eq!(story.tick(), "start:c/2");
    story.started("c");
    assert_eq!(story.exited("c", 0), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 2);
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
}

#[test]
fn init_containers_run_one_at_a_time() {
    let spec = json!({
        "restartPolicy": "Never", "initContainers": containers(&["i1", "i2"]), "containers": containers(&["c"]),
    });
    let mut story = Story::new(spec);
    assert_eq!(story.tick(), "start:i1/0");
    assert_eq!(story.started("i1"), "");
    let status = story.status();
    assert_eq!(condition(&status, "Initialized")["message"], "containers with incomplete status: [i1 i2]");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(story.exited("i1", 0), "start:i2/0");
    story.started("i2");
    assert_eq!(story.phase(), Phase::Pending);
    assert_eq!(story.exited("i2", 0), "start:c/0");
    assert_eq!(condition(&story.status(), "Initialized")["status"], "True");
    story.started("c");
    assert_eq!(story.exited("c", 0), "cleanup");
    assert_eq!(story.phase(), Phase::Succeeded);
}

#[test]
fn a_failed_init_container_fails_a_never_pod() {
    let spec = json!({
        "restartPolicy": "Never", "initContainers": containers(&["i"]), "containers": containers(&["c"]),
    });
    let mut story = Story::new(spec);
    story.tick();
    story.started("i");
    assert_eq!(story.exited("i", 1), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn a_failed_init_container_of_a_pod_that_restarts_is_tried_again() {
    for policy in ["OnFailure", "Always"] {
        let spec = json!({
            "restartPolicy": policy, "initContainers": containers(&["i"]), "containers": containers(&["c"]),
        });
        let mut story = Story::new(spec);
        story.tick();
        story.started("i");
        assert_eq!(story.exited("i", 1), "start:i/1");
        story.started("i");
        assert_eq!(story.exited("i", 1), "");
        assert_eq!(story.phase(), Phase::Pending);
        story.pass(10);
        assert_eq!(story.tick(), "start:i/2");
        story.started("i");
        assert_eq!(story.exited("i", 0), "start:c/0", "{policy}");
    }
}

fn with_sidecars() -> Value {
    json!({
        "restartPolicy": "Never",
        "initContainers": [
            {"name": "s1", "command": ["x"], "restartPolicy": "Always"},
            {"name": "s2", "command": ["x"], "restartPolicy": "Always"},
        ],
        "containers": containers(&["main"]),
    })
}

#[test]
fn sidecars_start_before_and_stop_after_the_rest() {
    let mut story = Story::new(with_sidecars());
    assert_eq!(story.tick(), "start:s1/0");
    assert_eq!(story.started("s1"), "start:s2/0");
    assert_eq!(story.started("s2"), "start:main/0");
    story.started("main");
    assert_eq!(story.exited("main", 0), "term:s2", "the later sidecar goes first (PL-42, PL-49)");
    assert_eq!(story.phase(), Phase::Running);
    assert_eq!(story.exited("s2", 143), "term:s1");
    assert_eq!(story.exited("s1", 143), "cleanup");
    assert_eq!(story.phase(), Phase::Succeeded, "sidecars do not count (PL-7)");
}

#[test]
fn a_crashing_sidecar_is_restarted_and_does_not_fail_the_pod() {
    let mut story = Story::new(with_sidecars());
    story.tick();
    story.started("s1");
    story.started("s2");
    story.started("main");
    assert_eq!(story.exited("s1", 1), "start:s1/1");
    assert_eq!(story.phase(), Phase::Running);
}

/// A pod whose sidecar, started before the init containers, waits for its second restart.
fn with_crashing_sidecar(policy: &str) -> Story {
    let mut story = Story::new(json!({
        "restartPolicy": policy,
        "initContainers": [
            {"name": "s", "command": ["x"], "restartPolicy": "Always"},
            {"name": "i1", "command": ["x"]},
            {"name": "i2", "command": ["x"]},
        ],
        "containers": containers(&["main"]),
    }));
    assert_eq!(story.tick(), "start:s/0");
    assert_eq!(story.started("s"), "start:i1/0");
    story.started("i1");
    assert_eq!(story.exited("s", 1), "start:s/1");
    story.started("s");
    assert_eq!(story.exited("s", 1), "", "it waits");
    story
}

#[test]
fn a_crashing_sidecar_does_not_hide_a_failed_init_container() {
    let mut story = with_crashing_sidecar("Never");
    assert_eq!(story.exited("i1", 1), "cleanup", "PL-5");
    assert_eq!(story.phase(), Phase::Failed);
    assert_eq!(story.status()["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 1);
}

#[test]
fn a_crashing_sidecar_does_not_hold_up_those_that_it_let_start() {
    let mut story = with_crashing_sidecar("OnFailure");
    assert_eq!(story.exited("i1", 1), "start:i1/1");
    story.started("i1");
    assert_eq!(story.exited("i1", 0), "start:i2/0", "PL-24");
    story.started("i2");
    story.pass(10);
    assert_eq!(story.tick(), "start:s/2");
    assert_eq!(story.exited("i2", 0), "start:main/0");
}

#[test]
fn a_sidecar_that_has_not_started_yet_is_waited_for() {
    let mut spec = with_sidecars();
    spec["initContainers"][0]["startupProbe"] = json!({"exec": {"command": ["x"]}});
    let mut story = Story::new(spec);
    story.tick();
    assert_eq!(story.started("s1"), "probe:s1:Startup");
    assert_eq!(story.exited("s1", 1), "start:s1/1");
    story.started("s1");
    assert_eq!(story.exited("s1", 1), "");
    assert_eq!(story.phase(), Phase::Pending);
}

#[test]
fn sidecars_get_their_signal_at_the_end_of_the_grace() {
    let mut story = Story::new(with_sidecars());
    story.tick();
    story.started("s1");
    story.started("s2");
    story.started("main");
    assert_eq!(story.deleted(5), "term:main");
    story.pass(5);
    assert_eq!(story.tick(), "kill:main term:s2 term:s1");
    story.pass(2);
    assert_eq!(story.tick(), "kill:s2 kill:s1");
}

#[test]
fn a_deleted_pod_is_terminated_reported_and_then_deleted() {
    let mut story = Story::new(single("Never"));
    story.tick();
    story.started("c");
    assert_eq!(story.deleted(30), "term:c");
    assert_eq!(story.phase(), Phase::Running);
    story.pass(2);
    assert_eq!(story.exited("c", 143), "cleanup");
    assert_eq!(story.phase(), Phase::Failed);
    assert_eq!(story.take(Input::CleanedUp), "", "no DELETE before the API has the end (PL-47)");
    assert_eq!(story.reported(), "delete");
    assert_eq!(story.take(Input::Gone), "forget");
}

#[test]
fn a_deleted_pod_that_ends_well_succeeds() {
    let mut story = Story::new(single("Never"));
    story.tick();
    story.started("c");
    story.deleted(30);
    assert_eq!(story.exited("c", 0), "cleanup");
    assert_eq!(story.phase(), Phase::Succeeded);
}

#[test]
fn a_pod_that_ignores_sigterm_is_killed_after_its_grace() {
    let mut story = Story::new(single("OnFailure"));
    story.tick();
    story.started("c");
    story.deleted(3);
    assert_eq!(story.pod.wake(), Some(story.now.elapsed + Duration::from_secs(3)));
    story.pass(3);
    assert_eq!(story.tick(), "kill:c");
    assert_eq!(story.exited("c", 137), "cleanup", "nothing restarts while stopping (PL-30)");
    assert_eq!(story.phase(), Phase::Failed);
}

#[test]
fn a_second_delete_with_less_grace_shortens_the_stop() {
    let mut story = Story::new(single("Never"));
    story.tick();
    story.started("c");
    story.deleted(30);
    story.pass(5);
    assert_eq!(story.deleted(1), "");
    story.pass(1);
    assert_eq!(story.tick(), "kill:c");
}

#[test]
fn a_pod_deleted_before_it_started_ends_failed_with_an_unknown_container_status() {
    let mut story = Story::new(single("Never"));
    assert_eq!(story.deleted(30), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Failed");
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
    assert_eq!(terminated["startedAt"], Value::Null);
    assert_eq!(terminated["message"], "The container could not be located when the pod was terminated");
}

#[test]
fn a_delete_while_a_start_is_under_way_waits_for_its_outcome() {
    let mut story = Story::new(single("Never"));
    story.tick();
    assert_eq!(story.deleted(30), "");
    assert_eq!(story.started("c"), "term:c");
    assert_eq!(story.exited("c", 143), "cleanup");
}

#[test]
fn a_force_deleted_pod_is_stopped_and_forgotten() {
    let mut story = Story::new(single("Never"));
    story.tick();
    story.started("c");
    assert_eq!(story.take(Input::Gone), "term:c");
    story.pass(2);
    assert_eq!(story.tick(), "kill:c");
    assert_eq!(story.exited("c", 137), "cleanup");
    assert_eq!(story.take(Input::CleanedUp), "forget");
}

#[test]
fn the_active_deadline_fails_the_pod_whatever_its_exit_code() {
    let mut spec = single("Never");
    spec["activeDeadlineSeconds"] = json!(5);
    let mut story = Story::new(spec);
    story.tick();
    story.started("c");
    assert_eq!(story.pod.wake(), Some(story.now.elapsed + Duration::from_secs(5)));
    story.pass(5);
    assert_eq!(story.tick(), "term:c");
    let status = story.status();
    assert_eq!((&status["phase"], status.get("reason"), status.get("message")), (&json!("Running"), None, None));
    assert_eq!(story.exited("c", 0), "cleanup");
    let status = story.status();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
    assert_eq!(status["message"], "Pod was active on the node longer than the specified deadline");
}

#[test]
fn an_active_deadline_counts_from_the_start_whenever_it_is_set() {
    let mut story = Story::new(single("Never"));
    story.tick();
    story.started("c");
    story.pass(10);
    let within = |seconds| Input::Observed(Observed { active_deadline_seconds: Some(seconds), ..Observed::default() });
    assert_eq!(story.take(within(60)), "");
    assert_eq!(story.pod.wake(), Some(story.now.elapsed + Duration::from_secs(50)));
    assert_eq!(story.take(within(12)), "");
    story.pass(2);
    assert_eq!(story.tick(), "term:c");
    let mut story = Story::new(single("Never"));
    story.tick();
    story.started("c");
    story.pass(10);
    assert_eq!(story.take(within(10)), "term:c", "its time is over already");
}

#[test]
fn a_node_that_goes_down_fails_its_pods_and_says_that_it_was_not_their_fault() {
    let mut story = Story::new(single("OnFailure"));
    story.tick();
    story.started("c");
    assert_eq!(story.take(Input::Shutdown { grace_max: Duration::from_secs(3) }), "term:c");
    let status = story.status();
    assert_eq!(status["conditions"][0]["type"], "PodReadyToStartContainers", "not before the end (PL-66)");
    assert_eq!(status.get("reason"), None, "PL-8");
    story.pass(3);
    assert_eq!(story.tick(), "kill:c");
    assert_eq!(story.exited("c", 137), "cleanup");
    let status = story.status();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Terminated")));
    let disruption = &status["conditions"][0];
    assert_eq!(
        (&disruption["type"], &disruption["reason"]),
        (&json!("DisruptionTarget"), &json!("TerminationByKubelet"))
    );
}

#[test]
fn an_evicted_pod_gets_a_second_and_fails_whatever_its_exit_code() {
    let mut story = Story::new(single("OnFailure"));
    story.tick();
    story.started("c");
    let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ".to_owned();
    assert_eq!(story.take(Input::Evicted { message: message.clone() }), "term:c");
    assert_eq!(story.take(Input::Evicted { message: message.clone() }), "", "once is enough");
    assert_eq!(story.status().get("reason"), None, "PL-8");
    story.pass(2);
    assert_eq!(story.tick(), "kill:c");
    assert_eq!(story.exited("c", 0), "cleanup");
    let status = story.status();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Evicted")));
    assert_eq!(status["message"], message);
    assert_eq!(status["conditions"][0]["type"], "PodReadyToStartContainers", "no DisruptionTarget (PL-63)");
    assert_eq!(story.finish(), "forget");
}

#[test]
fn a_command_that_cannot_start_is_an_exit_with_128() {
    let mut story = Story::new(single("Never"));
    story.tick();
    let failure = StartFailure::Start { message: "exec: no".to_owned(), at: story.now.wall };
    assert_eq!(story.take(Input::NotStarted { container: 0, attempt: 0, failure }), "cleanup");
    let status = story.status();
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(status["phase"], "Failed");
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(128), &json!("StartError")));
    assert_eq!(terminated["message"], "exec: no");
}

#[test]
fn missing_configuration_is_waited_for() {
    let mut story = Story::new(single("Never"));
    story.tick();
    let failure = StartFailure::Config("configmap \"x\" not found".to_owned());
    assert_eq!(story.take(Input::NotStarted { container: 0, attempt: 0, failure }), "");
    let status = story.status();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "CreateContainerConfigError");
    story.pass(1);
    assert_eq!(story.tick(), "start:c/0");
}

#[test]
fn volumes_come_before_containers_and_are_tried_again() {
    let mut spec = single("Never");
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let mut story = Story::new(spec);
    assert_eq!(story.tick(), "prepare");
    assert_eq!(story.tick(), "", "once at a time");
    assert_eq!(story.take(Input::Prepared(Err("no".to_owned()))), "");
    story.pass(1);
    assert_eq!(story.tick(), "prepare");
    assert_eq!(story.take(Input::Prepared(Ok(()))), "start:c/0");
}

#[test]
fn hooks_frame_the_life_of_a_container() {
    let mut spec = single("Never");
    let hook = json!({"exec": {"command": ["x"]}});
    spec["containers"][0]["lifecycle"] = json!({"postStart": hook, "preStop": hook});
    let mut story = Story::new(spec);
    story.tick();
    assert_eq!(story.started("c"), "PostStart:c");
    assert_eq!(story.status()["containerStatuses"][0]["started"], false);
    story.take(Input::HookFinished { container: 0, attempt: 0, hook: Hook::PostStart, result: Ok(()) });
    assert_eq!(story.status()["containerStatuses"][0]["started"], true);
    assert_eq!(story.deleted(10), "PreStop:c");
    let done = Input::HookFinished { container: 0, attempt: 0, hook: Hook::PreStop, result: Err("x".to_owned()) };
    assert_eq!(story.take(done), "term:c", "a failed preStop hook does not stop the stop (PL-40)");
}

#[test]
fn a_failed_post_start_hook_kills_the_container() {
    let mut spec = single("Never");
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"exec": {"command": ["x"]}}});
    let mut story = Story::new(spec);
    story.tick();
    story.started("c");
    let failed = Input::HookFinished { container: 0, attempt: 0, hook: Hook::PostStart, result: Err("x".to_owned()) };
    assert_eq!(story.take(failed), "term:c");
    assert_eq!(story.exited("c", 143), "cleanup");
    assert_eq!(story.phase(), Phase::Failed);
}

#[test]
fn a_container_killed_for_its_post_start_hook_still_has_its_pre_stop_hook() {
    let failed = || {
        let result = Err("x".to_owned());
        Input::HookFinished { container: 0, attempt: 0, hook: Hook::PostStart, result }
    };
    for (grace, action) in [(30, "PreStop:c"), (0, "term:c")] {
        let mut spec = single("Never");
        let hook = json!({"exec": {"command": ["x"]}});
        spec["containers"][0]["lifecycle"] = json!({"postStart": hook, "preStop": hook});
        spec["terminationGracePeriodSeconds"] = json!(grace);
        let mut story = Story::new(spec);
        story.tick();
        story.started("c");
        assert_eq!(story.take(failed()), action, "PL-40: grace {grace}");
    }
}

#[test]
fn events_tell_how_a_container_came_to_be() {
    let reasons = |story: &mut Story, input| -> Vec<&'static str> {
        let actions = story.pod.step(input, story.now);
        let events = actions.iter().filter_map(|action| match action {
            Action::Event(event) => Some(event.reason),
            _ => None,
        });
        events.collect()
    };
    let mut story = Story::new(single("OnFailure"));
    story.tick();
    let started = Input::Started { container: 0, attempt: 0, at: story.now.wall };
    assert_eq!(reasons(&mut story, started), ["Created", "Started"], "PL-25");
    assert_eq!(story.exited("c", 1), "start:c/1");
    let failure = StartFailure::Start { message: "exec: no".to_owned(), at: story.now.wall };
    let not_started = Input::NotStarted { container: 0, attempt: 1, failure };
    assert_eq!(reasons(&mut story, not_started), ["Created", "Failed", "BackOff"]);
}

#[test]
fn a_failing_liveness_probe_stops_or_restarts_the_container() {
    for (policy, after) in [("Never", "cleanup"), ("OnFailure", "start:c/1")] {
        let mut spec = single(policy);
        spec["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["x"]}, "failureThreshold": 1});
        let mut story = Story::new(spec);
        story.tick();
        assert_eq!(story.started("c"), "probe:c:Liveness");
        let failed =
            Input::Probed { container: 0, attempt: 0, probe: ProbeKind::Liveness, result: Err("no".to_owned()) };
        assert_eq!(story.take(failed), "term:c");
        // Even with exit code 0: the policy alone decides (PL-32).
        assert_eq!(story.exited("c", 0), after, "{policy}");
    }
}

#[test]
fn a_readiness_probe_decides_about_ready() {
    let mut spec = single("Never");
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["x"]}});
    let mut story = Story::new(spec);
    story.tick();
    assert_eq!(story.started("c"), "probe:c:Readiness");
    assert_eq!(condition(&story.status(), "Ready")["reason"], "ContainersNotReady");
    story.take(Input::Probed { container: 0, attempt: 0, probe: ProbeKind::Readiness, result: Ok(()) });
    assert_eq!(condition(&story.status(), "Ready")["status"], "True");
}

#[test]
fn a_rejected_pod_has_no_container_statuses() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": single("Never")})).unwrap();
    let now = Moment { wall: Timestamp::UNIX_EPOCH, elapsed: Duration::ZERO };
    let (mut rejected, event) = PodLifecycle::rejected(&pod, "OutOfcpu", "no cpu", now);
    let status = rejected.status_patch("10.0.0.1", now)["status"].take();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    assert_eq!(status["message"], "Pod was rejected: no cpu");
    assert_eq!(status.get("containerStatuses"), None);
    assert_eq!(event.reason, "OutOfcpu");
    assert_eq!(rejected.step(Input::Reported { phase: Phase::Failed, is_end: true }, now), [Action::Forget]);
}

#[test]
fn a_phase_that_somebody_else_made_terminal_stops_the_pod_and_stays() {
    let mut story = Story::new(single("Always"));
    story.tick();
    story.started("c");
    let (reason, message) = (Some("NodeLost".to_owned()), Some("gone".to_owned()));
    let failed = Observed { phase: Phase::Failed, reason, message, ..Observed::default() };
    assert_eq!(story.take(Input::Observed(failed)), "term:c");
    // Of a status that was under way, and of one that was made before the end.
    assert_eq!(story.take(Input::Reported { phase: Phase::Running, is_end: false }), "");
    assert_eq!(story.reported(), "");
    assert_eq!(story.exited("c", 0), "cleanup");
    assert_eq!(story.take(Input::CleanedUp), "", "how the containers ended is to be reported");
    let status = story.status();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("NodeLost")));
    assert_eq!(status["message"], "gone");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert_eq!(condition(&status, "Ready")["status"], "False");
    assert_eq!(story.reported(), "forget");
}

#[test]
fn a_phase_that_somebody_else_made_terminal_gives_no_more_grace() {
    let mut story = Story::new(single("Always"));
    story.tick();
    story.started("c");
    assert_eq!(story.deleted(3), "term:c");
    story.pass(2);
    let observed =
        Observed { deletion_grace_seconds: Some(3), phase: Phase::Failed, generation: Some(2), ..Observed::default() };
    assert_eq!(story.take(Input::Observed(observed)), "");
    story.pass(1);
    assert_eq!(story.tick(), "kill:c");
    assert_eq!(story.exited("c", 137), "cleanup");
    assert_eq!(story.finish(), "delete");
}

#[test]
fn stale_answers_about_earlier_instances_change_nothing() {
    let mut story = Story::new(single("OnFailure"));
    story.tick();
    story.started("c");
    story.exited("c", 1);
    story.started("c");
    let exit = Exit::with_code(1, None, story.now.wall);
    assert_eq!(story.take(Input::Exited { container: 0, attempt: 0, exit }), "");
    assert_eq!(story.phase(), Phase::Running);
}

#[test]
fn conditions_keep_their_transition_times() {
    let mut story = Story::new(single("Never"));
    story.tick();
    let before = condition(&story.status(), "Ready")["lastTransitionTime"].clone();
    story.pass(60);
    assert_eq!(condition(&story.status(), "Ready")["lastTransitionTime"], before);
    story.started("c");
    assert_ne!(condition(&story.status(), "Ready")["lastTransitionTime"], before);
}

#[test]
fn termination_messages_share_one_budget() {
    let mut story = Story::new(json!({"restartPolicy": "Never", "containers": containers(&["a", "b", "c"])}));
    story.tick();
    for name in ["a", "b", "c"] {
        story.started(name);
        let container = story.pod.index_of(name).unwrap();
        let exit = Exit { message: Some("é".repeat(5000)), ..Exit::with_code(0, None, story.now.wall) };
        story.take(Input::Exited { container, attempt: 0, exit });
    }
    for container in story.status()["containerStatuses"].as_array().unwrap() {
        assert_eq!(container["state"]["terminated"]["message"].as_str().unwrap().len(), 4096, "PL-56");
    }
}
