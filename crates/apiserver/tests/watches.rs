//! Watches never lie (design D6): in order, without gaps, and they end as clients expect.

mod common;

use std::time::Duration;

use common::{Api, CONFIG_MAPS, config_map};
use http::Method;
use serde_json::json;

#[tokio::test]
async fn every_change_is_seen_once_and_in_order_under_concurrent_writers() {
    const WRITERS: usize = 8;
    const WRITES: usize = 50;
    let api = Api::new().await;
    let start = api.store.revision();
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&timeoutSeconds=60")).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                let name = format!("w{writer}");
                api.post(CONFIG_MAPS, config_map(&name, json!({}))).await.expect(201);
                for at in 1..WRITES {
                    api.merge(&format!("{CONFIG_MAPS}/{name}"), json!({"data": {"a": at.to_string()}}))
                        .await
                        .expect(200);
                }
            })
        })
        .collect();
    let mut last_version = start;
    let mut counts = [0; WRITERS];
    for _ in 0..WRITERS * WRITES {
        let event = events.next().await.unwrap();
        let object = &event["object"];
        let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version > last_version, "{version} came after {last_version}");
        last_version = version;
        let writer: usize = object["metadata"]["name"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(object["data"]["a"], counts[writer].to_string(), "writer {writer}");
        assert_eq!(event["type"], if counts[writer] == 0 { "ADDED" } else { "MODIFIED" });
        counts[writer] += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(counts, [WRITES; WRITERS]);
}

#[tokio::test]
async fn selectors_judge_old_and_new_state_as_98() {
    let api = Api::new().await;
    let start = api.store.revision();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&labelSelector=x%3Dy&timeoutSeconds=60");
    let mut events = api.watch(&path).await;
    let one = format!("{CONFIG_MAPS}/a");
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let entered = api.merge(&one, json!({"metadata": {"labels": {"x": "y"}}})).await.version();
    let changed = api.merge(&one, json!({"data": {"a": "1"}})).await.version();
    let left = api.merge(&one, json!({"metadata": {"labels": {"x": null}}})).await.version();
    api.delete(&one, json!({})).await.expect(200);
    api.post(CONFIG_MAPS, config_map("b", json!({"x": "y"}))).await.expect(201);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(events.summary().await.unwrap());
    }
    let expected = [("ADDED", "a", entered), ("MODIFIED", "a", changed), ("DELETED", "a", left)];
    for (seen, (kind, name, version)) in seen.iter().zip(expected) {
        assert_eq!((seen.0.as_str(), seen.1.as_str(), seen.2), (kind, name, version));
    }
    assert_eq!((seen[3].0.as_str(), seen[3].1.as_str()), ("ADDED", "b"));
}

#[tokio::test]
async fn a_list_and_a_watch_from_it_miss_nothing() {
    let api = Api::new().await;
    for at in 0..20 {
        api.post(CONFIG_MAPS, config_map(&format!("before-{at}"), json!({}))).await.expect(201);
    }
    let list = api.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(list.names().len(), 20);
    api.post(CONFIG_MAPS, config_map("between", json!({}))).await.expect(201);
    let mut events =
        api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}&timeoutSeconds=60", list.version())).await;
    api.post(CONFIG_MAPS, config_map("after", json!({}))).await.expect(201);
    assert_eq!(events.summary().await.unwrap().1, "between");
    assert_eq!(events.summary().await.unwrap().1, "after");
}

#[tokio::test]
async fn a_version_that_is_gone_is_one_error_event_as_104() {
    let api = Api::new().await;
    let first = api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201).version();
    for at in 0..5 {
        api.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"a": format!("x{at}")}})).await.expect(200);
    }
    let compacted = api.store.compact(api.store.revision()).await.unwrap();
    assert!(compacted > first);
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={first}&timeoutSeconds=60")).await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"], &event["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert_eq!(events.next().await, None);
    // The same for a list at that version, and for pages that started there.
    let list = api.get(&format!("{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=Exact")).await.expect(410);
    assert_eq!(list.body["reason"], "Expired");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_by_the_minute_and_before_the_end_as_106() {
    let api = Api::new().await;
    let version = api.store.revision();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=100");
    let mut events = api.watch(&path).await;
    let started = tokio::time::Instant::now();
    let mut at_seconds = Vec::new();
    while let Some((kind, _, bookmark)) = events.summary().await {
        assert_eq!((kind.as_str(), bookmark), ("BOOKMARK", version));
        at_seconds.push(started.elapsed().as_secs());
    }
    assert_eq!(at_seconds, [60, 98]);
    assert_eq!(started.elapsed().as_secs(), 100);
}

/// AS-100, AS-106: what has not been reached cannot be vouched for.
#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_is_silent_until_it_is_reached() {
    let api = Api::inline().await;
    let future = api.store.revision() + 2;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={future}&allowWatchBookmarks=true&timeoutSeconds=600");
    let mut events = api.watch(&path).await;
    let silent = tokio::time::timeout(Duration::from_secs(300), events.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    for name in ["a", "b", "c"] {
        api.post(CONFIG_MAPS, config_map(name, json!({}))).await.expect(201);
    }
    assert_eq!(events.summary().await.unwrap(), ("ADDED".to_owned(), "c".to_owned(), future + 1));
    assert_eq!(events.summary().await.unwrap(), ("BOOKMARK".to_owned(), String::new(), future + 1));
}

/// AS-3: without `watch=1` the parameters of a deprecated path are those of a list.
#[tokio::test]
async fn deprecated_paths_are_checked_as_lists() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("a", json!({}))).await.expect(201);
    let path = "/api/v1/watch/namespaces/default/configmaps";
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let refused = api.get(&format!("{path}?{initial}&resourceVersion=1")).await.expect(422);
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("sendInitialEvents is forbidden for list"), "{message}");
    let mut events = api.watch(&format!("{path}?allowWatchBookmarks=true&timeoutSeconds=1")).await;
    assert_eq!(events.summary().await.unwrap().0, "ADDED");
    let next = events.next().await;
    assert!(next.is_none_or(|event| event["object"]["metadata"]["annotations"].is_null()));
    let mut events = api.watch(&format!("{path}?watch=1&{initial}&allowWatchBookmarks=true&timeoutSeconds=1")).await;
    assert_eq!(events.summary().await.unwrap().0, "ADDED");
    assert_eq!(events.next().await.unwrap()["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn watches_end_without_an_error_when_the_server_stops_as_68() {
    let api = Api::new().await;
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=1&timeoutSeconds=600")).await;
    api.server.stop();
    let ended = tokio::time::timeout(Duration::from_secs(5), events.next()).await.expect("the watch ends at once");
    assert_eq!(ended, None);
    assert_eq!(api.get(CONFIG_MAPS).await.code, 503);
}

#[tokio::test]
async fn an_idle_watch_answers_its_headers_at_once_as_8() {
    let api = Api::new().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}&timeoutSeconds=60", api.store.revision());
    let answered = tokio::time::timeout(Duration::from_secs(5), api.raw(Method::GET, &path, &[], "")).await;
    assert_eq!(answered.expect("headers come before events").status(), 200);
}

/// AS-3: the name in the path of the deprecated form and in a selector must be the same one.
#[tokio::test]
async fn a_watch_of_one_object_may_not_select_another() {
    let api = Api::new().await;
    let path = "/api/v1/watch/namespaces/default/configmaps/a";
    let refused = api.get(&format!("{path}?fieldSelector=metadata.name=b")).await.expect(400);
    assert_eq!(refused.body["message"], "fieldSelector metadata.name doesn't match requested name");
    let refused = api.get(&format!("{path}?fieldSelector=metadata.namespace=default")).await.expect(400);
    assert_eq!(refused.body["message"], "fieldSelector metadata.name doesn't match requested name");
}
