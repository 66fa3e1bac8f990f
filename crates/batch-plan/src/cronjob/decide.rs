//! Whether a Job is started now, and when to look again (CJ-18…CJ-28).

use batch_types::cron::{Schedule, parse_in_zone, zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::job::Uid;
use teeth::{Mutation, is};

use super::job_object::{TemplateError, job_name, job_object};
use super::{ActiveJob, ConcurrencyPolicy, CronJobView, Draft, Event, JobView, Snapshot, Times};

/// What to do about the schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub events: Vec<Event>,
    pub next: Next,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing, until this time; without one, until something changes.
    Rest {
        wake: Option<Timestamp>,
    },
    Start(Box<Start>),
    /// A Job is due and cannot be made.
    Impossible(TemplateError),
}

/// A Job to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The nominal time.
    pub scheduled: Timestamp,
    pub name: String,
    /// These are deleted before (CJ-26).
    pub replace: Vec<ActiveJob>,
    /// The Job to create.
    pub object: Value,
    /// When to look again.
    pub wake: Option<Timestamp>,
}

/// Decides by the status of `draft`, which takes in that a due Job turns out to exist already.
pub fn decide(snapshot: &Snapshot<'_>, draft: &mut Draft) -> Decision {
    let cron_job = snapshot.cron_job;
    let mut events = Vec::new();
    let next = match schedule(cron_job, &mut events) {
        Some(schedule) => by_schedule(snapshot, &schedule, draft, &mut events),
        None => Next::Rest { wake: None },
    };
    Decision { events, next }
}

/// When to look again after a new schedule was written (CJ-4); the event instead if it cannot be read.
pub fn next_wake(cron_job: &CronJobView, now: Timestamp, local_zone: &TimeZone) -> Result<Option<Timestamp>, Event> {
    let schedule = parse_in_zone(&cron_job.spec.schedule, cron_job.spec.time_zone.as_deref())
        .map_err(|_| Event::unparseable_update(&cron_job.spec.schedule))?;
    Ok(Times::new(cron_job, cron_job.status.last_schedule_time, &schedule, local_zone).next(now))
}

/// The schedule, if anything is to be started by it at all (CJ-18…CJ-21).
fn schedule(cron_job: &CronJobView, events: &mut Vec<Event>) -> Option<Schedule> {
    let spec = &cron_job.spec;
    if cron_job.terminating {
        return None;
    }
    if let Some(name) = &spec.time_zone
        && let Err(error) = zone::load(name)
    {
        events.push(Event::unknown_time_zone(name, &error.to_string()));
        return None;
    }
    if spec.suspend {
        return None;
    }
    if spec.schedule.contains("TZ") {
        events.push(Event::unsupported_schedule(&spec.schedule));
    }
    match parse_in_zone(&spec.schedule, spec.time_zone.as_deref()) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            events.push(Event::unparseable_schedule(&spec.schedule, &error.to_string()));
            None
        }
    }
}

fn by_schedule(snapshot: &Snapshot<'_>, schedule: &Schedule, draft: &mut Draft, events: &mut Vec<Event>) -> Next {
    let (cron_job, now) = (snapshot.cron_job, snapshot.now);
    let times = Times::new(cron_job, draft.status().last_schedule_time, schedule, snapshot.local_zone);
    let rest = Next::Rest { wake: times.next(now) };
    let due = match times.due(now) {
        Ok(Some(due)) => due,
        Ok(None) => return rest,
        Err(error) => {
            events.push(Event::invalid_schedule(&cron_job.spec.schedule, &error.to_string()));
            return Next::Rest { wake: is(Mutation::F10).then_some(now) };
        }
    };
    if due.many_missed {
        events.push(Event::too_many_missed());
        if is(Mutation::F05) {
            return rest;
        }
    }
    let name = job_name(&cron_job.name, due.time);
    let listed = |entry: &ActiveJob| *entry.name == *name && entry.namespace == cron_job.namespace;
    if draft.status().active.iter().any(listed) {
        return rest;
    }
    if let Some(job) = snapshot.jobs.iter().find(|job| *job.name == *name) {
        served(draft, job, due.time);
        return rest;
    }
    let replace = match cron_job.spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if !draft.status().active.is_empty() => {
            events.push(Event::already_active());
            return rest;
        }
        ConcurrencyPolicy::Replace => draft.status().active.clone(),
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Forbid => Vec::new(),
    };
    match job_object(cron_job, due.time, snapshot.local_zone) {
        Ok(object) => {
            let wake = Times { since: due.time, ..times }.next(now);
            Next::Start(Box::new(Start { scheduled: due.time, name, replace, object, wake }))
        }
        Err(error) => Next::Impossible(error),
    }
}

/// The Job of a due time exists, although the status does not say so: its creation was never written down, or it is that
/// of an earlier time in the same minute (CJ-50).
fn served(draft: &mut Draft, job: &JobView, scheduled: Timestamp) {
    match job.ending {
        None => draft.list(job.reference()),
        Some(ending) if job.scheduled == Some(scheduled) => draft.tell(Event::saw_completed(&job.name, ending)),
        Some(_) => {}
    }
    draft.scheduled(scheduled);
}

/// Whose a Job is that was in the way of a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Ours, from an attempt whose answer got lost. It is written down now.
    Ours,
    /// Somebody else's: this time is not served. Upstream then forgets the CronJob until something happens (CJ-70);
    /// here the next time comes as ever.
    Foreign,
}

impl Start {
    /// The Job was created.
    pub fn created(&self, draft: &mut Draft, job: ActiveJob) {
        draft.list(job);
        draft.scheduled(self.scheduled);
    }

    /// The server has a Job of that name (CJ-27).
    pub fn exists(&self, draft: &mut Draft, job: &JobView, cron_job: &Uid) -> Existing {
        if job.owner.as_ref() != Some(cron_job) && !is(Mutation::F18) {
            return Existing::Foreign;
        }
        served(draft, job, self.scheduled);
        Existing::Ours
    }
}
