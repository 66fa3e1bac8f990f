//! What a new pod looks like (JC section 12).
//!
//! Thousands of pods of a Job differ in a name and perhaps an index. Everything they share is turned into JSON once per
//! sync; a pod's body is then a few pieces of text put together.

use std::collections::BTreeMap;

use batch_types::constants::{annotation, finalizer, label};
use batch_types::job::is_indexed;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Map, Value, json};

use super::action::Creation;
use super::names::PodNames;
use super::{Uid, patches};

/// The variable that tells a container its index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Makes the bodies of a Job's pods.
#[derive(Debug, Clone)]
pub struct PodStencil {
    job_name: String,
    job_uid: Uid,
    namespace: String,
    labels: Object,
    annotations: Object,
    /// Numbers of failures in the template, for pods that have none of their own.
    failures: Option<String>,
    ignored: Option<String>,
    finalizers: String,
    owners: String,
    spec: Object,
}

/// JC-1205: the template has no labels, so no selector could ever find its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLabels;

impl std::fmt::Display for NoLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unable to create pods, no labels")
    }
}

impl std::error::Error for NoLabels {}

impl PodStencil {
    pub fn new(job: &Job) -> Result<Self, NoLabels> {
        let metadata = &job.metadata;
        let template = job.spec.as_ref().map(|spec| &spec.template);
        let of_template = template.and_then(|template| template.metadata.as_ref());
        let indexed = job.spec.as_ref().is_some_and(is_indexed);

        let mut labels = of_template.and_then(|meta| meta.labels.clone()).unwrap_or_default();
        let mut annotations = of_template.and_then(|meta| meta.annotations.clone()).unwrap_or_default();
        if indexed {
            labels.remove(label::COMPLETION_INDEX);
            annotations.remove(annotation::COMPLETION_INDEX);
        } else if labels.is_empty() {
            return Err(NoLabels);
        }
        let failures = annotations.remove(annotation::INDEX_FAILURE_COUNT);
        let ignored = annotations.remove(annotation::INDEX_IGNORED_FAILURE_COUNT);
        let mut finalizers = of_template.and_then(|meta| meta.finalizers.clone()).unwrap_or_default();
        if !finalizers.iter().any(|name| name == finalizer::JOB_TRACKING) {
            finalizers.push(finalizer::JOB_TRACKING.to_owned());
        }
        let spec = template.and_then(|template| template.spec.as_ref());
        let mut spec = spec.and_then(|spec| serde_json::to_value(spec).ok()).unwrap_or_else(|| json!({}));
        if let (true, Some(spec)) = (indexed, spec.as_object_mut()) {
            spec.remove("hostname");
            add_index_variable(spec);
        }
        let job_name = metadata.name.clone().unwrap_or_default();
        let job_uid = Uid::new(metadata.uid.as_deref().unwrap_or(""));
        Ok(Self {
            owners: json!([patches::owner_reference(&job_name, &job_uid)]).to_string(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            labels: Object::of_texts(&labels),
            annotations: Object::of_texts(&annotations),
            failures,
            ignored,
            finalizers: json!(finalizers).to_string(),
            spec: Object(spec.to_string()),
            job_name,
            job_uid,
        })
    }

    /// The body of one pod, as JSON.
    pub fn body(&self, pod: &Creation) -> String {
        let index = pod.index.map(|index| index.to_string());
        let with_index = |key| index.as_deref().map(|index| (key, quoted(index)));
        let failures = pod.failure_counts.map(|counts| counts.counted.to_string());
        let ignored = pod.failure_counts.filter(|counts| counts.ignored > 0).map(|counts| counts.ignored.to_string());
        let counts = [
            (annotation::INDEX_FAILURE_COUNT, failures.as_ref().or(self.failures.as_ref())),
            (annotation::INDEX_IGNORED_FAILURE_COUNT, ignored.as_ref().or(self.ignored.as_ref())),
        ];
        let counts = counts.into_iter().filter_map(|(key, count)| Some((key, quoted(count?))));

        let labels = self.labels.with(with_index(label::COMPLETION_INDEX));
        let annotations = self.annotations.with(with_index(annotation::COMPLETION_INDEX).into_iter().chain(counts));
        let hostname = index.as_deref().map(|index| ("hostname", quoted(&format!("{}-{index}", self.job_name))));
        let spec = self.spec.with(hostname);
        let prefix = PodNames::new(&self.job_name, &self.job_uid).prefix(pod.index);
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":{name},"generateName":{prefix},"namespace":{namespace},"#,
            name = quoted(&pod.name),
            prefix = quoted(&prefix),
            namespace = quoted(&self.namespace),
        ) + &format!(
            r#""labels":{labels},"annotations":{annotations},"finalizers":{finalizers},"ownerReferences":{owners}}},"#,
            finalizers = self.finalizers,
            owners = self.owners,
        ) + &format!(r#""spec":{spec}}}"#)
    }
}

/// A JSON object as text that members can be added to.
#[derive(Debug, Clone)]
struct Object(String);

impl Object {
    fn of_texts(members: &BTreeMap<String, String>) -> Self {
        Self(json!(members).to_string())
    }

    /// The object with further members, whose values are JSON already. None of them may be there before.
    fn with<'a>(&self, members: impl IntoIterator<Item = (&'a str, String)>) -> String {
        let mut text = self.0.clone();
        for (key, value) in members {
            text.pop();
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&quoted(key));
            text.push(':');
            text.push_str(&value);
            text.push('}');
        }
        text
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// JC-1206: in every container that does not set the variable itself.
fn add_index_variable(spec: &mut Map<String, Value>) {
    let path = format!("metadata.labels['{}']", label::COMPLETION_INDEX);
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let env = container.entry("env").or_insert_with(|| json!([]));
            let Some(env) = env.as_array_mut() else { continue };
            if !env.iter().any(|known| known["name"] == INDEX_VARIABLE) {
                env.push(variable.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::FailureCounts;
    use super::*;

    fn stencil(spec: Value) -> Result<PodStencil, NoLabels> {
        let job = json!({"metadata": {"namespace": "ns", "name": "a", "uid": "j"}, "spec": spec});
        PodStencil::new(&serde_json::from_value(job).unwrap())
    }

    fn body(spec: Value, pod: &Creation) -> Value {
        serde_json::from_str(&stencil(spec).unwrap().body(pod)).unwrap()
    }

    fn plain(name: &str) -> Creation {
        Creation { name: name.into(), index: None, failure_counts: None }
    }

    /// JC-1201…1205, JC-1208; recorded as `basics/template-metadata`.
    #[test]
    fn pods_are_made_from_the_template() {
        let spec = json!({"template": {
            "metadata": {"name": "not-copied", "labels": {"app": "w"}, "annotations": {"note": "kept"},
                         "finalizers": ["example.com/mine"]},
            "spec": {"hostname": "fixed", "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]},
        }});
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Pod",
              "metadata": {
                "name": "a-bcdfg",
                "generateName": "a-",
                "namespace": "ns",
                "labels": {
                  "app": "w"
                },
                "annotations": {
                  "note": "kept"
                },
                "finalizers": [
                  "example.com/mine",
                  "batch.kubernetes.io/job-tracking"
                ],
                "ownerReferences": [
                  {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "a",
                    "uid": "j",
                    "controller": true,
                    "blockOwnerDeletion": true
                  }
                ]
              },
              "spec": {
                "containers": [
                  {
                    "env": [
                      {
                        "name": "A",
                        "value": "1"
                      }
                    ],
                    "name": "main"
                  }
                ],
                "hostname": "fixed"
              }
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&body(spec, &plain("a-bcdfg"))).unwrap());
    }

    /// JC-1206, JC-1207; recorded as `indexed/own-variable-wins` and in `per-index`.
    #[test]
    fn pods_of_indexed_jobs_know_their_index() {
        let spec = json!({"completionMode": "Indexed", "template": {"spec": {
            "hostname": "overridden", "subdomain": "kept",
            "initContainers": [{"name": "prepare"}],
            "containers": [{"name": "main", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]}],
        }}});
        let counts = FailureCounts { counted: 2, ignored: 1 };
        let pod = Creation { name: "a-7-bcdfg".into(), index: Some(7), failure_counts: Some(counts) };
        let body = body(spec.clone(), &pod);
        assert_eq!(body["metadata"]["generateName"], "a-7-");
        assert_eq!(body["metadata"]["labels"], json!({"batch.kubernetes.io/job-completion-index": "7"}));
        assert_eq!(
            body["metadata"]["annotations"],
            json!({
                "batch.kubernetes.io/job-completion-index": "7",
                "batch.kubernetes.io/job-index-failure-count": "2",
                "batch.kubernetes.io/job-index-ignored-failure-count": "1",
            })
        );
        assert_eq!((&body["spec"]["hostname"], &body["spec"]["subdomain"]), (&json!("a-7"), &json!("kept")));
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        assert_eq!(
            body["spec"]["initContainers"][0]["env"],
            json!([{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}])
        );
        assert_eq!(body["spec"]["containers"][0]["env"], json!([{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]));

        let first = Creation { failure_counts: Some(FailureCounts::default()), ..pod };
        let annotations = &self::body(spec, &first)["metadata"]["annotations"];
        assert_eq!(annotations["batch.kubernetes.io/job-index-failure-count"], "0");
        assert_eq!(annotations.get("batch.kubernetes.io/job-index-ignored-failure-count"), None);
    }

    /// JC-1201, JC-1207: what the template says stands where nothing is known of the index.
    #[test]
    fn numbers_of_failures_in_the_template_are_copied_unless_there_are_own_ones() {
        let numbers = json!({"batch.kubernetes.io/job-index-failure-count": "7",
                             "batch.kubernetes.io/job-index-ignored-failure-count": "8"});
        let spec = json!({"completionMode": "Indexed", "template": {"metadata": {"annotations": numbers}}});
        let told = |failure_counts| {
            let pod = Creation { name: "a-0-bcdfg".into(), index: Some(0), failure_counts };
            let annotations = body(spec.clone(), &pod)["metadata"]["annotations"].clone();
            ["failure", "ignored-failure"]
                .map(|kind| annotations[format!("batch.kubernetes.io/job-index-{kind}-count")].clone())
        };
        assert_eq!(told(None), ["7", "8"]);
        assert_eq!(told(Some(FailureCounts::default())), ["0", "8"]);
        assert_eq!(told(Some(FailureCounts { counted: 2, ignored: 1 })), ["2", "1"]);
    }

    /// JC-1205.
    #[test]
    fn pods_without_any_label_are_not_made() {
        assert_eq!(stencil(json!({"template": {}})).unwrap_err().to_string(), "unable to create pods, no labels");
        assert!(stencil(json!({"template": {}, "completionMode": "Indexed"})).is_ok());
    }

    #[test]
    fn a_tracking_finalizer_in_the_template_is_not_repeated() {
        let finalizers = json!(["batch.kubernetes.io/job-tracking", "x/y"]);
        let spec = json!({"template": {"metadata": {"labels": {"a": "b"}, "finalizers": finalizers}}});
        assert_eq!(body(spec, &plain("p"))["metadata"]["finalizers"], finalizers);
    }
}
