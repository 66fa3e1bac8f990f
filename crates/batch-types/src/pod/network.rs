//! Names and name resolution: DNS policy and config, host names, host aliases (JA-P6, JA-P16).

use k8s_openapi::api::core::v1 as core;
use serde_json::Value;

use super::ip;
use super::report::{Place, Report};
use super::syntax;
use super::zero::{flag, list, text};
use crate::names;

const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// What Linux's resolver can take.
const NAMESERVERS_MAX: usize = 3;
const SEARCH_PATHS_MAX: usize = 32;
const SEARCH_LIST_BYTES_MAX: usize = 2048;
const HOSTNAME_BYTES_MAX: usize = 64;

pub(super) fn validate_dns_policy(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    report.one_of(&at.child("dnsPolicy"), text(&spec.dns_policy), &DNS_POLICIES);
}

pub(super) fn validate_dns_config(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    let at = at.child("dnsConfig");
    let own_servers_only = text(&spec.dns_policy) == "None";
    let Some(config) = &spec.dns_config else {
        if own_servers_only {
            report.required(&at, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    let servers = list(&config.nameservers);
    let servers_at = at.child("nameservers");
    if own_servers_only && servers.is_empty() {
        return report.required(&servers_at, "must provide at least one DNS nameserver when `dnsPolicy` is None");
    }
    if servers.len() > NAMESERVERS_MAX {
        let text = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        report.invalid(&servers_at, Value::from(servers), text);
    }
    for (i, server) in servers.iter().enumerate() {
        ip::validate(report, &servers_at.index(i), server);
    }
    validate_searches(report, &at.child("searches"), list(&config.searches));
    let options_at = at.child("options");
    for (i, _) in list(&config.options).iter().enumerate().filter(|(_, option)| text(&option.name).is_empty()) {
        report.required(&options_at.index(i), "must not be empty");
    }
}

fn validate_searches(report: &mut Report, at: &Place<'_>, searches: &[String]) {
    if searches.len() > SEARCH_PATHS_MAX {
        let text = format!("must not have more than {SEARCH_PATHS_MAX} search paths");
        report.invalid(at, Value::from(searches), text);
    }
    let joined: usize = searches.iter().map(String::len).sum::<usize>() + searches.len().saturating_sub(1);
    if joined > SEARCH_LIST_BYTES_MAX {
        let text =
            format!("must not have more than {SEARCH_LIST_BYTES_MAX} characters (including spaces) in the search list");
        report.invalid(at, Value::from(searches), text);
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        report.each_invalid(&at.index(i), search, syntax::search_domain(search));
    }
}

pub(super) fn validate_host_aliases(report: &mut Report, at: &Place<'_>, aliases: &[core::HostAlias]) {
    for (i, alias) in aliases.iter().enumerate() {
        let at = at.index(i);
        ip::validate(report, &at.child("ip"), &alias.ip);
        let names_at = at.child("hostnames");
        for (j, name) in list(&alias.hostnames).iter().enumerate() {
            report.each_invalid(&names_at.index(j), name, names::dns_subdomain(name));
        }
    }
}

pub(super) fn validate_hostname_override(report: &mut Report, at: &Place<'_>, spec: &core::PodSpec) {
    let Some(hostname) = &spec.hostname_override else { return };
    let at = at.child("hostnameOverride");
    if flag(spec.set_hostname_as_fqdn) {
        report.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if flag(spec.host_network) {
        report.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if hostname.len() > HOSTNAME_BYTES_MAX {
        report.too_long(&at, HOSTNAME_BYTES_MAX);
    }
    report.each_invalid(&at, hostname, names::dns_subdomain(hostname));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::pod::testing::check_templates;

    #[test]
    fn dns() {
        let ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        check_templates(&[
            (
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"], "searches": [".", "a_b.c."]}}),
                &[],
            ),
            (
                json!({"dnsPolicy": "Other"}),
                &["spec.dnsPolicy: Unsupported value: \"Other\": supported values: \"ClusterFirstWithHostNet\", \
                   \"ClusterFirst\", \"Default\", \"None\""],
            ),
            (
                json!({"dnsPolicy": "None"}),
                &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
            ),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {}}),
                &[
                    "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is \
                   None",
                ],
            ),
            (
                json!({"dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "x"], "options": [{"value": "1"}]}}),
                &[
                    "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",\"1.1.1.2\",\"1.1.1.3\",\"x\"]: must not have \
                     more than 3 nameservers",
                    &format!("spec.dnsConfig.nameservers[3]: Invalid value: \"x\": {ip}"),
                    "spec.dnsConfig.options[0]: Required value: must not be empty",
                ],
            ),
            (
                json!({"hostAliases": [{"ip": "ten", "hostnames": ["a"]}]}),
                &[&format!("spec.hostAliases[0].ip: Invalid value: \"ten\": {ip}")],
            ),
        ]);
    }

    /// JA-P16.
    #[test]
    fn host_names() {
        check_templates(&[
            (json!({"hostname": "a", "subdomain": "b", "hostnameOverride": "a.b"}), &[]),
            (json!({"hostname": "a.b"}), &["spec.hostname: Invalid value: \"a.b\": must not contain dots"]),
            (
                json!({"setHostnameAsFQDN": true, "hostNetwork": true, "hostnameOverride": "a".repeat(65)}),
                &[
                    "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
                    "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
                    "spec.hostnameOverride: Too long: may not be more than 64 bytes",
                ],
            ),
        ]);
    }
}
