//! Whether a user may do something, and the words in which a refusal is told (AS-61).

use super::{
    rbac::{Decision, PolicyRule},
    user::{self, User},
};
use crate::{
    resources::registry,
    route::{Attributes, Target},
    server::{ApiServer, Call, State},
    status::{Details, Status},
};

impl State {
    /// The one place where rights are decided. Nothing is looked up for `system:masters`.
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes) -> Result<Decision, Status> {
        if user.is_master() {
            return Ok(Decision::Allowed { reason: String::new() });
        }
        Ok(self.policy.current(&self.store)?.decide(user, attributes))
    }

    /// Allows or refuses with upstream's words.
    pub(crate) fn authorize(&self, user: &User, attributes: &Attributes) -> Result<(), Status> {
        match self.decide(user, attributes)? {
            Decision::Allowed { .. } => Ok(()),
            Decision::Denied { reason } => Err(refusal(user, attributes, &reason)),
        }
    }

    /// Every rule that applies to a user in a namespace, and which roles were not found.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> Result<(Vec<PolicyRule>, Option<String>), Status> {
        Ok(self.policy.current(&self.store)?.rules_for(user, namespace))
    }

    /// Whether a ServiceAccount was granted more than every account has from the start.
    pub(crate) fn is_granted_anything(&self, namespace: &str, account: &str) -> Result<bool, Status> {
        let name = user::service_account_name(namespace, account);
        let user = User { name, groups: user::service_account_groups(namespace), ..User::default() };
        Ok(self.policy.current(&self.store)?.grants_anything_to(&user))
    }
}

impl ApiServer {
    /// A PUT or an apply that turns out to create needs the right to create as well.
    pub(crate) fn authorize_create(&self, call: &Call, target: &Target) -> Result<(), Status> {
        let attributes = Attributes {
            verb: "create".to_owned(),
            group: target.resource.group.to_owned(),
            resource: target.resource.plural.to_owned(),
            namespace: target.namespace().to_owned(),
            name: target.name().to_owned(),
            ..Attributes::default()
        };
        self.state.authorize(&call.user, &attributes)
    }
}

pub(super) fn refusal(user: &User, attributes: &Attributes, reason: &str) -> Status {
    let Attributes { verb, group, resource, subresource, namespace, name, path } = attributes;
    let user = batch_types::field::quoted(&user.name);
    let because = |why: String| {
        let why = without_markup(&why);
        if reason.is_empty() { why } else { format!("{why}: {reason}") }
    };
    if let Some(path) = path {
        let why = because(format!("User {user} cannot {verb} path {}", batch_types::field::quoted(path)));
        return Status::new(403, "Forbidden", format!("forbidden: {why}")).with_details(Details::default());
    }
    let whole = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let place = if namespace.is_empty() || is_cluster_wide(group, resource) {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let why = because(format!("User {user} cannot {verb} resource \"{whole}\" in API group \"{group}\" {place}"));
    let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let subject = if name.is_empty() { qualified } else { format!("{qualified} \"{name}\"") };
    Status::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).with_details(Details {
        name: name.clone(),
        group: group.clone(),
        kind: resource.clone(),
        ..Details::default()
    })
}

/// Upstream keeps what users chose from looking like HTML.
fn without_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn is_cluster_wide(group: &str, resource: &str) -> bool {
    // A namespace is named inside itself (RequestInfo), other cluster-wide resources never carry one.
    resource != "namespaces" && registry::any_version(group, resource).is_some_and(|found| !found.namespaced)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{query::Query, route};

    /// AS-61.
    #[test]
    fn refusals_are_worded_as_upstream_words_them() {
        let bob = User { name: "bob".to_owned(), ..User::default() };
        let told = |method: Method, url: &str, reason: &str| {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            refusal(&bob, &route::attributes(&method, path, &Query::parse(Some(query))), reason).message.clone()
        };
        let cases = [
            (
                Method::GET,
                "/api/v1/namespaces/t1/pods",
                r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "t1""#,
            ),
            (
                Method::GET,
                "/api/v1/nodes/n1",
                r#"nodes "n1" is forbidden: User "bob" cannot get resource "nodes" in API group "" at the cluster scope"#,
            ),
            (
                Method::GET,
                "/apis/batch/v1/namespaces/t1/jobs/x/status",
                r#"jobs.batch "x" is forbidden: User "bob" cannot get resource "jobs/status" in API group "batch" in the namespace "t1""#,
            ),
            (
                Method::DELETE,
                "/apis/batch/v1/namespaces/t1/jobs",
                r#"jobs.batch is forbidden: User "bob" cannot deletecollection resource "jobs" in API group "batch" in the namespace "t1""#,
            ),
            (
                Method::GET,
                "/apis/batch/v1/jobs?fieldSelector=metadata.name%3Dx",
                r#"jobs.batch "x" is forbidden: User "bob" cannot list resource "jobs" in API group "batch" at the cluster scope"#,
            ),
            (Method::GET, "/metrics", r#"forbidden: User "bob" cannot get path "/metrics""#),
            (Method::POST, "/a&b", r#"forbidden: User "bob" cannot post path "/a&amp;b""#),
        ];
        for (method, url, expected) in cases {
            assert_eq!(told(method, url, ""), expected);
        }
        assert!(told(Method::GET, "/metrics", "RBAC: no").ends_with("path \"/metrics\": RBAC: no"));
    }
}
