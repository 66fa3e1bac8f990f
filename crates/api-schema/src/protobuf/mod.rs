//! Upstream's protobuf encoding, both ways, driven by the table (Appendix A of the server's rules: AS-241 to AS-244).
//!
//! Values are the same canonical ones that JSON gives, so nothing behind the codecs knows how a body was sent.

mod decode;
mod encode;
mod envelope;
mod wire;

pub use decode::decode;
pub use encode::{encode, encode_watch_event};
pub use envelope::decode_envelope;
pub use wire::ProtobufError;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Type, json, registry};

    fn ty(api_version: &str, kind: &str) -> &'static Type {
        registry().kind(api_version, kind).unwrap()
    }

    fn round_trip(api_version: &str, kind: &str, given: Value) {
        let ty = ty(api_version, kind);
        let value = json::convert(ty, given).unwrap();
        assert_eq!(value.strict, [], "the case uses known fields only");
        let bytes = encode(ty, &value.value, api_version, kind);
        let (meta, raw) = decode_envelope(&bytes).unwrap();
        assert_eq!((meta.api_version.as_str(), meta.kind.as_str()), (api_version, kind));
        let decoded = decode(ty, &bytes[raw]).unwrap();
        assert_eq!(decoded.to_string(), value.value.to_string());
    }

    #[test]
    fn rich_objects_survive_the_round_trip() {
        let pod_spec = json!({
            "volumes": [
                {"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "cm", "defaultMode": 420, "items": [{"key": "k", "path": "p", "mode": 256}]}},
                {"name": "c", "hostPath": {"path": "/x", "type": ""}}, {"name": "d", "rbd": {"monitors": ["m"], "image": "i"}},
                {"name": "e", "projected": {"sources": [{"configMap": {"name": "x", "optional": false}}, {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
                {"name": "f", "ephemeral": {"volumeClaimTemplate": {"metadata": {}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
                {"name": "g", "downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}]}}
            ],
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {}}],
            "containers": [{
                "name": "main", "image": "app:1", "command": ["sh", "-c", ""], "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "envFrom": [{"configMapRef": {"name": "cm"}}],
                "resources": {"limits": {"cpu": "500m", "memory": "1536Mi"}, "claims": [{"name": "c"}]},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3},
                "readinessProbe": {"tcpSocket": {"port": 80}}, "startupProbe": {"grpc": {"port": 5, "service": ""}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "stopSignal": "SIGTERM"},
                "securityContext": {"runAsUser": 0, "privileged": false, "capabilities": {"add": ["X"]}},
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 2, -3]}}]
            }],
            "ephemeralContainers": [{"name": "debug", "image": "b", "resources": {}, "targetContainerName": "main", "stdin": true}],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "nodeSelector": {"a": "b"},
            "securityContext": {"supplementalGroups": [1, 2], "fsGroup": 5},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}}},
            "tolerations": [{"key": "t", "operator": "Exists", "tolerationSeconds": 0}], "priority": -5,
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]
        });
        round_trip(
            "batch/v1",
            "Job",
            json!({
                "metadata": {
                    "name": "pi", "namespace": "default", "uid": "u", "generation": 3, "creationTimestamp": "2026-11-15T06:27:19Z",
                    "labels": {"b": "2", "a": ""}, "annotations": {"x": "<&>ä"}, "finalizers": ["a/b"],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": false}],
                    "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "batch/v1", "time": "2026-11-15T06:27:19Z",
                        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:parallelism": {}}}}]
                },
                "spec": {
                    "parallelism": 0, "completions": 10, "completionMode": "Indexed", "backoffLimit": 2147483647, "suspend": false,
                    "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"containerName": "c", "operator": "In", "values": [1, 2]}},
                        {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
                    "successPolicy": {"rules": [{"succeededIndexes": "0-3", "succeededCount": 2}]},
                    "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec}
                },
                "status": {
                    "conditions": [{"type": "Complete", "status": "True", "lastProbeTime": "2026-11-15T06:27:19Z"}],
                    "startTime": "1969-12-31T23:59:59Z", "active": 1, "terminating": 0, "failedIndexes": "",
                    "uncountedTerminatedPods": {"succeeded": ["a"]}, "ready": 0
                }
            }),
        );
        round_trip(
            "v1",
            "Pod",
            json!({"metadata": {"name": "p"}, "spec": pod_spec, "status": {
                "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [{
                    "name": "main", "state": {"terminated": {"exitCode": 137, "finishedAt": "2026-11-15T06:27:19Z"}}, "ready": true, "restartCount": 1,
                    "image": "", "imageID": "", "started": false, "allocatedResources": {"cpu": "1"}
                }]
            }}),
        );
    }

    #[test]
    fn other_kinds_survive_the_round_trip() {
        round_trip(
            "v1",
            "Event",
            json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Job", "name": "j"}, "count": 3,
            "firstTimestamp": "2026-11-15T06:27:19Z", "eventTime": "2024-05-01T10:00:00.000001Z", "series": {"count": 2, "lastObservedTime": null}}),
        );
        round_trip(
            "events.k8s.io/v1",
            "Event",
            json!({"eventTime": "2024-05-01T10:00:00.500000Z", "note": "n", "series": {"count": 1, "lastObservedTime": "2024-05-01T10:00:00.999999Z"}}),
        );
        round_trip(
            "v1",
            "Secret",
            json!({"data": {"a": "aGVsbG8=", "empty": ""}, "type": "Opaque", "immutable": false}),
        );
        round_trip("v1", "ConfigMap", json!({"data": {"a": "", "b": "c"}, "binaryData": {"x": "/w=="}}));
        round_trip(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2024-05-01T10:00:00.000000Z"}}),
        );
        round_trip(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%", "maxUnavailable": 0},
            "status": {"disruptedPods": {"p": "2026-11-15T06:27:19Z"}}}),
        );
        round_trip(
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            json!({"spec": {"user": "u", "extra": {"k": ["a", "b"], "none": null}}}),
        );
        round_trip("authentication.k8s.io/v1", "TokenRequest", json!({"spec": {"expirationSeconds": 600}}));
        round_trip(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({"rules": [{"verbs": ["*"], "apiGroups": [""]}]}),
        );
        round_trip("v1", "Service", json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81}]}}));
        round_trip(
            "v1",
            "Node",
            json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "capacity": {"cpu": "4"},
            "images": [{"names": ["a", "b"], "sizeBytes": 5}]}}),
        );
        round_trip(
            "batch/v1",
            "JobList",
            json!({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}, {}]}),
        );
        round_trip("v1", "Status", json!({"status": "Failure", "code": 404, "details": {"causes": [{"field": "f"}]}}));
        round_trip(
            "batch/v1",
            "DeleteOptions",
            json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "dryRun": ["All"]}),
        );
    }

    #[test]
    fn watch_events_are_framed_with_their_length() {
        let status = ty("v1", "Status");
        let object = encode(status, &json!({"status": "Failure"}), "v1", "Status");
        let frame = encode_watch_event("ERROR", &object);
        let (length, event) = frame.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, event.len());
        assert_eq!(&event[..7], b"\x0a\x05ERROR");
        assert!(event.ends_with(&object));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_envelope(&bytes);
            for (version, kind) in [("v1", "Pod"), ("batch/v1", "Job"), ("v1", "Secret"), ("policy/v1", "PodDisruptionBudget")] {
                let _ = decode(ty(version, kind), &bytes);
            }
        }
    }
}
