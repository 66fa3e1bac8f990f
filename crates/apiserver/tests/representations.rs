//! One object, many forms: JSON, YAML, protobuf, Table, metadata, compressed.

#![allow(clippy::unwrap_used, reason = "a panic here is a failed test")]

mod common;

use api_schema::{protobuf, registry};
use common::{Api, CONFIG_MAPS, JOBS, config_map, job};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn bytes(api: &Api, path: &str, accept: &str) -> (String, Vec<u8>) {
    let response = api.raw(Method::GET, path, &[("accept", accept)], "").await;
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    (kind, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

fn decoded(bytes: &[u8]) -> (String, Value) {
    let (meta, raw) = protobuf::decode_envelope(bytes).unwrap();
    let ty = registry().kind(&meta.api_version, &meta.kind).unwrap();
    (meta.kind, protobuf::decode(ty, &bytes[raw]).unwrap())
}

fn without_type_meta(mut object: Value) -> Value {
    for member in ["kind", "apiVersion"] {
        object.as_object_mut().unwrap().remove(member);
    }
    object
}

#[tokio::test]
async fn protobuf_says_what_json_says() {
    let api = Api::new().await;
    api.post(JOBS, job("a")).await.expect(201);
    for path in [format!("{JOBS}/a"), JOBS.to_owned()] {
        let expected = api.get(&path).await.body;
        let (kind, bytes) = bytes(&api, &path, "application/vnd.kubernetes.protobuf,application/json").await;
        assert_eq!(kind, PROTOBUF);
        let (kind, object) = decoded(&bytes);
        assert_eq!(kind, expected["kind"]);
        assert_eq!(object, without_type_meta(expected), "{path}");
    }
    let (_, refused) = bytes(&api, &format!("{JOBS}/none"), PROTOBUF).await;
    let (kind, status) = decoded(&refused);
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("Status", &json!(404), &json!("NotFound")));
}

#[tokio::test]
async fn a_protobuf_watch_has_framed_events_as_242() {
    let api = Api::new().await;
    let start = api.store.revision();
    api.post(CONFIG_MAPS, config_map("a", json!({"x": "y"}))).await.expect(201);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&timeoutSeconds=60");
    let response = api.raw(Method::GET, &path, &[("accept", PROTOBUF)], "").await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    assert_eq!(frame.len(), length + 4);
    // {1 "ADDED", 2 {1 enveloped object}}
    assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
    let at = frame.windows(4).position(|window| window == b"k8s\0").unwrap();
    let (kind, object) = decoded(&frame[at..]);
    assert_eq!((kind.as_str(), &object["metadata"]["labels"]["x"]), ("ConfigMap", &json!("y")));
}

#[tokio::test]
async fn metadata_lists_hold_metadata_only() {
    let api = Api::new().await;
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, config_map(name, json!({"x": name}))).await.expect(201);
    }
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, bytes) = bytes(&api, CONFIG_MAPS, accept).await;
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    let items = list["items"].as_array().unwrap();
    assert_eq!((list["kind"].as_str(), items.len()), (Some("PartialObjectMetadataList"), 2));
    for item in items {
        assert_eq!(item.as_object().unwrap().keys().collect::<Vec<_>>(), ["kind", "apiVersion", "metadata"]);
        assert_eq!(item["metadata"]["labels"]["x"], item["metadata"]["name"]);
    }
}

#[tokio::test]
async fn yaml_reads_back_as_the_same_object() {
    let api = Api::new().await;
    api.post(JOBS, job("a")).await.expect(201);
    let path = format!("{JOBS}/a");
    let (kind, yaml) = bytes(&api, &path, "application/yaml").await;
    assert_eq!(kind, "application/yaml");
    let object: Value = serde_json::from_slice(&api_schema::yaml::to_json(&yaml).unwrap().json).unwrap();
    assert_eq!(object, api.get(&path).await.body);
}

#[tokio::test]
async fn large_lists_are_compressed_for_those_who_ask_as_10() {
    let api = Api::new().await;
    for at in 0..40 {
        let mut object = config_map(&format!("c-{at}"), json!({}));
        object["data"]["filler"] = json!("x".repeat(5_000));
        api.post(CONFIG_MAPS, object).await.expect(201);
    }
    let plain = api.raw(Method::GET, CONFIG_MAPS, &[], "").await.into_body().collect().await.unwrap().to_bytes();
    let response = api.raw(Method::GET, CONFIG_MAPS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let packed = response.into_body().collect().await.unwrap().to_bytes();
    let mut unpacked = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
    assert!(packed.len() < plain.len() / 10);
    assert_eq!(unpacked, plain);
}

/// The store keeps what has not changed for a while packed. Nobody can tell.
#[tokio::test]
async fn objects_at_rest_are_served_as_any_others() {
    let nothing = store::Recent { bytes_max: 0, events_max: 0 };
    let at_rest = Api::with(store::Options { recent: nothing, ..store::Options::default() }).await;
    let usual = Api::new().await;
    for api in [&at_rest, &usual] {
        for number in 0..200 {
            let labels = json!({"half": if number < 100 { "first" } else { "second" }});
            let mut map = config_map(&format!("c{number:03}"), labels);
            map["data"] = json!({"text": "all work and no play ".repeat(100), "number": number.to_string()});
            api.post(CONFIG_MAPS, map).await.expect(201);
        }
    }
    // Those who are packed last are packed a moment later, and one describes the others.
    let packed = || {
        let list = at_rest.store.list(&store::ListQuery::new("configmaps/default/")).unwrap();
        list.entries.iter().filter(|entry| entry.is_packed()).count()
    };
    let at_rest_all = async {
        while packed() < 199 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), at_rest_all).await.unwrap();
    // Of both servers: only times, versions and uids may differ.
    let comparable = |bytes: &[u8]| -> Value {
        let mut list: Value = serde_json::from_slice(bytes).unwrap();
        list["metadata"]["resourceVersion"].take();
        list["metadata"]["continue"].take();
        for item in list["items"].as_array_mut().unwrap() {
            for member in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                item["metadata"][member].take();
            }
        }
        list
    };
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let paths = ["", "?labelSelector=half%3Dsecond", "?limit=7", "?fieldSelector=metadata.name%3Dc123"];
    for path in paths.map(|query| format!("{CONFIG_MAPS}{query}")) {
        for accept in ["application/json", partial] {
            let (_, one) = bytes(&at_rest, &path, accept).await;
            let (_, other) = bytes(&usual, &path, accept).await;
            assert_eq!(comparable(&one), comparable(&other), "{path} {accept}");
        }
    }
    let listed = at_rest.get(CONFIG_MAPS).await.body;
    for item in listed["items"].as_array().unwrap().iter().step_by(37) {
        let path = format!("{CONFIG_MAPS}/{}", item["metadata"]["name"].as_str().unwrap());
        assert_eq!(without_type_meta(at_rest.get(&path).await.expect(200).body), *item);
        at_rest.merge(&path, json!({"data": {"number": "x"}})).await.expect(200);
        let changed = at_rest.get(&path).await.expect(200).body;
        assert_eq!((&changed["data"]["number"], &changed["data"]["text"]), (&json!("x"), &item["data"]["text"]));
    }
    let response = at_rest.raw(Method::GET, CONFIG_MAPS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!(response.headers()["content-encoding"], "gzip", "it is as large as ever");
    let compressed = response.into_body().collect().await.unwrap().to_bytes();
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&compressed[..]), &mut text).unwrap();
    assert_eq!(text, bytes(&at_rest, CONFIG_MAPS, "application/json").await.1);
}
