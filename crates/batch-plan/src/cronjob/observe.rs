//! What has become of a CronJob's Jobs (CJ-13…CJ-17).

use std::collections::HashSet;
use std::sync::Arc;

use batch_types::names::NameRule;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::job::Uid;
use teeth::{Mutation, is};

use super::{ActiveJob, CronJobView, Draft, Ending, Event, JobView, Spec, history, job_name};

/// Jobs taken away as history in one sync; the rest waits for the next one (INV-29).
const DELETIONS_MAX: usize = 100;

/// Everything one sync may look at. The shell builds it; nothing here can block or fail.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    pub cron_job: &'a CronJobView,
    /// Every Job that this CronJob controls, in the order of their names.
    pub jobs: &'a [Arc<JobView>],
    pub now: Timestamp,
    /// The zone of schedules that name none.
    pub local_zone: &'a TimeZone,
}

/// What must be asked before the cache is believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Questions {
    /// Read the CronJob: there is a Job that its status should list and does not (CJ-16).
    pub cron_job: bool,
    /// Look whether these exist: the status lists them and the cache does not have them (CJ-17), or the other way round
    /// and they look as if we had started them. All of them have names that can be asked for.
    pub jobs: Vec<ActiveJob>,
}

pub fn questions(snapshot: &Snapshot<'_>) -> Questions {
    let status = &snapshot.cron_job.status;
    let known: HashSet<&Uid> = snapshot.jobs.iter().map(|job| &job.uid).collect();
    let unseen = status.active.iter().filter(|entry| !known.contains(&entry.uid));
    let unseen = unseen.filter(|entry| could_exist(entry, snapshot.cron_job)).cloned();
    let unlisted: Vec<_> = snapshot.jobs.iter().filter(|job| is_unlisted(job, snapshot.cron_job)).collect();
    let forgotten = unlisted.iter().filter(|job| started_for(job, snapshot.cron_job).is_some());
    Questions { cron_job: !unlisted.is_empty(), jobs: unseen.chain(forgotten.map(|job| job.reference())).collect() }
}

/// What was seen, and what is history.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub draft: Draft,
    /// Told at once.
    pub events: Vec<Event>,
    /// Finished Jobs that are too many. The draft is to be written before they go: they are the only witnesses of what
    /// it says (REG-F01, REG-F20).
    pub deletions: Vec<Arc<JobView>>,
    /// There are more of them.
    pub more_deletions: bool,
}

/// Takes in what has become of the Jobs. `gone` are the answers to [`Questions::jobs`]: those that do not exist.
pub fn observe(snapshot: &Snapshot<'_>, gone: &HashSet<Uid>) -> Observation {
    let cron_job = snapshot.cron_job;
    let mut draft = Draft::new(&cron_job.status);
    let mut events = Vec::new();
    mend(&mut draft, snapshot);
    for job in snapshot.jobs {
        match job.ending {
            None if is_unlisted(job, cron_job) && !gone.contains(&job.uid) => match started_for(job, cron_job) {
                // We crashed before we could write it down. Upstream leaves it to a later attempt to create it again,
                // and meanwhile lets another one run beside it (INV-36).
                Some(scheduled) => {
                    draft.list(job.reference());
                    draft.scheduled(scheduled);
                }
                None => events.push(Event::unexpected(&job.name)),
            },
            None => {}
            Some(ending) => finished(&mut draft, job, ending, &cron_job.spec),
        }
    }
    for entry in cron_job.status.active.iter().filter(|entry| gone.contains(&entry.uid) && !is(Mutation::F04)) {
        draft.unlist(&entry.uid);
        draft.tell(Event::missing(&entry.name));
    }
    let mut deletions = history::surplus(&cron_job.spec, snapshot.jobs);
    let more_deletions = deletions.len() > DELETIONS_MAX;
    deletions.truncate(DELETIONS_MAX);
    // Once the Job is gone nothing but the status says that its time was served.
    deletions.iter().filter_map(|job| started_for(job, cron_job)).for_each(|scheduled| draft.scheduled(scheduled));
    Observation { draft, events, deletions, more_deletions }
}

/// Anybody who may write the status can list what is no Job of the CronJob, or a Job by a wrong name. Whoever asked for
/// that would be told about something else, or refused for ever (INV-37). The uid says which Job is meant; if that is
/// none that is known, the entry counts as gone (INV-38).
fn mend(draft: &mut Draft, snapshot: &Snapshot<'_>) {
    let cron_job = snapshot.cron_job;
    for entry in &cron_job.status.active {
        match snapshot.jobs.iter().find(|job| job.uid == entry.uid) {
            Some(job) if job.name == entry.name && job.namespace == entry.namespace => {}
            Some(job) => {
                draft.strike(entry);
                draft.list(job.reference());
            }
            None if could_exist(entry, cron_job) => {}
            None => {
                draft.strike(entry);
                draft.tell(Event::missing(&entry.name));
            }
        }
    }
}

/// Whether a Job of the CronJob could have such a name.
fn could_exist(entry: &ActiveJob, cron_job: &CronJobView) -> bool {
    entry.namespace == cron_job.namespace && NameRule::DnsSubdomain.check(&entry.name).is_empty()
}

/// Takes in how a Job has ended.
pub fn finished(draft: &mut Draft, job: &JobView, ending: Ending, spec: &Spec) {
    if draft.status().lists(&job.uid) {
        draft.unlist(&job.uid);
        draft.tell(Event::saw_completed(&job.name, ending));
    }
    let is_missed = is(Mutation::F20) && spec.successful_jobs_history_limit == Some(0);
    // Only successes count, whatever a failed Job's completionTime says (KEP-4368).
    if let (Ending::Complete, Some(completed)) = (ending, job.completion_time)
        && !is_missed
    {
        draft.succeeded(completed);
    }
}

/// A running Job that the status does not list. One that is on its way out is nobody's business any more: after a
/// replacement it may take its time.
fn is_unlisted(job: &JobView, cron_job: &CronJobView) -> bool {
    job.ending.is_none() && !job.terminating && !cron_job.status.lists(&job.uid)
}

/// The scheduled time that we started a Job for; `None` for Jobs that people made by hand (CJ-74).
fn started_for(job: &JobView, cron_job: &CronJobView) -> Option<Timestamp> {
    job.scheduled.filter(|scheduled| *job.name == job_name(&cron_job.name, *scheduled))
}
