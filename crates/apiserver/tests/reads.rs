//! Gets, lists and their parameters, where upstream has more to say than the happy path.

mod common;

use std::time::Duration;

use common::{Api, CONFIG_MAPS, PODS, config_map};
use http::{Method, header};
use serde_json::json;

const EVENTS: &str = "/api/v1/namespaces/default/events";

async fn refused(api: &Api, path: &str, code: u16) -> String {
    let answer = api.get(path).await.expect(code);
    answer.body["message"].as_str().unwrap_or_default().to_owned()
}

/// AS-90, as upstream's `Cacher.GetList` has it.
#[tokio::test]
async fn a_page_ends_when_it_is_full_whatever_follows() {
    let api = Api::new().await;
    for (name, label) in [("a", "yes"), ("b", "no"), ("c", "yes"), ("d", "no")] {
        api.post(CONFIG_MAPS, config_map(name, json!({"x": label}))).await.expect(201);
    }
    let path = format!("{CONFIG_MAPS}?labelSelector=x%3Dyes");
    let first = api.get(&format!("{path}&limit=2")).await.expect(200);
    assert_eq!(first.names(), ["a", "c"]);
    let token = first.body["metadata"]["continue"].as_str().expect("`d` follows, matching or not");
    assert!(first.body["metadata"]["remainingItemCount"].is_null());
    let rest = api.get(&format!("{path}&limit=2&continue={token}")).await.expect(200);
    assert_eq!(rest.names(), [""; 0]);
    assert!(rest.body["metadata"]["continue"].is_null());
    let whole = api.get(&format!("{path}&limit=3")).await.expect(200);
    assert_eq!((whole.names().len(), &whole.body["metadata"]["continue"]), (2, &json!(null)));
}

#[tokio::test]
async fn a_selector_for_one_namespace_narrows_a_list() {
    let api = Api::new().await;
    for namespace in ["default", "kube-public"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        for name in ["a", "b"] {
            api.post(&path, config_map(name, json!({}))).await.expect(201);
        }
    }
    let path = "/api/v1/configmaps?fieldSelector=metadata.namespace%3Ddefault";
    let whole = api.get(&format!("{path}&limit=2")).await.expect(200);
    assert_eq!((whole.names(), &whole.body["metadata"]["continue"]), (vec!["a", "b"], &json!(null)));
    let first = api.get(&format!("{path}&limit=1")).await.expect(200);
    let token = first.body["metadata"]["continue"].as_str().expect("`b` follows");
    let rest = api.get(&format!("{path}&limit=1&continue={token}")).await.expect(200);
    assert_eq!((rest.names(), &rest.body["metadata"]["continue"]), (vec!["b"], &json!(null)));
}

#[tokio::test]
async fn parameters_are_refused_in_upstreams_words() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let no_export = "the export parameter, deprecated since v1.14, is no longer supported";
    let no_number = "strconv.ParseInt: parsing \"\": invalid syntax";
    for (query, message) in [
        ("/a?export=true", no_export),
        ("/a?export", no_export),
        ("?limit=", no_number),
        ("?timeoutSeconds=", no_number),
        ("?limit=few&timeoutSeconds=", no_number),
    ] {
        assert_eq!(refused(&api, &format!("{CONFIG_MAPS}{query}"), 400).await, message, "{query}");
    }
    api.get(&format!("{CONFIG_MAPS}/a?export=false")).await.expect(200);
    refused(&api, &format!("{CONFIG_MAPS}?watch=1&continue=abc"), 422).await;
    refused(&api, &format!("{CONFIG_MAPS}/a?resourceVersion=%205"), 500).await;
    let grace = api.send(Method::DELETE, &format!("{CONFIG_MAPS}/a?gracePeriodSeconds="), "", "").await.expect(400);
    assert_eq!(grace.body["message"], no_number);
}

/// AS-12: only requests with such a limit have it looked at, and then before anything else.
#[tokio::test]
async fn a_malformed_timeout_is_refused_where_it_would_count() {
    let api = Api::new().await;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"abc\"";
    for path in [CONFIG_MAPS, "/version", "/api", "/nowhere"] {
        assert_eq!(refused(&api, &format!("{path}?timeout=abc"), 400).await, message, "{path}");
    }
    api.watch(&format!("{CONFIG_MAPS}?watch=1&timeout=abc&timeoutSeconds=1")).await;
    assert_eq!(refused(&api, &format!("{PODS}/none/log?timeout=abc"), 404).await, "pods \"none\" not found");
}

#[tokio::test]
async fn names_that_no_path_can_hold_are_told_so() {
    let api = Api::new().await;
    for (name, message) in [
        ("a%25b", "Name parameter invalid: \"a%b\": may not contain '%'"),
        ("%2e%2e", "Name parameter invalid: \"..\": may not be '..'"),
    ] {
        let path = format!("{CONFIG_MAPS}/{name}");
        assert_eq!(refused(&api, &path, 400).await, message);
        assert_eq!(api.delete(&path, json!({})).await.expect(400).body["message"], message);
    }
    let message = "the server could not find the requested resource";
    assert_eq!(refused(&api, &format!("{CONFIG_MAPS}/a%2Fb"), 404).await, message);
    let nameless = json!({"metadata": {}, "target": {"kind": "Node", "name": "n"}});
    let refused = api.post("/api/v1/namespaces/default/bindings", nameless).await.expect(400);
    assert_eq!(refused.body["message"], "Name parameter required.");
}

/// Upstream reads events from the store and everything else through a cache (AS-87, AS-89).
#[tokio::test(start_paused = true)]
async fn events_are_read_as_from_the_store_itself() {
    let api = Api::inline().await;
    for name in ["a", "b"] {
        let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
        api.post(EVENTS, event).await.expect(201);
        api.post(CONFIG_MAPS, config_map(name, json!({}))).await.expect(201);
    }
    let page = api.get(&format!("{EVENTS}?resourceVersion=0&limit=1")).await.expect(200);
    assert_eq!((page.names(), page.body["metadata"]["continue"].is_string()), (vec!["a"], true));
    assert_eq!(api.get(&format!("{CONFIG_MAPS}?resourceVersion=0&limit=1")).await.names(), ["a", "b"]);

    let begin = tokio::time::Instant::now();
    for path in [EVENTS.to_owned(), format!("{EVENTS}/a")] {
        let late = api.get(&format!("{path}?resourceVersion=99999")).await.expect(504);
        assert!(late.body["details"]["retryAfterSeconds"].is_null());
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let late = api.get(&format!("{CONFIG_MAPS}?resourceVersion=99999")).await.expect(504);
    assert_eq!((begin.elapsed(), &late.body["details"]["retryAfterSeconds"]), (Duration::from_secs(3), &json!(1)));

    let message = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \
                   \"abc\": invalid syntax";
    assert_eq!(refused(&api, &format!("{EVENTS}/a?resourceVersion=abc"), 400).await, message);
    refused(&api, &format!("{CONFIG_MAPS}/a?resourceVersion=abc"), 500).await;
}

/// AS-54, AS-6, AS-7.
#[tokio::test]
async fn health_and_version_are_as_upstream_has_them() {
    let api = Api::new().await;
    let checks = "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n";
    let warning = "warn: some health checks cannot be excluded: no matches for \"bar\",\"foo\"\n";
    for (path, code, body) in [
        ("/readyz/ping?verbose", 200, "ok".to_owned()),
        ("/readyz?exclude=foo", 200, "ok".to_owned()),
        (
            "/readyz?verbose&exclude=foo&exclude=etcd&exclude=bar",
            200,
            format!("{checks}{warning}readyz check passed\n"),
        ),
        ("/healthz/", 404, "404 page not found\n".to_owned()),
        ("/healthz/nothing", 404, "404 page not found\n".to_owned()),
    ] {
        assert_eq!(api.get(path).await.expect(code).body, body, "{path}");
    }
    for method in [Method::POST, Method::HEAD] {
        api.send(method, "/version", "", "").await.expect(405);
    }
}

/// AS-9: whoever makes an answer.
#[tokio::test]
async fn every_answer_bears_its_audit_id_and_may_not_be_kept() {
    let api = Api::new().await;
    for path in [CONFIG_MAPS, "/version", "/healthz", "/nowhere", "/api", "/openapi/v3", "/openid/v1/jwks", "/"] {
        let response = api.raw(Method::GET, path, &[("audit-id", "mine")], "").await;
        assert_eq!(response.headers()["audit-id"], "mine", "{path}");
        let kept = &response.headers()[header::CACHE_CONTROL];
        let expected = if path == "/openid/v1/jwks" { "public, max-age=3600" } else { "no-cache, private" };
        assert_eq!(kept, expected, "{path}");
        let made_up = api.raw(Method::GET, path, &[], "").await;
        assert_eq!(made_up.headers()["audit-id"].len(), 36, "{path}");
    }
}

/// AS-160: nothing in a table of upstream's default converter is no list at all.
#[tokio::test]
async fn empty_tables_have_no_rows_in_their_own_ways() {
    let api = Api::new().await;
    let accept = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    for (path, rows) in [
        (CONFIG_MAPS, json!([])),
        ("/api/v1/namespaces/default/limitranges", json!(null)),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", json!(null)),
    ] {
        let response = api.raw(Method::GET, path, &accept, "").await;
        let bytes = response.into_body().collect_bytes().await.expect("a body");
        let table: serde_json::Value = serde_json::from_slice(&bytes).expect("a table");
        assert_eq!((&table["kind"], table.get("rows")), (&json!("Table"), Some(&rows)), "{path}");
    }
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).to_string();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(api.raw(Method::POST, path, &accept, &review).await.status(), 406);
}
