//! From paths and types to whole documents, in OpenAPI 3.0 (AS-47…AS-50) and 2.0 (AS-51).

use serde_json::{Map, Value, json};

use super::{
    Dialect,
    components::Components,
    operations::{Answer, Body, Operation, Path, Paths},
    parameters::{Parameter, Place},
};

/// What answers can be written in, besides plain text (AS-16).
const WRITTEN_TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAM_TYPES: &[&str] = &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
/// AS-21.
const PATCH_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The document of some paths, with every schema they refer to. `versions` are the group-versions it is about.
pub fn document(dialect: Dialect, paths: &Paths, versions: Vec<(&'static str, &'static str)>) -> Value {
    let mut writer = Writer { dialect, components: Components::new(dialect, versions) };
    let paths: Map<String, Value> = paths.iter().map(|(url, path)| (url.clone(), writer.path(path))).collect();
    let schemas = writer.components.finish();
    let info = json!({"title": "Kubernetes", "version": "unversioned"});
    let security = json!({
        "BearerToken": {
            "description": "Bearer Token authentication",
            "in": "header",
            "name": "authorization",
            "type": "apiKey",
        },
    });
    match dialect {
        Dialect::V2 => json!({
            "definitions": schemas,
            "info": info,
            "paths": paths,
            "security": [{"BearerToken": []}],
            "securityDefinitions": security,
            "swagger": "2.0",
        }),
        Dialect::V3 => json!({
            "components": {"schemas": schemas, "securitySchemes": security},
            "info": info,
            "openapi": "3.0.0",
            "paths": paths,
        }),
    }
}

struct Writer {
    dialect: Dialect,
    components: Components,
}

impl Writer {
    fn path(&mut self, path: &Path) -> Value {
        let shared = shared_parameters(path);
        let mut written = Map::new();
        for (method, operation) in &path.operations {
            written.insert((*method).to_owned(), self.operation(operation, &shared));
        }
        if !shared.is_empty() {
            let shared = shared.iter().map(|parameter| self.parameter(parameter)).collect();
            written.insert("parameters".to_owned(), shared);
        }
        Value::Object(written)
    }

    fn operation(&mut self, operation: &Operation, shared: &[Parameter]) -> Value {
        let mut written = Map::new();
        if self.dialect == Dialect::V2 {
            written.insert("consumes".to_owned(), json!(consumes(operation.body.as_ref())));
        }
        written.insert("description".to_owned(), json!(operation.description));
        written.insert("operationId".to_owned(), json!(operation.id));
        let parameters = self.parameters(operation, shared);
        if !parameters.is_empty() {
            written.insert("parameters".to_owned(), Value::Array(parameters));
        }
        if self.dialect == Dialect::V2 {
            written.insert("produces".to_owned(), json!(produces(operation.answer)));
        } else if let Some(body) = &operation.body {
            written.insert("requestBody".to_owned(), self.request_body(body));
        }
        written.insert("responses".to_owned(), self.responses(operation));
        if self.dialect == Dialect::V2 {
            written.insert("schemes".to_owned(), json!(["https"]));
        }
        written.insert("tags".to_owned(), json!([operation.tag]));
        if let Some(subject) = &operation.subject {
            written.insert("x-kubernetes-action".to_owned(), json!(subject.action));
            let kind = json!({"group": subject.group, "kind": subject.kind, "version": subject.version});
            written.insert("x-kubernetes-group-version-kind".to_owned(), kind);
        }
        Value::Object(written)
    }

    /// What an operation takes that its whole path does not. In version 2 the body is one of the parameters.
    ///
    /// They are written out every time, never by reference: kubectl looks for `dryRun` and `fieldValidation` among the
    /// parameters themselves.
    fn parameters(&mut self, operation: &Operation, shared: &[Parameter]) -> Vec<Value> {
        let body = operation.body.filter(|_| self.dialect == Dialect::V2).map(|body| {
            let mut written = Map::new();
            written.insert("in".to_owned(), json!("body"));
            written.insert("name".to_owned(), json!("body"));
            if body.required {
                written.insert("required".to_owned(), json!(true));
            }
            written.insert("schema".to_owned(), self.components.reference(body.ty));
            Value::Object(written)
        });
        let own = operation.parameters.iter().filter(|parameter| !shared.contains(parameter));
        body.into_iter().chain(own.map(|parameter| self.parameter(parameter))).collect()
    }

    fn parameter(&self, parameter: &Parameter) -> Value {
        let mut written = Map::new();
        written.insert("description".to_owned(), json!(parameter.description));
        let in_path = parameter.place == Place::Path;
        written.insert("in".to_owned(), json!(if in_path { "path" } else { "query" }));
        written.insert("name".to_owned(), json!(parameter.name));
        if in_path {
            written.insert("required".to_owned(), json!(true));
        }
        match self.dialect {
            Dialect::V2 => {
                written.insert("type".to_owned(), json!(parameter.json_type));
                written.insert("uniqueItems".to_owned(), json!(true));
            }
            Dialect::V3 => {
                written.insert("schema".to_owned(), json!({"type": parameter.json_type, "uniqueItems": true}));
            }
        }
        Value::Object(written)
    }

    fn request_body(&mut self, body: &Body) -> Value {
        let schema = self.components.reference(body.ty);
        let mut written = Map::new();
        written.insert("content".to_owned(), content(consumes(Some(body)), &schema));
        if body.required {
            written.insert("required".to_owned(), json!(true));
        }
        Value::Object(written)
    }

    fn responses(&mut self, operation: &Operation) -> Value {
        let schema = match operation.answer {
            Answer::Object(ty) | Answer::Json(ty) | Answer::Stream(ty) => self.components.reference(ty),
            Answer::Text => json!({"type": "string"}),
        };
        let (member, value) = match self.dialect {
            Dialect::V2 => ("schema", schema),
            Dialect::V3 => ("content", content(&produces(operation.answer), &schema)),
        };
        let mut written = Map::new();
        for code in operation.codes {
            written.insert(code.to_string(), json!({"description": status_text(*code), member: value}));
        }
        written.insert("401".to_owned(), json!({"description": status_text(401)}));
        Value::Object(written)
    }
}

/// What every operation of a path takes, which is then said once.
fn shared_parameters(path: &Path) -> Vec<Parameter> {
    let mut operations = path.operations.values();
    let Some(first) = operations.next() else { return Vec::new() };
    let everywhere = |parameter: &&Parameter| operations.clone().all(|other| other.parameters.contains(parameter));
    first.parameters.iter().filter(everywhere).cloned().collect()
}

fn consumes(body: Option<&Body>) -> &'static [&'static str] {
    if body.is_some_and(|body| body.is_patch) { PATCH_TYPES } else { &["*/*"] }
}

fn produces(answer: Answer) -> Vec<&'static str> {
    match answer {
        Answer::Object(_) => WRITTEN_TYPES.to_vec(),
        Answer::Json(_) => vec!["application/json"],
        Answer::Stream(_) => WRITTEN_TYPES.iter().chain(STREAM_TYPES).copied().collect(),
        Answer::Text => vec!["text/plain"],
    }
}

fn content(media_types: &[&str], schema: &Value) -> Value {
    media_types.iter().map(|media_type| ((*media_type).to_owned(), json!({ "schema": schema }))).collect()
}

fn status_text(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        _ => "Unauthorized",
    }
}
