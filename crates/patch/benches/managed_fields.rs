//! What `managedFields` costs a write: the bar is 30 µs for a status update of a pod of 3 to 5 KB.

use api_schema::{Type, json as codec, registry};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use patch::apply::{Manager, update_managed_fields};
use serde_json::{Value, json};

fn pod_type() -> &'static Type {
    registry().kind("v1", "Pod").expect("pods are served")
}

fn decode(object: Value) -> Value {
    codec::convert_unstructured(pod_type(), object).expect("the objects below are pods").value
}

/// A pod of an indexed Job as it is created.
fn pod() -> Value {
    decode(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "pi-0-xyz12", "namespace": "default", "generateName": "pi-0-", "uid": "11111111-2222-3333-4444-555555555555",
            "labels": {
                "batch.kubernetes.io/controller-uid": "66666666-2222-3333-4444-555555555555", "batch.kubernetes.io/job-name": "pi",
                "controller-uid": "66666666-2222-3333-4444-555555555555", "job-name": "pi", "batch.kubernetes.io/job-completion-index": "0"
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "pi", "uid": "66666666-2222-3333-4444-555555555555",
                "controller": true, "blockOwnerDeletion": true
            }],
            "finalizers": ["batch.kubernetes.io/job-tracking"]
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "images.example/app:1.0", "command": ["sh", "-c", "true"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
                ],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
                "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"
            }],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "nodeName": "node",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"}
    }))
}

fn condition(name: &str, status: &str) -> Value {
    json!({"type": name, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn with_status(pod: &Value, phase: &str, ready: &str, state: Value) -> Value {
    let mut pod = pod.clone();
    pod["status"] = json!({
        "phase": phase, "qosClass": "Burstable", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            condition("PodScheduled", "True"), condition("Initialized", "True"), condition("ContainersReady", ready),
            condition("Ready", ready)
        ],
        "containerStatuses": [{
            "name": "main", "state": state, "lastState": {}, "ready": ready == "True", "restartCount": 0,
            "image": "images.example/app:1.0", "imageID": "sha256:0123456789", "containerID": "process://123"
        }]
    });
    decode(pod)
}

fn controller() -> Manager<'static> {
    let reset_fields: &[&[&str]] = &[&["status"]];
    Manager { name: "controller", api_version: "v1", subresource: "", now: "2026-01-01T00:00:01Z", reset_fields }
}

fn node() -> Manager<'static> {
    let reset_fields: &[&[&str]] = &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]];
    Manager { name: "node", api_version: "v1", subresource: "status", now: "2026-01-01T00:00:02Z", reset_fields }
}

fn managed_fields(criterion: &mut Criterion) {
    let ty = pod_type();
    criterion.bench_function("create", |bencher| {
        let new = pod();
        bencher.iter_batched_ref(
            || new.clone(),
            |new| update_managed_fields(ty, None, new, &controller()),
            BatchSize::SmallInput,
        );
    });

    let mut live = pod();
    update_managed_fields(ty, None, &mut live, &controller());
    let mut running = with_status(&live, "Running", "True", json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}));
    update_managed_fields(ty, Some(&live), &mut running, &node());
    let done =
        with_status(&running, "Succeeded", "False", json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
    criterion.bench_function("status update", |bencher| {
        bencher.iter_batched_ref(
            || done.clone(),
            |new| update_managed_fields(ty, Some(&running), new, &node()),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, managed_fields);
criterion_main!(benches);
