//! A caller: name, groups and what else its credentials say (AS-56, AS-58).

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use batch_types::names;
use serde_json::{Map, Value, json};

/// Members of this group may do everything; nothing is looked up for them.
pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
/// Every ServiceAccount is in this group and, with `:NAMESPACE` appended, in that of its namespace.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// An authenticated, impersonated or anonymous caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    /// What the credentials say besides, by qualified name: the pod of a bound token, for example.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn anonymous() -> Arc<Self> {
        static USER: LazyLock<Arc<User>> = LazyLock::new(|| User::shared(ANONYMOUS, &[UNAUTHENTICATED]));
        Arc::clone(&USER)
    }

    /// Whoever has the token of the kubeconfig.
    pub fn administrator() -> Arc<Self> {
        static USER: LazyLock<Arc<User>> =
            LazyLock::new(|| User::shared("kubernetes-admin", &[MASTERS, AUTHENTICATED]));
        Arc::clone(&USER)
    }

    /// The controllers, scheduler and node of the same process (design D1).
    pub fn in_process() -> Arc<Self> {
        static USER: LazyLock<Arc<User>> = LazyLock::new(|| User::shared("system:tally", &[MASTERS, AUTHENTICATED]));
        Arc::clone(&USER)
    }

    fn shared(name: &str, groups: &[&str]) -> Arc<Self> {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        Arc::new(Self { name: name.to_owned(), groups, ..Self::default() })
    }

    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// `UserInfo` as reviews show it; empty members are left out.
    pub fn to_value(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".to_owned(), json!(self.name));
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// `system:serviceaccount:NAMESPACE:NAME`.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Namespace and name of the ServiceAccount that goes by this user name, if it can be one.
pub fn split_service_account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty()).then_some((namespace, name))
}

/// The groups that follow from being a ServiceAccount of a namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_have_names_that_can_be_taken_apart() {
        assert_eq!(split_service_account_name(&service_account_name("a", "b.c")), Some(("a", "b.c")));
        for other in ["bob", "system:serviceaccount:a", "system:serviceaccount:a:b:c", "system:serviceaccount::b"] {
            assert_eq!(split_service_account_name(other), None, "{other}");
        }
    }

    /// AS-64: a user without uid and extra shows neither.
    #[test]
    fn empty_members_are_not_shown() {
        let shown = User::administrator().to_value().to_string();
        assert_eq!(shown, r#"{"username":"kubernetes-admin","groups":["system:masters","system:authenticated"]}"#);
    }
}
