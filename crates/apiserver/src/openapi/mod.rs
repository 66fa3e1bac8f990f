//! OpenAPI documents of what is served (AS-47…AS-52), made from the table of resources and the types of `api_schema`.
//!
//! | module | what it does |
//! |---|---|
//! | `answer` | requests for documents: negotiation, hashes, caching |
//! | `operations`, `parameters` | what can be done at which path |
//! | `components`, `types` | schemas of the types those refer to |
//! | `facts`, `descriptions` | what shapes do not say: required members, enumerations, words |
//! | `writer` | puts these together in version 2 or 3 |
//! | `gnostic` | the same documents as protobuf |
//!
//! Nothing is built before it is asked for: starting the server costs nothing. What has been built is kept as bytes.

mod answer;
mod components;
mod descriptions;
mod facts;
mod gnostic;
mod names;
mod operations;
mod parameters;
mod types;
mod writer;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{LazyLock, OnceLock},
};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

pub(crate) use answer::answer;

use crate::resources::registry::GROUPS;

/// Which version of OpenAPI a document is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

/// A document as it is sent.
#[derive(Debug)]
struct Document {
    json: Bytes,
    /// The upper-case hexadecimal SHA-512 of the JSON; the protobuf form goes by the same name.
    hash: String,
}

impl Document {
    fn new(value: &Value) -> Self {
        let json = value.to_string();
        let hash = Sha512::digest(json.as_bytes()).iter().fold(String::with_capacity(128), |mut hash, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hash, "{byte:02X}");
            hash
        });
        Self { json: json.into(), hash }
    }
}

/// What a document is about.
#[derive(Debug, Clone, Copy)]
enum Subject {
    /// `/api` itself.
    Api,
    /// `/apis` itself.
    Apis,
    Group(&'static str),
    Version {
        group: &'static str,
        version: &'static str,
    },
    /// `/version`.
    ServerVersion,
    /// All of it, in version 2.
    Everything,
}

/// A document that is built when it is first asked for.
#[derive(Debug)]
struct Lazy {
    subject: Subject,
    document: OnceLock<Document>,
    protobuf: OnceLock<Bytes>,
}

impl Lazy {
    const fn new(subject: Subject) -> Self {
        Self { subject, document: OnceLock::new(), protobuf: OnceLock::new() }
    }

    fn document(&self) -> &Document {
        self.document.get_or_init(|| Document::new(&self.build()))
    }

    /// Built anew: the JSON is asked for first or never, and a tree of values is no thing to keep.
    fn protobuf(&self) -> &Bytes {
        self.protobuf.get_or_init(|| gnostic::encode(self.dialect(), &self.build()).into())
    }

    fn dialect(&self) -> Dialect {
        if matches!(self.subject, Subject::Everything) { Dialect::V2 } else { Dialect::V3 }
    }

    fn build(&self) -> Value {
        let (paths, versions) = match self.subject {
            Subject::Api => (operations::of_api(), Vec::new()),
            Subject::Apis => (operations::of_apis(), Vec::new()),
            Subject::Group(group) => (operations::of_group(group), Vec::new()),
            Subject::Version { group, version } => (operations::of_version(group, version), vec![(group, version)]),
            Subject::ServerVersion => (operations::of_server_version(), Vec::new()),
            Subject::Everything => (operations::all(), GROUPS.iter().map(|group| (*group, "v1")).collect()),
        };
        writer::document(self.dialect(), &paths, versions)
    }
}

/// The document of `/openapi/v2`.
static EVERYTHING: Lazy = Lazy::new(Subject::Everything);

/// The documents below `/openapi/v3/`, by path: `api/v1`, `apis/batch/v1`.
static BY_PATH: LazyLock<BTreeMap<String, Lazy>> = LazyLock::new(|| {
    let mut documents = BTreeMap::new();
    let mut add = |path: &str, subject| documents.insert(path.to_owned(), Lazy::new(subject));
    add("api", Subject::Api);
    add("apis", Subject::Apis);
    add("version", Subject::ServerVersion);
    for group in GROUPS {
        if !group.is_empty() {
            add(&format!("apis/{group}"), Subject::Group(group));
        }
        let version = "v1";
        add(operations::url_of(group, version).trim_start_matches('/'), Subject::Version { group, version });
    }
    documents
});

/// `/openapi/v3`: where the documents are, with their hashes (AS-47). Asking for it builds them all.
fn index() -> &'static Document {
    static INDEX: LazyLock<Document> = LazyLock::new(|| {
        let paths: BTreeMap<&String, Value> = BY_PATH
            .iter()
            .map(|(path, lazy)| (path, json!({"serverRelativeURL": url(path, &lazy.document().hash)})))
            .collect();
        Document::new(&json!({ "paths": paths }))
    });
    &INDEX
}

/// Where a document may be cached for ever.
fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

#[cfg(test)]
mod tests;
