//! What writes must meet, and which of several refusals comes first.

mod common;

use common::{Answer, Api, CONFIG_MAPS, JOBS, PODS, config_map, job};
use http::Method;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Kinds that a PUT does not create are missing before anything is asked of them (AS-111).
#[tokio::test]
async fn what_is_missing_has_no_preconditions() {
    let api = Api::new().await;
    let mut absent = job("a");
    absent["metadata"]["uid"] = json!("abc");
    absent["metadata"]["resourceVersion"] = json!("abc");
    for path in [format!("{JOBS}/a"), format!("{JOBS}/a/status")] {
        let refused = api.put(&path, absent.clone()).await.expect(404);
        assert_eq!(refused.body["message"], "jobs.batch \"a\" not found", "{path}");
    }
    api.post(JOBS, job("a")).await.expect(201);
    api.put(&format!("{JOBS}/a"), absent.clone()).await.expect(409);
    absent["metadata"].as_object_mut().unwrap().remove("uid");
    api.put(&format!("{JOBS}/a"), absent).await.expect(500);
}

/// A patch may not take the version away that an update of a Lease needs (AS-110).
#[tokio::test]
async fn a_lease_is_never_changed_without_its_version() {
    let api = Api::new().await;
    api.post(LEASES, json!({"metadata": {"name": "l"}})).await.expect(201);
    let path = format!("{LEASES}/l");
    for version in [Value::Null, json!("0"), json!("")] {
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "me"}});
        let refused = api.merge(&path, patch).await.expect(422);
        let expected = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                        specified for an update";
        assert_eq!(refused.body["message"], expected, "{version}");
    }
    api.merge(&path, json!({"spec": {"holderIdentity": "me"}})).await.expect(200);
}

/// The warning about pods that are left behind does not wait for the outcome (AS-148).
#[tokio::test]
async fn a_delete_that_fails_warns_too() {
    let api = Api::new().await;
    let job = api.post(JOBS, job("a")).await.expect(201).body;
    let path = format!("{JOBS}/a");
    let stale = json!({"preconditions": {"uid": "abc"}});
    for (path, body, code) in [(&format!("{JOBS}/none"), json!({}), 404), (&path, stale, 409)] {
        let refused = api.delete(path, body).await.expect(code);
        assert!(refused.warnings.iter().any(|warning| warning.contains("child pods are preserved")), "{refused:?}");
    }
    let wanted = json!({"preconditions": {"uid": job["metadata"]["uid"]}, "propagationPolicy": "Background"});
    assert!(api.delete(&path, wanted).await.expect(200).warnings.is_empty());
}

/// 202 only for `orphanDependents: false`, and only while the object stays.
#[tokio::test]
async fn a_delete_that_takes_time_is_accepted_if_asked_in_the_old_way() {
    let api = Api::new().await;
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, held(name)).await.expect(201);
    }
    api.post(CONFIG_MAPS, config_map("c", json!({}))).await.expect(201);
    for (name, options, code) in [
        ("a", json!({"orphanDependents": false}), 202),
        ("b", json!({"propagationPolicy": "Background"}), 200),
        ("c", json!({"orphanDependents": false}), 200),
    ] {
        api.delete(&format!("{CONFIG_MAPS}/{name}"), options).await.expect(code);
    }
}

/// Without a body the query tells the preconditions too (AS-143); empty ones are none.
#[tokio::test]
async fn preconditions_of_a_delete_count_in_the_query() {
    let api = Api::new().await;
    let stored = api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let delete = async |query: String| api.send(Method::DELETE, &format!("{CONFIG_MAPS}/a?{query}"), "", "").await;
    let refused = delete("uid=abc".to_owned()).await.expect(409);
    assert!(refused.body["message"].as_str().unwrap().contains("the UID in the precondition (abc)"), "{refused:?}");
    let refused = delete("resourceVersion=1".to_owned()).await.expect(409);
    assert!(refused.body["message"].as_str().unwrap().contains("the ResourceVersion in the precondition (1)"));
    delete("uid=&resourceVersion=&dryRun=All".to_owned()).await.expect(200);
    delete(format!("resourceVersion={}", stored.version())).await.expect(200);
}

#[tokio::test]
async fn of_two_names_that_exist_the_generated_one_is_blamed() {
    let api = Api::new().await;
    let object = json!({"metadata": {"name": "a", "generateName": "a-"}}).to_string();
    let post = async || {
        let answer = api.raw(Method::POST, CONFIG_MAPS, &[("content-type", "application/json")], &object).await;
        (answer.status().as_u16(), answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned()))
    };
    assert_eq!(post().await, (201, None));
    assert_eq!(post().await, (409, Some("1".to_owned())));
    let refused = api.send(Method::POST, CONFIG_MAPS, "application/json", &object).await.expect(409).body;
    let expected = "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
    assert_eq!((&refused["message"], &refused["reason"]), (&json!(expected), &json!("AlreadyExists")));
    assert_eq!(refused["details"], json!({"name": "a", "kind": "configmaps", "retryAfterSeconds": 1}));
}

/// The store refuses a version that is one; a dry run never gets there.
#[tokio::test]
async fn a_new_object_may_have_a_version_that_is_none() {
    let api = Api::new().await;
    let object = |name: &str, version: &str| json!({"metadata": {"name": name, "resourceVersion": version}});
    for (name, version) in [("zero", "0"), ("text", "abc"), ("signed", "-5")] {
        let stored = api.post(CONFIG_MAPS, object(name, version)).await.expect(201);
        assert!(stored.version() > 1, "{stored:?}");
    }
    let refused = api.post(CONFIG_MAPS, object("five", "5")).await.expect(500);
    assert_eq!(refused.body["message"], "resourceVersion should not be set on objects to be created");
    for version in ["5", "0", "abc"] {
        let shown = api.post(&format!("{CONFIG_MAPS}?dryRun=All"), object("five", version)).await.expect(201);
        assert_eq!(shown.body["metadata"]["resourceVersion"], version);
    }
}

/// Nobody reads a patch of what is not there, except an apply that would create it.
#[tokio::test]
async fn a_broken_patch_of_a_missing_object_finds_nothing() {
    let api = Api::new().await;
    let patch = async |path: String, kind: &str| {
        api.send(Method::PATCH, &path, &format!("application/{kind}"), "{broken").await.code
    };
    for kind in ["merge-patch+json", "strategic-merge-patch+json", "json-patch+json"] {
        assert_eq!(patch(format!("{JOBS}/a"), kind).await, 404, "{kind}");
        assert_eq!(patch(format!("{LEASES}/a"), kind).await, 404, "{kind}");
    }
    let apply = "apply-patch+yaml";
    assert_eq!(patch(format!("{JOBS}/a/status?fieldManager=me"), apply).await, 404);
    assert_eq!(patch(format!("{JOBS}/a?fieldManager=me"), apply).await, 400);
    api.post(JOBS, job("a")).await.expect(201);
    assert_eq!(patch(format!("{JOBS}/a"), "merge-patch+json").await, 400);
    assert_eq!(patch(format!("{JOBS}/a/status?fieldManager=me"), apply).await, 400);
}

#[tokio::test]
async fn a_wrong_namespace_is_told_before_a_wrong_name() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let metadata = json!({"name": "b", "namespace": "other"});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string();
    let apply = "application/apply-patch+yaml";
    for refused in [
        api.put(&path, json!({"metadata": metadata})).await,
        api.merge(&path, json!({"metadata": metadata})).await,
        api.send(Method::PATCH, &format!("{path}?fieldManager=me&force=true"), apply, &config).await,
        api.send(Method::PATCH, &format!("{CONFIG_MAPS}/none?fieldManager=me"), apply, &config).await,
    ] {
        let refused = refused.expect(400);
        let expected = "the namespace of the provided object does not match the namespace sent on the request";
        assert_eq!(refused.body["message"], expected);
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().expect("a message")
}

/// An option for objects that cannot be read is not for evictions.
#[tokio::test]
async fn an_eviction_cannot_break_the_cluster() {
    let api = Api::new().await;
    api.post(PODS, pod("a")).await.expect(201);
    let options = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let eviction = json!({"metadata": {"name": "a"}, "deleteOptions": options});
    let refused = api.post(&format!("{PODS}/a/eviction"), eviction).await.expect(422);
    assert_eq!(
        message(&refused),
        "Eviction.policy \"a\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: \
         true: can not be set for pod eviction, try after removing the option"
    );
    api.get(&format!("{PODS}/a")).await.expect(200);
}

/// The eviction's own mark does not make the version stale that it was asked for.
#[tokio::test]
async fn an_eviction_may_name_the_version() {
    let api = Api::new().await;
    let stored = api.post(PODS, pod("a")).await.expect(201);
    let evict = async |version: &str| {
        let options = json!({"preconditions": {"resourceVersion": version}});
        api.post(&format!("{PODS}/a/eviction"), json!({"metadata": {"name": "a"}, "deleteOptions": options})).await
    };
    let refused = evict("1").await.expect(409);
    assert!(message(&refused).contains("the ResourceVersion in the precondition (1)"), "{refused:?}");
    assert_eq!(api.get(&format!("{PODS}/a")).await.version(), stored.version());
    evict(&stored.version().to_string()).await.expect(201);
    api.get(&format!("{PODS}/a")).await.expect(404);
}

/// A pod that was marked for another reason is marked again, but is a target since then.
#[tokio::test]
async fn an_eviction_rewrites_the_reason_of_a_disruption() {
    let api = Api::new().await;
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(PODS, held).await.expect(201);
    let since = "2020-01-01T00:00:00Z";
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "X", "lastTransitionTime": since});
    let status = json!({"status": {"conditions": [condition]}});
    api.merge(&format!("{PODS}/a/status"), status).await.expect(200);
    api.post(&format!("{PODS}/a/eviction"), json!({"metadata": {"name": "a"}})).await.expect(201);
    let evicted = api.get(&format!("{PODS}/a")).await.body["status"]["conditions"][0].clone();
    assert_eq!((&evicted["reason"], &evicted["lastTransitionTime"]), (&json!("EvictionByEvictionAPI"), &json!(since)));
    assert_eq!(evicted["message"], "Eviction API: evicting");
}

#[tokio::test]
async fn a_binding_may_name_the_version_and_tells_every_fault() {
    let api = Api::new().await;
    let stored = api.post(PODS, pod("a")).await.expect(201);
    let bind = async |version: &str, target: Value| {
        let metadata = json!({"name": "a", "resourceVersion": version});
        api.post(&format!("{PODS}/a/binding"), json!({"metadata": metadata, "target": target})).await
    };
    let refused = bind("", json!({"kind": "Pod"})).await.expect(500);
    let expected = "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: \
                    Required value]";
    assert_eq!(message(&refused), expected);
    let refused = bind("1", json!({"name": "n"})).await.expect(409);
    let expected = format!(
        "Operation cannot be fulfilled on pods \"a\": StorageError: invalid object, Code: 4, Key: \
         /registry/pods/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in \
         precondition: 1, ResourceVersion in object meta: {}",
        stored.version()
    );
    assert_eq!(message(&refused), expected);
    bind(&stored.version().to_string(), json!({"name": "n"})).await.expect(201);
}

/// Bindings, evictions and tokens are content of their namespace (AS-85).
#[tokio::test]
async fn nothing_is_created_below_objects_of_a_namespace_that_ends() {
    let api = Api::new().await;
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "ends"}})).await.expect(201);
    api.post("/api/v1/namespaces/ends/pods", pod("a")).await.expect(201);
    api.post("/api/v1/namespaces/ends/serviceaccounts", json!({"metadata": {"name": "a"}})).await.expect(201);
    api.delete("/api/v1/namespaces/ends", json!({})).await.expect(200);
    let named = json!({"metadata": {"name": "a"}});
    let binding = json!({"metadata": {"name": "a"}, "target": {"name": "n"}});
    for (path, refused_as, body) in [
        ("pods/a/binding", "pods \"a\"", &binding),
        ("bindings", "bindings \"a\"", &binding),
        ("pods/a/eviction", "pods \"a\"", &named),
        ("serviceaccounts/a/token", "serviceaccounts \"a\"", &json!({"spec": {}})),
    ] {
        let refused = api.post(&format!("/api/v1/namespaces/ends/{path}"), body.clone()).await.expect(403);
        let expected = format!(
            "{refused_as} is forbidden: unable to create new content in namespace ends because it is being terminated"
        );
        assert_eq!(message(&refused), expected, "{path}");
        assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating", "{path}");
        let refused = api.post(&format!("/api/v1/namespaces/nope/{path}"), body.clone()).await.expect(404);
        assert_eq!(message(&refused), "namespaces \"nope\" not found", "{path}");
    }
}

/// Told before the class is looked for, also in a dry run.
#[tokio::test]
async fn priority_classes_of_the_system_stay() {
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let api = Api::new().await;
    for name in ["system-node-critical", "system-cluster-critical"] {
        for query in ["", "?dryRun=All", "?uid=abc"] {
            let refused = api.send(Method::DELETE, &format!("{CLASSES}/{name}{query}"), "", "").await.expect(403);
            let expected = format!(
                "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot \
                 be deleted"
            );
            assert_eq!(message(&refused), expected, "{query}");
        }
    }
    api.post(CLASSES, json!({"metadata": {"name": "mine"}, "value": 1})).await.expect(201);
    api.delete(&format!("{CLASSES}/mine"), json!({})).await.expect(200);
}

#[tokio::test]
async fn admission_of_pods_refuses_in_upstreams_order_and_names() {
    let api = Api::new().await;
    let with = |member: &str, value: Value| {
        let mut pod = pod("a");
        pod["spec"][member] = value;
        pod
    };
    let refused = api.post(PODS, with("overhead", json!({"cpu": "1"}))).await.expect(403);
    let expected =
        "pods \"a\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    assert_eq!(message(&refused), expected);
    api.post(PODS, with("overhead", json!({"cpu": "-1"}))).await.expect(422);
    let mut unknown = with("priorityClassName", json!("none"));
    unknown["spec"]["serviceAccountName"] = json!("nobody");
    let refused = api.post(PODS, unknown.clone()).await.expect(403);
    assert!(message(&refused).contains("error looking up service account default/nobody"), "{refused:?}");
    unknown["spec"].as_object_mut().unwrap().remove("serviceAccountName");
    unknown["metadata"] = json!({});
    let refused = api.post(PODS, unknown).await.expect(403);
    assert_eq!(message(&refused), "pods \"Unknown\" is forbidden: no PriorityClass with name none was found");
}

#[tokio::test]
async fn an_immortal_namespace_is_first_the_one_that_is_meant() {
    let api = Api::new().await;
    let path = "/api/v1/namespaces/kube-system";
    api.delete(path, json!({"preconditions": {"uid": "abc"}})).await.expect(409);
    let refused = api.delete(path, json!({})).await.expect(403);
    assert_eq!(message(&refused), "namespaces \"kube-system\" is forbidden: this namespace may not be deleted");
}

/// An object that only the collector's finalizer held goes as it was: watchers see it deleted, not changed.
#[tokio::test]
async fn a_delete_that_drops_the_last_finalizer_is_one_event() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let held = api.delete(&path, json!({"propagationPolicy": "Foreground"})).await.expect(200);
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", held.version())).await;
    api.delete(&path, json!({"propagationPolicy": "Background"})).await.expect(200);
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED", "{event:#}");
    assert_eq!(event["object"]["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}
