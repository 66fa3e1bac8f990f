//! How strings inside a pod must be written: ports, environment variables, headers, paths, sysctls.
//!
//! Each check answers with upstream's messages, none when the value is well formed. Object names, labels and
//! qualified names are not pods' own and live in `names`.

use super::report::{Place, Report};

const PORT_NAME_BYTES_MAX: usize = 15;
const SYSCTL_NAME_BYTES_MAX: usize = 253;
const SYSCTL_SEGMENT: &str = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";

/// A port number of 1…65535.
pub(super) fn port_number(port: i32) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

/// An IANA service name, lower case (JA-P9).
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > PORT_NAME_BYTES_MAX {
        messages.push(format!("must be no more than {PORT_NAME_BYTES_MAX} characters"));
    }
    if name.is_empty() || !name.bytes().all(|c| c == b'-' || c.is_ascii_lowercase() || c.is_ascii_digit()) {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|c| c.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

/// The relaxed rule for environment variable names (JA-P7).
pub(super) fn env_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.is_empty() {
        messages.push("environment variable name must be non-empty".to_owned());
    }
    if !name.bytes().all(|c| (b' '..=b'~').contains(&c) && c != b'=') {
        let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        messages.push(rule.to_owned());
    }
    messages
}

/// The name of an HTTP header.
pub(super) fn http_header_name(name: &str) -> Option<&'static str> {
    let well_formed = !name.is_empty() && name.bytes().all(|c| c == b'-' || c.is_ascii_alphanumeric());
    (!well_formed).then_some(
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')",
    )
}

/// The name of a kernel parameter, segments separated by dots or slashes.
pub(super) fn sysctl_name(name: &str) -> Option<String> {
    let well_formed = name.len() <= SYSCTL_NAME_BYTES_MAX && name.split(['.', '/']).all(is_sysctl_segment);
    (!well_formed).then(|| {
        format!(
            "must have at most {SYSCTL_NAME_BYTES_MAX} characters and match regex \
             ^({SYSCTL_SEGMENT}[\\./])*{SYSCTL_SEGMENT}$"
        )
    })
}

fn is_sysctl_segment(segment: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = segment.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            alphanumeric(first)
                && alphanumeric(last)
                && bytes.iter().all(|&c| alphanumeric(c) || matches!(c, b'-' | b'_'))
        }
        _ => false,
    }
}

/// A DNS subdomain in which underscores are tolerated, as resolver search lists need them.
pub(super) fn search_domain(domain: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if domain.len() > 253 {
        messages.push("must be no more than 253 characters".to_owned());
    }
    if !domain.split('.').all(is_search_label) {
        messages.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    messages
}

fn is_search_label(label: &str) -> bool {
    is_sysctl_segment(label.strip_prefix('_').unwrap_or(label))
}

/// No element of the path may climb out of it.
pub(super) fn no_backsteps(report: &mut Report, at: &Place<'_>, path: &str) {
    if has_backsteps(path) {
        report.invalid(at, path, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|element| element == "..")
}

/// A relative path that stays below where it starts.
pub(super) fn local_descending_path(report: &mut Report, at: &Place<'_>, path: &str) {
    if path.starts_with('/') {
        report.invalid(at, path, "must be a relative path");
    }
    no_backsteps(report, at, path);
}

/// A relative path whose first element the kubelet does not reserve: `..data` and its like are its own.
pub(super) fn local_non_reserved_path(report: &mut Report, at: &Place<'_>, path: &str) {
    local_descending_path(report, at, path);
    if path.starts_with("..") && !path.starts_with("../") {
        report.invalid(at, path, "must not start with '..'");
    }
}

/// Permission bits of a projected file (JA-P10).
pub(super) fn file_mode(report: &mut Report, at: &Place<'_>, mode: Option<i32>) {
    if let Some(mode) = mode
        && !(0..=0o777).contains(&mode)
    {
        report.invalid(at, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_names() {
        for good in ["http", "a", "1a", "a-b-1", "abcdefghijklmno"] {
            assert!(port_name(good).is_empty(), "{good}");
        }
        assert_eq!(port_name("abcdefghijklmnop"), ["must be no more than 15 characters"]);
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("a--b"), ["must not contain consecutive hyphens"]);
        assert_eq!(port_name("-a"), ["must not begin or end with a hyphen"]);
        assert_eq!(port_name("").len(), 2);
    }

    #[test]
    fn environment_names_are_printable_ascii_without_equals() {
        for good in ["A", "a.b", "1-2", "x y", ".."] {
            assert!(env_name(good).is_empty(), "{good}");
        }
        for bad in ["A=B", "É", "a\tb", "\u{7f}"] {
            assert_eq!(env_name(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn sysctl_names_take_dots_and_slashes() {
        for good in ["kernel.shm_rmid_forced", "net/ipv4/tcp_syncookies", "a"] {
            assert!(sysctl_name(good).is_none(), "{good}");
        }
        for bad in ["", "a..b", "A", "a.", "_a"] {
            assert!(sysctl_name(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn search_domains_may_start_with_an_underscore() {
        for good in ["example.com", "_sip._tcp.example", "a_b.c"] {
            assert!(search_domain(good).is_empty(), "{good}");
        }
        for bad in ["", "a_", "__a", "A"] {
            assert_eq!(search_domain(bad).len(), 1, "{bad}");
        }
    }
}
