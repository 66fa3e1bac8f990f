//! Why a patch was refused, and what the client is told about it.

use thiserror::Error;

use crate::apply::Conflict;

/// Every way in which a patch can be refused. [`PatchError::rejection`] turns it into the parts of a `Status`:
///
/// | variant | code | reason | message | details |
/// |---|---|---|---|---|
/// | `BadRequest` | 400 | `BadRequest` | as is | absent |
/// | `TooManyOperations` | 413 | `RequestEntityTooLarge` | `Request entity too large: The allowed maximum …` | absent |
/// | `Unprocessable` | 422 | `Invalid` | `the server rejected our request due to an error in our request` | `{}` |
/// | `Invalid` | 422 | `Invalid` | ` "" is invalid: patch: Invalid value: "…": …` | one cause, field `patch` |
/// | `Conflicts` | 409 | `Conflict` | `Apply failed with N conflict…` | a cause for each field |
/// | `Internal` | 500 | absent | as is | absent |
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PatchError {
    /// The patch is not a patch.
    #[error("{0}")]
    BadRequest(String),
    /// More than [`crate::json::OPERATIONS_MAX`] operations (AS-116).
    #[error("the allowed maximum operations in a JSON patch is {max}, got {got}", max = crate::json::OPERATIONS_MAX)]
    TooManyOperations { got: usize },
    /// The patch does not fit the object. Clients never see the cause (AS-116); it is for logs.
    #[error("{0}")]
    Unprocessable(String),
    /// The patched object does not decode (AS-118). `value` is the patched object, or the patch itself if strategic.
    #[error("patch {value}: {detail}")]
    Invalid { value: String, detail: String },
    /// Fields that other managers own would change (AS-138).
    #[error("{}", crate::apply::conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// Upstream has no better word for it than a plain error: wrong merge keys, directives, apply schemas.
    #[error("{0}")]
    Internal(String),
}

/// A [`PatchError`] as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub code: u16,
    pub reason: Option<&'static str>,
    pub message: String,
    /// `None`: no `details` at all. Empty: `details` is `{}`.
    pub causes: Option<Vec<Cause>>,
}

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl PatchError {
    /// The refusal of a patched object that does not decode (AS-118), also for strict decoding errors:
    /// `details` is then `strict decoding error: unknown field "spec.foo", …`.
    pub fn invalid(value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid { value: value.into(), detail: detail.into() }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::Internal(message.into())
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest(message.into())
    }

    /// Code, reason, message and causes exactly as Kubernetes answers.
    pub fn rejection(&self) -> Rejection {
        match self {
            Self::BadRequest(message) => Rejection::new(400, Some("BadRequest"), message.clone(), None),
            Self::TooManyOperations { got } => Rejection::new(
                413,
                Some("RequestEntityTooLarge"),
                format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is {}, got {got}",
                    crate::json::OPERATIONS_MAX
                ),
                None,
            ),
            Self::Unprocessable(_) => Rejection::new(
                422,
                Some("Invalid"),
                "the server rejected our request due to an error in our request".into(),
                Some(Vec::new()),
            ),
            Self::Invalid { value, detail } => {
                let message = format!("Invalid value: {}: {detail}", crate::go_format::quoted(value));
                let whole = format!(" \"\" is invalid: patch: {message}");
                let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".into() };
                Rejection::new(422, Some("Invalid"), whole, Some(vec![cause]))
            }
            Self::Conflicts(conflicts) => {
                let causes = conflicts.iter().map(Conflict::cause).collect();
                Rejection::new(409, Some("Conflict"), crate::apply::conflict_message(conflicts), Some(causes))
            }
            Self::Internal(message) => Rejection::new(500, None, message.clone(), None),
        }
    }
}

impl Rejection {
    fn new(code: u16, reason: Option<&'static str>, message: String, causes: Option<Vec<Cause>>) -> Self {
        Self { code, reason, message, causes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: PatchError, code: u16, reason: Option<&str>, message: &str) {
        let rejection = error.rejection();
        assert_eq!((rejection.code, rejection.reason, rejection.message.as_str()), (code, reason, message));
    }

    #[test]
    fn rejections_are_upstreams() {
        check(PatchError::bad_request("nope"), 400, Some("BadRequest"), "nope");
        check(
            PatchError::TooManyOperations { got: 10_001 },
            413,
            Some("RequestEntityTooLarge"),
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        );
        check(
            PatchError::Unprocessable("test failed".into()),
            422,
            Some("Invalid"),
            "the server rejected our request due to an error in our request",
        );
        check(PatchError::internal("map: map[] …"), 500, None, "map: map[] …");
        check(
            PatchError::invalid(r#"{"a":1}"#, "bad"),
            422,
            Some("Invalid"),
            r#" "" is invalid: patch: Invalid value: "{\"a\":1}": bad"#,
        );
    }

    #[test]
    fn details_are_absent_empty_or_listed() {
        assert_eq!(PatchError::bad_request("x").rejection().causes, None);
        assert_eq!(PatchError::Unprocessable(String::new()).rejection().causes, Some(vec![]));
        let causes = PatchError::invalid("{}", "bad").rejection().causes.unwrap();
        assert_eq!(
            causes,
            [Cause {
                reason: "FieldValueInvalid",
                message: r#"Invalid value: "{}": bad"#.into(),
                field: "patch".into()
            }]
        );
    }
}
