//! `tally wait`, `tally logs` and `tally rerun` against a server: the embedded one stands for any.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::world::{World, indexed};
use common::{Sandbox, until, wait};
use expect_test::expect;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tells_success_failure_and_time_apart() {
    let world = World::new().await;
    world.create("good", json!({}), "true").await;
    world.run(&["wait", "job/good"]).check(
        0,
        expect![[r#"
            job.batch/good complete
            --- stderr ---
        "#]],
    );
    world.create("bad", json!({"backoffLimit": 0}), "exit 1").await;
    world.run(&["wait", "bad", "--timeout", "1m"]).check_refused(
        1,
        expect![[r#"
            error: job/bad failed: BackoffLimitExceeded: Job has reached the specified backoff limit

            hint: `tally logs job/bad --failed` shows what its pods said
        "#]],
    );
    world.create("slow", json!({}), "sleep 100").await;
    world.run(&["wait", "job/slow", "--timeout", "2s"]).check_refused(
        124,
        expect![[r#"
            error: job/slow has not finished within TIME

            hint: `tally why job/NAME` says what a Job is waiting for
        "#]],
    );
    assert_eq!(world.run(&["wait", "job/good", "--timeout", "0s"]).code, Some(0), "it is looked at once");
    let late = world.run(&["wait", "job/slow", "job/bad", "job/good", "--timeout", "5s"]);
    assert_eq!(late.code, Some(124));
    assert!(late.stderr.starts_with("error: 1 of 3 Jobs have not finished within 5.0s; 1 Job failed\n"), "{late:?}");
    let both = world.run(&["wait", "job/good", "job/bad"]);
    assert_eq!((both.code, both.stdout.as_str()), (Some(1), "job.batch/good complete\n"));
    let missing = world.run(&["wait", "job/missing"]);
    assert!(missing.stderr.starts_with("error: there is no job/missing in namespace `default` on https://"));
    assert_eq!(missing.code, Some(2));
    assert_eq!(world.run(&["wait", "pod/x"]).code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_goes_away_is_not_waited_for() {
    let world = World::new().await;
    world.create("brief", json!({"suspend": true}), "true").await;
    let kubeconfig = world.server.kubeconfig().to_str().unwrap();
    let mut command = world.sandbox.command(&["wait", "-v", "job/brief", "--kubeconfig", kubeconfig]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // It has seen the Job: from here on it is this very Job that it waits for.
    assert!(lines.any(|line| line.contains("waiting")));
    let immediately = DeleteParams::background();
    world.jobs().delete("brief", &immediately).await.unwrap();
    world.create("brief", json!({}), "true").await;
    let rest: Vec<String> = lines.filter(|line| !line.contains(" INFO ")).collect();
    let expected = [
        "error: job/brief in namespace `default` was deleted before it finished",
        "",
        "hint: `tally history` knows what its pods did, if a tally ran them",
    ];
    assert_eq!(rest, expected, "another Job of its name does not count");
    assert_eq!(wait(&mut child).code(), Some(1));
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let sandbox = Sandbox::new();
    let nowhere = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    let config = sandbox.file("config", &nowhere.to_string());
    for command in ["wait", "logs", "rerun"] {
        let ran = sandbox.run(&[command, "job/x", "--kubeconfig", config.to_str().unwrap()]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.starts_with("error: reach http://127.0.0.1:1\n  caused by: "), "{ran:?}");
        assert!(ran.stderr.contains("\nhint: is the server running?"), "{ran:?}");
    }
    sandbox.run(&["wait", "job/x"]).check_refused(
        1,
        expect![[r#"
            error: find a cluster
              caused by: DIR/.kube/config: No such file or directory

            hint: say which cluster with `--kubeconfig FILE`, or start one with `tally up -d`
        "#]],
    );
    sandbox.run(&["wait", "job/x", "--data", "nothing"]).check_refused(
        3,
        expect![[r#"
            error: no tally runs on `nothing`

            hint: start one with `tally up -d --data nothing`
        "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_by_index_by_time_or_only_what_failed() {
    let world = World::new().await;
    // Index 2 speaks its second line first, then 1, then 0: each waits for the one before, and a moment longer.
    let gates = world.sandbox.path().join("gate-").display().to_string();
    let script = format!(
        "i=$JOB_COMPLETION_INDEX; echo $i a; touch {gates}3; while ! [ -e {gates}$((i + 1)) ]; do sleep 0.02; done; \
         sleep 0.2; echo $i b; touch {gates}$i; test $i != 1"
    );
    world.create("talk", indexed(3), &script).await;
    assert_eq!(world.run(&["wait", "job/talk"]).code, Some(1));
    world.run(&["logs", "job/talk"]).check(
        0,
        expect![[r#"
            [talk/0] 0 a
            [talk/0] 0 b
            [talk/1] 1 a
            [talk/1] 1 b
            [talk/2] 2 a
            [talk/2] 2 b
            --- stderr ---
        "#]],
    );
    assert_eq!(world.run(&["logs", "job/talk", "--failed"]).stdout, "[talk/1] 1 a\n[talk/1] 1 b\n");
    assert_eq!(world.run(&["logs", "job/talk", "--index", "2", "--tail", "1"]).stdout, "[talk/2] 2 b\n");
    assert_eq!(world.run(&["logs", "talk", "--index", "0,2", "--no-prefix"]).stdout, "0 a\n0 b\n2 a\n2 b\n");
    let merged = world.run(&["logs", "job/talk", "--interleave", "--no-prefix"]).stdout;
    let last = |text: &str| merged.lines().filter(|line| line.ends_with(text)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(last("b"), ["2 b", "1 b", "0 b"], "in the order of time: {merged}");
    assert_eq!(last("a").len(), 3);
    // A Job that has ended is followed to its end.
    let mut followed: Vec<String> = world.run(&["logs", "-f", "job/talk"]).stdout.lines().map(str::to_owned).collect();
    followed.sort_unstable();
    assert_eq!(followed.len(), 6, "{followed:?}");

    world.run(&["logs", "job/talk", "--index", "1,9"]).check_refused(
        2,
        expect![[r#"
            error: job/talk in namespace `default` has no index 9: it has 3, from 0 to 2

            hint: leave `--index` out to see all
        "#]],
    );
    let refused = world.run(&["logs", "job/talk", "--index", "x"]);
    assert_eq!(refused.code, Some(2));
    world.create("plain", json!({}), "true").await;
    world.run(&["logs", "job/plain", "--index", "0"]).check_refused(
        2,
        expect![[r#"
            error: job/plain in namespace `default` has no indexes

            hint: leave `--index` out
        "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_while_a_job_runs() {
    let world = World::new().await;
    let gate = world.sandbox.path().join("gate");
    let script = format!("echo begun; while ! [ -e {} ]; do sleep 0.02; done; echo ended", gate.display());
    world.create("live", indexed(2), &script).await;
    let kubeconfig = world.server.kubeconfig().to_str().unwrap();
    let shown = world.sandbox.path().join("shown");
    let mut child = world
        .sandbox
        .command(&["logs", "-f", "job/live", "--kubeconfig", kubeconfig])
        .stdout(std::fs::File::create(&shown).unwrap())
        .spawn()
        .unwrap();
    let read = || std::fs::read_to_string(&shown).unwrap();
    until("both have begun", || read().matches("begun").count() == 2);
    assert!(!read().contains("ended"));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(wait(&mut child).code(), Some(0), "it ends with the Job");
    let mut lines: Vec<String> = read().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[live/0] begun", "[live/0] ended", "[live/1] begun", "[live/1] ended"]);
}

/// JC-1402: only the indexes that failed are run again, under the numbers they had.
#[tokio::test(flavor = "multi_thread")]
async fn only_failed_indexes_are_run_again_under_their_own_numbers() {
    let world = World::new().await;
    let fixed = world.sandbox.path().join("fixed");
    let script = format!(
        "echo index $JOB_COMPLETION_INDEX; case $JOB_COMPLETION_INDEX in 1|4) [ -e {} ];; esac",
        fixed.display()
    );
    world.create("batch", indexed(6), &script).await;
    assert_eq!(world.run(&["wait", "job/batch"]).code, Some(1));
    std::fs::write(&fixed, "").unwrap();

    world.run(&["rerun", "job/batch", "--failed"]).check(
        0,
        expect![[r#"
            job.batch/batch-rerun-1 created
            --- stderr ---
        "#]],
    );
    assert_eq!(world.run(&["wait", "job/batch-rerun-1"]).code, Some(0));
    assert_eq!(
        world.run(&["logs", "job/batch-rerun-1"]).stdout,
        "[batch-rerun-1/1] index 1\n[batch-rerun-1/4] index 4\n",
        "nothing else was run"
    );
    let status = world.status("batch-rerun-1").await;
    assert_eq!((&status["succeeded"], &status["completedIndexes"]), (&json!(6), &json!("0-5")));
    let new = world.jobs().get("batch-rerun-1").await.unwrap();
    let old = world.jobs().get("batch").await.unwrap();
    let annotations = new.metadata.annotations.unwrap();
    assert_eq!(annotations["tally.dev/completed-before"], "0,2,3,5");
    assert_eq!(Some(&annotations["tally.dev/rerun-of"]), old.metadata.uid.as_ref());

    let again = world.run(&["rerun", "job/batch-rerun-1", "--failed"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""));
    assert_eq!(again.stderr, "nothing to run again: all of job/batch-rerun-1 succeeded\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_jobs_are_run_again_under_new_names() {
    let world = World::new().await;
    world.create("plain", json!({"completions": 2, "backoffLimit": 0}), "echo done").await;
    world.run(&["wait", "job/plain"]);
    for number in 1..=2 {
        let ran = world.run(&["rerun", "job/plain"]);
        assert_eq!(ran.stdout, format!("job.batch/plain-rerun-{number} created\n"), "{ran:?}");
        assert_eq!(world.run(&["wait", &format!("job/plain-rerun-{number}")]).code, Some(0));
    }
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let all = pods.list(&ListParams::default().labels("batch.kubernetes.io/job-name=plain-rerun-2")).await.unwrap();
    assert_eq!(all.items.len(), 2, "the new Job has pods of its own");

    let taken = world.run(&["rerun", "job/plain", "--name", "plain"]);
    assert_eq!(taken.code, Some(1));
    assert!(taken.stderr.starts_with("error: create job/plain\n  caused by: jobs.batch \"plain\" already exists\n"));
    assert!(taken.stderr.contains("\nhint: choose another name with `--name`"), "{taken:?}");
    world.create("slow", json!({"suspend": true}), "true").await;
    world.run(&["rerun", "job/slow"]).check_refused(
        2,
        expect![[r#"
            error: job/slow in namespace `default` has not finished

            hint: `tally wait job/slow` waits for it
        "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_indexes_what_is_missing_is_run_again() {
    let world = World::new().await;
    let gate = world.sandbox.path().join("once");
    let script = format!("mkdir {} 2>/dev/null", gate.display());
    world.create("some", json!({"completions": 3, "parallelism": 1, "backoffLimit": 0}), &script).await;
    assert_eq!(world.run(&["wait", "job/some"]).code, Some(1), "one succeeds, the next one fails");
    let ran = world.run(&["rerun", "job/some", "--failed", "--name", "rest"]);
    assert_eq!(ran.stdout, "job.batch/rest created\n", "{ran:?}");
    assert_eq!(world.jobs().get("rest").await.unwrap().spec.unwrap().completions, Some(2));
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    let _ = world.jobs().patch("rest", &PatchParams::default(), &suspend).await;
}
