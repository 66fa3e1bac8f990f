//! Nobody grants what they do not have: the checks on writing roles and bindings beyond being allowed to write them.
//!
//! A role may be written by whoever holds all of its rules or may `escalate` it, a binding by whoever holds all rules of
//! its role or may `bind` it (upstream's `pkg/registry/rbac/*/policybased`).

use serde::Deserialize as _;
use serde_json::Value;

use super::{
    rbac::{self, Binding, Policy, PolicyRule, Role, RoleRef},
    user::User,
};
use crate::{
    metadata,
    resources::Resource,
    route::{Attributes, Target},
    server::State,
    status::{Details, Status},
};

/// Metadata that garbage collection changes; with nothing else changed, nothing is granted.
const COLLECTED: [&str; 3] = ["ownerReferences", "finalizers", "managedFields"];

/// Refuses a new role or binding that would give more than its writer has. Other kinds pass.
pub(crate) fn check_create(state: &State, user: &User, target: &Target, object: &Value) -> Result<(), Status> {
    check(state, user, target, object, None)
}

/// Refuses a changed role or binding that would give more than its writer has. Other kinds pass.
pub(crate) fn check_update(
    state: &State,
    user: &User,
    target: &Target,
    new: &Value,
    old: &Value,
) -> Result<(), Status> {
    check(state, user, target, new, Some(old))
}

fn check(state: &State, user: &User, target: &Target, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    let is_role = match target.resource.kind {
        "Role" | "ClusterRole" => true,
        "RoleBinding" | "ClusterRoleBinding" => false,
        _ => return Ok(()),
    };
    if target.resource.group != rbac::GROUP || user.is_master() || old.is_some_and(|old| is_only_collected(new, old)) {
        return Ok(());
    }
    let policy = state.policy.current(&state.store)?;
    let writing = Writing { policy: &policy, user, target, name: metadata::text(new, "name") };
    if is_role { writing.role(new, old) } else { writing.binding(new) }
}

/// Somebody writing a role or binding.
struct Writing<'a> {
    policy: &'a Policy,
    user: &'a User,
    target: &'a Target,
    name: &'a str,
}

impl Writing<'_> {
    fn role(&self, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        if self.may("escalate", self.target.resource, self.target.name()) {
            return Ok(());
        }
        let role = Role::deserialize(new).map_err(unreadable)?;
        self.holds(&role.rules)?;
        // An aggregation rule can gather anything.
        let aggregates = [Some(new), old].into_iter().flatten().any(has_aggregation_rule);
        if aggregates && self.holds(&everything()).is_err() {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn binding(&self, new: &Value) -> Result<(), Status> {
        let Binding { role_ref, .. } = Binding::deserialize(new).map_err(unreadable)?;
        let Some(roles) = resource_of(&role_ref) else {
            // Validation will say that there are no other kinds.
            return Ok(());
        };
        if self.may("bind", roles, &role_ref.name) {
            return Ok(());
        }
        match self.policy.referenced(&role_ref, self.target.namespace()) {
            Some(rules) => self.holds(rules),
            None => Err(not_found(&role_ref)),
        }
    }

    fn may(&self, verb: &str, resource: &Resource, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: rbac::GROUP.to_owned(),
            resource: resource.plural.to_owned(),
            namespace: self.target.namespace().to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        self.policy.decide(self.user, &attributes).is_allowed()
    }

    fn holds(&self, wanted: &[PolicyRule]) -> Result<(), Status> {
        let (held, unresolved) = self.policy.rules_for(self.user, self.target.namespace());
        let Ok(missing) = rbac::missing(&held, wanted) else {
            return Err(self.forbidden("the rules have too many combinations to be compared with those of the user"));
        };
        if missing.is_empty() {
            return Ok(());
        }
        let mut shown: Vec<String> = missing.iter().map(ToString::to_string).collect();
        shown.sort();
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            batch_types::field::quoted(&self.user.name),
            rbac::quoted_list(&self.user.groups),
            shown.join("\n")
        );
        if let Some(unresolved) = unresolved {
            why.push_str(&format!("; resolution errors: [{unresolved}]"));
        }
        Err(self.forbidden(&why))
    }

    fn forbidden(&self, why: &str) -> Status {
        Status::forbidden(self.target.resource, self.name, why)
    }
}

fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

fn has_aggregation_rule(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

fn resource_of(role: &RoleRef) -> Option<&'static Resource> {
    let plural = match role.kind.as_str() {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        _ => return None,
    };
    crate::resources::registry::find(rbac::GROUP, "v1", plural)
}

/// Upstream looks roles up in a cache, which words it in the singular.
fn not_found(role: &RoleRef) -> Status {
    let kind = role.kind.to_ascii_lowercase();
    let message = format!("{kind}.{} \"{}\" not found", rbac::GROUP, role.name);
    Status::new(404, "NotFound", message).with_details(Details {
        name: role.name.clone(),
        group: rbac::GROUP.to_owned(),
        kind,
        ..Details::default()
    })
}

/// Canonical objects fit their types; one that does not is refused and never panics.
fn unreadable(error: serde_json::Error) -> Status {
    Status::internal(format!("does not fit its schema: {error}"))
}

fn is_only_collected(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for member in COLLECTED {
            metadata::of(&mut rest).shift_remove(member);
        }
        rest
    };
    rest(new) == rest(old)
}
