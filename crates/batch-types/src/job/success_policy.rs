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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{indexed, job, texts};
    use super::super::validate;

    fn rules(rules: Value) -> Vec<String> {
        let job = indexed(json!({"spec": {"successPolicy": {"rules": rules}}}));
        let strip = |text: String| text.strip_prefix("spec.successPolicy.").map(str::to_owned).unwrap_or(text);
        texts(&validate(&job)).into_iter().map(strip).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn what_is_fine() {
        assert_eq!(
            rules(json!([{"succeededCount": 1, "succeededIndexes": "0,2,4"}, {"succeededIndexes": "1,3"}])),
            NONE
        );
        assert_eq!(rules(json!([{"succeededCount": 5}, {"succeededIndexes": ""}, {"succeededCount": 0}])), NONE);
    }

    /// JA-V61…V68.
    #[test]
    fn rules_are_checked_against_the_completions() {
        let cases = [
            (
                json!([]),
                vec!["rules: Required value: at least one rules must be specified when the successPolicy is specified"],
            ),
            (
                json!([{}]),
                vec!["rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"],
            ),
            (
                json!([{"succeededCount": -1}]),
                vec!["rules[0].succeededCount: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                json!([{"succeededCount": 6}]),
                vec![
                    "rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
                ],
            ),
            (
                json!([{"succeededCount": 4, "succeededIndexes": "0-2"}]),
                vec![
                    "rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)",
                ],
            ),
            (
                json!([{"succeededCount": 1, "succeededIndexes": "x"}]),
                vec![
                    "rules[0].succeededIndexes: Invalid value: \"x\": error parsing succeededIndexes: cannot convert string to integer for index: \"x\"",
                    "rules[0].succeededCount: Invalid value: 1: must be less than or equal to 0 (the number of indexes in the specified succeededIndexes field)",
                ],
            ),
        ];
        for (value, wanted) in cases {
            assert_eq!(rules(value.clone()), wanted, "{value}");
        }
        assert_eq!(
            rules(json!(vec![json!({"succeededCount": 1}); 21])),
            ["rules: Too many: 21: must have at most 20 items"]
        );
        let long = format!("0{}", ",0".repeat(32768));
        assert_eq!(
            rules(json!([{"succeededIndexes": long}]))[0],
            "rules[0].succeededIndexes: Too long: may not be more than 65536 bytes"
        );
    }

    /// JA-V60.
    #[test]
    fn only_indexed_jobs_have_one() {
        let job = job(json!({"spec": {"successPolicy": {"rules": []}}}));
        assert_eq!(
            texts(&validate(&job)),
            ["spec.successPolicy: Invalid value: {\"rules\":[]}: requires indexed completion mode"]
        );
    }

    /// JA-V69.
    #[test]
    fn without_completions_nothing_is_compared() {
        let policy = json!({"rules": [{"succeededCount": 9, "succeededIndexes": "7"}]});
        let job = indexed(json!({"spec": {"completions": null, "successPolicy": policy}}));
        assert_eq!(texts(&validate(&job)), ["spec.completions: Required value: when completion mode is Indexed"]);
    }
}
