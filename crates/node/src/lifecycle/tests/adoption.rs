//! Pods that an agent finds, and what becomes of those whose containers were lost.

use super::*;

fn running_in_api(policy: &str) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": single(policy),
        "status": {
            "phase": "Running",
            "startTime": "1970-01-12T13:46:00Z",
            "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                "state": {"running": {"startedAt": "1970-01-12T13:46:10Z"}},
                "lastState": {"terminated": {"exitCode": 7, "reason": "Error"}},
            }],
        },
    })
}

fn record(attempt: u32, code: Option<i32>) -> Record {
    let at = Timestamp::from_second(999_999).unwrap();
    Record {
        container: "c".to_owned(),
        attempt,
        started_at: Some(at),
        exit: code.map(|code| Exit::with_code(code, Some(at), at)),
    }
}

#[test]
fn a_running_container_is_found_again() {
    let mut story = Story::with(running_in_api("OnFailure"), &[record(2, None)]);
    assert_eq!(story.tick(), "");
    let status = story.status();
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["startTime"], "1970-01-12T13:46:00Z");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 2);
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 7);
}

/// What probes found out before the agent was restarted holds until they say otherwise (PL-139).
#[test]
fn probes_go_on_where_they_were_when_a_container_is_found_again() {
    let exec = json!({"exec": {"command": ["x"]}});
    for (started, ready, attempt, asked) in [
        (false, false, 2, "probe:c:Startup"),
        (true, false, 2, "probe:c:Readiness"),
        (true, true, 2, "probe:c:Readiness"),
        // The status is that of an earlier instance.
        (true, true, 3, "probe:c:Startup"),
    ] {
        let mut pod = running_in_api("Always");
        pod["spec"]["containers"][0]["startupProbe"] = exec.clone();
        pod["spec"]["containers"][0]["readinessProbe"] = exec.clone();
        pod["status"]["containerStatuses"][0]["started"] = json!(started);
        pod["status"]["containerStatuses"][0]["ready"] = json!(ready);
        let mut story = Story::with(pod, &[record(attempt, None)]);
        assert_eq!(story.tick(), asked, "started {started} ready {ready}");
        let status = story.status();
        let container = &status["containerStatuses"][0];
        let holds = attempt == 2;
        assert_eq!((&container["started"], &container["ready"]), (&json!(started && holds), &json!(ready && holds)));
        if ready && holds {
            assert_eq!(condition(&status, "Ready")["status"], "True");
        }
    }
}

#[test]
fn reg_h08_an_exit_that_happened_meanwhile_is_reported_as_it_was() {
    for (code, phase) in [(0, Phase::Succeeded), (1, Phase::Failed)] {
        let mut story = Story::with(running_in_api("Never"), &[record(2, Some(code))]);
        assert_eq!(story.tick(), "cleanup");
        assert_eq!(story.phase(), phase, "REG-H08");
    }
}

#[test]
fn a_container_nobody_knows_is_lost() {
    let mut story = Story::with(running_in_api("Never"), &[]);
    assert_eq!(story.tick(), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Failed");
    let container = &status["containerStatuses"][0];
    let terminated = &container["state"]["terminated"];
    assert_eq!(terminated["reason"], "ContainerStatusUnknown");
    assert_eq!(terminated["containerID"], "tally://u/c/2", "its log can be read (PL-124)");
    assert_eq!(terminated["startedAt"], "1970-01-12T13:46:10Z");
    assert_eq!(container["restartCount"], 3, "PL-16");
}

#[test]
fn a_lost_container_that_is_started_again_counts_one_restart() {
    let mut story = Story::with(running_in_api("OnFailure"), &[]);
    assert_eq!(story.tick(), "start:c/3");
    let mut told = running_in_api("OnFailure");
    told["status"] = story.status();
    assert_eq!(told["status"]["containerStatuses"][0]["restartCount"], 3, "PL-16");
    assert_eq!(Story::with(told, &[]).tick(), "start:c/3", "the agent was restarted in between");
    story.started("c");
    let status = story.status();
    let container = &status["containerStatuses"][0];
    assert_eq!(container["restartCount"], 3, "PL-29, PL-34");
    assert_eq!(container["lastState"]["terminated"]["containerID"], "tally://u/c/2");
}

fn with_init(policy: &str) -> Value {
    json!({"restartPolicy": policy, "initContainers": containers(&["i1", "i2"]), "containers": containers(&["a", "b"])})
}

impl Story {
    /// Through the init containers of [`with_init`]; then both others run.
    fn initialize(&mut self, attempt: u32) {
        assert_eq!(self.started("i1"), "");
        assert_eq!(self.exited("i1", 0), format!("start:i2/{attempt}"));
        self.started("i2");
        self.exited("i2", 0);
    }

    fn lost(&mut self, name: &str) -> String {
        let container = self.pod.index_of(name).unwrap();
        let attempt = self.pod.containers[container].attempt;
        let exit = Exit::unseen(Some(self.now.wall), self.now.wall);
        self.take(Input::Exited { container, attempt, exit })
    }

    fn waiting_reason(&mut self, list: &str, index: usize) -> Value {
        self.status()[list][index]["state"]["waiting"]["reason"].take()
    }
}

#[test]
fn a_pod_that_lost_its_sandbox_begins_anew_with_its_init_containers() {
    let mut story = Story::new(with_init("OnFailure"));
    story.tick();
    story.initialize(0);
    story.started("a");
    story.started("b");
    story.exited("a", 0);
    assert_eq!(story.take(Input::SandboxLost), "");
    assert_eq!(story.lost("b"), "start:i1/1", "PL-28");
    let status = story.status();
    assert_eq!(status["phase"], "Pending", "PL-5");
    let init = &status["initContainerStatuses"][1];
    assert_eq!(init["state"]["terminated"]["exitCode"], 0, "what the API does not let go (AS-176)");
    assert_eq!((&init["restartCount"], &init["ready"]), (&json!(0), &json!(true)));
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0, "what is done stays done");
    assert_eq!(story.waiting_reason("containerStatuses", 1), "PodInitializing");
    story.initialize(1);
    assert_eq!(story.started("b"), "");
    assert_eq!(story.phase(), Phase::Running);
    assert_eq!(story.exited("b", 0), "cleanup");
    let status = story.status();
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["containerStatuses"][1]["restartCount"], 1);
}

#[test]
fn nothing_of_a_lost_sandbox_starts_before_all_ends_are_known() {
    let mut story = Story::new(with_init("Always"));
    story.tick();
    story.initialize(0);
    story.started("a");
    story.started("b");
    story.take(Input::SandboxLost);
    assert_eq!(story.lost("a"), "");
    assert_eq!(story.lost("b"), "start:i1/1");
    story.initialize(1);
    story.started("a");
    // The order for the other one is on its way when all else is lost again.
    story.take(Input::SandboxLost);
    assert_eq!(story.lost("a"), "");
    assert_eq!(story.started("b"), "", "too late to begin anew; the first waits for its back-off");
    story.pass(10);
    assert_eq!(story.tick(), "start:a/2");
}

#[test]
fn a_never_pod_that_lost_its_sandbox_is_not_run_again() {
    let mut story = Story::new(with_init("Never"));
    story.tick();
    story.initialize(0);
    story.started("a");
    story.started("b");
    story.take(Input::SandboxLost);
    story.lost("a");
    assert_eq!(story.lost("b"), "cleanup", "PL-28");
    assert_eq!(story.phase(), Phase::Failed);
}

/// The machine was restarted, and the agent with it, perhaps more than once.
#[test]
fn an_agent_that_finds_everything_lost_begins_anew() {
    let mut story = Story::new(with_init("OnFailure"));
    story.tick();
    story.initialize(0);
    story.started("a");
    story.started("b");
    story.exited("a", 0);
    let object = |story: &mut Story| {
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "u"});
        json!({"metadata": metadata, "spec": with_init("OnFailure"), "status": story.status()})
    };
    let of = |name: &str, attempt, at: i64, exit: fn(Timestamp) -> Exit| {
        let at = Timestamp::from_second(at).unwrap();
        Record { container: name.to_owned(), attempt, started_at: Some(at), exit: Some(exit(at)) }
    };
    let done = |at| Exit::with_code(0, Some(at), at);
    let lost = |at| Exit::unseen(Some(at), at);
    let mut records = vec![of("i1", 0, 1, done), of("i2", 0, 2, done), of("a", 0, 3, done), of("b", 0, 4, lost)];
    let before = object(&mut story);
    let mut story = Story::with(before.clone(), &records);
    assert_eq!(story.tick(), "start:i1/1");
    // The next agent comes before this one has told anybody, or after.
    for known in [before.clone(), object(&mut story)] {
        assert_eq!(Story::with(known, &records).tick(), "start:i1/1");
    }
    records.push(of("i1", 1, 5, done));
    for known in [before, object(&mut story)] {
        let mut story = Story::with(known, &records);
        assert_eq!(story.tick(), "start:i2/1", "the first has been run again");
        story.started("i2");
        assert_eq!(story.exited("i2", 0), "start:b/1");
    }
}

#[test]
fn a_start_the_api_never_heard_of_is_not_repeated() {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": single("Never")});
    let mut story = Story::with(pod.clone(), &[record(0, None)]);
    assert_eq!(story.tick(), "", "INV-49");
    let mut story = Story::with(pod, &[record(0, Some(3))]);
    assert_eq!(story.tick(), "cleanup");
    assert_eq!(story.status()["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
}

#[test]
fn an_order_whose_outcome_is_not_known_yet_is_waited_for() {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": single("Never")});
    let ordered = Record { started_at: None, ..record(0, None) };
    let mut story = Story::with(pod.clone(), std::slice::from_ref(&ordered));
    assert_eq!(story.tick(), "", "INV-49");
    assert_eq!(story.started("c"), "");
    assert_eq!(story.phase(), Phase::Running);
    let mut story = Story::with(pod, &[ordered]);
    let failure = StartFailure::Start { message: "exec: \"x\": not found".to_owned(), at: story.now.wall };
    assert_eq!(story.take(Input::NotStarted { container: 0, attempt: 0, failure }), "cleanup");
    assert_eq!(story.phase(), Phase::Failed);
}

#[test]
fn a_terminal_pod_is_never_started() {
    let mut pod = running_in_api("Always");
    pod["status"]["phase"] = json!("Failed");
    pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 7}});
    let mut story = Story::with(pod, &[]);
    assert_eq!(story.tick(), "cleanup");
    assert_eq!(story.take(Input::CleanedUp), "forget");
    assert_eq!(story.phase(), Phase::Failed);
}

/// Somebody ended the pod while no agent was here; what still runs is stopped, and how it ended is reported.
#[test]
fn what_still_runs_of_a_terminal_pod_is_stopped_and_its_end_reported() {
    let mut pod = running_in_api("Always");
    pod["status"]["phase"] = json!("Succeeded");
    let mut story = Story::with(pod.clone(), &[record(2, None)]);
    assert_eq!(story.tick(), "term:c");
    assert_eq!(story.exited("c", 143), "cleanup");
    assert_eq!(story.take(Input::CleanedUp), "", "not before the API has the end");
    assert_eq!(story.status()["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
    assert_eq!((story.phase(), story.reported().as_str()), (Phase::Succeeded, "forget"));
    for (records, code) in [(vec![record(2, Some(3))], 3), (vec![], 137)] {
        let mut story = Story::with(pod.clone(), &records);
        assert_eq!(story.tick(), "cleanup");
        assert_eq!(story.status()["containerStatuses"][0]["state"]["terminated"]["exitCode"], code);
        assert_eq!(story.finish(), "forget");
    }
}
