//! Probes and lifecycle hooks, and the handlers both run (JA-P13).

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::report::{Place, Report};
use super::syntax;
use super::zero::{list, text};

const HTTP_SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
const SECOND_HANDLER: &str = "may not specify more than 1 handler type";

/// The hooks and probes of a container that runs as long as its pod.
pub(super) fn validate_all(report: &mut Report, at: &Place<'_>, container: &core::Container, spec: &core::PodSpec) {
    let grace = spec.termination_grace_period_seconds;
    if let Some(lifecycle) = &container.lifecycle {
        validate_lifecycle(report, &at.child("lifecycle"), lifecycle, grace, spec.os.as_ref());
    }
    if let Some(probe) = &container.liveness_probe {
        validate_restarting(report, &at.child("livenessProbe"), probe);
    }
    if let Some(probe) = &container.readiness_probe {
        let at = at.child("readinessProbe");
        validate_probe(report, &at, probe);
        if let Some(seconds) = probe.termination_grace_period_seconds {
            report.invalid(&at.child("terminationGracePeriodSeconds"), seconds, "must not be set for readinessProbes");
        }
    }
    if let Some(probe) = &container.startup_probe {
        validate_restarting(report, &at.child("startupProbe"), probe);
    }
}

/// A probe whose failure restarts the container succeeds at the first success.
fn validate_restarting(report: &mut Report, at: &Place<'_>, probe: &core::Probe) {
    validate_probe(report, at, probe);
    let threshold = probe.success_threshold.unwrap_or_default();
    if threshold != 1 {
        report.invalid(&at.child("successThreshold"), threshold, "must be 1");
    }
}

fn validate_probe(report: &mut Report, at: &Place<'_>, probe: &core::Probe) {
    let handler = Handler {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep: None,
    };
    handler.validate(report, at, None);
    let counts = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, value) in counts {
        report.non_negative(&at.child(name), value.unwrap_or_default().into());
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|&seconds| seconds <= 0) {
        report.invalid(&at.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

fn validate_lifecycle(
    report: &mut Report,
    at: &Place<'_>,
    lifecycle: &core::Lifecycle,
    grace: Option<i64>,
    os: Option<&core::PodOS>,
) {
    for (name, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        let Some(hook) = hook else { continue };
        let handler = Handler {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        };
        handler.validate(report, &at.child(name), grace);
    }
    if let Some(signal) = &lifecycle.stop_signal {
        validate_stop_signal(report, &at.child("stopSignal"), signal, os);
    }
}

/// What a probe or hook does; exactly one of these.
struct Handler<'a> {
    exec: Option<&'a core::ExecAction>,
    http_get: Option<&'a core::HTTPGetAction>,
    tcp_socket: Option<&'a core::TCPSocketAction>,
    grpc: Option<&'a core::GRPCAction>,
    sleep: Option<&'a core::SleepAction>,
}

impl Handler<'_> {
    fn validate(&self, report: &mut Report, at: &Place<'_>, grace: Option<i64>) {
        let mut handlers = 0;
        // Only the first handler is looked into; any further one is one too many.
        let mut first = |report: &mut Report, at: &Place<'_>| {
            handlers += 1;
            if handlers > 1 {
                report.forbidden(at, SECOND_HANDLER);
            }
            handlers == 1
        };
        if let Some(exec) = self.exec {
            let at = at.child("exec");
            if first(report, &at) && list(&exec.command).is_empty() {
                report.required(&at.child("command"), "");
            }
        }
        if let Some(http) = self.http_get {
            let at = at.child("httpGet");
            if first(report, &at) {
                validate_http_get(report, &at, http);
            }
        }
        if let Some(tcp) = self.tcp_socket {
            let at = at.child("tcpSocket");
            if first(report, &at) {
                validate_port(report, &at.child("port"), &tcp.port);
            }
        }
        if let Some(grpc) = self.grpc {
            let at = at.child("grpc");
            if first(report, &at) {
                validate_port(report, &at.child("port"), &IntOrString::Int(grpc.port));
            }
        }
        if let Some(sleep) = self.sleep {
            let at = at.child("sleep");
            if first(report, &at) {
                validate_sleep(report, &at, sleep.seconds, grace);
            }
        }
        if handlers == 0 {
            report.required(at, "must specify a handler type");
        }
    }
}

fn validate_http_get(report: &mut Report, at: &Place<'_>, http: &core::HTTPGetAction) {
    if text(&http.path).is_empty() {
        report.required(&at.child("path"), "");
    }
    validate_port(report, &at.child("port"), &http.port);
    let scheme = text(&http.scheme);
    if !HTTP_SCHEMES.contains(&scheme) {
        report.not_supported(&at.child("scheme"), scheme, &HTTP_SCHEMES);
    }
    for header in list(&http.http_headers) {
        if let Some(message) = syntax::http_header_name(&header.name) {
            report.invalid(&at.child("httpHeaders"), header.name.as_str(), message);
        }
    }
}

fn validate_port(report: &mut Report, at: &Place<'_>, port: &IntOrString) {
    match port {
        IntOrString::Int(number) => {
            if let Some(message) = syntax::port_number(*number) {
                report.invalid(at, *number, message);
            }
        }
        IntOrString::String(name) => report.each_invalid(at, name, syntax::port_name(name)),
    }
}

/// A hook that only sleeps must end before the pod's grace does.
fn validate_sleep(report: &mut Report, at: &Place<'_>, seconds: i64, grace: Option<i64>) {
    if let Some(grace) = grace.filter(|&grace| seconds < 0 || seconds > grace) {
        let text = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        report.invalid(at, seconds, text);
    }
}

/// The signals a container may ask to be stopped with, sorted.
const STOP_SIGNALS_LINUX: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];
const STOP_SIGNALS_WINDOWS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// Reached only for objects that were stored with the field; on create it is dropped (JA-C7).
fn validate_stop_signal(report: &mut Report, at: &Place<'_>, signal: &str, os: Option<&core::PodOS>) {
    let supported: &[&str] = match os.map(|os| os.name.as_str()) {
        None => return report.forbidden(at, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => &STOP_SIGNALS_WINDOWS,
        Some("linux") => &STOP_SIGNALS_LINUX,
        Some(_) => return,
    };
    if !supported.contains(&signal) {
        report.not_supported(at, signal, supported);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::check_containers;

    /// JA-P13.
    #[test]
    fn probes_and_hooks_do_one_thing() {
        check_containers(&[
            (json!({"livenessProbe": {"exec": {"command": ["true"]}}}), &[]),
            (json!({"livenessProbe": {}}), &["livenessProbe: Required value: must specify a handler type"]),
            (
                json!({"lifecycle": {"preStop": {}}}),
                &["lifecycle.preStop: Required value: must specify a handler type"],
            ),
            (
                json!({"readinessProbe": {"exec": {"command": ["true"]}, "tcpSocket": {"port": 0}}}),
                &["readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"],
            ),
            (json!({"readinessProbe": {"exec": {}}}), &["readinessProbe.exec.command: Required value"]),
            (
                json!({"readinessProbe": {"tcpSocket": {"port": 0}}}),
                &["readinessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive"],
            ),
            (
                json!({"readinessProbe": {"grpc": {"port": 70000}}}),
                &["readinessProbe.grpc.port: Invalid value: 70000: must be between 1 and 65535, inclusive"],
            ),
            (
                json!({"readinessProbe": {"httpGet": {
                    "port": "a b", "scheme": "FTP", "httpHeaders": [{"name": "X Y", "value": "z"}],
                }}}),
                &[
                    "readinessProbe.httpGet.port: Invalid value: \"a b\": must contain only alpha-numeric characters (a-z, \
                     0-9), and hyphens (-)",
                    "readinessProbe.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
                    "readinessProbe.httpGet.httpHeaders: Invalid value: \"X Y\": a valid HTTP header must consist of \
                     alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
                ],
            ),
            (
                json!({"lifecycle": {"postStart": {"sleep": {"seconds": 31}}, "preStop": {"sleep": {"seconds": 0}}}}),
                &["lifecycle.postStart.sleep: Invalid value: 31: must be non-negative and less than \
                   terminationGracePeriodSeconds (30)"],
            ),
        ]);
    }

    #[test]
    fn numbers_of_probes() {
        let exec = json!({"command": ["true"]});
        check_containers(&[
            (
                json!({"livenessProbe": {
                    "exec": exec, "initialDelaySeconds": -1, "timeoutSeconds": -1, "periodSeconds": -1,
                    "successThreshold": -1, "failureThreshold": -1, "terminationGracePeriodSeconds": 0,
                }}),
                &[
                    "livenessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
                    "livenessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "livenessProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0",
                    "livenessProbe.failureThreshold: Invalid value: -1: must be greater than or equal to 0",
                    "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
                    "livenessProbe.successThreshold: Invalid value: -1: must be 1",
                ],
            ),
            (
                json!({"startupProbe": {"exec": exec, "successThreshold": 2}}),
                &["startupProbe.successThreshold: Invalid value: 2: must be 1"],
            ),
            (json!({"readinessProbe": {"exec": exec, "successThreshold": 2}}), &[]),
            (
                json!({"readinessProbe": {"exec": exec, "terminationGracePeriodSeconds": 5}}),
                &[
                    "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
                ],
            ),
        ]);
    }

    #[test]
    fn signal_names_are_sorted_for_the_error_text() {
        assert!(STOP_SIGNALS_LINUX.is_sorted());
    }
}
