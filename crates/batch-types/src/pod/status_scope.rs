//! Which changes of a pod's status can be judged without its spec. Nearly all can, and most of a pod's bytes are spec.

use serde_json::Value;

/// Members of a status that rules compare with the spec.
const STATUS: [&str; 5] = [
    "nominatedNodeName",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
    "ephemeralContainerStatuses",
];
/// Members of a container's status that rules compare with the spec.
const CONTAINER: [&str; 3] = ["user", "allocatedResources", "allocatedResourcesStatus"];
const CONTAINERS: [&str; 2] = ["containerStatuses", "initContainerStatuses"];

/// Whether [`super::validate_status_update`] may say something else if neither pod has its spec. Never says no wrongly.
pub fn status_depends_on_spec(new: &Value, old: &Value) -> bool {
    [new, old].into_iter().any(mentions_spec) || has_terminated(old)
}

fn mentions_spec(pod: &Value) -> bool {
    let status = &pod["status"];
    STATUS.iter().any(|name| status.get(name).is_some())
        || containers(status).any(|container| CONTAINER.iter().any(|name| container.get(name).is_some()))
        || pod["metadata"]["annotations"]
            .as_object()
            .is_some_and(|annotations| annotations.keys().any(|key| is_about_spec(key)))
}

/// Annotations that stand, or once stood, for fields of the spec.
fn is_about_spec(annotation: &str) -> bool {
    annotation.contains(".alpha.kubernetes.io/")
        || annotation.contains(".beta.kubernetes.io/")
        || annotation == super::annotations::MIRROR
}

/// Whether what has ended may start again depends on restart policies.
fn has_terminated(pod: &Value) -> bool {
    containers(&pod["status"]).any(|container| container["state"].get("terminated").is_some())
}

fn containers(status: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.into_iter().filter_map(|list| status[list].as_array()).flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Mostly what is plain, sometimes what some rule has something to say about.
    fn mostly(plain: Value, special: Vec<Value>) -> impl Strategy<Value = Value> + Clone {
        prop_oneof![5 => Just(plain), 2 => prop::sample::select(special)]
    }

    fn pods() -> impl Strategy<Value = (Value, Value)> {
        let state = mostly(
            json!({"running": {}}),
            vec![json!({}), json!({"waiting": {}}), json!({"terminated": {"exitCode": 1}})],
        );
        let extra = mostly(
            json!({}),
            vec![
                json!({"user": {"linux": {"uid": -1, "gid": 0}}}),
                json!({"allocatedResourcesStatus": [{"name": "x.y/z", "resources": [{"resourceID": "a"}]}]}),
            ],
        );
        let others = mostly(
            json!({}),
            vec![
                json!({"nominatedNodeName": "n"}),
                json!({"resourceClaimStatuses": [{"name": "c"}]}),
                json!({"extendedResourceClaimStatus": {"resourceClaimName": "r", "requestMappings": []}}),
                json!({"podIPs": [{"ip": "1"}], "conditions": [{"type": "a b", "status": "True"}]}),
                json!({"observedGeneration": -1, "qosClass": "Burstable"}),
            ],
        );
        let status = (state, extra, others).prop_map(|(state, extra, mut status)| {
            let mut container = json!({"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0});
            container["state"] = state;
            for (name, value) in extra.as_object().unwrap() {
                container[name] = value.clone();
            }
            status["containerStatuses"] = json!([container]);
            status
        });
        let annotations = mostly(
            json!({"example.com/a": "b"}),
            vec![
                json!({"kubernetes.io/config.mirror": "x"}),
                json!({"container.apparmor.security.beta.kubernetes.io/none": "x"}),
                json!({"seccomp.security.alpha.kubernetes.io/pod": "x"}),
            ],
        );
        let spec = prop::sample::select(vec![
            json!({"restartPolicy": "Never", "containers": [{"name": "main"}]}),
            json!({"restartPolicy": "Always", "nodeName": "n", "containers": [{"name": "main"}]}),
            json!({"restartPolicy": "OnFailure", "os": {"name": "windows"}, "containers": [{"name": "other"}]}),
        ]);
        (status.clone(), status, annotations.clone(), annotations, spec).prop_map(|(new, old, mine, theirs, spec)| {
            let pod = |status, annotations| {
                json!({"metadata": {"name": "a", "namespace": "b", "annotations": annotations}, "spec": spec, "status": status})
            };
            (pod(new, mine), pod(old, theirs))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { max_global_rejects: 10_000, ..ProptestConfig::default() })]

        #[test]
        fn what_is_judged_without_spec_is_judged_the_same((new, old) in pods()) {
            prop_assume!(!status_depends_on_spec(&new, &old));
            let judge = |new: &Value, old: &Value| {
                let read = |pod: &Value| serde_json::from_value::<Pod>(pod.clone()).unwrap();
                super::super::validate_status_update(&read(new), &read(old))
            };
            let without = |pod: &Value| {
                let mut pod = pod.clone();
                pod.as_object_mut().unwrap().remove("spec");
                pod
            };
            prop_assert_eq!(
                format!("{:?}", judge(&new, &old)),
                format!("{:?}", judge(&without(&new), &without(&old)))
            );
        }
    }
}
