//! From an answer to an HTTP response: representation, indentation, compression, headers (AS-9, AS-10, AS-15, AS-19).

use std::collections::VecDeque;

use api_schema::{json, protobuf, registry, yaml};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::{
    answer::{Answer, Content, Document, IncludeObject, List, served},
    attributes,
    body::{Piece, ResponseBody},
    environment::Environment,
    negotiate::{self, Encoding, MetaVersion, Representation, View},
    query::Query,
    resources::Resource,
    serve::Unhurried,
    status::Status,
    views::{self, TableForm},
    warnings,
};

/// Bodies larger than this are compressed when the client can read that (AS-10).
const COMPRESS_BYTES_MIN: u64 = 131_072;

/// What of a request decides how its answer is written.
#[derive(Debug)]
pub struct Manner {
    pub representation: Representation,
    pub indented: bool,
    pub accepts_gzip: bool,
    pub audit_id: HeaderValue,
}

impl Manner {
    pub fn of(headers: &HeaderMap, query: &Query, environment: &Environment) -> Self {
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let agent = text(header::USER_AGENT).unwrap_or_default();
        let by_agent = ["curl", "Wget", "Mozilla/5.0"].iter().any(|browser| agent.starts_with(browser));
        let audit_id = headers.get("audit-id").cloned();
        Self {
            representation: Representation::JSON,
            indented: pretty(query).unwrap_or(by_agent),
            accepts_gzip: text(header::ACCEPT_ENCODING).is_some_and(|value| value.contains("gzip")),
            audit_id: audit_id
                .or_else(|| HeaderValue::from_str(&environment.uid()).ok())
                .unwrap_or_else(|| HeaderValue::from_static("")),
        }
    }
}

/// `?pretty=`, read by `strconv.ParseBool` and not as other flags are; empty it says nothing.
fn pretty(query: &Query) -> Option<bool> {
    let text = query.get("pretty").filter(|text| !text.is_empty())?;
    Some(matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// What every answer has (AS-9), whatever made it.
pub fn add_common_headers(headers: &mut HeaderMap, manner: &Manner) {
    headers.insert("audit-id", manner.audit_id.clone());
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
}

/// Writes an answer or a refusal.
pub fn respond(
    outcome: Result<Answer, Status>,
    manner: &Manner,
    query: &Query,
    warnings: &[String],
    environment: &Environment,
) -> Response<ResponseBody> {
    let written = outcome.and_then(|answer| write(answer, manner, query, environment));
    let (mut response, retry_after) = match written {
        Ok(response) => (response, None),
        Err(status) => (refusal(&status, manner), status.retry_after()),
    };
    let headers = response.headers_mut();
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    warnings::add(headers, warnings);
    response
}

/// A refusal, in the representation the client reads.
fn refusal(status: &Status, manner: &Manner) -> Response<ResponseBody> {
    let indented = manner.indented || status.indented;
    let encoding = if status.indented { Encoding::Json } else { manner.representation.encoding };
    let mut response = value_response(status.code, &status.to_value(), encoding, indented);
    if status.code == 403 {
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

fn write(
    answer: Answer,
    manner: &Manner,
    query: &Query,
    environment: &Environment,
) -> Result<Response<ResponseBody>, Status> {
    let Representation { encoding, view } = manner.representation;
    let code = answer.code;
    let value = match answer.content {
        Content::Stream(body) => return Ok(raw(code, stream_type(encoding), body)),
        Content::Text(body) => {
            let mut response = raw(code, "text/plain", body);
            response.extensions_mut().insert(Unhurried);
            return Ok(response);
        }
        Content::Plain(value) => value,
        Content::Object { resource, document } => match (view, document) {
            (View::Whole, Document::Stored(stored)) if as_stored(resource, manner) => {
                return Ok(raw(code, "application/json", line(&stored.value()).into()));
            }
            (view, document) => {
                let form = |version| table_form(version, query, environment);
                object_view(resource, document.into_value(resource)?, view, form)?
            }
        },
        Content::List(list) => match view {
            View::Whole if as_stored(list.resource, manner) => {
                return Ok(compressed(raw(code, "application/json", list_body(&list)), manner));
            }
            View::PartialObject(_) => return Err(not_for_lists(list.resource)),
            View::PartialObjectList(version) if as_stored(list.resource, manner) && !list.items.is_empty() => {
                return Ok(compressed(raw(code, "application/json", partial_list_body(&list, version)), manner));
            }
            view => list_view(&list, view, |version| table_form(version, query, environment))?,
        },
    };
    Ok(compressed(value_response(code, &value, encoding, manner.indented), manner))
}

/// Whether stored bytes can be handed out as they are.
fn as_stored(resource: &Resource, manner: &Manner) -> bool {
    resource.conversion.is_none() && manner.representation.encoding == Encoding::Json && !manner.indented
}

fn table_form(version: MetaVersion, query: &Query, environment: &Environment) -> Result<TableForm, Status> {
    Ok(TableForm { version, include: IncludeObject::parse(query)?, columns: true, now: environment.now() })
}

fn object_view(
    resource: &Resource,
    object: Value,
    view: View,
    form: impl Fn(MetaVersion) -> Result<TableForm, Status>,
) -> Result<Value, Status> {
    Ok(match view {
        View::Whole => object,
        View::Table(version) => {
            let metadata = views::metadata_of_one(&object);
            views::table(resource, [&object], metadata, form(version)?)
        }
        View::PartialObject(version) => views::partial(&object, version),
        View::PartialObjectList(_) => {
            return Err(Status::not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
                internal_package(resource),
                resource.kind
            )));
        }
    })
}

fn list_view(
    list: &List,
    view: View,
    form: impl Fn(MetaVersion) -> Result<TableForm, Status>,
) -> Result<Value, Status> {
    let objects = list.items.iter().map(|item| served(item, list.resource)).collect::<Result<Vec<_>, _>>()?;
    Ok(match view {
        View::Table(version) => views::table(list.resource, &objects, list_metadata(list), form(version)?),
        View::PartialObjectList(version) => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": version.api_version(),
            "metadata": list_metadata(list),
            "items": partial_items(&objects, version),
        }),
        _ => json!({
            "kind": format!("{}List", list.resource.kind),
            "apiVersion": list.resource.api_version(),
            "metadata": list_metadata(list),
            "items": objects.into_iter().map(without_type_meta).collect::<Vec<_>>(),
        }),
    })
}

/// An empty list of metadata has no items at all, as upstream has it.
fn partial_items(objects: &[Value], version: MetaVersion) -> Value {
    if objects.is_empty() {
        return Value::Null;
    }
    objects.iter().map(|object| views::partial(object, version)).collect()
}

fn not_for_lists(resource: &Resource) -> Status {
    Status::not_acceptable(format!(
        "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
        internal_package(resource),
        resource.kind
    ))
}

/// The Go package of upstream's internal type, which these texts show.
fn internal_package(resource: &Resource) -> &'static str {
    match resource.group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

fn list_metadata(list: &List) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(list.revision.to_string()));
    if let Some(token) = &list.continue_token {
        metadata.insert("continue".to_owned(), json!(token));
    }
    if let Some(remaining) = list.remaining {
        metadata.insert("remainingItemCount".to_owned(), json!(remaining));
    }
    Value::Object(metadata)
}

fn without_type_meta(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.shift_remove("kind");
        members.shift_remove("apiVersion");
    }
    object
}

/// A list as pieces of the stored bytes: items are shared with the store, never copied into one buffer.
fn list_body(list: &List) -> ResponseBody {
    let resource = list.resource;
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        resource.kind,
        resource.api_version(),
        list_metadata(list)
    );
    let mut pieces = VecDeque::with_capacity(list.items.len() * 2 + 2);
    pieces.push_back(Bytes::from(head).into());
    for (at, item) in list.items.iter().enumerate() {
        pieces.push_back(Bytes::from_static(if at == 0 { b"{" } else { b",{" }).into());
        pieces.push_back(Piece::of(item, item_bytes));
    }
    pieces.push_back(Bytes::from_static(b"]}\n").into());
    ResponseBody::pieces(pieces)
}

/// A list of metadata as pieces of the stored bytes.
fn partial_list_body(list: &List, version: MetaVersion) -> ResponseBody {
    let api_version = version.api_version();
    let head = format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{api_version}\",\"metadata\":{},\"items\":[",
        list_metadata(list)
    );
    let open = Bytes::from(views::partial_opening(version));
    let mut pieces = VecDeque::with_capacity(list.items.len() * 3 + 2);
    pieces.push_back(Bytes::from(head).into());
    for (at, item) in list.items.iter().enumerate() {
        pieces.push_back(open.clone().into());
        pieces.push_back(Piece::of(item, attributes::metadata_bytes));
        pieces.push_back(Bytes::from_static(if at + 1 < list.items.len() { b"}," } else { b"}" }).into());
    }
    pieces.push_back(Bytes::from_static(b"]}\n").into());
    ResponseBody::pieces(pieces)
}

/// A stored object behind its opening brace, `kind` and `apiVersion`: items of lists carry neither (AS-26).
fn item_bytes(object: &Bytes) -> Bytes {
    // Both members are first and their values hold no escapes or commas, so the second comma ends them.
    let commas = object.iter().enumerate().filter(|(_, byte)| **byte == b',').map(|(at, _)| at);
    match commas.take(2).nth(1) {
        Some(at) => object.slice(at + 1..),
        None => object.slice(1..),
    }
}

fn line(value: &Bytes) -> Vec<u8> {
    let mut line = Vec::with_capacity(value.len() + 1);
    line.extend_from_slice(value);
    line.push(b'\n');
    line
}

/// A value in the asked encoding.
pub fn value_response(code: u16, value: &Value, encoding: Encoding, indented: bool) -> Response<ResponseBody> {
    match encoding {
        Encoding::Json => {
            let mut bytes = Vec::new();
            if indented {
                json::encode_pretty(value, &mut bytes);
            } else {
                json::encode(value, &mut bytes);
                bytes.push(b'\n');
            }
            raw(code, "application/json", bytes.into())
        }
        Encoding::Protobuf => match protobuf_bytes(value) {
            Some(bytes) => raw(code, negotiate::PROTOBUF, bytes.into()),
            // Only documents that upstream does not write in protobuf either.
            None => value_response(code, value, Encoding::Json, indented),
        },
        Encoding::Yaml => raw(code, negotiate::YAML, yaml::to_string(value).into_bytes().into()),
    }
}

/// An object, list or Status in its protobuf envelope; `None` for what has no schema.
pub fn protobuf_bytes(value: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
    let ty = registry().kind(api_version, kind)?;
    Some(protobuf::encode(ty, value, api_version, kind))
}

fn stream_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    }
}

/// A response with the given body as it is.
pub fn raw(code: u16, content_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Compresses a large body for a client that reads gzip.
pub fn compressed(response: Response<ResponseBody>, manner: &Manner) -> Response<ResponseBody> {
    let large = response.body().len_max().is_some_and(|bytes| bytes > COMPRESS_BYTES_MIN);
    if !(large && manner.accepts_gzip) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, body.compressed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AS-15.
    #[test]
    fn pretty_is_a_go_boolean() {
        let read = |query: &str| pretty(&Query::parse(Some(query)));
        assert_eq!(["", "pretty", "pretty="].map(read), [None; 3]);
        assert_eq!(["pretty=1", "pretty=true", "pretty=T"].map(read), [Some(true); 3]);
        assert_eq!(["pretty=yes", "pretty=0", "pretty=tRUE"].map(read), [Some(false); 3]);
    }
}
