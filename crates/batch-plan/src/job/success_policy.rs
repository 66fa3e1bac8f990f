//! `spec.successPolicy`: when the successes so far are enough (JC section 17).

use batch_types::index_ranges::IndexSet;
use k8s_openapi::api::batch::v1::{SuccessPolicy, SuccessPolicyRule};

/// The zero-based place of the first rule that the succeeded indexes satisfy (JC-1702).
pub(crate) fn met(policy: &SuccessPolicy, succeeded: &IndexSet, completions: i32) -> Option<usize> {
    if succeeded.is_empty() {
        return None;
    }
    policy.rules.iter().position(|rule| satisfied(rule, succeeded, completions))
}

fn satisfied(rule: &SuccessPolicyRule, succeeded: &IndexSet, completions: i32) -> bool {
    let enough = |count: usize| rule.succeeded_count.is_some_and(|want| count >= usize::try_from(want).unwrap_or(0));
    match &rule.succeeded_indexes {
        None => enough(succeeded.len()),
        Some(text) => {
            let named = IndexSet::parse(text, completions);
            let common = named.intersection_len(succeeded);
            !named.is_empty() && (common == named.len() || enough(common))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule is written `idx` or `idx#count`, with `*` for "no indexes named".
    fn check(rules: &[&str], succeeded: &str, expected: Option<usize>) {
        let rules_of = |text: &&str| {
            let (indexes, count) = text.split_once('#').unwrap_or((text, ""));
            SuccessPolicyRule {
                succeeded_indexes: (indexes != "*").then(|| indexes.to_owned()),
                succeeded_count: count.parse().ok(),
            }
        };
        let policy = SuccessPolicy { rules: rules.iter().map(rules_of).collect() };
        let found = met(&policy, &IndexSet::parse(succeeded, i32::MAX), 10);
        assert_eq!(found, expected, "{rules:?} with {succeeded}");
    }

    /// V-6, row by row.
    #[test]
    fn rules_are_met_by_all_named_indexes_or_by_enough_of_them() {
        check(&[], "0", None);
        check(&["invalid-form"], "0", None);
        check(&[""], "1-3", None);
        check(&["10-12,14-16"], "1-3,5-7", None);
        check(&["0-2"], "0-2,4-7", Some(0));
        check(&["3"], "0-2", None);
        check(&["*#2"], "0-2", Some(0));
        check(&["*#4"], "0-2", None);
        check(&["9", "4,6"], "0-2,4-7", Some(1));
        check(&["0,1", "5"], "0-2,4-7", Some(0));
        check(&["3-6#2"], "0-2,4-7", Some(0));
        check(&["3-6#2"], "0-2,6-7", None);
        check(&["2-4,6-8"], "1-5,6-9", Some(0));
        check(&["2-4,8-12"], "2-5,7-15", Some(0));
        let all_or_enough = [
            ("1-3,5-7", 4, "2-4,6-8"),
            ("2-4,6-9", 4, "1-3,5-7"),
            ("0-4,6-9", 5, "1-3,7-8"),
            ("0-6,8-9", 7, "1-3,5-9"),
            ("0-5,7-9", 8, "1-5,7-10"),
            ("0-3,6-9", 7, "1-10"),
        ];
        for (indexes, count, succeeded) in all_or_enough {
            check(&[indexes], succeeded, None);
            check(&[&format!("{indexes}#{count}")], succeeded, Some(0));
        }
        check(&["0"], "", None);
        check(&["*#1"], "", None);
    }
}
