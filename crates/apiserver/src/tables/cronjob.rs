//! CronJobs (AS-165).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Column, Printer, Row,
    age::{age, since},
    job::containers,
    selector::selector,
};
use crate::resources::values::{items, text, time};

pub(super) static PRINTER: Printer = Printer {
    columns: &[
        Column::name("Name of the CronJob, unique in its namespace"),
        Column::text("Schedule", "When Jobs are created, in cron format"),
        Column::text("Timezone", "Zone in which the schedule is read"),
        Column::text("Suspend", "Whether new Jobs are held back").of_type("boolean"),
        Column::text("Active", "Jobs of this CronJob that are running").of_type("integer"),
        Column::text("Last Schedule", "Time since a Job was last scheduled"),
        Column::age(),
        Column::text("Containers", "Names of the template's containers").wide(),
        Column::text("Images", "Images of the template's containers").wide(),
        Column::text("Selector", "Labels by which the Jobs recognise their pods").wide(),
    ],
    row,
};

fn row(cron_job: &Value, now: Timestamp) -> Row {
    let (names, images) = containers(cron_job.pointer("/spec/jobTemplate/spec/template/spec"));
    Row::of(vec![
        json!(text(cron_job, "/metadata/name")),
        json!(text(cron_job, "/spec/schedule")),
        json!(cron_job.pointer("/spec/timeZone").and_then(Value::as_str).unwrap_or("<none>")),
        json!(suspend(cron_job)),
        json!(items(cron_job, "/status/active").len()),
        json!(last_schedule(cron_job, now)),
        json!(age(cron_job, now)),
        json!(names),
        json!(images),
        json!(selector(cron_job.pointer("/spec/jobTemplate/spec/selector"))),
    ])
}

/// Text, although the column is declared boolean.
fn suspend(cron_job: &Value) -> &'static str {
    match cron_job.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

fn last_schedule(cron_job: &Value, now: Timestamp) -> String {
    match time(cron_job, "/status/lastScheduleTime") {
        None => "<none>".to_owned(),
        scheduled => since(scheduled, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron_job(spec: Value, status: Value) -> Value {
        let mut object = json!({
            "metadata": {"name": "demo", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "spec": {
                "schedule": "*/5 * * * *",
                "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "a:1"}]}}}},
            },
            "status": status,
        });
        let members = spec.as_object().expect("members").clone();
        object["spec"].as_object_mut().expect("a spec").extend(members);
        object
    }

    /// AS-165.
    #[test]
    fn unset_members_have_their_own_words() {
        let now: Timestamp = "2024-05-01T10:03:00Z".parse().expect("a time");
        let cases = [
            (
                cron_job(json!({}), json!({})),
                json!(["demo", "*/5 * * * *", "<none>", "<unset>", 0, "<none>", "3m", "main", "a:1", "<none>"]),
            ),
            (
                cron_job(json!({"timeZone": "Europe/Berlin", "suspend": true}), json!({})),
                json!(["demo", "*/5 * * * *", "Europe/Berlin", "True", 0, "<none>", "3m", "main", "a:1", "<none>"]),
            ),
            (
                cron_job(
                    json!({"suspend": false}),
                    json!({"active": [{"name": "a"}, {"name": "b"}], "lastScheduleTime": "2024-05-01T10:02:00Z"}),
                ),
                json!(["demo", "*/5 * * * *", "<none>", "False", 2, "60s", "3m", "main", "a:1", "<none>"]),
            ),
        ];
        for (object, expected) in cases {
            assert_eq!(Value::from(row(&object, now).cells), expected);
        }
    }
}
