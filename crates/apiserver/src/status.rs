//! `Status`: what every failure over HTTP looks like (AS-31…AS-34).
//!
//! Each constructor is one kind of refusal with upstream's code, reason and words. Handlers return
//! `Result<_, Status>`; the response layer encodes it in the representation the client asked for.

use std::{
    collections::HashSet,
    fmt,
    ops::{Deref, DerefMut},
};

use batch_types::field;
use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// How many validation errors one answer lists. Upstream lists all, but an object of a few megabytes may have a million.
const ERRORS_MAX: usize = 1000;

/// A failed request, ready to be encoded. Boxed, since it travels in the `Err` of nearly every function here.
#[derive(Debug, Clone, PartialEq)]
pub struct Status(Box<Parts>);

/// The members of a [`Status`].
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Details>,
    /// A token that continues an expired list at the latest version (AS-92).
    pub continue_token: Option<String>,
    /// Some refusals are never compact (AS-18).
    pub indented: bool,
}

/// `details` of a Status; empty members are left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl Status {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Parts { code, reason, message, details: None, continue_token: None, indented: false }))
    }

    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(details);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Admission and authorization refusals share one form (AS-66).
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let named = if name.is_empty() { resource.qualified() } else { format!("{} \"{name}\"", resource.qualified()) };
        Self::new(403, "Forbidden", format!("{named} is forbidden: {why}")).with_details(Details::of(resource, name))
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified()))
            .with_details(Details::of(resource, name))
    }

    /// An unknown path inside a served group (AS-6).
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(Details::default())
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(Details::default())
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        let mut status = Self::new(406, "NotAcceptable", message);
        status.indented = true;
        status
    }

    pub fn already_exists(resource: &Resource, name: &str, terminating: bool) -> Self {
        let prefix = if terminating { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{prefix}{} \"{name}\" already exists", resource.qualified()))
            .with_details(Details::of(resource, name))
    }

    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict_on(&resource.qualified(), Details::of(resource, name), why)
    }

    /// A conflict whose subject is not the plain resource: a Kind, or `pods/binding`.
    pub fn conflict_on(subject: &str, details: Details, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {subject} \"{}\": {why}", details.name);
        Self::new(409, "Conflict", message).with_details(details)
    }

    /// The object changed under the writer (AS-110).
    pub fn stale(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Validation errors of an object (AS-33); `kind` is the Kind, with its group. Beyond [`ERRORS_MAX`] they are only
    /// counted.
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[field::Error]) -> Self {
        let (errors, more) = errors.split_at(errors.len().min(ERRORS_MAX));
        let mut known = HashSet::with_capacity(errors.len());
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| known.insert(text.clone()));
        if !more.is_empty() {
            texts.push(format!("and {} more", more.len()));
        }
        let listed = match texts.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.reason().to_owned(),
                message: error.text(),
                field: error.field.to_string(),
            })
            .collect();
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self::new(422, "Invalid", format!("{subject} \"{name}\" is invalid: {listed}")).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        })
    }

    /// Refused request options such as `dryRun` (AS-35).
    pub fn invalid_options(options_kind: &str, errors: &[field::Error]) -> Self {
        Self::invalid(options_kind, "meta.k8s.io", "", errors)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// Upstream wraps errors that are not API errors without a reason.
    pub fn unexplained(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
            .with_details(Details { retry_after_seconds: 1, ..Details::default() })
    }

    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
            .with_details(Details { retry_after_seconds: 1, ..Details::default() })
    }

    /// A resource version that does not exist yet (AS-87). Who read the store itself is not told to come back.
    pub fn future_version(requested: u64, current: u64, retry_after_seconds: u32) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        Self::new(504, "Timeout", message).with_details(Details {
            causes: vec![cause],
            retry_after_seconds,
            ..Details::default()
        })
    }

    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut status = Map::new();
        status.insert("kind".to_owned(), json!("Status"));
        status.insert("apiVersion".to_owned(), json!("v1"));
        status.insert("metadata".to_owned(), Value::Object(metadata));
        status.insert("status".to_owned(), json!("Failure"));
        if !self.message.is_empty() {
            status.insert("message".to_owned(), json!(self.message));
        }
        if !self.reason.is_empty() {
            status.insert("reason".to_owned(), json!(self.reason));
        }
        if let Some(details) = &self.details {
            status.insert("details".to_owned(), details.to_value());
        }
        status.insert("code".to_owned(), json!(self.code));
        Value::Object(status)
    }

    /// Seconds for the `Retry-After` header, when the client should come back.
    pub fn retry_after(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|&seconds| seconds > 0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Deref for Status {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl Details {
    /// The object a request was about, by plural resource (AS-32).
    pub fn of(resource: &Resource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.plural.to_owned(),
            ..Self::default()
        }
    }

    pub fn to_value(&self) -> Value {
        let mut details = Map::new();
        for (key, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".to_owned(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(details)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut cause = Map::new();
        for (key, value) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !value.is_empty() {
                cause.insert(key.to_owned(), json!(value));
            }
        }
        Value::Object(cause)
    }
}

/// `{"status":"Success"}` with optional details: the answer to deletes, bindings and evictions.
pub fn success(details: Option<Details>, code: Option<u16>) -> Value {
    let mut status = Map::new();
    status.insert("kind".to_owned(), json!("Status"));
    status.insert("apiVersion".to_owned(), json!("v1"));
    status.insert("metadata".to_owned(), json!({}));
    status.insert("status".to_owned(), json!("Success"));
    if let Some(details) = details {
        status.insert("details".to_owned(), details.to_value());
    }
    if let Some(code) = code {
        status.insert("code".to_owned(), json!(code));
    }
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(names: impl IntoIterator<Item = usize>) -> Vec<field::Error> {
        names.into_iter().map(|at| field::Error::required(&field::Path::new("items").index(at), "")).collect()
    }

    #[test]
    fn validation_errors_are_listed_once_in_their_order() {
        let status = Status::invalid("Job", "batch", "a", &missing([1, 0, 1]));
        let expected = "Job.batch \"a\" is invalid: [items[1]: Required value, items[0]: Required value]";
        assert_eq!(status.message, expected);
        let causes = status.details.as_ref().map(|details| details.causes.len());
        assert_eq!(causes, Some(3), "upstream tells causes twice");
        let status = Status::invalid("Job", "batch", "a", &missing([1, 1]));
        assert_eq!(status.message, "Job.batch \"a\" is invalid: items[1]: Required value");
    }

    #[test]
    fn no_more_than_a_thousand_validation_errors_are_listed() {
        for (errors, end) in [
            (ERRORS_MAX, "items[998]: Required value, items[999]: Required value]"),
            (ERRORS_MAX + 1, "items[999]: Required value, and 1 more]"),
            (1_000_000, "items[999]: Required value, and 999000 more]"),
        ] {
            let status = Status::invalid("Job", "batch", "a", &missing(0..errors));
            assert!(status.message.ends_with(end), "{errors}: …{:.100}", &status.message[status.message.len() - 100..]);
            assert_eq!(status.details.as_ref().map(|details| details.causes.len()), Some(ERRORS_MAX));
        }
    }
}
