//! Bindings as rows; roles are printed by the converter for kinds nobody wrote one for.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Printer, Row, age::age};
use crate::resources::values::{items, text};

pub(super) static ROLE_BINDINGS: Printer = Printer {
    columns: &[
        Column::name("Name of the RoleBinding, unique in its namespace"),
        Column::text("Role", "Kind and name of the role that is granted"),
        Column::age(),
        Column::text("Users", "Users in the roleBinding").wide(),
        Column::text("Groups", "Groups in the roleBinding").wide(),
        Column::text("ServiceAccounts", "ServiceAccounts in the roleBinding").wide(),
    ],
    row,
};

pub(super) static CLUSTER_ROLE_BINDINGS: Printer = Printer {
    columns: &[
        Column::name("Name of the ClusterRoleBinding"),
        Column::text("Role", "Kind and name of the role that is granted"),
        Column::age(),
        Column::text("Users", "Users in the clusterRoleBinding").wide(),
        Column::text("Groups", "Groups in the clusterRoleBinding").wide(),
        Column::text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding").wide(),
    ],
    row,
};

fn row(object: &Value, now: Timestamp) -> Row {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    Row::of(vec![
        json!(text(object, "/metadata/name")),
        json!(role),
        json!(age(object, now)),
        json!(subjects(object, "User")),
        json!(subjects(object, "Group")),
        json!(subjects(object, "ServiceAccount")),
    ])
}

/// The subjects of one kind. ServiceAccounts are told with their namespace, even one that is left out.
fn subjects(object: &Value, kind: &str) -> String {
    let name = |subject: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
        _ => text(subject, "/name").to_owned(),
    };
    let of_kind = items(object, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
    of_kind.map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells as upstream's `printRoleBinding` makes them.
    #[test]
    fn subjects_are_told_by_kind() {
        let now: Timestamp = "2024-05-01T10:00:09Z".parse().expect("a time");
        let binding = json!({
            "metadata": {"name": "demo", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "User", "name": "ann"},
                {"kind": "Group", "name": "ops"},
                {"kind": "ServiceAccount", "name": "worker", "namespace": "a"},
                {"kind": "ServiceAccount", "name": "local"},
                {"kind": "User", "name": "bob"},
            ],
        });
        assert_eq!(
            Value::from(row(&binding, now).cells),
            json!(["demo", "ClusterRole/view", "9s", "ann, bob", "ops", "a/worker, /local"])
        );
    }
}
