//! What is served beside the resources: discovery, OpenAPI, version, health (AS-37…AS-55).

use std::collections::BTreeSet;

use batch_types::field;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    auth::token,
    body::ResponseBody,
    discovery,
    negotiate::{self, Clause, Encoding, Offer, Representation, View},
    openapi,
    respond::{self, Manner, raw, value_response},
    route::Discovery,
    server::{ApiServer, Call},
    status::Status,
};

const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TEXT: &str = "text/plain; charset=utf-8";
/// The health checks, in the order `?verbose` prints them.
const CHECKS: [&str; 3] = ["ping", "log", "etcd"];

/// A path that nothing serves (AS-6).
pub(crate) fn page_not_found() -> Response<ResponseBody> {
    let mut response = raw(404, TEXT, b"404 page not found\n".to_vec().into());
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Discovery documents, in the form the client asks for.
pub(crate) fn discovery(call: &Call, wanted: Discovery, manner: &mut Manner) -> Result<Response<ResponseBody>, Status> {
    if call.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let aggregates = matches!(wanted, Discovery::Api | Discovery::Apis);
    match accepted(call, aggregates)? {
        Form::Aggregated => Ok(aggregated(call, &wanted, manner)),
        Form::Legacy(encoding) => {
            let host = call.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
            let body = match &wanted {
                Discovery::Api => Some(discovery::legacy_api(host)),
                Discovery::Apis => Some(discovery::legacy_apis()),
                Discovery::Group(name) => discovery::legacy_group(name),
                Discovery::Resources { group, version } => discovery::resource_list(group, version),
            };
            let body = body.ok_or_else(Status::no_such_resource)?;
            Ok(value_response(200, &body, encoding, manner.indented))
        }
    }
}

enum Form {
    Legacy(Encoding),
    Aggregated,
}

/// The first clause that can be served; aggregated discovery exists in version 2 only (AS-41…AS-44).
fn accepted(call: &Call, aggregates: bool) -> Result<Form, Status> {
    let clauses = negotiate::clauses(&call.headers);
    if clauses.is_empty() {
        return Ok(Form::Legacy(Encoding::Json));
    }
    let is_aggregated = |clause: &Clause| {
        clause.media_type == negotiate::JSON
            && clause.parameter("g") == Some("apidiscovery.k8s.io")
            && clause.parameter("v") == Some("v2")
            && clause.parameter("as") == Some("APIGroupDiscoveryList")
    };
    for clause in &clauses {
        let plain = ["as", "g", "v"].iter().all(|name| clause.parameter(name).is_none());
        match clause.media_type.as_str() {
            _ if aggregates && is_aggregated(clause) => return Ok(Form::Aggregated),
            negotiate::JSON | "*/*" if plain => return Ok(Form::Legacy(Encoding::Json)),
            negotiate::YAML if plain => return Ok(Form::Legacy(Encoding::Yaml)),
            _ => {}
        }
    }
    match negotiate::accept(&call.headers, Offer::Object) {
        Err(status) => Err(status),
        // A known transformation that discovery does not have.
        Ok(Representation { view: View::Whole, .. }) => Ok(Form::Legacy(Encoding::Json)),
        Ok(_) => Err(Status::not_acceptable(
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

fn aggregated(call: &Call, wanted: &Discovery, manner: &Manner) -> Response<ResponseBody> {
    let body = if *wanted == Discovery::Api { discovery::aggregated_api() } else { discovery::aggregated_apis() };
    let tag = format!("\"{}\"", discovery::etag(&body));
    let known = call.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(tag.as_str());
    let mut response = if known {
        raw(304, AGGREGATED_TYPE, ResponseBody::empty())
    } else {
        value_response(200, &body, Encoding::Json, manner.indented)
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Health, version, OpenAPI and the index of paths.
pub(crate) fn other(
    server: &ApiServer,
    call: &Call,
    path: &str,
    manner: &Manner,
) -> Result<Response<ResponseBody>, Status> {
    let trimmed = if path == "/" { path } else { path.trim_end_matches('/') };
    let (endpoint, check) = match trimmed.strip_prefix('/').and_then(|rest| rest.split_once('/')) {
        Some((endpoint, check)) => (endpoint, Some(check)),
        None => (trimmed.trim_start_matches('/'), None),
    };
    match (endpoint, check) {
        // Their paths are compared as they are.
        ("healthz" | "livez" | "readyz" | "metrics", _) if path.ends_with('/') => Ok(page_not_found()),
        ("healthz" | "livez" | "readyz", None) => Ok(health(server, call, endpoint)),
        ("healthz" | "livez" | "readyz", Some(check)) => Ok(one_check(server, check)),
        ("openapi", Some(document)) => Ok(openapi::answer(call, document, manner, server.state.environment.now())),
        (".well-known", Some("openid-configuration")) => {
            Ok(public(value_response(200, &token::discovery_document(), Encoding::Json, false), "application/json"))
        }
        ("openid", Some("v1/jwks")) => {
            let issuer = server.state.issuer().map_err(|error| Status::internal(error.to_string()))?;
            let keys = value_response(200, &issuer.key_set(), Encoding::Json, false);
            Ok(public(keys, "application/jwk-set+json"))
        }
        ("metrics", None) => Ok(server.state.metrics.answer(&call.headers)),
        ("version", None) if call.method != Method::GET => Err(Status::method_not_allowed()),
        ("version", None) => Ok(value_response(200, &discovery::version(), Encoding::Json, true)),
        ("", None) => Ok(value_response(200, &paths(), Encoding::Json, true)),
        _ => Ok(page_not_found()),
    }
}

/// A document that may be kept for an hour, as upstream says of what describes its tokens.
fn public(mut response: Response<ResponseBody>, media_type: &'static str) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

fn paths() -> Value {
    let served = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ];
    json!({ "paths": served })
}

/// One check by its name, which says no more than that (AS-54).
fn one_check(server: &ApiServer, check: &str) -> Response<ResponseBody> {
    match CHECKS.iter().find(|known| **known == check) {
        None => page_not_found(),
        Some(check) if is_healthy(server, check) => raw(200, TEXT, b"ok".to_vec().into()),
        Some(check) => raw(500, TEXT, format!("internal server error: {check} failed\n").into_bytes().into()),
    }
}

/// `ok`, or a line for each check (AS-54).
fn health(server: &ApiServer, call: &Call, endpoint: &str) -> Response<ResponseBody> {
    let excluded: BTreeSet<String> = call.query.all("exclude").into_iter().collect();
    let mut failed = false;
    let mut lines = String::new();
    for check in CHECKS {
        if excluded.contains(check) {
            lines.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if is_healthy(server, check) {
            lines.push_str(&format!("[+]{check} ok\n"));
        } else {
            failed = true;
            lines.push_str(&format!("[-]{check} failed: reason withheld\n"));
        }
    }
    let unknown: Vec<String> =
        excluded.iter().filter(|name| !CHECKS.contains(&name.as_str())).map(|name| field::quoted(name)).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    let verbose = call.query.get("verbose").is_some();
    let body = match (failed, verbose) {
        (true, _) => format!("{lines}{endpoint} check failed\n"),
        (false, true) => format!("{lines}{endpoint} check passed\n"),
        (false, false) => "ok".to_owned(),
    };
    let mut response = respond::raw(if failed { 500 } else { 200 }, TEXT, body.into_bytes().into());
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if failed {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    response
}

/// `etcd` is upstream's name for the store; clients look for it.
fn is_healthy(server: &ApiServer, check: &str) -> bool {
    match check {
        "etcd" => server.store_health().is_ok(),
        _ => !*server.state.stopping.borrow(),
    }
}
