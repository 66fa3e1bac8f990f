//! Builders for tests of Job rules.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::field::Error;

/// A valid Job as it is after defaulting and preparation, with changes merged in; null removes a field.
pub(super) fn job(changes: Value) -> Job {
    serde_json::from_value(merged(valid(), &changes)).unwrap()
}

/// An Indexed Job of five completions.
pub(super) fn indexed(changes: Value) -> Job {
    let indexed = json!({"spec": {"completionMode": "Indexed", "completions": 5, "parallelism": 5}});
    serde_json::from_value(merged(merged(valid(), &indexed), &changes)).unwrap()
}

pub(super) fn valid() -> Value {
    let labels = json!({"batch.kubernetes.io/controller-uid": "1a2b3c", "batch.kubernetes.io/job-name": "myjob",
        "controller-uid": "1a2b3c", "job-name": "myjob"});
    let mut job = json!({
        "metadata": {"name": "myjob", "namespace": "default", "uid": "1a2b3c", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1a2b3c"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "ctr", "image": "busybox"}],
                    "initContainers": [{"name": "def", "image": "busybox"}]
                }
            }
        }
    });
    crate::job::default(&mut job, &crate::gates::Gates::DEFAULT);
    job
}

pub(super) fn merged(mut base: Value, changes: &Value) -> Value {
    let (Value::Object(fields), Value::Object(changes)) = (&mut base, changes) else { return changes.clone() };
    for (key, change) in changes {
        match change {
            Value::Null => _ = fields.shift_remove(key),
            change => {
                let old = fields.get(key).cloned().unwrap_or_default();
                fields.insert(key.clone(), merged(old, change));
            }
        }
    }
    base
}

pub(super) fn texts(errors: &[Error]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
