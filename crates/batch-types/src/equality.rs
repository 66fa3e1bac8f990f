//! Whether two objects mean the same, as upstream's `equality.Semantic` sees it (JA-U2).
//!
//! Absent lists and maps equal empty ones and quantities are compared by value, so `cpu: 1` equals `cpu: 1000m`. An
//! absent struct is *not* an empty one: `emptyDir: {}` says something.

use api_schema::Quantity;
use serde::Serialize;
use serde_json::{Map, Value};

/// Fields that hold maps, where empty means absent. Every other object is a struct.
const MAPS: [&str; 9] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "overhead",
    "requests",
    "volumeAttributes",
];

/// Maps whose values are quantities.
const QUANTITY_MAPS: [&str; 3] = ["limits", "overhead", "requests"];

/// Fields that hold one quantity.
const QUANTITIES: [&str; 2] = ["divisor", "sizeLimit"];

/// Whether two values mean the same.
pub fn semantic_eq(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => objects_eq(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| semantic_eq(a, b)),
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        _ => a == b,
    }
}

/// The same for typed values. Equal ones, the usual case, cost one comparison; others are compared by their JSON.
pub fn typed_eq<T: PartialEq + Serialize>(a: &T, b: &T) -> bool {
    a == b
        || match (serde_json::to_value(a), serde_json::to_value(b)) {
            (Ok(a), Ok(b)) => semantic_eq(&a, &b),
            _ => false,
        }
}

fn objects_eq(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let covered = a.iter().all(|(key, value)| field_eq(key, value, b.get(key).unwrap_or(&Value::Null)));
    covered && b.iter().filter(|(key, _)| !a.contains_key(*key)).all(|(key, value)| field_eq(key, &Value::Null, value))
}

fn field_eq(key: &str, a: &Value, b: &Value) -> bool {
    if QUANTITY_MAPS.contains(&key)
        && let (Value::Object(a), Value::Object(b)) = (a, b)
    {
        return a.len() == b.len()
            && a.iter().all(|(name, amount)| b.get(name).is_some_and(|b| quantity_eq(amount, b)));
    }
    if QUANTITIES.contains(&key) {
        return quantity_eq(a, b);
    }
    match (a, b) {
        (Value::Null, Value::Object(map)) | (Value::Object(map), Value::Null) if MAPS.contains(&key) => map.is_empty(),
        _ => semantic_eq(a, b),
    }
}

fn quantity_eq(a: &Value, b: &Value) -> bool {
    let quantity = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    a == b || matches!((quantity(a), quantity(b)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_lists_and_maps_are_empty_ones() {
        let same = [
            (json!({"a": [], "labels": {}}), json!({})),
            (json!({"values": null}), json!({"values": []})),
            (json!({"a": null}), json!({})),
            (json!({"a": 1, "b": [{"c": 2}]}), json!({"b": [{"c": 2, "d": []}], "a": 1})),
        ];
        for (a, b) in same {
            assert!(semantic_eq(&a, &b) && semantic_eq(&b, &a), "{a} {b}");
        }
    }

    #[test]
    fn absent_structs_are_not() {
        let different = [
            (json!({"emptyDir": {}}), json!({})),
            (json!({"a": ""}), json!({})),
            (json!({"a": [1]}), json!({"a": [1, 2]})),
            (json!({"labels": {"a": "b"}}), json!({"labels": {"a": "c"}})),
            (json!({"limits": {"cpu": "1"}}), json!({"limits": {"memory": "1"}})),
        ];
        for (a, b) in different {
            assert!(!semantic_eq(&a, &b) && !semantic_eq(&b, &a), "{a} {b}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let resources = |cpu: &str, memory: &str| json!({"resources": {"limits": {"cpu": cpu, "memory": memory}}});
        assert!(semantic_eq(&resources("1", "1Gi"), &resources("1000m", "1073741824")));
        assert!(!semantic_eq(&resources("1", "1Gi"), &resources("1", "1G")));
        assert!(semantic_eq(&json!({"sizeLimit": "1Ki"}), &json!({"sizeLimit": "1024"})));
        assert!(!semantic_eq(&json!({"name": "1"}), &json!({"name": "1000m"})));
    }
}
