//! Jobs (AS-164, JA-T2…JA-T4).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Column, Printer, Row,
    age::{age, human},
    selector::selector,
};
use crate::resources::values::{condition_is_true, items, number, text, time};

pub(super) static PRINTER: Printer = Printer {
    columns: &[
        Column::name("Name of the Job, unique in its namespace"),
        Column::text("Status", "What the Job is doing, or how it ended"),
        Column::text("Completions", "Pods that succeeded, of those that must"),
        Column::text("Duration", "Time from the start to the completion, or until now"),
        Column::age(),
        Column::text("Containers", "Names of the template's containers").wide(),
        Column::text("Images", "Images of the template's containers").wide(),
        Column::text("Selector", "Labels by which the Job recognises its pods").wide(),
    ],
    row,
};

fn row(job: &Value, now: Timestamp) -> Row {
    let (names, images) = containers(job.pointer("/spec/template/spec"));
    Row::of(vec![
        json!(text(job, "/metadata/name")),
        json!(status(job)),
        json!(completions(job)),
        json!(duration(job, now)),
        json!(age(job, now)),
        json!(names),
        json!(images),
        json!(selector(job.pointer("/spec/selector"))),
    ])
}

/// JA-T2: an outcome outranks a deletion, which outranks everything that is still under way.
fn status(job: &Value) -> &'static str {
    let finished = ["Complete", "Failed"].into_iter().find(|outcome| condition_is_true(job, outcome));
    let under_way =
        || ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|state| condition_is_true(job, state));
    match finished {
        Some(outcome) => outcome,
        None if job.pointer("/metadata/deletionTimestamp").is_some() => "Terminating",
        None => under_way().unwrap_or("Running"),
    }
}

/// JA-T3.
fn completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    let parallelism = number(job, "/spec/parallelism");
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

/// JA-T4. A failed Job has no completion time, so its duration keeps growing, as upstream's does.
fn duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = time(job, "/status/startTime") else { return String::new() };
    human(time(job, "/status/completionTime").unwrap_or(now).duration_since(start))
}

/// Names and images of a pod spec's containers, each joined with commas.
pub(super) fn containers(pod_spec: Option<&Value>) -> (String, String) {
    let containers = pod_spec.map(|spec| items(spec, "/containers")).unwrap_or_default();
    let joined =
        |member: &str| containers.iter().map(|container| text(container, member)).collect::<Vec<_>>().join(",");
    (joined("/name"), joined("/image"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(extra: Value) -> Value {
        let mut job = json!({
            "metadata": {"name": "demo", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "spec": {
                "completions": 1,
                "parallelism": 1,
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "template": {"spec": {"containers": [
                    {"name": "a", "image": "x:1"},
                    {"name": "b", "image": "y:2"},
                ]}},
            },
            "status": {},
        });
        for (pointer, value) in extra.as_object().expect("pointers") {
            let (parent, member) = pointer.rsplit_once('/').expect("a pointer");
            let parent = job.pointer_mut(parent).expect("the parent").as_object_mut().expect("an object");
            if value.is_null() {
                parent.remove(member);
            } else {
                parent.insert(member.to_owned(), value.clone());
            }
        }
        job
    }

    fn conditions(list: &[(&str, &str)]) -> Value {
        list.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect()
    }

    fn cell(extra: Value, column: usize) -> Value {
        let now: Timestamp = "2024-05-01T10:05:00Z".parse().expect("a time");
        row(&job(extra), now).cells[column].clone()
    }

    #[test]
    fn a_fresh_job() {
        let now: Timestamp = "2024-05-01T10:00:07Z".parse().expect("a time");
        let expected =
            json!(["demo", "Running", "0/1", "", "7s", "a,b", "x:1,y:2", "batch.kubernetes.io/controller-uid=u"]);
        assert_eq!(Value::from(row(&job(json!({})), now).cells), expected);
    }

    /// JA-T2.
    #[test]
    fn status_is_the_first_that_applies() {
        let deleted = "2024-05-01T10:01:00Z";
        let cases = [
            (json!({}), "Running"),
            (json!({"/status/conditions": conditions(&[("Complete", "True")])}), "Complete"),
            (json!({"/status/conditions": conditions(&[("FailureTarget", "True"), ("Failed", "True")])}), "Failed"),
            (json!({"/status/conditions": conditions(&[("Suspended", "True")])}), "Suspended"),
            (json!({"/status/conditions": conditions(&[("Suspended", "False"), ("Suspended", "True")])}), "Running"),
            (json!({"/status/conditions": conditions(&[("FailureTarget", "True")])}), "FailureTarget"),
            (json!({"/status/conditions": conditions(&[("SuccessCriteriaMet", "True")])}), "SuccessCriteriaMet"),
            (json!({"/metadata/deletionTimestamp": deleted}), "Terminating"),
            (
                json!({
                    "/metadata/deletionTimestamp": deleted,
                    "/status/conditions": conditions(&[("Suspended", "True")]),
                }),
                "Terminating",
            ),
            (
                json!({
                    "/metadata/deletionTimestamp": deleted,
                    "/status/conditions": conditions(&[("Failed", "True")]),
                }),
                "Failed",
            ),
        ];
        for (extra, expected) in cases {
            assert_eq!(cell(extra.clone(), 1), expected, "{extra}");
        }
    }

    /// JA-T3.
    #[test]
    fn completions_say_what_is_known() {
        let cases = [
            (json!({}), "0/1"),
            (json!({"/spec/completions": 0}), "0/0"),
            (json!({"/spec/completions": 5, "/status/succeeded": 3}), "3/5"),
            (json!({"/spec/completions": null, "/spec/parallelism": 3, "/status/succeeded": 2}), "2/1 of 3"),
            (json!({"/spec/completions": null}), "0/1"),
            (json!({"/spec/completions": null, "/spec/parallelism": null}), "0/1"),
        ];
        for (extra, expected) in cases {
            assert_eq!(cell(extra.clone(), 2), expected, "{extra}");
        }
    }

    /// JA-T4.
    #[test]
    fn duration_runs_until_completion() {
        let cases = [
            (json!({}), ""),
            (json!({"/status/startTime": "2024-05-01T10:00:00Z"}), "5m"),
            (
                json!({
                    "/status/startTime": "2024-05-01T10:00:00Z",
                    "/status/completionTime": "2024-05-01T10:00:42Z",
                }),
                "42s",
            ),
            (
                json!({
                    "/status/startTime": "2024-05-01T10:00:00Z",
                    "/status/conditions": conditions(&[("Failed", "True")]),
                }),
                "5m",
            ),
        ];
        for (extra, expected) in cases {
            assert_eq!(cell(extra.clone(), 3), expected, "{extra}");
        }
    }
}
