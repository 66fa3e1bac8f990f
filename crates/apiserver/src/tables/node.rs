//! Nodes (AS-168).

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Printer, Row, age::age};
use crate::resources::values::{flag, items, or, text};

/// `node-role.kubernetes.io/<role>`; the value does not matter.
const ROLE_LABEL_PREFIX: &str = "node-role.kubernetes.io/";
/// The older form, with the role as its value.
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) static PRINTER: Printer = Printer {
    columns: &[
        Column::name("Name of the node"),
        Column::text("Status", "Whether the node is ready, and takes new pods"),
        Column::text("Roles", "Roles the node's labels name"),
        Column::age(),
        Column::text("Version", "Version of the node agent"),
        Column::text("Internal-IP", "First address inside the cluster").wide(),
        Column::text("External-IP", "First address outside the cluster").wide(),
        Column::text("OS-Image", "Operating system the node reports").wide(),
        Column::text("Kernel-Version", "Kernel and architecture the node reports").wide(),
        Column::text("Container-Runtime", "What runs the node's containers").wide(),
    ],
    row,
};

fn row(node: &Value, now: Timestamp) -> Row {
    let info = |member: &str| text(node, &format!("/status/nodeInfo/{member}"));
    Row::of(vec![
        json!(text(node, "/metadata/name")),
        json!(status(node)),
        json!(roles(node)),
        json!(age(node, now)),
        json!(info("kubeletVersion")),
        json!(address(node, "InternalIP")),
        json!(address(node, "ExternalIP")),
        json!(or(info("osImage"), "<unknown>")),
        json!(kernel(info("kernelVersion"), info("architecture"))),
        json!(or(info("containerRuntimeVersion"), "<unknown>")),
    ])
}

/// The last Ready condition counts here, unlike in other kinds: upstream collects them in a map first.
fn status(node: &Value) -> String {
    let conditions = items(node, "/status/conditions");
    let ready = match conditions.iter().rfind(|condition| text(condition, "/type") == "Ready") {
        Some(condition) if text(condition, "/status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, "/spec/unschedulable") { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_LABEL_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, address_type: &str) -> &'a str {
    items(node, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == address_type)
        .map_or("<none>", |address| text(address, "/address"))
}

fn kernel(version: &str, architecture: &str) -> String {
    let version = or(version, "<unknown>");
    if architecture.is_empty() { version.to_owned() } else { format!("{version} ({architecture})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AS-168.
    #[test]
    fn cells_with_and_without_reports() {
        let now: Timestamp = "2024-05-01T12:00:00Z".parse().expect("a time");
        let cases = [
            (
                json!({"metadata": {"name": "n1", "creationTimestamp": "2024-05-01T10:00:00Z"}}),
                json!([
                    "n1",
                    "Unknown",
                    "<none>",
                    "120m",
                    "",
                    "<none>",
                    "<none>",
                    "<unknown>",
                    "<unknown>",
                    "<unknown>"
                ]),
            ),
            (
                json!({
                    "metadata": {
                        "name": "n2",
                        "labels": {
                            "node-role.kubernetes.io/worker": "",
                            "node-role.kubernetes.io/": "x",
                            "kubernetes.io/role": "db",
                            "other": "y",
                        },
                    },
                    "spec": {"unschedulable": true},
                    "status": {
                        "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                        "addresses": [
                            {"type": "Hostname", "address": "n2"},
                            {"type": "InternalIP", "address": "10.0.0.1"},
                            {"type": "InternalIP", "address": "10.0.0.2"},
                            {"type": "ExternalIP", "address": "192.0.2.1"},
                        ],
                        "nodeInfo": {
                            "kubeletVersion": "v1.36.4", "osImage": "Debian", "kernelVersion": "6.12",
                            "architecture": "amd64", "containerRuntimeVersion": "tally://0.1.0",
                        },
                    },
                }),
                json!([
                    "n2",
                    "Ready,SchedulingDisabled",
                    "db,worker",
                    "<unknown>",
                    "v1.36.4",
                    "10.0.0.1",
                    "192.0.2.1",
                    "Debian",
                    "6.12 (amd64)",
                    "tally://0.1.0"
                ]),
            ),
            (
                json!({"status": {
                    "conditions": [{"type": "Ready", "status": "Unknown"}],
                    "nodeInfo": {"architecture": "arm64"},
                }}),
                json!([
                    "",
                    "NotReady",
                    "<none>",
                    "<unknown>",
                    "",
                    "<none>",
                    "<none>",
                    "<unknown>",
                    "<unknown> (arm64)",
                    "<unknown>"
                ]),
            ),
        ];
        for (object, expected) in cases {
            assert_eq!(Value::from(row(&object, now).cells), expected);
        }
    }
}
