//! One rule of a role: what it allows, and whether it covers another (AS-60).
//!
//! The matching is upstream's `pkg/apis/rbac/v1/evaluation_helpers.go`, the comparison its `policy_comparator.go`.

use std::fmt;

use batch_types::field::quoted;
use serde::{Deserialize, Deserializer, Serialize};

use crate::route::Attributes;

/// Matches every verb, group, resource or path.
const ALL: &str = "*";
/// Rules are compared combination by combination; a role with more of them is refused instead of compared.
const COMBINATIONS_MAX: usize = 100_000;

/// `rules[*]` of Roles and ClusterRoles.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    #[serde(deserialize_with = "or_empty")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Lists that are `null` have nothing in them.
pub(super) fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl PolicyRule {
    /// Whether the rule allows what a request wants.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        match &attributes.path {
            Some(path) => self.non_resource_urls.iter().any(|pattern| url_covers(pattern, path)),
            None => {
                has(&self.api_groups, &attributes.group)
                    && self
                        .resources
                        .iter()
                        .any(|pattern| resource_covers(pattern, &attributes.resource, &attributes.subresource))
                    && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
            }
        }
    }

    /// Whether everything that `other` allows is allowed by this rule alone.
    fn covers(&self, other: &Self) -> bool {
        let resource = |whole: &String| {
            let (resource, subresource) = whole.split_once('/').unwrap_or((whole, ""));
            self.resources.iter().any(|pattern| resource_covers(pattern, resource, subresource))
        };
        let is_named = !other.resource_names.is_empty();
        has_all(&self.verbs, &other.verbs)
            && has_all(&self.api_groups, &other.api_groups)
            && other.resources.iter().all(resource)
            && other.non_resource_urls.iter().all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
            && (self.resource_names.is_empty()
                || (is_named && other.resource_names.iter().all(|name| self.resource_names.contains(name))))
    }

    /// Rules with one verb, group, resource and name each that together allow the same.
    fn parts(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part =
                        Self { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Self::default() };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    let named = |name| Self { resource_names: one(name), ..part.clone() };
                    parts.extend(self.resource_names.iter().map(named));
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                parts.push(Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() });
            }
        }
        parts
    }

    fn combinations(&self) -> usize {
        let resources = self.api_groups.len().saturating_mul(self.resources.len());
        let named = resources.saturating_mul(self.resource_names.len().max(1));
        self.verbs.len().saturating_mul(named.saturating_add(self.non_resource_urls.len()))
    }
}

/// What `wanted` allows and `held` does not, compacted as upstream shows it; nothing when all of it is held.
pub fn missing(held: &[PolicyRule], wanted: &[PolicyRule]) -> Result<Vec<PolicyRule>, TooManyRules> {
    // A rule that another covers as a whole need not be taken apart.
    let open: Vec<&PolicyRule> =
        wanted.iter().filter(|rule| !held.iter().any(|holding| holding.covers(rule))).collect();
    if open.iter().map(|rule| rule.combinations()).fold(0, usize::saturating_add) > COMBINATIONS_MAX {
        return Err(TooManyRules);
    }
    let parts = open.into_iter().flat_map(PolicyRule::parts);
    Ok(compact(parts.filter(|part| !held.iter().any(|holding| holding.covers(part)))))
}

/// A role with more combinations than are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRules;

/// Joins rules that differ in their verb only.
fn compact(parts: impl Iterator<Item = PolicyRule>) -> Vec<PolicyRule> {
    let mut joined: Vec<PolicyRule> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for part in parts {
        if !part.non_resource_urls.is_empty() {
            joined.push(part);
            continue;
        }
        let about = (part.api_groups.clone(), part.resources.clone(), part.resource_names.clone());
        match places.get(&about) {
            Some(&at) => {
                let known: &mut PolicyRule = &mut joined[at];
                known.verbs.extend(part.verbs);
            }
            None => {
                places.insert(about, joined.len());
                joined.push(part);
            }
        }
    }
    joined
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|own| own == ALL || own == wanted)
}

fn has_all(list: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| has(list, wanted))
}

/// `*`, the same, or `*/subresource`.
fn resource_covers(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == ALL {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((own, own_subresource)) => {
            !subresource.is_empty() && own_subresource == subresource && (own == ALL || own == resource)
        }
    }
}

/// The same, or everything that begins like it if it ends in `*`.
fn url_covers(pattern: &str, url: &str) -> bool {
    pattern == url || (pattern.ends_with('*') && url.starts_with(pattern.trim_end_matches('*')))
}

/// As refusals show rules: `{APIGroups:["batch"], Resources:["jobs"], Verbs:["get" "list"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = parts
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:{}", quoted_list(values)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// A list of strings as Go's `%q` writes it.
pub fn quoted_list(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').filter(|word| !word.is_empty()).map(|word| word.trim_matches('\'').to_owned()).collect()
    }

    /// `verbs | groups | resources | names`; `''` is the core group.
    fn rule(text: &str) -> PolicyRule {
        let parts: Vec<Vec<String>> = text.split('|').map(words).collect();
        let part = |at: usize| parts.get(at).cloned().unwrap_or_default();
        PolicyRule {
            verbs: part(0),
            api_groups: part(1),
            resources: part(2),
            resource_names: part(3),
            non_resource_urls: part(4),
        }
    }

    /// `verb group resource/subresource name`.
    fn attributes(text: &str) -> Attributes {
        let parts = words(text);
        let (resource, subresource) = parts[2].split_once('/').unwrap_or((&parts[2], ""));
        Attributes {
            verb: parts[0].clone(),
            group: parts[1].clone(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: parts.get(3).cloned().unwrap_or_default(),
            ..Attributes::default()
        }
    }

    /// AS-60.
    #[test]
    fn rules_match_verb_group_resource_and_name() {
        let cases = [
            ("get list | batch | jobs", "get batch jobs a", true),
            ("get list | batch | jobs", "watch batch jobs", false),
            ("get | '' | jobs", "get batch jobs a", false),
            ("get | * | jobs", "get batch jobs a", true),
            ("* | batch | *", "delete batch cronjobs a", true),
            ("get | batch | jobs", "get batch jobs/status a", false),
            ("get | batch | jobs/status", "get batch jobs/status a", true),
            ("get | batch | jobs/status", "get batch jobs a", false),
            ("get | batch | */status", "get batch jobs/status a", true),
            ("get | batch | */status", "get batch jobs a", false),
            ("get | batch | *", "get batch jobs/status a", true),
            ("get | batch | jobs | a b", "get batch jobs b", true),
            ("get | batch | jobs | a b", "get batch jobs c", false),
            ("list create | batch | jobs | a", "list batch jobs", false),
            ("list create | batch | jobs | a", "create batch jobs", false),
            ("get | | | | /healthz *", "get batch jobs a", false),
        ];
        for (given, wanted, expected) in cases {
            assert_eq!(rule(given).allows(&attributes(wanted)), expected, "{given}: {wanted}");
        }
    }

    #[test]
    fn paths_match_whole_or_by_their_beginning() {
        for (pattern, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz/*", "/healthz", false),
            ("*", "/metrics", true),
            ("/api*", "/apis/batch", true),
        ] {
            let rule = PolicyRule { non_resource_urls: vec![pattern.to_owned()], verbs: words("get"), ..rule("") };
            let wanted = Attributes { verb: "get".to_owned(), path: Some(path.to_owned()), ..Attributes::default() };
            assert_eq!(rule.allows(&wanted), expected, "{pattern}: {path}");
            assert!(!rule.allows(&Attributes { verb: "post".to_owned(), ..wanted }));
        }
    }

    #[test]
    fn what_is_missing_is_told_compactly() {
        let cases = [
            ("get list | batch | jobs", "get | batch | jobs", ""),
            ("* | * | *", "get | batch | jobs/status | a", ""),
            ("get | batch | */status", "get | batch | jobs/status", ""),
            ("get | batch | jobs | a", "get | batch | jobs | a", ""),
            (
                "get | batch | jobs | a",
                "get | batch | jobs",
                r#"{APIGroups:["batch"], Resources:["jobs"], Verbs:["get"]}"#,
            ),
            (
                "get | batch | jobs",
                "get list watch | batch '' | jobs",
                r#"{APIGroups:["batch"], Resources:["jobs"], Verbs:["list" "watch"]} {APIGroups:[""], Resources:["jobs"], Verbs:["get" "list" "watch"]}"#,
            ),
            ("", "get | '' | pods | a", r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}"#),
            ("", "get | | | | /x", r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#),
        ];
        for (held, wanted, expected) in cases {
            let found = missing(&[rule(held)], &[rule(wanted)]).unwrap();
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), expected, "{held}: {wanted}");
        }
    }

    #[test]
    fn comparisons_are_bounded() {
        let many = |prefix: &str| (0..400).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
        let huge = PolicyRule { api_groups: many("g"), resources: many("r"), verbs: words("get"), ..rule("") };
        assert_eq!(missing(&[], std::slice::from_ref(&huge)), Err(TooManyRules));
        assert_eq!(missing(&[rule("* | * | *")], &[huge]), Ok(Vec::new()));
    }

    fn any_rule() -> impl Strategy<Value = PolicyRule> {
        let some = |of: &'static [&'static str]| {
            proptest::sample::subsequence(of, 0..=of.len())
                .prop_map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        (
            some(&["get", "list", "*"]),
            some(&["", "batch", "*"]),
            some(&["jobs", "jobs/status", "*/status", "*"]),
            some(&["a", "b"]),
        )
            .prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names,
                non_resource_urls: Vec::new(),
            })
    }

    proptest! {
        /// Who holds all of a rule may do whatever the rule allows.
        #[test]
        fn nothing_missing_means_nothing_gained(
            held in proptest::collection::vec(any_rule(), 0..4),
            wanted in any_rule(),
            verb in "get|list|watch",
            group in "batch|apps|''",
            resource in "jobs|jobs/status|pods|pods/status",
            name in "a|b|c",
        ) {
            let attributes = attributes(&format!("{verb} {group} {resource} {name}"));
            if missing(&held, std::slice::from_ref(&wanted)) == Ok(Vec::new()) && wanted.allows(&attributes) {
                prop_assert!(held.iter().any(|rule| rule.allows(&attributes)));
            }
        }
    }
}
