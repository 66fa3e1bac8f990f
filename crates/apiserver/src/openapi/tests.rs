//! What clients rely on in the documents (AS-47…AS-52).

use std::time::{Duration, Instant};

use api_schema::{ListType, PatchStrategy, registry};
use serde_json::{Value, json};

use super::*;
use crate::{
    ApiServer, Environment, Options,
    resources::registry::{RESOURCES, REVIEWS},
};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

fn parsed(path: &str) -> Value {
    serde_json::from_slice(&BY_PATH[path].document().json).unwrap()
}

fn version_documents() -> impl Iterator<Item = (&'static str, Value)> {
    GROUPS.iter().map(|group| (*group, parsed(operations::url_of(group, "v1").trim_start_matches('/'))))
}

/// Calls `visit` with every object of a document.
fn walk<'a>(value: &'a Value, visit: &mut dyn FnMut(&'a serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            visit(object);
            object.values().for_each(|value| walk(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| walk(value, visit)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves() {
    let everything: Value = serde_json::from_slice(&EVERYTHING.document().json).unwrap();
    let documents = BY_PATH.keys().map(|path| parsed(path)).chain([everything]);
    for document in documents {
        let mut references = 0;
        walk(&document, &mut |object| {
            if let Some(Value::String(reference)) = object.get("$ref") {
                let target = document.pointer(reference.trim_start_matches('#'));
                assert!(target.is_some_and(Value::is_object), "{reference}");
                references += 1;
            }
        });
        assert!(references > 0);
    }
}

/// AS-47: the index leads to every document.
#[test]
fn the_index_lists_every_document_with_its_hash() {
    let index: Value = serde_json::from_slice(&index().json).unwrap();
    let paths = index["paths"].as_object().unwrap();
    for (path, lazy) in BY_PATH.iter() {
        let expected = format!("/openapi/v3/{path}?hash={}", lazy.document().hash);
        assert_eq!(paths[path]["serverRelativeURL"], expected.as_str());
    }
    assert_eq!(paths.len(), BY_PATH.len());
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/batch/v1"));
}

/// AS-49 (b): kubectl looks here for server-side validation and strategic merge patches.
#[test]
fn every_kind_that_can_be_patched_has_an_operation_kubectl_finds() {
    for (group, document) in version_documents() {
        let resources = RESOURCES.iter().filter(|one| one.group == group && one.allows("patch"));
        for resource in resources {
            let kind = json!({"group": group, "version": resource.version, "kind": resource.kind});
            let found = document["paths"].as_object().unwrap().values().any(|path| {
                let patch = &path["patch"];
                let named = |name| {
                    let own = patch["parameters"].as_array().into_iter().flatten();
                    own.chain(path["parameters"].as_array().into_iter().flatten())
                        .any(|parameter| parameter["name"] == name && parameter["in"] == "query")
                };
                patch["x-kubernetes-group-version-kind"] == kind
                    && named("fieldValidation")
                    && named("dryRun")
                    && patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some()
            });
            assert!(found, "{resource:?}");
        }
    }
}

/// AS-49 (c): the schema of a kind is found by group, version and kind.
#[test]
fn every_kind_has_one_schema_that_names_it() {
    for (group, document) in version_documents() {
        let resources = RESOURCES.iter().filter(|one| one.group == group).map(|one| one.kind);
        for kind in resources.chain(REVIEWS.iter().filter(|one| one.group == group).map(|one| one.kind)) {
            let wanted = json!({"group": group, "version": "v1", "kind": kind});
            let schemas = document["components"]["schemas"].as_object().unwrap().values();
            let naming = schemas.filter(|schema| {
                schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(&wanted))
            });
            assert_eq!(naming.count(), 1, "{kind}");
        }
    }
}

/// What patches and server-side apply do here is what the documents say.
#[test]
fn list_keys_are_those_of_the_schema() {
    let schemas: Vec<Value> =
        version_documents().map(|(_, mut document)| document["components"]["schemas"].take()).collect();
    let mut compared = 0;
    for (_, ty) in registry().types() {
        let Some(schema) = schemas.iter().find_map(|schemas| schemas.get(names::schema(ty))) else { continue };
        for field in &ty.fields {
            let property = &schema["properties"][field.json];
            let key = property.get("x-kubernetes-patch-merge-key").and_then(Value::as_str);
            let expected = match field.patch {
                Some(PatchStrategy::MergeByKey(key)) => Some(key),
                _ => None,
            };
            assert_eq!(key, expected, "{}.{}", ty.name, field.json);
            if let ListType::Map(keys) = field.list {
                assert_eq!(property["x-kubernetes-list-map-keys"], json!(keys), "{}.{}", ty.name, field.json);
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared}");
}

/// AS-52: nobody wants to read `<no description>`.
#[test]
fn everything_is_described() {
    for (_, document) in version_documents() {
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let text = |value: &Value| value["description"].as_str().unwrap_or_default().to_owned();
            assert!(!text(schema).is_empty(), "{name}");
            for (member, property) in schema["properties"].as_object().into_iter().flatten() {
                assert!(!text(property).is_empty(), "{name}.{member}");
            }
        }
    }
}

#[test]
fn the_schema_of_a_job_is_upstreams() {
    let document = parsed("apis/batch/v1");
    let schemas = &document["components"]["schemas"];
    let spec = &schemas["io.k8s.api.batch.v1.JobSpec"];
    assert_eq!(spec["required"], json!(["template"]));
    let property = |schema: &Value, name: &str| {
        let mut property = schema["properties"][name].clone();
        property.as_object_mut().unwrap().remove("description");
        property
    };
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    for (name, expected) in [
        ("parallelism", json!({"type": "integer", "format": "int32"})),
        ("podReplacementPolicy", json!({"type": "string", "enum": ["Failed", "TerminatingOrFailed"]})),
        ("suspend", json!({"type": "boolean"})),
        ("selector", json!({"allOf": [reference(&format!("{META}.LabelSelector"))]})),
        ("template", json!({"allOf": [reference("io.k8s.api.core.v1.PodTemplateSpec")], "default": {}})),
    ] {
        assert_eq!(property(spec, name), expected, "{name}");
    }
    let status = &schemas["io.k8s.api.batch.v1.JobStatus"];
    assert_eq!(
        property(status, "conditions"),
        json!({
            "items": {"allOf": [reference("io.k8s.api.batch.v1.JobCondition")], "default": {}},
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-patch-merge-key": "type",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    let pod = &schemas["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(property(pod, "volumes")["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(property(pod, "nodeSelector")["x-kubernetes-map-type"], "atomic");
    let port = &schemas["io.k8s.api.core.v1.ContainerPort"];
    assert_eq!(property(port, "containerPort"), json!({"type": "integer", "format": "int32", "default": 0}));
    assert_eq!(schemas[format!("{META}.LabelSelector")]["x-kubernetes-map-type"], "atomic");
    let limits = property(&schemas["io.k8s.api.core.v1.ResourceRequirements"], "limits");
    assert_eq!(limits["additionalProperties"], reference("io.k8s.apimachinery.pkg.api.resource.Quantity"));
}

#[test]
fn version_2_has_neither_defaults_nor_wrapped_references() {
    let document: Value = serde_json::from_slice(&EVERYTHING.document().json).unwrap();
    assert_eq!(document["swagger"], "2.0");
    walk(&document["definitions"], &mut |object| {
        assert!(!object.contains_key("allOf") && !object.contains_key("oneOf"));
    });
    let spec = &document["definitions"]["io.k8s.api.batch.v1.JobSpec"]["properties"];
    assert_eq!(spec["template"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodTemplateSpec");
    assert!(spec["template"].get("default").is_none());
    let patch = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"];
    assert_eq!(patch["parameters"][0]["in"], "body");
}

/// Documents are kept in memory and built while a client waits.
#[test]
fn documents_are_small_and_quickly_built() {
    let start = Instant::now();
    let bytes: usize = BY_PATH.values().map(|lazy| Document::new(&lazy.build()).json.len()).sum();
    let elapsed = start.elapsed();
    assert!((200_000..2_000_000).contains(&bytes), "{bytes} bytes");
    // Generous, for machines that do other things as well.
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
}

/// BI-22: documents are for those who may ask.
#[tokio::test]
async fn documents_are_served_to_known_users_only() {
    let store = store::Store::open_in_memory(store::Options::default(), crate::storage::attributes()).unwrap();
    let options = Options {
        admin_token: Some("secret".to_owned()),
        gates: Default::default(),
        environment: Environment::system(),
    };
    let server = ApiServer::new(store, options).await.unwrap();
    for (path, known) in
        [("/openapi/v3", 200), ("/openapi/v3/apis/batch/v1/", 200), ("/openapi/v2", 200), ("/openapi/v4", 404)]
    {
        let request = || http::Request::get(path);
        let empty = || http_body_util::Empty::<Bytes>::new();
        let answer = server.handle(request().header("authorization", "Bearer secret").body(empty()).unwrap()).await;
        assert_eq!(answer.status().as_u16(), known, "{path}");
        assert_eq!(server.handle(request().body(empty()).unwrap()).await.status().as_u16(), 403, "{path}");
    }
}
