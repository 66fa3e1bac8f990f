//! The status as it will be written: a copy that takes in what was seen and done (CJ-12).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::job::Uid;

use super::events::seconds;
use super::{ActiveJob, CronJobView, Event, Status};

/// A status that is being worked on.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    status: Status,
    changed: bool,
    /// Events about what the status takes in. They are told when it is written: if that fails, the same is seen again.
    events: Vec<Event>,
}

impl Draft {
    pub fn new(status: &Status) -> Self {
        Self { status: status.clone(), changed: false, events: Vec::new() }
    }

    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Whether there is something to write.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The status has been written; these events are now true for good.
    pub fn recorded(&mut self) -> Vec<Event> {
        self.changed = false;
        std::mem::take(&mut self.events)
    }

    /// Takes a Job off the list of active ones.
    pub fn unlist(&mut self, uid: &Uid) {
        let before = self.status.active.len();
        self.status.active.retain(|entry| entry.uid != *uid);
        self.changed |= self.status.active.len() != before;
    }

    /// Takes one entry off the list of active Jobs, and leaves others of its uid.
    pub fn strike(&mut self, entry: &ActiveJob) {
        let before = self.status.active.len();
        self.status.active.retain(|listed| listed != entry);
        self.changed |= self.status.active.len() != before;
    }

    /// Adds a Job to the list of active ones.
    pub fn list(&mut self, job: ActiveJob) {
        if !self.status.lists(&job.uid) {
            self.status.active.push(job);
            self.changed = true;
        }
    }

    /// Everything up to this scheduled time is done. It only grows (INV-38).
    pub fn scheduled(&mut self, time: Timestamp) {
        if self.status.last_schedule_time.is_none_or(|last| last < time) {
            self.status.last_schedule_time = Some(time);
            self.changed = true;
        }
    }

    /// A Job has succeeded at this time. It only grows (CJ-16).
    pub fn succeeded(&mut self, time: Timestamp) {
        if self.status.last_successful_time.is_none_or(|last| last < time) {
            self.status.last_successful_time = Some(time);
            self.changed = true;
        }
    }

    pub fn tell(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// The CronJob to PUT to `/status`. It is refused if anybody has written the CronJob since it was read, or if another
/// one has its name by now.
pub fn with_status(cron_job: &CronJobView, status: &Status) -> Value {
    // A view is made of an object, so it parses as one.
    let mut object: Value = serde_json::from_str(&cron_job.document).unwrap_or_default();
    object["apiVersion"] = json!("batch/v1");
    object["kind"] = json!("CronJob");
    object["status"] = json!({});
    if !status.active.is_empty() {
        object["status"]["active"] = json!(status.active);
    }
    let times = [("lastScheduleTime", status.last_schedule_time), ("lastSuccessfulTime", status.last_successful_time)];
    for (field, time) in times {
        if let Some(time) = time {
            object["status"][field] = json!(seconds(time));
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_status_is_written_as_it_was_read() {
        let object = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"},
                "managedFields": [{"manager": "kubectl"}]},
            "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"unknown": [1.5]}}},
            "status": {"active": [{"name": "old"}], "lastSuccessfulTime": "2016-05-19T09:00:00Z"},
        });
        let view: CronJobView = serde_json::from_value(object).unwrap();
        let mut draft = Draft::new(&view.status);
        draft.unlist(&Uid::new(""));
        draft.scheduled("2016-05-19T10:00:00Z".parse().unwrap());
        let expected = json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}},
            "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"unknown": [1.5]}}},
            "status": {"lastScheduleTime": "2016-05-19T10:00:00Z", "lastSuccessfulTime": "2016-05-19T09:00:00Z"},
        });
        assert_eq!(with_status(&view, draft.status()), expected);
    }

    #[test]
    fn times_only_grow_and_news_is_only_what_changes() {
        let mut draft = Draft::new(&Status::default());
        let at = |text: &str| text.parse().unwrap();
        draft.scheduled(at("2016-05-19T10:00:00Z"));
        draft.succeeded(at("2016-05-19T10:00:00Z"));
        assert!(draft.is_changed());
        draft.recorded();
        draft.scheduled(at("2016-05-19T09:00:00Z"));
        draft.succeeded(at("2016-05-19T10:00:00Z"));
        draft.unlist(&Uid::new("unknown"));
        assert!(!draft.is_changed());
    }
}
