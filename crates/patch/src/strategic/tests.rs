//! Rows of the recorded `patch` cases and of upstream's `patch_test.go`, on the real types.

use api_schema::registry;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// `type | live | patch` in; the merged object, or the code and message of the refusal, out.
fn check(input: &str, expected: Expect) {
    let mut parts = input.splitn(3, " | ");
    let ty = registry().get(parts.next().unwrap()).unwrap();
    let live = serde_json::from_str(parts.next().unwrap()).unwrap();
    let patch = serde_json::from_str(parts.next().unwrap()).unwrap();
    let shown = match apply(live, &patch, ty) {
        Ok(object) => object.to_string(),
        Err(error) => format!("{}: {error}", error.rejection().code),
    };
    expected.assert_eq(&shown);
}

const CONTAINERS: &str = r#"PodSpec | {"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"b:1"}]}"#;
const ENV: &str = r#"Container | {"name":"c","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]}"#;
const FINALIZERS: &str = r#"ObjectMeta | {"finalizers":["x","y"]}"#;

fn containers(patch: &str, expected: Expect) {
    check(&format!("{CONTAINERS} | {patch}"), expected);
}

fn env(patch: &str, expected: Expect) {
    check(&format!("{ENV} | {patch}"), expected);
}

fn finalizers(patch: &str, expected: Expect) {
    check(&format!("{FINALIZERS} | {patch}"), expected);
}

#[test]
fn objects_merge_scalars_replace_and_nulls_delete() {
    let live =
        r#"PodSpec | {"nodeSelector":{"a":"1","b":"2"},"nodeName":"n","securityContext":{"runAsUser":1,"fsGroup":2}}"#;
    check(
        &format!(r#"{live} | {{"nodeSelector":{{"a":null,"c":"3"}},"nodeName":"m"}}"#),
        expect![[r#"{"nodeSelector":{"b":"2","c":"3"},"nodeName":"m","securityContext":{"runAsUser":1,"fsGroup":2}}"#]],
    );
    check(
        &format!(r#"{live} | {{"securityContext":{{"fsGroup":null}},"nodeSelector":null,"none":null}}"#),
        expect![[r#"{"nodeName":"n","securityContext":{"runAsUser":1}}"#]],
    );
    check(
        &format!("{live} | {{}}"),
        expect![[r#"{"nodeSelector":{"a":"1","b":"2"},"nodeName":"n","securityContext":{"runAsUser":1,"fsGroup":2}}"#]],
    );
}

#[test]
fn unknown_members_and_wrong_types_are_left_to_the_decoder() {
    check(
        r#"PodSpec | {"nodeName":"n"} | {"colour":"red","nodeName":{"a":1}}"#,
        expect![[r#"{"nodeName":{"a":1},"colour":"red"}"#]],
    );
    containers(r#"{"containers":{"name":"main"}}"#, expect![[r#"{"containers":{"name":"main"}}"#]]);
}

#[test]
fn lists_without_a_strategy_are_replaced_as_they_are() {
    check(
        r#"PodSpec | {"tolerations":[{"key":"a"}]} | {"tolerations":[{"key":"b","value":null}]}"#,
        expect![[r#"{"tolerations":[{"key":"b","value":null}]}"#]],
    );
    check(r#"Container | {"args":["x","y"]} | {"args":["z"]}"#, expect![[r#"{"args":["z"]}"#]]);
}

#[test]
fn list_items_merge_by_key() {
    containers(
        r#"{"containers":[{"name":"side","image":"b:2"}]}"#,
        expect![[r#"{"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"b:2"}]}"#]],
    );
    check(
        r#"Container | {"ports":[{"containerPort":80,"name":"web"},{"containerPort":81}]} | {"ports":[{"containerPort":81,"name":"admin"}]}"#,
        expect![[r#"{"ports":[{"containerPort":80,"name":"web"},{"containerPort":81,"name":"admin"}]}"#]],
    );
    check(
        r#"PodStatus | {"conditions":[{"type":"Ready","status":"True"}]} | {"conditions":[{"type":"Ready","status":"False","reason":null}]}"#,
        expect![[r#"{"conditions":[{"type":"Ready","status":"False"}]}"#]],
    );
}

#[test]
fn new_items_come_before_what_is_left_of_the_live_list() {
    containers(
        r#"{"containers":[{"name":"third","image":"c:1"}]}"#,
        expect![[
            r#"{"containers":[{"name":"third","image":"c:1"},{"name":"main","image":"a:1"},{"name":"side","image":"b:1"}]}"#
        ]],
    );
    env(
        r#"{"env":[{"name":"C"},{"name":"A","$patch":"delete"}]}"#,
        expect![[r#"{"name":"c","env":[{"name":"C"},{"name":"B","value":"2"}]}"#]],
    );
    env(
        r#"{"env":[{"name":"B"}]}"#,
        expect![[r#"{"name":"c","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]}"#]],
    );
    env(
        r#"{"env":[{"name":"B"},{"name":"A"}]}"#,
        expect![[r#"{"name":"c","env":[{"name":"B","value":"2"},{"name":"A","value":"1"}]}"#]],
    );
    env(
        r#"{"env":[{"name":"C"},{"name":"B"}]}"#,
        expect![[r#"{"name":"c","env":[{"name":"C"},{"name":"A","value":"1"},{"name":"B","value":"2"}]}"#]],
    );
}

#[test]
fn a_list_that_is_new_loses_nulls_and_directives() {
    check(
        r#"PodSpec | {} | {"containers":[{"name":"a","image":null},{"name":"b","$patch":"delete"}]}"#,
        expect![[r#"{"containers":[{"name":"a"}]}"#]],
    );
    check(
        r#"PodSpec | {} | {"securityContext":{"$patch":"delete"},"nodeSelector":{"a":null,"b":"2"}}"#,
        expect![[r#"{"nodeSelector":{"b":"2"}}"#]],
    );
}

#[test]
fn directives_delete_replace_and_refuse() {
    containers(
        r#"{"containers":[{"$patch":"delete","name":"main"},{"$patch":"delete","name":"none"}]}"#,
        expect![[r#"{"containers":[{"name":"side","image":"b:1"}]}"#]],
    );
    containers(
        r#"{"containers":[{"$patch":"replace"},{"name":"only","image":"d:1"}]}"#,
        expect![[r#"{"containers":[{"name":"only","image":"d:1"}]}"#]],
    );
    containers(
        r#"{"containers":[{"name":"main","image":"a:9","$patch":"replace"}]}"#,
        expect![[r#"{"containers":[]}"#]],
    );
    containers(
        r#"{"containers":[{"name":"main","$patch":"merge"}]}"#,
        expect!["500: merging lists cannot yet be specified in the patch"],
    );
    containers(
        r#"{"containers":[{"name":"main","$patch":"merge-me"}]}"#,
        expect!["500: unknown patch type: merge-me in map: map[$patch:merge-me name:main]"],
    );
    containers(
        r#"{"containers":[{"$patch":"delete"}]}"#,
        expect!["500: map: map[$patch:delete] does not contain declared merge key: name"],
    );
    check(
        r#"PodSpec | {"nodeSelector":{"a":"1"},"nodeName":"n"} | {"nodeSelector":{"$patch":"replace","b":"2"}}"#,
        expect![[r#"{"nodeSelector":{"b":"2"},"nodeName":"n"}"#]],
    );
    check(
        r#"PodSpec | {"nodeSelector":{"a":"1"},"nodeName":"n"} | {"nodeSelector":{"$patch":"delete","b":"2"}}"#,
        expect![[r#"{"nodeSelector":{},"nodeName":"n"}"#]],
    );
    check(
        r#"PodSpec | {"nodeSelector":{"a":"1"}} | {"nodeSelector":{"$patch":5}}"#,
        expect!["500: unknown patch type: %!s(int64=5) in map: map[$patch:5]"],
    );
}

#[test]
fn items_need_their_merge_key() {
    containers(
        r#"{"containers":[{"image":"nokey"}]}"#,
        expect!["500: map: map[image:nokey] does not contain declared merge key: name"],
    );
    containers(
        r#"{"containers":["x"]}"#,
        expect!["500: list element types are not identical: [[map[image:a:1 name:main] map[image:b:1 name:side]] [x]]"],
    );
    containers(
        r#"{"containers":[["x"]]}"#,
        expect![
            "500: list element types are not identical: [[map[image:a:1 name:main] map[image:b:1 name:side]] [[x]]]"
        ],
    );
}

#[test]
fn set_element_order_fixes_the_order() {
    containers(
        r#"{"$setElementOrder/containers":[{"name":"side"},{"name":"main"}]}"#,
        expect![[r#"{"containers":[{"name":"side","image":"b:1"},{"name":"main","image":"a:1"}]}"#]],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"name":"third"},{"name":"main"},{"name":"side"}],"containers":[{"name":"third","image":"c:1"}]}"#,
        expect![[
            r#"{"containers":[{"name":"third","image":"c:1"},{"name":"main","image":"a:1"},{"name":"side","image":"b:1"}]}"#
        ]],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"name":"main"},{"name":"side"},{"name":"third"}],"containers":[{"name":"third","image":"c:1"}]}"#,
        expect![[
            r#"{"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"b:1"},{"name":"third","image":"c:1"}]}"#
        ]],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"name":"side"}],"containers":[{"$patch":"delete","name":"main"}]}"#,
        expect![[r#"{"containers":[{"name":"side","image":"b:1"}]}"#]],
    );
    check(
        r#"PodSpec | {} | {"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a"}]}"#,
        expect![[r#"{"containers":[{"name":"a"}]}"#]],
    );
    check(r#"PodSpec | {} | {"$setElementOrder/containers":[{"name":"a"}]}"#, expect!["{}"]);
    containers(
        r#"{"$setElementOrder/containers":[],"containers":[{"name":"c","image":"c:1"}]}"#,
        expect![[
            r#"{"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"b:1"},{"name":"c","image":"c:1"}]}"#
        ]],
    );
    containers(
        r#"{"$setElementOrder/containers":[],"containers":[{"name":"c"},{"name":"d"}]}"#,
        expect![[
            r#"{"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"b:1"},{"name":"d"},{"name":"c"}]}"#
        ]],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"name":"new"}],"containers":[{"$patch":"replace"},{"name":"new"}]}"#,
        expect![[r#"{"containers":[{"name":"new"}]}"#]],
    );
    finalizers(r#"{"$setElementOrder/finalizers":["y","x"]}"#, expect![[r#"{"finalizers":["y","x"]}"#]]);
}

#[test]
fn set_element_order_must_cover_the_patch() {
    containers(
        r#"{"$setElementOrder/containers":[{"name":"main"}],"containers":[{"name":"side","image":"b:2"}]}"#,
        expect![[r#"
            500: The order in patch list:
            [map[image:b:2 name:side]]
             doesn't match $setElementOrder list:
            [map[name:main]]
        "#]],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"name":"main"},{"name":"side"}],"containers":[{"name":"side"},{"name":"main"}]}"#,
        expect![[r#"
            500: The order in patch list:
            [map[name:side] map[name:main]]
             doesn't match $setElementOrder list:
            [map[name:main] map[name:side]]
        "#]],
    );
    containers(
        r#"{"$setElementOrder/containers":"x"}"#,
        expect!["500: expected a []interface {}, but received a string"],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"name":"new"}],"containers":[{"name":"new"},{"$patch":"replace"}]}"#,
        expect![[r#"
            500: The order in patch list:
            [map[name:new] map[$patch:replace]]
             doesn't match $setElementOrder list:
            [map[name:new]]
        "#]],
    );
    containers(r#"{"$setElementOrder/containers":["main"]}"#, expect!["500: value for key 0 is not a map"]);
    containers(
        r#"{"$setElementOrder/containers":[{"name":"main"},"side"]}"#,
        expect!["500: value for key 1 is not a map"],
    );
    containers(r#"{"$setElementOrder":[]}"#, expect!["400: invalid patch format of setElementOrder list"]);
    containers(
        r#"{"$setElementOrder/containers":[{"name":"a"}],"containers":null}"#,
        expect!["500: expected a []interface {}, but received a %!s(<nil>)"],
    );
    containers(
        r#"{"$setElementOrder/containers":[{"image":"x"}]}"#,
        expect!["500: map: map[image:x] does not contain declared merge key: name"],
    );
    containers(
        r#"{"$setElementOrder/none":[]}"#,
        expect![[r#"500: unable to find api field in struct PodSpec for the json field "none""#]],
    );
    containers(
        r#"{"$setElementOrder/nodeSelector":[]}"#,
        expect!["500: expected slice or array type, but got: struct"],
    );
}

#[test]
fn primitive_lists_are_sets() {
    finalizers(r#"{"finalizers":["z"]}"#, expect![[r#"{"finalizers":["z","x","y"]}"#]]);
    finalizers(r#"{"finalizers":["y"]}"#, expect![[r#"{"finalizers":["x","y"]}"#]]);
    finalizers(r#"{"finalizers":null}"#, expect!["{}"]);
    finalizers(r#"{"finalizers":[]}"#, expect![[r#"{"finalizers":["x","y"]}"#]]);
    finalizers(r#"{"$deleteFromPrimitiveList/finalizers":["x"]}"#, expect![[r#"{"finalizers":["y"]}"#]]);
    finalizers(r#"{"$deleteFromPrimitiveList/finalizers":["none"]}"#, expect![[r#"{"finalizers":["x","y"]}"#]]);
    finalizers(
        r#"{"$deleteFromPrimitiveList/finalizers":["x"],"$setElementOrder/finalizers":["y","z"],"finalizers":["z"]}"#,
        expect![[r#"{"finalizers":["y","z"]}"#]],
    );
    finalizers(r#"{"$deleteFromPrimitiveList/finalizers":"x"}"#, expect![[r#"{"finalizers":["x","y"]}"#]]);
    finalizers(r#"{"$deleteFromPrimitiveList":["x"]}"#, expect!["400: invalid patch format of primitive list"]);
    finalizers(r#"{"finalizers":[["x"]]}"#, expect!["500: list element types are not identical: [[x y] [[x]]]"]);
    check(r#"ObjectMeta | {} | {"$deleteFromPrimitiveList/finalizers":["x"]}"#, expect!["{}"]);
}

#[test]
fn retain_keys_drops_what_is_not_listed() {
    let volume = r#"PodSpec | {"volumes":[{"name":"v","emptyDir":{}}]}"#;
    check(
        &format!(
            r#"{volume} | {{"volumes":[{{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{{"path":"/x"}}}}]}}"#
        ),
        expect![[r#"{"volumes":[{"name":"v","hostPath":{"path":"/x"}}]}"#]],
    );
    check(
        &format!(r#"{volume} | {{"volumes":[{{"name":"v","$retainKeys":["name"],"hostPath":{{"path":"/x"}}}}]}}"#),
        expect!["400: invalid patch format of retainKeys"],
    );
    check(
        &format!(r#"{volume} | {{"volumes":[{{"name":"v","$retainKeys":"name"}}]}}"#),
        expect!["400: invalid patch format of retainKeys"],
    );
    check(
        &format!(r#"{volume} | {{"volumes":[{{"name":"v","$retainKeys":["name"],"emptyDir":null}}]}}"#),
        expect![[r#"{"volumes":[{"name":"v"}]}"#]],
    );
}

#[test]
fn patches_that_controllers_send() {
    check(
        r#"Pod | {"metadata":{"name":"p","uid":"u","finalizers":["batch.kubernetes.io/job-tracking"]}} | {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}"#,
        expect![[r#"{"metadata":{"name":"p","uid":"u","finalizers":[]}}"#]],
    );
    check(
        r#"Pod | {"metadata":{"uid":"u","ownerReferences":[{"uid":"o","name":"a"},{"uid":"q","name":"b"}]}} | {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"u"}}"#,
        expect![[r#"{"metadata":{"uid":"u","ownerReferences":[{"uid":"q","name":"b"}]}}"#]],
    );
    check(
        r#"Pod | {"metadata":{"uid":"u"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"},{"type":"Initialized","status":"True"}]}} | {"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"},{"type":"Ready"},{"type":"Initialized"}],"conditions":[{"type":"DisruptionTarget","status":"True"}],"phase":"Failed"}}"#,
        expect![[
            r#"{"metadata":{"uid":"u"},"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True"},{"type":"Ready","status":"True"},{"type":"Initialized","status":"True"}]}}"#
        ]],
    );
}

#[test]
fn bodies_that_are_no_object_are_refused() {
    check(
        "PodSpec | {} | []",
        expect!["400: json: cannot unmarshal array into Go value of type map[string]interface {}"],
    );
    check(r#"PodSpec | {"nodeName":"n"} | null"#, expect![[r#"{"nodeName":"n"}"#]]);
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"a": deep});
    }
    assert!(matches!(apply(json!({}), &deep, registry().get("PodSpec").unwrap()), Err(PatchError::BadRequest(_))));
}

/// A list of objects with the key `name` and one value, without two of a kind.
fn named_items() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::btree_map("[a-f]", "[0-3]", 0..5)
        .prop_map(|items| {
            items.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>()
        })
        .prop_shuffle()
}

/// A strategic patch from one `env` to another, found without the code under test: changed and new items, deletions,
/// and the order.
fn env_patch(from: &[Value], to: &[Value]) -> Value {
    let changed = to.iter().filter(|item| !from.contains(item)).cloned();
    let deleted = from
        .iter()
        .filter(|item| to.iter().all(|other| other["name"] != item["name"]))
        .map(|item| json!({"name": item["name"], "$patch": "delete"}));
    let order: Vec<_> = to.iter().map(|item| json!({"name": item["name"]})).collect();
    json!({"env": changed.chain(deleted).collect::<Vec<_>>(), "$setElementOrder/env": order})
}

proptest! {
    #[test]
    fn a_difference_of_keyed_lists_leads_from_one_to_the_other(from in named_items(), to in named_items()) {
        prop_assume!(!from.is_empty() && from != to);
        let ty = registry().get("Container").unwrap();
        let patched = apply(json!({"env": from}), &env_patch(&from, &to), ty).unwrap();
        prop_assert_eq!(&patched["env"], &json!(to));
    }

    #[test]
    fn patching_twice_is_patching_once(live in named_items(), patch in named_items()) {
        let ty = registry().get("Container").unwrap();
        let patch = json!({"env": patch});
        let once = apply(json!({"env": live}), &patch, ty).unwrap();
        prop_assert_eq!(apply(once.clone(), &patch, ty).unwrap(), once);
    }

    #[test]
    fn arbitrary_patches_never_panic(patch in arbitrary_patch()) {
        let ty = registry().get("Pod").unwrap();
        let live = json!({"metadata": {"finalizers": ["a"], "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "a", "env": [{"name": "b"}]}], "volumes": [{"name": "a"}]}});
        let _ = apply(live, &patch, ty);
    }
}

fn arbitrary_patch() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("containers"),
        Just("finalizers"),
        Just("name"),
        Just("env"),
        Just("labels"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$setElementOrder/finalizers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("$setElementOrder/env"),
        Just("a"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!("a")),
        Just(json!("delete")),
        Just(json!("replace")),
        Just(json!(1)),
        Just(json!(1.5)),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            3 => proptest::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}
