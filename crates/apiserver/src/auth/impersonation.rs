//! Requests on behalf of somebody else: `kubectl --as` (AS-59, BI-21).
//!
//! As upstream since 1.36, constrained modes are tried first and the old, unconstrained verb `impersonate` last; when all
//! fail, the first refusal is told. A constrained mode needs two rights: to impersonate the user in that mode, and to do
//! with that mode what the request wants (`impersonate-on:MODE:VERB`). Upstream: `impersonation/mode.go`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use batch_types::names;
use http::HeaderMap;

use super::{
    authorizer::refusal,
    user::{
        ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, service_account_groups, split_service_account_name,
    },
};
use crate::{query::unescape_path, route::Attributes, server::State, status::Status};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const NODE_PREFIX: &str = "system:node:";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// The user that a request wants to be, if it may; `None` when it only wants to be itself.
pub(crate) fn impersonate(
    state: &State,
    requestor: &User,
    headers: &HeaderMap,
    attributes: impl FnOnce() -> Attributes,
) -> Result<Option<Arc<User>>, Status> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let attributes = attributes();
    let mut first = None;
    for mode in Mode::ALL.into_iter().filter(|mode| mode.fits(&wanted, requestor)) {
        match mode.check(state, requestor, &wanted, &attributes) {
            Ok(user) => {
                tracing::debug!(by = requestor.name, user = user.name, "impersonation");
                return Ok(Some(Arc::new(user)));
            }
            Err(status) => {
                first.get_or_insert(status);
            }
        }
    }
    Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// The user as the headers describe it.
fn wanted(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut user = User { name: text(USER), uid: text(UID), ..User::default() };
    user.groups = all(headers, GROUP);
    let extras: BTreeMap<String, &str> = headers
        .keys()
        .filter_map(|name| {
            let key = name.as_str().strip_prefix(EXTRA_PREFIX)?;
            // What cannot be unescaped counts as it is.
            Some((unescape_path(key).map_or_else(|| key.to_owned(), Cow::into_owned), name.as_str()))
        })
        .collect();
    user.extra = extras.into_iter().map(|(key, name)| (key, all(headers, name))).collect();
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", user.to_value())))
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
}

/// A way of impersonating somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A ServiceAccount as the node its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// Without constraints, as it always was.
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> String {
        match self {
            Self::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    /// Whether this user can be impersonated in this way at all.
    fn fits(self, wanted: &User, requestor: &User) -> bool {
        let is_only_a_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let is_account = split_service_account_name(&wanted.name).is_some();
        match self {
            Self::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).and_then(|names| names.first());
                is_only_a_name
                    && node.is_some()
                    && split_service_account_name(&requestor.name).is_some()
                    && own.map(String::as_str) == node
            }
            Self::ArbitraryNode => is_only_a_name && node.is_some(),
            Self::ServiceAccount => is_only_a_name && is_account,
            Self::UserInfo => node.is_none() && !is_account,
            Self::Legacy => true,
        }
    }

    fn check(self, state: &State, requestor: &User, wanted: &User, attributes: &Attributes) -> Result<User, Status> {
        let may = |attributes: &Attributes| state.authorize(requestor, attributes);
        if self != Self::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.name(), attributes.verb);
            may(&Attributes { verb, ..attributes.clone() })?;
        }
        let mut user = wanted.clone();
        may(&self.name_attributes(&mut user))?;
        if !wanted.uid.is_empty() {
            may(&self.attributes(AUTHENTICATION_GROUP, "uids", &wanted.uid))?;
        }
        self.check_groups(requestor, &wanted.groups, &may)?;
        for (key, values) in &wanted.extra {
            for value in values {
                let attributes = self.attributes(AUTHENTICATION_GROUP, "userextras", value);
                may(&Attributes { subresource: key.clone(), ..attributes })?;
            }
        }
        if user.name == ANONYMOUS {
            ensure_group(&mut user, UNAUTHENTICATED);
        } else if !user.is_in(UNAUTHENTICATED) {
            ensure_group(&mut user, AUTHENTICATED);
        }
        Ok(user)
    }

    fn check_groups(
        self,
        requestor: &User,
        groups: &[String],
        may: &impl Fn(&Attributes) -> Result<(), Status>,
    ) -> Result<(), Status> {
        for group in groups {
            let attributes = self.attributes(self.group_of_users(), "groups", group);
            if self != Self::Legacy && (group.is_empty() || group == MASTERS) {
                let shown = if group.is_empty() { "empty string" } else { MASTERS };
                let why = format!("impersonating the {shown} group is not allowed");
                return Err(refusal(requestor, &attributes, &why));
            }
            may(&attributes)?;
        }
        Ok(())
    }

    /// Being allowed to have a name. Nodes and ServiceAccounts are objects, and their groups follow from that.
    fn name_attributes(self, user: &mut User) -> Attributes {
        let group = self.group_of_users();
        if let Some((namespace, name)) = split_service_account_name(&user.name) {
            let attributes = self.attributes(group, "serviceaccounts", name);
            let attributes = Attributes { namespace: namespace.to_owned(), ..attributes };
            if user.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
            return attributes;
        }
        match node_name(&user.name) {
            Some(name) if self != Self::Legacy => {
                // Whichever node it is, it is the requestor's own.
                let name = if self == Self::AssociatedNode { "*" } else { name };
                let attributes = self.attributes(group, "nodes", name);
                user.groups = vec!["system:nodes".to_owned()];
                attributes
            }
            _ => self.attributes(group, "users", &user.name),
        }
    }

    /// The API group of users and groups, which are no objects.
    fn group_of_users(self) -> &'static str {
        if self == Self::Legacy { "" } else { AUTHENTICATION_GROUP }
    }

    fn attributes(self, group: &str, resource: &str, name: &str) -> Attributes {
        Attributes {
            verb: self.verb(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| names::dns_subdomain(name).is_empty())
}

fn ensure_group(user: &mut User, group: &str) {
    if !user.is_in(group) {
        user.groups.push(group.to_owned());
    }
}
