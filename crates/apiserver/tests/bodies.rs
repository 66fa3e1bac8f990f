//! Bodies that are unusual but legal, and ones that are refused, in the words of upstream's decoders.

mod common;

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use common::{Api, CONFIG_MAPS, TOKEN, config_map};
use futures_util::{StreamExt as _, stream};
use http::{Method, Request, header};
use http_body::{Body, Frame};
use http_body_util::StreamBody;
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";

/// AS-22: YAML is converted to JSON, the first document counts, and a key given twice is refused only on request
/// and otherwise told, before what is wrong with the fields (AS-155).
#[tokio::test]
async fn yaml_bodies_are_read_as_upstream_reads_them() {
    let api = Api::new().await;
    let twice = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: m\ndata:\n  a: \"1\"\n  a: \"2\"\n---\nx: [\n";
    let post =
        async |query: &str, body: &str| api.send(Method::POST, &format!("{CONFIG_MAPS}{query}"), YAML, body).await;
    let created = post("?dryRun=All", twice).await.expect(201);
    let told = [r#"299 - "line 7: key \"a\" already set in map""#];
    assert_eq!(
        (created.body["data"]["a"].as_str(), created.warnings.as_slice()),
        (Some("2"), &told.map(String::from)[..])
    );
    let more = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: m, z: 1}\ndata:\n  a: x\n  a: x\n  a: x\n";
    let told = [
        r#"299 - "line 6: key \"a\" already set in map""#,
        r#"299 - "line 7: key \"a\" already set in map""#,
        r#"299 - "unknown field \"metadata.z\"""#,
    ];
    assert_eq!(post("?dryRun=All", more).await.expect(201).warnings, told);
    assert_eq!(post("?dryRun=All&fieldValidation=Ignore", more).await.expect(201).warnings, [""; 0]);
    let refused = [
        (
            "?fieldValidation=Strict",
            twice,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
             yaml: unmarshal errors:\n  line 7: key \"a\" already set in map",
        ),
        (
            "",
            "kind: ConfigMap\n x: 1\n",
            "the object provided is unrecognized (must be of type ConfigMap): yaml: line 2: mapping values are not \
             allowed in this context (6b696e643a20436f6e6669674d61700a20783a20310a)",
        ),
        (
            "",
            "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: y\n",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal bool into Go struct \
             field ObjectMeta.metadata.name of type string",
        ),
    ];
    for (query, body, message) in refused {
        assert_eq!(post(query, body).await.expect(400).body["message"], message);
    }
}

/// AS-128: what apply cannot read, or cannot convert after merging.
#[tokio::test]
async fn apply_refuses_in_the_words_of_the_step_that_fails() {
    let api = Api::new().await;
    let object =
        |rest: &str| format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"m\"{rest}}}}}");
    let job =
        "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{\"name\":\"m\"},\"spec\":{\"parallelism\":1.5}}";
    let jobs = common::JOBS;
    let cases = [
        (CONFIG_MAPS, "", "a: [".to_owned(), 400, "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content".to_owned()),
        (CONFIG_MAPS, "", "[]".to_owned(), 400, "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned()),
        (CONFIG_MAPS, "&fieldValidation=Strict", object(",\"labels\":{\"a\":\"1\",\"a\":\"2\"}"), 400, "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \"a\" already set in map".to_owned()),
        (CONFIG_MAPS, "", object(",\"creationTimestamp\":\"x\""), 500, "failed to convert new object (/m; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured object to /v1, Kind=ConfigMap: parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"".to_owned()),
        (jobs, "", job.to_owned(), 500, "failed to convert new object (/m; batch/v1, Kind=Job) to proper version: unable to convert unstructured object to batch/v1, Kind=Job: cannot convert float64 to int32".to_owned()),
    ];
    for (path, query, body, code, message) in cases {
        let answer = api.send(Method::PATCH, &format!("{path}/m?fieldManager=x{query}"), APPLY, &body).await;
        assert_eq!(answer.expect(code).body["message"], message, "{body}");
    }
    // Unless they are to be refused, they are told once the configuration is applied (AS-155).
    let twice = object(",\"labels\":{\"a\":\"1\",\"a\":\"2\"}");
    let applied = api.send(Method::PATCH, &format!("{CONFIG_MAPS}/m?fieldManager=x"), APPLY, &twice).await.expect(201);
    assert_eq!(applied.body["metadata"]["labels"]["a"], "2");
    let told = [r#"299 - "line 1: key \"a\" already set in map""#];
    assert_eq!(applied.warnings, told);
    let again = api.send(Method::PATCH, &format!("{CONFIG_MAPS}/m?fieldManager=x"), APPLY, &twice).await.expect(200);
    assert_eq!(again.warnings, told);
}

/// AS-118: what a patch does to `kind` and `apiVersion` matters only where the object is decoded again.
#[tokio::test]
async fn patches_of_the_type_are_judged_by_how_they_are_applied() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("m", json!({}))).await.expect(201);
    let path = format!("{CONFIG_MAPS}/m?dryRun=All");
    let patch = async |kind: &str, body: Value| {
        api.send(Method::PATCH, &path, &format!("application/{kind}"), &body.to_string()).await
    };
    let undeterminable = "the name of the object (m based on URL) was undeterminable: name must be provided";
    patch("strategic-merge-patch+json", json!({"kind": "Secret", "apiVersion": "v9"})).await.expect(200);
    patch("merge-patch+json", json!({"kind": null})).await.expect(200);
    let answer = patch("merge-patch+json", json!({"apiVersion": null})).await.expect(400);
    assert_eq!(answer.body["message"], undeterminable);
    let answer = patch("strategic-merge-patch+json", json!({"$patch": "replace"})).await.expect(400);
    assert_eq!(answer.body["message"], undeterminable);
    let answer = patch("merge-patch+json", json!({"kind": "Secret"})).await.expect(422);
    let message = answer.body["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("converting (v1.Secret) to (core.ConfigMap): unknown conversion"), "{message}");
    let twice = "[{\"op\":\"add\",\"op\":\"remove\",\"path\":\"/data/a\",\"x\":1}]";
    let answer = api.send(Method::PATCH, &path, "application/json-patch+json", twice).await.expect(200);
    let expected =
        [r#"299 - "json patch duplicate field \"[0].op\"""#, r#"299 - "json patch unknown field \"[0].x\"""#];
    assert_eq!(answer.warnings, expected);
}

/// AS-118: upstream writes the patched object before it decodes it again, with the members it has touched in order.
#[tokio::test]
async fn unknown_fields_of_patches_are_told_in_the_order_upstream_finds_them() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("m", json!({}))).await.expect(201);
    let warned = async |kind: &str, body: &str| {
        let path = format!("{CONFIG_MAPS}/m?dryRun=All");
        let answer = api.send(Method::PATCH, &path, &format!("application/{kind}+json"), body).await.expect(200);
        let name = |warning: &String| warning.replace("299 - \"unknown field \\\"", "").replace("\\\"\"", "");
        answer.warnings.iter().map(name).collect::<Vec<_>>()
    };
    let merge = r#"{"foo":1,"metadata":{"zz":1,"bar":1},"aaa":1}"#;
    assert_eq!(warned("merge-patch", merge).await, ["aaa", "foo", "metadata.bar", "metadata.zz"]);
    let operations = r#"[{"op":"add","path":"/foo","value":1},{"op":"add","path":"/metadata/zz","value":1},
        {"op":"add","path":"/metadata/bar","value":1},{"op":"add","path":"/aaa","value":1},
        {"op":"add","path":"/metadata/ownerReferences",
         "value":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","y":1,"x":1}]}]"#;
    let expected =
        ["aaa", "foo", "metadata.bar", "metadata.ownerReferences[0].y", "metadata.ownerReferences[0].x", "metadata.zz"];
    assert_eq!(warned("json-patch", operations).await, expected);
    let path = format!("{CONFIG_MAPS}/m");
    let wrong = r#"{"metadata":{"labels":1,"annotations":"x"},"data":true}"#;
    let refused = api.send(Method::PATCH, &path, "application/merge-patch+json", wrong).await.expect(422);
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("cannot unmarshal bool into Go struct field ConfigMap.data"), "{message}");
}

/// AS-143: options of any group will do, and what is none is told as the decoder tells it.
#[tokio::test]
async fn delete_options_are_decoded_on_their_own_terms() {
    let api = Api::new().await;
    api.post(CONFIG_MAPS, config_map("m", json!({}))).await.expect(201);
    let path = format!("{CONFIG_MAPS}/m");
    let delete = async |content_type: &str, body: &str| api.send(Method::DELETE, &path, content_type, body).await;
    let refused = [
        (
            "[]",
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ),
        (
            "{x",
            "couldn't get version/kind; json parse error: invalid character 'x' looking for beginning of object key string",
        ),
        (
            "{\"gracePeriodSeconds\":\"5\"}",
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (
            "{\"kind\":\"Foo\",\"apiVersion\":\"v1\"}",
            "no kind \"Foo\" is registered for version \"v1\" in scheme \"tally\"",
        ),
    ];
    for (body, message) in refused {
        assert_eq!(delete("application/json", body).await.expect(400).body["message"], message);
    }
    delete(YAML, "dryRun: [All]\n").await.expect(200);
    delete("application/json", "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"any/v9\",\"dryRun\":[\"All\"]}")
        .await
        .expect(200);
    api.get(&path).await.expect(200);
}

/// JA-R5: a time at the end of year 9999 is kept as it is, and the object can be written afterwards.
#[tokio::test]
async fn the_last_times_of_all_are_kept_and_lock_nothing() {
    const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
    const MERGE: &str = "application/merge-patch+json";
    let api = Api::new().await;
    let last = "9999-12-31T23:59:59Z";
    let job = common::job("j");
    let template = json!({"spec": job["spec"]});
    api.post(common::JOBS, job).await.expect(201);
    let cron_job = json!({
        "metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": template},
    });
    api.post(CRON_JOBS, cron_job).await.expect(201);
    for (path, member) in [(format!("{}/j", common::JOBS), "startTime"), (format!("{CRON_JOBS}/c"), "lastScheduleTime")]
    {
        let status = json!({"status": {member: last}}).to_string();
        let patched = api.send(Method::PATCH, &format!("{path}/status"), MERGE, &status).await.expect(200);
        assert_eq!(patched.body["status"][member], last);
        let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
        let patched = api.send(Method::PATCH, &path, MERGE, &label).await.expect(200);
        assert_eq!(patched.body["status"][member], last);
    }
}

/// A body that begins and never goes on.
fn stalled(bytes: usize) -> impl Body<Data = Bytes, Error = Infallible> + Send {
    let begin = Frame::data(Bytes::from(vec![b'x'; bytes]));
    StreamBody::new(stream::iter([Ok(begin)]).chain(stream::pending()))
}

/// Whom the body does not matter to does not wait for it (AS-36, BI-15), and nobody does for ever.
#[tokio::test(start_paused = true)]
async fn bodies_that_stall_hold_up_only_those_who_read_them() {
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let api = Api::inline().await;
    let beyond_the_limit = 3_145_729;
    let at_once = Duration::ZERO;
    let request_timeout = Duration::from_secs(60);
    for (method, path, token, bytes, code, after) in [
        (Method::POST, CONFIG_MAPS, "", 1, 403, at_once),
        (Method::GET, CONFIG_MAPS, TOKEN, 1, 200, at_once),
        (Method::GET, "/nowhere", TOKEN, 1, 404, at_once),
        (Method::POST, CONFIG_MAPS, TOKEN, beyond_the_limit, 413, at_once),
        (Method::POST, CONFIG_MAPS, TOKEN, 1, 504, request_timeout),
        (Method::POST, REVIEWS, TOKEN, 1, 504, request_timeout),
    ] {
        let mut request = Request::builder().method(&method).uri(path);
        if !token.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(stalled(bytes)).unwrap();
        let begin = tokio::time::Instant::now();
        let answered = tokio::time::timeout(2 * request_timeout, api.server.handle(request)).await;
        let answer = answered.unwrap_or_else(|_| panic!("{method} {path} with {bytes} bytes: no answer"));
        let took = tokio::time::Instant::now() - begin;
        assert_eq!((answer.status().as_u16(), took), (code, after), "{method} {path} with {bytes} bytes");
    }
}
