//! Which resource a request is about, and its address in the API.

use std::{borrow::Cow, fmt};

/// A resource as discovery names it: group, version, plural.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
}

impl Resource {
    pub const PODS: Self = Self::of("", "v1", "pods");
    pub const NODES: Self = Self::of("", "v1", "nodes");
    pub const NAMESPACES: Self = Self::of("", "v1", "namespaces");
    pub const EVENTS: Self = Self::of("", "v1", "events");
    pub const CONFIG_MAPS: Self = Self::of("", "v1", "configmaps");
    pub const SERVICE_ACCOUNTS: Self = Self::of("", "v1", "serviceaccounts");
    pub const JOBS: Self = Self::of("batch", "v1", "jobs");
    pub const CRON_JOBS: Self = Self::of("batch", "v1", "cronjobs");
    pub const LEASES: Self = Self::of("coordination.k8s.io", "v1", "leases");

    pub const fn of(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), version: Cow::Borrowed(version), plural: Cow::Borrowed(plural) }
    }

    /// `v1`, `batch/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The address of the collection, of all namespaces if none is given.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            push_segment(&mut path, namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        path
    }

    /// The address of one object. `namespace` is empty for objects of the cluster.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        let mut path = self.collection(Some(namespace).filter(|namespace| !namespace.is_empty()));
        path.push('/');
        push_segment(&mut path, name);
        path
    }

    /// The address of a part of an object, such as `status`.
    pub fn subresource(&self, namespace: &str, name: &str, part: &str) -> String {
        format!("{}/{part}", self.object(namespace, name))
    }
}

/// `pods`, `jobs.batch`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Appends one path segment. Names in owner references are hardly checked by the server, so a name may contain
/// anything, `/` included; it must still not address anything else (INV-52).
fn push_segment(path: &mut String, segment: &str) {
    // Dots are harmless inside a name, but a segment of only dots is a step in the tree.
    let only_dots = segment.bytes().all(|byte| byte == b'.');
    for byte in segment.bytes() {
        match byte {
            b'.' if only_dots => path.push_str("%2E"),
            _ => push_encoded(path, byte),
        }
    }
}

/// Appends a query parameter.
pub(super) fn push_parameter(query: &mut String, name: &str, value: &str) {
    if !query.is_empty() {
        query.push('&');
    }
    query.push_str(name);
    query.push('=');
    for byte in value.bytes() {
        push_encoded(query, byte);
    }
}

fn push_encoded(text: &mut String, byte: u8) {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
        _ => {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            text.push('%');
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_api() {
        let cases = [
            (Resource::PODS.collection(None), "/api/v1/pods"),
            (Resource::PODS.object("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
            (Resource::NODES.object("", "n1.example"), "/api/v1/nodes/n1.example"),
            (Resource::JOBS.collection(Some("ns")), "/apis/batch/v1/namespaces/ns/jobs"),
            (Resource::JOBS.subresource("ns", "a", "status"), "/apis/batch/v1/namespaces/ns/jobs/a/status"),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
        assert_eq!(Resource::JOBS.to_string(), "jobs.batch");
        assert_eq!(Resource::JOBS.api_version(), "batch/v1");
    }

    #[test]
    fn names_cannot_leave_their_segment() {
        for (name, segment) in [("../b", "..%2Fb"), ("..", "%2E%2E"), ("a?b#c", "a%3Fb%23c"), ("a%2f", "a%252f")] {
            assert_eq!(Resource::PODS.object("ns", name), format!("/api/v1/namespaces/ns/pods/{segment}"));
        }
    }
}
