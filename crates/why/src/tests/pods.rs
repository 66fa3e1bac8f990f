//! Pods.

use expect_test::expect;
use serde_json::{Value, json};

use super::objects::*;
use crate::Snapshot;

#[test]
fn a_running_pod_runs() {
    check(
        &about_pod(pod("pi-a", json!({})), vec![]),
        expect![[r#"
        pod/pi-a: It is running.
          since  2026-11-15T10:09:02Z (58s ago)
          do     tally why job/pi

        evidence:
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_pod_with_a_deadline_says_when() {
    check(
        &about_pod(pod("pi-a", json!({"spec": {"activeDeadlineSeconds": 100}})), vec![]),
        expect![[r#"
        pod/pi-a: It is running.
          since  2026-11-15T10:09:02Z (58s ago)
          next   2026-11-15T10:10:40Z: its activeDeadlineSeconds are over and it is stopped (in 40s)
          do     tally why job/pi

        evidence:
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_pod_that_fails_its_probe_is_not_ready() {
    check(
        &about_pod(
            with(
                pod("pi-a", json!({})),
                json!({"status": {"containerStatuses": [{"name": "main", "ready": false, "state": {"running": {"startedAt": ago(58)}}}]}}),
            ),
            vec![event("Pod", "pi-a", "Unhealthy", "Readiness probe failed: connection refused", 3)],
        ),
        expect![[r#"
            pod/pi-a: It is running: container `main` does not pass its probe.
              since  2026-11-15T10:09:02Z (58s ago)
              do     tally why job/pi

            evidence:
              event of pod/pi-a: Unhealthy, 3 times: Readiness probe failed: connection refused (3s ago)
              pod/pi-a: belongs to job/pi
        "#]],
    );
}

#[test]
fn a_succeeded_pod_succeeded() {
    check(
        &about_pod(ended("pi-a", "Succeeded", 30, 0), vec![]),
        expect![[r#"
        pod/pi-a: It has succeeded.
          since  2026-11-15T10:09:30Z (30s ago)
          do     tally why job/pi

        evidence:
          pod/pi-a: container `main` ended with exit code 0 (Completed) after 5s (30s ago)
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_failed_pod_says_how() {
    check(
        &about_pod(failed("pi-a", 30, 139), vec![]),
        expect![[r#"
        pod/pi-a: It has failed: container `main` ended with exit code 139: segmentation fault, SIGSEGV.
          since  2026-11-15T10:09:30Z (30s ago)
          do     kubectl logs pi-a
                 tally why job/pi

        evidence:
          pod/pi-a: container `main` ended with exit code 139: segmentation fault, SIGSEGV after 5s (30s ago)
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_pod_out_of_memory_is_said_to_be() {
    let mut pod = failed("pi-a", 30, 137);
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = json!("OOMKilled");
    check(
        &about_pod(pod, vec![]),
        expect![[r#"
        pod/pi-a: It has failed: container `main` ended with exit code 137 (OOMKilled): it used more memory than its limit.
          since  2026-11-15T10:09:30Z (30s ago)
          do     kubectl logs pi-a
                 raise the container's `resources.limits.memory`, in a new Job
                 tally why job/pi

        evidence:
          pod/pi-a: container `main` ended with exit code 137 (OOMKilled): it used more memory than its limit after 5s (30s ago)
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn an_evicted_pod_says_why() {
    check(
        &about_pod(
            pod(
                "pi-a",
                json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. ", "containerStatuses": []}}),
            ),
            vec![],
        ),
        expect![[r#"
            pod/pi-a: It has failed: Evicted: The node was low on resource: memory.
              since  2026-11-15T10:09:02Z (58s ago)
              do     kubectl logs pi-a
                     tally why job/pi

            evidence:
              pod/pi-a: belongs to job/pi
        "#]],
    );
}

/// PL-107.
#[test]
fn gates_hold_a_pod_back() {
    check(
        &about_pod(pending("pi-a", json!({"spec": {"schedulingGates": [{"name": "example.com/quota"}]}})), vec![]),
        expect![[r#"
            pod/pi-a: It is held back from scheduling: `example.com/quota` is set.
              since  2026-11-15T10:09:00Z (1m ago)
              next   it is scheduled when whoever set its schedulingGates removes them
              do     tally why job/pi

            evidence:
              pod/pi-a: belongs to job/pi
        "#]],
    );
}

#[test]
fn a_scheduler_that_does_not_exist_is_named() {
    check(
        &about_pod(pending("pi-a", json!({"spec": {"schedulerName": "fancy"}})), vec![]),
        expect![[r#"
        pod/pi-a: It has no node: scheduler `fancy` has not looked at it.
          since  2026-11-15T10:09:00Z (1m ago)
          do     check that scheduler `fancy` runs, or correct `spec.schedulerName` of the pod template
                 tally why job/pi

        evidence:
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_new_pod_is_about_to_be_scheduled() {
    check(
        &about_pod(with(pending("pi-a", json!({})), json!({"metadata": {"creationTimestamp": ago(1)}})), vec![]),
        expect![[r#"
            pod/pi-a: It is starting: the scheduler has not looked at it yet.
              since  2026-11-15T10:09:59Z (1s ago)
              do     tally why job/pi

            evidence:
              pod/pi-a: belongs to job/pi
        "#]],
    );
}

#[test]
fn an_init_container_comes_first() {
    check(
        &about_pod(
            pod(
                "pi-a",
                json!({"spec": {"initContainers": [{"name": "fetch"}]}, "status": {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {"startedAt": ago(40)}}}], "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]}}),
            ),
            vec![],
        ),
        expect![[r#"
            pod/pi-a: It is starting: init container `fetch` runs.
              since  2026-11-15T10:09:20Z (40s ago)
              do     kubectl logs pi-a -c fetch
                     tally why job/pi

            evidence:
              pod/pi-a: belongs to job/pi
        "#]],
    );
}

/// kubectl shows the first regular container unless it is told which one.
#[test]
fn the_container_whose_log_helps_is_named_if_there_are_others() {
    let action = |pod: Value| {
        let text = crate::explain(&about_pod(pod, vec![])).text();
        text.lines().find_map(|line| line.split_once("kubectl logs ")).map(|(_, rest)| rest.to_owned())
    };
    let ended = json!({"exitCode": 1, "reason": "Error", "startedAt": ago(20), "finishedAt": ago(15)});
    let main = json!([{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]);
    let spec = json!({"initContainers": [{"name": "fetch"}], "containers": [{"name": "main"}]});
    let restarting = json!([{"name": "fetch", "restartCount": 3, "lastState": {"terminated": ended},
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=fetch"}}}]);
    let status = json!({"phase": "Pending", "initContainerStatuses": restarting, "containerStatuses": main});
    assert_eq!(
        action(pod("pi-a", json!({"spec": spec, "status": status}))).as_deref(),
        Some("pi-a -c fetch --previous")
    );
    let failed = json!([{"name": "fetch", "state": {"terminated": ended}}]);
    let status = json!({"phase": "Failed", "initContainerStatuses": failed, "containerStatuses": main});
    assert_eq!(action(pod("pi-a", json!({"spec": spec, "status": status}))).as_deref(), Some("pi-a -c fetch"));
}

/// PL-39.
#[test]
fn a_pod_is_stopped_with_grace() {
    check(
        &about_pod(deleting(pod("pi-a", json!({})), 17), vec![]),
        expect![[r#"
        pod/pi-a: It is being deleted: its processes have been asked to stop and still run.
          since  2026-11-15T10:09:47Z (13s ago)
          next   2026-11-15T10:10:17Z: what still runs is killed (in 17s)
          do     tally why job/pi

        evidence:
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_node_that_does_not_confirm_is_named() {
    check(
        &about_pod(deleting(pod("pi-a", json!({})), -60), vec![]),
        expect![[r#"
        pod/pi-a: It is being deleted: node `n1` has not confirmed its end although the grace period is over.
          since  2026-11-15T10:09:00Z (1m ago)
          do     look at node `n1`: whatever runs pods there must be working
                 tally why job/pi

        evidence:
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn an_uncounted_pod_stays() {
    check(
        &about_pod(deleting(failed("pi-a", 60, 1), -40), vec![]),
        expect![[r#"
        pod/pi-a: It is being deleted: it has ended and finalizer `batch.kubernetes.io/job-tracking` keeps it until the Job controller has counted it.
          since  2026-11-15T10:09:20Z (40s ago)
          do     check that the Job controller runs; it removes this finalizer by itself
                 tally why job/pi

        evidence:
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_foreign_finalizer_is_named() {
    check(
        &about_pod(
            with(
                deleting(failed("pi-a", 60, 1), -40),
                json!({"metadata": {"finalizers": ["example.com/backup"], "namespace": "team"}}),
            ),
            vec![],
        ),
        expect![[r#"
            pod/pi-a: It is being deleted: it has ended and stays until finalizer `example.com/backup` is removed by whoever set it.
              since  2026-11-15T10:09:20Z (40s ago)
              do     find out who sets that finalizer and why it is not removed
                     if nobody will: kubectl patch pod/pi-a -n team --type=merge -p '{"metadata":{"finalizers":null}}'
                     tally why job/pi -n team

            evidence:
              pod/pi-a: has finalizers example.com/backup
              pod/pi-a: belongs to job/pi
        "#]],
    );
}

#[test]
fn a_lost_node_is_named() {
    let snapshot = Snapshot { nodes: Some(vec![node("n1", "Unknown")]), ..about_pod(pod("pi-a", json!({})), vec![]) };
    check(
        &snapshot,
        expect![[r#"
        pod/pi-a: It is on a node that does not report: node `n1` is not ready.
          since  2026-11-15T10:03:20Z (6m40s ago)
          next   the pod goes on, or is replaced when it is evicted from the node
          do     kubectl describe node n1
                 tally why job/pi

        evidence:
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_node_that_is_gone_is_named() {
    let snapshot = Snapshot { nodes: Some(vec![]), ..about_pod(pod("pi-a", json!({})), vec![]) };
    check(
        &snapshot,
        expect![[r#"
        pod/pi-a: It is on a node that does not report: node `n1` does not exist any more.
          next   the pod is removed and counted as failed by the pod garbage collector
          do     kubectl delete pod/pi-a --force
                 tally why job/pi

        evidence:
          pod/pi-a: belongs to job/pi
    "#]],
    );
}

#[test]
fn a_node_that_ignores_a_pod_is_named() {
    check(
        &about_pod(
            with(pod("pi-a", json!({})), json!({"status": {"phase": "Pending", "containerStatuses": null}})),
            vec![],
        ),
        expect![[r#"
            pod/pi-a: It is starting: node `n1` has not acknowledged it.
              since  2026-11-15T10:09:00Z (1m ago)
              do     check that whatever runs pods on node `n1` is working
                     tally why job/pi

            evidence:
              pod/pi-a: belongs to job/pi
        "#]],
    );
}
