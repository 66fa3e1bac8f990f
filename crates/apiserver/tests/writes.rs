//! Writes under contention and the promises of lists, end to end in process.

mod common;

use common::{Api, CONFIG_MAPS, JOBS, PODS, config_map, job};
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn patches_without_a_version_all_take_effect() {
    const WRITERS: usize = 16;
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                let patch = json!({"data": {format!("key-{writer}"): "x"}});
                api.merge(&format!("{CONFIG_MAPS}/a"), patch).await.expect(200);
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let data = api.get(&format!("{CONFIG_MAPS}/a")).await.body["data"].clone();
    assert_eq!(data.as_object().unwrap().len(), WRITERS + 1, "{data}");
}

/// BI-64: whatever a patch says about it, an object stays what it is, and lists of it can be read.
#[tokio::test]
async fn no_patch_changes_what_an_object_is() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    api.post(JOBS, job("a")).await.expect(201);
    let removal = json!([{"op": "remove", "path": "/kind"}]);
    for (collection, kind, version) in [(CONFIG_MAPS, "ConfigMap", "v1"), (JOBS, "Job", "batch/v1")] {
        for (patch_type, patch) in [
            ("merge", json!({"kind": null})),
            ("json", removal.clone()),
            ("strategic-merge", json!({"kind": null})),
            ("strategic-merge", json!({"kind": "Secret"})),
            ("strategic-merge", json!({"apiVersion": null})),
            ("strategic-merge", json!({"apiVersion": "x/v9"})),
        ] {
            let path = format!("{collection}/a");
            let content_type = format!("application/{patch_type}-patch+json");
            let answer = api.send(Method::PATCH, &path, &content_type, &patch.to_string()).await;
            assert!(matches!(answer.code, 200 | 400 | 422), "{patch_type} {patch}: {answer:?}");
            let object = api.get(&path).await.expect(200).body;
            assert_eq!(
                (&object["kind"], &object["apiVersion"]),
                (&json!(kind), &json!(version)),
                "{patch_type} {patch}"
            );
            let list = api.get(collection).await.expect(200).body;
            assert_eq!(list["items"][0]["metadata"]["name"], "a", "{patch_type} {patch}");
        }
    }
}

/// INV-45.
#[tokio::test]
async fn of_two_writers_with_one_version_the_second_loses_as_114() {
    let api = Api::new().await;
    let read = api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201).body;
    let mut first = read.clone();
    first["data"]["a"] = json!("1");
    let mut second = read;
    second["data"]["a"] = json!("2");
    let path = format!("{CONFIG_MAPS}/a");
    api.put(&path, first).await.expect(200);
    let refused = api.put(&path, second).await.expect(409);
    assert_eq!(refused.body["reason"], "Conflict");
    assert_eq!(api.get(&path).await.body["data"]["a"], "1");
}

/// AS-110: the uid of a PUT is a precondition that a missing object cannot meet.
#[tokio::test]
async fn a_uid_in_the_body_excludes_creating() {
    let api = Api::new().await;
    let lease = json!({"metadata": {"name": "l", "uid": "abc"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let refused = api.put(path, lease).await.expect(409);
    let expected = "Operation cannot be fulfilled on leases.coordination.k8s.io \"l\": StorageError: invalid object, \
                    Code: 4, Key: /registry/leases/default/l, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                    failed: UID in precondition: abc, UID in object meta: ";
    assert_eq!(refused.body["message"], expected);
    api.put(path, json!({"metadata": {"name": "l"}})).await.expect(201);
}

#[tokio::test]
async fn pages_show_the_snapshot_of_the_first_as_90() {
    let api = Api::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.post(CONFIG_MAPS, config_map(name, json!({}))).await.expect(201);
    }
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await.expect(200);
    assert_eq!((first.names(), &first.body["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    api.post(CONFIG_MAPS, config_map("bb", json!({}))).await.expect(201);
    api.delete(&format!("{CONFIG_MAPS}/d"), json!({})).await.expect(200);
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{CONFIG_MAPS}?continue={token}")).await.expect(200);
    assert_eq!((second.names(), second.version()), (vec!["c", "d", "e"], first.version()));
}

/// AS-94: a field that upstream knows but never fills in selects by being empty.
#[tokio::test]
async fn pods_have_no_list_of_addresses_to_select_by() {
    let api = Api::new().await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    api.post(PODS, pod).await.expect(201);
    let status = json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}});
    api.merge(&format!("{PODS}/a/status"), status).await.expect(200);
    for (selector, names) in
        [("status.podIPs=10.0.0.1", vec![]), ("status.podIPs=", vec!["a"]), ("status.podIP=10.0.0.1", vec!["a"])]
    {
        assert_eq!(api.get(&format!("{PODS}?fieldSelector={selector}")).await.expect(200).names(), names, "{selector}");
    }
    api.get(&format!("{JOBS}?fieldSelector=status.podIPs=")).await.expect(400);
}

/// INV-46.
#[tokio::test]
async fn a_finalizer_holds_and_lets_go_as_113() {
    let api = Api::new().await;
    let mut object = config_map("a", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(CONFIG_MAPS, object).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let marked = api.delete(&path, json!({})).await.expect(200);
    assert!(marked.body["metadata"]["deletionTimestamp"].is_string());
    api.get(&path).await.expect(200);
    api.merge(&path, json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_bound_pod_goes_only_when_its_node_says_so_as_151() {
    let api = Api::new().await;
    let pod = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}]}});
    api.post(PODS, pod).await.expect(201);
    let path = format!("{PODS}/a");
    api.delete(&path, json!({})).await.expect(200);
    api.merge(&path, json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.get(&path).await.expect(200);
    api.delete(&path, json!({"gracePeriodSeconds": 0})).await.expect(200);
    api.get(&path).await.expect(404);
}

#[tokio::test]
async fn dry_runs_store_nothing_as_154() {
    let api = Api::new().await;
    let before = api.store.revision();
    let answer = api.post(&format!("{JOBS}?dryRun=All"), job("a")).await.expect(201);
    assert!(answer.body["metadata"].get("resourceVersion").is_none());
    assert_eq!(api.store.revision(), before);
}

#[tokio::test]
async fn generated_names_are_unique() {
    let api = Api::new().await;
    for _ in 0..50 {
        api.post(CONFIG_MAPS, json!({"metadata": {"generateName": "g-"}})).await.expect(201);
    }
    let names = api.get(CONFIG_MAPS).await;
    assert_eq!(names.names().iter().collect::<std::collections::BTreeSet<_>>().len(), 50);
}

/// INV-54.
#[tokio::test]
async fn bodies_are_bounded_as_11() {
    let api = Api::new().await;
    let large = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"a":"{}"}}}}"#, "x".repeat(3_145_728));
    let refused = api.send(Method::POST, CONFIG_MAPS, "application/json", &large).await.expect(413);
    assert_eq!(refused.body["reason"], "RequestEntityTooLarge");
}

/// INV-54.
#[tokio::test]
async fn json_patches_are_bounded_as_116() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let operations: Vec<Value> = (0..10_001).map(|_| json!({"op": "test", "path": "/data/a", "value": "0"})).collect();
    let body = Value::from(operations).to_string();
    api.send(Method::PATCH, &format!("{CONFIG_MAPS}/a"), "application/json-patch+json", &body).await.expect(413);
}

/// INV-47.
#[tokio::test]
async fn deep_nesting_is_refused_not_recursed() {
    let api = Api::new().await;
    let deep = format!(r#"{{"metadata":{{"name":"a"}},"data":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    api.send(Method::POST, CONFIG_MAPS, "application/json", &deep).await.expect(400);
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let deep = format!("{}1{}", r#"{"data":"#.repeat(100_000), "}".repeat(100_000));
    for kind in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        api.send(Method::PATCH, &format!("{CONFIG_MAPS}/a"), kind, &deep).await.expect(400);
    }
}

#[tokio::test]
async fn events_are_found_by_source_or_by_who_reported_them_as_94() {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let api = Api::new().await;
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let old = json!({"metadata": {"name": "old"}, "involvedObject": about, "source": {"component": "kubelet"}});
    let new = json!({"metadata": {"name": "new"}, "involvedObject": about, "reportingComponent": "kubelet"});
    let other = json!({"metadata": {"name": "other"}, "involvedObject": about, "source": {"component": "x"}, "reportingComponent": "kubelet"});
    for event in [old, new, other] {
        api.post(EVENTS, event).await.expect(201);
    }
    let found = api.get(&format!("{EVENTS}?fieldSelector=source%3Dkubelet")).await.expect(200);
    assert_eq!(found.names(), ["new", "old"]);
}

/// Patches that leave most of a pod as the bytes it is (design D3) do what JSON patches, which read it whole, do.
#[tokio::test]
async fn a_patch_that_leaves_parts_unread_does_the_same() {
    const JSON_PATCH: &str = "application/json-patch+json";
    let status = |state: Value| json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
    let steps = [
        ("", json!({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})),
        ("", json!({"metadata": {"finalizers": ["example.com/b"]}})),
        ("", json!({"metadata": {"labels": {"x": "y"}}})),
        ("", json!({"metadata": {"labels": {"x": "a b"}}})),
        ("", json!({"metadata": {"uid": "other"}})),
        ("/status", json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})),
        ("/status", json!({"status": {"containerStatuses": status(json!({"running": {}}))}})),
        ("/status", json!({"status": {"containerStatuses": status(json!({"terminated": {"exitCode": 1}}))}})),
        ("/status", json!({"status": {"containerStatuses": status(json!({"running": {}}))}})),
        ("/status", json!({"status": {"qosClass": "Burstable"}})),
        ("/status", json!({"status": {"observedGeneration": -1}})),
        ("/status", json!({"status": {"phase": "Failed"}})),
    ];
    let api = Api::new().await;
    for name in ["merged", "whole"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}});
        api.post(PODS, pod).await.expect(201);
    }
    for (part, patch) in steps {
        let merged = api.merge(&format!("{PODS}/merged{part}"), patch.clone()).await;
        let operations = json!([{"op": "test", "path": "/kind", "value": "Pod"}]);
        let mut operations = operations.as_array().unwrap().clone();
        for (member, value) in patch.as_object().unwrap() {
            for (name, value) in value.as_object().unwrap() {
                operations.push(json!({"op": "add", "path": format!("/{member}/{name}"), "value": value}));
            }
        }
        let path = format!("{PODS}/whole{part}");
        let whole = api.send(Method::PATCH, &path, JSON_PATCH, &Value::from(operations).to_string()).await;
        assert_eq!(merged.code, whole.code, "{patch}: {}", merged.body);
        if merged.code == 200 {
            assert_eq!(comparable(&merged.body), comparable(&whole.body), "{patch}");
        } else {
            let message = |body: &Value| body["message"].as_str().unwrap().replace("merged", "whole");
            assert_eq!(message(&merged.body), message(&whole.body), "{patch}");
        }
    }
    // The answer to the patch that lets a pod go is the pod, all of it.
    api.delete(&format!("{PODS}/merged"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    let last = api.merge(&format!("{PODS}/merged"), json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(
        (&last.body["spec"]["containers"][0]["name"], &last.body["status"]["phase"]),
        (&json!("c"), &json!("Failed"))
    );
    api.get(&format!("{PODS}/merged")).await.expect(404);
}

/// AS-132, AS-136: owners are those of the stored object, whatever a PUT to `/status` says of them, and the writer gains what
/// it changed. A JSON patch, for which the object is read with its owners, shows what that comes to.
#[tokio::test]
async fn a_status_that_is_put_leaves_owners_to_the_server() {
    let api = Api::new().await;
    for name in ["put", "empty", "absent", "whole"] {
        api.post(JOBS, job(name)).await.expect(201);
    }
    let status = json!({"active": 1, "startTime": "2026-11-16T00:00:00Z"});
    let path = format!("{JOBS}/whole/status");
    let operations = json!([{"op": "add", "path": "/status", "value": status}]);
    let whole =
        api.send(Method::PATCH, &path, "application/json-patch+json", &operations.to_string()).await.expect(200);
    let managers = |object: &Value| comparable(object)["metadata"]["managedFields"].clone();
    assert_eq!(managers(&whole.body).as_array().map(Vec::len), Some(2));
    for name in ["put", "empty", "absent"] {
        let path = format!("{JOBS}/{name}");
        let mut sent = api.get(&path).await.expect(200).body;
        sent["status"] = status.clone();
        match name {
            "empty" => sent["metadata"]["managedFields"] = json!([]),
            "absent" => drop(sent["metadata"].as_object_mut().unwrap().remove("managedFields")),
            _ => {}
        }
        let answer = api.put(&format!("{path}/status"), sent.clone()).await.expect(200);
        assert_eq!(managers(&answer.body), managers(&whole.body), "{name}");
        assert_eq!(api.get(&path).await.expect(200).body, answer.body, "{name}");
        // The same once more changes nothing.
        sent["metadata"]["resourceVersion"] = answer.body["metadata"]["resourceVersion"].clone();
        assert_eq!(api.put(&format!("{path}/status"), sent).await.expect(200).body, answer.body, "{name}");
    }
}

/// AS-86, AS-154: a dry run answers with the owners too, and so does what is stored.
#[tokio::test]
async fn what_is_made_shows_its_owners() {
    let api = Api::new().await;
    let tried = api.post(&format!("{JOBS}?dryRun=All"), job("a")).await.expect(201).body;
    let made = api.post(JOBS, job("a")).await.expect(201).body;
    let managers = |object: &Value| comparable(object)["metadata"]["managedFields"].clone();
    assert_eq!(managers(&tried), managers(&made));
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Update");
    assert_eq!(api.get(&format!("{JOBS}/a")).await.expect(200).body, made);
}

/// An object without what differs between any two of them.
fn comparable(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let metadata = pod["metadata"].as_object_mut().expect("an object");
    for member in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(member);
    }
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry.as_object_mut().expect("an object").remove("time");
    }
    pod
}
