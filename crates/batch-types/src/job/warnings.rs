//! What is accepted but worth a word (JA section 10).

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use super::is_indexed;
use super::validation::{COMPLETIONS_SOFT_MAX, HIGH_COMPLETIONS_MAX};
use crate::field::Path;
use crate::{names, pod};

/// Said when a Job is deleted without a word about its pods (JA-X3).
pub const ORPHAN_BY_DEFAULT_WARNING: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

pub fn warnings_on_create(job: &Job) -> Vec<String> {
    let mut warnings: Vec<_> = name_warning(job.metadata.name.as_deref().unwrap_or_default()).into_iter().collect();
    if let Some(spec) = &job.spec {
        warnings.extend(spec_warnings(spec, &Path::new("spec")));
    }
    warnings
}

/// Only a changed spec is looked at, which the generation tells.
pub fn warnings_on_update(new: &Job, old: &Job) -> Vec<String> {
    match &new.spec {
        Some(spec) if new.metadata.generation != old.metadata.generation => spec_warnings(spec, &Path::new("spec")),
        _ => Vec::new(),
    }
}

/// The name of a Job or CronJob ends up in host names (JA-W1).
pub fn name_warning(name: &str) -> Option<String> {
    let messages = names::dns_label(name);
    (!messages.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            messages.join(" ")
        )
    })
}

/// Warnings about a Job spec, in a Job or in a CronJob's template (JA-W2, JA-W3).
pub(crate) fn spec_warnings(spec: &JobSpec, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let completions = spec.completions.unwrap_or_default();
    let parallelism = spec.parallelism.unwrap_or_default();
    if is_indexed(spec) && completions > COMPLETIONS_SOFT_MAX && parallelism > HIGH_COMPLETIONS_MAX {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.extend(pod::template_warnings(&spec.template, &path.child("template")));
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{indexed, job};
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn names_that_are_no_host_names() {
        assert_eq!(warnings_on_create(&job(json!({}))), NONE);
        assert_eq!(
            warnings_on_create(&job(json!({"metadata": {"name": "my.job"}}))),
            [
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label \
              is recommended: [must not contain dots]"
            ]
        );
    }

    #[test]
    fn numbers_that_cannot_be_tracked() {
        let warned = |completions: i32, parallelism: i32| {
            warnings_on_create(&indexed(json!({"spec": {"completions": completions, "parallelism": parallelism}})))
                .len()
        };
        assert_eq!((warned(100_001, 100_001), warned(100_001, 10_001)), (1, 1));
        assert_eq!((warned(1_000_000_000, 10_000), warned(100_000, 100_000), warned(10_000, 10_000)), (0, 0, 0));
        let many = json!({"spec": {"completions": 1_000_000_000, "parallelism": 1_000_000_000}});
        assert_eq!(warnings_on_create(&job(many)), NONE);
    }

    #[test]
    fn updates_are_looked_at_when_the_generation_changes() {
        let high = |generation: i64| {
            indexed(
                json!({"metadata": {"generation": generation}, "spec": {"completions": 100_001, "parallelism": 10_001}}),
            )
        };
        assert_eq!(warnings_on_update(&high(1), &high(1)), NONE);
        let warnings = warnings_on_update(&high(2), &high(1));
        assert!(warnings[0].starts_with("spec: In Indexed Jobs with a number of completions"), "{warnings:?}");
    }

    #[test]
    fn pod_templates_are_looked_at() {
        let template = json!({"spec": {"template": {"spec": {"imagePullSecrets": [{"name": ""}]}}}});
        let warnings = warnings_on_create(&job(template));
        assert_eq!(warnings, ["spec.template.spec.imagePullSecrets[0].name: invalid empty name \"\""]);
    }
}
