//! All roles and bindings, indexed by the users and groups they concern.
//!
//! Rules only add: what no rule allows is denied. Bindings to roles that do not exist allow nothing and are told in the
//! reason, as upstream does (`pkg/registry/rbac/validation/rule.go`).

use std::collections::{BTreeMap, HashMap, HashSet};

use batch_types::{field::quoted, selector::Selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::{
    GROUP,
    defaults::BOOTSTRAPPING,
    rule::{PolicyRule, or_empty},
};
use crate::{
    auth::user::{self, User},
    route::Attributes,
};

/// A Role or, without a namespace, a ClusterRole.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Role {
    pub metadata: Metadata,
    #[serde(deserialize_with = "or_empty")]
    pub rules: Vec<PolicyRule>,
    pub aggregation_rule: Option<AggregationRule>,
}

/// A RoleBinding or, without a namespace, a ClusterRoleBinding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    pub metadata: Metadata,
    pub role_ref: RoleRef,
    #[serde(deserialize_with = "or_empty")]
    pub subjects: Vec<Subject>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
}

/// Other roles whose rules a ClusterRole has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregationRule {
    #[serde(deserialize_with = "or_empty")]
    pub cluster_role_selectors: Vec<LabelSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RoleRef {
    pub kind: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Subject {
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

impl Binding {
    /// The user or group that a subject of this binding is; `None` for kinds and places that do not exist.
    fn name_of(&self, subject: &Subject) -> Option<String> {
        match subject.kind.as_str() {
            "User" | "Group" => Some(subject.name.clone()),
            "ServiceAccount" => {
                let own = &self.metadata.namespace;
                let namespace = if subject.namespace.is_empty() { own } else { &subject.namespace };
                (!namespace.is_empty()).then(|| user::service_account_name(namespace, &subject.name))
            }
            _ => None,
        }
    }
}

/// What becomes of a request, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allowed { reason: String },
    Denied { reason: String },
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Allowed { reason } | Self::Denied { reason } => reason,
        }
    }
}

/// Roles and bindings at one moment.
#[derive(Debug, Default)]
pub struct Policy {
    cluster_roles: HashMap<String, Vec<PolicyRule>>,
    /// By namespace, then by name.
    roles: HashMap<String, HashMap<String, Vec<PolicyRule>>>,
    cluster_bindings: Bindings,
    /// By namespace.
    bindings: HashMap<String, Bindings>,
    /// Names of users and groups that occur in bindings other than the defaults.
    granted: HashSet<String>,
}

/// The bindings of one scope, in order of their names.
#[derive(Debug, Default)]
struct Bindings {
    all: Vec<Binding>,
    /// Positions of bindings and, in them, of the subject, by user name. ServiceAccounts are users.
    by_user: HashMap<String, Vec<(usize, usize)>>,
    by_group: HashMap<String, Vec<(usize, usize)>>,
}

/// A binding that concerns a user, and what it grants.
struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
    rules: Result<&'a [PolicyRule], String>,
}

impl Policy {
    pub fn new(roles: impl IntoIterator<Item = Role>, bindings: impl IntoIterator<Item = Binding>) -> Self {
        let (cluster_roles, roles): (Vec<Role>, Vec<Role>) =
            roles.into_iter().partition(|role| role.metadata.namespace.is_empty());
        let mut policy = Self { cluster_roles: with_aggregates(cluster_roles), ..Self::default() };
        for role in roles {
            policy.roles.entry(role.metadata.namespace).or_default().insert(role.metadata.name, role.rules);
        }
        for binding in bindings {
            if !binding.metadata.labels.contains_key(BOOTSTRAPPING) {
                policy.granted.extend(binding.subjects.iter().filter_map(|subject| binding.name_of(subject)));
            }
            let namespace = &binding.metadata.namespace;
            match namespace.is_empty() {
                true => policy.cluster_bindings.add(binding),
                false => policy.bindings.entry(namespace.clone()).or_default().add(binding),
            }
        }
        policy
    }

    /// Whether a user may do what a request wants. Nobody is special here: `system:masters` is asked before.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        let mut missing = Vec::new();
        for grant in self.grants(user, &attributes.namespace) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allowed { reason: format!("RBAC: allowed by {}", grant.describe()) };
                }
                Ok(_) => {}
                Err(why) => missing.push(why.clone()),
            }
        }
        let reason = aggregate(missing).map(|why| format!("RBAC: {why}")).unwrap_or_default();
        Decision::Denied { reason }
    }

    /// Every rule that applies to a user in a namespace (or, if that is empty, everywhere), and what was not found.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Option<String>) {
        let mut rules = Vec::new();
        let mut missing = Vec::new();
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Ok(granted) => rules.extend_from_slice(granted),
                Err(why) => missing.push(why),
            }
        }
        (rules, aggregate(missing))
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub fn referenced(&self, role: &RoleRef, namespace: &str) -> Option<&[PolicyRule]> {
        let rules = match role.kind.as_str() {
            "Role" => self.roles.get(namespace)?.get(&role.name),
            "ClusterRole" => self.cluster_roles.get(&role.name),
            _ => None,
        };
        rules.map(Vec::as_slice)
    }

    /// The rules of a ClusterRole, those it takes from others included.
    pub fn cluster_role(&self, name: &str) -> Option<&[PolicyRule]> {
        self.cluster_roles.get(name).map(Vec::as_slice)
    }

    /// Whether anybody granted something to a user or one of its groups, anywhere, beyond the defaults.
    pub fn grants_anything_to(&self, user: &User) -> bool {
        self.granted.contains(&user.name) || user.groups.iter().any(|group| self.granted.contains(group))
    }

    fn grants(&self, user: &User, namespace: &str) -> Vec<Grant<'_>> {
        let local = self.bindings.get(namespace).filter(|_| !namespace.is_empty());
        let scopes = [("", Some(&self.cluster_bindings)), (namespace, local)];
        let mut grants = Vec::new();
        for (namespace, bindings) in scopes {
            let Some(bindings) = bindings else { continue };
            for (binding, subject) in bindings.of(user) {
                let rules = self.referenced(&binding.role_ref, namespace).ok_or_else(|| not_found(&binding.role_ref));
                grants.push(Grant { binding, subject, rules });
            }
        }
        grants
    }
}

fn not_found(role: &RoleRef) -> String {
    format!("{}.{GROUP} \"{}\" not found", role.kind.to_ascii_lowercase(), role.name)
}

/// Several errors as one text, each told once (upstream's `utilerrors.NewAggregate`).
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut seen = HashSet::new();
    let mut errors: Vec<String> = errors.into_iter().filter(|error| seen.insert(error.clone())).collect();
    match errors.len() {
        0 => None,
        1 => errors.pop(),
        _ => Some(format!("[{}]", errors.join(", "))),
    }
}

impl Bindings {
    fn add(&mut self, binding: Binding) {
        let at = self.all.len();
        for (index, subject) in binding.subjects.iter().enumerate() {
            let Some(name) = binding.name_of(subject) else { continue };
            let index_of = if subject.kind == "Group" { &mut self.by_group } else { &mut self.by_user };
            index_of.entry(name).or_default().push((at, index));
        }
        self.all.push(binding);
    }

    /// The bindings that concern a user, each once and with its first matching subject.
    fn of<'a>(&'a self, user: &User) -> impl Iterator<Item = (&'a Binding, &'a Subject)> + use<'a> {
        let by_group = user.groups.iter().filter_map(|group| self.by_group.get(group));
        let mut places: Vec<(usize, usize)> =
            self.by_user.get(&user.name).into_iter().chain(by_group).flatten().copied().collect();
        places.sort_unstable();
        places.dedup_by_key(|(binding, _)| *binding);
        places.into_iter().map(|(binding, subject)| (&self.all[binding], &self.all[binding].subjects[subject]))
    }
}

impl Grant<'_> {
    /// `RoleBinding "name/namespace" of Role "role" to User "bob"`.
    fn describe(&self) -> String {
        let Metadata { name, namespace, .. } = &self.binding.metadata;
        let RoleRef { kind, name: role } = &self.binding.role_ref;
        let Subject { kind: subject, name: who, namespace: whose } = self.subject;
        let (binding, binding_name) = match namespace.as_str() {
            "" => ("ClusterRoleBinding", name.clone()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let who = match (subject.as_str(), whose.as_str()) {
            ("ServiceAccount", "") => format!("{who}/{namespace}"),
            ("ServiceAccount", whose) => format!("{who}/{whose}"),
            _ => who.clone(),
        };
        format!("{binding} {} of {kind} {} to {subject} {}", quoted(&binding_name), quoted(role), quoted(&who))
    }
}

/// The rules of every ClusterRole. One with an aggregation rule has those of the roles it selects, and of the roles
/// these select in turn, whatever its own list says: upstream's controller overwrites that list.
fn with_aggregates(roles: Vec<Role>) -> HashMap<String, Vec<PolicyRule>> {
    let selectors: Vec<Vec<Selector>> = roles.iter().map(selectors).collect();
    let aggregated = |at: usize| {
        let mut rules: Vec<PolicyRule> = Vec::new();
        let mut seen = HashSet::from([at]);
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if roles[at].aggregation_rule.is_none() {
                for rule in &roles[at].rules {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
            for selector in &selectors[at] {
                let chosen = (0..roles.len()).filter(|other| selector.matches(&roles[*other].metadata.labels));
                let mut chosen: Vec<usize> = chosen.filter(|other| seen.insert(*other)).collect();
                // The last is looked at first, so that rules come in order of names.
                chosen.reverse();
                open.extend(chosen);
            }
        }
        rules
    };
    let rules: Vec<Vec<PolicyRule>> = (0..roles.len())
        .map(|at| if roles[at].aggregation_rule.is_some() { aggregated(at) } else { roles[at].rules.clone() })
        .collect();
    roles.into_iter().map(|role| role.metadata.name).zip(rules).collect()
}

fn selectors(role: &Role) -> Vec<Selector> {
    let rule = role.aggregation_rule.iter();
    rule.flat_map(|rule| &rule.cluster_role_selectors)
        .filter_map(|selector| Selector::from_label_selector(Some(selector)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn role(value: Value) -> Role {
        serde_json::from_value(value).unwrap()
    }

    fn binding(value: Value) -> Binding {
        serde_json::from_value(value).unwrap()
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..User::default()
        }
    }

    fn reads_jobs() -> Value {
        json!([{"verbs": ["get", "list"], "apiGroups": ["batch"], "resources": ["jobs"]}])
    }

    fn policy() -> Policy {
        let roles = [
            json!({"metadata": {"name": "reader", "namespace": "a"}, "rules": reads_jobs()}),
            json!({"metadata": {"name": "reader"}, "rules": reads_jobs()}),
            json!({"metadata": {"name": "nothing", "namespace": "a"}, "rules": null}),
        ];
        let to = |kind: &str, name: &str| json!({"kind": kind, "name": name});
        let bindings = [
            json!({"metadata": {"name": "local", "namespace": "a"}, "roleRef": to("Role", "reader"),
                   "subjects": [to("User", "ann"), to("ServiceAccount", "worker")]}),
            json!({"metadata": {"name": "shared", "namespace": "b"}, "roleRef": to("ClusterRole", "reader"),
                   "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": "a"}]}),
            json!({"metadata": {"name": "everywhere"}, "roleRef": to("ClusterRole", "reader"),
                   "subjects": [to("Group", "ops"), to("ServiceAccount", "homeless")]}),
            json!({"metadata": {"name": "dangling", "namespace": "c"}, "roleRef": to("Role", "gone"),
                   "subjects": [to("User", "ann")]}),
        ];
        Policy::new(roles.map(role), bindings.map(binding))
    }

    fn decide(user: &User, verb: &str, namespace: &str) -> Decision {
        let text = |text: &str| text.to_owned();
        policy().decide(
            user,
            &Attributes {
                verb: text(verb),
                group: text("batch"),
                resource: text("jobs"),
                namespace: text(namespace),
                ..Attributes::default()
            },
        )
    }

    /// AS-60.
    #[test]
    fn bindings_grant_their_role_to_their_subjects_in_their_namespace() {
        let worker = user("system:serviceaccount:a:worker", &[]);
        let cases = [
            (user("ann", &[]), "list", "a", true),
            (user("ann", &[]), "create", "a", false),
            (user("ann", &[]), "list", "b", false),
            (user("ann", &[]), "list", "", false),
            (user("bob", &[]), "list", "a", false),
            (worker.clone(), "list", "a", true),
            (worker, "list", "b", true),
            (user("system:serviceaccount:b:worker", &[]), "list", "b", false),
            (user("system:serviceaccount::homeless", &[]), "list", "a", false),
            (user("bob", &["ops"]), "list", "anywhere", true),
            (user("bob", &["ops"]), "list", "", true),
            (user("ops", &[]), "list", "", false),
        ];
        for (user, verb, namespace, expected) in cases {
            assert_eq!(decide(&user, verb, namespace).is_allowed(), expected, "{user:?} {verb} in {namespace:?}");
        }
    }

    /// AS-62: reasons name the binding that allows, or the role that is missing.
    #[test]
    fn decisions_have_reasons() {
        let cases = [
            (user("ann", &[]), "a", "RBAC: allowed by RoleBinding \"local/a\" of Role \"reader\" to User \"ann\""),
            (
                user("system:serviceaccount:a:worker", &[]),
                "a",
                "RBAC: allowed by RoleBinding \"local/a\" of Role \"reader\" to ServiceAccount \"worker/a\"",
            ),
            (
                user("bob", &["ops"]),
                "",
                "RBAC: allowed by ClusterRoleBinding \"everywhere\" of ClusterRole \"reader\" to Group \"ops\"",
            ),
            (user("ann", &[]), "c", "RBAC: role.rbac.authorization.k8s.io \"gone\" not found"),
            (user("bob", &[]), "c", ""),
        ];
        for (user, namespace, expected) in cases {
            assert_eq!(decide(&user, "list", namespace).reason(), expected);
        }
    }

    #[test]
    fn a_binding_counts_once_however_often_it_names_a_user() {
        let (rules, missing) = policy().rules_for(&user("ann", &["ops"]), "a");
        assert_eq!((rules.len(), missing), (2, None));
        let (rules, missing) = policy().rules_for(&user("ann", &[]), "c");
        assert_eq!(rules, []);
        assert_eq!(missing.as_deref(), Some("role.rbac.authorization.k8s.io \"gone\" not found"));
    }

    #[test]
    fn grants_beyond_the_defaults_are_known() {
        let policy = policy();
        for (user, expected) in [
            (user("ann", &[]), true),
            (user("bob", &["ops"]), true),
            (user("system:serviceaccount:a:worker", &[]), true),
            (user("system:serviceaccount:b:worker", &["system:serviceaccounts"]), false),
        ] {
            assert_eq!(policy.grants_anything_to(&user), expected, "{user:?}");
        }
    }

    #[test]
    fn aggregated_roles_have_the_rules_of_those_they_select() {
        let to = |label: &str| json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        let verbs = |verb: &str| json!([{"verbs": [verb], "apiGroups": ["x"], "resources": ["y"]}]);
        let roles = [
            json!({"metadata": {"name": "admin"}, "aggregationRule": to("to-admin"), "rules": verbs("stale")}),
            json!({"metadata": {"name": "edit", "labels": {"to-admin": "true"}}, "aggregationRule": to("to-edit")}),
            json!({"metadata": {"name": "editing", "labels": {"to-edit": "true"}}, "rules": verbs("update")}),
            // A circle does no harm.
            json!({"metadata": {"name": "ring", "labels": {"to-ring": "true"}}, "aggregationRule": to("to-ring")}),
            json!({"metadata": {"name": "zeal", "labels": {"to-admin": "true"}}, "rules": verbs("delete")}),
        ];
        let policy = Policy::new(roles.map(role), []);
        let verbs = |name: &str| {
            let rules = policy.cluster_role(name).unwrap().iter();
            rules.map(|rule| rule.verbs.join(" ")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            [verbs("admin"), verbs("edit"), verbs("ring"), verbs("zeal")],
            ["update delete", "update", "", "delete"]
        );
    }
}
