//! Which pods to create or remove while the Job goes on (JC section 10.2; upstream's `manageJob`).
//!
//! At most one of the two per sync, and a bounded number of calls, except when a Job is suspended (JC-1010). What new pods
//! look like is in `pods`; how long replacements wait is in `backoff`.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobSpec;

use super::action::{Creation, PodAction};
use super::backoff;
use super::failure_policy::PolicyAction;
use super::indexes::{Busy, pending};
use super::metrics::SyncAction;
use super::names::{PodNames, Population};
use super::pod_view::{FailureCounts, Phase};
use super::rules::natural;
use super::tally::{Entry, Tally};
use super::totals::{IndexTotals, Totals};
use super::{Settings, Uid};
use teeth::{Mutation, is};

/// What a running Job's pods need.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) action: PodAction,
    pub(crate) label: SyncAction,
    /// When the delay before the next creation is over.
    pub(crate) wake_after: Option<Duration>,
}

/// What the choice depends on.
pub(crate) struct Demand<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) tally: &'a Tally,
    pub(crate) totals: &'a Totals,
    pub(crate) names: PodNames<'a>,
    pub(crate) now: Timestamp,
    pub(crate) settings: &'a Settings,
}

impl Demand<'_> {
    pub(crate) fn manage(&self) -> Managed {
        if self.spec.suspend == Some(true) {
            let all: Vec<&Uid> = self.tally.active_pods().map(|(uid, _)| uid).collect();
            return self.remove(all);
        }
        let active = u64::from(self.tally.active);
        let wanted = self.wanted();
        let mut surplus = self.surplus(usize::try_from(active.saturating_sub(wanted)).unwrap_or(usize::MAX));
        if !surplus.is_empty() {
            surplus.truncate(self.settings.create_delete_max);
            return self.remove(surplus);
        }
        let replace_only_failed = self.tally.rules.replace_only_failed && !is(Mutation::C01);
        let terminating = if replace_only_failed { u64::from(self.tally.terminating) } else { 0 };
        match wanted.saturating_sub(active).saturating_sub(terminating) {
            0 => Managed { action: PodAction::None, label: SyncAction::Tracking, wake_after: None },
            // INV-21: it was tried once, and is refused for ever.
            _ if self.tally.in_flight.is_namespace_terminating() => self.created(Vec::new(), None),
            missing => self.create(wanted, missing),
        }
    }

    /// How many pods should be active (JC-1006).
    fn wanted(&self) -> u64 {
        assert!(self.spec.parallelism.is_some() || !is(Mutation::C03), "parallelism is not there");
        let parallelism = u64::from(natural(self.spec.parallelism.unwrap_or(1)));
        let succeeded = self.totals.succeeded;
        match self.spec.completions {
            Some(completions) => u64::from(natural(completions)).saturating_sub(succeeded).min(parallelism),
            None if succeeded > 0 && !is(Mutation::C17) => u64::from(self.tally.active),
            None => parallelism,
        }
    }

    fn remove(&self, pods: Vec<&Uid>) -> Managed {
        let pods: Vec<_> = pods.into_iter().map(|uid| self.tally.pod_ref(uid)).collect();
        let action = if pods.is_empty() { PodAction::None } else { PodAction::Remove(pods) };
        Managed { action, label: SyncAction::PodsDeleted, wake_after: None }
    }

    /// The pods that have to go whatever their number, and further ones until there are `at_least` (JC-1012).
    fn surplus(&self, at_least: usize) -> Vec<&Uid> {
        let tally = self.tally;
        let mut going: BTreeSet<&Uid> = tally.marked.iter().chain(&tally.misplaced).collect();
        for index in &tally.indexes.crowded {
            let members = tally.indexes.members(*index).iter().map(|uid| (uid, &tally.pods[uid]));
            let mut active: Vec<_> = members.filter(|(uid, entry)| is_active(entry) && !going.contains(uid)).collect();
            active.sort_unstable_by(delete_first);
            active.pop();
            going.extend(active.into_iter().map(|(uid, _)| uid));
        }
        let mut pods: Vec<&Uid> = going.iter().copied().collect();
        if pods.len() < at_least {
            let mut others: Vec<_> = tally.active_pods().filter(|(uid, _)| !going.contains(uid)).collect();
            others.sort_unstable_by(delete_first);
            pods.extend(others.into_iter().take(at_least - pods.len()).map(|(uid, _)| uid));
        }
        pods
    }

    /// JC-1009.
    fn create(&self, wanted: u64, missing: u64) -> Managed {
        let missing = usize::try_from(missing).unwrap_or(usize::MAX).min(self.settings.create_delete_max);
        if self.tally.rules.index_limit.is_none() {
            let delay = self.tally.history.remaining(self.now, self.settings);
            if !delay.is_zero() {
                return self.created(Vec::new(), Some(delay));
            }
        }
        match &self.totals.indexes {
            None => self.created(self.pods_without_index(wanted, missing), None),
            Some(indexes) => self.create_indexes(self.pending_indexes(indexes, missing)),
        }
    }

    fn create_indexes(&self, indexes: Vec<u32>) -> Managed {
        let delays: Vec<Duration> = indexes.iter().map(|index| self.index_delay(*index)).collect();
        let due = indexes.iter().zip(&delays).filter(|(_, delay)| delay.is_zero());
        let pods = due.map(|(index, _)| self.pod_of_index(*index)).collect();
        // Upstream sets no timer for the indexes left out when others are due; events of the new pods bring their turn.
        // A timer of their own costs nothing and waits for nobody (INV-30).
        self.created(pods, delays.into_iter().filter(|delay| !delay.is_zero()).min())
    }

    fn created(&self, pods: Vec<Creation>, delay: Option<Duration>) -> Managed {
        let wake_after = delay.map(|delay| delay.max(self.settings.sync_batch_period));
        let batches = slow_start(pods.len(), self.settings.slow_start_batch);
        let action = if pods.is_empty() { PodAction::None } else { PodAction::Create { pods, batches } };
        Managed { action, label: SyncAction::PodsCreated, wake_after }
    }

    /// JC-1011.
    fn pending_indexes(&self, indexes: &IndexTotals, want: usize) -> Vec<u32> {
        let live = &self.tally.indexes;
        let mut busy: Vec<&dyn Busy> = vec![&live.active, &indexes.succeeded, &indexes.failed];
        if self.tally.rules.replace_only_failed && !is(Mutation::C01) {
            busy.push(&live.terminating);
        }
        pending(&busy, self.tally.rules.index_bound, want)
    }

    /// What is left of the delay after the last failure of the index (JC-1107).
    fn index_delay(&self, index: u32) -> Duration {
        let Some(uid) = self.tally.indexes.retained(index) else { return Duration::ZERO };
        let failed = &self.tally.pods[uid];
        backoff::remaining(failed.failure_counts.total() + 1, failed.finished, self.now, self.settings)
    }

    fn pods_without_index(&self, wanted: u64, count: usize) -> Vec<Creation> {
        let unanswered: Vec<_> = self.tally.in_flight.uncertain(None).take(count).cloned().collect();
        let taken = |name: &str| self.tally.name_taken(name) || unanswered.iter().any(|known| **known == *name);
        let ended = self.totals.succeeded.saturating_add(self.totals.failed);
        let population = Population { ended, active: u64::from(self.tally.active), wanted };
        let fresh = self.names.fresh(population, count - unanswered.len(), taken);
        let names = unanswered.iter().cloned().chain(fresh.into_iter().map(Into::into));
        names.map(|name| Creation { name, index: None, failure_counts: None }).collect()
    }

    fn pod_of_index(&self, index: u32) -> Creation {
        let failure_counts = self.tally.rules.index_limit.map(|_| self.next_failure_counts(index));
        let unanswered = self.tally.in_flight.uncertain(Some(index)).next().cloned();
        let name = unanswered.unwrap_or_else(|| {
            let attempts = failure_counts.map_or(0, FailureCounts::total);
            self.names.fresh_for_index(index, attempts, |name| self.tally.name_taken(name)).into()
        });
        Creation { name, index: Some(index), failure_counts }
    }

    /// JC-1507: the counts of the retained pod, one higher on the side its failure belongs to.
    fn next_failure_counts(&self, index: u32) -> FailureCounts {
        let Some(uid) = self.tally.indexes.retained(index) else { return FailureCounts::default() };
        let failed = &self.tally.pods[uid];
        let ignored = failed.matched.as_ref().is_some_and(|found| found.action == PolicyAction::Ignore);
        let FailureCounts { counted, ignored: ignored_before } = failed.failure_counts;
        match ignored {
            true => FailureCounts { counted, ignored: ignored_before.saturating_add(1) },
            false => FailureCounts { counted: counted.saturating_add(1), ignored: ignored_before },
        }
    }
}

fn is_active(entry: &Entry) -> bool {
    !entry.phase.is_terminal() && !entry.deleting
}

/// JC-1013: what has got least far goes first. The UID makes the order complete.
fn delete_first(left: &(&Uid, &Entry), right: &(&Uid, &Entry)) -> Ordering {
    let rank = |(uid, entry): &(&Uid, &Entry)| {
        let phase = match entry.phase {
            Phase::Running => 2,
            Phase::Unknown => 1,
            _ => 0,
        };
        // Times: none first, then the latest.
        let latest_first = |at: Option<Timestamp>| (at.is_some(), Reverse(at));
        (
            (entry.assigned, phase, entry.ready, latest_first(entry.ready_since.filter(|_| entry.ready))),
            (Reverse(entry.container_restarts_max), Reverse(entry.sidecar_restarts_max)),
            (latest_first(entry.created), (*uid).clone()),
        )
    };
    rank(left).cmp(&rank(right))
}

/// Sizes of the batches in which pods are created: doubling, so that a namespace without quota costs few refusals.
fn slow_start(total: usize, first: usize) -> Vec<usize> {
    let (mut left, mut size) = (total, first.max(1));
    std::iter::from_fn(|| {
        let batch = size.min(left);
        left -= batch;
        size = size.saturating_mul(2);
        (batch > 0).then_some(batch)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JC-1009.
    #[test]
    fn batches_double() {
        assert_eq!(slow_start(0, 1), [0_usize; 0]);
        assert_eq!(slow_start(5, 1), [1, 2, 2]);
        assert_eq!(slow_start(100, 1), [1, 2, 4, 8, 16, 32, 37]);
        assert_eq!(slow_start(3, 0), [1, 2]);
        assert_eq!(slow_start(500, usize::MAX), [500]);
    }
}
