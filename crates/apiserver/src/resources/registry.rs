//! The served resources, in one static table (spec sections 1, AS-39, AS-40, AS-94).
//!
//! Discovery, routing, field selectors and storage all read this table; what a kind *does* is in its strategy.

use super::{
    Endpoint, Resource, Selectable, Subresource, UnknownField, configmap, cronjob, event, job, lease, limitrange,
    namespace, node, pod, priorityclass, rbac, resourcequota, secret, serviceaccount,
};
use batch_types::meta::Scope;

/// Every verb, in the order discovery prints them.
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces go one by one.
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const GET: &[&str] = &["get"];
const UPDATE: &[&str] = &["update"];
const PART: &[&str] = &["get", "patch", "update"];

/// Groups in the order `/apis` lists them, which is upstream's order of preference; `""` is the core group.
pub static GROUPS: &[&str] = &[
    "",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
];

/// Resources whose objects are stored, and `bindings`, which only has an effect.
pub static RESOURCES: &[Resource] = &[
    Resource {
        verbs: CREATE,
        storage_version_hash: "",
        strategy: &pod::Binding,
        ..core("bindings", "binding", "Binding")
    },
    Resource {
        short_names: &["cm"],
        storage_version_hash: "qFsyl6wFWjQ=",
        strategy: &configmap::ConfigMap,
        ..core("configmaps", "configmap", "ConfigMap")
    },
    Resource {
        short_names: &["ev"],
        storage_version_hash: "r2yiGXH7wu8=",
        selectable: CORE_EVENT_FIELDS,
        unknown_field: UnknownField::Short,
        strategy: &event::CoreEvent,
        ..core("events", "event", "Event")
    },
    Resource {
        short_names: &["limits"],
        storage_version_hash: "EBKMFVe6cwo=",
        strategy: &limitrange::LimitRange,
        ..core("limitranges", "limitrange", "LimitRange")
    },
    Resource {
        namespaced: false,
        short_names: &["ns"],
        verbs: NO_COLLECTION,
        storage_version_hash: "Q3oi5N2YM8M=",
        subresources: &[
            Subresource { name: "finalize", kind: None, verbs: UPDATE, endpoint: Endpoint::Part(&namespace::Finalize) },
            Subresource { name: "status", kind: None, verbs: PART, endpoint: Endpoint::Part(&namespace::Status) },
        ],
        selectable: &[Selectable { label: "status.phase", path: &["status", "phase"], absent: "" }],
        unknown_field: UnknownField::Short,
        strategy: &namespace::Namespace,
        ..core("namespaces", "namespace", "Namespace")
    },
    Resource {
        namespaced: false,
        short_names: &["no"],
        storage_version_hash: "XwShjMxG9Fs=",
        subresources: &[Subresource {
            name: "status",
            kind: None,
            verbs: PART,
            endpoint: Endpoint::Part(&node::Status),
        }],
        selectable: &[Selectable { label: "spec.unschedulable", path: &["spec", "unschedulable"], absent: "false" }],
        unknown_field: UnknownField::Short,
        strategy: &node::Node,
        ..core("nodes", "node", "Node")
    },
    Resource {
        short_names: &["po"],
        categories: &["all"],
        storage_version_hash: "xPOwRZ+Yhw8=",
        subresources: &[
            Subresource {
                name: "binding",
                kind: Some(("", "v1", "Binding")),
                verbs: CREATE,
                endpoint: Endpoint::Binding,
            },
            Subresource {
                name: "eviction",
                kind: Some(("policy", "v1", "Eviction")),
                verbs: CREATE,
                endpoint: Endpoint::Eviction,
            },
            Subresource { name: "log", kind: None, verbs: GET, endpoint: Endpoint::Log },
            Subresource { name: "status", kind: None, verbs: PART, endpoint: Endpoint::Part(&pod::Status) },
        ],
        selectable: POD_FIELDS,
        unknown_field: UnknownField::Short,
        strategy: &pod::Pod,
        ..core("pods", "pod", "Pod")
    },
    Resource {
        short_names: &["quota"],
        storage_version_hash: "8uhSgffRX6w=",
        subresources: &[Subresource {
            name: "status",
            kind: None,
            verbs: PART,
            endpoint: Endpoint::Part(&resourcequota::Status),
        }],
        strategy: &resourcequota::ResourceQuota,
        ..core("resourcequotas", "resourcequota", "ResourceQuota")
    },
    Resource {
        storage_version_hash: "S6u1pOWzb84=",
        selectable: &[Selectable { label: "type", path: &["type"], absent: "" }],
        unknown_field: UnknownField::Short,
        strategy: &secret::Secret,
        ..core("secrets", "secret", "Secret")
    },
    Resource {
        short_names: &["sa"],
        storage_version_hash: "pbx9ZvyFpBE=",
        subresources: &[Subresource {
            name: "token",
            kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            verbs: CREATE,
            endpoint: Endpoint::Token,
        }],
        strategy: &serviceaccount::ServiceAccount,
        ..core("serviceaccounts", "serviceaccount", "ServiceAccount")
    },
    Resource {
        group: "batch",
        short_names: &["cj"],
        categories: &["all"],
        storage_version_hash: "sd5LIXh4Fjs=",
        subresources: &[Subresource {
            name: "status",
            kind: None,
            verbs: PART,
            endpoint: Endpoint::Part(&cronjob::Status),
        }],
        topic: "cronjobs.batch",
        strategy: &cronjob::CronJob,
        ..core("cronjobs", "cronjob", "CronJob")
    },
    Resource {
        group: "batch",
        categories: &["all"],
        storage_version_hash: "mudhfqk/qZY=",
        subresources: &[Subresource {
            name: "status",
            kind: None,
            verbs: PART,
            endpoint: Endpoint::Part(&job::Status),
        }],
        topic: "jobs.batch",
        selectable: &[Selectable { label: "status.successful", path: &["status", "succeeded"], absent: "0" }],
        unknown_field: UnknownField::WithKind,
        strategy: &job::Job,
        ..core("jobs", "job", "Job")
    },
    Resource {
        group: "coordination.k8s.io",
        storage_version_hash: "gqkMMb/YqFM=",
        topic: "leases.coordination.k8s.io",
        strategy: &lease::Lease,
        ..core("leases", "lease", "Lease")
    },
    // The same objects as the core group's events (AS-1): one topic, and fields at the same positions.
    Resource {
        group: "events.k8s.io",
        short_names: &["ev"],
        storage_version_hash: "r2yiGXH7wu8=",
        selectable: NEW_EVENT_FIELDS,
        unknown_field: UnknownField::Short,
        strategy: &event::NewEvent,
        conversion: Some(&event::NewEvent),
        ..core("events", "event", "Event")
    },
    Resource {
        group: rbac::GROUP,
        namespaced: false,
        storage_version_hash: "48tpQ8gZHFc=",
        topic: "clusterrolebindings.rbac.authorization.k8s.io",
        strategy: &rbac::Binding { scope: Scope::Cluster },
        ..core("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding")
    },
    Resource {
        group: rbac::GROUP,
        namespaced: false,
        storage_version_hash: "bYE5ZWDrJ44=",
        topic: "clusterroles.rbac.authorization.k8s.io",
        strategy: &rbac::Role { scope: Scope::Cluster },
        ..core("clusterroles", "clusterrole", "ClusterRole")
    },
    Resource {
        group: rbac::GROUP,
        storage_version_hash: "eGsCzGH6b1g=",
        topic: "rolebindings.rbac.authorization.k8s.io",
        strategy: &rbac::Binding { scope: Scope::Namespaced },
        ..core("rolebindings", "rolebinding", "RoleBinding")
    },
    Resource {
        group: rbac::GROUP,
        storage_version_hash: "7FuwZcIIItM=",
        topic: "roles.rbac.authorization.k8s.io",
        strategy: &rbac::Role { scope: Scope::Namespaced },
        ..core("roles", "role", "Role")
    },
    Resource {
        group: "scheduling.k8s.io",
        namespaced: false,
        short_names: &["pc"],
        storage_version_hash: "1QwjyaZjj3Y=",
        topic: "priorityclasses.scheduling.k8s.io",
        strategy: &priorityclass::PriorityClass,
        ..core("priorityclasses", "priorityclass", "PriorityClass")
    },
];

/// What most resources have in common; entries override the rest.
const fn core(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
    Resource {
        group: "",
        version: "v1",
        plural,
        singular,
        kind,
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: ALL,
        storage_version_hash: "",
        subresources: &[],
        topic: plural,
        selectable: &[],
        unknown_field: UnknownField::Default,
        strategy: &pod::Binding,
        conversion: None,
    }
}

const POD_FIELDS: &[Selectable] = &[
    Selectable { label: "spec.nodeName", path: &["spec", "nodeName"], absent: "" },
    // What clients before v1.0 called it.
    Selectable { label: "spec.host", path: &["spec", "nodeName"], absent: "" },
    Selectable { label: "spec.restartPolicy", path: &["spec", "restartPolicy"], absent: "" },
    Selectable { label: "spec.schedulerName", path: &["spec", "schedulerName"], absent: "" },
    Selectable { label: "spec.serviceAccountName", path: &["spec", "serviceAccountName"], absent: "" },
    Selectable { label: "spec.hostNetwork", path: &["spec", "hostNetwork"], absent: "false" },
    Selectable { label: "status.phase", path: &["status", "phase"], absent: "" },
    Selectable { label: "status.podIP", path: &["status", "podIP"], absent: "" },
    Selectable { label: "status.nominatedNodeName", path: &["status", "nominatedNodeName"], absent: "" },
];

/// `source` comes last, because only this group knows it.
const CORE_EVENT_FIELDS: &[Selectable] = &[
    Selectable { label: "involvedObject.kind", path: &["involvedObject", "kind"], absent: "" },
    Selectable { label: "involvedObject.namespace", path: &["involvedObject", "namespace"], absent: "" },
    Selectable { label: "involvedObject.name", path: &["involvedObject", "name"], absent: "" },
    Selectable { label: "involvedObject.uid", path: &["involvedObject", "uid"], absent: "" },
    Selectable { label: "involvedObject.apiVersion", path: &["involvedObject", "apiVersion"], absent: "" },
    Selectable { label: "involvedObject.resourceVersion", path: &["involvedObject", "resourceVersion"], absent: "" },
    Selectable { label: "involvedObject.fieldPath", path: &["involvedObject", "fieldPath"], absent: "" },
    Selectable { label: "reason", path: &["reason"], absent: "" },
    Selectable { label: "reportingComponent", path: &["reportingComponent"], absent: "" },
    Selectable { label: "type", path: &["type"], absent: "" },
    Selectable { label: "source", path: &["source", "component"], absent: "" },
];

/// Paths are those of the stored, core form.
const NEW_EVENT_FIELDS: &[Selectable] = &[
    Selectable { label: "regarding.kind", path: &["involvedObject", "kind"], absent: "" },
    Selectable { label: "regarding.namespace", path: &["involvedObject", "namespace"], absent: "" },
    Selectable { label: "regarding.name", path: &["involvedObject", "name"], absent: "" },
    Selectable { label: "regarding.uid", path: &["involvedObject", "uid"], absent: "" },
    Selectable { label: "regarding.apiVersion", path: &["involvedObject", "apiVersion"], absent: "" },
    Selectable { label: "regarding.resourceVersion", path: &["involvedObject", "resourceVersion"], absent: "" },
    Selectable { label: "regarding.fieldPath", path: &["involvedObject", "fieldPath"], absent: "" },
    Selectable { label: "reason", path: &["reason"], absent: "" },
    Selectable { label: "reportingController", path: &["reportingComponent"], absent: "" },
    Selectable { label: "type", path: &["type"], absent: "" },
];

/// A question to the server that is answered and forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct Review {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
}

impl Review {
    /// All that can be done with a review.
    pub const VERBS: &'static [&'static str] = CREATE;
}

pub static REVIEWS: &[Review] = &[
    Review {
        namespaced: true,
        ..review_kind(
            "authorization.k8s.io",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
        )
    },
    review_kind(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
    ),
    review_kind("authorization.k8s.io", "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview"),
    review_kind("authorization.k8s.io", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview"),
    review_kind("authentication.k8s.io", "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview"),
    review_kind("authentication.k8s.io", "tokenreviews", "tokenreview", "TokenReview"),
];

const fn review_kind(group: &'static str, plural: &'static str, singular: &'static str, kind: &'static str) -> Review {
    Review { group, version: "v1", plural, singular, kind, namespaced: false }
}

/// The resource at a URL.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    // Names differ most, so they are compared first.
    RESOURCES
        .iter()
        .find(|resource| resource.plural == plural && resource.group == group && resource.version == version)
}

/// The resource of a group, whatever version is asked for.
pub fn any_version(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural && resource.group == group)
}

/// The resource whose objects are stored under a topic, in their stored version.
pub fn by_topic(topic: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.topic == topic && resource.conversion.is_none())
}

/// The review at a URL.
pub fn review(group: &str, version: &str, plural: &str) -> Option<&'static Review> {
    REVIEWS.iter().find(|review| review.plural == plural && review.group == group && review.version == version)
}

/// Whether anything is served in a group.
pub fn serves_group(group: &str) -> bool {
    GROUPS.contains(&group)
}

/// Whether a group is served in a version.
pub fn serves(group: &str, version: &str) -> bool {
    serves_group(group) && version == "v1"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_resource_is_in_a_listed_group() {
        let used: BTreeSet<&str> =
            RESOURCES.iter().map(|resource| resource.group).chain(REVIEWS.iter().map(|review| review.group)).collect();
        assert_eq!(used, GROUPS.iter().copied().collect());
        for resource in RESOURCES {
            assert!(serves(resource.group, resource.version), "{resource:?}");
        }
    }

    #[test]
    fn resources_are_found_by_url_and_topic() {
        for resource in RESOURCES {
            let same = |found: Option<&'static Resource>| found.is_some_and(|found| std::ptr::eq(found, resource));
            assert!(same(find(resource.group, resource.version, resource.plural)), "{resource:?}");
            assert!(same(any_version(resource.group, resource.plural)), "{resource:?}");
            assert_eq!(same(by_topic(resource.topic)), resource.conversion.is_none(), "{resource:?}");
        }
        assert!(find("batch", "v2", "jobs").is_none());
        assert!(by_topic("trees").is_none());
        assert!(review("authentication.k8s.io", "v1", "tokenreviews").is_some());
        assert!(review("authentication.k8s.io", "v1", "subjectaccessreviews").is_none());
    }

    /// Keys of different kinds never collide: `jobs.batch/a/b`.
    #[test]
    fn topics_are_qualified_names() {
        for resource in RESOURCES.iter().filter(|resource| resource.conversion.is_none()) {
            assert_eq!(resource.topic, resource.qualified());
        }
    }

    /// Spans of selectable fields are found by position in the stored form.
    #[test]
    fn fields_of_converted_resources_stand_where_the_stored_ones_do() {
        for resource in RESOURCES.iter().filter(|resource| resource.conversion.is_some()) {
            let stored = by_topic(resource.topic).expect("the stored form is served too");
            for (served, stored) in resource.selectable.iter().zip(stored.selectable) {
                assert_eq!(served.path, stored.path, "{}", served.label);
            }
            assert!(resource.selectable.len() <= stored.selectable.len());
        }
    }

    /// AS-40: stored kinds have a hash, the base64 of eight bytes.
    #[test]
    fn stored_kinds_have_a_hash() {
        for resource in RESOURCES {
            let expected = if resource.allows("list") { 12 } else { 0 };
            assert_eq!(resource.storage_version_hash.len(), expected, "{resource:?}");
        }
    }
}
