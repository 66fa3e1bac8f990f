//! The parameters of operations (AS-50), and which operations take which.

use std::borrow::Cow;

/// A parameter in a path or query. Bodies are described with their operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub place: Place,
    /// `string`, `integer` or `boolean`.
    pub json_type: &'static str,
    pub description: Cow<'static, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
}

/// Narrow a list, or page and watch it.
pub const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
pub const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
pub const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];
pub const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
pub const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
pub const LOG: &[&str] = &[
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];
pub const PRETTY: &[&str] = &["pretty"];

/// The query parameter with this name. Names are literals of this module, so a missing one is a mistake in it.
pub fn query(name: &str) -> Parameter {
    let (name, json_type, description) =
        QUERY.iter().find(|(known, ..)| *known == name).unwrap_or_else(|| panic!("no query parameter `{name}`"));
    Parameter { name, place: Place::Query, json_type, description: Cow::Borrowed(description) }
}

pub fn namespace() -> Parameter {
    in_path("namespace", Cow::Borrowed("the namespace of the object"))
}

pub fn name(kind: &str) -> Parameter {
    in_path("name", Cow::Owned(format!("name of the {kind}")))
}

fn in_path(name: &'static str, description: Cow<'static, str>) -> Parameter {
    Parameter { name, place: Place::Path, json_type: "string", description }
}

const QUERY: &[(&str, &str, &str)] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "Ask a watch for BOOKMARK events, which carry only a resourceVersion to resume from.",
    ),
    ("container", "string", "The container whose log is wanted; may be left out when the pod has only one."),
    ("continue", "string", "The token of the previous page. An expired token is answered with 410 and a new one."),
    ("dryRun", "string", "With All, everything is checked and answered but nothing is stored."),
    ("fieldManager", "string", "Who makes this change: the owner of the written fields in managedFields."),
    (
        "fieldValidation",
        "string",
        "What to do about unknown and duplicate fields: Ignore them, Warn (the default), or be Strict and refuse.",
    ),
    ("fieldSelector", "string", "Only objects whose fields match, such as metadata.name=x."),
    ("follow", "boolean", "Keep the answer open and send new lines as they are written."),
    ("force", "boolean", "Take over fields that conflict with other managers. For apply only."),
    ("gracePeriodSeconds", "integer", "Seconds to wait before the object is removed; 0 removes it at once."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Remove an object that can no longer be read from the store, ignoring finalizers.",
    ),
    ("insecureSkipTLSVerifyBackend", "boolean", "Do not verify the certificate of the backend that serves the log."),
    ("labelSelector", "string", "Only objects whose labels match, such as app=web,tier!=cache."),
    ("limit", "integer", "At most this many objects in one answer; the rest follows with continue."),
    ("limitBytes", "integer", "End the log after this many bytes."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("pretty", "string", "Indent the answer. On by itself for browsers, curl and wget."),
    ("previous", "boolean", "The log of the container before its last restart."),
    (
        "propagationPolicy",
        "string",
        "What happens to dependents: Orphan keeps them, Background removes them later, Foreground removes them first.",
    ),
    ("resourceVersion", "string", "How fresh the answer must be, or where a watch starts."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    (
        "sendInitialEvents",
        "boolean",
        "Start a watch with the objects that exist, followed by a bookmark. Needs resourceVersionMatch=NotOlderThan.",
    ),
    ("shardSelector", "string", "Only objects whose hash is in a range. Alpha upstream."),
    ("sinceSeconds", "integer", "Only lines that are at most this many seconds old."),
    ("stream", "string", "Which output: All, Stdout or Stderr."),
    ("tailLines", "integer", "Only this many lines from the end."),
    ("timeoutSeconds", "integer", "End the list or watch after this many seconds."),
    ("timestamps", "boolean", "Begin every line with the time it was written."),
    ("watch", "boolean", "Stream the changes from resourceVersion on, instead of listing."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_parameter_is_described_and_in_order() {
        for names in [LIST, DELETE, DELETE_COLLECTION, WRITE, PATCH, LOG, PRETTY] {
            assert!(names.is_sorted(), "{names:?}");
            for name in names {
                assert_eq!(query(name).name, *name);
            }
        }
    }
}
