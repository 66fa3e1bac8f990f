//! Who is calling, and what they may do (AS-56…AS-61).
//!
//! There is one administrator, known by a bearer token; everybody else may read health and version only.

use std::fmt;

use http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use crate::{
    resources::registry,
    route::Attributes,
    status::{Details, Status},
};

const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An authenticated or anonymous caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

/// Checks credentials. Only a digest of the token is kept, so that it cannot leak into logs or dumps.
pub struct Authenticator {
    admin: Option<[u8; 32]>,
}

impl Authenticator {
    pub fn new(admin_token: Option<String>) -> Self {
        Self { admin: admin_token.map(|token| digest(&token)) }
    }

    /// A wrong bearer token is refused everywhere; no token at all is the anonymous user (AS-56).
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<User, Status> {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(User::anonymous()) };
        let text = value.to_str().map_err(|_| Status::unauthorized())?;
        let Some((scheme, token)) = text.split_once(' ') else { return Ok(User::anonymous()) };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Ok(User::anonymous());
        }
        // Digests are compared, so the time taken tells nothing about the token.
        match self.admin {
            Some(admin) if admin == digest(token.trim()) => Ok(User::administrator()),
            _ => Err(Status::unauthorized()),
        }
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl User {
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".to_owned(), groups: vec![UNAUTHENTICATED.to_owned()] }
    }

    pub fn administrator() -> Self {
        Self { name: "kubernetes-admin".to_owned(), groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()] }
    }

    /// The controllers, scheduler and node of the same process (design D1).
    pub fn in_process() -> Self {
        Self { name: "system:tally".to_owned(), groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()] }
    }

    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// Allows or refuses with upstream's words (AS-61).
    pub fn authorize(&self, attributes: &Attributes) -> Result<(), Status> {
        if self.is_master() || attributes.path.as_deref().is_some_and(is_public) {
            return Ok(());
        }
        Err(self.refusal(attributes))
    }

    fn refusal(&self, attributes: &Attributes) -> Status {
        let Attributes { verb, group, resource, subresource, namespace, name, path } = attributes;
        if let Some(path) = path {
            let message = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", self.name);
            return Status::new(403, "Forbidden", message).with_details(Details::default());
        }
        let whole = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
        let place = if namespace.is_empty() || is_cluster_wide(group, resource) {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let why = format!("User \"{}\" cannot {verb} resource \"{whole}\" in API group \"{group}\" {place}", self.name);
        let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
        let subject = if name.is_empty() { qualified } else { format!("{qualified} \"{name}\"") };
        Status::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).with_details(Details {
            name: name.clone(),
            group: group.clone(),
            kind: resource.clone(),
            ..Details::default()
        })
    }
}

/// Health and version are for everybody (AS-54).
fn is_public(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path == "/version"
        || ["/healthz", "/livez", "/readyz"]
            .iter()
            .any(|public| path == *public || path.strip_prefix(public).is_some_and(|rest| rest.starts_with('/')))
}

fn is_cluster_wide(group: &str, resource: &str) -> bool {
    // A namespace is named inside itself (RequestInfo), other cluster-wide resources never carry one.
    resource != "namespaces" && registry::any_version(group, resource).is_some_and(|found| !found.namespaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{query::Query, route};
    use http::Method;

    fn bearing(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn wrong_tokens_are_refused_and_no_token_is_anonymous() {
        let authenticator = Authenticator::new(Some("secret".to_owned()));
        assert!(authenticator.authenticate(&bearing("Bearer secret")).unwrap().is_master());
        assert_eq!(authenticator.authenticate(&bearing("Bearer wrong")).unwrap_err().code, 401);
        assert_eq!(authenticator.authenticate(&bearing("Basic eDp5")).unwrap(), User::anonymous());
        assert_eq!(authenticator.authenticate(&HeaderMap::new()).unwrap(), User::anonymous());
    }

    #[test]
    fn anonymous_may_read_health_and_version_only() {
        let may =
            |path: &str| User::anonymous().authorize(&route::attributes(&Method::GET, path, &Query::default())).is_ok();
        assert!(may("/healthz") && may("/readyz/ping") && may("/version") && may("/version/"));
        assert!(!may("/metrics") && !may("/api") && !may("/api/v1/pods") && !may("/healthzz"));
    }
}
