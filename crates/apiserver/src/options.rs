//! The options of each verb, from query or body, with upstream's refusals (AS-35, AS-89, AS-101, AS-144, AS-155).

use std::str::FromStr;

use batch_types::{
    field::{self, Path},
    selector::{FieldSelector, Selector},
};
use serde_json::{Value, json};

use crate::{
    query::{Query, parse_go_uint},
    status::Status,
};

const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// What happens with unknown and duplicate fields of a body (AS-155).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of POST, PUT and PATCH.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// PATCH only.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`; `applying` for apply patches.
    pub fn parse(query: &Query, kind: &str, applying: bool) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let force = query.flag_if_set("force").filter(|_| kind == "PatchOptions");
        if kind == "PatchOptions" {
            if applying && query.text("fieldManager").is_empty() {
                errors.push(field::Error::required(&Path::new("fieldManager"), "is required for apply patch"));
            }
            if !applying && force.is_some() {
                let detail = "may not be specified for non-apply patch";
                errors.push(field::Error::forbidden(&Path::new("force"), detail));
            }
        }
        let field_manager = query.text("fieldManager").to_owned();
        errors.extend(field_manager_errors(&field_manager));
        let dry_run = query.all("dryRun");
        errors.extend(dry_run_errors(&dry_run));
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(field::Error::not_supported(&Path::new("fieldValidation"), other, &supported));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(Status::invalid_options(kind, &errors));
        }
        Ok(Self { dry_run: !dry_run.is_empty(), field_manager, field_validation, force })
    }
}

fn field_manager_errors(manager: &str) -> Vec<field::Error> {
    let path = Path::new("fieldManager");
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(field::Error::too_long(&path, FIELD_MANAGER_BYTES_MAX));
    }
    for (at, c) in manager.char_indices().filter(|&(_, c)| !field::is_printable(c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
        errors.push(field::Error::invalid(&path, manager, detail));
    }
    errors
}

fn dry_run_errors(dry_run: &[String]) -> Vec<field::Error> {
    if dry_run.iter().all(|value| value == "All") {
        return Vec::new();
    }
    vec![field::Error::not_supported(&Path::new("dryRun"), json!(dry_run), &["All"])]
}

/// Options of DELETE, from the body if there is one, otherwise from the query (AS-143).
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub dry_run: bool,
}

impl DeleteOptions {
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let stated = |name: &str| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let options = Self {
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            uid: stated("uid"),
            resource_version: stated("resourceVersion"),
            orphan_dependents: query.flag_if_set("orphanDependents"),
            propagation_policy: query.get("propagationPolicy").map(str::to_owned),
            ..Self::default()
        };
        options.checked(&query.all("dryRun"))
    }

    /// From a decoded `DeleteOptions` object.
    pub fn from_value(value: &Value) -> Result<Self, Status> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let options = Self {
            grace_period_seconds: value["gracePeriodSeconds"].as_i64(),
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            orphan_dependents: value["orphanDependents"].as_bool(),
            propagation_policy: text(&value["propagationPolicy"]),
            dry_run: false,
        };
        let dry_run = value["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
        options.checked(&dry_run.iter().filter_map(text).collect::<Vec<_>>())
    }

    fn checked(mut self, dry_run: &[String]) -> Result<Self, Status> {
        let path = Path::new("propagationPolicy");
        let mut errors = Vec::new();
        if let (Some(_), Some(policy)) = (self.orphan_dependents, &self.propagation_policy) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(field::Error::invalid(&path, policy.as_str(), detail));
        }
        if let Some(policy) = &self.propagation_policy
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(field::Error::not_supported(&path, policy.as_str(), &supported));
        }
        errors.extend(dry_run_errors(dry_run));
        if !errors.is_empty() {
            return Err(Status::invalid_options("DeleteOptions", &errors));
        }
        self.dry_run = !dry_run.is_empty();
        Ok(self)
    }
}

/// Options of list, watch and deletecollection.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub limit: usize,
    pub continue_token: String,
    pub resource_version: String,
    pub version_match: String,
    pub send_initial_events: Option<bool>,
    pub allow_bookmarks: bool,
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    pub fn parse(query: &Query, watching: bool) -> Result<Self, Status> {
        let timeout_seconds = query.integer("timeoutSeconds")?.map(|seconds| u64::try_from(seconds).unwrap_or(0));
        let limit = query.integer("limit")?.unwrap_or(0);
        let mut options = Self {
            label_selector: query.text("labelSelector").to_owned(),
            field_selector: query.text("fieldSelector").to_owned(),
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: query.text("resourceVersionMatch").to_owned(),
            send_initial_events: query.flag_if_set("sendInitialEvents"),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            timeout_seconds,
        };
        options.check_selectors()?;
        if watching {
            options.default_initial_events();
        }
        let errors = if watching { options.watch_errors() } else { options.list_errors() };
        if errors.is_empty() { Ok(options) } else { Err(Status::invalid_options("ListOptions", &errors)) }
    }

    /// A watch from no version in particular is one that sends what is there first (upstream's
    /// `SetListOptionsDefaults`).
    fn default_initial_events(&mut self) {
        let anywhere = matches!(self.resource_version.as_str(), "" | "0");
        if anywhere && self.send_initial_events.is_none() && self.version_match.is_empty() {
            self.send_initial_events = Some(true);
            "NotOlderThan".clone_into(&mut self.version_match);
        }
    }

    /// Selectors are read together with the other parameters, so what is malformed comes before what does not go
    /// together.
    fn check_selectors(&self) -> Result<(), Status> {
        if !self.label_selector.is_empty() {
            Selector::from_str(&self.label_selector).map_err(|error| Status::bad_request(error.to_string()))?;
        }
        if !self.field_selector.is_empty() {
            FieldSelector::from_str(&self.field_selector).map_err(|error| Status::bad_request(error.to_string()))?;
        }
        Ok(())
    }

    fn list_errors(&self) -> Vec<field::Error> {
        let mut errors = self.version_match_errors();
        if self.send_initial_events.is_some() {
            let path = Path::new("sendInitialEvents");
            errors.push(field::Error::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn version_match_errors(&self) -> Vec<field::Error> {
        let path = Path::new("resourceVersionMatch");
        let mut errors = Vec::new();
        if self.version_match.is_empty() {
            return errors;
        }
        if self.resource_version.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(field::Error::forbidden(&path, detail));
        }
        if !self.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(field::Error::forbidden(&path, detail));
        }
        if !matches!(self.version_match.as_str(), "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(field::Error::not_supported(&path, self.version_match.as_str(), &supported));
        }
        if self.version_match == "Exact" && self.resource_version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(field::Error::forbidden(&path, detail));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<field::Error> {
        let path = Path::new("resourceVersionMatch");
        let mut errors = Vec::new();
        if self.send_initial_events.is_some() && self.version_match != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(field::Error::forbidden(&path, detail));
        }
        if self.version_match.is_empty() {
            return errors;
        }
        if self.send_initial_events.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(field::Error::forbidden(&path, detail));
        }
        if self.version_match != "NotOlderThan" {
            errors.push(field::Error::not_supported(&path, self.version_match.as_str(), &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(field::Error::forbidden(&path, detail));
        }
        errors
    }
}

/// A resource version of GET and watch: `None` for unset and `0` (AS-87).
pub fn resource_version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    match parse_go_uint(text) {
        Ok(0) => Ok(None),
        Ok(version) => Ok(Some(version)),
        Err(why) => Err(Status::unexplained(format!(
            "resourceVersion: Invalid value: {}: {why}",
            batch_types::field::quoted(text)
        ))),
    }
}

/// `?timeout=`: a Go duration, or 400 (AS-12).
pub fn timeout(query: &Query) -> Result<Option<std::time::Duration>, Status> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(None) };
    go_duration(text)
        .map(Some)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - time: {why}")))
}

/// `time.ParseDuration`, with zero for what is negative.
fn go_duration(text: &str) -> Result<std::time::Duration, String> {
    let quoted = batch_types::field::quoted(text);
    let invalid = || format!("invalid duration {quoted}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(std::time::Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, after) = rest.split_at(unit_end);
        rest = after;
        seconds += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" => return Err(format!("missing unit in duration {quoted}")),
                unit => return Err(format!("unknown unit {} in duration {quoted}", batch_types::field::quoted(unit))),
            };
    }
    // A negative limit is none.
    let seconds = if text.starts_with('-') { 0.0 } else { seconds };
    std::time::Duration::try_from_secs_f64(seconds).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_options_are_refused_in_upstreams_words() {
        let cases = [
            (
                "dryRun=Foo",
                "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=Foo",
                "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
        ];
        for (query, message) in cases {
            let refused = WriteOptions::parse(&Query::parse(Some(query)), "CreateOptions", false).unwrap_err();
            assert_eq!(refused.message, message);
        }
    }

    /// AS-128: what Go does not print, told for every such character.
    #[test]
    fn field_managers_are_printable() {
        let texts = |manager: &str| field_manager_errors(manager).iter().map(field::Error::text).collect::<Vec<_>>();
        assert_eq!(texts("kubectl é☃ e\u{301}"), [""; 0]);
        assert_eq!(
            texts("a\u{7}b\u{200b}c\u{a0}"),
            [
                "Invalid value: \"a\\ab\\u200bc\\u00a0\": invalid character U+0007 (at position 1)",
                "Invalid value: \"a\\ab\\u200bc\\u00a0\": invalid character U+200B (at position 3)",
                "Invalid value: \"a\\ab\\u200bc\\u00a0\": invalid character U+00A0 (at position 7)",
            ]
        );
    }

    #[test]
    fn list_and_watch_options_exclude_each_other() {
        let refused = |query: &str, watching| ListOptions::parse(&Query::parse(Some(query)), watching).is_err();
        assert!(refused("sendInitialEvents=true", false));
        assert!(refused("resourceVersionMatch=Exact", false));
        assert!(refused("resourceVersionMatch=Exact&resourceVersion=0", false));
        assert!(!refused("resourceVersionMatch=Exact&resourceVersion=3", false));
        assert!(refused("sendInitialEvents=true", true));
        assert!(refused("resourceVersionMatch=NotOlderThan", true));
        assert!(!refused("resourceVersionMatch=NotOlderThan&sendInitialEvents=false", true));
    }

    /// AS-99: every fault of a watch is told, not only the first.
    #[test]
    fn watch_options_are_refused_for_every_fault() {
        let needed = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                      NotOlderThan";
        let alone = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
                     sendInitialEvents is provided";
        let exact = "resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
        let paged = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        let cases = [
            ("sendInitialEvents=false", vec![needed]),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", vec![needed, exact]),
            ("resourceVersionMatch=NotOlderThan", vec![alone]),
            ("resourceVersionMatch=Exact", vec![alone, exact]),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", vec![paged]),
            ("continue=x", vec![paged]),
            ("continue=x&resourceVersion=0", vec![paged]),
        ];
        for (query, expected) in cases {
            let refused = ListOptions::parse(&Query::parse(Some(query)), true).unwrap_err();
            for error in &expected {
                assert!(refused.message.contains(error), "{query}: {}", refused.message);
            }
            let causes = refused.details.as_ref().map(|details| details.causes.len());
            assert_eq!(causes, Some(expected.len()), "{query}");
        }
    }

    #[test]
    fn malformed_selectors_are_told_before_options_that_do_not_go_together() {
        for query in ["labelSelector=a+b&resourceVersionMatch=Foo", "fieldSelector=x&sendInitialEvents=true"] {
            let refused = ListOptions::parse(&Query::parse(Some(query)), false).unwrap_err();
            assert_eq!(refused.code, 400, "{query}: {}", refused.message);
        }
    }

    #[test]
    fn parameters_are_read_in_upstreams_order() {
        let refused = ListOptions::parse(&Query::parse(Some("limit=few&timeoutSeconds=")), false).unwrap_err();
        assert_eq!(refused.message, "strconv.ParseInt: parsing \"\": invalid syntax");
        assert!(ListOptions::parse(&Query::parse(Some("continue=x&resourceVersion=5")), true).is_ok());
    }

    #[test]
    fn versions_are_numbers_and_nothing_else() {
        assert_eq!(resource_version("5").unwrap(), Some(5));
        let refused = resource_version(" 5").unwrap_err();
        assert_eq!(
            refused.message,
            "resourceVersion: Invalid value: \" 5\": strconv.ParseUint: parsing \" 5\": invalid syntax"
        );
    }

    #[test]
    fn durations_are_gos() {
        assert_eq!(go_duration("1m30s").unwrap().as_secs(), 90);
        assert_eq!(go_duration("-5s").unwrap().as_secs(), 0);
        assert_eq!(go_duration("soon").unwrap_err(), "invalid duration \"soon\"");
        assert_eq!(go_duration("5").unwrap_err(), "missing unit in duration \"5\"");
        assert_eq!(go_duration("5d").unwrap_err(), "unknown unit \"d\" in duration \"5d\"");
    }
}
