//! The roles and bindings that exist from the first second, as far as they concern what is served (upstream's
//! `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`).
//!
//! They are made when they are missing; one that still says it wants to be kept up to date gets back what was taken
//! from it at the next start.

use serde_json::{Value, json};

use super::{GROUP, policy::Policy, policy::Role, rule::PolicyRule};

/// Says that a default may be completed when the server starts.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The label of all defaults.
pub const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
const READ_WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// One rule of a default role.
enum Rule {
    /// Verbs, API groups, resources.
    Resources(&'static [&'static str], &'static [&'static str], &'static [&'static str]),
    /// Paths that may be read.
    Urls(&'static [&'static str]),
    /// Everything there is.
    All,
}

/// A default ClusterRole.
struct Default {
    name: &'static str,
    /// The role whose rules it adds to.
    part_of: &'static str,
    /// It has the rules of roles that are part of it, and none of its own.
    is_aggregated: bool,
    rules: &'static [Rule],
}

const PLAIN: Default = Default { name: "", part_of: "", is_aggregated: false, rules: &[] };

const ROLES: &[Default] = &[
    Default { name: "admin", is_aggregated: true, ..PLAIN },
    Default { name: "cluster-admin", rules: &[Rule::All], ..PLAIN },
    Default { name: "edit", part_of: "admin", is_aggregated: true, ..PLAIN },
    Default {
        name: "system:aggregate-to-admin",
        part_of: "admin",
        rules: &[
            Rule::Resources(&["create"], &[AUTHORIZATION], &["localsubjectaccessreviews"]),
            Rule::Resources(READ_WRITE, &[GROUP], &["roles", "rolebindings"]),
        ],
        ..PLAIN
    },
    Default {
        name: "system:aggregate-to-edit",
        part_of: "edit",
        rules: &[
            Rule::Resources(READ, &[""], &["secrets"]),
            Rule::Resources(&["impersonate"], &[""], &["serviceaccounts"]),
            Rule::Resources(WRITE, &[""], &["pods"]),
            Rule::Resources(&["create"], &[""], &["pods/eviction"]),
            Rule::Resources(WRITE, &[""], &["serviceaccounts", "configmaps", "secrets"]),
            Rule::Resources(&["create"], &[""], &["serviceaccounts/token"]),
            Rule::Resources(WRITE, &["", "events.k8s.io"], &["events"]),
            Rule::Resources(WRITE, &["batch"], &["jobs", "cronjobs"]),
            Rule::Resources(READ_WRITE, &["coordination.k8s.io"], &["leases"]),
        ],
        ..PLAIN
    },
    Default {
        name: "system:aggregate-to-view",
        part_of: "view",
        rules: &[
            Rule::Resources(READ, &[""], &["pods", "serviceaccounts", "configmaps"]),
            Rule::Resources(
                READ,
                &[""],
                &[
                    "limitranges",
                    "resourcequotas",
                    "bindings",
                    "pods/status",
                    "resourcequotas/status",
                    "namespaces/status",
                    "pods/log",
                ],
            ),
            // Inside a namespace, this is the right to read that namespace.
            Rule::Resources(READ, &[""], &["namespaces"]),
            Rule::Resources(READ, &["", "events.k8s.io"], &["events"]),
            Rule::Resources(READ, &["batch"], &["jobs", "cronjobs", "cronjobs/status", "jobs/status"]),
        ],
        ..PLAIN
    },
    Default {
        name: "system:auth-delegator",
        rules: &[
            Rule::Resources(&["create"], &[AUTHENTICATION], &["tokenreviews"]),
            Rule::Resources(&["create"], &[AUTHORIZATION], &["subjectaccessreviews"]),
        ],
        ..PLAIN
    },
    Default {
        name: "system:basic-user",
        rules: &[
            Rule::Resources(&["create"], &[AUTHORIZATION], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
            Rule::Resources(&["create"], &[AUTHENTICATION], &["selfsubjectreviews"]),
        ],
        ..PLAIN
    },
    Default {
        name: "system:discovery",
        rules: &[Rule::Urls(&[
            "/livez",
            "/readyz",
            "/healthz",
            "/version",
            "/version/",
            "/openapi",
            "/openapi/*",
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
        ])],
        ..PLAIN
    },
    Default {
        name: "system:monitoring",
        rules: &[Rule::Urls(&[
            "/metrics",
            "/metrics/slis",
            "/livez",
            "/readyz",
            "/healthz",
            "/livez/*",
            "/readyz/*",
            "/healthz/*",
        ])],
        ..PLAIN
    },
    Default {
        name: "system:public-info-viewer",
        rules: &[Rule::Urls(&["/livez", "/readyz", "/healthz", "/version", "/version/"])],
        ..PLAIN
    },
    Default {
        name: "system:service-account-issuer-discovery",
        rules: &[Rule::Urls(&[
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        ])],
        ..PLAIN
    },
    Default { name: "view", part_of: "edit", is_aggregated: true, ..PLAIN },
];

/// Default ClusterRoleBindings: the role, which gives them their name, and the groups that have it.
const BINDINGS: &[(&str, &[&str])] = &[
    ("cluster-admin", &["system:masters"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:monitoring", &["system:monitoring"]),
    ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
];

/// `(name, ClusterRole)` of every default role. Aggregated ones already have the rules they gather.
pub fn cluster_roles() -> Vec<(&'static str, Value)> {
    let mut roles: Vec<(&str, Value)> = ROLES.iter().map(|role| (role.name, role.to_value())).collect();
    let typed = roles.iter().map(|(_, role)| serde_json::from_value::<Role>(role.clone()));
    let policy = Policy::new(typed.map(|role| role.expect("the table above makes roles")), []);
    for (role, (name, value)) in ROLES.iter().zip(&mut roles) {
        if role.is_aggregated {
            value["rules"] = json!(policy.cluster_role(name));
        }
    }
    roles
}

/// `(name, ClusterRoleBinding)` of every default binding.
pub fn cluster_role_bindings() -> Vec<(&'static str, Value)> {
    let binding = |(name, groups): &(&'static str, &[&str])| {
        let subjects: Vec<Value> =
            groups.iter().map(|group| json!({"kind": "Group", "apiGroup": GROUP, "name": group})).collect();
        let value = json!({
            "kind": "ClusterRoleBinding",
            "apiVersion": format!("{GROUP}/v1"),
            "metadata": metadata(name, json!({})),
            "subjects": subjects,
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        });
        (*name, value)
    };
    BINDINGS.iter().map(binding).collect()
}

impl Default {
    fn to_value(&self) -> Value {
        let label = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        let labels = if self.part_of.is_empty() { json!({}) } else { json!({label(self.part_of): "true"}) };
        let rules: Vec<PolicyRule> = self.rules.iter().flat_map(Rule::rules).collect();
        let mut role = json!({
            "kind": "ClusterRole",
            "apiVersion": format!("{GROUP}/v1"),
            "metadata": metadata(self.name, labels),
            "rules": rules,
        });
        if self.is_aggregated {
            let selector = json!({"matchLabels": {label(self.name): "true"}});
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        role
    }
}

impl Rule {
    fn rules(&self) -> Vec<PolicyRule> {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let urls = |verb: &str, urls: &[&str]| PolicyRule {
            verbs: list(&[verb]),
            non_resource_urls: list(urls),
            ..PolicyRule::default()
        };
        let resources = |verbs: &[&str], groups: &[&str], resources: &[&str]| PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            ..PolicyRule::default()
        };
        match self {
            Self::Resources(verbs, groups, names) => vec![resources(verbs, groups, names)],
            Self::Urls(paths) => vec![urls("get", paths)],
            Self::All => vec![resources(&["*"], &["*"], &["*"]), urls("*", &["*"])],
        }
    }
}

fn metadata(name: &str, mut labels: Value) -> Value {
    labels[BOOTSTRAPPING] = json!("rbac-defaults");
    json!({"name": name, "labels": labels, "annotations": {AUTO_UPDATE: "true"}})
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{
        auth::{rbac::Binding, user::User},
        query::Query,
        route,
    };

    fn policy() -> Policy {
        let roles = cluster_roles().into_iter().map(|(_, role)| serde_json::from_value(role).unwrap());
        let bindings = cluster_role_bindings().into_iter().map(|(_, role)| serde_json::from_value(role).unwrap());
        let local =
            json!({"metadata": {"name": "x", "namespace": "a"}, "roleRef": {"kind": "ClusterRole", "name": ""}});
        let locals = ["admin", "edit", "view"].map(|role| {
            let mut binding = local.clone();
            binding["roleRef"]["name"] = json!(role);
            binding["subjects"] = json!([{"kind": "User", "name": role}]);
            serde_json::from_value::<Binding>(binding).unwrap()
        });
        Policy::new(roles, bindings.chain(locals))
    }

    fn may(policy: &Policy, user: &User, request: &str) -> bool {
        let (method, path) = request.split_once(' ').unwrap();
        let attributes = route::attributes(&method.parse::<Method>().unwrap(), path, &Query::default());
        policy.decide(user, &attributes).is_allowed()
    }

    /// BI-22, INV-51.
    #[test]
    fn anonymous_callers_may_read_health_and_version_only() {
        let policy = policy();
        for path in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
            assert!(may(&policy, &User::anonymous(), &format!("GET {path}")), "{path}");
        }
        for path in ["/metrics", "/api", "/apis", "/api/v1/pods", "/healthzz", "/openapi/v2", "/readyz/ping"] {
            assert!(!may(&policy, &User::anonymous(), &format!("GET {path}")), "{path}");
        }
    }

    #[test]
    fn roles_allow_what_their_names_say() {
        let policy = policy();
        let named = |name: &str| User { name: name.to_owned(), ..User::default() };
        let [jobs, role] =
            ["/apis/batch/v1/namespaces/a/jobs", "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles"];
        let token = "/api/v1/namespaces/a/serviceaccounts/x/token";
        let cases = [
            (format!("GET {jobs}"), [true, true, true]),
            (format!("GET {jobs}/x/status"), [true, true, true]),
            (format!("POST {jobs}"), [true, true, false]),
            (format!("PUT {jobs}/x/status"), [false, false, false]),
            (format!("POST {token}"), [true, true, false]),
            ("GET /api/v1/namespaces/a/secrets".to_owned(), [true, true, false]),
            ("GET /api/v1/namespaces/a/pods/p/log".to_owned(), [true, true, true]),
            ("GET /api/v1/namespaces/a".to_owned(), [true, true, true]),
            ("DELETE /api/v1/namespaces/a".to_owned(), [false, false, false]),
            (format!("POST {role}"), [true, false, false]),
            ("GET /api/v1/namespaces/b/pods".to_owned(), [false, false, false]),
            ("GET /api/v1/nodes".to_owned(), [false, false, false]),
        ];
        for (request, expected) in cases {
            let found = ["admin", "edit", "view"].map(|name| may(&policy, &named(name), &request));
            assert_eq!(found, expected, "{request}");
        }
    }

    #[test]
    fn everybody_known_may_discover_and_ask_about_themselves() {
        let policy = policy();
        let user = User { groups: vec!["system:authenticated".to_owned()], ..User::default() };
        for request in [
            "GET /api",
            "GET /apis/batch/v1",
            "GET /openapi/v3",
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
        ] {
            assert!(may(&policy, &user, request), "{request}");
        }
        assert!(!may(&policy, &user, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"));
    }

    #[test]
    fn roles_that_gather_have_their_rules_from_the_start() {
        for (name, role) in cluster_roles() {
            assert!(role["rules"].as_array().is_some_and(|rules| !rules.is_empty()), "{name}");
        }
    }
}
