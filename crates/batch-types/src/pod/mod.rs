//! Pods and pod templates: defaults, what the server sets, admission, validation, warnings.
//!
//! Functions that change objects work on canonical JSON; functions that only read work on typed structs. The order of
//! a create is [`default`], admission ([`admit_priority`] and the others), [`prepare_for_create`], [`validate`],
//! [`warnings`]. What a Job demands of its template beyond this is in `job`.

mod admission;
mod affinity;
mod annotations;
mod claims;
mod containers;
mod defaults;
mod drivers;
mod env;
mod fields;
mod image;
mod ip;
mod mounts;
mod network;
mod options;
mod overlap;
mod ports;
mod prepare;
mod probes;
mod projected;
mod qos;
mod report;
mod resources;
mod restart;
mod scheduling;
mod security;
mod spread;
mod status;
mod status_scope;
mod syntax;
mod update;
mod validate;
mod volumes;
mod warnings;
mod windows;
mod zero;

#[cfg(test)]
mod testing;

pub use admission::{
    PriorityFacts, ServiceAccountFacts, admit_default_tolerations, admit_overhead, admit_priority,
    admit_priority_update, admit_runtime_class, admit_service_account, service_account_name,
};
pub use defaults::{default, default_template};
pub use fields::{SELECTABLE_FIELDS, deletion_grace_seconds, field_selector_value};
pub use prepare::{drop_disabled_template_fields, prepare_for_create, prepare_for_status_update, prepare_for_update};
pub use qos::qos_class;
pub use resources::{limits, requests};
pub use status::{status_warnings, validate_status_update};
pub use status_scope::status_depends_on_spec;
pub use update::validate_update;
pub use validate::{validate, validate_template_for_job, validate_template_update_for_job};
pub use warnings::{template_warnings, warnings};
