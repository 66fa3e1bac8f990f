//! The Job that is started for a scheduled time (CJ-50…CJ-53).

use std::sync::atomic::{AtomicU64, Ordering};

use batch_types::constants::annotation;
use batch_types::cron::zone::{self, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use teeth::{Mutation, is};

use super::CronJobView;

/// Why no Job can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateError {
    Zone(zone::Error),
    /// `jobTemplate` is no object; no API server stores such a thing.
    Malformed,
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zone(error) => error.fmt(f),
            Self::Malformed => f.write_str("the job template is malformed"),
        }
    }
}

impl std::error::Error for TemplateError {}

/// The name of the Job for a scheduled time. There is one a minute, which is what keeps a time from being served twice
/// (INV-35).
pub fn job_name(cron_job: &str, scheduled: Timestamp) -> String {
    let minute = scheduled.as_second() / 60;
    match is(Mutation::F01) {
        true => format!("{cron_job}-{minute}-{}", ATTEMPTS.fetch_add(1, Ordering::Relaxed)),
        false => format!("{cron_job}-{minute}"),
    }
}

/// REG-F01: a name of its own for every attempt. In no build that is shipped.
static ATTEMPTS: AtomicU64 = AtomicU64::new(0);

/// The Job to create. Of the template's metadata only labels and annotations are used.
pub(super) fn job_object(
    cron_job: &CronJobView,
    scheduled: Timestamp,
    local_zone: &TimeZone,
) -> Result<Value, TemplateError> {
    let mut document: Value = serde_json::from_str(&cron_job.document).map_err(|_| TemplateError::Malformed)?;
    let template = document["spec"]["jobTemplate"].take();
    let Value::Object(mut template) = template else { return Err(TemplateError::Malformed) };
    let mut template_metadata = template.shift_remove("metadata").unwrap_or_default();
    let mut annotations = match template_metadata["annotations"].take() {
        Value::Object(annotations) => annotations,
        _ => Map::new(),
    };
    let written = written_time(scheduled, cron_job.spec.time_zone.as_deref(), local_zone)?;
    annotations.insert(annotation::CRONJOB_SCHEDULED_TIMESTAMP.to_owned(), json!(written));
    let mut metadata = json!({
        "name": job_name(&cron_job.name, scheduled),
        "namespace": cron_job.namespace,
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": cron_job.name,
            "uid": cron_job.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    });
    if let labels @ Value::Object(_) = template_metadata["labels"].take() {
        metadata["labels"] = labels;
    }
    let spec = template.shift_remove("spec").unwrap_or_else(|| json!({}));
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
}

/// RFC 3339 in the CronJob's zone, as Go writes it: `Z` wherever the offset is zero.
fn written_time(time: Timestamp, time_zone: Option<&str>, local_zone: &TimeZone) -> Result<String, TemplateError> {
    let zone = match zone::load(time_zone.unwrap_or_default()).map_err(TemplateError::Zone)? {
        Zone::Local => local_zone.clone(),
        Zone::Named(zone) => zone,
    };
    let zoned = time.to_zoned(zone);
    let format = if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    Ok(zoned.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron_job(time_zone: Option<&str>, template: Value) -> CronJobView {
        let metadata = json!({"name": "mycronjob", "namespace": "ns", "uid": "u1", "resourceVersion": "7"});
        let spec = json!({"schedule": "* * * * ?", "timeZone": time_zone, "jobTemplate": template});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// A.8.
    #[test]
    fn the_job_has_the_templates_labels_and_annotations_and_the_scheduled_time() {
        let scheduled: Timestamp = "2016-05-19T10:00:00Z".parse().unwrap();
        for (zone, written) in [
            (None, "2016-05-19T10:00:00Z"),
            (Some("UTC"), "2016-05-19T10:00:00Z"),
            (Some("Europe/Rome"), "2016-05-19T12:00:00+02:00"),
            (Some("Asia/Kathmandu"), "2016-05-19T15:45:00+05:45"),
            (Some("Africa/Abidjan"), "2016-05-19T10:00:00Z"),
        ] {
            let template = json!({
                "metadata": {
                    "name": "ignored", "labels": {"a": "b"}, "finalizers": ["x/y"],
                    "annotations": {"x": "y", annotation::CRONJOB_SCHEDULED_TIMESTAMP: "overridden"},
                },
                "spec": {"parallelism": 2},
            });
            let job = job_object(&cron_job(zone, template), scheduled, &TimeZone::UTC).unwrap();
            let expected = json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": "mycronjob-24394200", "namespace": "ns",
                    "annotations": {"x": "y", annotation::CRONJOB_SCHEDULED_TIMESTAMP: written},
                    "ownerReferences": [{
                        "apiVersion": "batch/v1", "kind": "CronJob", "name": "mycronjob", "uid": "u1",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                    "labels": {"a": "b"},
                },
                "spec": {"parallelism": 2},
            });
            assert_eq!(job, expected, "{zone:?}");
        }
    }

    #[test]
    fn a_bare_template_is_enough_and_a_broken_one_is_refused() {
        let scheduled = Timestamp::UNIX_EPOCH;
        let job = job_object(&cron_job(None, json!({})), scheduled, &TimeZone::UTC).unwrap();
        assert_eq!(job["metadata"]["labels"], Value::Null);
        assert_eq!(job["spec"], json!({}));
        let malformed = job_object(&cron_job(None, json!(3)), scheduled, &TimeZone::UTC);
        assert_eq!(malformed, Err(TemplateError::Malformed));
        let bad_zone = job_object(&cron_job(Some("Nowhere"), json!({})), scheduled, &TimeZone::UTC);
        assert_eq!(bad_zone.unwrap_err().to_string(), "unknown time zone Nowhere");
    }
}
