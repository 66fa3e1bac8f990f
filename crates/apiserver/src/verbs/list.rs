//! Lists: versions, selectors, pages (AS-88…AS-95).

use std::ops::Bound;

use api_schema::json;
use base64::{
    Engine, alphabet,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
    prelude::BASE64_URL_SAFE_NO_PAD,
};
use batch_types::names;
use serde::Serialize;
use serde_json::{Map, Value};
use store::{ListQuery, ReadError};

use crate::{
    answer::{Answer, Content, List},
    options::{ListOptions, resource_version},
    query::parse_go_uint,
    route::{self, Target},
    selection::Selection,
    server::{ApiServer, Call},
    status::Status,
    storage::Stored,
};

/// A page token is a key and a version; anything longer is not one of ours.
const TOKEN_BYTES_MAX: usize = 4096;
/// Go's decoder does not mind bits that are left over.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

pub(super) async fn list(server: &ApiServer, call: &Call, target: &Target) -> Result<Answer, Status> {
    let options = ListOptions::parse(&call.query, false)?;
    let list = select(server, target, &options).await?;
    Ok(Answer { code: 200, content: Content::List(list) })
}

/// Lists what the options select.
pub(super) async fn select(server: &ApiServer, target: &Target, options: &ListOptions) -> Result<List, Status> {
    let selection = Selection::parse(target.resource, options)?;
    let prefix = prefix(target, &selection);
    let start = start(server, target, options, &prefix).await?;
    page(server, target, options, &selection, &start, &prefix)
}

/// Where the candidates of a list stand. A selector for one namespace narrows it as a path would (upstream's
/// `Store.ListPredicate`).
fn prefix(target: &Target, selection: &Selection) -> String {
    let namespace = selection.namespace.as_deref().filter(|name| names::dns_label(name).is_empty());
    match namespace {
        Some(namespace) if target.resource.namespaced && target.namespace.is_none() => {
            Target { namespace: Some(namespace.to_owned()), ..target.clone() }.prefix()
        }
        _ => target.prefix(),
    }
}

/// Where a list begins: at which version, behind which key.
#[derive(Debug, Default)]
struct Start {
    at: Option<u64>,
    after: Option<String>,
    limit: usize,
}

async fn start(server: &ApiServer, target: &Target, options: &ListOptions, prefix: &str) -> Result<Start, Status> {
    if !options.continue_token.is_empty() {
        let token = Token::decode(&options.continue_token)?;
        if !options.resource_version.is_empty() && options.resource_version != "0" {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let after = format!("{prefix}{}", token.key().trim_end_matches('\0'));
        return Ok(Start { at: token.version(), after: Some(after), limit: options.limit });
    }
    let wanted = list_version(&options.resource_version)?;
    let exact = options.version_match == "Exact" || (options.version_match.is_empty() && options.limit > 0);
    match wanted {
        // Any version will do, and the whole list comes back (AS-89).
        None if options.resource_version == "0" && target.resource.is_cached() => Ok(Start::default()),
        None => Ok(Start { limit: options.limit, ..Start::default() }),
        Some(version) => {
            super::get::reach(server, target.resource, version).await?;
            Ok(Start { at: exact.then_some(version), limit: options.limit, after: None })
        }
    }
}

/// On lists an unreadable version is the client's fault (AS-87).
fn list_version(text: &str) -> Result<Option<u64>, Status> {
    resource_version(text)
        .map_err(|status| Status::bad_request(format!("invalid resource version: {}", status.message)))
}

fn page(
    server: &ApiServer,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
    start: &Start,
    prefix: &str,
) -> Result<List, Status> {
    let single = single_key(target, selection);
    let everything = selection.is_everything();
    let wanted = |entry: &Stored| everything || selection.matches(entry);
    let mut query = ListQuery::new(single.as_deref().unwrap_or(prefix));
    if let Some(after) = &start.after {
        query.start = Bound::Excluded(after);
    }
    query.at = start.at;
    // With selectors the store cannot count pages, so it hands over everything and the page is cut here.
    if everything && start.limit > 0 {
        query.limit = Some(start.limit);
    }
    let found = server.state.store.list(&query).map_err(|error| unreadable(error, options, start, prefix))?;
    let mut candidates =
        found.entries.into_iter().filter(|entry| single.as_deref().is_none_or(|key| *entry.key == *key));
    let mut items = Vec::new();
    while (start.limit == 0 || items.len() < start.limit)
        && let Some(entry) = candidates.next()
    {
        if wanted(&entry) {
            items.push(entry);
        }
    }
    // Whether what follows matches is for the next page to find out (upstream's `Cacher.GetList`).
    let more = found.remaining > 0 || candidates.next().is_some();
    let continue_token = items.last().filter(|_| more).map(|last| {
        let start = last.key.strip_prefix(prefix).unwrap_or_default();
        Token { v: VERSION.to_owned(), rv: found.revision as i64, start: format!("{start}\0") }.encode()
    });
    let remaining = (more && everything).then_some(found.remaining as u64);
    Ok(List { resource: target.resource, items, revision: found.revision, continue_token, remaining })
}

/// The key of the one object that a name selector can mean (AS-95).
fn single_key(target: &Target, selection: &Selection) -> Option<String> {
    let name = selection.name.as_deref().filter(|name| !name.is_empty())?;
    if !target.resource.namespaced {
        return Some(route::key(target.resource, "", name));
    }
    let namespace = target.namespace.as_deref().or(selection.namespace.as_deref())?;
    Some(route::key(target.resource, namespace, name))
}

fn unreadable(error: ReadError, options: &ListOptions, start: &Start, prefix: &str) -> Status {
    match error {
        ReadError::Future { requested, current } => Status::future_version(requested, current, 1),
        ReadError::Compacted { .. } if options.continue_token.is_empty() => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        ReadError::Compacted { .. } => {
            let rest = start.after.as_deref().and_then(|key| key.strip_prefix(prefix)).unwrap_or_default();
            let token = Token { v: VERSION.to_owned(), rv: -1, start: format!("{rest}\0") };
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            status.continue_token = Some(token.encode());
            status
        }
        other => Status::internal(format!("reading the store: {other}")),
    }
}

const VERSION: &str = "meta.k8s.io/v1";

/// A continue token (AS-90): the same members as upstream's, so that tools which peek are not surprised.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a token, or says in upstream's words what is wrong with it (`storage.DecodeContinue`).
    fn decode(text: &str) -> Result<Self, Status> {
        let invalid =
            |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid{why}"));
        if text.len() > TOKEN_BYTES_MAX {
            return Err(invalid(": too long"));
        }
        let bytes = LENIENT.decode(text).map_err(|_| {
            let foreign = |c: u8| !c.is_ascii_alphanumeric() && !matches!(c, b'-' | b'_');
            // With nothing foreign in it, the last group is cut short.
            let at = text.bytes().position(foreign).unwrap_or(text.len() / 4 * 4);
            invalid(&format!(": illegal base64 data at input byte {at}"))
        })?;
        let members = json::parse(&bytes).map_err(|error| invalid(&format!(": {error}")))?;
        let token = Self::from_value(&members).map_err(|why| invalid(&format!(": json: cannot unmarshal {why}")))?;
        if token.v != VERSION {
            return Err(invalid(&format!(": server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        // A key that means another one could lead out of the list.
        let mut steps = token.key().split('/');
        if token.start.starts_with("//") || steps.any(|step| matches!(step, "" | "." | "..")) {
            return Err(invalid(&format!(": {}", token.start)));
        }
        Ok(token)
    }

    /// What is absent is zero, as everywhere in Go.
    fn from_value(value: &Value) -> Result<Self, String> {
        let kind = |value: &Value| match value {
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        let empty = Map::new();
        let members = match value {
            Value::Object(members) => members,
            Value::Null => &empty,
            other => return Err(format!("{} into Go value of type storage.continueToken", kind(other))),
        };
        let text = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(format!("{} into Go struct field continueToken.{name} of type string", kind(other))),
        };
        let rv = match members.get("rv") {
            None | Some(Value::Null) => 0,
            Some(Value::Number(number)) => number
                .as_i64()
                .ok_or_else(|| format!("number {number} into Go struct field continueToken.rv of type int64"))?,
            Some(other) => return Err(format!("{} into Go struct field continueToken.rv of type int64", kind(other))),
        };
        Ok(Self { v: text("v")?, rv, start: text("start")? })
    }

    /// Where to go on, below the prefix of the list.
    fn key(&self) -> &str {
        self.start.strip_prefix('/').unwrap_or(&self.start)
    }

    /// The version to read at; `None` (encoded −1) continues at the latest.
    fn version(&self) -> Option<u64> {
        u64::try_from(self.rv).ok()
    }
}

/// `metadata.resourceVersion` of an update: `None` when empty, 500 when unreadable (AS-110).
pub(super) fn object_version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    match parse_go_uint(text) {
        Ok(0) => Ok(None),
        Ok(version) => Ok(Some(version)),
        Err(why) => Err(Status::unexplained(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_round_trip() {
        let token = Token { v: VERSION.to_owned(), rv: 7, start: "ns/a\0".to_owned() };
        assert_eq!(Token::decode(&token.encode()).unwrap(), token);
    }

    /// AS-90, in the words of upstream's `storage.DecodeContinue`.
    #[test]
    fn bad_tokens_are_refused_in_upstreams_words() {
        let encoded = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let cases = [
            ("!!".to_owned(), ": illegal base64 data at input byte 0"),
            ("e30=".to_owned(), ": illegal base64 data at input byte 3"),
            ("e30ab".to_owned(), ": illegal base64 data at input byte 4"),
            ("zz".to_owned(), ": invalid character 'Ï' looking for beginning of value"),
            (encoded("{}"), ": server does not recognize this encoded version "),
            (encoded("[]"), ": json: cannot unmarshal array into Go value of type storage.continueToken"),
            (
                encoded("{\"v\":1}"),
                ": json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (encoded("{\"v\":\"v9\"}"), ": server does not recognize this encoded version v9"),
            (
                encoded("{\"v\":\"meta.k8s.io/v1\",\"start\":\"a\"}"),
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (encoded("{\"v\":\"meta.k8s.io/v1\",\"rv\":3}"), ": encoded start key empty (version meta.k8s.io/v1)"),
            (encoded("{\"v\":\"meta.k8s.io/v1\",\"rv\":3,\"start\":\"../a\"}"), ": ../a"),
            ("a".repeat(5000), ": too long"),
        ];
        for (text, why) in cases {
            let refused = Token::decode(&text).unwrap_err();
            assert_eq!(refused.message, format!("invalid continue token: continue key is not valid{why}"), "{text}");
        }
    }
}
