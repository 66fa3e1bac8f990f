//! RFC 7386 merge patch: objects merge, `null` deletes, everything else replaces (AS-117).
//!
//! Like upstream's library, and unlike the RFC, nulls inside a *new* value are dropped even in the objects of a list.

use api_schema::json::kind_of;
use serde_json::{Map, Value};

use crate::bounds::{DEPTH_MAX, depth};
use crate::error::PatchError;

/// Merges `patch`, which must be an object, into the live object.
pub fn apply(live: Value, patch: &Value) -> Result<Value, PatchError> {
    let members = match patch {
        Value::Object(members) => members,
        Value::Null => return Err(PatchError::bad_request("Invalid JSON Patch")),
        other => {
            let name = kind_of(other);
            return Err(PatchError::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {name} into Go value of type map[string]interface {{}}"
            )));
        }
    };
    if depth(patch, DEPTH_MAX).is_none() {
        return Err(PatchError::bad_request(format!("error decoding patch: exceeded max depth of {DEPTH_MAX}")));
    }
    let Value::Object(mut object) = live else { return Ok(without_nulls(patch)) };
    merge(&mut object, members);
    Ok(Value::Object(object))
}

/// Like [`apply`], with the members in the order in which upstream writes the outcome: sorted wherever the patch has
/// been. It matters only to those who say what is wrong with the outcome, and in which order.
pub fn apply_in_order(live: Value, patch: &Value) -> Result<Value, PatchError> {
    let mut merged = apply(live, patch)?;
    if let (Value::Object(object), Value::Object(patch)) = (&mut merged, patch) {
        sort_touched(object, patch);
    }
    Ok(merged)
}

fn sort_touched(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    object.sort_keys();
    for (name, value) in patch {
        match (object.get_mut(name), value) {
            (Some(Value::Object(object)), Value::Object(patch)) => sort_touched(object, patch),
            (Some(new), _) => new.sort_all_objects(),
            (None, _) => {}
        }
    }
}

fn merge(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (object.get_mut(name), value) {
            (_, Value::Null) => {
                object.shift_remove(name);
            }
            (Some(Value::Object(current)), Value::Object(value)) => merge(current, value),
            (Some(current @ Value::Object(_)), value) => *current = value.clone(),
            (Some(current), value) => *current = without_nulls(value),
            (None, value) => {
                object.insert(name.clone(), without_nulls(value));
            }
        }
    }
}

/// A copy without the null members of any object in it; null items of lists stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    fn check(live: &str, patch: &str, expected: Expect) {
        let shown = match apply(serde_json::from_str(live).unwrap(), &serde_json::from_str(patch).unwrap()) {
            Ok(object) => object.to_string(),
            Err(error) => format!("{}: {error}", error.rejection().code),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn members_merge_nulls_delete_and_lists_are_replaced() {
        let live = r#"{"metadata":{"finalizers":["x"]},"data":{"color":"blue","size":"10"}}"#;
        let run = |patch, expected| check(live, patch, expected);
        run(
            r#"{"data":{"new":"x"}}"#,
            expect![[r#"{"metadata":{"finalizers":["x"]},"data":{"color":"blue","size":"10","new":"x"}}"#]],
        );
        run(
            r#"{"data":{"color":"red"}}"#,
            expect![[r#"{"metadata":{"finalizers":["x"]},"data":{"color":"red","size":"10"}}"#]],
        );
        run(r#"{"data":{"color":null}}"#, expect![[r#"{"metadata":{"finalizers":["x"]},"data":{"size":"10"}}"#]]);
        run(
            r#"{"data":{"none":null}}"#,
            expect![[r#"{"metadata":{"finalizers":["x"]},"data":{"color":"blue","size":"10"}}"#]],
        );
        run(r#"{"data":null}"#, expect![[r#"{"metadata":{"finalizers":["x"]}}"#]]);
        run(
            r#"{"data":{},"metadata":{"finalizers":["y"]}}"#,
            expect![[r#"{"metadata":{"finalizers":["y"]},"data":{"color":"blue","size":"10"}}"#]],
        );
    }

    #[test]
    fn nulls_in_new_values_are_dropped() {
        check("{}", r#"{"a":{"b":null,"c":{"d":null}}}"#, expect![[r#"{"a":{"c":{}}}"#]]);
        check("{}", r#"{"a":[{"b":null},null]}"#, expect![[r#"{"a":[{},null]}"#]]);
        check(r#"{"a":[1]}"#, r#"{"a":{"b":null,"c":1}}"#, expect![[r#"{"a":{"c":1}}"#]]);
        check(r#"{"a":{"b":1}}"#, r#"{"a":[{"b":null}]}"#, expect![[r#"{"a":[{"b":null}]}"#]]);
    }

    #[test]
    fn bodies_that_are_no_object_are_refused() {
        check(
            "{}",
            "[]",
            expect![
                "400: error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
            ],
        );
        check(
            "{}",
            r#""x""#,
            expect![
                "400: error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"
            ],
        );
        check("{}", "null", expect!["400: Invalid JSON Patch"]);
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..3i64).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                proptest::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        proptest::collection::btree_map("[a-d]", tree(), 0..4).prop_map(|m| Value::Object(m.into_iter().collect()))
    }

    /// A merge patch from one object to another, found without the code under test.
    fn diff(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
        let removed = from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), Value::Null));
        let set = to.iter().filter(|(name, value)| from.get(*name) != Some(value)).map(|(name, value)| {
            let value = match (from.get(name), value) {
                (Some(Value::Object(from)), Value::Object(to)) => Value::Object(diff(from, to)),
                (_, value) => value.clone(),
            };
            (name.clone(), value)
        });
        removed.chain(set).collect()
    }

    /// AS-118: warnings come in this order.
    #[test]
    fn what_the_patch_touches_is_sorted_on_request() {
        let live = json!({"kind": "A", "apiVersion": "b", "metadata": {"z": {"y": 1, "x": 1}, "name": "n"}});
        let patch = json!({"list": [{"q": 1, "p": 1}], "metadata": {"b": null, "a": {"d": 1, "c": 1}}});
        let ordered = apply_in_order(live.clone(), &patch).unwrap();
        assert_eq!(
            ordered.to_string(),
            r#"{"apiVersion":"b","kind":"A","list":[{"p":1,"q":1}],"metadata":{"a":{"c":1,"d":1},"name":"n","z":{"y":1,"x":1}}}"#
        );
        assert_eq!(ordered, apply(live, &patch).unwrap());
    }

    proptest! {
        #[test]
        fn the_empty_patch_changes_nothing(live in object()) {
            prop_assert_eq!(apply(live.clone(), &json!({})).unwrap(), live);
        }

        #[test]
        fn applying_twice_is_applying_once(live in object(), patch in object()) {
            let once = apply(live, &patch).unwrap();
            let twice = apply(once.clone(), &patch).unwrap();
            prop_assert_eq!(without_nulls(&twice), without_nulls(&once));
        }

        #[test]
        fn a_difference_leads_from_one_object_to_the_other(from in object(), to in object()) {
            let (from, to) = (without_nulls(&from), without_nulls(&to));
            let patch = Value::Object(diff(from.as_object().unwrap(), to.as_object().unwrap()));
            prop_assert_eq!(apply(from, &patch).unwrap(), to);
        }
    }
}
