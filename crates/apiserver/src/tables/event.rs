//! Events of both groups (AS-167). The two forms differ only in the names of some members (AS-219).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Printer, Row, age::since};
use crate::resources::values::{or, text, time};

pub(super) static PRINTER: Printer = Printer {
    columns: &[
        Column::text("Last Seen", "Time since this was last observed"),
        Column::text("Type", "Normal or Warning"),
        Column::text("Reason", "Why it happened, in one word"),
        Column::text("Object", "What it happened to"),
        Column::text("Subobject", "The part of the object it happened to").wide(),
        Column::text("Source", "Who reported it").wide(),
        Column::text("Message", "What happened, for people"),
        Column::text("First Seen", "Time since this was first observed").wide(),
        Column::text("Count", "How often it was observed").wide(),
        Column::name("Name of the event").wide(),
    ],
    row,
};

fn row(event: &Value, now: Timestamp) -> Row {
    Row::of(vec![
        json!(since(last_seen(event), now)),
        json!(text(event, "/type")),
        json!(text(event, "/reason")),
        json!(target(event)),
        json!(either(event, ["/involvedObject/fieldPath", "/regarding/fieldPath"])),
        json!(source(event)),
        json!(either(event, ["/message", "/note"]).trim()),
        json!(since(first_seen(event), now)),
        json!(count(event)),
        json!(text(event, "/metadata/name")),
    ])
}

/// The member under its name in core/v1 or in events.k8s.io/v1.
fn either<'a>(event: &'a Value, [core, new]: [&str; 2]) -> &'a str {
    or(text(event, core), text(event, new))
}

/// A series outranks the times of single observations even when it does not know its own.
fn last_seen(event: &Value) -> Option<Timestamp> {
    match event.get("series") {
        Some(series) => time(series, "/lastObservedTime"),
        None => {
            either(event, ["/lastTimestamp", "/deprecatedLastTimestamp"]).parse().ok().or_else(|| first_seen(event))
        }
    }
}

fn first_seen(event: &Value) -> Option<Timestamp> {
    let first = either(event, ["/firstTimestamp", "/deprecatedFirstTimestamp"]);
    first.parse().ok().or_else(|| time(event, "/eventTime"))
}

/// Events of the newer kind that happened once have no count.
fn count(event: &Value) -> i64 {
    let number = |member: &str| event.pointer(member).and_then(Value::as_i64);
    match event.get("series") {
        Some(_) => number("/series/count").unwrap_or_default(),
        None => number("/count").or_else(|| number("/deprecatedCount")).filter(|&count| count != 0).unwrap_or(1),
    }
}

/// `job/pi`, or the kind alone.
fn target(event: &Value) -> String {
    let kind = either(event, ["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    match either(event, ["/involvedObject/name", "/regarding/name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// `component, host`, from the old members or the new ones.
fn source(event: &Value) -> String {
    let reporter = either(event, ["/reportingComponent", "/reportingController"]);
    let component = or(either(event, ["/source/component", "/deprecatedSource/component"]), reporter);
    let old_host = either(event, ["/source/host", "/deprecatedSource/host"]);
    match or(old_host, text(event, "/reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AS-167.
    #[test]
    fn cells_of_both_forms() {
        let now: Timestamp = "2024-05-01T10:10:00Z".parse().expect("a time");
        let cases = [
            (
                json!({
                    "metadata": {"name": "e1"},
                    "involvedObject": {"kind": "Job", "name": "j", "fieldPath": "spec.template"},
                    "reason": "SuccessfulCreate", "message": " Created pod: x\n", "type": "Normal",
                    "source": {"component": "job-controller", "host": "h"}, "count": 3,
                    "firstTimestamp": "2024-05-01T10:00:00Z", "lastTimestamp": "2024-05-01T10:09:00Z",
                    "eventTime": null, "reportingComponent": "other", "reportingInstance": "",
                }),
                json!([
                    "60s",
                    "Normal",
                    "SuccessfulCreate",
                    "job/j",
                    "spec.template",
                    "job-controller, h",
                    "Created pod: x",
                    "10m",
                    3,
                    "e1"
                ]),
            ),
            (
                json!({
                    "metadata": {"name": "e1"}, "involvedObject": {"kind": "Job", "name": "j"},
                    "source": {"component": "job-controller", "host": "h"}, "count": 3,
                    "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
                }),
                json!(["<unknown>", "", "", "job/j", "", "job-controller, h", "", "<unknown>", 3, "e1"]),
            ),
            (
                json!({
                    "metadata": {"name": "e2"}, "regarding": {"kind": "Node"}, "note": "hello",
                    "eventTime": "2024-05-01T10:05:00.123456Z", "reportingController": "example.com/ctl",
                    "reportingInstance": "ctl-1", "reason": "Created", "type": "Warning",
                    "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
                }),
                json!(["4m59s", "Warning", "Created", "node", "", "example.com/ctl, ctl-1", "hello", "4m59s", 1, "e2"]),
            ),
            (
                json!({
                    "metadata": {"name": "e3"}, "regarding": {"kind": "Pod", "name": "p"},
                    "eventTime": "2024-05-01T10:05:00.000000Z", "deprecatedCount": 7,
                    "series": {"count": 2, "lastObservedTime": "2024-05-01T10:09:30.000000Z"},
                }),
                json!(["30s", "", "", "pod/p", "", "", "", "5m", 2, "e3"]),
            ),
        ];
        for (object, expected) in cases {
            assert_eq!(Value::from(row(&object, now).cells), expected);
        }
    }
}
