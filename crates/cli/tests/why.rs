//! `tally why` against a real `tally up`: what each state of a Job, CronJob or pod looks like from outside.
//!
//! The words of every answer are compared in the crate `why`; here it is whether a real server leads to them.

mod common;

use std::time::Instant;

use common::world::{World, indexed};
use common::{PATIENCE, Sandbox, until};
use expect_test::expect;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const CORE: &str = "/api/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";

fn why(world: &World, subject: &str) -> String {
    let ran = world.run(&["why", subject]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    ran.stdout
}

/// Asks until the answer begins like this, and returns all of it.
fn until_why(world: &World, subject: &str, begin: &str) -> String {
    let (begin, deadline) = (format!("{subject}: {begin}"), Instant::now() + PATIENCE);
    loop {
        let text = why(world, subject);
        if text.starts_with(&begin) {
            return text;
        }
        assert!(Instant::now() < deadline, "it should say {begin:?}, and says {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_a_job_back() {
    let world = World::with(&[]).await;
    world.create("held", json!({"suspend": true}), "true").await;
    until("the suspension", || why(&world, "job/held").contains("condition Suspended is True"));
    until_why(&world, "job/held", "It is suspended: `spec.suspend` is true.\n");
    assert!(why(&world, "held").starts_with("job/held: It is suspended"), "a name alone is a Job's");

    world.create("elsewhere", json!({"managedBy": "example.com/controler"}), "true").await;
    let begin = "Nobody runs it: `spec.managedBy` is `example.com/controler`, and no controller of that name shows";
    let text = until_why(&world, "job/elsewhere", begin);
    assert!(text.contains("no status and no pods since it was created"), "{text}");

    // The delay after a first failure is ten seconds, as in Kubernetes.
    world.create("retries", json!({}), "exit 3").await;
    let text = until_why(&world, "job/retries", "It waits before it tries again: its pod failed ");
    assert!(text.contains("ended with exit code 3"), "{text}");
    assert!(text.contains("Z: a new pod is created; backoffLimit allows 6 more (in "), "{text}");

    let big = json!({"requests": {"cpu": "100k"}});
    let containers = json!([{"name": "main", "image": "none", "command": ["true"], "resources": big}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    let job = json!({"metadata": {"name": "big"}, "spec": {"template": template}});
    world.post(&format!("{BATCH}/jobs"), job).await;
    until_why(&world, "job/big", "1 pod has no node: 0/1 nodes are available: 1 Insufficient cpu.");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_while_a_job_runs() {
    let world = World::with(&[]).await;
    world.create("sleeper", json!({"activeDeadlineSeconds": 3600}), "sleep 600").await;
    until_why(&world, "job/sleeper", "It runs: 1 pod is running.");
    let json = world.run(&["why", "job/sleeper", "-o", "json"]).stdout;
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&answer["kind"], &answer["state"]), (&json!("Job"), &json!("Running")));
    assert!(answer["next"][0]["what"].as_str().unwrap().starts_with("activeDeadlineSeconds (1h)"), "{answer}");

    let from = json!([{"configMapRef": {"name": "settings"}}]);
    let containers = json!([{"name": "main", "image": "none", "command": ["true"], "envFrom": from}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    let job = json!({"metadata": {"name": "needs"}, "spec": {"template": template}});
    world.post(&format!("{BATCH}/jobs"), job).await;
    until("the complaint", || {
        why(&world, "job/needs").contains("CreateContainerConfigError: configmap \"settings\" not found")
    });

    // A pod that does not heed SIGTERM, and a Job that replaces it only when it has ended.
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let template = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 600, "containers": [
        {"name": "main", "image": "none", "command": ["sh", "-c", stubborn]}]}});
    let spec = json!({"podReplacementPolicy": "Failed", "template": template});
    world.post(&format!("{BATCH}/jobs"), json!({"metadata": {"name": "replaced"}, "spec": spec})).await;
    until_why(&world, "job/replaced", "It runs: 1 pod is running.");
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(world.client.clone());
    let list = pods.list(&kube::api::ListParams::default().labels("job-name=replaced")).await.unwrap();
    let name = list.items[0].metadata.name.clone().unwrap();
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    until("the wait for its end", || why(&world, "job/replaced").contains("podReplacementPolicy"));
    until_why(
        &world,
        &format!("pod/{name}"),
        "It is being deleted: its processes have been asked to stop and still run.\n",
    );
    pods.delete(&name, &DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_finalizer_keeps() {
    let world = World::with(&[]).await;
    let pod = json!({"metadata": {"name": "kept", "finalizers": ["example.com/keep"]}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "none", "command": ["true"]}]}});
    world.post(&format!("{CORE}/pods"), pod).await;
    until_why(&world, "pod/kept", "It has succeeded.\n");
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(world.client.clone());
    pods.delete("kept", &DeleteParams::default()).await.unwrap();
    until("the finalizer is named", || why(&world, "pod/kept").contains("example.com/keep"));
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("kept", &PatchParams::default(), &release).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn how_jobs_ended() {
    let world = World::new().await;
    let script = "test $JOB_COMPLETION_INDEX != 1";
    world.create("some", indexed(3), script).await;
    let text = until_why(&world, "job/some", "It failed: ");
    assert!(text.contains("failed indexes: 1") || text.contains("index 1"), "{text}");

    world.create("late", json!({"activeDeadlineSeconds": 1}), "exec sleep 600").await;
    let text = until_why(&world, "job/late", "It failed: ");
    assert!(text.contains("activeDeadlineSeconds"), "{text}");

    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
    world.create("ruled", json!({"podFailurePolicy": {"rules": [rule]}}), "exit 42").await;
    let text = until_why(&world, "job/ruled", "It failed: ");
    assert!(text.contains("its pod failure policy says so: ") && text.contains("exit code 42"), "{text}");

    let enough = json!({"rules": [{"succeededIndexes": "0"}]});
    let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "successPolicy": enough});
    world.create("enough", spec, "test $JOB_COMPLETION_INDEX = 0 || exec sleep 600").await;
    let text = until_why(&world, "job/enough", "It is complete");
    assert!(text.contains("successPolicy") || text.contains("success policy"), "{text}");

    world.create("brief", json!({"ttlSecondsAfterFinished": 3600}), "true").await;
    let text = until_why(&world, "job/brief", "It is complete");
    assert!(text.contains("Z: the Job and its pods are deleted, its time to live is over (in "), "{text}");

    world.create("tried", json!({"backoffLimit": 1}), "exit 5").await;
    let text = until_why(&world, "job/tried", "It failed: 2 pods failed, more than backoffLimit 1 allows.");
    assert!(text.contains("ended with exit code 5"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_cron_jobs_run() {
    let world = World::with(&["--node", "none"]).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}});
    for (name, schedule, suspend) in
        [("never", "0 0 31 2 *", false), ("later", "0 0 1 1 *", false), ("held", "* * * * *", true)]
    {
        let spec = json!({"schedule": schedule, "suspend": suspend, "jobTemplate": {"spec": {"template": template}}});
        world.post(&format!("{BATCH}/cronjobs"), json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    assert!(why(&world, "cronjob/never").contains("no date ever matches"), "{}", why(&world, "cronjob/never"));
    let text = why(&world, "cronjob/later");
    assert!(text.contains("-01-01T00:00:00Z"), "{text}");
    assert!(why(&world, "cronjob/held").contains("suspend"), "{}", why(&world, "cronjob/held"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_exist_gets_a_hint() {
    let world = World::with(&["--node", "none"]).await;
    world.create("render-frames", json!({}), "true").await;
    let hint = |arguments: &[&str]| {
        let ran = world.run(&[&["why"], arguments].concat());
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.starts_with("error: there is no "), "{ran:?}");
        ran.stderr.lines().find_map(|line| line.strip_prefix("hint: ")).expect("a hint").to_owned()
    };
    assert_eq!(hint(&["job/render-frame"]), "did you mean `tally why job/render-frames`?");
    let elsewhere = hint(&["job/render-frames", "-n", "kube-system"]);
    assert_eq!(elsewhere, "there is one in namespace `default`: add `-n default`");
    assert_eq!(hint(&["job/other"]), "if it was deleted, its runs may be on record: `tally history job/other`");
    until("the pod", || why(&world, "job/render-frames").contains("the cluster has no node"));
    assert!(why(&world, "job/render-frames").contains("--node none"));
}

/// Most people may not list everything; the answer is as good as it can be, and says what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_done_without() {
    let world = World::with(&["--node", "none"]).await;
    world.create("pi", json!({}), "true").await;
    until("the pod", || why(&world, "job/pi").contains("the cluster has no node"));

    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    world.post(&format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "reader"}})).await;
    let rules = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]);
    world.post(&format!("{rbac}/roles"), json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
    });
    world.post(&format!("{rbac}/rolebindings"), binding).await;
    let token = world.post(&format!("{CORE}/serviceaccounts/reader/token"), json!({"spec": {}})).await;
    let token = token["status"]["token"].as_str().expect("a token");
    let own = std::fs::read_to_string(world.server.kubeconfig()).unwrap();
    let lines = own.lines().map(|line| match line.split_once("token: ") {
        Some((indent, _)) => format!("{indent}token: {token}\n"),
        None => format!("{line}\n"),
    });
    world.sandbox.file("reader", &lines.collect::<String>());

    // A reader has only the Job's status to go by, and that is written after the pod.
    let reads = || world.sandbox.run(&["why", "job/pi", "--kubeconfig", "reader"]).stdout;
    until("the status", || reads().starts_with("job/pi: It runs: 1 pod is active.\n"));
    let text = reads();
    let (_, unseen) = text.split_once("\ncould not see:\n").expect("what could not be seen");
    for kind in ["pods", "events", "nodes"] {
        let line = format!("  {kind}: {kind} is forbidden: User \"system:serviceaccount:default:reader\" cannot list");
        assert!(unseen.contains(&line), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_that_refuses_pods_is_named() {
    let world = World::with(&["--node", "none"]).await;
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}});
    world.post(&format!("{CORE}/resourcequotas"), quota).await;
    world.create("pi", json!({}), "true").await;
    let text = until_why(&world, "job/pi", "1 pod cannot be created: quota `small` refuses it: ");
    assert!(text.contains("  resourcequota/small: pods 0 of 0 used\n"), "{text}");
}

#[test]
fn a_server_that_does_not_answer_is_said_so() {
    let sandbox = Sandbox::new();
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    sandbox.file("config", text);
    let ran = sandbox.run(&["why", "job/x", "--kubeconfig", "config"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("error: reach http://127.0.0.1:1\n"), "{ran:?}");
    assert!(ran.stderr.contains("\nhint: is the server running?"), "{ran:?}");
}

#[test]
fn no_subject_is_no_question() {
    let sandbox = Sandbox::new();
    sandbox.run(&["why"]).check_refused(
        2,
        expect![[r#"
            error: the following required arguments were not provided:
              <job/NAME|cronjob/NAME|pod/NAME|NAME>

            hint: `tally why --help` lists what can be said
        "#]],
    );
}
