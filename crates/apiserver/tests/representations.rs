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
