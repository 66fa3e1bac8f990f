//! What a verb answers, before it is put into the representation that the client asked for.

use serde_json::Value;

use crate::{
    body::ResponseBody,
    query::Query,
    resources::Resource,
    status::Status,
    storage::{self, Stored},
};

/// The outcome of a request that did not fail.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub content: Content,
}

/// The content of an answer.
#[derive(Debug)]
pub enum Content {
    /// One object of a resource; may be shown as a Table or by its metadata only.
    Object { resource: &'static Resource, document: Document },
    /// A list of stored objects.
    List(List),
    /// A value that is never transformed: Status, reviews.
    Plain(Value),
    /// A watch: lines that are already framed.
    Stream(ResponseBody),
    /// Text such as logs.
    Text(ResponseBody),
}

/// An object as it is stored, or one that was only computed (dry run, deletion, conversion).
#[derive(Debug, Clone)]
pub enum Document {
    Stored(Stored),
    Value(Value),
}

/// The result of listing.
#[derive(Debug)]
pub struct List {
    pub resource: &'static Resource,
    pub items: Vec<Stored>,
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<u64>,
}

impl Answer {
    pub fn object(code: u16, resource: &'static Resource, document: Document) -> Self {
        Self { code, content: Content::Object { resource, document } }
    }

    pub fn plain(code: u16, value: Value) -> Self {
        Self { code, content: Content::Plain(value) }
    }
}

impl Document {
    /// The object in the version it is served in.
    pub fn into_value(self, resource: &Resource) -> Result<Value, Status> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Stored(stored) => served(&stored, resource),
        }
    }
}

/// A stored object in the version it is served in.
pub fn served(stored: &Stored, resource: &Resource) -> Result<Value, Status> {
    let value = storage::parse(stored)?;
    Ok(match resource.conversion {
        Some(conversion) => conversion.served_form(value),
        None => value,
    })
}

/// Which objects go with the rows of a Table (AS-160).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub fn parse(query: &Query) -> Result<Self, Status> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                batch_types::field::quoted(other)
            ))),
        }
    }
}
