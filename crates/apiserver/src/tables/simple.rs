//! Kinds whose cells are members of the object, and the converter for kinds nobody wrote one for (AS-162).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Printer, Row, age::age};
use crate::resources::values::{flag, members, number, text};

pub(super) static NAMESPACES: Printer = Printer {
    columns: &[
        Column::name("Name of the namespace"),
        Column::text("Status", "Active, or Terminating while its content goes away"),
        Column::age(),
    ],
    row: |object, now| Row::of(vec![name(object), json!(text(object, "/status/phase")), json!(age(object, now))]),
};

pub(super) static CONFIG_MAPS: Printer = Printer {
    columns: &[
        Column::name("Name of the ConfigMap, unique in its namespace"),
        Column::text("Data", "How many keys it has"),
        Column::age(),
    ],
    row: |object, now| {
        let keys = members(object, "/data").count() + members(object, "/binaryData").count();
        Row::of(vec![name(object), json!(keys), json!(age(object, now))])
    },
};

pub(super) static SECRETS: Printer = Printer {
    columns: &[
        Column::name("Name of the Secret, unique in its namespace"),
        Column::text("Type", "What the Secret is used for"),
        Column::text("Data", "How many keys it has"),
        Column::age(),
    ],
    row: |object, now| {
        let keys = members(object, "/data").count();
        Row::of(vec![name(object), json!(text(object, "/type")), json!(keys), json!(age(object, now))])
    },
};

pub(super) static SERVICE_ACCOUNTS: Printer = Printer {
    columns: &[Column::name("Name of the ServiceAccount, unique in its namespace"), Column::age()],
    row: |object, now| Row::of(vec![name(object), json!(age(object, now))]),
};

pub(super) static LEASES: Printer = Printer {
    columns: &[
        Column::name("Name of the Lease, unique in its namespace"),
        Column::text("Holder", "Who holds it now"),
        Column::age(),
    ],
    row: |object, now| {
        Row::of(vec![name(object), json!(text(object, "/spec/holderIdentity")), json!(age(object, now))])
    },
};

pub(super) static PRIORITY_CLASSES: Printer = Printer {
    columns: &[
        Column::name("Name of the PriorityClass"),
        Column::text("Value", "Priority of pods of this class; higher goes first").of_type("integer"),
        Column::text("Global-Default", "Whether pods without a class get this one").of_type("boolean"),
        Column::age(),
        Column::text("PreemptionPolicy", "Whether pods of this class may displace others"),
    ],
    row: |object, now| {
        Row::of(vec![
            name(object),
            json!(number(object, "/value")),
            json!(flag(object, "/globalDefault")),
            json!(age(object, now)),
            json!(text(object, "/preemptionPolicy")),
        ])
    },
};

/// Every object has a name and a time of creation (upstream's `defaultTableConvertor`).
pub(super) static DEFAULT: Printer = Printer {
    columns: &[
        Column::name("Name of the object"),
        Column::text("Created At", "When the object was created").of_type("date"),
    ],
    row: created_at,
};

fn created_at(object: &Value, _now: Timestamp) -> Row {
    // Go's zero time, for objects that were never stored.
    let created = match text(object, "/metadata/creationTimestamp") {
        "" => "0001-01-01T00:00:00Z",
        created => created,
    };
    Row::of(vec![name(object), json!(created)])
}

fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AS-162; cells as recorded.
    #[test]
    fn cells_are_members() {
        let now: Timestamp = "2024-05-01T10:00:09Z".parse().expect("a time");
        let metadata = json!({"name": "demo", "creationTimestamp": "2024-05-01T10:00:00Z"});
        let cases = [
            (&NAMESPACES, json!({"status": {"phase": "Terminating"}}), json!(["demo", "Terminating", "9s"])),
            (&CONFIG_MAPS, json!({"data": {"color": "blue"}, "binaryData": {"c": "eA=="}}), json!(["demo", 2, "9s"])),
            (&SECRETS, json!({"type": "Opaque", "data": {"a": "Yg=="}}), json!(["demo", "Opaque", 1, "9s"])),
            (&SERVICE_ACCOUNTS, json!({}), json!(["demo", "9s"])),
            (&LEASES, json!({"spec": {"holderIdentity": "me"}}), json!(["demo", "me", "9s"])),
            (&LEASES, json!({"spec": {}}), json!(["demo", "", "9s"])),
            (
                &PRIORITY_CLASSES,
                json!({"value": 2_000_001_000, "preemptionPolicy": "PreemptLowerPriority"}),
                json!(["demo", 2_000_001_000, false, "9s", "PreemptLowerPriority"]),
            ),
            (&DEFAULT, json!({}), json!(["demo", "2024-05-01T10:00:00Z"])),
        ];
        for (printer, mut object, expected) in cases {
            object["metadata"] = metadata.clone();
            assert_eq!(Value::from((printer.row)(&object, now).cells), expected);
        }
    }
}
