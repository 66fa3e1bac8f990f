//! The four ways to patch an object, as functions on JSON values: RFC 6902 [`json`] patch, RFC 7386 [`merge`] patch,
//! Kubernetes' [`strategic`] merge patch, and server-side [`apply`] with its `managedFields` bookkeeping.
//!
//! ```text
//! json::apply(live: Value, patch: &Value) -> Result<json::Patched, PatchError>
//! merge::apply(live: Value, patch: &Value) -> Result<Value, PatchError>
//! strategic::apply(live: Value, patch: &Value, ty: &'static Type) -> Result<Value, PatchError>
//! apply::apply(ty, live: Option<&Value>, config: &Value, manager: &Manager, force: bool) -> Result<Value, PatchError>
//! apply::update_managed_fields(ty, live: Option<&Value>, new: &mut Value, manager: &Manager)
//! ```
//!
//! `live` is the stored object in canonical form, in the version of the request's URL. What comes back is *not* yet
//! canonical: the caller decodes it (unknown fields, type errors), defaults, admits and validates it like the body of
//! a PUT (AS-115). Everything here is pure: no IO, no clock, no randomness, and no recursion deeper than
//! [`DEPTH_MAX`].
//!
//! Deliberately elsewhere: reading JSON or YAML text, content negotiation, `resourceVersion` and `uid` checks,
//! retries, and query-option validation, which all belong to the API server.

pub mod apply;
mod bounds;
mod error;
mod go_format;
pub mod json;
pub mod merge;
pub mod strategic;

pub use bounds::DEPTH_MAX;
pub use error::{Cause, PatchError, Rejection};
