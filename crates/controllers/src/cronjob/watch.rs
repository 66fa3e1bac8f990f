//! What the watches of CronJobs and Jobs show, and who has to be looked at because of it (CJ-3…CJ-6).
//!
//! Handlers only note the change and queue what has to be looked at; they run in the watches' own tasks.

use std::sync::Arc;

use batch_plan::{
    cronjob::{CronJobView, Event, JobView, next_wake},
    job::{EventKind, Uid},
};
use jiff::{Timestamp, tz::TimeZone};
use parking_lot::Mutex;
use serde::{Deserialize, de::DeserializeOwned};

use super::cache::{Cache, News, Origin};
use crate::runtime::{Alarms, Change, Environment, EventType, Mirrored, ObjectRef, Progress, Recorder, WorkQueue};

/// What the watches keep up to date and the workers look at.
pub(super) struct Mirror {
    pub(super) cache: Mutex<Cache>,
    /// How far the watch of Jobs has come.
    pub(super) jobs_seen: Progress,
    /// CronJobs to look at when their time comes.
    pub(super) alarms: Alarms<Uid>,
    /// CronJobs to look at now.
    pub(super) queue: WorkQueue<Uid>,
    pub(super) recorder: Recorder,
    pub(super) environment: Environment,
    pub(super) local_zone: TimeZone,
}

impl Mirror {
    pub(super) fn cron_job_changed(&self, change: Change<Watched<CronJobView>>) {
        match change {
            Change::Applied(cron_job) => self.cron_job_applied(Arc::new(cron_job.view)),
            Change::Deleted(cron_job) => self.cron_job_gone(&cron_job.view.uid),
            Change::Vanished { uid } => self.cron_job_gone(&Uid::new(&uid)),
            Change::Synced => {}
        }
    }

    pub(super) fn job_changed(&self, change: Change<Watched<JobView>>) {
        let touched = {
            let mut cache = self.cache.lock();
            match change {
                Change::Applied(job) => cache.note_job(job.view, Origin::Watch),
                Change::Deleted(job) => cache.forget_job(&job.view.uid).into_iter().collect(),
                Change::Vanished { uid } => cache.forget_job(&Uid::new(&uid)).into_iter().collect(),
                Change::Synced => return,
            }
        };
        touched.into_iter().for_each(|owner| self.queue.add(owner));
    }

    fn cron_job_applied(&self, new: Arc<CronJobView>) {
        let news = self.cache.lock().note_cron_job(new.clone());
        match news {
            News::Nothing => {}
            News::Updated { old } if is_rescheduled(&old, &new) => self.reschedule(&new),
            News::Added | News::Updated { .. } => self.queue.add(new.uid.clone()),
        }
    }

    /// CJ-4: a new schedule counts from its next time on; only a later look makes up for times it had in the past.
    fn reschedule(&self, cron_job: &CronJobView) {
        match next_wake(cron_job, self.environment.now(), &self.local_zone) {
            Ok(Some(wake)) => self.alarms.set(cron_job.uid.clone(), wake),
            // It never comes; the sync says so.
            Ok(None) => self.queue.add(cron_job.uid.clone()),
            Err(event) => tell(&self.recorder, cron_job, &event),
        }
    }

    /// Looks at a CronJob again at a certain time, if it still exists then.
    pub(super) fn wake(&self, uid: &Uid, at: Timestamp) {
        let cache = self.cache.lock();
        if cache.cron_job(uid).is_some() {
            self.alarms.set(uid.clone(), at);
        }
    }

    fn cron_job_gone(&self, uid: &Uid) {
        self.cache.lock().forget_cron_job(uid);
        self.alarms.cancel(uid);
        self.queue.discard(uid);
    }
}

fn is_rescheduled(old: &CronJobView, new: &CronJobView) -> bool {
    old.spec.schedule != new.spec.schedule || old.spec.time_zone != new.spec.time_zone
}

/// Tells people about a CronJob.
pub(super) fn tell(recorder: &Recorder, cron_job: &CronJobView, event: &Event) {
    let object = ObjectRef {
        api_version: "batch/v1".to_owned(),
        kind: "CronJob".to_owned(),
        namespace: cron_job.namespace.to_string(),
        name: cron_job.name.to_string(),
        uid: cron_job.uid.to_string(),
        resource_version: cron_job.resource_version.to_string(),
    };
    let kind = match event.kind {
        EventKind::Normal => EventType::Normal,
        EventKind::Warning => EventType::Warning,
    };
    recorder.event(&object, kind, event.reason, event.message.clone());
}

/// An object as a watch hands it on.
#[derive(Debug, Deserialize)]
#[serde(from = "V", bound = "V: View")]
pub(super) struct Watched<V> {
    pub(super) view: V,
    uid: Box<str>,
}

pub(super) trait View: DeserializeOwned + Send + 'static {
    fn uid(&self) -> &Uid;
    fn resource_version(&self) -> &str;
}

impl View for CronJobView {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl View for JobView {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl<V: View> From<V> for Watched<V> {
    fn from(view: V) -> Self {
        Self { uid: view.uid().to_string().into(), view }
    }
}

impl<V: View> Mirrored for Watched<V> {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        self.view.resource_version()
    }
}
