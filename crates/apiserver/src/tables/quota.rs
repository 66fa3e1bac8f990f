//! ResourceQuotas: what is used of what is allowed (AS-162; upstream's `printResourceQuota`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Printer, Row, age::age};
use crate::resources::values::{members, text};

pub(super) static PRINTER: Printer = Printer {
    columns: &[
        Column::name("Name of the ResourceQuota, unique in its namespace"),
        Column::text("Request", "What objects ask for, as used/allowed"),
        Column::text("Limit", "What pods may use at most, as used/allowed"),
        Column::age(),
    ],
    row,
};

fn row(object: &Value, now: Timestamp) -> Row {
    let mut resources: Vec<(&String, &Value)> = members(object, "/status/hard").collect();
    resources.sort_unstable_by_key(|(name, _)| *name);
    let shown = |limits: bool| {
        let parts: Vec<String> = resources
            .iter()
            .filter(|(name, _)| name.starts_with("limits.") == limits)
            .map(|(name, hard)| {
                let used = object["status"]["used"][name.as_str()].as_str().unwrap_or("0");
                format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
            })
            .collect();
        parts.join(", ")
    };
    Row::of(vec![
        json!(text(object, "/metadata/name")),
        json!(shown(false)),
        json!(shown(true)),
        json!(age(object, now)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_column_of_their_own() {
        let now: Timestamp = "2024-05-01T10:00:09Z".parse().expect("a time");
        let object = json!({
            "metadata": {"name": "q", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "status": {
                "hard": {"requests.cpu": "2", "pods": "10", "limits.memory": "1Gi", "limits.cpu": "4", "count/jobs.batch": "3"},
                "used": {"requests.cpu": "500m", "pods": "1", "limits.cpu": "1"},
            },
        });
        assert_eq!(
            Value::from(row(&object, now).cells),
            json!([
                "q",
                "count/jobs.batch: 0/3, pods: 1/10, requests.cpu: 500m/2",
                "limits.cpu: 1/4, limits.memory: 0/1Gi",
                "9s"
            ])
        );
    }
}
