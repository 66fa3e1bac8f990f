//! Small valid objects for tests to start from.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A Job that would run `true` once.
pub fn job(name: &str) -> Job {
    let template = PodTemplateSpec { spec: Some(pod_spec()), ..PodTemplateSpec::default() };
    Job { metadata: named(name), spec: Some(JobSpec { template, ..JobSpec::default() }), ..Job::default() }
}

/// A pod that would run `true` once.
pub fn pod(name: &str) -> Pod {
    Pod { metadata: named(name), spec: Some(pod_spec()), ..Pod::default() }
}

/// A ConfigMap with one entry, `value`.
pub fn config_map(name: &str, value: &str) -> ConfigMap {
    let data = [("value".to_owned(), value.to_owned())].into();
    ConfigMap { metadata: named(name), data: Some(data), ..ConfigMap::default() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn pod_spec() -> PodSpec {
    let container = Container {
        name: "main".to_owned(),
        image: Some("busybox".to_owned()),
        command: Some(vec!["true".to_owned()]),
        ..Container::default()
    };
    PodSpec { containers: vec![container], restart_policy: Some("Never".to_owned()), ..PodSpec::default() }
}
