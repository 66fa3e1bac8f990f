//! Objects as table rows, the form `kubectl get` asks for (AS-159…AS-169, JA-T1…JA-T7).
//!
//! Pure: a resource and an object in, columns and cells out. Wrapping rows into a `Table`, the `object` member and
//! content negotiation belong to the response layer. All columns are always sent; clients hide those of priority 1.

mod age;
mod cronjob;
mod event;
mod job;
mod node;
mod pod;
mod quota;
mod rbac;
mod selector;
mod simple;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::Resource;

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    name: &'static str,
    /// What the cell is declared as; the cell itself may differ (a count in a `string` column, JA-T1).
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    /// 0 is always shown, 1 only by `-o wide`.
    priority: u8,
}

/// How one kind is printed.
struct Printer {
    columns: &'static [Column],
    row: fn(&Value, Timestamp) -> Row,
}

/// The cells of one object, and what the row as a whole says about it.
struct Row {
    cells: Vec<Value>,
    /// `Completed` for pods that have ended, so that clients can leave them out.
    conditions: Vec<Value>,
}

impl Row {
    fn of(cells: Vec<Value>) -> Self {
        Self { cells, conditions: Vec::new() }
    }
}

/// `columnDefinitions` of the resource's table.
pub fn columns(resource: &Resource) -> Vec<Value> {
    printer(resource).columns.iter().copied().map(Column::to_value).collect()
}

/// `{"cells": […]}` of one object, with `conditions` where there are any. The `object` member is the caller's.
///
/// The object may be in the served or in the stored version: both forms of an event are understood.
pub fn row(resource: &Resource, object: &Value, now: Timestamp) -> Value {
    let Row { cells, conditions } = (printer(resource).row)(object, now);
    if conditions.is_empty() { json!({ "cells": cells }) } else { json!({ "cells": cells, "conditions": conditions }) }
}

/// Whether upstream has no printer for the resource and shows names and times only.
pub fn is_default(resource: &Resource) -> bool {
    std::ptr::eq(printer(resource), &simple::DEFAULT)
}

fn printer(resource: &Resource) -> &'static Printer {
    match (resource.group, resource.plural) {
        ("batch", "jobs") => &job::PRINTER,
        ("batch", "cronjobs") => &cronjob::PRINTER,
        ("", "pods") => &pod::PRINTER,
        ("" | "events.k8s.io", "events") => &event::PRINTER,
        ("", "nodes") => &node::PRINTER,
        ("", "namespaces") => &simple::NAMESPACES,
        ("", "configmaps") => &simple::CONFIG_MAPS,
        ("", "resourcequotas") => &quota::PRINTER,
        ("", "secrets") => &simple::SECRETS,
        ("", "serviceaccounts") => &simple::SERVICE_ACCOUNTS,
        ("coordination.k8s.io", "leases") => &simple::LEASES,
        ("scheduling.k8s.io", "priorityclasses") => &simple::PRIORITY_CLASSES,
        ("rbac.authorization.k8s.io", "rolebindings") => &rbac::ROLE_BINDINGS,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => &rbac::CLUSTER_ROLE_BINDINGS,
        _ => &simple::DEFAULT,
    }
}

impl Column {
    /// The Name column is the only one with a format.
    const fn name(description: &'static str) -> Self {
        Self { name: "Name", kind: "string", format: "name", description, priority: 0 }
    }

    const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0 }
    }

    const fn age() -> Self {
        Self::text("Age", "Time since the object was created")
    }

    const fn of_type(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// Shown by `-o wide` only.
    const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    fn to_value(self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::registry;

    /// Column names with type (when not `string`) and `*` for priority 1, as AS-162 lists them.
    fn shape(group: &str, plural: &str) -> String {
        let resource = registry::find(group, "v1", plural).expect("a served resource");
        let names: Vec<String> = columns(resource)
            .iter()
            .map(|column| {
                let text = |key: &str| column[key].as_str().expect("text").to_owned();
                assert!(!text("description").is_empty(), "{column}");
                assert_eq!(text("format"), if column["name"] == "Name" { "name" } else { "" });
                let kind = match text("type").as_str() {
                    "string" => String::new(),
                    other => format!(":{other}"),
                };
                format!("{}{kind}{}", text("name"), if column["priority"] == 1 { "*" } else { "" })
            })
            .collect();
        names.join(", ")
    }

    /// AS-162.
    #[test]
    fn columns_of_every_kind() {
        let events = "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*";
        let cases = [
            ("", "pods", "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*"),
            ("batch", "jobs", "Name, Status, Completions, Duration, Age, Containers*, Images*, Selector*"),
            (
                "batch",
                "cronjobs",
                "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, Containers*, \
                 Images*, Selector*",
            ),
            (
                "",
                "nodes",
                "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, \
                 Container-Runtime*",
            ),
            ("", "namespaces", "Name, Status, Age"),
            ("", "events", events),
            ("events.k8s.io", "events", events),
            ("", "configmaps", "Name, Data, Age"),
            ("", "limitranges", "Name, Created At:date"),
            ("", "resourcequotas", "Name, Request, Limit, Age"),
            ("", "secrets", "Name, Type, Data, Age"),
            ("", "serviceaccounts", "Name, Age"),
            ("coordination.k8s.io", "leases", "Name, Holder, Age"),
            (
                "scheduling.k8s.io",
                "priorityclasses",
                "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy",
            ),
            ("rbac.authorization.k8s.io", "roles", "Name, Created At:date"),
            ("rbac.authorization.k8s.io", "clusterroles", "Name, Created At:date"),
            ("rbac.authorization.k8s.io", "rolebindings", "Name, Role, Age, Users*, Groups*, ServiceAccounts*"),
            ("rbac.authorization.k8s.io", "clusterrolebindings", "Name, Role, Age, Users*, Groups*, ServiceAccounts*"),
        ];
        for (group, plural, expected) in cases {
            assert_eq!(shape(group, plural), expected, "{group}/{plural}");
        }
    }

    /// A list of any kind yields as many cells as columns, whatever the object lacks.
    #[test]
    fn empty_objects_fill_every_column() {
        for resource in registry::RESOURCES {
            for object in [json!({}), json!({"metadata": {}, "spec": {}, "status": {}})] {
                let row = row(resource, &object, Timestamp::UNIX_EPOCH);
                let cells = row["cells"].as_array().expect("cells");
                assert_eq!(cells.len(), columns(resource).len(), "{resource:?}");
            }
        }
    }
}
