//! How far a namespace's deletion has come, as conditions of its status (PL-101).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::content::Remaining;

/// A condition: type, and whether it is True, with reason and message for both cases.
struct Finding {
    kind: &'static str,
    /// Reason and message if there is something to say.
    found: Option<(&'static str, String)>,
    otherwise: (&'static str, &'static str),
}

/// Brings the conditions up to date; says whether any changed.
pub(super) fn update(status: &mut Value, remaining: &Remaining, now: Timestamp) -> bool {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut changed = false;
    for finding in findings(remaining) {
        changed |= merge(&mut conditions, finding, &now);
    }
    status["conditions"] = Value::Array(conditions);
    changed
}

/// In the order upstream writes them.
fn findings(remaining: &Remaining) -> [Finding; 5] {
    let failures = &remaining.discovery_failures;
    [
        Finding {
            kind: "NamespaceDeletionDiscoveryFailure",
            found: (!failures.is_empty()).then(|| {
                let list = failures.join(", ");
                ("DiscoveryFailed", format!("Discovery failed for some groups, {} failing: {list}", failures.len()))
            }),
            otherwise: ("ResourcesDiscovered", "All resources successfully discovered"),
        },
        Finding {
            kind: "NamespaceDeletionGroupVersionParsingFailure",
            found: None,
            otherwise: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        },
        Finding {
            kind: "NamespaceDeletionContentFailure",
            found: (!remaining.delete_failures.is_empty()).then(|| {
                let list = remaining.delete_failures.join(", ");
                (
                    "ContentDeletionFailed",
                    format!(
                        "Failed to delete all resource types, {} remaining: {list}",
                        remaining.delete_failures.len()
                    ),
                )
            }),
            otherwise: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        },
        Finding {
            kind: "NamespaceContentRemaining",
            found: counted(&remaining.objects, " has ")
                .map(|list| ("SomeResourcesRemain", format!("Some resources are remaining: {list}"))),
            otherwise: ("ContentRemoved", "All content successfully removed"),
        },
        Finding {
            kind: "NamespaceFinalizersRemaining",
            found: counted(&remaining.finalizers, " in ").map(|list| {
                ("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {list}"))
            }),
            otherwise: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        },
    ]
}

fn counted(counts: &BTreeMap<String, usize>, verb: &str) -> Option<String> {
    let list: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name}{verb}{count} resource instances")).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

fn merge(conditions: &mut Vec<Value>, finding: Finding, now: &str) -> bool {
    let (status, reason, message) = match finding.found {
        Some((reason, message)) => ("True", reason, message),
        None => ("False", finding.otherwise.0, finding.otherwise.1.to_owned()),
    };
    let condition = json!({
        "type": finding.kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
    });
    let known = conditions.iter_mut().find(|known| known["type"] == finding.kind);
    match known {
        None => conditions.push(condition),
        Some(known) if known["status"] == status && known["reason"] == reason && known["message"] == message => {
            return false;
        }
        Some(known) => *known = condition,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: &Value) -> Vec<String> {
        let line = |condition: &Value| {
            let word = |key: &str| condition[key].as_str().unwrap_or("?").to_owned();
            let kind = word("type").trim_start_matches("Namespace").to_owned();
            format!("{kind} {} {} {}: {}", word("status"), word("lastTransitionTime"), word("reason"), word("message"))
        };
        status["conditions"].as_array().unwrap().iter().map(line).collect()
    }

    #[test]
    fn conditions_speak_upstreams_words() {
        let mut status = json!({"phase": "Terminating"});
        let remaining = Remaining {
            objects: BTreeMap::from([("configmaps.".to_owned(), 1), ("jobs.batch".to_owned(), 2)]),
            finalizers: BTreeMap::from([("x.y/z".to_owned(), 1)]),
            ..Remaining::default()
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(update(&mut status, &remaining, at(0)));
        assert!(!update(&mut status, &remaining, at(9)), "nothing new, nothing written");
        let expected = [
            "DeletionDiscoveryFailure False 1970-01-01T00:00:00Z ResourcesDiscovered: All resources successfully discovered",
            "DeletionGroupVersionParsingFailure False 1970-01-01T00:00:00Z ParsedGroupVersions: All legacy kube types successfully parsed",
            "DeletionContentFailure False 1970-01-01T00:00:00Z ContentDeleted: All content successfully deleted, may be waiting on finalization",
            "ContentRemaining True 1970-01-01T00:00:00Z SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, jobs.batch has 2 resource instances",
            "FinalizersRemaining True 1970-01-01T00:00:00Z SomeFinalizersRemain: Some content in the namespace has finalizers remaining: x.y/z in 1 resource instances",
        ];
        assert_eq!(text(&status), expected);
        assert!(update(&mut status, &Remaining::default(), at(60)));
        let settled = text(&status);
        assert_eq!(settled[0], expected[0]);
        assert_eq!(
            settled[3..],
            [
                "ContentRemaining False 1970-01-01T00:01:00Z ContentRemoved: All content successfully removed",
                "FinalizersRemaining False 1970-01-01T00:01:00Z ContentHasNoFinalizers: All content-preserving finalizers finished",
            ]
        );
    }
}
