//! Names, label keys and label values: which texts are legal and what upstream says about the others (JA-E5, JA-E6).
//!
//! Every check returns the messages about a value, none when it is fine. Which field a message belongs to is the
//! caller's business (`meta`, `selector`, `job`, `pod`).
//!
//! Lengths are counted in bytes everywhere; that some messages say "characters" is upstream's wording.

use crate::field::{Error, Path};

/// The longest DNS-1123 label, label value, and name part of a qualified name.
pub const LABEL_MAX: usize = 63;
/// The longest DNS-1123 subdomain, hence the longest object name.
pub const SUBDOMAIN_MAX: usize = 253;
/// What a generated name keeps of its prefix: a label minus the suffix.
const GENERATED_PREFIX_MAX: usize = LABEL_MAX - GENERATED_SUFFIX_LEN;
/// Random characters after a generated name's prefix.
pub const GENERATED_SUFFIX_LEN: usize = 5;
/// Characters of that suffix: no vowels, so no words, and nothing that is easily misread (AS-78).
pub const GENERATED_SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
    'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const HTTP_PATH: &str = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";

/// How the objects of a kind may be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Most kinds.
    DnsSubdomain,
    /// Namespaces.
    DnsLabel,
    /// What every kind must satisfy so that its name fits into a URL.
    PathSegment,
}

impl NameRule {
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::DnsSubdomain => dns_subdomain(name),
            Self::DnsLabel => dns_label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    /// The same for `generateName`, where a trailing dash is fine because something follows it (JA-V1).
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            Self::DnsSubdomain => dns_subdomain_bytes(&without_trailing_dash(prefix)),
            Self::DnsLabel => dns_label_bytes(&without_trailing_dash(prefix)),
            Self::PathSegment => path_segment_content(prefix),
        }
    }
}

/// The name made of a `generateName` prefix and random characters chosen by the caller.
pub fn generated(prefix: &str, suffix: &str) -> String {
    let kept = prefix.floor_char_boundary(GENERATED_PREFIX_MAX);
    format!("{}{suffix}", &prefix[..kept])
}

/// A DNS-1123 label: container names, namespaces, host names.
pub fn dns_label(value: &str) -> Vec<String> {
    dns_label_bytes(value.as_bytes())
}

/// Whether [`dns_label`] finds nothing to say.
pub fn is_dns_label(value: &str) -> bool {
    value.len() <= LABEL_MAX && is_dns_label_text(value.as_bytes())
}

/// A DNS-1123 subdomain: object names.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    dns_subdomain_bytes(value.as_bytes())
}

/// A DNS-1035 label: service names.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(too_long(LABEL_MAX, "characters"));
    }
    if !(is_dns_label_text(value.as_bytes()) && value.as_bytes()[0].is_ascii_lowercase()) {
        messages.push(DNS1035_LABEL.to_owned());
    }
    messages
}

/// A label key, annotation key, finalizer, condition type or scheduling gate: `[prefix/]name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => {
            let text = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {text}")];
        }
        Some((prefix, name)) => {
            qualified_prefix(prefix, &mut messages);
            name
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        messages.push(format!("name part {}", too_long(LABEL_MAX, "bytes")));
    }
    if !is_qualified_text(name.as_bytes()) {
        messages.push(format!("name part {QUALIFIED}"));
    }
    messages
}

/// The value of a label; empty is legal.
pub fn label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(too_long(LABEL_MAX, "bytes"));
    }
    if !value.is_empty() && !is_qualified_text(value.as_bytes()) {
        messages.push(LABEL_VALUE.to_owned());
    }
    messages
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        messages.push(too_long(SUBDOMAIN_MAX, "characters"));
    }
    if value.is_empty() || !value.bytes().all(is_qualified_char) {
        messages.push(CONFIG_KEY.to_owned());
    }
    match value {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// A name that can be one segment of a URL.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_content(name),
    }
}

/// A path such as `acme.io/foo`: the form of `spec.managedBy` (JA-V12…V15).
pub fn validate_domain_prefixed_path(value: &str, field: &Path) -> Vec<Error> {
    if value.is_empty() {
        return vec![Error::required(field, "")];
    }
    let (host, path) = match value.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![Error::invalid(field, value, detail)];
        }
    };
    let mut errors: Vec<_> =
        dns_subdomain(host).into_iter().map(|message| Error::invalid(field, host, message)).collect();
    if !path.bytes().all(is_http_path_char) {
        errors.push(Error::invalid(field, path, HTTP_PATH));
    }
    errors
}

fn dns_label_bytes(value: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(too_long(LABEL_MAX, "characters"));
    }
    if !is_dns_label_text(value) {
        let text = if is_dns_subdomain_text(value) { "must not contain dots" } else { DNS_LABEL };
        messages.push(text.to_owned());
    }
    messages
}

fn dns_subdomain_bytes(value: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        messages.push(too_long(SUBDOMAIN_MAX, "characters"));
    }
    if !is_dns_subdomain_text(value) {
        messages.push(DNS_SUBDOMAIN.to_owned());
    }
    messages
}

fn qualified_prefix(prefix: &str, messages: &mut Vec<String>) {
    if prefix.is_empty() {
        messages.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > SUBDOMAIN_MAX {
        messages.push(format!("prefix part {}", too_long(SUBDOMAIN_MAX, "bytes")));
    }
    if !is_dns_subdomain_text(prefix.as_bytes()) {
        messages.push(format!("prefix part {DNS_SUBDOMAIN}"));
    }
}

fn path_segment_content(name: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

/// Upstream takes the dash *and the character before it* away and puts an `a` there; so `ab_-` passes.
fn without_trailing_dash(prefix: &str) -> Vec<u8> {
    let mut bytes = prefix.as_bytes().to_vec();
    if bytes.len() > 1 && bytes.ends_with(b"-") {
        bytes.truncate(bytes.len() - 2);
        bytes.push(b'a');
    }
    bytes
}

fn is_dns_label_text(value: &[u8]) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    value.first().is_some_and(is_alphanumeric)
        && value.last().is_some_and(is_alphanumeric)
        && value.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

fn is_dns_subdomain_text(value: &[u8]) -> bool {
    value.split(|byte| *byte == b'.').all(is_dns_label_text)
}

fn is_qualified_text(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphanumeric)
        && value.last().is_some_and(u8::is_ascii_alphanumeric)
        && value.iter().copied().all(is_qualified_char)
}

fn is_qualified_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_http_path_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xs(count: usize) -> String {
        "x".repeat(count)
    }

    #[test]
    fn subdomains() {
        for fine in ["a", "1", "a-b", "a.b", "a.b-c.d", "0.0", &xs(253)] {
            assert_eq!(dns_subdomain(fine), [""; 0], "{fine}");
        }
        for bad in ["", "A", "-a", "a-", ".a", "a.", "a..b", "a_b", "a:b", "a b", "é", "a.-b"] {
            assert_eq!(dns_subdomain(bad), [DNS_SUBDOMAIN], "{bad}");
        }
        assert_eq!(dns_subdomain(&xs(254)), ["must be no more than 253 characters"]);
    }

    #[test]
    fn labels_say_when_dots_are_the_only_problem() {
        assert_eq!(dns_label("a-1"), [""; 0]);
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label("a..b"), [DNS_LABEL]);
        assert_eq!(dns_label(""), [DNS_LABEL]);
        assert_eq!(dns_label(&xs(64)), ["must be no more than 63 characters"]);
        assert_eq!(dns1035_label("1a"), [DNS1035_LABEL]);
        assert_eq!(dns1035_label("a1"), [""; 0]);
        assert_eq!(dns1035_label(""), [DNS1035_LABEL]);
    }

    #[test]
    fn qualified_names() {
        for fine in ["a", "A.b_c-D", "example.com/a", "e/1", &format!("{}/x", xs(253)), &xs(63)] {
            assert_eq!(qualified_name(fine), [""; 0], "{fine}");
        }
        let name = format!("name part {QUALIFIED}");
        let prefix = format!("prefix part {DNS_SUBDOMAIN}");
        let cases: &[(&str, &[&str])] = &[
            ("", &["name part must be non-empty", &name]),
            ("a b", &[&name]),
            ("_a", &[&name]),
            ("/a", &["prefix part must be non-empty"]),
            ("a/", &["name part must be non-empty", &name]),
            ("/", &["prefix part must be non-empty", "name part must be non-empty", &name]),
            ("Ex/a", &[&prefix]),
            ("Ex/a b", &[&prefix, &name]),
        ];
        for (value, messages) in cases {
            assert_eq!(qualified_name(value), *messages, "{value}");
        }
        assert_eq!(qualified_name(&xs(64)), ["name part must be no more than 63 bytes"]);
        assert_eq!(qualified_name(&format!("{}/x", xs(254))), ["prefix part must be no more than 253 bytes"]);
        assert_eq!(
            qualified_name("a/b/c"),
            [format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )]
        );
    }

    #[test]
    fn label_values_may_be_empty() {
        assert_eq!(label_value(""), [""; 0]);
        assert_eq!(label_value("a_b.c-D"), [""; 0]);
        assert_eq!(label_value("-a"), [LABEL_VALUE]);
        assert_eq!(label_value(&xs(64)), ["must be no more than 63 bytes"]);
        assert_eq!(label_value(&format!("{}-", xs(63))), ["must be no more than 63 bytes", LABEL_VALUE]);
    }

    #[test]
    fn prefixes_may_end_with_a_dash() {
        let rule = NameRule::DnsSubdomain;
        for fine in ["a-", "ab-", "a", "ab_-", "a--"] {
            assert_eq!(rule.check_prefix(fine), [""; 0], "{fine}");
        }
        for bad in ["-", "A_", "De_mo-", "a.", "é-"] {
            assert_eq!(rule.check_prefix(bad), [DNS_SUBDOMAIN], "{bad}");
        }
        assert_eq!(NameRule::DnsLabel.check_prefix("a.bc-"), ["must not contain dots"]);
        assert_eq!(NameRule::PathSegment.check_prefix(".."), [""; 0]);
    }

    #[test]
    fn path_segments() {
        assert_eq!(path_segment("."), ["may not be '.'"]);
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(path_segment("a/%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment("A_b"), [""; 0]);
    }

    #[test]
    fn generated_names_keep_58_characters_of_the_prefix() {
        assert_eq!(generated("demo-", "abcde"), "demo-abcde");
        assert_eq!(generated(&xs(70), "abcde"), format!("{}abcde", xs(58)));
    }

    #[test]
    fn config_keys() {
        assert_eq!(config_key("a.b_C-1"), [""; 0]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(config_key("a b"), [CONFIG_KEY]);
    }

    #[test]
    fn domain_prefixed_paths() {
        let field = Path::new("spec.managedBy");
        let texts = |value: &str| -> Vec<String> {
            validate_domain_prefixed_path(value, &field).iter().map(Error::text).collect()
        };
        assert_eq!(texts("example.com/queue/a"), [""; 0]);
        assert_eq!(texts(""), ["Required value"]);
        for bad in ["queue", "/queue", "a/"] {
            let text = format!("Invalid value: \"{bad}\": must be a domain-prefixed path (such as \"acme.io/foo\")");
            assert_eq!(texts(bad), [text]);
        }
        assert_eq!(
            texts("Ex/a b"),
            [format!("Invalid value: \"Ex\": {DNS_SUBDOMAIN}"), format!("Invalid value: \"a b\": {HTTP_PATH}")]
        );
    }
}
