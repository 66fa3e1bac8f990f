//! Protobuf bodies as Go clients send them, with the objects that a real API server read from them.

use api_schema::{json, protobuf, registry};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn body(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).expect("the test's own base64")
}

fn decoded(base64: &str) -> (String, Value) {
    let body = body(base64);
    let (meta, raw) = protobuf::decode_envelope(&body).expect("an envelope");
    let ty = registry().kind(&meta.api_version, &meta.kind).expect("a known kind");
    let value = protobuf::decode(ty, &body[raw]).expect("an object");
    (format!("{} {}", meta.api_version, meta.kind), value)
}

fn check(base64: &str, kind: &str, expected: Value) {
    let (found, value) = decoded(base64);
    assert_eq!(found, kind);
    assert_eq!(value, expected);
}

#[test]
fn job_with_a_rich_template() {
    let base64 = "azhzAAoPCghiYXRjaC92MRIDSm9iEqoDClYKBGRlbW9aBgoBYRIBYmIGCgFjEgFkaj4qCGJhdGNoL3YxCgdDcm9uSm9iGgFjIiQwMTIz\
        NDU2Ny04OWFiLWNkZWYtMDEyMy00NTY3ODlhYmNkZWYwARLPAjLMAhLJAhoFTmV2ZXISzAEKBG1haW4SFmltYWdlcy5leGFtcGxlL2FwcDoxLjA6\
        BgoBQRIBMToaCgFCGhUKEwoCdjESDW1ldGFkYXRhLm5hbWU6DwoBQxoKIggSAWsKAwoBc0JDEg0KA2NwdRIGCgQyNTBtEhAKBm1lbW9yeRIGCgQ2\
        NE1pCg0KA2NwdRIGCgQ1MDBtChEKBm1lbW9yeRIHCgUxMjhNaTIHGFAKA3dlYlINCgsSCQoBLxIECAAQUFoPIAMKCxoJCgcIARoDd2ViSgkKAXYa\
        Ai92EAEKFQoBdhIQmgENEgYKAWsSAXAKAwoBYwoOCgF3EgkSBxIFCgMxR2myARgKAWsSBkV4aXN0cyIJTm9FeGVjdXRlKAU6CwoEZGlzaxIDc3Nk\
        IAVyBRDoBxgBkgEYChYKFAoSChAKBHpvbmUSAkluGgFhGgFiGgAiAA==";
    let expected = json!({
        "metadata": {
            "name": "demo", "labels": {"a": "b"}, "annotations": {"c": "d"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "01234567-89ab-cdef-0123-456789abcdef", "controller": true}]
        },
        "spec": {"template": {"metadata": {}, "spec": {
            "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}, {"name": "w", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [{
                "name": "main", "image": "images.example/app:1.0", "ports": [{"name": "web", "containerPort": 80}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
                "volumeMounts": [{"name": "v", "readOnly": true, "mountPath": "/v"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}}, "readinessProbe": {"tcpSocket": {"port": "web"}, "periodSeconds": 3}
            }],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "nodeSelector": {"disk": "ssd"},
            "securityContext": {"runAsUser": 1000, "runAsNonRoot": true},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
        }}},
        "status": {}
    });
    check(base64, "batch/v1 Job", expected);
}

#[test]
fn cron_job_with_a_pointer_to_zero() {
    let base64 = "azhzAAoTCghiYXRjaC92MRIHQ3JvbkpvYhJbCgYKBGRlbW8SUQoLKi81ICogKiAqICoqLRIrMikSJxoFTmV2ZXISHgoEbWFpbhIWaW1hZ2Vz\
        LmV4YW1wbGUvYXBwOjEuMEIHRXRjL1VUQxoGRm9yYmlkEB4wABoAIgA=";
    let container = json!({"name": "main", "image": "images.example/app:1.0", "resources": {}});
    let expected = json!({
        "metadata": {"name": "demo"},
        "spec": {
            "schedule": "*/5 * * * *", "timeZone": "Etc/UTC", "startingDeadlineSeconds": 30, "concurrencyPolicy": "Forbid",
            "jobTemplate": {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}}},
            "successfulJobsHistoryLimit": 0
        },
        "status": {}
    });
    check(base64, "batch/v1 CronJob", expected);
}

#[test]
fn status_of_a_job_and_of_a_pod() {
    let job = "azhzAAoPCghiYXRjaC92MRIDSm9iEocBCgYKBGRlbW8SKzIpEicaBU5ldmVyEh4KBG1haW4SFmltYWdlcy5leGFtcGxlL2FwcDoxLjAaUCABSAAS\
        CAigpcixBhAAQiYKJDAxMjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFiY2RlZgoYCgNPZGQSBFRydWUiCAigpcixBhAAKgFSGgAiAA==";
    let expected = json!({
        "conditions": [{"type": "Odd", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2024-05-01T10:00:00Z", "reason": "R"}],
        "startTime": "2024-05-01T10:00:00Z", "active": 1,
        "uncountedTerminatedPods": {"succeeded": ["01234567-89ab-cdef-0123-456789abcdef"]}, "ready": 0
    });
    assert_eq!(decoded(job).1["status"], expected);

    let pod = "azhzAAoJCgJ2MRIDUG9kEnsKBgoEZGVtbxInGgVOZXZlchIeCgRtYWluEhZpbWFnZXMuZXhhbXBsZS9hcHA6MS4wGkgKB1J1bm5pbmcyCDEwLjIu\
        MC4xYgoKCDEwLjIuMC4xOggIoKXIsQYQAEIdCgRtYWluMgFhOgAgASgBEgwSCgoICKClyLEGEAAaACIA";
    let expected = json!({
        "phase": "Running", "podIP": "10.2.0.1", "podIPs": [{"ip": "10.2.0.1"}], "startTime": "2024-05-01T10:00:00Z",
        "containerStatuses": [{
            "name": "main", "state": {"running": {"startedAt": "2024-05-01T10:00:00Z"}}, "lastState": {}, "ready": true,
            "restartCount": 1, "image": "a", "imageID": ""
        }]
    });
    assert_eq!(decoded(pod).1["status"], expected);
}

#[test]
fn small_objects() {
    check(
        "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIfCgYKBGRlbW8SFQoCbWUQDxoLCKClyLEGEICU7zooARoAIgA=",
        "coordination.k8s.io/v1 Lease",
        json!({"metadata": {"name": "demo"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
            "acquireTime": "2024-05-01T10:00:00.123456Z", "leaseTransitions": 1}}),
    );
    check(
        "azhzAAoMCgJ2MRIGU2VjcmV0EiAKBgoEZGVtbxIGCgFhEgF4IgYKAWISAXkaBk9wYXF1ZRoAIgA=",
        "v1 Secret",
        json!({"metadata": {"name": "demo"}, "data": {"a": "eA=="}, "stringData": {"b": "y"}, "type": "Opaque"}),
    );
    check(
        "azhzAAoVCglwb2xpY3kvdjESCEV2aWN0aW9uEgwKBgoEZGVtbxICCAcaACIA",
        "policy/v1 Eviction",
        json!({"metadata": {"name": "demo"}, "deleteOptions": {"gracePeriodSeconds": 7}}),
    );
    check(
        "azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIOIgpCYWNrZ3JvdW5kCAAaACIA",
        "v1 DeleteOptions",
        json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}),
    );
}

#[test]
fn refused_bodies_are_described_and_summarised() {
    let refused = |base64: &str| {
        let body = body(base64);
        let error = protobuf::decode_envelope(&body).expect_err("not an envelope");
        format!("{error} ({})", json::summary(&body))
    };
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(refused("eyJraW5kIjoiSm9iIn0="), format!(r#"{prefix} ({{"kind":"Job"}})"#));
    assert_eq!(
        refused("Cg8KCGJhdGNoL3YxEgNKb2ISNQoGCgRkZW1vEisyKRInGgVOZXZlchIeCgRtYWlu"),
        format!("{prefix} (0a0f0a0862617463682f763112034a6f6212350a060a0464656d6f122b32 ...)")
    );
    assert_eq!(
        refused("azhzAAoPCghiYXRjaC92MRIDSm9iEjUKBgoEZGVtbxIrMikSJxoFTmV2ZXISHgoEbWFpbhIWaW1hZ2Vz"),
        "unexpected EOF (6b3873000a0f0a0862617463682f763112034a6f6212350a060a0464656d ...)"
    );
}

#[test]
fn unknown_field_numbers_are_ignored() {
    let base64 =
        "azhzAAoPCghiYXRjaC92MRIDSm9iEjgKBgoEZGVtbxIrMikSJxoFTmV2ZXISHgoEbWFpbhIWaW1hZ2VzLmV4YW1wbGUvYXBwOjEuMLg+Bw==";
    assert_eq!(decoded(base64).1["metadata"], json!({"name": "demo"}));
}
