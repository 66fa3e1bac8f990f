//! How far a Job is: the numbers that its end and its next pods are decided by (JC section 8).
//!
//! They are what the status says plus what the pods say that the status does not contain yet; not the same as the
//! counters of the status at that moment, which follow in `tracking`.

use std::collections::BTreeSet;

use batch_types::index_ranges::IndexSet;
use k8s_openapi::api::batch::v1::JobStatus;

use super::Uid;
use super::status::{Uncounted, count};
use super::tally::{Fate, Tally};
use teeth::{Mutation, is};

#[derive(Debug, Clone)]
pub(crate) struct Totals {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) uncounted: Uncounted,
    /// Only of Indexed Jobs.
    pub(crate) indexes: Option<IndexTotals>,
}

#[derive(Debug, Clone)]
pub(crate) struct IndexTotals {
    /// `status.completedIndexes`, limited to the indexes that exist.
    pub(crate) recorded: IndexSet,
    /// The recorded ones and those of succeeded pods that are still tracked (JC-1402).
    pub(crate) succeeded: IndexSet,
    /// JC-1503. Empty unless `backoffLimitPerIndex` is set.
    pub(crate) failed: IndexSet,
    /// `status.failedIndexes`, limited to the indexes that exist.
    pub(crate) failed_recorded: IndexSet,
}

impl Totals {
    pub(crate) fn new(status: &JobStatus, tally: &Tally) -> Self {
        let uncounted = Uncounted::read(status);
        let listed = |uids: &[Uid], fate: Fate| uids.iter().filter(|uid| tally.fate(uid) == Some(fate)).count() as u64;

        // A pod that was listed as failed stays failed, even if it ends well after all (INV-2, Q-3).
        let listed_succeeded =
            listed(&uncounted.succeeded, Fate::Succeeded) + listed(&uncounted.failed, Fate::Succeeded);
        let new_succeeded = tally.succeeded.len() as u64 - listed_succeeded;
        let listed_failed = uncounted.failed.iter().filter(|uid| tally.counts_as_failed(uid)).count() as u64;
        let new_failed = u64::from(tally.failed_counted) - listed_failed;

        let indexes = tally.rules.indexed.then(|| IndexTotals::new(status, tally, &uncounted));
        Self {
            succeeded: match &indexes {
                Some(indexes) => indexes.succeeded.len() as u64,
                None => count(status.succeeded) + new_succeeded + uncounted.succeeded.len() as u64,
            },
            failed: count(status.failed) + new_failed + uncounted.failed.len() as u64,
            uncounted,
            indexes,
        }
    }
}

impl IndexTotals {
    fn new(status: &JobStatus, tally: &Tally, uncounted: &Uncounted) -> Self {
        let bound = i32::try_from(tally.rules.index_bound).unwrap_or(i32::MAX);
        let bound = if is(Mutation::C15) { i32::MAX } else { bound };
        let parse = |text: &Option<String>| IndexSet::parse(text.as_deref().unwrap_or(""), bound);
        let recorded = parse(&status.completed_indexes);
        let limited = tally.rules.index_limit.is_some();
        let failed_recorded = if limited { parse(&status.failed_indexes) } else { IndexSet::new() };

        // The first verdict on an index stands, so that the two sets never overlap (INV-2, INV-19).
        let denied = denied(tally, uncounted);
        let fresh = tally.indexes.succeeded.iter();
        let fresh = fresh.filter(|index| !failed_recorded.contains(*index) && !denied.contains(index));
        let succeeded = recorded.union(&fresh.collect());
        let given_up = tally.indexes.given_up.iter().filter(|index| !succeeded.contains(*index));
        let failed = failed_recorded.union(&given_up.collect());
        Self { recorded, succeeded, failed, failed_recorded }
    }
}

/// Indexes whose succeeded pods were all listed as failed before.
fn denied(tally: &Tally, uncounted: &Uncounted) -> BTreeSet<u32> {
    let listed: BTreeSet<&Uid> = uncounted.failed.iter().collect();
    let turned = listed.iter().filter(|uid| tally.fate(uid) == Some(Fate::Succeeded));
    let indexes = turned.filter_map(|uid| tally.pods[*uid].index);
    let none_left = |index: &u32| {
        let mut members = tally.indexes.members(*index).iter();
        members.all(|uid| listed.contains(uid) || tally.fate(uid) != Some(Fate::Succeeded))
    };
    indexes.filter(none_left).collect()
}
