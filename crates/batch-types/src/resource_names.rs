//! Names of the resources that pods ask for and quotas count: `cpu`, `requests.memory`, `example.com/gpu`.
//!
//! Upstream's predicates of `pkg/apis/core/helper`. What a pod may do with a resource is in `pod`.

use crate::field::{Error, Path};
use crate::names;

const HUGE_PAGES: &str = "hugepages-";
/// Resources that something in a cluster counts; most of them make no sense in a pod.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Huge pages of any size.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Known to the system without a domain.
pub fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_quota_huge_pages(name)
}

/// What a quota may count without naming a domain: all that is standard but the plain name of storage.
pub fn is_standard_for_quota(name: &str) -> bool {
    is_standard(name) && name != "storage"
}

/// What a container may ask for without naming a domain.
pub fn is_standard_for_container(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name)
}

/// What a pod may ask for as a whole.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Measured in whole numbers.
pub fn is_whole(name: &str) -> bool {
    WHOLE.contains(&name) || is_extended(name)
}

/// Names without a domain, or within Kubernetes' own.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Somebody else's resource: `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether requests may be below limits: everywhere but for extended resources and huge pages.
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Upstream's `validateResourceName`.
pub fn validate(name: &str, at: &Path) -> Vec<Error> {
    let mut errors: Vec<Error> =
        names::qualified_name(name).into_iter().map(|message| Error::invalid(at, name, message)).collect();
    if errors.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.push(Error::invalid(at, name, "must be a standard resource type or fully qualified"));
    }
    errors
}

/// Upstream's `ValidateContainerResourceName`.
pub fn validate_for_container(name: &str, at: &Path) -> Vec<Error> {
    let mut errors = validate(name, at);
    if !name.contains('/') {
        if !is_standard_for_container(name) {
            errors.push(Error::invalid(at, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(Error::invalid(at, name, "doesn't follow extended resource name standard"));
    }
    errors
}

/// Upstream's `ValidateResourceQuotaResourceName`.
pub fn validate_for_quota(name: &str, at: &Path) -> Vec<Error> {
    let mut errors = validate(name, at);
    if !name.contains('/') && !is_standard_for_quota(name) {
        errors.push(Error::invalid(at, name, "must be a standard resource for quota"));
    }
    errors
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name.strip_prefix("requests.").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: Vec<Error>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_standard_or_have_a_domain() {
        let at = Path::new("at");
        let cases: [(&str, &[&str], &[&str]); 7] = [
            ("cpu", &[], &[]),
            ("hugepages-2Mi", &[], &[]),
            ("example.com/gpu", &[], &[]),
            ("pods", &["must be a standard resource for containers"], &[]),
            ("storage", &["must be a standard resource for containers"], &["must be a standard resource for quota"]),
            ("count/jobs.batch", &[], &[]),
            (
                "gpu",
                &["must be a standard resource type or fully qualified", "must be a standard resource for containers"],
                &["must be a standard resource type or fully qualified", "must be a standard resource for quota"],
            ),
        ];
        for (name, in_container, in_quota) in cases {
            let with_value = |details: &[&str]| -> Vec<String> {
                details.iter().map(|detail| format!("at: Invalid value: \"{name}\": {detail}")).collect()
            };
            assert_eq!(texts(validate_for_container(name, &at)), with_value(in_container), "{name}");
            assert_eq!(texts(validate_for_quota(name, &at)), with_value(in_quota), "{name}");
        }
    }

    #[test]
    fn some_resources_are_whole() {
        for name in ["pods", "secrets", "example.com/gpu"] {
            assert!(is_whole(name), "{name}");
        }
        for name in ["cpu", "requests.memory", "count/jobs.batch/x", "requests.example.com/gpu"] {
            assert!(!is_whole(name) || name.starts_with("count/"), "{name}");
        }
    }
}
