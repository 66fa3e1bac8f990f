//! Events of both groups (AS-1, AS-219; upstream's `pkg/apis/core/validation/events.go`).
//!
//! There is one object, stored in its core/v1 form. The older group accepts nearly everything; `events.k8s.io/v1` is
//! strict about new events and lets only the series of an old one change. Errors name the members of the core form in
//! both groups, except the reporting controller.

use batch_types::{
    field::{Error, Path},
    names::{self, NameRule},
};
use serde_json::{Map, Value, json};

use super::{
    Context, Conversion, Strategy,
    metadata::{self, Scope},
    values::{number, present, text},
};

const REPORTING_INSTANCE_MAX: usize = 128;
const ACTION_MAX: usize = 128;
const REASON_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

const NEW_API_VERSION: &str = "events.k8s.io/v1";

/// `events` of the core group.
#[derive(Debug)]
pub struct CoreEvent;
/// `events` of `events.k8s.io`.
#[derive(Debug)]
pub struct NewEvent;

impl Strategy for CoreEvent {
    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate_legacy(object, "reportingComponent")
    }

    fn validate_update(&self, new: &Value, _old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        validate_legacy(new, "reportingComponent")
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn ignores_propagation(&self) -> bool {
        true
    }
}

impl Strategy for NewEvent {
    fn validate(&self, object: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let event = &core_form(object);
        let mut errors = validate_legacy(event, "reportingController");
        errors.extend(metadata::validate(event, Scope::Namespaced, NameRule::DnsSubdomain));
        errors.extend(validate_series(event));
        if present(event, "/eventTime").is_none() {
            errors.push(Error::required(&Path::new("eventTime"), ""));
        }
        let event_type = text(event, "/type");
        if !matches!(event_type, "Normal" | "Warning") {
            errors.push(invalid("type", format!("has invalid value: {event_type}")));
        }
        errors.extend(validate_unset(event));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _cx: &Context<'_>) -> Vec<Error> {
        let (new, old) = (&core_form(new), &core_form(old));
        let mut errors = validate_legacy(new, "reportingController");
        errors.extend(metadata::validate_update(new, old));
        if present(new, "/series") != present(old, "/series") {
            errors.extend(validate_series(new));
        }
        errors.extend(validate_immutable(new, old));
        errors
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn ignores_propagation(&self) -> bool {
        true
    }
}

/// Members that are called differently: core/v1, events.k8s.io/v1.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Members of each form in their order, with what stands for an absent one where it is always written (AS-29).
const CORE_MEMBERS: [(&str, Absent); 17] = [
    ("kind", Absent::Left),
    ("apiVersion", Absent::Left),
    ("metadata", Absent::Object),
    ("involvedObject", Absent::Object),
    ("reason", Absent::Left),
    ("message", Absent::Left),
    ("source", Absent::Object),
    ("firstTimestamp", Absent::Null),
    ("lastTimestamp", Absent::Null),
    ("count", Absent::Left),
    ("type", Absent::Left),
    ("eventTime", Absent::Null),
    ("series", Absent::Left),
    ("action", Absent::Left),
    ("related", Absent::Left),
    ("reportingComponent", Absent::Text),
    ("reportingInstance", Absent::Text),
];
const NEW_MEMBERS: [(&str, Absent); 17] = [
    ("kind", Absent::Left),
    ("apiVersion", Absent::Left),
    ("metadata", Absent::Object),
    ("eventTime", Absent::Null),
    ("series", Absent::Left),
    ("reportingController", Absent::Left),
    ("reportingInstance", Absent::Left),
    ("action", Absent::Left),
    ("reason", Absent::Left),
    ("regarding", Absent::Object),
    ("related", Absent::Left),
    ("note", Absent::Left),
    ("type", Absent::Left),
    ("deprecatedSource", Absent::Object),
    ("deprecatedFirstTimestamp", Absent::Null),
    ("deprecatedLastTimestamp", Absent::Null),
    ("deprecatedCount", Absent::Left),
];

/// How an absent member is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// Not at all.
    Left,
    Null,
    Text,
    Object,
}

impl Conversion for NewEvent {
    fn served_form(&self, object: Value) -> Value {
        let other_name = |name: &str| RENAMED.iter().find(|(_, new)| *new == name).map(|(core, _)| *core);
        rearranged(object, &NEW_MEMBERS, other_name, (NEW_API_VERSION, "Event"))
    }

    fn stored_form(&self, object: Value) -> Value {
        let other_name = |name: &str| RENAMED.iter().find(|(core, _)| *core == name).map(|(_, new)| *new);
        rearranged(object, &CORE_MEMBERS, other_name, self.storage_kind())
    }

    fn storage_kind(&self) -> (&'static str, &'static str) {
        ("v1", "Event")
    }
}

/// The same event under the names and in the order of the other form.
fn rearranged(
    object: Value,
    order: &[(&str, Absent)],
    other_name: impl Fn(&str) -> Option<&'static str>,
    (api_version, kind): (&str, &str),
) -> Value {
    let Value::Object(mut from) = object else { return object };
    let mut to = Map::new();
    for &(name, absent) in order {
        let value = match name {
            "kind" => Some(json!(kind)),
            "apiVersion" => Some(json!(api_version)),
            _ => from.shift_remove(other_name(name).unwrap_or(name)),
        };
        // Empty texts are written in one form and left out in the other.
        let value = value.filter(|value| !value.is_null() && value != "");
        let value = value.or(match absent {
            Absent::Left => None,
            Absent::Null => Some(Value::Null),
            Absent::Text => Some(json!("")),
            Absent::Object => Some(json!({})),
        });
        if let Some(value) = value {
            to.insert(name.to_owned(), value);
        }
    }
    Value::Object(to)
}

/// The event in its core form, whichever it arrives in.
fn core_form(object: &Value) -> Value {
    if text(object, "/apiVersion") == NEW_API_VERSION { NewEvent.stored_form(object.clone()) } else { object.clone() }
}

/// What every event must satisfy. One with an `eventTime` was written by a newer client and is checked more closely.
fn validate_legacy(event: &Value, reporting_controller: &str) -> Vec<Error> {
    let mut errors = if present(event, "/eventTime").is_none() {
        Vec::from_iter(validate_old_namespace(event))
    } else {
        validate_new_members(event, reporting_controller)
    };
    let namespace = text(event, "/metadata/namespace");
    let at = Path::new("namespace");
    errors.extend(names::dns_subdomain(namespace).into_iter().map(|message| Error::invalid(&at, namespace, message)));
    errors
}

/// Events about objects without a namespace live in `default`.
fn validate_old_namespace(event: &Value) -> Option<Error> {
    let own = text(event, "/metadata/namespace");
    let fits = match text(event, "/involvedObject/namespace") {
        "" => matches!(own, "" | "default"),
        involved => own == involved,
    };
    (!fits).then(|| namespace_mismatch(event))
}

fn validate_new_members(event: &Value, reporting_controller: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    let own = text(event, "/metadata/namespace");
    if text(event, "/involvedObject/namespace").is_empty() && !matches!(own, "default" | "kube-system") {
        errors.push(namespace_mismatch(event));
    }
    let (controller, at) = (text(event, "/reportingComponent"), Path::new(reporting_controller));
    if controller.is_empty() {
        errors.push(Error::required(&at, ""));
    }
    errors
        .extend(names::qualified_name(controller).into_iter().map(|message| Error::invalid(&at, controller, message)));
    for (member, max) in [("reportingInstance", REPORTING_INSTANCE_MAX), ("action", ACTION_MAX), ("reason", REASON_MAX)]
    {
        let value = text(event, &format!("/{member}"));
        if value.is_empty() {
            errors.push(Error::required(&Path::new(member), ""));
        }
        errors.extend(validate_length(member, value, max));
    }
    errors.extend(validate_length("message", text(event, "/message"), NOTE_MAX));
    errors
}

fn namespace_mismatch(event: &Value) -> Error {
    let at = Path::new("involvedObject").child("namespace");
    Error::invalid(&at, text(event, "/involvedObject/namespace"), "does not match event.namespace")
}

fn validate_length(member: &str, value: &str, max: usize) -> Option<Error> {
    (value.len() > max).then(|| invalid(member, format!("can have at most {max} characters")))
}

/// A series has repeated at least once.
fn validate_series(event: &Value) -> Vec<Error> {
    let mut errors = Vec::new();
    if let Some(series) = present(event, "/series") {
        if number(series, "/count") < 2 {
            errors.push(invalid("series.count", "should be at least 2"));
        }
        if present(series, "/lastObservedTime").is_none() {
            errors.push(Error::required(&Path::new("series.lastObservedTime"), ""));
        }
    }
    errors
}

/// New events do not fill in what older clients counted with.
fn validate_unset(event: &Value) -> Vec<Error> {
    let set = [
        ("firstTimestamp", present(event, "/firstTimestamp").is_some()),
        ("lastTimestamp", present(event, "/lastTimestamp").is_some()),
        ("count", number(event, "/count") != 0),
        ("source", !text(event, "/source/component").is_empty() || !text(event, "/source/host").is_empty()),
    ];
    set.into_iter().filter(|(_, set)| *set).map(|(member, _)| invalid(member, "needs to be unset")).collect()
}

/// Everything but the series and the metadata. The reason is compared twice, as upstream does.
fn validate_immutable(new: &Value, old: &Value) -> Vec<Error> {
    type Member = fn(&Value) -> Value;
    const MEMBERS: [(&str, Member); 14] = [
        ("involvedObject", |event| object_reference(event.get("involvedObject").unwrap_or(&Value::Null))),
        ("reason", |event| json!(text(event, "/reason"))),
        ("message", |event| json!(text(event, "/message"))),
        ("source", |event| json!({"Component": text(event, "/source/component"), "Host": text(event, "/source/host")})),
        ("firstTimestamp", |event| present(event, "/firstTimestamp").cloned().unwrap_or_default()),
        ("lastTimestamp", |event| present(event, "/lastTimestamp").cloned().unwrap_or_default()),
        ("count", |event| json!(number(event, "/count"))),
        ("reason", |event| json!(text(event, "/reason"))),
        ("type", |event| json!(text(event, "/type"))),
        ("eventTime", |event| present(event, "/eventTime").cloned().unwrap_or_default()),
        ("action", |event| json!(text(event, "/action"))),
        ("related", |event| present(event, "/related").map(object_reference).unwrap_or_default()),
        ("reportingController", |event| json!(text(event, "/reportingComponent"))),
        ("reportingInstance", |event| json!(text(event, "/reportingInstance"))),
    ];
    let changed = MEMBERS.iter().filter(|(_, member)| member(new) != member(old));
    changed.map(|(name, member)| Error::invalid(&Path::new(*name), member(new), "field is immutable")).collect()
}

/// A reference as errors show it: upstream's internal type, whose members are all written, under Go names.
fn object_reference(reference: &Value) -> Value {
    let member = |name: &str| text(reference, &format!("/{name}"));
    json!({
        "Kind": member("kind"),
        "Namespace": member("namespace"),
        "Name": member("name"),
        "UID": member("uid"),
        "APIVersion": member("apiVersion"),
        "ResourceVersion": member("resourceVersion"),
        "FieldPath": member("fieldPath"),
    })
}

/// An error that shows an empty text instead of the value, as upstream's event rules do.
fn invalid(member: &str, detail: impl Into<String>) -> Error {
    Error::invalid(&Path::new(member), "", detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::testing::{context, object, texts};

    fn core(members: Value) -> Value {
        object("v1", "Event", members)
    }

    /// A valid event of the newer group with some members replaced; `null` takes a member away.
    fn new(changes: Value) -> Value {
        let mut event = object(
            NEW_API_VERSION,
            "Event",
            json!({
                "regarding": {"kind": "Job", "namespace": "ns", "name": "j"},
                "eventTime": "2024-05-01T10:00:00.123456Z",
                "reportingController": "example.com/ctl",
                "reportingInstance": "ctl-1",
                "action": "Create",
                "reason": "Created",
                "type": "Normal",
                "note": "hello",
            }),
        );
        let members = event.as_object_mut().expect("an object");
        for (name, value) in changes.as_object().expect("changes") {
            if value.is_null() {
                members.shift_remove(name);
            } else {
                members.insert(name.clone(), value.clone());
            }
        }
        event
    }

    /// AS-219: texts and order as recorded.
    #[test]
    fn core_events_check_the_namespace() {
        let mismatch = |namespace: &str| {
            vec![format!("involvedObject.namespace: Invalid value: \"{namespace}\": does not match event.namespace")]
        };
        let in_default = |mut event: Value| {
            event["metadata"]["namespace"] = json!("default");
            event
        };
        let cases = [
            (core(json!({"involvedObject": {"kind": "Job", "namespace": "ns"}})), vec![]),
            (core(json!({"involvedObject": {"kind": "Node"}})), mismatch("")),
            (core(json!({"involvedObject": {"namespace": "t2"}})), mismatch("t2")),
            (in_default(core(json!({"involvedObject": {"kind": "Node"}}))), vec![]),
            (
                core(json!({"involvedObject": {"namespace": "ns"}, "eventTime": "2024-05-01T10:00:00.000000Z"})),
                vec![
                    "reportingComponent: Required value".to_owned(),
                    "reportingComponent: Invalid value: \"\": name part must be non-empty".to_owned(),
                    format!("reportingComponent: Invalid value: \"\": {}", names::qualified_name("").remove(1)),
                    "reportingInstance: Required value".to_owned(),
                    "action: Required value".to_owned(),
                    "reason: Required value".to_owned(),
                ],
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(texts(CoreEvent.validate(&event, &context())), expected, "{event}");
        }
    }

    #[test]
    fn new_events_are_checked_closely() {
        let long = |size: usize| "x".repeat(size);
        let cases = [
            (json!({}), vec![]),
            (json!({"eventTime": null}), vec!["eventTime: Required value"]),
            (json!({"action": null}), vec!["action: Required value"]),
            (json!({"action": long(129)}), vec!["action: Invalid value: \"\": can have at most 128 characters"]),
            (json!({"type": "Loud"}), vec!["type: Invalid value: \"\": has invalid value: Loud"]),
            (json!({"note": long(1025)}), vec!["message: Invalid value: \"\": can have at most 1024 characters"]),
            (json!({"note": long(1024)}), vec![]),
            (json!({"deprecatedCount": 1}), vec!["count: Invalid value: \"\": needs to be unset"]),
            (json!({"deprecatedSource": {"host": "h"}}), vec!["source: Invalid value: \"\": needs to be unset"]),
            (
                json!({"series": {"count": 1}}),
                vec![
                    "series.count: Invalid value: \"\": should be at least 2",
                    "series.lastObservedTime: Required value",
                ],
            ),
            (json!({"reportingInstance": null}), vec!["reportingInstance: Required value"]),
        ];
        for (changes, expected) in cases {
            let event = new(changes.clone());
            assert_eq!(texts(NewEvent.validate(&event, &context())), expected, "{changes}");
            let stored = NewEvent.stored_form(event);
            assert_eq!(texts(NewEvent.validate(&stored, &context())), expected, "stored form, {changes}");
        }
        let bad = texts(NewEvent.validate(&new(json!({"reportingController": "a b"})), &context()));
        assert_eq!(bad, [format!("reportingController: Invalid value: \"a b\": {}", names::qualified_name("a b")[0])]);
    }

    #[test]
    fn new_events_change_in_their_series_only() {
        let old = new(json!({}));
        let series = json!({"count": 2, "lastObservedTime": "2024-05-01T10:00:01.000000Z"});
        let cases = [
            (json!({"series": series}), vec![]),
            (
                json!({"series": {"count": 0}}),
                vec![
                    "series.count: Invalid value: \"\": should be at least 2",
                    "series.lastObservedTime: Required value",
                ],
            ),
            (json!({"note": "changed"}), vec!["message: Invalid value: \"changed\": field is immutable"]),
            (json!({"deprecatedCount": 3}), vec!["count: Invalid value: 3: field is immutable"]),
            (json!({"reason": "Other"}), vec!["reason: Invalid value: \"Other\": field is immutable"; 2]),
            (
                json!({"regarding": {"kind": "Job", "namespace": "ns", "name": "k"}}),
                vec![
                    "involvedObject: Invalid value: {\"Kind\":\"Job\",\"Namespace\":\"ns\",\"Name\":\"k\",\"UID\":\"\",\
                      \"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable",
                ],
            ),
            (
                json!({"deprecatedSource": {"component": "c"}}),
                vec!["source: Invalid value: {\"Component\":\"c\",\"Host\":\"\"}: field is immutable"],
            ),
            (
                json!({"eventTime": "2024-05-01T10:00:00.123457Z"}),
                vec!["eventTime: Invalid value: \"2024-05-01T10:00:00.123457Z\": field is immutable"],
            ),
        ];
        for (changes, expected) in cases {
            assert_eq!(texts(NewEvent.validate_update(&new(changes.clone()), &old, &context())), expected, "{changes}");
        }
    }

    /// AS-219: the table of names, and members that are written in one form only.
    #[test]
    fn forms_convert_into_each_other() {
        let stored = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Job", "name": "j"}, "reason": "R", "message": "m",
            "source": {"component": "c"}, "firstTimestamp": "2024-05-01T10:00:00Z", "lastTimestamp": null, "count": 3,
            "type": "Normal", "eventTime": null, "action": "A", "reportingComponent": "rc", "reportingInstance": "",
        });
        let served = json!({
            "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": "e"}, "eventTime": null,
            "reportingController": "rc", "action": "A", "reason": "R", "regarding": {"kind": "Job", "name": "j"},
            "note": "m", "type": "Normal", "deprecatedSource": {"component": "c"},
            "deprecatedFirstTimestamp": "2024-05-01T10:00:00Z", "deprecatedLastTimestamp": null, "deprecatedCount": 3,
        });
        // Texts, so that the order of members counts too.
        assert_eq!(NewEvent.served_form(stored.clone()).to_string(), served.to_string());
        assert_eq!(NewEvent.stored_form(served).to_string(), stored.to_string());
    }
}
