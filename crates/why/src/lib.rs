//! What a Job, CronJob or pod is waiting for, since when, what happens next, and what one can do about it.
//!
//! [`explain`] is a pure function from a [`Snapshot`] of API objects to an [`Answer`]; fetching the objects and
//! printing the answer is the command line's business. Objects come as JSON and may be from any cluster, of any version
//! and in any shape: what is missing or malformed is simply not known, and nothing here panics.
//!
//! | file | explains |
//! |---|---|
//! | `job/` | a Job: `finished`, `deleting`, `controller`, `creation`, `backoff`, `population` |
//! | `pod` | a pod, also as part of its Job's answer |
//! | `cronjob` | a CronJob: next, missed, blocked and impossible runs |
//! | `names` | what a name that does not exist may have meant |

mod answer;
mod cronjob;
mod events;
mod job;
mod names;
mod object;
mod pod;
mod snapshot;
mod words;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Evidence, Next, State};
pub use names::similar;
pub use snapshot::{Kind, Snapshot};

/// Says what the object of the snapshot is waiting for.
pub fn explain(snapshot: &Snapshot) -> Answer {
    match snapshot.kind {
        Kind::Job => job::explain(snapshot),
        Kind::CronJob => cronjob::explain(snapshot),
        Kind::Pod => pod::explain(snapshot),
    }
}
