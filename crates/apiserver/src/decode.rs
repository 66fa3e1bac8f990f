//! From request bodies to canonical objects (AS-20…AS-25, AS-155), with upstream's words for what cannot be read.

use api_schema::{
    Type, TypeMeta,
    json::{self, Decoded},
    protobuf, registry,
    yaml::{self, FromYaml},
};
use serde_json::Value;

use crate::{negotiate::BodyType, options::FieldValidation, status::Status};

/// What an endpoint reads.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    /// How upstream names the internal type in conversion errors: `core.Pod`.
    pub also_versions: &'a [&'a str],
}

impl Expected<'_> {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    fn accepts(&self, api_version: &str) -> bool {
        api_version == self.api_version() || self.also_versions.contains(&api_version)
    }

    /// The Go package of the internal type: the group's first word, `core` for the core group and for both kinds of event.
    fn internal_package(&self) -> &str {
        match self.group {
            "" | "events.k8s.io" => "core",
            group => group.split('.').next().unwrap_or(group),
        }
    }
}

/// A decoded body and what its sender should hear about it.
#[derive(Debug)]
pub struct Body {
    pub value: Value,
    pub warnings: Vec<String>,
}

/// Decodes the body of a POST or PUT; `kind` and `apiVersion` may be left out (the URL supplies them).
pub fn object(
    bytes: &[u8],
    body_type: BodyType,
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Result<Body, Status> {
    match body_type {
        BodyType::Json => from_json(bytes, None, bytes, expected, validation),
        BodyType::Yaml => {
            let converted = yaml::to_json(bytes).map_err(|why| unrecognized(expected, &why, bytes))?;
            from_json(&converted.json, Some(&converted), bytes, expected, validation)
        }
        BodyType::Protobuf => from_protobuf(bytes, expected),
    }
}

/// Decodes JSON; `converted` says what a strict reading found wrong with the YAML it was made of, if it was.
fn from_json(
    json: &[u8],
    converted: Option<&FromYaml>,
    original: &[u8],
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Result<Body, Status> {
    let duplicates = converted.map_or(&[][..], |yaml| &yaml.duplicates);
    // The usual case: what was expected, said plainly. Whatever is odd about a body is found out below.
    if let Some(ty) = registry().kind(&expected.api_version(), expected.kind)
        && let Ok(Decoded { value, strict }) = json::decode(ty, json)
        && strict.is_empty()
        && duplicates.is_empty()
        && value["kind"] == expected.kind
        && value["apiVersion"] == expected.api_version().as_str()
    {
        return Ok(Body { value, warnings: Vec::new() });
    }
    let meta = json::type_meta(json).map_err(|why| unrecognized(expected, &why, original))?;
    let api_version = if meta.api_version.is_empty() { expected.api_version() } else { meta.api_version };
    let kind = if meta.kind.is_empty() { expected.kind.to_owned() } else { meta.kind };
    let ty =
        expected_type(&api_version, &kind, expected).map_err(|why| unhandled(&api_version, &kind, expected, &why))?;
    let refuse = |why: &str| unhandled(&api_version, &kind, expected, why);
    let Decoded { value, strict } = json::decode(ty, json).map_err(|error| refuse(&error.to_string()))?;
    let found = strict.iter().map(ToString::to_string);
    let warnings = match validation {
        FieldValidation::Strict if !strict.is_empty() || !duplicates.is_empty() => {
            let found: Vec<String> = converted.and_then(FromYaml::strict_error).into_iter().chain(found).collect();
            return Err(refuse(&format!("strict decoding error: {}", found.join(", "))));
        }
        // A refusal names the duplicates of YAML in one text; as warnings each of them is one.
        FieldValidation::Warn => duplicates.iter().cloned().chain(found).collect(),
        _ => Vec::new(),
    };
    finish(value, &api_version, expected, warnings)
}

fn from_protobuf(bytes: &[u8], expected: Expected<'_>) -> Result<Body, Status> {
    let (meta, raw) =
        protobuf::decode_envelope(bytes).map_err(|error| unrecognized(expected, &error.to_string(), bytes))?;
    let api_version = if meta.api_version.is_empty() { expected.api_version() } else { meta.api_version };
    let kind = if meta.kind.is_empty() { expected.kind.to_owned() } else { meta.kind };
    let ty =
        expected_type(&api_version, &kind, expected).map_err(|why| unhandled(&api_version, &kind, expected, &why))?;
    let value = protobuf::decode(ty, &bytes[raw])
        .map_err(|error| unhandled(&api_version, &kind, expected, &error.to_string()))?;
    finish(value, &api_version, expected, Vec::new())
}

/// Decodes the body of a DELETE. Options are of no group in particular, so any `apiVersion` will do (AS-22), and what
/// cannot be read is told as it is.
pub fn delete_options(bytes: &[u8], body_type: BodyType) -> Result<Value, Status> {
    const KIND: &str = "DeleteOptions";
    let check = |meta: &TypeMeta| match meta.kind.as_str() {
        "" | KIND => Ok(()),
        other => {
            let version = if meta.api_version.is_empty() { "v1" } else { &meta.api_version };
            Err(format!("no kind \"{other}\" is registered for version \"{version}\" in scheme \"tally\""))
        }
    };
    let ty = registry().kind("v1", KIND).ok_or_else(|| Status::internal("the registry has no DeleteOptions"))?;
    let from_json = |json: &[u8]| {
        check(&json::type_meta(json)?)?;
        json::decode(ty, json).map(|decoded| decoded.value).map_err(|error| error.to_string())
    };
    let decoded = match body_type {
        BodyType::Json => from_json(bytes),
        BodyType::Yaml => yaml::to_json(bytes).and_then(|converted| from_json(&converted.json)),
        BodyType::Protobuf => {
            protobuf::decode_envelope(bytes).map_err(|error| error.to_string()).and_then(|(meta, raw)| {
                check(&meta)?;
                protobuf::decode(ty, &bytes[raw]).map_err(|error| error.to_string())
            })
        }
    };
    decoded.map_err(Status::bad_request)
}

/// Settles kind and apiVersion and refuses a version that this endpoint does not take.
fn finish(mut value: Value, api_version: &str, expected: Expected<'_>, warnings: Vec<String>) -> Result<Body, Status> {
    if !expected.accepts(api_version) {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            expected.api_version()
        )));
    }
    set_type_meta(&mut value, &expected.api_version(), expected.kind);
    Ok(Body { value, warnings })
}

/// Puts `kind` and `apiVersion` in front, where canonical objects have them.
pub fn set_type_meta(object: &mut Value, api_version: &str, kind: &str) {
    let Value::Object(members) = object else { return };
    members.shift_remove("kind");
    members.shift_remove("apiVersion");
    members.shift_insert(0, "kind".to_owned(), Value::from(kind));
    members.shift_insert(1, "apiVersion".to_owned(), Value::from(api_version));
}

/// The type of what was sent, if it is what the endpoint reads.
pub fn expected_type(api_version: &str, kind: &str, expected: Expected<'_>) -> Result<&'static Type, String> {
    match registry().kind(api_version, kind).or_else(|| former_type(api_version, kind)) {
        Some(ty) if kind == expected.kind => Ok(ty),
        None if !is_known_elsewhere(api_version, kind) => {
            Err(format!("no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"tally\""))
        }
        _ => {
            // Those that every version has are of one Go type in all of them.
            let is_common = UNVERSIONED.contains(&kind) || OF_EVERY_VERSION.contains(&kind) || kind == "DeleteOptions";
            let version = if is_common { "v1" } else { api_version.rsplit('/').next().unwrap_or(api_version) };
            let package = expected.internal_package();
            Err(format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", expected.kind))
        }
    }
}

/// The type of a kind in one of the [`FORMER`] versions: that of the version which took its place. What is posted or put
/// in such a version is refused once it is read, so the few members in which they differ do not matter.
fn former_type(api_version: &str, kind: &str) -> Option<&'static Type> {
    let single = kind.strip_suffix("List").unwrap_or(kind);
    let (_, served, _) =
        FORMER.iter().find(|(former, _, kinds)| former.contains(&api_version) && kinds.contains(&single))?;
    registry().kind(served, kind)
}

/// Whether Kubernetes has such a kind although it is not served here: what is wrong with it then is the endpoint.
fn is_known_elsewhere(api_version: &str, kind: &str) -> bool {
    let single = kind.strip_suffix("List").unwrap_or(kind);
    UNVERSIONED.contains(&kind)
        || (api_version == "v1" && UNLISTED.contains(&kind))
        || (OF_EVERY_VERSION.contains(&kind) && is_version(api_version))
        || ELSEWHERE.iter().any(|(versions, kinds)| versions.contains(&api_version) && kinds.contains(&single))
}

/// Whether Kubernetes has kinds of such a version.
fn is_version(api_version: &str) -> bool {
    registry().kinds().any(|(version, _, _)| version == api_version)
        || FORMER.iter().any(|(versions, _, _)| versions.contains(&api_version))
        || ELSEWHERE.iter().any(|(versions, _)| versions.contains(&api_version))
}

/// Versions that Kubernetes still reads and no longer serves, the one that took their place, and the kinds they have.
const FORMER: [(&[&str], &str, &[&str]); 8] = [
    (&["batch/v1beta1"], "batch/v1", &["CronJob"]),
    (&["coordination.k8s.io/v1beta1"], "coordination.k8s.io/v1", &["Lease"]),
    (&["events.k8s.io/v1beta1"], "events.k8s.io/v1", &["Event"]),
    (&["scheduling.k8s.io/v1beta1"], "scheduling.k8s.io/v1", &["PriorityClass"]),
    (
        &["rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1alpha1"],
        "rbac.authorization.k8s.io/v1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        &["authorization.k8s.io/v1beta1"],
        "authorization.k8s.io/v1",
        &["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"],
    ),
    (&["authentication.k8s.io/v1beta1"], "authentication.k8s.io/v1", &["SelfSubjectReview", "TokenReview"]),
    (&["authentication.k8s.io/v1alpha1"], "authentication.k8s.io/v1", &["SelfSubjectReview"]),
];

/// Kinds that are the same whatever version a body gives for them.
const UNVERSIONED: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// Kinds that every version has, beside `DeleteOptions`.
const OF_EVERY_VERSION: [&str; 6] =
    ["CreateOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];

/// Kinds of the core group that are no resources, so that there are no lists of them.
const UNLISTED: [&str; 11] = [
    "List",
    "NodeProxyOptions",
    "PodAttachOptions",
    "PodExecOptions",
    "PodLogOptions",
    "PodPortForwardOptions",
    "PodProxyOptions",
    "PodStatusResult",
    "RangeAllocation",
    "SerializedReference",
    "ServiceProxyOptions",
];

/// Kinds of Kubernetes that are not served here, by `apiVersion`; those that people have manifests of.
const ELSEWHERE: [(&[&str], &[&str]); 13] = [
    (
        &["v1"],
        &[
            "ComponentStatus",
            "Endpoints",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "PodTemplate",
            "ReplicationController",
        ],
    ),
    (&["apps/v1"], &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    (&["autoscaling/v1", "autoscaling/v2"], &["HorizontalPodAutoscaler"]),
    (&["autoscaling/v1"], &["Scale"]),
    (&["coordination.k8s.io/v1alpha2", "coordination.k8s.io/v1beta1"], &["LeaseCandidate"]),
    (&["networking.k8s.io/v1"], &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    (
        &["storage.k8s.io/v1"],
        &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"],
    ),
    (
        &["admissionregistration.k8s.io/v1"],
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    (&["certificates.k8s.io/v1"], &["CertificateSigningRequest"]),
    (&["discovery.k8s.io/v1"], &["EndpointSlice"]),
    (&["flowcontrol.apiserver.k8s.io/v1"], &["FlowSchema", "PriorityLevelConfiguration"]),
    (&["node.k8s.io/v1"], &["RuntimeClass"]),
    (&["resource.k8s.io/v1"], &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"]),
];

fn unhandled(api_version: &str, kind: &str, expected: Expected<'_>, why: &str) -> Status {
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {}: {why}", expected.kind))
}

fn unrecognized(expected: Expected<'_>, why: &str, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        expected.kind,
        json::summary(body)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AS-25.
    #[test]
    fn other_kinds_are_told_apart_from_unknown_ones() {
        let expected = Expected { group: "", version: "v1", kind: "ConfigMap", also_versions: &[] };
        let refused = |api_version: &str, kind: &str| expected_type(api_version, kind, expected).unwrap_err();
        for (api_version, kind, from) in [
            ("apps/v1", "Deployment", "v1.Deployment"),
            ("apps/v1", "DeploymentList", "v1.DeploymentList"),
            ("autoscaling/v2", "HorizontalPodAutoscaler", "v2.HorizontalPodAutoscaler"),
            ("v1", "Service", "v1.Service"),
            ("v1", "Pod", "v1.Pod"),
            ("batch/v1beta1", "CronJob", "v1beta1.CronJob"),
            ("batch/v1beta1", "CronJobList", "v1beta1.CronJobList"),
            ("rbac.authorization.k8s.io/v1alpha1", "RoleBinding", "v1alpha1.RoleBinding"),
            ("authentication.k8s.io/v1beta1", "TokenReview", "v1beta1.TokenReview"),
            ("coordination.k8s.io/v1alpha2", "LeaseCandidate", "v1alpha2.LeaseCandidate"),
            ("autoscaling/v1", "Scale", "v1.Scale"),
            ("v1", "List", "v1.List"),
            ("v1", "PodLogOptions", "v1.PodLogOptions"),
            ("v1", "WatchEvent", "v1.WatchEvent"),
            ("batch/v1", "WatchEvent", "v1.WatchEvent"),
            ("batch/v1beta1", "ListOptions", "v1.ListOptions"),
            ("v1", "APIResourceList", "v1.APIResourceList"),
            ("meta.k8s.io/v2", "Status", "v1.Status"),
        ] {
            let why = format!("converting ({from}) to (core.ConfigMap): unknown conversion");
            assert_eq!(refused(api_version, kind), why);
        }
        let event = Expected { group: "events.k8s.io", kind: "Event", ..expected };
        let why = expected_type("v1", "Pod", event).unwrap_err();
        assert_eq!(why, "converting (v1.Pod) to (core.Event): unknown conversion");
        for (api_version, kind) in [
            ("apps/v1", "Forest"),
            ("v1", "Deployment"),
            ("v2", "ConfigMap"),
            ("v2", "WatchEvent"),
            ("batch/v1beta1", "Job"),
            ("batch/v1", "List"),
            ("v1", "PodLogOptionsList"),
            ("authentication.k8s.io/v1alpha1", "TokenReview"),
        ] {
            assert!(refused(api_version, kind).starts_with(&format!("no kind \"{kind}\" is registered")), "{kind}");
        }
    }

    /// AS-25: the version of such a body is what is wrong with it, and each of them has a type to be read as.
    #[test]
    fn former_versions_of_the_right_kind_are_told_the_version() {
        for (formers, served, kinds) in FORMER {
            let (group, version) = served.split_once('/').unwrap();
            for (former, kind) in formers.iter().flat_map(|former| kinds.iter().map(move |kind| (former, kind))) {
                assert!(registry().kind(former, kind).is_none(), "{former} {kind}");
                let expected = Expected { group, version, kind, also_versions: &[] };
                let body = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{former}\"}}");
                let refused = object(body.as_bytes(), BodyType::Json, expected, FieldValidation::Warn).unwrap_err();
                let why = format!(
                    "the API version in the data ({former}) does not match the expected API version ({served})"
                );
                assert_eq!((refused.code, refused.message.as_str()), (400, why.as_str()));
            }
        }
    }

    #[test]
    fn nothing_is_both_served_and_elsewhere() {
        for kind in UNLISTED.iter().chain(&OF_EVERY_VERSION) {
            assert!(registry().kind("v1", kind).is_none(), "{kind}");
        }
        for (versions, kinds) in ELSEWHERE {
            for (version, kind) in versions.iter().flat_map(|version| kinds.iter().map(move |kind| (version, kind))) {
                assert!(registry().kind(version, kind).is_none(), "{version} {kind}");
            }
        }
    }
}
