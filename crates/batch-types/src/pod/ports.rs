//! Container ports and the host ports they claim (JA-P9).

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as core;

use super::report::{Place, Report};
use super::syntax;
use super::zero::{flag, list, text};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn validate(report: &mut Report, at: &Place<'_>, ports: &[core::ContainerPort]) {
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let at = at.index(i);
        let name = text(&port.name);
        if !name.is_empty() {
            let messages = syntax::port_name(name);
            if messages.is_empty() && !names.insert(name) {
                report.duplicate(&at.child("name"), name);
            }
            report.each_invalid(&at.child("name"), name, messages);
        }
        if port.container_port == 0 {
            report.required(&at.child("containerPort"), "");
        } else if let Some(message) = syntax::port_number(port.container_port) {
            report.invalid(&at.child("containerPort"), port.container_port, message);
        }
        let host_port = port.host_port.unwrap_or_default();
        if let Some(message) = syntax::port_number(host_port).filter(|_| host_port != 0) {
            report.invalid(&at.child("hostPort"), host_port, message);
        }
        report.one_of(&at.child("protocol"), text(&port.protocol), &PROTOCOLS);
    }
}

/// One host address, protocol and port can be claimed once among these containers.
pub(super) fn validate_host_port_conflicts<'a>(
    report: &mut Report,
    at: &Place<'_>,
    containers: impl Iterator<Item = (usize, &'a core::Container)>,
) {
    let mut claimed = HashSet::new();
    for (c, container) in containers {
        for (p, port) in list(&container.ports).iter().enumerate() {
            let host_port = port.host_port.unwrap_or_default();
            let claim = (text(&port.protocol), text(&port.host_ip), host_port);
            if host_port != 0 && !claimed.insert(claim) {
                let container = at.index(c);
                let ports = container.child("ports");
                let (protocol, host_ip, host_port) = claim;
                report.duplicate(&ports.index(p).child("hostPort"), format!("{protocol}/{host_ip}/{host_port}"));
            }
        }
    }
}

/// On the host's network a container listens on the host's ports: a pod must say so, a template may leave it out.
pub(super) fn validate_host_network(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec, is_pod: bool) {
    if !flag(spec.host_network) {
        return;
    }
    let at = at.child("containers");
    for (c, container) in spec.containers.iter().enumerate() {
        for (p, port) in list(&container.ports).iter().enumerate() {
            let host_port = port.host_port.unwrap_or_default();
            if (is_pod || host_port != 0) && host_port != port.container_port {
                let container = at.index(c);
                let ports = container.child("ports");
                let text = "must match `containerPort` when `hostNetwork` is true";
                report.invalid(&ports.index(p).child("hostPort"), host_port, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::{check_containers, check_templates, pod_errors};

    /// JA-P9.
    #[test]
    fn ports_of_a_container() {
        check_containers(&[
            (json!({"ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 65535}]}), &[]),
            (json!({"ports": [{}]}), &["ports[0].containerPort: Required value"]),
            (
                json!({"ports": [{"containerPort": 65536, "hostPort": -1}]}),
                &[
                    "ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                    "ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                json!({"ports": [{"containerPort": 80, "protocol": "XTP"}]}),
                &["ports[0].protocol: Unsupported value: \"XTP\": supported values: \"SCTP\", \"TCP\", \"UDP\""],
            ),
            (
                json!({"ports": [{"containerPort": 80, "name": "A-"}]}),
                &[
                    "ports[0].name: Invalid value: \"A-\": must contain only alpha-numeric characters (a-z, 0-9), and \
                     hyphens (-)",
                    "ports[0].name: Invalid value: \"A-\": must contain at least one letter (a-z)",
                    "ports[0].name: Invalid value: \"A-\": must not begin or end with a hyphen",
                ],
            ),
            (
                json!({"ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 81, "name": "web"}]}),
                &["ports[1].name: Duplicate value: \"web\""],
            ),
        ]);
    }

    #[test]
    fn a_host_port_is_claimed_once() {
        let claim = json!({"containerPort": 80, "hostPort": 8080});
        let other = json!({"containerPort": 81, "hostPort": 8080});
        check_templates(&[
            (
                json!({"containers": [{"ports": [claim]}, {"name": "b", "image": "b:1", "ports": [other]}]}),
                &["spec.containers[1].ports[0].hostPort: Duplicate value: \"TCP//8080\""],
            ),
            (
                json!({"containers": [{"ports": [claim, {"containerPort": 81, "hostPort": 8080, "protocol": "UDP"}]}]}),
                &[],
            ),
            // Init containers run one after the other.
            (
                json!({
                    "containers": [{"ports": [claim]}],
                    "initContainers": [{"name": "a", "image": "a:1", "ports": [other]}],
                }),
                &[],
            ),
        ]);
    }

    #[test]
    fn on_the_hosts_network_ports_are_the_hosts() {
        let spec = |port: serde_json::Value| json!({"hostNetwork": true, "containers": [{"ports": [port]}]});
        let line = "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` \
                    is true";
        check_templates(&[
            (spec(json!({"containerPort": 80})), &[]),
            (spec(json!({"containerPort": 80, "hostPort": 80})), &[]),
            (spec(json!({"containerPort": 80, "hostPort": 81})), &[line]),
        ]);
        assert_eq!(pod_errors(&json!({"spec": spec(json!({"containerPort": 80}))})), [""; 0]);
        assert_eq!(pod_errors(&json!({"spec": spec(json!({"containerPort": 80, "hostPort": 81}))})), [line]);
    }
}
