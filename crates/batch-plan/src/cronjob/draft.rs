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

/// The merge patch of `/status`. It is refused if anybody has written the CronJob since it was read, or if another one
/// has its name by now.
pub fn status_patch(cron_job: &CronJobView, status: &Status) -> Value {
    let time = |time: Option<Timestamp>| time.map_or(Value::Null, |time| json!(seconds(time)));
    json!({
        "metadata": {"uid": cron_job.uid, "resourceVersion": cron_job.resource_version},
        "status": {
            "active": if status.active.is_empty() { Value::Null } else { json!(status.active) },
            "lastScheduleTime": time(status.last_schedule_time),
            "lastSuccessfulTime": time(status.last_successful_time),
        },
    })
}
