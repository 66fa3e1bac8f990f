//! The recorded `apply` cases and rows of upstream's tests, as scripts of requests against a server of four lines.

use api_schema::{Type, json as codec, registry};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::PatchError;

/// Just enough of an API server: it decodes, but neither defaults nor validates.
struct Server {
    ty: &'static Type,
    api_version: &'static str,
    live: Option<Value>,
    second: u32,
}

impl Server {
    fn new(api_version: &'static str, kind: &str) -> Self {
        Self { ty: registry().kind(api_version, kind).unwrap(), api_version, live: None, second: 0 }
    }

    /// One request: `apply alpha {…}`, `force alpha {…}`, `post`, `put`, `merge` and `merge-status` likewise.
    fn request(&mut self, line: &str) -> Result<(), PatchError> {
        let mut words = line.trim().splitn(3, ' ');
        let (verb, name) = (words.next().unwrap(), words.next().unwrap());
        let body: Value = serde_json::from_str(words.next().unwrap()).unwrap();
        self.second += 1;
        let now = format!("2026-01-01T00:00:{:02}Z", self.second);
        let status = verb.ends_with("-status");
        let manager = Manager {
            name,
            api_version: self.api_version,
            subresource: if status { "status" } else { "" },
            now: &now,
            reset_fields: if status { &[&["spec"]] } else { &[&["status"]] },
        };
        let live = self.live.as_ref();
        let new = match verb {
            "apply" | "force" | "apply-status" => {
                let object = apply(self.ty, live, &self.complete(body), &manager, verb == "force")?;
                self.decode(object)
            }
            "post" | "put" => {
                let mut new = self.decode(self.complete(body));
                update_managed_fields(self.ty, live, &mut new, &manager);
                new
            }
            _ => {
                let patched = crate::merge::apply(live.unwrap().clone(), &body)?;
                let reset = resets_managed_fields(&patched);
                let mut new = self.decode(patched);
                if reset {
                    new["metadata"]["managedFields"] = json!([]);
                }
                update_managed_fields(self.ty, live, &mut new, &manager);
                new
            }
        };
        if live.is_none_or(|live| !equal_but_for_times(live, &new)) {
            self.live = Some(new);
        }
        Ok(())
    }

    fn complete(&self, mut body: Value) -> Value {
        let members = body.as_object_mut().unwrap();
        members.entry("apiVersion").or_insert(self.api_version.into());
        members.entry("kind").or_insert(self.ty.name.into());
        let metadata = members.entry("metadata").or_insert(json!({}));
        metadata.as_object_mut().unwrap().entry("name").or_insert("demo".into());
        body
    }

    fn decode(&self, object: Value) -> Value {
        codec::convert_unstructured(self.ty, object).unwrap().value
    }

    /// The object without what every object has, then a line for each manager.
    fn show(&self) -> String {
        let Some(mut object) = self.live.clone() else { return "nothing\n".into() };
        let members = object.as_object_mut().unwrap();
        members.shift_remove("apiVersion");
        members.shift_remove("kind");
        let metadata = members["metadata"].as_object_mut().unwrap();
        let entries = metadata.shift_remove("managedFields").unwrap_or(json!([]));
        metadata.shift_remove("name");
        if metadata.is_empty() {
            members.shift_remove("metadata");
        }
        let mut out = format!("{object}\n");
        for entry in entries.as_array().unwrap() {
            let subresource = entry["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
            let second = entry["time"].as_str().map_or("--", |time| &time[17..19]);
            let (manager, operation) = (entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
            out += &format!("{manager}{subresource} {operation} :{second} {}\n", entry["fieldsV1"]);
        }
        out
    }
}

/// Runs a script of requests; shows every refusal, then what is stored in the end.
fn check(api_version: &'static str, kind: &str, script: &str, expected: Expect) {
    let mut server = Server::new(api_version, kind);
    let mut shown = String::new();
    for line in script.trim().lines() {
        if let Err(error) = server.request(line) {
            shown += &format!("{}: {error}\n", error.rejection().code);
        }
    }
    expected.assert_eq(&(shown + &server.show()));
}

fn config_map(script: &str, expected: Expect) {
    check("v1", "ConfigMap", script, expected);
}

fn job(script: &str, expected: Expect) {
    check("batch/v1", "Job", script, expected);
}

#[test]
fn an_apply_owns_what_it_sends() {
    config_map(
        r#"apply alpha {"data":{"a":"1"}}"#,
        expect![[r#"
        {"data":{"a":"1"}}
        alpha Apply :01 {"f:data":{"f:a":{}}}
    "#]],
    );
    job(
        r#"apply alpha {"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"a:1"}]}}},"status":{"active":1}}"#,
        expect![[r#"
            {"spec":{"template":{"metadata":{},"spec":{"containers":[{"name":"main","image":"a:1","resources":{}}],"restartPolicy":"Never"}}},"status":{"active":1}}
            alpha Apply :01 {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{}}},"f:restartPolicy":{}}}}}
        "#]],
    );
}

#[test]
fn an_update_owns_what_it_changes_and_the_maps_it_creates() {
    config_map(
        r#"post robot {"data":{"a":"1"}}"#,
        expect![[r#"
        {"data":{"a":"1"}}
        robot Update :01 {"f:data":{".":{},"f:a":{}}}
    "#]],
    );
    config_map(
        r#"
        post m {"data":{"a":"1"}}
        merge m {"data":{"b":"2"}}"#,
        expect![[r#"
            {"data":{"a":"1","b":"2"}}
            m Update :02 {"f:data":{".":{},"f:a":{},"f:b":{}}}
        "#]],
    );
    job(
        r#"post m {"metadata":{"labels":{"x":"1"},"finalizers":["a.b/c"]},"spec":{"parallelism":1,"template":{"spec":{"restartPolicy":"Never","volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"main","image":"a:1","ports":[{"containerPort":80}]}],"tolerations":[{"key":"k"}],"nodeSelector":{"a":"b"},"securityContext":{}}}}}"#,
        expect![[r#"
            {"metadata":{"labels":{"x":"1"},"finalizers":["a.b/c"]},"spec":{"parallelism":1,"template":{"metadata":{},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"main","image":"a:1","ports":[{"containerPort":80}],"resources":{}}],"restartPolicy":"Never","nodeSelector":{"a":"b"},"securityContext":{},"tolerations":[{"key":"k"}]}}},"status":{}}
            m Update :01 {"f:metadata":{"f:finalizers":{".":{},"v:\"a.b/c\"":{}},"f:labels":{".":{},"f:x":{}}},"f:spec":{"f:parallelism":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"f:resources":{}}},"f:nodeSelector":{},"f:restartPolicy":{},"f:securityContext":{},"f:tolerations":{},"f:volumes":{".":{},"k:{\"name\":\"v\"}":{".":{},"f:emptyDir":{},"f:name":{}}}}}}}
        "#]],
    );
}

#[test]
fn the_same_configuration_again_changes_nothing() {
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        apply alpha {"data":{"a":"1"}}"#,
        expect![[r#"
            {"data":{"a":"1"}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        merge patcher {"data":{"a":"1"}}"#,
        expect![[r#"
            {"data":{"a":"1"}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
        "#]],
    );
}

#[test]
fn what_is_no_longer_applied_goes_unless_others_own_it() {
    config_map(
        r#"
        apply alpha {"data":{"a":"1","b":"2"}}
        apply alpha {}"#,
        expect![[r#"
            {}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"metadata":{"labels":{"x":"1","y":"2"}},"data":{"a":"1"}}
        apply alpha {"metadata":{"labels":{"x":"1"}},"data":{"a":"1"}}"#,
        expect![[r#"
            {"metadata":{"labels":{"x":"1"}},"data":{"a":"1"}}
            alpha Apply :02 {"f:data":{"f:a":{}},"f:metadata":{"f:labels":{"f:x":{}}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        apply beta {"data":{"a":"1"}}
        apply beta {"data":{"c":"3"}}"#,
        expect![[r#"
            {"data":{"a":"1","c":"3"}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
            beta Apply :03 {"f:data":{"f:c":{}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        apply beta {"data":{"a":"1"}}
        apply beta {"data":{"c":"3"}}
        apply alpha {"data":{"d":"4"}}"#,
        expect![[r#"
            {"data":{"c":"3","d":"4"}}
            beta Apply :03 {"f:data":{"f:c":{}}}
            alpha Apply :04 {"f:data":{"f:d":{}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        force beta {"data":{"a":"9"}}
        apply alpha {}"#,
        expect![[r#"
            {"data":{"a":"9"}}
            beta Apply :02 {"f:data":{"f:a":{}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"metadata":{"finalizers":["e.com/x","e.com/y"]},"data":{"a":"1"}}
        apply alpha {"metadata":{"finalizers":["e.com/y"]},"data":{"a":"1"}}"#,
        expect![[r#"
            {"metadata":{"finalizers":["e.com/y"]},"data":{"a":"1"}}
            alpha Apply :02 {"f:data":{"f:a":{}},"f:metadata":{"f:finalizers":{"v:\"e.com/y\"":{}}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        merge upd {"data":{"b":"2"}}
        apply alpha {}"#,
        expect![[r#"
            {"data":{"b":"2"}}
            upd Update :02 {"f:data":{"f:b":{}}}
        "#]],
    );
}

#[test]
fn shared_values_are_co_owned_and_a_co_owner_that_changes_nothing_has_no_time() {
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        apply beta {"data":{"a":"1"}}"#,
        expect![[r#"
            {"data":{"a":"1"}}
            beta Apply :-- {"f:data":{"f:a":{}}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
        "#]],
    );
}

#[test]
fn changing_what_others_own_is_a_conflict() {
    config_map(
        r#"
        apply alpha {"data":{"a":"1","b":"2"}}
        merge upd {"data":{"c":"3"}}
        apply gamma {"data":{"a":"9"}}
        apply gamma {"data":{"a":"8","b":"9","c":"9"}}"#,
        expect![[r#"
            409: Apply failed with 1 conflict: conflict with "alpha": .data.a
            409: Apply failed with 3 conflicts: conflicts with "alpha":
            - .data.a
            - .data.b
            conflicts with "upd" using v1:
            - .data.c
            {"data":{"a":"1","b":"2","c":"3"}}
            alpha Apply :01 {"f:data":{"f:a":{},"f:b":{}}}
            upd Update :02 {"f:data":{"f:c":{}}}
        "#]],
    );
    job(
        r#"
        apply alpha {"metadata":{"labels":{"l":"1"}},"spec":{"template":{"spec":{"containers":[{"name":"main","image":"a:1"}],"tolerations":[{"key":"a"}],"nodeSelector":{"a":"1"}}}}}
        merge-status ctl {"status":{"active":1}}
        apply beta {"spec":{"template":{"spec":{"containers":[{"name":"main","image":"a:2"}]}}}}
        apply beta {"spec":{"template":{"spec":{"tolerations":[{"key":"b"}],"nodeSelector":{"b":"2"}}}}}
        apply-status beta {"status":{"active":2}}"#,
        expect![[r#"
            409: Apply failed with 1 conflict: conflict with "alpha": .spec.template.spec.containers[name="main"].image
            409: Apply failed with 2 conflicts: conflicts with "alpha":
            - .spec.template.spec.nodeSelector
            - .spec.template.spec.tolerations
            409: Apply failed with 1 conflict: conflict with "ctl" with subresource "status" using batch/v1: .status.active
            {"metadata":{"labels":{"l":"1"}},"spec":{"template":{"metadata":{},"spec":{"containers":[{"name":"main","image":"a:1","resources":{}}],"nodeSelector":{"a":"1"},"tolerations":[{"key":"a"}]}}},"status":{"active":1}}
            alpha Apply :01 {"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{}}},"f:nodeSelector":{},"f:tolerations":{}}}}}
            ctl/status Update :02 {"f:status":{"f:active":{}}}
        "#]],
    );
}

#[test]
fn force_takes_the_fields() {
    config_map(
        r#"
        post poster {"data":{"a":"1"}}
        force alpha {"data":{"a":"9"}}"#,
        expect![[r#"
            {"data":{"a":"9"}}
            alpha Apply :02 {"f:data":{"f:a":{}}}
            poster Update :01 {"f:data":{}}
        "#]],
    );
}

#[test]
fn updates_take_and_remove_fields_of_appliers() {
    config_map(
        r#"
        apply alpha {"data":{"a":"1","b":"2"}}
        merge patcher {"data":{"b":null}}"#,
        expect![[r#"
            {"data":{"a":"1"}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1","b":"2"}}
        put putter {"data":{"a":"1","c":"3"}}"#,
        expect![[r#"
            {"data":{"a":"1","c":"3"}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
            putter Update :02 {"f:data":{"f:c":{}}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        merge upd {"data":{"a":"2"}}"#,
        expect![[r#"
            {"data":{"a":"2"}}
            upd Update :02 {"f:data":{"f:a":{}}}
        "#]],
    );
}

#[test]
fn status_and_main_endpoint_are_different_managers() {
    job(
        r#"
        post ctl {"spec":{"parallelism":1}}
        merge-status ctl {"status":{"active":1,"startTime":"2024-05-01T10:00:00Z"},"spec":{"parallelism":7}}"#,
        expect![[r#"
            {"spec":{"parallelism":7,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"startTime":"2024-05-01T10:00:00Z","active":1}}
            ctl Update :01 {"f:spec":{"f:parallelism":{}}}
            ctl/status Update :02 {"f:status":{"f:active":{},"f:startTime":{}}}
        "#]],
    );
    job(
        r#"
        apply alpha {"spec":{"suspend":true}}
        apply-status ctl {"spec":{"suspend":true},"status":{"active":1}}"#,
        expect![[r#"
            {"spec":{"template":{"metadata":{},"spec":{"containers":null}},"suspend":true},"status":{"active":1}}
            alpha Apply :01 {"f:spec":{"f:suspend":{}}}
            ctl/status Apply :02 {"f:status":{"f:active":{}}}
        "#]],
    );
}

#[test]
fn lists_merge_by_their_keys() {
    let pod = |script: &str, expected| check("v1", "Pod", script, expected);
    pod(
        r#"
        apply alpha {"spec":{"containers":[{"name":"main","image":"a"}]}}
        apply beta {"spec":{"containers":[{"name":"side","image":"b"}]}}"#,
        expect![[r#"
            {"spec":{"containers":[{"name":"main","image":"a","resources":{}},{"name":"side","image":"b","resources":{}}]},"status":{}}
            alpha Apply :01 {"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{}}}}}
            beta Apply :02 {"f:spec":{"f:containers":{"k:{\"name\":\"side\"}":{".":{},"f:image":{},"f:name":{}}}}}
        "#]],
    );
    pod(
        r#"
        apply alpha {"spec":{"containers":[{"name":"main","image":"a"},{"name":"side","image":"b"}]}}
        apply alpha {"spec":{"containers":[{"name":"main","image":"a"}]}}"#,
        expect![[r#"
            {"spec":{"containers":[{"name":"main","image":"a","resources":{}}]},"status":{}}
            alpha Apply :02 {"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{}}}}}
        "#]],
    );
    pod(
        r#"apply alpha {"spec":{"containers":[{"name":"main","ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP"}]}]}}"#,
        expect![[r#"
            {"spec":{"containers":[{"name":"main","ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP"}],"resources":{}}]},"status":{}}
            alpha Apply :01 {"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}},"k:{\"containerPort\":80,\"protocol\":\"UDP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}}}}}}
        "#]],
    );
    pod(
        r#"
        apply alpha {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u1"}]},"spec":{"imagePullSecrets":[{"name":"s"}]}}
        apply alpha {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"q","uid":"u1"}]},"spec":{"imagePullSecrets":[{"name":"s"}]}}"#,
        expect![[r#"
            {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"q","uid":"u1"}]},"spec":{"containers":null,"imagePullSecrets":[{"name":"s"}]},"status":{}}
            alpha Apply :02 {"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u1\"}":{}}},"f:spec":{"f:imagePullSecrets":{"k:{\"name\":\"s\"}":{}}}}
        "#]],
    );
}

#[test]
fn the_order_of_merged_lists_is_the_configurations_where_both_have_items() {
    let order = |live: &[&str], config: &[&str]| {
        let items = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let pod = registry().kind("v1", "Pod").unwrap();
        let live = json!({"spec": {"containers": items(live)}});
        let merged = merge::merge(pod, &live, &json!({"spec": {"containers": items(config)}})).unwrap();
        let names: Vec<_> = merged["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect();
        names.join("")
    };
    assert_eq!(order(&["a", "b", "c"], &["d"]), "abcd");
    assert_eq!(order(&["a", "b", "c"], &["c", "a"]), "bca");
    assert_eq!(order(&["a", "b", "c"], &["a", "d", "c"]), "abdc");
    assert_eq!(order(&["a", "b"], &["d", "b"]), "adb");
    assert_eq!(order(&["a", "a", "b"], &["b", "a"]), "ba");
    assert_eq!(order(&["a", "a", "b"], &["c"]), "aabc");
}

#[test]
fn ten_updaters_are_remembered() {
    let updates: Vec<_> = "abcdefghijk".chars().map(|c| format!(r#"merge m{c} {{"data":{{"k{c}":"x"}}}}"#)).collect();
    config_map(
        &format!(
            "apply alpha {{\"data\":{{\"a\":\"1\"}}}}\n{}\nmerge z {{\"data\":{{\"z\":\"x\"}}}}",
            updates.join("\n")
        ),
        expect![[r#"
            {"data":{"a":"1","ka":"x","kb":"x","kc":"x","kd":"x","ke":"x","kf":"x","kg":"x","kh":"x","ki":"x","kj":"x","kk":"x","z":"x"}}
            alpha Apply :01 {"f:data":{"f:a":{}}}
            ancient-changes Update :04 {"f:data":{"f:ka":{},"f:kb":{},"f:kc":{}}}
            md Update :05 {"f:data":{"f:kd":{}}}
            me Update :06 {"f:data":{"f:ke":{}}}
            mf Update :07 {"f:data":{"f:kf":{}}}
            mg Update :08 {"f:data":{"f:kg":{}}}
            mh Update :09 {"f:data":{"f:kh":{}}}
            mi Update :10 {"f:data":{"f:ki":{}}}
            mj Update :11 {"f:data":{"f:kj":{}}}
            mk Update :12 {"f:data":{"f:kk":{}}}
            z Update :13 {"f:data":{"f:z":{}}}
        "#]],
    );
}

#[test]
fn managed_fields_can_be_reset_and_start_over_with_an_apply() {
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        merge x {"metadata":{"managedFields":[{}]}}
        merge x {"data":{"b":"2"}}"#,
        expect![[r#"
            {"data":{"a":"1","b":"2"}}
        "#]],
    );
    config_map(
        r#"
        apply alpha {"data":{"a":"1"}}
        merge x {"metadata":{"managedFields":[]}}
        apply alpha {"data":{"a":"2"}}
        force alpha {"data":{"a":"2"}}"#,
        expect![[r#"
            409: Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a
            {"data":{"a":"2"}}
            alpha Apply :04 {"f:data":{"f:a":{}}}
            before-first-apply Update :04 {"f:data":{}}
        "#]],
    );
}

#[test]
fn entries_that_clients_send_are_taken_if_they_read() {
    config_map(
        r#"
        post m {"data":{"a":"1"}}
        merge n {"metadata":{"managedFields":[{"manager":"other","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]}}"#,
        expect![[r#"
            {"data":{"a":"1"}}
            other Update :-- {"f:data":{"f:a":{}}}
        "#]],
    );
    config_map(
        r#"
        post m {"data":{"a":"1"}}
        merge n {"metadata":{"managedFields":[{"manager":"other","operation":"Guess","apiVersion":"v1","fieldsType":"FieldsV1"}]},"data":{"b":"2"}}"#,
        expect![[r#"
            {"data":{"a":"1","b":"2"}}
            m Update :01 {"f:data":{".":{},"f:a":{}}}
            n Update :02 {"f:data":{"f:b":{}}}
        "#]],
    );
}

#[test]
fn configurations_must_fit_the_schema() {
    config_map(
        r#"apply alpha {"data":{"a":"1"},"colour":"red"}"#,
        expect![[r#"
        500: failed to create typed patch object (/demo; /v1, Kind=ConfigMap): .colour: field not declared in schema
        nothing
    "#]],
    );
    config_map(
        r#"apply alpha {"data":{"c":1}}"#,
        expect![[r#"
        500: failed to create typed patch object (/demo; /v1, Kind=ConfigMap): .data.c: expected string, got &value.valueUnstructured{Value:1}
        nothing
    "#]],
    );
    config_map(
        r#"apply alpha {"data":"x","immutable":"yes"}"#,
        expect![[r#"
        500: failed to create typed patch object (/demo; /v1, Kind=ConfigMap): errors:
          .data: expected map, got &{x}
          .immutable: expected boolean, got &{yes}
        nothing
    "#]],
    );
    job(
        r#"apply alpha {"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}]}}}}"#,
        expect![[r#"
            500: failed to create typed patch object (/demo; batch/v1, Kind=Job): .spec.template.spec.containers[name="main"].env: duplicate entries for key [name="A"]
            nothing
        "#]],
    );
    job(
        r#"apply alpha {"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}"#,
        expect![[r#"
        500: failed to create typed patch object (/demo; batch/v1, Kind=Job): .spec.template.spec.containers: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)
        nothing
    "#]],
    );
    job(
        r#"apply alpha {"spec":{"parallelism":"x","template":{"spec":{"containers":{"name":"a"}}}}}"#,
        expect![[r#"
        500: failed to create typed patch object (/demo; batch/v1, Kind=Job): errors:
          .spec.parallelism: expected numeric (int or float), got string
          .spec.template.spec.containers: expected list, got &{map[name:a]}
        nothing
    "#]],
    );
    job(
        r#"apply alpha {"metadata":{"namespace":"ns","finalizers":[null]}}"#,
        expect![[r#"
        500: failed to create typed patch object (ns/demo; batch/v1, Kind=Job): .metadata.finalizers: element 0: associative list without keys has an element that's an explicit null
        nothing
    "#]],
    );
}

#[test]
fn configurations_are_of_the_endpoints_kind_and_without_bookkeeping() {
    config_map(
        r#"apply alpha {"kind":"Secret"}"#,
        expect![[r#"
        400: invalid object type: /v1, Kind=Secret
        nothing
    "#]],
    );
    config_map(
        r#"apply alpha {"apiVersion":"v9"}"#,
        expect![[r#"
        400: invalid object type: /v9, Kind=ConfigMap
        nothing
    "#]],
    );
    config_map(
        r#"apply alpha {"apiVersion":"","kind":""}"#,
        expect![[r#"
        400: invalid object type: /, Kind=
        nothing
    "#]],
    );
    config_map(
        r#"apply alpha {"apiVersion":"a/b/c"}"#,
        expect![[r#"
        400: invalid object type: /, Kind=
        nothing
    "#]],
    );
    config_map(
        r#"apply alpha {"metadata":{"managedFields":[]}}"#,
        expect![[r#"
        400: metadata.managedFields must be nil
        nothing
    "#]],
    );
    job(
        r#"apply alpha {"apiVersion":"apps/v1","kind":"Job"}"#,
        expect![[r#"
        400: invalid object type: apps/v1, Kind=Job
        nothing
    "#]],
    );
}

#[test]
fn kubectl_takes_over_from_client_side_apply() {
    let post = |value: &str| {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo"}, "data": {"a": value}});
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
        format!(
            "post kubectl-client-side-apply {}",
            json!({"metadata": {"annotations": annotations}, "data": {"a": "1"}})
        )
    };
    config_map(
        &format!("{}\napply kubectl {{\"data\":{{\"a\":\"<2>\"}}}}", post("1")),
        expect![[r#"
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\u003c2\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"demo\"}}\n"}},"data":{"a":"<2>"}}
        kubectl Apply :02 {"f:data":{"f:a":{}}}
        kubectl-client-side-apply Update :01 {"f:data":{},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
    "#]],
    );
    config_map(
        &format!("{}\napply kubectl {{\"data\":{{\"a\":\"2\"}}}}", post("other")),
        expect![[r#"
        409: Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"demo\"},\"data\":{\"a\":\"other\"}}"}},"data":{"a":"1"}}
        kubectl-client-side-apply Update :01 {"f:data":{".":{},"f:a":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
    "#]],
    );
    config_map(
        &format!("{}\napply other {{\"data\":{{\"a\":\"2\"}}}}", post("1")),
        expect![[r#"
        409: Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"demo\"},\"data\":{\"a\":\"1\"}}"}},"data":{"a":"1"}}
        kubectl-client-side-apply Update :01 {"f:data":{".":{},"f:a":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
    "#]],
    );
}

#[test]
fn items_without_an_identity_leave_an_object_untracked() {
    let pod = registry().kind("v1", "Pod").unwrap();
    let manager = Manager { name: "m", api_version: "v1", subresource: "", now: "t", reset_fields: &[] };
    let mut new = json!({"metadata": {"name": "x"}, "spec": {"volumes": [{"emptyDir": {}}]}});
    update_managed_fields(pod, None, &mut new, &manager);
    assert_eq!(new["metadata"], json!({"name": "x"}));
}

/// A difference, and the bytes that stand for it.
fn traced(pod: &'static Type, old: Option<&Value>, new: &Value) -> (Difference, Result<Vec<u8>, String>) {
    let mut bytes = Vec::new();
    let differs = trace(pod, old, new, &manager("m", T1), &mut bytes);
    let differs = differs.inspect(|differs| assert_eq!(*differs, !bytes.is_empty()));
    (Difference::between(pod, old, new, &manager("m", T1)), differs.map(|_| bytes))
}

#[test]
fn other_differences_have_other_traces() {
    let pod = registry().kind("v1", "Pod").unwrap();
    let with = |metadata: Value, spec: Value| json!({"metadata": metadata, "spec": spec});
    let env = |items: Value| with(json!({}), json!({"containers": [{"name": "c", "env": items}]}));
    let objects = [
        with(json!({}), json!({})),
        with(json!({"labels": {"a": "1", "b": "1"}}), json!({})),
        // One name that looks like two, and one that looks like an item.
        with(json!({"labels": {"a+.b": "1"}}), json!({})),
        with(json!({"labels": {"v:\"a\"": "1"}}), json!({})),
        with(json!({"labels": {}}), json!({})),
        with(json!({"annotations": {"a": "1", "b": "1"}}), json!({})),
        with(json!({"finalizers": ["a", "b"]}), json!({})),
        with(json!({"finalizers": ["a"]}), json!({})),
        with(json!({}), json!({"nodeName": "a", "containers": null})),
        env(json!([{"name": "A", "value": "1"}])),
        env(json!([{"name": "A"}])),
        env(json!([{"name": "A"}, {"name": "B"}])),
        // Items of one name stand for each other.
        env(json!([{"name": "A", "value": "1"}, {"name": "A"}])),
        env(json!([{"name": "A"}, {"name": "A"}])),
        env(json!([{"value": "nameless"}])),
    ];
    let mut known: Vec<(Difference, Result<Vec<u8>, String>)> = Vec::new();
    for old in objects.iter().map(Some).chain([None]) {
        for new in &objects {
            known.push(traced(pod, old, new));
        }
    }
    for (difference, trace) in &known {
        for (other, other_trace) in &known {
            assert_eq!(
                trace.is_ok() && trace == other_trace,
                trace.is_ok() && difference == other,
                "{difference:?}\n{other:?}"
            );
        }
    }
}

#[test]
fn only_times_may_differ_in_a_write_without_effect() {
    let object = |time: &str, value: &str| json!({"metadata": {"managedFields": [{"manager": "a", "time": time}]}, "data": value});
    assert!(equal_but_for_times(&object("1", "x"), &object("2", "x")));
    assert!(!equal_but_for_times(&object("1", "x"), &object("1", "y")));
    assert!(!equal_but_for_times(&object("1", "x"), &json!({"metadata": {}, "data": "x"})));
}

/// Small pods: two containers, their images and environments, labels and finalizers come and go.
fn configuration() -> impl Strategy<Value = Value> {
    let text = "[ab]";
    let env = proptest::collection::btree_map("[A-C]", text, 0..3)
        .prop_map(|env| env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>());
    let container = ("[cd]", text, env)
        .prop_map(|(name, image, env)| (name.clone(), json!({"name": name, "image": image, "env": env})));
    let containers = proptest::collection::btree_map(Just(()), container, 0..1)
        .prop_map(|containers| containers.into_values().map(|(_, container)| container).collect::<Vec<_>>());
    let labels = proptest::collection::btree_map("[x-z]", text, 0..3);
    let finalizers = proptest::collection::btree_set("[pq]", 0..3);
    (containers, labels, finalizers, proptest::option::of(text)).prop_map(|(containers, labels, finalizers, node)| {
        let mut spec = json!({"containers": containers});
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels, "finalizers": finalizers}, "spec": spec})
    })
}

fn manager<'a>(name: &'a str, now: &'a str) -> Manager<'a> {
    Manager { name, api_version: "v1", subresource: "", now, reset_fields: &[&["status"]] }
}

const T1: &str = "2026-01-01T00:00:01Z";
const T2: &str = "2026-01-01T00:00:02Z";
const T3: &str = "2026-01-01T00:00:03Z";

proptest! {
    #[test]
    fn applying_twice_changes_nothing(first in configuration(), other in configuration()) {
        let pod = registry().kind("v1", "Pod").unwrap();
        let decode = |object| codec::convert_unstructured(pod, object).unwrap().value;
        let live = decode(apply(pod, None, &other, &manager("other", T1), true).unwrap());
        let once = decode(apply(pod, Some(&live), &first, &manager("m", T2), true).unwrap());
        let twice = decode(apply(pod, Some(&once), &first, &manager("m", T3), false).unwrap());
        prop_assert!(equal_but_for_times(&twice, &once), "{twice}\n{once}");
    }

    #[test]
    fn what_one_manager_applied_goes_when_it_applies_nothing(config in configuration()) {
        let pod = registry().kind("v1", "Pod").unwrap();
        let decode = |object| codec::convert_unstructured(pod, object).unwrap().value;
        let nothing = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let bare = decode(apply(pod, None, &nothing, &manager("m", T1), false).unwrap());
        let full = decode(apply(pod, Some(&bare), &config, &manager("m", T2), false).unwrap());
        let emptied = decode(apply(pod, Some(&full), &nothing, &manager("m", T3), false).unwrap());
        prop_assert_eq!(emptied, bare);
    }

    #[test]
    fn after_updates_every_field_has_one_owner(before in configuration(), after in configuration()) {
        let pod = registry().kind("v1", "Pod").unwrap();
        let decode = |object| codec::convert_unstructured(pod, object).unwrap().value;
        let mut live = decode(before);
        update_managed_fields(pod, None, &mut live, &manager("a", T1));
        // An object that nobody owns anything of is not tracked.
        prop_assume!(live["metadata"].get("managedFields").is_some());
        let mut new = decode(after);
        update_managed_fields(pod, Some(&live), &mut new, &manager("b", T2));
        let mut fresh = new.clone();
        update_managed_fields(pod, None, &mut fresh, &manager("x", T3));
        let sets = |object: &Value| -> Vec<FieldSet> {
            let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            entries.iter().map(|entry| FieldSet::from_wire(&entry["fieldsV1"]).unwrap()).collect()
        };
        let mut owned = FieldSet::new();
        for set in sets(&new) {
            prop_assert!(owned.intersection(&set).is_empty());
            owned.union(set);
        }
        prop_assert_eq!(owned.into_wire(), sets(&fresh).pop().unwrap_or_default().into_wire());
    }

    #[test]
    fn differences_of_one_trace_are_equal(objects in proptest::collection::vec(configuration(), 2..5)) {
        let pod = registry().kind("v1", "Pod").unwrap();
        let objects: Vec<Value> =
            objects.into_iter().map(|object| codec::convert_unstructured(pod, object).unwrap().value).collect();
        let mut known = std::collections::HashMap::new();
        for old in objects.iter().map(Some).chain([None]) {
            for new in &objects {
                let (difference, trace) = traced(pod, old, new);
                let before = known.entry(trace).or_insert_with(|| difference.clone());
                prop_assert_eq!(before, &difference);
            }
        }
    }

    #[test]
    fn arbitrary_objects_never_panic(live in arbitrary(), config in arbitrary()) {
        let pod = registry().kind("v1", "Pod").unwrap();
        let _ = apply(pod, Some(&live), &config, &manager("m", T1), true);
        let mut new = config;
        update_managed_fields(pod, Some(&live), &mut new, &manager("m", T1));
    }
}

fn arbitrary() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("containers"),
        Just("finalizers"),
        Just("name"),
        Just("env"),
        Just("labels"),
        Just("managedFields"),
        Just("fieldsV1"),
        Just("f:spec"),
        Just("volumes"),
        Just("nodeSelector"),
    ];
    let leaf = prop_oneof![Just(Value::Null), Just(json!("a")), Just(json!("Update")), Just(json!(1))];
    let tree = leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            3 => proptest::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    });
    tree.prop_map(|mut tree| {
        if let Some(members) = tree.as_object_mut() {
            members.insert("apiVersion".into(), "v1".into());
            members.insert("kind".into(), "Pod".into());
        }
        tree
    })
}
