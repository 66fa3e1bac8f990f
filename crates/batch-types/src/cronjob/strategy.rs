//! What the server does to a CronJob before checking it (JA-CJ1).

use serde_json::{Map, Value};

use crate::job::{restore_status, set_generation};
use crate::json::{at, at_mut, copy_field, object_or_new};
use crate::pod;

const TEMPLATE: [&str; 4] = ["spec", "jobTemplate", "spec", "template"];

/// Makes a decoded and defaulted CronJob ready to be checked and stored.
pub fn prepare_for_create(cron_job: &mut Value) {
    let Some(fields) = cron_job.as_object_mut() else { return };
    fields.insert("status".to_owned(), Map::new().into());
    if let Some(metadata) = object_or_new(fields, "metadata") {
        metadata.insert("generation".to_owned(), 1.into());
    }
    if let Some(template) = at_mut(cron_job, &TEMPLATE) {
        pod::drop_disabled_template_fields(template, None);
    }
}

/// Undoes what an update of the main resource may not change and counts a changed spec.
pub fn prepare_for_update(new: &mut Value, old: &Value) {
    restore_status(new, old);
    if let Some(template) = at_mut(new, &TEMPLATE) {
        pod::drop_disabled_template_fields(template, at(old, &TEMPLATE));
    }
    set_generation(new, old);
}

/// Undoes everything but status and metadata in an update of `/status`, which is not checked any further.
pub fn prepare_for_status_update(new: &mut Value, old: &Value) {
    copy_field(new, old, "spec");
    if let Some(metadata) = new.get_mut("metadata") {
        copy_field(metadata, old.get("metadata").unwrap_or(&Value::Null), "generation");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_and_generation_are_the_servers() {
        let mut new = json!({"metadata": {"generation": 999}, "spec": {}, "status": {"active": []}});
        prepare_for_create(&mut new);
        assert_eq!(new, json!({"metadata": {"generation": 1}, "spec": {}, "status": {}}));

        let old =
            json!({"metadata": {"generation": 1}, "spec": {"schedule": "a"}, "status": {"lastScheduleTime": "t"}});
        let mut new = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedule": "a"}, "status": {}});
        prepare_for_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"labels": {"a": "b"}, "generation": 1}, "spec": {"schedule": "a"}, "status": {"lastScheduleTime": "t"}})
        );
        new["spec"]["schedule"] = json!("b");
        prepare_for_update(&mut new, &old);
        assert_eq!(new["metadata"]["generation"], 2);

        let mut new = json!({"metadata": {}, "spec": {"schedule": "b"}, "status": {"lastScheduleTime": "u"}});
        prepare_for_status_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 1}, "spec": {"schedule": "a"}, "status": {"lastScheduleTime": "u"}})
        );
    }
}
