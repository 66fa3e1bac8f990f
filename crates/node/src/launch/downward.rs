//! What a container may ask about its own pod: fields and resources (PL-110, PL-111, PL-117).

use std::collections::BTreeMap;

use api_schema::Quantity;
use k8s_openapi::api::core::v1::{ObjectFieldSelector, ResourceFieldSelector};

use crate::pod::{Container, Pod, PodSpec};

/// The parts of a pod that fields are taken from.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodFacts {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) node_name: String,
    pub(crate) service_account: String,
    pub(crate) host_ip: String,
}

impl PodFacts {
    pub(crate) fn of(pod: &Pod, host_ip: &str) -> Self {
        let meta = &pod.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            node_name: pod.spec.node_name.clone().unwrap_or_default(),
            service_account: pod.spec.service_account_name.clone().unwrap_or_default(),
            host_ip: host_ip.to_owned(),
        }
    }
}

/// The value of a field, or why there is none.
pub(crate) fn field(facts: &PodFacts, selector: &ObjectFieldSelector) -> Result<String, String> {
    let path = selector.field_path.as_str();
    if let Some((map, key)) = subscript(path) {
        let found = match map {
            "metadata.labels" => facts.labels.get(key),
            "metadata.annotations" => facts.annotations.get(key),
            _ => return Err(unsupported(path)),
        };
        return Ok(found.cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => facts.name.clone(),
        "metadata.namespace" => facts.namespace.clone(),
        "metadata.uid" => facts.uid.clone(),
        "metadata.labels" => lines(&facts.labels),
        "metadata.annotations" => lines(&facts.annotations),
        "spec.nodeName" | "spec.host" => facts.node_name.clone(),
        "spec.serviceAccountName" => facts.service_account.clone(),
        // All pods share the node's address.
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => facts.host_ip.clone(),
        _ => return Err(unsupported(path)),
    })
}

fn unsupported(path: &str) -> String {
    format!("unsupported fieldPath: {path}")
}

/// `metadata.labels['k']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once('[')?;
    let key = rest.strip_suffix(']')?;
    let quoted = |quote: char| key.strip_prefix(quote)?.strip_suffix(quote);
    quoted('\'').or_else(|| quoted('"')).map(|key| (map, key))
}

/// `key="value"` lines in the order of keys.
fn lines(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", go_quote(value))).collect();
    lines.join("\n")
}

/// As Go's `%q`.
fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            control if control < ' ' || control == '\u{7f}' => quoted.push_str(&format!("\\x{:02x}", control as u32)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// What the node can give at most; a container without a limit is told this.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocatable {
    pub(crate) cpu_millis: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_storage_bytes: i64,
}

/// The value of a resource of a container, in units of its divisor, rounded up.
pub(crate) fn resource(
    spec: &PodSpec,
    own: &Container,
    selector: &ResourceFieldSelector,
    allocatable: &Allocatable,
) -> Result<String, String> {
    let container = match selector.container_name.as_deref().filter(|name| !name.is_empty()) {
        None => own,
        Some(name) => spec
            .containers
            .iter()
            .chain(&spec.init_containers)
            .find(|container| container.name == name)
            .ok_or_else(|| format!("container {name} not found"))?,
    };
    let unsupported = || format!("unsupported container resource : {}", selector.resource);
    let (kind, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let amount = |is_limit: bool| {
        let resources = container.resources.as_ref()?;
        let list = if is_limit { resources.limits.as_ref() } else { resources.requests.as_ref() };
        Quantity::parse(&list?.get(name)?.0).ok()
    };
    let most = || match name {
        "cpu" => Some(Quantity::from_milli(allocatable.cpu_millis, api_schema::Format::DecimalSI)),
        "memory" => Some(Quantity::new(allocatable.memory_bytes, api_schema::Format::BinarySI)),
        "ephemeral-storage" => Some(Quantity::new(allocatable.ephemeral_storage_bytes, api_schema::Format::BinarySI)),
        _ => None,
    };
    let quantity = match kind {
        "limits" => amount(true).or_else(most),
        "requests" => amount(false),
        _ => return Err(unsupported()),
    };
    let quantity = quantity.unwrap_or(Quantity::ZERO);
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::parse(&divisor.0).ok());
    let divisor = divisor.filter(|divisor| !divisor.is_zero());
    Ok(divide_up(&quantity, divisor.as_ref(), name).to_string())
}

fn divide_up(quantity: &Quantity, divisor: Option<&Quantity>, name: &str) -> i64 {
    let (amount, unit) = match (name, divisor) {
        ("cpu", divisor) => (quantity.milli_value(), divisor.map_or(1000, Quantity::milli_value)),
        (_, divisor) => (quantity.value(), divisor.map_or(1, Quantity::value)),
    };
    let unit = unit.max(1);
    amount / unit + i64::from(amount % unit > 0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use serde_json::json;

    use super::*;

    fn facts() -> PodFacts {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        PodFacts {
            name: "p".to_owned(),
            labels: map(&[("b", "2"), ("a/x", "say \"hi\"\n")]),
            annotations: map(&[("k", "v")]),
            host_ip: "10.0.0.1".to_owned(),
            node_name: "n".to_owned(),
            ..PodFacts::default()
        }
    }

    #[test]
    fn fields_are_found_by_path() {
        for (path, value) in [
            ("metadata.name", "p"),
            ("metadata.labels['b']", "2"),
            ("metadata.labels[\"b\"]", "2"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['k']", "v"),
            ("metadata.labels", "a/x=\"say \\\"hi\\\"\\n\"\nb=\"2\""),
            ("status.podIP", "10.0.0.1"),
            ("spec.nodeName", "n"),
            // What it was called in the beginning; still admitted, as spec.nodeName.
            ("spec.host", "n"),
        ] {
            let selector = ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
            assert_eq!(field(&facts(), &selector).as_deref(), Ok(value), "{path}");
        }
        let unknown = ObjectFieldSelector { field_path: "spec.x".to_owned(), api_version: None };
        assert_eq!(field(&facts(), &unknown), Err("unsupported fieldPath: spec.x".to_owned()));
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}))
                .unwrap();
        let spec = PodSpec { containers: vec![container.clone()], ..PodSpec::default() };
        let allocatable = Allocatable { cpu_millis: 2000, memory_bytes: 4096, ephemeral_storage_bytes: 8193 };
        let bare = Container::default();
        for (own, resource_name, divisor, value) in [
            (&container, "limits.cpu", None, "2"),
            (&container, "limits.cpu", Some("0"), "2"),
            (&container, "limits.cpu", Some("1m"), "1500"),
            (&container, "limits.memory", Some("1Mi"), "1024"),
            (&container, "requests.cpu", None, "0"),
            (&bare, "limits.cpu", None, "2"),
            (&bare, "limits.memory", None, "4096"),
            (&bare, "limits.ephemeral-storage", Some("1Ki"), "9"),
            (&bare, "requests.ephemeral-storage", None, "0"),
        ] {
            let selector = ResourceFieldSelector {
                resource: resource_name.to_owned(),
                divisor: divisor.map(|text| Text(text.to_owned())),
                container_name: None,
            };
            assert_eq!(
                resource(&spec, own, &selector, &allocatable).as_deref(),
                Ok(value),
                "{resource_name} {divisor:?}"
            );
        }
    }
}
