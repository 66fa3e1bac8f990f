//! Server-side apply and `managedFields`: who owns which field, what an applied configuration changes, and when that is
//! a conflict (AS-128 to AS-142). Follows `k8s.io/apimachinery/pkg/util/managedfields` and
//! `sigs.k8s.io/structured-merge-diff`.
//!
//! | file | about |
//! |---|---|
//! | `update` | ownership after POST, PUT and other patches: [`update_managed_fields`] |
//! | `configuration` | an applied configuration: [`apply`], pruning, conflicts, kubectl's annotation |
//! | `managers` | entries of `managedFields`: reading, order, times, the cap on their number |
//! | `field_set` | sets of fields in their wire form, `FieldsV1` |
//! | `element` | one step of a path: `f:name`, `k:{"name":"c"}`, `v:"x"` |
//! | `typed` | how the schema divides values into leaves, granular objects and list maps (AS-142) |
//! | `compare`, `extract`, `merge`, `remove`, `validate` | the walks over typed values |
//! | `trace` | differences that can be recognised without being worked out |
//! | `conflict` | what a conflict says |
//!
//! A manager whose entry is of another API version than the request's keeps its fields: converting objects between
//! versions, which upstream does to compare them, has no place here, and only `Event` has two versions.

mod compare;
mod configuration;
mod conflict;
mod element;
mod extract;
mod field_set;
mod last_applied;
mod managers;
mod merge;
mod remove;
mod trace;
mod typed;
mod update;
mod validate;

pub use configuration::apply;
pub use conflict::Conflict;
pub(crate) use conflict::message as conflict_message;
pub use field_set::{FieldSet, FieldSetError};
pub use managers::equal_but_for_times;
pub use update::{Difference, Recorded, record_on_bytes, resets_managed_fields, trace, update_managed_fields};

/// Who writes, through which endpoint, and when.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// `fieldManager`, or what the User-Agent says before its first `/`; empty counts as `unknown` (AS-132).
    pub name: &'a str,
    /// Of the endpoint: `batch/v1`.
    pub api_version: &'a str,
    /// `status`, or empty for the main endpoint.
    pub subresource: &'a str,
    /// The current time as `metav1.Time` prints it: `2026-11-15T06:27:19Z`.
    pub now: &'a str,
    /// Paths that the endpoint resets and that nobody owns through it: `[["status"]]` on the main endpoint of a Job,
    /// `[["spec"], ["metadata", "ownerReferences"]]` and so on (AS-133).
    pub reset_fields: &'a [&'a [&'a str]],
}

type Object = serde_json::Map<String, serde_json::Value>;

#[cfg(test)]
mod tests;
