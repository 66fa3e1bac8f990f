//! `batch/v1` Jobs: defaults, strategies, validation, warnings.
//!
//! The order of a request is: [`default`], then [`prepare_for_create`] or one of its siblings, then [`validate`] or one
//! of its siblings, then the warnings. Upstream stores the result as it then is and applies [`default`] again on every
//! read, so an answer shows labels that the stored Job may not have (JA-D4). The pod template's own rules are in `pod`;
//! what the controller does is elsewhere.

mod defaults;
mod failure_policy;
mod status;
mod strategy;
mod success_policy;
#[cfg(test)]
mod testing;
mod update;
mod validation;
mod warnings;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use serde_json::Value;

use crate::constants::{condition, value};

pub(crate) use defaults::default_condition_patterns;
pub use defaults::{Defaulted, default};
pub use status::validate_status_update;
pub use strategy::{CreateFacts, prepare_for_create, prepare_for_status_update, prepare_for_update};
pub(crate) use strategy::{restore_status, set_generation};
pub use update::validate_update;
pub use validation::validate;
pub(crate) use validation::validate_template_job_spec;
pub(crate) use warnings::spec_warnings;
pub use warnings::{ORPHAN_BY_DEFAULT_WARNING, name_warning, warnings_on_create, warnings_on_update};

/// The fields Jobs can be selected by, besides those every kind has (JA-Q1).
pub const SELECTABLE_FIELDS: [&str; 1] = ["status.successful"];

/// The value of such a field.
pub fn field_selector_value(job: &Value, field: &str) -> Option<String> {
    SELECTABLE_FIELDS.contains(&field).then(|| {
        let succeeded = job.get("status").and_then(|status| status.get("succeeded")).and_then(Value::as_i64);
        succeeded.unwrap_or_default().to_string()
    })
}

/// Whether some condition of a type is `True`. A type may occur more than once (JA-S44).
pub fn has_condition(job: &Job, type_: &str) -> bool {
    has_condition_status(job, type_, condition::TRUE)
}

/// Whether a Job has ended, for better or worse.
pub fn is_finished(job: &Job) -> bool {
    has_condition(job, condition::COMPLETE) || has_condition(job, condition::FAILED)
}

/// Whether completions are tracked by index; unset counts as not.
pub fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some(value::INDEXED)
}

fn has_condition_status(job: &Job, type_: &str, status: &str) -> bool {
    let conditions: &[JobCondition] =
        job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_are_selected_by_successful_pods() {
        assert_eq!(
            field_selector_value(&json!({"status": {"succeeded": 3}}), "status.successful"),
            Some("3".to_owned())
        );
        assert_eq!(field_selector_value(&json!({}), "status.successful"), Some("0".to_owned()));
        assert_eq!(field_selector_value(&json!({}), "spec.suspend"), None);
    }

    #[test]
    fn any_entry_of_a_type_counts() {
        let job: Job = serde_json::from_value(json!({"status": {"conditions": [
            {"type": "Complete", "status": "False"}, {"type": "Complete", "status": "True"}]}}))
        .unwrap();
        assert!(has_condition(&job, "Complete") && is_finished(&job) && !has_condition(&job, "Failed"));
    }
}
