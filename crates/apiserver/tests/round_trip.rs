//! A defaulted valid Job survives a round trip byte for byte: what is stored is what a later read and write make of it.

use api_schema::{json, registry};
use batch_types::{
    gates::Gates,
    job::{self, CreateFacts},
};
use k8s_openapi::api::batch::v1::Job;
use proptest::prelude::*;
use serde_json::{Value, json};

fn some(values: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(values)
}

/// Jobs as people send them, most of them valid.
fn jobs() -> impl Strategy<Value = Value> {
    let counts = (1..9i32, 1..9i32, prop::bool::ANY);
    let policies = some(vec![
        json!({}),
        json!({"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1, 3]}}]}}),
        json!({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}),
        json!({"podReplacementPolicy": "Failed", "suspend": true, "activeDeadlineSeconds": 7}),
        json!({"managedBy": "example.com/x", "ttlSecondsAfterFinished": 0, "backoffLimit": 0}),
        json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1}),
        json!({"successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}}),
    ]);
    let pods = some(vec![
        json!({}),
        json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}], "nodeSelector": {"a": "<&>"}}),
        json!({"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0, "priority": 0}),
        json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}], "hostname": "h"}),
    ]);
    let containers = some(vec![
        json!({"resources": {"limits": {"cpu": "0.5", "memory": "1000Ki"}}}),
        json!({"env": [{"name": "A", "value": "$(B) \u{2028} \"é\""}], "args": [], "command": ["x"]}),
        json!({"livenessProbe": {"exec": {"command": ["true"]}}, "ports": [{"containerPort": 80}]}),
        json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "securityContext": {"runAsUser": 0}}),
    ]);
    (counts, policies, pods, containers).prop_map(|((completions, parallelism, indexed), policies, pods, container)| {
        let mut main = json!({"name": "main", "image": "a:1"});
        merge(&mut main, container);
        let mut pod = json!({"restartPolicy": "Never", "containers": [main]});
        merge(&mut pod, pods);
        let mut spec = json!({"completions": completions, "parallelism": parallelism, "template": {"spec": pod}});
        if indexed {
            spec["completionMode"] = json!("Indexed");
        }
        merge(&mut spec, policies);
        let metadata = json!({"name": "a", "namespace": "b", "uid": "u", "annotations": {"x": "<a>&"}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    })
}

fn merge(into: &mut Value, members: Value) {
    if let (Value::Object(into), Value::Object(members)) = (into, members) {
        into.extend(members);
    }
}

fn encoded(value: &Value) -> String {
    let mut bytes = Vec::new();
    json::encode(value, &mut bytes);
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

proptest! {
    #[test]
    fn a_defaulted_valid_job_survives_byte_for_byte(sent in jobs()) {
        let ty = registry().kind("batch/v1", "Job").expect("a served kind");
        let mut job = json::decode(ty, encoded(&sent).as_bytes()).expect("it fits the schema").value;
        let defaulted = job::default(&mut job, &Gates::DEFAULT);
        let facts = CreateFacts { uid: "u", generated_name: false, defaulted, gates: &Gates::DEFAULT };
        job::prepare_for_create(&mut job, &facts);
        // Stored as every later read defaults it: labels that were generated for the template reach the Job (JA-D4).
        job::default(&mut job, &Gates::DEFAULT);
        let job = json::convert(ty, job).expect("rules keep to the schema").value;
        let typed: Job = serde_json::from_value(job.clone()).expect("a Job");
        prop_assume!(job::validate(&typed).is_empty());

        let stored = encoded(&job);
        let mut read = json::decode(ty, stored.as_bytes()).expect("what was written reads").value;
        prop_assert_eq!(&encoded(&read), &stored);
        job::default(&mut read, &Gates::DEFAULT);
        let again = json::convert(ty, read).expect("it still fits").value;
        prop_assert_eq!(encoded(&again), stored);
    }
}
