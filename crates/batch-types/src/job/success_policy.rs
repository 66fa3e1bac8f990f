//! `spec.successPolicy`: when an Indexed Job is done early (JA section 6.4).

use k8s_openapi::api::batch::v1::{JobSpec, SuccessPolicy, SuccessPolicyRule};

use super::is_indexed;
use crate::field::{Error, Path};
use crate::index_ranges;
use crate::meta::validate_non_negative;

const RULES_MAX: usize = 20;
const SUCCEEDED_INDEXES_LEN_MAX: usize = 64 << 10;

pub(super) fn validate(policy: &SuccessPolicy, spec: &JobSpec, path: &Path) -> Vec<Error> {
    if !is_indexed(spec) {
        let shown = serde_json::to_value(policy).unwrap_or_default();
        return vec![Error::invalid(path, shown, "requires indexed completion mode")];
    }
    let mut errors = Vec::new();
    let path = path.child("rules");
    if policy.rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(Error::required(&path, detail));
    }
    if policy.rules.len() > RULES_MAX {
        errors.push(Error::too_many(&path, policy.rules.len(), RULES_MAX));
    }
    for (at, rule) in policy.rules.iter().enumerate() {
        errors.extend(validate_rule(rule, spec.completions, &path.index(at)));
    }
    errors
}

/// Without `completions`, which is an error of its own, nothing is compared with it (JA-V69).
fn validate_rule(rule: &SuccessPolicyRule, completions: Option<i32>, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(Error::required(path, detail));
    }
    let mut listed = None;
    if let Some(indexes) = &rule.succeeded_indexes {
        let path = path.child("succeededIndexes");
        if indexes.len() > SUCCEEDED_INDEXES_LEN_MAX {
            errors.push(Error::too_long(&path, SUCCEEDED_INDEXES_LEN_MAX));
        }
        listed = completions.map(|completions| match index_ranges::validate(indexes, completions) {
            Ok(count) => count,
            Err(error) => {
                let detail = format!("error parsing succeededIndexes: {error}");
                errors.push(Error::invalid(&path, indexes.as_str(), detail));
                0
            }
        });
    }
    if let Some(count) = rule.succeeded_count {
        let path = path.child("succeededCount");
        errors.extend(validate_non_negative(count, &path));
        if let Some(completions) = completions.filter(|completions| count > *completions) {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(Error::invalid(&path, count, detail));
        }
        if let Some(listed) = listed.filter(|listed| i64::from(count) > *listed) {
            let detail = format!(
                "must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(Error::invalid(&path, count, detail));
        }
    }
    errors
}
