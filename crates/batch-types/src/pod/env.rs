//! Environment variables and where their values come from (JA-P7, JA-P8), and the downward API's field paths.

use k8s_openapi::api::core::v1 as core;

use super::containers;
use super::report::{Place, Report};
use super::resources;
use super::syntax;
use super::zero::{list, text};
use crate::names::{self, NameRule};

/// What `fieldRef` of a variable may name, sorted.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What `fieldRef` of a file in a volume may name, sorted.
pub(super) const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Every label the downward API ever understood; naming one that this place does not offer is a different error.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

pub(super) fn validate(report: &mut Report, at: &Place<'_>, variables: &[core::EnvVar]) {
    for (i, variable) in variables.iter().enumerate() {
        let at = at.index(i);
        if variable.name.is_empty() {
            report.required(&at.child("name"), "");
        } else {
            report.each_invalid(&at.child("name"), &variable.name, syntax::env_name(&variable.name));
        }
        if let Some(source) = &variable.value_from {
            validate_source(report, &at.child("valueFrom"), source, text(&variable.value));
        }
    }
}

fn validate_source(report: &mut Report, at: &Place<'_>, source: &core::EnvVarSource, value: &str) {
    let mut sources = 0;
    if let Some(selector) = &source.field_ref {
        sources += 1;
        validate_field(report, &at.child("fieldRef"), selector, &ENV_FIELDS);
    }
    if let Some(selector) = &source.resource_field_ref {
        sources += 1;
        resources::validate_field(report, &at.child("resourceFieldRef"), selector, false);
    }
    if let Some(selector) = &source.config_map_key_ref {
        sources += 1;
        validate_key(report, &at.child("configMapKeyRef"), &selector.name, &selector.key);
    }
    if let Some(selector) = &source.secret_key_ref {
        sources += 1;
        validate_key(report, &at.child("secretKeyRef"), &selector.name, &selector.key);
    }
    if let Some(selector) = &source.file_key_ref {
        sources += 1;
        validate_file_key(report, &at.child("fileKeyRef"), selector);
    }
    if sources == 0 {
        let text =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        report.invalid(at, "", text);
    } else if !value.is_empty() {
        report.invalid(at, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        report.invalid(at, "", "may not have more than one field specified at a time");
    }
}

/// A field of the pod itself, of the ones this place offers.
pub(super) fn validate_field(
    report: &mut Report,
    at: &Place<'_>,
    selector: &core::ObjectFieldSelector,
    offered: &[&str],
) {
    let version = text(&selector.api_version);
    let path = selector.field_path.as_str();
    if version.is_empty() {
        return report.required(&at.child("apiVersion"), "");
    }
    if path.is_empty() {
        return report.required(&at.child("fieldPath"), "");
    }
    let problem = |cause: String| format!("error converting fieldPath: {cause}");
    if version != "v1" {
        return report.invalid(&at.child("fieldPath"), path, problem(format!("unsupported pod version: {version}")));
    }
    match split_subscript(path) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            report.each_invalid(at, &key, names::qualified_name(&key));
        }
        Some(("metadata.labels", key)) => report.each_invalid(at, key, names::qualified_name(key)),
        Some(_) => {
            let cause = problem(format!("field label does not support subscript: {path}"));
            report.invalid(&at.child("fieldPath"), path, cause);
        }
        None if !KNOWN_FIELDS.contains(&path) => {
            report.invalid(&at.child("fieldPath"), path, problem(format!("field label not supported: {path}")));
        }
        None => {
            // The node's name had another one once.
            let path = if path == "spec.host" { "spec.nodeName" } else { path };
            if !offered.contains(&path) {
                report.not_supported_text(&at.child("fieldPath"), path, offered);
            }
        }
    }
}

/// `metadata.labels['key']` into its two parts.
fn split_subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

fn validate_key(report: &mut Report, at: &Place<'_>, name: &str, key: &str) {
    report.each_invalid(&at.child("name"), name, names::dns_subdomain(name));
    if key.is_empty() {
        report.required(&at.child("key"), "");
    } else {
        report.each_invalid(&at.child("key"), key, names::config_key(key));
    }
}

fn validate_file_key(report: &mut Report, at: &Place<'_>, selector: &core::FileKeySelector) {
    if selector.key.is_empty() {
        report.required(&at.child("key"), "");
    } else {
        report.each_invalid(&at.child("key"), &selector.key, syntax::env_name(&selector.key));
    }
    if selector.volume_name.is_empty() {
        report.required(&at.child("volumeName"), "");
    } else {
        let messages = names::dns_label(&selector.volume_name);
        report.each_invalid(&at.child("volumeName"), &selector.volume_name, messages);
    }
    if selector.path.is_empty() {
        report.required(&at.child("path"), "");
    } else {
        syntax::no_backsteps(report, &at.child("path"), &selector.path);
    }
}

pub(super) fn validate_from(report: &mut Report, at: &Place<'_>, sources: &[core::EnvFromSource]) {
    for (i, source) in sources.iter().enumerate() {
        let list_at = at;
        let at = at.index(i);
        let prefix = text(&source.prefix);
        if !prefix.is_empty() {
            report.each_invalid(&at.child("prefix"), prefix, syntax::env_name(prefix));
        }
        if let Some(reference) = &source.config_map_ref {
            validate_reference(report, &at.child("configMapRef"), &reference.name);
        }
        if let Some(reference) = &source.secret_ref {
            validate_reference(report, &at.child("secretRef"), &reference.name);
        }
        match (&source.config_map_ref, &source.secret_ref) {
            (None, None) => report.invalid(list_at, "", "must specify one of: `configMapRef` or `secretRef`"),
            (Some(_), Some(_)) => {
                report.invalid(list_at, "", "may not have more than one field specified at a time");
            }
            _ => {}
        }
    }
}

fn validate_reference(report: &mut Report, at: &Place<'_>, name: &str) {
    if name.is_empty() {
        report.required(&at.child("name"), "");
    } else {
        // As a prefix: upstream tolerates a trailing dash here.
        report.each_invalid(&at.child("name"), name, NameRule::DnsSubdomain.check_prefix(name));
    }
}

/// A variable read from a file needs an emptyDir volume to find it in.
pub(super) fn validate_file_volumes(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    for (list_name, i, container) in containers::all(spec) {
        for (j, variable) in list(&container.env).iter().enumerate() {
            let Some(selector) = variable.value_from.as_ref().and_then(|source| source.file_key_ref.as_ref()) else {
                continue;
            };
            // Of volumes that share a name the last one counts, as in upstream's map.
            let volume = list(&spec.volumes).iter().rfind(|volume| volume.name == selector.volume_name);
            if volume.is_some_and(|volume| volume.empty_dir.is_some()) {
                continue;
            }
            let (containers, name) = (at.child(list_name), selector.volume_name.as_str());
            let (container, found) = (containers.index(i), volume.is_some());
            let variables = container.child("env");
            let variable = variables.index(j);
            let source = variable.child("valueFrom");
            let source = source.child("fileKeyRef");
            if found {
                report.invalid(&source.child("volumeName"), name, "referenced volume must be of type emptyDir");
            } else {
                report.not_found(&source.child("volumeName"), name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::{check_containers, check_templates};

    fn variable(value_from: serde_json::Value) -> serde_json::Value {
        json!({"env": [{"name": "A", "valueFrom": value_from}]})
    }

    /// JA-P7.
    #[test]
    fn variables_have_a_name_and_one_source() {
        let one_of = "env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, \
                      `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        check_containers(&[
            (json!({"env": [{"name": "1 a", "value": "x"}, {"name": "B"}]}), &[]),
            (json!({"env": [{"value": "x"}]}), &["env[0].name: Required value"]),
            (
                json!({"env": [{"name": "A=B"}]}),
                &["env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of \
                   printable ASCII characters other than '='"],
            ),
            (variable(json!({})), &[one_of]),
            (
                json!({"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
                &["env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"],
            ),
            (
                variable(json!({
                    "fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"},
                })),
                &["env[0].valueFrom: Invalid value: \"\": may not have more than one field specified at a time"],
            ),
            (
                variable(json!({"configMapKeyRef": {"name": "c"}})),
                &["env[0].valueFrom.configMapKeyRef.key: Required value"],
            ),
            (
                variable(json!({"secretKeyRef": {"name": "s", "key": ".."}})),
                &["env[0].valueFrom.secretKeyRef.key: Invalid value: \"..\": must not be '..'"],
            ),
        ]);
    }

    #[test]
    fn fields_of_the_pod() {
        let field = |path: &str| variable(json!({"fieldRef": {"fieldPath": path}}));
        let at = "env[0].valueFrom.fieldRef";
        let fields = "\"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \
            \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"";
        check_containers(&[
            (field("metadata.labels['example.com/a']"), &[]),
            (field("metadata.annotations['Example.com/A']"), &[]),
            (field("spec.serviceAccountName"), &[]),
            (field("spec.host"), &[]),
            (field(""), &[&format!("{at}.fieldPath: Required value")]),
            (
                field("metadata.color"),
                &[&format!(
                    "{at}.fieldPath: Invalid value: \"metadata.color\": error converting fieldPath: field label not \
                     supported: metadata.color"
                )],
            ),
            (
                field("spec.nodeName['a']"),
                &[&format!(
                    "{at}.fieldPath: Invalid value: \"spec.nodeName['a']\": error converting fieldPath: field label does \
                     not support subscript: spec.nodeName['a']"
                )],
            ),
            (
                field("metadata.labels"),
                &[&format!("{at}.fieldPath: Unsupported value: \"metadata.labels\": supported values: {fields}")],
            ),
            (
                variable(json!({"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v2"}})),
                &[&format!(
                    "{at}.fieldPath: Invalid value: \"metadata.name\": error converting fieldPath: unsupported pod \
                     version: v2"
                )],
            ),
        ]);
    }

    #[test]
    fn variables_from_files_need_an_empty_dir() {
        let spec = |volumes: serde_json::Value| {
            json!({"volumes": volumes, "containers": [variable(
                json!({"fileKeyRef": {"volumeName": "v", "path": "env", "key": "K"}}))]})
        };
        let at = "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName";
        check_templates(&[
            (spec(json!([{"name": "v"}])), &[]),
            (spec(json!([])), &[&format!("{at}: Not found: \"v\"")]),
            (
                spec(json!([{"name": "v", "hostPath": {"path": "/"}}])),
                &[&format!("{at}: Invalid value: \"v\": referenced volume must be of type emptyDir")],
            ),
        ]);
        check_containers(&[(
            variable(json!({"fileKeyRef": {"volumeName": "V", "path": "../a", "key": "K=K"}})),
            &[
                "env[0].valueFrom.fileKeyRef.key: Invalid value: \"K=K\": a valid environment variable name must consist \
                 only of printable ASCII characters other than '='",
                "env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"V\": a lowercase RFC 1123 label must consist of \
                 lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
                 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "env[0].valueFrom.fileKeyRef.path: Invalid value: \"../a\": must not contain '..'",
                "env[0].valueFrom.fileKeyRef.volumeName: Not found: \"V\"",
            ],
        )]);
    }

    /// JA-P8.
    #[test]
    fn whole_sources_are_config_maps_or_secrets() {
        check_containers(&[
            (json!({"envFrom": [{"prefix": "P_", "configMapRef": {"name": "c-"}}, {"secretRef": {"name": "s"}}]}), &[]),
            (
                json!({"envFrom": [{}]}),
                &["envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"],
            ),
            (
                json!({"envFrom": [{"configMapRef": {"name": "c"}, "secretRef": {"name": "s"}}]}),
                &["envFrom: Invalid value: \"\": may not have more than one field specified at a time"],
            ),
            (json!({"envFrom": [{"secretRef": {}}]}), &["envFrom[0].secretRef.name: Required value"]),
        ]);
    }
}
