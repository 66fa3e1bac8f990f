//! The brain of the CronJob controller: which Jobs are due, which are history, and what the status says (CJ-…).
//!
//! Pure functions; the shell watches, calls the API and keeps time. One sync is a conversation:
//!
//! 1. [`questions`]: what must be read afresh before anything is believed (CJ-16, CJ-17);
//! 2. [`observe`]: what has become of the Jobs, and which finished ones are too many (CJ-13…CJ-17);
//! 3. [`decide`]: whether a Job is to be started now, and when to look again (CJ-18…CJ-25).
//!
//! A [`Draft`] of the status goes through all of them and takes in the outcomes of calls.
//!
//! | file | decides |
//! |---|---|
//! | `view` | what is looked at of CronJobs and Jobs |
//! | `times` | which times were missed, which one is due, which comes next |
//! | `observe`, `history` | steps 1 and 2 |
//! | `decide` | step 3 |
//! | `job_object` | what a started Job looks like |
//! | `draft`, `events` | what the status says; what people are told |
//!
//! Where a crash between two calls would show with upstream's order of steps, the order here is another: a Job is only
//! taken away as history after the status says what there was to know about it, and a Job that was started but never
//! written down is found again by its name and its scheduled time (INV-35, INV-36, INV-38).

mod decide;
mod draft;
mod events;
mod history;
mod job_object;
mod observe;
mod times;
mod view;

#[cfg(test)]
mod tests;

pub use decide::{Decision, Existing, Next, Start, decide, next_wake};
pub use draft::{Draft, with_status};
pub use events::{COMPONENT, Event};
pub use job_object::{TemplateError, job_name};
pub use observe::{Observation, Questions, Snapshot, finished, observe, questions};
pub use times::{Due, NeverDue, Times, next_runs};
pub use view::{ActiveJob, ConcurrencyPolicy, CronJobView, Ending, JobView, Spec, Status};
