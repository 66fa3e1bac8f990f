//! The brain of the Job controller: which pods a Job needs, what its status says, and when it is over.
//!
//! Pure functions; the shell watches, calls the API and keeps time. It holds a [`Ledger`] of all Jobs' pods, which turns
//! watch events into incremental counts, and for each Job that needs attention asks [`plan`] what to do.
//!
//! | file | decides |
//! |---|---|
//! | `ledger`, `tally`, `index_tally`, `in_flight` | what is known about pods, kept up to date event by event |
//! | `plan`, `stages`, `action` | the steps of one sync and what they hand to each other |
//! | `totals`, `verdict`, `failure_policy`, `success_policy` | how far the Job is and whether it ends |
//! | `scale`, `indexes`, `backoff`, `names`, `pods` | which pods are created, when, and what they look like; which go |
//! | `tracking`, `status`, `conditions` | how ended pods are counted exactly once |
//! | `orphans`, `patches` | finalizers that outlived their Job; bodies of patches |
//!
//! Rule numbers (JC-…) refer to the specification of the Job controller, INV-… to the invariants.

mod action;
mod backoff;
mod census;
mod conditions;
mod events;
mod failure_policy;
mod in_flight;
mod index_tally;
mod indexes;
mod invariants;
mod ledger;
mod metrics;
mod names;
mod orphans;
pub mod patches;
mod plan;
mod pod_view;
mod pods;
mod rules;
mod scale;
mod settings;
mod stages;
mod status;
mod success_policy;
mod tally;
mod totals;
mod tracking;
mod uid;
mod verdict;

#[cfg(test)]
mod tests;

pub use action::{CallOutcome, Creation, PodAction, PodRef, ReleaseOutcome};
pub use backoff::remaining as backoff_remaining;
pub use census::Census;
pub use events::{COMPONENT, Event, EventKind};
pub use failure_policy::PolicyAction;
pub use invariants::{Broken, broken_by};
pub use ledger::{Change, Ledger, Noticed};
pub use metrics::{CompletionMode, CreationReason, Ended, Metric, SyncAction};
pub use names::pod_name;
pub use orphans::is_orphan;
pub use plan::{Adoption, Claims, Plan, Skip, Snapshot, plan};
pub use pod_view::{Controller, ExitCode, FailureCounts, Phase, PodView, Restarts, SURPLUS_ANNOTATION};
pub use pods::{NoLabels, PodStencil};
pub use settings::{Manager, Settings, owns};
pub use stages::{Act, Close, Record};
pub use tally::Tally;
pub use uid::Uid;
