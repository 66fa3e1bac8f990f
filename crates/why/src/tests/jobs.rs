//! Jobs.

use expect_test::expect;
use serde_json::{Value, json};

use super::objects::*;
use crate::{Kind, Snapshot, explain};

/// JC-1803.
#[test]
fn a_suspended_job_waits_for_somebody() {
    let job = job(
        json!({"spec": {"suspend": true}, "status": {"conditions": [condition("Suspended", "JobSuspended", "Job suspended", 120)]}}),
    );
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: It is suspended: `spec.suspend` is true.
          since  2026-11-15T10:08:00Z (2m ago)
          next   nothing until somebody resumes it; then the deadline and the start time begin anew
          do     kubectl patch job/pi -p '{"spec":{"suspend":false}}'

        evidence:
          job/pi: condition Suspended is True: Job suspended (2m ago)
    "#]],
    );
}

#[test]
fn a_job_of_a_queue_waits_for_admission() {
    let job = job(
        json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}, "namespace": "team"}, "spec": {"suspend": true}}),
    );
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: It is suspended until queue `gpu` admits it (Kueue).
          since  2026-11-15T10:05:00Z (5m ago)
          next   Kueue resumes it when the queue has room
          do     kubectl describe localqueue gpu -n team

        evidence:
          job/pi: no controller has noted the suspension yet
    "#]],
    );
}

/// KEP-4368, JC-2502.
#[test]
fn a_mistyped_manager_is_nobody() {
    let job = untouched_job(json!({"spec": {"managedBy": "tally.dev/job-controler"}}));
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: Nobody runs it: `spec.managedBy` is `tally.dev/job-controler`, and no controller of that name shows a sign of life. It looks like a typing error for `tally.dev/job-controller`.
          since  2026-11-15T10:05:00Z (5m ago)
          next   nothing until a controller of that name runs: no other one may touch the Job
          do     create the Job again with `managedBy: tally.dev/job-controller`: the field cannot be changed

        evidence:
          job/pi: no status and no pods since it was created (5m ago)
    "#]],
    );
}

#[test]
fn a_manager_that_is_not_installed_is_nobody() {
    let job = untouched_job(json!({"spec": {"managedBy": "example.com/batch-engine"}}));
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: Nobody runs it: `spec.managedBy` is `example.com/batch-engine`, and no controller of that name shows a sign of life.
          since  2026-11-15T10:05:00Z (5m ago)
          next   nothing until a controller of that name runs: no other one may touch the Job
          do     install or start the controller that answers to `example.com/batch-engine`
                 or create the Job again with the right `managedBy`: the field cannot be changed

        evidence:
          job/pi: no status and no pods since it was created (5m ago)
    "#]],
    );
}

#[test]
fn a_manager_whose_lease_has_run_out_has_stopped() {
    let job = untouched_job(json!({"spec": {"managedBy": "tally.dev/job-controller"}}));
    let lease = json!({"metadata": {"name": "tally.dev-job-controller"}, "spec":
        {"holderIdentity": "host_1", "leaseDurationSeconds": 15, "renewTime": ago(240)}});
    let snapshot = Snapshot { leases: Some(vec![lease]), ..about_job(job, vec![], vec![]) };
    check(
        &snapshot,
        expect![[r#"
        job/pi: Nobody runs it: `spec.managedBy` is `tally.dev/job-controller`, and the controller's Lease was last renewed 4m ago.
          since  2026-11-15T10:05:00Z (5m ago)
          next   nothing until a controller of that name runs: no other one may touch the Job
          do     start the controller: `tally controller`

        evidence:
          lease/tally.dev-job-controller: held by host_1, renewed (4m ago)
          job/pi: no status and no pods since it was created (5m ago)
    "#]],
    );
}

#[test]
fn a_manager_that_is_alive_has_not_looked_yet() {
    let job = untouched_job(json!({"spec": {"managedBy": "tally.dev/job-controller"}}));
    let lease = json!({"metadata": {"name": "tally.dev-job-controller"}, "spec":
        {"holderIdentity": "host_1", "leaseDurationSeconds": 15, "renewTime": ago(2)}});
    let snapshot = Snapshot { leases: Some(vec![lease]), ..about_job(job, vec![], vec![]) };
    check(
        &snapshot,
        expect![[r#"
        job/pi: Controller `tally.dev/job-controller` is alive but has not looked at it.
          since  2026-11-15T10:05:00Z (5m ago)
          next   it starts when that controller picks it up: no other one may touch the Job
          do     read the log of controller `tally.dev/job-controller`

        evidence:
          lease/tally.dev-job-controller: held by host_1, renewed (2s ago)
          job/pi: no status and no pods since it was created (5m ago)
    "#]],
    );
}

#[test]
fn without_any_job_controller_nothing_begins() {
    check(
        &about_job(untouched_job(json!({})), vec![], vec![]),
        expect![[r#"
        job/pi: No Job controller has looked at it, and none shows a sign of life.
          since  2026-11-15T10:05:00Z (5m ago)
          next   it starts as soon as a Job controller runs
          do     check that the cluster's Job controller runs: it is a part of kube-controller-manager
                 or start one in its place: `tally controller --replace-built-in`

        evidence:
          job/pi: no status and no pods since it was created (5m ago)
    "#]],
    );
}

#[test]
fn a_job_that_was_just_created_is_starting() {
    let job = with(untouched_job(json!({})), json!({"metadata": {"creationTimestamp": ago(2)}}));
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: It was just created: the Job controller has not looked at it yet.
          since  2026-11-15T10:09:58Z (2s ago)
          next   pods are made, or the Job ends
    "#]],
    );
}

/// JC-1104: 40 s after the third failure.
#[test]
fn after_failures_the_next_try_has_a_time() {
    let pods = vec![failed("pi-a", 70, 1), failed("pi-b", 25, 1), failed("pi-c", 12, 3)];
    let job = job(json!({"status": {"failed": 2}}));
    check(
        &about_job(job, pods, vec![]),
        expect![[r#"
        job/pi: It waits before it tries again: 3 pods failed in a row, the last one 12s ago: container `main` ended with exit code 3.
          since  2026-11-15T10:09:48Z (12s ago)
          next   2026-11-15T10:10:28Z: a new pod is created; backoffLimit allows 4 more (in 28s)
          do     tally logs job/pi --failed

        evidence:
          pod/pi-c: failed: container `main` ended with exit code 3 (12s ago)
          pod/pi-b: failed: container `main` ended with exit code 1 (25s ago)
          pod/pi-a: failed: container `main` ended with exit code 1 (1m10s ago)
    "#]],
    );
}

#[test]
fn the_last_retry_is_said_to_be_the_last() {
    let job = job(json!({"spec": {"backoffLimit": 1}, "status": {"failed": 1}}));
    check(
        &about_job(job, vec![failed("pi-a", 3, 137)], vec![]),
        expect![[r#"
        job/pi: It waits before it tries again: its pod failed 3s ago: container `main` ended with exit code 137: killed, SIGKILL.
          since  2026-11-15T10:09:57Z (3s ago)
          next   2026-11-15T10:10:07Z: a new pod is created; it is the last one that backoffLimit allows (in 7s)
          do     tally logs job/pi --failed

        evidence:
          pod/pi-a: failed: container `main` ended with exit code 137: killed, SIGKILL (3s ago)
    "#]],
    );
}

#[test]
fn a_pod_that_was_released_after_the_job_was_read_counts() {
    let mut pod = failed("pi-a", 3, 1);
    pod["metadata"]["finalizers"] = json!([]);
    let answer = |job: Value| explain(&about_job(job, vec![pod.clone()], vec![])).text();
    let text = answer(job(json!({"status": {"failed": 0}})));
    assert!(text.contains("backoffLimit allows 6 more"), "{text}");
    let rules = json!([{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]);
    let text = answer(job(json!({"spec": {"podFailurePolicy": {"rules": rules}}, "status": {"failed": 0}})));
    assert!(text.contains("backoffLimit allows 7 more"), "{text}");
}

/// JC-1107.
#[test]
fn each_index_backs_off_by_itself() {
    let retry = json!({"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": "1"}}});
    let pods = vec![indexed(with(failed("pi-3", 5, 2), retry), 3), indexed(failed("pi-5", 4, 1), 5)];
    let job = job(json!({
        "spec": {"completionMode": "Indexed", "completions": 10, "parallelism": 10, "backoffLimitPerIndex": 2},
        "status": {"succeeded": 7, "completedIndexes": "0-2,4,6-8", "failedIndexes": "9", "failed": 5},
    }));
    check(
        &about_job(job, pods, vec![]),
        expect![[r#"
        job/pi: Indexes 3 and 5 wait before being tried again.
          since  2026-11-15T10:09:56Z (4s ago)
          next   2026-11-15T10:10:06Z: a new pod for index 5 is created; backoffLimitPerIndex allows 2 more (in 6s)
          do     tally logs job/pi --failed

        evidence:
          pod/pi-5: index 5 failed: container `main` ended with exit code 1 (4s ago)
          pod/pi-3: index 3 failed: container `main` ended with exit code 2 (5s ago)
          job/pi: failed indexes: 9
    "#]],
    );
}

#[test]
fn a_quota_refuses_pods() {
    let message = "Error creating: pods \"pi-x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5";
    let quota = json!({"metadata": {"name": "small"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "5"}}});
    let snapshot = about_job(job(json!({})), vec![], vec![event("Job", "pi", "FailedCreate", message, 8)]);
    check(
        &Snapshot { quotas: Some(vec![quota]), ..snapshot },
        expect![[r#"
        job/pi: 1 pod cannot be created: quota `small` refuses it: pods "pi-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5.
          since  2026-11-15T10:08:52Z (1m8s ago)
          next   the controller tries again by itself, less and less often
          do     raise the quota, lower the pod template's requests, or wait for other pods to end

        evidence:
          event of job/pi: FailedCreate, 3 times: Error creating: pods "pi-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5 (8s ago)
          resourcequota/small: pods 5 of 5 used
    "#]],
    );
}

#[test]
fn a_webhook_refuses_pods() {
    let message = "Error creating: admission webhook \"policy.example.com\" denied the request: no image from perl";
    check(
        &about_job(job(json!({})), vec![], vec![event("Job", "pi", "FailedCreate", message, 8)]),
        expect![[r#"
        job/pi: 1 pod cannot be created: webhook `policy.example.com` refuses it: admission webhook "policy.example.com" denied the request: no image from perl.
          since  2026-11-15T10:08:52Z (1m8s ago)
          next   the controller tries again by itself, less and less often
          do     ask who runs webhook `policy.example.com`, or change the pod template to what it accepts

        evidence:
          event of job/pi: FailedCreate, 3 times: Error creating: admission webhook "policy.example.com" denied the request: no image from perl (8s ago)
    "#]],
    );
}

#[test]
fn a_webhook_that_is_down_refuses_pods() {
    let message = "Error creating: Internal error occurred: failed calling webhook \"policy.example.com\": failed to call webhook: connection refused";
    check(
        &about_job(job(json!({})), vec![], vec![event("Job", "pi", "FailedCreate", message, 8)]),
        expect![[r#"
        job/pi: 1 pod cannot be created: webhook `policy.example.com` does not answer for it: Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: connection refused.
          since  2026-11-15T10:08:52Z (1m8s ago)
          next   the controller tries again by itself, less and less often
          do     repair webhook `policy.example.com`, or remove its configuration: nothing is created while it fails

        evidence:
          event of job/pi: FailedCreate, 3 times: Error creating: Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: connection refused (8s ago)
    "#]],
    );
}

#[test]
fn a_refusal_that_is_over_is_not_mentioned() {
    let events = vec![
        event("Job", "pi", "FailedCreate", "Error creating: exceeded quota: small", 90),
        event("Job", "pi", "SuccessfulCreate", "Created pod: pi-a", 60),
    ];
    check(
        &about_job(job(json!({"status": {"active": 1}})), vec![pod("pi-a", json!({}))], events),
        expect![[r#"
        job/pi: It runs: 1 pod is running.
          since  2026-11-15T10:05:00Z (5m ago)
          next   it ends when its pods have
          do     tally logs job/pi
    "#]],
    );
}

#[test]
fn pods_without_a_node_say_what_they_need() {
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found.";
    let status = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                                    "message": message, "lastTransitionTime": ago(50)}]}});
    let pods = vec![pending("pi-a", status.clone()), pending("pi-b", status)];
    let events = vec![event("Pod", "pi-a", "FailedScheduling", message, 20)];
    check(
        &about_job(job(json!({"spec": {"parallelism": 2, "completions": 2}, "status": {"active": 2}})), pods, events),
        expect![[r#"
            job/pi: 2 pods have no node: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found.
              since  2026-11-15T10:09:10Z (50s ago)
              next   the scheduler tries again whenever nodes or pods change
              do     lower `resources.requests` of the pod template, free resources, or add nodes

            evidence:
              event of pod/pi-a: FailedScheduling, 3 times: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found (20s ago)
        "#]],
    );
}

#[test]
fn a_taint_is_named() {
    let message = "0/1 nodes are available: 1 node(s) had untolerated taint(s).";
    let tainted =
        with(node("n1", "True"), json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}));
    let events = vec![event("Pod", "pi-a", "FailedScheduling", message, 20)];
    let snapshot = about_job(job(json!({"status": {"active": 1}})), vec![pending("pi-a", json!({}))], events);
    check(
        &Snapshot { nodes: Some(vec![tainted]), ..snapshot },
        expect![[r#"
        job/pi: 1 pod has no node: 0/1 nodes are available: 1 node(s) had untolerated taint(s).
          since  2026-11-15T10:09:40Z (20s ago)
          next   the scheduler tries again whenever nodes or pods change
          do     add a toleration for the taint to the pod template, or remove the taint: kubectl taint nodes NODE KEY-

        evidence:
          event of pod/pi-a: FailedScheduling, 3 times: 0/1 nodes are available: 1 node(s) had untolerated taint(s) (20s ago)
          node/n1: has taints gpu=yes:NoSchedule
    "#]],
    );
}

#[test]
fn without_nodes_nothing_runs() {
    let snapshot = about_job(job(json!({"status": {"active": 1}})), vec![pending("pi-a", json!({}))], vec![]);
    check(
        &Snapshot { nodes: Some(vec![]), ..snapshot },
        expect![[r#"
        job/pi: 1 pod has no node: the cluster has no node.
          since  2026-11-15T10:09:00Z (1m ago)
          next   it is scheduled when a node registers
          do     start something that runs pods: `tally up` without `--node none`, or a node of the cluster
    "#]],
    );
}

#[test]
fn a_missing_config_map_keeps_pods_from_starting() {
    check(
        &about_job(
            job(json!({"status": {"active": 1}})),
            vec![waiting("pi-a", "CreateContainerConfigError", "configmap \"settings\" not found")],
            vec![],
        ),
        expect![[r#"
            job/pi: 1 pod cannot start: container `main`: CreateContainerConfigError: configmap "settings" not found.
              since  2026-11-15T10:09:00Z (1m ago)
              next   the node tries again by itself; the Job does not count this as a failure
              do     create the ConfigMap or Secret that is missing, or correct its name in the pod template
        "#]],
    );
}

#[test]
fn an_image_that_cannot_be_pulled_is_explained_by_the_registry() {
    let events =
        vec![event("Pod", "pi-a", "Failed", "Failed to pull image \"perl:nope\": not found: manifest unknown", 10)];
    check(
        &about_job(
            job(json!({"status": {"active": 1}})),
            vec![waiting("pi-a", "ImagePullBackOff", "Back-off pulling image \"perl:nope\"")],
            events,
        ),
        expect![[r#"
            job/pi: 1 pod cannot start: container `main`: ImagePullBackOff: Failed to pull image "perl:nope": not found: manifest unknown.
              since  2026-11-15T10:09:00Z (1m ago)
              next   the node tries again by itself; the Job does not count this as a failure
              do     check the image's name and tag, and `imagePullSecrets` if the registry asks for credentials

            evidence:
              event of pod/pi-a: Failed, 3 times: Failed to pull image "perl:nope": not found: manifest unknown (10s ago)
        "#]],
    );
}

#[test]
fn a_volume_that_is_missing_keeps_pods_from_starting() {
    let events = vec![event(
        "Pod",
        "pi-a",
        "FailedMount",
        "MountVolume.SetUp failed for volume \"keys\" : secret \"keys\" not found",
        10,
    )];
    check(
        &about_job(job(json!({"status": {"active": 1}})), vec![waiting("pi-a", "ContainerCreating", "")], events),
        expect![[r#"
            job/pi: 1 pod cannot start: MountVolume.SetUp failed for volume "keys" : secret "keys" not found.
              since  2026-11-15T10:09:00Z (1m ago)
              next   the node tries again
              do     create what is missing, or correct its name in the pod template

            evidence:
              event of pod/pi-a: FailedMount, 3 times: MountVolume.SetUp failed for volume "keys" : secret "keys" not found (10s ago)
        "#]],
    );
}

#[test]
fn a_bad_command_is_named_and_tried_again() {
    let mut bad = failed("pi-a", 4, 128);
    bad["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = json!("StartError");
    bad["status"]["containerStatuses"][0]["state"]["terminated"]["message"] =
        json!("exec: \"/bin/nope\": no such file or directory");
    check(
        &about_job(job(json!({"status": {"failed": 0}})), vec![bad], vec![]),
        expect![[r#"
        job/pi: It waits before it tries again: its pod failed 4s ago: container `main` ended with exit code 128 (StartError): exec: "/bin/nope": no such file or directory.
          since  2026-11-15T10:09:56Z (4s ago)
          next   2026-11-15T10:10:06Z: a new pod is created; backoffLimit allows 6 more (in 6s)
          do     tally logs job/pi --failed
                 correct the container's `command`, in a new Job: the template of this one cannot be changed

        evidence:
          pod/pi-a: failed: container `main` ended with exit code 128 (StartError): exec: "/bin/nope": no such file or directory (4s ago)
    "#]],
    );
}

#[test]
fn containers_that_crash_are_restarted_by_the_node() {
    let status = json!({"name": "main", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=main pod=pi-a"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": ago(20), "finishedAt": ago(15)}}});
    let pod = pod("pi-a", json!({"status": {"containerStatuses": [status]}}));
    let restarts = json!({"template": {"spec": {"restartPolicy": "OnFailure"}}});
    let job = job(json!({"spec": restarts, "status": {"active": 1}}));
    check(
        &about_job(job, vec![pod], vec![]),
        expect![[r#"
        job/pi: 1 pod keeps failing and is restarted: container `main` ended with exit code 1.
          since  2026-11-15T10:09:45Z (15s ago)
          next   2026-11-15T10:10:25Z: the container is started again (in 25s)
                 the Job fails with restart number 6 of its pods' containers; there have been 3
          do     kubectl logs pi-a --previous

        evidence:
          pod/pi-a: container `main` has been restarted 3 times (15s ago)
    "#]],
    );
}

#[test]
fn a_running_job_says_how_far_it_is_and_what_holds_up_the_rest() {
    let pods = vec![
        indexed(pod("pi-0", json!({})), 0),
        indexed(pod("pi-1", json!({})), 1),
        indexed(waiting("pi-2", "CreateContainerConfigError", "secret \"key\" not found"), 2),
        indexed(failed("pi-3", 200, 2), 3),
    ];
    let job = job(json!({
        "spec": {"completionMode": "Indexed", "completions": 10, "parallelism": 3, "activeDeadlineSeconds": 600},
        "status": {"active": 3, "succeeded": 4, "failed": 1, "completedIndexes": "4-7"},
    }));
    check(
        &about_job(job, pods, vec![]),
        expect![[r#"
        job/pi: It runs: 2 pods are running, 4 of 10 completions are done, 1 pod failed so far. 1 pod cannot start: container `main`: CreateContainerConfigError: secret "key" not found.
          since  2026-11-15T10:05:00Z (5m ago)
          next   2026-11-15T10:15:00Z: activeDeadlineSeconds (10m) is over and the Job fails if it has not finished (in 5m)
                 it ends when its pods have
                 the node tries again by itself; the Job does not count this as a failure
          do     tally logs job/pi
                 create the ConfigMap or Secret that is missing, or correct its name in the pod template

        evidence:
          pod/pi-3: index 3 failed: container `main` ended with exit code 2 (3m20s ago)
    "#]],
    );
}

/// JC-904.
#[test]
fn a_deadline_that_has_passed_is_said() {
    check(
        &about_job(
            job(json!({"spec": {"activeDeadlineSeconds": 60}, "status": {"active": 1}})),
            vec![pod("pi-a", json!({}))],
            vec![],
        ),
        expect![[r#"
            job/pi: It runs: 1 pod is running.
              since  2026-11-15T10:05:00Z (5m ago)
              next   2026-11-15T10:06:00Z: activeDeadlineSeconds is over: the Job fails as soon as its controller looks at it (4m ago)
                     it ends when its pods have
              do     tally logs job/pi
        "#]],
    );
}

/// KEP-3939, JC-1009.
#[test]
fn a_replacement_waits_for_the_old_pod() {
    let job = job(json!({"spec": {"podReplacementPolicy": "Failed"}, "status": {"terminating": 1}}));
    check(
        &about_job(job, vec![deleting(pod("pi-a", json!({})), 12)], vec![]),
        expect![[r#"
        job/pi: 1 new pod waits for 1 terminating pod to end first, because podReplacementPolicy is Failed: its processes have been asked to stop and still run.
          since  2026-11-15T10:09:42Z (18s ago)
          next   2026-11-15T10:10:12Z: what still runs is killed (in 12s)
          do     tally why pod/pi-a

        evidence:
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking
    "#]],
    );
}

#[test]
fn a_lost_node_holds_up_a_replacement() {
    let stuck = with(
        deleting(pod("pi-a", json!({})), -100),
        json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking", "example.com/backup"]}}),
    );
    let snapshot = about_job(job(json!({"spec": {"podReplacementPolicy": "Failed"}})), vec![stuck], vec![]);
    check(
        &Snapshot { nodes: Some(vec![node("n1", "Unknown")]), ..snapshot },
        expect![[r#"
        job/pi: 1 new pod waits for 1 terminating pod to end first, because podReplacementPolicy is Failed: node `n1` is not ready.
          since  2026-11-15T10:08:20Z (1m40s ago)
          next   the pod goes on, or is replaced when it is evicted from the node
          do     kubectl describe node n1
                 tally why pod/pi-a

        evidence:
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking and example.com/backup
    "#]],
    );
}

/// JC-1904.
#[test]
fn a_decided_failure_waits_for_pods_to_end() {
    let job = job(json!({"spec": {"backoffLimit": 0}, "status": {"failed": 2, "terminating": 1, "conditions":
        [condition("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit", 5)]}}));
    let pods = vec![deleting(pod("pi-a", json!({})), 25), failed("pi-b", 6, 1)];
    check(
        &about_job(job, pods, vec![]),
        expect![[r#"
        job/pi: Its end is decided (2 pods failed, more than backoffLimit 0 allows), and it is marked Failed when 1 pod still ending is gone.
          since  2026-11-15T10:09:55Z (5s ago)
          next   2026-11-15T10:10:25Z: what still runs is killed (in 25s)
                 the Job becomes Failed
          do     tally why pod/pi-a

        evidence:
          pod/pi-a: is being deleted: its processes have been asked to stop and still run (5s ago)
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking
          pod/pi-b: failed: container `main` ended with exit code 1 (6s ago)
    "#]],
    );
}

/// JC-1703.
#[test]
fn a_met_success_policy_waits_for_pods_to_end() {
    let job = job(json!({
        "spec": {"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        "status": {"succeeded": 1, "completedIndexes": "0", "terminating": 1, "conditions":
            [condition("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 0", 5)]},
    }));
    check(
        &about_job(job, vec![indexed(deleting(pod("pi-1", json!({})), 25), 1)], vec![]),
        expect![[r#"
        job/pi: Its end is decided (its success policy is met), and it is marked Complete when 1 pod still ending is gone.
          since  2026-11-15T10:09:55Z (5s ago)
          next   2026-11-15T10:10:25Z: what still runs is killed (in 25s)
                 the Job becomes Complete
          do     tally why pod/pi-1

        evidence:
          pod/pi-1: is being deleted: its processes have been asked to stop and still run (5s ago)
          pod/pi-1: has finalizers batch.kubernetes.io/job-tracking
          job/pi: rule 0: {"succeededIndexes":"0"}
    "#]],
    );
}

/// TTL-3.
#[test]
fn a_complete_job_counts_down_to_its_deletion() {
    let job = job(json!({
        "spec": {"ttlSecondsAfterFinished": 100},
        "status": {"succeeded": 1, "failed": 1, "completionTime": ago(40), "conditions": [
            condition("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", 40),
            condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods", 40)]},
    }));
    check(
        &about_job(job, vec![ended("pi-a", "Succeeded", 41, 0)], vec![]),
        expect![[r#"
        job/pi: It is complete after 4m20s: 1 pod succeeded, 1 pod failed on the way.
          since  2026-11-15T10:09:20Z (40s ago)
          next   2026-11-15T10:11:00Z: the Job and its pods are deleted, its time to live is over (in 1m)
    "#]],
    );
}

#[test]
fn a_job_out_of_retries_failed() {
    let job = job(
        json!({"spec": {"backoffLimit": 1}, "status": {"conditions": [condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", 60)]}}),
    );
    let job = with(job, json!({"status": {"failed": 2}}));
    check(
        &about_job(job, vec![failed("pi-a", 90, 1), failed("pi-b", 61, 127)], vec![]),
        expect![[r#"
        job/pi: It failed: 2 pods failed, more than backoffLimit 1 allows. The last failure: container `main` ended with exit code 127: its command was not found.
          since  2026-11-15T10:09:00Z (1m ago)
          next   nothing: it is kept until somebody deletes it
          do     correct the container's `command`, in a new Job: the template of this one cannot be changed
                 tally logs job/pi --failed
                 tally history job/pi
                 tally rerun job/pi

        evidence:
          job/pi: condition Failed, BackoffLimitExceeded: Job has reached the specified backoff limit (1m ago)
          pod/pi-b: failed: container `main` ended with exit code 127: its command was not found (1m1s ago)
          pod/pi-a: failed: container `main` ended with exit code 1 (1m30s ago)
    "#]],
    );
}

#[test]
fn a_job_out_of_time_failed() {
    let job = job(
        json!({"spec": {"activeDeadlineSeconds": 200}, "status": {"conditions": [condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline", 60)]}}),
    );
    let job = with(job, json!({"status": {"failed": 1}}));
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: It failed: it ran longer than activeDeadlineSeconds (3m20s).
          since  2026-11-15T10:09:00Z (1m ago)
          next   nothing: it is kept until somebody deletes it
          do     tally logs job/pi --failed
                 tally history job/pi
                 tally rerun job/pi

        evidence:
          job/pi: condition Failed, DeadlineExceeded: Job was active longer than specified deadline (1m ago)
    "#]],
    );
}

/// JC-902.
#[test]
fn a_pod_failure_policy_shows_its_rule() {
    let job = job(
        json!({"spec": {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}]}}, "status": {"conditions": [condition("Failed", "PodFailurePolicy", "Container main for pod default/pi-a failed with exit code 42 matching FailJob rule at index 1", 60)]}}),
    );
    let job = with(job, json!({"status": {"failed": 1}}));
    check(
        &about_job(job, vec![failed("pi-a", 62, 42)], vec![]),
        expect![[r#"
        job/pi: It failed: its pod failure policy says so: Container main for pod default/pi-a failed with exit code 42 matching FailJob rule at index 1.
          since  2026-11-15T10:09:00Z (1m ago)
          next   nothing: it is kept until somebody deletes it
          do     tally logs job/pi --failed
                 tally history job/pi
                 tally rerun job/pi

        evidence:
          job/pi: condition Failed, PodFailurePolicy: Container main for pod default/pi-a failed with exit code 42 matching FailJob rule at index 1 (1m ago)
          job/pi: rule 1: {"action":"FailJob","onExitCodes":{"containerName":"main","operator":"In","values":[42]}}
          pod/pi-a: failed: container `main` ended with exit code 42 (1m2s ago)
    "#]],
    );
}

#[test]
fn failed_indexes_are_listed_with_their_exit_codes() {
    let job = job(
        json!({"spec": {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 0}, "status": {"conditions": [condition("Failed", "FailedIndexes", "Job has failed indexes", 60)]}}),
    );
    let job = with(
        job,
        json!({"status": {"failed": 2, "succeeded": 3, "completedIndexes": "0,2,4", "failedIndexes": "1,3"}}),
    );
    check(
        &about_job(job, vec![indexed(failed("pi-1", 90, 2), 1), indexed(failed("pi-3", 70, 3), 3)], vec![]),
        expect![[r#"
            job/pi: It failed: indexes 1,3 failed for good. The last failure: container `main` ended with exit code 3.
              since  2026-11-15T10:09:00Z (1m ago)
              next   nothing: it is kept until somebody deletes it
              do     tally logs job/pi --failed
                     tally history job/pi
                     tally rerun job/pi --failed

            evidence:
              job/pi: condition Failed, FailedIndexes: Job has failed indexes (1m ago)
              pod/pi-3: index 3 failed: container `main` ended with exit code 3 (1m10s ago)
              pod/pi-1: index 1 failed: container `main` ended with exit code 2 (1m30s ago)
              job/pi: failed indexes: 1,3
        "#]],
    );
}

#[test]
fn too_many_failed_indexes_end_the_job() {
    let job = job(
        json!({"spec": {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1}, "status": {"conditions": [condition("Failed", "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes", 60)]}}),
    );
    let job = with(job, json!({"status": {"failed": 2, "failedIndexes": "1,3"}}));
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: It failed: indexes 1,3 failed, more than maxFailedIndexes 1 allows.
          since  2026-11-15T10:09:00Z (1m ago)
          next   nothing: it is kept until somebody deletes it
          do     tally logs job/pi --failed
                 tally history job/pi
                 tally rerun job/pi --failed

        evidence:
          job/pi: condition Failed, MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes (1m ago)
          job/pi: failed indexes: 1,3
    "#]],
    );
}

#[test]
fn a_job_that_is_deleted_waits_for_its_pods() {
    let job = job(json!({"metadata": {"deletionTimestamp": ago(20), "finalizers": ["foregroundDeletion"]}}));
    check(
        &about_job(job, vec![deleting(ended("pi-a", "Succeeded", 30, 0), -15)], vec![]),
        expect![[r#"
        job/pi: It is being deleted, its pods first: 1 pod is still there.
          since  2026-11-15T10:09:40Z (20s ago)
          next   the garbage collector removes it when they are gone
          do     tally why pod/pi-a
                 check that the Job controller runs; it removes this finalizer by itself

        evidence:
          pod/pi-a: is being deleted: it has ended and finalizer `batch.kubernetes.io/job-tracking` keeps it until the Job controller has counted it (15s ago)
          pod/pi-a: has finalizers batch.kubernetes.io/job-tracking
          job/pi: has finalizers foregroundDeletion
    "#]],
    );
}

#[test]
fn a_pod_stuck_on_a_finalizer_keeps_its_job() {
    let job = job(json!({"metadata": {"deletionTimestamp": ago(90), "finalizers": ["foregroundDeletion"]}}));
    let stuck =
        with(deleting(failed("pi-a", 120, 1), -80), json!({"metadata": {"finalizers": ["example.com/backup"]}}));
    check(
        &about_job(job, vec![stuck], vec![]),
        expect![[r#"
        job/pi: It is being deleted, its pods first: 1 pod is still there.
          since  2026-11-15T10:08:30Z (1m30s ago)
          next   the garbage collector removes it when they are gone
          do     tally why pod/pi-a
                 find out who sets that finalizer and why it is not removed
                 if nobody will: kubectl patch pod/pi-a --type=merge -p '{"metadata":{"finalizers":null}}'

        evidence:
          pod/pi-a: is being deleted: it has ended and stays until finalizer `example.com/backup` is removed by whoever set it (1m20s ago)
          pod/pi-a: has finalizers example.com/backup
          job/pi: has finalizers foregroundDeletion
    "#]],
    );
}

#[test]
fn a_finalizer_keeps_a_job() {
    let job = job(json!({"metadata": {"deletionTimestamp": ago(20), "finalizers": ["example.com/hold"]}}));
    check(
        &about_job(job, vec![], vec![]),
        expect![[r#"
        job/pi: It is being deleted and stays until finalizer `example.com/hold` is removed by whoever set it.
          since  2026-11-15T10:09:40Z (20s ago)
          do     find out who sets that finalizer and why it is not removed
                 if nobody will: kubectl patch job/pi --type=merge -p '{"metadata":{"finalizers":null}}'

        evidence:
          job/pi: has finalizers example.com/hold
    "#]],
    );
}

#[test]
fn parallelism_zero_makes_no_pods() {
    check(
        &about_job(job(json!({"spec": {"parallelism": 0}})), vec![], vec![]),
        expect![[r#"
        job/pi: It has `parallelism: 0`, so no pods are made.
          since  2026-11-15T10:05:00Z (5m ago)
          do     kubectl patch job/pi -p '{"spec":{"parallelism":1}}'
    "#]],
    );
}

#[test]
fn what_may_not_be_seen_is_said() {
    let snapshot = Snapshot {
        unseen: vec!["pods in namespace default: pods is forbidden".to_owned()],
        ..Snapshot::new(Kind::Job, job(json!({"status": {"active": 2, "ready": 2}})), now())
    };
    check(
        &snapshot,
        expect![[r#"
        job/pi: It runs: 2 pods are active.
          since  2026-11-15T10:05:00Z (5m ago)
          next   it ends when its pods have
          do     tally logs job/pi

        could not see:
          pods in namespace default: pods is forbidden
    "#]],
    );
}

#[test]
fn a_controller_that_stops_in_the_middle_is_noticed() {
    check(
        &about_job(job(json!({})), vec![], vec![]),
        expect![[r#"
        job/pi: It has no pods to wait for and nothing goes on: the Job controller may be behind or not running.
          since  2026-11-15T10:05:00Z (5m ago)
          do     check that the Job controller runs, and its log
    "#]],
    );
}

#[test]
fn json_has_the_same_answer() {
    let snapshot = about_job(job(json!({"status": {"failed": 1}})), vec![failed("pi-a", 3, 1)], vec![]);
    let json = serde_json::to_string_pretty(&explain(&snapshot)).unwrap();
    expect![[r#"
        {
          "kind": "Job",
          "namespace": "default",
          "name": "pi",
          "state": "BackingOff",
          "summary": "It waits before it tries again: its pod failed 3s ago: container `main` ended with exit code 1.",
          "since": "2026-11-15T10:09:57Z",
          "next": [
            {
              "what": "a new pod is created; backoffLimit allows 6 more",
              "at": "2026-11-15T10:10:07Z"
            }
          ],
          "actions": [
            "tally logs job/pi --failed"
          ],
          "evidence": [
            {
              "about": "pod/pi-a",
              "text": "failed: container `main` ended with exit code 1",
              "at": "2026-11-15T10:09:57Z"
            }
          ],
          "unseen": [],
          "now": "2026-11-15T10:10:00Z"
        }"#]]
    .assert_eq(&json);
}
