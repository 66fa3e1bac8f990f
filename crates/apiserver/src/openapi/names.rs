//! The names that clients and code generators see: of schemas, of operations, of tags.

use api_schema::Type;

use super::{facts::facts, types};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `io.k8s.api.batch.v1.JobSpec`: upstream's Go package in reverse, then the type.
pub fn schema(ty: &'static Type) -> String {
    let name = ty.name;
    match name {
        "RawExtension" => return "io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(),
        "Info" => return "io.k8s.apimachinery.pkg.version.Info".to_owned(),
        _ if facts().is_meta(&types::name_of(ty)) => return format!("{META}.{name}"),
        _ => {}
    }
    let package = ty.group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
    format!("io.k8s.api.{package}.{}.{name}", ty.package)
}

/// Scalars with a schema of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    FieldsV1,
}

impl Scalar {
    pub fn schema(self) -> String {
        match self {
            Self::Time => format!("{META}.Time"),
            Self::MicroTime => format!("{META}.MicroTime"),
            Self::FieldsV1 => format!("{META}.FieldsV1"),
            Self::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
            Self::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
        }
    }
}

/// `batch_v1`, which groups the operations of a version.
pub fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", short_group(group))
}

/// `BatchV1`, the part of operation ids that says where a resource is from.
pub fn id_part(group: &str, version: &str) -> String {
    format!("{}{}", capitalized(&short_group(group)), capitalized(version))
}

/// `Status` for `status`.
pub fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// `core`, `batch`, `coordination`, `rbacAuthorization`: a group without its domain.
pub fn short_group(group: &str) -> String {
    let mut words = group.trim_end_matches(".k8s.io").split('.');
    match words.next() {
        Some("") | None => "core".to_owned(),
        Some(first) => words.map(capitalized).fold(first.to_owned(), |name, word| name + &word),
    }
}

/// `v1` or `batch/v1`, as `apiVersion` says it.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_named_as_upstream_names_them() {
        let name = |name| schema(types::find(name).unwrap());
        for (ty, expected) in [
            ("JobSpec", "io.k8s.api.batch.v1.JobSpec"),
            ("Pod", "io.k8s.api.core.v1.Pod"),
            ("ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
            ("Lease", "io.k8s.api.coordination.v1.Lease"),
            ("Event", "io.k8s.api.core.v1.Event"),
            ("events.EventList", "io.k8s.api.events.v1.EventList"),
            ("Eviction", "io.k8s.api.policy.v1.Eviction"),
            ("RoleRef", "io.k8s.api.rbac.v1.RoleRef"),
            ("APIResourceList", "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList"),
            ("RawExtension", "io.k8s.apimachinery.pkg.runtime.RawExtension"),
        ] {
            assert_eq!(name(ty), expected);
        }
        assert_eq!(id_part("", "v1"), "CoreV1");
        assert_eq!(tag("coordination.k8s.io", "v1"), "coordination_v1");
        assert_eq!(tag("rbac.authorization.k8s.io", "v1"), "rbacAuthorization_v1");
        assert_eq!(id_part("rbac.authorization.k8s.io", "v1"), "RbacAuthorizationV1");
    }
}
