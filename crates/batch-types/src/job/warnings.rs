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
        Some(spec) if new.metadata.generation != old.metadata.generation => {
            spec_warnings(spec, &Path::new("spec"))
        }
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
