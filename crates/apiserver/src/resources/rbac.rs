//! Roles and bindings (upstream's `pkg/apis/rbac`): defaults, validation, what may change.
//!
//! What they allow is decided in `auth::rbac`, who may write them beyond being allowed to in `auth::escalation`.

use batch_types::{
    field::{Error, Path},
    gates::Gates,
    names::{self, NameRule},
    selector::{self, Tolerance},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    Context, Strategy,
    metadata::{self, Scope},
    values::{items, present, set, text},
};
pub use crate::auth::rbac::GROUP;

/// `roles` and `clusterroles`.
#[derive(Debug)]
pub struct Role {
    pub scope: Scope,
}

/// `rolebindings` and `clusterrolebindings`.
#[derive(Debug)]
pub struct Binding {
    pub scope: Scope,
}

impl Strategy for Role {
    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        self.check(object, Tolerance::default())
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        // What a role already selects by may stay, however it is written.
        let is_tolerated = selectors(old).any(|selector| selector::has_invalid_label_value(selector.as_ref()));
        let mut errors = self.check(new, Tolerance { invalid_label_values: is_tolerated });
        errors.extend(metadata::validate_update(new, old));
        errors
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

impl Role {
    fn check(&self, object: &Value, tolerance: Tolerance) -> Vec<Error> {
        let mut errors = metadata::validate(object, self.scope, NameRule::PathSegment);
        let rules = Path::new("rules");
        for (at, rule) in items(object, "/rules").iter().enumerate() {
            errors.extend(check_rule(rule, self.scope, &rules.index(at)));
        }
        if present(object, "/aggregationRule").is_some() {
            let path = Path::new("aggregationRule").child("clusterRoleSelectors");
            if items(object, "/aggregationRule/clusterRoleSelectors").is_empty() {
                let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(Error::required(&path, detail));
            }
            for (at, selector) in selectors(object).enumerate() {
                if let Some(selector) = selector {
                    errors.extend(selector::validate(&selector, tolerance, &path.index(at)));
                }
            }
        }
        errors
    }
}

fn selectors(role: &Value) -> impl Iterator<Item = Option<LabelSelector>> {
    items(role, "/aggregationRule/clusterRoleSelectors")
        .iter()
        .map(|selector| LabelSelector::deserialize(selector).ok())
}

fn check_rule(rule: &Value, scope: Scope, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let is_empty = |member: &str| items(rule, member).is_empty();
    if is_empty("/verbs") {
        errors.push(Error::required(&path.child("verbs"), "verbs must contain at least one value"));
    }
    if !is_empty("/nonResourceURLs") {
        let path = path.child("nonResourceURLs");
        let shown = rule["nonResourceURLs"].clone();
        if scope == Scope::Namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(Error::invalid(&path, shown.clone(), detail));
        }
        if !(is_empty("/apiGroups") && is_empty("/resources") && is_empty("/resourceNames")) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(Error::invalid(&path, shown, detail));
        }
        return errors;
    }
    if is_empty("/apiGroups") {
        errors.push(Error::required(&path.child("apiGroups"), "resource rules must supply at least one api group"));
    }
    if is_empty("/resources") {
        errors.push(Error::required(&path.child("resources"), "resource rules must supply at least one resource"));
    }
    errors
}

impl Strategy for Binding {
    /// The group of roles, users and groups is this one.
    fn default(&self, object: &mut Value, _gates: &Gates) {
        if object["roleRef"].is_object() && text(object, "/roleRef/apiGroup").is_empty() {
            set(&mut object["roleRef"], "apiGroup", GROUP);
        }
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if text(subject, "/apiGroup").is_empty() && matches!(text(subject, "/kind"), "User" | "Group") {
                set(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        self.check(object)
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let mut errors = self.check(new);
        errors.extend(metadata::validate_update(new, old));
        if new["roleRef"] != old["roleRef"] {
            // Upstream shows its internal type, whose members have no JSON names.
            let member = |name: &str| text(&new["roleRef"], name);
            let shown = json!({"APIGroup": member("/apiGroup"), "Kind": member("/kind"), "Name": member("/name")});
            errors.push(Error::invalid(&Path::new("roleRef"), shown, "cannot change roleRef"));
        }
        errors
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

impl Binding {
    fn check(&self, object: &Value) -> Vec<Error> {
        let mut errors = metadata::validate(object, self.scope, NameRule::PathSegment);
        errors.extend(self.check_role(object));
        let subjects = Path::new("subjects");
        for (at, subject) in items(object, "/subjects").iter().enumerate() {
            errors.extend(self.check_subject(subject, &subjects.index(at)));
        }
        errors
    }

    fn check_role(&self, object: &Value) -> Vec<Error> {
        let mut errors = Vec::new();
        let role = Path::new("roleRef");
        let member = |name: &str| text(&object["roleRef"], &format!("/{name}"));
        if member("apiGroup") != GROUP {
            errors.push(Error::not_supported(&role.child("apiGroup"), member("apiGroup"), &[GROUP]));
        }
        let kinds: &[&str] = match self.scope {
            Scope::Namespaced => &["Role", "ClusterRole"],
            Scope::Cluster => &["ClusterRole"],
        };
        if !kinds.contains(&member("kind")) {
            errors.push(Error::not_supported(&role.child("kind"), member("kind"), kinds));
        }
        match member("name") {
            "" => errors.push(Error::required(&role.child("name"), "")),
            name => errors.extend(invalid_names(&role.child("name"), name, names::path_segment(name))),
        }
        errors
    }

    fn check_subject(&self, subject: &Value, path: &Path) -> Vec<Error> {
        let mut errors = Vec::new();
        let [name, group] = ["/name", "/apiGroup"].map(|member| text(subject, member));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        match text(subject, "/kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.extend(invalid_names(&path.child("name"), name, names::dns_subdomain(name)));
                }
                if !group.is_empty() {
                    errors.push(Error::not_supported(&path.child("apiGroup"), group, &[""]));
                }
                if self.scope == Scope::Cluster && text(subject, "/namespace").is_empty() {
                    errors.push(Error::required(&path.child("namespace"), ""));
                }
            }
            "User" | "Group" if group != GROUP => {
                errors.push(Error::not_supported(&path.child("apiGroup"), group, &[GROUP]));
            }
            "User" | "Group" => {}
            other => {
                let kinds = &["ServiceAccount", "User", "Group"];
                errors.push(Error::not_supported(&path.child("kind"), other, kinds));
            }
        }
        errors
    }
}

fn invalid_names(path: &Path, name: &str, why: Vec<String>) -> Vec<Error> {
    why.into_iter().map(|why| Error::invalid(path, name, why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, named, texts};

    fn namespaced(kind: &str, members: Value) -> Value {
        named("rbac.authorization.k8s.io/v1", kind, "demo", members)
    }

    fn cluster(kind: &str, members: Value) -> Value {
        let mut object = namespaced(kind, members);
        crate::resources::values::remove(&mut object["metadata"], "namespace");
        object
    }

    fn reads_pods() -> Value {
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})
    }

    #[test]
    fn rules_name_verbs_and_resources_or_paths() {
        let url = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        let both = json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]});
        let shown = "rules[0].nonResourceURLs: Invalid value: [\"/x\"]:";
        let cases = [
            (Scope::Namespaced, json!([reads_pods()]), vec![]),
            (Scope::Namespaced, json!(null), vec![]),
            (Scope::Cluster, json!([url]), vec![]),
            (
                Scope::Namespaced,
                json!([{}]),
                vec![
                    "rules[0].verbs: Required value: verbs must contain at least one value".to_owned(),
                    "rules[0].apiGroups: Required value: resource rules must supply at least one api group".to_owned(),
                    "rules[0].resources: Required value: resource rules must supply at least one resource".to_owned(),
                ],
            ),
            (
                Scope::Namespaced,
                json!([url]),
                vec![format!("{shown} namespaced rules cannot apply to non-resource URLs")],
            ),
            (
                Scope::Cluster,
                json!([both]),
                vec![format!("{shown} rules cannot apply to both regular resources and non-resource URLs")],
            ),
        ];
        for (scope, rules, expected) in cases {
            let members = json!({ "rules": rules });
            let role = match scope {
                Scope::Namespaced => namespaced("Role", members),
                Scope::Cluster => cluster("ClusterRole", members),
            };
            assert_eq!(texts(Role { scope }.validate(&role, &context())), expected, "{role}");
        }
    }

    #[test]
    fn names_may_have_colons() {
        let mut role = cluster("ClusterRole", json!({"rules": []}));
        role["metadata"]["name"] = json!("system:x");
        assert_eq!(texts(Role { scope: Scope::Cluster }.validate(&role, &context())), [""; 0]);
        role["metadata"]["name"] = json!("a/b");
        assert_eq!(
            texts(Role { scope: Scope::Cluster }.validate(&role, &context())),
            ["metadata.name: Invalid value: \"a/b\": may not contain '/'"]
        );
    }

    #[test]
    fn an_aggregation_rule_selects_something() {
        let role = |selectors: Value| {
            cluster("ClusterRole", json!({"rules": null, "aggregationRule": {"clusterRoleSelectors": selectors}}))
        };
        let strategy = Role { scope: Scope::Cluster };
        assert_eq!(
            texts(strategy.validate(&role(json!(null)), &context())),
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
            ]
        );
        let wrong = role(json!([{"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}]));
        assert_eq!(strategy.validate(&wrong, &context()).len(), 1);
        assert_eq!(texts(strategy.validate_update(&wrong, &wrong, &context())), [""; 0]);
    }

    fn binding(role: Value, subjects: Value) -> Value {
        let mut binding = namespaced("RoleBinding", json!({"subjects": subjects, "roleRef": role}));
        Strategy::default(&Binding { scope: Scope::Namespaced }, &mut binding, context().gates);
        binding
    }

    #[test]
    fn groups_are_filled_in() {
        let subjects = json!([
            {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s"},
        ]);
        let binding = binding(json!({"kind": "Role", "name": "r"}), subjects);
        assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
        let groups = items(&binding, "/subjects").iter().map(|subject| text(subject, "/apiGroup"));
        assert_eq!(groups.collect::<Vec<_>>(), [GROUP, GROUP, ""]);
        assert_eq!(texts(Binding { scope: Scope::Namespaced }.validate(&binding, &context())), [""; 0]);
    }

    #[test]
    fn roles_and_subjects_are_of_known_kinds() {
        let role = json!({"kind": "Role", "name": "r"});
        let cases = [
            (
                json!({"kind": "Rule", "name": ""}),
                json!([]),
                vec![
                    "roleRef.kind: Unsupported value: \"Rule\": supported values: \"Role\", \"ClusterRole\"",
                    "roleRef.name: Required value",
                ],
            ),
            (
                json!({"apiGroup": "x", "kind": "Role", "name": "r"}),
                json!([{"kind": "Robot", "name": "r"}]),
                vec![
                    "roleRef.apiGroup: Unsupported value: \"x\": supported values: \"rbac.authorization.k8s.io\"",
                    "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
                ],
            ),
            (role.clone(), json!([{"kind": "User"}]), vec!["subjects[0].name: Required value"]),
            (
                role,
                json!([{"kind": "ServiceAccount", "name": "s", "apiGroup": "x"}]),
                vec!["subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"\""],
            ),
        ];
        for (role, subjects, expected) in cases {
            let binding = binding(role, subjects);
            assert_eq!(texts(Binding { scope: Scope::Namespaced }.validate(&binding, &context())), expected);
        }
        let local = cluster(
            "ClusterRoleBinding",
            json!({"subjects": [{"kind": "ServiceAccount", "name": "s"}],
                   "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}}),
        );
        assert_eq!(
            texts(Binding { scope: Scope::Cluster }.validate(&local, &context())),
            [
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "subjects[0].namespace: Required value"
            ]
        );
    }

    #[test]
    fn the_role_of_a_binding_is_final() {
        let old = binding(json!({"kind": "Role", "name": "r"}), json!([]));
        let new = binding(json!({"kind": "Role", "name": "q"}), json!([{"kind": "User", "name": "u"}]));
        let strategy = Binding { scope: Scope::Namespaced };
        assert_eq!(
            texts(strategy.validate_update(&new, &old, &context())),
            [
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"q\"}: cannot change roleRef"
            ]
        );
    }
}
