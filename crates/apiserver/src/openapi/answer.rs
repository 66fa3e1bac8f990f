//! Requests for OpenAPI documents: which form a client reads, and what it may keep (AS-47, AS-48, AS-51).

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};

use super::{BY_PATH, Bytes, Dialect, Document, EVERYTHING, Lazy, index, url};
use crate::{
    body::ResponseBody,
    documents::page_not_found,
    negotiate,
    respond::{Manner, compressed, raw},
    server::Call,
};

const JSON: &str = "application/json";
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// The spelling that older clients ask for, which is no valid media type.
const PROTOBUF_V2_DEPRECATED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF_V3_DEPRECATED: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// A document with a hash in its URL never changes; a year is the longest that `Expires` should say.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Answers a request for a path below `/openapi/`.
pub(crate) fn answer(call: &Call, path: &str, manner: &Manner, now: Timestamp) -> Response<ResponseBody> {
    match path.split_once('/') {
        None if path == "v2" => everything(&call.headers, manner),
        None if path == "v3" => listing(&call.headers, manner),
        Some(("v3", path)) => one(&call.headers, path, call.query.get("hash"), manner, now),
        _ => page_not_found(),
    }
}

fn everything(headers: &HeaderMap, manner: &Manner) -> Response<ResponseBody> {
    let mut response = match Form::wanted(headers, Dialect::V2) {
        Some(form) => form.send(&EVERYTHING, headers, manner),
        None => empty(StatusCode::NOT_ACCEPTABLE),
    };
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Upstream labels its index as text, and clients do not mind.
fn listing(headers: &HeaderMap, manner: &Manner) -> Response<ResponseBody> {
    let Document { json, hash } = index();
    send(json, hash, "text/plain; charset=utf-8", headers, manner)
}

fn one(headers: &HeaderMap, path: &str, hash: Option<&str>, manner: &Manner, now: Timestamp) -> Response<ResponseBody> {
    let mut response = match (BY_PATH.get(path), Form::wanted(headers, Dialect::V3)) {
        (None, _) => return empty(StatusCode::NOT_FOUND),
        (_, None) => empty(StatusCode::NOT_ACCEPTABLE),
        (Some(lazy), Some(form)) => match hash.filter(|hash| !hash.is_empty()) {
            None => form.send(lazy, headers, manner),
            Some(hash) if hash == lazy.document().hash => for_ever(form.send(lazy, headers, manner), now),
            Some(_) => moved(&url(path, &lazy.document().hash)),
        },
    };
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn for_ever(mut response: Response<ResponseBody>, now: Timestamp) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    let expires = now.checked_add(KEPT_FOR).unwrap_or(now).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    if let Ok(expires) = HeaderValue::from_str(&expires) {
        headers.insert(header::EXPIRES, expires);
    }
    response
}

fn moved(to: &str) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    if let Ok(location) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf(&'static str),
}

impl Form {
    /// The first clause that can be served.
    fn wanted(headers: &HeaderMap, dialect: Dialect) -> Option<Self> {
        let clauses = negotiate::clauses(headers);
        if clauses.is_empty() {
            return Some(Self::Json);
        }
        clauses.iter().find_map(|clause| match (clause.media_type.as_str(), dialect) {
            (JSON | "application/*" | "*/*", _) => Some(Self::Json),
            (PROTOBUF_V2 | PROTOBUF_V2_DEPRECATED, Dialect::V2) => Some(Self::Protobuf(PROTOBUF_V2)),
            (PROTOBUF_V3 | PROTOBUF_V3_DEPRECATED, Dialect::V3) => Some(Self::Protobuf(PROTOBUF_V3)),
            _ => None,
        })
    }

    fn send(self, lazy: &Lazy, headers: &HeaderMap, manner: &Manner) -> Response<ResponseBody> {
        let document = lazy.document();
        match self {
            Self::Json => send(&document.json, &document.hash, JSON, headers, manner),
            Self::Protobuf(media_type) => send(lazy.protobuf(), &document.hash, media_type, headers, manner),
        }
    }
}

/// The bytes, or word that the client has them already.
fn send(
    bytes: &Bytes,
    hash: &str,
    media_type: &'static str,
    headers: &HeaderMap,
    manner: &Manner,
) -> Response<ResponseBody> {
    let tag = format!("\"{hash}\"");
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let known = known.flat_map(|tags| tags.split(',')).map(|known| known.trim().trim_start_matches("W/"));
    let mut response = if known.into_iter().any(|known| known == tag || known == "*") {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        compressed(raw(200, media_type, bytes.clone().into()), manner)
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn empty(code: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{environment::Environment, query::Query};

    fn headers(list: &[(header::HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn ask(path: &str, hash: Option<&str>, list: &[(header::HeaderName, &str)]) -> Response<ResponseBody> {
        let headers = headers(list);
        let manner = Manner::of(&headers, &Query::default(), &Environment::system());
        match path {
            "v2" => everything(&headers, &manner),
            "v3" => listing(&headers, &manner),
            path => one(&headers, path, hash, &manner, Timestamp::UNIX_EPOCH),
        }
    }

    fn text(response: &Response<ResponseBody>, name: header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn hashes_decide_about_caching() {
        let plain = ask("apis/batch/v1", None, &[]);
        assert_eq!((plain.status().as_u16(), text(&plain, header::CONTENT_TYPE)), (200, JSON));
        assert_eq!((text(&plain, header::EXPIRES), text(&plain, header::VARY)), ("", "Accept"));
        let hash = text(&plain, header::ETAG).trim_matches('"').to_owned();
        assert_eq!(hash.len(), 128);

        let right = ask("apis/batch/v1", Some(&hash), &[]);
        assert_eq!(text(&right, header::CACHE_CONTROL), "public, immutable");
        assert_eq!(text(&right, header::EXPIRES), "Fri, 01 Jan 1971 00:00:00 GMT");

        let wrong = ask("apis/batch/v1", Some("0BAD"), &[]);
        assert_eq!(wrong.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(text(&wrong, header::LOCATION), format!("/openapi/v3/apis/batch/v1?hash={hash}"));

        let known = ask("apis/batch/v1", None, &[(header::IF_NONE_MATCH, &format!("\"{hash}\""))]);
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn forms_are_negotiated() {
        let accept = |path, value| ask(path, None, &[(header::ACCEPT, value)]);
        for (path, value, media_type) in [
            ("v2", "*/*", JSON),
            ("v2", PROTOBUF_V2_DEPRECATED, PROTOBUF_V2),
            ("v2", PROTOBUF_V2, PROTOBUF_V2),
            ("api", PROTOBUF_V3_DEPRECATED, PROTOBUF_V3),
            ("api", "text/html, application/json;q=0.5", JSON),
        ] {
            let response = accept(path, value);
            assert_eq!(
                (response.status().as_u16(), text(&response, header::CONTENT_TYPE)),
                (200, media_type),
                "{value}"
            );
        }
        for (path, value, code) in [("v2", PROTOBUF_V3, 406), ("api", "text/html", 406), ("apis/forest/v1", JSON, 404)]
        {
            assert_eq!(accept(path, value).status().as_u16(), code, "{path} {value}");
        }
    }
}
